/* SPDX-License-Identifier: Apache-2.0 */
#include "allocator/lookup.h"

#include <errno.h>
#include <stdlib.h>

#define SLOTS_MIN 256

/* Fibonacci hashing: consecutive granules land far apart. */
static uint32_t hash(uint64_t address) {
    return (uint32_t)(((address >> 8) * 0x9e3779b97f4a7c15u) >> 32);
}

/* Where the search for this hash starts; the upper bits are the good ones. */
static uint32_t home(const struct lookup *lookup, uint32_t h) {
    return (uint32_t)(((uint64_t)h * ((uint64_t)lookup->mask + 1)) >> 32);
}

static void put(struct lookup *lookup, uint64_t slot) {
    uint32_t at = home(lookup, (uint32_t)(slot >> 32));

    while (lookup->slots[at])
        at = (at + 1) & lookup->mask;
    lookup->slots[at] = slot;
}

int lookup_reserve(struct lookup *lookup) {
    struct lookup larger = { .n = lookup->n };
    uint32_t n_slots = lookup->mask + 1;

    /* Half full at most: runs stay short, and so does closing them up. */
    if (lookup->mask && lookup->n < n_slots / 2)
        return 0;

    larger.mask = lookup->mask ? n_slots * 2 - 1 : SLOTS_MIN - 1;
    larger.slots = calloc((size_t)larger.mask + 1, sizeof(*larger.slots));
    if (!larger.slots)
        return -ENOMEM;
    for (uint32_t i = 0; lookup->mask && i < n_slots; i++)
        if (lookup->slots[i])
            put(&larger, lookup->slots[i]);
    free(lookup->slots);
    *lookup = larger;
    return 0;
}

void lookup_add(struct lookup *lookup, uint64_t address, uint32_t i) {
    put(lookup, (uint64_t)hash(address) << 32 | i);
    lookup->n++;
}

uint32_t lookup_take(struct lookup *lookup, uint64_t address,
                     bool (*is)(const void *userdata, uint32_t i, uint64_t address),
                     const void *userdata) {
    uint32_t h = hash(address), at, gap, found;

    if (!lookup->mask)
        return 0;
    for (at = home(lookup, h);; at = (at + 1) & lookup->mask) {
        if (!lookup->slots[at])
            return 0;
        if (lookup->slots[at] >> 32 == h && is(userdata, (uint32_t)lookup->slots[at], address))
            break;
    }
    found = (uint32_t)lookup->slots[at];

    /* Close up: an entry behind the gap moves into it unless its home lies after the gap. */
    for (gap = at;;) {
        at = (at + 1) & lookup->mask;
        if (!lookup->slots[at])
            break;
        if (((at - home(lookup, (uint32_t)(lookup->slots[at] >> 32))) & lookup->mask) >=
            ((at - gap) & lookup->mask)) {
            lookup->slots[gap] = lookup->slots[at];
            gap = at;
        }
    }
    lookup->slots[gap] = 0;
    lookup->n--;
    return found;
}

void lookup_done(struct lookup *lookup) {
    free(lookup->slots);
    *lookup = (struct lookup){ 0 };
}
