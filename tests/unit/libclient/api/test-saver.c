/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints: what comes back, and what is refused. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/error.h"
#include "libclient/allot/ops.h"
#include "libclient/allot/saver.h"
#include "tests/support/suite.h"

static struct allot_error err;

#define must(call)                                                                                 \
    do {                                                                                           \
        int must_r_ = call;                                                                        \
                                                                                                   \
        ck_assert_msg(must_r_ == 0, "%s", err.text);                                               \
    } while (0)

struct bench {
    char dir[32], path[64];
    struct allot_graph *graph;
    struct allot_output weights, count;
    struct allot_node *init;
    struct allot_session *session;
};

static void bench_open(struct bench *bench) {
    const float numbers[] = { 1, 2, 3, 4, 5, 6 };

    setenv("ALLOT_SOCKET", "/nonexistent", 1);
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    strcpy(bench->dir, "/tmp/allot-saver.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(bench->dir));
    snprintf(bench->path, sizeof(bench->path), "%s/model", bench->dir);
    must(allot_graph_new(&bench->graph, &err));
    bench->weights =
        allot_variable(bench->graph, "weights",
                       allot_constant_f32(bench->graph, NULL, 2, (int64_t[]){ 2, 3 }, numbers));
    bench->count = allot_variable(bench->graph, "count", allot_scalar(bench->graph, ALLOT_I64, 7));
    bench->init = allot_initializer(bench->graph);
    must(allot_session_new(&bench->session, bench->graph, NULL, &err));
}

static void bench_close(struct bench *bench) {
    allot_session_free(bench->session);
    allot_graph_unref(bench->graph);
    unlink(bench->path);
    ck_assert_int_eq(rmdir(bench->dir), 0); /* nothing else was left behind */
}

static void run(struct bench *bench, struct allot_node *node) {
    must(allot_session_run(bench->session, NULL, NULL, 0, NULL, 0, &node, 1, NULL, &err));
}

static void expect(struct bench *bench, struct allot_output variable, const char *wanted) {
    struct allot_tensor *value;
    char text[128];

    must(allot_session_run(bench->session, NULL, NULL, 0, &variable, 1, NULL, 0, &value, &err));
    ck_assert_str_eq(allot_tensor_format(value, text, sizeof(text)), wanted);
    allot_tensor_unref(value);
}

static void write_file(const char *path, const char *head, const char *data, size_t n) {
    uint64_t length = strlen(head);
    FILE *file = fopen(path, "we");

    ck_assert_ptr_nonnull(file);
    for (int i = 0; i < 8; i++)
        fputc((int)(length >> 8 * i & 0xff), file);
    fputs(head, file);
    fwrite(data, 1, n, file);
    ck_assert_int_eq(fclose(file), 0);
}

START_TEST(what_was_saved_comes_back) {
    struct allot_output doubled;
    struct bench bench;

    bench_open(&bench);
    run(&bench, bench.init);
    doubled = allot_assign_add(bench.weights, bench.weights);
    must(allot_save(bench.session, NULL, 0, bench.path, &err));
    run(&bench, doubled.node);
    expect(&bench, bench.weights, "[[2 4 6] [8 10 12]]");
    must(allot_restore(bench.session, NULL, 0, bench.path, &err));
    expect(&bench, bench.weights, "[[1 2 3] [4 5 6]]");
    expect(&bench, bench.count, "7");
    run(&bench, doubled.node);
    must(allot_save(bench.session, &bench.weights, 1, bench.path, &err));
    ck_assert_int_eq(allot_restore(bench.session, NULL, 0, bench.path, &err), -ENOENT);
    ck_assert_msg(strstr(err.text, "'count'") != NULL, "%s", err.text);

    /* Into a session that has initialised nothing. */
    allot_session_free(bench.session);
    must(allot_session_new(&bench.session, bench.graph, NULL, &err));
    must(allot_restore(bench.session, &bench.weights, 1, bench.path, &err));
    expect(&bench, bench.weights, "[[2 4 6] [8 10 12]]");
    bench_close(&bench);
}
END_TEST

START_TEST(what_cannot_be_saved_leaves_the_file_alone) {
    struct allot_output none = { 0 }, read, twice[3];
    struct bench bench;
    struct stat before, after;

    bench_open(&bench);
    ck_assert_int_eq(allot_save(bench.session, NULL, 0, bench.path, &err), -ENODATA);
    ck_assert_int_eq(access(bench.path, F_OK), -1);
    run(&bench, bench.init);
    must(allot_save(bench.session, NULL, 0, bench.path, &err));
    ck_assert_int_eq(stat(bench.path, &before), 0);
    read = allot_read(bench.weights);
    twice[0] = twice[2] = bench.weights;
    twice[1] = bench.count;
    ck_assert_int_eq(allot_save(bench.session, &read, 1, bench.path, &err), -EINVAL);
    ck_assert_int_eq(allot_save(bench.session, &none, 1, bench.path, &err), -EINVAL);
    ck_assert_int_eq(allot_save(bench.session, twice, 3, bench.path, &err), -EINVAL);
    ck_assert_str_eq(err.text, "variable 'weights' is named twice");
    ck_assert_int_eq(allot_restore(bench.session, twice, 3, bench.path, &err), -EINVAL);
    ck_assert_str_eq(err.text, "variable 'weights' is named twice");
    twice[0].index = 1;
    ck_assert_int_eq(allot_save(bench.session, twice, 1, bench.path, &err), -EINVAL);
    ck_assert_int_eq(allot_restore(bench.session, twice, 1, bench.path, &err), -EINVAL);
    ck_assert_int_eq(stat(bench.path, &after), 0);
    ck_assert_uint_eq(before.st_ino, after.st_ino);
    ck_assert_int_eq(allot_save(bench.session, NULL, 0, "/nonexistent/model", &err), -ENOENT);
    ck_assert_ptr_nonnull(strstr(err.text, "/nonexistent/model"));
    bench_close(&bench);
}
END_TEST

START_TEST(what_does_not_fit_is_named_and_changes_nothing) {
    static const struct {
        const char *head, *words;
        size_t data_bytes;
        int r;
    } cases[] = {
        { "{\"weights\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[0,24]},"
          "\"count\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[24,32]}}",
          "tensor 'weights' is f32 [3, 2], but the variable is f32 [2, 3]", 32, -EINVAL },
        { "{\"count\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[24,32]},"
          "\"weights\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}",
          "tensor 'count' is f64 [], but the variable is i64 []", 32, -EINVAL },
        { "{}", "no tensor 'weights'", 0, -ENOENT },
        { "{}", "1 bytes at its end", 1, -EBADMSG },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
          "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[2,6]}}",
          "'b' overlaps", 6, -EBADMSG },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[2,6]}}", "'a' has bytes before",
          6, -EBADMSG },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[9],\"data_offsets\":[0,9]}}",
          "'a' ends beyond the end", 6, -EBADMSG },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,5]}}", "type and shape", 5,
          -EBADMSG },
        { "{\"a\":{\"dtype\":\"F64\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}",
          "type and shape", 0, -EBADMSG },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,0]}}", "data_offsets", 1,
          -EBADMSG },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,1]}}", "negative", 1,
          -EBADMSG },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[1.0],\"data_offsets\":[0,1]}}", "whole numbers", 1,
          -EBADMSG },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1e0]}}", "data_offsets", 1,
          -EBADMSG },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,1]}}", "data_offsets", 1,
          -EBADMSG },
        { "{\"weights\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}",
          "tensor 'weights' is of rank 9, which is not supported here; the variable is f32 [2, 3]",
          1, -EINVAL },
        { "{\"weights\":{\"dtype\":\"F8_E4M3\",\"shape\":[1],\"data_offsets\":[0,1]}}",
          "tensor 'weights' is F8_E4M3, which is not supported here; the variable is f32 [2, 3]", 1,
          -EINVAL },
        { "{\"a\":{\"dtype\":\"\",\"shape\":[1],\"data_offsets\":[0,1]}}", "names a type", 1,
          -EBADMSG },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", "once each", 0, -EBADMSG },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]},"
          "\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[1,2]}}",
          "'a' appears twice", 2, -EBADMSG },
        { "{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}} x", "its header at byte",
          1, -EBADMSG },
        { "[]", "its header at byte", 0, -EBADMSG },
        { "", "its header at byte", 0, -EBADMSG },
    };
    static const char zeros[64];
    struct bench bench;

    bench_open(&bench);
    run(&bench, bench.init);
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        write_file(bench.path, cases[i].head, zeros, cases[i].data_bytes);
        ck_assert_int_eq(allot_restore(bench.session, NULL, 0, bench.path, &err), cases[i].r);
        ck_assert_msg(strstr(err.text, cases[i].words) && strstr(err.text, bench.path), "%s: %s",
                      cases[i].head, err.text);
    }
    expect(&bench, bench.weights, "[[1 2 3] [4 5 6]]");
    expect(&bench, bench.count, "7");
    bench_close(&bench);
}
END_TEST

START_TEST(foreign_tensors_that_no_variable_asks_for_are_left_alone) {
    static const char head[] =
        "{\"scale\":{\"dtype\":\"F8_E4M3\",\"shape\":[3],\"data_offsets\":[0,3]},"
        "\"deep\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1,5],\"data_offsets\":[3,8]},"
        "\"count\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[8,16]},"
        "\"weights\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[16,40]}}";
    static const char zeros[40];
    struct bench bench;

    bench_open(&bench);
    run(&bench, bench.init);
    write_file(bench.path, head, zeros, sizeof(zeros));
    ck_assert_msg(allot_restore(bench.session, NULL, 0, bench.path, &err) == 0, "%s", err.text);
    expect(&bench, bench.weights, "[[0 0 0] [0 0 0]]");
    expect(&bench, bench.count, "0");
    bench_close(&bench);
}
END_TEST

START_TEST(files_that_are_none_are_refused) {
    static const char *const contents[] = { "", "1234567", "\xff\xff\xff\xff\xff\xff\xff\xff{}",
                                            "\x09\0\0\0\0\0\0\0{}" };
    static const size_t bytes[] = { 0, 7, 10, 10 };
    struct bench bench;

    bench_open(&bench);
    for (size_t i = 0; i < ELEMENTSOF(contents); i++) {
        FILE *file = fopen(bench.path, "we");

        fwrite(contents[i], 1, bytes[i], file);
        fclose(file);
        ck_assert_int_eq(allot_restore(bench.session, NULL, 0, bench.path, &err), -EBADMSG);
    }
    unlink(bench.path);
    ck_assert_int_eq(allot_restore(bench.session, NULL, 0, bench.path, &err), -ENOENT);
    ck_assert_int_eq(allot_restore(bench.session, NULL, 0, bench.dir, &err), -EBADMSG);
    ck_assert_int_eq(mkfifo(bench.path, 0600), 0);
    ck_assert_int_eq(allot_restore(bench.session, NULL, 0, bench.path, &err), -EBADMSG);
    bench_close(&bench);
}
END_TEST

START_TEST(a_fork_is_told) {
    struct bench bench;
    int status;
    pid_t pid;

    bench_open(&bench);
    run(&bench, bench.init);
    must(allot_save(bench.session, NULL, 0, bench.path, &err));
    pid = fork();
    if (pid == 0)
        _exit(allot_restore(bench.session, NULL, 0, bench.path, &err) != -ECHILD ||
              allot_save(bench.session, NULL, 0, bench.path, &err) != -ECHILD);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    bench_close(&bench);
}
END_TEST

SUITE("saver", what_was_saved_comes_back, what_cannot_be_saved_leaves_the_file_alone,
      what_does_not_fit_is_named_and_changes_nothing,
      foreign_tensors_that_no_variable_asks_for_are_left_alone, files_that_are_none_are_refused,
      a_fork_is_told)
