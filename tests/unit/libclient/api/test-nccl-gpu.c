/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums over replicas by NCCL, of which a fake one is there: it is used where it opens, with the
 * same result; where it cannot be used, our own ring and tree are, and the log says why; a sum that
 * fails fails the run in words; and a lost card aborts what waits for it.
 */
#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/allot/log.h"
#include "libclient/allot/model.h"
#include "sim/box/fault.h"
#include "tests/fake/fake-nccl.h"
#include "tests/support/sim/box/sim_box.h"
#include "tests/support/suite.h"

enum { GPUS = 4, ROWS = 13, IN = 7, HIDDEN = 300, STEPS = 6 };

static struct fake_nccl *fake;
static char said[2048];

static void on_log(void *userdata, enum allot_log_level level, const char *text) {
    const size_t n = strlen(said);

    (void)userdata;
    if (strstr(text, "over replicas"))
        snprintf(said + n, sizeof(said) - n, "%d: %s\n", (int)level, text);
}

static void open_box(struct sim_box *box, const char *nccl) {
    const struct box_spec spec = { .n_gpus = GPUS, .models = "a100-40g", .seed = 7 };

    said[0] = '\0';
    sim_box_init_driver(box, &spec, SIM_LIB_DIR);
    if (nccl)
        setenv("ALLOT_NCCL", nccl, 1);
    else
        unsetenv("ALLOT_NCCL");
    allot_log_set(on_log, NULL);
    fake = dlsym(dlopen(FAKE_NCCL_DIR "/libnccl.so.2", RTLD_NOW), "fake_nccl");
    ck_assert_ptr_nonnull(fake);
}

struct job {
    struct allot_graph *graph;
    struct allot_strategy *strategy;
    struct allot_output x, w[2], loss;
    struct allot_node *step;
    struct allot_session *session;
    struct allot_tensor *fed;
};

static void must(int r, const struct allot_error *err) {
    ck_assert_msg(r == 0, "%s", err->text);
}

static void job_open(struct job *job, enum allot_dtype dtype, size_t n) {
    static const char *const gpus[GPUS] = { "/gpu:0", "/gpu:1", "/gpu:2", "/gpu:3" };
    struct allot_optimizer *sgd = allot_sgd(0.003);
    struct allot_error err = { 0 };
    struct allot_node *init;

    *job = (struct job){ 0 };
    ck_assert_int_eq(allot_graph_new(&job->graph, NULL), 0);
    job->strategy = allot_mirrored(job->graph, gpus, n);
    allot_with_strategy(job->strategy) {
        job->x = allot_placeholder(job->graph, "x", dtype, 2, (int64_t[]){ -1, IN });
        job->w[0] = allot_variable(
            job->graph, "w",
            allot_random_uniform(job->graph, dtype, 2, (int64_t[]){ IN, HIDDEN }, -1, 1, 3));
        job->w[1] = allot_variable(
            job->graph, "w",
            allot_random_uniform(job->graph, dtype, 2, (int64_t[]){ HIDDEN, 1 }, -1, 1, 4));
        job->loss = allot_mean(
            allot_square(allot_matmul(allot_tanh(allot_matmul(job->x, job->w[0])), job->w[1])));
    }
    job->step = allot_strategy_minimize(job->strategy, sgd, job->loss);
    job->loss = allot_strategy_mean(job->strategy, job->loss);
    init = allot_initializer(job->graph);
    allot_optimizer_free(sgd);
    must(allot_graph_error(job->graph, &err), &err);
    must(allot_session_new(&job->session, job->graph, NULL, &err), &err);
    must(allot_session_run(job->session, NULL, NULL, 0, NULL, 0, &init, 1, NULL, &err), &err);
    ck_assert_int_eq(allot_tensor_new(&job->fed, dtype, 2, (int64_t[]){ ROWS, IN }, NULL), 0);
    for (int i = 0; i < ROWS * IN; i++)
        if (dtype == ALLOT_F64)
            ((double *)allot_tensor_data(job->fed))[i] = sin(i);
        else
            ((float *)allot_tensor_data(job->fed))[i] = (float)sin(i);
}

static void job_close(struct job *job) {
    allot_tensor_unref(job->fed);
    allot_session_free(job->session);
    allot_strategy_free(job->strategy);
    allot_graph_unref(job->graph);
}

static int step(struct job *job, struct allot_error *err) {
    return allot_session_run(job->session, &job->x, &job->fed, 1, NULL, 0, &job->step, 1, NULL,
                             err);
}

/* Both variables of replica `i`. */
static void values(struct job *job, size_t i, struct allot_tensor *ret[2]) {
    struct allot_output fetches[2];
    struct allot_error err = { 0 };

    for (int v = 0; v < 2; v++)
        fetches[v] = allot_strategy_replica(job->strategy, job->w[v], i);
    must(allot_session_run(job->session, NULL, NULL, 0, fetches, 2, NULL, 0, ret, &err), &err);
}

static void check_same_bits(struct job *job) {
    struct allot_tensor *first[2];

    values(job, 0, first);
    for (size_t i = 1; i < allot_strategy_n_replicas(job->strategy); i++) {
        struct allot_tensor *other[2];

        values(job, i, other);
        for (int v = 0; v < 2; v++) {
            ck_assert_int_eq(memcmp(allot_tensor_data(first[v]), allot_tensor_data(other[v]),
                                    allot_tensor_bytes(first[v])),
                             0);
            allot_tensor_unref(other[v]);
        }
    }
    allot_tensor_unref(first[0]);
    allot_tensor_unref(first[1]);
}

/* Steps with NCCL and without: the largest difference of a variable in the end. */
static double difference(enum allot_dtype dtype, size_t n) {
    struct allot_tensor *got[2][2];
    double worst = 0;

    for (int is_own = 0; is_own < 2; is_own++) {
        struct allot_error err = { 0 };
        struct job job;

        setenv("ALLOT_NCCL", is_own ? "no" : FAKE_NCCL_DIR, 1);
        fake->n_sums = 0;
        job_open(&job, dtype, n);
        for (int i = 0; i < STEPS; i++) {
            must(step(&job, &err), &err);
            check_same_bits(&job);
        }
        ck_assert_int_eq(fake->n_sums, is_own ? 0 : 2 * STEPS);
        ck_assert_int_eq(fake->n_comms, is_own ? 0 : (int)n);
        values(&job, n - 1, got[is_own]);
        job_close(&job);
        ck_assert_int_eq(fake->n_comms, 0);
    }
    for (int v = 0; v < 2; v++)
        for (int64_t i = 0; i < allot_tensor_count(got[0][v]); i++)
            worst = fmax(worst, dtype == ALLOT_F64
                                    ? fabs(((double *)allot_tensor_data(got[0][v]))[i] -
                                           ((double *)allot_tensor_data(got[1][v]))[i])
                                    : fabs((double)(((float *)allot_tensor_data(got[0][v]))[i] -
                                                    ((float *)allot_tensor_data(got[1][v]))[i])));
    for (int v = 0; v < 2; v++) {
        allot_tensor_unref(got[0][v]);
        allot_tensor_unref(got[1][v]);
    }
    return worst;
}

START_TEST(nccl_sums_where_it_is_there) {
    struct sim_box box;

    open_box(&box, FAKE_NCCL_DIR);
    for (size_t n = 2; n <= GPUS; n++) {
        ck_assert_double_le(difference(ALLOT_F64, n), 1e-12);
        ck_assert_double_le(difference(ALLOT_F32, n), 1e-5);
    }
    ck_assert_msg(strcmp(said, "6: sums over replicas: by NCCL 2.21.5 (" FAKE_NCCL_DIR
                               "/libnccl.so.2)\n") == 0,
                  "%s", said);
    sim_box_done(&box);
}
END_TEST

START_TEST(without_it_the_log_says_what_sums_instead) {
    struct allot_error err = { 0 };
    struct sim_box box;
    struct job job;

    open_box(&box, "/nonexistent");
    for (int i = 0; i < 2; i++) {
        job_open(&job, ALLOT_F32, 3);
        must(step(&job, &err), &err);
        check_same_bits(&job);
        job_close(&job);
    }
    ck_assert_msg(strncmp(said, "5: ", 3) == 0 && strstr(said, "/nonexistent") &&
                      strstr(said, "go by our own copies between the GPUs"),
                  "%s", said);
    ck_assert_ptr_eq(strchr(said, '\n'), said + strlen(said) - 1); /* once */
    sim_box_done(&box);

    /* The simulated box has none, and there is nothing to say. */
    open_box(&box, NULL);
    job_open(&job, ALLOT_F32, 2);
    must(step(&job, &err), &err);
    job_close(&job);
    ck_assert_str_eq(said, "");
    sim_box_done(&box);
}
END_TEST

START_TEST(devices_that_it_refuses_are_summed_by_ourselves) {
    struct allot_error err = { 0 };
    struct sim_box box;
    struct job job;

    open_box(&box, FAKE_NCCL_DIR);
    fake->fail_init = 5;
    job_open(&job, ALLOT_F64, 3);
    must(step(&job, &err), &err);
    check_same_bits(&job);
    job_close(&job);
    ck_assert_int_eq(fake->n_sums, 0);
    ck_assert_msg(strstr(said, "ncclCommInitAll") && strstr(said, "ncclInvalidUsage") &&
                      strstr(said, "our own copies"),
                  "%s", said);
    sim_box_done(&box);
}
END_TEST

START_TEST(a_sum_that_fails_fails_the_step_in_words) {
    struct allot_error err = { 0 };
    struct sim_box box;
    struct job job;

    open_box(&box, FAKE_NCCL_DIR);
    job_open(&job, ALLOT_F32, 2);
    must(step(&job, &err), &err);
    fake->fail_at = 1;
    fake->fail_group = 3;
    ck_assert_int_eq(step(&job, &err), -EIO);
    ck_assert_msg(strstr(err.text, "all_reduce") && strstr(err.text, "ncclGroupEnd") &&
                      strstr(err.text, "ncclInternalError"),
                  "%s", err.text);
    ck_assert_int_eq(step(&job, &err), -ENOTRECOVERABLE);
    ck_assert_msg(strstr(err.text, "ALLOT_NCCL=no") != NULL, "%s", err.text);
    job_close(&job);
    /* A new session has new communicators. */
    job_open(&job, ALLOT_F32, 2);
    must(step(&job, &err), &err);
    check_same_bits(&job);
    job_close(&job);
    sim_box_done(&box);
}
END_TEST

START_TEST(a_lost_card_aborts_the_communicators) {
    struct allot_error err = { 0 };
    struct sim_box box;
    struct job job;

    open_box(&box, FAKE_NCCL_DIR);
    job_open(&job, ALLOT_F32, 3);
    must(step(&job, &err), &err);
    box_lock(box.box);
    fault_xid(box.box, 1, 79);
    box_unlock(box.box);
    ck_assert_int_eq(step(&job, &err), -ENOTRECOVERABLE);
    ck_assert_msg(strstr(err.text, "GPU 1 is lost") == err.text, "%s", err.text);
    ck_assert_int_eq(fake->n_aborts, 3);
    job_close(&job);
    for (unsigned i = 0; i < GPUS; i++)
        ck_assert_uint_eq(sim_box_used(&box, i), 0);
    sim_box_done(&box);
}
END_TEST

SUITE_TIMEOUT("nccl-gpu", 120, nccl_sums_where_it_is_there,
              without_it_the_log_says_what_sums_instead,
              devices_that_it_refuses_are_summed_by_ourselves,
              a_sum_that_fails_fails_the_step_in_words, a_lost_card_aborts_the_communicators)
