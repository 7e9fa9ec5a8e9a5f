/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Lookup: address of a live block → index of its chunk, for callers that keep no handles.
 *
 * Open addressing, eight bytes a slot: the upper half of the address's hash and the index. What
 * is removed is closed up at once, so the table never fills with the dead. Part of a shard, used
 * under its lock.
 */
#include <stdbool.h>
#include <stdint.h>

struct lookup {
    uint64_t *slots; /* hash << 32 | index; 0: empty */
    uint32_t mask;   /* slots - 1; 0: none yet */
    uint32_t n;
};

/* Make room for one more. -ENOMEM. */
int lookup_reserve(struct lookup *lookup);
/* After lookup_reserve(), which it cannot do without. */
void lookup_add(struct lookup *lookup, uint64_t address, uint32_t i);
/* Remove the entry for `address` for which `is(userdata, i, address)`, which tells apart the few
 * addresses of one hash. Its index, 0: none. */
uint32_t lookup_take(struct lookup *lookup, uint64_t address,
                     bool (*is)(const void *userdata, uint32_t i, uint64_t address),
                     const void *userdata);
void lookup_done(struct lookup *lookup);
