/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A card that is lost in mid-step: the error names it, whatever op failed first, nothing of the job
 * stays on any card, and the training goes on with one less from the last checkpoint, on the same
 * curve.
 */
#include <errno.h>
#include <pthread.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/allot/log.h"
#include "libclient/allot/model.h"
#include "libclient/allot/saver.h"
#include "sim/box/fault.h"
#include "tests/support/daemon/real_allotd.h"
#include "tests/support/suite.h"

enum { GPUS = 4, ROWS = 24, IN = 4, EPOCHS = 8, BATCH = 8, STEPS = ROWS / BATCH };

/* What the log's handler does in the midst of a step: the model prints once in each replica. */
static struct {
    struct sim_box box;
    int n_prints;     /* so far */
    int at[2];        /* prints after which a card is lost; 0: never */
    unsigned card[2]; /* which one, by its number in the box */
    int n_warnings;   /* of the library */
    char last_warning[2][512];
} scene;

static void note(enum allot_log_level level, const char *text) {
    if (level == ALLOT_LOG_WARNING) {
        snprintf(scene.last_warning[scene.n_warnings++ % 2], sizeof(scene.last_warning[0]), "%s",
                 text);
        return;
    }
    if (strncmp(text, "middle", 6) != 0)
        return;
    scene.n_prints++;
    for (int i = 0; i < 2; i++)
        if (scene.at[i] && scene.n_prints == scene.at[i]) {
            box_lock(scene.box.box);
            fault_xid(scene.box.box, scene.card[i], 79);
            box_unlock(scene.box.box);
        }
}

/* Threads of a run log side by side. */
static void on_log(void *userdata, enum allot_log_level level, const char *text) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

    (void)userdata;
    pthread_mutex_lock(&lock);
    note(level, text);
    pthread_mutex_unlock(&lock);
}

static void open_scene(void) {
    const struct box_spec spec = { .n_gpus = GPUS, .models = "a100-40g", .seed = 7 };

    memset(&scene, 0, sizeof(scene));
    sim_box_init_driver(&scene.box, &spec, SIM_LIB_DIR);
    allot_log_set(on_log, NULL);
}

static void close_scene(void) {
    allot_log_set(NULL, NULL);
    sim_box_done(&scene.box);
}

static void check_empty(void) {
    for (unsigned i = 0; i < GPUS; i++)
        ck_assert_uint_eq(sim_box_used(&scene.box, i), 0);
}

struct job {
    struct allot_graph *graph;
    struct allot_strategy *strategy;
    struct allot_output x, y;
    struct allot_model *model;
    struct allot_tensor *inputs, *targets;
    double losses[2 * EPOCHS];
    unsigned epochs[2 * EPOCHS], n;
};

static void must(int r, const struct allot_error *err) {
    ck_assert_msg(r == 0, "%s", err->text);
}

static struct allot_tensor *numbers(int64_t columns, double seed) {
    struct allot_tensor *made;

    ck_assert_int_eq(allot_tensor_new(&made, ALLOT_F64, 2, (int64_t[]){ ROWS, columns }, NULL), 0);
    for (int64_t i = 0; i < ROWS * columns; i++)
        ((double *)allot_tensor_data(made))[i] = sin(seed + 1.7 * (double)i);
    return made;
}

static void job_open(struct job *job, const char *const *devices, size_t n) {
    struct allot_optimizer *adam = allot_adam(0.02, ALLOT_ADAM_DEFAULTS);
    struct allot_error err = { 0 };

    *job = (struct job){ .inputs = numbers(IN, 0.3), .targets = numbers(1, 0.8) };
    ck_assert_int_eq(allot_graph_new(&job->graph, NULL), 0);
    allot_graph_set_seed(job->graph, 11);
    job->strategy = allot_mirrored(job->graph, devices, n);
    allot_with_strategy(job->strategy) {
        job->x = allot_placeholder(job->graph, "x", ALLOT_F64, 2, (int64_t[]){ -1, IN });
        job->y =
            allot_dense(allot_print(allot_dense(job->x, 8, ALLOT_TANH), "middle"), 1, ALLOT_LINEAR);
    }
    job->model = allot_model_new(job->strategy, job->x, job->y);
    must(allot_model_compile(job->model, ALLOT_LOSS_MSE, adam, &err), &err);
    /* The model needs neither any more. */
    allot_optimizer_free(adam);
    job->strategy = allot_strategy_free(job->strategy);
}

static void job_close(struct job *job) {
    allot_model_free(job->model);
    allot_tensor_unref(job->inputs);
    allot_tensor_unref(job->targets);
    allot_graph_unref(job->graph);
}

static int note_epoch(unsigned epoch, double loss, void *userdata) {
    struct job *job = userdata;

    ck_assert_uint_lt(job->n, ELEMENTSOF(job->losses));
    job->epochs[job->n] = epoch;
    job->losses[job->n++] = loss;
    return 0;
}

static struct allot_fit_options options_of(struct job *job, const char *checkpoint,
                                           unsigned losses) {
    struct allot_fit_options options = ALLOT_FIT_OPTIONS_INIT;

    options.epochs = EPOCHS;
    options.batch_rows = BATCH;
    options.on_epoch = note_epoch;
    options.userdata = job;
    options.checkpoint = checkpoint;
    options.survive_losses = losses;
    return options;
}

static const char *checkpoint_path(char path[static PATH_MAX + 16]) {
    snprintf(path, PATH_MAX + 16, "%s/model", scene.box.dir);
    return path;
}

/* The curve without any loss. */
static void reference(struct job *job) {
    struct allot_fit_options options;
    struct allot_error err = { 0 };

    job_open(job, NULL, 0);
    options = options_of(job, NULL, 0);
    must(allot_model_fit(job->model, job->inputs, job->targets, &options, NULL, &err), &err);
    ck_assert_uint_eq(job->n, EPOCHS);
}

static void check_curve(const struct job *job, const struct job *want) {
    for (unsigned i = 0; i < job->n; i++)
        ck_assert_msg(fabs(job->losses[i] - want->losses[job->epochs[i]]) < 1e-10,
                      "epoch %u: loss %.17g instead of %.17g", job->epochs[i], job->losses[i],
                      want->losses[job->epochs[i]]);
}

START_TEST(the_error_names_the_card_and_nothing_stays_behind) {
    struct allot_fit_options options;
    struct allot_error err = { 0 };
    struct job job;

    open_scene();
    job_open(&job, NULL, 0);
    ck_assert_uint_eq(allot_model_n_replicas(job.model), GPUS);
    ck_assert_int_eq(allot_model_recover(job.model, NULL, &err), -EINVAL);
    options = options_of(&job, NULL, 0);
    scene.card[0] = 2;
    scene.at[0] = GPUS * (STEPS + 1) + 2; /* in the second step of the second epoch */
    ck_assert_int_eq(allot_model_fit(job.model, job.inputs, job.targets, &options, NULL, &err),
                     -ENOTRECOVERABLE);
    ck_assert_uint_eq(job.n, 1);
    ck_assert_msg(strstr(err.text, "GPU 2 is lost (/device:GPU:2: GPU-") == err.text, "%s",
                  err.text);
    ck_assert_msg(strstr(err.text, "pci bus id: 0000:47:00.0)") != NULL, "%s", err.text);
    /* As it is said again by every later call, until the program lets go. */
    ck_assert_int_eq(allot_model_fit(job.model, job.inputs, job.targets, &options, NULL, &err),
                     -ENOTRECOVERABLE);
    job_close(&job);
    check_empty();
    close_scene();
}
END_TEST

START_TEST(fit_goes_on_with_one_less_and_one_less_again) {
    struct allot_fit_options options;
    struct allot_error err = { 0 };
    char path[PATH_MAX + 16];
    struct job job, want;
    double loss;

    open_scene();
    reference(&want);
    job_close(&want);
    for (unsigned every = 1; every <= 3; every += 2) {
        scene.n_prints = scene.n_warnings = 0;
        job_open(&job, NULL, 0);
        options = options_of(&job, checkpoint_path(path), 2);
        options.checkpoint_epochs = every;
        /* Card 1 of four in the fourth epoch, then card 3, which is GPU 2 of three by then. */
        scene.card[0] = 1;
        scene.at[0] = GPUS * (3 * STEPS + 1) + 2;
        scene.card[1] = 3;
        scene.at[1] = scene.at[0] + (GPUS - 1) * (2 * STEPS + 1) + 3;
        must(allot_model_fit(job.model, job.inputs, job.targets, &options, &loss, &err), &err);
        ck_assert_uint_eq(allot_model_n_replicas(job.model), 2);
        ck_assert_uint_ge(job.n, EPOCHS);
        ck_assert_uint_eq(job.epochs[job.n - 1], EPOCHS - 1);
        check_curve(&job, &want);
        ck_assert_double_eq_tol(loss, want.losses[EPOCHS - 1], 1e-10);
        ck_assert_int_eq(scene.n_warnings, 4);
        ck_assert_msg(strstr(scene.last_warning[0], "GPU 2 is lost") == scene.last_warning[0] &&
                          strstr(scene.last_warning[0], "pci bus id: 0000:4E:00.0") != NULL,
                      "%s", scene.last_warning[0]);
        ck_assert_msg(strstr(scene.last_warning[1], "goes on with 2 replicas") != NULL, "%s",
                      scene.last_warning[1]);
        /* The lost ones are free, the others in use. */
        ck_assert_uint_eq(sim_box_used(&scene.box, 1) + sim_box_used(&scene.box, 3), 0);
        ck_assert_uint_gt(sim_box_used(&scene.box, 0), 0);
        ck_assert_uint_gt(sim_box_used(&scene.box, 2), 0);
        job_close(&job);
        check_empty();
        box_lock(scene.box.box);
        for (unsigned i = 0; i < GPUS; i++)
            fault_recover(scene.box.box, i);
        box_unlock(scene.box.box);
    }
    close_scene();
}
END_TEST

START_TEST(more_losses_than_are_allowed_are_an_error) {
    struct allot_fit_options options;
    struct allot_error err = { 0 };
    char path[PATH_MAX + 16];
    struct job job;

    open_scene();
    job_open(&job, NULL, 0);
    options = options_of(&job, NULL, 1);
    ck_assert_int_eq(allot_model_fit(job.model, job.inputs, job.targets, &options, NULL, &err),
                     -EINVAL);
    ck_assert_msg(strstr(err.text, "needs a checkpoint") != NULL, "%s", err.text);
    options = options_of(&job, checkpoint_path(path), 1);
    scene.card[0] = 0;
    scene.at[0] = 2;
    scene.card[1] = 2;
    scene.at[1] = scene.at[0] + 20;
    ck_assert_int_eq(allot_model_fit(job.model, job.inputs, job.targets, &options, NULL, &err),
                     -ENOTRECOVERABLE);
    ck_assert_msg(strstr(err.text, "GPU 1 is lost") == err.text, "%s", err.text);
    job_close(&job);
    check_empty();
    close_scene();
}
END_TEST

/* By hand: the same in single calls, with the CPU as one of the replicas. */
START_TEST(a_program_recovers_by_hand) {
    static const char *const devices[] = { "/cpu:0", "/gpu:0", "/gpu:1", "/gpu:2" };
    struct allot_fit_options options;
    struct allot_session *other;
    struct allot_error err = { 0 };
    struct allot_tensor *value;
    struct allot_output weights;
    char path[PATH_MAX + 16];
    struct job job, want;

    open_scene();
    reference(&want);
    job_close(&want);
    scene.n_prints = 0;
    job_open(&job, devices, ELEMENTSOF(devices));
    options = options_of(&job, checkpoint_path(path), 0);
    scene.card[0] = 0;
    scene.at[0] = (int)ELEMENTSOF(devices) * 2 * STEPS + 3;
    ck_assert_int_eq(allot_model_fit(job.model, job.inputs, job.targets, &options, NULL, &err),
                     -ENOTRECOVERABLE);
    ck_assert_uint_eq(job.n, 2);
    /* Another session has the GPU as well: it must be freed first. */
    must(allot_session_new(&other, job.graph, NULL, &err), &err);
    ck_assert_int_eq(allot_model_recover(job.model, path, &err), -EBUSY);
    allot_session_free(other);
    must(allot_model_recover(job.model, path, &err), &err);
    ck_assert_uint_eq(allot_model_n_replicas(job.model), ELEMENTSOF(devices) - 1);
    job_close(&job);
    check_empty();

    box_lock(scene.box.box);
    fault_recover(scene.box.box, 0);
    box_unlock(scene.box.box);
    scene.n_prints = 0;
    job_open(&job, devices, ELEMENTSOF(devices));
    options = options_of(&job, path, 0);
    ck_assert_int_eq(allot_model_fit(job.model, job.inputs, job.targets, &options, NULL, &err),
                     -ENOTRECOVERABLE);
    must(allot_model_recover(job.model, path, &err), &err);
    ck_assert_uint_eq(allot_model_n_replicas(job.model), ELEMENTSOF(devices) - 1);
    /* The program's outputs are found in the new graph. */
    ck_assert_int_eq(allot_model_session(job.model, &other, &err), 0);
    weights = allot_model_output(job.model, job.y);
    ck_assert_ptr_nonnull(weights.node);
    ck_assert_ptr_ne(weights.node, job.y.node);
    ck_assert_str_eq(allot_node_name(weights.node), allot_node_name(job.y.node));
    ck_assert_ptr_null(allot_model_output(job.model, (struct allot_output){ NULL, 0 }).node);
    must(allot_model_predict(job.model, job.inputs, &value, &err), &err);
    ck_assert_int_eq(allot_tensor_dim(value, 0), ROWS);
    allot_tensor_unref(value);
    /* Six epochs are left. */
    options.epochs = EPOCHS - 2;
    must(allot_model_fit(job.model, job.inputs, job.targets, &options, NULL, &err), &err);
    for (unsigned i = 2; i < job.n; i++)
        job.epochs[i] += 2;
    check_curve(&job, &want);
    ck_assert_uint_eq(job.n, EPOCHS);
    job_close(&job);
    check_empty();
    close_scene();
}
END_TEST

START_TEST(without_a_device_there_is_nothing_to_go_on_with) {
    struct allot_fit_options options;
    struct allot_error err = { 0 };
    char path[PATH_MAX + 16];
    struct job job;

    open_scene();
    job_open(&job, (const char *const[]){ "/gpu:0" }, 1);
    options = options_of(&job, checkpoint_path(path), 5);
    scene.at[0] = 2;
    ck_assert_int_eq(allot_model_fit(job.model, job.inputs, job.targets, &options, NULL, &err),
                     -ENODEV);
    ck_assert_msg(strstr(err.text, "all 1 devices") != NULL, "%s", err.text);
    job_close(&job);
    check_empty();
    close_scene();
}
END_TEST

/* With the daemon: the lease comes back, and the next one has the cards that are left. */
START_TEST(leases_come_back) {
    struct allot_fit_options options;
    struct real_allotd daemon;
    struct allot_error err = { 0 };
    char path[PATH_MAX + 16];
    struct job job;

    open_scene();
    real_allotd_start(&daemon, &scene.box, ALLOTD);
    job_open(&job, NULL, 0);
    options = options_of(&job, checkpoint_path(path), 2);
    scene.card[0] = 1;
    scene.at[0] = GPUS * STEPS + 2;
    scene.card[1] = 0;
    scene.at[1] = scene.at[0] + (GPUS - 1) * STEPS + 2;
    must(allot_model_fit(job.model, job.inputs, job.targets, &options, NULL, &err), &err);
    ck_assert_uint_eq(allot_model_n_replicas(job.model), 2);
    ck_assert_uint_eq(job.n, EPOCHS);
    real_allotd_await_leases(&daemon, 1);
    ck_assert_uint_eq(sim_box_used(&scene.box, 0) + sim_box_used(&scene.box, 1), 0);
    job_close(&job);
    real_allotd_await_leases(&daemon, 0);
    check_empty();
    real_allotd_stop(&daemon);
    close_scene();
}
END_TEST

SUITE_TIMEOUT("loss-gpu", 240, the_error_names_the_card_and_nothing_stays_behind,
              fit_goes_on_with_one_less_and_one_less_again,
              more_losses_than_are_allowed_are_an_error, a_program_recovers_by_hand,
              without_a_device_there_is_nothing_to_go_on_with, leases_come_back)
