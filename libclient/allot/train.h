/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ALLOT_TRAIN_H
#define ALLOT_TRAIN_H
/*
 * Training: gradients, and optimizers that follow them. All of it is nodes in the graph, so that it
 * is placed, run and saved as everything else, and gradients have gradients.
 *
 *     struct allot_optimizer *sgd = allot_sgd(0.01);
 *     struct allot_node *train = allot_minimize(sgd, loss);
 *     struct allot_node *init = allot_initializer(graph);
 *     allot_optimizer_free(sgd);
 *
 * The initializer comes last: optimizers have variables of their own, made anew by each
 * allot_minimize() or allot_apply_gradients(): two steps of one optimizer remember nothing of one
 * another. For variables of f16 and bf16 momentum and Adam compute, and remember, in f32; the
 * variable itself is rounded after each step. Threads as graph.h has it; an
 * optimizer is used by one thread at a time.
 */
#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/*
 * The gradient of the sum of all `ys` with respect to each of `xs`: constants, placeholders,
 * variables, or any other output. `ys_grad` (NULL: ones) is what each y counts for. ret[i].node is
 * NULL where no y depends on xs[i], or only through what has no gradient (comparisons, integers,
 * allot_stop_gradient). -EINVAL: an op on the way has none; the sentence names it.
 */
int allot_gradients(const struct allot_output *ys, size_t n_ys, const struct allot_output *xs,
                    size_t n_xs, const struct allot_output *ys_grad, struct allot_output *ret,
                    struct allot_error *err);
/* Of one with respect to one; the error stays in the graph. */
struct allot_output allot_gradient(struct allot_output y, struct allot_output x);

struct allot_optimizer;

/* NULL: no memory; the calls below then keep that in the graph. */
struct allot_optimizer *allot_sgd(double rate);
struct allot_optimizer *allot_momentum(double rate, double momentum, bool nesterov);
struct allot_optimizer *allot_adam(double rate, double beta1, double beta2, double epsilon);
#define ALLOT_ADAM_DEFAULTS 0.9, 0.999, 1e-8
struct allot_optimizer *allot_optimizer_free(struct allot_optimizer *optimizer); /* NULL is fine */

/* A rate that is computed or fed instead of fixed: a single number of any type of floats. */
void allot_optimizer_set_rate(struct allot_optimizer *optimizer, struct allot_output rate);

/* The node that makes one step down for every variable that `loss` depends on. NULL: it failed, and
 * the error is in the graph. */
struct allot_node *allot_minimize(struct allot_optimizer *optimizer, struct allot_output loss);
/* One step with gradients that you made, of `variables`; those without a node are left out. */
struct allot_node *allot_apply_gradients(struct allot_optimizer *optimizer,
                                         const struct allot_output *gradients,
                                         const struct allot_output *variables, size_t n);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
