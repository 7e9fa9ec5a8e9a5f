/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Order: in which sequence to run jobs that make and use up memory.
 *
 * Pure. Jobs are numbered so that each comes after all that it needs. The sequence found has the
 * lowest peak of memory among several heuristics; the true minimum is hard to find (NP-complete).
 * The heuristics are: as numbered, first ready first, the job that frees most (or takes least)
 * first, and depth first with the hungriest branch first.
 */
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* Rows of a list of lists: those of i are items[first[i]] to items[first[i + 1] - 1]. */
struct order_lists {
    const uint32_t *first, *items;
};

struct order_problem {
    uint32_t n_jobs, n_buffers;
    struct order_lists before; /* job → jobs that must come first */
    struct order_lists after;  /* job → the same edges the other way */
    struct order_lists makes;  /* job → buffers */
    struct order_lists uses;   /* job → buffers, each once */
    struct order_lists over;   /* job → those of the buffers it reads that its first output may
                                  overwrite, if no other job still needs them; `first` NULL: none */
    const uint64_t *bytes;     /* of each buffer; freed after its last user, or at once */
    const uint32_t *n_users;   /* of each buffer: jobs that list it in `uses` */
    const atomic_bool *halt;   /* set: every call returns -ECANCELED; NULL: never */
};

/* The bytes that the job makes. */
uint64_t order_made_bytes(const struct order_problem *problem, uint32_t job);

/* The peak of bytes if the jobs run in this sequence, and the bytes while each position of it runs
 * (NULL: not wanted). -ENOMEM. */
int order_profile(const struct order_problem *problem, const uint32_t *sequence,
                  uint64_t *ret_most_bytes, uint64_t *ret_bytes);

/* First ready, first done: what an executor without a plan does. */
int order_ready(const struct order_problem *problem, uint32_t *ret_sequence);

/* The best sequence found; of equals the heuristic that is listed first. */
int order_find(const struct order_problem *problem, uint32_t *ret_sequence, uint64_t *ret_bytes);
