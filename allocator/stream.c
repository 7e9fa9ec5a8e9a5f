/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory freed on a stream, until it is everybody's.
 *
 * An event per free would cost more than the free. Instead the frees on a stream carry its open
 * epoch, and only when somebody else wants memory is the epoch closed and one event recorded that
 * covers all of it: later than each free, so never too early.
 *
 *     frees on the stream   f f  f   f | f f    f |  f
 *     epoch                     1      |    2     |  3 open
 *     event                          e1 over     e2 recorded
 *     free for all          yes        | not yet  |  not yet
 *
 * The epoch is closed under every shard's lock: a free that read it happened before the event. The
 * next one is not closed before all of it has passed, so there are two at a time, the closed and
 * the open one, and a bit tells them apart.
 */
#include "allocator/arena.h"

#include <stdlib.h>

/* Does anything wait for this stream? Every shard is locked. */
static bool is_waited_for(struct arena *arena, uint8_t stream) {
    struct shard *shard;

    arena_foreach_shard(arena, shard) {
        if (shard->bins[stream]->n_chunks)
            return true;
        for (const struct limbo *limbo = shard->limbo; limbo; limbo = limbo->next)
            for (unsigned n = 0; n < limbo->n_streams; n++)
                if (limbo->streams[n].stream == stream)
                    return true;
    }
    return false;
}

/* Record an event for the epoch that has ended; if none has, end the open one where anything waits
 * for it. */
static void close_epoch(struct arena *arena, uint8_t n) {
    struct stream *stream = &arena->streams[n];
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

/* What waited in limbo for an epoch of the stream that is not open waits no longer. */
static bool pass_limbo(struct shard *shard, uint8_t stream, uint32_t open) {
    bool any = false;

    for (struct limbo **at = &shard->limbo; *at;) {
        struct limbo *limbo = *at;

        for (unsigned n = 0; n < limbo->n_streams;)
            if (limbo->streams[n].stream == stream && limbo->streams[n].epoch != open)
                limbo->streams[n] = limbo->streams[--limbo->n_streams];
            else
                n++;
        if (limbo->n_streams) {
            at = &limbo->next;
            continue;
        }
        shard->limbo_size -= shard->table.chunks[limbo->chunk].size;
        shard_give(shard, limbo->chunk, SHARD_FOR_ALL);
        *at = limbo->next;
        free(limbo);
        any = true;
    }
    return any;
}

/* The event of `n` is over, or `to` will wait for it: its memory passes to all, or to `to`. */
static bool pass_epoch(struct arena *arena, uint8_t n, uint8_t to) {
    struct stream *stream = &arena->streams[n];
    struct shard *shard;
    bool any = false;

    arena_lock_all(arena);
    arena_foreach_shard(arena, shard) {
        any |= shard_pass(shard, n, to);
        if (!to)
            any |= pass_limbo(shard, n, stream->open);
    }
    arena_unlock_all(arena);
    return any;
}

static bool poll_stream(struct arena *arena, uint8_t n) {
    const struct stream_ops *ops = arena->stream_ops;
    struct stream *stream = &arena->streams[n];

    if (!stream->has_event)
        close_epoch(arena, n);
    if (!stream->has_event || ops->query(arena->stream_userdata, stream->event) != 1)
        return false;
    ops->discard(arena->stream_userdata, stream->event);
    stream->has_event = stream->closed = false;
    return pass_epoch(arena, n, 0);
}

bool streams_poll(struct arena *arena) {
    bool any = false;

    if (!atomic_load_explicit(&arena->n_streams, memory_order_acquire))
        return false;
    pthread_mutex_lock(&arena->streaming);
    /* Twice: behind an event that is over, the next may be too. */
    for (unsigned n = 1; n <= atomic_load(&arena->n_streams); n++) {
        bool had_event = arena->streams[n].has_event;

        any |= poll_stream(arena, (uint8_t)n);
        if (had_event && !arena->streams[n].has_event)
            any |= poll_stream(arena, (uint8_t)n);
    }
    pthread_mutex_unlock(&arena->streaming);
    return any;
}

bool streams_wait(struct arena *arena, uint8_t to) {
    const struct stream_ops *ops = arena->stream_ops;
    bool any = false;

    if (!atomic_load_explicit(&arena->n_streams, memory_order_acquire))
        return false;
    any = streams_poll(arena);
    if (any)
        return true;
    pthread_mutex_lock(&arena->streaming);
    for (unsigned n = 1; n <= atomic_load(&arena->n_streams); n++) {
        struct stream *stream = &arena->streams[n];

        if (n == to || !stream->has_event)
            continue;
        if (to && ops->order &&
            ops->order(arena->stream_userdata, arena->streams[to].number, stream->event) == 0)
            any |= pass_epoch(arena, (uint8_t)n, to);
        else if (ops->wait && ops->wait(arena->stream_userdata, stream->event) == 0) {
            ops->discard(arena->stream_userdata, stream->event);
            stream->has_event = stream->closed = false;
            any |= pass_epoch(arena, (uint8_t)n, 0);
        }
    }
    pthread_mutex_unlock(&arena->streaming);
    return any;
}

void arena_poll(struct arena *arena) {
    streams_poll(arena);
}

void streams_limbo_add(struct arena *arena, struct shard *shard, uint32_t chunk,
                       const uint8_t *streams, unsigned n_streams, struct limbo *limbo) {
    limbo->chunk = chunk;
    limbo->n_streams = n_streams;
    for (unsigned n = 0; n < n_streams; n++) {
        limbo->streams[n].stream = streams[n];
        limbo->streams[n].epoch = arena->streams[streams[n]].open;
    }
    chunk_set(&shard->table.chunks[chunk], CHUNK_LIMBO, 0);
    shard->limbo_size += shard->table.chunks[chunk].size;
    limbo->next = shard->limbo;
    shard->limbo = limbo;
}

void streams_done(struct arena *arena) {
    struct shard *shard;

    for (unsigned n = 1; n <= atomic_load(&arena->n_streams); n++)
        if (arena->streams[n].has_event)
            arena->stream_ops->discard(arena->stream_userdata, arena->streams[n].event);
    arena_foreach_shard(arena, shard) for (struct limbo *next, *limbo = shard->limbo; limbo;
                                           limbo = next) {
        next = limbo->next;
        free(limbo);
    }
}
