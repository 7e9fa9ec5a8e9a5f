/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Simulate: when jobs would run, given their costs, if several threads ran them.
 *
 * Pure: the result is the same on every machine. A queue runs its jobs on lanes: the threads that
 * run ops are one queue with one lane per thread, a stream of a device is a queue with one lane. A
 * job that can split itself among threads takes as many free lanes as its width allows, and more as
 * lanes become free. Running jobs get free lanes before a new job begins: beginning one early would
 * not finish it sooner, and would hold memory meanwhile.
 */
#include <stdint.h>

#include "libclient/place/order.h"

struct simulate_problem {
    const struct order_problem *order;
    const uint64_t *nsec;    /* by job: how long it takes one lane; at least 1 */
    const uint32_t *queue;   /* by job: the queue that runs it */
    const uint32_t *width;   /* by job: how many lanes it can use; at least 1 */
    const uint32_t *n_lanes; /* by queue; at least 1 */
    uint32_t n_queues;
};

/* The simulated run. The caller owns the arrays, of n_jobs each. */
struct simulate_result {
    uint32_t *sequence;    /* jobs as they began: each after all that it needs had ended */
    uint64_t *begin, *end; /* by job, in nanoseconds from the first */
    uint64_t nsec;         /* until the last has ended */
    uint64_t bytes;        /* the most at once */
};

/* First ready, first begun: what an executor without a plan does. -ENOMEM; -ECANCELED by
 * `order->halt`. */
int simulate_ready(const struct simulate_problem *problem, struct simulate_result *ret);

/*
 * Use at most `most_bytes` at once; this must be at least what the jobs need when run one by one in
 * `sequence`. Of the jobs that may begin, the first in `sequence` begins; a job that begins early
 * leaves enough bytes for all jobs before it. -ENOMEM.
 */
int simulate_within(const struct simulate_problem *problem, const uint32_t *sequence,
                    uint64_t most_bytes, struct simulate_result *ret);
