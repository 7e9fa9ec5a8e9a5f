/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPU source: one range of addresses is reserved, and pages of 2 MiB are mapped into it as the
 * arena grows: each is an allocation of its own, so that any page can be given back or moved. A
 * driver without virtual memory management gives whole regions instead.
 *
 * The lease is asked before the driver and told after it: at no instant is more mapped than is
 * leased. Where the driver refuses half way, what was mapped is unmapped and the lease gets it
 * back.
 */
#include "libclient/device/gpu_source.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "libclient/device/gpu.h"

/* The size of the reserved range, in multiples of the device's memory: enough for 16 threads to
 * have their own addresses in the arena, and for holes that freed pages leave. If the driver
 * does not have that many addresses left, we ask for less, but for enough to leave some room for
 * both. */
enum { SPAN_TIMES = 16, SPAN_TIMES_LEAST = 4 };

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
    int r = cuda_mem_create(cuda, gpu_memory_refused(), page, memory->page_bytes, &kind, 0);

    if (r < 0) {
        *page = 0;
        return r;
    }
    r = cuda_mem_map(cuda, gpu_memory_refused(), memory->base + offset, memory->page_bytes, 0,
                     *page, 0);
    if (r == 0) {
        r = cuda_mem_set_access(cuda, gpu_memory_refused(), memory->base + offset,
                                memory->page_bytes, &access, 1);
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
    int r = cuda_mem_unmap(cuda, gpu_memory_refused(), memory->base + offset, memory->page_bytes);

    if (r < 0)
        return r;
    cuda_mem_release(cuda, NULL, *page);
    *page = 0;
    return 0;
}

static int source_grow(void *userdata, uint64_t offset, uint64_t bytes, uint64_t *ret_bytes) {
    struct gpu_memory *memory = userdata;
    uint64_t done = 0;
    int r = gpu_enter(memory->gpu, gpu_memory_refused());

    if (r == 0)
        r = gpu_memory_take(memory, bytes);
    if (r < 0)
        return r;
    for (; r == 0 && done < bytes; done += r == 0 ? memory->page_bytes : 0)
        r = page_map(memory, offset + done);
    if (r == 0)
        return 0;
    for (uint64_t undo = 0; undo < done; undo += memory->page_bytes)
        page_unmap(memory, offset + undo);
    gpu_memory_give(memory, bytes);
    *ret_bytes = 0;
    return r;
}

static int source_trim(void *userdata, uint64_t offset, uint64_t bytes) {
    struct gpu_memory *memory = userdata;
    uint64_t done = 0;
    int r = gpu_enter(memory->gpu, gpu_memory_refused());

    for (; r == 0 && done < bytes; done += r == 0 ? memory->page_bytes : 0)
        r = page_unmap(memory, offset + done);
    gpu_memory_give(memory, done);
    return r;
}

/* Map the same pages at other addresses: the lease need not know. */
static int source_remap(void *userdata, uint64_t from, uint64_t to, uint64_t bytes) {
    struct gpu_memory *memory = userdata;
    const struct cuda *cuda = memory->gpu->cuda;
    CUmemAllocationProp kind = page_kind(memory->gpu);
    CUmemAccessDesc access = { .location = kind.location,
                               .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    int r = gpu_enter(memory->gpu, gpu_memory_refused());

    for (uint64_t at = 0; r == 0 && at < bytes; at += memory->page_bytes) {
        CUmemGenericAllocationHandle page = memory->pages[(from + at) / memory->page_bytes];

        r = cuda_mem_map(cuda, gpu_memory_refused(), memory->base + to + at, memory->page_bytes, 0,
                         page, 0);
        if (r == 0)
            r = cuda_mem_set_access(cuda, gpu_memory_refused(), memory->base + to + at,
                                    memory->page_bytes, &access, 1);
        if (r < 0)
            break;
        memory->pages[(to + at) / memory->page_bytes] = page;
    }
    /* If all pages are mapped twice now, unmap the old places; else undo the new ones. */
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
    int r = gpu_enter(memory->gpu, gpu_memory_refused());

    if (r == 0)
        r = gpu_memory_take(memory, bytes);
    if (r < 0)
        return r;
    r = cuda_mem_alloc(memory->gpu->cuda, gpu_memory_refused(), &address, bytes);
    if (r < 0) {
        gpu_memory_give(memory, bytes);
        return r;
    }
    *ret_address = address;
    return 0;
}

static int source_region_free(void *userdata, uint64_t address, uint64_t bytes) {
    struct gpu_memory *memory = userdata;
    int r = gpu_enter(memory->gpu, gpu_memory_refused());

    if (r == 0)
        r = cuda_mem_free(memory->gpu->cuda, gpu_memory_refused(), address);
    if (r == 0)
        gpu_memory_give(memory, bytes);
    return r;
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
int gpu_source_reserve(struct gpu_memory *memory, uint64_t total_bytes) {
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
    for (unsigned times = SPAN_TIMES; times >= SPAN_TIMES_LEAST; times /= 2) {
        uint64_t n_pages = total_bytes / memory->page_bytes * times;

        if (cuda_mem_address_reserve(gpu->cuda, NULL, &memory->base, n_pages * memory->page_bytes,
                                     memory->page_bytes, 0, 0) < 0)
            continue;
        memory->span_bytes = n_pages * memory->page_bytes;
        memory->pages = calloc(n_pages + 1, sizeof(*memory->pages));
        return memory->pages ? 0 : -ENOMEM;
    }
    return 0;
}

int gpu_source_open(struct gpu_memory *memory, uint64_t total_bytes, struct allot_error *err) {
    struct gpu *gpu = memory->gpu;
    struct mem_source source = {
        .userdata = memory,
        .base = memory->base,
        .span_bytes = memory->span_bytes,
        .page_bytes = memory->page_bytes,
        .region_new = source_region_new,
        .region_free = source_region_free,
        .describe = gpu_memory_describe,
    };
    struct arena_options options = {
        .name = gpu->name,
        .cap_bytes = memory->options.cap_bytes ? memory->options.cap_bytes : total_bytes,
        .stream_ops = &stream_calls,
        .stream_userdata = gpu,
    };
    int r;

    /* To an arena, a cap of 0 means no cap. */
    if (options.cap_bytes < memory->page_bytes)
        return error_set(err, memory->options.lease ? -ENOSPC : -EINVAL,
                         "%" PRIu64 " bytes of %s are less than a page of %" PRIu64
                         ": nothing could be allocated; a larger %s is needed",
                         options.cap_bytes, gpu->name, memory->page_bytes,
                         memory->options.lease ? "lease" : "limit or fraction");
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
