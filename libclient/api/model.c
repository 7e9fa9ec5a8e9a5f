/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model: layers, and the loop over epochs and batches. With a strategy, the step and the loss are
 * those of all replicas; outputs are the first replica's, which has all that the others have.
 */
#include "libclient/allot/model.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "libclient/api/handle.h"
#include "libclient/core/tensor.h"

enum { BATCH_ROWS = 32 };

static const struct allot_output none = { NULL, 0 };

/* ---- Layers ---------------------------------------------------------------------------------- */

static struct allot_output activate(struct allot_output x, enum allot_activation activation) {
    switch (activation) {
    case ALLOT_RELU:
        return allot_relu(x);
    case ALLOT_TANH:
        return allot_tanh(x);
    case ALLOT_SIGMOID:
        return allot_sigmoid(x);
    case ALLOT_LINEAR:
        break;
    }
    return x;
}

struct allot_output allot_dense(struct allot_output x, int64_t n_units,
                                enum allot_activation activation) {
    struct allot_graph *graph = handle_graph(&x, 1);
    const enum allot_dtype dtype = allot_output_dtype(x);
    int64_t dims[ALLOT_RANK_MAX];
    const int rank = allot_output_shape(x, dims);
    struct allot_output weights, bias, y;
    struct allot_error err;
    double limit;

    if (!graph)
        return none;
    if (rank < 1 || dims[rank - 1] < 0 || n_units < 1 || activation < ALLOT_LINEAR ||
        activation > ALLOT_SIGMOID) {
        error_set(&err, -EINVAL,
                  "a dense layer of %lld units after '%s': the last dimension before it must be "
                  "known, and the activation be one of model.h",
                  (long long)n_units, allot_node_name(x.node));
        handle_fail(graph, &err);
        return none;
    }
    limit = sqrt(6 / (double)(dims[rank - 1] + n_units));
    allot_name_push(graph, "dense");
    weights =
        allot_variable(graph, "weights",
                       allot_random_uniform(graph, dtype, 2, (int64_t[]){ dims[rank - 1], n_units },
                                            -limit, limit, 0));
    bias = allot_variable(graph, "bias", allot_filled(graph, dtype, 1, &n_units, 0));
    y = rank == 2 ? allot_matmul(x, weights) : allot_batch_matmul(x, weights);
    y = activate(allot_bias_add(y, bias), activation);
    allot_name_pop(graph);
    return y;
}

/* ---- The model ------------------------------------------------------------------------------- */

struct allot_model {
    struct allot_graph *graph;
    struct allot_strategy *strategy; /* borrowed until compile; NULL: one device */
    struct allot_output input, output, target, loss;
    struct allot_node *step, *init; /* NULL: not compiled */
    struct allot_session *session;  /* NULL: none yet */
};

struct allot_model *allot_model_new(struct allot_strategy *strategy, struct allot_output input,
                                    struct allot_output output) {
    struct allot_model *model = calloc(1, sizeof(*model));

    if (!model)
        return NULL;
    model->graph = allot_graph_ref(handle_graph((struct allot_output[]){ input, output }, 2));
    model->strategy = strategy;
    model->input = input;
    model->output = output;
    return model;
}

struct allot_model *allot_model_free(struct allot_model *model) {
    if (!model)
        return NULL;
    allot_session_free(model->session);
    graph_unref(model->graph);
    free(model);
    return NULL;
}

/* A placeholder for the targets, and the mean loss. */
static struct allot_output add_loss(struct allot_model *model, enum allot_loss loss) {
    int64_t dims[ALLOT_RANK_MAX];
    const int rank = allot_output_shape(model->output, dims);

    if (loss == ALLOT_LOSS_MSE) {
        model->target = allot_placeholder(model->graph, "target", allot_output_dtype(model->output),
                                          rank, dims);
        return allot_mean(allot_squared_difference(model->output, model->target));
    }
    model->target =
        allot_placeholder(model->graph, "target", ALLOT_I64, rank > 0 ? rank - 1 : rank, dims);
    return allot_mean(allot_sparse_softmax_cross_entropy(model->output, model->target));
}

int allot_model_compile(struct allot_model *model, enum allot_loss loss,
                        struct allot_optimizer *optimizer, struct allot_error *err) {
    if (!model || !optimizer)
        return error_null(err, model ? "optimizer" : "model");
    if (model->step)
        return error_set(err, -EINVAL, "the model is compiled already");
    if (loss != ALLOT_LOSS_MSE && loss != ALLOT_LOSS_CROSS_ENTROPY)
        return error_set(err, -EINVAL, "there is no loss %d", (int)loss);
    if (!model->graph || !model->input.node || !model->output.node)
        return model->graph && allot_graph_error(model->graph, err) < 0
                   ? allot_graph_error(model->graph, err)
                   : error_set(err, -EINVAL,
                               "the model's input or output is not an output of a node");
    if (model->strategy) {
        allot_with_strategy(model->strategy) {
            model->loss = add_loss(model, loss);
        }
        model->step = allot_strategy_minimize(model->strategy, optimizer, model->loss);
        model->loss = allot_strategy_mean(model->strategy, model->loss);
    } else {
        model->loss = add_loss(model, loss);
        model->step = allot_minimize(optimizer, model->loss);
    }
    model->init = allot_initializer(model->graph);
    model->strategy = NULL;
    return allot_graph_error(model->graph, err);
}

int allot_model_session(struct allot_model *model, struct allot_session **ret,
                        struct allot_error *err) {
    int r = 0;

    if (!model)
        return error_null(err, "model");
    if (!model->step || !model->init)
        return error_set(err, -EINVAL, "the model is not compiled");
    if (!model->session) {
        struct allot_session *session;

        r = allot_session_new(&session, model->graph, NULL, err);
        if (r == 0)
            r = allot_session_run(session, NULL, NULL, 0, NULL, 0, &model->init, 1, NULL, err);
        else
            return r;
        if (r < 0) {
            allot_session_free(session);
            return r;
        }
        model->session = session;
    }
    if (ret)
        *ret = model->session;
    return 0;
}

/* ---- Running --------------------------------------------------------------------------------- */

static double number_of(const struct allot_tensor *tensor) {
    switch (tensor->dtype) {
    case DTYPE_F64:
        return *(const double *)tensor_data(tensor);
    case DTYPE_F32:
        return (double)*(const float *)tensor_data(tensor);
    case DTYPE_BF16:
        return (double)dtype_from_bf16(*(const uint16_t *)tensor_data(tensor));
    case DTYPE_F16:
        return (double)dtype_from_f16(*(const uint16_t *)tensor_data(tensor));
    default:
        return NAN;
    }
}

/* The loss of rows begin … begin + n, with a step or without. */
static int run_rows(struct allot_model *model, struct allot_tensor *x, struct allot_tensor *y,
                    int64_t begin, int64_t n, bool is_step, double *ret_loss,
                    struct allot_error *err) {
    const struct allot_output feeds[] = { model->input, model->target };
    struct allot_tensor *rows[2] = { NULL, NULL }, *loss;
    int r = allot_tensor_slice(&rows[0], x, begin, n, err);

    if (r == 0)
        r = allot_tensor_slice(&rows[1], y, begin, n, err);
    if (r == 0)
        r = allot_session_run(model->session, feeds, rows, 2, &model->loss, 1, &model->step,
                              is_step ? 1 : 0, &loss, err);
    allot_tensor_unref(rows[0]);
    allot_tensor_unref(rows[1]);
    if (r < 0)
        return r;
    *ret_loss = number_of(loss);
    allot_tensor_unref(loss);
    return 0;
}

static int check_rows(struct allot_model *model, const struct allot_tensor *x,
                      const struct allot_tensor *y, struct allot_error *err) {
    int r = !x || !y ? error_null(err, "tensor of rows") : allot_model_session(model, NULL, err);

    if (r < 0)
        return r;
    if (allot_tensor_rank(x) < 1 || allot_tensor_rank(y) < 1 ||
        allot_tensor_dim(x, 0) != allot_tensor_dim(y, 0) || allot_tensor_dim(x, 0) < 1)
        return error_set(err, -EINVAL, "inputs and targets must have the same number of rows");
    return 0;
}

static int run_epoch(struct allot_model *model, struct allot_tensor *x, struct allot_tensor *y,
                     int64_t n_batch, double *ret_loss, struct allot_error *err) {
    const int64_t n = allot_tensor_dim(x, 0);
    double sum = 0;
    int r = 0;

    for (int64_t at = 0; r == 0 && at < n;) {
        const int64_t n_now = MIN(n_batch, n - at);
        double loss = 0;

        r = run_rows(model, x, y, at, n_now, true, &loss, err);
        sum += loss * (double)n_now / (double)n;
        at += n_now;
    }
    *ret_loss = sum;
    return r;
}

int allot_model_fit(struct allot_model *model, struct allot_tensor *x, struct allot_tensor *y,
                    const struct allot_fit_options *given, double *ret_loss,
                    struct allot_error *err) {
    struct allot_fit_options options = ALLOT_FIT_OPTIONS_INIT;
    double loss = NAN;
    int r;

    if (given && (given->size < sizeof(size_t) || given->size > sizeof(options)))
        return error_set(err, -EINVAL, "fit options have the wrong size: use their initialiser");
    if (given)
        memcpy(&options, given, given->size);
    r = check_rows(model, x, y, err);
    for (unsigned epoch = 0; r == 0 && epoch < MAX(options.epochs, 1u); epoch++) {
        const uint64_t n_batch = options.batch_rows ? options.batch_rows : BATCH_ROWS;

        r = run_epoch(model, x, y, (int64_t)MIN(n_batch, (uint64_t)INT64_MAX), &loss, err);
        if (r == 0 && options.on_epoch)
            r = options.on_epoch(epoch, loss, options.userdata);
    }
    if (r == 0 && ret_loss)
        *ret_loss = loss;
    return r;
}

int allot_model_evaluate(struct allot_model *model, struct allot_tensor *x, struct allot_tensor *y,
                         double *ret_loss, struct allot_error *err) {
    double loss;
    int r = check_rows(model, x, y, err);

    if (r == 0)
        r = run_rows(model, x, y, 0, allot_tensor_dim(x, 0), false, &loss, err);
    if (r == 0 && ret_loss)
        *ret_loss = loss;
    return r;
}

int allot_model_predict(struct allot_model *model, struct allot_tensor *x,
                        struct allot_tensor **ret, struct allot_error *err) {
    int r = !x || !ret ? error_null(err, x ? "place for the output" : "tensor of rows")
                       : allot_model_session(model, NULL, err);

    return r < 0 ? r
                 : allot_session_run(model->session, &model->input, &x, 1, &model->output, 1, NULL,
                                     0, ret, err);
}
