/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that compute with several threads, streams and devices, through graphs, pools and
 * events, some with kernels that run wild or never end, are killed anywhere. What they computed
 * until then is right, the box is empty afterwards, and the next process finds nothing of it.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/sim/cuda/cuda_library.h"
#include "tests/support/suite.h"

enum { PROCESSES = 24, AT_ONCE = 4, THREADS = 3, STEPS = 30, N = 4096 };

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { SLOWER = 3 };
#else
enum { SLOWER = 1 };
#endif

static const char text[] =
    ".version 7.5\n.target sm_75\n.address_size 64\n"
    ".visible .entry add(.param .u64 p, .param .u32 n, .param .u32 value) {\n"
    " .reg .b64 %rd<4>; .reg .b32 %r<8>; .reg .pred %q;\n"
    " ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [n]; ld.param.u32 %r2, [value];\n"
    " mov.u32 %r3, %ctaid.x; mov.u32 %r4, %ntid.x; mov.u32 %r5, %tid.x;\n"
    " mad.lo.u32 %r3, %r3, %r4, %r5; setp.ge.u32 %q, %r3, %r1; @%q ret;\n"
    " mad.wide.u32 %rd2, %r3, 4, %rd1; ld.global.u32 %r6, [%rd2]; add.u32 %r6, %r6, %r2;\n"
    " st.global.u32 [%rd2], %r6; ret;\n}\n"
    ".visible .entry forever() {\nL: bra L;\n}\n";

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Everything that fails ends the child, except what a sibling's wild kernel did to the context. */
static atomic_bool went_wild[2];
struct thread {
    uint64_t seed;
    CUdevice device;
    int progress; /* a byte for each step */
    CUfunction add, forever;
};

#define MUST(call, device)                                                                         \
    do {                                                                                           \
        CUresult result_ = (call);                                                                 \
        if (result_ != CUDA_SUCCESS && atomic_load(&went_wild[device]))                            \
            return NULL;                                                                           \
        if (result_ != CUDA_SUCCESS) {                                                             \
            fprintf(stderr, "%d: %s: %s\n", __LINE__, #call, cuda_library_name(result_));          \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

/* A graph that adds 1 by way of memory of its own, launched twice. */
static void *launch_graph(const struct thread *t, CUstream stream, CUdeviceptr p) {
    unsigned n = N, one = 1;
    CUgraphExec exec;
    CUdeviceptr own;
    CUgraph graph;

    MUST(CU(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), t->device);
    MUST(CU(cuMemAllocAsync)(&own, 4 * N, stream), t->device);
    MUST(CU(cuMemcpyDtoDAsync_v2)(own, p, 4 * N, stream), t->device);
    MUST(CU(cuLaunchKernel)(t->add, N / 256, 1, 1, 256, 1, 1, 0, stream,
                            (void *[]){ &own, &n, &one }, NULL),
         t->device);
    MUST(CU(cuMemcpyDtoDAsync_v2)(p, own, 4 * N, stream), t->device);
    MUST(CU(cuMemFreeAsync)(own, stream), t->device);
    MUST(CU(cuStreamEndCapture)(stream, &graph), t->device);
    MUST(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0), t->device);
    for (int i = 0; i < 2; i++)
        MUST(CU(cuGraphLaunch)(exec, stream), t->device);
    MUST(CU(cuGraphExecDestroy)(exec), t->device);
    MUST(CU(cuGraphDestroy)(graph), t->device);
    return (void *)t;
}

static void *compute(void *argument) {
    struct thread *t = argument;
    uint64_t state = t->seed | 1;
    unsigned n = N, expected = 0, seen[2];
    CUstream streams[3];
    CUcontext context;
    CUdeviceptr p;
    CUevent event;

    MUST(CU(cuDevicePrimaryCtxRetain)(&context, t->device), t->device);
    MUST(CU(cuCtxSetCurrent)(context), t->device);
    for (int i = 0; i < 3; i++)
        MUST(CU(cuStreamCreate)(&streams[i], CU_STREAM_NON_BLOCKING), t->device);
    MUST(CU(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING), t->device);
    MUST(CU(cuMemAllocAsync)(&p, 4 * N, streams[0]), t->device);
    MUST(CU(cuMemsetD32Async)(p, 0, N, streams[0]), t->device);
    for (int i = 0, at = 0; i < STEPS; i++) {
        const int to = (int)(next(&state) % 3);
        unsigned value = (unsigned)(next(&state) % 100);

        /* The data goes from stream to stream, by events alone. */
        MUST(CU(cuEventRecord)(event, streams[at]), t->device);
        MUST(CU(cuStreamWaitEvent)(streams[to], event, 0), t->device);
        at = to;
        switch (next(&state) % 8) {
        case 0:
            if (!launch_graph(t, streams[at], p))
                return NULL;
            expected += 2;
            break;
        case 1:
            MUST(CU(cuStreamSynchronize)(streams[at]), t->device);
            MUST(CU(cuMemcpyDtoH_v2)(seen, p + 4 * (next(&state) % (N - 1)), 8), t->device);
            if (seen[0] != expected || seen[1] != expected) {
                fprintf(stderr, "%u, %u instead of %u\n", seen[0], seen[1], expected);
                _exit(1);
            }
            break;
        case 2:
            if (next(&state) % 16 == 0) { /* one runs wild: its context is lost, and that is all */
                CUdeviceptr nowhere = p + (UINT64_C(1) << 36);

                atomic_store(&went_wild[t->device], true);
                MUST(CU(cuLaunchKernel)(t->add, 1, 1, 1, 32, 1, 1, 0, streams[at],
                                        (void *[]){ &nowhere, &n, &value }, NULL),
                     t->device);
                break;
            }
            __attribute__((fallthrough));
        default:
            MUST(CU(cuLaunchKernel)(t->add, N / 128, 1, 1, 128, 1, 1, 0, streams[at],
                                    (void *[]){ &p, &n, &value }, NULL),
                 t->device);
            expected += value;
        }
        if (write(t->progress, "", 1) != 1)
            _exit(1);
    }
    return NULL;
}

struct start {
    uint64_t seed;
    int progress;
};

static int child(struct sim_box *s, void *argument) {
    const struct start *start = argument;
    struct thread threads[THREADS];
    pthread_t ids[THREADS];
    CUmodule modules[2];
    CUcontext contexts[2];

    (void)s;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    ck_assert_cuda_ok(CU(cuInit)(0));
    for (int i = 0; i < 2; i++) {
        ck_assert_cuda_ok(CU(cuDevicePrimaryCtxRetain)(&contexts[i], i));
        ck_assert_cuda_ok(CU(cuCtxSetCurrent)(contexts[i]));
        ck_assert_cuda_ok(CU(cuModuleLoadData)(&modules[i], text));
    }
    for (int i = 0; i < THREADS; i++) {
        struct thread *t = &threads[i];

        *t = (struct thread){ .seed = start->seed + (uint64_t)i * 77777, .device = i % 2 };
        t->progress = start->progress;
        ck_assert_cuda_ok(CU(cuModuleGetFunction)(&t->add, modules[i % 2], "add"));
        ck_assert_cuda_ok(CU(cuModuleGetFunction)(&t->forever, modules[i % 2], "forever"));
    }
    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&ids[i], NULL, compute, &threads[i]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(ids[i], NULL);
    /* Some end with a kernel that never does. */
    if (start->seed % 4 == 0 && !atomic_load(&went_wild[1]))
        ck_assert_cuda_ok(
            CU(cuLaunchKernel)(threads[1].forever, 4, 1, 1, 64, 1, 1, 0, NULL, NULL, NULL));
    return 0;
}

START_TEST(processes_that_compute_are_killed_anywhere) {
    uint64_t seed = (uint64_t)time(NULL) * 2654435761u | 1, state;
    pid_t pids[AT_ONCE] = { 0 };
    int progress[AT_ONCE];
    unsigned killed = 0;
    struct allot_error err = { 0 };
    struct sim_box s;

    if (getenv("ALLOT_SEED"))
        seed = strtoull(getenv("ALLOT_SEED"), NULL, 0);
    fprintf(stderr, "seed %#llx\n", (unsigned long long)seed);
    state = seed;
    sim_box_init(&s, NULL);
    for (unsigned i = 0; i < PROCESSES / SLOWER + AT_ONCE; i++) {
        const unsigned at = i % AT_ONCE;
        int pipes[2], status;
        char c;

        if (pids[at]) {
            /* Half of them are killed, when they have come so far. */
            if (next(&state) % 2) {
                for (unsigned k = (unsigned)(next(&state) % (THREADS * STEPS)); k; k--)
                    if (read(progress[at], &c, 1) < 1)
                        break;
                kill(pids[at], SIGKILL);
                killed++;
            } else {
                while (read(progress[at], &c, 1) == 1) /* until its end closes the pipe */
                    ;
            }
            ck_assert_int_eq(waitpid(pids[at], &status, 0), pids[at]);
            ck_assert_msg(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL
                                              : WEXITSTATUS(status) == 0,
                          "a child failed: %d", status);
            close(progress[at]);
            pids[at] = 0;
            sim_box_used(&s, 0); /* reaps */
            ck_assert_int_eq(box_lock(s.box), 0);
            ck_assert_msg(box_check(s.box, &err) == 0, "%s", err.text);
            box_unlock(s.box);
        }
        if (i >= PROCESSES / SLOWER)
            continue;
        ck_assert_int_eq(pipe(pipes), 0);
        {
            struct start start = { next(&state), pipes[1] };

            pids[at] = sim_box_fork(child, &s, &start);
        }
        close(pipes[1]);
        progress[at] = pipes[0];
    }
    ck_assert_uint_gt(killed, 0);
    ck_assert_uint_eq(sim_box_used(&s, 0), 0);
    ck_assert_uint_eq(sim_box_used(&s, 1), 0);
    /* Nothing of it is left for the next one. */
    cuda_library_use(0);
    ck_assert_cuda_ok(CU(cuCtxSynchronize)());
    sim_box_done(&s);
}
END_TEST

SUITE_TIMEOUT("cuda-stress", 120, processes_that_compute_are_killed_anywhere)
