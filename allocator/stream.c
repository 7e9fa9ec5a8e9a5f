/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory freed on a stream, until it is free for all.
 *
 * An event per free would cost more than the free. Instead, the frees on a stream carry its open
 * epoch. Only if another stream needs memory does the arena close the epoch and record one event
 * that covers all of it: it is later than each free, so never too early.
 *
 *     frees on the stream   f f  f   f | f f    f |  f
 *     epoch                     1      |    2     |  3 open
 *     event                          e1 over     e2 recorded
 *     free for all          yes        | not yet  |  not yet
 *
 * A thread closes the epoch while it holds the locks of all shards: a free that read it happened
 * before the event. The next epoch is not closed before all of this one has passed, so there are at
 * most two, the closed and the open one, and one bit tells them apart.
 */
#include "allocator/internal.h"

#include <stdlib.h>

static bool is_deferred_on(const struct shard *shard, uint8_t stream) {
    for (const struct deferred_free *deferred = shard->deferred; deferred;
         deferred = deferred->next)
        for (unsigned n = 0; n < deferred->n_streams; n++)
            if (deferred->streams[n].stream == stream)
                return true;
    return false;
}

/* Does anything wait for this stream? Every shard is locked. */
static bool is_waited_for(struct arena *arena, uint8_t stream) {
    struct shard *shard;

    arena_foreach_shard(arena, shard) if (bins_any(shard->bins[stream]) ||
                                          is_deferred_on(shard, stream)) return true;
    return false;
}

/* Record an event for the epoch that has ended. If none has ended, end the open one if any memory
 * waits for it. */
static void close_epoch(struct arena *arena, uint8_t n) {
    struct arena_stream *stream = &arena->streams[n];
    struct shard *shard;

    if (!stream->closed) {
        arena_lock_all(arena);
        stream->closed = is_waited_for(arena, n);
        if (stream->closed) {
            stream->open++;
            arena_foreach_shard(arena, shard) shard->open[n] = stream->open & 1;
        }
        arena_unlock_all(arena);
    }
    /* A stream that cannot record keeps its memory to itself until it can. */
    stream->has_event =
        stream->closed &&
        arena->stream_ops->record(arena->stream_userdata, stream->number, &stream->event) == 0;
}

/* Blocks that were deferred for a closed epoch of the stream no longer wait for it, or wait for
 * `to` instead. A block that now waits only for `to` becomes that stream's. */
static bool pass_deferred(struct arena *arena, struct shard *shard, uint8_t stream, uint8_t to) {
    bool any = false;

    for (struct deferred_free **at = &shard->deferred; *at;) {
        struct deferred_free *deferred = *at;
        bool others = false;

        for (unsigned n = 0; n < deferred->n_streams;) {
            bool passes = deferred->streams[n].stream == stream &&
                          deferred->streams[n].epoch != arena->streams[stream].open;

            if (passes && !to) {
                deferred->streams[n] = deferred->streams[--deferred->n_streams];
                continue;
            }
            if (passes) {
                deferred->streams[n].stream = to;
                deferred->streams[n].epoch = arena->streams[to].open;
            }
            others |= deferred->streams[n++].stream != to;
        }
        if (others) {
            at = &deferred->next;
            continue;
        }
        shard->deferred_size -= shard->table.chunks[deferred->chunk].size;
        shard_give(shard, deferred->chunk, (struct chunk_stream){ to, shard->open[to] });
        *at = deferred->next;
        shard->deferred_bytes -= deferred->own_bytes;
        free(deferred);
        any = true;
    }
    return any;
}

/* The event of `n` has completed, or `to` will wait for it: pass its memory to all, or to `to`. */
static bool pass_epoch(struct arena *arena, uint8_t n, uint8_t to) {
    struct shard *shard;
    bool any = false;

    arena_lock_all(arena);
    arena_foreach_shard(arena, shard) {
        any |= shard_pass(shard, n, to);
        any |= pass_deferred(arena, shard, n, to);
    }
    arena_unlock_all(arena);
    return any;
}

/* Nothing waits for the event of `n` any more: end its epoch. */
static void end_epoch(struct arena *arena, uint8_t n) {
    struct arena_stream *stream = &arena->streams[n];

    arena->stream_ops->discard(arena->stream_userdata, stream->event);
    stream->has_event = stream->closed = false;
}

static bool poll_stream(struct arena *arena, uint8_t n) {
    const struct stream_ops *ops = arena->stream_ops;
    struct arena_stream *stream = &arena->streams[n];

    if (!stream->has_event)
        close_epoch(arena, n);
    if (!stream->has_event || ops->query(arena->stream_userdata, stream->event) != 1)
        return false;
    end_epoch(arena, n);
    return pass_epoch(arena, n, 0);
}

bool stream_poll(struct arena *arena) {
    bool any = false;

    if (!atomic_load_explicit(&arena->n_streams, memory_order_acquire))
        return false;
    pthread_mutex_lock(&arena->streaming);
    /* Twice: if one event has completed, the next may have too. */
    for (unsigned n = 1; n <= atomic_load(&arena->n_streams); n++) {
        bool had_event = arena->streams[n].has_event;

        any |= poll_stream(arena, (uint8_t)n);
        if (had_event && !arena->streams[n].has_event)
            any |= poll_stream(arena, (uint8_t)n);
    }
    pthread_mutex_unlock(&arena->streaming);
    return any;
}

static bool deferred_waits_for(struct arena *arena, uint8_t stream) {
    struct shard *shard;
    bool waits = false;

    arena_lock_all(arena);
    arena_foreach_shard(arena, shard) waits |= is_deferred_on(shard, stream);
    arena_unlock_all(arena);
    return waits;
}

/* The host waits for the event of `n`. */
static bool wait_for(struct arena *arena, uint8_t n) {
    const struct stream_ops *ops = arena->stream_ops;
    struct arena_stream *stream = &arena->streams[n];

    if (!ops->wait || ops->wait(arena->stream_userdata, stream->event) < 0)
        return false;
    end_epoch(arena, n);
    pass_epoch(arena, n, 0);
    return true;
}

/* Let `to` wait for the event of `n`; memory that waited for `n` waits for `to` from now on. */
static bool order_after(struct arena *arena, uint8_t n, uint8_t to) {
    const struct stream_ops *ops = arena->stream_ops;

    if (!to || !ops->order ||
        ops->order(arena->stream_userdata, arena->streams[to].number, arena->streams[n].event) < 0)
        return false;
    pass_epoch(arena, n, to);
    end_epoch(arena, n);
    return true;
}

bool stream_wait(struct arena *arena, uint8_t to) {
    bool any = false;

    if (!atomic_load_explicit(&arena->n_streams, memory_order_acquire))
        return false;
    if (stream_poll(arena))
        return true;
    pthread_mutex_lock(&arena->streaming);
    for (unsigned n = 1; n <= atomic_load(&arena->n_streams); n++)
        if (n != to && arena->streams[n].has_event)
            any |= order_after(arena, (uint8_t)n, to) || wait_for(arena, (uint8_t)n);
    /* The requesting stream can already use its own memory, except memory that waits for others
     * too. */
    if (!any && to && arena->streams[to].has_event && deferred_waits_for(arena, to))
        any = wait_for(arena, to);
    pthread_mutex_unlock(&arena->streaming);
    return any;
}

void stream_defer_free(struct arena *arena, struct shard *shard, uint32_t chunk,
                       const uint8_t *streams, unsigned n_streams, uint8_t past,
                       struct deferred_free *deferred) {
    deferred->chunk = chunk;
    deferred->n_streams = n_streams + (past != 0);
    for (unsigned n = 0; n < deferred->n_streams; n++) {
        uint8_t stream = n < n_streams ? streams[n] : past;

        deferred->streams[n].stream = stream;
        deferred->streams[n].epoch = arena->streams[stream].open;
    }
    chunk_set(&shard->table.chunks[chunk], CHUNK_DEFERRED, 0);
    shard->deferred_size += shard->table.chunks[chunk].size;
    shard->deferred_bytes += deferred->own_bytes;
    deferred->next = shard->deferred;
    shard->deferred = deferred;
}

/* Does live or free memory still wait for earlier work of this stream? */
static bool has_past(struct arena *arena, uint8_t stream) {
    struct shard *shard;

    arena_foreach_shard(arena, shard) for (uint32_t i = 1; i < shard->table.n_used; i++) {
        struct chunk_stream owner = chunk_stream(&shard->table, i);

        if (chunk_is_live(&shard->table.chunks[i]) && owner.number == stream &&
            owner.epoch & CHUNK_PAST)
            return true;
    }
    return is_waited_for(arena, stream);
}

void stream_done(struct arena *arena) {
    const struct stream_ops *ops = arena->stream_ops;
    struct shard *shard;

    for (uint8_t n = 1; n <= atomic_load(&arena->n_streams); n++) {
        struct arena_stream *stream = &arena->streams[n];
        uint64_t event;

        if (stream->has_event)
            ops->discard(arena->stream_userdata, stream->event);
        if (!ops->wait || !has_past(arena, n) ||
            ops->record(arena->stream_userdata, stream->number, &event) < 0)
            continue;
        ops->wait(arena->stream_userdata, event);
        ops->discard(arena->stream_userdata, event);
    }
    arena_foreach_shard(arena, shard) for (struct deferred_free *next, *deferred = shard->deferred;
                                           deferred; deferred = next) {
        next = deferred->next;
        free(deferred);
    }
}
