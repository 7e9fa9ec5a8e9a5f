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
#define BIN_WORDS  (BINS / 64)
#define BIN_ORDERS 32 /* powers of two */

/* How many chunks, and their granules: kept per power of two, and summed when somebody asks. */
struct tally {
    uint64_t n, size;
};

struct bins {
    uint64_t words[(BIN_WORDS + 63) / 64]; /* bit per word of `map` that is not 0 */
    uint64_t map[BIN_WORDS];               /* bit per bin that is not empty */
    uint32_t largest, n_largest; /* chunks of the largest size; 0: none is larger, it must be looked
                                    for */
    struct tally orders[BIN_ORDERS];
    uint32_t head[BINS];
};

/* How many chunks of a bin that spans the wanted size are looked at before the next larger bin
 * is taken, in which every chunk fits. */
#define BIN_LOOK 4

static inline unsigned bin_order(uint32_t size) {
    return 31 - (unsigned)__builtin_clz(size);
}

static inline unsigned bin_of(uint32_t size) {
    unsigned shift = 23 - (unsigned)__builtin_clz(size | 256);

    return (shift << 8) + (size >> shift);
}

static inline void tally_add(struct tally *orders, uint32_t size) {
    struct tally *tally = &orders[bin_order(size)];

    tally->n++;
    tally->size += size;
}

static inline void tally_remove(struct tally *orders, uint32_t size) {
    struct tally *tally = &orders[bin_order(size)];

    tally->n--;
    tally->size -= size;
}

static inline struct tally tally_sum(const struct tally *orders) {
    struct tally sum = { 0, 0 };

    for (unsigned order = 0; order < BIN_ORDERS; order++) {
        sum.n += orders[order].n;
        sum.size += orders[order].size;
    }
    return sum;
}

/* A chunk as large as the largest, or larger, comes in. */
static inline void bins_raise(struct bins *bins, uint32_t size) {
    bins->n_largest = size == bins->largest ? bins->n_largest + 1 : 1;
    bins->largest = size;
}

/* What link_prev of a bin's first chunk holds is of no meaning: to take the first out, which is
 * most of what happens, then touches no other chunk. */
static inline void bins_insert(struct bins *bins, struct chunk *chunks, uint32_t i) {
    struct chunk *chunk = &chunks[i];
    unsigned bin = bin_of(chunk->size);
    uint32_t head = bins->head[bin];

    chunk_set_link_next(chunk, head);
    chunks[head].link_prev = i; /* the edge's, where the bin was empty: nobody reads it */
    bins->head[bin] = i;
    bins->map[bin >> 6] |= (uint64_t)1 << (bin & 63);
    bins->words[bin >> 12] |= (uint64_t)1 << ((bin >> 6) & 63);
    if (__builtin_expect(chunk->size >= bins->largest, 0))
        bins_raise(bins, chunk->size);
    tally_add(bins->orders, chunk->size);
}

static inline void bins_remove(struct bins *bins, struct chunk *chunks, uint32_t i) {
    struct chunk *chunk = &chunks[i];
    unsigned bin = bin_of(chunk->size);

    if (bins->head[bin] == i) {
        bins->head[bin] = chunk_link_next(chunk);
        if (!bins->head[bin]) {
            bins->map[bin >> 6] &= ~((uint64_t)1 << (bin & 63));
            if (!bins->map[bin >> 6])
                bins->words[bin >> 12] &= ~((uint64_t)1 << ((bin >> 6) & 63));
        }
    } else {
        chunk_set_link_next(&chunks[chunk->link_prev], chunk_link_next(chunk));
        chunks[chunk_link_next(chunk)].link_prev = chunk->link_prev;
    }
    bins->n_largest -= chunk->size == bins->largest;
    tally_remove(bins->orders, chunk->size);
}

static inline bool bins_any(const struct bins *bins) {
    uint64_t any = 0;

    for (unsigned w = 0; w < sizeof(bins->words) / sizeof(bins->words[0]); w++)
        any |= bins->words[w];
    return any;
}

/* The first bin from `bin` on that is not empty; BINS: none. */
static inline unsigned bins_next(const struct bins *bins, unsigned bin) {
    unsigned word = bin >> 6;
    uint64_t bits;

    if (bin >= BINS)
        return BINS;
    bits = bins->map[word] & (~(uint64_t)0 << (bin & 63));
    if (bits)
        return (word << 6) + (unsigned)__builtin_ctzll(bits);

    if (++word >= BIN_WORDS)
        return BINS;
    bits = bins->words[word >> 6] & (~(uint64_t)0 << (word & 63));
    for (unsigned w = word >> 6; !bits;) {
        if (++w >= (BIN_WORDS + 63) / 64)
            return BINS;
        bits = bins->words[w];
        word = w << 6;
    }
    word = (word & ~63u) + (unsigned)__builtin_ctzll(bits);
    return (word << 6) + (unsigned)__builtin_ctzll(bins->map[word]);
}

/* A chunk of at least `size`, and hardly more than the smallest there is; 0: none. */
static inline uint32_t bins_find(const struct bins *bins, const struct chunk *chunks,
                                 uint32_t size) {
    unsigned shift = 23 - (unsigned)__builtin_clz(size | 256);
    unsigned bin = (shift << 8) + (size >> shift);

    if (shift && (size & ((1u << shift) - 1))) {
        uint32_t i = bins->head[bin];

        for (unsigned looked = 0; i && looked < BIN_LOOK; looked++) {
            if (chunks[i].size >= size)
                return i;
            i = chunk_link_next(&chunks[i]);
        }
        bin++;
    }
    bin = bins_next(bins, bin);
    return bin < BINS ? bins->head[bin] : 0;
}

/* The last bin that is not empty; 0: none. */
unsigned bins_last(const struct bins *bins);
/* The size of the largest chunk. At once, unless the largest has gone since: then all that share
 * the last bin are looked at. */
uint32_t bins_largest(struct bins *bins, const struct chunk *chunks);
