/* SPDX-License-Identifier: Apache-2.0 */
/* Who waits, in which order, and who may pass. */
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

static bool waits(struct desk *desk, pid_t pid, uid_t uid, struct request request, uint64_t tag) {
    return desk_ask(desk, pid, uid, &request, tag).kind == VERDICT_WAIT;
}

static bool is_granted(const struct desk *desk, uint64_t tag) {
    const struct verdict *verdict = desk_told(desk, tag);

    return verdict && verdict->kind == VERDICT_GRANT;
}

static void set_rules(struct desk *desk, struct policy_rules rules) {
    desk->policy.defaults = rules;
    ck_assert_int_eq(broker_policy_set(desk->broker, &desk->policy, desk->now), 0);
    desk_check(desk);
}

START_TEST(the_first_come_is_the_first_served) {
    cleanup(desk_freep) struct desk *desk = desk_new(1, 40);
    uint64_t lease = desk_get(desk, 10, 1000, desk_fixed(1, 40));

    ck_assert(waits(desk, 11, 1001, desk_fixed(1, 30), 1));
    desk->now.usec += SECS;
    ck_assert(waits(desk, 12, 1002, desk_fixed(1, 30), 2));
    desk_release(desk, 1000, lease);
    ck_assert(is_granted(desk, 1));
    ck_assert_ptr_null(desk_told(desk, 2));
    ck_assert_uint_eq(desk->place, 1);
    desk_release(desk, 1001, desk_told(desk, 1)->lease);
    ck_assert(is_granted(desk, 2));
}
END_TEST

START_TEST(higher_priority_goes_first_within_what_is_allowed) {
    cleanup(desk_freep) struct desk *desk = desk_new(1, 40);
    struct request request = with_priority(desk_fixed(1, 30), 6);
    uint64_t lease;

    set_rules(desk, (struct policy_rules){ .has = POLICY_HAS(priority_max), .priority_max = 5 });
    lease = desk_get(desk, 10, 1000, desk_fixed(1, 40));
    ck_assert(waits(desk, 11, 1001, desk_fixed(1, 30), 1));
    ck_assert(waits(desk, 12, 1002, with_priority(desk_fixed(1, 30), 5), 2));
    ck_assert_int_eq(desk_ask(desk, 13, 1003, &request, 3).refusal, REFUSAL_DENIED);
    desk_release(desk, 1000, lease);
    ck_assert(is_granted(desk, 2));
    ck_assert_ptr_null(desk_told(desk, 1));
}
END_TEST

START_TEST(who_waited_long_enough_is_passed_by_nobody) {
    cleanup(desk_freep) struct desk *desk = desk_new(1, 40);
    uint64_t lease;

    set_rules(desk, (struct policy_rules){ .has = POLICY_HAS(priority_max), .priority_max = 5 });
    lease = desk_get(desk, 10, 1000, desk_fixed(1, 40));
    ck_assert(waits(desk, 11, 1001, desk_fixed(1, 30), 1));
    desk_pass(desk, 5 * desk->policy.age_usec - SECS);
    ck_assert(waits(desk, 12, 1002, with_priority(desk_fixed(1, 30), 5), 2));
    desk_pass(desk, 2 * SECS);
    ck_assert(waits(desk, 13, 1003, with_priority(desk_fixed(1, 30), 5), 3));
    desk_release(desk, 1000, lease);
    ck_assert(is_granted(desk, 2));
    desk_release(desk, 1002, desk_told(desk, 2)->lease);
    ck_assert(is_granted(desk, 1));
    ck_assert_ptr_null(desk_told(desk, 3));
}
END_TEST

START_TEST(a_smaller_request_does_not_pass_where_it_could_delay) {
    cleanup(desk_freep) struct desk *desk = desk_new(1, 40);
    uint64_t lease = desk_get(desk, 10, 1000, desk_fixed(1, 15));

    /* 10 are free now, 25 when one lease ends: the first in line starts with 5 to spare. */
    desk_get(desk, 11, 1001, desk_fixed(1, 15));
    ck_assert(waits(desk, 12, 1002, desk_fixed(1, 20), 1));
    ck_assert(waits(desk, 13, 1003, desk_fixed(1, 6), 2));
    ck_assert(waits(desk, 14, 1004, desk_grow(1, 1, 0), 3));
    ck_assert_uint_eq(desk_left(desk, 0), 10);
    desk_release(desk, 1000, lease);
    ck_assert(is_granted(desk, 1));
    ck_assert_uint_eq(desk_left(desk, 0), 5);
}
END_TEST

START_TEST(a_smaller_request_passes_where_the_first_starts_no_later_for_it) {
    cleanup(desk_freep) struct desk *desk = desk_new(1, 40);
    uint64_t a = desk_get(desk, 10, 1000, desk_share(1, 6000));

    ck_assert(waits(desk, 11, 1001, desk_share(1, 8000), 1));
    desk_get(desk, 12, 1002, desk_share(1, 2000));
    ck_assert(waits(desk, 13, 1003, desk_fixed(1, 1), 2));
    desk_release(desk, 1000, a);
    ck_assert(is_granted(desk, 1));
    ck_assert_ptr_null(desk_told(desk, 2));
}
END_TEST

START_TEST(nobody_passes_where_a_lease_may_give_back_in_parts) {
    cleanup(desk_freep) struct desk *desk = desk_new(1, 40);
    uint64_t lease = desk_get(desk, 10, 1000, desk_grow(1, 4, 24));

    desk_attach(desk, 10, 1000, lease);
    desk_grow_by(desk, 10, lease, 0, 24, false, 0);
    ck_assert(waits(desk, 11, 1001, desk_fixed(1, 32), 1));
    ck_assert(waits(desk, 12, 1002, desk_fixed(1, 8), 2));
    desk_shrink_by(desk, 10, lease, 0, 16);
    desk_turn(desk);
    ck_assert(is_granted(desk, 1));
    ck_assert_ptr_null(desk_told(desk, 2));
}
END_TEST

START_TEST(growth_that_needs_less_since_a_sibling_gave_back_is_looked_at) {
    cleanup(desk_freep) struct desk *desk = desk_new(1, 40);
    uint64_t a = desk_get(desk, 10, 1000, desk_grow(1, 10, 40));

    desk_get(desk, 11, 1001, desk_fixed(1, 29));
    desk_attach(desk, 10, 1000, a);
    desk_attach(desk, 12, 1000, a);
    ck_assert_int_eq(desk_grow_by(desk, 12, a, 0, 8, true, 1).kind, VERDICT_GRANT);
    ck_assert_int_eq(desk_grow_by(desk, 10, a, 0, 6, true, 2).kind, VERDICT_WAIT);
    /* 3 beyond the guarantee with 1 free, now just that one; the lease is charged as before. */
    desk_shrink_by(desk, 12, a, 0, 3);
    desk_turn(desk);
    ck_assert(is_granted(desk, 2));
}
END_TEST

START_TEST(a_smaller_request_passes_on_a_device_that_nobody_waits_for) {
    cleanup(desk_freep) struct desk *desk = desk_new(2, 40);
    const char *zero = "0", *one = "1";

    desk_get(desk, 10, 1000, on(desk_fixed(0, 30), &zero));
    ck_assert(waits(desk, 11, 1001, on(desk_fixed(0, 20), &zero), 1));
    desk_get(desk, 12, 1002, on(desk_fixed(0, 30), &one));
}
END_TEST

START_TEST(a_smaller_request_passes_with_what_is_left_beyond_the_first) {
    cleanup(desk_freep) struct desk *desk = desk_new(2, 40);
    const char *zero = "0", *one = "1";
    uint64_t lease = desk_get(desk, 10, 1000, on(desk_fixed(0, 30), &one));

    /* It needs 20 on both: 20 of the 40 on device 0 are kept for it. */
    ck_assert(waits(desk, 11, 1001, desk_fixed(2, 20), 1));
    desk_get(desk, 13, 1003, on(desk_fixed(0, 19), &zero));
    ck_assert(waits(desk, 12, 1002, on(desk_fixed(0, 2), &zero), 2));
    desk_release(desk, 1000, lease);
    ck_assert(is_granted(desk, 1));
}
END_TEST

START_TEST(growth_goes_before_new_leases) {
    cleanup(desk_freep) struct desk *desk = desk_new(1, 40);
    uint64_t a = desk_get(desk, 10, 1000, desk_grow(1, 10, 0));
    uint64_t b = desk_get(desk, 11, 1001, desk_fixed(1, 20));

    desk_attach(desk, 10, 1000, a);
    ck_assert(waits(desk, 12, 1002, desk_fixed(1, 15), 1));
    ck_assert_int_eq(desk_grow_by(desk, 10, a, 0, 30, true, 2).kind, VERDICT_WAIT);
    ck_assert_uint_eq(broker_n_waiters(desk->broker), 2);
    desk_release(desk, 1001, b);
    ck_assert(is_granted(desk, 2));
    ck_assert_ptr_null(desk_told(desk, 1));
    desk_shrink_by(desk, 10, a, 0, 30);
    desk_turn(desk);
    ck_assert(is_granted(desk, 1));
}
END_TEST

START_TEST(growth_that_frees_up_in_the_guarantee_is_granted_though_the_device_is_full) {
    cleanup(desk_freep) struct desk *desk = desk_new(1, 40);
    uint64_t a = desk_get(desk, 10, 1000, desk_grow(1, 10, 40));

    desk_get(desk, 11, 1001, desk_fixed(1, 30));
    desk_attach(desk, 10, 1000, a);
    desk_attach(desk, 12, 1000, a);
    ck_assert_int_eq(desk_grow_by(desk, 12, a, 0, 8, true, 1).kind, VERDICT_GRANT);
    ck_assert_int_eq(desk_grow_by(desk, 10, a, 0, 4, true, 2).kind, VERDICT_WAIT);
    desk_shrink_by(desk, 12, a, 0, 2);
    ck_assert(is_granted(desk, 2));
}
END_TEST

START_TEST(waits_time_out_and_can_be_cancelled) {
    cleanup(desk_freep) struct desk *desk = desk_new(1, 40);
    struct request request = desk_fixed(1, 40);
    struct verdict verdict;
    uint64_t lease = desk_get(desk, 10, 1000, desk_grow(1, 1, 0));

    desk_attach(desk, 10, 1000, lease);
    request.timeout_usec = 10 * SECS;
    ck_assert(waits(desk, 11, 1001, request, 1));
    verdict = desk_ask(desk, 12, 1002, &request, 2);
    ck_assert_uint_eq(verdict.place, 2);
    ck_assert_int_eq(broker_cancel(desk->broker, verdict.waiter, desk->now), 0);
    ck_assert_int_lt(broker_cancel(desk->broker, verdict.waiter, desk->now), 0);
    ck_assert_str_eq(desk->event, "cancelled");
    desk_turn(desk);
    ck_assert_uint_eq(broker_deadline(desk->broker), desk->now.usec + 10 * SECS);
    desk_pass(desk, 10 * SECS);
    ck_assert_int_eq(desk_told(desk, 1)->refusal, REFUSAL_TIMEOUT);
    ck_assert_uint_eq(desk_told(desk, 1)->place, 1);
    ck_assert_ptr_null(desk_told(desk, 2));

    /* Growth never waits for ever, whatever it asks. */
    desk_get(desk, 13, 1003, desk_fixed(1, 39));
    ck_assert_int_eq(desk_grow_by(desk, 10, lease, 0, 2, true, 3).kind, VERDICT_WAIT);
    desk_pass(desk, 60 * SECS);
    ck_assert_int_eq(desk_told(desk, 3)->refusal, REFUSAL_TIMEOUT);
}
END_TEST

START_TEST(a_quota_stops_its_user_and_nobody_else) {
    cleanup(desk_freep) struct desk *desk = desk_new(1, 40);
    struct request request = desk_fixed(1, 16);
    uint64_t lease;

    set_rules(desk, (struct policy_rules){ .has = POLICY_HAS(quota_bytes) | POLICY_HAS(max_leases),
                                           .quota_bytes = 15 * GIB,
                                           .max_leases = 2 });
    ck_assert_int_eq(desk_ask(desk, 10, 1000, &request, 1).refusal, REFUSAL_DENIED);
    lease = desk_get(desk, 10, 1000, desk_fixed(1, 10));
    ck_assert(waits(desk, 10, 1000, desk_fixed(1, 6), 2));
    desk_get(desk, 11, 1001, desk_fixed(1, 10));
    desk_release(desk, 1000, lease);
    ck_assert(is_granted(desk, 2));

    desk_get(desk, 10, 1000, desk_fixed(1, 1));
    ck_assert(waits(desk, 10, 1000, desk_fixed(1, 1), 3));
    desk_gone(desk, 10);
    ck_assert_uint_eq(broker_n_waiters(desk->broker), 0);
}
END_TEST

START_TEST(a_quota_of_devices_keeps_to_those_it_has) {
    cleanup(desk_freep) struct desk *desk = desk_new(3, 40);
    struct request two = desk_fixed(2, 10);
    uint64_t first, second;

    set_rules(desk, (struct policy_rules){ .has = POLICY_HAS(quota_devices) | POLICY_HAS(choose),
                                           .quota_devices = 1,
                                           .choose = CHOICE_SPREAD });
    ck_assert_int_eq(desk_ask(desk, 10, 1000, &two, 1).refusal, REFUSAL_DENIED);
    first = desk_get(desk, 10, 1000, desk_fixed(1, 10));
    second = desk_get(desk, 10, 1000, desk_fixed(1, 10));
    ck_assert_ptr_eq(broker_lease(desk->broker, first)->shares[0].book,
                     broker_lease(desk->broker, second)->shares[0].book);
    ck_assert(waits(desk, 10, 1000, desk_fixed(1, 30), 2));
    desk_release(desk, 1000, first);
    ck_assert(is_granted(desk, 2));
}
END_TEST

START_TEST(a_quota_of_a_share_counts_on_each_device) {
    cleanup(desk_freep) struct desk *desk = desk_new(1, 40);
    uint64_t lease;

    set_rules(desk,
              (struct policy_rules){ .has = POLICY_HAS(quota_permyriad), .quota_permyriad = 5000 });
    lease = desk_get(desk, 10, 1000, desk_grow(1, 0, 0));
    ck_assert_uint_eq(broker_lease(desk->broker, lease)->shares[0].limit_bytes, 20 * GIB);
    desk_attach(desk, 10, 1000, lease);
    desk_grow_by(desk, 10, lease, 0, 15, true, 0);
    ck_assert(waits(desk, 10, 1000, desk_fixed(1, 10), 1));
    desk_shrink_by(desk, 10, lease, 0, 10);
    desk_turn(desk);
    ck_assert(is_granted(desk, 1));
    ck_assert_int_eq(desk_grow_by(desk, 10, lease, 0, 8, true, 2).kind, VERDICT_WAIT);
    desk_get(desk, 11, 1001, desk_fixed(1, 20));
}
END_TEST

/* Several rules at once: the reason is of the one that failed. */
START_TEST(the_quota_that_stops_it_is_named) {
    cleanup(desk_freep) struct desk *desk = desk_new(2, 40);
    struct request request = desk_fixed(1, 10);
    uint64_t lease;

    set_rules(desk,
              (struct policy_rules){ .has = POLICY_HAS(quota_bytes) | POLICY_HAS(quota_permyriad) |
                                            POLICY_HAS(quota_devices),
                                     .quota_bytes = 60 * GIB,
                                     .quota_permyriad = 5000,
                                     .quota_devices = 1 });
    request.devices = (const char *[]){ "0" };
    request.n_devices = 1;
    lease = desk_get(desk, 10, 1000, desk_grow(1, 15, 0));
    ck_assert_ptr_nonnull(strstr(desk_ask(desk, 10, 1000, &request, 1).reason, "50%"));
    desk_attach(desk, 10, 1000, lease);
    ck_assert_int_eq(desk_grow_by(desk, 10, lease, 0, 15, false, 0).kind, VERDICT_GRANT);
    request.devices = (const char *[]){ "1" };
    ck_assert_ptr_nonnull(strstr(desk_ask(desk, 10, 1000, &request, 2).reason, "devices of at"));

    set_rules(desk,
              (struct policy_rules){ .has = POLICY_HAS(quota_bytes) | POLICY_HAS(quota_permyriad),
                                     .quota_bytes = 20 * GIB,
                                     .quota_permyriad = 5000 });
    ck_assert_ptr_nonnull(strstr(desk_ask(desk, 11, 1000, &request, 3).reason, "quota of 20"));
}
END_TEST

START_TEST(used_up_gib_hours_deny_leases_and_growth) {
    cleanup(desk_freep) struct desk *desk = desk_new(1, 40);
    struct request request = desk_fixed(1, 1);
    uint64_t lease;

    set_rules(desk, (struct policy_rules){ .has = POLICY_HAS(quota_byte_seconds),
                                           .quota_byte_seconds = 1000 });
    lease = desk_get(desk, 10, 1000, desk_grow(1, 2, 0));
    desk_attach(desk, 10, 1000, lease);
    desk->spent_byte_seconds = 1000;
    ck_assert_int_eq(desk_ask(desk, 10, 1000, &request, 1).refusal, REFUSAL_DENIED);
    ck_assert_int_eq(desk_grow_by(desk, 10, lease, 0, 2, true, 0).kind, VERDICT_GRANT);
    ck_assert_int_eq(desk_grow_by(desk, 10, lease, 0, 1, true, 0).refusal, REFUSAL_DENIED);
}
END_TEST

START_TEST(one_user_has_so_many_requests_in_the_queue_and_no_more) {
    cleanup(desk_freep) struct desk *desk = desk_new(1, 40);
    struct request request = desk_fixed(1, 40);

    set_rules(desk, (struct policy_rules){ .has = POLICY_HAS(max_waiting), .max_waiting = 3 });
    desk_get(desk, 10, 1000, request);
    for (uint64_t i = 0; i < 3; i++)
        ck_assert(waits(desk, 11, 1001, request, i));
    ck_assert_int_eq(desk_ask(desk, 11, 1001, &request, 9).refusal, REFUSAL_BUSY);
    ck_assert(waits(desk, 12, 1002, request, 10));
}
END_TEST

START_TEST(hours_keep_a_device_for_some) {
    cleanup(desk_freep) struct desk *desk = desk_new(2, 40);
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
    desk->policy.devices = device;
    desk->policy.n_devices = 1;
    desk->now.week_minute = 60;

    ck_assert(waits(desk, 11, 1001, on(desk_fixed(0, 10), &zero), 1));
    ck_assert_str_ne(desk->reason, "x");
    /* It keeps nothing from those for whom the device is kept. */
    desk_get(desk, 10, 1000, on(desk_fixed(0, 20), &zero));
    /* And anywhere else it is served. */
    desk_get(desk, 11, 1001, desk_fixed(1, 10));
    ck_assert_uint_eq(desk_left(desk, 1), 30);
    ck_assert_uint_lt(broker_deadline(desk->broker), desk->now.usec + 60 * SECS);
    desk->now.week_minute = 120;
    desk_pass(desk, 3600 * SECS);
    ck_assert(is_granted(desk, 1));
}
END_TEST

START_TEST(an_idle_lease_is_told_then_lowered_then_ended) {
    cleanup(desk_freep) struct desk *desk = desk_new(1, 40);
    struct desk_row idle = { 10, 0, 2, false, NULL }, busy = { 10, 0, 2, true, NULL };
    uint64_t lease;

    set_rules(desk,
              (struct policy_rules){ .has = POLICY_HAS(idle_tell_usec) |
                                            POLICY_HAS(idle_drop_usec) | POLICY_HAS(idle_end_usec),
                                     .idle_tell_usec = 60 * SECS,
                                     .idle_drop_usec = 120 * SECS,
                                     .idle_end_usec = 180 * SECS });
    lease = desk_get(desk, 10, 1000, desk_grow(1, 1, 0));
    desk_attach(desk, 10, 1000, lease);
    desk_grow_by(desk, 10, lease, 0, 2, false, 0);
    for (unsigned i = 0; i < 70; i++) {
        desk_sample(desk, &idle, 1);
        desk->now.usec += SECS;
    }
    ck_assert_uint_eq(desk->n_notices, 1);
    ck_assert_int_eq(desk->notice, NOTICE_IDLE);
    desk_sample(desk, &busy, 1);
    ck_assert_uint_eq(broker_lease(desk->broker, lease)->idle_step, 0);
    for (unsigned i = 0; i < 130; i++) {
        desk_sample(desk, &idle, 1);
        desk->now.usec += SECS;
    }
    ck_assert_uint_eq(broker_lease(desk->broker, lease)->idle_step, 2);
    ck_assert_int_eq(lease_priority(broker_lease(desk->broker, lease), &desk->policy), -10);
    desk->now.usec += 60 * SECS;
    desk_sample(desk, &idle, 1);
    ck_assert(broker_lease(desk->broker, lease)->is_ending);
    ck_assert_int_eq(desk->notice, NOTICE_ENDING);
    desk_pass(desk, desk->policy.ending_usec);
    ck_assert_uint_eq(desk->n_evicted, 1);
}
END_TEST

START_TEST(a_lease_that_never_takes_what_is_kept_for_it_is_idle_too) {
    cleanup(desk_freep) struct desk *desk = desk_new(1, 40);
    uint64_t lease;

    set_rules(desk, (struct policy_rules){ .has = POLICY_HAS(idle_end_usec),
                                           .idle_end_usec = 60 * SECS });
    lease = desk_get(desk, 10, 1000, desk_exclusive(1));
    ck_assert(waits(desk, 11, 1001, desk_fixed(1, 1), 1));
    desk_sample(desk, NULL, 0);
    desk_pass(desk, 59 * SECS);
    desk_sample(desk, NULL, 0);
    ck_assert(!broker_lease(desk->broker, lease)->is_ending);
    desk_pass(desk, SECS);
    desk_sample(desk, NULL, 0);
    ck_assert(broker_lease(desk->broker, lease)->is_ending);
    desk_pass(desk, desk->policy.ending_usec);
    ck_assert_uint_eq(desk->n_evicted, 1);
    desk_gone(desk, 10);
    desk_turn(desk);
    ck_assert(is_granted(desk, 1));
}
END_TEST

START_TEST(a_reload_judges_the_queue_anew_and_leaves_leases_alone) {
    cleanup(desk_freep) struct desk *desk = desk_new(1, 40);
    uint64_t lease = desk_get(desk, 10, 1000, desk_fixed(1, 30));

    ck_assert(waits(desk, 11, 1001, desk_fixed(1, 30), 1));
    ck_assert(waits(desk, 12, 1002, desk_fixed(1, 15), 2));
    set_rules(desk,
              (struct policy_rules){ .has = POLICY_HAS(quota_bytes), .quota_bytes = 20 * GIB });
    ck_assert_int_eq(desk_told(desk, 1)->refusal, REFUSAL_DENIED);
    ck_assert_ptr_null(desk_told(desk, 2));
    ck_assert_ptr_nonnull(broker_lease(desk->broker, lease));
    desk_release(desk, 1000, lease);
    ck_assert(is_granted(desk, 2));
}
END_TEST

START_TEST(a_reload_may_change_what_a_step_of_priority_is_worth) {
    cleanup(desk_freep) struct desk *desk = desk_new(1, 40);
    uint64_t lease;

    set_rules(desk, (struct policy_rules){ .has = POLICY_HAS(priority_max), .priority_max = 5 });
    lease = desk_get(desk, 10, 1000, desk_fixed(1, 40));
    ck_assert(waits(desk, 11, 1001, desk_fixed(1, 30), 1));
    desk->now.usec += 60 * SECS;
    ck_assert(waits(desk, 12, 1002, with_priority(desk_fixed(1, 30), 5), 2));
    desk->policy.age_usec = SECS;
    ck_assert_int_eq(broker_policy_set(desk->broker, &desk->policy, desk->now), 0);
    desk_release(desk, 1000, lease);
    ck_assert(is_granted(desk, 1));
    ck_assert_ptr_null(desk_told(desk, 2));
}
END_TEST

START_TEST(a_raised_reserve_overcommits_and_grants_nothing) {
    cleanup(desk_freep) struct desk *desk = desk_new(1, 40);
    struct policy_device *device = calloc(1, sizeof(*device));
    struct gpuid gpu = desk_gpu(0);

    desk_get(desk, 10, 1000, desk_fixed(1, 38));
    device->devices.all = true;
    device->has_reserve = true;
    device->reserve = (struct units_amount){ .bytes = 4 * GIB };
    desk->policy.devices = device;
    desk->policy.n_devices = 1;
    ck_assert_int_eq(broker_policy_set(desk->broker, &desk->policy, desk->now), 0);
    desk_turn(desk);
    ck_assert_uint_eq(books_overcommitted_bytes(broker_book(desk->broker, &gpu)), 2 * GIB);
    ck_assert(waits(desk, 11, 1001, desk_fixed(1, 1), 1));
}
END_TEST

START_TEST(places_are_told_as_they_change) {
    cleanup(desk_freep) struct desk *desk = desk_new(1, 40);
    uint64_t lease = desk_get(desk, 10, 1000, desk_fixed(1, 40));
    struct broker_waiter waiter;

    for (uint64_t i = 1; i <= 40; i++)
        ck_assert(waits(desk, (pid_t)(100 + i), (uid_t)(2000 + i), desk_fixed(1, 40), i));
    desk_release(desk, 1000, lease);
    ck_assert(is_granted(desk, 1));
    ck_assert_uint_eq(desk->n_moved, 16);
    desk_pass(desk, 2 * SECS);
    ck_assert_uint_eq(desk->n_moved, 39);
    ck_assert_uint_eq(desk->place, 39);
    ck_assert_str_ne(desk->reason, "");
    ck_assert(broker_waiter_at(desk->broker, 38, &waiter));
    ck_assert_uint_eq(waiter.place, 39);
    ck_assert_uint_eq(waiter.uid, 2040);
    ck_assert(!broker_waiter_at(desk->broker, 39, &waiter));
    desk_turn(desk);
    ck_assert_uint_eq(broker_deadline(desk->broker), UINT64_MAX);
}
END_TEST

START_TEST(who_is_pushed_back_is_told) {
    cleanup(desk_freep) struct desk *desk = desk_new(1, 40);

    set_rules(desk, (struct policy_rules){ .has = POLICY_HAS(priority_max), .priority_max = 5 });
    desk_get(desk, 10, 1000, desk_fixed(1, 40));
    ck_assert(waits(desk, 11, 1001, desk_fixed(1, 30), 1));
    desk_turn(desk);
    ck_assert_uint_eq(desk->n_moved, 0);
    ck_assert(waits(desk, 12, 1002, with_priority(desk_fixed(1, 30), 5), 2));
    desk_turn(desk);
    ck_assert_uint_eq(desk->n_moved, 1);
    ck_assert_uint_eq(desk->place, 2);
}
END_TEST

START_TEST(explaining_changes_nothing_and_agrees_with_asking) {
    cleanup(desk_freep) struct desk *desk = desk_new(2, 40);
    struct request small = desk_fixed(1, 30), large = desk_fixed(2, 20), huge = desk_fixed(1, 50);
    struct broker_peer peer = desk_peer(20, 1001);
    struct explanation said;
    uint32_t n_records;

    desk_get(desk, 10, 1000, desk_fixed(1, 25));
    n_records = desk->n_records;
    ck_assert_int_eq(broker_explain(desk->broker, &peer, &small, desk->now, &said), 0);
    ck_assert_int_eq(said.verdict.kind, VERDICT_GRANT);
    ck_assert_uint_eq(said.n_devices, 1);
    ck_assert_int_eq(broker_explain(desk->broker, &peer, &large, desk->now, &said), 0);
    ck_assert_int_eq(said.verdict.kind, VERDICT_WAIT);
    ck_assert_uint_eq(said.verdict.place, 1);
    ck_assert_uint_gt(said.n_details, 2);
    ck_assert_int_eq(broker_explain(desk->broker, &peer, &huge, desk->now, &said), 0);
    ck_assert_int_eq(said.verdict.refusal, REFUSAL_DENIED);
    ck_assert_uint_eq(desk->n_records, n_records);
    desk_check(desk);

    ck_assert(waits(desk, 20, 1001, large, 1));
    ck_assert_int_eq(broker_explain(desk->broker, &peer, &small, desk->now, &said), 0);
    ck_assert_int_eq(said.verdict.kind, VERDICT_WAIT);
    ck_assert_uint_eq(said.verdict.place, 2);
    ck_assert_ptr_nonnull(strstr(said.verdict.reason, "come first"));
}
END_TEST

START_TEST(who_has_a_lease_passes_whoever_waits_for_it) {
    cleanup(desk_freep) struct desk *desk = desk_new(2, 40);
    const char *zero = "0", *one = "1";

    /* 10 has all of device 0; 11 wants both; 10 wants a part of device 1, which is free: were 11 to
       come first, both would wait for ever. */
    desk_get(desk, 10, 1000, on(desk_fixed(0, 40), &zero));
    ck_assert(waits(desk, 11, 1001, desk_fixed(2, 30), 1));
    ck_assert(waits(desk, 12, 1002, on(desk_fixed(0, 20), &one), 2));
    desk_get(desk, 10, 1000, on(desk_fixed(0, 20), &one));
}
END_TEST

SUITE("queue", the_first_come_is_the_first_served,
      higher_priority_goes_first_within_what_is_allowed, who_waited_long_enough_is_passed_by_nobody,
      a_smaller_request_passes_where_the_first_starts_no_later_for_it,
      nobody_passes_where_a_lease_may_give_back_in_parts,
      growth_that_needs_less_since_a_sibling_gave_back_is_looked_at,
      a_smaller_request_does_not_pass_where_it_could_delay,
      a_smaller_request_passes_on_a_device_that_nobody_waits_for,
      a_smaller_request_passes_with_what_is_left_beyond_the_first, growth_goes_before_new_leases,
      growth_that_frees_up_in_the_guarantee_is_granted_though_the_device_is_full,
      waits_time_out_and_can_be_cancelled, a_quota_stops_its_user_and_nobody_else,
      a_quota_of_devices_keeps_to_those_it_has, a_quota_of_a_share_counts_on_each_device,
      the_quota_that_stops_it_is_named, used_up_gib_hours_deny_leases_and_growth,
      one_user_has_so_many_requests_in_the_queue_and_no_more, hours_keep_a_device_for_some,
      an_idle_lease_is_told_then_lowered_then_ended,
      a_lease_that_never_takes_what_is_kept_for_it_is_idle_too,
      a_reload_judges_the_queue_anew_and_leaves_leases_alone,
      a_reload_may_change_what_a_step_of_priority_is_worth,
      a_raised_reserve_overcommits_and_grants_nothing, places_are_told_as_they_change,
      who_is_pushed_back_is_told, explaining_changes_nothing_and_agrees_with_asking,
      who_has_a_lease_passes_whoever_waits_for_it)
