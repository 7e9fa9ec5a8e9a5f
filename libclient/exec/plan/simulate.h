/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Timetable: when jobs would run, by what they cost, if several threads did them.
 *
 * Pure: a play of the future, the same on every machine. A queue does its jobs on some lanes: the
 * threads that run ops are one queue of as many lanes, a stream of a device is a queue of one. A
 * job that divides itself among threads goes on as many lanes as are free, up to its width, and
 * takes those that become free later; all that such jobs could use is theirs before another job
 * begins, because that would be done no sooner and hold memory meanwhile.
 */
#include <stdint.h>

#include "libclient/exec/plan/order.h"

struct timetable_problem {
    const struct order_problem *order;
    const uint64_t *nsec;    /* by job: how long it takes one lane; at least 1 */
    const uint32_t *queue;   /* by job: who does it */
    const uint32_t *width;   /* by job: how many lanes it can use; at least 1 */
    const uint32_t *n_lanes; /* by queue; at least 1 */
    uint32_t n_queues;
};

/* What came of it. The arrays are the caller's, of n_jobs. */
struct timetable {
    uint32_t *sequence;    /* jobs as they began: each after all that it needs had ended */
    uint64_t *begin, *end; /* by job, in nanoseconds from the first */
    uint64_t nsec;         /* until the last has ended */
    uint64_t bytes;        /* the most at once */
};

/* First ready, first begun: what an executor without a plan does. -ENOMEM; -ECANCELED by the halt
 * of the order. */
int timetable_ready(const struct timetable_problem *problem, struct timetable *ret);

/*
 * Never more than `most_bytes` at once, which is at least what doing the jobs one after the other
 * by `sequence` needs. Of those that may begin, the first by `sequence` does; whatever begins
 * before its turn leaves the bytes that all those before it will need. -ENOMEM.
 */
int timetable_within(const struct timetable_problem *problem, const uint32_t *sequence,
                     uint64_t most_bytes, struct timetable *ret);
