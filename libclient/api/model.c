/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model: layers, and the loop over epochs and batches. With a strategy, the step and the loss are
 * those of all replicas; outputs are the first replica's, which has all that the others have.
 */
#include "libclient/allot/model.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "libclient/allot/saver.h"
#include "libclient/api/handle.h"
#include "libclient/api/session.h"
#include "libclient/api/strategy.h"
#include "libclient/api/train.h"
#include "libclient/core/log.h"
#include "libclient/core/spec.h"
#include "libclient/core/tensor.h"
#include "libclient/device/device.h"
#include "libclient/device/gpus.h"
#include "libclient/exec/engine/engine.h"
#include "libclient/graph/copy.h"

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
    /* What it was compiled from, to build it again with fewer devices. */
    uint32_t n_built; /* nodes of the program */
    enum allot_loss loss_kind;
    struct allot_strategy *again;      /* NULL: one device */
    struct allot_optimizer *optimizer; /* NULL: not to be had again */
    char *visible;                     /* the GPUs that are left, for the session; NULL: all */
    uint32_t n_gpus;                   /* how many these are */
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
    allot_strategy_free(model->again);
    allot_optimizer_free(model->optimizer);
    graph_unref(model->graph);
    free(model->visible);
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

/* The loss, the step and the initializer; errors stay in the graph. */
static void add_step(struct allot_model *model, struct allot_strategy *strategy,
                     struct allot_optimizer *optimizer) {
    if (strategy) {
        allot_with_strategy(strategy) {
            model->loss = add_loss(model, model->loss_kind);
        }
        model->step = allot_strategy_minimize(strategy, optimizer, model->loss);
        model->loss = allot_strategy_mean(strategy, model->loss);
    } else {
        model->loss = add_loss(model, model->loss_kind);
        model->step = allot_minimize(optimizer, model->loss);
    }
    model->init = allot_initializer(model->graph);
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
    model->loss_kind = loss;
    model->n_built = graph_n_nodes(model->graph);
    model->optimizer = train_optimizer_again(optimizer, model->graph, model->n_built);
    if (model->strategy)
        model->again =
            strategy_again(model->strategy, model->graph, strategy_devices(model->strategy),
                           allot_strategy_n_replicas(model->strategy));
    add_step(model, model->strategy, optimizer);
    model->strategy = NULL;
    return allot_graph_error(model->graph, err);
}

/* A session with initial values, on at most so many GPUs; it may be there after a failure. */
static int open_session(struct allot_model *model, uint32_t n_gpus, struct allot_error *err) {
    struct allot_session_options options = ALLOT_SESSION_OPTIONS_INIT;
    const struct gpus *gpus;
    int r;

    options.visible_devices = model->visible;
    r = allot_session_new(&model->session, model->graph, &options, err);
    if (r < 0)
        return r;
    gpus = model->session->engine->gpus;
    if (gpus && gpus->n > n_gpus)
        return error_set(err, -EBUSY,
                         "another session of this process still has the GPU that is lost: free all "
                         "sessions, and recover then");
    return allot_session_run(model->session, NULL, NULL, 0, NULL, 0, &model->init, 1, NULL, err);
}

int allot_model_session(struct allot_model *model, struct allot_session **ret,
                        struct allot_error *err) {
    int r = 0;

    if (!model)
        return error_null(err, "model");
    if (!model->step || !model->init)
        return error_set(err, -EINVAL, "the model is not compiled");
    if (!model->session) {
        r = open_session(model, model->visible ? model->n_gpus : UINT32_MAX, err);
        if (r < 0) {
            model->session = allot_session_free(model->session);
            return r;
        }
    }
    if (ret)
        *ret = model->session;
    return 0;
}

/* ---- Going on without a GPU -------------------------------------------------------------------
 */

/* What is left. */
struct survivors {
    char *visible;  /* the GPUs of the session, by UUID */
    char **devices; /* of the strategy, under their new numbers */
    size_t n;       /* of these */
    uint32_t n_gpus, n_lost;
};

static void survivors_done(struct survivors *survivors) {
    for (size_t i = 0; survivors->devices && i < survivors->n; i++)
        free(survivors->devices[i]);
    free(survivors->devices);
    free(survivors->visible);
}

/* By number: how many GPUs up to this one are lost. */
static int count_lost(const struct gpus *gpus, struct survivors *survivors, uint32_t *lost,
                      struct allot_error *err) {
    struct gpu_visit visit = gpus_visit_begin(gpus);
    FILE *text;
    size_t size;

    text = open_memstream(&survivors->visible, &size);
    for (uint32_t i = 0; text && i < gpus->n; i++) {
        const bool is_lost = gpu_is_lost(gpus->gpus[i]);

        if (!is_lost)
            fprintf(text, "%s%s", survivors->n_gpus++ ? "," : "", gpus->gpus[i]->uuid);
        survivors->n_lost += is_lost;
        lost[i] = survivors->n_lost;
    }
    gpus_visit_end(&visit);
    return text && fclose(text) == 0 ? 0 : error_set(err, -ENOMEM, "no host memory for a model");
}

/* GPUs are numbered anew, without the lost ones. */
static int keep_devices(const struct allot_strategy *strategy, const struct gpus *gpus,
                        const uint32_t *lost, struct survivors *survivors,
                        struct allot_error *err) {
    const size_t n = allot_strategy_n_replicas(strategy);

    survivors->devices = calloc(n, sizeof(char *));
    for (size_t i = 0; survivors->devices && i < n; i++) {
        const char *device = strategy_devices(strategy)[i];
        char name[32];
        struct spec spec;

        snprintf(name, sizeof(name), "%.31s", device);
        if (spec_parse(&spec, device) == 0 && spec.has_type && spec.has_id &&
            strcmp(spec.type, DEVICE_GPU_TYPE) == 0 && spec.id < (int)gpus->n) {
            const uint32_t before = spec.id > 0 ? lost[spec.id - 1] : 0;

            if (lost[spec.id] > before)
                continue;
            snprintf(name, sizeof(name), "/device:GPU:%d", spec.id - (int)before);
        }
        survivors->devices[survivors->n] = strdup(name);
        if (!survivors->devices[survivors->n++])
            return error_set(err, -ENOMEM, "no host memory for a model");
    }
    if (!survivors->devices)
        return error_set(err, -ENOMEM, "no host memory for a model");
    return survivors->n > 0 ? 0
                            : error_set(err, -ENODEV,
                                        "all %zu devices of the strategy are lost: there is none "
                                        "to go on with",
                                        n);
}

static int find_survivors(const struct allot_model *model, struct survivors *ret,
                          struct allot_error *err) {
    const struct gpus *gpus = model->session ? model->session->engine->gpus : NULL;
    cleanup(freep) uint32_t *lost = gpus ? calloc(gpus->n, sizeof(*lost)) : NULL;
    int r;

    if (gpus && !lost)
        return error_set(err, -ENOMEM, "no host memory for a model");
    r = gpus ? count_lost(gpus, ret, lost, err) : 0;
    if (r < 0)
        return r;
    if (ret->n_lost == 0)
        return error_set(err, -EINVAL, "the model has lost no GPU: there is nothing to recover");
    if (!model->again || !model->optimizer)
        return error_set(err, -EINVAL,
                         "the model cannot be built again: it has no strategy, or its optimizer's "
                         "rate is computed by nodes that were made later");
    return keep_devices(model->again, gpus, lost, ret, err);
}

/* The model in a new graph, without a session. */
static int build_again(struct allot_model *model, const struct survivors *survivors,
                       struct allot_error *err) {
    cleanup(graph_unrefp) struct allot_graph *graph = NULL;
    struct allot_strategy *strategy;
    struct allot_optimizer *optimizer;
    struct allot_model fresh;
    int r = graph_copy(&graph, model->graph, model->n_built, err);

    if (r < 0)
        return r == -EINVAL ? error_wrap(err, -EOPNOTSUPP, "the model cannot be built again") : r;
    strategy =
        strategy_again(model->again, graph, (const char *const *)survivors->devices, survivors->n);
    optimizer = train_optimizer_again(model->optimizer, graph, model->n_built);
    fresh = *model;
    fresh.graph = graph;
    fresh.input = handle_output(graph, handle_edge(model->input));
    fresh.output = handle_output(graph, handle_edge(model->output));
    fresh.optimizer = optimizer;
    fresh.again = NULL;
    if (strategy && optimizer) {
        fresh.again = strategy_again(strategy, graph, strategy_devices(strategy), survivors->n);
        add_step(&fresh, strategy, optimizer);
    }
    r = allot_graph_error(graph, err);
    if (r == 0 && (!fresh.again || !optimizer))
        r = error_set(err, -ENOMEM, "no host memory for a model");
    allot_strategy_free(strategy);
    if (r < 0) {
        allot_strategy_free(fresh.again);
        allot_optimizer_free(optimizer);
        return r;
    }
    allot_strategy_free(model->again);
    allot_optimizer_free(model->optimizer);
    graph_unref(model->graph);
    *model = fresh;
    TAKE(graph);
    return 0;
}

/* Let go of everything, and build again what can go on. */
static int leave_lost(struct allot_model *model, struct allot_error *err) {
    cleanup(survivors_done) struct survivors survivors = { 0 };
    int r = find_survivors(model, &survivors, err);

    if (r == 0)
        r = build_again(model, &survivors, err);
    if (r < 0)
        return r;
    free(model->visible);
    model->visible = TAKE(survivors.visible);
    model->n_gpus = survivors.n_gpus;
    model->session = allot_session_free(model->session);
    return 0;
}

int allot_model_recover(struct allot_model *model, const char *path, struct allot_error *err) {
    int r = !model ? error_null(err, "model") : 0;

    /* Without a session, an earlier call has come as far as that. */
    if (r == 0 && (model->session || !model->visible))
        r = leave_lost(model, err);
    if (r < 0)
        return r;
    r = open_session(model, model->n_gpus, err);
    /* One that has lost another GPU says which. */
    if (r < 0 && r != -ENOTRECOVERABLE)
        model->session = allot_session_free(model->session);
    return r < 0 || !path ? r : allot_restore(model->session, NULL, 0, path, err);
}

size_t allot_model_n_replicas(const struct allot_model *model) {
    return !model ? 0 : model->again ? allot_strategy_n_replicas(model->again) : 1;
}

struct allot_output allot_model_output(const struct allot_model *model,
                                       struct allot_output output) {
    const struct edge edge = handle_edge(output);

    if (!model || !model->graph || edge_is_none(edge) || edge.node >= model->n_built)
        return none;
    return handle_output(model->graph, edge);
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

static int take_fit_options(struct allot_fit_options *ret, const struct allot_fit_options *given,
                            struct allot_error *err) {
    *ret = ALLOT_FIT_OPTIONS_INIT;
    if (given && (given->size < sizeof(size_t) || given->size > sizeof(*ret)))
        return error_set(err, -EINVAL, "fit options have the wrong size: use their initialiser");
    if (given)
        memcpy(ret, given, given->size);
    if (ret->survive_losses && !ret->checkpoint)
        return error_set(err, -EINVAL,
                         "a training that is to survive the loss of a GPU needs a checkpoint");
    ret->epochs = MAX(ret->epochs, 1u);
    ret->checkpoint_epochs = MAX(ret->checkpoint_epochs, 1u);
    ret->batch_rows = ret->batch_rows ? MIN(ret->batch_rows, (uint64_t)INT64_MAX) : BATCH_ROWS;
    return 0;
}

/* Of one training. */
struct fit_progress {
    const struct allot_fit_options *options;
    unsigned epoch, saved; /* to be trained next; and at the last checkpoint */
    bool has_saved;        /* there is one */
    unsigned n_losses;     /* that it survived */
};

/* A GPU is lost: go back to the last checkpoint, with those that are left. Others may be lost
 * meanwhile. */
static int survive(struct allot_model *model, struct fit_progress *fit, int r,
                   struct allot_error *err) {
    while (r == -ENOTRECOVERABLE && fit->has_saved &&
           fit->n_losses < fit->options->survive_losses) {
        struct allot_error why = *err;

        fit->n_losses++;
        fit->epoch = fit->saved;
        log_say(ALLOT_LOG_WARNING, "%s", why.text);
        r = allot_model_recover(model, fit->options->checkpoint, err);
        if (r == 0)
            log_say(ALLOT_LOG_WARNING,
                    "the training goes on with %zu replicas from %s, as it was after %u epochs",
                    allot_model_n_replicas(model), fit->options->checkpoint, fit->saved);
    }
    return r;
}

static int save_epoch(struct allot_model *model, struct fit_progress *fit, unsigned epoch,
                      struct allot_error *err) {
    int r = allot_save(model->session, NULL, 0, fit->options->checkpoint, err);

    if (r == 0) {
        fit->has_saved = true;
        fit->saved = epoch;
    }
    return r;
}

static int fit_epoch(struct allot_model *model, struct allot_tensor *x, struct allot_tensor *y,
                     struct fit_progress *fit, double *ret_loss, struct allot_error *err) {
    const struct allot_fit_options *options = fit->options;
    int r = run_epoch(model, x, y, (int64_t)options->batch_rows, ret_loss, err);

    if (r == 0 && options->checkpoint &&
        ((fit->epoch + 1) % options->checkpoint_epochs == 0 || fit->epoch + 1 == options->epochs))
        r = save_epoch(model, fit, fit->epoch + 1, err);
    return r;
}

int allot_model_fit(struct allot_model *model, struct allot_tensor *x, struct allot_tensor *y,
                    const struct allot_fit_options *given, double *ret_loss,
                    struct allot_error *err) {
    struct allot_fit_options options;
    struct fit_progress fit = { .options = &options };
    struct allot_error own = { 0 };
    double loss = NAN;
    int r = take_fit_options(&options, given, &own);

    if (r == 0)
        r = check_rows(model, x, y, &own);
    if (r == 0 && options.survive_losses)
        r = survive(model, &fit, save_epoch(model, &fit, 0, &own), &own);
    while (r == 0 && fit.epoch < options.epochs) {
        r = fit_epoch(model, x, y, &fit, &loss, &own);
        if (r == 0) {
            fit.epoch++;
            r = options.on_epoch ? options.on_epoch(fit.epoch - 1, loss, options.userdata) : 0;
            if (r != 0)
                break;
        }
        r = survive(model, &fit, r, &own);
    }
    if (r < 0 && err)
        *err = own;
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
