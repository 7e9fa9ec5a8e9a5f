/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Plan skyline: builds a plan from the lowest offset up. See plan_skyline.c. Owned by the plan; one
 * thread.
 */
#include <stdatomic.h>
#include <stdint.h>

#include "allocator/plan_lives.h"

struct plan_skyline_node; /* node of a tree over lives, for finding one that fits a valley */
struct plan_skyline_part; /* part of the skyline: columns of one height */

struct plan_skyline {
    const struct plan_lives *lives;
    uint32_t n_leaves;
    struct plan_skyline_node *nodes;
    uint32_t *order;  /* lives in the order of the leaves */
    uint32_t *bounds; /* by leaf: where it begins in `order`; and the end of the last one */
    uint32_t *leaf;   /* by life: its node */
    uint32_t *place;  /* by life: its position in `order` */
    int32_t *to;      /* by life */
    int32_t *turns;   /* by life: its position in the order; PLAN_SKYLINE_LAID once laid */
    int32_t *leaf_from, *leaf_to, *leaf_turns; /* the same, by position */
    uint32_t *by_turn;                         /* lives */
    struct plan_skyline_part *parts;
    uint64_t steps, steps_max; /* taken so far, of about two nanoseconds each; and the maximum */
    const atomic_bool *halt;   /* set: stop as if no steps were left; NULL: never */
};

#define PLAN_SKYLINE_LAID INT32_MAX

int plan_skyline_init(struct plan_skyline *skyline, const struct plan_lives *lives);
void plan_skyline_done(struct plan_skyline *skyline);

/*
 * Lay those of the lives that have a turn; if several fit, the one with the lowest turn first.
 * `turns` is by life: distinct numbers below the number of lives, or PLAN_SKYLINE_LAID to leave a
 * life out. Fills in the offsets, by life, and returns the bytes that they need. UINT64_MAX: it ran
 * out of steps.
 */
uint64_t plan_skyline_lay(struct plan_skyline *skyline, const int32_t *turns, uint64_t *offsets);
