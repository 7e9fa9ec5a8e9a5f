/* SPDX-License-Identifier: Apache-2.0 */
#include "allocator/lookup.h"

#include <errno.h>
#include <stdlib.h>

#define SLOTS_MIN 256

int lookup_enlarge(struct lookup *lookup, lookup_address_fn address_of, const void *userdata) {
    struct lookup larger = { 0 };

    larger.mask = lookup->mask ? lookup->mask * 2 + 1 : SLOTS_MIN - 1;
    if (larger.mask == UINT32_MAX)
        return -ENOMEM; /* no shard has as many chunks */
    larger.shift = (unsigned)__builtin_clz(larger.mask) + 32;
    larger.slots = calloc((size_t)larger.mask + 1, sizeof(*larger.slots));
    if (!larger.slots)
        return -ENOMEM;
    for (uint32_t at = 0; lookup->mask && at <= lookup->mask; at++)
        if (lookup->slots[at])
            lookup_add(&larger, address_of(userdata, lookup->slots[at]), lookup->slots[at]);
    free(lookup->slots);
    *lookup = larger;
    return 0;
}

void lookup_done(struct lookup *lookup) {
    free(lookup->slots);
    *lookup = (struct lookup){ 0 };
}
