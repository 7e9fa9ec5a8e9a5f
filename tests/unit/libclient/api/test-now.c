/* SPDX-License-Identifier: Apache-2.0 */
/* Immediate mode and what is set for the process, on the CPU. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/error.h"
#include "libclient/allot/config.h"
#include "libclient/allot/custom.h"
#include "libclient/allot/log.h"
#include "libclient/allot/now.h"
#include "tests/support/suite.h"

static const float numbers[] = { 1, 2, 3, 4, 5, 6 };
static char lines[4096];
static _Thread_local struct allot_error err;

static void keep_line(void *userdata, enum allot_log_level level, const char *text) {
    /* What a driver that does not work has to say is not an op's. */
    if (level != ALLOT_LOG_INFO)
        return;
    ck_assert_uint_lt(strlen(lines) + strlen(text) + 2, sizeof(lines));
    strcat(strcat(lines, text), "\n");
}

static void alone(void) {
    setenv("ALLOT_SOCKET", "/nonexistent", 1);
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    allot_log_set(keep_line, NULL);
}

static struct allot_tensor *matrix(int64_t rows, int64_t columns) {
    struct allot_tensor *tensor;

    ck_assert_int_eq(
        allot_tensor_copy_of(&tensor, ALLOT_F32, 2, (int64_t[]){ rows, columns }, numbers, NULL),
        0);
    return tensor;
}

static void expect(struct allot_tensor *tensor, const char *wanted) {
    char text[256];

    ck_assert_str_eq(allot_tensor_format(tensor, text, sizeof(text)), wanted);
    allot_tensor_unref(tensor);
}

#define must(call)                                                                                 \
    do {                                                                                           \
        int must_r_ = call;                                                                        \
                                                                                                   \
        ck_assert_msg(must_r_ == 0, "%s", err.text);                                               \
    } while (0)

START_TEST(an_op_runs_at_once_and_says_where) {
    struct allot_tensor *a, *b, *c;

    alone();
    allot_set_log_device_placement(true);
    a = matrix(2, 3);
    b = matrix(3, 2);
    for (int i = 0; i < 2; i++) {
        must(allot_now_matmul(&c, a, b, &err));
        expect(c, "[[22 28] [49 64]]");
    }
    ck_assert_str_eq(
        lines, "Executing op MatMul in device /job:localhost/replica:0/task:0/device:CPU:0\n"
               "Executing op MatMul in device /job:localhost/replica:0/task:0/device:CPU:0\n");
    allot_set_log_device_placement(false);
    must(allot_now_matmul(&c, b, a, &err));
    expect(c, "[[9 12 15] [19 26 33] [29 40 51]]");
    must(allot_now_square(&c, a, &err));
    expect(c, "[[1 4 9] [16 25 36]]");
    allot_tensor_unref(a);
    allot_tensor_unref(b);
    allot_now_clear();
}
END_TEST

START_TEST(attributes_and_shapes_make_other_calls) {
    struct allot_tensor *a, *shape, *c;

    alone();
    a = matrix(2, 3);
    for (int64_t axis = 0; axis < 2; axis++) {
        struct allot_now_op *now = allot_now_begin("Sum");

        allot_now_input(now, a);
        allot_now_attr_ints(now, "axes", &axis, 1);
        must(allot_now_run(now, &c, 1, &err));
        expect(c, axis == 0 ? "[5 7 9]" : "[6 15]");
    }
    for (int64_t rows = 1; rows <= 6; rows += rows == 3 ? 3 : 1) {
        struct allot_tensor *inputs[2] = { a };
        char text[64];

        must(allot_tensor_copy_of(&shape, ALLOT_I64, 1, (int64_t[]){ 2 },
                                  (int64_t[]){ rows, 6 / rows }, &err));
        inputs[1] = shape;
        must(allot_now("Reshape", inputs, 2, &c, 1, &err));
        ck_assert_int_eq(allot_tensor_dim(c, 0), rows);
        ck_assert_int_eq(allot_tensor_count(c), 6);
        allot_tensor_format(c, text, sizeof(text));
        allot_tensor_unref(c);
        allot_tensor_unref(shape);
    }
    allot_tensor_unref(a);
    allot_now_clear();
}
END_TEST

START_TEST(more_kinds_than_are_kept) {
    struct allot_tensor *a, *c;

    alone();
    a = matrix(2, 3);
    for (int round = 0; round < 2; round++)
        for (int i = 1; i <= 200; i++) {
            struct allot_now_op *now = allot_now_begin("LeakyRelu");

            allot_now_input(now, a);
            allot_now_attr_float(now, "alpha", i);
            must(allot_now_run(now, &c, 1, &err));
            expect(c, "[[1 2 3] [4 5 6]]");
        }
    allot_tensor_unref(a);
    allot_now_clear();
}
END_TEST

/* Asked once when a kind is made: later calls of a shape that was seen have their plan. */
static int n_made;
static int counted_shape(struct allot_shapes *shapes, void *userdata) {
    n_made++;
    return allot_shapes_as_input(shapes, userdata);
}

static int counted(const struct allot_call *call, void *userdata) {
    memcpy(call->outputs[0].data, call->inputs[0].data, call->inputs[0].bytes);
    return 0;
}

/* Whether this call made a kind. */
static bool call_makes(struct allot_tensor *x, bool flag, const char *text, enum allot_dtype type,
                       int64_t number) {
    struct allot_now_op *now = allot_now_begin("Counted");
    struct allot_tensor *y;
    int before = n_made;

    allot_now_input(now, x);
    allot_now_attr_bool(now, "flag", flag);
    allot_now_attr_string(now, "text", text);
    allot_now_attr_type(now, "U", type);
    allot_now_attr_int(now, "number", number);
    must(allot_now_run(now, &y, 1, &err));
    allot_tensor_unref(y);
    return n_made != before;
}

START_TEST(a_kind_is_found_when_others_are_dropped) {
    static const struct allot_op_options options = {
        .size = sizeof(options),
        .name = "Counted",
        .signature = "(x: T) -> (y: T); T: {f32}; U: type; flag: bool; text: string; number: int",
        .shape = counted_shape,
        .compute = counted,
    };
    enum { KEPT = 128 };
    struct allot_tensor *x;

    alone();
    must(allot_op_register(&options, &err));
    x = matrix(2, 3);
    /* One that differs in a bool, a text or a type alone; softness is of the process. */
    for (int round = 0; round < 2; round++) {
        ck_assert(call_makes(x, false, "a", ALLOT_F32, 0) == !round);
        ck_assert(call_makes(x, true, "a", ALLOT_F32, 0) == !round);
        ck_assert(call_makes(x, false, "b", ALLOT_F32, 0) == !round);
        ck_assert(call_makes(x, false, "a", ALLOT_F64, 0) == !round);
        allot_set_soft_placement(true);
        ck_assert(call_makes(x, false, "a", ALLOT_F32, 0) == !round);
        allot_set_soft_placement(false);
    }
    /* Four are called all the while, and the first is not: it goes, and they stay. */
    for (int i = 1; i < KEPT; i++) {
        ck_assert(call_makes(x, false, "a", ALLOT_F32, i));
        ck_assert(!call_makes(x, true, "a", ALLOT_F32, 0));
        ck_assert(!call_makes(x, false, "b", ALLOT_F32, 0));
        ck_assert(!call_makes(x, false, "a", ALLOT_F64, 0));
    }
    ck_assert(call_makes(x, false, "a", ALLOT_F32, 0));
    /* Each new one drops the oldest alone. */
    for (int i = KEPT; i < 2 * KEPT; i++) {
        ck_assert(call_makes(x, false, "a", ALLOT_F32, i));
        for (int k = i - KEPT / 2; k <= i; k += 9)
            ck_assert_msg(!call_makes(x, false, "a", ALLOT_F32, k), "%d of %d", k, i);
    }
    allot_tensor_unref(x);
    allot_now_clear();
}
END_TEST

START_TEST(what_is_wrong_is_said_and_leaves_nothing_behind) {
    struct allot_tensor *a, *c = NULL, *two[2];

    alone();
    a = matrix(2, 3);
    two[0] = two[1] = a;
    ck_assert_int_eq(allot_now_matmul(&c, a, a, &err), -EINVAL);
    ck_assert_msg(strstr(err.text, "[2, 3]") != NULL, "%s", err.text);
    ck_assert_int_eq(allot_now("NoSuchOp", &a, 1, &c, 1, &err), -ENOENT);
    ck_assert_ptr_nonnull(strstr(err.text, "NoSuchOp"));
    ck_assert_int_eq(allot_now("Relu", two, 2, &c, 1, &err), -EINVAL);
    ck_assert_int_eq(allot_now("Relu", &a, 1, &c, 2, &err), -EINVAL);
    ck_assert_int_eq(allot_now("ReadVariable", &a, 1, &c, 1, &err), -EINVAL);
    two[1] = NULL;
    ck_assert_int_eq(allot_now("Add", two, 2, &c, 1, &err), -EINVAL);
    ck_assert_int_eq(allot_now_set_device("/task:x", &err), -EINVAL);
    ck_assert_ptr_null(c);

    must(allot_now_set_device("/gpu:7", &err));
    ck_assert_int_eq(allot_now_relu(&c, a, &err), -EINVAL);
    ck_assert_msg(strstr(err.text, "unknown device") != NULL, "%s", err.text);
    allot_set_soft_placement(true);
    must(allot_now_relu(&c, a, &err));
    expect(c, "[[1 2 3] [4 5 6]]");
    allot_set_soft_placement(false);
    ck_assert_int_eq(allot_now_relu(&c, a, &err), -EINVAL);
    must(allot_now_set_device(NULL, &err));
    must(allot_now_relu(&c, a, &err));
    expect(c, "[[1 2 3] [4 5 6]]");
    allot_tensor_unref(a);
    allot_now_clear();
}
END_TEST

static void *calls(void *argument) {
    struct allot_tensor *a = matrix(2, 3), *b = matrix(3, 2), *c;

    for (int i = 0; i < 200; i++) {
        must(allot_now_matmul(&c, a, b, &err));
        expect(c, "[[22 28] [49 64]]");
        must(allot_now_add(&c, a, a, &err));
        expect(c, "[[2 4 6] [8 10 12]]");
        if (argument && i % 50 == 0)
            allot_now_clear();
    }
    allot_tensor_unref(a);
    allot_tensor_unref(b);
    return NULL;
}

START_TEST(any_thread_calls_while_another_clears) {
    pthread_t threads[4];

    alone();
    for (size_t i = 0; i < ELEMENTSOF(threads); i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, calls, i == 0 ? lines : NULL), 0);
    for (size_t i = 0; i < ELEMENTSOF(threads); i++)
        pthread_join(threads[i], NULL);
    allot_now_clear();
}
END_TEST

START_TEST(the_child_of_a_fork_is_told) {
    struct allot_tensor *a, *c;
    int status;
    pid_t pid;

    alone();
    a = matrix(2, 3);
    must(allot_now_relu(&c, a, &err));
    allot_tensor_unref(c);
    pid = fork();
    if (pid == 0)
        _exit(allot_now_relu(&c, a, &err) == -ECHILD && strstr(err.text, "fork") ? 0 : 1);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    allot_tensor_unref(a);
    allot_now_clear();
}
END_TEST

START_TEST(sessions_take_what_was_set_for_the_process) {
    struct allot_session_options options = ALLOT_SESSION_OPTIONS_INIT;
    struct allot_session *session;
    struct allot_graph *graph;
    struct allot_output x = { 0 };
    struct allot_tensor *value;

    alone();
    must(allot_graph_new(&graph, &err));
    allot_with_device(graph, "/gpu:3") {
        x = allot_constant_f32(graph, "x", 2, (int64_t[]){ 2, 3 }, numbers);
    }
    must(allot_session_new(&session, graph, NULL, &err));
    ck_assert_int_eq(allot_session_run(session, NULL, NULL, 0, &x, 1, NULL, 0, &value, &err),
                     -EINVAL);
    allot_session_free(session);
    ck_assert_str_eq(lines, "");

    allot_set_soft_placement(true);
    allot_set_log_device_placement(true);
    must(allot_session_new(&session, graph, &options, &err));
    must(allot_session_run(session, NULL, NULL, 0, &x, 1, NULL, 0, &value, &err));
    expect(value, "[[1 2 3] [4 5 6]]");
    ck_assert_ptr_nonnull(
        strstr(lines, "x: (Const): /job:localhost/replica:0/task:0/device:CPU:0"));
    allot_session_free(session);
    ck_assert_int_eq(allot_set_memory_fraction(1.5, &err), -EINVAL);
    ck_assert_int_eq(allot_set_memory_fraction(-1, &err), -EINVAL);
    must(allot_set_memory_fraction(0.25, &err));
    allot_graph_unref(graph);
}
END_TEST

START_TEST(without_a_gpu_there_is_the_cpu) {
    struct allot_device devices[4];

    alone();
    ck_assert_uint_eq(allot_devices(devices, 4), 1);
    ck_assert(!allot_gpu_available());
    ck_assert_str_eq(devices[0].name, "/job:localhost/replica:0/task:0/device:CPU:0");
    ck_assert_str_eq(devices[0].type, "CPU");
    ck_assert_uint_gt(devices[0].memory_limit, 0);
}
END_TEST

SUITE_TIMEOUT("now", 120, an_op_runs_at_once_and_says_where, attributes_and_shapes_make_other_calls,
              more_kinds_than_are_kept, a_kind_is_found_when_others_are_dropped,
              what_is_wrong_is_said_and_leaves_nothing_behind,
              any_thread_calls_while_another_clears, the_child_of_a_fork_is_told,
              sessions_take_what_was_set_for_the_process, without_a_gpu_there_is_the_cpu)
