/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/cuda/memory/managed.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/cleanup.h"
#include "sim/box/charge.h"
#include "sim/cuda/core/device.h"
#include "sim/cuda/memory/memory.h"
#include "sim/cuda/stream/submit.h"

/* Advice is kept per page: the page size of managed memory on a GPU. */
#define PAGE_SHIFT 16

enum {
    NOWHERE = -2, /* CU_DEVICE_INVALID: no preferred location, or never prefetched */
};

struct page_location {
    int8_t type; /* CUmemLocationType; 0: none */
    int8_t id;
};

struct managed_page {
    struct page_location preferred, last;
    uint8_t read_mostly;
    uint8_t host_accesses;
    uint32_t accessed_by; /* bit per device ordinal */
};

struct managed {
    struct slab_head head;
    struct range *range;
    struct managed_page *pages;
    size_t n_pages;
    int8_t *resident; /* per granule: ordinal of the device that has it; -1: the host */
    size_t n_granules;
};

static struct slab all = SLAB(struct managed);

static CUresult take(const struct cuda_device *device, uint64_t bytes) {
    int r;

    if (box_lock(driver.box) < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    r = charge_take_unlimited(driver.box, driver.slot, device->part, bytes, NULL);
    box_unlock(driver.box);
    return r == 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Move up to `bytes` of managed memory from `device` to the host; how many were moved. */
static uint64_t evict(const struct cuda_device *device, uint64_t bytes) {
    uint64_t moved = 0;

    for (struct managed *managed = slab_next(&all, NULL); managed && moved < bytes;
         managed = slab_next(&all, managed))
        for (size_t i = 0; i < managed->n_granules && moved < bytes; i++)
            if (managed->resident[i] == device->ordinal) {
                managed->resident[i] = -1;
                moved += ADDRESS_SPACE_GRANULE;
            }
    if (moved)
        device_give(device, moved);
    return moved;
}

CUresult managed_make_room(const struct cuda_device *device, uint64_t bytes) {
    CUresult r = device_take(device, bytes);

    if (__builtin_expect(r != CUDA_ERROR_OUT_OF_MEMORY, 1))
        return r;
    if (evict(device, round_up(bytes, ADDRESS_SPACE_GRANULE)) == 0)
        return r;
    return device_take(device, bytes);
}

void managed_use(struct range *range, CUdeviceptr address, uint64_t bytes,
                 const struct cuda_device *device) {
    struct managed *managed = range->managed;
    size_t first = (address - range->base) >> ADDRESS_SPACE_SHIFT;
    size_t last = (address - range->base + bytes - 1) >> ADDRESS_SPACE_SHIFT;

    for (size_t i = first; bytes && i <= last && i < managed->n_granules; i++) {
        int8_t now = managed->resident[i];

        if (now == (device ? device->ordinal : -1))
            continue;
        /* What does not fit stays where it is: a GPU then reaches over the bus. */
        if (device && take(device, ADDRESS_SPACE_GRANULE) != CUDA_SUCCESS)
            return;
        managed->resident[i] = device ? (int8_t)device->ordinal : -1;
        if (now >= 0)
            device_give(&driver.devices[now], ADDRESS_SPACE_GRANULE);
    }
}

static size_t notes_bytes(const struct managed *managed) {
    return managed->n_pages * sizeof(*managed->pages) + managed->n_granules;
}

static void managed_end(struct managed *managed) {
    munmap(managed->pages, notes_bytes(managed));
    slab_free(&all, managed);
}

void managed_free(struct range *range) {
    struct managed *managed = range->managed;

    managed_use(range, range->base, range->bytes, NULL);
    address_space_enter(NULL, range->base, range->span);
    context_unlink(range->context, range);
    address_space_host_unmap(range->base, range->span);
    address_space_release(range->base, range->span);
    range_free(range);
    managed_end(managed);
}

static struct managed *managed_new(uint64_t bytes) {
    struct managed *managed = slab_new(&all);

    if (!managed)
        return NULL;
    managed->n_granules = round_up(bytes, ADDRESS_SPACE_GRANULE) >> ADDRESS_SPACE_SHIFT;
    managed->n_pages = (bytes + (1 << PAGE_SHIFT) - 1) >> PAGE_SHIFT;
    /* One mapping for both, mostly untouched zeros: the pages first, then the granules. */
    managed->pages = mmap(NULL, notes_bytes(managed), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (managed->pages == MAP_FAILED) {
        slab_free(&all, managed);
        return NULL;
    }
    managed->resident = (int8_t *)(managed->pages + managed->n_pages);
    memset(managed->resident, -1, managed->n_granules);
    return managed;
}

CUresult managed_alloc(struct context *context, uint64_t bytes, unsigned flags, CUdeviceptr *ret) {
    struct managed *managed;
    struct range *range;

    if (bytes > address_space.host_bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    managed = managed_new(bytes);
    range = managed ? range_new() : NULL;
    if (range)
        range->base = address_space_reserve(ADDRESS_SPACE_HOST, bytes, 0, 0);
    if (!range || !range->base || address_space_host_map(range->base, bytes) != CUDA_SUCCESS) {
        if (range && range->base)
            address_space_release(range->base, bytes);
        if (range)
            range_free(range);
        if (managed)
            managed_end(managed);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    range->kind = RANGE_MANAGED;
    range->bytes = bytes;
    range->span = round_up(bytes, ADDRESS_SPACE_GRANULE);
    range->flags = flags;
    range->device = context->device;
    range->managed = managed;
    managed->range = range;
    context_link(context, range);
    slab_publish(managed);
    address_space_enter(range, range->base, range->span);
    *ret = range->base;
    return CUDA_SUCCESS;
}

CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags) {
    struct context *context;

    ENTER_CONTEXT(context);
    if (!dptr || bytesize == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    return managed_alloc(context, bytesize, flags, dptr);
}

/* The managed range that has all of these bytes, or NULL. */
static struct range *find(CUdeviceptr address, uint64_t bytes) {
    struct allocation found;

    if (bytes == 0 || !memory_find(address, &found) || found.range->kind != RANGE_MANAGED ||
        bytes > found.bytes - (address - found.base))
        return NULL;
    return found.range;
}

/* A location that a page can be advised about or sent to. */
static CUresult page_location_of(CUmemLocation location, struct page_location *ret) {
    switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        if (!device_get(location.id))
            return CUDA_ERROR_INVALID_DEVICE;
        *ret = (struct page_location){ CU_MEM_LOCATION_TYPE_DEVICE, (int8_t)location.id };
        return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        *ret = (struct page_location){ (int8_t)location.type, 0 };
        return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        if (location.id < 0 || location.id > INT8_MAX)
            return CUDA_ERROR_INVALID_VALUE;
        *ret = (struct page_location){ CU_MEM_LOCATION_TYPE_HOST_NUMA, (int8_t)location.id };
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUmemLocation location_of(CUdevice device) {
    return device == CU_DEVICE_CPU
               ? (CUmemLocation){ .type = CU_MEM_LOCATION_TYPE_HOST }
               : (CUmemLocation){ .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device };
}

static void advise(struct managed_page *page, CUmem_advise advice, struct page_location where) {
    bool device = where.type == CU_MEM_LOCATION_TYPE_DEVICE;

    switch ((int)advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
        page->read_mostly = 1;
        break;
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        page->read_mostly = 0;
        break;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        page->preferred = where;
        break;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        page->preferred = (struct page_location){ 0 };
        break;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
        if (device)
            page->accessed_by |= 1u << where.id;
        else
            page->host_accesses = 1;
        break;
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
        if (device)
            page->accessed_by &= ~(1u << where.id);
        else
            page->host_accesses = 0;
        break;
    }
}

CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                        CUmemLocation location) {
    struct context *context;
    struct page_location where = { 0 };
    struct range *range;

    ENTER_CONTEXT(context);
    if (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
        return CUDA_ERROR_INVALID_VALUE;
    /* The location does not matter to advice that has none. */
    if (advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION || advice == CU_MEM_ADVISE_SET_ACCESSED_BY ||
        advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY)
        TRY(page_location_of(location, &where));
    DRIVER_LOCKED();
    range = find(devPtr, count);
    if (!range)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = (devPtr - range->base) >> PAGE_SHIFT;
         i <= (devPtr - range->base + count - 1) >> PAGE_SHIFT; i++)
        advise(&range->managed->pages[i], advice, where);
    return CUDA_SUCCESS;
}

CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device) {
    return cuMemAdvise_v2(devPtr, count, advice, location_of(device));
}

/* Move pages to a location, or discard their contents, when the stream gets there. */
struct move {
    const struct context *context;
    CUdeviceptr address;
    uint64_t bytes;
    struct page_location where; /* type 0: nowhere, the contents are of no use any more */
};

/* Bytes of a range that are not with `device` (NULL: the host) yet; at most `bytes`. */
static uint64_t elsewhere(const struct range *range, const struct move *move,
                          const struct cuda_device *device) {
    const struct managed *managed = range->managed;
    const size_t first = (move->address - range->base) >> ADDRESS_SPACE_SHIFT;
    const size_t last = (move->address - range->base + move->bytes - 1) >> ADDRESS_SPACE_SHIFT;
    uint64_t bytes = 0;

    for (size_t i = first; i <= last && i < managed->n_granules; i++)
        if (managed->resident[i] != (device ? device->ordinal : -1))
            bytes += ADDRESS_SPACE_GRANULE;
    return MIN(bytes, move->bytes);
}

/* The contents are discarded: they need no memory on a device, nor on the host. */
static void discard(struct range *range, const struct move *move) {
    uint64_t first = round_up(move->address, 4096);
    uint64_t end = (move->address + move->bytes) & ~UINT64_C(4095);

    managed_use(range, move->address, move->bytes, NULL);
    if (end > first)
        madvise((void *)(uintptr_t)first, end - first, MADV_DONTNEED);
}

static uint64_t move_run(void *argument) {
    const struct move *move = argument;
    const struct cuda_device *device =
        move->where.type == CU_MEM_LOCATION_TYPE_DEVICE ? device_get(move->where.id) : NULL;
    const struct cost_device cost = device_cost(device ? device : move->context->device);
    struct range *range;
    uint64_t bytes;

    DRIVER_LOCKED();
    range = find(move->address, move->bytes);
    if (!range)
        return 0;
    if (!move->where.type) {
        discard(range, move);
        return 0;
    }
    bytes = elsewhere(range, move, device);
    managed_use(range, move->address, move->bytes, device);
    return bytes ? cost_host_copy(&cost, bytes, true) : 1;
}

static CUresult move_submit(CUdeviceptr address, uint64_t bytes, struct page_location where,
                            CUstream stream) {
    const struct cuda_device *device =
        where.type == CU_MEM_LOCATION_TYPE_DEVICE ? device_get(where.id) : NULL;
    struct context *context;
    struct range *range;
    struct move *move;
    CUresult r;

    TRY(stream_find(stream, NULL, &context));
    driver_lock();
    range = find(address, bytes);
    /* The last location is known at once, before the pages have moved. */
    for (size_t i = (address - (range ? range->base : address)) >> PAGE_SHIFT;
         range && where.type && i <= (address - range->base + bytes - 1) >> PAGE_SHIFT; i++)
        range->managed->pages[i].last = where;
    driver_unlock();
    if (!range)
        return CUDA_ERROR_INVALID_VALUE;
    move = malloc(sizeof(*move));
    if (!move)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *move = (struct move){ context, address, bytes, where };
    r = stream_submit(stream,
                      &(struct stream_order){
                          .type = CU_GRAPH_NODE_TYPE_EMPTY,
                          .run = move_run,
                          .argument = move,
                          .release = free,
                          .engine = !where.type ? TIMELINE_NOTHING
                                    : device    ? TIMELINE_UPLOAD
                                                : TIMELINE_DOWNLOAD,
                          .device = device,
                          .utilization = UTILIZATION_MEMORY,
                      },
                      NULL);
    if (r != CUDA_SUCCESS)
        free(move);
    return r;
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location,
                               unsigned int flags, CUstream hStream) {
    struct context *context;
    struct page_location where;

    ENTER(context_gpu());
    TRY(stream_find(hStream, NULL, &context));
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(page_location_of(location, &where));
    return move_submit(devPtr, count, where, hStream);
}
PTSZ(cuMemPrefetchAsync_v2, (CUdeviceptr p, size_t n, CUmemLocation to, unsigned flags, CUstream s),
     p, n, to, flags, stream_own(s))

CUresult cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUdevice dstDevice,
                            CUstream hStream) {
    return cuMemPrefetchAsync_v2(devPtr, count, location_of(dstDevice), 0, hStream);
}
PTSZ(cuMemPrefetchAsync, (CUdeviceptr p, size_t n, CUdevice to, CUstream s), p, n, to,
     stream_own(s))

CUresult cuMemPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count,
                                 CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs,
                                 size_t numPrefetchLocs, unsigned long long flags,
                                 CUstream hStream) {
    struct context *context;
    struct page_location where;
    size_t location = 0;

    ENTER(context_gpu());
    TRY(stream_find(hStream, NULL, &context));
    if (!dptrs || !sizes || !count || !prefetchLocs || !prefetchLocIdxs || !numPrefetchLocs ||
        flags || prefetchLocIdxs[0] != 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        while (location + 1 < numPrefetchLocs && prefetchLocIdxs[location + 1] <= i)
            location++;
        TRY(page_location_of(prefetchLocs[location], &where));
        TRY(move_submit(dptrs[i], sizes[i], where, hStream));
    }
    return CUDA_SUCCESS;
}
PTSZ(cuMemPrefetchBatchAsync,
     (CUdeviceptr * p, size_t *n, size_t count, CUmemLocation *to, size_t *at, size_t places,
      unsigned long long flags, CUstream s),
     p, n, count, to, at, places, flags, stream_own(s))

CUresult cuMemDiscardBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count,
                                unsigned long long flags, CUstream hStream) {
    struct context *context;

    ENTER(context_gpu());
    TRY(stream_find(hStream, NULL, &context));
    if (!dptrs || !sizes || !count || flags)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        TRY(move_submit(dptrs[i], sizes[i], (struct page_location){ 0 }, hStream));
    return CUDA_SUCCESS;
}
PTSZ(cuMemDiscardBatchAsync,
     (CUdeviceptr * p, size_t *n, size_t count, unsigned long long flags, CUstream s), p, n, count,
     flags, stream_own(s))

CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *dptrs, size_t *sizes, size_t count,
                                           CUmemLocation *prefetchLocs, size_t *prefetchLocIdxs,
                                           size_t numPrefetchLocs, unsigned long long flags,
                                           CUstream hStream) {
    TRY(cuMemDiscardBatchAsync(dptrs, sizes, count, flags, hStream));
    return cuMemPrefetchBatchAsync(dptrs, sizes, count, prefetchLocs, prefetchLocIdxs,
                                   numPrefetchLocs, flags, hStream);
}
PTSZ(cuMemDiscardAndPrefetchBatchAsync,
     (CUdeviceptr * p, size_t *n, size_t count, CUmemLocation *to, size_t *at, size_t places,
      unsigned long long flags, CUstream s),
     p, n, count, to, at, places, flags, stream_own(s))

/* All pages of a range, as one reading: the common value, or else NOWHERE. */
static struct page_location common(const struct managed *managed, size_t first, size_t last,
                                   bool preferred) {
    struct page_location where =
        preferred ? managed->pages[first].preferred : managed->pages[first].last;

    for (size_t i = first + 1; i <= last; i++) {
        struct page_location other =
            preferred ? managed->pages[i].preferred : managed->pages[i].last;

        if (other.type != where.type || other.id != where.id)
            return (struct page_location){ 0 };
    }
    return where;
}

/* A location as the calls of before CUDA 12 name it. */
static int legacy_number(struct page_location where) {
    switch (where.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return where.id;
    case 0:
        return NOWHERE;
    default:
        return CU_DEVICE_CPU;
    }
}

static CUresult range_attribute(void *data, size_t size, CUmem_range_attribute attribute,
                                const struct managed *managed, size_t first, size_t last) {
    struct page_location where;
    int *value = data;

    if (!data || size < 4 || size % 4)
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute != CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY && size != 4)
        return CUDA_ERROR_INVALID_VALUE;
    switch ((int)attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
        *value = 1;
        for (size_t i = first; i <= last; i++)
            *value &= managed->pages[i].read_mostly;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
        where =
            common(managed, first, last, attribute == CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION);
        *value = legacy_number(where);
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY: {
        uint32_t devices = UINT32_MAX;
        bool host = true;
        size_t n = 0;

        for (size_t i = first; i <= last; i++) {
            devices &= managed->pages[i].accessed_by;
            host = host && managed->pages[i].host_accesses;
        }
        for (int d = 0; d < driver.n_devices && n < size / 4; d++)
            if (devices >> d & 1)
                value[n++] = d;
        if (host && n < size / 4)
            value[n++] = CU_DEVICE_CPU;
        while (n < size / 4)
            value[n++] = CU_DEVICE_INVALID;
        return CUDA_SUCCESS;
    }
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
        where = common(managed, first, last,
                       attribute == CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE);
        *value = where.type;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
        where =
            common(managed, first, last, attribute == CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID);
        *value = where.id;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuMemRangeGetAttribute(void *data, size_t dataSize, CUmem_range_attribute attribute,
                                CUdeviceptr devPtr, size_t count) {
    return cuMemRangeGetAttributes(&data, &dataSize, &attribute, 1, devPtr, count);
}

CUresult cuMemRangeGetAttributes(void **data, size_t *dataSizes, CUmem_range_attribute *attributes,
                                 size_t numAttributes, CUdeviceptr devPtr, size_t count) {
    struct range *range;

    ENTER(context_gpu());
    if (!data || !dataSizes || !attributes || !numAttributes)
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    range = find(devPtr, count);
    if (!range)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < numAttributes; i++)
        TRY(range_attribute(data[i], dataSizes[i], attributes[i], range->managed,
                            (devPtr - range->base) >> PAGE_SHIFT,
                            (devPtr - range->base + count - 1) >> PAGE_SHIFT));
    return CUDA_SUCCESS;
}
