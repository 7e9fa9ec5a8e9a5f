/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Plan skyline: builds a plan from the lowest offset up. See plan_skyline.c. Owned by the plan; one
 * thread.
 */
#include <stdatomic.h>
#include <stdint.h>

#include "allocator/plan_lives.h"

struct plan_skyline_node; /* of a tree over lives, for finding one that fits a valley */
struct plan_skyline_part; /* of the skyline: columns of one height */

struct plan_skyline {
    const struct plan_lives *lives;
    uint32_t n_leaves;
    struct plan_skyline_node *nodes;
    uint32_t *order;  /* lives as they lie in the leaves */
    uint32_t *bounds; /* by leaf: where it begins in `order`, and where the last one ends */
    uint32_t *leaf;   /* by life: its node */
    uint32_t *place;  /* by life: where in `order` */
    int32_t *to;      /* by life */
    int32_t *turns;   /* by life: which goes before which; PLAN_SKYLINE_LAID once laid */
    int32_t *leaf_from, *leaf_to, *leaf_turns; /* the same, by place */
    uint32_t *by_turn;                         /* lives */
    struct plan_skyline_part *parts;
    uint64_t steps, steps_max; /* taken so far, of about two nanoseconds each; and at most */
    const atomic_bool *halt;   /* set: there are no steps left; NULL: never */
};

#define PLAN_SKYLINE_LAID INT32_MAX

int plan_skyline_init(struct plan_skyline *skyline, const struct plan_lives *lives);
void plan_skyline_done(struct plan_skyline *skyline);

/*
 * Lay those of the lives that have a turn, those with the lowest turn first where several would
 * fit. `turns` is by life: below their number, no two the same; PLAN_SKYLINE_LAID: leave it out.
 * Fills in the offsets, by life, and returns what they need. Gives up, with UINT64_MAX, when there
 * are no steps left.
 */
uint64_t plan_skyline_lay(struct plan_skyline *skyline, const int32_t *turns, uint64_t *offsets);
