/* SPDX-License-Identifier: Apache-2.0 */
/* A daemon that starts again: what was recorded, which processes come back, and what was lost. */
#include <stdlib.h>
#include <string.h>

#include "tests/support/daemon/broker/broker_fixture.h"
#include "tests/support/suite.h"

#define RECORDS_MAX 512

struct log {
    size_t n;
    struct record records[RECORDS_MAX];
};

static void note(struct broker_fixture *fixture, const struct record *record) {
    struct log *log = fixture->userdata;

    ck_assert_uint_lt(log->n, RECORDS_MAX);
    log->records[log->n++] = *record;
}

static struct broker_fixture *recording(unsigned n, uint64_t gib, struct log *log) {
    struct broker_fixture *fixture = fixture_new(n, gib);

    log->n = 0;
    fixture->userdata = log;
    fixture->record = note;
    return fixture;
}

/* The next life: everything that was recorded, as a log tells it, twice if asked. */
static void start_again(struct broker_fixture *fixture, struct log *log, unsigned n, uint64_t gib,
                        unsigned times) {
    size_t n_records = log->n;

    fixture->record = NULL;
    fixture->n_told = 0;
    fixture_restart(fixture);
    for (unsigned time = 0; time < times; time++)
        for (size_t i = 0; i < n_records; i++)
            ck_assert_int_eq(broker_restore(fixture->broker, &log->records[i], fixture->now), 0);
    fixture_check(fixture);
    fixture_devices(fixture, n, gib);
    broker_grace_begin(fixture->broker, fixture->now);
    fixture_turn(fixture);
    log->n = 0;
    fixture->record = note;
}

static struct verdict come_back(struct broker_fixture *fixture, pid_t pid, uid_t uid,
                                uint64_t lease, unsigned gpu, uint64_t gib) {
    struct broker_peer peer = fixture_peer(pid, uid);
    struct broker_held held = { .device = fixture_gpu(gpu), .bytes = gib * GIB };
    struct broker_attach attach = { .lease = lease, .held = &held, .n_held = 1 };
    struct verdict verdict = { 0 };

    peer.spent_byte_seconds = fixture->spent_byte_seconds;
    ck_assert_int_eq(broker_attach(fixture->broker, &peer, &attach, fixture->now, &verdict), 0);
    fixture_check(fixture);
    return verdict;
}

static struct log the_log;

START_TEST(leases_and_holders_are_there_again) {
    for (unsigned times = 1; times <= 2; times++) {
        cleanup(fixture_freep) struct broker_fixture *fixture = recording(2, 40, &the_log);
        uint64_t lease = fixture_get(fixture, 10, 1000, fixture_grow(2, 2, 30)), next;
        struct lease *again;

        fixture_attach(fixture, 10, 1000, lease);
        fixture_grow_by(fixture, 10, lease, 0, 6, false, 0);
        next = fixture_get(fixture, 11, 1001, fixture_fixed(1, 8));
        start_again(fixture, &the_log, 2, 40, times);

        again = broker_lease(fixture->broker, lease);
        ck_assert_ptr_nonnull(again);
        ck_assert_uint_eq(again->uid, 1000);
        ck_assert(again->declares_max);
        ck_assert_uint_eq(again->shares[0].held_bytes, 6 * GIB);
        ck_assert_uint_eq(again->shares[1].guaranteed_bytes, 2 * GIB);
        ck_assert_uint_eq(fixture_left(fixture, 0) + fixture_left(fixture, 1), 80 - 6 - 2 - 8);
        ck_assert_uint_ne(broker_grace_until(fixture->broker), 0);

        ck_assert_int_eq(come_back(fixture, 10, 1000, lease, 0, 6).kind, VERDICT_GRANT);
        fixture_turn(fixture);
        ck_assert_uint_eq(broker_grace_until(fixture->broker), 0);
        ck_assert_ptr_nonnull(broker_lease(fixture->broker, next));
        ck_assert_uint_gt(fixture_get(fixture, 12, 1002, fixture_fixed(1, 1)), next);
        fixture_gone(fixture, 11);
        ck_assert_ptr_null(broker_lease(fixture->broker, next));
    }
}
END_TEST

START_TEST(nothing_is_granted_in_the_grace_but_what_was_guaranteed) {
    cleanup(fixture_freep) struct broker_fixture *fixture = recording(1, 40, &the_log);
    uint64_t a = fixture_get(fixture, 10, 1000, fixture_grow(1, 5, 0));
    uint64_t b = fixture_get(fixture, 11, 1001, fixture_grow(1, 0, 0));
    struct request request = fixture_fixed(1, 1);

    fixture_attach(fixture, 10, 1000, a);
    fixture_attach(fixture, 11, 1001, b);
    start_again(fixture, &the_log, 1, 40, 1);
    ck_assert_int_eq(come_back(fixture, 10, 1000, a, 0, 0).kind, VERDICT_GRANT);
    ck_assert_int_eq(fixture_grow_by(fixture, 10, a, 0, 5, false, 1).kind, VERDICT_GRANT);
    ck_assert_int_eq(fixture_grow_by(fixture, 10, a, 0, 1, false, 1).refusal, REFUSAL_BUSY);
    ck_assert_int_eq(fixture_grow_by(fixture, 10, a, 0, 1, true, 2).kind, VERDICT_WAIT);
    ck_assert_int_eq(fixture_ask(fixture, 12, 1002, &request, 3).kind, VERDICT_WAIT);
    fixture_turn(fixture);
    ck_assert_uint_eq(fixture->n_told, 0);
    fixture_pass(fixture, fixture->policy.grace_usec);
    ck_assert_int_eq(fixture_told(fixture, 2)->kind, VERDICT_GRANT);
    ck_assert_int_eq(fixture_told(fixture, 3)->kind, VERDICT_GRANT);
    /* Process 11 did not come back, but it lives and acquired the lease. */
    ck_assert_ptr_nonnull(broker_lease(fixture->broker, b));
    ck_assert_uint_eq(broker_lease(fixture->broker, b)->n_holders, 0);
}
END_TEST

START_TEST(no_holder_comes_back_with_more_than_was_recorded) {
    cleanup(fixture_freep) struct broker_fixture *fixture = recording(2, 40, &the_log);
    const char *zero = "0";
    struct request request = fixture_grow(0, 0, 0);
    uint64_t lease;

    request.devices = &zero;
    request.n_devices = 1;
    lease = fixture_get(fixture, 10, 1000, request);
    fixture_attach(fixture, 10, 1000, lease);
    fixture_grow_by(fixture, 10, lease, 0, 6, false, 0);
    start_again(fixture, &the_log, 2, 40, 1);
    ck_assert_int_eq(come_back(fixture, 10, 1000, lease, 0, 7).refusal, REFUSAL_DENIED);
    ck_assert_int_eq(come_back(fixture, 10, 1000, lease, 1, 1).refusal, REFUSAL_NO_DEVICE);
    ck_assert_int_eq(come_back(fixture, 20, 1000, lease, 0, 1).refusal, REFUSAL_DENIED);
    ck_assert_int_eq(come_back(fixture, 10, 1001, lease, 0, 6).refusal, REFUSAL_NOT_FOUND);
    ck_assert_int_eq(come_back(fixture, 10, 1000, lease + 9, 0, 6).refusal, REFUSAL_NOT_FOUND);
    ck_assert_int_eq(come_back(fixture, 10, 1000, lease, 0, 4).kind, VERDICT_GRANT);
    ck_assert_uint_eq(fixture_left(fixture, 0), 36);
}
END_TEST

START_TEST(places_in_the_queue_are_kept_for_clients_that_ask_again) {
    cleanup(fixture_freep) struct broker_fixture *fixture = recording(1, 40, &the_log);
    uint64_t lease = fixture_get(fixture, 10, 1000, fixture_fixed(1, 40));
    struct request request = fixture_fixed(1, 30), other = fixture_fixed(1, 31);

    fixture_attach(fixture, 10, 1000, lease);
    ck_assert_int_eq(fixture_ask(fixture, 11, 1001, &request, 1).kind, VERDICT_WAIT);
    fixture->now.usec += SECS;
    ck_assert_int_eq(fixture_ask(fixture, 12, 1002, &request, 2).kind, VERDICT_WAIT);
    fixture->now.usec += SECS;
    start_again(fixture, &the_log, 1, 40, 2);
    ck_assert_uint_eq(fixture_ask(fixture, 13, 1003, &request, 3).place, 1);
    ck_assert_uint_eq(fixture_ask(fixture, 12, 1002, &request, 2).place, 1);
    ck_assert_uint_eq(fixture_ask(fixture, 11, 1001, &request, 1).place, 1);
    ck_assert_uint_eq(fixture_ask(fixture, 14, 1004, &other, 4).place, 4);
    come_back(fixture, 10, 1000, lease, 0, 0);
    fixture_turn(fixture);
    fixture_gone(fixture, 10);
    ck_assert_int_eq(fixture_told(fixture, 1)->kind, VERDICT_GRANT);
    ck_assert_ptr_null(fixture_told(fixture, 2));
}
END_TEST

START_TEST(what_was_releasing_is_still) {
    cleanup(fixture_freep) struct broker_fixture *fixture = recording(1, 40, &the_log);
    uint64_t lease = fixture_get(fixture, 10, 1000, fixture_fixed(1, 40));
    struct gpuid gpu = fixture_gpu(0);

    fixture_attach(fixture, 10, 1000, lease);
    fixture_grow_by(fixture, 10, lease, 0, 30, false, 0);
    fixture_gone(fixture, 10);
    ck_assert_ptr_null(broker_lease(fixture->broker, lease));
    start_again(fixture, &the_log, 1, 40, 2);
    ck_assert_uint_eq(broker_book(fixture->broker, &gpu)->releasing_bytes, 30 * GIB);
    fixture->now.usec += SECS;
    fixture_sample(fixture, NULL, 0);
    ck_assert_uint_eq(fixture_left(fixture, 0), 40);
}
END_TEST

START_TEST(a_process_that_died_meanwhile_ends_the_grace) {
    cleanup(fixture_freep) struct broker_fixture *fixture = recording(1, 40, &the_log);
    uint64_t lease = fixture_get(fixture, 10, 1000, fixture_fixed(1, 10));
    struct request request = fixture_fixed(1, 40);

    fixture_attach(fixture, 10, 1000, lease);
    ck_assert_int_eq(fixture_ask(fixture, 11, 1001, &request, 1).kind, VERDICT_WAIT);
    start_again(fixture, &the_log, 1, 40, 1);
    ck_assert_uint_ne(broker_grace_until(fixture->broker), 0);
    fixture_gone(fixture, 11);
    fixture_gone(fixture, 10);
    ck_assert_uint_eq(broker_grace_until(fixture->broker), 0);
    ck_assert_ptr_null(broker_lease(fixture->broker, lease));
}
END_TEST

START_TEST(a_dump_says_the_same_as_the_log) {
    cleanup(fixture_freep) struct broker_fixture *fixture = recording(2, 40, &the_log);
    static struct log dump;
    uint64_t lease = fixture_get(fixture, 10, 1000, fixture_grow(2, 2, 30));
    struct request request = fixture_fixed(2, 39);

    fixture_attach(fixture, 10, 1000, lease);
    fixture_grow_by(fixture, 10, lease, 1, 6, false, 0);
    fixture_get(fixture, 11, 1001, fixture_fixed(1, 3));
    fixture_ask(fixture, 12, 1002, &request, 1);
    dump.n = 0;
    fixture_dump(fixture, (void (*)(void *, const struct record *))note,
                 &(struct broker_fixture){ .userdata = &dump });
    ck_assert_uint_ge(dump.n, 5);
    start_again(fixture, &dump, 2, 40, 1);
    ck_assert_uint_eq(broker_lease(fixture->broker, lease)->shares[1].held_bytes, 6 * GIB);
    ck_assert_uint_eq(fixture_ask(fixture, 12, 1002, &request, 1).place, 1);
}
END_TEST

START_TEST(lost_leases_are_rebuilt_by_the_rules) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(2, 40);
    static const struct fixture_row rows[] = {
        { .pid = 10, .used_gib = 6 },           { .pid = 11, .used_gib = 2 },
        { .pid = 20, .used_gib = 5 },           { .pid = 30, .gpu = 1, .used_gib = 21 },
        { .pid = 31, .used_gib = 20 },          { .pid = 33, .gpu = 1, .used_gib = 1 },
        { .pid = 34, .gpu = 1, .used_gib = 1 }, { .pid = 35, .gpu = 1, .used_gib = 1 },
        { .pid = 36, .gpu = 1, .used_gib = 1 },
    };
    uint64_t theirs, ours;

    broker_books_lost(fixture->broker);
    broker_grace_begin(fixture->broker, fixture->now);
    fixture->policy.defaults.has =
        POLICY_HAS(quota_bytes) | POLICY_HAS(quota_byte_seconds) | POLICY_HAS(max_leases);
    fixture->policy.defaults.quota_bytes = 20 * GIB;
    fixture->policy.defaults.quota_byte_seconds = 100;
    fixture->policy.defaults.max_leases = 2;
    ck_assert_int_eq(broker_policy_set(fixture->broker, &fixture->policy, fixture->now), 0);
    fixture_sample(fixture, rows, ELEMENTSOF(rows));

    ck_assert_int_eq(come_back(fixture, 10, 1000, 7, 0, 6).kind, VERDICT_GRANT);
    ck_assert_str_eq(fixture->event, "attached");
    ck_assert_uint_eq(broker_lease(fixture->broker, 7)->shares[0].held_bytes, 6 * GIB);
    ck_assert_uint_eq(broker_lease(fixture->broker, 7)->shares[0].limit_bytes, 20 * GIB);
    /* The lease has been made again: its other processes join it. */
    ck_assert_int_eq(come_back(fixture, 11, 1000, 7, 0, 2).kind, VERDICT_GRANT);
    ck_assert_uint_eq(broker_lease(fixture->broker, 7)->shares[0].held_bytes, 8 * GIB);

    /* Another user that calls its lease 7 gets one of its own, and no part of this one. */
    theirs = come_back(fixture, 20, 1001, 7, 0, 5).lease;
    ck_assert_uint_ne(theirs, 7);
    ck_assert_uint_eq(broker_lease(fixture->broker, theirs)->uid, 1001);
    ck_assert_int_eq(fixture_grow_by(fixture, 20, 7, 0, 0, false, 0).kind, VERDICT_GRANT);
    ck_assert_uint_eq(fixture_grow_by(fixture, 20, 7, 0, 0, false, 0).held_bytes, 5 * GIB);
    ck_assert_uint_eq(broker_lease(fixture->broker, 7)->shares[0].held_bytes, 8 * GIB);

    ck_assert_int_eq(come_back(fixture, 30, 1002, 8, 1, 21).refusal, REFUSAL_DENIED);
    ck_assert_int_eq(come_back(fixture, 31, 1003, 9, 0, 20).kind, VERDICT_GRANT);
    ck_assert_int_eq(come_back(fixture, 33, 1005, 1 + (UINT64_C(1) << 53), 1, 1).refusal,
                     REFUSAL_NOT_FOUND);
    ck_assert_int_eq(fixture_attach(fixture, 34, 1006, 11).refusal, REFUSAL_NOT_FOUND);
    fixture->spent_byte_seconds = 100;
    ck_assert_int_eq(come_back(fixture, 35, 1007, 12, 1, 1).refusal, REFUSAL_DENIED);
    fixture->spent_byte_seconds = 0;

    fixture_pass(fixture, fixture->policy.grace_usec);
    ck_assert_int_eq(come_back(fixture, 36, 1008, 13, 1, 1).refusal, REFUSAL_NOT_FOUND);
    ours = fixture_get(fixture, 37, 1009, fixture_fixed(1, 1));
    ck_assert_uint_gt(ours, theirs);
}
END_TEST

START_TEST(each_rule_holds_for_a_lease_that_is_rebuilt) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(3, 40);
    struct broker_peer peer = fixture_peer(10, 1000);
    struct broker_held held[] = { { fixture_gpu(0), 4 * GIB }, { fixture_gpu(0), 4 * GIB } };
    struct broker_attach attach = { .lease = 7, .held = held, .n_held = 2 };
    struct policy_rules *rules = &fixture->policy.defaults;
    struct device_facts device = fixture_make(0, 40);
    static const struct fixture_row rows[] = {
        { .pid = 10, .gpu = 0, .used_gib = 4 },
        { .pid = 10, .gpu = 1, .used_gib = 4 },
        { .pid = 11, .gpu = 0, .used_gib = 4 },
        { .pid = 12, .gpu = 1, .used_gib = 4 },
    };
    struct verdict verdict;

#define DENIED_BY(words)                                                                           \
    do {                                                                                           \
        ck_assert_int_eq(broker_policy_set(fixture->broker, &fixture->policy, fixture->now), 0);   \
        ck_assert_int_eq(broker_attach(fixture->broker, &peer, &attach, fixture->now, &verdict),   \
                         0);                                                                       \
        ck_assert_int_eq(verdict.kind, VERDICT_DENY);                                              \
        ck_assert_msg(strstr(verdict.reason, words), "%s", verdict.reason);                        \
        fixture_check(fixture);                                                                    \
        *rules = (struct policy_rules){ 0 };                                                       \
    } while (0)

    broker_books_lost(fixture->broker);
    broker_grace_begin(fixture->broker, fixture->now);
    fixture_sample(fixture, rows, ELEMENTSOF(rows));
    DENIED_BY("is named twice");
    held[1].device = fixture_gpu(1);
    *rules = (struct policy_rules){ .has = POLICY_HAS(devices) };
    DENIED_BY("the administrator's rules do not let you use");
    *rules = (struct policy_rules){ .has = POLICY_HAS(require), .require = REQUIRE_SCOPE };
    DENIED_BY("the administrator requires a scope");
    *rules = (struct policy_rules){ .has = POLICY_HAS(quota_permyriad), .quota_permyriad = 999 };
    DENIED_BY("than the administrator's rules allow you");
    *rules = (struct policy_rules){ .has = POLICY_HAS(quota_bytes), .quota_bytes = 8 * GIB - 1 };
    DENIED_BY("more than is left of your quota");
    *rules = (struct policy_rules){ .has = POLICY_HAS(quota_devices), .quota_devices = 1 };
    DENIED_BY("more devices than your quota allows");
    *rules = (struct policy_rules){ .has = POLICY_HAS(max_leases) };
    DENIED_BY("you already have 0 leases");
    device.state = DEVICE_LOST;
    fixture_device(fixture, &device);
    DENIED_BY("a device of the lease no longer exists");
    device.state = DEVICE_READY;
    fixture_device(fixture, &device);
    held[0].device = fixture_gpu(2); /* of which the driver shows nothing */
    attach.n_held = 1;
    DENIED_BY("the driver shows no memory of this process");
    attach.n_held = 0;
    DENIED_BY("the client did not say what it holds");

    /* As much as the rules allow, in two leases on the same two devices. */
    *rules = (struct policy_rules){ .has = POLICY_HAS(quota_devices) | POLICY_HAS(quota_bytes) |
                                           POLICY_HAS(quota_permyriad) | POLICY_HAS(require),
                                    .quota_devices = 2,
                                    .quota_bytes = 12 * GIB,
                                    .quota_permyriad = 2000,
                                    .require = REQUIRE_SCOPE };
    ck_assert_int_eq(broker_policy_set(fixture->broker, &fixture->policy, fixture->now), 0);
    held[0].device = fixture_gpu(0);
    attach.n_held = 2;
    attach.is_in_scope = true;
    ck_assert_int_eq(broker_attach(fixture->broker, &peer, &attach, fixture->now, &verdict), 0);
    ck_assert_int_eq(verdict.kind, VERDICT_GRANT);
    ck_assert_uint_eq(broker_lease(fixture->broker, 7)->shares[1].held_bytes, 4 * GIB);
    ck_assert_uint_eq(broker_lease(fixture->broker, 7)->shares[1].limit_bytes, 8 * GIB);
    peer = fixture_peer(11, 1000);
    attach.lease = 8;
    attach.n_held = 1;
    ck_assert_int_eq(broker_attach(fixture->broker, &peer, &attach, fixture->now, &verdict), 0);
    ck_assert_int_eq(verdict.kind, VERDICT_GRANT);
    fixture_check(fixture);
    peer = fixture_peer(12, 1000);
    attach.lease = 9;
    held[0].device = fixture_gpu(1);
    *rules = (struct policy_rules){ .has = POLICY_HAS(quota_bytes), .quota_bytes = 12 * GIB };
    DENIED_BY("more than is left of your quota");
    *rules = (struct policy_rules){ .has = POLICY_HAS(quota_permyriad), .quota_permyriad = 1999 };
    DENIED_BY("than the administrator's rules allow you");
    *rules = (struct policy_rules){ .has = POLICY_HAS(quota_devices), .quota_devices = 1 };
    ck_assert_int_eq(broker_policy_set(fixture->broker, &fixture->policy, fixture->now), 0);
    ck_assert_int_eq(broker_attach(fixture->broker, &peer, &attach, fixture->now, &verdict), 0);
    ck_assert_int_eq(verdict.kind, VERDICT_GRANT); /* it has that device already */
#undef DENIED_BY
}
END_TEST

/* Nor does who claims a large number have everybody's next leases number on from there, where JSON
 * readers take two numbers for one and no lease could come back a second time. */
START_TEST(a_number_that_is_claimed_makes_no_others_large) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(1, 40);
    static const struct fixture_row rows[] = { { .pid = 10, .used_gib = 1 },
                                               { .pid = 11, .used_gib = 1 } };
    const uint64_t large = UINT64_C(1) << 53;
    uint64_t lease;

    broker_books_lost(fixture->broker);
    broker_grace_begin(fixture->broker, fixture->now);
    fixture_sample(fixture, rows, ELEMENTSOF(rows));
    ck_assert_int_eq(come_back(fixture, 10, 1000, 4000000, 0, 1).kind, VERDICT_GRANT);
    ck_assert_ptr_nonnull(broker_lease(fixture->broker, 4000000));
    lease = come_back(fixture, 11, 1001, large, 0, 1).lease;
    ck_assert_uint_gt(lease, 4000000);
    ck_assert_uint_lt(lease, 5000000);
    /* It may go on calling it so. */
    ck_assert_uint_eq(fixture_grow_by(fixture, 11, large, 0, 0, false, 0).held_bytes, GIB);
    fixture_pass(fixture, fixture->policy.grace_usec);
    ck_assert_uint_lt(fixture_get(fixture, 12, 1002, fixture_fixed(1, 1)), 5000000);
}
END_TEST

/* A process that forges a lease gets no byte that NVML does not show, and no byte twice. */
START_TEST(lost_leases_are_rebuilt_as_far_as_nvml_shows) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(2, 40);
    static const struct fixture_row rows[] = {
        { .pid = 10, .used_gib = 6 },
        { .pid = 11, .gpu = 1, .used_gib = 8 },
    };

    broker_books_lost(fixture->broker);
    broker_grace_begin(fixture->broker, fixture->now);
    ck_assert_int_eq(come_back(fixture, 10, 1000, 7, 0, 6).refusal, REFUSAL_NOT_FOUND);
    fixture_sample(fixture, rows, ELEMENTSOF(rows));
    ck_assert_int_eq(come_back(fixture, 12, 1000, 7, 0, 30).refusal, REFUSAL_NOT_FOUND);
    ck_assert_int_eq(come_back(fixture, 11, 1001, 8, 0, 30).refusal, REFUSAL_NOT_FOUND);
    ck_assert_int_eq(come_back(fixture, 11, 1001, 8, 1, 0).refusal, REFUSAL_NOT_FOUND);
    ck_assert_uint_eq(fixture_left(fixture, 0), 34);

    ck_assert_int_eq(come_back(fixture, 10, 1000, 7, 0, 30).kind, VERDICT_GRANT);
    ck_assert_uint_eq(broker_lease(fixture->broker, 7)->shares[0].held_bytes, 6 * GIB);
    ck_assert_uint_eq(broker_lease(fixture->broker, 7)->shares[0].guaranteed_bytes, 6 * GIB);
    ck_assert_uint_eq(fixture_left(fixture, 0), 34);
    ck_assert_int_eq(come_back(fixture, 10, 1000, 9, 0, 30).refusal, REFUSAL_NOT_FOUND);
    /* A process that joins brings what NVML shows of it, which is nothing there. */
    ck_assert_int_eq(come_back(fixture, 11, 1000, 7, 0, 20).kind, VERDICT_GRANT);
    ck_assert_uint_eq(broker_lease(fixture->broker, 7)->shares[0].held_bytes, 6 * GIB);
    fixture_sample(fixture, rows, ELEMENTSOF(rows));
    ck_assert_uint_eq(fixture_left(fixture, 0), 34);
}
END_TEST

/* A drain is for new ones. */
START_TEST(lost_leases_come_back_where_new_ones_may_not) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(2, 40);
    static const struct fixture_row rows[] = { { .pid = 10, .used_gib = 6 },
                                               { .pid = 11, .used_gib = 6 } };
    struct device_facts device = fixture_make(0, 40);

    broker_books_lost(fixture->broker);
    broker_grace_begin(fixture->broker, fixture->now);
    fixture_sample(fixture, rows, ELEMENTSOF(rows));
    device.state = DEVICE_DRAINING;
    fixture_device(fixture, &device);
    ck_assert_int_eq(come_back(fixture, 10, 1000, 7, 0, 6).kind, VERDICT_GRANT);
    device.state = DEVICE_LOST;
    fixture_device(fixture, &device);
    ck_assert_int_eq(come_back(fixture, 11, 1001, 8, 0, 6).refusal, REFUSAL_NO_DEVICE);
}
END_TEST

START_TEST(a_lease_that_ends_before_its_owner_leaves_no_record) {
    cleanup(fixture_freep) struct broker_fixture *fixture = recording(1, 40, &the_log);
    uint64_t lease = fixture_get(fixture, 10, 1000, fixture_fixed(1, 8));
    int n_kept = 0;

    broker_confined(fixture->broker, lease, "allot-1.scope", "/user.slice/allot-1.scope", 1 << 2,
                    fixture->now);
    broker_vacated(fixture->broker, lease,
                   fixture->now); /* gpuctl, which acquired it, still runs */
    ck_assert_ptr_null(broker_lease(fixture->broker, lease));
    for (size_t i = 0; i < the_log.n; i++)
        if (the_log.records[i].kind == RECORD_HOLDER)
            n_kept = 1; /* an upsert: the last word counts */
        else if (the_log.records[i].kind == RECORD_HOLDER_GONE)
            n_kept = 0;
    ck_assert_int_eq(n_kept, 0);
    start_again(fixture, &the_log, 1, 40, 1);
    ck_assert_uint_eq(broker_grace_until(fixture->broker), 0);
}
END_TEST

START_TEST(contradictions_are_refused) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(1, 40);
    struct record record = { .kind = RECORD_HOLDER };

    record.holder = (struct record_holder){ .lease = 5, .pid = 3, .attached_usec = 1 };
    ck_assert_int_lt(broker_restore(fixture->broker, &record, fixture->now), 0);
    record = (struct record){ .kind = RECORD_LEASE };
    ck_assert_int_lt(broker_restore(fixture->broker, &record, fixture->now), 0);
    record.lease = (struct record_lease){ .id = 1, .mode = LEASE_GROW, .n_shares = 2 };
    record.lease.shares[0].device = record.lease.shares[1].device = fixture_gpu(0);
    ck_assert_int_lt(broker_restore(fixture->broker, &record, fixture->now), 0);
    record.lease.n_shares = 1;
    record.lease.shares[0].guaranteed_bytes = 1;
    ck_assert_int_lt(broker_restore(fixture->broker, &record, fixture->now), 0);
    record.kind = (enum record_kind)99;
    ck_assert_int_lt(broker_restore(fixture->broker, &record, fixture->now), 0);
    fixture_check(fixture);
    fixture_get(fixture, 10, 1000, fixture_exclusive(1));
}
END_TEST

/* The daemon ended after the record of a grant, before its reply. */
START_TEST(a_client_that_missed_its_grant_gets_it_by_asking_again) {
    cleanup(fixture_freep) struct broker_fixture *fixture = recording(1, 40, &the_log);
    struct request request = fixture_fixed(1, 30), other = fixture_fixed(1, 31);
    uint64_t lease = fixture_get(fixture, 10, 1000, request), heard;
    struct verdict verdict;

    heard = fixture_get(fixture, 11, 1000, fixture_fixed(1, 5));
    broker_answered(fixture->broker, heard);
    start_again(fixture, &the_log, 1, 40, 1);
    ck_assert_int_eq(fixture_ask(fixture, 12, 1000, &request, 1).kind, VERDICT_WAIT);
    ck_assert_int_eq(fixture_ask(fixture, 10, 1000, &other, 2).kind, VERDICT_WAIT);
    ck_assert_int_eq(fixture_ask(fixture, 10, 1007, &request, 6).kind, VERDICT_WAIT);
    request.has_token = true;
    request.token[0] = 7;
    verdict = fixture_ask(fixture, 10, 1000, &request, 3);
    ck_assert_int_eq(verdict.kind, VERDICT_GRANT);
    ck_assert_uint_eq(verdict.lease, lease);
    ck_assert_uint_eq(broker_lease(fixture->broker, lease)->token[0], 7);
    ck_assert_uint_eq(fixture_left(fixture, 0), 5);
    /* Once: a request for another one waits for it. */
    ck_assert_int_eq(fixture_ask(fixture, 10, 1000, &request, 4).kind, VERDICT_WAIT);
    request = fixture_fixed(1, 5);
    ck_assert_int_eq(fixture_ask(fixture, 11, 1000, &request, 5).kind, VERDICT_WAIT);
}
END_TEST

START_TEST(a_grant_that_ends_is_not_given_again) {
    cleanup(fixture_freep) struct broker_fixture *fixture = recording(1, 40, &the_log);
    struct request request = fixture_fixed(1, 30);
    uint64_t lease = fixture_get(fixture, 10, 1000, request);

    start_again(fixture, &the_log, 1, 40, 1);
    /* It is told to end, and stays until its process does. */
    broker_end(fixture->broker, lease, "the administrator says so", fixture->now);
    fixture_check(fixture);
    ck_assert_ptr_nonnull(broker_lease(fixture->broker, lease));
    ck_assert_int_eq(fixture_ask(fixture, 10, 1000, &request, 1).kind, VERDICT_WAIT);
}
END_TEST

START_TEST(a_waiter_for_a_drained_device_has_its_place_again) {
    cleanup(fixture_freep) struct broker_fixture *fixture = recording(1, 40, &the_log);
    struct request request = fixture_exclusive(1), other = fixture_fixed(1, 1);
    struct device_facts device = fixture_make(0, 40);

    fixture_get(fixture, 10, 1000, fixture_fixed(1, 10));
    ck_assert_int_eq(fixture_ask(fixture, 11, 1001, &request, 1).kind, VERDICT_WAIT);
    ck_assert_int_eq(fixture_ask(fixture, 12, 1002, &request, 2).kind, VERDICT_WAIT);
    start_again(fixture, &the_log, 1, 40, 1);
    device.state = DEVICE_DRAINING;
    fixture_device(fixture, &device);
    fixture_gone(fixture, 10);
    /* The second comes back before the first; a new process is told that nothing can be had. */
    ck_assert_uint_eq(fixture_ask(fixture, 12, 1002, &request, 2).place, 1);
    ck_assert_int_eq(fixture_ask(fixture, 13, 1001, &other, 3).refusal, REFUSAL_DRAINING);
    ck_assert_int_eq(fixture_ask(fixture, 11, 1001, &other, 3).refusal, REFUSAL_DRAINING);
    ck_assert_int_eq(fixture_ask(fixture, 11, 1001, &request, 1).kind, VERDICT_WAIT);
    fixture_turn(fixture);
    ck_assert_uint_eq(fixture->n_told, 0);
    device.state = DEVICE_READY;
    fixture_device(fixture, &device);
    fixture_turn(fixture);
    ck_assert_ptr_nonnull(fixture_told(fixture, 1));
    ck_assert_int_eq(fixture_told(fixture, 1)->kind, VERDICT_GRANT);
    ck_assert_ptr_null(fixture_told(fixture, 2));
}
END_TEST

SUITE("recover", each_rule_holds_for_a_lease_that_is_rebuilt, a_grant_that_ends_is_not_given_again,
      a_waiter_for_a_drained_device_has_its_place_again, leases_and_holders_are_there_again,
      a_lease_that_ends_before_its_owner_leaves_no_record,
      nothing_is_granted_in_the_grace_but_what_was_guaranteed,
      no_holder_comes_back_with_more_than_was_recorded,
      places_in_the_queue_are_kept_for_clients_that_ask_again, what_was_releasing_is_still,
      a_process_that_died_meanwhile_ends_the_grace, a_dump_says_the_same_as_the_log,
      lost_leases_come_back_where_new_ones_may_not, lost_leases_are_rebuilt_by_the_rules,
      a_number_that_is_claimed_makes_no_others_large, lost_leases_are_rebuilt_as_far_as_nvml_shows,
      contradictions_are_refused, a_client_that_missed_its_grant_gets_it_by_asking_again)
