/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Shard: a part of an arena in which one thread at a time works, with its own range of addresses,
 * chunks, bins and statistics.
 *
 * Its space is counted in granules from 0. A *placed* shard owns a slice of the reservation, grows
 * at its top and may have holes; a shard of *regions* puts them one after the other in its space,
 * never adjacent. Owned by the arena. Callers hold the shard's lock.
 */
#include <stdbool.h>
#include <stdint.h>

#include "allocator/arena.h"
#include "allocator/bins.h"
#include "allocator/chunk.h"
#include "allocator/lock.h"

struct region {
    uint32_t offset, size; /* granules in the shard's space */
    uint32_t first;        /* its first chunk; merging and splitting keep this record */
    uint64_t address;
};

/* A block that several streams may still use: free once each of them has passed its epoch. */
struct deferred_free {
    struct deferred_free *next;
    uint32_t chunk;
    uint32_t own_bytes; /* host bytes of this record */
    unsigned n_streams; /* streams that have not passed yet */
    struct {
        uint8_t stream;
        uint32_t epoch;
    } streams[];
};

struct shard {
    struct lock lock;
    uint32_t top; /* index of the CHUNK_TOP; 0 in a shard of regions: the edge, which is empty */
    uint32_t delta_shift;
    const void *allocates; /* the thread that allocated here last: thread_shard_thread() */
    const uint64_t *delta; /* [offset >> delta_shift]: address minus offset */
    struct chunk_table table;

    uint64_t live_bytes; /* as requested */
    uint64_t live_limit; /* no new peak of the arena is possible up to here */
    tally live[BIN_ORDERS];
    uint64_t allocs;                /* number of allocations ever; also the serial of the last
                                       block */
    uint64_t taken_size;            /* granules ever handed out */
    uint64_t deferred_size;         /* granules */
    struct deferred_free *deferred; /* owned */
    uint64_t deferred_bytes;        /* host bytes of those records */
    uint64_t mapped_size;           /* granules held from the source */
    uint64_t lost_size; /* of mapped_size: in no chunk, because the region was useless and the
                           source did not take it back */

    struct bins *bins[ARENA_STREAMS_MAX + 1]; /* by stream; 0: free for all */
    struct bins *holes;
    uint8_t open[ARENA_STREAMS_MAX + 1]; /* by stream: last bit of its open epoch */

    atomic_uint residents; /* threads that allocate here: thread_shard.c */
    atomic_uint misses;    /* allocations that found nothing here; for grow.c */
    bool placed;
    uint8_t index;
    uint32_t page_size;     /* granules */
    uint32_t space_size;    /* granules: where the space ends */
    uint64_t slice_offset;  /* placed: where the slice starts, bytes from the source's base */
    uint64_t *page_delta;   /* shards of regions: one for each page of the space */
    uint64_t base_delta;    /* placed: the only one */
    struct region *regions; /* by offset */
    uint32_t n_regions, n_regions_max;
    uint32_t spare[2]; /* placed: records for shard_fill(); 0: none */
};

/* `slice_bytes` 0: a shard of regions. `n_streams`: how many streams exist so far. */
int shard_new(struct shard **ret, unsigned index, uint64_t page_bytes, uint64_t base,
              uint64_t slice_offset, uint64_t slice_bytes, unsigned n_streams);
struct shard *shard_free(struct shard *shard);
int shard_add_stream(struct shard *shard, unsigned stream);

/* Take a chunk of `size` granules that `stream` may have now, at a multiple of `align_bytes` (0:
 * any address). It is neither in a bin nor marked live yet. 0: there is none. */
uint32_t shard_take(struct shard *shard, uint32_t size, uint64_t align_bytes, uint8_t stream);
/* The same by an exhaustive search, after shard_take() found nothing: every chunk of a bin whose
 * sizes differ, every chunk that may happen to be aligned, and neighbours that together are enough
 * for `stream`. Visits at most `look` chunks. */
uint32_t shard_take_hard(struct shard *shard, uint32_t size, uint64_t align_bytes, uint8_t stream,
                         uint32_t look);
#define SHARD_LOOK_ALL UINT32_MAX
/* The same only from the top, and from the chunk below it if `stream` may have that. */
uint32_t shard_take_top(struct shard *shard, uint32_t size, uint64_t align_bytes, uint8_t stream);
/* Free a chunk that is in no bin: for one stream until its epoch is over, or for all (0). Merges it
 * with its neighbours. */
void shard_give(struct shard *shard, uint32_t i, struct chunk_stream stream);
#define SHARD_FOR_ALL ((struct chunk_stream){ 0, 0 })
/* Move every chunk that `stream` freed before its open epoch to the bins of `to` (0: all), where it
 * belongs to the open epoch. True if any moved. */
bool shard_pass(struct shard *shard, uint8_t stream, uint8_t to);

/* Placed shards: memory is now mapped at the top. */
void shard_extend(struct shard *shard, uint32_t size);
/* Set aside the records that shard_fill() may need, before the source is asked: memory that it
 * gives must be recorded. -ENOBUFS: the host has no memory. */
int shard_reserve(struct shard *shard);
/* After shard_reserve(): [offset, offset + size) of the hole `i` is now mapped and free. */
void shard_fill(struct shard *shard, uint32_t i, uint32_t offset, uint32_t size);
/* Take [offset, offset + size), part of the free chunk `i` or of the top, out of use: it becomes a
 * CHUNK_TAKEN, `*ret`. -ENOMEM: the host has no memory. */
int shard_carve(struct shard *shard, uint32_t i, uint32_t offset, uint32_t size, uint32_t *ret);
/* The memory under a CHUNK_TAKEN is gone: its addresses become a hole. */
void shard_hollow(struct shard *shard, uint32_t i);
/* A hole right below an empty top joins the top: its end moves down. */
void shard_settle(struct shard *shard);

/* Shards of regions: find where the next region of this size goes. -ENOSPC: nowhere. */
int shard_region_place(struct shard *shard, uint32_t size, uint32_t *ret_offset);
int shard_region_add(struct shard *shard, uint32_t offset, uint32_t size, uint64_t address);
/* The free chunk that spans the whole region `n`, if it is free for all; otherwise 0. */
uint32_t shard_region_idle(const struct shard *shard, uint32_t n);
/* Remove region `n`, which is idle and whose memory is gone. */
void shard_region_remove(struct shard *shard, uint32_t n);

uint64_t shard_metadata_bytes(const struct shard *shard);
uint32_t shard_largest_free(const struct shard *shard);

static inline uint64_t shard_address(const struct shard *shard, const struct chunk *chunk) {
    return shard->delta[(uint64_t)chunk->offset >> shard->delta_shift] +
           ((uint64_t)chunk->offset << 8);
}

static inline uint64_t chunk_live_bytes(const struct chunk *chunk) {
    return ((uint64_t)chunk->size << 8) - (chunk->mark & CHUNK_WASTE_MASK);
}

static inline bool shard_is_free_for_all(const struct shard *shard, uint32_t i) {
    return chunk_state(&shard->table.chunks[i]) == CHUNK_FREE &&
           !chunk_stream(&shard->table, i).number;
}

/* May `stream` have this chunk now? */
static inline bool shard_is_free_for(const struct shard *shard, uint32_t i, uint8_t stream) {
    uint8_t owner = chunk_stream(&shard->table, i).number;

    return chunk_state(&shard->table.chunks[i]) == CHUNK_FREE && (!owner || owner == stream);
}
