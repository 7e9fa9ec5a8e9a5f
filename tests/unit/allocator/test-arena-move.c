/* SPDX-License-Identifier: Apache-2.0 */
/* Pages that move inside the reservation: how many, and which must stay. */
#include "tests/support/allocator/arena_fixture.h"

START_TEST(moves_keep_to_their_budget_as_long_as_there_is_memory) {
    enum { N = 64 };
    struct arena_block blocks[N];
    uint64_t taken = 0;

    begin(&(struct device_oracle_options){ .span_bytes = MIB(512) },
          &(struct arena_options){ .max_shards = 1 });
    /* A whole page in each of many pieces, and then blocks for which they would have to come
     * together. */
    for (unsigned n = 0; n < N; n++) {
        blocks[n] = take(2 * PAGE);
        take(256);
        taken += 2 * PAGE + 256;
    }
    for (unsigned n = 0; n < N; n++)
        give(blocks[n]);
    for (unsigned n = 0; n < 3; n++) {
        take(N / 4 * PAGE);
        taken += N / 4 * PAGE;
        ck_assert_uint_gt(stats().moved_bytes, 0);
        /* A quarter of what is held, once, and at most 1/64 of what was ever allocated. */
        ck_assert_uint_le(stats().moved_bytes, stats().peak_reserved_bytes / 4 + taken / 64);
    }
    end();
}
END_TEST

START_TEST(pages_on_either_side_of_a_hole_that_is_filled_stay) {
    for (unsigned first = 0; first < 2; first++) {
        struct arena_block before, hole, after;
        uint64_t grows;

        begin(&placed, &(struct arena_options){ .max_shards = 1 });
        take(PAGE);
        before = take(first ? 2 * PAGE : PAGE);
        hole = take(2 * PAGE);
        after = take(first ? PAGE : 2 * PAGE);
        take(16 * PAGE);
        give(hole);
        ck_assert_int_eq(arena_trim(arena, 0, NULL), 0);
        give(before);
        give(after);
        grows = stats().grows;
        /* All of the hole and what is free beside it; nothing else has a page to give. */
        hole = take(5 * PAGE);
        ck_assert_uint_eq(hole.address, before.address);
        ck_assert_uint_eq(stats().moved_bytes, 0);
        ck_assert_uint_eq(stats().grows, grows + 1);
        end();
    }
}
END_TEST

SUITE("arena-move", moves_keep_to_their_budget_as_long_as_there_is_memory,
      pages_on_either_side_of_a_hole_that_is_filled_stay)
