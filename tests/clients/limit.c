/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limit MIB USEC: a run whose step memory is at least so many MiB on a GPU, with a time limit. Says
 * what came of it and how many milliseconds it took: "-110 512 the run took longer than …".
 */
#include <allot/ops.h>
#include <allot/session.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long long msec(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int main(int argc, char **argv) {
    struct allot_run_options options = ALLOT_RUN_OPTIONS_INIT;
    struct allot_tensor *fed = NULL, *got = NULL;
    struct allot_callable *callable = NULL;
    struct allot_session *session = NULL;
    struct allot_graph *graph = NULL;
    struct allot_error err = { 0 };
    struct allot_output x, y;
    int64_t n = 1 << 18; /* a MiB */
    long long begin;
    int r;

    if (argc != 3 || allot_graph_new(&graph, &err) < 0)
        return 2;
    x = allot_placeholder(graph, "x", ALLOT_F32, 1, &n);
    y = allot_sum(allot_tile(x, (int64_t[]){ atoll(argv[1]) }, 1));
    options.timeout_usec = strtoull(argv[2], NULL, 10);
    r = allot_session_new(&session, graph, NULL, &err);
    if (r == 0)
        r = allot_tensor_new(&fed, ALLOT_F32, 1, &n, &err);
    if (r == 0)
        r = allot_callable_new(&callable, session, &x, 1, &y, 1, NULL, 0, &err);
    if (r < 0) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    begin = msec();
    r = allot_callable_run(callable, &options, &fed, &got, &err);
    printf("%d %lld %s\n", r, msec() - begin, r < 0 ? err.text : "");
    allot_tensor_unref(got);
    allot_tensor_unref(fed);
    allot_callable_free(callable);
    allot_session_free(session);
    allot_graph_unref(graph);
    return 0;
}
