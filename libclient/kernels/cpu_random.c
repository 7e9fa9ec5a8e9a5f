/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random tensors: every element by its own number (philox.h), in any order, on any thread.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "libclient/core/pool.h"
#include "libclient/graph/graph.h"
#include "libclient/kernels/cpu_each.h"
#include "libclient/kernels/family.h"
#include "libclient/kernels/philox.h"

enum random_op { UNIFORM, NORMAL, TRUNCATED };
enum { BLOCK = 1024 };

struct random {
    enum random_op op;
    enum dtype dtype;
    int bits; /* of a uniform number: as many as the type resolves below 1 */
    size_t n;
    uint64_t seed;
    double a, b; /* ends, or mean and deviation */
};

static float draw(const struct random *random, uint64_t step, uint64_t i) {
    const float a = (float)random->a, b = (float)random->b;

    if (random->op == UNIFORM)
        return philox_within(philox_uniform_at(random->seed, step, i, random->bits), a, b);
    return (random->op == NORMAL ? philox_normal_at(random->seed, step, i, 0)
                                 : philox_truncated_at(random->seed, step, i)) *
               b +
           a;
}

static double draw_double(const struct random *random, uint64_t step, uint64_t i) {
    if (random->op == UNIFORM)
        return philox_within_double(philox_uniform_double_at(random->seed, step, i), random->a,
                                    random->b);
    return (random->op == NORMAL ? philox_normal_double_at(random->seed, step, i, 0)
                                 : philox_truncated_double_at(random->seed, step, i)) *
               random->b +
           random->a;
}

/* The same as four calls of draw(), but from one block of random words. */
static void draw_four(const struct random *random, uint64_t step, uint64_t i, float *to) {
    const struct philox block = philox_at(random->seed, step, i / 4, 0);
    const float a = (float)random->a, b = (float)random->b;

    if (random->op == UNIFORM) {
        for (int k = 0; k < 4; k++)
            to[k] = philox_within(philox_unit(block.x[k], random->bits), a, b);
        return;
    }
    philox_normal(block.x[0], block.x[1], &to[0], &to[1]);
    philox_normal(block.x[2], block.x[3], &to[2], &to[3]);
    for (int k = 0; k < 4; k++)
        to[k] = random->op == TRUNCATED && (to[k] < -2 || to[k] > 2)
                    ? draw(random, step, i + (uint64_t)k)
                    : to[k] * b + a;
}

static void draw_blocks(void *userdata, size_t begin, size_t end) {
    const struct kernel_run *run = userdata;
    const struct random *random = run->state;
    const uint64_t step = run->step->number;
    float floats[BLOCK];

    for (size_t block = begin; block < end; block++) {
        const size_t first = block * BLOCK, n = MIN(random->n - first, (size_t)BLOCK);
        float *to = random->dtype == DTYPE_F32 ? (float *)run->outputs[0] + first : floats;
        size_t i = 0;

        if (random->dtype == DTYPE_F64) {
            for (; i < n; i++)
                ((double *)run->outputs[0])[first + i] = draw_double(random, step, first + i);
            continue;
        }
        for (; i + 4 <= n; i += 4)
            draw_four(random, step, first + i, to + i);
        for (; i < n; i++)
            to[i] = draw(random, step, first + i);
        if (to == floats)
            loops_get()->narrow((uint16_t *)run->outputs[0] + first, floats, n, random->dtype);
    }
}

static int run_random(const struct kernel_run *run) {
    const struct random *random = run->state;

    pool_for(run->pool, (random->n + BLOCK - 1) / BLOCK, 2, draw_blocks, (void *)run);
    return 0;
}

static int prepare(struct kernel_plan *plan, struct allot_error *err) {
    const bool uniform = plan->kernel->which == UNIFORM;
    struct random *random = calloc(1, sizeof(*random));

    if (!random)
        return error_set(err, -ENOMEM, "no host memory for the plan of an op");
    random->op = (enum random_op)plan->kernel->which;
    random->dtype = plan->outputs[0].dtype;
    random->bits = random->dtype == DTYPE_F16 ? 11 : random->dtype == DTYPE_BF16 ? 8 : 24;
    random->n = (size_t)shape_count(&plan->outputs[0].shape);
    random->seed = plan->random_seed;
    random->a = node_float(plan->node, uniform ? "minimum" : "mean");
    random->b = node_float(plan->node, uniform ? "maximum" : "stddev");
    plan->state = random;
    plan->run = run_random;
    plan->cost = random->n * 15;
    plan->pooled = true;
    return 0;
}

#define RANDOM(name, kind)                                                                         \
    { .op = name, .which = kind, .dtypes = DTYPES_FLOAT, .host_inputs = 1, .prepare = prepare }

static const struct kernel rows[] = {
    RANDOM("RandomUniform", UNIFORM),
    RANDOM("RandomNormal", NORMAL),
    RANDOM("TruncatedNormal", TRUNCATED),
};

const struct kernel_family kernel_family_cpu_random = { rows, ELEMENTSOF(rows), NULL };
