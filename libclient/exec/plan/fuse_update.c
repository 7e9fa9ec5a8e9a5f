/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fuse update: a product whose only use is as the gradient of a step of gradient descent is
 * subtracted from the variable as it is computed.
 *
 *     gradient = MatMul(a, b)                         nothing
 *     ApplyGradientDescent(var, rate, gradient)   ▶   ApplyGradientDescent(var, rate, a, b)
 *
 * So a gradient as large as the variable is neither written nor read again. The bits are the same
 * (kernel_plan.descend). The product's item stays, without work: a trace shows it, and says where
 * its work went.
 *
 * The two stay separate if anything else sees the product: a fetch, another user or a node that
 * only waits for it; or if a factor lies in a variable, which the step might be about to change.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "libclient/exec/plan/compile.h"

/* The inputs of ApplyGradientDescent, and of what it is joined to. */
enum { VARIABLE, RATE, GRADIENT, N_INPUTS };

/* By item: the only one that comes after it; SEVERAL; or PROGRAM_NONE. */
enum { SEVERAL = PROGRAM_NONE - 1 };

static uint32_t *list_followers(const struct compile *compile) {
    uint32_t *follower = malloc((compile->program->n_items + 1) * sizeof(*follower));

    for (uint32_t i = 0; follower && i < compile->program->n_items; i++)
        follower[i] = PROGRAM_NONE;
    for (uint32_t e = 0; follower && e < compile->n_edges; e++) {
        uint32_t *at = &follower[compile->edges[e].first];

        *at =
            *at == PROGRAM_NONE || *at == compile->edges[e].then ? compile->edges[e].then : SEVERAL;
    }
    return follower;
}

static bool reads_variable(const struct program *program, const struct program_item *item) {
    for (uint32_t a = 0; a < item->n_inputs; a++) {
        enum value_where where = program->values[program->args[item->first_arg + a]].where;

        if (where == VALUE_READ || where == VALUE_HANDLE)
            return true;
    }
    return false;
}

/* The item whose product step `i` can absorb; PROGRAM_NONE: none. */
static uint32_t find_product(const struct compile *compile, const uint32_t *follower, uint32_t i) {
    const struct program *program = compile->program;
    const struct program_item *step = &program->items[i], *product;
    const struct program_value *gradient;

    if (step->kind != ITEM_WRITE || step->kernel->device != KERNEL_CPU ||
        strcmp(step->kernel->op, "ApplyGradientDescent") != 0)
        return PROGRAM_NONE;
    gradient = &program->values[program->args[step->first_arg + GRADIENT]];
    if (gradient->where != VALUE_SLAB || gradient->producer == PROGRAM_NONE)
        return PROGRAM_NONE;
    product = &program->items[gradient->producer];
    return product->descend && product->device == step->device &&
                   follower[gradient->producer] == i && !reads_variable(program, product)
               ? gradient->producer
               : PROGRAM_NONE;
}

static int fuse(struct compile *compile, struct program_item *step, struct program_item *product) {
    struct program *program = compile->program;
    const uint32_t first = program->n_args, n = N_INPUTS - 1 + product->n_inputs + step->n_outputs;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t from = i < GRADIENT ? step->first_arg + i
                        : i < GRADIENT + product->n_inputs
                            ? product->first_arg + i - GRADIENT
                            : step->first_arg + N_INPUTS + i - GRADIENT - product->n_inputs;
        int r = compile_room(&program->args, &compile->n_args_max, program->n_args,
                             sizeof(*program->args));

        if (r < 0)
            return r;
        program->args[program->n_args++] = program->args[from];
    }
    program->values[program->args[step->first_arg + GRADIENT]].bytes = 0;
    if (step->state_free)
        step->state_free(step->state);
    else
        free(step->state);
    step->state = TAKE(product->state);
    step->state_free = product->state_free;
    step->run = product->descend;
    step->cost += product->cost;
    step->first_arg = first;
    step->n_inputs = GRADIENT + product->n_inputs;
    product->kind = ITEM_NOTHING;
    product->joined = step->node;
    product->state_free = NULL;
    product->cost = 0;
    product->n_inputs = product->n_outputs = 0;
    program->n_kernels--;
    return 0;
}

int compile_fuse_update(struct compile *compile) {
    struct program *program = compile->program;
    cleanup(freep) uint32_t *follower = list_followers(compile);

    if (!follower)
        return -ENOMEM;
    for (uint32_t i = 0; i < program->n_items; i++) {
        uint32_t product = find_product(compile, follower, i);
        int r = product == PROGRAM_NONE
                    ? 0
                    : fuse(compile, &program->items[i], &program->items[product]);

        if (r < 0)
            return r;
    }
    return 0;
}
