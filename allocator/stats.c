/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics: kept per shard as they change, summed here at one instant. */
#include "allocator/internal.h"

static void add_shard_stats(const struct shard *shard, struct arena_stats *stats) {
    const struct chunk *top = &shard->table.chunks[shard->top];
    const tally live = tally_sum(shard->live);

    stats->live_bytes += shard->live_bytes;
    stats->live_blocks += tally_n(live);
    stats->used_bytes += tally_size(live) << 8;
    stats->allocs += shard->allocs;
    stats->pending_bytes += shard->deferred_size << 8;
    stats->free_bytes += (shard->deferred_size + shard->lost_size + top->size) << 8;
    stats->free_blocks += top->size != 0;
    stats->largest_free_bytes =
        MAX(stats->largest_free_bytes, (uint64_t)shard_largest_free(shard) << 8);
    stats->metadata_bytes += shard_metadata_bytes(shard);
    stats->shards++;
    if (top->size) {
        stats->classes[bin_order(top->size)].free_blocks++;
        stats->classes[bin_order(top->size)].free_bytes += (uint64_t)top->size << 8;
    }

    for (unsigned stream = 0; stream < ELEMENTSOF(shard->bins) && shard->bins[stream]; stream++) {
        const tally *orders = shard->bins[stream]->orders, all = tally_sum(orders);

        stats->free_bytes += tally_size(all) << 8;
        stats->free_blocks += tally_n(all);
        if (stream)
            stats->pending_bytes += tally_size(all) << 8;
        for (unsigned order = 0; order < BIN_ORDERS; order++) {
            stats->classes[order].free_blocks += tally_n(orders[order]);
            stats->classes[order].free_bytes += tally_size(orders[order]) << 8;
        }
    }
    for (unsigned order = 0; order < BIN_ORDERS; order++) {
        stats->classes[order].live_blocks += tally_n(shard->live[order]);
        stats->classes[order].live_bytes += tally_size(shard->live[order]) << 8;
    }
}

void stats_count(struct arena *arena, struct arena_stats *ret) {
    struct arena_stats stats = { 0 };
    uint64_t cap = atomic_load(&arena->cap_bytes);
    struct shard *shard;

    arena_foreach_shard(arena, shard) add_shard_stats(shard, &stats);
    stats.free_bytes += atomic_load(&arena->moving_bytes);
    stats.peak_live_bytes = arena->peak_live_bytes;
    stats.reserved_bytes = atomic_load(&arena->reserved_bytes);
    stats.peak_reserved_bytes = atomic_load(&arena->peak_reserved_bytes);
    stats.frees = stats.allocs - stats.live_blocks;
    stats.cap_bytes = cap == UINT64_MAX ? 0 : cap;
    if (stats.free_bytes)
        stats.fragmentation_permyriad =
            10000 - (uint64_t)((__extension__(unsigned __int128) stats.largest_free_bytes) * 10000 /
                               stats.free_bytes);
    stats.failures = atomic_load(&arena->failures);
    stats.grows = atomic_load(&arena->grows);
    stats.refusals = atomic_load(&arena->refusals);
    stats.moved_bytes = atomic_load(&arena->moved_bytes);
    stats.trimmed_bytes = atomic_load(&arena->trimmed_bytes);
    stats.metadata_bytes += sizeof(*arena);
    stats.metadata_bytes += atomic_load(&arena->tag_bytes);
    *ret = stats;
}

void stats_count_held(struct arena *arena, uint64_t bytes) {
    uint64_t reserved = atomic_fetch_add(&arena->reserved_bytes, bytes) + bytes;

    if (reserved > atomic_load(&arena->peak_reserved_bytes))
        atomic_store(&arena->peak_reserved_bytes, reserved);
}

void arena_get_stats(struct arena *arena, struct arena_stats *ret) {
    arena_lock_all(arena);
    stats_count(arena, ret);
    arena_unlock_all(arena);
}
