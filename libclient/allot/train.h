/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ALLOT_TRAIN_H
#define ALLOT_TRAIN_H
/*
 * Training: gradients, and optimizers that use them. Everything is a node in the graph: it is
 * placed, run and saved like any other, and gradients have gradients.
 *
 *     struct allot_optimizer *sgd = allot_sgd(0.01);
 *     struct allot_node *train = allot_minimize(sgd, loss);
 *     struct allot_node *init = allot_initializer(graph);
 *     allot_optimizer_free(sgd);
 *
 * Make the initializer last: optimizers have variables of their own. Each allot_minimize() or
 * allot_apply_gradients() makes new ones, so two such nodes of one optimizer share no state. For
 * f16 and bf16 variables, momentum and Adam compute and keep their state in f32; only the variable
 * itself is rounded after each step. graph.h describes threads; only one thread at a time may use
 * an optimizer.
 */
#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/*
 * The gradient of the sum of all `ys` with respect to each of `xs`: constants, placeholders,
 * variables, or any other output. `ys_grad` (NULL: ones) is the weight of each y. ret[i].node is
 * NULL if no y depends on xs[i], or depends on it only through something that lets no gradient pass
 * (comparisons, integers, allot_stop_gradient). -EINVAL: an op in between has no gradient; the
 * message names it.
 */
int allot_gradients(const struct allot_output *ys, size_t n_ys, const struct allot_output *xs,
                    size_t n_xs, const struct allot_output *ys_grad, struct allot_output *ret,
                    struct allot_error *err);
/* The gradient of one output with respect to one other; the graph keeps the error. */
struct allot_output allot_gradient(struct allot_output y, struct allot_output x);

struct allot_optimizer;

/* NULL: no memory; the calls below then report that error through the graph. */
struct allot_optimizer *allot_sgd(double rate);
struct allot_optimizer *allot_momentum(double rate, double momentum, bool nesterov);
struct allot_optimizer *allot_adam(double rate, double beta1, double beta2, double epsilon);
#define ALLOT_ADAM_DEFAULTS 0.9, 0.999, 1e-8
struct allot_optimizer *allot_optimizer_free(struct allot_optimizer *optimizer); /* NULL is fine */

/* A rate that is computed or fed instead of fixed: a single number of any float type. */
void allot_optimizer_set_rate(struct allot_optimizer *optimizer, struct allot_output rate);

/* The node that makes one descent step for every variable that `loss` depends on. NULL: it failed,
 * and the error is in the graph. */
struct allot_node *allot_minimize(struct allot_optimizer *optimizer, struct allot_output loss);
/* One step for `variables` with gradients that the program made; variables whose gradient has no
 * node do not change. */
struct allot_node *allot_apply_gradients(struct allot_optimizer *optimizer,
                                         const struct allot_output *gradients,
                                         const struct allot_output *variables, size_t n);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
