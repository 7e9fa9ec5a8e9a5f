/* SPDX-License-Identifier: Apache-2.0 */
#include "allocator/bins.h"
#include "base/random.h"
#include "tests/support/suite.h"

START_TEST(bins_are_exact_when_small_and_narrow_when_large) {
    unsigned last = 0;

    for (uint32_t size = 1; size < 512; size++)
        ck_assert_uint_eq(bin_of(size), size);
    for (uint64_t size = 1; size <= UINT32_MAX; size += size / 3000 + 1) {
        unsigned bin = bin_of((uint32_t)size);

        ck_assert_uint_ge(bin, last);
        ck_assert_uint_lt(bin, BINS);
        /* The smallest size of the next bin is at most 1/256 larger. */
        ck_assert_uint_gt(bin_of((uint32_t)MIN(size + size / 256 + 1, (uint64_t)UINT32_MAX)),
                          size + size / 256 + 1 > UINT32_MAX ? bin - 1 : bin);
        last = bin;
    }
    ck_assert_uint_eq(bin_of(UINT32_MAX), BINS - 1);
}
END_TEST

START_TEST(what_is_found_fits_and_is_hardly_larger_than_the_smallest_that_does) {
    cleanup(freep) struct bins *bins = calloc(1, sizeof(*bins));
    cleanup(freep) struct chunk *chunks = calloc(257, sizeof(*chunks));
    uint64_t random = 5;
    bool in[257] = { 0 };

    ck_assert(bins && chunks);
    for (unsigned n = 0; n < 60000; n++) {
        uint32_t i = 1 + (uint32_t)(random_next(&random) % 256), best = 0, found, largest = 0;
        uint32_t want = (uint32_t)(random_next(&random) >> (32 + random_next(&random) % 31)) | 1;

        if (in[i])
            bins_remove(bins, chunks, i);
        else {
            bins_insert(bins, chunks, i,
                        (uint32_t)(random_next(&random) >> (32 + random_next(&random) % 31)) | 1,
                        CHUNK_FREE);
        }
        in[i] = !in[i];

        for (i = 1; i < 257; i++)
            if (in[i]) {
                largest = MAX(largest, chunks[i].size);
                if (chunks[i].size >= want && (!best || chunks[i].size < chunks[best].size))
                    best = i;
            }
        found = bins_find(bins, chunks, want);
        ck_assert_uint_eq(bins_largest(bins, chunks), largest);
        if (!best) {
            ck_assert_uint_eq(found, 0);
            continue;
        }
        /* One that only shares the wanted size's bin may be overlooked behind four others. */
        if (!found) {
            ck_assert_uint_eq(bin_of(chunks[best].size), bin_of(want));
            continue;
        }
        ck_assert(in[found] && chunks[found].size >= want);
        if (bin_of(chunks[best].size) != bin_of(want))
            ck_assert_uint_eq(bin_of(chunks[found].size), bin_of(chunks[best].size));
    }
}
END_TEST

SUITE("bins", bins_are_exact_when_small_and_narrow_when_large,
      what_is_found_fits_and_is_hardly_larger_than_the_smallest_that_does)
