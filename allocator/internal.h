/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The inside of an arena, for the files of this folder.
 *
 * Lock order: `growing` (held by the thread that calls the source), `streaming` (held by the thread
 * that queries events), then the locks of shards by index, then `tagging`. A thread holds a shard's
 * lock while it finds or frees a block, never across a call of the source or of the streams. Code
 * that changes the set of shards or streams, or must see all of them at one instant, holds the
 * locks of all shards.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "allocator/arena.h"
#include "allocator/shard.h"

/* Bits of a handle: the block's number in its shard (the bits that fit), the shard, and the index
 * of the chunk. */
#define HANDLE_SHARD_SHIFT  CHUNK_LINK_BITS
#define HANDLE_SERIAL_SHIFT 35
static_assert(HANDLE_SERIAL_SHIFT + CHUNK_SERIAL_BITS == 64, "all bits are used");

static inline uint32_t handle_index(uint64_t handle) {
    return (uint32_t)handle & CHUNK_LINK_MASK;
}

static inline unsigned handle_shard(uint64_t handle) {
    return (unsigned)(handle >> HANDLE_SHARD_SHIFT) & 0x7f;
}

#define PLAIN_INDEX ARENA_SHARDS_MAX

/* Larger requests cannot be counted in granules; no device is that large. */
#define ARENA_BYTES_MAX ((uint64_t)0xffffff00u << 8)

struct arena_stream {
    uint64_t number; /* the caller's number for it */
    uint32_t open;   /* epoch of frees that happen now; changed under the locks of all shards */
    bool closed;     /* the previous epoch has ended, and memory freed in it may not have passed
                        yet */
    bool has_event;  /* … and this event, recorded after its end, tells when it may */
    uint64_t event;
};

struct arena {
    struct mem_source source;
    const char *name;
    uint64_t id; /* unique in this process, never reused */
    bool has_thread_shards;
    unsigned slot; /* where threads remember their shard of this arena; no two living arenas share
                      one */
    uint64_t page_bytes;
    uint64_t slices_end;  /* end of the reservation, in whole pages; 0: regions */
    uint64_t slice_bytes; /* shard n > 0 begins n times this before the end */

    atomic_uint max_shards, n_shards;
    struct shard *shards[ARENA_SHARDS_MAX + 1]; /* the last one is for ARENA_PLAIN and may be
                                                   NULL */
    uint64_t peak_live_bytes;                   /* under the lock of the only shard, or of all
                                                   shards */

    pthread_mutex_t growing;
    _Atomic uint64_t cap_bytes; /* UINT64_MAX: no cap */
    _Atomic uint64_t reserved_bytes, peak_reserved_bytes;
    /* Part of the held bytes, in no chunk that is live or free: moving between shards or to the
     * source, or taken by a caller that still counts the peak. Both change under the lock of the
     * shard that loses or gets the bytes, so that a thread that holds all locks sees a consistent
     * sum. */
    _Atomic uint64_t moving_bytes;
    _Atomic uint64_t grows, refusals, moved_bytes, trimmed_bytes, failures;

    pthread_mutex_t streaming;
    const struct stream_ops *stream_ops;
    void *stream_userdata;
    atomic_uint n_streams;
    struct arena_stream streams[ARENA_STREAMS_MAX + 1]; /* 0 is not used */

    pthread_mutex_t tagging;
    char **tags;             /* by number - 1 */
    _Atomic uint32_t n_tags; /* written under `tagging` */
    uint32_t n_tags_max;
    _Atomic uint64_t tag_bytes; /* host memory of all tags */
    uint32_t *tag_slots;        /* hash of the name → number */
    uint32_t tag_mask;
};

/* Lock all shards, to see them at one instant. */
void arena_lock_all(struct arena *arena);
void arena_unlock_all(struct arena *arena);

/* stats.c: fill in all numbers. Every shard is locked. */
void stats_count(struct arena *arena, struct arena_stats *ret);
/* `bytes` more are held from the source. The lock of the shard that gets them is held. */
void stats_count_held(struct arena *arena, uint64_t bytes);

/* arena_new.c: make shard `n`, the next one. `growing` is held. The first shard has all addresses
 * that no other shard has, so that one thread never lacks any. -ENOSPC: it already uses those that
 * the new shard would get. */
int arena_new_shard(struct arena *arena, unsigned n);

/* for (struct shard *shard; …): every shard, the one for ARENA_PLAIN last. */
static inline struct shard *arena_next_shard(struct arena *arena, unsigned *n) {
    if (*n < atomic_load_explicit(&arena->n_shards, memory_order_acquire))
        return arena->shards[(*n)++];
    if (*n <= PLAIN_INDEX) {
        *n = PLAIN_INDEX + 1;
        return arena->shards[PLAIN_INDEX];
    }
    return NULL;
}
#define arena_foreach_shard(arena, shard)                                                          \
    for (unsigned n_##shard = 0; ((shard) = arena_next_shard((arena), &n_##shard));)

/* grow.c: find memory that no shard has free. On success `*ret_shard` is locked and the chunk
 * taken. -ENOMEM; -ENOBUFS: the host has no memory for records; -EIO: ARENA_MISPLACED_TEXT;
 * -EAGAIN: the source would have to wait, which it must not do here. */
int grow_make_room(struct arena *arena, struct shard *own, uint32_t size, uint64_t align_bytes,
                   uint8_t stream, struct shard **ret_shard, uint32_t *ret_chunk);
/* Take the initial `bytes` from the source at once, rounded to whole pages even if the cap is not.
 * The caller has checked that the cap and the addresses allow them. -EIO and `*ret_misplaced`:
 * ARENA_MISPLACED_TEXT. */
int grow_initial(struct arena *arena, uint64_t bytes, bool *ret_misplaced);
#define ARENA_MISPLACED_TEXT                                                                       \
    "the source gave a region at an address that is no multiple of 256 bytes, which cannot be "    \
    "used: its region_new() must align"

/* trim.c: before failing, give back idle memory that is of no use to `own`, so that the source may
 * give `bytes` to it. True if anything was given back. `growing` is held. */
bool trim_idle(struct arena *arena, const struct shard *own, uint64_t bytes);

/* stream.c: check events; true if memory became free for others. */
bool stream_poll(struct arena *arena);
/* Before failing: have `stream`, or the host, wait for memory that other streams still hold. */
bool stream_wait(struct arena *arena, uint8_t stream);
/* Before the arena ends: wait for memory that streams still use, if there is a `wait`. */
void stream_done(struct arena *arena);
/* The block `chunk` waits for all of these streams and for `past` (0: none). `deferred`, which the
 * caller allocated, records that. */
void stream_defer_free(struct arena *arena, struct shard *shard, uint32_t chunk,
                       const uint8_t *streams, unsigned n_streams, uint8_t past,
                       struct deferred_free *deferred);

/* tag.c. */
const char *tag_name(struct arena *arena, uint32_t tag); /* "" for 0 */
void tag_done(struct arena *arena);
