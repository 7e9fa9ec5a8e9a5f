/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Why: what would happen if a task, with all that shares its device, ran on another device while
 * the rest of the plan stayed as it is. Pure.
 */
#include "libclient/place/timeline.h"

enum why_kind {
    WHY_ONLY,   /* there is no other device */
    WHY_SLOWER, /* elsewhere the step would take longer */
    WHY_EQUAL,  /* elsewhere it would take as long */
    WHY_FASTER, /* elsewhere it would be shorter: the search has not found that */
    WHY_MEMORY, /* elsewhere there is not enough memory */
    WHY_BLOCKED /* elsewhere it cannot run: no link, or the order would not allow it */
};

struct why {
    enum why_kind kind;
    uint32_t other;         /* the device that would be the next best; of all but WHY_ONLY */
    double longer_usec;     /* of the step */
    int32_t more_copies;    /* of the step */
    uint64_t lacking_bytes; /* of WHY_MEMORY, on `other` or where its copies go */
};

/* `rank` as assignment_rank() gives it. Costs a simulated step for each device. -ENOMEM. */
int why_find(const struct task_graph *graph, const struct assignment *plan, const uint32_t *rank,
             uint32_t task, struct why *ret);
