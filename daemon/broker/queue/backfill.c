/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The amounts that can be in use are sums of subsets, kept as bits, one per granule: a lease or a
 * waiter in front adds itself by a shift. For each waiter in turn, the largest sum that leaves it
 * room is the tightest state in which it starts.
 */
#include "daemon/broker/queue/backfill.h"

#include <string.h>

#include "daemon/broker/books.h"

#define WORDS_MAX 4096 /* 512 GiB */

/* Add every sum increased by `granules`; those past the end are dropped. */
static void add(uint64_t *bits, size_t n_words, uint64_t granules) {
    size_t words = granules / 64, rest = granules % 64;

    if (words >= n_words)
        return;
    for (size_t i = n_words; i-- > words;) {
        uint64_t low = i > words && rest ? bits[i - words - 1] >> (64 - rest) : 0;

        bits[i] |= bits[i - words] << rest | low;
    }
}

/* The largest sum up to `granules`; 0 always is one. */
static uint64_t find(const uint64_t *bits, uint64_t granules) {
    size_t i = granules / 64;
    uint64_t word = bits[i] & (UINT64_MAX >> (63 - granules % 64));

    while (!word)
        word = bits[--i];
    return i * 64 + 63 - (uint64_t)__builtin_clzll(word);
}

uint64_t backfill_bytes(const struct backfill_case *in) {
    uint64_t bits[WORDS_MAX], usable = in->usable_bytes / BOOKS_GRANULE, least = UINT64_MAX;
    size_t n_words = usable / 64 + 1;

    if (n_words > WORDS_MAX || in->n_leases > BACKFILL_LEASES_MAX)
        return 0;
    memset(bits, 0, n_words * sizeof(bits[0]));
    bits[0] = 1;
    for (uint32_t i = 0; i < in->n_leases; i++)
        add(bits, n_words, in->lease_bytes[i] / BOOKS_GRANULE);
    for (uint32_t i = 0; i < in->n_needs; i++) {
        uint64_t need = in->need_bytes[i] / BOOKS_GRANULE, surplus;

        if (need > usable)
            continue;
        surplus = (usable - need - find(bits, usable - need)) * BOOKS_GRANULE;
        surplus -= MIN(surplus, in->vague_bytes);
        least = MIN(least, surplus);
        if (least == 0)
            return 0;
        add(bits, n_words, need);
    }
    return least;
}
