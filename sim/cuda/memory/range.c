/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/cuda/memory/range.h"

static struct slab ranges = SLAB(struct range);

uint64_t range_next_id(void) {
    static uint64_t last_id;

    return ++last_id;
}

struct range *range_new(void) {
    struct range *range = slab_new(&ranges);

    if (range) {
        range->id = range_next_id();
        slab_publish(range);
    }
    return range;
}

void range_free(struct range *range) {
    slab_free(&ranges, range);
}
