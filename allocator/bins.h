/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Bins: the free chunks of one kind, found by size in constant time.
 *
 * Sizes are in granules of 256 bytes. Below 512 granules (128 KiB) a bin holds one size; above,
 * each power of two is cut into 256 bins, so that the sizes in one differ by less than 0.4 %.
 *
 *     bin      1  2  3 …  255 | 256 … 511 | 512 … 767 | 768 … 1023 | …
 *     size     1  2  3 …  255 | 256 … 511 | 512 … 1022| 1024 … 2044| …
 *     step     1              | 1         | 2         | 4          | …
 *
 * Two levels of bitmaps say which bins hold anything: three words lead from a size to the next
 * bin that does. Owned by a shard, used under its lock.
 */
#include <stdbool.h>
#include <stdint.h>

#include "allocator/chunk.h"

#define BINS       6400
#define BIN_EXACT  512 /* bins below hold one size each */
#define BIN_WORDS  (BINS / 64)
#define BIN_ORDERS 32 /* powers of two */

/* Number of chunks and their granules, kept per power of two and summed on request. Both are in one
 * word, so that one addition counts a chunk: there are fewer than 2^28 chunks, because an index has
 * 28 bits, and 32 bits count the granules of a shard. */
typedef uint64_t tally;
#define TALLY_SIZE_BITS 36
#define TALLY_ONE       ((tally)1 << TALLY_SIZE_BITS)

struct bins {
    uint64_t words[(BIN_WORDS + 63) / 64]; /* bit per word of `map` that is not 0 */
    uint64_t map[BIN_WORDS + 1];           /* bit per bin that is not empty; the last stays 0 */
    uint32_t largest, n_largest; /* number of chunks of the largest size; 0: the largest is unknown
                                    and must be searched for */
    tally orders[BIN_ORDERS];
    uint32_t head[BINS];
};

/* In the bin whose sizes include the wanted one, check so many chunks; then take from the next
 * larger bin, where every chunk fits. */
#define BIN_LOOK 4

static inline unsigned bin_order(uint32_t size) {
    return 31 - (unsigned)__builtin_clz(size);
}

static inline unsigned bin_of(uint32_t size) {
    unsigned shift = 23 - (unsigned)__builtin_clz(size | 256);

    return (shift << 8) + (size >> shift);
}

static inline uint64_t tally_n(tally t) {
    return t >> TALLY_SIZE_BITS;
}

static inline uint64_t tally_size(tally t) {
    return t & (TALLY_ONE - 1);
}

static inline void tally_add(tally *orders, uint32_t size) {
    orders[bin_order(size)] += TALLY_ONE + size;
}

static inline void tally_remove(tally *orders, uint32_t size) {
    orders[bin_order(size)] -= TALLY_ONE + size;
}

static inline tally tally_sum(const tally *orders) {
    tally sum = 0;

    for (unsigned order = 0; order < BIN_ORDERS; order++)
        sum += orders[order];
    return sum;
}

/* A chunk at least as large as the largest is inserted. */
static inline void bins_raise(struct bins *bins, uint32_t size) {
    bins->n_largest = size == bins->largest ? bins->n_largest + 1 : 1;
    bins->largest = size;
}

/* Insert the chunk with this `size` and `state`, CHUNK_FREE or CHUNK_HOLE. The link_prev of a
 * bin's first chunk has no meaning: so removing the first, the most common case, touches no other
 * chunk. */
static inline void bins_insert(struct bins *bins, struct chunk *chunks, uint32_t i, uint32_t size,
                               enum chunk_state state) {
    const unsigned bin = bin_of(size);
    const uint32_t head = bins->head[bin];

    chunks[i].size = size;
    chunk_set(&chunks[i], state, head);
    chunks[head].link_prev = i; /* if the bin was empty this is the edge's link, which is never
                                   read */
    bins->head[bin] = i;
    bins->map[bin >> 6] |= (uint64_t)1 << (bin & 63);
    bins->words[bin >> 12] |= (uint64_t)1 << ((bin >> 6) & 63);
    if (__builtin_expect(size >= bins->largest, 0))
        bins_raise(bins, size);
    tally_add(bins->orders, size);
}

static inline void bins_remove(struct bins *bins, struct chunk *chunks, uint32_t i) {
    const uint32_t size = chunks[i].size, next = chunk_link_next(&chunks[i]);
    const unsigned bin = bin_of(size);

    if (bins->head[bin] == i) {
        uint64_t *const word = &bins->map[bin >> 6];

        /* No branches: the processor could not predict them. */
        bins->head[bin] = next;
        *word &= ~((uint64_t)(next == 0) << (bin & 63));
        bins->words[bin >> 12] &= ~((uint64_t)(*word == 0) << ((bin >> 6) & 63));
    } else {
        const uint32_t before = chunks[i].link_prev;

        chunk_set_link_next(&chunks[before], next);
        chunks[next].link_prev = before;
    }
    if (__builtin_expect(size == bins->largest, 0))
        bins->n_largest--;
    tally_remove(bins->orders, size);
}

static inline bool bins_any(const struct bins *bins) {
    uint64_t any = 0;

    for (unsigned w = 0; w < sizeof(bins->words) / sizeof(bins->words[0]); w++)
        any |= bins->words[w];
    return any;
}

/* The first bin from `bin` on that is not empty; BINS: none. `bin` is at most BINS. */
static inline unsigned bins_next(const struct bins *bins, unsigned bin) {
    unsigned word = bin >> 6;
    uint64_t bits = bins->map[word] & (~(uint64_t)0 << (bin & 63));

    if (!bits) {
        word++;
        bits = bins->words[word >> 6] & (~(uint64_t)0 << (word & 63));
        while (__builtin_expect(!bits, 0)) {
            word = (word | 63) + 1;
            if (word >= BIN_WORDS)
                return BINS;
            bits = bins->words[word >> 6];
        }
        word = (word & ~63u) + (unsigned)__builtin_ctzll(bits);
        bits = bins->map[word];
    }
    return (word << 6) + (unsigned)__builtin_ctzll(bits);
}

/* A chunk of at least `size`, and hardly larger than the smallest that fits; 0: none. */
static inline uint32_t bins_find(const struct bins *bins, const struct chunk *chunks,
                                 uint32_t size) {
    const unsigned shift = 23 - (unsigned)__builtin_clz(size | 256);
    const bool inside = (size & ((1u << shift) - 1)) != 0; /* its bin also has smaller ones */
    unsigned bin = (shift << 8) + (size >> shift);
    uint32_t i = bins->head[bin];

    if (__builtin_expect(inside & (i != 0), 0))
        for (unsigned looked = 0; i && looked < BIN_LOOK; looked++) {
            if (chunks[i].size >= size)
                return i;
            i = chunk_link_next(&chunks[i]);
        }
    bin = bins_next(bins, bin + inside);
    return __builtin_expect(bin < BINS, 1) ? bins->head[bin] : 0;
}

/* The last bin that is not empty; 0: none. */
unsigned bins_last(const struct bins *bins);
/* The size of the largest chunk. Known at once, unless the largest chunk was taken since: then it
 * searches all chunks in the last bin. */
uint32_t bins_largest(struct bins *bins, const struct chunk *chunks);
