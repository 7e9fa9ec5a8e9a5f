/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every allocation of the broker fails once: the answer is -ENOMEM, and then everything is as it
 * was before the call, so that the same call succeeds as soon as there is memory. Under the address
 * sanitizer: and nothing leaks.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/broker/internal.h"
#include "tests/support/base/failing_malloc.h"
#include "tests/support/daemon/broker/broker_fixture.h"
#include "tests/support/suite.h"

static void write_record(void *userdata, const struct record *record) {
    static uint8_t bytes[RECORD_SIZE_MAX];
    size_t n = record_encode(record, bytes);

    for (size_t i = 0; i < n; i++)
        fprintf(userdata, "%02x", bytes[i]);
    fputc('\n', userdata);
}

/* All that the broker would keep or show, as text for free(). */
static char *state_of(struct broker_fixture *fixture) {
    char *text = NULL;
    size_t n = 0;
    FILE *file = open_memstream(&text, &n), *transcript = fixture->transcript;

    ck_assert_ptr_nonnull(file);
    fixture_dump(fixture, write_record, file);
    fixture->transcript = file;
    fixture_write_state(fixture);
    fixture->transcript = transcript;
    fprintf(file, "%zu users, %zu processes, %zu pages\n", fixture->broker->users.n,
            fixture->broker->procs.n, fixture->broker->n_books);
    fclose(file);
    return text;
}

static bool is_refused(const struct verdict *verdict) {
    return verdict->kind == VERDICT_DENY && verdict->refusal == REFUSAL_BUSY &&
           strcmp(verdict->reason, "the daemon is out of memory") == 0;
}

/* `call`, the first allocation failing, then the second, …, until none does; then it gives 0. */
#define EACH_FAILS(fixture, call)                                                                  \
    for (uint64_t n_ = 1;; n_++) {                                                                 \
        char *before_ = state_of(fixture), *after_;                                                \
        bool failed_;                                                                              \
        int r_;                                                                                    \
                                                                                                   \
        failing_malloc_at(n_);                                                                     \
        r_ = call;                                                                                 \
        failed_ = failing_malloc_end();                                                            \
        fixture_check(fixture);                                                                    \
        if (!failed_) {                                                                            \
            ck_assert_int_eq(r_, 0);                                                               \
            ck_assert_msg(n_ > 1, "it needs no memory: " #call);                                   \
            free(before_);                                                                         \
            break;                                                                                 \
        }                                                                                          \
        if (r_ == 0 && is_refused(&verdict)) { /* where the grant itself would need it */          \
            free(before_);                                                                         \
            continue;                                                                              \
        }                                                                                          \
        ck_assert_msg(r_ == -ENOMEM, "allocation %d of " #call ": %d", (int)n_, r_);               \
        after_ = state_of(fixture);                                                                \
        ck_assert_str_eq(after_, before_);                                                         \
        free(before_);                                                                             \
        free(after_);                                                                              \
    }

static int submit(struct broker_fixture *fixture, pid_t pid, uid_t uid,
                  const struct request *request, struct verdict *ret) {
    static const gid_t groups[] = { 5, 6, 7 };
    struct broker_peer peer = fixture_peer(pid, uid);

    peer.gids = groups;
    peer.n_gids = ELEMENTSOF(groups);
    return broker_submit(fixture->broker, &peer, request, NULL, fixture->now, ret);
}

static int attach_with(struct broker_fixture *fixture, pid_t pid, uid_t uid, uint64_t lease,
                       uint64_t gib, struct verdict *ret) {
    struct broker_peer peer = fixture_peer(pid, uid);
    struct broker_held held = { .device = fixture_gpu(0), .bytes = gib * GIB };
    struct broker_attach attach = { .lease = lease, .held = &held, .n_held = gib > 0 };

    return broker_attach(fixture->broker, &peer, &attach, fixture->now, ret);
}

static int grow(struct broker_fixture *fixture, pid_t pid, uint64_t lease, uint64_t gib,
                struct verdict *ret) {
    struct process_id process = { .pid = pid, .start = 7 };
    struct broker_growth growth = { .lease = lease,
                                    .device = fixture_gpu(0),
                                    .bytes = gib * GIB,
                                    .wait = true,
                                    .timeout_usec = UNITS_FOREVER };

    return broker_grow(fixture->broker, &process, &growth, NULL, fixture->now, ret);
}

START_TEST(a_broker_needs_memory) {
    struct policy policy;

    policy_init(&policy);
    for (uint64_t n = 1;; n++) {
        struct broker *broker = NULL;
        bool failed;
        int r;

        failing_malloc_at(n);
        r = broker_new(&broker, &policy, &(struct broker_sink){ 0 });
        failed = failing_malloc_end();
        ck_assert_int_eq(r, failed ? -ENOMEM : 0);
        ck_assert((broker != NULL) == !failed);
        broker_free(broker);
        if (!failed)
            break;
    }
    policy_done(&policy);
}
END_TEST

START_TEST(devices_need_memory) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(0, 40);
    const struct verdict verdict = { 0 };

    for (unsigned i = 0; i < 3; i++) {
        struct device_facts device = fixture_make(i, 40);

        EACH_FAILS(fixture, broker_device_set(fixture->broker, &device, 0, fixture->now));
        ck_assert_uint_eq(fixture->broker->n_books, i + 1);
    }
}
END_TEST

START_TEST(requests_need_memory) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(2, 40);
    const char *names[] = { fixture_name(0), fixture_name(1) };
    struct amount amounts[2] = { AMOUNT_GROW, AMOUNT_GROW };
    struct request request = fixture_fixed(2, 10), named = fixture_grow(0, 0, 0);
    struct verdict verdict = { 0 };

    EACH_FAILS(fixture, submit(fixture, 10, 1000, &request, &verdict));
    ck_assert_int_eq(verdict.kind, VERDICT_GRANT);
    named.has_amount = false;
    named.amounts = amounts;
    named.devices = names;
    named.n_amounts = named.n_devices = 2;
    named.name = "named";
    EACH_FAILS(fixture, submit(fixture, 11, 1001, &named, &verdict));
    ck_assert_int_eq(verdict.kind, VERDICT_GRANT);
    request = fixture_fixed(2, 39);
    request.timeout_usec = SECS;
    for (pid_t pid = 12; pid < 40; pid++) { /* maps grow meanwhile */
        EACH_FAILS(fixture, submit(fixture, pid, (uid_t)(1000 + pid), &request, &verdict));
        ck_assert_int_eq(verdict.kind, VERDICT_WAIT);
        ck_assert_uint_eq(verdict.place, (uint32_t)pid - 11);
    }
}
END_TEST

START_TEST(explaining_needs_memory) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(2, 40);
    struct broker_peer peer = fixture_peer(10, 1000);
    struct request request = fixture_fixed(2, 10);
    const struct verdict verdict = { 0 };
    static struct explanation said;

    EACH_FAILS(fixture, broker_explain(fixture->broker, &peer, &request, fixture->now, &said));
    ck_assert_int_eq(said.verdict.kind, VERDICT_GRANT);
    ck_assert_uint_eq(fixture->broker->users.n, 0);
}
END_TEST

START_TEST(holders_and_their_growth_need_memory) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(1, 40);
    uint64_t lease = fixture_get(fixture, 10, 1000, fixture_grow(1, 1, 0));
    uint64_t other = fixture_get(fixture, 9, 1001, fixture_fixed(1, 20));
    struct verdict verdict = { 0 };

    for (pid_t pid = 10; pid < 30; pid++) {
        EACH_FAILS(fixture, attach_with(fixture, pid, 1000, lease, pid == 12 ? 2 : 0, &verdict));
        ck_assert_int_eq(verdict.kind, VERDICT_GRANT);
    }
    for (pid_t pid = 10; pid < 30; pid++) {
        EACH_FAILS(fixture, grow(fixture, pid, lease, 19, &verdict));
        ck_assert_int_eq(verdict.kind, VERDICT_WAIT);
    }
    EACH_FAILS(fixture, broker_confined(fixture->broker, other, "allot-2.scope", "/a/allot-2.scope",
                                        4, fixture->now));
    ck_assert_ptr_eq(broker_lease_of_cgroup(fixture->broker, "/a/allot-2.scope"),
                     broker_lease(fixture->broker, other));
}
END_TEST

START_TEST(a_lost_lease_is_rebuilt_with_memory) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(1, 40);
    struct verdict verdict = { 0 };

    broker_books_lost(fixture->broker);
    broker_grace_begin(fixture->broker, fixture->now);
    fixture_sample(fixture,
                   (struct fixture_row[]){ { .pid = 10, .gpu = 0, .used_gib = 3, .uid = 1000 },
                                           { .pid = 11, .gpu = 0, .used_gib = 2, .uid = 1001 } },
                   2);
    EACH_FAILS(fixture, attach_with(fixture, 10, 1000, 77, 3, &verdict));
    ck_assert_int_eq(verdict.kind, VERDICT_GRANT);
    /* Of a number that is another user's now: it goes by both. */
    EACH_FAILS(fixture, attach_with(fixture, 11, 1001, 77, 2, &verdict));
    ck_assert_int_eq(verdict.kind, VERDICT_GRANT);
    ck_assert_uint_eq(fixture->broker->leases.n, 2);
    ck_assert_ptr_eq(broker_lease_called(fixture->broker, 77, 1001),
                     broker_lease(fixture->broker, verdict.lease));
}
END_TEST

struct log {
    size_t n;
    struct record records[64];
};

static void keep(void *userdata, const struct record *record) {
    struct log *log = userdata;

    ck_assert_uint_lt(log->n, ELEMENTSOF(log->records));
    log->records[log->n++] = *record;
}

START_TEST(records_need_memory) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(2, 40);
    uint64_t lease = fixture_get(fixture, 10, 1000, fixture_fixed(2, 10)), grows;
    struct request large = fixture_fixed(2, 39);
    static struct log log;

    log.n = 0;
    fixture_attach(fixture, 10, 1000, lease);
    fixture_grow_by(fixture, 10, lease, 0, 2, false, 0);
    grows = fixture_get(fixture, 11, 1001, fixture_grow(1, 1, 20));
    for (pid_t pid = 12; pid <= 13; pid++) {
        fixture_attach(fixture, pid, 1001, grows);
        fixture_grow_by(fixture, pid, grows, 0, 1, false, 0);
        fixture_grow_by(fixture, pid, grows, 1, 1, false, 0);
    }
    fixture_gone(fixture, 13); /* releasing */
    ck_assert_int_eq(broker_confined(fixture->broker, lease, "allot-1.scope", "/a/allot-1.scope", 4,
                                     fixture->now),
                     0);
    ck_assert_int_eq(fixture_ask(fixture, 14, 1002, &large, 1).kind, VERDICT_WAIT);
    fixture_dump(fixture, keep, &log);
    fixture_restart(fixture);
    for (size_t i = 0; i < log.n; i++) {
        bool failed = true;

        for (uint64_t n = 1; failed; n++) {
            int r;

            failing_malloc_at(n);
            r = broker_restore(fixture->broker, &log.records[i], fixture->now);
            failed = failing_malloc_end();
            /* A lease may come back without its scope; the next record of it has that again. */
            if (!failed || log.records[i].kind != RECORD_LEASE || r != 0)
                ck_assert_int_eq(r, failed ? -ENOMEM : 0);
            fixture_check(fixture);
        }
    }
    ck_assert_uint_eq(fixture->broker->n_books, 2);
    ck_assert_uint_eq(fixture->broker->books[0]->releasing_bytes +
                          fixture->broker->books[1]->releasing_bytes,
                      GIB);
    ck_assert_uint_eq(fixture->broker->leases.n, 2);
    ck_assert(!list_is_empty(&fixture->broker->recovered));
    ck_assert_ptr_nonnull(broker_lease_of_cgroup(fixture->broker, "/a/allot-1.scope"));
}
END_TEST

/* What a sample needs memory for is known at the next one. */
START_TEST(samples_need_memory) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(1, 40);
    uint64_t lease = fixture_get(fixture, 10, 1000, fixture_fixed(1, 10));
    struct sample_process processes[] = {
        { .pid = 20, .start = 7, .device = fixture_gpu(0), .has_used = true, .used_bytes = GIB },
        { .pid = 21, .start = 7, .device = fixture_gpu(0), .has_used = true, .used_bytes = GIB },
    };
    struct sample_device device = fixture_make(0, 40).seen;
    struct sample sample = { .devices = &device,
                             .n_devices = 1,
                             .processes = processes,
                             .n_processes = ELEMENTSOF(processes) };
    bool failed = true;
    unsigned n_failures = 0;

    device.health = SAMPLE_OK;
    snprintf(processes[0].cgroup, sizeof(processes[0].cgroup), "/a/allot-1.scope/child");
    ck_assert_int_eq(broker_confined(fixture->broker, lease, "allot-1.scope", "/a/allot-1.scope", 4,
                                     fixture->now),
                     0);
    for (uint64_t n = 1; failed; n++) {
        int r;

        failing_malloc_at(n);
        r = broker_sample(fixture->broker, &sample, NULL, NULL, fixture->now);
        failed = failing_malloc_end();
        n_failures += failed;
        ck_assert_msg(r == 0 || (failed && r == -ENOMEM), "%d", r);
        fixture_check(fixture);
    }
    ck_assert_uint_gt(n_failures, 1);
    ck_assert_int_eq(broker_sample(fixture->broker, &sample, NULL, NULL, fixture->now), 0);
    fixture_check(fixture);
    ck_assert_uint_eq(fixture->broker->books[0]->unmanaged_bytes, GIB);
    ck_assert_uint_eq(fixture->broker->books[0]->held_bytes, GIB);
    ck_assert_uint_eq(broker_lease(fixture->broker, lease)->n_holders, 1);
}
END_TEST

/* The waiter is told, and the memory stays free for the next one. */
START_TEST(grants_to_waiters_need_memory) {
    cleanup(fixture_freep) struct broker_fixture *fixture = fixture_new(1, 40);
    struct request request = fixture_fixed(1, 40);
    struct broker_peer peer = fixture_peer(10, 1000);
    uint64_t lease = fixture_get(fixture, 10, 1000, request);
    struct verdict verdict;

    ck_assert_int_eq(fixture_ask(fixture, 11, 1001, &request, 1).kind, VERDICT_WAIT);
    ck_assert_int_eq(fixture_ask(fixture, 12, 1002, &request, 2).kind, VERDICT_WAIT);
    broker_release(fixture->broker, &peer, lease, fixture->now, &verdict);
    failing_malloc_at(1);
    ck_assert_int_eq(broker_turn(fixture->broker, fixture->now), 0);
    ck_assert(failing_malloc_end());
    fixture_check(fixture);
    ck_assert_ptr_nonnull(fixture_told(fixture, 1));
    ck_assert(is_refused(fixture_told(fixture, 1)));
    fixture_turn(fixture);
    ck_assert_ptr_nonnull(fixture_told(fixture, 2));
    ck_assert_int_eq(fixture_told(fixture, 2)->kind, VERDICT_GRANT);
}
END_TEST

SUITE("broker-failing-malloc", a_broker_needs_memory, devices_need_memory, requests_need_memory,
      explaining_needs_memory, holders_and_their_growth_need_memory,
      a_lost_lease_is_rebuilt_with_memory, records_need_memory, samples_need_memory,
      grants_to_waiters_need_memory)
