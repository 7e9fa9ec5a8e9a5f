/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/place/dynamic.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/place/heuristic.h"
#include "libclient/place/search.h"

/* A plan on the way, and how far it is from fitting. */
struct candidate {
    struct assignment plan;
    const char *way;
    double over_bytes; /* above the caps; 0: it fits */
};

#define LARGE_TASKS    20000 /* from here on a portfolio costs seconds and memory: fewer variants, */
#define LARGE_KEPT     2 /* only the best are kept and get other orders, and one thread searches */
#define SINGLE_DEVICES 8 /* devices on which everything is tried alone */
#define CANDIDATES_MAX (2 + 1 + 1 + 12 + 4 + 1 + 2 * SINGLE_DEVICES)

struct dynamic {
    const struct task_graph *graph;
    const struct dynamic_options *options;
    struct heuristic heuristic;
    struct candidate found[CANDIDATES_MAX]; /* the best first, once they are sorted */
    unsigned n;
    struct assignment scratch;
    struct blocks blocks;
    bool was_stopped, is_large;
};

static double over_bytes(const struct task_graph *g, const struct assignment *plan) {
    double sum = 0;

    for (uint32_t d = 0; d < g->n_devices; d++)
        if (plan->peak_bytes[d] > g->memory_bytes[d])
            sum += (double)(plan->peak_bytes[d] - g->memory_bytes[d]);
    return sum;
}

static int by_quality(const void *a, const void *b) {
    const struct candidate *x = a, *y = b;
    double p = x->plan.makespan_usec, q = y->plan.makespan_usec;

    if (x->over_bytes != y->over_bytes)
        return x->over_bytes < y->over_bytes ? -1 : 1;
    return p < q ? -1 : p > q;
}

static void candidate_set(const struct task_graph *g, struct candidate *to,
                          const struct assignment *plan, const char *way) {
    assignment_copy(g, &to->plan, plan);
    to->way = way;
    to->over_bytes = over_bytes(g, plan);
}

/* The part of the caller's time that is used up. */
static double used(const struct dynamic *d) {
    return d->options->used ? d->options->used(d->options->data) : 0;
}

static bool is_stopped(struct dynamic *d) {
    if (!d->was_stopped && d->options->is_stopped)
        d->was_stopped = d->options->is_stopped(d->options->data);
    return d->was_stopped;
}

/* ---- The portfolio --------------------------------------------------------------------------- */

/* Judge the scratch plan as it is; if it does not fit into memory, depth first. */
static int judge(struct dynamic *d, const char *way, struct candidate *best, bool *ret_accepted) {
    const struct task_graph *g = d->graph;

    *ret_accepted = false;
    for (unsigned deep = 0; deep < 2; deep++) {
        enum timeline_fault fault;
        int r;

        if (deep)
            assignment_order(g, &d->scratch, d->heuristic.depth_first);
        r = timeline_run(g, &d->scratch, NULL, &fault);
        if (r < 0)
            return r;
        if (fault == TIMELINE_OK || fault == TIMELINE_MEMORY) {
            struct candidate now = { d->scratch, way, over_bytes(g, &d->scratch) };

            if (!best->way || by_quality(&now, best) < 0)
                candidate_set(g, best, &d->scratch, way);
        }
        if (fault == TIMELINE_OK && !deep) {
            *ret_accepted = true;
            return 0;
        }
    }
    return 0;
}

/* One heuristic, stricter about memory until its plan is accepted. */
static int attempt(struct dynamic *d, const char *way, heuristic_fn *plan, unsigned variant) {
    struct candidate *best = &d->found[d->n];
    unsigned n_strict = d->graph->is_capped ? HEURISTIC_STRICT : 1;
    bool is_accepted = false;
    int r = 0;

    if (d->n > 0 && is_stopped(d))
        return 0;
    if (!best->plan.device)
        r = assignment_init(&best->plan, d->graph);
    for (unsigned strictness = 0; strictness < n_strict && !is_accepted && r == 0; strictness++) {
        r = plan(&d->heuristic, variant, strictness, &d->scratch);
        if (r == 0)
            r = judge(d, way, best, &is_accepted);
        else if (r == -ENOENT)
            r = 0;
    }
    if (r == 0 && best->way)
        d->n++;
    if (d->is_large && d->n > LARGE_KEPT) {
        qsort(d->found, d->n, sizeof(*d->found), by_quality);
        d->found[--d->n].way = NULL;
    }
    return r;
}

static int run_portfolio(struct dynamic *d) {
    const struct task_graph *g = d->graph;
    int r = attempt(d, "HEFT", heft_plan, 0);

    if (r == 0)
        r = attempt(d, "HEFT with link queues", heft_plan, 1);
    if (r == 0)
        r = attempt(d, "greedy simulation", greedy_whitepaper, 0);
    if (r == 0)
        r = attempt(d, "earliest start first", greedy_etf, 0);
    for (unsigned i = 0; i < 12 && r == 0; i++)
        if (!d->is_large || i % 4 == 0)
            r = attempt(d, "device after device", fill_plan, i);
    for (unsigned i = 0; i < 4 && r == 0; i++)
        r = attempt(d, "stages", stages_plan, i);
    if (r == 0)
        r = attempt(d, "round robin", fill_round_robin, 0);
    for (unsigned i = 0; i < MIN(g->n_devices, (uint32_t)SINGLE_DEVICES) && r == 0; i++) {
        r = attempt(d, "one device", fill_single, i);
        if (r == 0)
            r = attempt(d, "one device", fill_single, FILL_SINGLE_DEEP + i);
    }
    qsort(d->found, d->n, sizeof(*d->found), by_quality);
    return r;
}

/* Better orders for the candidates. */
static int reorder(struct dynamic *d) {
    unsigned n_rounds = d->is_large ? 3 : 8;
    int r = 0;

    for (unsigned i = 0; i < d->n && r == 0 && !is_stopped(d) && used(d) < 1; i++) {
        r = heuristic_justify(&d->heuristic, &d->found[i].plan, n_rounds);
        d->found[i].over_bytes = over_bytes(d->graph, &d->found[i].plan);
    }
    qsort(d->found, d->n, sizeof(*d->found), by_quality);
    return r;
}

/* Several heuristics may find the same plan: of equal makespans one is enough. */
static void drop_equals(struct dynamic *d) {
    unsigned n = MIN(d->n, 1u);

    for (unsigned i = 1; i < d->n; i++)
        if (by_quality(&d->found[i], &d->found[n - 1]) != 0) {
            struct candidate kept = d->found[i];

            d->found[i] = d->found[n];
            d->found[n++] = kept;
        }
    d->n = n;
}

/* ---- The search ------------------------------------------------------------------------------ */

/* How a search goes: libclient/place/search.h. */
struct manner {
    double heat, penalty;
};

/* One search, on whichever thread takes it. */
struct search_job {
    const struct task_graph *graph;
    struct search_options options;
    struct manner manner;
    struct candidate found; /* owned: where it begins, and then the best */
    int result;
};

#define JOBS_MAX 4

struct jobs {
    struct search_job jobs[JOBS_MAX];
    unsigned n;
    atomic_uint next;
};

static void *work(void *data) {
    struct jobs *jobs = data;
    unsigned i;

    while ((i = atomic_fetch_add(&jobs->next, 1)) < jobs->n) {
        struct search_job *job = &jobs->jobs[i];

        job->result = search_run(job->graph, &job->options, &job->found.plan);
        job->found.over_bytes = over_bytes(job->graph, &job->found.plan);
    }
    return NULL;
}

static int jobs_add(struct jobs *jobs, const struct dynamic *d, double share, struct manner manner,
                    const struct candidate *from) {
    struct search_job *job = &jobs->jobs[jobs->n];
    int r = assignment_init(&job->found.plan, d->graph);

    if (r < 0)
        return r;
    job->graph = d->graph;
    job->options = (struct search_options){
        .blocks = &d->blocks,
        .seed = d->options->seed * 1000003 + (uint64_t)(manner.heat * 1e4) + jobs->n,
        .budget = (uint64_t)((double)d->options->budget * share),
        .is_stopped = d->options->is_stopped,
        .used = d->options->used,
        .data = d->options->data,
        .heat = manner.heat,
        .penalty = manner.penalty,
    };
    job->manner = manner;
    candidate_set(d->graph, &job->found, &from->plan, from->way);
    jobs->n++;
    return 0;
}

static int by_job(const void *a, const void *b) {
    const struct search_job *x = a, *y = b;

    return by_quality(&x->found, &y->found);
}

/* Each has its own simulator: where that takes much memory, one after the other. */
static unsigned n_threads(const struct dynamic *d, const struct jobs *jobs) {
    return d->is_large ? 1 : MIN(MAX(d->options->n_threads, 1u), jobs->n);
}

/* The jobs share the caller's time until `until`: each thread takes one after the other. */
static void jobs_share_time(struct jobs *jobs, const struct dynamic *d, double until) {
    unsigned n_parallel = n_threads(d, jobs), n_turns = (jobs->n + n_parallel - 1) / n_parallel;
    double begin = used(d);

    for (unsigned i = 0; i < jobs->n; i++)
        jobs->jobs[i].options.until =
            begin + (until - begin) * (double)(i / n_parallel + 1) / n_turns;
}

/* Run them all; the best becomes the first candidate. `jobs` are sorted, the best first. */
static int jobs_run(struct jobs *jobs, struct dynamic *d) {
    pthread_t threads[JOBS_MAX];
    unsigned n = 0;
    int r = 0;

    atomic_init(&jobs->next, 0);
    while (n + 1 < n_threads(d, jobs) && pthread_create(&threads[n], NULL, work, jobs) == 0)
        n++;
    work(jobs);
    for (unsigned i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < jobs->n; i++)
        r = MIN(r, jobs->jobs[i].result);
    qsort(jobs->jobs, jobs->n, sizeof(*jobs->jobs), by_job);
    if (by_quality(&jobs->jobs[0].found, &d->found[0]) < 0)
        candidate_set(d->graph, &d->found[0], &jobs->jobs[0].found.plan, jobs->jobs[0].found.way);
    return r;
}

static void jobs_done(struct jobs *jobs) {
    for (unsigned i = 0; i < jobs->n; i++)
        assignment_done(&jobs->jobs[i].found.plan);
    jobs->n = 0;
}

/*
 * We cannot know in advance which start, which heat and which penalty for memory suit a graph. So
 * the best candidates compete over an eighth of the budget, four manners of search over a quarter,
 * and the two that did best get the rest; the last searches are cool, to end in a valley.
 */
static int improve(struct dynamic *d) {
    static const struct manner manners[JOBS_MAX] = {
        { 0.1, 2 }, { 0.4, 0.4 }, { 1.4, 2 }, { 4, 0.4 }
    };
    static const double ends[] = { 0.12, 0.36, 0.76, 1 }; /* of the rounds */
    struct manner first = manners[0], second = manners[1];
    struct jobs jobs = { 0 };
    double begin = used(d);
    int r = 0;

    for (unsigned round = 0; round < 4 && r == 0 && !is_stopped(d) && used(d) < 1; round++) {
        switch (round) {
        case 0:
            for (unsigned i = 0; i < MIN(d->n, (unsigned)JOBS_MAX) && r == 0; i++)
                r = jobs_add(&jobs, d, 0.03, (struct manner){ 0.25, i % 2 ? 2 : 0.4 },
                             &d->found[i]);
            break;
        case 1:
            for (unsigned i = 0; i < JOBS_MAX && r == 0; i++)
                r = jobs_add(&jobs, d, 0.06, manners[i], &d->found[0]);
            break;
        case 2:
            r = jobs_add(&jobs, d, 0.20, first, &d->found[0]);
            if (r == 0)
                r = jobs_add(&jobs, d, 0.20, second, &d->found[0]);
            break;
        default:
            first.heat /= 3;
            second.heat = 0.08;
            r = jobs_add(&jobs, d, 0.12, first, &d->found[0]);
            if (r == 0)
                r = jobs_add(&jobs, d, 0.12, second, &d->found[0]);
        }
        if (r == 0) {
            jobs_share_time(&jobs, d, begin + (1 - begin) * ends[round]);
            r = jobs_run(&jobs, d);
        }
        if (r == 0 && round == 1) {
            first = jobs.jobs[0].manner;
            second = jobs.jobs[1].manner;
        }
        jobs_done(&jobs);
    }
    return r;
}

/* ---- What is missing ------------------------------------------------------------------------- */

/* The device with most memory among those of `mask`. */
static uint32_t largest(const struct task_graph *g, uint64_t mask) {
    uint32_t found = (uint32_t)__builtin_ctzll(mask);

    for (uint32_t d = 0; d < g->n_devices; d++)
        if (mask >> d & 1 && g->memory_bytes[d] > g->memory_bytes[found])
            found = d;
    return found;
}

/* Proofs that no plan exists. False: none was found. */
static bool prove(const struct task_graph *g, struct dynamic_result *ret) {
    double need = 0, have = 0;
    uint64_t used = 0;

    for (uint32_t u = 0; u < g->n_units; u++) {
        uint32_t task = g->members.items[g->members.first[u]], most;

        if (!g->allowed[u]) {
            snprintf(ret->text, DYNAMIC_TEXT_SIZE,
                     "task %" PRIu32 ": no device has a kernel for it and agrees with its pin and "
                     "its colocation group",
                     task);
            return true;
        }
        most = largest(g, g->allowed[u]);
        if (g->unit_resident[u] > g->memory_bytes[most]) {
            ret->lacking_device = most;
            ret->lacking_bytes = g->unit_resident[u] - g->memory_bytes[most];
            snprintf(ret->text, DYNAMIC_TEXT_SIZE,
                     "task %" PRIu32 " and its colocation group keep %" PRIu64
                     " bytes on one device; the largest that they may use has %" PRIu64,
                     task, g->unit_resident[u], g->memory_bytes[most]);
            return true;
        }
        if (g->memory_bytes[most] == UINT64_MAX)
            continue;
        need += (double)g->unit_resident[u];
        used |= g->allowed[u];
    }
    for (uint32_t d = 0; d < g->n_devices; d++)
        if (used >> d & 1)
            have += (double)g->memory_bytes[d];
    if (need <= have)
        return false;
    ret->lacking_device = largest(g, used);
    ret->lacking_bytes = (uint64_t)(need - have);
    snprintf(ret->text, DYNAMIC_TEXT_SIZE,
             "the tasks keep %.0f bytes on devices that have %.0f together: %.0f are missing", need,
             have, need - have);
    return true;
}

/* The device that lacks most in the best plan found. */
static void describe(const struct task_graph *g, const struct candidate *best,
                     struct dynamic_result *ret) {
    uint32_t worst = 0;

    for (uint32_t d = 0; d < g->n_devices; d++)
        if (best->plan.peak_bytes[d] > g->memory_bytes[d] &&
            best->plan.peak_bytes[d] - g->memory_bytes[d] > ret->lacking_bytes) {
            ret->lacking_bytes = best->plan.peak_bytes[d] - g->memory_bytes[d];
            worst = d;
        }
    ret->lacking_device = worst;
    snprintf(ret->text, DYNAMIC_TEXT_SIZE,
             "no plan was found that fits; the best needs %" PRIu64 " bytes on device %" PRIu32
             ", which has %" PRIu64,
             best->plan.peak_bytes[worst], worst, g->memory_bytes[worst]);
}

static void dynamic_done(struct dynamic *d) {
    for (unsigned i = 0; i < CANDIDATES_MAX; i++)
        assignment_done(&d->found[i].plan);
    assignment_done(&d->scratch);
    heuristic_done(&d->heuristic);
    blocks_done(&d->blocks);
}

/* Free what the search does not need. */
static void leave_portfolio(struct dynamic *d) {
    for (unsigned i = JOBS_MAX; i < CANDIDATES_MAX; i++)
        assignment_done(&d->found[i].plan);
    d->n = MIN(d->n, (unsigned)JOBS_MAX);
    assignment_done(&d->scratch);
    heuristic_done(&d->heuristic);
}

int dynamic_plan(const struct task_graph *g, const struct dynamic_options *options,
                 struct dynamic_result *ret) {
    cleanup(dynamic_done) struct dynamic d = { .graph = g,
                                               .options = options,
                                               .is_large = g->n_tasks > LARGE_TASKS };
    int r;

    *ret = (struct dynamic_result){ .lacking_device = TASK_GRAPH_NONE };
    if (prove(g, ret))
        return -ENOSPC;
    r = heuristic_init(&d.heuristic, g);
    if (r == 0)
        r = assignment_init(&d.scratch, g);
    if (r == 0)
        r = run_portfolio(&d);
    if (r == 0 && d.n == 0) {
        snprintf(ret->text, sizeof(ret->text),
                 "no plan was found: there are no links between devices that must share tensors");
        return -ENOSPC;
    }
    if (r == 0) {
        ret->way = d.found[0].way;
        ret->begun_usec = d.found[0].plan.makespan_usec;
        r = reorder(&d);
    }
    if (r == 0 && options->budget > 0 && g->n_tasks > 1 && g->n_devices > 1) {
        drop_equals(&d);
        leave_portfolio(&d);
        r = blocks_init(&d.blocks, g);
        if (r == 0)
            r = improve(&d);
    }
    if (r < 0)
        return r;
    ret->was_stopped = d.was_stopped;
    if (d.found[0].over_bytes > 0) {
        describe(g, &d.found[0], ret);
        return -ENOSPC;
    }
    ret->plan = d.found[0].plan;
    d.found[0].plan = (struct assignment){ 0 };
    return 0;
}
