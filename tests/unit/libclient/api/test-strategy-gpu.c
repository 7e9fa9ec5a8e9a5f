/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mirrored strategy on the GPUs of a simulated box, against one device with the whole batch:
 * the same variables after every step, whatever the optimizer and however badly the batch divides,
 * and the same bits in all replicas.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/allot/config.h"
#include "libclient/allot/model.h"
#include "libclient/allot/saver.h"
#include "libclient/api/handle.h"
#include "tests/support/sim/box/sim_box.h"
#include "tests/support/suite.h"

enum { REPLICAS_MAX = 8, LAYERS = 2, VARIABLES = 2 * LAYERS, IN = 5, HIDDEN = 9, OUT = 3 };

struct job {
    struct allot_graph *graph;
    struct allot_strategy *strategy; /* NULL: one device */
    struct allot_output x, y, loss, variables[VARIABLES];
    struct allot_node *step, *init;
    struct allot_session *session;
};

enum method { SGD, MOMENTUM, ADAM };

static struct allot_optimizer *optimizer_of(enum method method) {
    return method == SGD        ? allot_sgd(0.1)
           : method == MOMENTUM ? allot_momentum(0.05, 0.9, false)
                                : allot_adam(0.01, ALLOT_ADAM_DEFAULTS);
}

static struct allot_output variable(struct job *job, const char *name, enum allot_dtype dtype,
                                    int rank, const int64_t *dims, uint64_t seed) {
    return allot_variable(job->graph, name,
                          allot_random_uniform(job->graph, dtype, rank, dims, -0.7, 0.7, seed));
}

static void build(struct job *job, enum allot_dtype dtype) {
    static const int64_t widths[LAYERS + 1] = { IN, HIDDEN, OUT };
    struct allot_output h;

    job->x = allot_placeholder(job->graph, "x", dtype, 2, (int64_t[]){ -1, IN });
    job->y = allot_placeholder(job->graph, "y", dtype, 2, (int64_t[]){ -1, OUT });
    h = job->x;
    for (int i = 0; i < LAYERS; i++) {
        struct allot_output *v = &job->variables[2 * i];

        v[0] =
            variable(job, "w", dtype, 2, (int64_t[]){ widths[i], widths[i + 1] }, (uint64_t)i + 3);
        v[1] = variable(job, "b", dtype, 1, &widths[i + 1], (uint64_t)i + 13);
        h = allot_bias_add(allot_matmul(h, v[0]), v[1]);
        h = i < LAYERS - 1 ? allot_tanh(h) : h;
    }
    job->loss = allot_mean(allot_squared_difference(h, job->y));
}

static void must_run(struct job *job, struct allot_node *target) {
    struct allot_error err = { 0 };

    ck_assert_msg(allot_session_run(job->session, NULL, NULL, 0, NULL, 0, &target, 1, NULL, &err) ==
                      0,
                  "%s", err.text);
}

static void job_open(struct job *job, enum allot_dtype dtype, enum method method,
                     const char *const *devices, size_t n) {
    struct allot_optimizer *optimizer = optimizer_of(method);
    struct allot_error err = { 0 };

    *job = (struct job){ 0 };
    ck_assert_int_eq(allot_graph_new(&job->graph, NULL), 0);
    if (n == 0) {
        allot_with_device(job->graph, "/gpu:0") {
            build(job, dtype);
            job->step = allot_minimize(optimizer, job->loss);
        }
    } else {
        job->strategy = allot_mirrored(job->graph, devices, n);
        ck_assert_uint_eq(allot_strategy_n_replicas(job->strategy), n);
        allot_with_strategy(job->strategy) {
            build(job, dtype);
        }
        job->step = allot_strategy_minimize(job->strategy, optimizer, job->loss);
        job->loss = allot_strategy_mean(job->strategy, job->loss);
    }
    job->init = allot_initializer(job->graph);
    allot_optimizer_free(optimizer);
    ck_assert_msg(allot_graph_error(job->graph, &err) == 0, "%s", err.text);
    ck_assert_msg(allot_session_new(&job->session, job->graph, NULL, &err) == 0, "%s", err.text);
    must_run(job, job->init);
}

static void job_close(struct job *job) {
    allot_session_free(job->session);
    allot_strategy_free(job->strategy);
    allot_graph_unref(job->graph);
}

static double at(struct allot_tensor *tensor, int64_t i) {
    return allot_tensor_dtype(tensor) == ALLOT_F64
               ? ((double *)allot_tensor_data(tensor))[i]
               : (double)((float *)allot_tensor_data(tensor))[i];
}

static struct allot_tensor *rows_of(enum allot_dtype dtype, int64_t rows, int64_t columns,
                                    double seed) {
    struct allot_tensor *made;

    ck_assert_int_eq(allot_tensor_new(&made, dtype, 2, (int64_t[]){ rows, columns }, NULL), 0);
    for (int64_t i = 0; i < rows * columns; i++) {
        const double value = sin(seed + 1.7 * (double)i);

        if (dtype == ALLOT_F64)
            ((double *)allot_tensor_data(made))[i] = value;
        else
            ((float *)allot_tensor_data(made))[i] = (float)value;
    }
    return made;
}

/* One step on so many rows: the loss. */
static double step(struct job *job, enum allot_dtype dtype, int64_t rows, double seed) {
    struct allot_tensor *fed[2] = { rows_of(dtype, rows, IN, seed),
                                    rows_of(dtype, rows, OUT, 2 * seed) };
    struct allot_output feeds[2] = { job->x, job->y };
    struct allot_error err = { 0 };
    struct allot_tensor *loss;
    double ret;

    ck_assert_msg(allot_session_run(job->session, feeds, fed, 2, &job->loss, 1, &job->step, 1,
                                    &loss, &err) == 0,
                  "%s", err.text);
    ret = at(loss, 0);
    allot_tensor_unref(loss);
    allot_tensor_unref(fed[0]);
    allot_tensor_unref(fed[1]);
    return ret;
}

static void values(struct job *job, size_t replica, struct allot_tensor *ret[VARIABLES]) {
    struct allot_output fetches[VARIABLES];
    struct allot_error err = { 0 };

    for (int v = 0; v < VARIABLES; v++)
        fetches[v] = job->strategy
                         ? allot_strategy_replica(job->strategy, job->variables[v], replica)
                         : job->variables[v];
    ck_assert_msg(
        allot_session_run(job->session, NULL, NULL, 0, fetches, VARIABLES, NULL, 0, ret, &err) == 0,
        "%s", err.text);
}

static void values_done(struct allot_tensor *tensors[VARIABLES]) {
    for (int v = 0; v < VARIABLES; v++)
        allot_tensor_unref(tensors[v]);
}

/* Whatever is mirrored, the optimizer's state, too, has the bits of what it is a copy of. */
static size_t same_mirrors(struct job *job) {
    size_t n = 0;

    for (uint32_t id = 0; id < graph_n_nodes(job->graph); id++) {
        const struct graph_variable *variable = graph_variable(job->graph, id);
        struct allot_output fetches[2];
        struct allot_tensor *got[2];
        struct allot_error err = { 0 };

        if (!variable || variable->mirror_of == UINT32_MAX)
            continue;
        fetches[0] = handle_output(job->graph, (struct edge){ id, 0 });
        fetches[1] = handle_output(job->graph, (struct edge){ variable->mirror_of, 0 });
        ck_assert_msg(
            allot_session_run(job->session, NULL, NULL, 0, fetches, 2, NULL, 0, got, &err) == 0,
            "%s", err.text);
        ck_assert_uint_eq(allot_tensor_bytes(got[0]), allot_tensor_bytes(got[1]));
        ck_assert_msg(memcmp(allot_tensor_data(got[0]), allot_tensor_data(got[1]),
                             allot_tensor_bytes(got[0])) == 0,
                      "'%s' has other bits than '%s'", allot_node_name(fetches[0].node),
                      allot_node_name(fetches[1].node));
        allot_tensor_unref(got[0]);
        allot_tensor_unref(got[1]);
        n++;
    }
    return n;
}

/* All replicas have the same bits: those of replica 0, which are returned. */
static void same_bits(struct job *job, struct allot_tensor *ret[VARIABLES]) {
    values(job, 0, ret);
    for (size_t i = 1; i < allot_strategy_n_replicas(job->strategy); i++) {
        struct allot_tensor *others[VARIABLES];

        values(job, i, others);
        for (int v = 0; v < VARIABLES; v++)
            ck_assert_msg(memcmp(allot_tensor_data(others[v]), allot_tensor_data(ret[v]),
                                 allot_tensor_bytes(ret[v])) == 0,
                          "variable %d of replica %zu has other bits than that of replica 0", v, i);
        values_done(others);
    }
}

/* The largest difference, relative to the largest number. */
static double difference(struct allot_tensor *a[VARIABLES], struct allot_tensor *b[VARIABLES]) {
    double worst = 0;

    for (int v = 0; v < VARIABLES; v++) {
        double most = 1e-300, off = 0;

        for (int64_t i = 0; i < allot_tensor_count(a[v]); i++) {
            most = fmax(most, fabs(at(b[v], i)));
            off = fmax(off, fabs(at(a[v], i) - at(b[v], i)));
            ck_assert(!isnan(at(a[v], i)));
        }
        worst = fmax(worst, off / most);
    }
    return worst;
}

static const char *const gpus[REPLICAS_MAX] = { "/gpu:0", "/gpu:1", "/gpu:2", "/gpu:3",
                                                "/gpu:4", "/gpu:5", "/gpu:6", "/gpu:7" };
static const char *const mixed[] = { "/cpu:0", "/gpu:0", "/gpu:1", "/gpu:2",
                                     "/gpu:3", "/gpu:4", "/gpu:5", "/gpu:6" };
#if SUITE_IS_SANITIZED
static const size_t counts[] = { 2, 5 }; /* ten times as slow */
#else
static const size_t counts[] = { 2, 3, 4, REPLICAS_MAX };
#endif

static void compare(enum allot_dtype dtype, enum method method, int n_steps, double limit,
                    const char *const *devices, size_t n) {
    static const int64_t rows[] = { 13, 1, 8, 3, 16 };
    struct job one, all;

    job_open(&one, dtype, method, NULL, 0);
    job_open(&all, dtype, method, devices, n);
    for (int i = 0; i < n_steps; i++) {
        const int64_t n_rows = rows[(size_t)i % ELEMENTSOF(rows)];
        struct allot_tensor *expected[VARIABLES], *got[VARIABLES];
        const double loss_one = step(&one, dtype, n_rows, i), loss = step(&all, dtype, n_rows, i);

        values(&one, 0, expected);
        same_bits(&all, got);
        ck_assert_msg(fabs(loss - loss_one) <= limit * fmax(1, fabs(loss_one)),
                      "%zu replicas, step %d: loss %.17g instead of %.17g", n, i, loss, loss_one);
        ck_assert_msg(difference(got, expected) <= limit,
                      "%zu replicas, method %d, step %d: variables differ by %g", n, (int)method, i,
                      difference(got, expected));
        values_done(expected);
        values_done(got);
    }
    ck_assert_uint_eq(same_mirrors(&all), (n - 1) * (method == SGD        ? VARIABLES
                                                     : method == MOMENTUM ? 2 * VARIABLES
                                                                          : 3 * VARIABLES + 2));
    job_close(&one);
    job_close(&all);
}

static void open_box(struct sim_box *box) {
    const struct box_spec spec = { .n_gpus = REPLICAS_MAX, .models = "a100-40g", .seed = 7 };

    sim_box_init_driver(box, &spec, SIM_LIB_DIR);
}

START_TEST(a_hundred_steps_in_f64_equal_one_gpu) {
    struct sim_box box;

    open_box(&box);
    for (size_t i = 0; i < ELEMENTSOF(counts); i++)
        compare(ALLOT_F64, SGD, 100, 1e-10, gpus, counts[i]);
    sim_box_done(&box);
}
END_TEST

START_TEST(f32_is_within_rounding_of_one_gpu) {
    struct sim_box box;

    open_box(&box);
    for (size_t i = 0; i < ELEMENTSOF(counts); i++) {
        compare(ALLOT_F32, SGD, 20, 1e-5, gpus, counts[i]);
        compare(ALLOT_F32, MOMENTUM, 20, 1e-5, gpus, counts[i]);
        compare(ALLOT_F32, ADAM, 20, 1e-3, gpus, counts[i]);
    }
    sim_box_done(&box);
}
END_TEST

START_TEST(the_cpu_may_be_a_replica) {
    struct sim_box box;

    open_box(&box);
    for (size_t i = 0; i < ELEMENTSOF(counts); i++) {
        compare(ALLOT_F64, SGD, 100, 1e-10, mixed, counts[i]);
        compare(ALLOT_F32, SGD, 20, 1e-5, mixed, counts[i]);
        compare(ALLOT_F32, MOMENTUM, 20, 1e-5, mixed, counts[i]);
        compare(ALLOT_F32, ADAM, 20, 1e-3, mixed, counts[i]);
    }
    compare(ALLOT_F64, SGD, 10, 1e-10, mixed, 1);
    sim_box_done(&box);
}
END_TEST

START_TEST(by_default_all_gpus_have_a_replica) {
    struct sim_box box;
    struct allot_strategy *strategy;
    struct allot_graph *graph;

    open_box(&box);
    ck_assert_int_eq(allot_graph_new(&graph, NULL), 0);
    strategy = allot_mirrored(graph, NULL, 0);
    ck_assert_uint_eq(allot_strategy_n_replicas(strategy), REPLICAS_MAX);
    allot_strategy_free(strategy);
    allot_set_visible_devices("", NULL);
    strategy = allot_mirrored(graph, NULL, 0);
    ck_assert_uint_eq(allot_strategy_n_replicas(strategy), 1);
    allot_strategy_free(strategy);
    allot_graph_unref(graph);
    sim_box_done(&box);
}
END_TEST

START_TEST(a_checkpoint_has_one_copy_and_restores_all) {
    struct sim_box box;
    struct job job, one;
    char path[PATH_MAX + 16];
    struct allot_error err = { 0 };
    struct allot_tensor *saved[VARIABLES], *got[VARIABLES];

    open_box(&box);
    snprintf(path, sizeof(path), "%s/model", box.dir);
    job_open(&job, ALLOT_F32, ADAM, gpus, 3);
    for (int i = 0; i < 3; i++)
        step(&job, ALLOT_F32, 8, i);
    same_bits(&job, saved);
    ck_assert_msg(allot_save(job.session, NULL, 0, path, &err) == 0, "%s", err.text);
    step(&job, ALLOT_F32, 8, 3);
    must_run(&job, job.init);
    ck_assert_msg(allot_restore(job.session, NULL, 0, path, &err) == 0, "%s", err.text);
    same_bits(&job, got);
    ck_assert_double_eq(difference(got, saved), 0);
    values_done(got);
    /* The optimizer's state is the saved one in all replicas, too. */
    step(&job, ALLOT_F32, 8, 3);
    same_bits(&job, got);
    values_done(got);

    /* One device reads it, and goes on as the replicas do. */
    job_open(&one, ALLOT_F32, ADAM, NULL, 0);
    ck_assert_msg(allot_restore(one.session, one.variables, VARIABLES, path, &err) == 0, "%s",
                  err.text);
    values(&one, 0, got);
    ck_assert_double_eq(difference(got, saved), 0);
    values_done(got);
    values_done(saved);
    job_close(&one);
    job_close(&job);
    sim_box_done(&box);
}
END_TEST

/* The part of rows that are right: each replica has another part of the batch, and not all have
 * rows. */
START_TEST(metrics_are_those_of_the_whole_batch) {
    struct sim_box box;

    open_box(&box);
    for (size_t i = 0; i < ELEMENTSOF(counts); i++)
        for (int64_t rows = 1; rows <= 11; rows += 5) {
            struct allot_strategy *strategy;
            struct allot_session *session;
            struct allot_tensor *fed, *got;
            struct allot_error err = { 0 };
            struct allot_output x, right;
            struct allot_graph *graph;
            double want = 0;

            ck_assert_int_eq(allot_graph_new(&graph, NULL), 0);
            strategy = allot_mirrored(graph, gpus, counts[i]);
            allot_with_strategy(strategy) {
                x = allot_placeholder(graph, "x", ALLOT_F64, 2, (int64_t[]){ -1, 3 });
                right = allot_mean(
                    allot_cast(allot_equal(allot_arg_max(x, 1), allot_scalar(graph, ALLOT_I64, 0)),
                               ALLOT_F64));
            }
            right = allot_strategy_mean(strategy, right);
            ck_assert_msg(allot_graph_error(graph, &err) == 0, "%s", err.text);
            ck_assert_msg(allot_session_new(&session, graph, NULL, &err) == 0, "%s", err.text);
            fed = rows_of(ALLOT_F64, rows, 3, 0.4);
            for (int64_t r = 0; r < rows; r++)
                want +=
                    at(fed, 3 * r) >= at(fed, 3 * r + 1) && at(fed, 3 * r) >= at(fed, 3 * r + 2);
            ck_assert_msg(allot_session_run(session, &x, &fed, 1, &right, 1, NULL, 0, &got, &err) ==
                              0,
                          "%s", err.text);
            ck_assert_double_eq_tol(at(got, 0), want / (double)rows, 1e-12);
            allot_tensor_unref(got);
            allot_tensor_unref(fed);
            allot_session_free(session);
            allot_strategy_free(strategy);
            allot_graph_unref(graph);
        }
    sim_box_done(&box);
}
END_TEST

/* Six layers of 12 MiB: two groups of three, and the first sum is under way while the backward pass
 * goes on. */
START_TEST(gradients_are_added_up_in_groups_beside_the_backward_pass) {
    enum { WIDTH = 1774, LAYERS_HERE = 6 };
    const struct box_spec spec = { .n_gpus = 2, .models = "a100-40g", .timing_only = true };
    struct allot_run_options options = ALLOT_RUN_OPTIONS_INIT;
    struct allot_optimizer *sgd = allot_sgd(0.1);
    struct allot_output x, h;
    struct allot_strategy *strategy;
    struct allot_callable *callable;
    struct allot_session *session;
    struct allot_node *train, *init;
    struct allot_tensor *fed;
    struct allot_error err = { 0 };
    struct allot_graph *graph;
    double first_sum = 1e300, last_product = 0;
    char path[PATH_MAX + 16], line[1024];
    struct sim_box box;
    size_t n_sums = 0;
    FILE *file;

    sim_box_init_driver(&box, &spec, SIM_LIB_DIR);
    ck_assert_int_eq(allot_graph_new(&graph, NULL), 0);
    strategy = allot_mirrored(graph, gpus, 2);
    allot_with_strategy(strategy) {
        h = x = allot_placeholder(graph, "x", ALLOT_F32, 2, (int64_t[]){ -1, WIDTH });
        for (int i = 0; i < LAYERS_HERE; i++)
            h = allot_matmul(h, allot_variable(graph, "w",
                                               allot_filled(graph, ALLOT_F32, 2,
                                                            (int64_t[]){ WIDTH, WIDTH }, 0)));
        h = allot_mean(h);
    }
    train = allot_strategy_minimize(strategy, sgd, h);
    init = allot_initializer(graph);
    for (uint32_t id = 0; id < graph_n_nodes(graph); id++)
        n_sums += strcmp(graph_node(graph, id)->op->name, "AllReduce") == 0;
    ck_assert_uint_eq(n_sums, 2);
    ck_assert_msg(allot_session_new(&session, graph, NULL, &err) == 0, "%s", err.text);
    ck_assert_int_eq(allot_session_run(session, NULL, NULL, 0, NULL, 0, &init, 1, NULL, &err), 0);
    ck_assert_int_eq(allot_callable_new(&callable, session, &x, 1, NULL, 0, &train, 1, &err), 0);
    ck_assert_int_eq(allot_tensor_new(&fed, ALLOT_F32, 2, (int64_t[]){ 4096, WIDTH }, NULL), 0);
    snprintf(path, sizeof(path), "%s/trace", box.dir);
    for (int i = 0; i < 2; i++) {
        options.trace_file = i == 1 ? path : NULL;
        ck_assert_msg(allot_callable_run(callable, &options, &fed, NULL, &err) == 0, "%s",
                      err.text);
    }
    file = fopen(path, "re");
    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof(line), file)) {
        const char *ts = strstr(line, "\"ts\":"), *duration = strstr(line, "\"dur\":");

        if (!ts || !duration || strstr(line, "\"pid\":0,"))
            continue;
        if (strstr(line, "\"cat\":\"AllReduce\""))
            first_sum = fmin(first_sum, strtod(ts + 5, NULL));
        if (strstr(line, "\"cat\":\"MatMul\""))
            last_product = fmax(last_product, strtod(ts + 5, NULL) + strtod(duration + 6, NULL));
    }
    fclose(file);
    ck_assert_double_lt(first_sum, 0.9 * last_product);
    allot_callable_free(callable);
    allot_tensor_unref(fed);
    allot_session_free(session);
    allot_optimizer_free(sgd);
    allot_strategy_free(strategy);
    allot_graph_unref(graph);
    sim_box_done(&box);
}
END_TEST

START_TEST(variables_outside_of_the_scope_are_not_mirrored) {
    static const double xs[] = { 1, 2, 3 };
    struct allot_optimizer *sgd = allot_sgd(0.1);
    struct allot_output x, w, scale, loss, fetches[3];
    struct allot_strategy *strategy;
    struct allot_tensor *fed, *got[3];
    struct allot_session *session;
    struct allot_node *train, *init;
    struct allot_error err = { 0 };
    struct allot_graph *graph;
    struct sim_box box;

    open_box(&box);
    ck_assert_int_eq(allot_graph_new(&graph, NULL), 0);
    strategy = allot_mirrored(graph, gpus, 2);
    scale = allot_variable(graph, "scale", allot_scalar(graph, ALLOT_F64, 2));
    allot_with_strategy(strategy) {
        x = allot_placeholder(graph, "x", ALLOT_F64, 1, (int64_t[]){ -1 });
        w = allot_variable(graph, "w", allot_scalar(graph, ALLOT_F64, 1));
        loss = allot_mean(allot_mul(allot_mul(x, w), scale));
    }
    train = allot_strategy_minimize(strategy, sgd, loss);
    init = allot_initializer(graph);
    fetches[0] = scale;
    fetches[1] = allot_strategy_replica(strategy, scale, 1);
    fetches[2] = allot_strategy_replica(strategy, w, 1);
    ck_assert_ptr_eq(fetches[1].node, scale.node);
    ck_assert_ptr_ne(fetches[2].node, w.node);
    ck_assert_msg(allot_graph_error(graph, &err) == 0, "%s", err.text);
    ck_assert_msg(allot_session_new(&session, graph, NULL, &err) == 0, "%s", err.text);
    ck_assert_int_eq(allot_session_run(session, NULL, NULL, 0, NULL, 0, &init, 1, NULL, &err), 0);
    ck_assert_int_eq(allot_tensor_copy_of(&fed, ALLOT_F64, 1, (int64_t[]){ 3 }, xs, NULL), 0);
    ck_assert_msg(allot_session_run(session, &x, &fed, 1, fetches, 3, &train, 1, got, &err) == 0,
                  "%s", err.text);
    /* The mean of x is 2: both gradients are those of the whole batch. */
    ck_assert_double_le(fabs(at(got[0], 0) - (2 - 0.1 * 2)), 1e-12);
    ck_assert_double_le(fabs(at(got[2], 0) - (1 - 0.1 * 4)), 1e-12);
    for (int i = 0; i < 3; i++)
        allot_tensor_unref(got[i]);
    allot_tensor_unref(fed);
    allot_session_free(session);
    allot_optimizer_free(sgd);
    allot_strategy_free(strategy);
    allot_graph_unref(graph);
    sim_box_done(&box);
}
END_TEST

START_TEST(what_would_make_replicas_differ_is_refused) {
    struct allot_optimizer *sgd = allot_sgd(0.1);
    struct allot_strategy *strategy;
    struct allot_output x, w, loss;
    struct allot_error err = { 0 };
    struct allot_graph *graph;

    ck_assert_int_eq(allot_graph_new(&graph, NULL), 0);
    strategy = allot_mirrored(graph, mixed, 1);
    allot_with_strategy(strategy) {
        x = allot_placeholder(graph, "x", ALLOT_F32, 1, (int64_t[]){ -1 });
        w = allot_variable(graph, "w", allot_scalar(graph, ALLOT_F32, 1));
        loss = allot_mean(allot_mul(x, allot_assign_add(w, allot_mean(x))));
    }
    ck_assert_ptr_null(allot_strategy_minimize(strategy, sgd, loss));
    ck_assert_int_eq(allot_graph_error(graph, &err), -EINVAL);
    ck_assert_msg(strstr(err.text, "changes a variable that is mirrored") != NULL, "%s", err.text);
    allot_graph_clear_error(graph);
    ck_assert_ptr_null(allot_strategy_minimize(strategy, sgd, allot_mul(x, w)));
    ck_assert_int_eq(allot_graph_error(graph, &err), -EINVAL);
    ck_assert_msg(strstr(err.text, "must be a single number") != NULL, "%s", err.text);
    allot_graph_clear_error(graph);
    ck_assert_ptr_null(allot_strategy_minimize(NULL, sgd, loss));
    ck_assert_int_eq(allot_graph_error(graph, &err), -EINVAL);
    allot_optimizer_free(sgd);
    allot_strategy_free(strategy);
    allot_graph_unref(graph);
}
END_TEST

static int count_epochs(unsigned epoch, double loss, void *userdata) {
    unsigned *n = userdata;

    ck_assert_uint_eq(epoch, (*n)++);
    return epoch == 199 ? -ECANCELED : 0;
}

/* y = 2 x1 - x2 + 0.5, in batches that do not divide. */
START_TEST(a_model_learns_with_and_without_a_strategy) {
    enum { ROWS = 50 };
    struct sim_box box;

    open_box(&box);
    for (int is_mirrored = 0; is_mirrored < 2; is_mirrored++) {
        struct allot_fit_options options = ALLOT_FIT_OPTIONS_INIT;
        struct allot_optimizer *sgd = allot_sgd(0.3);
        struct allot_tensor *inputs = rows_of(ALLOT_F32, ROWS, 2, 0.3), *targets, *outputs;
        struct allot_strategy *strategy = NULL;
        struct allot_output x, y;
        struct allot_model *model;
        struct allot_error err = { 0 };
        struct allot_graph *graph;
        unsigned n_epochs = 0;
        double loss;

        ck_assert_int_eq(allot_tensor_new(&targets, ALLOT_F32, 2, (int64_t[]){ ROWS, 1 }, NULL), 0);
        for (int i = 0; i < ROWS; i++)
            ((float *)allot_tensor_data(targets))[i] =
                (float)(2 * at(inputs, 2 * i) - at(inputs, 2 * i + 1) + 0.5);
        ck_assert_int_eq(allot_graph_new(&graph, NULL), 0);
        if (is_mirrored)
            strategy = allot_mirrored(graph, gpus, 3);
        allot_strategy_push(strategy);
        x = allot_placeholder(graph, "x", ALLOT_F32, 2, (int64_t[]){ -1, 2 });
        y = allot_dense(x, 1, ALLOT_LINEAR);
        allot_strategy_pop(strategy);
        model = allot_model_new(strategy, x, y);
        ck_assert_int_eq(allot_model_fit(model, inputs, targets, NULL, NULL, &err), -EINVAL);
        ck_assert_msg(allot_model_compile(model, ALLOT_LOSS_MSE, sgd, &err) == 0, "%s", err.text);
        ck_assert_int_eq(allot_model_compile(model, ALLOT_LOSS_MSE, sgd, &err), -EINVAL);
        options.epochs = 40;
        options.batch_rows = 16;
        ck_assert_msg(allot_model_fit(model, inputs, targets, &options, &loss, &err) == 0, "%s",
                      err.text);
        ck_assert_double_lt(loss, 1e-6);
        ck_assert_msg(allot_model_evaluate(model, inputs, targets, &loss, &err) == 0, "%s",
                      err.text);
        ck_assert_double_lt(loss, 1e-6);
        ck_assert_msg(allot_model_predict(model, inputs, &outputs, &err) == 0, "%s", err.text);
        for (int i = 0; i < ROWS; i++)
            ck_assert_double_lt(fabs(at(outputs, i) - at(targets, i)), 1e-2);
        options.epochs = 1000;
        options.batch_rows = 0;
        options.on_epoch = count_epochs;
        options.userdata = &n_epochs;
        ck_assert_int_eq(allot_model_fit(model, inputs, targets, &options, &loss, &err),
                         -ECANCELED);
        ck_assert_uint_eq(n_epochs, 200);
        allot_tensor_unref(outputs);
        allot_tensor_unref(inputs);
        allot_tensor_unref(targets);
        allot_model_free(model);
        allot_optimizer_free(sgd);
        allot_strategy_free(strategy);
        allot_graph_unref(graph);
    }
    sim_box_done(&box);
}
END_TEST

SUITE_TIMEOUT("strategy-gpu", 240, a_hundred_steps_in_f64_equal_one_gpu,
              f32_is_within_rounding_of_one_gpu, the_cpu_may_be_a_replica,
              by_default_all_gpus_have_a_replica, metrics_are_those_of_the_whole_batch,
              gradients_are_added_up_in_groups_beside_the_backward_pass,
              a_checkpoint_has_one_copy_and_restores_all,
              variables_outside_of_the_scope_are_not_mirrored,
              what_would_make_replicas_differ_is_refused,
              a_model_learns_with_and_without_a_strategy)
