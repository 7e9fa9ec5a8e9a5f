/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Order world: jobs that each make one buffer and use those of up to a few earlier jobs, as a
 * problem of exec/plan/order.h. Large: static, or part of something that is.
 */
#include <stdint.h>

#include "libclient/exec/plan/order.h"

enum { ORDERWORLD_JOBS_MAX = 4096, ORDERWORLD_INPUTS = 3 };

struct orderworld {
    /* To be filled before it is settled. */
    uint32_t inputs[ORDERWORLD_JOBS_MAX][ORDERWORLD_INPUTS], n_inputs[ORDERWORLD_JOBS_MAX];
    uint64_t bytes[ORDERWORLD_JOBS_MAX];

    struct order_problem problem;
    uint32_t first_before[ORDERWORLD_JOBS_MAX + 1];
    uint32_t before[ORDERWORLD_JOBS_MAX * ORDERWORLD_INPUTS];
    uint32_t first_after[ORDERWORLD_JOBS_MAX + 1];
    uint32_t after[ORDERWORLD_JOBS_MAX * ORDERWORLD_INPUTS];
    uint32_t makes[ORDERWORLD_JOBS_MAX + 1], n_users[ORDERWORLD_JOBS_MAX];
};

/* The problem of the first `n` jobs. */
void orderworld_settle(struct orderworld *world, uint32_t n);
/* `n` jobs of 1 to 100 bytes with inputs by chance, settled. */
void orderworld_random(struct orderworld *world, uint64_t *random, uint32_t n);
/* A number by chance, below `n`. */
uint32_t orderworld_below(uint64_t *random, uint32_t n);
