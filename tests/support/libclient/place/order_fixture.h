/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Order fixture: jobs that each make one buffer and use those of up to a few earlier jobs, as a
 * problem of place/order.h. Large: static, or part of something that is.
 */
#include <stdint.h>

#include "libclient/place/order.h"

enum { ORDER_FIXTURE_JOBS_MAX = 4096, ORDER_FIXTURE_INPUTS = 3 };

struct order_fixture {
    /* To be filled before it is settled. */
    uint32_t inputs[ORDER_FIXTURE_JOBS_MAX][ORDER_FIXTURE_INPUTS], n_inputs[ORDER_FIXTURE_JOBS_MAX];
    uint64_t bytes[ORDER_FIXTURE_JOBS_MAX];

    struct order_problem problem;
    uint32_t first_before[ORDER_FIXTURE_JOBS_MAX + 1];
    uint32_t before[ORDER_FIXTURE_JOBS_MAX * ORDER_FIXTURE_INPUTS];
    uint32_t first_after[ORDER_FIXTURE_JOBS_MAX + 1];
    uint32_t after[ORDER_FIXTURE_JOBS_MAX * ORDER_FIXTURE_INPUTS];
    uint32_t makes[ORDER_FIXTURE_JOBS_MAX + 1], n_users[ORDER_FIXTURE_JOBS_MAX];
};

/* The problem of the first `n` jobs. */
void order_fixture_settle(struct order_fixture *world, uint32_t n);
/* `n` jobs of 1 to 100 bytes with inputs by chance, settled. */
void order_fixture_random(struct order_fixture *world, uint64_t *random, uint32_t n);
/* A number by chance, below `n`. */
uint32_t order_fixture_below(uint64_t *random, uint32_t n);
