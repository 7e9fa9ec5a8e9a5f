/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Fit: best fit with coalescing, inlined into the hot path.
 *
 *     bins:  [3] → B        [9] → D                      top
 *     space: | A live | B 3 | C live | D 9 | E live | 40 ···→ grows here
 *
 * To take: the smallest chunk that fits, from the bins (bins.h). If none fits, the front of the
 * top, so that the large rest above everything is broken into last. What is too much is always
 * split off and goes back into a bin. To give: the chunk is merged with its free neighbours, at
 * most two, at once. So two free chunks that could be one never lie side by side.
 *
 * A call reads and writes everything once: a pair of calls is 350 instructions if blocks are freed
 * in reverse, 550 in training, 750 at random. shard.c does takes with an alignment. The shard's
 * lock is held.
 */
#include "allocator/shard.h"

#define FIT_INLINE inline __attribute__((always_inline))

/* Cut `i`, which is in no bin, after `size`. The new record `rest` gets what lies behind. */
static FIT_INLINE void fit_cut(struct shard *shard, uint32_t i, uint32_t size, uint32_t rest) {
    struct chunk *const chunks = shard->table.chunks;
    const uint32_t behind = chunks[i].next;

    chunks[rest].offset = chunks[i].offset + size;
    chunks[rest].size = chunks[i].size - size;
    chunk_set(&chunks[rest], chunk_state(&chunks[i]), 0);
    chunks[rest].prev = i;
    chunks[rest].next = behind;
    chunks[i].size = size;
    chunks[i].next = rest;
    chunks[behind].prev = rest;
    if (__builtin_expect(shard->table.streams != NULL, 0))
        shard->table.streams[rest] = shard->table.streams[i];
}

/* Take from the top; quick if nothing right below it can be used too. */
static FIT_INLINE uint32_t fit_take_top(struct shard *shard, uint32_t size, uint8_t stream) {
    struct chunk *const chunks = shard->table.chunks, *const top = &chunks[shard->top];
    const uint32_t i = shard->table.unused, below = top->prev;

    if (__builtin_expect(!i || size > top->size || chunk_state(&chunks[below]) == CHUNK_FREE, 0))
        return shard_take_top(shard, size, 0, stream);
    shard->table.unused = chunk_link_next(&chunks[i]);
    chunks[i].offset = top->offset;
    chunks[i].size = size;
    chunks[i].prev = below;
    chunks[i].next = shard->top;
    chunks[below].next = top->prev = i;
    chunk_set_stream(&shard->table, i, SHARD_FOR_ALL);
    top->offset += size;
    top->size -= size;
    return i;
}

/* shard_take() at any address. */
static FIT_INLINE uint32_t fit_take(struct shard *shard, uint32_t size, uint8_t stream) {
    struct chunk *const chunks = shard->table.chunks;
    struct bins *bins = shard->bins[stream];
    uint32_t i = bins_find(bins, chunks, size), whole, rest;

    /* Prefer the stream's own memory to memory that is free for all, if it is no larger. */
    if (__builtin_expect(stream, 0) && (!i || chunks[i].size != size)) {
        const uint32_t other = bins_find(shard->bins[0], chunks, size);

        if (other && (!i || chunks[other].size < chunks[i].size)) {
            bins = shard->bins[0];
            i = other;
        }
    }
    if (__builtin_expect(!i, 0))
        return fit_take_top(shard, size, stream);
    whole = chunks[i].size;
    if (whole == size) {
        bins_remove(bins, chunks, i);
        return i;
    }
    rest = chunk_new(&shard->table);
    if (__builtin_expect(!rest, 0))
        return 0;
    bins_remove(bins, chunks, i);
    fit_cut(shard, i, size, rest);
    bins_insert(bins, chunks, rest, whole - size, CHUNK_FREE);
    return i;
}

/* Is the neighbour free for the same stream? `streams` NULL: all chunks are free for all. */
static FIT_INLINE bool fit_is_one(const struct chunk *chunks, const struct chunk_stream *streams,
                                  uint32_t near, struct chunk_stream stream) {
    const struct chunk_stream was = streams ? streams[near] : SHARD_FOR_ALL;

    return chunk_state(&chunks[near]) == CHUNK_FREE && was.number == stream.number &&
           was.epoch == stream.epoch;
}

/* shard_give(). */
static FIT_INLINE void fit_give(struct shard *shard, uint32_t i, struct chunk_stream stream) {
    struct chunk *const chunks = shard->table.chunks;
    const struct chunk_stream *const streams = shard->table.streams;
    struct bins *const bins = shard->bins[stream.number];
    uint32_t size = chunks[i].size, near = chunks[i].prev, next = chunks[i].next;

    __builtin_prefetch(&chunks[next]); /* now: the processor may guess the branch on prev wrongly */
    if (fit_is_one(chunks, streams, near, stream)) {
        bins_remove(bins, chunks, near);
        size += chunks[near].size;
        chunks[near].next = next;
        chunks[next].prev = near;
        chunk_free(&shard->table, i);
        i = near;
    }
    if (fit_is_one(chunks, streams, next, stream)) {
        const uint32_t behind = chunks[next].next;

        bins_remove(bins, chunks, next);
        size += chunks[next].size;
        chunks[i].next = behind;
        chunks[behind].prev = i;
        chunk_free(&shard->table, next);
    } else if (chunk_state(&chunks[next]) == CHUNK_TOP && !stream.number) {
        near = chunks[i].prev;
        chunks[next].offset -= size;
        chunks[next].size += size;
        chunks[next].prev = near;
        chunks[near].next = next;
        chunk_free(&shard->table, i);
        return;
    }
    /* A chunk that was merged was not next to the top, so neither is this one. */
    chunk_set_stream(&shard->table, i, stream);
    bins_insert(bins, chunks, i, size, CHUNK_FREE);
}
