/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sharded variables on the GPUs of a simulated box against whole ones: the same values, gradients
 * and steps however the rows are dealt out, one tensor in a checkpoint, and a model that no card
 * could hold.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/allot/model.h"
#include "libclient/allot/saver.h"
#include "libclient/allot/shard.h"
#include "tests/support/sim/box/sim_box.h"
#include "tests/support/suite.h"

enum { GPUS = 4, ROWS = 23, WIDTH = 6, BATCH = 9 };

static const char *const gpus[GPUS] = { "/gpu:0", "/gpu:1", "/gpu:2", "/gpu:3" };

enum method { SGD, MOMENTUM, ADAM, N_METHODS };

/* Words are looked up, summed and scored against all words, and their products with a matrix that
 * is sharded as well are part of the loss: all three uses. */
struct job {
    struct allot_graph *graph;
    struct allot_sharded *words, *mix; /* NULL: whole variables */
    struct allot_output whole, whole_mix, numbers, labels, looked_up, scores, mixed, loss;
    struct allot_node *step, *init;
    struct allot_session *session;
};

static struct allot_optimizer *optimizer_of(enum method method) {
    return method == SGD        ? allot_sgd(0.5)
           : method == MOMENTUM ? allot_momentum(0.2, 0.9, true)
                                : allot_adam(0.05, ALLOT_ADAM_DEFAULTS);
}

static struct allot_output lookup(struct job *job) {
    return job->words ? allot_sharded_lookup(job->words, job->numbers)
                      : allot_gather(job->whole, job->numbers, 0);
}

static struct allot_output times(struct job *job, struct allot_output x) {
    return job->words ? allot_sharded_matmul(x, job->words, true)
                      : allot_matmul_of(x, job->whole, false, true);
}

static struct allot_output mix(struct job *job, struct allot_output x) {
    return job->mix ? allot_sharded_matmul(x, job->mix, false) : allot_matmul(x, job->whole_mix);
}

static void must(int r, const struct allot_error *err) {
    ck_assert_msg(r == 0, "%s", err->text);
}

/* `n` 0: not sharded. */
static void job_open(struct job *job, enum method method, enum allot_shard_by by, size_t n) {
    struct allot_shard_options options = ALLOT_SHARD_OPTIONS_INIT;
    struct allot_optimizer *optimizer = optimizer_of(method);
    struct allot_output initial = { 0 }, initial_mix = { 0 };
    struct allot_error err = { 0 };

    *job = (struct job){ 0 };
    ck_assert_int_eq(allot_graph_new(&job->graph, NULL), 0);
    allot_with_device(job->graph, "/cpu:0") {
        initial =
            allot_random_uniform(job->graph, ALLOT_F64, 2, (int64_t[]){ ROWS, WIDTH }, -1, 1, 5);
        initial_mix =
            allot_random_uniform(job->graph, ALLOT_F64, 2, (int64_t[]){ WIDTH, WIDTH }, -1, 1, 6);
    }
    job->numbers = allot_placeholder(job->graph, "numbers", ALLOT_I64, 1, (int64_t[]){ -1 });
    job->labels = allot_placeholder(job->graph, "labels", ALLOT_I64, 1, (int64_t[]){ -1 });
    options.devices = gpus;
    options.n_devices = n;
    options.by = by;
    if (n) {
        job->words = allot_sharded_variable(job->graph, "words", initial, &options);
        job->mix = allot_sharded_variable(job->graph, "mix", initial_mix, &options);
        job->whole = allot_sharded_value(job->words);
        job->whole_mix = allot_sharded_value(job->mix);
    } else {
        job->whole = allot_variable(job->graph, "words", initial);
        job->whole_mix = allot_variable(job->graph, "mix", initial_mix);
    }
    job->looked_up = lookup(job);
    job->mixed = mix(job, job->looked_up);
    job->scores = times(job, allot_tanh(job->mixed));
    job->loss = allot_mean(allot_sparse_softmax_cross_entropy(job->scores, job->labels));
    job->step = allot_minimize(optimizer, job->loss);
    job->init = allot_initializer(job->graph);
    allot_optimizer_free(optimizer);
    must(allot_graph_error(job->graph, &err), &err);
    must(allot_session_new(&job->session, job->graph, NULL, &err), &err);
    must(allot_session_run(job->session, NULL, NULL, 0, NULL, 0, &job->init, 1, NULL, &err), &err);
}

static void job_close(struct job *job) {
    allot_session_free(job->session);
    allot_sharded_free(job->words);
    allot_sharded_free(job->mix);
    allot_graph_unref(job->graph);
}

static struct allot_tensor *numbers_of(int seed) {
    struct allot_tensor *made;

    ck_assert_int_eq(allot_tensor_new(&made, ALLOT_I64, 1, (int64_t[]){ BATCH }, NULL), 0);
    for (int i = 0; i < BATCH; i++)
        ((int64_t *)allot_tensor_data(made))[i] =
            i < 2 ? i * (ROWS - 1) : (i * i + 7 * seed) % ROWS;
    return made;
}

enum { LOOKED_UP, MIXED, SCORES, LOSS, WORDS, MIX, N_FETCHED };

static void run(struct job *job, int seed, bool is_step, struct allot_tensor *ret[N_FETCHED]) {
    const struct allot_output feeds[] = { job->numbers, job->labels };
    const struct allot_output fetches[N_FETCHED] = { job->looked_up, job->mixed, job->scores,
                                                     job->loss };
    struct allot_tensor *fed[] = { numbers_of(seed), numbers_of(seed + 3) };
    const struct allot_output variables[] = { job->whole, job->whole_mix };
    struct allot_error err = { 0 };

    must(allot_session_run(job->session, feeds, fed, 2, fetches, 4, &job->step, is_step, ret, &err),
         &err);
    /* After the step. */
    must(allot_session_run(job->session, NULL, NULL, 0, variables, 2, NULL, 0, ret + WORDS, &err),
         &err);
    allot_tensor_unref(fed[0]);
    allot_tensor_unref(fed[1]);
}

static void check_same(struct allot_tensor *got[N_FETCHED], struct allot_tensor *want[N_FETCHED],
                       double limit, const char *what) {
    for (int f = 0; f < N_FETCHED; f++) {
        const double *a = allot_tensor_data(got[f]), *b = allot_tensor_data(want[f]);

        ck_assert_int_eq(allot_tensor_count(got[f]), allot_tensor_count(want[f]));
        for (int64_t i = 0; i < allot_tensor_count(got[f]); i++)
            ck_assert_msg(fabs(a[i] - b[i]) <= (f == LOOKED_UP && limit == 0 ? 0 : limit),
                          "%s: number %lld of output %d is %.17g instead of %.17g", what,
                          (long long)i, f, a[i], b[i]);
        allot_tensor_unref(got[f]);
    }
}

static void drop(struct allot_tensor *tensors[N_FETCHED]) {
    for (int f = 0; f < N_FETCHED; f++)
        allot_tensor_unref(tensors[f]);
}

static void open_box(struct sim_box *box) {
    const struct box_spec spec = { .n_gpus = GPUS, .models = "a100-40g", .seed = 7 };

    sim_box_init_driver(box, &spec, SIM_LIB_DIR);
}

START_TEST(shards_compute_and_learn_what_a_whole_variable_does) {
    static const enum allot_shard_by ways[] = { ALLOT_SHARD_ROWS, ALLOT_SHARD_IN_TURN,
                                                ALLOT_SHARD_BYTES };
    struct sim_box box;

    open_box(&box);
    for (enum method method = SGD; method < N_METHODS; method++) {
        struct allot_tensor *want[6][N_FETCHED];
        struct job whole;

        job_open(&whole, method, ALLOT_SHARD_ROWS, 0);
        for (int i = 0; i < 6; i++)
            run(&whole, i, i > 0, want[i]);
        for (size_t w = 0; w < ELEMENTSOF(ways); w++)
            for (size_t n = 2; n <= GPUS; n++) {
                struct job job;
                char what[64];

                snprintf(what, sizeof(what), "method %d, way %zu, %zu shards", (int)method, w, n);
                job_open(&job, method, ways[w], n);
                ck_assert_uint_eq(allot_sharded_n_shards(job.words), n);
                for (int i = 0; i < 6; i++) {
                    struct allot_tensor *got[N_FETCHED];

                    run(&job, i, i > 0, got);
                    check_same(got, want[i], 1e-11, what);
                }
                job_close(&job);
            }
        for (int i = 0; i < 6; i++)
            drop(want[i]);
        job_close(&whole);
    }
    sim_box_done(&box);
}
END_TEST

/* One tensor of each name, of the whole shape. */
static void check_file(const char *path) {
    char head[4096] = { 0 };
    FILE *file = fopen(path, "re");

    ck_assert_ptr_nonnull(file);
    ck_assert_uint_gt(fread(head, 1, sizeof(head) - 1, file), 8);
    fclose(file);
    ck_assert_ptr_nonnull(strstr(head + 8, "\"words\":{\"dtype\":\"F64\",\"shape\":[23,6]"));
    ck_assert_ptr_nonnull(strstr(head + 8, "\"words/Adam\":{\"dtype\":\"F64\",\"shape\":[23,6]"));
    ck_assert_ptr_nonnull(strstr(head + 8, "\"words/Adam_1\":{"));
    ck_assert_ptr_nonnull(strstr(head + 8, "\"mix\":{"));
    ck_assert_ptr_null(strstr(head + 8, "shard"));
}

START_TEST(a_checkpoint_restores_to_any_number_of_shards) {
    static const struct {
        enum allot_shard_by by;
        size_t n;
    } kinds[] = { { ALLOT_SHARD_ROWS, 0 },
                  { ALLOT_SHARD_ROWS, 2 },
                  { ALLOT_SHARD_IN_TURN, 3 },
                  { ALLOT_SHARD_IN_TURN, 4 },
                  { ALLOT_SHARD_BYTES, 4 } };
    struct sim_box box;
    char path[PATH_MAX + 16], again[PATH_MAX + 16];

    open_box(&box);
    snprintf(path, sizeof(path), "%s/model", box.dir);
    snprintf(again, sizeof(again), "%s/again", box.dir);
    for (size_t from = 0; from < ELEMENTSOF(kinds); from++) {
        struct allot_tensor *want[N_FETCHED], *unused[N_FETCHED];
        struct allot_error err = { 0 };
        struct job job;

        job_open(&job, ADAM, kinds[from].by, kinds[from].n);
        for (int i = 0; i < 3; i++) {
            run(&job, i, true, unused);
            drop(unused);
        }
        must(allot_save(job.session, NULL, 0, path, &err), &err);
        check_file(path);
        /* The next step shows that the optimizer's state is there, too. */
        run(&job, 3, true, want);
        job_close(&job);
        for (size_t to = 0; to < ELEMENTSOF(kinds); to++) {
            struct allot_tensor *got[N_FETCHED];
            struct job other;
            char what[64];

            snprintf(what, sizeof(what), "from kind %zu to %zu", from, to);
            job_open(&other, ADAM, kinds[to].by, kinds[to].n);
            must(allot_restore(other.session, NULL, 0, path, &err), &err);
            /* A shard stands for the whole. */
            if (other.words) {
                struct allot_output shard = allot_sharded_shard(other.words, 1);

                must(allot_save(other.session, &shard, 1, again, &err), &err);
                must(allot_restore(other.session, &shard, 1, again, &err), &err);
            }
            run(&other, 3, true, got);
            check_same(got, want, 1e-11, what);
            job_close(&other);
        }
        drop(want);
    }
    sim_box_done(&box);
}
END_TEST

static void check_rows(struct allot_sharded *sharded, const int64_t *want, size_t n) {
    int64_t dims[ALLOT_RANK_MAX];

    ck_assert_uint_eq(allot_sharded_n_shards(sharded), n);
    for (size_t i = 0; i < n; i++) {
        ck_assert_int_ge(allot_output_shape(allot_sharded_shard(sharded, i), dims), 1);
        ck_assert_int_eq(dims[0], want[i]);
    }
}

START_TEST(rows_are_dealt_out_as_asked) {
    static const uint64_t room[] = { 100, 300, 100, 500 };
    struct allot_shard_options options = ALLOT_SHARD_OPTIONS_INIT;
    struct allot_sharded *sharded;
    struct allot_error err = { 0 };
    struct allot_graph *graph;

    ck_assert_int_eq(allot_graph_new(&graph, NULL), 0);
    options.devices = gpus;
    options.n_devices = GPUS;
    sharded = allot_sharded_variable_of(graph, "a", ALLOT_F32, 1, (int64_t[]){ 10 }, &options);
    check_rows(sharded, (int64_t[]){ 2, 3, 2, 3 }, GPUS);
    ck_assert_str_eq(allot_node_name(allot_sharded_shard(sharded, 2).node), "a/shard_2");
    allot_sharded_free(sharded);
    options.by = ALLOT_SHARD_IN_TURN;
    sharded = allot_sharded_variable_of(graph, "a", ALLOT_F32, 1, (int64_t[]){ 10 }, &options);
    check_rows(sharded, (int64_t[]){ 3, 3, 2, 2 }, GPUS);
    ck_assert_str_eq(allot_node_name(allot_sharded_shard(sharded, 0).node), "a_1/shard_0");
    allot_sharded_free(sharded);
    /* Fewer rows than devices: no empty shards. */
    sharded = allot_sharded_variable_of(graph, "few", ALLOT_F32, 1, (int64_t[]){ 3 }, &options);
    ck_assert_uint_eq(allot_sharded_n_shards(sharded), 3);
    allot_sharded_free(sharded);
    allot_graph_unref(graph);

    /* By bytes: what is on GPU 1 already counts, and a device that has more than its part gets
     * nothing. */
    ck_assert_int_eq(allot_graph_new(&graph, NULL), 0);
    options.by = ALLOT_SHARD_BYTES;
    allot_with_device(graph, "/gpu:1") {
        allot_variable_of(graph, "there", ALLOT_F32, 1, (int64_t[]){ 40 });
    }
    sharded = allot_sharded_variable_of(graph, "b", ALLOT_F32, 2, (int64_t[]){ 80, 1 }, &options);
    check_rows(sharded, (int64_t[]){ 27, 26, 27 }, 3);
    ck_assert_str_eq(allot_node_device(allot_sharded_shard(sharded, 1).node), "/device:GPU:2");
    allot_sharded_free(sharded);
    allot_graph_unref(graph);
    ck_assert_int_eq(allot_graph_new(&graph, NULL), 0);
    options.room_bytes = room;
    sharded = allot_sharded_variable_of(graph, "c", ALLOT_F32, 2, (int64_t[]){ 100, 3 }, &options);
    check_rows(sharded, (int64_t[]){ 10, 30, 10, 50 }, GPUS);
    allot_sharded_free(sharded);
    ck_assert_int_eq(allot_graph_error(graph, &err), 0);
    allot_graph_unref(graph);
}
END_TEST

START_TEST(mistakes_are_errors_in_words) {
    struct allot_shard_options options = ALLOT_SHARD_OPTIONS_INIT;
    struct allot_sharded *sharded;
    struct allot_error err = { 0 };
    struct allot_output x;
    struct allot_graph *graph;

    ck_assert_int_eq(allot_graph_new(&graph, NULL), 0);
#define REFUSED(expression, words)                                                                 \
    do {                                                                                           \
        ck_assert(!(expression));                                                                  \
        ck_assert_int_eq(allot_graph_error(graph, &err), -EINVAL);                                 \
        ck_assert_msg(strstr(err.text, words) != NULL, "%s", err.text);                            \
        allot_graph_clear_error(graph);                                                            \
    } while (0)
    REFUSED(allot_sharded_variable(graph, "a", allot_scalar(graph, ALLOT_F32, 1), NULL),
            "cannot be sharded");
    x = allot_placeholder(graph, "x", ALLOT_F32, 2, (int64_t[]){ -1, 4 });
    REFUSED(allot_sharded_variable(graph, "a", x, NULL), "its shape must be known");
    REFUSED(allot_sharded_variable_of(graph, "a", ALLOT_F32, 0, NULL, NULL), "no dimension");
    options.by = 7;
    REFUSED(allot_sharded_variable_of(graph, "a", ALLOT_F32, 1, (int64_t[]){ 3 }, &options),
            "no way 7");
    options.by = ALLOT_SHARD_ROWS;
    options.room_bytes = (uint64_t[]){ 1 };
    REFUSED(allot_sharded_variable_of(graph, "a", ALLOT_F32, 1, (int64_t[]){ 3 }, &options),
            "ALLOT_SHARD_BYTES");
    options.room_bytes = NULL;
    options.devices = gpus;
    options.n_devices = 2;
    sharded = allot_sharded_variable_of(graph, "a", ALLOT_F32, 2, (int64_t[]){ 8, 3 }, &options);
    ck_assert_ptr_nonnull(sharded);
    REFUSED(allot_sharded_matmul(x, sharded, false).node, "with 8 columns");
    REFUSED(allot_sharded_shard(sharded, 2).node, "no shard 2 of 2");
    REFUSED(allot_sharded_lookup(NULL, x).node, "sharded variable");
    allot_sharded_free(sharded);
    allot_graph_unref(graph);
}
END_TEST

START_TEST(an_index_out_of_range_is_refused_by_the_cpu) {
    static const char *const cpu[] = { "/cpu:0", "/cpu:0" };
    static const int64_t wrong[] = { -1, 10 };

    for (int by = ALLOT_SHARD_ROWS; by <= ALLOT_SHARD_IN_TURN; by++) {
        struct allot_session_options session_options = ALLOT_SESSION_OPTIONS_INIT;
        struct allot_shard_options options = ALLOT_SHARD_OPTIONS_INIT;
        struct allot_output numbers, found;
        struct allot_sharded *sharded;
        struct allot_session *session;
        struct allot_error err = { 0 };
        struct allot_node *init;
        struct allot_graph *graph;

        ck_assert_int_eq(allot_graph_new(&graph, NULL), 0);
        options.devices = cpu;
        options.n_devices = 2;
        options.by = by;
        numbers = allot_placeholder(graph, "numbers", ALLOT_I64, 1, (int64_t[]){ -1 });
        sharded = allot_sharded_variable(
            graph, "a", allot_filled(graph, ALLOT_F32, 2, (int64_t[]){ 10, 2 }, 1), &options);
        found = allot_sharded_lookup(sharded, numbers);
        init = allot_initializer(graph);
        session_options.cpu_only = true;
        must(allot_session_new(&session, graph, &session_options, &err), &err);
        must(allot_session_run(session, NULL, NULL, 0, NULL, 0, &init, 1, NULL, &err), &err);
        for (int i = 0; i < 2; i++) {
            struct allot_tensor *fed, *got;

            ck_assert_int_eq(
                allot_tensor_copy_of(&fed, ALLOT_I64, 1, (int64_t[]){ 1 }, &wrong[i], NULL), 0);
            ck_assert_int_lt(
                allot_session_run(session, &numbers, &fed, 1, &found, 1, NULL, 0, &got, &err), 0);
            allot_tensor_unref(fed);
        }
        allot_session_free(session);
        allot_sharded_free(sharded);
        allot_graph_unref(graph);
    }
}
END_TEST

/* A table of 12 MiB, with its gradient and Adam's state 48 MiB, where each card gives 16 MiB. */
START_TEST(a_model_that_no_card_could_hold_learns) {
    enum { BIG_ROWS = 3 << 12, BIG_WIDTH = 256, STEPS = 3 };
    struct allot_session_options session_options = ALLOT_SESSION_OPTIONS_INIT;
    struct sim_box box;

    if (!sim_box_arenas_move())
        return;
    open_box(&box);
    session_options.memory_limit = 16 << 20;
    session_options.no_wait = true;
    for (size_t n = 1; n <= GPUS; n += 3) {
        struct allot_shard_options options = ALLOT_SHARD_OPTIONS_INIT;
        struct allot_optimizer *adam = allot_adam(0.1, ALLOT_ADAM_DEFAULTS);
        struct allot_output initial = { 0 }, numbers, loss;
        struct allot_tensor *fed, *got;
        struct allot_node *step, *init;
        struct allot_sharded *table;
        struct allot_session *session;
        struct allot_error err = { 0 };
        struct allot_graph *graph;
        float losses[STEPS] = { 0 };
        int r;

        ck_assert_int_eq(allot_graph_new(&graph, NULL), 0);
        options.devices = gpus;
        options.n_devices = n;
        allot_with_device(graph, "/cpu:0") {
            initial = allot_filled(graph, ALLOT_F32, 2, (int64_t[]){ BIG_ROWS, BIG_WIDTH }, 1);
        }
        numbers = allot_placeholder(graph, "numbers", ALLOT_I64, 1, (int64_t[]){ -1 });
        table = allot_sharded_variable(graph, "table", initial, &options);
        loss = allot_mean(allot_square(allot_sharded_lookup(table, numbers)));
        step = allot_minimize(adam, loss);
        init = allot_initializer(graph);
        must(allot_graph_error(graph, &err), &err);
        must(allot_session_new(&session, graph, &session_options, &err), &err);
        r = allot_session_run(session, NULL, NULL, 0, NULL, 0, &init, 1, NULL, &err);
        ck_assert_int_eq(allot_tensor_copy_of(&fed, ALLOT_I64, 1, (int64_t[]){ 3 },
                                              (int64_t[]){ 0, BIG_ROWS / 2 + 5, BIG_ROWS - 1 },
                                              NULL),
                         0);
        for (int i = 0; r == 0 && i < STEPS; i++) {
            r = allot_session_run(session, &numbers, &fed, 1, &loss, 1, &step, 1, &got, &err);
            if (r < 0)
                break;
            losses[i] = *(float *)allot_tensor_data(got);
            allot_tensor_unref(got);
        }
        if (n == 1)
            ck_assert_int_eq(r, -ENOMEM);
        else {
            must(r, &err);
            ck_assert_float_eq_tol(losses[0], 1, 1e-6f);
            ck_assert_float_lt(losses[1], 0.9f);
            ck_assert_float_lt(losses[2], losses[1]);
        }
        allot_tensor_unref(fed);
        allot_session_free(session);
        allot_sharded_free(table);
        allot_optimizer_free(adam);
        allot_graph_unref(graph);
    }
    sim_box_done(&box);
}
END_TEST

/* Replicas of a strategy use one table: it is not mirrored, and learns from all of them. */
START_TEST(replicas_share_the_shards) {
    struct sim_box box;
    double tables[2][ROWS * WIDTH];

    open_box(&box);
    for (int is_mirrored = 0; is_mirrored < 2; is_mirrored++) {
        struct allot_shard_options options = ALLOT_SHARD_OPTIONS_INIT;
        struct allot_optimizer *sgd = allot_sgd(0.5);
        struct allot_output numbers, loss, w, value;
        struct allot_strategy *strategy = NULL;
        struct allot_tensor *fed = numbers_of(2), *got;
        struct allot_sharded *table;
        struct allot_session *session;
        struct allot_node *step, *init;
        struct allot_error err = { 0 };
        struct allot_graph *graph;

        ck_assert_int_eq(allot_graph_new(&graph, NULL), 0);
        options.devices = gpus;
        options.n_devices = 3;
        options.by = ALLOT_SHARD_IN_TURN;
        table = allot_sharded_variable(
            graph, "table",
            allot_random_uniform(graph, ALLOT_F64, 2, (int64_t[]){ ROWS, WIDTH }, -1, 1, 9),
            &options);
        if (is_mirrored)
            strategy = allot_mirrored(graph, gpus, 3);
        allot_strategy_push(strategy);
        numbers = allot_placeholder(graph, "numbers", ALLOT_I64, 1, (int64_t[]){ -1 });
        w = allot_variable(
            graph, "w",
            allot_random_uniform(graph, ALLOT_F64, 2, (int64_t[]){ WIDTH, 1 }, -1, 1, 11));
        loss = allot_mean(allot_square(allot_matmul(allot_sharded_lookup(table, numbers), w)));
        allot_strategy_pop(strategy);
        step = strategy ? allot_strategy_minimize(strategy, sgd, loss) : allot_minimize(sgd, loss);
        init = allot_initializer(graph);
        value = allot_sharded_value(table);
        must(allot_graph_error(graph, &err), &err);
        must(allot_session_new(&session, graph, NULL, &err), &err);
        must(allot_session_run(session, NULL, NULL, 0, NULL, 0, &init, 1, NULL, &err), &err);
        for (int i = 0; i < 4; i++)
            must(allot_session_run(session, &numbers, &fed, 1, NULL, 0, &step, 1, NULL, &err),
                 &err);
        must(allot_session_run(session, NULL, NULL, 0, &value, 1, NULL, 0, &got, &err), &err);
        memcpy(tables[is_mirrored], allot_tensor_data(got), sizeof(tables[0]));
        allot_tensor_unref(got);
        allot_tensor_unref(fed);
        allot_session_free(session);
        allot_sharded_free(table);
        allot_strategy_free(strategy);
        allot_optimizer_free(sgd);
        allot_graph_unref(graph);
    }
    for (int i = 0; i < ROWS * WIDTH; i++)
        ck_assert_double_le(fabs(tables[0][i] - tables[1][i]), 1e-12);
    sim_box_done(&box);
}
END_TEST

SUITE_TIMEOUT("sharded-gpu", 240, shards_compute_and_learn_what_a_whole_variable_does,
              a_checkpoint_restores_to_any_number_of_shards, rows_are_dealt_out_as_asked,
              mistakes_are_errors_in_words, an_index_out_of_range_is_refused_by_the_cpu,
              a_model_that_no_card_could_hold_learns, replicas_share_the_shards)
