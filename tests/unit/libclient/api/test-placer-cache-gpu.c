/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the dynamic placer learns and keeps: measured costs, and plans in the cache folder. On
 * simulated boxes the times of GPUs are those of the model of the simulator, so that they are the
 * same in every run.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libclient/allot/log.h"
#include "libclient/allot/ops.h"
#include "libclient/allot/session.h"
#include "libclient/api/session.h"
#include "libclient/exec/engine/engine.h"
#include "libclient/exec/plan/plan_store.h"
#include "tests/support/sim/box/sim_box.h"
#include "tests/support/suite.h"

enum { WIDE = 1024, BRANCHES = 4, DEEP = 3 };

struct world {
    struct sim_box box;
    char folder[PATH_MAX + 16];
    struct allot_graph *graph;
    struct allot_session *session;
    struct allot_session_options options;
    struct allot_error err;
};

/* The log, to be read by tests. */
static char said[1 << 16];

static void hear(void *data, enum allot_log_level level, const char *text) {
    size_t n = strlen(said);

    snprintf(said + n, sizeof(said) - n, "%s\n", text);
}

static const struct box_spec four = { .n_gpus = 4, .models = "a100-40g", .timing_only = true };

static void open_graph(struct world *world) {
    ck_assert_int_eq(allot_graph_new(&world->graph, &world->err), 0);
}

static void open_world(struct world *world, const struct box_spec *spec) {
    *world = (struct world){ .options = ALLOT_SESSION_OPTIONS_INIT };
    sim_box_init_driver(&world->box, spec, SIM_LIB_DIR);
    snprintf(world->folder, sizeof(world->folder), "%s/cache", world->box.dir);
    allot_log_set(hear, NULL);
    said[0] = '\0';
    world->options.placer = ALLOT_PLACER_DYNAMIC;
    world->options.placer_budget = 20000;
    world->options.inter_op_threads = world->options.intra_op_threads = 1;
    world->options.cache_dir = world->folder;
    open_graph(world);
}

static void open_session(struct world *world) {
    int r = allot_graph_error(world->graph, &world->err);

    if (r == 0)
        r = allot_session_new(&world->session, world->graph, &world->options, &world->err);
    ck_assert_msg(r == 0, "%s", world->err.text);
}

static void close_session(struct world *world) {
    world->session = allot_session_free(world->session);
    allot_graph_unref(world->graph);
    world->graph = NULL;
}

static void close_world(struct world *world) {
    close_session(world);
    sim_box_done(&world->box);
}

/* BRANCHES chains of products, which meet at the end. */
static struct allot_output branches(struct world *world) {
    struct allot_output ends[BRANCHES];

    for (int b = 0; b < BRANCHES; b++) {
        ends[b] = allot_random_uniform(world->graph, ALLOT_F32, 2, (int64_t[]){ WIDE, WIDE }, 0, 1,
                                       b + 1);
        for (int i = 0; i < DEEP; i++)
            ends[b] = allot_matmul(ends[b], ends[b]);
        ends[b] = allot_sum(ends[b]);
    }
    return allot_add_n(ends, BRANCHES);
}

static const struct dynamic_placement_plan *last_plan(const struct world *world) {
    return &world->session->engine->dynamic->last;
}

static void run(struct world *world, struct allot_output fetch, int times) {
    for (int i = 0; i < times; i++) {
        struct allot_tensor *value;
        int r = allot_session_run(world->session, NULL, NULL, 0, &fetch, 1, NULL, 0, &value,
                                  &world->err);

        ck_assert_msg(r == 0, "%s", world->err.text);
        allot_tensor_unref(value);
    }
}

/* A new graph and session, as another program would have them. */
static void begin(struct world *world, struct allot_output *ret) {
    if (!world->graph)
        open_graph(world);
    *ret = branches(world);
    open_session(world);
}

static unsigned count_source(const struct world *world, enum task_cost_source source) {
    const struct dynamic_placement_plan *plan = last_plan(world);
    const uint32_t n_devices = plan->build.graph.n_devices;
    unsigned n = 0;

    for (uint32_t t = 0; t < plan->build.graph.n_tasks; t++)
        n += plan->build.sources[t * n_devices + plan->result.plan.device[t]] == source;
    return n;
}

static unsigned count_files(const struct world *world, const char *prefix) {
    char pattern[PATH_MAX + 64];
    glob_t found;
    unsigned n;

    snprintf(pattern, sizeof(pattern), "%s/%s*", world->folder, prefix);
    n = glob(pattern, 0, NULL, &found) == 0 ? (unsigned)found.gl_pathc : 0;
    globfree(&found);
    return n;
}

/* The only file that begins so. */
static void find_file(const struct world *world, const char *prefix, char ret[PATH_MAX]) {
    char pattern[PATH_MAX + 64];
    glob_t found;

    snprintf(pattern, sizeof(pattern), "%s/%s*", world->folder, prefix);
    ck_assert_int_eq(glob(pattern, 0, NULL, &found), 0);
    ck_assert_uint_eq(found.gl_pathc, 1);
    snprintf(ret, PATH_MAX, "%s", found.gl_pathv[0]);
    globfree(&found);
}

static void expect_text(const struct world *world, const char *what) {
    struct allot_error err;
    char *text;

    ck_assert_int_eq(allot_session_explain(world->session, &text, &err), 0);
    ck_assert_msg(strstr(text, what), "no '%s' in:\n%s", what, text);
    free(text);
}

static void expect_said(const char *what) {
    ck_assert_msg(strstr(said, what), "no '%s' in:\n%s", what, said);
}

/* A session that measures; then one that does not, and knows what was measured. */
START_TEST(costs_are_measured_kept_and_used) {
    struct allot_output end;
    struct world world;
    struct stat st;
    char path[PATH_MAX];
    double modelled;

    open_world(&world, &four);
    world.options.placer_measure = 3;
    begin(&world, &end);
    run(&world, end, 3);
    ck_assert_uint_eq(count_source(&world, TASK_COST_MEASURED), 0);
    expect_text(&world, " us, modelled]");
    expect_text(&world, "costs: 0 measured");
    ck_assert_uint_eq(count_files(&world, "costs-"), 0);
    modelled = last_plan(&world)->result.plan.makespan_usec;
    run(&world, end, 1);
    find_file(&world, "costs-", path);
    close_session(&world);
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_int_eq(st.st_mode & 07777, 0600);
    ck_assert_int_eq(stat(world.folder, &st), 0);
    ck_assert_int_eq(st.st_mode & 07777, 0700);

    world.options.placer_measure = 0;
    begin(&world, &end);
    run(&world, end, 1);
    ck_assert_uint_ge(count_source(&world, TASK_COST_MEASURED), 20);
    expect_text(&world, " us, measured]");
    ck_assert_double_gt(fabs(last_plan(&world)->result.plan.makespan_usec - modelled), 0.1);
    close_world(&world);
}
END_TEST

/* A session that ends before all its steps were measured. */
START_TEST(what_was_measured_is_kept_when_the_session_ends) {
    struct allot_output end;
    struct world world;

    open_world(&world, &four);
    world.options.placer_measure = 100;
    begin(&world, &end);
    run(&world, end, 3);
    ck_assert_uint_eq(count_files(&world, "costs-"), 0);
    close_session(&world);
    ck_assert_uint_eq(count_files(&world, "costs-"), 1);
    open_graph(&world);
    close_world(&world);
}
END_TEST

/* By default nothing is measured. */
START_TEST(steps_are_not_measured_by_default) {
    struct allot_output end;
    struct world world;

    open_world(&world, &four);
    begin(&world, &end);
    run(&world, end, 6);
    ck_assert_uint_eq(count_files(&world, "costs-"), 0);
    ck_assert_uint_eq(world.session->engine->dynamic->costs.fresh.by_key.n, 0);
    close_world(&world);
}
END_TEST

static double host_clock_usec(void) {
    void *library = dlopen(SIM_LIB_DIR "/libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    unsigned long long (*clock)(void) = NULL;
    double usec;

    ck_assert_ptr_nonnull(library);
    *(void **)&clock = dlsym(library, "gpusimHostClock");
    ck_assert_ptr_nonnull(clock);
    usec = (double)clock() / 1e3;
    dlclose(library);
    return usec;
}

/* Chains on GPUs alone, as the modelled time of a simulated box has no part of the host's work. */
START_TEST(steps_take_as_long_as_what_was_measured_says) {
    struct allot_output ends[BRANCHES];
    struct world world;
    double before, took, expected;

    open_world(&world, &four);
    world.options.placer_measure = 2;
    for (int session = 0; session < 2; session++) {
        if (!world.graph)
            open_graph(&world);
        for (int b = 0; b < BRANCHES; b++) {
            ends[b] = allot_random_uniform(world.graph, ALLOT_F32, 2, (int64_t[]){ 512, 512 }, 0, 1,
                                           b + 1);
            for (int i = 0; i < 8; i++)
                ends[b] = allot_tanh(allot_matmul(ends[b], ends[b]));
        }
        allot_with_device(world.graph, "/gpu:1") {
            ends[0] = allot_add_n(ends, BRANCHES);
        }
        open_session(&world);
        for (int i = 0; i < 4; i++) {
            int r = allot_session_run(world.session, NULL, NULL, 0, NULL, 0, &ends[0].node, 1, NULL,
                                      &world.err);

            ck_assert_msg(r == 0, "%s", world.err.text);
        }
        expected = last_plan(&world)->result.plan.makespan_usec;
        before = host_clock_usec();
        ck_assert_int_eq(allot_session_run(world.session, NULL, NULL, 0, NULL, 0, &ends[0].node, 1,
                                           NULL, &world.err),
                         0);
        took = host_clock_usec() - before;
        fprintf(stderr, "session %d: expected %.1f us, took %.1f us\n", session, expected, took);
        if (session == 1) {
            ck_assert_uint_eq(count_source(&world, TASK_COST_MODELLED), 0);
            ck_assert_double_lt(fabs(took - expected) / took, 0.03);
        }
        close_session(&world);
    }
    close_world(&world);
}
END_TEST

/* In a process and on a box of its own, with the folder of another: how many ops were measured. */
struct stranger {
    const char *folder;
    struct box_spec spec;
    bool is_known;
};

static int measure_in_child(struct sim_box *unused, void *argument) {
    const struct stranger *stranger = argument;
    struct allot_output end;
    struct world world;
    bool is_known;

    open_world(&world, &stranger->spec);
    world.options.cache_dir = stranger->folder;
    world.options.placer_measure = 1;
    begin(&world, &end);
    run(&world, end, 2);
    is_known = count_source(&world, TASK_COST_MEASURED) > 0;
    close_world(&world);
    return is_known == stranger->is_known ? 0 : 1;
}

START_TEST(costs_of_another_driver_or_device_are_not_used) {
    char folder[] = "/tmp/allot-test-XXXXXX", command[64];
    struct stranger strangers[] = {
        { .spec = { .models = "a100-40g", .driver = "580" } },
        { .spec = { .models = "a100-40g", .driver = "580" }, .is_known = true },
        { .spec = { .models = "a100-40g", .driver = "550" } },
        { .spec = { .models = "t4-16g", .driver = "580" } },
        { .spec = { .models = "a100-40g", .driver = "550" }, .is_known = true },
    };

    ck_assert_ptr_nonnull(mkdtemp(folder));
    for (size_t i = 0; i < ELEMENTSOF(strangers); i++) {
        strangers[i].folder = folder;
        strangers[i].spec.n_gpus = 2;
        strangers[i].spec.timing_only = true;
        sim_box_expect_success(sim_box_fork(measure_in_child, NULL, &strangers[i]));
    }
    snprintf(command, sizeof(command), "rm -r %s", folder);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

/* ---- Files that are not what they should be -------------------------------------------------- */

static void put_file(const char *path, const char *text, size_t n) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq((int)write(fd, text, n), (int)n);
    close(fd);
}

static char *get_file(const char *path, size_t *ret_n) {
    char *text = malloc(1 << 20);
    int fd = open(path, O_RDONLY);
    ssize_t n;

    ck_assert_int_ge(fd, 0);
    n = read(fd, text, (1 << 20) - 1);
    ck_assert_int_gt((int)n, 0);
    text[n] = '\0';
    *ret_n = (size_t)n;
    close(fd);
    return text;
}

/* What a file may turn into; `way` from 0, false: that is all. */
static bool spoil(const char *path, const char *text, size_t n, int way) {
    char *copy = strdup(text);

    unlink(path);
    switch (way) {
    case 0: /* cut off */
        put_file(path, text, n / 2);
        break;
    case 1: /* empty */
        put_file(path, "", 0);
        break;
    case 2: /* a number that changed */
        copy[n / 2] ^= 1;
        put_file(path, copy, n);
        break;
    case 3: /* something else */
        memset(copy, 0xff, n);
        put_file(path, copy, n);
        break;
    case 4: /* a link to where it lies now */
        copy = realloc(copy, strlen(path) + 8);
        sprintf(copy, "%s.x", path);
        put_file(copy, text, n);
        ck_assert_int_eq(symlink(copy, path), 0);
        break;
    case 5: /* a pipe that nobody writes to */
        ck_assert_int_eq(mkfifo(path, 0600), 0);
        break;
    case 6: /* a folder */
        ck_assert_int_eq(mkdir(path, 0700), 0);
        break;
    case 7: /* beyond all measure */
        put_file(path, text, n);
        ck_assert_int_eq(truncate(path, (off_t)1 << 33), 0);
        break;
    default:
        free(copy);
        return false;
    }
    free(copy);
    return true;
}

START_TEST(a_spoilt_file_of_costs_is_ignored_and_said) {
    struct allot_output end;
    struct world world;
    char path[PATH_MAX], *text;
    size_t n;

    open_world(&world, &four);
    world.options.placer_measure = 1;
    begin(&world, &end);
    run(&world, end, 2);
    close_session(&world);
    find_file(&world, "costs-", path);
    text = get_file(path, &n);
    world.options.placer_measure = 0;
    for (int way = 0; spoil(path, text, n, way); way++) {
        said[0] = '\0';
        begin(&world, &end);
        run(&world, end, 1);
        ck_assert_msg(count_source(&world, TASK_COST_MEASURED) == 0, "way %d", way);
        expect_said("the costs in it are not used");
        expect_said("planned by the model until they are measured");
        close_session(&world);
        if (way == 6)
            rmdir(path);
    }
    /* Measuring mends it. */
    world.options.placer_measure = 1;
    unlink(path);
    put_file(path, "rubbish", 7);
    begin(&world, &end);
    run(&world, end, 2);
    close_session(&world);
    begin(&world, &end);
    run(&world, end, 1);
    ck_assert_uint_gt(count_source(&world, TASK_COST_MEASURED), 0);
    free(text);
    close_world(&world);
}
END_TEST

/* ---- Plans ----------------------------------------------------------------------------------- */

/* In a process of its own: 0 where the plan is the one that `expected` says. */
struct child {
    struct world *world;
    bool is_kept;
};

static int plan_in_child(struct sim_box *box, void *argument) {
    const struct child *child = argument;
    struct world *world = child->world;
    struct allot_output end = branches(world);
    struct allot_tensor *value;

    if (allot_session_new(&world->session, world->graph, &world->options, &world->err) < 0 ||
        allot_session_run(world->session, NULL, NULL, 0, &end, 1, NULL, 0, &value, &world->err) < 0)
        return 1;
    return last_plan(world)->is_kept == child->is_kept ? 0 : 2;
}

/* The first process searches; neither another nor the next session does. */
START_TEST(a_plan_is_found_again_without_a_search) {
    uint32_t first[64], n;
    struct allot_output end;
    struct world world;

    open_world(&world, &four);
    for (int i = 0; i < 2; i++) /* before this process has the driver */
        sim_box_expect_success(sim_box_fork(plan_in_child, &world.box,
                                            &(struct child){ .world = &world, .is_kept = i > 0 }));
    begin(&world, &end);
    run(&world, end, 1);
    ck_assert(last_plan(&world)->is_kept);
    expect_text(&world, "and search of an earlier run, kept in the cache folder");
    n = last_plan(&world)->build.graph.n_tasks;
    ck_assert_uint_le(n, 64);
    memcpy(first, last_plan(&world)->result.plan.sequence, n * sizeof(*first));
    close_session(&world);

    /* The same as without a folder. */
    world.options.cache_dir = "";
    begin(&world, &end);
    run(&world, end, 1);
    ck_assert(!last_plan(&world)->is_kept);
    ck_assert_int_eq(memcmp(first, last_plan(&world)->result.plan.sequence, n * sizeof(*first)), 0);
    close_session(&world);
    ck_assert_uint_eq(count_files(&world, "plan-"), 1);

    /* With another budget it is another search; with a pin another graph. */
    world.options.cache_dir = world.folder;
    world.options.placer_budget++;
    begin(&world, &end);
    run(&world, end, 1);
    ck_assert(!last_plan(&world)->is_kept);
    close_session(&world);
    open_graph(&world);
    allot_with_device(world.graph, "/gpu:2") {
        end = branches(&world);
    }
    open_session(&world);
    run(&world, end, 1);
    ck_assert(!last_plan(&world)->is_kept);
    ck_assert_uint_eq(count_files(&world, "plan-"), 3);
    close_world(&world);
}
END_TEST

START_TEST(a_spoilt_plan_is_ignored_said_and_replaced) {
    struct allot_output end;
    struct world world;
    char path[PATH_MAX], *text;
    size_t n;

    open_world(&world, &four);
    begin(&world, &end);
    run(&world, end, 1);
    close_session(&world);
    find_file(&world, "plan-", path);
    text = get_file(path, &n);
    for (int way = 0; spoil(path, text, n, way); way++) {
        said[0] = '\0';
        begin(&world, &end);
        run(&world, end, 1);
        ck_assert_msg(!last_plan(&world)->is_kept, "way %d", way);
        expect_said("the plan in it is not used");
        expect_said("it is searched anew");
        close_session(&world);
        if (way == 6) {
            rmdir(path);
            continue;
        }
        begin(&world, &end);
        run(&world, end, 1);
        ck_assert_msg(last_plan(&world)->is_kept, "way %d", way);
        close_session(&world);
    }
    free(text);
    close_world(&world);
}
END_TEST

START_TEST(kept_plans_are_few) {
    struct allot_output end;
    struct world world;
    char path[PATH_MAX + 64];

    open_world(&world, &four);
    ck_assert_int_eq(mkdir(world.folder, 0700), 0);
    for (int i = 0; i < PLAN_STORE_MAX + 20; i++) {
        snprintf(path, sizeof(path), "%s/plan-%d", world.folder, i);
        put_file(path, "old", 3);
    }
    begin(&world, &end);
    run(&world, end, 1);
    ck_assert_uint_eq(count_files(&world, "plan-"), PLAN_STORE_MAX);
    close_session(&world);
    begin(&world, &end);
    run(&world, end, 1);
    ck_assert(last_plan(&world)->is_kept); /* the newest stayed */
    close_world(&world);
}
END_TEST

/* ---- The folder ------------------------------------------------------------------------------ */

/* The environment says where, if the session does not. */
START_TEST(the_environment_names_the_folder) {
    struct allot_output end;
    struct world world;
    char home[PATH_MAX + 32];

    open_world(&world, &four);
    world.options.cache_dir = NULL;
    setenv("ALLOT_CACHE_DIR", world.folder, 1);
    begin(&world, &end);
    run(&world, end, 1);
    ck_assert_uint_eq(count_files(&world, "plan-"), 1);
    close_session(&world);

    unsetenv("ALLOT_CACHE_DIR");
    unsetenv("XDG_CACHE_HOME");
    snprintf(home, sizeof(home), "%s/home", world.box.dir);
    ck_assert_int_eq(mkdir(home, 0755), 0);
    setenv("HOME", home, 1);
    snprintf(world.folder, sizeof(world.folder), "%.4000s/home/.cache/allot", world.box.dir);
    begin(&world, &end);
    run(&world, end, 1);
    ck_assert_uint_eq(count_files(&world, "plan-"), 1);
    close_session(&world);

    snprintf(world.folder, sizeof(world.folder), "%.4000s/xdg/allot", world.box.dir);
    snprintf(home, sizeof(home), "%s/xdg", world.box.dir);
    setenv("XDG_CACHE_HOME", home, 1);
    begin(&world, &end);
    run(&world, end, 1);
    ck_assert_uint_eq(count_files(&world, "plan-"), 1);
    ck_assert_ptr_null(strstr(said, "are not kept"));
    close_world(&world);
}
END_TEST

START_TEST(a_folder_that_others_write_to_is_not_used) {
    struct allot_output end;
    struct world world;

    open_world(&world, &four);
    ck_assert_int_eq(mkdir(world.folder, 0700), 0);
    ck_assert_int_eq(chmod(world.folder, 0777), 0);
    begin(&world, &end);
    run(&world, end, 1);
    ck_assert_uint_eq(count_files(&world, ""), 0);
    expect_said("other users may write to the folder");
    close_world(&world);
}
END_TEST

/* Root in the home of another user, as after su without a new HOME. */
START_TEST(root_writes_to_no_other_home) {
    struct allot_output end;
    struct world world;
    char home[PATH_MAX + 32];

    if (geteuid() != 0) {
        printf("skipped: only root can have the home of another user\n");
        return;
    }
    open_world(&world, &four);
    world.options.cache_dir = NULL;
    unsetenv("ALLOT_CACHE_DIR");
    unsetenv("XDG_CACHE_HOME");
    snprintf(home, sizeof(home), "%s/home", world.box.dir);
    ck_assert_int_eq(mkdir(home, 0700), 0);
    setenv("HOME", home, 1);
    snprintf(world.folder, sizeof(world.folder), "%.4000s/home/.cache", world.box.dir);
    for (int i = 0; i < 2; i++) { /* .cache is missing; .cache is the other user's */
        if (i == 1) {
            ck_assert_int_eq(mkdir(world.folder, 0700), 0);
            ck_assert_int_eq(chown(world.folder, 4321, 4321), 0);
        }
        ck_assert_int_eq(chown(home, 4321, 4321), 0);
        said[0] = '\0';
        begin(&world, &end);
        run(&world, end, 1);
        close_session(&world);
        ck_assert_uint_eq(count_files(&world, ""), 0);
        ck_assert_int_eq(access(world.folder, F_OK), i - 1);
        expect_said("the folder belongs to another user");
    }
    sim_box_done(&world.box);
}
END_TEST

SUITE_TIMEOUT("placer-cache-gpu", 120, costs_are_measured_kept_and_used,
              what_was_measured_is_kept_when_the_session_ends,
              costs_of_another_driver_or_device_are_not_used, steps_are_not_measured_by_default,
              steps_take_as_long_as_what_was_measured_says,
              a_spoilt_file_of_costs_is_ignored_and_said, a_plan_is_found_again_without_a_search,
              a_spoilt_plan_is_ignored_said_and_replaced, kept_plans_are_few,
              the_environment_names_the_folder, a_folder_that_others_write_to_is_not_used,
              root_writes_to_no_other_home)
