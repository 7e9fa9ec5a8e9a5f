/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/selftest/memory_rows.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/units.h"
#include "ctl/selftest/row.h"
#include "driver/cuda.h"
#include "driver/nvml_process.h"

#define SMALL_BYTES ((size_t)4 << 20)
#define PAGE_BYTES  ((size_t)2 << 20)
#define GROWTHS     16

/* What a way took, to be given back. */
struct taken {
    CUdeviceptr pointer;
    void *host;
    CUarray array;
    CUmemoryPool pool;
    CUmemGenericAllocationHandle handle;
    size_t bytes;
    bool is_mapped;
};

typedef int (*take_fn)(const struct cuda *cuda, size_t bytes, struct taken *ret,
                       struct allot_error *err);

static int take_plain(const struct cuda *cuda, size_t bytes, struct taken *ret,
                      struct allot_error *err) {
    return cuda_mem_alloc(cuda, err, &ret->pointer, bytes);
}

static int take_pitched(const struct cuda *cuda, size_t bytes, struct taken *ret,
                        struct allot_error *err) {
    size_t pitch;

    return cuda_mem_alloc_pitch(cuda, err, &ret->pointer, &pitch, 4096, bytes / 4096, 4);
}

static int take_managed(const struct cuda *cuda, size_t bytes, struct taken *ret,
                        struct allot_error *err) {
    return cuda_mem_alloc_managed(cuda, err, &ret->pointer, bytes, CU_MEM_ATTACH_GLOBAL);
}

static void give_memory(const struct cuda *cuda, struct taken *taken) {
    cuda_mem_free(cuda, NULL, taken->pointer);
}

static int take_async(const struct cuda *cuda, size_t bytes, struct taken *ret,
                      struct allot_error *err) {
    const int r = cuda_mem_alloc_async(cuda, err, &ret->pointer, bytes, NULL);

    return r < 0 ? r : cuda_stream_synchronize(cuda, err, NULL);
}

static void give_async(const struct cuda *cuda, struct taken *taken) {
    CUmemoryPool pool;

    cuda_mem_free_async(cuda, NULL, taken->pointer, NULL);
    cuda_stream_synchronize(cuda, NULL, NULL);
    if (cuda_device_get_default_mem_pool(cuda, NULL, &pool, 0) == 0)
        cuda_mem_pool_trim_to(cuda, NULL, pool, 0);
}

static const CUmemAllocationProp here = {
    .type = CU_MEM_ALLOCATION_TYPE_PINNED,
    .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 },
};

static int take_pool(const struct cuda *cuda, size_t bytes, struct taken *ret,
                     struct allot_error *err) {
    const CUmemPoolProps props = { .allocType = here.type, .location = here.location };
    int r = cuda_mem_pool_create(cuda, err, &ret->pool, &props);

    if (r < 0)
        return r;
    r = cuda_mem_alloc_from_pool_async(cuda, err, &ret->pointer, bytes, ret->pool, NULL);
    if (r == 0)
        r = cuda_stream_synchronize(cuda, err, NULL);
    if (r < 0)
        cuda_mem_pool_destroy(cuda, NULL, ret->pool);
    return r;
}

static void give_pool(const struct cuda *cuda, struct taken *taken) {
    cuda_mem_free_async(cuda, NULL, taken->pointer, NULL);
    cuda_stream_synchronize(cuda, NULL, NULL);
    cuda_mem_pool_destroy(cuda, NULL, taken->pool);
}

static void give_mapped(const struct cuda *cuda, struct taken *taken) {
    if (taken->is_mapped)
        cuda_mem_unmap(cuda, NULL, taken->pointer, taken->bytes);
    if (taken->pointer)
        cuda_mem_address_free(cuda, NULL, taken->pointer, taken->bytes);
    cuda_mem_release(cuda, NULL, taken->handle);
}

static int take_mapped(const struct cuda *cuda, size_t bytes, struct taken *ret,
                       struct allot_error *err) {
    const CUmemAccessDesc access = { .location = here.location,
                                     .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    int r = cuda_mem_create(cuda, err, &ret->handle, bytes, &here, 0);

    if (r < 0)
        return r;
    r = cuda_mem_address_reserve(cuda, err, &ret->pointer, bytes, 0, 0, 0);
    if (r == 0)
        r = cuda_mem_map(cuda, err, ret->pointer, bytes, 0, ret->handle, 0);
    ret->is_mapped = r == 0;
    if (r == 0)
        r = cuda_mem_set_access(cuda, err, ret->pointer, bytes, &access, 1);
    if (r < 0)
        give_mapped(cuda, ret);
    return r;
}

static int take_array(const struct cuda *cuda, size_t bytes, struct taken *ret,
                      struct allot_error *err) {
    const CUDA_ARRAY_DESCRIPTOR descriptor = {
        .Width = 1024, .Height = bytes / 4096, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1
    };

    return cuda_array_create(cuda, err, &ret->array, &descriptor);
}

static void give_array(const struct cuda *cuda, struct taken *taken) {
    cuda_array_destroy(cuda, NULL, taken->array);
}

static int take_pinned(const struct cuda *cuda, size_t bytes, struct taken *ret,
                       struct allot_error *err) {
    return cuda_mem_host_alloc(cuda, err, &ret->host, bytes, 0);
}

static void give_pinned(const struct cuda *cuda, struct taken *taken) {
    cuda_mem_free_host(cuda, NULL, taken->host);
}

static int take_registered(const struct cuda *cuda, size_t bytes, struct taken *ret,
                           struct allot_error *err) {
    int r;

    ret->host = aligned_alloc(4096, bytes);
    if (!ret->host)
        return error_set(err, -ENOMEM, "no host memory");
    memset(ret->host, 0, bytes);
    r = cuda_mem_host_register(cuda, err, ret->host, bytes, 0);
    if (r < 0)
        free(ret->host);
    return r;
}

static void give_registered(const struct cuda *cuda, struct taken *taken) {
    cuda_mem_host_unregister(cuda, NULL, taken->host);
    free(taken->host);
}

static const struct {
    const char *name;
    take_fn take;
    void (*give)(const struct cuda *cuda, struct taken *taken);
    enum { ON_HOST, ON_DEVICE, LIMITED } counts; /* LIMITED: not to be had beyond the limit */
} ways[] = {
    { "cuMemAlloc", take_plain, give_memory, LIMITED },
    { "cuMemAllocPitch", take_pitched, give_memory, LIMITED },
    { "cuMemAllocManaged", take_managed, give_memory, ON_DEVICE },
    { "cuMemAllocAsync", take_async, give_async, LIMITED },
    { "a pool of one's own", take_pool, give_pool, LIMITED },
    { "cuMemCreate and cuMemMap", take_mapped, give_mapped, LIMITED },
    { "cuArrayCreate", take_array, give_array, ON_DEVICE },
    { "cuMemHostAlloc", take_pinned, give_pinned, ON_HOST },
    { "cuMemHostRegister", take_registered, give_registered, ON_HOST },
};

/* That it is memory: a byte written there comes back. */
static int use(const struct cuda *cuda, const struct taken *taken, struct allot_error *err) {
    unsigned char byte = 0;
    int r;

    if (!taken->pointer)
        return 0;
    r = cuda_memset_d8(cuda, err, taken->pointer, 0x5a, SMALL_BYTES);
    if (r == 0)
        r = cuda_copy_dtoh(cuda, err, &byte, taken->pointer + SMALL_BYTES / 2, 1);
    if (r == 0 && byte != 0x5a)
        r = error_set(err, -EIO, "what was written did not come back");
    return r;
}

static void try_way(const struct cuda *cuda, const struct memory_rows *rows, size_t way) {
    struct taken taken = { .bytes = SMALL_BYTES };
    struct allot_error err = { 0 };
    char name[96], took[ROW_TIME_SIZE];
    const uint64_t from = clock_nsec(CLOCK_MONOTONIC);
    int r = ways[way].take(cuda, SMALL_BYTES, &taken, &err);
    const uint64_t nsec = clock_nsec(CLOCK_MONOTONIC) - from;

    snprintf(name, sizeof(name), "%s: %s", rows->where, ways[way].name);
    if (r == -EOPNOTSUPP) {
        row_print(ROW_SKIPPED, name, NULL, "%s", err.text);
        return;
    }
    if (r == 0) {
        r = use(cuda, &taken, &err);
        ways[way].give(cuda, &taken);
    }
    if (r < 0)
        row_print(ROW_FAILED, name,
                  rows->limit_bytes ? "send the transcript: this should fit the lease of the test"
                                    : "free memory on this card, and try again",
                  "4 MiB: %s", err.text);
    else
        row_print(ROW_PASSED, name, NULL, "4 MiB in %s", row_time(nsec, took));
}

static void try_refusal(const struct cuda *cuda, const struct memory_rows *rows, size_t way) {
    const size_t bytes = rows->limit_bytes / PAGE_BYTES * PAGE_BYTES;
    struct taken taken = { .bytes = bytes };
    struct allot_error err = { 0 };
    char name[96], text[UNITS_TEXT_SIZE];
    const int r = ways[way].take(cuda, bytes, &taken, &err);

    snprintf(name, sizeof(name), "%s: beyond the limit by %s", rows->where, ways[way].name);
    units_format_bytes(bytes, text);
    if (r == 0) {
        ways[way].give(cuda, &taken);
        row_print(ROW_FAILED, name,
                  "send the transcript: a tier that claims to refuse this did not",
                  "%s were given, besides the context, in a lease of %s in all", text, text);
    } else if (r == -ENOMEM)
        row_print(ROW_PASSED, name, NULL, "%s are refused", text);
    else if (r == -EOPNOTSUPP)
        row_print(ROW_SKIPPED, name, NULL, "%s", err.text);
    else
        row_print(ROW_FAILED, name, "send the transcript",
                  "expected \"out of memory\", but got: %s", err.text);
}

/* What this process holds on the device by NVML's account; false: it does not say. */
static bool read_used(enum driver_choice choice, uint64_t *ret) {
    const struct driver_options options = driver_options_read(choice);
    cleanup(nvml_closep) struct nvml *nvml = NULL;
    unsigned n = 0;
    bool found = false;

    if (nvml_open(&nvml, &options, NULL) < 0 || nvml_device_count(nvml, &n, NULL) < 0)
        return false;
    for (unsigned i = 0; i < n && !found; i++) {
        cleanup(freep) struct nvml_process *processes = NULL;
        struct nvml_device device;
        size_t n_processes = 0;

        if (nvml_device_at(nvml, &device, i, NULL) < 0 ||
            nvml_process_list(nvml, &device, &processes, &n_processes, NULL) < 0)
            continue;
        for (size_t p = 0; p < n_processes; p++)
            if (processes[p].pid == (uint32_t)getpid() && processes[p].has_used) {
                *ret = processes[p].used_bytes;
                found = true;
            }
    }
    return found;
}

static void try_growth(const struct cuda *cuda, const struct memory_rows *rows) {
    CUdeviceptr pointers[GROWTHS];
    uint64_t took[GROWTHS];
    struct allot_error err = { 0 };
    char name[96], middle[ROW_TIME_SIZE], slowest[ROW_TIME_SIZE];
    size_t n = 0;
    int r = 0;

    snprintf(name, sizeof(name), "%s: growth", rows->where);
    for (; n < GROWTHS; n++) {
        const uint64_t from = clock_nsec(CLOCK_MONOTONIC);

        r = cuda_mem_alloc(cuda, &err, &pointers[n], PAGE_BYTES);
        took[n] = clock_nsec(CLOCK_MONOTONIC) - from;
        if (r < 0)
            break;
    }
    for (size_t i = 0; i < n; i++)
        cuda_mem_free(cuda, NULL, pointers[i]);
    if (r < 0) {
        row_print(ROW_FAILED, name, "send the transcript", "%zu pages of 2 MiB, then: %s", n,
                  err.text);
        return;
    }
    row_time(row_median(took, GROWTHS), middle);
    row_print(ROW_PASSED, name, NULL, "2 MiB in %s, at most %s of %d", middle,
              row_time(took[GROWTHS - 1], slowest), GROWTHS);
}

void memory_rows_try(const struct memory_rows *rows) {
    const struct driver_options options = driver_options_read(rows->choice);
    cleanup(cuda_closep) struct cuda *cuda = NULL;
    struct allot_error err = { 0 };
    char name[96], opened[ROW_TIME_SIZE], made[ROW_TIME_SIZE], text[UNITS_TEXT_SIZE];
    uint64_t from = clock_nsec(CLOCK_MONOTONIC), opened_nsec, used;
    CUcontext context;
    CUdevice device;
    int r = cuda_open(&cuda, &options, &err);

    snprintf(name, sizeof(name), "%s: context", rows->where);
    opened_nsec = clock_nsec(CLOCK_MONOTONIC) - from;
    from = clock_nsec(CLOCK_MONOTONIC);
    if (r == 0)
        r = cuda_device_get(cuda, &err, &device, 0);
    if (r == 0)
        r = cuda_primary_ctx_retain(cuda, &err, &context, device);
    if (r == 0)
        r = cuda_ctx_set_current(cuda, &err, context);
    if (r < 0) {
        row_print(ROW_FAILED, name, "a CUDA program must run here first", "%s", err.text);
        return;
    }
    row_time(opened_nsec, opened);
    row_time(clock_nsec(CLOCK_MONOTONIC) - from, made);
    row_print(ROW_PASSED, name, NULL, "CUDA in %s, context in %s, costs %s", opened, made,
              read_used(rows->choice, &used) ? units_format_bytes(used, text)
                                             : "memory that NVML does not report");
    if (rows->with_context)
        rows->with_context(rows->userdata);
    for (size_t i = 0; i < ELEMENTSOF(ways); i++)
        try_way(cuda, rows, i);
    try_growth(cuda, rows);
    for (size_t i = 0; rows->expects_refusal && i < ELEMENTSOF(ways); i++)
        if (ways[i].counts == LIMITED)
            try_refusal(cuda, rows, i);
    cuda_primary_ctx_release(cuda, NULL, device);
}
