/* SPDX-License-Identifier: Apache-2.0 */
/*
 * charge lease-first|driver-first: a program with memory management of its own, in a job of 1 GiB.
 * It says to its lease what it is going to take, takes it from the driver, and prints after each
 * step what the processes of the job hold together, in MiB. Where it is to go on it reads a line.
 * charge cancel: asks for more after a line, and calls that off soon; prints what came of it, when.
 */
#include <allot/lease.h>
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)

static struct allot_lease *lease;
static struct allot_error err;

static CUresult (*take)(CUdeviceptr *, size_t);
static CUresult (*give)(CUdeviceptr);
static CUresult (*info)(size_t *, size_t *);

static void must(int r, const char *what) {
    if (r != 0) {
        fprintf(stderr, "%s: %d %s\n", what, r, err.text);
        exit(1);
    }
}

static void *find(void *library, const char *name) {
    void *symbol = dlsym(library, name);

    must(!symbol, name);
    return symbol;
}

static void make_context(void) {
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    CUcontext context;

    must(!cuda, "dlopen");
    must(((CUresult(*)(unsigned))find(cuda, "cuInit"))(0), "cuInit");
    must(((CUresult(*)(CUcontext *, CUdevice))find(cuda, "cuDevicePrimaryCtxRetain"))(&context, 0),
         "cuDevicePrimaryCtxRetain");
    must(((CUresult(*)(CUcontext))find(cuda, "cuCtxSetCurrent"))(context), "cuCtxSetCurrent");
    take = (CUresult(*)(CUdeviceptr *, size_t))find(cuda, "cuMemAlloc_v2");
    give = (CUresult(*)(CUdeviceptr))find(cuda, "cuMemFree_v2");
    info = (CUresult(*)(size_t *, size_t *))find(cuda, "cuMemGetInfo_v2");
}

static void attach(void) {
    struct allot_lease_options options = ALLOT_LEASE_OPTIONS_INIT;
    struct allot_lease_share share;

    options.tier = 4;
    must(allot_lease_attach(&lease, 0, NULL, &options, &err), "attach");
    must(allot_lease_shares(lease, &share, 1) != 1, "shares");
    must(allot_lease_grow(lease, NULL, share.context_bytes, 0, &err), "a context");
}

static void say(const char *step) {
    uint64_t held;
    size_t free_bytes, total;

    must(allot_lease_held(lease, NULL, &held, &err), "held");
    must(info(&free_bytes, &total), "cuMemGetInfo");
    printf("%s %ju %zu %zu\n", step, (uintmax_t)(held / MIB), free_bytes / MIB, total / MIB);
    fflush(stdout);
}

/* The daemon believes that memory is free when the driver says so, too: it looks every second. */
static void wait_for_held(uint64_t bytes) {
    uint64_t held;

    do {
        usleep(20000);
        must(allot_lease_held(lease, NULL, &held, &err), "held");
    } while (held != bytes);
}

/* A child takes a part of the same limit in its own name. */
static void in_a_child(void) {
    pid_t child = fork();
    int status;

    if (child == 0) {
        CUdeviceptr ours;

        must(allot_lease_grow(lease, NULL, MIB, 0, &err) == 0, "a fork that did not attach");
        must(allot_lease_reattach(lease, &err), "reattach");
        must(allot_lease_grow(lease, NULL, 514 * MIB, 0, &err), "the child's part");
        make_context();
        must(take(&ours, 100 * MIB), "the child's allocation");
        say("child");
        allot_lease_free(lease);
        _exit(0);
    }
    must(waitpid(child, &status, 0) != child || status != 0, "the child");
}

static void call_off(void) {
    struct allot_lease_patience patience = ALLOT_LEASE_PATIENCE_INIT;
    const struct itimerspec soon = { .it_value.tv_nsec = 100000000 };
    struct timespec begun, ended;
    int r;

    patience.timeout_usec = UINT64_MAX;
    patience.cancel_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    printf("attached\n");
    fflush(stdout);
    getchar();
    clock_gettime(CLOCK_MONOTONIC, &begun);
    must(timerfd_settime(patience.cancel_fd, 0, &soon, NULL), "timerfd");
    r = allot_lease_grow_with(lease, NULL, 300 * MIB, &patience, &err);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    printf("called off %d %.3f\n", r,
           (double)(ended.tv_sec - begun.tv_sec) + (double)(ended.tv_nsec - begun.tv_nsec) * 1e-9);
    fflush(stdout);
}

int main(int argc, char **argv) {
    CUdeviceptr first, second, undeclared;
    struct allot_lease_share share;

    if (argc != 2)
        return 2;
    if (strcmp(argv[1], "child") == 0) {
        attach();
        in_a_child();
        return 0;
    }
    if (strcmp(argv[1], "cancel") == 0) {
        attach();
        call_off();
        return 0;
    }
    if (strcmp(argv[1], "driver-first") == 0)
        make_context();
    attach();
    if (strcmp(argv[1], "lease-first") == 0)
        make_context();
    must(allot_lease_grow(lease, NULL, 300 * MIB, 0, &err), "300 MiB");
    say("declared");
    must(take(&first, 300 * MIB), "what was declared");
    say("taken");
    getchar();
    must(take(&undeclared, 2 * MIB), "2 MiB that were not declared");
    must(allot_lease_grow(lease, NULL, 310 * MIB, 0, &err), "the rest");
    must(take(&second, 310 * MIB) != CUDA_ERROR_OUT_OF_MEMORY, "beyond the limit");
    must(take(&second, 308 * MIB), "up to the limit");
    must(allot_lease_grow(lease, NULL, 2 * MIB, 0, NULL) == 0, "declared beyond the limit");
    say("full");
    must(give(first) || give(second) || give(undeclared), "cuMemFree");
    must(allot_lease_shrink(lease, NULL, 610 * MIB, &err), "shrink");
    must(allot_lease_shrink(lease, NULL, 1024 * MIB, NULL) == 0, "more than was declared");
    allot_lease_shares(lease, &share, 1);
    wait_for_held(share.context_bytes);
    say("given");
    must(take(&first, 610 * MIB), "what was given back");
    allot_lease_free(lease);
    must(give(first), "cuMemFree");
    printf("done\n");
    return 0;
}
