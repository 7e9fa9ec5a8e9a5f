/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Lookup: address of a live block → index of its chunk, for callers that keep no handles.
 *
 * Open addressing, four bytes a slot: only the index, since the caller reads the chunk next anyway,
 * and the chunk tells its address. At most a quarter full, so that nearly every search ends where
 * it begins: a branch that always goes the same way saves more than a smaller table would. Removing
 * an entry closes the gap at once, so the table never fills with tombstones.
 *
 * Part of a shard, used under its lock. Inlined, with the function that computes addresses a
 * constant, it is a few instructions.
 */
#include <stdbool.h>
#include <stdint.h>

/* The address of the block whose chunk is `i`. */
typedef uint64_t (*lookup_address_fn)(const void *userdata, uint32_t i);

struct lookup {
    uint32_t *slots; /* indices; 0: empty */
    uint32_t mask;   /* slots - 1; 0: none yet */
    uint32_t n;
    unsigned shift; /* of a hash, to a slot */
};

/* Slow part of lookup_reserve(). */
int lookup_enlarge(struct lookup *lookup, lookup_address_fn address_of, const void *userdata);
void lookup_done(struct lookup *lookup);

/* Fibonacci hashing: consecutive granules land far apart. */
static inline uint32_t lookup_home(const struct lookup *lookup, uint64_t address) {
    return (uint32_t)(((address >> 8) * 0x9e3779b97f4a7c15u) >> lookup->shift);
}

/* Make room for one more. -ENOMEM. */
static inline int lookup_reserve(struct lookup *lookup, lookup_address_fn address_of,
                                 const void *userdata) {
    if (__builtin_expect(lookup->n < (lookup->mask + 1) / 4, 1))
        return 0;
    return lookup_enlarge(lookup, address_of, userdata);
}

/* Call lookup_reserve() first. */
static inline void lookup_add(struct lookup *lookup, uint64_t address, uint32_t i) {
    uint32_t at = lookup_home(lookup, address);

    while (__builtin_expect(lookup->slots[at], 0))
        at = (at + 1) & lookup->mask;
    lookup->slots[at] = i;
    lookup->n++;
}

/* Remove the entry for `address`. Returns its index; 0: there is none. */
static inline __attribute__((always_inline)) uint32_t lookup_take(struct lookup *lookup,
                                                                  uint64_t address,
                                                                  lookup_address_fn address_of,
                                                                  const void *userdata) {
    uint32_t at, gap, found;

    if (!lookup->mask)
        return 0;
    for (at = lookup_home(lookup, address);; at = (at + 1) & lookup->mask) {
        found = lookup->slots[at];
        if (!found)
            return 0;
        if (__builtin_expect(address_of(userdata, found) == address, 1))
            break;
    }

    /* Close up: an entry behind the gap moves into it unless its home lies after the gap. */
    for (gap = at;;) {
        uint32_t other;

        at = (at + 1) & lookup->mask;
        other = lookup->slots[at];
        if (__builtin_expect(!other, 1))
            break;
        if (((at - lookup_home(lookup, address_of(userdata, other))) & lookup->mask) >=
            ((at - gap) & lookup->mask)) {
            lookup->slots[gap] = other;
            gap = at;
        }
    }
    lookup->slots[gap] = 0;
    lookup->n--;
    return found;
}
