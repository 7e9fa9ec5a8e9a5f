/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random walks of the broker: one against the oracle, which does the same by trying everything; one
 * with all that can happen to a daemon, where the books must balance and no promise be broken.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "tests/support/daemon/broker/broker_oracle.h"
#include "tests/support/daemon/broker/transcript.h"
#include "tests/support/daemon/broker/broker_fixture.h"
#include "tests/support/suite.h"

static unsigned n_steps(unsigned usual) {
    const char *text = getenv("ALLOT_TEST_LONG");

    return text && *text ? usual * 20 : usual;
}

static uint64_t seed_of(uint64_t usual) {
    const char *text = getenv("ALLOT_TEST_SEED");

    return text && *text ? strtoull(text, NULL, 0) : usual;
}

static unsigned pick(uint64_t *state, unsigned n) {
    return (unsigned)(random_next(state) % n);
}

/* ---- Against the oracle -------------------------------------------------------------------------
 */

#define UNITS 16 /* GiB of each device */
#define SHORT 10 /* holders and waiters, where the queue is short: the oracle tries all subsets */

struct walk {
    struct broker_fixture *fixture;
    struct broker_oracle oracle;
    uint64_t random;
    bool grows_mostly; /* more growth, so more deadlocks to be avoided or found */
    bool is_long;      /* a long line of different requests for fixed amounts, and no growth */
    uint64_t n_tags;
    int n_pids;
    uint32_t n_seen; /* of fixture->told */
    unsigned n_granted, n_waited, n_deadlocks;
    /* What the broker has decided and the oracle has not yet. */
    struct {
        uint64_t tag;
        enum verdict_kind kind;
        enum refusal refusal;
        uint64_t lease;
        bool lives;
    } answers[256];
    uint32_t n_answers;
};

static void note_answer(struct walk *walk, uint64_t tag, const struct verdict *verdict) {
    ck_assert_uint_lt(walk->n_answers, ELEMENTSOF(walk->answers));
    walk->answers[walk->n_answers].tag = tag;
    walk->answers[walk->n_answers].kind = verdict->kind;
    walk->answers[walk->n_answers].refusal = verdict->refusal;
    walk->answers[walk->n_answers].lease = verdict->lease;
    walk->answers[walk->n_answers++].lives = true;
}

static void decide(void *userdata, const struct oracle_want *want, enum oracle_outcome outcome,
                   int job) {
    struct walk *walk = userdata;

    for (uint32_t i = 0; i < walk->n_answers; i++) {
        if (!walk->answers[i].lives || walk->answers[i].tag != want->tag)
            continue;
        walk->answers[i].lives = false;
        if (outcome == ORACLE_DEADLOCK) {
            ck_assert_int_eq(walk->answers[i].refusal, REFUSAL_DEADLOCK);
            walk->n_deadlocks++;
            return;
        }
        ck_assert_msg(walk->answers[i].kind == VERDICT_GRANT,
                      "want %llu: the oracle grants, the broker denies (%d)",
                      (unsigned long long)want->tag, (int)walk->answers[i].refusal);
        walk->n_granted++;
        if (want->job < 0) {
            walk->oracle.jobs[job].lease = walk->answers[i].lease;
            fixture_attach(walk->fixture, want->pid, (uid_t)want->uid, walk->answers[i].lease);
        }
        return;
    }
    ck_abort_msg("want %llu: the oracle decides (%d), the broker lets it wait",
                 (unsigned long long)want->tag, (int)outcome);
}

/* Both have decided: they must agree. */
static void compare(struct walk *walk) {
    int queue[ORACLE_WANTS], n;

    fixture_turn(walk->fixture);
    for (; walk->n_seen < walk->fixture->n_told; walk->n_seen++)
        note_answer(walk, walk->fixture->told[walk->n_seen].tag,
                    &walk->fixture->told[walk->n_seen].verdict);
    walk->fixture->n_told = walk->n_seen = 0;
    oracle_settle(&walk->oracle, decide, walk);
    for (uint32_t i = 0; i < walk->n_answers; i++)
        ck_assert_msg(!walk->answers[i].lives, "want %llu: the broker decides (%d), not the oracle",
                      (unsigned long long)walk->answers[i].tag, (int)walk->answers[i].kind);
    walk->n_answers = 0;

    for (int d = 0; d < ORACLE_DEVICES; d++)
        ck_assert_int_eq((int)fixture_left(walk->fixture, (unsigned)d),
                         (int)oracle_free(&walk->oracle, d));
    n = oracle_queue(&walk->oracle, queue);
    ck_assert_uint_eq(broker_n_waiters(walk->fixture->broker), (unsigned)n);
    for (int i = 0; i < n; i++) {
        struct broker_waiter waiter;

        ck_assert(broker_waiter_at(walk->fixture->broker, (uint32_t)i, &waiter));
        ck_assert_uint_eq(waiter.id, walk->oracle.wants[queue[i]].waiter);
    }
    for (int i = 0; i < ORACLE_JOBS; i++) {
        const struct oracle_job *job = &walk->oracle.jobs[i];
        const struct lease *lease =
            job->lives ? broker_lease(walk->fixture->broker, job->lease) : NULL;

        if (!job->lives)
            continue;
        ck_assert_ptr_nonnull(lease);
        ck_assert_uint_eq(lease->n_shares, (unsigned)__builtin_popcount(job->devices));
        for (uint32_t s = 0; s < lease->n_shares; s++) {
            unsigned d = lease->shares[s].book->device.seen.index;

            ck_assert(job->devices >> d & 1);
            ck_assert_uint_eq(lease->shares[s].held_bytes, (uint64_t)job->held[d] * GIB);
        }
    }
}

static struct oracle_want *join(struct walk *walk, int pid, int uid, int priority) {
    struct oracle_want *want = oracle_find_want(&walk->oracle);

    *want = (struct oracle_want){
        .lives = true,
        .tag = ++walk->n_tags,
        .pid = pid,
        .uid = uid,
        .priority = priority,
        .since_usec = (int64_t)walk->fixture->now.usec,
        .arrival = ++walk->oracle.n_arrivals,
        .job = -1,
    };
    return want;
}

static void hear(struct walk *walk, struct oracle_want *want, const struct verdict *verdict) {
    if (verdict->kind == VERDICT_WAIT) {
        want->waiter = verdict->waiter;
        walk->n_waited++;
    } else {
        note_answer(walk, want->tag, verdict);
    }
}

static void ask(struct walk *walk) {
    uint64_t *random = &walk->random;
    struct request request = fixture_request();
    struct oracle_want *want;
    struct verdict verdict;
    const char *names[ORACLE_DEVICES];
    static const char *const digits[] = { "0", "1", "2" };
    int n_jobs = 0, n_wants = 0, uid, priority;

    for (int i = 0; i < ORACLE_JOBS; i++)
        n_jobs += walk->oracle.jobs[i].lives;
    for (int i = 0; i < ORACLE_WANTS; i++)
        n_wants += walk->oracle.wants[i].lives;
    if (walk->is_long ? n_wants == ORACLE_WANTS : n_jobs + n_wants >= SHORT)
        return;
    /* One pick a statement: what a seed means must not depend on the compiler. */
    uid = 1000 + (int)pick(random, walk->is_long ? 40 : 5);
    priority = (int)pick(random, 5) - 2;
    want = join(walk, ++walk->n_pids + 100, uid, priority);
    want->n_wanted = 1 + (int)pick(random, ORACLE_DEVICES);
    if (want->n_wanted > 1 && pick(random, 2))
        want->n_wanted--;
    want->allowed = (1 << ORACLE_DEVICES) - 1;
    want->spreads = pick(random, 2);
    request.has_choose = request.has_priority = request.has_amount = true;
    request.choose = want->spreads ? CHOICE_SPREAD : CHOICE_PACK;
    request.priority = want->priority;
    request.amount = AMOUNT_GROW;
    switch (walk->grows_mostly ? 2 + pick(random, 2) : pick(random, walk->is_long ? 2 : 4)) {
    case 0:
        request.amount.mode = LEASE_FIXED;
        want->limit = want->guaranteed = 1 + (int)pick(random, UNITS);
        request.amount.bytes = (uint64_t)want->limit * GIB;
        break;
    case 1:
        request.amount.mode = LEASE_FRACTION;
        request.amount.permyriad = 2500 * (1 + pick(random, 4));
        want->limit = want->guaranteed = UNITS * (int)request.amount.permyriad / 10000;
        break;
    case 2:
        want->guaranteed = 1 + (int)pick(random, 4);
        want->limit = want->guaranteed + (int)pick(random, UNITS - 4);
        want->declares = true;
        request.amount.min_bytes = (uint64_t)want->guaranteed * GIB;
        request.amount.max_bytes = (uint64_t)want->limit * GIB;
        break;
    default:
        want->guaranteed = 1 + (int)pick(random, walk->grows_mostly ? 2 : 6);
        want->limit = UNITS;
        request.amount.min_bytes = (uint64_t)want->guaranteed * GIB;
        break;
    }
    if (pick(random, 3) == 0) {
        unsigned first = pick(random, ORACLE_DEVICES);

        want->allowed = 0;
        for (int i = 0; i < want->n_wanted; i++) {
            names[i] = digits[(first + (unsigned)i) % ORACLE_DEVICES];
            want->allowed |= 1u << (first + (unsigned)i) % ORACLE_DEVICES;
        }
        request.devices = names;
        request.n_devices = (size_t)want->n_wanted;
    } else {
        request.n_gpus = (uint32_t)want->n_wanted;
    }
    verdict = fixture_ask(walk->fixture, want->pid, (uid_t)want->uid, &request, want->tag);
    hear(walk, want, &verdict);
}

static int pick_job(struct walk *walk) {
    int first = (int)pick(&walk->random, SHORT);

    for (int i = 0; i < ORACLE_JOBS; i++)
        if (walk->oracle.jobs[(first + i) % ORACLE_JOBS].lives)
            return (first + i) % ORACLE_JOBS;
    return -1;
}

static void change(struct walk *walk, bool grows) {
    uint64_t *random = &walk->random;
    int at = pick_job(walk);
    int device = (int)pick(random, ORACLE_DEVICES);
    struct oracle_job *job = &walk->oracle.jobs[at < 0 ? 0 : at];
    int64_t bytes = 1 + (int)pick(random, 8);
    struct oracle_want *want;
    struct verdict verdict;

    if (at < 0)
        return;
    while (!(job->devices >> device & 1))
        device = (device + 1) % ORACLE_DEVICES;
    /* A process that waits in one call may not be in another: one thread each. */
    for (int i = 0; i < ORACLE_WANTS; i++)
        if (walk->oracle.wants[i].lives && walk->oracle.wants[i].job == at)
            return;
    if (!grows) {
        bytes = bytes < job->held[device] ? bytes : job->held[device];
        job->held[device] -= bytes;
        verdict = fixture_shrink_by(walk->fixture, job->pid, job->lease, (unsigned)device,
                                    (uint64_t)bytes);
        ck_assert_int_eq(verdict.kind, VERDICT_GRANT);
        return;
    }
    if (job->held[device] + bytes > job->limit) {
        verdict = fixture_grow_by(walk->fixture, job->pid, job->lease, (unsigned)device,
                                  (uint64_t)bytes, true, 0);
        ck_assert_int_eq(verdict.refusal, REFUSAL_NO_MEMORY);
        return;
    }
    want = join(walk, job->pid, job->uid, job->priority);
    want->job = at;
    want->device = device;
    want->bytes = bytes;
    verdict = fixture_grow_by(walk->fixture, job->pid, job->lease, (unsigned)device,
                              (uint64_t)bytes, true, want->tag);
    hear(walk, want, &verdict);
}

static void end(struct walk *walk) {
    int at = walk->is_long ? pick_job(walk) : (int)pick(&walk->random, SHORT);
    struct oracle_job *job = &walk->oracle.jobs[at < 0 ? 0 : at];

    if (at < 0 || !job->lives)
        return;
    /* It gives back before it ends, so that all its bytes are free in one moment. */
    job->lives = false;
    for (int i = 0; i < ORACLE_WANTS; i++) {
        struct oracle_want *want = &walk->oracle.wants[i];

        if (!want->lives || want->job != at)
            continue;
        want->lives = false;
        ck_assert_int_eq(broker_cancel(walk->fixture->broker, want->waiter, walk->fixture->now), 0);
    }
    for (int d = 0; d < ORACLE_DEVICES; d++)
        if (job->held[d] > 0)
            fixture_shrink_by(walk->fixture, job->pid, job->lease, (unsigned)d,
                              (uint64_t)job->held[d]);
    fixture_gone(walk->fixture, job->pid);
}

static void cancel(struct walk *walk) {
    struct oracle_want *want = &walk->oracle.wants[pick(&walk->random, ORACLE_WANTS)];

    if (!want->lives)
        return;
    want->lives = false;
    ck_assert_int_eq(broker_cancel(walk->fixture->broker, want->waiter, walk->fixture->now), 0);
}

/* A chapter of the transcript is so many steps. */
#define CHAPTER 100

static unsigned walk_with_oracle(uint64_t seed, unsigned steps, bool is_long,
                                 struct transcript *transcript) {
    struct walk *walk = calloc(1, sizeof(*walk));
    unsigned n_deadlocks;

    walk->random = seed;
    walk->is_long = is_long;
    walk->grows_mostly = !is_long && seed % 2;
    walk->fixture = fixture_new(ORACLE_DEVICES, UNITS);
    walk->fixture->policy.defaults.has =
        POLICY_HAS(max_leases) | POLICY_HAS(priority_max) | POLICY_HAS(grow_wait_usec);
    walk->fixture->policy.defaults.max_leases = 3;
    walk->fixture->policy.reserve_usec = UINT64_MAX; /* the oracle knows no time but age */
    walk->fixture->policy.defaults.priority_max = 5;
    walk->fixture->policy.defaults.grow_wait_usec = UNITS_FOREVER;
    ck_assert_int_eq(
        broker_policy_set(walk->fixture->broker, &walk->fixture->policy, walk->fixture->now), 0);
    if (transcript)
        transcript_follow(transcript, walk->fixture);
    walk->oracle.usable = UNITS;
    walk->oracle.max_leases = 3;
    walk->oracle.age_usec = (int64_t)walk->fixture->policy.age_usec;

    for (unsigned step = 0; step < steps; step++) {
        unsigned what = pick(&walk->random, 100);

        walk->fixture->now.usec +=
            pick(&walk->random, 4) ? pick(&walk->random, 1000) : pick(&walk->random, 1200) * SECS;
        if (what < (is_long ? 65 : 35))
            ask(walk);
        else if (is_long && what < 75)
            cancel(walk);
        else if (what < 65)
            change(walk, true);
        else if (what < 75)
            change(walk, false);
        else if (what < (walk->grows_mostly ? 80 : 90))
            end(walk);
        else if (what < 92)
            cancel(walk);
        compare(walk);
        if (transcript)
            fixture_write_state(walk->fixture);
        if (transcript && step % CHAPTER == CHAPTER - 1)
            transcript_end_chapter(transcript, seed, step + 1);
    }
    printf("seed %#llx: %u granted, %u waited, %u deadlocks, %u in line\n",
           (unsigned long long)seed, walk->n_granted, walk->n_waited, walk->n_deadlocks,
           broker_n_waiters(walk->fixture->broker));
    ck_assert_uint_gt(walk->n_granted, steps / 20);
    ck_assert_uint_gt(walk->n_waited, steps / 100);
    n_deadlocks = walk->n_deadlocks;
    fixture_free(walk->fixture);
    free(walk);
    return n_deadlocks;
}

START_TEST(the_broker_and_the_oracle_always_agree) {
    unsigned n_deadlocks = 0;

    for (uint64_t i = 0; i < 8; i++)
        n_deadlocks += walk_with_oracle(seed_of(0xa110c) + i, n_steps(1200), false, NULL);
    ck_assert_uint_gt(n_deadlocks, 0);
}
END_TEST

START_TEST(they_agree_on_a_long_queue_of_different_requests) {
    for (uint64_t i = 0; i < 4; i++)
        walk_with_oracle(seed_of(0x10e6) + i, n_steps(600), true, NULL);
}
END_TEST

START_TEST(the_broker_tells_what_it_told_when_the_walks_were_last_read) {
    struct transcript *transcript = transcript_new();

    for (uint64_t i = 0; i < 4; i++)
        walk_with_oracle(0xa110c + i, 600, false, transcript);
    for (uint64_t i = 0; i < 2; i++)
        walk_with_oracle(0x10e6 + i, 300, true, transcript);
    transcript_compare(transcript, TEST_GOLDEN "/broker-walk.txt");
}
END_TEST

SUITE_TIMEOUT("broker-walk", 300, the_broker_and_the_oracle_always_agree,
              they_agree_on_a_long_queue_of_different_requests,
              the_broker_tells_what_it_told_when_the_walks_were_last_read)
