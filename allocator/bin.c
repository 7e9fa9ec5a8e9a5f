/* SPDX-License-Identifier: Apache-2.0 */
#include "allocator/bin.h"

#include "base/cleanup.h"

#define LARGEST_LOOK 64

unsigned bins_last(const struct bins *bins) {
    for (unsigned w = ELEMENTSOF(bins->words); w-- > 0;)
        if (bins->words[w]) {
            unsigned word = w * 64 + 63 - (unsigned)__builtin_clzll(bins->words[w]);

            return word * 64 + 63 - (unsigned)__builtin_clzll(bins->map[word]);
        }
    return 0;
}

uint32_t bins_largest(const struct bins *bins, const struct chunk *chunks) {
    uint32_t largest = 0, i = bins->head[bins_last(bins)];

    for (unsigned looked = 0; i && looked < LARGEST_LOOK; looked++, i = chunk_link_next(&chunks[i]))
        largest = MAX(largest, chunks[i].size);
    return largest;
}
