/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A user that means harm, in a random walk: Mallory asks for anything, waits, grows, gives back,
 * cancels, and ends processes, in any order. Where quotas divide the devices among three users,
 * whatever Mallory does, a user that keeps to its share gets it within twice the reserve time.
 * Without quotas, it waits beside free memory for no longer than that. And no cost that is learned
 * of contexts changes a verdict. ALLOT_TEST_SEED repeats a walk; ALLOT_TEST_LONG makes it longer.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "tests/support/daemon/broker/broker_fixture.h"
#include "tests/support/daemon/broker/transcript.h"
#include "tests/support/suite.h"

#define N_DEVICES  3
#define DEVICE_GIB 24
#define SHARE_GIB  7 /* what a third of a device has room for */
#define MALLORY    1001
#define N_PIDS     12 /* of Mallory's, from 100 on */

struct walk {
    struct broker_fixture *fixture;
    uint64_t random, seed;
    bool has_quotas;
    uint64_t n_tags;
    pid_t next_pid; /* of the honest users */
    unsigned n_asks, n_waits, n_granted;
};

static unsigned pick(struct walk *walk, unsigned n) {
    return (unsigned)(random_next(&walk->random) % n);
}

static struct request any_request(struct walk *walk, const char *const *name) {
    unsigned kind = pick(walk, 5), n = 1 + pick(walk, N_DEVICES), gib = 1 + pick(walk, DEVICE_GIB);
    struct request request = kind == 0   ? fixture_exclusive(n)
                             : kind == 1 ? fixture_grow(n, 0, 0)
                             : kind == 2 ? fixture_grow(n, gib % (SHARE_GIB + 1), gib)
                             : kind == 3 ? fixture_fixed(n, gib)
                                         : fixture_fixed(n, 1 + gib % SHARE_GIB);

    if (pick(walk, 3) == 0) {
        request.devices = name;
        request.n_devices = 1;
        request.n_gpus = 1;
    }
    request.no_wait = pick(walk, 8) == 0;
    return request;
}

/* A lease of Mallory's; NULL: it has none. */
static const struct lease *any_lease(struct walk *walk) {
    const struct lease *lease, *found = NULL;
    unsigned n = 0;

    for (size_t pos = 0; (lease = broker_next_lease(walk->fixture->broker, &pos));)
        if (lease->uid == MALLORY && pick(walk, ++n) == 0)
            found = lease;
    return found;
}

static void cancel_one(struct walk *walk) {
    struct broker_waiter waiter;
    uint32_t n = broker_n_waiters(walk->fixture->broker);

    if (n > 0 && broker_waiter_at(walk->fixture->broker, pick(walk, n), &waiter) &&
        waiter.uid == MALLORY)
        broker_cancel(walk->fixture->broker, waiter.id, walk->fixture->now);
}

static void mallory(struct walk *walk) {
    struct broker_fixture *fixture = walk->fixture;
    const char *name = fixture_name(pick(walk, N_DEVICES));
    pid_t pid = 100 + (pid_t)pick(walk, N_PIDS);
    unsigned gib = pick(walk, DEVICE_GIB), what = pick(walk, 12);
    const struct lease *lease = any_lease(walk);
    struct request request = any_request(walk, &name);
    struct gpuid gpu = fixture_gpu(pick(walk, N_DEVICES));

    if (what < 5)
        fixture_ask(fixture, pid, MALLORY, &request, ++walk->n_tags);
    else if (what == 5)
        cancel_one(walk);
    else if (what == 6)
        fixture_gone(fixture, pid);
    else if (what == 7)
        broker_context_set(fixture->broker, &gpu, random_next(&walk->random));
    else if (lease && what == 8)
        fixture_release(fixture, MALLORY, lease->id);
    else if (lease && what == 9)
        fixture_attach(fixture, pid, MALLORY, lease->id);
    else if (lease && what == 10)
        fixture_grow_by(fixture, pid, lease->id, pick(walk, N_DEVICES), gib, true, ++walk->n_tags);
    else if (lease)
        fixture_shrink_by(fixture, pid, lease->id, pick(walk, N_DEVICES), gib);
}

/* Time passes: bytes of processes that ended are free, and reservations expire. */
static void pass(struct walk *walk, uint64_t usec) {
    fixture_pass(walk->fixture, usec);
    fixture_sample(walk->fixture, NULL, 0);
    fixture_turn(walk->fixture);
}

/* A verdict that the cost of contexts has no part in. */
static void explain(struct walk *walk, uid_t uid, const struct request *request) {
    struct broker_fixture *fixture = walk->fixture;
    struct broker_peer peer = fixture_peer(walk->next_pid, uid);
    static struct explanation before, after;

    memset(&before, 0, sizeof(before));
    memset(&after, 0, sizeof(after));
    ck_assert_int_eq(broker_explain(fixture->broker, &peer, request, fixture->now, &before), 0);
    for (unsigned i = 0; i < N_DEVICES; i++) {
        struct gpuid gpu = fixture_gpu(i);
        uint64_t bytes = random_next(&walk->random);

        broker_context_set(fixture->broker, &gpu, bytes >> pick(walk, 64));
    }
    ck_assert_int_eq(broker_explain(fixture->broker, &peer, request, fixture->now, &after), 0);
    ck_assert_msg(before.verdict.kind == after.verdict.kind &&
                      strcmp(before.verdict.reason, after.verdict.reason) == 0 &&
                      memcmp(before.details, after.details, sizeof(before.details)) == 0,
                  "seed %#llx: what was learned changed a verdict", (unsigned long long)walk->seed);
}

/* No waiter before it reserves any more: if it still waits, its memory is really taken. */
static void check_wait(struct walk *walk, uint64_t since_usec, unsigned gpu, bool is_named,
                       uint64_t gib) {
    struct broker_fixture *fixture = walk->fixture;
    uint64_t reserve = fixture->policy.reserve_usec;

    if (fixture->now.usec - since_usec <= reserve || fixture->now.usec / reserve % 2 == 0)
        return;
    for (unsigned i = 0; i < N_DEVICES; i++)
        ck_assert_msg((is_named && i != gpu) || fixture_left(fixture, i) < gib,
                      "seed %#llx: it waits for %llu GiB beside %llu GiB that are free",
                      (unsigned long long)walk->seed, (unsigned long long)gib,
                      (unsigned long long)fixture_left(fixture, i));
}

/* An honest user asks for what its share has room for, and gets it in time. */
static void honest(struct walk *walk, uid_t uid) {
    struct broker_fixture *fixture = walk->fixture;
    unsigned gpu = pick(walk, N_DEVICES), gib = 1 + pick(walk, SHARE_GIB);
    const char *name = fixture_name(gpu);
    struct request request = pick(walk, 2) ? fixture_fixed(1, gib) : fixture_grow(1, gib, 0);
    uint64_t since = fixture->now.usec;
    uint64_t end = since + 2 * fixture->policy.reserve_usec + fixture->policy.gone_usec + 60 * SECS;
    bool is_named = pick(walk, 2);
    pid_t pid = ++walk->next_pid;
    struct verdict verdict;
    bool is_granted;

    if (is_named) {
        request.devices = &name;
        request.n_devices = 1;
    }
    explain(walk, uid, &request);
    walk->n_asks++;
    verdict = fixture_ask(fixture, pid, uid, &request, 1);
    ck_assert_int_ne(verdict.kind, VERDICT_DENY);
    is_granted = verdict.kind == VERDICT_GRANT;
    walk->n_waits += !is_granted;
    while (!is_granted && fixture->now.usec < end) {
        pass(walk, fixture->policy.reserve_usec / 8);
        is_granted = fixture_told(fixture, 1) != NULL;
        if (!is_granted)
            check_wait(walk, since, gpu, is_named, gib);
        if (!is_granted && pick(walk, 2))
            mallory(walk);
        is_granted |= fixture_told(fixture, 1) != NULL;
    }
    ck_assert_msg(is_granted || !walk->has_quotas,
                  "seed %#llx: uid %u waits for %u GiB within its share: %s",
                  (unsigned long long)walk->seed, (unsigned)uid, gib, verdict.reason);
    walk->n_granted += is_granted;
    for (unsigned i = pick(walk, 6); i > 0; i--)
        mallory(walk);
    fixture_gone(fixture, pid);
    fixture->n_told = 0;
}

/* A chapter of the transcript is so many steps. */
#define CHAPTER 250

static void run(uint64_t seed, unsigned n_steps, struct transcript *transcript) {
    struct walk walk = { .fixture = fixture_new(N_DEVICES, DEVICE_GIB),
                         .random = seed,
                         .seed = seed,
                         .has_quotas = seed % 2,
                         .n_tags = 1,
                         .next_pid = 1000 };
    struct policy *policy = &walk.fixture->policy;

    policy->defaults.has = walk.has_quotas ? POLICY_HAS(quota_permyriad) : 0;
    policy->defaults.quota_permyriad = 3333;
    ck_assert_int_eq(broker_policy_set(walk.fixture->broker, policy, walk.fixture->now), 0);
    if (transcript)
        transcript_follow(transcript, walk.fixture);
    for (unsigned i = 0; i < n_steps; i++) {
        if (pick(&walk, 8) == 0)
            honest(&walk, 2001 + pick(&walk, 2));
        else
            mallory(&walk);
        walk.fixture->n_told = 0;
        if (pick(&walk, 4) == 0)
            pass(&walk, pick(&walk, 20) ? pick(&walk, 60) * SECS : pick(&walk, 7200) * SECS);
        if (transcript)
            fixture_write_state(walk.fixture);
        if (transcript && i % CHAPTER == CHAPTER - 1)
            transcript_end_chapter(transcript, seed, i + 1);
    }
    printf("seed %#llx: %u honest requests, %u waited, %u granted\n", (unsigned long long)seed,
           walk.n_asks, walk.n_waits, walk.n_granted);
    ck_assert_uint_gt(walk.n_granted, 0);
    fixture_free(walk.fixture);
}

START_TEST(no_user_stops_another_that_keeps_to_its_share) {
    const char *seed = getenv("ALLOT_TEST_SEED"), *is_long = getenv("ALLOT_TEST_LONG");
    uint64_t first = seed && *seed ? strtoull(seed, NULL, 0) : 0x4a11;

    for (unsigned i = 0; i < (is_long && *is_long ? 200u : 10u); i++)
        run(first + i, 1000, NULL);
}
END_TEST

START_TEST(the_broker_tells_what_it_told_when_the_walks_were_last_read) {
    struct transcript *transcript = transcript_new();

    for (unsigned i = 0; i < 4; i++)
        run(0x4a11 + i, 1000, transcript);
    transcript_compare(transcript, TEST_GOLDEN "/hostile-walk.txt");
}
END_TEST

SUITE_TIMEOUT("hostile-walk", 300, no_user_stops_another_that_keeps_to_its_share,
              the_broker_tells_what_it_told_when_the_walks_were_last_read)
