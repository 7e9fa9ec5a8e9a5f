/* SPDX-License-Identifier: Apache-2.0 */
/* A host that has no memory for the arena's records: no device memory is lost. */
#include "base/random.h"
#include "tests/support/base/failing_malloc.h"
#include "tests/support/allocator/arena_fixture.h"

#define BLOCKS 4000
#define STEPS  6000

/*
 * Small blocks, and sometimes one for which pages must be moved together; often so many that the
 * records run out.
 */
static void walk(const struct device_oracle_options *options, uint64_t seed, bool recovers,
                 uint64_t *ret_refused) {
    static struct arena_block blocks[BLOCKS];
    uint64_t random = seed + 1;
    unsigned n_blocks = 0;

    begin(options, &(struct arena_options){ .cap_bytes = MIB(5), .max_shards = 1 });
    for (unsigned n = 0; n < STEPS; n++) {
        if (n % 500 == 100)
            failing_malloc_pages(true);
        if (n % 500 == 450 && recovers)
            failing_malloc_pages(false);
        if (random_next(&random) % 100 < (n % 1000 < 600 ? 85 : 35) && n_blocks < BLOCKS) {
            uint64_t most = random_next(&random) % 10 ? 1500 : 60000;
            struct arena_request request = { .bytes = random_next(&random) % most };
            struct arena_block block;
            struct allot_error err;
            int r;

            if (random_next(&random) % 8 == 0)
                request.align_bytes = 1 << random_next(&random) % 14;
            r = arena_alloc(arena, &request, &block, &err);
            if (r == 0) {
                device_oracle_take(oracle, block.address, request.bytes, request.align_bytes, 0);
                blocks[n_blocks++] = block;
            } else
                *ret_refused += strstr(err.text, "host") != NULL;
        } else if (n_blocks) {
            unsigned k = random_next(&random) % n_blocks;

            give(blocks[k]);
            blocks[k] = blocks[--n_blocks];
        }
        ck_assert_uint_eq(stats().reserved_bytes, device_oracle_mapped_bytes(oracle));
        ck_assert_uint_eq(stats().used_bytes + stats().free_bytes, stats().reserved_bytes);
        if (n % 97 == 0) {
            right();
            if (random_next(&random) % 4 == 0)
                arena_trim(arena, random_next(&random) % MIB(4), NULL);
        }
    }
    failing_malloc_pages(false);
    end();
}

START_TEST(a_host_that_has_no_records_loses_no_memory) {
    static const struct device_oracle_options kinds[] = {
        { .span_bytes = MIB(64), .page_bytes = KIB(4) },
        { .span_bytes = MIB(64), .page_bytes = KIB(4), .no_remap = true },
        { .span_bytes = MIB(64), .page_bytes = KIB(4), .no_remap = true, .no_trim = true },
    };
    uint64_t refused = 0;

    for (unsigned n = 190; n < 220; n++)
        walk(&kinds[n % ELEMENTSOF(kinds)], n, n % 2, &refused);
    ck_assert_uint_gt(refused, 0);
}
END_TEST

SUITE_TIMEOUT("arena-failing-malloc", 120, a_host_that_has_no_records_loses_no_memory)
