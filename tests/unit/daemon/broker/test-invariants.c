/* SPDX-License-Identifier: Apache-2.0 */
/* The check of the books notices each mistake by itself, and says which it is. */
#include <errno.h>
#include <string.h>

#include "daemon/broker/internal.h"
#include "tests/support/daemon/broker/broker_fixture.h"
#include "tests/support/suite.h"

/* A box on which everything that the check looks at is there once at least. */
struct bench {
    struct broker_fixture *fixture;
    struct broker *broker;
    struct lease *fixed, *grows, *declares, *scoped, *exclusive;
    struct holder *holder;  /* of `fixed`, on both devices */
    struct waiter *request; /* for a lease */
    struct waiter *growth;  /* of `grows` */
    struct book *book;      /* the first device's */
    struct releasing *releasing;
};

static struct waiter *waiter_of(const struct broker *broker, bool is_growth) {
    struct waiter *waiter;

    for (size_t pos = 0; (waiter = map_next(&broker->waiters, &pos));)
        if ((waiter->holder != NULL) == is_growth)
            return waiter;
    ck_abort_msg("there is no such waiter");
}

static struct lease *lease_on(struct broker_fixture *fixture, pid_t pid, uid_t uid, unsigned gpu,
                              struct request request) {
    const char *name = fixture_name(gpu);

    request.n_gpus = 0;
    request.devices = &name;
    request.n_devices = 1;
    return broker_lease(fixture->broker, fixture_get(fixture, pid, uid, request));
}

static struct bench bench_new(void) {
    struct bench bench = { .fixture = fixture_new(3, 40) };
    struct broker_fixture *fixture = bench.fixture;
    struct request large = fixture_fixed(2, 39);
    uint64_t two;

    bench.broker = fixture->broker;
    bench.book = bench.broker->books[0];
    bench.exclusive = lease_on(fixture, 10, 1000, 2, fixture_exclusive(1));
    two = fixture_get(fixture, 11, 1001, fixture_fixed(2, 10));
    fixture_attach(fixture, 11, 1001, two);
    fixture_grow_by(fixture, 11, two, 0, 2, false, 0);
    fixture_grow_by(fixture, 11, two, 1, 3, false, 0);
    bench.fixed = broker_lease(bench.broker, two);
    bench.holder = list_first(&bench.fixed->holders, struct holder, in_lease);
    bench.declares = lease_on(fixture, 12, 1001, 1, fixture_grow(1, 2, 20));
    bench.scoped = lease_on(fixture, 13, 1002, 0, fixture_fixed(1, 4));
    ck_assert_int_eq(broker_confined(bench.broker, bench.scoped->id, "allot-1.scope",
                                     "/user.slice/allot-1.scope", 4, fixture->now),
                     0);
    /* One process of `grows` has ended, and NVML has not shown yet that its bytes are free. */
    bench.grows = lease_on(fixture, 14, 1003, 0, fixture_grow(1, 1, 0));
    for (pid_t pid = 14; pid <= 15; pid++) {
        fixture_attach(fixture, pid, 1003, bench.grows->id);
        fixture_grow_by(fixture, pid, bench.grows->id, 0, 2, false, 0);
    }
    fixture_sample(fixture,
                   (struct fixture_row[]){ { .pid = 11, .gpu = 0, .used_gib = 1 },
                                           { .pid = 14, .gpu = 0, .used_gib = 2 },
                                           { .pid = 15, .gpu = 0, .used_gib = 2 } },
                   3);
    fixture_gone(fixture, 15);
    bench.releasing = list_first(&bench.broker->releasing, struct releasing, in_broker);
    ck_assert_int_eq(fixture_grow_by(fixture, 14, bench.grows->id, 0, 30, true, 1).kind,
                     VERDICT_WAIT);
    large.timeout_usec = 3600 * SECS;
    for (pid_t pid = 16; pid < 24; pid++)
        ck_assert_int_eq(fixture_ask(fixture, pid, 1004, &large, 2).kind, VERDICT_WAIT);
    ck_assert_ptr_nonnull(bench.broker->requests->left);
    bench.growth = waiter_of(bench.broker, true);
    bench.request = waiter_of(bench.broker, false);
    ck_assert(bench.growth->is_active && bench.request->is_active);
    fixture_check(fixture);
    return bench;
}

static void expect(const struct bench *bench, const char *what, const char *words) {
    struct allot_error err = { 0 };
    int r = broker_check_books(bench->broker, &err);

    ck_assert_msg(r == -EUCLEAN, "%s: %d", what, r);
    ck_assert_msg(err.code == -EUCLEAN && strstr(err.text, words), "%s: %s", what, err.text);
}

/* With `place` set to `value`, and only then, the check says `words`. */
#define WRONG_IF(bench, place, value, words)                                                       \
    do {                                                                                           \
        __typeof__(place) was_ = (place);                                                          \
                                                                                                   \
        (place) = (value);                                                                         \
        expect(bench, #place " = " #value, words);                                                 \
        (place) = was_;                                                                            \
        fixture_check((bench)->fixture);                                                           \
    } while (0)

START_TEST(mistakes_of_a_lease_are_noticed) {
    struct bench bench = bench_new();
    struct lease *lease = bench.fixed;
    struct share *share = &lease->shares[0];
    struct part *part = &bench.holder->parts[0];

    WRONG_IF(&bench, lease->id, bench.declares->id, "is not found by its number");
    WRONG_IF(&bench, bench.broker->next_lease, bench.grows->id,
             "has a number that was not given yet");
    WRONG_IF(&bench, lease->user, NULL, "is of no user");
    WRONG_IF(&bench, lease->user, bench.exclusive->user, "is of no user");
    WRONG_IF(&bench, bench.scoped->cgroup[1], 'x', "is not found by its cgroup");
    WRONG_IF(&bench, bench.holder->lease, bench.declares, "is linked wrongly");
    WRONG_IF(&bench, bench.holder->process.start, 8, "is linked wrongly");
    WRONG_IF(&bench, bench.holder->is_absent, true, "is absent and there");
    WRONG_IF(&bench, lease->n_holders, 2, "counts its holders or their growth wrongly");
    WRONG_IF(&bench, lease->n_growths, 1, "counts its holders or their growth wrongly");
    WRONG_IF(&bench, bench.grows->n_growths, 0, "counts its holders or their growth wrongly");
    WRONG_IF(&bench, lease->declares_max, true, "is not listed by its maximum");
    WRONG_IF(&bench, bench.declares->declares_max, false, "is not listed by its maximum");
    WRONG_IF(&bench, share->book, NULL, "has a share of no device");
    WRONG_IF(&bench, bench.broker->books[0], bench.broker->books[1], "has a share of no device");
    WRONG_IF(&bench, share->book, lease->shares[1].book, "has two shares of");
    WRONG_IF(&bench, part->declared_bytes, part->declared_bytes + 1, "holds parts of a granule");
    WRONG_IF(&bench, part->seen_bytes, part->seen_bytes + 1, "holds parts of a granule");
    WRONG_IF(&bench, part->declared_bytes, part->declared_bytes + BOOKS_GRANULE,
             "sums up what it holds on");
    WRONG_IF(&bench, part->seen_bytes, part->declared_bytes + BOOKS_GRANULE,
             "sums up what it holds on");
    WRONG_IF(&bench, share->held_bytes, share->held_bytes - BOOKS_GRANULE,
             "sums up what it holds on");
    WRONG_IF(&bench, share->seen_bytes, 0, "sums up what it holds on");
    WRONG_IF(&bench, share->is_exclusive, true, "has a share of another kind on");
    WRONG_IF(&bench, bench.exclusive->shares[0].is_exclusive, false,
             "has a share of another kind on");
    WRONG_IF(&bench, share->declares_max, true, "has a share of another kind on");
    WRONG_IF(&bench, share->guaranteed_bytes, share->limit_bytes + BOOKS_GRANULE,
             "is guaranteed more than its limit");
    fixture_free(bench.fixture);
}
END_TEST

START_TEST(mistakes_of_a_user_are_noticed) {
    struct bench bench = bench_new();
    struct user *user = bench.fixed->user, *nobody;

    WRONG_IF(&bench, user->n_leases, 1, "the sums of uid 1001 are wrong");
    WRONG_IF(&bench, user->charged_bytes, user->charged_bytes + 1, "the sums of uid 1001 are");
    WRONG_IF(&bench, user->n_slots, 3, "the sums of uid 1001 are wrong");
    WRONG_IF(&bench, user->n_waiting, 1, "the sums of uid 1001 are wrong");
    WRONG_IF(&bench, user->slot_bytes[1], 0, "the sums of uid 1001 are wrong");
    WRONG_IF(&bench, user->slot_bytes[BOOKS_MAX - 1], 1, "the sums of uid 1001 are wrong");
    WRONG_IF(&bench, user->slot_leases[1], 1, "the sums of uid 1001 are wrong");
    WRONG_IF(&bench, bench.request->user->n_waiting, 1, "the sums of uid 1004 are wrong");
    nobody = user_get(bench.broker, 7, 7);
    ck_assert_ptr_nonnull(nobody);
    expect(&bench, "a user of nothing", "uid 7 has and wants nothing, and is still there");
    user_put(bench.broker, nobody);
    fixture_check(bench.fixture);
    fixture_free(bench.fixture);
}
END_TEST

START_TEST(mistakes_of_a_waiter_are_noticed) {
    struct bench bench = bench_new();
    struct waiter *request = bench.request, *growth = bench.growth;
    struct request *asked = request->request;
    struct waiter *taken;

    WRONG_IF(&bench, request->id, growth->id, "is not found by its number");
    WRONG_IF(&bench, request->is_active, false, "is in 0 places");
    list_append(&bench.broker->asleep, &request->in_parked);
    expect(&bench, "asleep and awake", "is in 2 places");
    list_remove(&request->in_parked);
    list_append(&bench.broker->recalls, &growth->in_recalls);
    expect(&bench, "recalls and competes", "is in 2 places");
    list_remove(&growth->in_recalls);
    WRONG_IF(&bench, request->in_queue.marks[0], request->in_queue.marks[0] & ~UINT64_C(1),
             "would not be found by its devices");
    WRONG_IF(&bench, request->in_queue.marks[0], request->in_queue.marks[0] & ~UINT64_C(2),
             "would not be found by its devices");
    WRONG_IF(&bench, growth->in_queue.marks[0], growth->in_queue.marks[0] | 4,
             "would not be found by its devices");
    WRONG_IF(&bench, growth->request, asked, "wants both growth and a lease, or neither");
    WRONG_IF(&bench, request->request, NULL, "wants both growth and a lease, or neither");
    WRONG_IF(&bench, request->is_asking, true, "has a caller that has left");
    WRONG_IF(&bench, request->timeout_usec, 0, "would not be timed out");
    WRONG_IF(&bench, growth->in_timeouts.n, 0, "would not be timed out");
    WRONG_IF(&bench, bench.grows->is_ending, true, "wants growth of a lease that ends");
    WRONG_IF(&bench, request->in_queue.key, INT64_MAX, "the queue is out of order");
    WRONG_IF(&bench, request->in_queue.tie, UINT64_MAX, "the queue is out of order");
    WRONG_IF(&bench, bench.broker->requests->left->n, 70,
             "a place in the queue is counted wrongly");
    taken = map_take(&bench.broker->waiters, request->id);
    ck_assert_ptr_eq(taken, request);
    taken->user->n_waiting--; /* else its user's sums show first */
    expect(&bench, "only in the queue", "is not found by its number");
    taken->user->n_waiting++;
    ck_assert_int_eq(map_put(&bench.broker->waiters, taken->id, taken), 0);
    fixture_check(bench.fixture);
    rank_tree_remove(&bench.broker->requests, &request->in_queue);
    expect(&bench, "in no queue", "a waiter is outside the queue");
    rank_tree_insert(&bench.broker->requests, &request->in_queue);
    fixture_check(bench.fixture);
    fixture_free(bench.fixture);
}
END_TEST

START_TEST(mistakes_of_a_process_are_noticed) {
    static const struct process_id idle = { .pid = 99, .start = 7 };
    struct bench bench = bench_new();
    struct proc *proc = proc_get(bench.broker, &idle);

    ck_assert_ptr_nonnull(proc);
    expect(&bench, "a process of nothing", "process 99 has and wants nothing, and is still there");
    proc_put(bench.broker, proc);
    fixture_check(bench.fixture);
    /* It holds and waits, it holds, it waits. */
    list_remove(&bench.growth->proc->in_hold_wait);
    expect(&bench, "not listed", "process 14 would not be found in a deadlock");
    list_append(&bench.broker->hold_wait, &bench.growth->proc->in_hold_wait);
    fixture_check(bench.fixture);
    list_append(&bench.broker->hold_wait, &bench.holder->proc->in_hold_wait);
    expect(&bench, "listed, but waits for nothing", "process 11 would not be found in a deadlock");
    list_remove(&bench.holder->proc->in_hold_wait);
    list_append(&bench.broker->hold_wait, &bench.request->proc->in_hold_wait);
    expect(&bench, "listed, but holds nothing", "would not be found in a deadlock");
    list_remove(&bench.request->proc->in_hold_wait);
    fixture_check(bench.fixture);
    fixture_free(bench.fixture);
}
END_TEST

START_TEST(mistakes_of_a_device_are_noticed) {
    struct bench bench = bench_new();
    struct book *book = bench.book;

    WRONG_IF(&bench, bench.broker->n_absent, 1, "0 holders are absent, counted 1");
    WRONG_IF(&bench, book->leased_bytes, book->leased_bytes + BOOKS_GRANULE, "the sums of");
    WRONG_IF(&bench, book->guaranteed_bytes, 0, "the sums of");
    WRONG_IF(&bench, book->held_bytes, 0, "the sums of");
    WRONG_IF(&bench, bench.broker->books[1]->declared_bytes, 0, "the sums of");
    WRONG_IF(&bench, book->declared_bytes, 1, "the sums of");
    WRONG_IF(&bench, book->releasing_bytes, 0, "the sums of");
    WRONG_IF(&bench, bench.releasing->parts[0].bytes, 1, "the sums of");
    WRONG_IF(&bench, book->n_shares, 0, "the counts of");
    WRONG_IF(&bench, book->n_exclusive, 1, "the counts of");
    WRONG_IF(&bench, bench.broker->books[2]->n_exclusive, 0, "the counts of");
    WRONG_IF(&bench, bench.broker->n_growths_at[0], 0, "the counts of");
    WRONG_IF(&bench, bench.broker->n_growths_at[1], 1, "the counts of");
    WRONG_IF(&bench, book->usable_bytes, book->usable_bytes - 1, "is measured wrongly");
    WRONG_IF(&bench, book->usable_bytes, book->usable_bytes - BOOKS_GRANULE, "is measured wrongly");
    WRONG_IF(&bench, book->reserved_bytes, book->reserved_bytes + 1, "is measured wrongly");
    fixture_free(bench.fixture);
}
END_TEST

START_TEST(a_device_without_leases_has_its_place) {
    struct broker_fixture *fixture = fixture_new(2, 40);
    struct bench bench = { .fixture = fixture, .broker = fixture->broker };

    WRONG_IF(&bench, bench.broker->books[1]->slot, 0, "is in the wrong place");
    fixture_free(fixture);
}
END_TEST

SUITE("invariants", mistakes_of_a_lease_are_noticed, mistakes_of_a_user_are_noticed,
      mistakes_of_a_waiter_are_noticed, mistakes_of_a_process_are_noticed,
      mistakes_of_a_device_are_noticed, a_device_without_leases_has_its_place)
