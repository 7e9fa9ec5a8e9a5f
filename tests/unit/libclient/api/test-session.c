/* SPDX-License-Identifier: Apache-2.0 */
/* What allot/session.h promises, through that header alone. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "base/json.h"
#include "libclient/allot/custom.h"
#include "libclient/allot/log.h"
#include "libclient/allot/ops.h"
#include "libclient/allot/session.h"
#include "tests/support/suite.h"

static _Thread_local struct allot_error err;

#define must(call)                                                                                 \
    do {                                                                                           \
        int must_r_ = call;                                                                        \
                                                                                                   \
        ck_assert_msg(must_r_ == 0, "%s", err.text);                                               \
    } while (0)

/* A graph that adds one to a vector, and a counter. */
struct bench {
    struct allot_graph *graph;
    struct allot_output x, y, counter, raised;
    struct allot_node *init;
    struct allot_session *session;
};

static void bench_open(struct bench *bench) {
    setenv("ALLOT_SOCKET", "/nonexistent", 1);
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    must(allot_graph_new(&bench->graph, &err));
    bench->x = allot_placeholder(bench->graph, "x", ALLOT_F32, 1, (int64_t[]){ -1 });
    bench->y = allot_add(bench->x, allot_scalar(bench->graph, ALLOT_F32, 1));
    bench->counter =
        allot_variable(bench->graph, "counter", allot_scalar(bench->graph, ALLOT_F32, 0));
    bench->raised = allot_assign_add(bench->counter, allot_scalar(bench->graph, ALLOT_F32, 1));
    bench->init = allot_initializer(bench->graph);
    must(allot_graph_error(bench->graph, &err));
    must(allot_session_new(&bench->session, bench->graph, NULL, &err));
    must(allot_session_run(bench->session, NULL, NULL, 0, NULL, 0, &bench->init, 1, NULL, &err));
}

static void bench_close(struct bench *bench) {
    allot_session_free(bench->session);
    allot_graph_unref(bench->graph);
}

static struct allot_tensor *vector(int64_t n) {
    struct allot_tensor *tensor;

    must(allot_tensor_new(&tensor, ALLOT_F32, 1, &n, &err));
    return tensor;
}

static float number(struct allot_session *session, struct allot_output output) {
    struct allot_tensor *tensor;
    float value;

    must(allot_session_run(session, NULL, NULL, 0, &output, 1, NULL, 0, &tensor, &err));
    value = *(float *)allot_tensor_data(tensor);
    allot_tensor_unref(tensor);
    return value;
}

enum { N_THREADS = 4, N_RUNS = 100 };

static void *run_often(void *argument) {
    struct bench *bench = argument;

    for (int i = 0; i < N_RUNS; i++) {
        struct allot_output fetches[] = { bench->y, bench->raised };
        struct allot_tensor *fed = vector(1 + i % 3), *values[2];

        must(allot_session_run(bench->session, &bench->x, &fed, 1, fetches, 2, NULL, 0, values,
                               &err));
        ck_assert_int_eq(allot_tensor_count(values[0]), 1 + i % 3);
        ck_assert(((float *)allot_tensor_data(values[0]))[i % 3] == 1);
        for (int j = 0; j < 2; j++)
            allot_tensor_unref(values[j]);
        allot_tensor_unref(fed);
    }
    return NULL;
}

START_TEST(many_threads_run_one_session) {
    pthread_t threads[N_THREADS];
    struct bench bench;

    bench_open(&bench);
    for (int i = 0; i < N_THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, run_often, &bench), 0);
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    ck_assert(number(bench.session, allot_read(bench.counter)) == N_THREADS * N_RUNS);
    bench_close(&bench);
}
END_TEST

static int in_child(struct bench *bench, struct allot_callable *callable) {
    struct allot_tensor *fed, *value = NULL;
    int64_t n = 1;

    if (allot_tensor_new(&fed, ALLOT_F32, 1, &n, &err) < 0)
        return 1;
    if (allot_session_run(bench->session, &bench->x, &fed, 1, &bench->y, 1, NULL, 0, &value,
                          &err) != -ECHILD ||
        !strstr(err.text, "fork"))
        return 2;
    if (allot_callable_run(callable, NULL, &fed, &value, &err) != -ECHILD || value)
        return 3;
    allot_callable_free(callable);
    allot_session_free(bench->session);
    return 0;
}

START_TEST(a_fork_is_told_and_the_parent_goes_on) {
    struct allot_callable *callable;
    struct allot_tensor *fed, *value;
    struct bench bench;
    int status;
    pid_t pid;

    bench_open(&bench);
    must(allot_callable_new(&callable, bench.session, &bench.x, 1, &bench.y, 1, NULL, 0, &err));
    pid = fork();
    if (pid == 0)
        _exit(in_child(&bench, callable));
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    fed = vector(2);
    must(allot_callable_run(callable, NULL, &fed, &value, &err));
    allot_tensor_unref(value);
    allot_tensor_unref(fed);
    allot_callable_free(callable);
    bench_close(&bench);
}
END_TEST

START_TEST(options_of_an_older_caller_end_where_it_says) {
    const size_t older = offsetof(struct allot_session_options, per_session_threads);
    struct allot_session_options whole = ALLOT_SESSION_OPTIONS_INIT;
    void *options = malloc(older);
    struct allot_session *session = NULL;
    struct bench bench;

    bench_open(&bench);
    whole.size = older;
    whole.inter_op_threads = 1;
    memcpy(options, &whole, older); /* a sanitizer reports a read past these */
    must(allot_session_new(&session, bench.graph, options, &err));
    session = allot_session_free(session);
    free(options);

    for (size_t size = 0; size < sizeof(size_t); size++) {
        whole.size = size;
        ck_assert_int_eq(allot_session_new(&session, bench.graph, &whole, &err), -EINVAL);
    }
    whole.size = sizeof(whole) + 1;
    ck_assert_int_eq(allot_session_new(&session, bench.graph, &whole, &err), -EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "session options"));
    whole.size = sizeof(whole);
    whole.memory_fraction = 2;
    ck_assert_int_eq(allot_session_new(&session, bench.graph, &whole, &err), -EINVAL);
    whole.memory_fraction = 0;
    whole.placer = (enum allot_placer)7;
    ck_assert_int_eq(allot_session_new(&session, bench.graph, &whole, &err), -EINVAL);
    ck_assert_msg(strstr(err.text, "no placer 7") != NULL, "%s", err.text);
    ck_assert_ptr_null(session);
    bench_close(&bench);
}
END_TEST

START_TEST(metadata_says_what_a_run_was) {
    const size_t older = offsetof(struct allot_run_metadata, step_bytes);
    struct allot_run_metadata metadata = { .size = sizeof(metadata) };
    struct allot_run_options options = ALLOT_RUN_OPTIONS_INIT;
    struct allot_callable *callable;
    struct allot_tensor *fed, *value;
    struct bench bench;

    bench_open(&bench);
    must(allot_callable_new(&callable, bench.session, &bench.x, 1, &bench.y, 1, NULL, 0, &err));
    options.metadata = &metadata;
    for (int i = 0; i < 4; i++) {
        fed = vector(1 + i / 2);
        must(allot_callable_run(callable, &options, &fed, &value, &err));
        ck_assert_uint_eq(metadata.n_kernels, 1);
        ck_assert_uint_eq(metadata.was_planned, i % 2 == 0);
        allot_tensor_unref(value);
        allot_tensor_unref(fed);
    }
    memset(&metadata, 0x55, sizeof(metadata));
    metadata.size = older;
    fed = vector(1);
    must(allot_callable_run(callable, &options, &fed, &value, &err));
    ck_assert_uint_eq(metadata.n_kernels, 1);
    ck_assert_uint_eq(metadata.step_bytes, 0x5555555555555555);
    allot_tensor_unref(value);
    metadata.size = sizeof(metadata) + 8;
    ck_assert_int_eq(allot_callable_run(callable, &options, &fed, &value, &err), -EINVAL);
    allot_tensor_unref(fed);
    allot_callable_free(callable);
    bench_close(&bench);
}
END_TEST

/* How many events of the trace are of this op on the CPU, and how many devices are named. */
static void count_events(char *text, size_t n, const char *op, int *ret_events, int *ret_names) {
    struct json_reader reader;
    char *name, *value;
    size_t ignored;

    json_reader_init(&reader, text, n);
    ck_assert_int_eq(json_enter(&reader, JSON_OBJECT), 0);
    while (json_next_member(&reader, &name, &ignored) > 0) {
        if (strcmp(name, "traceEvents") != 0) {
            ck_assert_int_eq(json_skip(&reader, NULL, NULL), 0);
            continue;
        }
        ck_assert_int_eq(json_enter(&reader, JSON_ARRAY), 0);
        while (json_next_element(&reader) > 0) {
            bool is_event = false, is_named = false;

            ck_assert_int_eq(json_enter(&reader, JSON_OBJECT), 0);
            while (json_next_member(&reader, &name, &ignored) > 0)
                if (strcmp(name, "name") == 0 || strcmp(name, "cat") == 0) {
                    bool is_category = strcmp(name, "cat") == 0;

                    ck_assert_int_eq(json_read_string(&reader, &value, NULL), 0);
                    is_event |= is_category && strcmp(value, op) == 0;
                    is_named |= !is_category && strcmp(value, "process_name") == 0;
                } else
                    ck_assert_int_eq(json_skip(&reader, NULL, NULL), 0);
            *ret_events += is_event;
            *ret_names += is_named;
        }
    }
    ck_assert_int_eq(json_finish(&reader), 0);
}

START_TEST(a_trace_is_json_with_a_row_for_each_op) {
    char path[] = "/tmp/allot-trace.XXXXXX", *text;
    struct allot_run_options options = ALLOT_RUN_OPTIONS_INIT;
    struct allot_callable *callable;
    struct allot_tensor *fed, *value;
    int n_events = 0, n_names = 0;
    struct allot_output y;
    struct bench bench;
    FILE *file;
    size_t n;

    bench_open(&bench);
    y = allot_mul(allot_mul(bench.y, bench.y), bench.x);
    must(allot_callable_new(&callable, bench.session, &bench.x, 1, &y, 1, NULL, 0, &err));
    close(mkstemp(path));
    options.trace_file = path;
    fed = vector(3);
    must(allot_callable_run(callable, &options, &fed, &value, &err));
    allot_tensor_unref(value);

    text = malloc(1 << 16);
    file = fopen(path, "re");
    n = fread(text, 1, 1 << 16, file);
    fclose(file);
    unlink(path);
    count_events(text, n, "Mul", &n_events, &n_names);
    ck_assert_int_eq(n_events, 2);
    ck_assert_int_eq(n_names, 1);
    free(text);

    options.trace_file = "/nonexistent/trace.json";
    ck_assert_int_eq(allot_callable_run(callable, &options, &fed, &value, &err), -ENOENT);
    ck_assert_ptr_nonnull(strstr(err.text, "/nonexistent/trace.json"));
    allot_tensor_unref(fed);
    allot_callable_free(callable);
    bench_close(&bench);
}
END_TEST

/* An op that says when it has begun and waits for leave, and one that takes its time. */
static sem_t begun, leave;

static int wait_compute(const struct allot_call *call, void *userdata) {
    sem_post(&begun);
    while (sem_wait(&leave) < 0)
        ;
    return 0;
}

static int slow_compute(const struct allot_call *call, void *userdata) {
    nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    return 0;
}

static struct allot_output custom(struct allot_graph *graph, const char *op,
                                  struct allot_output x) {
    struct allot_op *builder = allot_op_begin(graph, op, NULL);
    struct allot_node *node;

    allot_op_input(builder, x);
    must(allot_op_finish(builder, &node, &err));
    return (struct allot_output){ node, 0 };
}

static void register_ops(void) {
    struct allot_op_options wait = { .size = sizeof(wait),
                                     .name = "Wait",
                                     .signature = "(x: f32) -> (y: f32)",
                                     .shape = allot_shapes_as_input,
                                     .compute = wait_compute,
                                     .stateful = true };
    struct allot_op_options slow = wait;

    slow.name = "Slow";
    slow.compute = slow_compute;
    must(allot_op_register(&wait, &err));
    must(allot_op_register(&slow, &err));
    sem_init(&begun, 0, 0);
    sem_init(&leave, 0, 0);
}

struct errand {
    struct allot_callable *callable;
    struct allot_cancel *cancel;
    int r;
    struct allot_error err;
};

static void *run_errand(void *argument) {
    struct allot_run_options options = ALLOT_RUN_OPTIONS_INIT;
    struct errand *errand = argument;
    struct allot_tensor *fed = vector(1), *value = NULL;

    options.cancel = errand->cancel;
    errand->r = allot_callable_run(errand->callable, &options, &fed, &value, &errand->err);
    allot_tensor_unref(value);
    allot_tensor_unref(fed);
    return NULL;
}

START_TEST(a_run_is_cancelled_from_another_thread) {
    struct errand errand = { 0 };
    struct allot_output y;
    struct bench bench;
    pthread_t thread;

    bench_open(&bench);
    register_ops();
    y = allot_add(custom(bench.graph, "Wait", bench.x), bench.x);
    must(allot_callable_new(&errand.callable, bench.session, &bench.x, 1, &y, 1, NULL, 0, &err));
    must(allot_cancel_new(&errand.cancel, &err));
    ck_assert_int_eq(pthread_create(&thread, NULL, run_errand, &errand), 0);
    while (sem_wait(&begun) < 0)
        ;
    allot_cancel_now(errand.cancel);
    sem_post(&leave);
    pthread_join(thread, NULL);
    ck_assert_int_eq(errand.r, -ECANCELED);
    ck_assert_ptr_nonnull(strstr(errand.err.text, "cancelled"));

    /* Those that come later are stopped too; others are not. */
    sem_post(&leave);
    run_errand(&errand);
    ck_assert_int_eq(errand.r, -ECANCELED);
    errand.cancel = allot_cancel_free(errand.cancel);
    sem_post(&leave);
    run_errand(&errand);
    ck_assert_int_eq(errand.r, 0);
    allot_callable_free(errand.callable);
    bench_close(&bench);
}
END_TEST

START_TEST(a_run_that_takes_too_long_is_ended) {
    struct allot_run_options options = ALLOT_RUN_OPTIONS_INIT;
    struct allot_callable *callable;
    struct allot_tensor *fed, *value = NULL;
    struct allot_output y;
    struct bench bench;

    bench_open(&bench);
    register_ops();
    y = bench.x;
    /* Far more than the time limit: however late the clock is looked at, there is more to do. */
    for (int i = 0; i < 20000; i++)
        y = custom(bench.graph, "Slow", y);
    must(allot_callable_new(&callable, bench.session, &bench.x, 1, &y, 1, NULL, 0, &err));
    fed = vector(1);
    options.timeout_usec = 1000;
    ck_assert_int_eq(allot_callable_run(callable, &options, &fed, &value, &err), -ETIMEDOUT);
    ck_assert_ptr_nonnull(strstr(err.text, "longer than 1000 us"));
    ck_assert_ptr_null(value);
    allot_tensor_unref(fed);
    allot_callable_free(callable);
    bench_close(&bench);
}
END_TEST

static float random_of(struct allot_graph *graph, struct allot_output x, uint64_t seed) {
    struct allot_session_options options = ALLOT_SESSION_OPTIONS_INIT;
    struct allot_session *session;
    float value;

    options.random_seed = seed;
    must(allot_session_new(&session, graph, &options, &err));
    value = number(session, x);
    allot_session_free(session);
    return value;
}

START_TEST(seeds_are_those_of_the_op_the_graph_or_the_session) {
    struct allot_output own, open;
    struct bench bench;
    float value;

    bench_open(&bench);
    own = allot_random_uniform(bench.graph, ALLOT_F32, 0, NULL, 0, 1, 7);
    open = allot_random_uniform(bench.graph, ALLOT_F32, 0, NULL, 0, 1, 0);
    ck_assert(random_of(bench.graph, own, 0) == random_of(bench.graph, own, 5));
    ck_assert(random_of(bench.graph, open, 5) == random_of(bench.graph, open, 5));
    ck_assert(random_of(bench.graph, open, 5) != random_of(bench.graph, open, 6));
    ck_assert(random_of(bench.graph, open, 0) != random_of(bench.graph, open, 0));
    value = random_of(bench.graph, open, 5);
    allot_graph_set_seed(bench.graph, 11);
    ck_assert(random_of(bench.graph, open, 5) == random_of(bench.graph, open, 0));
    ck_assert(random_of(bench.graph, open, 5) != value);
    bench_close(&bench);
}
END_TEST

START_TEST(what_is_wrong_is_said) {
    struct allot_tensor *fed, *wrong, *value = NULL;
    struct allot_graph *other;
    struct allot_output fresh, alien;
    struct bench bench;

    bench_open(&bench);
    ck_assert_int_eq(
        allot_session_run(bench.session, NULL, NULL, 0, &bench.y, 1, NULL, 0, &value, &err),
        -EINVAL);
    ck_assert_msg(strstr(err.text, "'x'") != NULL, "%s", err.text);
    must(allot_tensor_new(&wrong, ALLOT_I32, 1, (int64_t[]){ 2 }, &err));
    ck_assert_int_eq(
        allot_session_run(bench.session, &bench.x, &wrong, 1, &bench.y, 1, NULL, 0, &value, &err),
        -EINVAL);
    ck_assert_msg(strstr(err.text, "i32") && strstr(err.text, "f32"), "%s", err.text);
    allot_tensor_unref(wrong);

    fresh = allot_variable(bench.graph, "fresh", allot_scalar(bench.graph, ALLOT_F32, 1));
    fresh = allot_read(fresh);
    ck_assert_int_eq(
        allot_session_run(bench.session, NULL, NULL, 0, &fresh, 1, NULL, 0, &value, &err),
        -ENODATA);
    ck_assert_msg(strstr(err.text, "fresh") != NULL, "%s", err.text);

    must(allot_graph_new(&other, &err));
    alien = allot_scalar(other, ALLOT_F32, 1);
    ck_assert_int_eq(
        allot_session_run(bench.session, NULL, NULL, 0, &alien, 1, NULL, 0, &value, &err), -EINVAL);
    ck_assert_msg(strstr(err.text, "another graph") != NULL, "%s", err.text);
    ck_assert_int_eq(allot_session_run(bench.session, NULL, NULL, 0, NULL, 0,
                                       &(struct allot_node *){ NULL }, 1, NULL, &err),
                     -EINVAL);
    ck_assert_str_eq(err.text, "target 0 is not a node: NULL was given");
    allot_graph_unref(other);
    fed = vector(2);
    must(allot_session_run(bench.session, &bench.x, &fed, 1, &bench.y, 1, NULL, 0, &value, &err));
    allot_tensor_unref(value);
    allot_tensor_unref(fed);
    bench_close(&bench);
}
END_TEST

static void keep_line(void *userdata, enum allot_log_level level, const char *text) {
    ck_assert_int_eq(level, ALLOT_LOG_INFO);
    snprintf(userdata, 128, "%s", text);
}

START_TEST(what_is_printed_goes_through_the_log) {
    struct bench bench;
    char line[128] = "";

    bench_open(&bench);
    allot_log_set(keep_line, line);
    number(bench.session, allot_print(allot_scalar(bench.graph, ALLOT_F32, 2.5), "it is "));
    allot_log_set(NULL, NULL);
    ck_assert_str_eq(line, "it is [2.5]");
    bench_close(&bench);
}
END_TEST

START_TEST(what_the_host_has_no_memory_for_is_named) {
    const int64_t dims[] = { 1000000000, 1000000 };
    struct allot_tensor *tensor;
    struct allot_output zeros;
    struct bench bench;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    printf("skipped: sanitizers end a program that asks for so much\n");
    return;
#endif
    bench_open(&bench);
    allot_name_next(bench.graph, "far");
    zeros = allot_filled(bench.graph, ALLOT_F32, 2, dims, 1);
    ck_assert_int_eq(
        allot_session_run(bench.session, NULL, NULL, 0, &zeros, 1, NULL, 0, &tensor, &err),
        -ENOMEM);
    ck_assert_msg(strstr(err.text, "'far' (Fill): ") == err.text, "%s", err.text);
    bench_close(&bench);
}
END_TEST

/*
 * Lengths whose product exceeds 64 bits, and no elements: UBSan reports a multiplication of them.
 */
START_TEST(tensors_without_elements_may_be_of_any_length) {
    const int64_t dims[] = { INT64_MAX, INT64_MAX, 0 }, ends[] = { -1, -1, -1 };
    const int64_t begins[] = { 7, INT64_MAX - 1, 0 };
    struct allot_output c, fetches[6];
    struct allot_tensor *tensor, *values[6];
    struct bench bench;

    bench_open(&bench);
    must(allot_tensor_new(&tensor, ALLOT_F64, 3, dims, &err));
    c = allot_const(bench.graph, "c", tensor);
    allot_tensor_unref(tensor);
    fetches[0] = allot_neg(c);
    fetches[1] = allot_transpose(c, NULL, 0);
    fetches[2] = allot_add(c, allot_scalar(bench.graph, ALLOT_F64, 1));
    fetches[3] = allot_slice(c, begins, ends, 3);
    fetches[4] = allot_concat((struct allot_output[]){ c, c }, 2, 2);
    fetches[5] = allot_sum(c);
    must(allot_graph_error(bench.graph, &err));
    must(allot_session_run(bench.session, NULL, NULL, 0, fetches, 6, NULL, 0, values, &err));
    for (int i = 0; i < 6; i++) {
        ck_assert_uint_eq(allot_tensor_bytes(values[i]), i < 5 ? 0 : 8);
        allot_tensor_unref(values[i]);
    }
    bench_close(&bench);
}
END_TEST

SUITE_TIMEOUT("session", 120, many_threads_run_one_session, a_fork_is_told_and_the_parent_goes_on,
              options_of_an_older_caller_end_where_it_says, metadata_says_what_a_run_was,
              a_trace_is_json_with_a_row_for_each_op, a_run_is_cancelled_from_another_thread,
              a_run_that_takes_too_long_is_ended,
              seeds_are_those_of_the_op_the_graph_or_the_session, what_is_wrong_is_said,
              what_is_printed_goes_through_the_log, what_the_host_has_no_memory_for_is_named,
              tensors_without_elements_may_be_of_any_length)
