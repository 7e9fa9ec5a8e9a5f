/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Lookup: address of a live block → its handle, as a caller of the arena would have it that keeps
 * no handles. The engine `allot-ptr` measures what that costs.
 *
 * Open addressing, at most a quarter full, so that nearly every search ends where it begins: a
 * branch that always goes the same way saves more than a smaller table would. Removing an entry
 * closes the gap at once, so the table never fills with tombstones.
 *
 * One thread at a time.
 */
#include <stdint.h>

struct lookup {
    struct lookup_entry {
        uint64_t address, handle; /* handle 0: empty */
    } * entries;
    uint64_t mask; /* entries - 1; 0: none yet */
    uint64_t n;
    unsigned shift; /* of a hash, to an entry */
};

/* The address must not be there yet. -ENOMEM. */
int lookup_add(struct lookup *lookup, uint64_t address, uint64_t handle);
/* Remove the entry of `address`. Returns its handle; 0: there is none. */
uint64_t lookup_take(struct lookup *lookup, uint64_t address);
void lookup_done(struct lookup *lookup);
