/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fast plan: try several rules, then improve the best plan while there are steps left. Steps
 * are counted, not timed, so that the plan is the same on every machine.
 *
 *  - From the lowest offset up (plan_skyline.c), with several orders of buffers.
 *  - Into gaps (plan_fit.c), largest first: the usual greedy plan, sometimes better where sizes
 * differ much and lifetimes are short. Only if few enough buffers overlap.
 *  - Repair. A plan needs more than the bound because some buffers end above it: they move up in
 * the order, and the plan is laid again. All others keep their order, so that good parts elsewhere
 * in time mostly stay as they are.
 */
#include "allocator/plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/plan_fit.h"
#include "allocator/plan_lives.h"
#include "allocator/plan_skyline.h"
#include "base/cleanup.h"
#include "base/halt.h"

/* Steps take about two nanoseconds. Each buffer allows so many; but few buffers get no more than
 * they can use, and ten thousand get some milliseconds' worth. */
#define STEPS_PER_BUFFER     315
#define STEPS_FEW            3150000
#define STEPS_PER_BUFFER_FEW 2000

/* Steps that fitting takes, per overlapping pair and per buffer. It is left out if it would take
 * more than half of all steps. */
#define FIT_STEPS_PER_PAIR   2
#define FIT_STEPS_PER_BUFFER 60

/* Which buffers go first: one letter per key, the largest value first. Load, Time of life, Bytes,
 * Area; ties by start. The last rule is tried only if half of the steps are left: otherwise repair
 * makes better use of them. */
static const char *const rules[] = { "T", "LTB", "A", "BT" };
#define LAST_RULE (ELEMENTSOF(rules) - 1)

/* Each time a buffer ends too high it moves up by this part of the order. */
#define BLAME_PART 8

/* A rule and its result. */
struct plan_order {
    uint32_t *turns;  /* by life: its position by the rule */
    uint32_t *blames; /* by life: how often it ended too high */
    uint64_t first;   /* what the rule itself needs; 0: not tried; UINT64_MAX: steps ran out */
};

struct memory_plan {
    struct plan_lives lives;
    struct plan_skyline skyline;
    struct plan_order orders[ELEMENTSOF(rules)];
    struct plan_sorted *sorted, *other;
    int32_t *turns;    /* by life, for the skyline */
    uint32_t *by_turn; /* lives, for fitting */
    uint64_t *offsets; /* by life, of the last plan */
    uint64_t *best_offsets, best;
    uint64_t steps_max, longest; /* in all; and of the plan that took most */
};

static void plan_done(struct memory_plan *plan) {
    plan_lives_done(&plan->lives);
    plan_skyline_done(&plan->skyline);
    for (unsigned k = 0; k < ELEMENTSOF(plan->orders); k++) {
        free(plan->orders[k].turns);
        free(plan->orders[k].blames);
    }
    free(plan->sorted);
    free(plan->other);
    free(plan->turns);
    free(plan->by_turn);
    free(plan->offsets);
    free(plan->best_offsets);
}

static int plan_init(struct memory_plan *plan, const struct plan_buffer *buffers,
                     size_t n_buffers) {
    size_t n;
    int r;

    r = plan_lives_init(&plan->lives, buffers, n_buffers);
    if (r == 0)
        r = plan_skyline_init(&plan->skyline, &plan->lives);
    if (r < 0)
        return r;
    n = plan->lives.n;
    plan->best = UINT64_MAX;
    plan->steps_max = MAX(n * STEPS_PER_BUFFER, MIN(n * STEPS_PER_BUFFER_FEW, (size_t)STEPS_FEW));
    for (unsigned k = 0; k < ELEMENTSOF(plan->orders); k++) {
        plan->orders[k].turns = calloc(n + 1, sizeof(*plan->orders->turns));
        plan->orders[k].blames = calloc(n + 1, sizeof(*plan->orders->blames));
        if (!plan->orders[k].turns || !plan->orders[k].blames)
            return -ENOMEM;
    }
    plan->sorted = calloc(n + 1, sizeof(*plan->sorted));
    plan->other = calloc(n + 1, sizeof(*plan->other));
    plan->turns = calloc(n + 1, sizeof(*plan->turns));
    plan->by_turn = calloc(n + 1, sizeof(*plan->by_turn));
    plan->offsets = calloc(n + 1, sizeof(*plan->offsets));
    plan->best_offsets = calloc(n + 1, sizeof(*plan->best_offsets));
    return plan->sorted && plan->other && plan->turns && plan->by_turn && plan->offsets &&
                   plan->best_offsets
               ? 0
               : -ENOMEM;
}

/* Keep the last plan if it is better than the best. */
static void keep(struct memory_plan *plan, uint64_t bytes) {
    if (bytes >= plan->best)
        return;
    plan->best = bytes;
    memcpy(plan->best_offsets, plan->offsets, plan->lives.n * sizeof(*plan->offsets));
}

static uint64_t key_of(const struct plan_life *life, char letter, unsigned area_shift) {
    uint64_t length = life->to - life->from;

    return letter == 'L'   ? life->load
           : letter == 'T' ? length
           : letter == 'B' ? life->bytes
                           : (life->bytes >> area_shift) * length;
}

/* Sort by the last key first, since the sort is stable. Lives come in the order in which they
 * begin. */
static void sort_by(struct memory_plan *plan, const char *rule) {
    const struct plan_lives *lives = &plan->lives;
    /* An area needs the bits of both factors. */
    int bits = 128 - __builtin_clzll(lives->lower) - __builtin_clzll(lives->n_columns);
    unsigned area_shift = bits > 64 ? (unsigned)bits - 64 : 0;

    for (uint32_t i = 0; i < lives->n; i++)
        plan->sorted[i].entry = i;
    for (size_t k = strlen(rule); k-- > 0;) {
        for (uint32_t i = 0; i < lives->n; i++)
            plan->sorted[i].key = ~key_of(&lives->life[plan->sorted[i].entry], rule[k], area_shift);
        plan_lives_sort(plan->sorted, plan->other, lives->n);
    }
}

/* Lay a plan in this order, blames included, and blame the buffers that end too high. Returns the
 * bytes it needs. */
static uint64_t lay(struct memory_plan *plan, struct plan_order *order) {
    const struct plan_lives *lives = &plan->lives;
    uint64_t steps = plan->skyline.steps, bytes;
    uint32_t most = 0;

    for (uint32_t i = 0; i < lives->n; i++)
        most = MAX(most, order->blames[i]);
    for (uint32_t i = 0; i < lives->n; i++)
        plan->sorted[i] = (struct plan_sorted){
            order->turns[i] + (uint64_t)(most - order->blames[i]) * (lives->n / BLAME_PART + 1), i
        };
    plan_lives_sort(plan->sorted, plan->other, lives->n);
    for (uint32_t k = 0; k < lives->n; k++)
        plan->turns[plan->sorted[k].entry] = (int32_t)k;
    plan->skyline.steps += (uint64_t)lives->n * 8;
    bytes = plan_skyline_lay(&plan->skyline, plan->turns, plan->offsets);
    plan->longest = MAX(plan->longest, plan->skyline.steps - steps);
    if (bytes == UINT64_MAX)
        return bytes;
    keep(plan, bytes);
    for (uint32_t i = 0; i < lives->n; i++)
        order->blames[i] += plan->offsets[i] + lives->life[i].bytes > lives->lower;
    return bytes;
}

/* Fit into gaps, largest first, if there are enough steps. */
static int fit(struct memory_plan *plan) {
    const struct plan_lives *lives = &plan->lives;
    uint64_t most = plan->steps_max / 2, bytes, steps;
    int r;

    if (lives->n_pairs * FIT_STEPS_PER_PAIR + (uint64_t)lives->n * FIT_STEPS_PER_BUFFER > most)
        return 0;
    sort_by(plan, "BT");
    for (uint32_t k = 0; k < lives->n; k++)
        plan->by_turn[k] = plan->sorted[k].entry;
    r = plan_fit_lay(lives, plan->by_turn, plan->best, most, plan->skyline.halt, plan->offsets,
                     &bytes, &steps);
    if (r < 0)
        return r;
    plan->skyline.steps += steps;
    keep(plan, bytes);
    return 0;
}

/* Whether nothing better is possible, or too few steps are left for another plan. */
static bool is_done(const struct memory_plan *plan) {
    return halt_is_set(plan->skyline.halt) || plan->best == plan->lives.lower ||
           plan->skyline.steps + plan->longest > plan->steps_max;
}

/* The rule to repair next: the two best take turns. */
static struct plan_order *choose_next(struct memory_plan *plan, unsigned round) {
    struct plan_order *best = NULL, *second = NULL;

    for (unsigned k = 0; k < ELEMENTSOF(rules); k++) {
        struct plan_order *order = &plan->orders[k];

        if (!order->first || order->first == UINT64_MAX)
            continue;
        if (!best || order->first < best->first) {
            second = best;
            best = order;
        } else if (!second || order->first < second->first)
            second = order;
    }
    return round % 2 && second ? second : best;
}

/* Make the best plan, by life. */
static int plan_make(struct memory_plan *plan) {
    struct plan_order *order;
    int r;

    /* The first plan may take as many steps as it needs. */
    plan->skyline.steps_max = UINT64_MAX;
    for (unsigned k = 0; k < ELEMENTSOF(rules) && !is_done(plan); k++) {
        if (k == LAST_RULE && plan->skyline.steps > plan->steps_max / 2)
            break;
        order = &plan->orders[k];
        sort_by(plan, rules[k]);
        for (uint32_t t = 0; t < plan->lives.n; t++)
            order->turns[plan->sorted[t].entry] = t;
        order->first = lay(plan, order);
        plan->skyline.steps_max = plan->steps_max;
        if (k == 0 && !is_done(plan)) {
            r = fit(plan);
            if (r < 0)
                return r;
        }
    }
    for (unsigned round = 0; !is_done(plan); round++)
        lay(plan, choose_next(plan, round));
    return halt_is_set(plan->skyline.halt) ? -ECANCELED : 0;
}

int plan_fast(struct plan_buffer *buffers, size_t n, const atomic_bool *halt, uint64_t *ret_bytes) {
    cleanup(plan_done) struct memory_plan plan = { 0 };
    int r;

    r = plan_init(&plan, buffers, n);
    plan.skyline.halt = halt;
    if (r == 0 && plan.lives.n)
        r = plan_make(&plan);
    if (r < 0)
        return r;
    for (size_t i = 0; i < n; i++)
        buffers[i].offset = 0;
    for (uint32_t i = 0; i < plan.lives.n; i++)
        buffers[plan.lives.life[i].index].offset = plan.best_offsets[i];
    *ret_bytes = plan.lives.n ? plan.best : 0;
    return 0;
}
