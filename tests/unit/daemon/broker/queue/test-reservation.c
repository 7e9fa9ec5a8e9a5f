/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/daemon/broker/broker_fixture.h"
#include "tests/support/suite.h"

enum { MALLORY = 1001, HONEST = 2001 };

static bool is_granted(const struct broker_fixture *fixture, uint64_t tag) {
    const struct verdict *told = fixture_told(fixture, tag);

    return told && told->kind == VERDICT_GRANT;
}

START_TEST(a_waiter_that_its_own_user_blocks_keeps_nothing_back) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(3, 80);
    struct request all = fixture_exclusive(1), most = fixture_fixed(1, 79);

    for (pid_t pid = 10; pid < 13; pid++) {
        struct request request = fixture_fixed(1, 1);
        const char *name = fixture_name((unsigned)pid - 10);

        request.devices = &name;
        request.n_devices = 1;
        fixture_get(fixture, pid, MALLORY, request);
    }
    ck_assert_int_eq(fixture_ask(fixture, 20, MALLORY, &all, 1).kind, VERDICT_WAIT);
    ck_assert_int_eq(fixture_ask(fixture, 30, HONEST, &most, 2).kind, VERDICT_GRANT);
    fixture_get(fixture, 31, HONEST, fixture_fixed(1, 70));
    fixture_get(fixture, 32, HONEST, fixture_grow(1, 70, 0));
}
END_TEST

/* Nor on cards that its user has nothing on, while it needs one that its user has something on. */
START_TEST(a_waiter_that_its_own_user_blocks_on_one_device_keeps_nothing_on_others) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(3, 80);
    struct request all = fixture_exclusive(3), some = fixture_grow(1, 70, 0);
    struct request little = fixture_fixed(1, 1);
    const char *first = fixture_name(0);

    little.devices = &first;
    little.n_devices = 1;
    fixture_get(fixture, 10, MALLORY, little);
    ck_assert_int_eq(fixture_ask(fixture, 20, MALLORY, &all, 1).kind, VERDICT_WAIT);
    for (pid_t pid = 30; pid < 33; pid++)
        fixture_get(fixture, pid, HONEST, some);
    /* Once only others block it, it keeps what it needs from those behind it. */
    fixture_gone(fixture, 10);
    fixture_gone(fixture, 32);
    fixture_sample(fixture, NULL, 0);
    fixture_turn(fixture);
    ck_assert_int_eq(fixture_ask(fixture, 33, HONEST, &some, 2).kind, VERDICT_WAIT);
}
END_TEST

/* What its user's processes use without a lease is its user's as well. */
START_TEST(a_waiter_that_processes_of_its_own_user_block_keeps_nothing_back) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(2, 80);
    static const struct fixture_row
        mine[] = { { .pid = 9, .uid = MALLORY, .used_gib = 1 },
                   { .pid = 9, .gpu = 1, .uid = MALLORY, .used_gib = 1 } },
        others[] = { { .pid = 9, .uid = 3001, .used_gib = 1 },
                     { .pid = 9, .gpu = 1, .uid = 3001, .used_gib = 1 } };
    struct request all = fixture_exclusive(1), most = fixture_grow(1, 70, 0);

    fixture_sample(fixture, mine, ELEMENTSOF(mine));
    ck_assert_int_eq(fixture_ask(fixture, 20, MALLORY, &all, 1).kind, VERDICT_WAIT);
    fixture_get(fixture, 30, HONEST, most);
    /* Theirs are no longer there, another's are: it is not its own user's fault that it waits. */
    fixture_sample(fixture, others, ELEMENTSOF(others));
    ck_assert_int_eq(fixture_ask(fixture, 31, HONEST, &most, 2).kind, VERDICT_WAIT);
    fixture_sample(fixture, mine, ELEMENTSOF(mine));
    fixture_turn(fixture);
    ck_assert(is_granted(fixture, 2));
}
END_TEST

/* A user's own small jobs do not pass its large one for ever. */
START_TEST(a_waiter_keeps_its_place_before_others_of_the_same_user) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(1, 80);
    struct request all = fixture_exclusive(1), some = fixture_fixed(1, 10);

    fixture_get(fixture, 10, HONEST, fixture_fixed(1, 10));
    ck_assert_int_eq(fixture_ask(fixture, 20, HONEST, &all, 1).kind, VERDICT_WAIT);
    ck_assert_int_eq(fixture_ask(fixture, 21, HONEST, &some, 2).kind, VERDICT_WAIT);
    ck_assert_int_eq(fixture_ask(fixture, 22, 3001, &some, 3).kind, VERDICT_GRANT);
    fixture_gone(fixture, 10);
    fixture_gone(fixture, 22);
    fixture_turn(fixture);
    ck_assert(is_granted(fixture, 1));
    ck_assert(!is_granted(fixture, 2));
}
END_TEST

/* The same of growth: one lease grows into the room of another of the same user. */
START_TEST(growth_that_its_own_user_blocks_keeps_nothing_back) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(1, 80);
    uint64_t lease = fixture_get(fixture, 10, MALLORY, fixture_grow(1, 1, 0));

    fixture_attach(fixture, 10, MALLORY, lease);
    fixture_get(fixture, 11, MALLORY, fixture_fixed(1, 1));
    ck_assert_int_eq(fixture_grow_by(fixture, 10, lease, 0, 80, true, 1).kind, VERDICT_WAIT);
    fixture_get(fixture, 30, HONEST, fixture_fixed(1, 70));
}
END_TEST

/* A waiter that becomes blocked by its own user gives up what it reserved, whatever charges that.
 */
START_TEST(a_reservation_ends_when_its_own_user_takes_the_room) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(1, 80);
    static const struct fixture_row rows[] = { { .pid = 10, .used_gib = 20 },
                                               { .pid = 11, .used_gib = 15 } };
    struct request large = fixture_fixed(1, 70), some = fixture_grow(1, 40, 0);
    uint64_t lease;

    fixture_get(fixture, 10, 3001, fixture_fixed(1, 20));
    lease = fixture_get(fixture, 11, MALLORY, fixture_grow(1, 1, 0));
    fixture_attach(fixture, 11, MALLORY, lease);
    ck_assert_int_eq(fixture_ask(fixture, 20, MALLORY, &large, 1).kind, VERDICT_WAIT);
    ck_assert_int_eq(fixture_ask(fixture, 30, HONEST, &some, 2).kind, VERDICT_WAIT);
    fixture_turn(fixture);
    ck_assert(!is_granted(fixture, 2));
    fixture_sample(fixture, rows, ELEMENTSOF(rows));
    fixture_turn(fixture);
    ck_assert(is_granted(fixture, 2));
}
END_TEST

START_TEST(an_honest_waiter_is_not_passed_for_the_reserve_time) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(1, 80);
    struct request all = fixture_exclusive(1), some = fixture_grow(1, 40, 0);
    uint64_t reserve = fixture->policy.reserve_usec;

    fixture_get(fixture, 10, 3001, fixture_fixed(1, 10));
    ck_assert_int_eq(fixture_ask(fixture, 20, HONEST, &all, 1).kind, VERDICT_WAIT);
    fixture_pass(fixture, reserve / 2);
    ck_assert_int_eq(fixture_ask(fixture, 30, 3002, &some, 2).kind, VERDICT_WAIT);
    fixture_pass(fixture, reserve / 2 - SECS);
    ck_assert(!is_granted(fixture, 2));
    /* The reservation expires; the wait does not. */
    ck_assert_uint_le(broker_deadline(fixture->broker), fixture->now.usec + SECS);
    fixture_pass(fixture, 2 * SECS);
    ck_assert(is_granted(fixture, 2));
    ck_assert_ptr_null(fixture_told(fixture, 1));
    /* And it comes again: what ends now is kept for it. */
    fixture_pass(fixture, reserve);
    some = fixture_grow(1, 20, 0);
    ck_assert_int_eq(fixture_ask(fixture, 31, 3003, &some, 3).kind, VERDICT_WAIT);
    fixture_gone(fixture, 30);
    fixture_gone(fixture, 10);
    fixture_turn(fixture);
    ck_assert(is_granted(fixture, 1));
    ck_assert(!is_granted(fixture, 3));
}
END_TEST

START_TEST(the_administrator_says_how_long_it_is) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(1, 80);
    struct request all = fixture_exclusive(1), some = fixture_grow(1, 40, 0);

    fixture_get(fixture, 10, 3001, fixture_fixed(1, 10));
    ck_assert_int_eq(fixture_ask(fixture, 20, MALLORY, &all, 1).kind, VERDICT_WAIT);
    ck_assert_int_eq(fixture_ask(fixture, 30, HONEST, &some, 2).kind, VERDICT_WAIT);
    fixture_pass(fixture, 60 * SECS);
    ck_assert(!is_granted(fixture, 2));
    fixture->policy.reserve_usec = 50 * SECS;
    ck_assert_int_eq(broker_policy_set(fixture->broker, &fixture->policy, fixture->now), 0);
    fixture_turn(fixture);
    ck_assert(is_granted(fixture, 2));
}
END_TEST

SUITE("reservation", a_waiter_that_its_own_user_blocks_keeps_nothing_back,
      a_waiter_that_its_own_user_blocks_on_one_device_keeps_nothing_on_others,
      a_waiter_that_processes_of_its_own_user_block_keeps_nothing_back,
      a_waiter_keeps_its_place_before_others_of_the_same_user,
      growth_that_its_own_user_blocks_keeps_nothing_back,
      a_reservation_ends_when_its_own_user_takes_the_room,
      an_honest_waiter_is_not_passed_for_the_reserve_time, the_administrator_says_how_long_it_is)
