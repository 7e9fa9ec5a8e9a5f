/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast the PTX interpreter is: nvcc's own code for four kernels, active thread-instructions per
 * second on one core with every access checked, beside a plain scalar interpreter in the same run;
 * and how long a module of 1 MB takes until its first kernel has run.
 *
 *     bench-ptx [numeric.ptx]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "sim/ptx/exec/exec.h"
#include "tests/support/sim/ptx/exec/ptx_scalar.h"
#include "tests/support/sim/ptx/ptx_fixture.h"

#define MIN_SECONDS 0.4

/* CPU time of this thread, which does all the work: what else the machine does is left out. */
static double now(void) {
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct shape {
    const char *name;
    uint32_t grid[3], block[3], shared;
};

static void make_launch(struct ptx_fixture *fixture, const struct shape *shape, void **params,
                        unsigned char *bytes, size_t n_bytes, struct ptx_launch *ret) {
    *ret = (struct ptx_launch){ .kernel = ptx_fixture_find(fixture->module, shape->name),
                                .params = bytes,
                                .param_bytes = n_bytes,
                                .memory = fixture->table.memory,
                                .dynamic_shared_bytes = shape->shared,
                                .n_threads = 1 };
    for (size_t i = 0; i < ptx_function_n_params(ret->kernel); i++) {
        struct ptx_param param;

        ptx_function_param(ret->kernel, i, &param);
        memcpy(bytes + param.offset, params[i], param.bytes);
    }
    memcpy(ret->grid, shape->grid, sizeof(ret->grid));
    memcpy(ret->block, shape->block, sizeof(ret->block));
}

static void measure(struct ptx_fixture *fixture, const struct shape *shape, void **params) {
    unsigned char bytes[256] = { 0 };
    struct ptx_launch launch, small;
    struct ptx_result result;
    struct allot_error err;
    uint64_t n = 0, n_scalar = 0, warps = 0;
    double start, seconds, best = 0, scalar;

    make_launch(fixture, shape, params, bytes, sizeof(bytes), &launch);
    for (int run = 0; run < 5; run++) {
        unsigned rounds = 0;

        n = warps = 0;
        start = now();
        do {
            if (ptx_launch(&launch, &result, &err) < 0 || result.fault.kind) {
                fprintf(stderr, "%s: %s%s\n", shape->name, err.text, result.fault.text);
                exit(1);
            }
            n += result.stats.n_thread_instructions;
            warps += result.stats.n_warp_instructions;
            rounds++;
            seconds = now() - start;
        } while (seconds < MIN_SECONDS / 2);
        best = MAX(best, (double)n / seconds);
    }
    small = launch;
    small.grid[0] = MIN(small.grid[0], 8U);
    small.grid[1] = MIN(small.grid[1], 2U);
    start = now();
    do {
        uint64_t once;

        if (ptx_scalar_run(&small, &once) < 0)
            exit(1);
        n_scalar += once;
        seconds = now() - start;
    } while (seconds < MIN_SECONDS / 2);
    scalar = (double)n_scalar / seconds;
    printf("%-10s %9.0f %9.0f %8.1f %9.1f %8.1f\n", shape->name, best / 1e6, scalar / 1e6,
           best / scalar, best / 32e6 * ((double)warps * 32 / (double)n),
           100 * (double)n / (32 * (double)warps));
}

static void measure_kernels(const char *path) {
    struct ptx_fixture fixture;
    uint64_t a, b, c;
    int n = 1 << 20, side = 512, columns = 4096;
    float *host;

    ptx_fixture_init_file(&fixture, path);
    a = ptx_fixture_alloc(&fixture, (uint64_t)n * 4);
    b = ptx_fixture_alloc(&fixture, (uint64_t)n * 4);
    c = ptx_fixture_alloc(&fixture, (uint64_t)n * 4);
    for (int k = 0; k < 2; k++) {
        host = ptx_fixture_host(&fixture, k ? b : a);
        for (int i = 0; i < n; i++)
            host[i] = (float)((i * 7919 + k) % 1013) / 1013;
    }
    printf("%-10s %9s %9s %8s %9s %8s\n", "kernel", "Minstr/s", "scalar", "ratio", "Mwarp/s",
           "active %");
    measure(&fixture, &(struct shape){ "add", { (uint32_t)n / 256, 1, 1 }, { 256, 1, 1 }, 0 },
            PTX_PARAMS(&a, &b, &c, &n));
    measure(&fixture,
            &(struct shape){
                "matmul", { (uint32_t)side / 16, (uint32_t)side / 16, 1 }, { 16, 16, 1 }, 0 },
            PTX_PARAMS(&a, &b, &c, &side));
    measure(&fixture, &(struct shape){ "softmax", { 64, 1, 1 }, { 256, 1, 1 }, 1024 },
            PTX_PARAMS(&a, &c, &columns));
    measure(&fixture, &(struct shape){ "reduce", { 32, 1, 1 }, { 256, 1, 1 }, 0 },
            PTX_PARAMS(&a, &c, &n));
    ptx_fixture_done(&fixture);
}

/* One kernel's text over and over, under other names, until there is a megabyte of it. */
static void measure_load(const char *path) {
    static const char name[] = ".visible .entry matmul(";
    cleanup(freep) char *text = ptx_fixture_read_file(path, NULL);
    char *entry = strstr(text, name), *end = entry ? strstr(entry, "\n}\n") : NULL;
    size_t room = (1 << 20) + (1 << 17), n;
    cleanup(freep) char *big = malloc(room);
    double best_load = 1, best_all = 1;
    char *head = strstr(text, ".func"), *visible = strstr(text, ".visible .entry");

    if (!big || !end)
        return;
    head = head && head < visible ? head : visible;
    for (int run = 0; run < 5; run++) {
        double start, loaded;
        struct ptx_module *module;
        struct ptx_table table;
        struct ptx_result result;
        struct allot_error err;
        struct ptx_launch launch = { .grid = { 0, 1, 1 }, .block = { 16, 16, 1 } };
        unsigned char params[64] = { 0 };

        n = (size_t)snprintf(big, room, ".version 8.0\n.target sm_75\n.address_size 64\n");
        for (unsigned i = 0; n < 1 << 20; i++)
            n += (size_t)snprintf(big + n, room - n, ".visible .entry copy%u(%.*s\n}\n", i,
                                  (int)(end - entry - (long)strlen(name)), entry + strlen(name));
        start = now();
        if (ptx_module_new(&module) < 0 || ptx_table_init(&table) < 0 ||
            ptx_module_add(module, "big", big, n, &err) < 0 || ptx_module_link(module, &err) < 0) {
            fprintf(stderr, "%s\n", err.text);
            exit(1);
        }
        loaded = now() - start;
        launch.kernel = ptx_fixture_find(module, "copy7");
        launch.memory = table.memory;
        launch.params = params;
        launch.param_bytes = sizeof(params);
        launch.grid[0] = 1;
        ptx_launch(&launch, &result, &err);
        best_load = MIN(best_load, loaded);
        best_all = MIN(best_all, now() - start);
        ptx_module_free(module);
        ptx_table_done(&table);
    }
    printf("load 1 MB of PTX: %.1f ms; with a first launch: %.1f ms\n", best_load * 1e3,
           best_all * 1e3);
}

int main(int argc, char **argv) {
#ifdef BENCH_PTX
    const char *path = argc > 1 ? argv[1] : BENCH_PTX;
#else
    const char *path = argc > 1 ? argv[1] : NULL;
#endif

    if (!path || argc > 2) {
        fprintf(stderr, "usage: bench-ptx [numeric.ptx]; without nvcc the file must be given\n");
        return 2;
    }
    printf("executor built for %s\n", ptx_isa_get()->name);
    measure_kernels(path);
    measure_load(path);
    return 0;
}
