/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whenever a job ends, jobs that waited for it become ready, and free lanes get the next ones.
 *
 * Under a limit the simulation must always be able to finish. Run one after the other, the jobs
 * need a known number of bytes at each place of the sequence, never more than the limit:
 *
 *     bytes     ▁▃▅▇▅▃▁▁▃▅▃▁        the head h is the first job that has not ended; all jobs
 *     place       h    j            before it have ended
 *
 * A later job j may begin early if its bytes fit on top of every place from the head up to its own.
 * Those bytes are then added to these places. So the live bytes never exceed those recorded at the
 * head, and the head itself may always begin: no job that began early can keep it waiting.
 */
#include "libclient/place/simulate.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/halt.h"
#include "libclient/place/heap.h"
#include "libclient/place/live_bytes.h"

/* How many ready jobs to look at for one that fits. */
enum { TRIES = 8 };

/* Bytes by place: a tree whose leaves are the places and whose nodes hold the maximum below them.
 * In O(log n) it finds the maximum of a range, or adds a number to all places before a given one.
 */
struct peaks {
    uint64_t *most;  /* by node, without what was added above it */
    uint64_t *added; /* by node: to all below it */
    uint32_t n;      /* leaves, a power of two; node 1 is the root */
};

static void peaks_done(struct peaks *peaks) {
    free(peaks->most);
    free(peaks->added);
}

static int peaks_init(struct peaks *peaks, const uint64_t *bytes, uint32_t n) {
    peaks->n = 1;
    while (peaks->n < n)
        peaks->n *= 2;
    peaks->most = calloc(2 * (size_t)peaks->n, sizeof(*peaks->most));
    peaks->added = calloc(2 * (size_t)peaks->n, sizeof(*peaks->added));
    if (!peaks->most || !peaks->added)
        return -ENOMEM;
    memcpy(peaks->most + peaks->n, bytes, n * sizeof(*bytes));
    for (uint32_t i = peaks->n; i-- > 1;)
        peaks->most[i] = MAX(peaks->most[2 * i], peaks->most[2 * i + 1]);
    return 0;
}

/* Add a number to all places before `end`. */
static void peaks_add(struct peaks *peaks, uint32_t end, uint64_t bytes) {
    for (uint32_t i = end + peaks->n; i > 1; i /= 2) {
        if (i % 2) { /* what is left of it lies before `end` as a whole */
            peaks->most[i - 1] += bytes;
            peaks->added[i - 1] += bytes;
        }
        peaks->most[i / 2] =
            MAX(peaks->most[i - i % 2], peaks->most[i - i % 2 + 1]) + peaks->added[i / 2];
    }
}

/* The maximum of the places from `begin` to before `end`; both are valid places. */
static uint64_t peaks_max(const struct peaks *peaks, uint32_t begin, uint32_t end) {
    uint32_t from = begin + peaks->n, to = end - 1 + peaks->n;
    uint64_t left = peaks->most[from], right = peaks->most[to];

    if (begin >= end)
        return 0;
    while (from / 2 != to / 2) {
        if (from % 2 == 0)
            left = MAX(left, peaks->most[from + 1]);
        if (to % 2)
            right = MAX(right, peaks->most[to - 1]);
        from /= 2;
        to /= 2;
        left += peaks->added[from];
        right += peaks->added[to];
    }
    left = MAX(left, right);
    while (from > 1) {
        from /= 2;
        left += peaks->added[from];
    }
    return left;
}

/* A running job. */
struct running {
    uint32_t job, lanes;
    uint64_t left; /* nanoseconds of one lane */
};

struct simulation {
    const struct simulate_problem *problem;
    struct simulate_result *ret;
    struct live_bytes live;
    const uint32_t *rank; /* by job: its place in the sequence; NULL: as they become ready */
    struct peaks peaks;   /* with a rank */
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

static void simulation_done(struct simulation *simulation) {
    live_bytes_done(&simulation->live);
    peaks_done(&simulation->peaks);
    free(simulation->waits);
    free(simulation->has_ended);
    for (uint32_t q = 0; simulation->ready && q < simulation->problem->n_queues; q++)
        free(simulation->ready[q].entries);
    free(simulation->ready);
    free(simulation->n_free);
    free(simulation->running);
}

static int simulation_init(struct simulation *simulation) {
    const struct simulate_problem *problem = simulation->problem;
    uint32_t n_jobs = problem->order->n_jobs;
    cleanup(freep) uint32_t *n_mine = calloc(problem->n_queues + 1, sizeof(*n_mine));
    uint32_t n_lanes = 0;
    int r = live_bytes_init(&simulation->live, problem->order);

    if (r < 0)
        return r;
    simulation->waits = malloc((n_jobs + 1) * sizeof(*simulation->waits));
    simulation->has_ended = calloc(n_jobs + 1, sizeof(*simulation->has_ended));
    simulation->ready = calloc(problem->n_queues + 1, sizeof(*simulation->ready));
    simulation->n_free = calloc(problem->n_queues + 1, sizeof(*simulation->n_free));
    if (!n_mine || !simulation->waits || !simulation->has_ended || !simulation->ready ||
        !simulation->n_free)
        return -ENOMEM;
    for (uint32_t job = 0; job < n_jobs; job++)
        n_mine[problem->queue[job]]++;
    for (uint32_t q = 0; q < problem->n_queues; q++) {
        n_lanes += simulation->n_free[q] = problem->n_lanes[q];
        simulation->ready[q].entries = malloc((n_mine[q] + 1) * sizeof(struct heap_entry));
        if (!simulation->ready[q].entries)
            return -ENOMEM;
    }
    simulation->running = malloc((n_lanes + 1) * sizeof(*simulation->running));
    return simulation->running ? 0 : -ENOMEM;
}

static void become_ready(struct simulation *simulation, uint32_t job) {
    uint32_t rank = simulation->rank ? simulation->rank[job] : simulation->n_ready;

    simulation->n_ready++;
    heap_push(&simulation->ready[simulation->problem->queue[job]],
              (struct heap_entry){ rank, job });
}

/* Whether the job may begin now; if so its bytes are added. */
static bool may_begin(struct simulation *simulation, uint32_t job) {
    uint64_t bytes;

    if (!simulation->rank || simulation->rank[job] <= simulation->head)
        return true;
    bytes = order_made_bytes(simulation->problem->order, job);
    if (peaks_max(&simulation->peaks, simulation->head, simulation->rank[job]) + bytes >
        simulation->most_bytes)
        return false;
    peaks_add(&simulation->peaks, simulation->rank[job], bytes);
    return true;
}

static bool find_next(struct simulation *simulation, struct heap *ready, uint32_t *ret) {
    struct heap_entry passed[TRIES];
    uint32_t n_passed = 0;
    bool found = false;

    while (ready->n > 0 && n_passed < TRIES && !found) {
        struct heap_entry entry = heap_pop(ready);

        found = may_begin(simulation, entry.job);
        if (found)
            *ret = entry.job;
        else
            passed[n_passed++] = entry;
    }
    while (n_passed > 0)
        heap_push(ready, passed[--n_passed]);
    return found;
}

static void begin_on(struct simulation *simulation, uint32_t queue) {
    const struct simulate_problem *problem = simulation->problem;
    uint32_t job;

    while (simulation->n_free[queue] > 0 &&
           find_next(simulation, &simulation->ready[queue], &job)) {
        uint32_t lanes = MIN(problem->width[job], simulation->n_free[queue]);

        simulation->n_free[queue] -= lanes;
        simulation->running[simulation->n_running++] =
            (struct running){ job, lanes, problem->nsec[job] };
        simulation->ret->sequence[simulation->n_begun++] = job;
        simulation->ret->begin[job] = simulation->now;
        live_bytes_begin(&simulation->live, job);
    }
}

static void end_job(struct simulation *simulation, const struct running *running) {
    const struct order_lists *after = &simulation->problem->order->after;

    simulation->ret->end[running->job] = simulation->now;
    simulation->n_free[simulation->problem->queue[running->job]] += running->lanes;
    live_bytes_end(&simulation->live, running->job);
    for (uint32_t i = after->first[running->job]; i < after->first[running->job + 1]; i++)
        if (--simulation->waits[after->items[i]] == 0)
            become_ready(simulation, after->items[i]);
    if (!simulation->rank)
        return;
    simulation->has_ended[simulation->rank[running->job]] = true;
    while (simulation->has_ended[simulation->head])
        simulation->head++;
}

/* Advance to the next moment at which a job ends. */
static void pass_time(struct simulation *simulation) {
    uint64_t nsec = UINT64_MAX;
    uint32_t n = 0;

    for (uint32_t i = 0; i < simulation->n_running; i++) {
        const struct running *running = &simulation->running[i];

        nsec = MIN(nsec, (running->left + running->lanes - 1) / running->lanes);
    }
    simulation->now += nsec;
    for (uint32_t i = 0; i < simulation->n_running; i++) {
        struct running running = simulation->running[i];
        uint64_t done = nsec * running.lanes;

        if (done >= running.left) {
            end_job(simulation, &running);
            continue;
        }
        running.left -= done;
        simulation->running[n++] = running;
    }
    simulation->n_running = n;
}

/* Running jobs that can use more lanes get free ones first. */
static void widen(struct simulation *simulation) {
    for (uint32_t i = 0; i < simulation->n_running; i++) {
        struct running *running = &simulation->running[i];
        uint32_t queue = simulation->problem->queue[running->job];
        uint32_t more = MIN(simulation->problem->width[running->job] - running->lanes,
                            simulation->n_free[queue]);

        running->lanes += more;
        simulation->n_free[queue] -= more;
    }
}

static int simulation_run(struct simulation *simulation) {
    const struct simulate_problem *problem = simulation->problem;
    const struct order_lists *before = &problem->order->before;

    for (uint32_t job = 0; job < problem->order->n_jobs; job++) {
        simulation->waits[job] = before->first[job + 1] - before->first[job];
        if (simulation->waits[job] == 0)
            become_ready(simulation, job);
    }
    for (;;) {
        for (uint32_t q = 0; q < problem->n_queues; q++)
            begin_on(simulation, q);
        if (simulation->n_running == 0)
            break;
        if (halt_is_set(problem->order->halt))
            return -ECANCELED;
        pass_time(simulation);
        widen(simulation);
    }
    simulation->ret->nsec = simulation->now;
    simulation->ret->bytes = simulation->live.peak_bytes;
    return 0;
}

int simulate_ready(const struct simulate_problem *problem, struct simulate_result *ret) {
    cleanup(simulation_done) struct simulation simulation = { .problem = problem, .ret = ret };
    int r = simulation_init(&simulation);

    return r < 0 ? r : simulation_run(&simulation);
}

int simulate_within(const struct simulate_problem *problem, const uint32_t *sequence,
                    uint64_t most_bytes, struct simulate_result *ret) {
    uint32_t n_jobs = problem->order->n_jobs;
    cleanup(simulation_done) struct simulation simulation = { .problem = problem,
                                                              .ret = ret,
                                                              .most_bytes = most_bytes };
    cleanup(freep) uint64_t *profile = malloc((n_jobs + 1) * sizeof(*profile));
    cleanup(freep) uint32_t *rank = malloc((n_jobs + 1) * sizeof(*rank));
    uint64_t ignored;
    int r = profile && rank ? order_profile(problem->order, sequence, &ignored, profile) : -ENOMEM;

    if (r == 0)
        r = simulation_init(&simulation);
    if (r == 0)
        r = peaks_init(&simulation.peaks, profile, n_jobs);
    if (r < 0)
        return r;
    for (uint32_t s = 0; s < n_jobs; s++)
        rank[sequence[s]] = s;
    simulation.rank = rank;
    return simulation_run(&simulation);
}
