/* SPDX-License-Identifier: Apache-2.0 */
#include "allocator/snapshot.h"

#include <errno.h>
#include <stdlib.h>

static uint64_t count_chunks(struct arena *arena) {
    struct shard *shard;
    uint64_t n = 0;

    arena_foreach_shard(arena, shard) n += shard->table.n_used - shard->table.n_unused;
    return n;
}

/* The chunks from `i` on, in address order; a hole, or an edge, ends a segment. */
static void copy_chunks(const struct shard *shard, uint32_t i, struct snapshot *snapshot) {
    struct snapshot_segment *segment = NULL;

    for (; i; i = shard->table.chunks[i].next) {
        const struct chunk *chunk = &shard->table.chunks[i];
        struct snapshot_block *block = &snapshot->blocks[snapshot->n_blocks];
        unsigned state = chunk_is_live(chunk) ? CHUNK_LIVE : chunk_state(chunk);

        if (state == CHUNK_HOLE) {
            segment = NULL;
            continue;
        }
        if (!chunk->size)
            continue;
        if (!segment) {
            segment = &snapshot->segments[snapshot->n_segments++];
            *segment = (struct snapshot_segment){
                .address = shard_address(shard, chunk),
                .first = snapshot->n_blocks,
                .shard = shard->index,
                .placed = shard->placed,
            };
        }
        *block = (struct snapshot_block){
            .address = shard_address(shard, chunk),
            .bytes = (uint64_t)chunk->size << 8,
            .state = state == CHUNK_LIVE || state == CHUNK_LIMBO ? (uint8_t)state : CHUNK_FREE,
        };
        if (state == CHUNK_LIVE) {
            block->requested_bytes = chunk_live_bytes(chunk);
            block->tag = chunk_tag(chunk);
        }
        if (state == CHUNK_LIVE || state == CHUNK_FREE)
            block->stream = chunk_stream(&shard->table, i).number;
        segment->bytes += block->bytes;
        segment->n_blocks++;
        snapshot->n_blocks++;
    }
}

static void copy_shard(const struct shard *shard, struct snapshot *snapshot) {
    uint32_t first = shard->top;

    if (shard->placed) {
        while (shard->table.chunks[first].prev)
            first = shard->table.chunks[first].prev;
        copy_chunks(shard, first, snapshot);
    }
    for (uint32_t n = 0; n < shard->n_regions; n++)
        copy_chunks(shard, shard->regions[n].first, snapshot);
}

static int copy_notes(struct arena *arena, struct snapshot *snapshot) {
    uint64_t n;

    if (!arena->notes)
        return 0;
    snapshot->notes = calloc(arena->n_notes_max, sizeof(*snapshot->notes));
    if (!snapshot->notes)
        return -ENOMEM;
    pthread_mutex_lock(&arena->noting);
    n = MIN(arena->n_notes, (uint64_t)arena->n_notes_max);
    for (uint64_t k = arena->n_notes - n; k < arena->n_notes; k++)
        snapshot->notes[snapshot->n_notes++] = arena->notes[k % arena->n_notes_max];
    pthread_mutex_unlock(&arena->noting);
    return 0;
}

int snapshot_take(struct snapshot *ret, struct arena *arena) {
    cleanup(snapshot_done) struct snapshot snapshot = { 0 };
    struct shard *shard;
    uint64_t n, room = 0;
    int r;

    /* Memory is not asked for while all threads wait: look, make room, look again. */
    for (;;) {
        arena_lock_all(arena);
        n = count_chunks(arena);
        if (n <= room)
            break;
        arena_unlock_all(arena);
        room = n + n / 8 + 16;
        free(snapshot.blocks);
        free(snapshot.segments);
        snapshot.blocks = calloc(room, sizeof(*snapshot.blocks));
        snapshot.segments = calloc(room, sizeof(*snapshot.segments));
        if (!snapshot.blocks || !snapshot.segments)
            return -ENOMEM;
    }
    arena_foreach_shard(arena, shard) copy_shard(shard, &snapshot);
    arena_unlock_all(arena);
    r = copy_notes(arena, &snapshot);
    if (r < 0)
        return r;
    arena_get_stats(arena, &snapshot.stats);
    *ret = snapshot;
    snapshot = (struct snapshot){ 0 };
    return 0;
}

void snapshot_done(struct snapshot *snapshot) {
    free(snapshot->blocks);
    free(snapshot->segments);
    free(snapshot->notes);
    *snapshot = (struct snapshot){ 0 };
}
