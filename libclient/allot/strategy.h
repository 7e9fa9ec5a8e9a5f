/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ALLOT_STRATEGY_H
#define ALLOT_STRATEGY_H
/*
 * Strategies: one training job on several devices. The mirrored strategy has a replica of the model
 * on each device. Every step divides the batch among the replicas, each computes the gradients of
 * its part, the devices add these up among themselves, and all replicas make the same step: their
 * variables have the same bits at all times, and those of one device with the whole batch up to
 * rounding.
 *
 *     struct allot_strategy *strategy = allot_mirrored(graph, NULL, 0);
 *     struct allot_output x, y, loss;
 *     struct allot_node *train, *init;
 *
 *     allot_with_strategy(strategy) {
 *         x = allot_placeholder(graph, "x", ALLOT_F32, 2, (int64_t[]){ -1, 8 });
 *         y = allot_placeholder(graph, "y", ALLOT_F32, 2, (int64_t[]){ -1, 1 });
 *         loss = allot_mean(allot_squared_difference(allot_dense(x, 1, ALLOT_LINEAR), y));
 *     }
 *     train = allot_strategy_minimize(strategy, sgd, loss);
 *     loss = allot_strategy_mean(strategy, loss);
 *     init = allot_initializer(graph);
 *
 * The program builds the model once, in the scope, and feeds whole batches as on one device. What
 * it builds there is the first replica; the library copies it for the others.
 *
 *     placeholders of the scope   are batches, divided by rows: any number of rows, also fewer than
 *                                 there are replicas. A single number goes to all replicas as it is
 *     variables of the scope      are mirrored: each replica has a copy on its device, which begins
 *                                 as the first one's value. A checkpoint has one copy of each and
 *                                 of the optimizer's state, and restoring it sets all (saver.h).
 *                                 Change them only by a training step: the copies would differ
 *     everything else             belongs to all replicas, once
 *
 * The loss must be a mean over the rows of the batch, as allot_mean() makes it: replicas are
 * weighted by their number of rows. Random ops draw other numbers in each replica.
 *
 * Sessions need no options for this: a session leases as many GPUs as its graph names (session.h).
 * graph.h describes errors and threads; a strategy belongs to its graph's thread.
 */
#include "train.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct allot_strategy;

/*
 * A replica on each of `n` devices ("/gpu:0", "/gpu:1"; the CPU may be among them, and then adds up
 * the gradients). `n` 0: on all GPUs that allot_devices() lists, under `gpuctl run` those of the
 * lease; on the CPU alone where there is none. NULL: the error is in the graph. The strategy keeps
 * a reference to the graph.
 */
struct allot_strategy *allot_mirrored(struct allot_graph *graph, const char *const *devices,
                                      size_t n);
struct allot_strategy *allot_strategy_free(struct allot_strategy *strategy); /* NULL is fine */
size_t allot_strategy_n_replicas(const struct allot_strategy *strategy);

/* The scope: nodes made until the pop belong to each replica. A strategy has any number of them,
 * one after the other. */
int allot_strategy_push(struct allot_strategy *strategy);
void allot_strategy_pop(struct allot_strategy *strategy);
#define allot_with_strategy(strategy)                                                              \
    ALLOT_WITH(allot_strategy_push(strategy), allot_strategy_pop(strategy))

/*
 * The node that makes one step for all replicas: for every variable that `loss` depends on, with
 * the gradients of the whole batch. Variables that are not mirrored make one step, with the sum of
 * what all replicas say. NULL: it failed, and the error is in the graph.
 */
struct allot_node *allot_strategy_minimize(struct allot_strategy *strategy,
                                           struct allot_optimizer *optimizer,
                                           struct allot_output loss);
/* A mean over the batch that was built in the scope, such as a loss or a metric, over the rows of
 * all replicas. */
struct allot_output allot_strategy_mean(struct allot_strategy *strategy, struct allot_output value);
/* What replica `i` has of an output: its copy of a variable, or what it computes from its part of
 * the batch. */
struct allot_output allot_strategy_replica(struct allot_strategy *strategy,
                                           struct allot_output output, size_t i);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
