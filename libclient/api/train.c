/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Train: gradients for users, and optimizers as pieces of graph.
 *
 * An optimizer is a few numbers. Its state between steps lies in variables of the graph, which it
 * makes with each node that changes a variable: "w/Momentum", "w/Adam", "w/Adam_1". Adam has two
 * more for all variables, the powers of its betas, and multiplies them after all variables have
 * changed.
 *
 * For 16-bit variables the state of momentum and Adam, and their parameters, are f32: in bf16 0.999
 * is 1, and in f16 1e-8 is 0.
 */
#include "libclient/allot/train.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "libclient/api/helper.h"
#include "libclient/api/train.h"
#include "libclient/graph/grad.h"

enum method { METHOD_SGD, METHOD_MOMENTUM, METHOD_ADAM };

struct allot_optimizer {
    enum method method;
    double rate, momentum, beta1, beta2, epsilon;
    bool nesterov;
    struct allot_output rate_output; /* instead of `rate`; no node: none */
};

/* ---- Gradients ------------------------------------------------------------------------------- */

static struct edge *edges_of(const struct allot_output *outputs, size_t n) {
    struct edge *edges = malloc((n ? n : 1) * sizeof(edges[0]));

    for (size_t i = 0; i < n && edges; i++)
        edges[i] = handle_edge(outputs[i]);
    return edges;
}

/* The one graph of all; the words are in `err`. */
static int graph_of(const struct allot_output *outputs, size_t n, const char *what,
                    struct allot_graph **graph, struct allot_error *err) {
    for (size_t i = 0; i < n; i++) {
        const struct node *node = handle_node(outputs[i].node);

        if (!node)
            return error_set(err, -EINVAL, "gradients: %s %zu failed before: see %s", what, i,
                             "allot_graph_error()");
        if (*graph && node->graph != *graph)
            return error_set(err, -EINVAL, "gradients: '%s' is of another graph", node->name);
        *graph = node->graph;
    }
    return 0;
}

int allot_gradients(const struct allot_output *ys, size_t n_ys, const struct allot_output *xs,
                    size_t n_xs, const struct allot_output *ys_grad, struct allot_output *ret,
                    struct allot_error *err) {
    cleanup(freep) struct edge *y = NULL, *x = NULL, *grad = NULL, *made = NULL;
    struct allot_graph *graph = NULL;
    int r = (n_ys && !ys) || (n_xs && !xs) ? error_null(err, "array of outputs")
            : n_xs && !ret                 ? error_null(err, "place for gradients")
                                           : graph_of(ys, n_ys, "y", &graph, err);

    if (r == 0)
        r = graph_of(xs, n_xs, "x", &graph, err);
    if (r == 0 && ys_grad)
        r = graph_of(ys_grad, n_ys, "gradient of y", &graph, err);
    if (r < 0 || !graph)
        return r;
    helper_drop(graph); /* gradients have names of their own */
    y = edges_of(ys, n_ys);
    x = edges_of(xs, n_xs);
    grad = ys_grad ? edges_of(ys_grad, n_ys) : NULL;
    made = malloc((n_xs ? n_xs : 1) * sizeof(made[0]));
    if (!y || !x || !made || (ys_grad && !grad))
        return error_set(err, -ENOMEM, "no host memory for gradients");
    r = grad_add(graph, y, n_ys, x, n_xs, grad, made, err);
    for (size_t i = 0; i < n_xs && r == 0; i++)
        ret[i] = handle_output(graph, made[i]);
    return r;
}

struct allot_output allot_gradient(struct allot_output y, struct allot_output x) {
    struct allot_graph *graph = handle_graph((struct allot_output[]){ y, x }, 2);
    struct allot_output ret = { NULL, 0 };
    struct allot_error err = { 0 };

    helper_drop(graph);
    if (graph && allot_gradients(&y, 1, &x, 1, NULL, &ret, &err) < 0)
        handle_fail(graph, &err);
    return ret;
}

/* ---- Optimizers ------------------------------------------------------------------------------ */

static struct allot_optimizer *optimizer_new(struct allot_optimizer values) {
    struct allot_optimizer *optimizer = malloc(sizeof(*optimizer));

    if (optimizer)
        *optimizer = values;
    return optimizer;
}

struct allot_optimizer *allot_sgd(double rate) {
    return optimizer_new((struct allot_optimizer){ .method = METHOD_SGD, .rate = rate });
}

struct allot_optimizer *allot_momentum(double rate, double momentum, bool nesterov) {
    return optimizer_new((struct allot_optimizer){
        .method = METHOD_MOMENTUM, .rate = rate, .momentum = momentum, .nesterov = nesterov });
}

struct allot_optimizer *allot_adam(double rate, double beta1, double beta2, double epsilon) {
    return optimizer_new((struct allot_optimizer){
        .method = METHOD_ADAM, .rate = rate, .beta1 = beta1, .beta2 = beta2, .epsilon = epsilon });
}

struct allot_optimizer *train_optimizer_again(const struct allot_optimizer *from,
                                              const struct allot_graph *graph, uint32_t n) {
    struct allot_optimizer values = *from;
    const struct edge rate = handle_edge(from->rate_output);

    if (!edge_is_none(rate) && rate.node >= n)
        return NULL;
    values.rate_output = handle_output(graph, rate);
    return optimizer_new(values);
}

struct allot_optimizer *allot_optimizer_free(struct allot_optimizer *optimizer) {
    free(optimizer);
    return NULL;
}

void allot_optimizer_set_rate(struct allot_optimizer *optimizer, struct allot_output rate) {
    if (optimizer)
        optimizer->rate_output = rate;
}

/* The numbers that all variables of one type share. */
struct numbers {
    enum dtype dtype; /* theirs; DTYPE_NONE: not made yet */
    struct allot_output rate, momentum, beta1, beta2, epsilon, beta1_power, beta2_power;
};

struct train_step {
    const struct allot_optimizer *optimizer;
    struct allot_graph *graph;
    struct numbers numbers[N_DTYPES];
    struct allot_node **applied; /* one for each variable, then the betas' */
    size_t n_applied;
};

/* A variable with a name of its own, where `at` is. */
static struct allot_output beside(struct train_step *step, const struct node *at, const char *name,
                                  struct allot_output initial) {
    struct allot_output made;

    if (allot_colocate_push(step->graph, handle_of(at)) < 0)
        return (struct allot_output){ NULL, 0 };
    made = allot_variable(step->graph, name, initial);
    allot_colocate_pop(step->graph);
    return made;
}

/* The type of the optimizer's state for a variable, and of its parameters. */
static enum dtype kept_type(const struct allot_optimizer *optimizer, enum dtype dtype) {
    return optimizer->method != METHOD_SGD && dtype_kind(dtype) == DTYPE_KIND_FLOAT &&
                   dtype_bytes(dtype) == 2
               ? DTYPE_F32
               : dtype;
}

static struct numbers *numbers_of(struct train_step *step, const struct node *variable,
                                  enum dtype dtype) {
    const struct allot_optimizer *optimizer = step->optimizer;
    struct numbers *own = &step->numbers[dtype];
    struct allot_graph *graph = step->graph;

    if (own->dtype != DTYPE_NONE)
        return own;
    own->dtype = kept_type(optimizer, dtype);
#define NUMBER(value) allot_scalar(graph, (enum allot_dtype)own->dtype, value)
    if (!optimizer->rate_output.node)
        own->rate = NUMBER(optimizer->rate);
    if (optimizer->method == METHOD_MOMENTUM)
        own->momentum = NUMBER(optimizer->momentum);
    if (optimizer->method == METHOD_ADAM) {
        own->beta1 = NUMBER(optimizer->beta1);
        own->beta2 = NUMBER(optimizer->beta2);
        own->epsilon = NUMBER(optimizer->epsilon);
        own->beta1_power = beside(step, variable, "beta1_power", NUMBER(optimizer->beta1));
        own->beta2_power = beside(step, variable, "beta2_power", NUMBER(optimizer->beta2));
    }
#undef NUMBER
    return own;
}

/* A state variable for a variable: zeros of its shape. */
static struct allot_output slot(struct train_step *step, const struct node *variable,
                                const char *name) {
    const struct node_output *own = &variable->outputs[0];
    size_t size = strlen(variable->name) + strlen(name) + 3;
    cleanup(freep) char *full = malloc(size);
    const struct graph_variable *of = graph_variable(step->graph, variable->id);
    struct allot_output zeros, made;
    struct allot_error err;

    if (!full) {
        error_set(&err, -ENOMEM, "no host memory for an optimizer");
        handle_fail(step->graph, &err);
        return (struct allot_output){ NULL, 0 };
    }
    snprintf(full, size, "%s/%s/", variable->name, name);
    /* Made where they stay: another device may have no room for them. */
    if (allot_device_push(step->graph, variable->device) < 0)
        return (struct allot_output){ NULL, 0 };
    zeros = allot_filled(step->graph, (enum allot_dtype)kept_type(step->optimizer, own->dtype),
                         own->shape.rank, own->shape.dims, 0); /* a variable's is always whole */
    allot_device_pop(step->graph);
    made = beside(step, variable, full, zeros);
    /* A checkpoint joins the state of shards as it joins the shards. */
    if (made.node && of && of->sharding) {
        struct graph_variable *kept = graph_variable(step->graph, handle_node(made.node)->id);

        kept->sharding = of->sharding;
        kept->shard = of->shard;
    }
    return made;
}

/* A computed rate, cast to the type that the variable needs: one rate may serve several types. */
static struct allot_output rate_of(const struct allot_optimizer *optimizer, enum dtype dtype) {
    const struct allot_output rate = optimizer->rate_output;
    const enum allot_dtype own = allot_output_dtype(rate);

    return !rate.node || own == (enum allot_dtype)dtype ||
                   dtype_kind((enum dtype)own) != DTYPE_KIND_FLOAT
               ? rate
               : allot_cast(rate, (enum allot_dtype)dtype);
}

/* Add the parameters, and the state variables that the step needs after the first input. They
 * ignore the step's control scope, so that the initializer does not wait for it either. */
static const struct numbers *provide(struct train_step *step, struct allot_output variable,
                                     struct allot_output inputs[static 3]) {
    const struct node *own = handle_node(variable.node);
    struct numbers *numbers;

    if (allot_control_push(step->graph, NULL, 0) < 0)
        return NULL;
    numbers = numbers_of(step, own, own->outputs[variable.index].dtype);
    if (step->optimizer->method == METHOD_MOMENTUM)
        inputs[1] = slot(step, own, "Momentum");
    if (step->optimizer->method == METHOD_ADAM) {
        inputs[1] = slot(step, own, "Adam");
        inputs[2] = slot(step, own, "Adam_1");
    }
    allot_control_pop(step->graph);
    if (!numbers->rate.node)
        numbers->rate = rate_of(step->optimizer, numbers->dtype);
    return numbers;
}

static struct allot_node *apply(struct train_step *step, struct allot_output variable,
                                struct allot_output gradient) {
    const struct allot_optimizer *optimizer = step->optimizer;
    const struct node *own = handle_node(variable.node);
    struct allot_output inputs[10] = { variable };
    const struct numbers *n = provide(step, variable, inputs);
    struct build_attr nesterov = { "use_nesterov", attr_bool(optimizer->nesterov) };
    size_t size = strlen(own->name) + sizeof("update_");
    cleanup(freep) char *name = malloc(size);
    struct allot_graph *graph = step->graph;
    struct allot_output made = { NULL, 0 };
    struct allot_error err;

    if (!name || !n) {
        error_set(&err, -ENOMEM, "no host memory for an optimizer");
        handle_fail(graph, &err);
        return NULL;
    }
    snprintf(name, size, "update_%s", own->name);
    if (allot_colocate_push(graph, variable.node) < 0)
        return NULL;
    switch (optimizer->method) {
    case METHOD_SGD:
        inputs[1] = n->rate;
        inputs[2] = gradient;
        made = helper_node(graph, name, "ApplyGradientDescent", inputs, 3, NULL, 0);
        break;
    case METHOD_MOMENTUM:
        inputs[2] = n->rate;
        inputs[3] = gradient;
        inputs[4] = n->momentum;
        made = helper_node(graph, name, "ApplyMomentum", inputs, 5, &nesterov, 1);
        break;
    case METHOD_ADAM:
        inputs[3] = n->beta1_power;
        inputs[4] = n->beta2_power;
        inputs[5] = n->rate;
        inputs[6] = n->beta1;
        inputs[7] = n->beta2;
        inputs[8] = n->epsilon;
        inputs[9] = gradient;
        made = helper_node(graph, name, "ApplyAdam", inputs, 10, &nesterov, 1);
        break;
    }
    allot_colocate_pop(graph);
    return made.node;
}

/* Update the powers of the betas, after every variable has changed with the old ones. */
static void multiply_powers(struct train_step *step) {
    size_t n = step->n_applied;

    for (int dtype = 0; dtype < N_DTYPES; dtype++) {
        const struct numbers *own = &step->numbers[dtype];
        const struct allot_output powers[] = { own->beta1_power, own->beta2_power };
        const struct allot_output betas[] = { own->beta1, own->beta2 };

        for (size_t i = 0; i < 2 && own->beta1_power.node && own->beta2_power.node; i++) {
            struct allot_output product = allot_mul(powers[i], betas[i]), write;

            if (allot_control_push(step->graph, step->applied, n) < 0)
                return;
            allot_colocate_push(step->graph, powers[i].node);
            write = helper_node(step->graph, NULL, "Assign",
                                (struct allot_output[]){ powers[i], product }, 2, NULL, 0);
            allot_colocate_pop(step->graph);
            allot_control_pop(step->graph);
            step->applied[step->n_applied++] = write.node;
        }
    }
}

/* `name` NULL: after the method. */
static struct allot_node *step_make(struct train_step *step, const char *name,
                                    const struct allot_output *gradients,
                                    const struct allot_output *variables, size_t n) {
    static const char *const names[] = { "GradientDescent", "Momentum", "Adam" };
    struct allot_error err;

    for (size_t i = 0; i < n; i++) {
        if (!gradients[i].node || !variables[i].node)
            continue;
        if (!allot_output_is_variable(variables[i])) {
            error_set(&err, -EINVAL, "'%s' (op %s) is not a variable: it cannot be trained",
                      allot_node_name(variables[i].node), allot_node_op(variables[i].node));
            handle_fail(step->graph, &err);
            return NULL;
        }
        step->applied[step->n_applied++] = apply(step, variables[i], gradients[i]);
    }
    if (step->n_applied == 0) {
        error_set(&err, -EINVAL, "there is nothing to train: no variable has a gradient");
        handle_fail(step->graph, &err);
        return NULL;
    }
    multiply_powers(step);
    for (size_t i = 0; i < step->n_applied; i++)
        if (!step->applied[i])
            return NULL;
    return allot_group(step->graph, name ? name : names[step->optimizer->method], step->applied,
                       step->n_applied);
}

struct allot_node *allot_apply_gradients(struct allot_optimizer *optimizer,
                                         const struct allot_output *gradients,
                                         const struct allot_output *variables, size_t n) {
    struct allot_graph *graph = handle_graph(variables, n);
    cleanup(freep) char *name = graph ? helper_name(graph) : NULL;
    struct train_step step = { .optimizer = optimizer, .graph = graph };
    struct allot_node *made = NULL;
    struct allot_error err;

    if (!graph)
        helper_drop(NULL);
    if (n && (!gradients || !variables)) {
        error_null(&err, gradients ? "array of variables" : "array of gradients");
        handle_fail(graph, &err);
        return NULL;
    }
    if (!graph)
        return NULL;
    step.applied = calloc(n + 2 * N_DTYPES, sizeof(struct allot_node *));
    if (optimizer && step.applied)
        made = step_make(&step, name, gradients, variables, n);
    else {
        error_set(&err, -ENOMEM, "no host memory for an optimizer");
        handle_fail(graph, &err);
    }
    free(step.applied);
    return made;
}

struct allot_node *allot_minimize(struct allot_optimizer *optimizer, struct allot_output loss) {
    struct allot_graph *graph = handle_graph(&loss, 1);
    cleanup(freep) struct allot_output *variables = NULL, *gradients = NULL;
    const struct graph_variable *variable;
    cleanup(freep) char *name = NULL;
    struct allot_error err = { 0 };
    size_t n = 0;

    if (!graph) {
        helper_drop(NULL);
        return NULL;
    }
    name = helper_name(graph);
    variables = calloc(graph->variables.n + 1, sizeof(variables[0]));
    gradients = calloc(graph->variables.n + 1, sizeof(gradients[0]));
    if (!variables || !gradients) {
        error_set(&err, -ENOMEM, "no host memory for an optimizer");
        handle_fail(graph, &err);
        return NULL;
    }
    for (size_t pos = 0; (variable = map_next(&graph->variables, &pos));)
        variables[n++] = handle_output(graph, (struct edge){ variable->id, 0 });
    if (allot_gradients(&loss, 1, variables, n, NULL, gradients, &err) < 0) {
        handle_fail(graph, &err);
        return NULL;
    }
    if (n == 0) {
        error_set(&err, -EINVAL, "there is nothing to train: the graph has no variable");
        handle_fail(graph, &err);
        return NULL;
    }
    graph->next_name = TAKE(name); /* it is for the step */
    return allot_apply_gradients(optimizer, gradients, variables, n);
}
