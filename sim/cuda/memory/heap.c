/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/cuda/memory/heap.h"

#include <string.h>

#include "base/cleanup.h"
#include "sim/cuda/memory/segment.h"

/* A block returns here with all its units free, so nothing needs clearing for its next use. */
static struct slab blocks = SLAB(struct heap_block, .keep = true);

void heap_init(struct memory_heap *heap, struct cuda_device *device,
               CUresult (*take)(struct memory_heap *heap, uint64_t bytes),
               void (*give)(struct memory_heap *heap, uint64_t bytes)) {
    *heap = (struct memory_heap){ .device = device, .take = take, .give = give, .fd = -1 };
}

static unsigned class_of(unsigned units) {
    return units ? 31u - (unsigned)__builtin_clz(units) : 0;
}

static void block_unlink(struct memory_heap *heap, struct heap_block *block) {
    if (block->previous)
        block->previous->next = block->next;
    else
        heap->class[block->class] = block->next;
    if (block->next)
        block->next->previous = block->previous;
}

static void block_link(struct memory_heap *heap, struct heap_block *block) {
    block->class = class_of(block->largest);
    block->previous = NULL;
    block->next = heap->class[block->class];
    if (block->next)
        block->next->previous = block;
    heap->class[block->class] = block;
}

static void block_reclass(struct memory_heap *heap, struct heap_block *block) {
    if (class_of(block->largest) == block->class)
        return;
    block_unlink(heap, block);
    block_link(heap, block);
}

static void mark(struct heap_block *block, unsigned from, unsigned n, bool take) {
    for (unsigned i = from; i < from + n;) {
        unsigned in_word = MIN(64 - i % 64, from + n - i);
        uint64_t mask = (in_word == 64 ? ~UINT64_C(0) : (UINT64_C(1) << in_word) - 1) << (i % 64);

        if (take)
            block->taken[i / 64] |= mask;
        else
            block->taken[i / 64] &= ~mask;
        i += in_word;
    }
}

/* Units of one allocation: readers look at them only while it lives. */
static void set_start(struct heap_block *block, unsigned from, unsigned n, uint16_t value) {
    for (unsigned i = from; i < from + n; i++)
        block->start[i] = value;
}

/* How long the free run is that [from, from + n) lies in. */
static unsigned run_around(const struct heap_block *block, unsigned from, unsigned n) {
    unsigned first = from, end = from + n;

    while (first > 0) {
        unsigned in_word = (first - 1) % 64 + 1; /* bits of the word below `first` */
        uint64_t used = block->taken[(first - 1) / 64] << (64 - in_word);

        if (used) {
            first -= (unsigned)__builtin_clzll(used);
            break;
        }
        first -= in_word;
    }
    while (end < HEAP_BLOCK_UNITS) {
        uint64_t used = block->taken[end / 64] >> (end % 64);

        if (used) {
            end += (unsigned)__builtin_ctzll(used);
            break;
        }
        end += 64 - end % 64;
    }
    return end - first;
}

/* Length of the free run at `unit`; no need to measure beyond `enough`. */
static unsigned run_at(const struct heap_block *block, unsigned unit, unsigned enough) {
    unsigned run = 0;

    while (unit + run < HEAP_BLOCK_UNITS && run < enough) {
        uint64_t used = block->taken[(unit + run) / 64] >> ((unit + run) % 64);

        if (used)
            return run + (unsigned)__builtin_ctzll(used);
        run += 64 - (unit + run) % 64;
    }
    return MIN(run, HEAP_BLOCK_UNITS - unit);
}

/* A run of `n` free units that begins in [from, to); HEAP_BLOCK_UNITS: none. */
static unsigned block_scan(const struct heap_block *block, unsigned from, unsigned to, unsigned n,
                           unsigned *largest) {
    for (unsigned i = from; i < to;) {
        uint64_t word = ~block->taken[i / 64] >> (i % 64);
        unsigned run;

        if (!word) {
            i = (i / 64 + 1) * 64;
            continue;
        }
        i += (unsigned)__builtin_ctzll(word);
        if (i >= to)
            break;
        run = run_at(block, i, n);
        if (run >= n)
            return i;
        *largest = MAX(*largest, run);
        i += run;
    }
    return HEAP_BLOCK_UNITS;
}

/*
 * Find `n` free units, starting where the last search succeeded: otherwise each call would search a
 * block full of small holes from its start. HEAP_BLOCK_UNITS: none; then `largest` is exact.
 */
static unsigned block_fit(struct heap_block *block, unsigned n) {
    unsigned largest = 0;
    unsigned unit = block_scan(block, block->rover, HEAP_BLOCK_UNITS, n, &largest);

    if (unit == HEAP_BLOCK_UNITS && block->rover > 0)
        unit = block_scan(block, 0, block->rover, n, &largest);
    if (unit == HEAP_BLOCK_UNITS)
        block->largest = largest;
    else
        block->rover = (unit + n) % HEAP_BLOCK_UNITS;
    return unit;
}

static void heap_link(struct memory_heap *heap, struct range *range) {
    range->heap = heap;
    range->context = heap->context;
    range->device = heap->device;
    range->previous = NULL;
    range->next = heap->first;
    if (heap->first)
        heap->first->previous = range;
    heap->first = range;
}

static void heap_unlink(struct memory_heap *heap, struct range *range) {
    if (range->previous)
        range->previous->next = range->next;
    else
        heap->first = range->next;
    if (range->next)
        range->next->previous = range->previous;
}

static CUresult range_take(struct memory_heap *heap, enum range_kind kind, uint64_t bytes,
                           struct range **ret) {
    uint64_t span = round_up(bytes, ADDRESS_SPACE_GRANULE);
    struct range *range;
    CUresult r;

    /* More than any device has: no need to look for addresses. */
    if (span == 0 || span > heap->device->total_bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = heap->take(heap, span);
    if (r != CUDA_SUCCESS)
        return r;
    range = range_new();
    if (range)
        range->base = address_space_reserve(ADDRESS_SPACE_DEVICE, span, 0, 0);
    if (!range || !range->base) {
        if (range)
            range_free(range);
        heap->give(heap, span);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    range->kind = kind;
    range->bytes = bytes;
    range->span = span;
    if (heap->fd >= 0 && address_space_map(range->base, span, heap->fd,
                                           range->base - address_space.base) != CUDA_SUCCESS) {
        address_space_release(range->base, span);
        range_free(range);
        heap->give(heap, span);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    heap_link(heap, range);
    *ret = range;
    return CUDA_SUCCESS;
}

/* Release its bytes and addresses; its charge is released already. */
static void range_drop(struct range *range) {
    struct memory_heap *heap = range->heap;

    address_space_enter(NULL, range->base, range->span);
    address_space_discard(heap->fd, range->base, range->span);
    if (heap->fd >= 0)
        address_space_map(range->base, range->span, -1, 0);
    address_space_release(range->base, range->span);
    range_free(range);
}

static void range_give(struct range *range) {
    struct memory_heap *heap = range->heap;

    heap_unlink(heap, range);
    if (range->segment) {
        /* Charged as a segment, not to this process alone; others may still use the bytes. */
        address_space_enter(NULL, range->base, range->span);
        if (segment_forget(range))
            range_free(range);
        return;
    }
    heap->give(heap, range->span);
    range_drop(range);
}

/* A block without allocations, charged. */
static CUresult block_new(struct memory_heap *heap, struct heap_block **ret) {
    struct heap_block *block = heap->spare;
    struct range *range;
    CUresult r;

    if (block) {
        r = heap->take(heap, ADDRESS_SPACE_GRANULE);
        if (r != CUDA_SUCCESS)
            return r;
        heap->spare = NULL;
    } else {
        block = slab_new(&blocks);
        if (!block)
            return CUDA_ERROR_OUT_OF_MEMORY;
        r = range_take(heap, RANGE_BLOCK, ADDRESS_SPACE_GRANULE, &range);
        if (r != CUDA_SUCCESS) {
            slab_free(&blocks, block);
            return r;
        }
        slab_publish(block);
        block->range = range;
        range->block = block;
        address_space_enter(range, range->base, range->span);
    }
    block->largest = HEAP_BLOCK_UNITS;
    block->rover = 0;
    block_link(heap, block);
    *ret = block;
    return CUDA_SUCCESS;
}

/* The last allocation of a block is gone. One block keeps its addresses for the next. */
static void block_empty(struct memory_heap *heap, struct heap_block *block) {
    block_unlink(heap, block);
    if (!heap->spare && !block->range->segment) {
        heap->spare = block;
        heap->give(heap, ADDRESS_SPACE_GRANULE);
        return;
    }
    range_give(block->range);
    slab_free(&blocks, block);
}

static uint32_t last_small_id;

static void block_take(struct memory_heap *heap, struct heap_block *block, unsigned unit,
                       unsigned n, uint32_t bytes) {
    mark(block, unit, n, true);
    block->n_used += n;
    __atomic_store_n(&block->bytes[unit], bytes, __ATOMIC_RELAXED);
    block->id[unit] = ++last_small_id;
    block->sync_memops[unit / 8] &= (uint8_t) ~(1u << (unit % 8));
    set_start(block, unit, n, (uint16_t)(unit + 1));
    heap->used_bytes += (uint64_t)n * HEAP_UNIT;
}

static CUresult small_alloc(struct memory_heap *heap, uint64_t bytes, CUdeviceptr *ret) {
    unsigned n = (unsigned)((bytes + HEAP_UNIT - 1) / HEAP_UNIT);
    struct heap_block *block = NULL, *next;
    unsigned unit = HEAP_BLOCK_UNITS;
    CUresult r;

    for (unsigned c = class_of(n); c < HEAP_CLASSES && unit == HEAP_BLOCK_UNITS; c++)
        for (block = heap->class[c]; block; block = next) {
            next = block->next;
            if (block->largest < n)
                continue;
            unit = block_fit(block, n);
            if (unit != HEAP_BLOCK_UNITS)
                break;
            block_reclass(heap, block);
        }
    if (unit == HEAP_BLOCK_UNITS) {
        r = block_new(heap, &block);
        if (r != CUDA_SUCCESS)
            return r;
        unit = 0;
    }
    block_take(heap, block, unit, n, (uint32_t)bytes);
    *ret = block->range->base + (uint64_t)unit * HEAP_UNIT;
    return CUDA_SUCCESS;
}

CUresult heap_alloc_range(struct memory_heap *heap, uint64_t bytes, struct range **ret) {
    struct range *range;
    CUresult r = range_take(heap, RANGE_DEVICE, bytes, &range);

    if (r != CUDA_SUCCESS)
        return r;
    heap->used_bytes += range->span;
    address_space_enter(range, range->base, range->span);
    *ret = range;
    return CUDA_SUCCESS;
}

CUresult heap_alloc(struct memory_heap *heap, uint64_t bytes, CUdeviceptr *ret) {
    struct range *range;
    CUresult r;

    if (bytes < ADDRESS_SPACE_GRANULE)
        return small_alloc(heap, bytes, ret);
    r = heap_alloc_range(heap, bytes, &range);
    if (r == CUDA_SUCCESS)
        *ret = range->base;
    return r;
}

bool heap_block_find(const struct range *range, CUdeviceptr address, struct allocation *ret) {
    const struct heap_block *block = range->block;
    unsigned unit = (unsigned)((address - range->base) / HEAP_UNIT) % HEAP_BLOCK_UNITS;
    unsigned start = __atomic_load_n(&block->start[unit], __ATOMIC_RELAXED);
    CUdeviceptr base;
    uint64_t bytes;

    if (start == 0)
        return false;
    unit = start - 1;
    base = range->base + (uint64_t)unit * HEAP_UNIT;
    bytes = __atomic_load_n(&block->bytes[unit], __ATOMIC_RELAXED);
    /* The end of the last unit was not asked for. */
    if (address - base >= bytes)
        return false;
    *ret = (struct allocation){
        .range = (struct range *)range,
        .base = base,
        .bytes = bytes,
        .id = UINT64_C(1) << 32 | block->id[unit], /* apart from the ids of ranges */
        .unit = unit,
    };
    return true;
}

bool heap_fits(const struct allocation *allocation, uint64_t bytes) {
    if (allocation->range->kind != RANGE_BLOCK)
        return round_up(bytes, ADDRESS_SPACE_GRANULE) == allocation->range->span;
    return bytes < ADDRESS_SPACE_GRANULE &&
           round_up(bytes, HEAP_UNIT) == round_up(allocation->bytes, HEAP_UNIT);
}

void heap_resize(const struct allocation *allocation, uint64_t bytes) {
    struct range *range = allocation->range;

    if (range->kind != RANGE_BLOCK) {
        range->bytes = bytes;
        range->id = range_next_id();
        return;
    }
    __atomic_store_n(&range->block->bytes[allocation->unit], (uint32_t)bytes, __ATOMIC_RELAXED);
    range->block->id[allocation->unit] = ++last_small_id;
}

void heap_free(const struct allocation *allocation) {
    struct range *range = allocation->range;
    struct memory_heap *heap = range->heap;
    struct heap_block *block;
    unsigned n;

    if (range->kind != RANGE_BLOCK) {
        heap->used_bytes -= range->span;
        range_give(range);
        return;
    }
    block = range->block;
    n = (unsigned)((allocation->bytes + HEAP_UNIT - 1) / HEAP_UNIT);
    mark(block, allocation->unit, n, false);
    set_start(block, allocation->unit, n, 0);
    address_space_changed();
    block->n_used -= n;
    heap->used_bytes -= (uint64_t)n * HEAP_UNIT;
    if (block->n_used == 0) {
        block_empty(heap, block);
        return;
    }
    block->largest = MAX(block->largest, run_around(block, allocation->unit, n));
    block_reclass(heap, block);
}

void heap_done(struct memory_heap *heap) {
    struct range *next;

    if (heap->spare) { /* has no charge to give back */
        struct heap_block *spare = heap->spare;

        heap->spare = NULL;
        heap_unlink(heap, spare->range);
        range_drop(spare->range);
        slab_free(&blocks, spare);
    }

    for (struct range *range = heap->first; range; range = next) {
        struct heap_block *block = range->kind == RANGE_BLOCK ? range->block : NULL;

        next = range->next;
        range_give(range);
        if (block) {
            memset(block->taken, 0, sizeof(block->taken));
            memset(block->start, 0, sizeof(block->start));
            block->n_used = 0;
            slab_free(&blocks, block);
        }
    }
    for (unsigned c = 0; c < HEAP_CLASSES; c++)
        heap->class[c] = NULL;
    heap->used_bytes = 0;
}
