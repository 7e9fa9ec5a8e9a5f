/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits that could never end: prevented among leases that declare a maximum, found among the
 * others.
 */
#include <string.h>

#include "tests/support/daemon/broker/broker_fixture.h"
#include "tests/support/suite.h"

static struct request on(struct request request, const char **name) {
    request.n_gpus = 0;
    request.devices = name;
    request.n_devices = 1;
    return request;
}

/* A growing lease on one device, of which its process holds this much. */
static uint64_t holding(struct broker_fixture *fixture, pid_t pid, const char **name,
                        uint64_t max_gib, uint64_t gib) {
    unsigned gpu = (unsigned)(**name - '0');
    uint64_t lease =
        fixture_get(fixture, pid, (uid_t)(1000 + pid), on(fixture_grow(0, 0, max_gib), name));

    fixture_attach(fixture, pid, (uid_t)(1000 + pid), lease);
    ck_assert_int_eq(fixture_grow_by(fixture, pid, lease, gpu, gib, false, 0).kind, VERDICT_GRANT);
    return lease;
}

START_TEST(growth_that_would_end_in_a_deadlock_waits_though_it_fits) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(1, 40);
    const char *zero = "0";
    uint64_t a = holding(fixture, 10, &zero, 30, 15), b = holding(fixture, 11, &zero, 30, 10);

    /* 15 are free. With 10 more, b has 20 and needs 10, a has 15 and needs 15, 5 are left. */
    ck_assert_int_eq(fixture_grow_by(fixture, 11, b, 0, 10, true, 1).kind, VERDICT_WAIT);
    ck_assert_uint_eq(fixture_left(fixture, 0), 15);
    /* a can have all: it comes to an end. */
    ck_assert_int_eq(fixture_grow_by(fixture, 10, a, 0, 10, false, 2).refusal, REFUSAL_NO_MEMORY);
    fixture_gone(fixture, 10);
    fixture_sample(fixture, NULL, 0);
    ck_assert_int_eq(fixture_told(fixture, 1)->kind, VERDICT_GRANT);
}
END_TEST

START_TEST(admission_keeps_the_state_safe_too) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(1, 40);
    const char *zero = "0";
    struct request request = on(fixture_grow(0, 20, 30), &zero);

    holding(fixture, 10, &zero, 40, 15);
    /* 25 are free; with 20 gone neither it nor the other could have its maximum. */
    ck_assert_int_eq(fixture_ask(fixture, 11, 1001, &request, 1).kind, VERDICT_WAIT);
    /* 20 are kept for it; with 2 of the other 5 every lease can still reach its maximum. */
    fixture_get(fixture, 12, 1002, on(fixture_grow(0, 2, 20), &zero));
}
END_TEST

START_TEST(the_bankers_rule_holds_across_devices) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(2, 40);
    struct request request = fixture_grow(2, 0, 30);
    uint64_t a = fixture_get(fixture, 10, 1000, request),
             b = fixture_get(fixture, 11, 1001, request);

    fixture_attach(fixture, 10, 1000, a);
    fixture_attach(fixture, 11, 1001, b);
    ck_assert_int_eq(fixture_grow_by(fixture, 10, a, 0, 25, false, 0).kind, VERDICT_GRANT);
    /* b would have what a needs on device 1, and a has what b needs on device 0. */
    ck_assert_int_eq(fixture_grow_by(fixture, 11, b, 1, 25, false, 0).refusal, REFUSAL_NO_MEMORY);
    ck_assert_int_eq(fixture_grow_by(fixture, 11, b, 1, 9, false, 0).kind, VERDICT_GRANT);
    ck_assert_int_eq(fixture_grow_by(fixture, 10, a, 1, 30, false, 0).kind, VERDICT_GRANT);
}
END_TEST

START_TEST(two_growing_leases_in_a_deadlock_lose_the_youngest_wait) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(1, 40);
    const char *zero = "0";
    uint64_t a = holding(fixture, 10, &zero, 0, 15), b = holding(fixture, 11, &zero, 0, 15);
    struct verdict verdict;

    ck_assert_int_eq(fixture_grow_by(fixture, 10, a, 0, 20, true, 1).kind, VERDICT_WAIT);
    verdict = fixture_grow_by(fixture, 11, b, 0, 20, true, 2);
    ck_assert_int_eq(verdict.kind, VERDICT_DENY);
    ck_assert_int_eq(verdict.refusal, REFUSAL_DEADLOCK);
    ck_assert_uint_eq(verdict.n_holders, 2);
    ck_assert_ptr_nonnull(strstr(verdict.holders[0], "process 10"));
    ck_assert_str_eq(fixture->event, "deadlock");
    ck_assert_ptr_null(fixture_told(fixture, 1));
    fixture_shrink_by(fixture, 11, b, 0, 15);
    fixture_turn(fixture);
    ck_assert_int_eq(fixture_told(fixture, 1)->kind, VERDICT_GRANT);
}
END_TEST

START_TEST(the_victim_is_of_the_lowest_priority) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(1, 40);
    struct request low = fixture_grow(1, 0, 0);
    uint64_t a, b;

    low.has_priority = true;
    low.priority = -3;
    a = fixture_get(fixture, 10, 1000, low);
    b = fixture_get(fixture, 11, 1001, fixture_grow(1, 0, 0));
    fixture_attach(fixture, 10, 1000, a);
    fixture_attach(fixture, 11, 1001, b);
    fixture_grow_by(fixture, 10, a, 0, 15, false, 0);
    fixture_grow_by(fixture, 11, b, 0, 15, false, 0);
    ck_assert_int_eq(fixture_grow_by(fixture, 10, a, 0, 20, true, 1).kind, VERDICT_WAIT);
    ck_assert_int_eq(fixture_grow_by(fixture, 11, b, 0, 20, true, 2).kind, VERDICT_WAIT);
    ck_assert_int_eq(fixture_told(fixture, 1)->refusal, REFUSAL_DEADLOCK);
}
END_TEST

START_TEST(a_deadlock_across_devices_and_leases_is_found) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(3, 40);
    const char *names[] = { "0", "1", "2" };
    struct verdict verdict;

    /* Each has one device and wants the next. */
    for (unsigned i = 0; i < 3; i++)
        fixture_get(fixture, (pid_t)(10 + i), 1000 + i, on(fixture_exclusive(0), &names[i]));
    for (unsigned i = 0; i < 2; i++) {
        struct request request = on(fixture_exclusive(0), &names[i + 1]);

        ck_assert_int_eq(fixture_ask(fixture, (pid_t)(10 + i), 1000 + i, &request, i).kind,
                         VERDICT_WAIT);
    }
    verdict = fixture_ask(fixture, 12, 1002, &(struct request){ 0 }, 7);
    ck_assert_int_eq(verdict.kind, VERDICT_DENY);
    {
        struct request request = on(fixture_exclusive(0), &names[0]);

        verdict = fixture_ask(fixture, 12, 1002, &request, 8);
    }
    ck_assert_int_eq(verdict.refusal, REFUSAL_DEADLOCK);
    ck_assert_uint_eq(verdict.n_holders, 3);
    ck_assert_uint_eq(broker_n_waiters(fixture->broker), 2);
}
END_TEST

START_TEST(holding_one_lease_and_waiting_for_another_is_just_waiting) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(2, 40);
    const char *zero = "0", *one = "1";
    struct request first = on(fixture_exclusive(0), &zero), second = on(fixture_exclusive(0), &one);
    uint64_t lease = fixture_get(fixture, 10, 1000, first);

    fixture_get(fixture, 11, 1001, second);
    /* For a process that goes on; and for itself. */
    ck_assert_int_eq(fixture_ask(fixture, 10, 1000, &second, 1).kind, VERDICT_WAIT);
    ck_assert_int_eq(fixture_ask(fixture, 10, 1000, &first, 2).kind, VERDICT_WAIT);
    fixture_turn(fixture);
    ck_assert_uint_eq(fixture->n_told, 0);
    fixture_release(fixture, 1000, lease);
    ck_assert_int_eq(fixture_told(fixture, 2)->kind, VERDICT_GRANT);
    fixture_gone(fixture, 11);
    ck_assert_int_eq(fixture_told(fixture, 1)->kind, VERDICT_GRANT);
}
END_TEST

START_TEST(a_waiter_is_no_deadlock_while_one_process_of_the_other_job_goes_on) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(1, 40);
    const char *zero = "0";
    uint64_t a = holding(fixture, 10, &zero, 0, 15), b = holding(fixture, 11, &zero, 0, 10);

    fixture_attach(fixture, 12, 1011, b);
    fixture_grow_by(fixture, 12, b, 0, 5, false, 0);
    ck_assert_int_eq(fixture_grow_by(fixture, 10, a, 0, 20, true, 1).kind, VERDICT_WAIT);
    ck_assert_int_eq(fixture_grow_by(fixture, 11, b, 0, 20, true, 2).kind, VERDICT_WAIT);
    /* Now the last one waits as well. */
    ck_assert_int_eq(fixture_grow_by(fixture, 12, b, 0, 20, true, 3).refusal, REFUSAL_DEADLOCK);
}
END_TEST

START_TEST(a_quota_is_no_deadlock) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(1, 40);
    const char *zero = "0";
    uint64_t a, b;

    fixture->policy.defaults.has = POLICY_HAS(quota_bytes);
    fixture->policy.defaults.quota_bytes = 18 * GIB;
    ck_assert_int_eq(broker_policy_set(fixture->broker, &fixture->policy, fixture->now), 0);
    a = holding(fixture, 10, &zero, 0, 15);
    b = holding(fixture, 11, &zero, 0, 15);
    fixture->policy.defaults.quota_bytes = 16 * GIB;
    ck_assert_int_eq(broker_policy_set(fixture->broker, &fixture->policy, fixture->now), 0);
    ck_assert_int_eq(fixture_grow_by(fixture, 10, a, 0, 2, true, 1).kind, VERDICT_WAIT);
    ck_assert_int_eq(fixture_grow_by(fixture, 11, b, 0, 2, true, 2).kind, VERDICT_WAIT);
}
END_TEST

SUITE("deadlock", growth_that_would_end_in_a_deadlock_waits_though_it_fits,
      admission_keeps_the_state_safe_too, the_bankers_rule_holds_across_devices,
      two_growing_leases_in_a_deadlock_lose_the_youngest_wait, the_victim_is_of_the_lowest_priority,
      a_deadlock_across_devices_and_leases_is_found,
      holding_one_lease_and_waiting_for_another_is_just_waiting,
      a_waiter_is_no_deadlock_while_one_process_of_the_other_job_goes_on, a_quota_is_no_deadlock)
