/* SPDX-License-Identifier: Apache-2.0 */
/* Traces of runs on GPUs of a simulated box: what stands on which row, and whose time it is. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "libclient/allot/log.h"
#include "libclient/core/tensor.h"
#include "libclient/device/gpu.h"
#include "libclient/exec/stop/cancel.h"
#include "tests/support/libclient/exec/engine/gpu_fixture.h"
#include "tests/support/suite.h"

enum { COUNT = 200000, SPANS_MAX = 1000 };

struct span {
    char name[64], category[16], op[16];
    int pid, tid;
    double begin_usec, took_usec;
};

struct reading {
    struct span spans[SPANS_MAX];
    int n;
    char rows[3][64];              /* names of the devices, by pid */
    char outcome[64], reason[512]; /* of the run */
    int n_failed, n_unfinished;    /* spans that are marked so */
    bool is_cut;                   /* there is a line where the run ended early */
};

/* Numbers have parts of their own: they are read as text. */
static double number(struct json_reader *reader) {
    char *text, end;
    size_t n;
    double value;

    ck_assert_int_eq(json_skip(reader, &text, &n), 0);
    end = text[n];
    text[n] = '\0';
    value = strtod(text, NULL);
    text[n] = end;
    return value;
}

/* What an event says besides: the name of a row, or an op. */
static void read_args(struct json_reader *reader, char name[static 64], struct reading *ret) {
    char *member, *value;
    size_t ignored;

    ck_assert_int_eq(json_enter(reader, JSON_OBJECT), 0);
    while (json_next_member(reader, &member, &ignored) > 0)
        if (strcmp(member, "failed") == 0 || strcmp(member, "unfinished") == 0) {
            *(member[0] == 'f' ? &ret->n_failed : &ret->n_unfinished) += 1;
            ck_assert_int_eq(json_skip(reader, NULL, NULL), 0);
        } else if (strcmp(member, "name") == 0 || strcmp(member, "op") == 0) {
            ck_assert_int_eq(json_read_string(reader, &value, NULL), 0);
            snprintf(name, 64, "%s", value);
        } else
            ck_assert_int_eq(json_skip(reader, NULL, NULL), 0);
}

static void read_event(struct json_reader *reader, struct reading *ret) {
    struct span span = { .pid = -1 };
    char *member, *value, kind = 0, arg[64] = "";
    size_t ignored;

    ck_assert_int_eq(json_enter(reader, JSON_OBJECT), 0);
    while (json_next_member(reader, &member, &ignored) > 0)
        if (strcmp(member, "ph") == 0 || strcmp(member, "name") == 0 ||
            strcmp(member, "cat") == 0) {
            char first = member[0];

            ck_assert_int_eq(json_read_string(reader, &value, NULL), 0);
            if (first == 'p')
                kind = value[0];
            else
                snprintf(first == 'n' ? span.name : span.category,
                         first == 'n' ? sizeof(span.name) : sizeof(span.category), "%s", value);
        } else if (strcmp(member, "pid") == 0)
            span.pid = (int)number(reader);
        else if (strcmp(member, "tid") == 0)
            span.tid = (int)number(reader);
        else if (strcmp(member, "ts") == 0)
            span.begin_usec = number(reader);
        else if (strcmp(member, "dur") == 0)
            span.took_usec = number(reader);
        else if (strcmp(member, "args") == 0)
            read_args(reader, arg, ret);
        else
            ck_assert_int_eq(json_skip(reader, NULL, NULL), 0);
    snprintf(span.op, sizeof(span.op), "%.15s", arg);
    ret->is_cut |= kind == 'i';
    if (kind == 'X' && ret->n < SPANS_MAX)
        ret->spans[ret->n++] = span;
    if (kind == 'M' && strcmp(span.name, "process_name") == 0 && span.pid < 3)
        snprintf(ret->rows[span.pid], sizeof(ret->rows[0]), "%s", arg);
}

static void read_outcome(struct json_reader *reader, struct reading *ret) {
    char *member, *value;
    size_t ignored;

    ck_assert_int_eq(json_enter(reader, JSON_OBJECT), 0);
    while (json_next_member(reader, &member, &ignored) > 0)
        if (strcmp(member, "code") == 0)
            ck_assert_int_eq(json_skip(reader, NULL, NULL), 0);
        else {
            bool is_reason = strcmp(member, "reason") == 0;

            ck_assert_int_eq(json_read_string(reader, &value, NULL), 0);
            if (is_reason)
                snprintf(ret->reason, sizeof(ret->reason), "%s", value);
            else
                snprintf(ret->outcome, sizeof(ret->outcome), "%s", value);
        }
}

static void read_trace(const char *path, struct reading *ret) {
    char *text = malloc(1 << 20), *member;
    FILE *file = fopen(path, "re");
    struct json_reader reader;
    size_t n, ignored;

    ck_assert(text && file);
    *ret = (struct reading){ .n = 0 };
    n = fread(text, 1, (1 << 20) - 1, file);
    fclose(file);
    json_reader_init(&reader, text, n);
    ck_assert_int_eq(json_enter(&reader, JSON_OBJECT), 0);
    while (json_next_member(&reader, &member, &ignored) > 0) {
        if (strcmp(member, "otherData") == 0) {
            read_outcome(&reader, ret);
            continue;
        }
        if (strcmp(member, "traceEvents") != 0) {
            ck_assert_int_eq(json_skip(&reader, NULL, NULL), 0);
            continue;
        }
        ck_assert_int_eq(json_enter(&reader, JSON_ARRAY), 0);
        while (json_next_element(&reader) > 0)
            read_event(&reader, ret);
    }
    ck_assert_int_eq(json_finish(&reader), 0);
    free(text);
}

/* The only span of that node, which is a Next, and category. */
static const struct span *find(const struct gpu_fixture *fixture, const struct reading *reading,
                               struct edge edge, const char *category) {
    const char *name = graph_node(fixture->graph, edge.node)->name;
    const struct span *found = NULL;

    for (int i = 0; i < reading->n; i++) {
        const struct span *span = &reading->spans[i];

        if (strcmp(span->name, name) != 0 || strcmp(span->category, category) != 0 ||
            strcmp(span->op, "Next") != 0)
            continue;
        ck_assert_msg(!found, "'%s' (%s) stands twice in the trace", name, category);
        found = span;
    }
    ck_assert_msg(found, "'%s' (%s) is not in the trace", name, category);
    return found;
}

/* Over the file of some run before. */
static int try_to_file(struct gpu_fixture *fixture, const struct engine_call *call,
                       struct cancel *cancel, struct allot_tensor *fed,
                       struct allot_tensor **tensors, struct reading *ret) {
    static const char old[] = "{\"traceEvents\":[{\"ph\":\"X\",\"name\":\"old\"}]}";
    char path[] = "/tmp/allot-trace.XXXXXX";
    struct engine_run run = { .trace_file = path, .cancel = cancel };
    int r, fd = mkstemp(path);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, old, strlen(old)), (int)strlen(old));
    close(fd);
    r = engine_run(fixture->engine, call, &run, &fed, tensors, &fixture->err);
    read_trace(path, ret);
    unlink(path);
    for (int i = 0; i < ret->n; i++)
        ck_assert_str_ne(ret->spans[i].name, "old");
    return r;
}

static void run_to_file(struct gpu_fixture *fixture, struct edge x, struct allot_tensor *fed,
                        const struct edge *y, uint32_t n, struct allot_tensor **tensors,
                        struct reading *ret) {
    const struct engine_call call = { &x, 1, y, n, NULL, 0 };
    int r = try_to_file(fixture, &call, NULL, fed, tensors, ret);

    ck_assert_msg(r == 0, "%s", fixture->err.text);
    ck_assert_str_eq(ret->outcome, "done");
    ck_assert(ret->n_failed == 0 && ret->n_unfinished == 0 && !ret->is_cut);
}

static void run_traced(struct gpu_fixture *fixture, struct edge x, struct edge y,
                       struct reading *ret) {
    struct allot_tensor *fed = numbers(COUNT), *tensor;

    run_to_file(fixture, x, fed, &y, 1, &tensor, ret);
    ck_assert_float_eq(((float *)tensor_data(tensor))[1], 6);
    allot_tensor_unref(tensor);
    allot_tensor_unref(fed);
}

static double end_of(const struct span *span) {
    return span->begin_usec + span->took_usec;
}

START_TEST(ops_stand_on_the_rows_of_their_gpus_with_its_times) {
    static const char *const devices[] = { "/gpu:0", "/gpu:0", "/gpu:1", "/cpu:0", "/gpu:1" };
    static const int pids[] = { 1, 1, 2, 0, 2 };
    static struct reading reading;
    struct gpu_fixture fixture;

    gpu_fixture_open(&fixture, SIM_LIB_DIR);
    for (unsigned threads = 1; threads <= 3; threads++) {
        double took_usec[5] = { 0 };
        struct edge x, y[5];

        gpu_fixture_session_open(&fixture, threads);
        x = source(&fixture, "Placeholder", NULL, COUNT);
        for (int i = 0; i < 5; i++)
            y[i] = next(&fixture, devices[i], i ? y[i - 1] : x);
        for (int round = 0; round < 3; round++) {
            int n_fetches = 0;

            run_traced(&fixture, x, y[4], &reading);
            for (int i = 0; i < 5; i++) {
                const struct span *span = find(&fixture, &reading, y[i], "Next"), *queued;

                ck_assert_int_eq(span->pid, pids[i]);
                ck_assert_msg(strstr(reading.rows[pids[i]], devices[i] + 1 + 3), "%s",
                              reading.rows[pids[i]]);
                if (pids[i] == 0)
                    continue;
                ck_assert_int_eq(span->tid, GPU_COMPUTE);
                queued = find(&fixture, &reading, y[i], "Queue");
                ck_assert_int_eq(queued->pid, 0);
                /* A GPU of a simulated box takes the same time again and again, no host does; the
                 * trace has nanoseconds, and the driver counts in parts of a millisecond. */
                ck_assert_double_gt(span->took_usec, 0.1);
                if (round > 0)
                    ck_assert_msg(span->took_usec > took_usec[i] - 0.2 &&
                                      span->took_usec < took_usec[i] + 0.2,
                                  "%g us, then %g us", took_usec[i], span->took_usec);
                took_usec[i] = span->took_usec;
            }
            ck_assert_double_ge(find(&fixture, &reading, y[1], "Next")->begin_usec + 0.2,
                                end_of(find(&fixture, &reading, y[0], "Next")));
            for (int i = 0; i < reading.n; i++) {
                const struct span *span = &reading.spans[i];

                ck_assert_double_ge(span->begin_usec, 0);
                if (strcmp(span->category, "Copy") != 0)
                    continue;
                ck_assert(span->pid > 0 && span->tid != GPU_COMPUTE);
                n_fetches += span->pid == 2 && span->tid == GPU_PAGEABLE_TO_HOST;
            }
            ck_assert_int_eq(n_fetches, 1);
        }
        gpu_fixture_session_close(&fixture);
    }
    gpu_fixture_close(&fixture);
}
END_TEST

static int by_row_and_time(const void *a, const void *b) {
    const struct span *x = a, *y = b;

    return x->pid != y->pid   ? x->pid - y->pid
           : x->tid != y->tid ? x->tid - y->tid
                              : (x->begin_usec > y->begin_usec) - (x->begin_usec < y->begin_usec);
}

/* What stands on one row follows upon another; the text has nanoseconds. */
static void check_rows(struct reading *reading) {
    qsort(reading->spans, (size_t)reading->n, sizeof(struct span), by_row_and_time);
    for (int i = 1; i < reading->n; i++) {
        const struct span *span = &reading->spans[i], *before = span - 1;

        if (before->pid == span->pid && before->tid == span->tid)
            ck_assert_msg(end_of(before) <= span->begin_usec + 0.0005,
                          "'%s' (%s) from %.3f to %.3f us, '%s' (%s) from %.3f us, on row %d of %d",
                          before->name, before->category, before->begin_usec, end_of(before),
                          span->name, span->category, span->begin_usec, span->tid, span->pid);
    }
}

START_TEST(ops_of_a_row_never_overlap_however_many_threads_queue_them) {
    enum { CHAINS = 24, LENGTH = 4, ROUNDS = 3 };
    static struct reading reading;
    struct gpu_fixture fixture;

    gpu_fixture_open(&fixture, SIM_LIB_DIR);
    for (unsigned threads = 1; threads <= 8; threads++) {
        struct edge x, y[CHAINS];
        struct allot_tensor *fed = numbers(64), *tensors[CHAINS];

        gpu_fixture_session_open(&fixture, threads);
        x = source(&fixture, "Placeholder", NULL, 64);
        for (int c = 0; c < CHAINS; c++)
            for (int i = 0; i < LENGTH; i++)
                y[c] = next(&fixture, c % 4 ? "/gpu:0" : "/gpu:1", i ? y[c] : x);
        for (int round = 0; round < ROUNDS; round++) {
            int n_ops = 0;

            run_to_file(&fixture, x, fed, y, CHAINS, tensors, &reading);
            check_rows(&reading);
            for (int i = 0; i < reading.n; i++)
                n_ops += strcmp(reading.spans[i].category, "Next") == 0 && reading.spans[i].pid > 0;
            ck_assert_int_eq(n_ops, CHAINS * LENGTH);
            for (int c = 0; c < CHAINS; c++) {
                check_numbers(tensors[c], 1, LENGTH);
                allot_tensor_unref(tensors[c]);
            }
        }
        allot_tensor_unref(fed);
        gpu_fixture_session_close(&fixture);
    }
    gpu_fixture_close(&fixture);
}
END_TEST

static void ignore_line(void *userdata, enum allot_log_level level, const char *text) {
}

START_TEST(what_the_host_does_for_a_gpu_stands_on_the_hosts_rows) {
    static struct reading reading;
    struct gpu_fixture fixture;

    allot_log_set(ignore_line, NULL);
    gpu_fixture_open(&fixture, SIM_LIB_DIR);
    for (unsigned threads = 1; threads <= 3; threads++) {
        struct build_attr message = { "message", attr_string("x: ") };
        struct allot_tensor *fed = numbers(64), *tensor;
        int n_prints = 0;
        struct edge x, y;

        gpu_fixture_session_open(&fixture, threads);
        x = next(&fixture, "/gpu:0", source(&fixture, "Placeholder", NULL, 64));
        y = (struct edge){ add(&fixture, "Print", "/gpu:0", &x, 1, &message, 1), 0 };
        y = next(&fixture, "/gpu:0", y);
        run_to_file(&fixture, (struct edge){ 0, 0 }, fed, &y, 1, &tensor, &reading);
        check_rows(&reading);
        for (int i = 0; i < reading.n; i++)
            if (strcmp(reading.spans[i].category, "Print") == 0) {
                ck_assert_int_eq(reading.spans[i].pid, 0);
                n_prints++;
            }
        ck_assert_int_eq(n_prints, 1);
        allot_tensor_unref(tensor);
        allot_tensor_unref(fed);
        gpu_fixture_session_close(&fixture);
    }
    gpu_fixture_close(&fixture);
}
END_TEST

static void *cancel_when_held(void *userdata) {
    while (atomic_load(&gpu_fixture_n_held) == 0)
        sched_yield();
    cancel_give(userdata);
    return NULL;
}

static int count(const struct reading *reading, const char *category, bool on_gpu) {
    int n = 0;

    for (int i = 0; i < reading->n; i++)
        n += strcmp(reading->spans[i].category, category) == 0 &&
             (reading->spans[i].pid > 0) == on_gpu;
    return n;
}

START_TEST(a_run_that_is_stopped_has_the_trace_of_what_was_done) {
    static struct reading reading;
    struct gpu_fixture fixture;

    gpu_fixture_open(&fixture, SIM_LIB_DIR);
    for (unsigned threads = 1; threads <= 2; threads++) {
        struct allot_tensor *fed = numbers(64), *tensor = NULL;
        struct cancel cancel;
        pthread_t thread;
        struct edge x, y;

        gpu_fixture_session_open(&fixture, threads);
        x = source(&fixture, "Placeholder", NULL, 64);
        y = next(&fixture, "/gpu:0", next(&fixture, "/gpu:0", next(&fixture, "/cpu:0", x)));
        y = next(&fixture, "/gpu:0", one_op(&fixture, "Hold", "/gpu:0", y));
        atomic_store(&gpu_fixture_n_held, 0);
        cancel_init(&cancel);
        ck_assert_int_eq(pthread_create(&thread, NULL, cancel_when_held, &cancel), 0);
        ck_assert_int_eq(try_to_file(&fixture, &(struct engine_call){ &x, 1, &y, 1, NULL, 0 },
                                     &cancel, fed, &tensor, &reading),
                         -ECANCELED);
        ck_assert_str_eq(reading.outcome, "stopped");
        ck_assert_str_eq(reading.reason, "the run was cancelled");
        ck_assert_str_eq(fixture.err.text, reading.reason);
        ck_assert(reading.is_cut);
        check_rows(&reading);
        /* Two before the one that is held were over when that began. */
        ck_assert_int_eq(count(&reading, "Next", false), 1);
        ck_assert_int_eq(count(&reading, "Next", true), 2);
        ck_assert_int_eq(count(&reading, "Hold", true), 0);
        ck_assert_int_ge(reading.n_unfinished, 1);
        for (int i = 0; i < reading.n; i++)
            ck_assert(reading.spans[i].begin_usec >= 0 && reading.spans[i].took_usec >= 0);

        sem_post(&gpu_fixture_let_go);
        pthread_join(thread, NULL);
        cancel_done(&cancel);
        allot_tensor_unref(fed);
        gpu_fixture_session_close(&fixture);
    }
    gpu_fixture_close(&fixture);
}
END_TEST

START_TEST(a_run_that_fails_says_why_in_its_trace) {
    static struct reading reading;
    struct gpu_fixture fixture;

    gpu_fixture_open(&fixture, SIM_LIB_DIR);
    for (unsigned threads = 1; threads <= 2; threads++) {
        struct allot_tensor *fed = numbers(64), *tensor = NULL;
        struct edge x, y, none = { 99, 0 };
        int r;

        gpu_fixture_session_open(&fixture, threads);
        x = source(&fixture, "Placeholder", NULL, 64);
        y = source(&fixture, "Variable", "/cpu:0", 64);
        y = next(&fixture, "/cpu:0", one_op(&fixture, "Next", "/cpu:0", y));
        r = try_to_file(&fixture, &(struct engine_call){ &x, 1, &y, 1, NULL, 0 }, NULL, fed,
                        &tensor, &reading);
        ck_assert_int_eq(r, -ENODATA);
        ck_assert_str_eq(reading.outcome, "failed");
        ck_assert_ptr_nonnull(strstr(reading.reason, "is not initialised"));
        ck_assert_str_eq(fixture.err.text, reading.reason);
        ck_assert_int_eq(reading.n_failed, 1);
        ck_assert(reading.is_cut);

        /* A plan that cannot be made has done nothing. */
        r = try_to_file(&fixture, &(struct engine_call){ &x, 1, &none, 1, NULL, 0 }, NULL, fed,
                        &tensor, &reading);
        ck_assert_int_eq(r, -EINVAL);
        ck_assert_str_eq(fixture.err.text, reading.reason);
        ck_assert_int_eq(reading.n, 0);

        if (threads == 2) { /* the last: the context is lost by it */
            y = one_op(&fixture, "Crash", "/gpu:0", next(&fixture, "/gpu:0", x));
            r = try_to_file(&fixture, &(struct engine_call){ &x, 1, &y, 1, NULL, 0 }, NULL, fed,
                            &tensor, &reading);
            ck_assert_int_lt(r, 0);
            ck_assert_str_eq(reading.outcome, "failed");
            ck_assert_str_eq(fixture.err.text, reading.reason);
            ck_assert_int_ge(count(&reading, "Queue", false), 2);
        }
        allot_tensor_unref(fed);
        gpu_fixture_session_close(&fixture);
    }
    gpu_fixture_close(&fixture);
}
END_TEST

SUITE_TIMEOUT("trace-gpu", 120, ops_stand_on_the_rows_of_their_gpus_with_its_times,
              ops_of_a_row_never_overlap_however_many_threads_queue_them,
              what_the_host_does_for_a_gpu_stands_on_the_hosts_rows,
              a_run_that_is_stopped_has_the_trace_of_what_was_done,
              a_run_that_fails_says_why_in_its_trace)
