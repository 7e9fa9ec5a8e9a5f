/* SPDX-License-Identifier: Apache-2.0 */
#include "allocator/bins.h"

#include "base/cleanup.h"

unsigned bins_last(const struct bins *bins) {
    for (unsigned w = ELEMENTSOF(bins->words); w-- > 0;)
        if (bins->words[w]) {
            unsigned word = w * 64 + 63 - (unsigned)__builtin_clzll(bins->words[w]);

            return word * 64 + 63 - (unsigned)__builtin_clzll(bins->map[word]);
        }
    return 0;
}

uint32_t bins_largest(struct bins *bins, const struct chunk *chunks) {
    if (bins->n_largest)
        return bins->largest;
    bins->largest = 0;
    for (uint32_t i = bins->head[bins_last(bins)]; i; i = chunk_link_next(&chunks[i]))
        if (chunks[i].size >= bins->largest)
            bins_raise(bins, chunks[i].size);
    return bins->largest;
}
