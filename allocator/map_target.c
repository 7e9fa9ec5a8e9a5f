/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where memory goes, and where it comes from if it is moved.
 *
 *     | live | free 3.4 pages      | live | hole      | free | live | top
 *            | . |  P  |  P  | . . |      ↑ P P             .      ↑ P P P
 *              donors of two pages          beside a free chunk    at the end
 *
 * P is a whole page, and . the part of a free chunk that is less than one. A free chunk has memory
 * that no block uses: its whole pages can be moved, and it is then their donor. A hole is a range
 * of addresses that has no memory.
 *
 * Memory is placed at the top, or into a hole that earlier moves left, whichever takes fewer pages:
 * so addresses are reused as memory is.
 */
#include "allocator/map_target.h"

uint32_t map_target_pages_up(const struct shard *shard, uint64_t size) {
    uint64_t up = (size + shard->page_size - 1) / shard->page_size * shard->page_size;

    return up > shard->space_size ? UINT32_MAX : (uint32_t)up;
}

/* The wholly free pages of a chunk. */
static uint32_t whole_pages(const struct shard *shard, const struct chunk *chunk,
                            uint32_t *ret_offset) {
    uint32_t page = shard->page_size;
    uint64_t start = ((uint64_t)chunk->offset + page - 1) / page * page;
    uint64_t end = chunk_end(chunk) / page * page;

    *ret_offset = (uint32_t)start;
    return end > start ? (uint32_t)(end - start) : 0;
}

/* The hole that this offset lies in. */
static uint32_t find_hole(const struct shard *shard, uint32_t offset) {
    const struct chunk *chunks = shard->table.chunks;

    for (unsigned bin = bins_next(shard->holes, 1); bin < BINS;
         bin = bins_next(shard->holes, bin + 1))
        for (uint32_t i = shard->holes->head[bin]; i; i = chunk_link_next(&chunks[i]))
            if (offset - chunks[i].offset < chunks[i].size)
                return i;
    return 0;
}

int map_target_reserve(const struct map_target *target) {
    int r;

    if (!target->hole)
        return 0;
    lock_take(&target->shard->lock);
    r = shard_reserve(target->shard);
    lock_drop(&target->shard->lock);
    return r;
}

void map_target_occupy(struct arena *arena, struct map_target *target, uint32_t size, bool moved) {
    struct shard *shard = target->shard;

    lock_take(&shard->lock);
    if (moved)
        atomic_fetch_sub(&arena->moving_bytes, (uint64_t)size << 8);
    else
        stats_count_held(arena, (uint64_t)size << 8);
    if (!target->hole)
        shard_extend(shard, size);
    else
        shard_fill(shard, find_hole(shard, target->offset), target->offset, size);
    lock_drop(&shard->lock);
    target->offset += size;
    target->size -= size;
}

/* Whether a chunk must not give pages to the target, because it is part of what the target is to
 * become. */
static bool part_of(const struct map_target *target, const struct shard *shard, uint32_t i) {
    const struct chunk *chunk = &shard->table.chunks[i];

    if (shard != target->shard)
        return false;
    if (i == target->beside || i == target->beside_too || (i == shard->top && !target->hole))
        return true;
    return chunk->offset < target->offset && chunk_end(chunk) > target->start;
}

/* Is this hole, with the free chunks beside it, a better target? */
static void consider_hole(struct shard *shard, uint32_t i, uint64_t want, struct map_target *best) {
    const struct chunk *chunks = shard->table.chunks, *hole = &chunks[i];
    const struct chunk *before = &chunks[hole->prev], *behind = &chunks[hole->next];
    bool joins_before = shard_is_free_for_all(shard, hole->prev);
    bool joins_behind = shard_is_free_for_all(shard, hole->next);
    uint32_t need;

    need = map_target_pages_up(shard,
                               joins_before && before->size < want ? want - before->size : want);
    if (need <= hole->size && need < best->size)
        *best = (struct map_target){ shard,        true,         joins_before ? hole->prev : 0,
                                     hole->offset, hole->offset, need };
    if (!joins_behind)
        return;
    need = map_target_pages_up(shard, behind->size < want ? want - behind->size : want);
    if (need <= hole->size && need < best->size)
        *best = (struct map_target){
            shard, true, hole->next, chunk_end(hole) - need, chunk_end(hole) - need, need
        };
    if (joins_before && hole->size < best->size &&
        (uint64_t)before->size + hole->size + behind->size >= want)
        *best = (struct map_target){ shard,        true,       hole->prev, hole->offset,
                                     hole->offset, hole->size, hole->next };
}

bool map_target_find(struct shard *shard, uint32_t size, uint64_t align_bytes, uint8_t stream,
                     struct map_target *ret) {
    const struct chunk *chunks = shard->table.chunks;
    uint64_t want = align_bytes > 256 ? size + (align_bytes >> 8) - 1 : size;
    const struct chunk *top, *below;
    struct map_target best = { .shard = shard, .size = UINT32_MAX };
    uint32_t need, have;

    lock_take(&shard->lock);
    shard_settle(shard);
    top = &chunks[shard->top];
    below = &chunks[top->prev];
    have = top->size;
    if (shard_is_free_for(shard, top->prev, stream))
        have += below->size;
    need = map_target_pages_up(shard, want > have ? want - have : 1);
    if (need <= shard->space_size - chunk_end(top)) {
        best.beside = have > top->size ? top->prev : 0;
        best.start = best.offset = chunk_end(top);
        best.size = need;
    }

    for (unsigned bin = bins_next(shard->holes, 1); bin < BINS;
         bin = bins_next(shard->holes, bin + 1))
        for (uint32_t i = shard->holes->head[bin]; i; i = chunk_link_next(&chunks[i]))
            consider_hole(shard, i, want, &best);
    lock_drop(&shard->lock);
    if (best.size == UINT32_MAX)
        return false;
    *ret = best;
    return true;
}

uint32_t map_target_find_donor(struct arena *arena, const struct map_target *target,
                               struct shard **ret_shard, uint32_t *ret_offset, uint32_t *ret_size) {
    unsigned n_shards = atomic_load_explicit(&arena->n_shards, memory_order_acquire);

    for (unsigned n = 0; n < n_shards; n++) {
        struct shard *shard = arena->shards[(target->shard->index + n) % n_shards];
        struct bins *bins = shard->bins[0];

        *ret_shard = shard;
        lock_take(&shard->lock);
        for (unsigned bin = bins_next(bins, bin_of(shard->page_size)); bin < BINS;
             bin = bins_next(bins, bin + 1))
            for (uint32_t i = bins->head[bin]; i; i = chunk_link_next(&shard->table.chunks[i])) {
                *ret_size = whole_pages(shard, &shard->table.chunks[i], ret_offset);
                if (*ret_size && !part_of(target, shard, i))
                    return i;
            }
        *ret_size = whole_pages(shard, &shard->table.chunks[shard->top], ret_offset);
        if (*ret_size && !part_of(target, shard, shard->top))
            return shard->top;
        lock_drop(&shard->lock);
    }
    return 0;
}

uint64_t map_target_count_donors(struct arena *arena, const struct map_target *target,
                                 uint64_t enough) {
    unsigned n_shards = atomic_load_explicit(&arena->n_shards, memory_order_acquire);
    uint64_t found = 0;
    uint32_t offset;

    for (unsigned n = 0; n < n_shards && found < enough; n++) {
        struct shard *shard = arena->shards[n];
        struct bins *bins;

        lock_take(&shard->lock);
        bins = shard->bins[0];
        if (!part_of(target, shard, shard->top))
            found += whole_pages(shard, &shard->table.chunks[shard->top], &offset);
        for (unsigned bin = bins_next(bins, bin_of(shard->page_size)); bin < BINS && found < enough;
             bin = bins_next(bins, bin + 1))
            for (uint32_t i = bins->head[bin]; i; i = chunk_link_next(&shard->table.chunks[i]))
                if (!part_of(target, shard, i))
                    found += whole_pages(shard, &shard->table.chunks[i], &offset);
        lock_drop(&shard->lock);
    }
    return found;
}
