/* SPDX-License-Identifier: Apache-2.0 */
/* The queue: which requests wait, in which order, and which may pass. */
#include <string.h>

#include "tests/support/daemon/broker/broker_fixture.h"
#include "tests/support/suite.h"

static struct request on(struct request request, const char **name) {
    request.n_gpus = 0;
    request.devices = name;
    request.n_devices = 1;
    return request;
}

static struct request with_priority(struct request request, int32_t priority) {
    request.has_priority = true;
    request.priority = priority;
    return request;
}

static bool waits(struct broker_fixture *fixture, pid_t pid, uid_t uid, struct request request,
                  uint64_t tag) {
    return fixture_ask(fixture, pid, uid, &request, tag).kind == VERDICT_WAIT;
}

static bool is_granted(const struct broker_fixture *fixture, uint64_t tag) {
    const struct verdict *verdict = fixture_told(fixture, tag);

    return verdict && verdict->kind == VERDICT_GRANT;
}

static void set_rules(struct broker_fixture *fixture, struct policy_rules rules) {
    fixture->policy.defaults = rules;
    ck_assert_int_eq(broker_policy_set(fixture->broker, &fixture->policy, fixture->now), 0);
    fixture_check(fixture);
}

START_TEST(the_first_come_is_the_first_served) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(1, 40);
    uint64_t lease = fixture_get(fixture, 10, 1000, fixture_fixed(1, 40));

    ck_assert(waits(fixture, 11, 1001, fixture_fixed(1, 30), 1));
    fixture->now.usec += SECS;
    ck_assert(waits(fixture, 12, 1002, fixture_fixed(1, 30), 2));
    fixture_release(fixture, 1000, lease);
    ck_assert(is_granted(fixture, 1));
    ck_assert_ptr_null(fixture_told(fixture, 2));
    ck_assert_uint_eq(fixture->place, 1);
    fixture_release(fixture, 1001, fixture_told(fixture, 1)->lease);
    ck_assert(is_granted(fixture, 2));
}
END_TEST

START_TEST(higher_priority_goes_first_within_what_is_allowed) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(1, 40);
    struct request request = with_priority(fixture_fixed(1, 30), 6);
    uint64_t lease;

    set_rules(fixture, (struct policy_rules){ .has = POLICY_HAS(priority_max), .priority_max = 5 });
    lease = fixture_get(fixture, 10, 1000, fixture_fixed(1, 40));
    ck_assert(waits(fixture, 11, 1001, fixture_fixed(1, 30), 1));
    ck_assert(waits(fixture, 12, 1002, with_priority(fixture_fixed(1, 30), 5), 2));
    ck_assert_int_eq(fixture_ask(fixture, 13, 1003, &request, 3).refusal, REFUSAL_DENIED);
    fixture_release(fixture, 1000, lease);
    ck_assert(is_granted(fixture, 2));
    ck_assert_ptr_null(fixture_told(fixture, 1));
}
END_TEST

START_TEST(a_waiter_that_waited_long_enough_is_not_passed) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(1, 40);
    uint64_t lease;

    set_rules(fixture, (struct policy_rules){ .has = POLICY_HAS(priority_max), .priority_max = 5 });
    lease = fixture_get(fixture, 10, 1000, fixture_fixed(1, 40));
    ck_assert(waits(fixture, 11, 1001, fixture_fixed(1, 30), 1));
    fixture_pass(fixture, 5 * fixture->policy.age_usec - SECS);
    ck_assert(waits(fixture, 12, 1002, with_priority(fixture_fixed(1, 30), 5), 2));
    fixture_pass(fixture, 2 * SECS);
    ck_assert(waits(fixture, 13, 1003, with_priority(fixture_fixed(1, 30), 5), 3));
    fixture_release(fixture, 1000, lease);
    ck_assert(is_granted(fixture, 2));
    fixture_release(fixture, 1002, fixture_told(fixture, 2)->lease);
    ck_assert(is_granted(fixture, 1));
    ck_assert_ptr_null(fixture_told(fixture, 3));
}
END_TEST

START_TEST(a_smaller_request_does_not_pass_where_it_could_delay) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(1, 40);
    uint64_t lease = fixture_get(fixture, 10, 1000, fixture_fixed(1, 15));

    /* 10 are free now, 25 when one lease ends: the first in line starts with 5 to spare. */
    fixture_get(fixture, 11, 1001, fixture_fixed(1, 15));
    ck_assert(waits(fixture, 12, 1002, fixture_fixed(1, 20), 1));
    ck_assert(waits(fixture, 13, 1003, fixture_fixed(1, 6), 2));
    ck_assert(waits(fixture, 14, 1004, fixture_grow(1, 1, 0), 3));
    ck_assert_uint_eq(fixture_left(fixture, 0), 10);
    fixture_release(fixture, 1000, lease);
    ck_assert(is_granted(fixture, 1));
    ck_assert_uint_eq(fixture_left(fixture, 0), 5);
}
END_TEST

START_TEST(a_smaller_request_passes_where_the_first_starts_no_later_for_it) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(1, 40);
    uint64_t a = fixture_get(fixture, 10, 1000, fixture_share(1, 6000));

    ck_assert(waits(fixture, 11, 1001, fixture_share(1, 8000), 1));
    fixture_get(fixture, 12, 1002, fixture_share(1, 2000));
    ck_assert(waits(fixture, 13, 1003, fixture_fixed(1, 1), 2));
    fixture_release(fixture, 1000, a);
    ck_assert(is_granted(fixture, 1));
    ck_assert_ptr_null(fixture_told(fixture, 2));
}
END_TEST

START_TEST(no_waiter_passes_where_a_lease_may_give_back_in_parts) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(1, 40);
    uint64_t lease = fixture_get(fixture, 10, 1000, fixture_grow(1, 4, 24));

    fixture_attach(fixture, 10, 1000, lease);
    fixture_grow_by(fixture, 10, lease, 0, 24, false, 0);
    ck_assert(waits(fixture, 11, 1001, fixture_fixed(1, 32), 1));
    ck_assert(waits(fixture, 12, 1002, fixture_fixed(1, 8), 2));
    fixture_shrink_by(fixture, 10, lease, 0, 16);
    fixture_turn(fixture);
    ck_assert(is_granted(fixture, 1));
    ck_assert_ptr_null(fixture_told(fixture, 2));
}
END_TEST

START_TEST(growth_that_needs_less_since_a_sibling_gave_back_is_looked_at) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(1, 40);
    uint64_t a = fixture_get(fixture, 10, 1000, fixture_grow(1, 10, 40));

    fixture_get(fixture, 11, 1001, fixture_fixed(1, 29));
    fixture_attach(fixture, 10, 1000, a);
    fixture_attach(fixture, 12, 1000, a);
    ck_assert_int_eq(fixture_grow_by(fixture, 12, a, 0, 8, true, 1).kind, VERDICT_GRANT);
    ck_assert_int_eq(fixture_grow_by(fixture, 10, a, 0, 6, true, 2).kind, VERDICT_WAIT);
    /* 3 beyond the guarantee with 1 free, now just that one; the lease is charged as before. */
    fixture_shrink_by(fixture, 12, a, 0, 3);
    fixture_turn(fixture);
    ck_assert(is_granted(fixture, 2));
}
END_TEST

START_TEST(a_smaller_request_passes_on_a_device_without_waiters) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(2, 40);
    const char *zero = "0", *one = "1";

    fixture_get(fixture, 10, 1000, on(fixture_fixed(0, 30), &zero));
    ck_assert(waits(fixture, 11, 1001, on(fixture_fixed(0, 20), &zero), 1));
    fixture_get(fixture, 12, 1002, on(fixture_fixed(0, 30), &one));
}
END_TEST

START_TEST(a_smaller_request_passes_with_what_is_left_beyond_the_first) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(2, 40);
    const char *zero = "0", *one = "1";
    uint64_t lease = fixture_get(fixture, 10, 1000, on(fixture_fixed(0, 30), &one));

    /* It needs 20 on both: 20 of the 40 on device 0 are kept for it. */
    ck_assert(waits(fixture, 11, 1001, fixture_fixed(2, 20), 1));
    fixture_get(fixture, 13, 1003, on(fixture_fixed(0, 19), &zero));
    ck_assert(waits(fixture, 12, 1002, on(fixture_fixed(0, 2), &zero), 2));
    fixture_release(fixture, 1000, lease);
    ck_assert(is_granted(fixture, 1));
}
END_TEST

START_TEST(growth_goes_before_new_leases) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(1, 40);
    uint64_t a = fixture_get(fixture, 10, 1000, fixture_grow(1, 10, 0));
    uint64_t b = fixture_get(fixture, 11, 1001, fixture_fixed(1, 20));

    fixture_attach(fixture, 10, 1000, a);
    ck_assert(waits(fixture, 12, 1002, fixture_fixed(1, 15), 1));
    ck_assert_int_eq(fixture_grow_by(fixture, 10, a, 0, 30, true, 2).kind, VERDICT_WAIT);
    ck_assert_uint_eq(broker_n_waiters(fixture->broker), 2);
    fixture_release(fixture, 1001, b);
    ck_assert(is_granted(fixture, 2));
    ck_assert_ptr_null(fixture_told(fixture, 1));
    fixture_shrink_by(fixture, 10, a, 0, 30);
    fixture_turn(fixture);
    ck_assert(is_granted(fixture, 1));
}
END_TEST

START_TEST(growth_that_frees_up_in_the_guarantee_is_granted_though_the_device_is_full) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(1, 40);
    uint64_t a = fixture_get(fixture, 10, 1000, fixture_grow(1, 10, 40));

    fixture_get(fixture, 11, 1001, fixture_fixed(1, 30));
    fixture_attach(fixture, 10, 1000, a);
    fixture_attach(fixture, 12, 1000, a);
    ck_assert_int_eq(fixture_grow_by(fixture, 12, a, 0, 8, true, 1).kind, VERDICT_GRANT);
    ck_assert_int_eq(fixture_grow_by(fixture, 10, a, 0, 4, true, 2).kind, VERDICT_WAIT);
    fixture_shrink_by(fixture, 12, a, 0, 2);
    ck_assert(is_granted(fixture, 2));
}
END_TEST

START_TEST(waits_time_out_and_can_be_cancelled) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(1, 40);
    struct request request = fixture_fixed(1, 40);
    struct verdict verdict;
    uint64_t lease = fixture_get(fixture, 10, 1000, fixture_grow(1, 1, 0));

    fixture_attach(fixture, 10, 1000, lease);
    request.timeout_usec = 10 * SECS;
    ck_assert(waits(fixture, 11, 1001, request, 1));
    verdict = fixture_ask(fixture, 12, 1002, &request, 2);
    ck_assert_uint_eq(verdict.place, 2);
    ck_assert_int_eq(broker_cancel(fixture->broker, verdict.waiter, fixture->now), 0);
    ck_assert_int_lt(broker_cancel(fixture->broker, verdict.waiter, fixture->now), 0);
    ck_assert_str_eq(fixture->event, "cancelled");
    fixture_turn(fixture);
    ck_assert_uint_eq(broker_deadline(fixture->broker), fixture->now.usec + 10 * SECS);
    fixture_pass(fixture, 10 * SECS);
    ck_assert_int_eq(fixture_told(fixture, 1)->refusal, REFUSAL_TIMEOUT);
    ck_assert_uint_eq(fixture_told(fixture, 1)->place, 1);
    ck_assert_ptr_null(fixture_told(fixture, 2));

    /* Growth never waits for ever, whatever it asks. */
    fixture_get(fixture, 13, 1003, fixture_fixed(1, 39));
    ck_assert_int_eq(fixture_grow_by(fixture, 10, lease, 0, 2, true, 3).kind, VERDICT_WAIT);
    fixture_pass(fixture, 60 * SECS);
    ck_assert_int_eq(fixture_told(fixture, 3)->refusal, REFUSAL_TIMEOUT);
}
END_TEST

START_TEST(a_quota_stops_only_its_user) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(1, 40);
    struct request request = fixture_fixed(1, 16);
    uint64_t lease;

    set_rules(fixture,
              (struct policy_rules){ .has = POLICY_HAS(quota_bytes) | POLICY_HAS(max_leases),
                                     .quota_bytes = 15 * GIB,
                                     .max_leases = 2 });
    ck_assert_int_eq(fixture_ask(fixture, 10, 1000, &request, 1).refusal, REFUSAL_DENIED);
    lease = fixture_get(fixture, 10, 1000, fixture_fixed(1, 10));
    ck_assert(waits(fixture, 10, 1000, fixture_fixed(1, 6), 2));
    fixture_get(fixture, 11, 1001, fixture_fixed(1, 10));
    fixture_release(fixture, 1000, lease);
    ck_assert(is_granted(fixture, 2));

    fixture_get(fixture, 10, 1000, fixture_fixed(1, 1));
    ck_assert(waits(fixture, 10, 1000, fixture_fixed(1, 1), 3));
    fixture_gone(fixture, 10);
    ck_assert_uint_eq(broker_n_waiters(fixture->broker), 0);
}
END_TEST

START_TEST(a_quota_of_devices_keeps_to_those_it_has) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(3, 40);
    struct request two = fixture_fixed(2, 10);
    uint64_t first, second;

    set_rules(fixture, (struct policy_rules){ .has = POLICY_HAS(quota_devices) | POLICY_HAS(choose),
                                              .quota_devices = 1,
                                              .choose = CHOICE_SPREAD });
    ck_assert_int_eq(fixture_ask(fixture, 10, 1000, &two, 1).refusal, REFUSAL_DENIED);
    first = fixture_get(fixture, 10, 1000, fixture_fixed(1, 10));
    second = fixture_get(fixture, 10, 1000, fixture_fixed(1, 10));
    ck_assert_ptr_eq(broker_lease(fixture->broker, first)->shares[0].book,
                     broker_lease(fixture->broker, second)->shares[0].book);
    ck_assert(waits(fixture, 10, 1000, fixture_fixed(1, 30), 2));
    fixture_release(fixture, 1000, first);
    ck_assert(is_granted(fixture, 2));
}
END_TEST

START_TEST(a_quota_of_devices_lets_in_as_many_new_ones_as_it_leaves) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(4, 40);
    const struct lease *first, *both;

    set_rules(fixture, (struct policy_rules){ .has = POLICY_HAS(quota_devices) | POLICY_HAS(choose),
                                              .quota_devices = 2,
                                              .choose = CHOICE_SPREAD });
    first = broker_lease(fixture->broker, fixture_get(fixture, 10, 1000, fixture_fixed(1, 10)));
    both = broker_lease(fixture->broker, fixture_get(fixture, 10, 1000, fixture_fixed(2, 10)));
    ck_assert_uint_eq(both->n_shares, 2);
    ck_assert(both->shares[0].book == first->shares[0].book ||
              both->shares[1].book == first->shares[0].book);
    /* Two of the two that it has now. */
    fixture_get(fixture, 10, 1000, fixture_fixed(2, 10));
    ck_assert_uint_eq(fixture_left(fixture, 2), 40);
    ck_assert_uint_eq(fixture_left(fixture, 3), 40);
}
END_TEST

START_TEST(a_quota_of_a_share_counts_on_each_device) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(1, 40);
    uint64_t lease;

    set_rules(fixture,
              (struct policy_rules){ .has = POLICY_HAS(quota_permyriad), .quota_permyriad = 5000 });
    lease = fixture_get(fixture, 10, 1000, fixture_grow(1, 0, 0));
    ck_assert_uint_eq(broker_lease(fixture->broker, lease)->shares[0].limit_bytes, 20 * GIB);
    fixture_attach(fixture, 10, 1000, lease);
    fixture_grow_by(fixture, 10, lease, 0, 15, true, 0);
    ck_assert(waits(fixture, 10, 1000, fixture_fixed(1, 10), 1));
    fixture_shrink_by(fixture, 10, lease, 0, 10);
    fixture_turn(fixture);
    ck_assert(is_granted(fixture, 1));
    ck_assert_int_eq(fixture_grow_by(fixture, 10, lease, 0, 8, true, 2).kind, VERDICT_WAIT);
    fixture_get(fixture, 11, 1001, fixture_fixed(1, 20));
}
END_TEST

/* Several rules at once: the reason is of the one that failed. */
START_TEST(the_quota_that_stops_it_is_named) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(2, 40);
    struct request request = fixture_fixed(1, 10);
    uint64_t lease;

    set_rules(fixture,
              (struct policy_rules){ .has = POLICY_HAS(quota_bytes) | POLICY_HAS(quota_permyriad) |
                                            POLICY_HAS(quota_devices),
                                     .quota_bytes = 60 * GIB,
                                     .quota_permyriad = 5000,
                                     .quota_devices = 1 });
    request.devices = (const char *[]){ "0" };
    request.n_devices = 1;
    lease = fixture_get(fixture, 10, 1000, fixture_grow(1, 15, 0));
    ck_assert_ptr_nonnull(strstr(fixture_ask(fixture, 10, 1000, &request, 1).reason, "50%"));
    fixture_attach(fixture, 10, 1000, lease);
    ck_assert_int_eq(fixture_grow_by(fixture, 10, lease, 0, 15, false, 0).kind, VERDICT_GRANT);
    request.devices = (const char *[]){ "1" };
    ck_assert_ptr_nonnull(
        strstr(fixture_ask(fixture, 10, 1000, &request, 2).reason, "devices of at"));

    set_rules(fixture,
              (struct policy_rules){ .has = POLICY_HAS(quota_bytes) | POLICY_HAS(quota_permyriad),
                                     .quota_bytes = 20 * GIB,
                                     .quota_permyriad = 5000 });
    ck_assert_ptr_nonnull(
        strstr(fixture_ask(fixture, 11, 1000, &request, 3).reason, "quota of 20"));
}
END_TEST

START_TEST(used_up_gib_hours_deny_leases_and_growth) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(1, 40);
    struct request request = fixture_fixed(1, 1);
    uint64_t lease;

    set_rules(fixture, (struct policy_rules){ .has = POLICY_HAS(quota_byte_seconds),
                                              .quota_byte_seconds = 1000 });
    lease = fixture_get(fixture, 10, 1000, fixture_grow(1, 2, 0));
    fixture_attach(fixture, 10, 1000, lease);
    fixture->spent_byte_seconds = 1000;
    fixture_turn(fixture);
    ck_assert_int_eq(fixture_ask(fixture, 10, 1000, &request, 1).refusal, REFUSAL_DENIED);
    ck_assert_int_eq(fixture_grow_by(fixture, 10, lease, 0, 2, true, 0).kind, VERDICT_GRANT);
    ck_assert_int_eq(fixture_grow_by(fixture, 10, lease, 0, 1, true, 0).refusal, REFUSAL_DENIED);
}
END_TEST

START_TEST(one_user_has_so_many_requests_in_the_queue_and_no_more) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(1, 40);
    struct request request = fixture_fixed(1, 40);

    set_rules(fixture, (struct policy_rules){ .has = POLICY_HAS(max_waiting), .max_waiting = 3 });
    fixture_get(fixture, 10, 1000, request);
    for (uint64_t i = 0; i < 3; i++)
        ck_assert(waits(fixture, 11, 1001, request, i));
    ck_assert_int_eq(fixture_ask(fixture, 11, 1001, &request, 9).refusal, REFUSAL_BUSY);
    ck_assert(waits(fixture, 12, 1002, request, 10));
}
END_TEST

START_TEST(hours_keep_a_device_for_some) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(2, 40);
    struct policy_device *device = calloc(1, sizeof(*device));
    const char *zero = "0";

    device->devices.names = calloc(1, sizeof(char *));
    device->devices.names[0] = strdup("0");
    device->devices.n_names = 1;
    device->hours = calloc(1, sizeof(*device->hours));
    device->n_hours = 1;
    device->hours[0] = (struct policy_hours){ .from_minute = 60, .to_minute = 120, .n_uids = 1 };
    device->hours[0].uids = calloc(1, sizeof(uid_t));
    device->hours[0].uids[0] = 1000;
    fixture->policy.devices = device;
    fixture->policy.n_devices = 1;
    fixture->now.week_minute = 60;

    ck_assert(waits(fixture, 11, 1001, on(fixture_fixed(0, 10), &zero), 1));
    ck_assert_str_ne(fixture->reason, "x");
    /* It keeps nothing back from the users that the device is kept for. */
    fixture_get(fixture, 10, 1000, on(fixture_fixed(0, 20), &zero));
    /* And anywhere else it is served. */
    fixture_get(fixture, 11, 1001, fixture_fixed(1, 10));
    ck_assert_uint_eq(fixture_left(fixture, 1), 30);
    /* One that may use either competes for the other one meanwhile. */
    fixture_get(fixture, 12, 1002, fixture_fixed(1, 30));
    ck_assert(waits(fixture, 13, 1003, fixture_fixed(1, 5), 2));
    ck_assert_uint_lt(broker_deadline(fixture->broker), fixture->now.usec + 60 * SECS);
    fixture->now.week_minute = 120;
    fixture_pass(fixture, 3600 * SECS);
    ck_assert(is_granted(fixture, 1));
    ck_assert(is_granted(fixture, 2));
}
END_TEST

START_TEST(an_idle_lease_is_told_then_lowered_then_ended) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(1, 40);
    struct fixture_row idle = { 10, 0, 2, false, NULL }, busy = { 10, 0, 2, true, NULL };
    uint64_t lease;

    set_rules(fixture,
              (struct policy_rules){ .has = POLICY_HAS(idle_tell_usec) |
                                            POLICY_HAS(idle_drop_usec) | POLICY_HAS(idle_end_usec),
                                     .idle_tell_usec = 60 * SECS,
                                     .idle_drop_usec = 120 * SECS,
                                     .idle_end_usec = 180 * SECS });
    lease = fixture_get(fixture, 10, 1000, fixture_grow(1, 1, 0));
    fixture_attach(fixture, 10, 1000, lease);
    fixture_grow_by(fixture, 10, lease, 0, 2, false, 0);
    for (unsigned i = 0; i < 70; i++) {
        fixture_sample(fixture, &idle, 1);
        fixture->now.usec += SECS;
    }
    ck_assert_uint_eq(fixture->n_notices, 1);
    ck_assert_int_eq(fixture->notice, NOTICE_IDLE);
    fixture_sample(fixture, &busy, 1);
    ck_assert_uint_eq(broker_lease(fixture->broker, lease)->idle_step, 0);
    for (unsigned i = 0; i < 130; i++) {
        fixture_sample(fixture, &idle, 1);
        fixture->now.usec += SECS;
    }
    ck_assert_uint_eq(broker_lease(fixture->broker, lease)->idle_step, 2);
    ck_assert_int_eq(lease_priority(broker_lease(fixture->broker, lease), &fixture->policy), -10);
    fixture->now.usec += 60 * SECS;
    fixture_sample(fixture, &idle, 1);
    ck_assert(broker_lease(fixture->broker, lease)->is_ending);
    ck_assert_int_eq(fixture->notice, NOTICE_ENDING);
    fixture_pass(fixture, fixture->policy.ending_usec);
    ck_assert_uint_eq(fixture->n_evicted, 1);
}
END_TEST

START_TEST(a_lease_that_never_takes_what_is_kept_for_it_is_idle_too) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(1, 40);
    uint64_t lease;

    set_rules(fixture, (struct policy_rules){ .has = POLICY_HAS(idle_end_usec),
                                              .idle_end_usec = 60 * SECS });
    lease = fixture_get(fixture, 10, 1000, fixture_exclusive(1));
    ck_assert(waits(fixture, 11, 1001, fixture_fixed(1, 1), 1));
    fixture_sample(fixture, NULL, 0);
    fixture_pass(fixture, 59 * SECS);
    fixture_sample(fixture, NULL, 0);
    ck_assert(!broker_lease(fixture->broker, lease)->is_ending);
    fixture_pass(fixture, SECS);
    fixture_sample(fixture, NULL, 0);
    ck_assert(broker_lease(fixture->broker, lease)->is_ending);
    fixture_pass(fixture, fixture->policy.ending_usec);
    ck_assert_uint_eq(fixture->n_evicted, 1);
    fixture_gone(fixture, 10);
    fixture_turn(fixture);
    ck_assert(is_granted(fixture, 1));
}
END_TEST

START_TEST(a_reload_judges_the_queue_anew_and_leaves_leases_alone) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(1, 40);
    uint64_t lease = fixture_get(fixture, 10, 1000, fixture_fixed(1, 30));

    ck_assert(waits(fixture, 11, 1001, fixture_fixed(1, 30), 1));
    ck_assert(waits(fixture, 12, 1002, fixture_fixed(1, 15), 2));
    set_rules(fixture,
              (struct policy_rules){ .has = POLICY_HAS(quota_bytes), .quota_bytes = 20 * GIB });
    ck_assert_int_eq(fixture_told(fixture, 1)->refusal, REFUSAL_DENIED);
    ck_assert_ptr_null(fixture_told(fixture, 2));
    ck_assert_ptr_nonnull(broker_lease(fixture->broker, lease));
    fixture_release(fixture, 1000, lease);
    ck_assert(is_granted(fixture, 2));
}
END_TEST

START_TEST(a_reload_may_change_what_a_step_of_priority_is_worth) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(1, 40);
    uint64_t lease;

    set_rules(fixture, (struct policy_rules){ .has = POLICY_HAS(priority_max), .priority_max = 5 });
    lease = fixture_get(fixture, 10, 1000, fixture_fixed(1, 40));
    ck_assert(waits(fixture, 11, 1001, fixture_fixed(1, 30), 1));
    fixture->now.usec += 60 * SECS;
    ck_assert(waits(fixture, 12, 1002, with_priority(fixture_fixed(1, 30), 5), 2));
    fixture->policy.age_usec = SECS;
    ck_assert_int_eq(broker_policy_set(fixture->broker, &fixture->policy, fixture->now), 0);
    fixture_release(fixture, 1000, lease);
    ck_assert(is_granted(fixture, 1));
    ck_assert_ptr_null(fixture_told(fixture, 2));
}
END_TEST

START_TEST(a_raised_reserve_overcommits_and_grants_nothing) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(1, 40);
    struct policy_device *device = calloc(1, sizeof(*device));
    struct gpuid gpu = fixture_gpu(0);

    fixture_get(fixture, 10, 1000, fixture_fixed(1, 38));
    device->devices.all = true;
    device->has_reserve = true;
    device->reserve = (struct units_amount){ .bytes = 4 * GIB };
    fixture->policy.devices = device;
    fixture->policy.n_devices = 1;
    ck_assert_int_eq(broker_policy_set(fixture->broker, &fixture->policy, fixture->now), 0);
    fixture_turn(fixture);
    ck_assert_uint_eq(books_overcommitted_bytes(broker_book(fixture->broker, &gpu)), 2 * GIB);
    ck_assert(waits(fixture, 11, 1001, fixture_fixed(1, 1), 1));
}
END_TEST

START_TEST(places_are_told_as_they_change) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(1, 40);
    uint64_t lease = fixture_get(fixture, 10, 1000, fixture_fixed(1, 40));
    struct broker_waiter waiter;

    for (uint64_t i = 1; i <= 40; i++)
        ck_assert(waits(fixture, (pid_t)(100 + i), (uid_t)(2000 + i), fixture_fixed(1, 40), i));
    fixture_release(fixture, 1000, lease);
    ck_assert(is_granted(fixture, 1));
    ck_assert_uint_eq(fixture->n_moved, 16);
    fixture_pass(fixture, 2 * SECS);
    ck_assert_uint_eq(fixture->n_moved, 39);
    ck_assert_uint_eq(fixture->place, 39);
    ck_assert_str_ne(fixture->reason, "");
    ck_assert(broker_waiter_at(fixture->broker, 38, &waiter));
    ck_assert_uint_eq(waiter.place, 39);
    ck_assert_uint_eq(waiter.uid, 2040);
    ck_assert(!broker_waiter_at(fixture->broker, 39, &waiter));
    fixture_turn(fixture);
    /* Nothing is due but the end of the first reservation. */
    ck_assert_uint_eq(broker_deadline(fixture->broker), 1000 * SECS + fixture->policy.reserve_usec);
}
END_TEST

/* The first 16 at once, those behind them 256 a second. */
START_TEST(a_long_queue_is_told_in_parts) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(1, 40);
    uint64_t lease = fixture_get(fixture, 10, 1000, fixture_fixed(1, 40));

    for (uint64_t i = 1; i <= 301; i++)
        ck_assert(waits(fixture, (pid_t)(100 + i), (uid_t)(2000 + i), fixture_fixed(1, 40), i));
    fixture_release(fixture, 1000, lease);
    ck_assert(is_granted(fixture, 1));
    ck_assert_uint_eq(fixture->n_moved, 16);
    ck_assert_uint_eq(fixture->place, 16);
    fixture_pass(fixture, SECS);
    ck_assert_uint_eq(fixture->n_moved, 16 + 256);
    ck_assert_uint_eq(fixture->place, 16 + 256);
    fixture_turn(fixture); /* not before the next second */
    ck_assert_uint_eq(broker_deadline(fixture->broker), fixture->now.usec + SECS);
    ck_assert_uint_eq(fixture->n_moved, 16 + 256);
    fixture_pass(fixture, SECS);
    ck_assert_uint_eq(fixture->n_moved, 300);
    ck_assert_uint_eq(fixture->place, 300);
    fixture_pass(fixture, SECS);
    ck_assert_uint_eq(fixture->n_moved, 300);
}
END_TEST

/* Sets of devices are words of 64. */
START_TEST(a_device_far_behind_is_as_the_first) {
    static const unsigned gpus[] = { 0, 63, 64, 65, 127, 128, 129 };

    for (size_t i = 0; i < ELEMENTSOF(gpus); i++) {
        cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(130, 40);
        const char *name = fixture_name(gpus[i]);
        uint64_t lease = fixture_get(fixture, 10, 1000, on(fixture_fixed(1, 15), &name));

        fixture_get(fixture, 11, 1001, on(fixture_fixed(1, 15), &name));
        ck_assert(waits(fixture, 12, 1002, on(fixture_fixed(1, 20), &name), 1));
        ck_assert(waits(fixture, 13, 1003, on(fixture_fixed(1, 6), &name), 2));
        fixture_get(fixture, 14, 1003, fixture_fixed(1, 6)); /* on another one */
        ck_assert_uint_eq(fixture_left(fixture, gpus[i]), 10);
        fixture_release(fixture, 1000, lease);
        ck_assert(is_granted(fixture, 1));
        ck_assert_ptr_null(fixture_told(fixture, 2));
        ck_assert_uint_eq(fixture_left(fixture, gpus[i]), 5);
        fixture_release(fixture, 1002, fixture_told(fixture, 1)->lease);
        ck_assert(is_granted(fixture, 2));
    }
}
END_TEST

START_TEST(a_waiter_that_is_pushed_back_is_told) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(1, 40);

    set_rules(fixture, (struct policy_rules){ .has = POLICY_HAS(priority_max), .priority_max = 5 });
    fixture_get(fixture, 10, 1000, fixture_fixed(1, 40));
    ck_assert(waits(fixture, 11, 1001, fixture_fixed(1, 30), 1));
    fixture_turn(fixture);
    ck_assert_uint_eq(fixture->n_moved, 0);
    ck_assert(waits(fixture, 12, 1002, with_priority(fixture_fixed(1, 30), 5), 2));
    fixture_turn(fixture);
    ck_assert_uint_eq(fixture->n_moved, 1);
    ck_assert_uint_eq(fixture->place, 2);
}
END_TEST

START_TEST(explaining_changes_nothing_and_agrees_with_asking) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(2, 40);
    struct request small = fixture_fixed(1, 30), large = fixture_fixed(2, 20),
                   huge = fixture_fixed(1, 50);
    struct broker_peer peer = fixture_peer(20, 1001);
    struct explanation said;
    uint32_t n_records;

    fixture_get(fixture, 10, 1000, fixture_fixed(1, 25));
    n_records = fixture->n_records;
    ck_assert_int_eq(broker_explain(fixture->broker, &peer, &small, fixture->now, &said), 0);
    ck_assert_int_eq(said.verdict.kind, VERDICT_GRANT);
    ck_assert_uint_eq(said.n_devices, 1);
    ck_assert_int_eq(broker_explain(fixture->broker, &peer, &large, fixture->now, &said), 0);
    ck_assert_int_eq(said.verdict.kind, VERDICT_WAIT);
    ck_assert_uint_eq(said.verdict.place, 1);
    ck_assert_uint_gt(said.n_details, 2);
    ck_assert_int_eq(broker_explain(fixture->broker, &peer, &huge, fixture->now, &said), 0);
    ck_assert_int_eq(said.verdict.refusal, REFUSAL_DENIED);
    ck_assert_uint_eq(fixture->n_records, n_records);
    fixture_check(fixture);

    ck_assert(waits(fixture, 20, 1001, large, 1));
    ck_assert_int_eq(broker_explain(fixture->broker, &peer, &small, fixture->now, &said), 0);
    ck_assert_int_eq(said.verdict.kind, VERDICT_WAIT);
    ck_assert_uint_eq(said.verdict.place, 2);
    ck_assert_ptr_nonnull(strstr(said.verdict.reason, "earlier requests"));
}
END_TEST

START_TEST(a_holder_passes_the_waiters_for_its_lease) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(2, 40);
    const char *zero = "0", *one = "1";

    /* 10 has all of device 0; 11 wants both; 10 wants a part of device 1, which is free: were 11 to
       come first, both would wait for ever. */
    fixture_get(fixture, 10, 1000, on(fixture_fixed(0, 40), &zero));
    ck_assert(waits(fixture, 11, 1001, fixture_fixed(2, 30), 1));
    ck_assert(waits(fixture, 12, 1002, on(fixture_fixed(0, 20), &one), 2));
    fixture_get(fixture, 10, 1000, on(fixture_fixed(0, 20), &one));
}
END_TEST

SUITE("queue", the_first_come_is_the_first_served,
      higher_priority_goes_first_within_what_is_allowed,
      a_waiter_that_waited_long_enough_is_not_passed,
      a_smaller_request_passes_where_the_first_starts_no_later_for_it,
      no_waiter_passes_where_a_lease_may_give_back_in_parts,
      growth_that_needs_less_since_a_sibling_gave_back_is_looked_at,
      a_smaller_request_does_not_pass_where_it_could_delay,
      a_smaller_request_passes_on_a_device_without_waiters,
      a_smaller_request_passes_with_what_is_left_beyond_the_first, growth_goes_before_new_leases,
      growth_that_frees_up_in_the_guarantee_is_granted_though_the_device_is_full,
      waits_time_out_and_can_be_cancelled, a_quota_stops_only_its_user,
      a_quota_of_devices_keeps_to_those_it_has,
      a_quota_of_devices_lets_in_as_many_new_ones_as_it_leaves,
      a_quota_of_a_share_counts_on_each_device, the_quota_that_stops_it_is_named,
      used_up_gib_hours_deny_leases_and_growth,
      one_user_has_so_many_requests_in_the_queue_and_no_more, hours_keep_a_device_for_some,
      an_idle_lease_is_told_then_lowered_then_ended,
      a_lease_that_never_takes_what_is_kept_for_it_is_idle_too,
      a_reload_judges_the_queue_anew_and_leaves_leases_alone,
      a_reload_may_change_what_a_step_of_priority_is_worth,
      a_raised_reserve_overcommits_and_grants_nothing, places_are_told_as_they_change,
      a_long_queue_is_told_in_parts, a_device_far_behind_is_as_the_first,
      a_waiter_that_is_pushed_back_is_told, explaining_changes_nothing_and_agrees_with_asking,
      a_holder_passes_the_waiters_for_its_lease)
