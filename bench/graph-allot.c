/* SPDX-License-Identifier: Apache-2.0 */
/*
 * liballot's side of ./run bench graph, by its public interface alone.
 *
 * Reads lines "ROW THREADS STEPS" and answers each with a line of JSON: the time of each step by
 * the wall clock and by the CPU time of the process, kernel calls counted, and a number that the
 * other libraries must give as well. graph-peers.py talks the same way, so that graph-table.py can
 * let them take turns. What a row needs is built when it is first asked for.
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "allot/session.h"
#include "allot/train.h"
#include "base/cleanup.h"
#include "bench/fma.h"
#include "bench/graph-shapes.h"

enum { STEPS_MAX = 4096 };

static struct {
    double wall[STEPS_MAX], cpu[STEPS_MAX];
    unsigned n;
} times;

static double now(clockid_t clock) {
    struct timespec at;

    clock_gettime(clock, &at);
    return (double)at.tv_sec * 1e9 + (double)at.tv_nsec;
}

static void step_begin(void) {
    times.cpu[times.n] = -now(CLOCK_PROCESS_CPUTIME_ID);
    times.wall[times.n] = -now(CLOCK_MONOTONIC);
}

static void step_end(void) {
    times.wall[times.n] += now(CLOCK_MONOTONIC);
    times.cpu[times.n] += now(CLOCK_PROCESS_CPUTIME_ID);
    times.n++;
}

static void print_numbers(const char *name, const double *numbers) {
    printf("\"%s\":[", name);
    for (unsigned i = 0; i < times.n; i++)
        printf("%s%.0f", i ? "," : "", numbers[i]);
    printf("],");
}

/* ---- Rows that run one graph again and again ---------------------------------------------------
 */

struct bench {
    struct shape_of_row shape;
    struct allot_session *session;
    struct allot_callable *callable;
    struct allot_run_metadata metadata;
    float value;
};

static void session_open(struct bench *bench, unsigned n_threads) {
    struct allot_session_options options = ALLOT_SESSION_OPTIONS_INIT;
    struct allot_error err = { 0 };

    options.inter_op_threads = options.intra_op_threads = n_threads;
    options.per_session_threads = true;
    options.cpu_only = true;
    if (allot_graph_error(bench->shape.graph, &err) < 0 ||
        allot_session_new(&bench->session, bench->shape.graph, &options, &err) < 0)
        bench_die("session", &err);
}

static void step(struct bench *bench) {
    struct allot_run_options options = ALLOT_RUN_OPTIONS_INIT;
    struct allot_tensor *fetched = NULL;
    struct allot_error err = { 0 };

    bench->metadata.size = sizeof(bench->metadata);
    options.metadata = &bench->metadata;
    if (allot_callable_run(bench->callable, &options, bench->shape.feed_tensors, &fetched, &err) <
        0)
        bench_die("step", &err);
    bench->value = *(const float *)allot_tensor_data(fetched);
    allot_tensor_unref(fetched);
}

static struct bench *bench_open(void (*build)(struct shape_of_row *), unsigned n_threads) {
    struct bench *bench = calloc(1, sizeof(*bench));
    struct allot_error err = { 0 };

    if (!bench)
        bench_die("bench", NULL);
    build(&bench->shape);
    session_open(bench, n_threads);
    if (bench->shape.initializer && allot_session_run(bench->session, NULL, NULL, 0, NULL, 0,
                                                      &bench->shape.initializer, 1, NULL, &err) < 0)
        bench_die("initializer", &err);
    if (allot_callable_new(&bench->callable, bench->session, bench->shape.feeds,
                           bench->shape.n_feeds, &bench->shape.fetch, 1, &bench->shape.target,
                           bench->shape.target ? 1 : 0, &err) < 0)
        bench_die("callable", &err);
    return bench;
}

static void bench_close(struct bench *bench) {
    allot_callable_free(bench->callable);
    allot_session_free(bench->session);
    shape_done(&bench->shape);
    free(bench);
}

static void answer(const struct bench *bench) {
    printf("{");
    print_numbers("wall", times.wall);
    print_numbers("cpu", times.cpu);
    printf("\"kernels\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"ready_bytes\":%" PRIu64
           ",\"value\":%.9g}\n",
           bench->metadata.n_kernels, bench->metadata.step_bytes, bench->metadata.ready_order_bytes,
           (double)bench->value);
}

/* From an empty graph to the first fetched value. */
static void build_and_run(void (*build)(struct shape_of_row *), unsigned n_threads,
                          unsigned n_steps) {
    for (unsigned i = 0; i < n_steps; i++) {
        struct bench *bench;

        step_begin();
        bench = bench_open(build, n_threads);
        step(bench);
        step_end();
        if (i + 1 == n_steps)
            answer(bench);
        bench_close(bench);
    }
}

/* ---- OpenBLAS itself ---------------------------------------------------------------------------
 */

/* As it comes; or as liballot opens it, with the code for this CPU where it would choose another.
 * A process has the one that it asks for first. */
static void openblas(unsigned n_steps, bool fit) {
    typedef void (*gemm_fn)(int, int, int, int, int, int, float, const float *, int, const float *,
                            int, float, float *, int);
    const int n = MATMUL_SIDE;
    void (*set_threads)(int);
    static float *a, *b, *c;
    void *library;
    gemm_fn gemm;

    if (fit && !a) {
        struct bench *bench = bench_open(shape_doubles, 1);

        step(bench);
        bench_close(bench);
    }
    library = dlopen("libopenblas.so.0", RTLD_NOW);
    gemm = library ? (gemm_fn)dlsym(library, "cblas_sgemm") : NULL;
    set_threads = library ? (void (*)(int))dlsym(library, "openblas_set_num_threads") : NULL;
    if (!gemm || !set_threads) {
        printf("{\"error\":\"no libopenblas.so.0\"}\n");
        return;
    }
    if (!a) {
        size_t bytes = (size_t)n * n * sizeof(float);

        a = aligned_alloc(64, bytes);
        b = aligned_alloc(64, bytes);
        c = aligned_alloc(64, bytes);
        if (!a || !b || !c)
            bench_die("openblas", NULL);
        matmul_numbers(a, b);
        memset(c, 0, bytes);
    }
    set_threads(1);
    gemm(101, 111, 111, n, n, n, 1, a, n, b, n, 0, c, n);
    for (unsigned i = 0; i < n_steps; i++) {
        step_begin();
        gemm(101, 111, 111, n, n, n, 1, a, n, b, n, 0, c, n);
        step_end();
    }
    printf("{");
    print_numbers("wall", times.wall);
    print_numbers("cpu", times.cpu);
    printf("\"kernels\":1,\"value\":%.9g}\n", (double)c[0]);
}

/* ---- The multiplications of the MLP's step, and nothing else ------------------------------------
 */

static void multiply_only(unsigned n_steps) {
    /* Three products forwards, as many for the weights, and all but the first for the values. */
    const uint64_t first = (uint64_t)MLP_INPUTS * MLP_HIDDEN, second = MLP_HIDDEN * MLP_HIDDEN,
                   third = MLP_HIDDEN * MLP_CLASSES;
    const uint64_t n_fmas = MLP_BATCH * (2 * first + 3 * second + 3 * third);

    for (unsigned i = 0; i < n_steps; i++) {
        step_begin();
        if (!fma_run(n_fmas)) {
            printf("{\"error\":\"no vector unit that is known\"}\n");
            return;
        }
        step_end();
    }
    printf("{");
    print_numbers("wall", times.wall);
    print_numbers("cpu", times.cpu);
    printf("\"value\":%.0f}\n", 2 * (double)n_fmas);
}

/* ---- Lines in, lines out -----------------------------------------------------------------------
 */

static const struct row {
    const char *name;
    void (*build)(struct shape_of_row *);
    bool from_scratch; /* what is measured is the making */
} rows[] = {
    { "chain", shape_chain, false },       { "wide", shape_wide, false },
    { "layered", shape_layered, false },   { "build-chain", shape_chain, true },
    { "build-wide", shape_wide, true },    { "build-layered", shape_layered, true },
    { "mlp", shape_mlp, false },           { "matmul", shape_matmul, false },
    { "branches", shape_branches, false }, { "transformer", shape_transformer, false },
};

static bool run_row(const char *name, unsigned n_threads, unsigned n_steps) {
    static struct bench *open[ELEMENTSOF(rows)][3]; /* by threads: 1, 2 */

    times.n = 0;
    if (strcmp(name, "openblas") == 0 || strcmp(name, "openblas-fit") == 0) {
        openblas(n_steps, strcmp(name, "openblas-fit") == 0);
        return true;
    }
    if (strcmp(name, "multiply") == 0) {
        multiply_only(n_steps);
        return true;
    }
    for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
        struct bench **bench = &open[i][n_threads];

        if (strcmp(rows[i].name, name) != 0)
            continue;
        if (rows[i].from_scratch) {
            build_and_run(rows[i].build, n_threads, n_steps);
            return true;
        }
        if (!*bench)
            *bench = bench_open(rows[i].build, n_threads);
        step(*bench); /* the caches are the others' */
        for (unsigned k = 0; k < n_steps; k++) {
            step_begin();
            step(*bench);
            step_end();
        }
        answer(*bench);
        return true;
    }
    return false;
}

int main(void) {
    char line[128], name[32];
    unsigned n_threads, n_steps;

    while (fgets(line, sizeof(line), stdin)) {
        if (sscanf(line, "%31s %u %u", name, &n_threads, &n_steps) != 3 || n_threads < 1 ||
            n_threads > 2 || n_steps < 1 || n_steps > STEPS_MAX) {
            fprintf(stderr,
                    "graph-allot: lines are ROW THREADS STEPS: 1 or 2 threads, 1 to %d "
                    "steps\n",
                    STEPS_MAX);
            return 1;
        }
        if (!run_row(name, n_threads, n_steps))
            printf("{\"error\":\"no row %s\"}\n", name);
        fflush(stdout);
    }
    return 0;
}
