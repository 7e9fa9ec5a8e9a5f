/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ALLOT_MODEL_H
#define ALLOT_MODEL_H
/*
 * Models: layers, and a loop that trains them on tensors of the host.
 *
 *     struct allot_output x = allot_placeholder(graph, "x", ALLOT_F32, 2, (int64_t[]){ -1, 1 });
 *     struct allot_model *model = allot_model_new(NULL, x, allot_dense(x, 1, ALLOT_LINEAR));
 *
 *     allot_model_compile(model, ALLOT_LOSS_MSE, sgd, &err);
 *     allot_model_fit(model, inputs, targets, NULL, &loss, &err);
 *     allot_model_predict(model, inputs, &outputs, &err);
 *     allot_model_free(model);
 *
 * With a strategy (strategy.h) the same program trains on all its devices. Functions return 0 or
 * -errno as those of session.h do. Only one thread at a time may use a model.
 */
#include "session.h"
#include "strategy.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

enum allot_activation {
    ALLOT_LINEAR = 0,
    ALLOT_RELU = 1,
    ALLOT_TANH = 2,
    ALLOT_SIGMOID = 3,
};

/* A layer that is fully connected: x, whose last dimension must be known, times weights, plus a
 * bias. The weights begin as uniform random numbers by the rule of Glorot, the bias as zeros; their
 * type is that of x. The graph keeps an error. */
struct allot_output allot_dense(struct allot_output x, int64_t n_units,
                                enum allot_activation activation);

enum allot_loss {
    ALLOT_LOSS_MSE = 0, /* the mean of (output - target)²; targets have the output's shape */
    ALLOT_LOSS_CROSS_ENTROPY = 1, /* the mean over rows of logits; targets are i64 class numbers */
};

struct allot_model;

/* From a placeholder to what is computed from it; with a strategy, both are of its scope. NULL: no
 * host memory. The model keeps a reference to the graph, and none to the strategy. */
struct allot_model *allot_model_new(struct allot_strategy *strategy, struct allot_output input,
                                    struct allot_output output);
struct allot_model *allot_model_free(struct allot_model *model); /* NULL is fine */

/* Adds the loss and the step of the optimizer, once. An error of the graph so far is returned. */
int allot_model_compile(struct allot_model *model, enum allot_loss loss,
                        struct allot_optimizer *optimizer, struct allot_error *err);
/* The model's session, for checkpoints and the like: made by the first call that needs it, with the
 * defaults of config.h; variables then have their initial values. It belongs to the model. */
int allot_model_session(struct allot_model *model, struct allot_session **ret,
                        struct allot_error *err);

struct allot_fit_options {
    size_t size;         /* sizeof(struct allot_fit_options) */
    unsigned epochs;     /* 0: 1 */
    uint64_t batch_rows; /* 0: 32; the last batch of an epoch may have fewer */
    /* Called after each epoch with its mean loss; NULL: not. Anything but 0 ends the training, and
     * is returned. */
    int (*on_epoch)(unsigned epoch, double loss, void *userdata);
    void *userdata;
    /* The file for a checkpoint of all variables (saver.h), written after each epoch, or every
     * `checkpoint_epochs` and after the last; NULL: none. */
    const char *checkpoint;
    unsigned checkpoint_epochs; /* 0: 1 */
    /* How many GPUs of the strategy may be lost: the training then goes on with those that are
     * left, from the last checkpoint, as after allot_model_recover(), and the log says so. Epochs
     * since then are trained again, and reported again. A checkpoint is then also written before
     * the first epoch. 0: the loss of a GPU is an error. */
    unsigned survive_losses;
};

#define ALLOT_FIT_OPTIONS_INIT allot_fit_options_init()
static inline struct allot_fit_options allot_fit_options_init(void) {
    struct allot_fit_options options;

    memset(&options, 0, sizeof(options));
    options.size = sizeof(options);
    return options;
}

/* Train on `x` and `y`, which have the same number of rows, in the order in which they are.
 * `ret_loss` (NULL: not wanted): the mean loss of the last epoch, before each of its steps. */
int allot_model_fit(struct allot_model *model, struct allot_tensor *x, struct allot_tensor *y,
                    const struct allot_fit_options *options, double *ret_loss,
                    struct allot_error *err);
/*
 * After an error of -ENOTRECOVERABLE, that a GPU is lost: build the model again on the devices of
 * its strategy that are left, as if the program had begun with these, and restore the checkpoint
 * `path` (NULL: variables have their initial values). What the session had on all GPUs is given
 * back first, with its lease. The model then has another graph: outputs and nodes of the old one
 * are found in it by allot_model_output(), and the program's strategy is not the model's any more.
 * -ENODEV: no device is left; -EINVAL: none is lost, or the model has no strategy; -EBUSY: another
 * session of the process uses the lost GPU; -EOPNOTSUPP: nodes were made for replicas one by one.
 */
int allot_model_recover(struct allot_model *model, const char *path, struct allot_error *err);
/* How many devices train the model: 1 without a strategy. */
size_t allot_model_n_replicas(const struct allot_model *model);
/* An output that was built before allot_model_compile(), in the graph that the model has now. No
 * node: it is not one of these. */
struct allot_output allot_model_output(const struct allot_model *model, struct allot_output output);
/* The mean loss over all rows, without a step. */
int allot_model_evaluate(struct allot_model *model, struct allot_tensor *x, struct allot_tensor *y,
                         double *ret_loss, struct allot_error *err);
/* The output for all rows; the tensor is the caller's. */
int allot_model_predict(struct allot_model *model, struct allot_tensor *x,
                        struct allot_tensor **ret, struct allot_error *err);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
