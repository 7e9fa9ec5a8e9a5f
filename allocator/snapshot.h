/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Snapshot: every block of an arena at one instant, copied out, so that it can be written while the
 * arena goes on. Owned by whoever took it.
 */
#include <stdint.h>

#include "allocator/internal.h"

struct snapshot_block {
    uint64_t address, bytes;
    uint64_t requested_bytes; /* live */
    uint32_t tag;             /* live */
    uint8_t state;            /* of enum chunk_state: live, deferred or free */
    uint8_t stream;           /* live: that allocated it; free: the only one that may have it */
};

/* Blocks that lie side by side on memory that is there. */
struct snapshot_segment {
    uint64_t address, bytes;
    uint32_t first, n_blocks; /* in `blocks` */
    uint8_t shard;
    bool placed; /* in the reservation, not a region */
};

struct snapshot {
    struct arena_stats stats;
    struct snapshot_block *blocks;
    struct snapshot_segment *segments;
    uint32_t n_blocks, n_segments;
    struct note *notes; /* the last of all shards, oldest first */
    uint64_t n_notes;
};

int snapshot_take(struct snapshot *ret, struct arena *arena);
void snapshot_done(struct snapshot *snapshot);
