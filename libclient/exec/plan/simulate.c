/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timetable: whenever a job ends, those that it kept waiting become ready, and lanes that are free
 * get the next ones.
 *
 * Within a limit, what matters is that the end can always be reached. Done one after the other the
 * jobs need so many bytes at each place of the sequence, never more than the limit:
 *
 *     bytes     ▁▃▅▇▅▃▁▁▃▅▃▁        the head is the first that has not ended; all before it have.
 *     place       h    j            A job j behind it may begin before its turn, if what it makes
 *                                   fits on top of every place from the head up to its own.
 *
 * It is then added to those places. So what lives at any moment is at most what stands at the head,
 * and the head itself may always begin: nothing that began before its turn can keep it out.
 */
#include "libclient/exec/plan/simulate.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/halt.h"
#include "libclient/exec/plan/heap.h"
#include "libclient/exec/plan/live_bytes.h"

/* How many ready jobs to look at for one that fits. */
enum { TRIES = 8 };

/* Bytes by place; the most of any range, and the same added to all places before one, in O(log n):
 * a tree whose leaves are the places, each node the most below it. */
struct places {
    uint64_t *most;  /* by node, without what was added above it */
    uint64_t *added; /* by node: to all below it */
    uint32_t n;      /* leaves, a power of two; node 1 is the root */
};

static void places_done(struct places *places) {
    free(places->most);
    free(places->added);
}

static int places_init(struct places *places, const uint64_t *bytes, uint32_t n) {
    places->n = 1;
    while (places->n < n)
        places->n *= 2;
    places->most = calloc(2 * (size_t)places->n, sizeof(*places->most));
    places->added = calloc(2 * (size_t)places->n, sizeof(*places->added));
    if (!places->most || !places->added)
        return -ENOMEM;
    memcpy(places->most + places->n, bytes, n * sizeof(*bytes));
    for (uint32_t i = places->n; i-- > 1;)
        places->most[i] = MAX(places->most[2 * i], places->most[2 * i + 1]);
    return 0;
}

/* To all places before `end`. */
static void places_add(struct places *places, uint32_t end, uint64_t bytes) {
    for (uint32_t i = end + places->n; i > 1; i /= 2) {
        if (i % 2) { /* what is left of it lies before `end` as a whole */
            places->most[i - 1] += bytes;
            places->added[i - 1] += bytes;
        }
        places->most[i / 2] =
            MAX(places->most[i - i % 2], places->most[i - i % 2 + 1]) + places->added[i / 2];
    }
}

/* Of the places from `begin` to before `end`, both inside. */
static uint64_t places_most(const struct places *places, uint32_t begin, uint32_t end) {
    uint32_t from = begin + places->n, to = end - 1 + places->n;
    uint64_t left = places->most[from], right = places->most[to];

    if (begin >= end)
        return 0;
    while (from / 2 != to / 2) {
        if (from % 2 == 0)
            left = MAX(left, places->most[from + 1]);
        if (to % 2)
            right = MAX(right, places->most[to - 1]);
        from /= 2;
        to /= 2;
        left += places->added[from];
        right += places->added[to];
    }
    left = MAX(left, right);
    while (from > 1) {
        from /= 2;
        left += places->added[from];
    }
    return left;
}

/* A job that goes on. */
struct running {
    uint32_t job, lanes;
    uint64_t left; /* nanoseconds of one lane */
};

struct play {
    const struct timetable_problem *problem;
    struct timetable *ret;
    struct ledger ledger;
    const uint32_t *rank; /* by job: its place in the sequence; NULL: as they become ready */
    struct places places; /* with a rank */
    uint64_t most_bytes;
    uint32_t n_begun, n_ready; /* so far */
    uint32_t head;             /* place of the first that has not ended */
    uint64_t now;
    uint32_t *waits;    /* by job */
    bool *has_ended;    /* by place */
    struct heap *ready; /* by queue; key: rank */
    uint32_t *n_free;   /* by queue: lanes */
    struct running *running;
    uint32_t n_running;
};

static void play_done(struct play *play) {
    ledger_done(&play->ledger);
    places_done(&play->places);
    free(play->waits);
    free(play->has_ended);
    for (uint32_t q = 0; play->ready && q < play->problem->n_queues; q++)
        free(play->ready[q].entries);
    free(play->ready);
    free(play->n_free);
    free(play->running);
}

static int play_init(struct play *play) {
    const struct timetable_problem *problem = play->problem;
    uint32_t n_jobs = problem->order->n_jobs;
    cleanup(freep) uint32_t *n_mine = calloc(problem->n_queues + 1, sizeof(*n_mine));
    uint32_t n_lanes = 0;
    int r = ledger_init(&play->ledger, problem->order);

    if (r < 0)
        return r;
    play->waits = malloc((n_jobs + 1) * sizeof(*play->waits));
    play->has_ended = calloc(n_jobs + 1, sizeof(*play->has_ended));
    play->ready = calloc(problem->n_queues + 1, sizeof(*play->ready));
    play->n_free = calloc(problem->n_queues + 1, sizeof(*play->n_free));
    if (!n_mine || !play->waits || !play->has_ended || !play->ready || !play->n_free)
        return -ENOMEM;
    for (uint32_t job = 0; job < n_jobs; job++)
        n_mine[problem->queue[job]]++;
    for (uint32_t q = 0; q < problem->n_queues; q++) {
        n_lanes += play->n_free[q] = problem->n_lanes[q];
        play->ready[q].entries = malloc((n_mine[q] + 1) * sizeof(struct heap_entry));
        if (!play->ready[q].entries)
            return -ENOMEM;
    }
    play->running = malloc((n_lanes + 1) * sizeof(*play->running));
    return play->running ? 0 : -ENOMEM;
}

static void become_ready(struct play *play, uint32_t job) {
    uint32_t rank = play->rank ? play->rank[job] : play->n_ready;

    play->n_ready++;
    heap_push(&play->ready[play->problem->queue[job]], (struct heap_entry){ rank, job });
}

/* Whether the job may begin now; if so it is booked. */
static bool may_begin(struct play *play, uint32_t job) {
    uint64_t bytes;

    if (!play->rank || play->rank[job] <= play->head)
        return true;
    bytes = order_made_bytes(play->problem->order, job);
    if (places_most(&play->places, play->head, play->rank[job]) + bytes > play->most_bytes)
        return false;
    places_add(&play->places, play->rank[job], bytes);
    return true;
}

static bool find_next(struct play *play, struct heap *ready, uint32_t *ret) {
    struct heap_entry passed[TRIES];
    uint32_t n_passed = 0;
    bool found = false;

    while (ready->n > 0 && n_passed < TRIES && !found) {
        struct heap_entry entry = heap_pop(ready);

        found = may_begin(play, entry.job);
        if (found)
            *ret = entry.job;
        else
            passed[n_passed++] = entry;
    }
    while (n_passed > 0)
        heap_push(ready, passed[--n_passed]);
    return found;
}

static void begin_on(struct play *play, uint32_t queue) {
    const struct timetable_problem *problem = play->problem;
    uint32_t job;

    while (play->n_free[queue] > 0 && find_next(play, &play->ready[queue], &job)) {
        uint32_t lanes = MIN(problem->width[job], play->n_free[queue]);

        play->n_free[queue] -= lanes;
        play->running[play->n_running++] = (struct running){ job, lanes, problem->nsec[job] };
        play->ret->sequence[play->n_begun++] = job;
        play->ret->begin[job] = play->now;
        ledger_begin(&play->ledger, job);
    }
}

static void end_job(struct play *play, const struct running *running) {
    const struct order_lists *after = &play->problem->order->after;

    play->ret->end[running->job] = play->now;
    play->n_free[play->problem->queue[running->job]] += running->lanes;
    ledger_end(&play->ledger, running->job);
    for (uint32_t i = after->first[running->job]; i < after->first[running->job + 1]; i++)
        if (--play->waits[after->items[i]] == 0)
            become_ready(play, after->items[i]);
    if (!play->rank)
        return;
    play->has_ended[play->rank[running->job]] = true;
    while (play->has_ended[play->head])
        play->head++;
}

/* On to the next moment at which something ends. */
static void pass_time(struct play *play) {
    uint64_t nsec = UINT64_MAX;
    uint32_t n = 0;

    for (uint32_t i = 0; i < play->n_running; i++) {
        const struct running *running = &play->running[i];

        nsec = MIN(nsec, (running->left + running->lanes - 1) / running->lanes);
    }
    play->now += nsec;
    for (uint32_t i = 0; i < play->n_running; i++) {
        struct running running = play->running[i];
        uint64_t done = nsec * running.lanes;

        if (done >= running.left) {
            end_job(play, &running);
            continue;
        }
        running.left -= done;
        play->running[n++] = running;
    }
    play->n_running = n;
}

/* Lanes that are free go to those first who can use more than they have. */
static void widen(struct play *play) {
    for (uint32_t i = 0; i < play->n_running; i++) {
        struct running *running = &play->running[i];
        uint32_t queue = play->problem->queue[running->job];
        uint32_t more =
            MIN(play->problem->width[running->job] - running->lanes, play->n_free[queue]);

        running->lanes += more;
        play->n_free[queue] -= more;
    }
}

static int play_through(struct play *play) {
    const struct timetable_problem *problem = play->problem;
    const struct order_lists *before = &problem->order->before;

    for (uint32_t job = 0; job < problem->order->n_jobs; job++) {
        play->waits[job] = before->first[job + 1] - before->first[job];
        if (play->waits[job] == 0)
            become_ready(play, job);
    }
    for (;;) {
        for (uint32_t q = 0; q < problem->n_queues; q++)
            begin_on(play, q);
        if (play->n_running == 0)
            break;
        if (halt_is_set(problem->order->halt))
            return -ECANCELED;
        pass_time(play);
        widen(play);
    }
    play->ret->nsec = play->now;
    play->ret->bytes = play->ledger.peak_bytes;
    return 0;
}

int timetable_ready(const struct timetable_problem *problem, struct timetable *ret) {
    cleanup(play_done) struct play play = { .problem = problem, .ret = ret };
    int r = play_init(&play);

    return r < 0 ? r : play_through(&play);
}

int timetable_within(const struct timetable_problem *problem, const uint32_t *sequence,
                     uint64_t most_bytes, struct timetable *ret) {
    uint32_t n_jobs = problem->order->n_jobs;
    cleanup(
        play_done) struct play play = { .problem = problem, .ret = ret, .most_bytes = most_bytes };
    cleanup(freep) uint64_t *profile = malloc((n_jobs + 1) * sizeof(*profile));
    cleanup(freep) uint32_t *rank = malloc((n_jobs + 1) * sizeof(*rank));
    uint64_t ignored;
    int r = profile && rank ? order_profile(problem->order, sequence, &ignored, profile) : -ENOMEM;

    if (r == 0)
        r = play_init(&play);
    if (r == 0)
        r = places_init(&play.places, profile, n_jobs);
    if (r < 0)
        return r;
    for (uint32_t s = 0; s < n_jobs; s++)
        rank[sequence[s]] = s;
    play.rank = rank;
    return play_through(&play);
}
