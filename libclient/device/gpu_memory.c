/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPU memory: one range of addresses is reserved, and pages of 2 MiB are mapped into it as the
 * arena grows: each is an allocation of its own, so that any page can be given back or moved. A
 * driver without virtual memory management gives whole regions instead.
 *
 * The lease is asked before the driver and told after it: at no instant is more mapped than is
 * leased. Where the driver refuses half way, what was mapped is unmapped and the lease shrinks
 * back.
 */
#include "libclient/device/gpu_memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "libclient/allot/lease.h"
#include "libclient/device/gpu.h"
#include "libclient/lease/others.h"

/* The range reserved, in multiples of the device's memory: freed pages are holes that need not be
 * filled at once. */
enum { SPAN_TIMES = 4 };

struct gpu_memory {
    struct gpu *gpu;
    struct gpu_memory_options options;
    uint64_t page_bytes;
    CUdeviceptr base;
    uint64_t span_bytes;
    CUmemGenericAllocationHandle *pages; /* by page of the range; 0: not mapped */
    uint8_t stream;                      /* the arena's name for gpu->compute */
    struct allot_error refused;          /* why the last growth failed, for the report */
    struct patience_log waits;           /* what was said of the growth that waits */
};

/* When this thread's growth has to be over, whatever the options say; CLOCK_MONOTONIC, 0: nobody
 * has said so. */
static _Thread_local uint64_t thread_until_nsec;
/* It does not wait at all, as it has another way to memory. */
static _Thread_local bool thread_waits_not;
/* When the allocation that this thread is in has waited long enough, by CLOCK_MONOTONIC: the arena
 * tries to grow several times for one allocation, and all of them together may take so long. */
static _Thread_local struct patience *until;

void gpu_memory_wait_until(uint64_t nsec) {
    thread_until_nsec = nsec;
}

void gpu_memory_wait_not(bool wait_not) {
    thread_waits_not = wait_not;
}

static struct patience begin(const struct patience *patience) {
    uint64_t now = clock_usec(CLOCK_MONOTONIC);
    uint64_t last = thread_until_nsec ? (thread_until_nsec + 999) / 1000 : UINT64_MAX;

    return (struct patience){
        .memory_usec = patience->memory_usec > UINT64_MAX - now
                           ? last
                           : MIN(last, now + patience->memory_usec),
        .away_usec = MIN(last, now + patience->away_usec),
    };
}

static int lease_take(struct gpu_memory *memory, uint64_t bytes) {
    struct allot_lease_patience patience = ALLOT_LEASE_PATIENCE_INIT;
    struct patience own = { 0 }, *end = until ? until : &own;
    uint64_t now = clock_usec(CLOCK_MONOTONIC);
    struct allot_error why = { 0 };
    int r;

    if (!memory->options.lease)
        return 0;
    if (end->away_usec == 0) {
        *end = begin(&memory->options.patience);
        memory->waits = (struct patience_log){ 0 };
    }
    if (memory->options.patience.memory_usec && !thread_waits_not)
        patience.timeout_usec = end->memory_usec == UINT64_MAX ? UINT64_MAX
                                : end->memory_usec > now       ? end->memory_usec - now
                                                               : 0;
    patience.reconnect_usec = end->away_usec > now && !thread_waits_not ? end->away_usec - now : 1;
    patience.progress = thread_waits_not ? NULL : patience_say;
    patience.userdata = &memory->waits;
    r = allot_lease_grow_with(memory->options.lease, memory->gpu->uuid, bytes, &patience, &why);
    return r == 0 ? 0 : error_set(&memory->refused, r, "%s", why.text);
}

static void lease_give(struct gpu_memory *memory, uint64_t bytes) {
    /* What cannot be told now is told when the process attaches again, with what it then holds. */
    if (memory->options.lease)
        allot_lease_shrink(memory->options.lease, memory->gpu->uuid, bytes, NULL);
}

static CUmemAllocationProp page_kind(const struct gpu *gpu) {
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = gpu->device },
    };
}

static int page_map(struct gpu_memory *memory, uint64_t offset) {
    const struct cuda *cuda = memory->gpu->cuda;
    CUmemGenericAllocationHandle *page = &memory->pages[offset / memory->page_bytes];
    CUmemAllocationProp kind = page_kind(memory->gpu);
    CUmemAccessDesc access = { .location = kind.location,
                               .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    int r = cuda_mem_create(cuda, &memory->refused, page, memory->page_bytes, &kind, 0);

    if (r < 0) {
        *page = 0;
        return r;
    }
    r = cuda_mem_map(cuda, &memory->refused, memory->base + offset, memory->page_bytes, 0, *page,
                     0);
    if (r == 0) {
        r = cuda_mem_set_access(cuda, &memory->refused, memory->base + offset, memory->page_bytes,
                                &access, 1);
        if (r < 0)
            cuda_mem_unmap(cuda, NULL, memory->base + offset, memory->page_bytes);
    }
    if (r < 0) {
        cuda_mem_release(cuda, NULL, *page);
        *page = 0;
    }
    return r;
}

static int page_unmap(struct gpu_memory *memory, uint64_t offset) {
    const struct cuda *cuda = memory->gpu->cuda;
    CUmemGenericAllocationHandle *page = &memory->pages[offset / memory->page_bytes];
    int r = cuda_mem_unmap(cuda, &memory->refused, memory->base + offset, memory->page_bytes);

    if (r < 0)
        return r;
    cuda_mem_release(cuda, NULL, *page);
    *page = 0;
    return 0;
}

static int source_grow(void *userdata, uint64_t offset, uint64_t bytes, uint64_t *ret_bytes) {
    struct gpu_memory *memory = userdata;
    uint64_t done = 0;
    int r = gpu_enter(memory->gpu, &memory->refused);

    if (r == 0)
        r = lease_take(memory, bytes);
    if (r < 0)
        return r;
    for (; r == 0 && done < bytes; done += r == 0 ? memory->page_bytes : 0)
        r = page_map(memory, offset + done);
    if (r == 0)
        return 0;
    for (uint64_t undo = 0; undo < done; undo += memory->page_bytes)
        page_unmap(memory, offset + undo);
    lease_give(memory, bytes);
    *ret_bytes = 0;
    return r;
}

static int source_trim(void *userdata, uint64_t offset, uint64_t bytes) {
    struct gpu_memory *memory = userdata;
    uint64_t done = 0;
    int r = gpu_enter(memory->gpu, &memory->refused);

    for (; r == 0 && done < bytes; done += r == 0 ? memory->page_bytes : 0)
        r = page_unmap(memory, offset + done);
    lease_give(memory, done);
    return r;
}

/* The same pages at other addresses: the lease has no part in it. */
static int source_remap(void *userdata, uint64_t from, uint64_t to, uint64_t bytes) {
    struct gpu_memory *memory = userdata;
    const struct cuda *cuda = memory->gpu->cuda;
    CUmemAllocationProp kind = page_kind(memory->gpu);
    CUmemAccessDesc access = { .location = kind.location,
                               .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    int r = gpu_enter(memory->gpu, &memory->refused);

    for (uint64_t at = 0; r == 0 && at < bytes; at += memory->page_bytes) {
        CUmemGenericAllocationHandle page = memory->pages[(from + at) / memory->page_bytes];

        r = cuda_mem_map(cuda, &memory->refused, memory->base + to + at, memory->page_bytes, 0,
                         page, 0);
        if (r == 0)
            r = cuda_mem_set_access(cuda, &memory->refused, memory->base + to + at,
                                    memory->page_bytes, &access, 1);
        if (r < 0)
            break;
        memory->pages[(to + at) / memory->page_bytes] = page;
    }
    /* All are there twice, or all that are there twice go. */
    for (uint64_t at = 0; at < bytes; at += memory->page_bytes) {
        uint64_t gone = r == 0 ? from + at : to + at;

        if (r < 0 && !memory->pages[gone / memory->page_bytes])
            continue;
        cuda_mem_unmap(cuda, NULL, memory->base + gone, memory->page_bytes);
        memory->pages[gone / memory->page_bytes] = 0;
    }
    return r;
}

static int source_region_new(void *userdata, uint64_t bytes, uint64_t *ret_address) {
    struct gpu_memory *memory = userdata;
    CUdeviceptr address;
    int r = gpu_enter(memory->gpu, &memory->refused);

    if (r == 0)
        r = lease_take(memory, bytes);
    if (r < 0)
        return r;
    r = cuda_mem_alloc(memory->gpu->cuda, &memory->refused, &address, bytes);
    if (r < 0) {
        lease_give(memory, bytes);
        return r;
    }
    *ret_address = address;
    return 0;
}

static int source_region_free(void *userdata, uint64_t address, uint64_t bytes) {
    struct gpu_memory *memory = userdata;
    int r = gpu_enter(memory->gpu, &memory->refused);

    if (r == 0)
        r = cuda_mem_free(memory->gpu->cuda, &memory->refused, address);
    if (r == 0)
        lease_give(memory, bytes);
    return r;
}

static int source_describe(void *userdata, char *text, size_t size) {
    struct gpu_memory *memory = userdata;
    char others[256] = "";

    if (memory->refused.code && memory->refused.code != -ENOTCONN && memory->options.lease)
        lease_others(memory->options.lease, memory->gpu->uuid, others, sizeof(others));
    return snprintf(text, size, "%s%s%s", others, *others ? "; " : "",
                    memory->refused.code ? memory->refused.text : "");
}

static int stream_record(void *userdata, uint64_t stream, uint64_t *ret_event) {
    struct gpu *gpu = userdata;
    CUevent event;
    int r = gpu_enter(gpu, NULL);

    if (r == 0)
        r = cuda_event_create(gpu->cuda, NULL, &event, CU_EVENT_DISABLE_TIMING);
    if (r < 0)
        return r;
    r = cuda_event_record(gpu->cuda, NULL, event, (CUstream)(uintptr_t)stream);
    if (r < 0)
        cuda_event_destroy(gpu->cuda, NULL, event);
    else
        *ret_event = (uintptr_t)event;
    return r;
}

static int stream_query(void *userdata, uint64_t event) {
    struct gpu *gpu = userdata;
    int r = cuda_event_query(gpu->cuda, NULL, (CUevent)(uintptr_t)event);

    return r == 0 ? 1 : r == -EAGAIN ? 0 : r;
}

static void stream_discard(void *userdata, uint64_t event) {
    struct gpu *gpu = userdata;

    cuda_event_destroy(gpu->cuda, NULL, (CUevent)(uintptr_t)event);
}

static int stream_wait(void *userdata, uint64_t event) {
    struct gpu *gpu = userdata;

    return cuda_event_synchronize(gpu->cuda, NULL, (CUevent)(uintptr_t)event);
}

static int stream_order(void *userdata, uint64_t stream, uint64_t event) {
    struct gpu *gpu = userdata;

    return cuda_stream_wait_event(gpu->cuda, NULL, (CUstream)(uintptr_t)stream,
                                  (CUevent)(uintptr_t)event, 0);
}

static const struct stream_ops stream_calls = {
    .record = stream_record,
    .query = stream_query,
    .discard = stream_discard,
    .wait = stream_wait,
    .order = stream_order,
};

/* Virtual memory management, where the driver has it; else whole regions. */
static int reserve(struct gpu_memory *memory, uint64_t total_bytes) {
    struct gpu *gpu = memory->gpu;
    CUmemAllocationProp kind = page_kind(gpu);
    size_t granularity;
    int is_there = 0;

    memory->page_bytes = ARENA_PAGE_BYTES;
    if (!cuda_can(gpu->cuda, CUDA_CALL_mem_create) ||
        cuda_device_get_attribute(gpu->cuda, NULL, &is_there,
                                  CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                                  gpu->device) < 0 ||
        !is_there ||
        cuda_mem_get_allocation_granularity(gpu->cuda, NULL, &granularity, &kind,
                                            CU_MEM_ALLOC_GRANULARITY_MINIMUM) < 0)
        return 0;
    while (memory->page_bytes < granularity)
        memory->page_bytes *= 2;
    memory->span_bytes = total_bytes / memory->page_bytes * memory->page_bytes * SPAN_TIMES;
    memory->pages = calloc(memory->span_bytes / memory->page_bytes + 1, sizeof(*memory->pages));
    if (!memory->pages)
        return -ENOMEM;
    if (cuda_mem_address_reserve(gpu->cuda, &memory->refused, &memory->base, memory->span_bytes,
                                 memory->page_bytes, 0, 0) < 0)
        memory->span_bytes = 0;
    return 0;
}

static int arena_make(struct gpu_memory *memory, uint64_t total_bytes, struct allot_error *err) {
    struct gpu *gpu = memory->gpu;
    struct mem_source source = {
        .userdata = memory,
        .base = memory->base,
        .span_bytes = memory->span_bytes,
        .page_bytes = memory->page_bytes,
        .region_new = source_region_new,
        .region_free = source_region_free,
        .describe = source_describe,
    };
    struct arena_options options = {
        .name = gpu->name,
        .cap_bytes = memory->options.cap_bytes ? memory->options.cap_bytes : total_bytes,
        .stream_ops = &stream_calls,
        .stream_userdata = gpu,
    };
    int r;

    options.cap_bytes = options.cap_bytes / memory->page_bytes * memory->page_bytes;
    options.initial_bytes = memory->options.take_all ? options.cap_bytes : 0;
    if (memory->span_bytes) {
        source.grow = source_grow;
        source.trim = source_trim;
        source.remap = source_remap;
    }
    r = arena_new(&gpu->arena, &source, &options, err);
    if (r < 0)
        return r;
    return arena_stream_new(gpu->arena, (uintptr_t)gpu->compute, &memory->stream);
}

int gpu_memory_new(struct gpu *gpu, const struct gpu_memory_options *options,
                   struct allot_error *err) {
    size_t total_bytes;
    int r = cuda_device_total_mem(gpu->cuda, err, &total_bytes, gpu->device);

    if (r < 0)
        return r;
    gpu->memory = calloc(1, sizeof(*gpu->memory));
    if (!gpu->memory)
        return error_set(err, -ENOMEM, "no host memory for the arena of %s", gpu->name);
    gpu->memory->gpu = gpu;
    gpu->memory->options = *options;
    r = reserve(gpu->memory, total_bytes);
    if (r < 0)
        error_set(err, r, "no host memory for the arena of %s", gpu->name);
    if (r == 0)
        r = arena_make(gpu->memory, total_bytes, err);
    if (r < 0)
        gpu_memory_free(gpu);
    return r;
}

void gpu_memory_free(struct gpu *gpu) {
    struct gpu_memory *memory = gpu->memory;

    if (!memory)
        return;
    gpu_enter(gpu, NULL);
    gpu->arena = arena_free(gpu->arena);
    if (memory->span_bytes)
        cuda_mem_address_free(gpu->cuda, NULL, memory->base, memory->span_bytes);
    free(memory->pages);
    free(memory);
    gpu->memory = NULL;
}

int gpu_memory_alloc(struct gpu *gpu, uint64_t bytes, const char *tag, struct arena_block *ret,
                     struct allot_error *err) {
    struct arena_request request = { .bytes = bytes, .stream = gpu->memory->stream };
    struct patience end = { 0 };
    int r;

    request.tag = arena_tag(gpu->arena, tag);
    until = &end;
    r = arena_alloc(gpu->arena, &request, ret, err);
    until = NULL;
    return r;
}

void gpu_memory_dealloc(struct gpu *gpu, uint64_t handle) {
    arena_dealloc_on(gpu->arena, handle, &gpu->memory->stream, 1);
}
