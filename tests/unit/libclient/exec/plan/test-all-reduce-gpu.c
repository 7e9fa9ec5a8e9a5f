/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums over replicas on the GPUs of a simulated box, against a plain sum: ring and tree, sizes that
 * divide badly, inputs that others need too, and replicas that have no GPU of their own.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/exec/plan/compile.h"
#include "libclient/allot/ops.h"
#include "libclient/allot/session.h"
#include "tests/support/sim/box/sim_box.h"
#include "tests/support/suite.h"

enum { GPUS_MAX = 8, TENSORS_MAX = 4 };

static double number(int replica, int tensor, int64_t i) {
    return sin(0.7 * replica + 1.9 * tensor + 0.013 * (double)i);
}

static struct allot_tensor *numbers(enum allot_dtype dtype, int replica, int tensor, int64_t n) {
    struct allot_tensor *made;

    ck_assert_int_eq(allot_tensor_new(&made, dtype, 1, &n, NULL), 0);
    for (int64_t i = 0; i < n; i++)
        if (dtype == ALLOT_F64)
            ((double *)allot_tensor_data(made))[i] = number(replica, tensor, i);
        else
            ((float *)allot_tensor_data(made))[i] = (float)number(replica, tensor, i);
    return made;
}

struct sums {
    int n_replicas, n_tensors;
    int64_t lengths[TENSORS_MAX];
    enum allot_dtype dtype;
    const char *devices[GPUS_MAX];
    bool twice; /* the inputs are fetched too, after the sum is made */
};

/* One more than each fed number, on the replica's device: what a GPU has computed. */
static struct allot_output tensor_of(struct allot_graph *graph, const struct sums *sums,
                                     struct allot_output fed, int replica) {
    struct allot_output made = { NULL, 0 };

    allot_with_device(graph, sums->devices[replica]) {
        made = allot_add(fed, allot_scalar(graph, sums->dtype, 1));
    }
    return made;
}

static void check_sum(const struct sums *sums, int tensor, struct allot_tensor *got) {
    for (int64_t i = 0; i < sums->lengths[tensor]; i++) {
        double sum = 0, value = sums->dtype == ALLOT_F64
                                    ? ((double *)allot_tensor_data(got))[i]
                                    : (double)((float *)allot_tensor_data(got))[i];

        for (int r = 0; r < sums->n_replicas; r++)
            sum += 1 + number(r, tensor, i);
        if (fabs(value - sum) > (sums->dtype == ALLOT_F64 ? 1e-12 : 1e-4))
            ck_abort_msg("%d replicas, element %lld of %lld: %.17g instead of %.17g",
                         sums->n_replicas, (long long)i, (long long)sums->lengths[tensor], value,
                         sum);
    }
}

static void check_sums(const struct sums *sums) {
    const int n = sums->n_replicas * sums->n_tensors;
    struct allot_output fed[GPUS_MAX * TENSORS_MAX], inputs[2 * GPUS_MAX * TENSORS_MAX],
        fetched[2 * GPUS_MAX * TENSORS_MAX];
    struct allot_tensor *feeds[GPUS_MAX * TENSORS_MAX], *got[2 * GPUS_MAX * TENSORS_MAX];
    struct allot_session *session;
    struct allot_error err = { 0 };
    struct allot_graph *graph;
    struct allot_node *node;
    struct allot_op *op;

    ck_assert_int_eq(allot_graph_new(&graph, NULL), 0);
    op = allot_op_begin(graph, "AllReduce", NULL);
    for (int i = 0; i < n; i++) {
        const int replica = i / sums->n_tensors, tensor = i % sums->n_tensors;

        fed[i] = allot_placeholder(graph, NULL, sums->dtype, 1, (int64_t[]){ -1 });
        feeds[i] = numbers(sums->dtype, replica, tensor, sums->lengths[tensor]);
        inputs[i] = tensor_of(graph, sums, fed[i], replica);
        allot_op_input(op, inputs[i]);
    }
    allot_op_attr_int(op, "replicas", sums->n_replicas);
    ck_assert_msg(allot_op_finish(op, &node, &err) == 0, "%s", err.text);
    for (int i = 0; i < n; i++) {
        allot_with_device(graph, sums->devices[i / sums->n_tensors]) {
            fetched[i] = allot_identity((struct allot_output){ node, i });
        }
        fetched[n + i] = inputs[i];
    }
    ck_assert_msg(allot_graph_error(graph, &err) == 0, "%s", err.text);
    ck_assert_msg(allot_session_new(&session, graph, NULL, &err) == 0, "%s", err.text);
    for (int run = 0; run < 2; run++) {
        const size_t n_fetched = (size_t)n * (sums->twice ? 2 : 1);

        ck_assert_msg(allot_session_run(session, fed, feeds, (size_t)n, fetched, n_fetched, NULL, 0,
                                        got, &err) == 0,
                      "%s", err.text);
        for (int i = 0; i < n; i++) {
            check_sum(sums, i % sums->n_tensors, got[i]);
            ck_assert_msg(memcmp(allot_tensor_data(got[i]),
                                 allot_tensor_data(got[i % sums->n_tensors]),
                                 allot_tensor_bytes(got[i])) == 0,
                          "replica %d has other bits than replica 0", i / sums->n_tensors);
        }
        for (int i = 0; sums->twice && i < n; i++) {
            struct sums one = *sums;

            one.n_replicas = 1;
            if (i < sums->n_tensors)
                check_sum(&one, i, got[n + i]);
        }
        for (size_t i = 0; i < n_fetched; i++)
            allot_tensor_unref(got[i]);
    }
    for (int i = 0; i < n; i++)
        allot_tensor_unref(feeds[i]);
    allot_session_free(session);
    allot_graph_unref(graph);
}

static const char *const gpus[GPUS_MAX] = { "/gpu:0", "/gpu:1", "/gpu:2", "/gpu:3",
                                            "/gpu:4", "/gpu:5", "/gpu:6", "/gpu:7" };

static struct sums sums_of(int n_replicas, int n_tensors, const int64_t *lengths) {
    struct sums sums = { .n_replicas = n_replicas, .n_tensors = n_tensors, .dtype = ALLOT_F32 };

    memcpy(sums.lengths, lengths, (size_t)n_tensors * sizeof(*lengths));
    memcpy(sums.devices, gpus, sizeof(gpus));
    return sums;
}

static void open_box(struct sim_box *box) {
    const struct box_spec spec = { .n_gpus = GPUS_MAX, .models = "a100-40g", .seed = 7 };

    sim_box_init_driver(box, &spec, SIM_LIB_DIR);
}

START_TEST(all_replicas_get_the_same_sum) {
    static const int64_t one[] = { 1 }, odd[] = { 1001 }, none[] = { 0 }, some[] = { 3, 0, 257, 1 };
    struct sim_box box;

    open_box(&box);
    for (int n = 2; n <= GPUS_MAX; n++) {
        struct sums sums = sums_of(n, 1, one);

        check_sums(&sums);
        sums = sums_of(n, 1, odd);
        sums.dtype = ALLOT_F64;
        check_sums(&sums);
        sums = sums_of(n, 4, some);
        sums.twice = n % 2;
        check_sums(&sums);
        sums = sums_of(n, 1, none);
        check_sums(&sums);
    }
    sim_box_done(&box);
}
END_TEST

/* Enough for the ring, in two halves where there are few replicas. */
START_TEST(large_sums_go_round) {
    static const int64_t large[] = { 300001, 7, 99990 };
    struct sim_box box;

    open_box(&box);
    for (int n = 2; n <= GPUS_MAX; n += 3) {
        struct sums sums = sums_of(n, 3, large);

        sums.twice = n == 2;
        check_sums(&sums);
    }
    sim_box_done(&box);
}
END_TEST

/* Calls of a sum alone, from tensors that GPUs have. */
static uint64_t calls_of(int n, int64_t length) {
    struct allot_run_options options = ALLOT_RUN_OPTIONS_INIT;
    struct allot_run_metadata metadata = { .size = sizeof(metadata) };
    struct allot_output fed[GPUS_MAX];
    struct allot_tensor *feeds[GPUS_MAX];
    struct allot_callable *callable;
    struct allot_session *session;
    struct allot_error err = { 0 };
    struct allot_graph *graph;
    struct allot_node *node;
    struct allot_op *op;

    ck_assert_int_eq(allot_graph_new(&graph, NULL), 0);
    op = allot_op_begin(graph, "AllReduce", NULL);
    for (int i = 0; i < n; i++) {
        struct sums sums = sums_of(n, 1, &length);

        fed[i] = allot_placeholder(graph, NULL, ALLOT_F32, 1, (int64_t[]){ -1 });
        feeds[i] = numbers(ALLOT_F32, i, 0, length);
        allot_op_input(op, tensor_of(graph, &sums, fed[i], i));
    }
    allot_op_attr_int(op, "replicas", n);
    ck_assert_int_eq(allot_op_finish(op, &node, &err), 0);
    ck_assert_msg(allot_session_new(&session, graph, NULL, &err) == 0, "%s", err.text);
    ck_assert_int_eq(
        allot_callable_new(&callable, session, fed, (size_t)n, NULL, 0, &node, 1, &err), 0);
    options.metadata = &metadata;
    ck_assert_msg(allot_callable_run(callable, &options, feeds, NULL, &err) == 0, "%s", err.text);
    for (int i = 0; i < n; i++)
        allot_tensor_unref(feeds[i]);
    allot_callable_free(callable);
    allot_session_free(session);
    allot_graph_unref(graph);
    return metadata.n_kernels - (uint64_t)n; /* one makes the tensor of each replica */
}

/* Besides the beginning of each replica: n - 1 copies up, each added, and n - 1 down; or n - 1
 * copies of a chunk to each of n replicas, which adds them at once, and n - 1 back; in two parts if
 * it is worth it. */
START_TEST(few_bytes_go_by_a_tree_and_many_directly) {
    struct sim_box box;

    open_box(&box);
    for (uint64_t n = 4; n <= GPUS_MAX; n *= 2) {
        ck_assert_uint_eq(calls_of((int)n, 1000), n + 3 * (n - 1));
        ck_assert_uint_eq(calls_of((int)n, 300000), n + n + 2 * n * (n - 1));
    }
    /* The same as the placer counts them, by replica; the last in two parts. */
    ck_assert_uint_eq(compile_all_reduce_steps(1000 * 4, 4), 2 * 2);
    ck_assert_uint_eq(compile_all_reduce_steps(300000 * 4, 4), 2 * 3);
    ck_assert_uint_eq(compile_all_reduce_steps(UINT64_C(64) << 20, 4), 2 * 3 * 2);
    sim_box_done(&box);
}
END_TEST

START_TEST(replicas_may_share_a_device_or_be_on_the_cpu) {
    static const int64_t some[] = { 1000, 3 };
    struct sim_box box;

    open_box(&box);
    for (int n = 1; n <= 3; n++) {
        struct sums sums = sums_of(n, 2, some);

        sums.devices[0] = "/cpu:0";
        check_sums(&sums);
        sums.devices[0] = sums.devices[n - 1] = "/gpu:2";
        check_sums(&sums);
    }
    sim_box_done(&box);
}
END_TEST

START_TEST(a_tensor_must_have_one_shape_in_all_replicas) {
    struct allot_graph *graph;
    struct allot_error err = { 0 };

    ck_assert_int_eq(allot_graph_new(&graph, NULL), 0);
    for (int i = 0; i < 3; i++) {
        struct allot_op *op = allot_op_begin(graph, "AllReduce", NULL);

        for (int k = 0; k < 3; k++)
            allot_op_input(op, allot_filled(graph, ALLOT_F32, 1, (int64_t[]){ 2 + k / 2 }, 1));
        allot_op_attr_int(op, "replicas", i == 0 ? 3 : i == 1 ? 2 : 0);
        ck_assert_int_eq(allot_op_finish(op, NULL, &err), -EINVAL);
        ck_assert_msg(strstr(err.text, i == 0 ? "the same shape in all replicas" : "3 inputs") !=
                          NULL,
                      "%s", err.text);
    }
    allot_graph_unref(graph);
}
END_TEST

/* All shards together are the whole, for any number of rows. */
START_TEST(shards_divide_rows) {
    enum { SHARDS = 3 };
    struct sim_box box;

    open_box(&box);
    for (int on_gpu = 0; on_gpu < 2; on_gpu++) {
        struct allot_output fetches[2 * SHARDS + 1], x;
        struct allot_session *session;
        struct allot_error err = { 0 };
        struct allot_graph *graph;

        ck_assert_int_eq(allot_graph_new(&graph, NULL), 0);
        x = allot_placeholder(graph, NULL, ALLOT_F32, 2, (int64_t[]){ -1, 2 });
        allot_device_push(graph, on_gpu ? "/gpu:1" : "/cpu:0");
        for (int i = 0; i < 2 * SHARDS; i++) {
            struct allot_op *op = allot_op_begin(graph, i < SHARDS ? "Shard" : "ShardWeight", NULL);

            allot_op_input(op, x);
            allot_op_attr_int(op, "index", i % SHARDS);
            allot_op_attr_int(op, "count", SHARDS);
            if (i >= SHARDS)
                allot_op_attr_type(op, "T", ALLOT_F64);
            ck_assert_msg(allot_op_finish(op, &fetches[i].node, &err) == 0, "%s", err.text);
            fetches[i].index = 0;
        }
        fetches[2 * SHARDS] = allot_concat(fetches, SHARDS, 0);
        allot_device_pop(graph);
        ck_assert_msg(allot_session_new(&session, graph, NULL, &err) == 0, "%s", err.text);
        for (int64_t rows = 0; rows < 8; rows++) {
            struct allot_tensor *fed, *got[2 * SHARDS + 1];
            double weights = 0;

            ck_assert_int_eq(allot_tensor_new(&fed, ALLOT_F32, 2, (int64_t[]){ rows, 2 }, NULL), 0);
            for (int64_t i = 0; i < 2 * rows; i++)
                ((float *)allot_tensor_data(fed))[i] = (float)i;
            ck_assert_msg(allot_session_run(session, &x, &fed, 1, fetches, 2 * SHARDS + 1, NULL, 0,
                                            got, &err) == 0,
                          "%s", err.text);
            ck_assert_int_eq(allot_tensor_count(got[2 * SHARDS]), 2 * rows);
            ck_assert_mem_eq(allot_tensor_data(got[2 * SHARDS]), allot_tensor_data(fed),
                             allot_tensor_bytes(fed));
            for (int i = 0; i < SHARDS; i++) {
                const double weight = *(double *)allot_tensor_data(got[SHARDS + i]);
                const double own = (double)allot_tensor_count(got[i]) / 2;

                ck_assert_double_ge(own, floor((double)rows / SHARDS));
                ck_assert_double_le(own, ceil((double)rows / SHARDS));
                ck_assert_double_eq(weight, rows ? own / (double)rows : 0);
                weights += weight;
            }
            ck_assert_double_le(fabs(weights - (rows ? 1 : 0)), 1e-15);
            for (int i = 0; i <= 2 * SHARDS; i++)
                allot_tensor_unref(got[i]);
            allot_tensor_unref(fed);
        }
        allot_session_free(session);
        allot_graph_unref(graph);
    }
    sim_box_done(&box);
}
END_TEST

SUITE_TIMEOUT("all-reduce-gpu", 240, all_replicas_get_the_same_sum, large_sums_go_round,
              few_bytes_go_by_a_tree_and_many_directly,
              replicas_may_share_a_device_or_be_on_the_cpu,
              a_tensor_must_have_one_shape_in_all_replicas, shards_divide_rows)
