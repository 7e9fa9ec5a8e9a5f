/* SPDX-License-Identifier: Apache-2.0 */
/* A daemon that starts again: what was recorded, who comes back, and what was lost. */
#include <stdlib.h>
#include <string.h>

#include "tests/support/daemon/broker/broker_fixture.h"
#include "tests/support/suite.h"

#define RECORDS_MAX 512

struct log {
    size_t n;
    struct record records[RECORDS_MAX];
};

static void note(struct desk *desk, const struct record *record) {
    struct log *log = desk->userdata;

    ck_assert_uint_lt(log->n, RECORDS_MAX);
    log->records[log->n++] = *record;
}

static struct desk *recording(unsigned n, uint64_t gib, struct log *log) {
    struct desk *desk = desk_new(n, gib);

    log->n = 0;
    desk->userdata = log;
    desk->record = note;
    return desk;
}

/* The next life: everything that was recorded, as a log tells it, twice if asked. */
static void start_again(struct desk *desk, struct log *log, unsigned n, uint64_t gib,
                        unsigned times) {
    size_t n_records = log->n;

    desk->record = NULL;
    desk->n_told = 0;
    desk_restart(desk);
    for (unsigned time = 0; time < times; time++)
        for (size_t i = 0; i < n_records; i++)
            ck_assert_int_eq(broker_restore(desk->broker, &log->records[i], desk->now), 0);
    desk_check(desk);
    desk_devices(desk, n, gib);
    broker_grace_begin(desk->broker, desk->now);
    desk_turn(desk);
    log->n = 0;
    desk->record = note;
}

static struct verdict come_back(struct desk *desk, pid_t pid, uid_t uid, uint64_t lease,
                                unsigned gpu, uint64_t gib) {
    struct broker_peer peer = desk_peer(pid, uid);
    struct broker_held held = { .device = desk_gpu(gpu), .bytes = gib * GIB };
    struct broker_attach attach = { .lease = lease, .held = &held, .n_held = 1 };
    struct verdict verdict = { 0 };

    ck_assert_int_eq(broker_attach(desk->broker, &peer, &attach, desk->now, &verdict), 0);
    desk_check(desk);
    return verdict;
}

static struct log the_log;

START_TEST(leases_and_holders_are_there_again) {
    for (unsigned times = 1; times <= 2; times++) {
        cleanup(desk_freep) struct desk *desk = recording(2, 40, &the_log);
        uint64_t lease = desk_get(desk, 10, 1000, desk_grow(2, 2, 30)), next;
        struct lease *again;

        desk_attach(desk, 10, 1000, lease);
        desk_grow_by(desk, 10, lease, 0, 6, false, 0);
        next = desk_get(desk, 11, 1001, desk_fixed(1, 8));
        start_again(desk, &the_log, 2, 40, times);

        again = broker_lease(desk->broker, lease);
        ck_assert_ptr_nonnull(again);
        ck_assert_uint_eq(again->uid, 1000);
        ck_assert(again->declares_max);
        ck_assert_uint_eq(again->shares[0].held_bytes, 6 * GIB);
        ck_assert_uint_eq(again->shares[1].guaranteed_bytes, 2 * GIB);
        ck_assert_uint_eq(desk_left(desk, 0) + desk_left(desk, 1), 80 - 6 - 2 - 8);
        ck_assert_uint_ne(broker_grace_until(desk->broker), 0);

        ck_assert_int_eq(come_back(desk, 10, 1000, lease, 0, 6).kind, VERDICT_GRANT);
        desk_turn(desk);
        ck_assert_uint_eq(broker_grace_until(desk->broker), 0);
        ck_assert_ptr_nonnull(broker_lease(desk->broker, next));
        ck_assert_uint_gt(desk_get(desk, 12, 1002, desk_fixed(1, 1)), next);
        desk_gone(desk, 11);
        ck_assert_ptr_null(broker_lease(desk->broker, next));
    }
}
END_TEST

START_TEST(nothing_is_granted_in_the_grace_but_what_was_guaranteed) {
    cleanup(desk_freep) struct desk *desk = recording(1, 40, &the_log);
    uint64_t a = desk_get(desk, 10, 1000, desk_grow(1, 5, 0));
    uint64_t b = desk_get(desk, 11, 1001, desk_grow(1, 0, 0));
    struct request request = desk_fixed(1, 1);

    desk_attach(desk, 10, 1000, a);
    desk_attach(desk, 11, 1001, b);
    start_again(desk, &the_log, 1, 40, 1);
    ck_assert_int_eq(come_back(desk, 10, 1000, a, 0, 0).kind, VERDICT_GRANT);
    ck_assert_int_eq(desk_grow_by(desk, 10, a, 0, 5, false, 1).kind, VERDICT_GRANT);
    ck_assert_int_eq(desk_grow_by(desk, 10, a, 0, 1, false, 1).refusal, REFUSAL_BUSY);
    ck_assert_int_eq(desk_grow_by(desk, 10, a, 0, 1, true, 2).kind, VERDICT_WAIT);
    ck_assert_int_eq(desk_ask(desk, 12, 1002, &request, 3).kind, VERDICT_WAIT);
    desk_turn(desk);
    ck_assert_uint_eq(desk->n_told, 0);
    desk_pass(desk, desk->policy.grace_usec);
    ck_assert_int_eq(desk_told(desk, 2)->kind, VERDICT_GRANT);
    ck_assert_int_eq(desk_told(desk, 3)->kind, VERDICT_GRANT);
    /* Nobody came back as 11, but it lives and acquired the lease. */
    ck_assert_ptr_nonnull(broker_lease(desk->broker, b));
    ck_assert_uint_eq(broker_lease(desk->broker, b)->n_holders, 0);
}
END_TEST

START_TEST(nobody_comes_back_with_more_than_was_recorded) {
    cleanup(desk_freep) struct desk *desk = recording(2, 40, &the_log);
    const char *zero = "0";
    struct request request = desk_grow(0, 0, 0);
    uint64_t lease;

    request.devices = &zero;
    request.n_devices = 1;
    lease = desk_get(desk, 10, 1000, request);
    desk_attach(desk, 10, 1000, lease);
    desk_grow_by(desk, 10, lease, 0, 6, false, 0);
    start_again(desk, &the_log, 2, 40, 1);
    ck_assert_int_eq(come_back(desk, 10, 1000, lease, 0, 7).refusal, REFUSAL_DENIED);
    ck_assert_int_eq(come_back(desk, 10, 1000, lease, 1, 1).refusal, REFUSAL_NO_DEVICE);
    ck_assert_int_eq(come_back(desk, 20, 1000, lease, 0, 1).refusal, REFUSAL_DENIED);
    ck_assert_int_eq(come_back(desk, 10, 1001, lease, 0, 6).refusal, REFUSAL_NOT_FOUND);
    ck_assert_int_eq(come_back(desk, 10, 1000, lease + 9, 0, 6).refusal, REFUSAL_NOT_FOUND);
    ck_assert_int_eq(come_back(desk, 10, 1000, lease, 0, 4).kind, VERDICT_GRANT);
    ck_assert_uint_eq(desk_left(desk, 0), 36);
}
END_TEST

START_TEST(places_in_the_queue_are_kept_for_who_asks_again) {
    cleanup(desk_freep) struct desk *desk = recording(1, 40, &the_log);
    uint64_t lease = desk_get(desk, 10, 1000, desk_fixed(1, 40));
    struct request request = desk_fixed(1, 30), other = desk_fixed(1, 31);

    desk_attach(desk, 10, 1000, lease);
    ck_assert_int_eq(desk_ask(desk, 11, 1001, &request, 1).kind, VERDICT_WAIT);
    desk->now.usec += SECS;
    ck_assert_int_eq(desk_ask(desk, 12, 1002, &request, 2).kind, VERDICT_WAIT);
    desk->now.usec += SECS;
    start_again(desk, &the_log, 1, 40, 2);
    ck_assert_uint_eq(desk_ask(desk, 13, 1003, &request, 3).place, 1);
    ck_assert_uint_eq(desk_ask(desk, 12, 1002, &request, 2).place, 1);
    ck_assert_uint_eq(desk_ask(desk, 11, 1001, &request, 1).place, 1);
    ck_assert_uint_eq(desk_ask(desk, 14, 1004, &other, 4).place, 4);
    come_back(desk, 10, 1000, lease, 0, 0);
    desk_turn(desk);
    desk_gone(desk, 10);
    ck_assert_int_eq(desk_told(desk, 1)->kind, VERDICT_GRANT);
    ck_assert_ptr_null(desk_told(desk, 2));
}
END_TEST

START_TEST(what_was_releasing_is_still) {
    cleanup(desk_freep) struct desk *desk = recording(1, 40, &the_log);
    uint64_t lease = desk_get(desk, 10, 1000, desk_fixed(1, 40));
    struct gpuid gpu = desk_gpu(0);

    desk_attach(desk, 10, 1000, lease);
    desk_grow_by(desk, 10, lease, 0, 30, false, 0);
    desk_gone(desk, 10);
    ck_assert_ptr_null(broker_lease(desk->broker, lease));
    start_again(desk, &the_log, 1, 40, 2);
    ck_assert_uint_eq(broker_book(desk->broker, &gpu)->releasing_bytes, 30 * GIB);
    desk->now.usec += SECS;
    desk_sample(desk, NULL, 0);
    ck_assert_uint_eq(desk_left(desk, 0), 40);
}
END_TEST

START_TEST(a_process_that_died_meanwhile_ends_the_grace) {
    cleanup(desk_freep) struct desk *desk = recording(1, 40, &the_log);
    uint64_t lease = desk_get(desk, 10, 1000, desk_fixed(1, 10));
    struct request request = desk_fixed(1, 40);

    desk_attach(desk, 10, 1000, lease);
    ck_assert_int_eq(desk_ask(desk, 11, 1001, &request, 1).kind, VERDICT_WAIT);
    start_again(desk, &the_log, 1, 40, 1);
    ck_assert_uint_ne(broker_grace_until(desk->broker), 0);
    desk_gone(desk, 11);
    desk_gone(desk, 10);
    ck_assert_uint_eq(broker_grace_until(desk->broker), 0);
    ck_assert_ptr_null(broker_lease(desk->broker, lease));
}
END_TEST

START_TEST(a_dump_says_the_same_as_the_log) {
    cleanup(desk_freep) struct desk *desk = recording(2, 40, &the_log);
    static struct log dump;
    uint64_t lease = desk_get(desk, 10, 1000, desk_grow(2, 2, 30));
    struct request request = desk_fixed(2, 39);

    desk_attach(desk, 10, 1000, lease);
    desk_grow_by(desk, 10, lease, 1, 6, false, 0);
    desk_get(desk, 11, 1001, desk_fixed(1, 3));
    desk_ask(desk, 12, 1002, &request, 1);
    dump.n = 0;
    broker_dump(desk->broker, (void (*)(void *, const struct record *))note,
                &(struct desk){ .userdata = &dump });
    ck_assert_uint_ge(dump.n, 5);
    start_again(desk, &dump, 2, 40, 1);
    ck_assert_uint_eq(broker_lease(desk->broker, lease)->shares[1].held_bytes, 6 * GIB);
    ck_assert_uint_eq(desk_ask(desk, 12, 1002, &request, 1).place, 1);
}
END_TEST

START_TEST(lost_leases_are_rebuilt_by_the_rules) {
    cleanup(desk_freep) struct desk *desk = desk_new(2, 40);
    uint64_t theirs, ours;

    broker_books_lost(desk->broker);
    broker_grace_begin(desk->broker, desk->now);
    desk->policy.defaults.has =
        POLICY_HAS(quota_bytes) | POLICY_HAS(quota_byte_seconds) | POLICY_HAS(max_leases);
    desk->policy.defaults.quota_bytes = 20 * GIB;
    desk->policy.defaults.quota_byte_seconds = 100;
    desk->policy.defaults.max_leases = 2;
    ck_assert_int_eq(broker_policy_set(desk->broker, &desk->policy, desk->now), 0);

    ck_assert_int_eq(come_back(desk, 10, 1000, 7, 0, 6).kind, VERDICT_GRANT);
    ck_assert_str_eq(desk->event, "attached");
    ck_assert_uint_eq(broker_lease(desk->broker, 7)->shares[0].held_bytes, 6 * GIB);
    ck_assert_uint_eq(broker_lease(desk->broker, 7)->shares[0].limit_bytes, 20 * GIB);
    /* The lease has been made again: its other processes join it. */
    ck_assert_int_eq(come_back(desk, 11, 1000, 7, 0, 2).kind, VERDICT_GRANT);
    ck_assert_uint_eq(broker_lease(desk->broker, 7)->shares[0].held_bytes, 8 * GIB);

    /* Another user that calls its lease 7 gets one of its own, and no part of this one. */
    theirs = come_back(desk, 20, 1001, 7, 0, 5).lease;
    ck_assert_uint_ne(theirs, 7);
    ck_assert_uint_eq(broker_lease(desk->broker, theirs)->uid, 1001);
    ck_assert_int_eq(desk_grow_by(desk, 20, 7, 0, 0, false, 0).kind, VERDICT_GRANT);
    ck_assert_uint_eq(desk_grow_by(desk, 20, 7, 0, 0, false, 0).held_bytes, 5 * GIB);
    ck_assert_uint_eq(broker_lease(desk->broker, 7)->shares[0].held_bytes, 8 * GIB);

    ck_assert_int_eq(come_back(desk, 30, 1002, 8, 0, 21).refusal, REFUSAL_DENIED);
    ck_assert_int_eq(come_back(desk, 31, 1003, 9, 0, 20).kind, VERDICT_GRANT);
    ck_assert_int_eq(come_back(desk, 32, 1004, 10, 0, 10).refusal, REFUSAL_NO_MEMORY);
    ck_assert_int_eq(come_back(desk, 33, 1005, 1 + (UINT64_C(1) << 53), 1, 1).refusal,
                     REFUSAL_NOT_FOUND);
    ck_assert_int_eq(desk_attach(desk, 34, 1006, 11).refusal, REFUSAL_NOT_FOUND);
    desk->spent_byte_seconds = 100;
    ck_assert_int_eq(come_back(desk, 35, 1007, 12, 1, 1).refusal, REFUSAL_DENIED);
    desk->spent_byte_seconds = 0;

    desk_pass(desk, desk->policy.grace_usec);
    ck_assert_int_eq(come_back(desk, 36, 1008, 13, 1, 1).refusal, REFUSAL_NOT_FOUND);
    ours = desk_get(desk, 37, 1009, desk_fixed(1, 1));
    ck_assert_uint_gt(ours, theirs);
}
END_TEST

/* A drain is for new ones. */
START_TEST(lost_leases_come_back_where_nobody_new_may) {
    cleanup(desk_freep) struct desk *desk = desk_new(2, 40);
    struct device device = desk_make(0, 40);

    broker_books_lost(desk->broker);
    broker_grace_begin(desk->broker, desk->now);
    device.state = DEVICE_DRAINING;
    desk_device(desk, &device);
    ck_assert_int_eq(come_back(desk, 10, 1000, 7, 0, 6).kind, VERDICT_GRANT);
    device.state = DEVICE_LOST;
    desk_device(desk, &device);
    ck_assert_int_eq(come_back(desk, 11, 1001, 8, 0, 6).refusal, REFUSAL_NO_DEVICE);
}
END_TEST

START_TEST(a_lease_that_ends_before_its_owner_leaves_no_record) {
    cleanup(desk_freep) struct desk *desk = recording(1, 40, &the_log);
    uint64_t lease = desk_get(desk, 10, 1000, desk_fixed(1, 8));
    int n_kept = 0;

    broker_confined(desk->broker, lease, "allot-1.scope", "/user.slice/allot-1.scope", 1 << 2,
                    desk->now);
    broker_vacated(desk->broker, lease, desk->now); /* gpuctl, who acquired it, still runs */
    ck_assert_ptr_null(broker_lease(desk->broker, lease));
    for (size_t i = 0; i < the_log.n; i++)
        if (the_log.records[i].kind == RECORD_HOLDER)
            n_kept = 1; /* an upsert: the last word counts */
        else if (the_log.records[i].kind == RECORD_HOLDER_GONE)
            n_kept = 0;
    ck_assert_int_eq(n_kept, 0);
    start_again(desk, &the_log, 1, 40, 1);
    ck_assert_uint_eq(broker_grace_until(desk->broker), 0);
}
END_TEST

START_TEST(contradictions_are_refused) {
    cleanup(desk_freep) struct desk *desk = desk_new(1, 40);
    struct record record = { .kind = RECORD_HOLDER };

    record.holder = (struct record_holder){ .lease = 5, .pid = 3, .attached_usec = 1 };
    ck_assert_int_lt(broker_restore(desk->broker, &record, desk->now), 0);
    record = (struct record){ .kind = RECORD_LEASE };
    ck_assert_int_lt(broker_restore(desk->broker, &record, desk->now), 0);
    record.lease = (struct record_lease){ .id = 1, .n_shares = 2 };
    record.lease.shares[0].device = record.lease.shares[1].device = desk_gpu(0);
    ck_assert_int_lt(broker_restore(desk->broker, &record, desk->now), 0);
    record.lease.n_shares = 1;
    record.lease.shares[0].guaranteed_bytes = 1;
    ck_assert_int_lt(broker_restore(desk->broker, &record, desk->now), 0);
    record.kind = (enum record_kind)99;
    ck_assert_int_lt(broker_restore(desk->broker, &record, desk->now), 0);
    desk_check(desk);
    desk_get(desk, 10, 1000, desk_exclusive(1));
}
END_TEST

/* The daemon ended after the record of a grant, before its reply. */
START_TEST(who_did_not_hear_of_its_grant_gets_it_by_asking_again) {
    cleanup(desk_freep) struct desk *desk = recording(1, 40, &the_log);
    struct request request = desk_fixed(1, 30), other = desk_fixed(1, 31);
    uint64_t lease = desk_get(desk, 10, 1000, request), heard;
    struct verdict verdict;

    heard = desk_get(desk, 11, 1000, desk_fixed(1, 5));
    broker_answered(desk->broker, heard);
    start_again(desk, &the_log, 1, 40, 1);
    ck_assert_int_eq(desk_ask(desk, 12, 1000, &request, 1).kind, VERDICT_WAIT);
    ck_assert_int_eq(desk_ask(desk, 10, 1000, &other, 2).kind, VERDICT_WAIT);
    request.has_token = true;
    request.token[0] = 7;
    verdict = desk_ask(desk, 10, 1000, &request, 3);
    ck_assert_int_eq(verdict.kind, VERDICT_GRANT);
    ck_assert_uint_eq(verdict.lease, lease);
    ck_assert_uint_eq(broker_lease(desk->broker, lease)->token[0], 7);
    ck_assert_uint_eq(desk_left(desk, 0), 5);
    /* Once: who asks for another one waits for it. */
    ck_assert_int_eq(desk_ask(desk, 10, 1000, &request, 4).kind, VERDICT_WAIT);
    request = desk_fixed(1, 5);
    ck_assert_int_eq(desk_ask(desk, 11, 1000, &request, 5).kind, VERDICT_WAIT);
}
END_TEST

START_TEST(who_waited_for_a_device_that_is_drained_has_its_place_again) {
    cleanup(desk_freep) struct desk *desk = recording(1, 40, &the_log);
    struct request request = desk_exclusive(1), other = desk_fixed(1, 1);
    struct device device = desk_make(0, 40);

    desk_get(desk, 10, 1000, desk_fixed(1, 10));
    ck_assert_int_eq(desk_ask(desk, 11, 1001, &request, 1).kind, VERDICT_WAIT);
    ck_assert_int_eq(desk_ask(desk, 12, 1002, &request, 2).kind, VERDICT_WAIT);
    start_again(desk, &the_log, 1, 40, 1);
    device.state = DEVICE_DRAINING;
    desk_device(desk, &device);
    desk_gone(desk, 10);
    /* The second comes back before the first; who is new is told that nothing can be had. */
    ck_assert_uint_eq(desk_ask(desk, 12, 1002, &request, 2).place, 1);
    ck_assert_int_eq(desk_ask(desk, 13, 1001, &other, 3).refusal, REFUSAL_DRAINING);
    ck_assert_int_eq(desk_ask(desk, 11, 1001, &other, 3).refusal, REFUSAL_DRAINING);
    ck_assert_int_eq(desk_ask(desk, 11, 1001, &request, 1).kind, VERDICT_WAIT);
    desk_turn(desk);
    ck_assert_uint_eq(desk->n_told, 0);
    device.state = DEVICE_READY;
    desk_device(desk, &device);
    desk_turn(desk);
    ck_assert_ptr_nonnull(desk_told(desk, 1));
    ck_assert_int_eq(desk_told(desk, 1)->kind, VERDICT_GRANT);
    ck_assert_ptr_null(desk_told(desk, 2));
}
END_TEST

SUITE("recover", who_waited_for_a_device_that_is_drained_has_its_place_again,
      leases_and_holders_are_there_again, a_lease_that_ends_before_its_owner_leaves_no_record,
      nothing_is_granted_in_the_grace_but_what_was_guaranteed,
      nobody_comes_back_with_more_than_was_recorded,
      places_in_the_queue_are_kept_for_who_asks_again, what_was_releasing_is_still,
      a_process_that_died_meanwhile_ends_the_grace, a_dump_says_the_same_as_the_log,
      lost_leases_come_back_where_nobody_new_may, lost_leases_are_rebuilt_by_the_rules,
      contradictions_are_refused, who_did_not_hear_of_its_grant_gets_it_by_asking_again)
