/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/server/grant_rate.h"

#include <errno.h>

#include "tests/support/suite.h"

#define SECOND UINT64_C(1000000)

static unsigned take_all(struct grant_rate *rate, uid_t uid, uint32_t per_minute, uint64_t now) {
    uint64_t wait = 0;
    unsigned n = 0;

    while (n < 100000 && grant_rate_take(rate, uid, per_minute, now, &wait) == 0)
        n++;
    return n;
}

START_TEST(a_minutes_worth_is_there_at_once_and_comes_back_evenly) {
    struct grant_rate rate = { 0 };
    uint64_t now = 1000 * SECOND, wait = 0;

    ck_assert_uint_eq(take_all(&rate, 7, 60, now), 60);
    ck_assert_int_eq(grant_rate_take(&rate, 7, 60, now, &wait), -EAGAIN);
    ck_assert_uint_eq(wait, SECOND);
    ck_assert_int_eq(grant_rate_take(&rate, 7, 60, now + SECOND - 1, &wait), -EAGAIN);
    ck_assert_uint_eq(wait, 1);
    ck_assert_uint_eq(take_all(&rate, 7, 60, now + SECOND), 1);
    ck_assert_uint_eq(take_all(&rate, 7, 60, now + 31 * SECOND), 30);
    ck_assert_uint_eq(take_all(&rate, 7, 60, now + 1000 * SECOND), 60);
    grant_rate_done(&rate);
}
END_TEST

START_TEST(users_do_not_share) {
    struct grant_rate rate = { 0 };

    ck_assert_uint_eq(take_all(&rate, 7, 10, SECOND), 10);
    ck_assert_uint_eq(take_all(&rate, 8, 10, SECOND), 10);
    /* However many there are: the one that has none left is not forgotten. */
    for (uid_t uid = 1000; uid < 5000; uid++)
        ck_assert_uint_eq(take_all(&rate, uid, 1, SECOND), 1);
    ck_assert_uint_eq(take_all(&rate, 7, 10, SECOND), 0);
    ck_assert_uint_eq(take_all(&rate, 9000, 1, 200 * SECOND), 1);
    ck_assert_uint_le(rate.users.n, 1);
    grant_rate_done(&rate);
}
END_TEST

START_TEST(what_is_given_back_can_be_taken_again) {
    struct grant_rate rate = { 0 };

    ck_assert_uint_eq(take_all(&rate, 7, 5, SECOND), 5);
    grant_rate_give(&rate, 7, 5);
    ck_assert_uint_eq(take_all(&rate, 7, 5, SECOND), 1);
    grant_rate_give(&rate, 8, 5); /* which took none */
    ck_assert_uint_eq(take_all(&rate, 8, 5, SECOND), 5);
    grant_rate_done(&rate);
}
END_TEST

START_TEST(without_a_limit_nothing_is_kept) {
    struct grant_rate rate = { 0 };

    ck_assert_uint_eq(take_all(&rate, 7, UINT32_MAX, SECOND), 100000);
    ck_assert_uint_eq(rate.users.n, 0);
    grant_rate_done(&rate);
}
END_TEST

SUITE("grant-rate", a_minutes_worth_is_there_at_once_and_comes_back_evenly, users_do_not_share,
      what_is_given_back_can_be_taken_again, without_a_limit_nothing_is_kept)
