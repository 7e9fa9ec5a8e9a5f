/* SPDX-License-Identifier: Apache-2.0 */
/*
 * session [gpus=N] [visible=LIST] [no_wait=1] [wait_msec=N] [before=N]: a session with these
 * options, after so many that are made and freed. Prints what the log says, the devices and, for
 * each number that it reads, how a run went that makes so many thousand numbers of a million times
 * as many bytes, and how long it took.
 */
#include <allot/log.h>
#include <allot/ops.h>
#include <allot/session.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct allot_error err;

static double now(void) {
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void print_log(void *userdata, enum allot_log_level level, const char *text) {
    printf("log %d: %s\n", (int)level, text);
    fflush(stdout);
}

static struct allot_session_options read_options(int argc, char **argv) {
    struct allot_session_options options = ALLOT_SESSION_OPTIONS_INIT;

    for (int i = 1; i < argc; i++) {
        char *value = strchr(argv[i], '=') + 1;

        if (strncmp(argv[i], "gpus=", 5) == 0)
            options.gpus = (uint32_t)atoi(value);
        else if (strncmp(argv[i], "visible=", 8) == 0)
            options.visible_devices = value;
        else if (strncmp(argv[i], "no_wait=", 8) == 0)
            options.no_wait = atoi(value);
        else if (strncmp(argv[i], "wait_msec=", 10) == 0)
            options.wait_usec = strtoull(value, NULL, 10) * 1000;
    }
    return options;
}

static int open_some(int argc, char **argv, struct allot_graph *graph,
                     const struct allot_session_options *options) {
    int n = 0;

    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], "before=", 7) == 0)
            n = atoi(strchr(argv[i], '=') + 1);
    while (n-- > 0) {
        struct allot_session *session;
        int r = allot_session_new(&session, graph, options, &err);

        if (r < 0)
            return r;
        allot_session_free(session);
    }
    return 0;
}

static void run(struct allot_session *session, struct allot_output in, struct allot_output out,
                int64_t thousands) {
    struct allot_tensor *tensor, *sum;
    double begin = now();
    int r = allot_tensor_new(&tensor, ALLOT_F32, 1, &(int64_t){ thousands * 1000 }, &err);

    if (r == 0) {
        memset(allot_tensor_data(tensor), 0, allot_tensor_bytes(tensor));
        r = allot_session_run(session, &in, &tensor, 1, &out, 1, NULL, 0, &sum, &err);
        allot_tensor_unref(tensor);
    }
    if (r == 0)
        allot_tensor_unref(sum);
    printf("run %d %.2f %s\n", r, now() - begin, r < 0 ? err.text : "");
    fflush(stdout);
}

int main(int argc, char **argv) {
    struct allot_session_options options = read_options(argc, argv);
    struct allot_device devices[20];
    struct allot_session *session;
    struct allot_graph *graph;
    struct allot_output in, out;
    char line[32];
    int r;

    allot_log_set(print_log, NULL);
    if (allot_graph_new(&graph, &err) < 0)
        return 1;
    in = allot_placeholder(graph, "in", ALLOT_F32, 1, &(int64_t){ -1 });
    out = allot_sum(allot_tile(in, &(int64_t){ 1000 }, 1));
    r = open_some(argc, argv, graph, &options);
    if (r == 0)
        r = allot_session_new(&session, graph, &options, &err);
    if (r < 0) {
        printf("error %d %s\n", r, err.text);
        return 1;
    }
    r = (int)allot_session_devices(session, devices, 20);
    printf("devices %d", r);
    for (int i = 0; i < r; i++)
        printf(", %s", devices[i].description);
    printf("\nenvironment %s\n",
           getenv("CUDA_VISIBLE_DEVICES") ? getenv("CUDA_VISIBLE_DEVICES") : "unset");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin))
        run(session, in, out, atol(line));
    allot_session_free(session);
    allot_graph_unref(graph);
    return 0;
}
