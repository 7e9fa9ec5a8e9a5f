/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Plan pack: a plan in the making, for plan-search.c: which buffers are laid and where, how low
 * each of the others could come, and whether what is left can still fit. Every step can be taken
 * back.
 *
 * Time is cut into sections, between any two moments at which something begins or ends; sizes are
 * counted in a unit that divides them all where possible, so that 31 bits do. Owned by the search.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "allocator/plan.h"

/* More buffers than this are left to the fast plan: a branch is as deep as there are buffers. */
#define PACK_MAX 4096

struct plan_pack_step; /* something that was done, and how it was before */

struct plan_pack {
    uint32_t n;
    uint32_t n_sections;
    uint64_t unit; /* bytes */
    int32_t limit; /* units that all must fit in */

    /* By buffer, of those that live at all. */
    size_t *index;    /* among the caller's */
    uint64_t *length; /* of its life, in the caller's time */
    int32_t *size;
    int32_t *low;        /* the lowest place that those already laid allow; once laid, its place */
    uint32_t *from, *to; /* sections */
    bool *laid;
    uint32_t *near_start; /* into `near`, and the end of the last */
    uint16_t *near;       /* the others that live at the same time */

    /* By section. */
    int32_t *left;        /* still to be laid */
    int32_t *spans;       /* buffers still to be laid that go on into the next */
    uint16_t *witness;    /* one still to be laid that comes low enough for all of `left` to fit */
    uint32_t *live_start; /* into `live`, and the end of the last */
    uint16_t *live;       /* buffers that live in it */

    struct plan_pack_step *steps;
    size_t n_steps, n_steps_max;
};

/* No plan needs more than `most_bytes`. -ENOMEM. */
int plan_pack_init(struct plan_pack *pack, const struct plan_buffer *buffers, size_t n,
                   uint64_t most_bytes);
void plan_pack_done(struct plan_pack *pack);

/* Nothing is laid, and all must fit in `limit_bytes`. False: that cannot be. */
bool plan_pack_begin(struct plan_pack *pack, uint64_t limit_bytes);

/* Lay `i` at its lowest place. False: then what is left cannot fit. `*ret_raised`: others have to
 * make way for it; `*ret_cut`: what is left falls apart in time. */
bool plan_pack_lay(struct plan_pack *pack, uint32_t i, bool *ret_raised, bool *ret_cut);
/* Take back all but the first `n_steps` steps. */
void plan_pack_undo(struct plan_pack *pack, size_t n_steps);

/* The offsets, for the caller's buffers, and what they need. */
void plan_pack_write(const struct plan_pack *pack, struct plan_buffer *buffers,
                     uint64_t *ret_bytes);
