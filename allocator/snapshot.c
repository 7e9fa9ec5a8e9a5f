/* SPDX-License-Identifier: Apache-2.0 */
#include "allocator/snapshot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* No more than these. */
static uint64_t count_chunks(struct arena *arena) {
    struct shard *shard;
    uint64_t n = 0;

    arena_foreach_shard(arena, shard) n += shard->table.n_used;
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
            .state = state == CHUNK_LIVE || state == CHUNK_DEFERRED ? (uint8_t)state : CHUNK_FREE,
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

static uint64_t count_notes(struct arena *arena) {
    struct shard *shard;
    uint64_t n = 0;

    arena_foreach_shard(arena, shard) n += MIN(shard->n_notes, (uint64_t)arena->history);
    return n;
}

static void copy_notes(struct arena *arena, const struct shard *shard, struct snapshot *snapshot) {
    for (uint64_t k = shard->n_notes - MIN(shard->n_notes, (uint64_t)arena->history);
         k < shard->n_notes; k++)
        snapshot->notes[snapshot->n_notes++] = shard->notes[k % arena->history];
}

static int compare_notes(const void *a, const void *b) {
    uint64_t x = ((const struct note *)a)->serial, y = ((const struct note *)b)->serial;

    return x < y ? -1 : x > y;
}

/* Each shard keeps as many as were asked for; of all of them the last count. */
static void sort_notes(const struct arena *arena, struct snapshot *snapshot) {
    uint64_t n = snapshot->n_notes, keep = MIN(n, (uint64_t)arena->history);

    if (!n)
        return;
    qsort(snapshot->notes, n, sizeof(*snapshot->notes), compare_notes);
    memmove(snapshot->notes, &snapshot->notes[n - keep], keep * sizeof(*snapshot->notes));
    snapshot->n_notes = keep;
}

int snapshot_take(struct snapshot *ret, struct arena *arena) {
    cleanup(snapshot_done) struct snapshot snapshot = { 0 };
    uint64_t n, n_notes, room = 0, notes_room = 0;
    struct shard *shard;

    /* Memory is not asked for while all threads wait: look, make room, look again. */
    for (;;) {
        arena_lock_all(arena);
        n = count_chunks(arena);
        n_notes = count_notes(arena);
        if (n <= room && n_notes <= notes_room)
            break;
        arena_unlock_all(arena);
        room = n + n / 8 + 16;
        notes_room = n_notes + n_notes / 8;
        snapshot_done(&snapshot);
        snapshot.blocks = calloc(room, sizeof(*snapshot.blocks));
        snapshot.segments = calloc(room, sizeof(*snapshot.segments));
        snapshot.notes = notes_room ? calloc(notes_room, sizeof(*snapshot.notes)) : NULL;
        if (!snapshot.blocks || !snapshot.segments || (notes_room && !snapshot.notes))
            return -ENOMEM;
    }
    arena_foreach_shard(arena, shard) {
        copy_shard(shard, &snapshot);
        copy_notes(arena, shard, &snapshot);
    }
    stats_count(arena, &snapshot.stats);
    arena_unlock_all(arena);
    sort_notes(arena, &snapshot);
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
