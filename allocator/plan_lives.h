/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Plan lives: the lifetimes of the buffers of a plan, in columns of time, as the fast plan uses
 * them.
 *
 * Of time, only overlaps matter. A column is a moment at which a buffer begins before the next one
 * ends; all buffers that are live at any other moment are also live together at the next column:
 *
 *     a  ├──────┤                    a  0-1
 *     b     ├───────┤          →     b  0-2
 *     c            ├────┤            c  1-2
 *           0      1                 columns
 *
 * Buffers that never live, or have no bytes, are left out; the others stand in the order in which
 * they begin. Owned by the plan; one thread.
 */
#include <stddef.h>
#include <stdint.h>

#include "allocator/plan.h"

struct plan_life {
    uint64_t bytes;
    uint64_t load;     /* the most that is live at once while it lives */
    uint32_t from, to; /* columns: [from, to), never empty */
    uint32_t index;    /* index among the caller's buffers */
};

struct plan_lives {
    struct plan_life *life; /* by `from` */
    uint32_t *by_end;       /* lives by `to` */
    uint32_t *starts;       /* by column, and one more: the first life that begins in it or later */
    uint32_t n, n_columns;
    uint64_t lower;   /* the most that is live at once */
    uint64_t n_pairs; /* pairs that overlap */
};

/* The maximum: indices and columns have 32 bits, and the code adds them up. */
#define PLAN_LIVES_MAX (UINT32_MAX / 8)

/* -ENOMEM; -EOVERFLOW: more than 2^63 - 1 bytes in all, or more than PLAN_LIVES_MAX buffers. */
int plan_lives_init(struct plan_lives *lives, const struct plan_buffer *buffers, size_t n);
void plan_lives_done(struct plan_lives *lives);

/* An entry to sort by `key`. The sort is stable. */
struct plan_sorted {
    uint64_t key;
    uint32_t entry;
};

/* Sort ascending, in as many passes as the largest key needs. `other` has room for as many
 * entries. */
void plan_lives_sort(struct plan_sorted *entries, struct plan_sorted *other, size_t n);
