/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guard-pairs: what an allocation and its free cost, with so many others alive. Run by
 * bench-guard.sh, once bare and once under a lease; prints "live ns" lines and, at the end, whether
 * a launch and a copy go straight to the driver.
 *
 *     guard-pairs [PAIRS]
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cuda.h>

#include "base/cleanup.h"

static CUresult (*alloc)(CUdeviceptr *, size_t);
static CUresult (*release)(CUdeviceptr);

static void *find(void *handle, const char *name) {
    void *symbol = dlsym(handle, name);

    if (!symbol) {
        fprintf(stderr, "guard-pairs: libcuda has no %s\n", name);
        exit(1);
    }
    return symbol;
}

static void need(CUresult r, const char *what) {
    if (r != CUDA_SUCCESS) {
        fprintf(stderr, "guard-pairs: %s: CUDA error %d\n", what, (int)r);
        exit(1);
    }
}

static double cpu_ns(void) {
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

/* Median over rounds, which leaves out what the machine did to some of them. */
static double pair_ns(unsigned pairs) {
    enum { ROUNDS = 31 };
    double rounds[ROUNDS];

    for (unsigned round = 0; round < ROUNDS; round++) {
        double start = cpu_ns();

        for (unsigned i = 0; i < pairs; i++) {
            CUdeviceptr pointer;

            need(alloc(&pointer, 4096), "cuMemAlloc");
            need(release(pointer), "cuMemFree");
        }
        rounds[round] = (cpu_ns() - start) / pairs;
    }
    qsort(rounds, ROUNDS, sizeof(rounds[0]), compare);
    return rounds[ROUNDS / 2];
}

static const char *home_of(void *symbol) {
    Dl_info info;

    return dladdr(symbol, &info) && info.dli_fname ? info.dli_fname : "?";
}

int main(int argc, char **argv) {
    static const unsigned steps[] = { 0, 100, 1000, 5000, 20000, 100000 };
    void *libcuda = dlopen("libcuda.so.1", RTLD_NOW);
    unsigned pairs = argc > 1 ? (unsigned)atoi(argv[1]) : 2000, live = 0;
    CUcontext context;

    if (!libcuda) {
        fprintf(stderr, "guard-pairs: %s\n", dlerror());
        return 1;
    }
    alloc = (CUresult(*)(CUdeviceptr *, size_t))find(libcuda, "cuMemAlloc_v2");
    release = (CUresult(*)(CUdeviceptr))find(libcuda, "cuMemFree_v2");
    need(((CUresult(*)(unsigned))find(libcuda, "cuInit"))(0), "cuInit");
    need(((CUresult(*)(CUcontext *, CUdevice))find(libcuda, "cuDevicePrimaryCtxRetain"))(&context,
                                                                                         0),
         "cuDevicePrimaryCtxRetain");
    need(((CUresult(*)(CUcontext))find(libcuda, "cuCtxSetCurrent"))(context), "cuCtxSetCurrent");
    for (size_t i = 0; i < ELEMENTSOF(steps); i++) {
        for (; live < steps[i]; live++) {
            CUdeviceptr pointer;

            need(alloc(&pointer, 4096), "cuMemAlloc");
        }
        pair_ns(pairs / 10 + 1);
        printf("%u %.1f\n", live, pair_ns(pairs));
    }
    printf("launch %s\n",
           home_of(find(libcuda, "cuLaunchKernel")) == home_of(find(libcuda, "cuDriverGetVersion"))
               ? "direct"
               : "hooked");
    printf("copy %s\n", home_of(find(libcuda, "cuMemcpyHtoDAsync_v2")) ==
                                home_of(find(libcuda, "cuDriverGetVersion"))
                            ? "direct"
                            : "hooked");
    return 0;
}
