/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hot path. A thread allocates in its own shard (thread_shard.h); a block goes back to the
 * shard it came from, whichever thread frees it.
 *
 * Statistics are kept per shard, under its lock, and summed on request. The peak of live bytes over
 * all shards is exact all the same: each shard has a limit, and as long as all stay below theirs
 * the sum stays below the peak known so far. Only a shard that reaches its limit looks at all of
 * them, raises the peak if it must, and shares out what is left below it.
 *
 *     peak ─────────────────────────────
 *                    ┌ slack / 2 ┐  ┌ slack / 2 ┐
 *     live   [shard 0]           [shard 1]
 */
#include "allocator/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/fit.h"
#include "allocator/thread_shard.h"
#include "base/error.h"

/* The usual case is inlined into one piece: separate calls would cost a tenth more. */
#define ALWAYS_INLINE inline __attribute__((always_inline))

void arena_lock_all(struct arena *arena) {
    struct shard *shard;

    /* The number of shards can only change while shard 0 is locked. */
    arena_foreach_shard(arena, shard) lock_take(&shard->lock);
}

/* Count the shards before dropping the first lock: from then on another thread may add a shard,
 * whose lock it holds itself. */
static void unlock_all_but(struct arena *arena, const struct shard *kept) {
    unsigned n_shards = atomic_load_explicit(&arena->n_shards, memory_order_acquire);
    struct shard *plain = arena->shards[PLAIN_INDEX];

    for (unsigned n = 0; n < n_shards; n++)
        if (arena->shards[n] != kept)
            lock_drop(&arena->shards[n]->lock);
    if (plain && plain != kept)
        lock_drop(&plain->lock);
}

void arena_unlock_all(struct arena *arena) {
    unlock_all_but(arena, NULL);
}

/* Every shard is locked. Divide what is left below the peak equally among all shards. */
static void share_headroom(struct arena *arena) {
    uint64_t live = 0, n = 0;
    struct shard *shard;

    arena_foreach_shard(arena, shard) {
        live += shard->live_bytes;
        n++;
    }
    if (live > arena->peak_live_bytes)
        arena->peak_live_bytes = live;
    arena_foreach_shard(arena, shard) shard->live_limit =
        shard->live_bytes + (arena->peak_live_bytes - live) / n;
}

/* The arena may have a new peak: count the bytes while all shards stand still. The chunk of `size`
 * has no owner yet, so unlocking the shard meanwhile has the same effect as if the call had come a
 * moment later. */
static __attribute__((noinline)) void count_at_peak(struct arena *arena, struct shard *shard,
                                                    uint64_t bytes, uint32_t size) {
    if (atomic_load_explicit(&arena->n_shards, memory_order_relaxed) == 1 &&
        !arena->shards[PLAIN_INDEX]) {
        shard->live_bytes += bytes;
        shard->live_limit = arena->peak_live_bytes = shard->live_bytes;
        return;
    }
    atomic_fetch_add(&arena->moving_bytes, (uint64_t)size << 8);
    lock_drop(&shard->lock);
    arena_lock_all(arena);
    atomic_fetch_sub(&arena->moving_bytes, (uint64_t)size << 8);
    shard->live_bytes += bytes;
    share_headroom(arena);
    unlock_all_but(arena, shard);
}

/* The taken chunk becomes a live block; the shard's lock is dropped. */
static ALWAYS_INLINE void commit(struct arena *arena, struct shard *shard, uint32_t i,
                                 uint32_t size, const struct arena_request *request,
                                 struct arena_block *ret) {
    struct chunk *const chunk = &shard->table.chunks[i];
    const uint64_t bytes = request->bytes, live = shard->live_bytes + bytes;
    uint64_t serial;

    if (__builtin_expect(live <= shard->live_limit, 1))
        shard->live_bytes = live;
    else {
        chunk_set(chunk, CHUNK_TAKEN, 0);
        count_at_peak(arena, shard, bytes, size);
    }

    if (__builtin_expect(shard->table.streams || request->stream, 0)) {
        /* The stream got back memory that it had freed, and its earlier work may still use it:
         * remember that beyond the life of this block. */
        const uint8_t past = chunk_stream(&shard->table, i).number ? CHUNK_PAST : 0;

        chunk_set_stream(&shard->table, i, (struct chunk_stream){ request->stream, past });
    }
    serial = ++shard->allocs;
    chunk_set_live(chunk, serial, request->tag, (uint32_t)(((uint64_t)size << 8) - bytes));
    ret->address = shard_address(shard, chunk);
    ret->handle = serial << HANDLE_SERIAL_SHIFT | (uint64_t)shard->index << HANDLE_SHARD_SHIFT | i;

    shard->taken_size += size;
    tally_add(shard->live, size);
    lock_drop(&shard->lock);
}

/* -ENOMEM. If the host lacks the memory, not the device, no report about the device would explain
 * it. */
static __attribute__((noinline)) int refuse(struct arena *arena,
                                            const struct arena_request *request, bool host,
                                            struct allot_error *err) {
    atomic_fetch_add(&arena->failures, 1);
    if (host)
        return error_set(
            err, -ENOMEM,
            "%s: no host memory for the arena's own records, so device memory cannot be "
            "used",
            arena->name);
    if (err) {
        err->code = -ENOMEM;
        error_cut(err->text, sizeof(err->text),
                  (size_t)arena_report(arena, request, err->text, sizeof(err->text)));
    }
    return -ENOMEM;
}

static uint32_t granules(uint64_t bytes) {
    const uint32_t size = (uint32_t)((bytes + ARENA_GRANULE_BYTES - 1) / ARENA_GRANULE_BYTES);

    return size + !size;
}

/* Everything out of the ordinary: requests with more than a size, and requests for which the
 * thread's own shard has nothing free. */
static __attribute__((noinline)) int alloc_slowly(struct arena *arena,
                                                  const struct arena_request *request,
                                                  struct arena_block *ret,
                                                  struct allot_error *err) {
    uint64_t align_bytes = request->align_bytes;
    struct shard *shard;
    uint32_t size, i;
    int r;

    if (align_bytes & (align_bytes - 1))
        return error_set(err, -EINVAL, "alignment of %llu bytes is not a power of two",
                         (unsigned long long)align_bytes);
    if (request->stream > atomic_load_explicit(&arena->n_streams, memory_order_acquire))
        return error_set(err, -EINVAL, "there is no stream %u", request->stream);
    if (request->tag > atomic_load_explicit(&arena->n_tags, memory_order_relaxed))
        return error_set(err, -EINVAL, "there is no tag %u: get one from arena_tag()",
                         request->tag);
    if (request->flags & ~ARENA_PLAIN)
        return error_set(err, -EINVAL, "unknown flags 0x%x", request->flags & ~ARENA_PLAIN);
    if (request->bytes > ARENA_BYTES_MAX || align_bytes > ARENA_BYTES_MAX)
        return refuse(arena, request, false, err);
    size = granules(request->bytes);

    if ((request->flags & ARENA_PLAIN) && arena->slices_end) {
        shard = arena->shards[PLAIN_INDEX];
        if (!shard)
            return error_set(err, -ENOTSUP,
                             "%s: the source has no plain memory beside its reservation",
                             arena->name);
        lock_take(&shard->lock);
    } else
        shard = thread_shard_enter(arena);

    i = shard_take(shard, size, align_bytes, request->stream);
    if (!i) {
        lock_drop(&shard->lock);
        r = grow_make_room(arena, shard, size, align_bytes, request->stream, &shard, &i);
        if (r == -EIO) {
            atomic_fetch_add(&arena->failures, 1);
            return error_set(err, r, "%s: " ARENA_MISPLACED_TEXT, arena->name);
        }
        if (r == -EAGAIN)
            return error_set(err, r, "%s: the source would have to wait for more memory",
                             arena->name);
        if (r < 0)
            return refuse(arena, request, r == -ENOBUFS, err);
        thread_shard_follow(arena, shard);
    }
    commit(arena, shard, i, size, request, ret);
    return 0;
}

/* A valid request with a size and perhaps a tag and a stream, but nothing else. */
static inline bool is_ordinary(const struct arena *arena, const struct arena_request *request) {
    return !request->align_bytes && !request->flags &&
           request->stream <= atomic_load_explicit(&arena->n_streams, memory_order_acquire) &&
           request->tag <= atomic_load_explicit(&arena->n_tags, memory_order_relaxed) &&
           request->bytes <= ARENA_BYTES_MAX;
}

int arena_alloc(struct arena *arena, const struct arena_request *request, struct arena_block *ret,
                struct allot_error *err) {
    struct shard *shard;
    uint32_t size, i;

    if (__builtin_expect(is_ordinary(arena, request), 1)) {
        shard = thread_shard_enter(arena);
        size = granules(request->bytes);
        i = fit_take(shard, size, request->stream);
        if (__builtin_expect(i, 1)) {
            commit(arena, shard, i, size, request, ret);
            return 0;
        }
        lock_drop(&shard->lock);
    }
    return alloc_slowly(arena, request, ret, err);
}

/* The record of a block that waits for `n_streams` and, maybe, for the stream that had its memory.
 */
static struct deferred_free *deferred_free_new(unsigned n_streams) {
    struct deferred_free *deferred;
    const size_t bytes = sizeof(*deferred) + ((size_t)n_streams + 1) * sizeof(deferred->streams[0]);

    deferred = malloc(bytes);
    if (deferred)
        deferred->own_bytes = (uint32_t)bytes;
    return deferred;
}

/* Free a live chunk. Called with the shard's lock, which it drops. -ENOMEM: the host has no memory
 * to record what it waits for, and the block stays live. The stream that had the memory before may
 * still use it, whatever the caller says about the block itself. */
static ALWAYS_INLINE int release(struct arena *arena, struct shard *shard, uint32_t i,
                                 const uint8_t *streams, unsigned n_streams,
                                 struct deferred_free *deferred) {
    struct chunk *chunk = &shard->table.chunks[i];
    uint64_t bytes = chunk_live_bytes(chunk);
    uint8_t stream = n_streams == 1 ? streams[0] : 0, past = 0;
    struct chunk_stream was = chunk_stream(&shard->table, i);

    if (__builtin_expect(was.epoch & CHUNK_PAST, 0)) {
        past = was.number;
        if (!n_streams)
            stream = past;
        else if (n_streams == 1 && stream != past && !(deferred = deferred_free_new(n_streams))) {
            lock_drop(&shard->lock);
            return -ENOMEM;
        }
    }
    shard->live_bytes -= bytes;
    tally_remove(shard->live, chunk->size);
    if (__builtin_expect(deferred != NULL, 0))
        stream_defer_free(arena, shard, i, streams, n_streams, past, deferred);
    else
        fit_give(shard, i, (struct chunk_stream){ stream, shard->open[stream] });
    lock_drop(&shard->lock);
    return 0;
}

/* Find the live block with this handle and lock its shard. NULL: there is none, and nothing is
 * locked. */
static inline struct shard *find_live(struct arena *arena, uint64_t handle) {
    const unsigned n = handle_shard(handle);
    const uint32_t i = handle_index(handle);
    struct shard *shard;

    if (n != PLAIN_INDEX && n >= atomic_load_explicit(&arena->n_shards, memory_order_acquire))
        return NULL;
    shard = arena->shards[n];
    if (!shard)
        return NULL;
    __builtin_prefetch(&shard->table.chunks[i]);
    lock_take(&shard->lock);
    if (i && i < shard->table.n_used &&
        chunk_is_block(&shard->table.chunks[i], (uint32_t)(handle >> HANDLE_SERIAL_SHIFT)))
        return shard;
    lock_drop(&shard->lock);
    return NULL;
}

/* The streams must exist. If there are several, `*ret` is the record of the wait. */
static int check_streams(struct arena *arena, const uint8_t *streams, unsigned n_streams,
                         struct deferred_free **ret) {
    unsigned n_known = atomic_load_explicit(&arena->n_streams, memory_order_acquire);

    for (unsigned n = 0; n < n_streams; n++)
        if (!streams[n] || streams[n] > n_known)
            return -EINVAL;
    if (n_streams > 1) {
        *ret = deferred_free_new(n_streams);
        if (!*ret)
            return -ENOMEM;
    }
    return 0;
}

int arena_dealloc(struct arena *arena, uint64_t handle, const uint8_t *streams,
                  unsigned n_streams) {
    struct deferred_free *deferred = NULL;
    struct shard *shard;
    int r;

    r = check_streams(arena, streams, n_streams, &deferred);
    if (r < 0)
        return r;
    shard = find_live(arena, handle);
    if (!shard) {
        free(deferred);
        return -EINVAL;
    }
    return release(arena, shard, handle_index(handle), streams, n_streams, deferred);
}

int arena_stream_new(struct arena *arena, uint64_t stream, uint8_t *ret) {
    struct shard *shard;
    unsigned n;
    int r = 0;

    if (!arena->stream_ops)
        return -EINVAL;
    pthread_mutex_lock(&arena->streaming);
    arena_lock_all(arena);
    n = atomic_load(&arena->n_streams) + 1;
    if (n > ARENA_STREAMS_MAX)
        r = -ENOSPC;
    arena_foreach_shard(arena, shard) if (r == 0) r = shard_add_stream(shard, n);
    if (r == 0) {
        arena->streams[n] = (struct arena_stream){ .number = stream };
        atomic_store_explicit(&arena->n_streams, n, memory_order_release);
        *ret = (uint8_t)n;
    }
    arena_unlock_all(arena);
    pthread_mutex_unlock(&arena->streaming);
    return r;
}

void arena_set_cap(struct arena *arena, uint64_t cap_bytes) {
    atomic_store(&arena->cap_bytes, cap_bytes ? cap_bytes : UINT64_MAX);
}
