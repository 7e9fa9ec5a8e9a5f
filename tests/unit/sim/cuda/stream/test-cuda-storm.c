/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two hundred processes that allocate, free and are killed at random, a few at a time, leave the
 * books of the box exact: what the living hold is what the box says, and at the end it is empty.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/sim/cuda/cuda_library.h"
#include "tests/support/suite.h"

enum { PROCESSES = 200, AT_ONCE = 12 };

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Allocate and free by every way until killed; some end by themselves. */
static int child(struct sim_box *s, void *argument) {
    uint64_t state = *(uint64_t *)argument | 1;
    CUdeviceptr live[16] = { 0 };
    CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } };
    unsigned steps = (unsigned)(next(&state) % 600);
    CUdevice device = (CUdevice)(next(&state) % 2);

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (CU(cuInit)(0) != CUDA_SUCCESS)
        return 1;
    {
        CUcontext context;

        if (CU(cuDevicePrimaryCtxRetain)(&context, device) != CUDA_SUCCESS)
            return 0; /* full is full */
        if (CU(cuCtxSetCurrent)(context) != CUDA_SUCCESS)
            return 1;
    }
    prop.location.id = device;
    for (unsigned i = 0; i < steps; i++) {
        CUdeviceptr *p = &live[next(&state) % 16];
        CUmemGenericAllocationHandle handle;

        if (*p) {
            if (CU(cuMemFree_v2)(*p) != CUDA_SUCCESS)
                return 1;
            *p = 0;
            continue;
        }
        switch (next(&state) % 4) {
        case 0:
            if (CU(cuMemAlloc_v2)(p, 1 + next(&state) % 100000) != CUDA_SUCCESS)
                *p = 0;
            break;
        case 1:
            if (CU(cuMemAlloc_v2)(p, 1 + next(&state) % (64 * MIB)) != CUDA_SUCCESS)
                *p = 0;
            break;
        case 2:
            if (CU(cuMemAllocAsync)(p, 1 + next(&state) % (8 * MIB), NULL) != CUDA_SUCCESS)
                *p = 0;
            break;
        default:
            if (CU(cuMemCreate)(&handle, 4 * MIB, &prop, 0) == CUDA_SUCCESS &&
                CU(cuMemRelease)(handle) != CUDA_SUCCESS)
                return 1;
        }
    }
    return 0;
}

START_TEST(two_hundred_processes_leave_the_books_exact) {
    uint64_t seed = (uint64_t)time(NULL) * 2654435761u | 1, state;
    pid_t pids[AT_ONCE] = { 0 };
    unsigned started = 0, killed = 0, running = 0;
    struct allot_error err = { 0 };
    struct sim_box s;

    if (getenv("ALLOT_SEED"))
        seed = strtoull(getenv("ALLOT_SEED"), NULL, 0);
    fprintf(stderr, "seed %#llx\n", (unsigned long long)seed);
    state = seed;
    sim_box_init(&s, NULL);
    while (started < PROCESSES || running > 0) {
        pid_t *slot = &pids[next(&state) % AT_ONCE];
        int status;

        if (!*slot && started < PROCESSES) {
            uint64_t own = next(&state);

            *slot = sim_box_fork(child, &s, &own);
            started++;
            running++;
            continue;
        }
        if (!*slot)
            continue;
        if (next(&state) % 2) {
            usleep((useconds_t)(next(&state) % 4000));
            kill(*slot, SIGKILL);
            killed++;
        }
        ck_assert_int_eq(waitpid(*slot, &status, 0), *slot);
        ck_assert_msg(!WIFEXITED(status) || WEXITSTATUS(status) == 0, "a child failed");
        *slot = 0;
        running--;
        if (started % 16 == 0) {
            sim_box_used(&s, 0); /* reaps */
            ck_assert_int_eq(box_lock(s.box), 0);
            ck_assert_msg(box_check(s.box, &err) == 0, "%s", err.text);
            box_unlock(s.box);
        }
    }
    ck_assert_uint_gt(killed, PROCESSES / 4);
    ck_assert_uint_eq(sim_box_used(&s, 0), 0);
    ck_assert_uint_eq(sim_box_used(&s, 1), 0);
    ck_assert_int_eq(box_lock(s.box), 0);
    ck_assert_msg(box_check(s.box, &err) == 0, "%s", err.text);
    for (unsigned i = 0; i < BOX_MAX_PROCS; i++)
        ck_assert_uint_eq(s.box->file->proc[i].state, PROC_FREE);
    for (unsigned i = 0; i < BOX_MAX_SEGMENTS; i++)
        ck_assert_uint_eq(s.box->file->segment[i].id, 0);
    box_unlock(s.box);
    sim_box_done(&s);
}
END_TEST

SUITE_TIMEOUT("cuda-storm", 90, two_hundred_processes_leave_the_books_exact)
