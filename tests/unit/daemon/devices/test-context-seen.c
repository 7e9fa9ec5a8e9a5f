/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/devices/context_seen.h"

#include "base/random.h"
#include "tests/support/suite.h"

#define MIB(n) ((uint64_t)(n) << 20)

START_TEST(one_user_teaches_nothing) {
    struct context_seen seen = { 0 };

    for (unsigned i = 0; i < 100; i++)
        context_seen_note(&seen, 1001, MIB(3914) - i);
    ck_assert_uint_eq(context_seen_median(&seen, MIB(414)), 0);
    context_seen_note(&seen, 1002, MIB(3914));
    ck_assert_uint_eq(context_seen_median(&seen, MIB(414)), 0);
    context_seen_note(&seen, 1003, MIB(420));
    ck_assert_uint_gt(context_seen_median(&seen, MIB(414)), 0);
}
END_TEST

START_TEST(the_median_counts_each_user_once) {
    struct context_seen seen = { 0 };

    context_seen_note(&seen, 1001, MIB(420));
    context_seen_note(&seen, 1002, MIB(430));
    for (unsigned i = 0; i < 100; i++)
        context_seen_note(&seen, 1003, MIB(600) + i);
    ck_assert_uint_eq(context_seen_median(&seen, MIB(414)), MIB(430));
    context_seen_note(&seen, 1003, MIB(400));
    ck_assert_uint_eq(context_seen_median(&seen, MIB(414)), MIB(420));
    ck_assert_uint_eq(context_seen_of(&seen, 1003), MIB(400));
    ck_assert_uint_eq(context_seen_of(&seen, 1004), 0);
}
END_TEST

START_TEST(what_is_learned_stays_near_the_usual_figure) {
    struct context_seen seen = { 0 };

    for (uid_t uid = 1; uid <= 5; uid++)
        context_seen_note(&seen, uid, MIB(3914));
    ck_assert_uint_eq(context_seen_median(&seen, MIB(414)), MIB(621));
    for (uid_t uid = 1; uid <= 5; uid++)
        context_seen_note(&seen, uid, MIB(32));
    ck_assert_uint_eq(context_seen_median(&seen, MIB(414)), MIB(207));
}
END_TEST

START_TEST(the_users_seen_last_are_kept) {
    struct context_seen seen = { 0 };

    for (uid_t uid = 1; uid <= CONTEXT_SEEN_MAX; uid++)
        context_seen_note(&seen, uid, MIB(400));
    context_seen_note(&seen, 1, MIB(401));
    context_seen_note(&seen, 1000, MIB(402));
    ck_assert_uint_eq(seen.n, CONTEXT_SEEN_MAX);
    ck_assert_uint_eq(context_seen_of(&seen, 1), MIB(401));
    ck_assert_uint_eq(context_seen_of(&seen, 2), 0);
    ck_assert_uint_eq(context_seen_of(&seen, 1000), MIB(402));
}
END_TEST

/* Whatever one user shows, the result lies between figures of others, or is not learned at all. */
START_TEST(one_liar_cannot_leave_the_range_of_the_others) {
    uint64_t seed = 18;

    for (unsigned i = 0; i < 10000; i++) {
        struct context_seen seen = { 0 };
        unsigned n = 2 + (unsigned)(random_next(&seed) % 8);
        uint64_t low = UINT64_MAX, high = 0, learned;

        for (uid_t uid = 1; uid <= n; uid++) {
            uint64_t bytes = MIB(300 + random_next(&seed) % 200);

            context_seen_note(&seen, uid, bytes);
            low = bytes < low ? bytes : low;
            high = bytes > high ? bytes : high;
        }
        context_seen_note(&seen, 99, random_next(&seed) >> random_next(&seed) % 64);
        learned = context_seen_median(&seen, MIB(414));
        ck_assert_uint_ge(learned, low);
        ck_assert_uint_le(learned, high);
    }
}
END_TEST

SUITE("context-seen", one_user_teaches_nothing, the_median_counts_each_user_once,
      what_is_learned_stays_near_the_usual_figure, the_users_seen_last_are_kept,
      one_liar_cannot_leave_the_range_of_the_others)
