/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/lookup.h"

#include <errno.h>
#include <stdlib.h>

#define ENTRIES_MIN 256

/* Fibonacci hashing: consecutive granules land far apart. */
static uint64_t home_of(const struct lookup *lookup, uint64_t address) {
    return ((address >> 8) * 0x9e3779b97f4a7c15u) >> lookup->shift;
}

static void put(struct lookup *lookup, struct lookup_entry entry) {
    uint64_t at = home_of(lookup, entry.address);

    while (__builtin_expect(lookup->entries[at].handle, 0))
        at = (at + 1) & lookup->mask;
    lookup->entries[at] = entry;
    lookup->n++;
}

static int enlarge(struct lookup *lookup) {
    struct lookup larger = { .mask = lookup->mask ? lookup->mask * 2 + 1 : ENTRIES_MIN - 1 };

    larger.shift = (unsigned)__builtin_clzll(larger.mask);
    larger.entries = calloc(larger.mask + 1, sizeof(*larger.entries));
    if (!larger.entries)
        return -ENOMEM;
    for (uint64_t at = 0; lookup->mask && at <= lookup->mask; at++)
        if (lookup->entries[at].handle)
            put(&larger, lookup->entries[at]);
    free(lookup->entries);
    *lookup = larger;
    return 0;
}

int lookup_add(struct lookup *lookup, uint64_t address, uint64_t handle) {
    if (__builtin_expect(lookup->n >= (lookup->mask + 1) / 4, 0) && enlarge(lookup) < 0)
        return -ENOMEM;
    put(lookup, (struct lookup_entry){ address, handle });
    return 0;
}

uint64_t lookup_take(struct lookup *lookup, uint64_t address) {
    struct lookup_entry *const entries = lookup->entries;
    uint64_t at, gap, handle;

    if (!lookup->mask)
        return 0;
    for (at = home_of(lookup, address);; at = (at + 1) & lookup->mask) {
        handle = entries[at].handle;
        if (!handle)
            return 0;
        if (__builtin_expect(entries[at].address == address, 1))
            break;
    }

    /* Close up: an entry behind the gap moves into it unless its home lies after the gap. */
    for (gap = at;;) {
        at = (at + 1) & lookup->mask;
        if (__builtin_expect(!entries[at].handle, 1))
            break;
        if (((at - home_of(lookup, entries[at].address)) & lookup->mask) >=
            ((at - gap) & lookup->mask)) {
            entries[gap] = entries[at];
            gap = at;
        }
    }
    entries[gap].handle = 0;
    lookup->n--;
    return handle;
}

void lookup_done(struct lookup *lookup) {
    free(lookup->entries);
    *lookup = (struct lookup){ 0 };
}
