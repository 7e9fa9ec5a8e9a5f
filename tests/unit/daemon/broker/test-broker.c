/* SPDX-License-Identifier: Apache-2.0 */
/* Leases, their modes and their ends. */
#include <string.h>

#include "tests/support/daemon/broker/broker_fixture.h"
#include "tests/support/suite.h"

START_TEST(two_shares_of_40_percent_fit_and_a_third_waits) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(2, 40);
    struct request request = fixture_share(1, 4000);
    struct verdict verdict;
    uint64_t first;

    request.devices = (const char *[]){ "0" };
    request.n_devices = 1;
    first = fixture_get(fixture, 10, 1000, request);
    fixture_get(fixture, 11, 1001, request);
    verdict = fixture_ask(fixture, 12, 1002, &request, 3);
    ck_assert_int_eq(verdict.kind, VERDICT_WAIT);
    ck_assert_uint_eq(verdict.place, 1);

    fixture_release(fixture, 1000, first);
    ck_assert_ptr_nonnull(fixture_told(fixture, 3));
    ck_assert_int_eq(fixture_told(fixture, 3)->kind, VERDICT_GRANT);
}
END_TEST

START_TEST(a_device_that_requires_more_than_a_job_can_have_is_not_for_it) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(2, 40);
    struct policy_device strict = { .devices = { .names = (char *[]){ (char *)"1" }, .n_names = 1 },
                                    .has_require = true,
                                    .require = REQUIRE_SCOPE };
    struct request request = fixture_fixed(1, 1);
    struct verdict verdict;

    fixture->policy.devices = &strict;
    fixture->policy.n_devices = 1;
    ck_assert_int_eq(broker_policy_set(fixture->broker, &fixture->policy, fixture->now), 0);
    request.cannot_have = REQUIRE_SCOPE;
    request.cannot_reason = "it has none";
    for (pid_t pid = 10; pid < 13; pid++) {
        const struct lease *lease =
            broker_lease(fixture->broker, fixture_get(fixture, pid, 1000, request));

        ck_assert_uint_eq(lease->shares[0].book->device.seen.index, 0);
        ck_assert_int_eq(broker_require(lease), REQUIRE_GUARD);
    }
    request.devices = (const char *[]){ "1" };
    request.n_devices = 1;
    verdict = fixture_ask(fixture, 20, 1000, &request, 1);
    ck_assert_int_eq(verdict.kind, VERDICT_DENY);
    ck_assert_int_eq(verdict.refusal, REFUSAL_DENIED);
    ck_assert_ptr_nonnull(strstr(verdict.reason, "(require = scope), and it has none"));

    request.cannot_have = REQUIRE_NONE;
    ck_assert_int_eq(
        broker_require(broker_lease(fixture->broker, fixture_get(fixture, 21, 1000, request))),
        REQUIRE_SCOPE);
    fixture->policy.devices = NULL;
    fixture->policy.n_devices = 0;
}
END_TEST

START_TEST(two_halves_fill_a_device_exactly) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(2, 40);
    struct request request = fixture_share(1, 5000);

    request.devices = (const char *[]){ "1" };
    request.n_devices = 1;
    fixture_get(fixture, 10, 1000, request);
    fixture_get(fixture, 11, 1001, request);
    ck_assert_uint_eq(fixture_left(fixture, 1), 0);
}
END_TEST

START_TEST(exclusive_needs_an_empty_device) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(2, 40);
    struct request request = fixture_exclusive(1), two = fixture_exclusive(2);
    struct verdict verdict;

    fixture_get(fixture, 10, 1000, fixture_grow(1, 0, 0));
    fixture_get(fixture, 11, 1001, request);
    verdict = fixture_ask(fixture, 12, 1002, &request, 1);
    ck_assert_int_eq(verdict.kind, VERDICT_WAIT);
    two.no_wait = true;
    verdict = fixture_ask(fixture, 13, 1003, &two, 2);
    ck_assert_int_eq(verdict.kind, VERDICT_DENY);
    ck_assert_int_eq(verdict.refusal, REFUSAL_NO_MEMORY);
}
END_TEST

START_TEST(all_devices_of_a_lease_or_none) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(2, 40);
    struct request request = fixture_fixed(2, 30);
    struct verdict verdict;
    uint64_t lease = fixture_get(fixture, 10, 1000, fixture_fixed(1, 20));

    verdict = fixture_ask(fixture, 11, 1001, &request, 1);
    ck_assert_int_eq(verdict.kind, VERDICT_WAIT);
    ck_assert_uint_eq(fixture_left(fixture, 0) + fixture_left(fixture, 1), 60);
    fixture_release(fixture, 1000, lease);
    ck_assert_int_eq(fixture_told(fixture, 1)->kind, VERDICT_GRANT);
    ck_assert_uint_eq(broker_lease(fixture->broker, fixture_told(fixture, 1)->lease)->n_shares, 2);
    ck_assert_uint_eq(fixture_left(fixture, 0), 10);
    ck_assert_uint_eq(fixture_left(fixture, 1), 10);
}
END_TEST

START_TEST(each_named_device_has_its_own_amount) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(2, 40);
    struct amount amounts[2];
    struct request request = fixture_fixed(0, 1);
    struct lease *lease;

    amounts[0] = amounts[1] = request.amount;
    amounts[0].bytes = 3 * GIB;
    amounts[1].bytes = 5 * GIB;
    request.devices = (const char *[]){ "1", "0" };
    request.n_devices = request.n_amounts = 2;
    request.amounts = amounts;
    lease = broker_lease(fixture->broker, fixture_get(fixture, 10, 1000, request));
    ck_assert_uint_eq(lease->shares[0].book->device.seen.index, 1);
    ck_assert_uint_eq(lease->shares[0].limit_bytes, 3 * GIB);
    ck_assert_uint_eq(lease->shares[1].limit_bytes, 5 * GIB);
}
END_TEST

START_TEST(what_an_empty_box_could_not_give_is_denied_at_once) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(2, 40);
    struct request large = fixture_fixed(1, 41), many = fixture_fixed(3, 1),
                   none = fixture_fixed(1, 1);
    struct verdict verdict = fixture_ask(fixture, 10, 1000, &large, 1);

    ck_assert_int_eq(verdict.kind, VERDICT_DENY);
    ck_assert_int_eq(verdict.refusal, REFUSAL_DENIED);
    verdict = fixture_ask(fixture, 10, 1000, &many, 1);
    ck_assert_int_eq(verdict.kind, VERDICT_DENY);
    ck_assert_int_eq(verdict.refusal, REFUSAL_NO_DEVICE);
    none.devices = (const char *[]){ "7" };
    none.n_devices = 1;
    verdict = fixture_ask(fixture, 10, 1000, &none, 1);
    ck_assert_int_eq(verdict.refusal, REFUSAL_NO_DEVICE);
    ck_assert_uint_eq(fixture->n_denials, 3);
    ck_assert_str_eq(fixture->event, "denied");
}
END_TEST

START_TEST(growth_stays_within_the_limit) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(2, 40);
    uint64_t lease = fixture_get(fixture, 10, 1000, fixture_grow(1, 2, 10));
    unsigned gpu = broker_lease(fixture->broker, lease)->shares[0].book->device.seen.index;
    struct verdict verdict;

    ck_assert_int_eq(fixture_grow_by(fixture, 10, lease, gpu, 1, false, 1).refusal,
                     REFUSAL_NOT_FOUND);
    ck_assert_int_eq(fixture_attach(fixture, 10, 1000, lease).kind, VERDICT_GRANT);
    verdict = fixture_grow_by(fixture, 10, lease, gpu, 6, false, 1);
    ck_assert_int_eq(verdict.kind, VERDICT_GRANT);
    ck_assert_uint_eq(verdict.held_bytes, 6 * GIB);
    ck_assert_uint_eq(verdict.limit_bytes, 10 * GIB);
    verdict = fixture_grow_by(fixture, 10, lease, gpu, 5, true, 1);
    ck_assert_int_eq(verdict.kind, VERDICT_DENY);
    ck_assert_int_eq(verdict.refusal, REFUSAL_NO_MEMORY);
    verdict = fixture_shrink_by(fixture, 10, lease, gpu, 4);
    ck_assert_uint_eq(verdict.held_bytes, 2 * GIB);
    ck_assert_int_eq(fixture_shrink_by(fixture, 10, lease, gpu, 3).kind, VERDICT_DENY);
}
END_TEST

START_TEST(the_processes_of_a_job_share_its_limit) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(2, 40);
    uint64_t lease = fixture_get(fixture, 10, 1000, fixture_fixed(1, 10));

    fixture_attach(fixture, 10, 1000, lease);
    fixture_attach(fixture, 11, 1000, lease);
    ck_assert_int_eq(fixture_grow_by(fixture, 10, lease, 0, 6, false, 1).kind, VERDICT_GRANT);
    ck_assert_int_eq(fixture_grow_by(fixture, 11, lease, 0, 5, false, 1).kind, VERDICT_DENY);
    ck_assert_int_eq(fixture_grow_by(fixture, 11, lease, 0, 4, false, 1).kind, VERDICT_GRANT);
    ck_assert_int_eq(fixture_attach(fixture, 12, 1001, lease).refusal, REFUSAL_NOT_FOUND);
}
END_TEST

START_TEST(a_lease_ends_with_its_last_process) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(2, 40);
    uint64_t lease = fixture_get(fixture, 10, 1000, fixture_fixed(1, 10));

    fixture_attach(fixture, 11, 1000, lease);
    fixture_gone(fixture, 10);
    ck_assert_ptr_nonnull(broker_lease(fixture->broker, lease));
    fixture_gone(fixture, 11);
    ck_assert_ptr_null(broker_lease(fixture->broker, lease));
    ck_assert_uint_eq(fixture_left(fixture, 0), 40);
}
END_TEST

START_TEST(a_process_left_of_a_job_inherits_its_lease) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(2, 40);
    uint64_t lease = fixture_get(fixture, 10, 1000, fixture_fixed(1, 10));
    struct process_id process = { .pid = 11, .start = 7 };
    const struct lease *now;

    /* One after the other, and by a detachment that leaves bytes being released. */
    broker_search_as(fixture->broker, 0);
    fixture->survivor = 11;
    fixture_attach(fixture, 11, 1000, lease);
    ck_assert_int_eq(fixture_grow_by(fixture, 11, lease, 0, 4, false, 1).kind, VERDICT_GRANT);
    fixture_gone(fixture, 10);
    broker_detach(fixture->broker, &process, lease, fixture->now);
    fixture_check(fixture);
    now = broker_lease(fixture->broker, lease);
    ck_assert_ptr_nonnull(now);
    ck_assert(now->is_orphaned);
    fixture_turn(fixture);
    ck_assert(!now->is_orphaned);
    ck_assert_int_eq(broker_owner(now)->pid, 11);
    fixture->survivor = 12;
    fixture_gone(fixture, 11);
    ck_assert_int_eq(broker_owner(broker_lease(fixture->broker, lease))->pid, 12);
    fixture->survivor = 0;
    fixture_gone(fixture, 12);
    ck_assert_ptr_null(broker_lease(fixture->broker, lease));

    /* During a search the lease is there, whatever comes of it. */
    lease = fixture_get(fixture, 30, 1000, fixture_fixed(1, 10));
    fixture->survivor = -1;
    fixture_gone(fixture, 30);
    ck_assert_ptr_nonnull(broker_lease(fixture->broker, lease));
    fixture_check(fixture);
    fixture_attach(fixture, 31, 1000, lease);
    broker_inherit(fixture->broker, lease, NULL, fixture->now);
    ck_assert_ptr_nonnull(broker_lease(fixture->broker, lease));
    fixture_gone(fixture, 31);
    process.pid = 32;
    broker_inherit(fixture->broker, lease, &process, fixture->now);
    ck_assert_int_eq(broker_owner(broker_lease(fixture->broker, lease))->pid, 32);
    process.pid = 33;
    broker_inherit(fixture->broker, lease, &process, fixture->now);
    ck_assert_int_eq(broker_owner(broker_lease(fixture->broker, lease))->pid, 32);
    fixture_gone(fixture, 32);
    broker_inherit(fixture->broker, lease, NULL, fixture->now);
    ck_assert_ptr_null(broker_lease(fixture->broker, lease));
    broker_inherit(fixture->broker, lease, &process, fixture->now);
    ck_assert_uint_eq(fixture->n_orphaned, 6);
    fixture->orphan = 0;

    /* Released during a search. */
    lease = fixture_get(fixture, 34, 1000, fixture_fixed(1, 10));
    fixture_gone(fixture, 34);
    fixture_release(fixture, 1000, lease);
    ck_assert_ptr_null(broker_lease(fixture->broker, lease));

    /* One that is told to end is not inherited. */
    lease = fixture_get(fixture, 20, 1000, fixture_fixed(1, 10));
    fixture->survivor = 21;
    fixture_release(fixture, 1000, lease);
    ck_assert_ptr_null(broker_lease(fixture->broker, lease));
}
END_TEST

START_TEST(a_lease_waits_for_no_search_that_cannot_be_made) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(1, 40);
    uint64_t lease = fixture_get(fixture, 10, 1000, fixture_fixed(1, 10));
    uint64_t other = fixture_get(fixture, 20, 1001, fixture_fixed(1, 10));
    struct process_id process = { .pid = 10, .start = 7 };

    /* With the rights of another user, no process of this one's jobs is found. */
    broker_search_as(fixture->broker, 1001);
    broker_process_gone(fixture->broker, &process, fixture->now);
    ck_assert_ptr_null(broker_lease(fixture->broker, lease));
    ck_assert_uint_eq(fixture->n_orphaned, 0);
    process.pid = 20;
    broker_process_gone(fixture->broker, &process, fixture->now);
    ck_assert(broker_lease(fixture->broker, other)->is_orphaned);
    ck_assert_uint_eq(fixture->n_orphaned, 1);
    ck_assert_uint_eq(fixture->orphan, other);
    fixture_turn(fixture);
    ck_assert_ptr_null(broker_lease(fixture->broker, other));
}
END_TEST

START_TEST(with_a_scope_a_lease_ends_when_it_is_empty) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(2, 40);
    uint64_t lease = fixture_get(fixture, 10, 1000, fixture_fixed(1, 10));

    ck_assert_int_eq(broker_confined(fixture->broker, lease, "allot-1.scope", "/a/allot-1.scope", 4,
                                     fixture->now),
                     0);
    fixture_attach(fixture, 11, 1000, lease);
    fixture_gone(fixture, 10);
    fixture_gone(fixture, 11);
    ck_assert_ptr_nonnull(broker_lease(fixture->broker, lease));
    ck_assert_ptr_eq(broker_lease_of_cgroup(fixture->broker, "/a/allot-1.scope/child"),
                     broker_lease(fixture->broker, lease));
    ck_assert_ptr_null(broker_lease_of_cgroup(fixture->broker, "/a/allot-1.scopes"));
    broker_vacated(fixture->broker, lease, fixture->now);
    ck_assert_ptr_null(broker_lease(fixture->broker, lease));
    fixture_check(fixture);
}
END_TEST

START_TEST(bytes_of_a_dead_holder_are_releasing_until_nvml_agrees) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(2, 40);
    uint64_t lease = fixture_get(fixture, 10, 1000, fixture_fixed(1, 30));
    struct gpuid gpu = fixture_gpu(0);
    struct request request = fixture_fixed(1, 20);

    request.devices = (const char *[]){ "0" };
    request.n_devices = 1;
    fixture_attach(fixture, 10, 1000, lease);
    fixture_grow_by(fixture, 10, lease, 0, 25, false, 0);
    ck_assert_int_eq(fixture_ask(fixture, 20, 1001, &request, 5).kind, VERDICT_WAIT);
    fixture_gone(fixture, 10);
    ck_assert_ptr_null(broker_lease(fixture->broker, lease));
    ck_assert_uint_eq(broker_book(fixture->broker, &gpu)->releasing_bytes, 25 * GIB);
    ck_assert_uint_eq(fixture_left(fixture, 0), 15);

    fixture->now.usec += SECS;
    fixture_sample(fixture, (struct fixture_row[]){ { 10, 0, 22 } }, 1);
    ck_assert_uint_eq(broker_book(fixture->broker, &gpu)->releasing_bytes, 22 * GIB);
    ck_assert_ptr_null(fixture_told(fixture, 5));
    fixture->now.usec += SECS;
    fixture_sample(fixture, NULL, 0);
    ck_assert_uint_eq(broker_book(fixture->broker, &gpu)->releasing_bytes, 0);
    ck_assert_int_eq(fixture_told(fixture, 5)->kind, VERDICT_GRANT);
}
END_TEST

START_TEST(a_charge_is_the_larger_of_declared_and_seen) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(2, 40);
    uint64_t lease = fixture_get(fixture, 10, 1000, fixture_grow(1, 0, 0));
    struct gpuid gpu = fixture_gpu(0);
    const struct book *book = broker_book(fixture->broker, &gpu);

    fixture_attach(fixture, 10, 1000, lease);
    fixture_grow_by(fixture, 10, lease, 0, 4, false, 0);
    fixture_sample(fixture, (struct fixture_row[]){ { 10, 0, 7 }, { 99, 0, 3 } }, 2);
    ck_assert_uint_eq(book->held_bytes, 7 * GIB);
    ck_assert_uint_eq(book->unmanaged_bytes, 3 * GIB);
    fixture_sample(fixture, (struct fixture_row[]){ { 10, 0, 1 }, { 99, 0, 38 } }, 2);
    ck_assert_uint_eq(book->held_bytes, 4 * GIB);
    ck_assert_uint_eq(books_overcommitted_bytes(book), 2 * GIB);
    ck_assert_uint_eq(books_free_bytes(book), 0);
}
END_TEST

START_TEST(children_in_the_scope_are_holders_without_attaching) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(2, 40);
    uint64_t lease = fixture_get(fixture, 10, 1000, fixture_grow(1, 0, 0));
    struct gpuid gpu = fixture_gpu(0);

    broker_confined(fixture->broker, lease, "allot-1.scope", "/a/allot-1.scope", 4, fixture->now);
    fixture_sample(fixture, (struct fixture_row[]){ { 44, 0, 5, true, "/a/allot-1.scope" } }, 1);
    ck_assert_uint_eq(broker_book(fixture->broker, &gpu)->held_bytes, 5 * GIB);
    ck_assert_uint_eq(broker_book(fixture->broker, &gpu)->unmanaged_bytes, 0);
    fixture_sample(fixture, NULL, 0);
    ck_assert_uint_eq(broker_book(fixture->broker, &gpu)->held_bytes, 0);
    ck_assert_uint_eq(broker_lease(fixture->broker, lease)->n_holders, 0);
}
END_TEST

START_TEST(children_of_a_job_without_a_scope_are_holders_by_their_environment) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(1, 40);
    uint64_t lease = fixture_get(fixture, 10, 1000, fixture_fixed(1, 10));
    struct fixture_row row = { 11, 0, 4, false, NULL, 1000 };

    fixture_sample(fixture, &row, 1);
    ck_assert_uint_eq(broker_lease(fixture->broker, lease)->n_holders, 0);
    ck_assert_uint_eq(fixture_left(fixture, 0), 26); /* unmanaged: of no lease */
    row.lease = lease;
    row.uid = 1001;
    fixture_sample(fixture, &row, 1);
    ck_assert_uint_eq(broker_lease(fixture->broker, lease)->n_holders, 0);
    row.uid = 1000;
    fixture_sample(fixture, &row, 1);
    ck_assert_uint_eq(broker_lease(fixture->broker, lease)->n_holders, 1);
    ck_assert_uint_eq(broker_lease(fixture->broker, lease)->shares[0].held_bytes, 4 * GIB);
    ck_assert_uint_eq(fixture_left(fixture, 0), 30);

    /* The first of the job goes, then the child: no process is left. */
    fixture_gone(fixture, 10);
    ck_assert_ptr_nonnull(broker_lease(fixture->broker, lease));
    fixture_sample(fixture, &row, 0);
    fixture_turn(fixture);
    ck_assert_ptr_null(broker_lease(fixture->broker, lease));
    ck_assert_uint_eq(fixture_left(fixture, 0), 40);
}
END_TEST

START_TEST(what_a_process_declares_is_the_sum_of_its_leases_on_the_device) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(2, 40);
    const struct process_id process = { .pid = 10, .start = 7 }, nobody = { .pid = 9, .start = 7 };
    const struct gpuid gpus[] = { fixture_gpu(0), fixture_gpu(1), fixture_gpu(2) };
    const char *names[] = { fixture_name(0), fixture_name(1) };
    struct broker_peer peer = fixture_peer(10, 1000);
    struct broker_declared said;
    struct verdict verdict;
    uint64_t leases[3];

    broker_context_set(fixture->broker, &gpus[0], GIB);
    for (unsigned i = 0; i < 3; i++) { /* two on the first device, one on the second */
        struct request request = fixture_grow(0, 0, 0);
        struct broker_attach attach = { .tier = 3 };

        request.devices = &names[i / 2];
        request.n_devices = 1;
        attach.lease = leases[i] = fixture_get(fixture, 10, 1000, request);
        ck_assert_int_eq(broker_attach(fixture->broker, &peer, &attach, fixture->now, &verdict), 0);
        fixture_grow_by(fixture, 10, leases[i], i / 2, i + 1, false, 0);
    }
    ck_assert(broker_declared(fixture->broker, &process, &gpus[0], &said));
    ck_assert_uint_eq(said.uid, 1000);
    ck_assert(said.is_all);
    ck_assert_uint_eq(said.bytes, 3 * GIB);
    ck_assert_uint_eq(said.context_bytes, GIB);
    ck_assert(broker_declared(fixture->broker, &process, &gpus[1], &said));
    ck_assert_uint_eq(said.bytes, 3 * GIB);
    ck_assert_uint_eq(said.context_bytes, 0);
    ck_assert(!broker_declared(fixture->broker, &process, &gpus[2], &said));
    ck_assert(!broker_declared(fixture->broker, &nobody, &gpus[0], &said));
    /* One of them without a guard: what it takes there is not known. */
    broker_holder(fixture->broker, &process, leases[1])->tier = 0;
    ck_assert(broker_declared(fixture->broker, &process, &gpus[0], &said));
    ck_assert(!said.is_all);
    broker_holder(fixture->broker, &process, leases[1])->tier = 4;
    ck_assert(broker_declared(fixture->broker, &process, &gpus[0], &said));
    ck_assert(said.is_all);
    broker_detach(fixture->broker, &process, leases[2], fixture->now);
    ck_assert(!broker_declared(fixture->broker, &process, &gpus[1], &said));
    ck_assert(broker_declared(fixture->broker, &process, &gpus[0], &said));
}
END_TEST

START_TEST(a_released_lease_goes_when_its_holders_do) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(2, 40);
    uint64_t lease = fixture_get(fixture, 10, 1000, fixture_fixed(1, 10));

    fixture_attach(fixture, 10, 1000, lease);
    fixture_grow_by(fixture, 10, lease, 0, 1, false, 0);
    fixture_release(fixture, 1000, lease);
    ck_assert_int_eq(fixture->notice, NOTICE_ENDING);
    ck_assert_ptr_nonnull(broker_lease(fixture->broker, lease));
    ck_assert_int_eq(fixture_grow_by(fixture, 10, lease, 0, 1, false, 0).refusal, REFUSAL_DENIED);
    broker_detach(fixture->broker, &(struct process_id){ 10, 7 }, lease, fixture->now);
    ck_assert_ptr_null(broker_lease(fixture->broker, lease));
    fixture_pass(fixture, 3600 * SECS);
    ck_assert_uint_eq(fixture->n_evicted, 0);
}
END_TEST

START_TEST(others_leases_cannot_be_released) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(2, 40);
    uint64_t lease = fixture_get(fixture, 10, 1000, fixture_fixed(1, 10));
    struct broker_peer peer = fixture_peer(20, 1001);
    struct verdict verdict = { 0 };

    broker_release(fixture->broker, &peer, lease, fixture->now, &verdict);
    ck_assert_int_eq(verdict.kind, VERDICT_DENY);
    ck_assert_int_eq(verdict.refusal, REFUSAL_NOT_FOUND);
    peer.is_admin = true;
    broker_release(fixture->broker, &peer, lease, fixture->now, &verdict);
    ck_assert_int_eq(verdict.kind, VERDICT_GRANT);
    ck_assert(broker_lease(fixture->broker, lease)->is_ending);
    fixture_gone(fixture, 10);
    ck_assert_ptr_null(broker_lease(fixture->broker, lease));
}
END_TEST

START_TEST(a_lease_whose_time_is_over_is_told_and_then_evicted) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(2, 40);
    struct request request = fixture_fixed(1, 10);
    uint64_t lease;

    request.time_limit_usec = 60 * SECS;
    lease = fixture_get(fixture, 10, 1000, request);
    fixture_attach(fixture, 10, 1000, lease);
    fixture_grow_by(fixture, 10, lease, 0, 1, false, 0);
    fixture_turn(fixture);
    ck_assert_uint_eq(broker_deadline(fixture->broker), fixture->now.usec + 60 * SECS);
    fixture_pass(fixture, 59 * SECS);
    ck_assert_uint_eq(fixture->n_notices, 0);
    fixture_pass(fixture, SECS);
    ck_assert_int_eq(fixture->notice, NOTICE_ENDING);
    ck_assert_uint_eq(fixture->n_evicted, 0);
    fixture_pass(fixture, fixture->policy.ending_usec);
    ck_assert_uint_eq(fixture->n_evicted, 1);
    fixture_pass(fixture, fixture->policy.ending_usec);
    ck_assert_uint_eq(fixture->n_evicted, 1);
}
END_TEST

START_TEST(the_owner_of_a_lease_whose_time_is_over_is_evicted_too) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(1, 40);
    struct request request = fixture_fixed(1, 10);
    struct broker_peer peer = fixture_peer(12, 1000);
    struct verdict verdict;
    uint64_t lease, other;

    request.time_limit_usec = 60 * SECS;
    lease = fixture_get(fixture, 10, 1000, request);
    other = fixture_get(fixture, 12, 1000, request);
    fixture_pass(fixture, 60 * SECS);
    ck_assert_ptr_nonnull(broker_lease(fixture->broker, lease));
    ck_assert(broker_lease(fixture->broker, lease)->is_ending);
    /* A holder that gives it back by itself is left alone. */
    broker_release(fixture->broker, &peer, other, fixture->now, &verdict);
    fixture_check(fixture);
    ck_assert_ptr_null(broker_lease(fixture->broker, other));
    fixture_pass(fixture, fixture->policy.ending_usec);
    ck_assert_uint_eq(fixture->n_evicted, 1);
    ck_assert_uint_eq(fixture_left(fixture, 0), 30);
    fixture_gone(fixture, 10);
    ck_assert_ptr_null(broker_lease(fixture->broker, lease));
    ck_assert_uint_eq(fixture_left(fixture, 0), 40);
}
END_TEST

START_TEST(a_drained_device_takes_no_new_leases_and_its_holders_are_told) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(2, 40);
    uint64_t lease = fixture_get(fixture, 10, 1000, fixture_fixed(1, 10));
    struct device_facts device = fixture_make(0, 40);
    struct request request = fixture_fixed(1, 35);

    fixture_attach(fixture, 10, 1000, lease);
    device.state = DEVICE_DRAINING;
    strcpy(device.reason, "Xid 79");
    fixture_device(fixture, &device);
    ck_assert_int_eq(fixture->notice, NOTICE_DRAINING);
    ck_assert_int_eq(fixture_grow_by(fixture, 10, lease, 0, 1, false, 0).kind, VERDICT_GRANT);
    ck_assert_uint_eq(
        broker_lease(fixture->broker, fixture_get(fixture, 11, 1001, fixture_fixed(1, 10)))
            ->shares[0]
            .book->device.seen.index,
        1);
    request.devices = (const char *[]){ "0" };
    request.n_devices = 1;
    ck_assert_int_eq(fixture_ask(fixture, 12, 1002, &request, 1).refusal, REFUSAL_DRAINING);
}
END_TEST

START_TEST(a_waiter_for_a_device_waits_on_while_it_is_drained) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(2, 40);
    struct request request = fixture_fixed(1, 35);
    struct device_facts device = fixture_make(0, 40);
    uint64_t lease;

    request.devices = (const char *[]){ "0" };
    request.n_devices = 1;
    lease = fixture_get(fixture, 10, 1000, request);
    ck_assert_int_eq(fixture_ask(fixture, 11, 1001, &request, 1).kind, VERDICT_WAIT);
    fixture_turn(fixture);
    ck_assert_uint_eq(fixture->n_moved, 0);
    device.state = DEVICE_DRAINING;
    strcpy(device.reason, "a new fan");
    fixture_device(fixture, &device);
    fixture_turn(fixture);
    ck_assert_uint_eq(fixture->n_moved, 1); /* though nothing else happens */
    ck_assert_ptr_nonnull(strstr(fixture->reason, "a new fan"));
    device.state = DEVICE_LOST;
    fixture_device(fixture, &device);
    fixture_turn(fixture);
    ck_assert_uint_eq(fixture->n_moved, 2);
    ck_assert_ptr_nonnull(strstr(fixture->reason, "lost"));
    fixture_release(fixture, 1000, lease);
    ck_assert_ptr_null(fixture_told(fixture, 1));
    device.state = DEVICE_READY;
    fixture_device(fixture, &device);
    fixture_turn(fixture);
    ck_assert_int_eq(fixture_told(fixture, 1)->kind, VERDICT_GRANT);
}
END_TEST

START_TEST(the_environment_names_the_devices_by_uuid) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(2, 40);
    struct request request = fixture_fixed(2, 1);
    char text[256], expected[256];
    uint64_t lease = fixture_get(fixture, 10, 1000, request);

    snprintf(expected, sizeof(expected), "%s,%s", fixture_name(0), fixture_name(1));
    ck_assert_int_eq(
        broker_visible_devices(broker_lease(fixture->broker, lease), text, sizeof(text)),
        (int)strlen(expected));
    ck_assert_str_eq(text, expected);
}
END_TEST

START_TEST(a_starving_sibling_recalls_credits) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(2, 40);
    uint64_t lease = fixture_get(fixture, 10, 1000, fixture_fixed(1, 10));
    struct broker_peer peer = fixture_peer(10, 1000);
    struct broker_attach attach = { .lease = lease, .credits = true, .tier = 3 };
    struct verdict verdict = { 0 };

    broker_attach(fixture->broker, &peer, &attach, fixture->now, &verdict);
    fixture_attach(fixture, 11, 1000, lease);
    fixture_grow_by(fixture, 10, lease, 0, 8, false, 0);
    ck_assert_int_eq(fixture_grow_by(fixture, 11, lease, 0, 4, false, 1).kind, VERDICT_WAIT);
    ck_assert_int_eq(fixture->notice, NOTICE_RECALL);
    ck_assert_uint_eq(fixture->notice_bytes, 2 * GIB);
    fixture_shrink_by(fixture, 10, lease, 0, 3);
    fixture_turn(fixture);
    ck_assert_int_eq(fixture_told(fixture, 1)->kind, VERDICT_GRANT);

    /* It has nothing to give: the answer comes at once. */
    ck_assert_int_eq(fixture_grow_by(fixture, 11, lease, 0, 4, false, 2).kind, VERDICT_WAIT);
    fixture_shrink_by(fixture, 10, lease, 0, 0);
    ck_assert_int_eq(fixture_told(fixture, 2)->refusal, REFUSAL_NO_MEMORY);

    /* Or it does not answer at all. */
    ck_assert_int_eq(fixture_grow_by(fixture, 11, lease, 0, 4, false, 3).kind, VERDICT_WAIT);
    fixture_pass(fixture, fixture->policy.recall_usec);
    ck_assert_int_eq(fixture_told(fixture, 3)->refusal, REFUSAL_NO_MEMORY);
}
END_TEST

SUITE("broker", what_a_process_declares_is_the_sum_of_its_leases_on_the_device,
      two_shares_of_40_percent_fit_and_a_third_waits,
      a_device_that_requires_more_than_a_job_can_have_is_not_for_it,
      two_halves_fill_a_device_exactly, exclusive_needs_an_empty_device,
      all_devices_of_a_lease_or_none, each_named_device_has_its_own_amount,
      what_an_empty_box_could_not_give_is_denied_at_once, growth_stays_within_the_limit,
      the_processes_of_a_job_share_its_limit, a_lease_ends_with_its_last_process,
      a_process_left_of_a_job_inherits_its_lease, a_lease_waits_for_no_search_that_cannot_be_made,
      with_a_scope_a_lease_ends_when_it_is_empty,
      bytes_of_a_dead_holder_are_releasing_until_nvml_agrees,
      a_charge_is_the_larger_of_declared_and_seen,
      children_in_the_scope_are_holders_without_attaching,
      children_of_a_job_without_a_scope_are_holders_by_their_environment,
      the_owner_of_a_lease_whose_time_is_over_is_evicted_too,
      a_released_lease_goes_when_its_holders_do, others_leases_cannot_be_released,
      a_lease_whose_time_is_over_is_told_and_then_evicted,
      a_drained_device_takes_no_new_leases_and_its_holders_are_told,
      a_waiter_for_a_device_waits_on_while_it_is_drained, the_environment_names_the_devices_by_uuid,
      a_starving_sibling_recalls_credits)
