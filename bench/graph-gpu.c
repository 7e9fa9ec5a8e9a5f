/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GPU rows of ./run bench graph: what liballot itself costs for each op that it launches, by
 * its public interface, on a driver that does nothing (null-cuda.c).
 *
 * Reads lines "ROW THREADS STEPS" as graph-allot.c does. A row first runs on the simulator, for its
 * value and to be warm; then with the idle driver, once to count what it calls and then to be
 * timed. Calls of malloc() and its like and locks taken are counted by standing in front of the C
 * library's: for a short and a long graph of the same kind, so that what grows with the ops is told
 * from what a step costs once.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "allot/log.h"
#include "allot/session.h"
#include "base/cleanup.h"
#include "bench/graph-shapes.h"
#include "bench/null-cuda.h"

enum { STEPS_MAX = 1024, SHORT_NODES = 1000 };

/* ---- Counting ----------------------------------------------------------------------------------
 */

static struct {
    bool on;
    _Atomic unsigned long allocations, locks;
} counted;

#define EXPORT __attribute__((visibility("default")))
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t),
    *__libc_memalign(size_t, size_t);

static inline void count_allocation(void) {
    if (__builtin_expect(counted.on, 0))
        atomic_fetch_add(&counted.allocations, 1);
}

EXPORT void *malloc(size_t size) {
    count_allocation();
    return __libc_malloc(size);
}

EXPORT void *calloc(size_t n, size_t size) {
    count_allocation();
    return __libc_calloc(n, size);
}

EXPORT void *realloc(void *data, size_t size) {
    count_allocation();
    return __libc_realloc(data, size);
}

EXPORT void *aligned_alloc(size_t alignment, size_t size) {
    count_allocation();
    return __libc_memalign(alignment, size);
}

EXPORT int posix_memalign(void **ret, size_t alignment, size_t size) {
    void *data;

    count_allocation();
    data = __libc_memalign(alignment, size);
    if (!data)
        return ENOMEM;
    *ret = data;
    return 0;
}

#define LOCKS(X)                                                                                   \
    X(pthread_mutex_lock, pthread_mutex_t)                                                         \
    X(pthread_mutex_trylock, pthread_mutex_t)                                                      \
    X(pthread_rwlock_rdlock, pthread_rwlock_t)                                                     \
    X(pthread_rwlock_wrlock, pthread_rwlock_t)

#define X(name, type) static int (*real_##name)(type *);
LOCKS(X)
#undef X

__attribute__((constructor)) static void find_locks(void) {
#define X(name, type) real_##name = (int (*)(type *))dlsym(RTLD_NEXT, #name);
    LOCKS(X)
#undef X
}

/* Before the constructor there is only one thread, so no lock is needed. */
#define X(name, type)                                                                              \
    EXPORT int name(type *lock) {                                                                  \
        if (__builtin_expect(counted.on, 0))                                                       \
            atomic_fetch_add(&counted.locks, 1);                                                   \
        return real_##name ? real_##name(lock) : 0;                                                \
    }
LOCKS(X)
#undef X

/* ---- Steps -------------------------------------------------------------------------------------
 */

struct bench {
    struct shape_of_row shape;
    struct allot_session *session;
    struct allot_callable *callable;
    uint64_t n_kernels;
    float value;
    unsigned long allocations, locks;
    struct null_cuda_counts calls;
};

static void (*driver_set)(enum null_cuda, struct null_cuda_counts *);

static double now(clockid_t clock) {
    struct timespec at;

    clock_gettime(clock, &at);
    return (double)at.tv_sec * 1e9 + (double)at.tv_nsec;
}

static void step(struct bench *bench) {
    struct allot_run_options options = ALLOT_RUN_OPTIONS_INIT;
    struct allot_run_metadata metadata = { .size = sizeof(metadata) };
    struct allot_tensor *fetched = NULL;
    struct allot_error err = { 0 };

    options.metadata = &metadata;
    if (allot_callable_run(bench->callable, &options, bench->shape.feed_tensors, &fetched, &err) <
        0)
        bench_die("step", &err);
    bench->n_kernels = metadata.n_kernels;
    bench->value = *(const float *)allot_tensor_data(fetched);
    allot_tensor_unref(fetched);
}

static void count_step(struct bench *bench) {
    struct null_cuda_counts before;

    driver_set(NULL_CUDA_COUNTS, &before);
    step(bench); /* the first after the switch may still grow something */
    driver_set(NULL_CUDA_COUNTS, &before);
    counted.allocations = counted.locks = 0;
    counted.on = true;
    step(bench);
    counted.on = false;
    bench->allocations = counted.allocations;
    bench->locks = counted.locks;
    driver_set(NULL_CUDA_WORKS, &bench->calls);
}

static void bench_open(struct bench *bench, void (*build)(struct shape_of_row *, int), int n_nodes,
                       unsigned n_threads) {
    struct allot_session_options options = ALLOT_SESSION_OPTIONS_INIT;
    struct shape_of_row *shape = &bench->shape;
    struct allot_error err = { 0 };

    *bench = (struct bench){ 0 };
    build(shape, n_nodes);
    options.inter_op_threads = options.intra_op_threads = n_threads;
    options.per_session_threads = true;
    if (allot_graph_error(shape->graph, &err) < 0 ||
        allot_session_new(&bench->session, shape->graph, &options, &err) < 0)
        bench_die("session", &err);
    if (shape->initializer && allot_session_run(bench->session, NULL, NULL, 0, NULL, 0,
                                                &shape->initializer, 1, NULL, &err) < 0)
        bench_die("initializer", &err);
    if (allot_callable_new(&bench->callable, bench->session, shape->feeds, shape->n_feeds,
                           &shape->fetch, 1, &shape->target, shape->target ? 1 : 0, &err) < 0)
        bench_die("callable", &err);
    step(bench);
}

static void bench_close(struct bench *bench) {
    allot_callable_free(bench->callable);
    allot_session_free(bench->session);
    shape_done(&bench->shape);
}

/* ---- Rows --------------------------------------------------------------------------------------
 */

static void shape_gpu_mlp(struct shape_of_row *ret, int n_nodes) {
    shape_mlp(ret);
}

static const struct row {
    const char *name;
    void (*build)(struct shape_of_row *, int n_nodes);
} rows[] = {
    { "gpu-chain", shape_chain_of },
    { "gpu-wide", shape_wide_of },
    { "gpu-mlp", shape_gpu_mlp },
};

static void print_numbers(const char *name, const double *numbers, unsigned n) {
    printf("\"%s\":[", name);
    for (unsigned i = 0; i < n; i++)
        printf("%s%.0f", i ? "," : "", numbers[i]);
    printf("],");
}

/* The CPU time of the thread that asks where it does all itself, else of the process: no other
 * thread of it has anything to do. */
static void time_steps(struct bench *bench, unsigned n_threads, unsigned n_steps) {
    const clockid_t clock = n_threads > 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_THREAD_CPUTIME_ID;
    static double wall[STEPS_MAX], cpu[STEPS_MAX];
    struct null_cuda_counts before;

    driver_set(NULL_CUDA_IDLE, &before);
    for (unsigned i = 0; i < n_steps; i++) {
        wall[i] = -now(CLOCK_MONOTONIC);
        cpu[i] = -now(clock);
        step(bench);
        cpu[i] += now(clock);
        wall[i] += now(CLOCK_MONOTONIC);
    }
    driver_set(NULL_CUDA_WORKS, &before);
    print_numbers("wall", wall, n_steps);
    print_numbers("cpu", cpu, n_steps);
}

static void run_row(const struct row *row, unsigned n_threads, unsigned n_steps) {
    struct bench little, bench;
    float value;

    bench_open(&little, row->build, SHORT_NODES, n_threads);
    count_step(&little);
    bench_open(&bench, row->build, CHAIN_NODES, n_threads);
    value = bench.value;
    count_step(&bench);
    printf("{");
    time_steps(&bench, n_threads, n_steps);
    printf("\"kernels\":[%llu,%llu],\"allocations\":[%lu,%lu],\"locks\":[%lu,%lu],"
           "\"calls\":[%llu,%llu],\"other_calls\":[%llu,%llu],\"value\":%.9g}\n",
           (unsigned long long)little.n_kernels, (unsigned long long)bench.n_kernels,
           little.allocations, bench.allocations, little.locks, bench.locks, little.calls.of_a_step,
           bench.calls.of_a_step, little.calls.others, bench.calls.others, (double)value);
    bench_close(&bench);
    bench_close(&little);
}

/* That there is no daemon, and which device was made, is nothing new here. */
static void be_quiet(void *userdata, enum allot_log_level level, const char *text) {
    if (level <= ALLOT_LOG_ERROR)
        fprintf(stderr, "graph-gpu: %s\n", text);
}

static void find_driver(void) {
    const char *dir = getenv("ALLOT_SIM_DIR");
    char path[4096];
    void *library;

    snprintf(path, sizeof(path), "%s/libcuda.so.1", dir ? dir : "");
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    driver_set =
        library
            ? (void (*)(enum null_cuda, struct null_cuda_counts *))dlsym(library, "null_cuda_set")
            : NULL;
    if (!driver_set) {
        fprintf(stderr, "graph-gpu: ALLOT_SIM_DIR must be the folder of null-cuda's library\n");
        exit(1);
    }
}

int main(void) {
    char line[128], name[32];
    unsigned n_threads, n_steps;

    find_driver();
    allot_log_set(be_quiet, NULL);
    while (fgets(line, sizeof(line), stdin)) {
        size_t i = 0;

        if (sscanf(line, "%31s %u %u", name, &n_threads, &n_steps) != 3 || n_threads < 1 ||
            n_threads > 2 || n_steps < 1 || n_steps > STEPS_MAX) {
            fprintf(stderr,
                    "graph-gpu: lines are ROW THREADS STEPS: 1 or 2 threads, 1 to %d steps\n",
                    STEPS_MAX);
            return 1;
        }
        while (i < ELEMENTSOF(rows) && strcmp(rows[i].name, name) != 0)
            i++;
        if (i < ELEMENTSOF(rows))
            run_row(&rows[i], n_threads, n_steps);
        else
            printf("{\"error\":\"no row %s\"}\n", name);
        fflush(stdout);
    }
    return 0;
}
