/* SPDX-License-Identifier: Apache-2.0 */
/* How long the arena looks for memory among what is free. */
#include "tests/support/allocator/arena_fixture.h"

/* What fits is the last of many chunks to be looked at: as long as there is more memory to be had,
 * not all of them are; before a failure they are. */
START_TEST(before_a_growth_the_look_at_what_is_free_has_an_end) {
    enum { N = 20000 };
    static struct arena_block blocks[N];

    for (unsigned kind = 0; kind < 4; kind++) {
        struct arena_request request = { .bytes = 512, .align_bytes = KIB(4) };
        struct arena_block block;
        uint64_t fits, grows;
        uint8_t one;

        begin(&(struct device_oracle_options){ .span_bytes = MIB(64),
                                               .no_wait = true,
                                               .no_order = true },
              &(struct arena_options){ .max_shards = 1 });
        ck_assert_int_eq(arena_stream_new(arena, 1, &one), 0);
        for (unsigned n = 0; n < N; n++) {
            blocks[n] = take(512);
            if (kind < 2 || n > 1)
                take(256);
        }
        while (stats().largest_free_bytes)
            take(stats().largest_free_bytes);
        fits = blocks[0].address;
        if (kind < 2) { /* of all chunks of this size the one that happens to be aligned */
            for (unsigned n = 0; n < N; n++)
                if (!n || blocks[n].address % KIB(4))
                    give(blocks[n]);
        } else { /* of all chunks of a stream the one beside which there is another */
            request = (struct arena_request){ .bytes = 1024, .stream = one };
            give(blocks[1]);
            for (unsigned n = 0; n < N; n++)
                if (n != 1)
                    give_on(blocks[n], one);
        }
        if (kind % 2)
            arena_set_cap(arena, stats().reserved_bytes);
        grows = stats().grows;
        ck_assert_int_eq(arena_alloc(arena, &request, &block, NULL), 0);
        device_oracle_take(oracle, block.address, request.bytes, request.align_bytes,
                           request.stream);
        ck_assert_int_eq(block.address == fits, kind % 2);
        ck_assert_uint_eq(stats().grows, grows + !(kind % 2));
        end();
    }
}
END_TEST

SUITE("arena-look", before_a_growth_the_look_at_what_is_free_has_an_end)
