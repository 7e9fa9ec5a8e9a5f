/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Giving memory back: whole free pages of the reservation, and idle regions. Memory that is being
 * given back is a CHUNK_TAKEN, so that no lock is held while the source works. If the source
 * refuses it, it becomes free again.
 */
#include <errno.h>

#include "allocator/map_target.h"

/* Give idle regions back until the arena holds `keep_bytes`. */
static void trim_regions(struct arena *arena, struct shard *shard, uint64_t keep_bytes) {
    const struct mem_source *source = &arena->source;

    if (!source->region_free)
        return;
    for (uint32_t n = shard->n_regions; n-- > 0;) {
        struct region region = shard->regions[n];
        uint64_t reserved = atomic_load(&arena->reserved_bytes);
        uint32_t i;
        int r;

        if (reserved < keep_bytes || reserved - keep_bytes < (uint64_t)region.size << 8)
            continue;
        lock_take(&shard->lock);
        i = shard_region_idle(shard, n);
        if (i) {
            bins_remove(shard->bins[0], shard->table.chunks, i);
            chunk_set(&shard->table.chunks[i], CHUNK_TAKEN, 0);
            atomic_fetch_add(&arena->moving_bytes, (uint64_t)region.size << 8);
        }
        lock_drop(&shard->lock);
        if (!i)
            continue;

        r = source->region_free(source->userdata, region.address, (uint64_t)region.size << 8);
        lock_take(&shard->lock);
        atomic_fetch_sub(&arena->moving_bytes, (uint64_t)region.size << 8);
        if (r == 0) {
            shard_region_remove(shard, n);
            atomic_fetch_sub(&arena->reserved_bytes, (uint64_t)region.size << 8);
        } else
            shard_give(shard, i, SHARD_FOR_ALL);
        lock_drop(&shard->lock);
        if (r < 0)
            continue;
        atomic_fetch_add(&arena->trimmed_bytes, (uint64_t)region.size << 8);
    }
}

static void trim_pages(struct arena *arena, uint64_t keep_bytes) {
    const struct mem_source *source = &arena->source;
    /* A target that is beside nothing: every chunk and every top can be a donor. */
    const struct map_target anywhere = { .shard = arena->shards[0], .hole = true };

    while (arena->slices_end && source->trim && atomic_load(&arena->reserved_bytes) > keep_bytes) {
        uint64_t excess = (atomic_load(&arena->reserved_bytes) - keep_bytes) >> 8;
        uint32_t offset, size, taken, i;
        struct shard *shard;
        uint64_t from;
        int r;

        i = map_target_find_donor(arena, &anywhere, &shard, &offset, &size);
        if (!i)
            return;
        excess = excess / shard->page_size * shard->page_size;
        if (size > excess) {
            offset += size - (uint32_t)excess;
            size = (uint32_t)excess;
        }
        r = size ? shard_carve(shard, i, offset, size, &taken) : -ENOMEM;
        if (r == 0)
            atomic_fetch_add(&arena->moving_bytes, (uint64_t)size << 8);
        lock_drop(&shard->lock);
        if (r < 0)
            return;
        from = shard->slice_offset + ((uint64_t)offset << 8);
        r = source->trim(source->userdata, from, (uint64_t)size << 8);
        lock_take(&shard->lock);
        atomic_fetch_sub(&arena->moving_bytes, (uint64_t)size << 8);
        if (r == 0) {
            shard_hollow(shard, taken);
            atomic_fetch_sub(&arena->reserved_bytes, (uint64_t)size << 8);
        } else
            shard_give(shard, taken, SHARD_FOR_ALL);
        shard_settle(shard);
        lock_drop(&shard->lock);
        if (r < 0)
            return;
        atomic_fetch_add(&arena->trimmed_bytes, (uint64_t)size << 8);
    }
}

int arena_trim(struct arena *arena, uint64_t keep_bytes, uint64_t *ret_bytes) {
    uint64_t before;
    struct shard *shard;

    stream_poll(arena);
    pthread_mutex_lock(&arena->growing);
    before = atomic_load(&arena->reserved_bytes);
    trim_pages(arena, keep_bytes);
    arena_foreach_shard(arena, shard) if (!shard->placed) trim_regions(arena, shard, keep_bytes);
    if (ret_bytes)
        *ret_bytes = before - atomic_load(&arena->reserved_bytes);
    pthread_mutex_unlock(&arena->growing);
    return 0;
}

bool trim_idle(struct arena *arena, const struct shard *own, uint64_t bytes) {
    uint64_t before = atomic_load(&arena->reserved_bytes), reserved;
    struct shard *shard;

    arena_foreach_shard(arena, shard) if (!shard->placed) trim_regions(arena, shard, 0);
    reserved = atomic_load(&arena->reserved_bytes);
    /* Pages of the reservation can move to another placed shard, but not become a region. */
    if (!own->placed)
        trim_pages(arena, reserved - MIN(reserved, bytes + arena->page_bytes));
    return atomic_load(&arena->reserved_bytes) < before;
}
