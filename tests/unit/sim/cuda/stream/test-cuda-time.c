/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Modelled time, as programs see it through events and the host clock.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "sim/time/cost.h"
#include "sim/cuda/core/clock.h"
#include "tests/support/sim/cuda/cuda_library.h"
#include "tests/support/sim/cuda/gate.h"
#include "tests/support/suite.h"

static uint64_t clock_ns(void) {
    return CU(gpusimHostClock)();
}

static CUstream new_stream(void) {
    CUstream stream;

    ck_assert_cuda_ok(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static CUevent new_event(void) {
    CUevent event;

    ck_assert_cuda_ok(CU(cuEventCreate)(&event, CU_EVENT_DEFAULT));
    return event;
}

static char *new_host(size_t bytes) {
    void *p;

    ck_assert_cuda_ok(CU(cuMemHostAlloc)(&p, bytes, CU_MEMHOSTALLOC_PORTABLE));
    memset(p, 1, bytes);
    return p;
}

static struct cost_device device_of(struct sim_box *s, unsigned gpu) {
    const struct sim_model *model = box_model(s->box, gpu);

    return (struct cost_device){ model, model->multiprocessors };
}

static const struct box_spec quad = { .n_gpus = 4, .models = "a100-40g", .seed = 7 };

START_TEST(the_clock_goes_on_by_waiting_and_by_reported_work_only) {
    struct cost_device device;
    CUstream stream;
    CUdeviceptr p;
    uint64_t at;
    struct sim_box s;
    char *host;

    cuda_library_start(&s, &quad);
    device = device_of(&s, 0);
    stream = new_stream();
    p = cuda_library_alloc(8 * MIB);
    host = new_host(8 * MIB);
    ck_assert_uint_eq(clock_ns(), 0);
    ck_assert_cuda_ok(CU(cuMemcpyHtoDAsync_v2)(p, host, 8 * MIB, stream));
    ck_assert_cuda_ok(CU(cuMemsetD8Async)(p, 0, 8 * MIB, stream));
    usleep(20000);
    ck_assert_uint_eq(clock_ns(), 0); /* wall time is nothing to it */
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(stream));
    at = cost_host_copy(&device, 8 * MIB, true) + COST_LAUNCH_LATENCY_NS +
         cost_memory(&device, 8 * MIB);
    ck_assert_uint_eq(clock_ns(), at);
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(stream));
    ck_assert_uint_eq(clock_ns(), at);
    CU(gpusimHostWork)(1000000);
    ck_assert_uint_eq(clock_ns(), at + 1000000);
    /* A blocking copy begins now, not where the stream was. */
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(host, p, MIB));
    at += 1000000 + cost_host_copy(&device, MIB, true);
    ck_assert_uint_eq(clock_ns(), at);
    sim_box_done(&s);
}
END_TEST

START_TEST(costs_follow_the_shape_and_the_way_of_a_copy) {
    struct cost_device a, b;
    CUcontext contexts[2];
    CUdeviceptr p, q;
    uint64_t at, took;
    uint32_t links;
    struct sim_box s;
    char *host, *pageable;

    cuda_library_init(&s, &quad);
    ck_assert_cuda_ok(CU(cuDevicePrimaryCtxRetain)(&contexts[1], 1));
    ck_assert_cuda_ok(CU(cuCtxSetCurrent)(contexts[1]));
    q = cuda_library_alloc(16 * MIB);
    ck_assert_cuda_ok(CU(cuDevicePrimaryCtxRetain)(&contexts[0], 0));
    ck_assert_cuda_ok(CU(cuCtxSetCurrent)(contexts[0]));
    p = cuda_library_alloc(16 * MIB);
    a = device_of(&s, 0);
    b = device_of(&s, 1);
    links = s.box->file->gpu[0].nvlinks[1];
    ck_assert_uint_gt(links, 0);
    host = new_host(8 * MIB);
    pageable = calloc(1, 8 * MIB);

#define TAKES(call, ns)                                                                            \
    do {                                                                                           \
        ck_assert_cuda_ok(CU(cuCtxSynchronize)());                                                 \
        /* So that no stream's tail is near. */                                                    \
        CU(gpusimHostWork)(1000000);                                                               \
        at = clock_ns();                                                                           \
        ck_assert_cuda_ok(call);                                                                   \
        ck_assert_cuda_ok(CU(cuCtxSynchronize)());                                                 \
        took = clock_ns() - at;                                                                    \
        ck_assert_msg(took == (ns), "%s: %lu instead of %lu", #call, took, (uint64_t)(ns));        \
    } while (0)
    TAKES(CU(cuMemcpyHtoD_v2)(p, host, 8 * MIB), cost_host_copy(&a, 8 * MIB, true));
    TAKES(CU(cuMemcpyHtoD_v2)(p, pageable, 8 * MIB), cost_host_copy(&a, 8 * MIB, false));
    TAKES(CU(cuMemcpyDtoH_v2)(pageable, p, 100), cost_host_copy(&a, 100, false));
    TAKES(CU(cuMemcpyHtoDAsync_v2)(p, host, 5, NULL), cost_host_copy(&a, 5, true));
    TAKES(CU(cuMemcpyDtoD_v2)(p, p + 8 * MIB, 8 * MIB), cost_memory(&a, 16 * MIB));
    TAKES(CU(cuMemcpyPeer)(q, contexts[1], p, contexts[0], 4 * MIB),
          cost_peer_copy(&a, &b, links, 4 * MIB));
    TAKES(CU(cuMemcpyAsync)(p, q, 4 * MIB, NULL), cost_peer_copy(&b, &a, links, 4 * MIB));
    TAKES(CU(cuMemsetD32_v2)(p, 1, MIB), cost_memory(&a, 4 * MIB));
    TAKES(CU(cuMemsetD2D8_v2)(p, 1024, 1, 100, 50), cost_memory(&a, 5000));
    TAKES(CU(cuMemcpy2D_v2)(&(CUDA_MEMCPY2D){ .srcMemoryType = CU_MEMORYTYPE_HOST,
                                              .srcHost = host,
                                              .srcPitch = 512,
                                              .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                              .dstDevice = p,
                                              .dstPitch = 1024,
                                              .WidthInBytes = 300,
                                              .Height = 70 }),
          cost_host_copy(&a, 21000, true));
    free(pageable);
    sim_box_done(&s);
}
END_TEST

START_TEST(events_measure_modelled_milliseconds) {
    struct gate gate = GATE_INIT;
    struct cost_device device;
    CUevent start, end, untimed;
    CUstream stream, other;
    CUdeviceptr p;
    struct sim_box s;
    float ms = -1;

    cuda_library_start(&s, &quad);
    device = device_of(&s, 0);
    stream = new_stream();
    other = new_stream();
    start = new_event();
    end = new_event();
    ck_assert_cuda_ok(CU(cuEventCreate)(&untimed, CU_EVENT_DISABLE_TIMING));
    p = cuda_library_alloc(64 * MIB);
    ck_assert_cuda(CU(cuEventElapsedTime_v2)(&ms, start, end), CUDA_ERROR_INVALID_HANDLE);
    ck_assert_cuda_ok(CU(cuEventRecord)(start, stream));
    ck_assert_cuda_ok(CU(cuLaunchHostFunc)(stream, gate_pass, &gate));
    ck_assert_cuda_ok(CU(cuMemsetD8Async)(p, 0, 64 * MIB, stream));
    ck_assert_cuda_ok(CU(cuEventRecord)(end, stream));
    ck_assert_cuda(CU(cuEventElapsedTime_v2)(&ms, start, end), CUDA_ERROR_NOT_READY);
    gate_open(&gate);
    ck_assert_cuda_ok(CU(cuEventSynchronize)(end));
    ck_assert_cuda_ok(CU(cuEventElapsedTime_v2)(&ms, start, end));
    ck_assert_float_eq_tol(
        ms, (double)(cost_memory(&device, 64 * MIB) + COST_LAUNCH_LATENCY_NS) / 1e6, 1e-6);
    ck_assert_cuda_ok(CU(cuEventElapsedTime_v2)(&ms, end, start));
    ck_assert_float_lt(ms, 0);
    ck_assert_cuda_ok(CU(cuEventRecord)(untimed, other));
    ck_assert_cuda(CU(cuEventElapsedTime_v2)(&ms, start, untimed), CUDA_ERROR_INVALID_HANDLE);
    sim_box_done(&s);
}
END_TEST

START_TEST(streams_overlap_and_contend_as_the_hardware_does) {
    struct cost_device device;
    uint64_t at, up, down, set;
    CUstream a, b, c;
    CUdeviceptr p;
    struct sim_box s;
    char *host;

    cuda_library_start(&s, &quad);
    device = device_of(&s, 0);
    a = new_stream();
    b = new_stream();
    c = new_stream();
    p = cuda_library_alloc(64 * MIB);
    host = new_host(32 * MIB);
    up = cost_host_copy(&device, 16 * MIB, true);
    down = cost_host_copy(&device, 16 * MIB, true);
    set = cost_memory(&device, 16 * MIB);
    /* Both directions of the link and the memory, side by side. */
    ck_assert_cuda_ok(CU(cuMemcpyHtoDAsync_v2)(p, host, 16 * MIB, a));
    ck_assert_cuda_ok(CU(cuMemcpyDtoHAsync_v2)(host + 16 * MIB, p + 16 * MIB, 16 * MIB, b));
    ck_assert_cuda_ok(CU(cuMemsetD8Async)(p + 32 * MIB, 1, 16 * MIB, c));
    ck_assert_cuda_ok(CU(cuCtxSynchronize)());
    at = MAX(up, down);
    ck_assert_uint_eq(clock_ns(), MAX(at, set));
    /* One direction is one after the other. */
    CU(gpusimHostWork)(1000000);
    at = clock_ns();
    ck_assert_cuda_ok(CU(cuMemcpyHtoDAsync_v2)(p, host, 16 * MIB, a));
    ck_assert_cuda_ok(CU(cuMemcpyHtoDAsync_v2)(p + 16 * MIB, host, 16 * MIB, b));
    ck_assert_cuda_ok(CU(cuCtxSynchronize)());
    ck_assert_uint_eq(clock_ns() - at, 2 * up);
    sim_box_done(&s);
}
END_TEST

START_TEST(priority_decides_between_equals) {
    CUstream low, high;
    CUevent low_end, high_end;
    CUdeviceptr p;
    struct sim_box s;
    float ms;

    cuda_library_start(&s, &quad);
    ck_assert_cuda_ok(CU(cuStreamCreateWithPriority)(&low, CU_STREAM_NON_BLOCKING, 0));
    ck_assert_cuda_ok(CU(cuStreamCreateWithPriority)(&high, CU_STREAM_NON_BLOCKING, -5));
    low_end = new_event();
    high_end = new_event();
    p = cuda_library_alloc(32 * MIB);
    ck_assert_cuda_ok(CU(cuMemsetD8Async)(p, 1, 16 * MIB, low));
    ck_assert_cuda_ok(CU(cuEventRecord)(low_end, low));
    ck_assert_cuda_ok(CU(cuMemsetD8Async)(p + 16 * MIB, 1, 16 * MIB, high));
    ck_assert_cuda_ok(CU(cuEventRecord)(high_end, high));
    ck_assert_cuda_ok(CU(cuCtxSynchronize)());
    ck_assert_cuda_ok(CU(cuEventElapsedTime_v2)(&ms, high_end, low_end));
    ck_assert_float_gt(ms, 0);
    sim_box_done(&s);
}
END_TEST

/* Several host threads, each with streams on two devices, in phases that a barrier divides. */
enum {
    THREADS = 3,
    PHASES = 3,
    OPS = 40,
    MEASURED = 16,
#ifdef __SANITIZE_THREAD__
    RUNS = 5,
#else
    RUNS = 100,
#endif
};

struct worker {
    unsigned number;
    CUcontext contexts[4];
    CUstream streams[4];
    CUdeviceptr memory[4]; /* of a stream, on its device */
    CUdeviceptr remote[4]; /* of stream d, on device d + 1 */
    CUevent events[4];
    char *host;
    pthread_barrier_t *barrier;
};

static uint64_t random_next(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static void *submit_phases(void *argument) {
    struct worker *w = argument;
    uint64_t random = w->number + 99;

    for (unsigned phase = 0; phase < PHASES; phase++) {
        for (unsigned i = 0; i < OPS; i++) {
            const unsigned d = random_next(&random) % 4, other = random_next(&random) % 4;
            const size_t n = random_next(&random) % 60000 + 1;
            char *host = w->host + d * 65536;

            switch (random_next(&random) % 5) {
            case 0:
                ck_assert_cuda_ok(CU(cuMemsetD8Async)(w->memory[d], 1, n, w->streams[d]));
                break;
            case 1:
                ck_assert_cuda_ok(CU(cuMemcpyHtoDAsync_v2)(w->memory[d], host, n, w->streams[d]));
                break;
            case 2:
                ck_assert_cuda_ok(CU(cuMemcpyDtoHAsync_v2)(host, w->memory[d], n, w->streams[d]));
                break;
            case 3:
                ck_assert_cuda_ok(
                    other % 2 ? CU(cuMemcpyAsync)(w->memory[d], w->remote[d], n, w->streams[d])
                              : CU(cuMemcpyAsync)(w->remote[d], w->memory[d], n, w->streams[d]));
                break;
            case 4:
                ck_assert_cuda_ok(CU(cuEventRecord)(w->events[other], w->streams[other]));
                ck_assert_cuda_ok(CU(cuStreamWaitEvent)(w->streams[d], w->events[other], 0));
                break;
            }
        }
        /* All have submitted; then one of them waits, while the others do not submit. */
        pthread_barrier_wait(w->barrier);
        if (w->number == phase % THREADS) {
            ck_assert_cuda_ok(CU(cuStreamSynchronize)(w->streams[phase % 4]));
            CU(gpusimHostWork)(777);
        }
        pthread_barrier_wait(w->barrier);
    }
    return NULL;
}

struct measured {
    uint64_t n, clock_ns;
    float ms[MEASURED];
};

static void program_run(struct measured *ret) {
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    pthread_barrier_t barrier;
    CUevent starts[4];

    ck_assert_cuda_ok(CU(cuInit)(0));
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (unsigned d = 0; d < 4; d++) {
        CUcontext context;

        ck_assert_cuda_ok(CU(cuDevicePrimaryCtxRetain)(&context, (int)d));
        ck_assert_cuda_ok(CU(cuCtxSetCurrent)(context));
        starts[d] = new_event();
        for (unsigned i = 0; i < THREADS; i++) {
            workers[i].number = i;
            workers[i].barrier = &barrier;
            workers[i].contexts[d] = context;
            workers[i].streams[d] = new_stream();
            workers[i].memory[d] = cuda_library_alloc(65536);
            workers[i].remote[(d + 3) % 4] = cuda_library_alloc(65536);
            workers[i].events[d] = new_event();
            workers[i].host = d ? workers[i].host : new_host(4 * 65536);
        }
        ck_assert_cuda_ok(CU(cuEventRecord)(starts[d], workers[0].streams[d]));
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, submit_phases, &workers[i]);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    ret->n = 0;
    for (unsigned d = 0; d < 4; d++)
        for (unsigned i = 0; i < THREADS; i++) {
            CUevent *event = &workers[i].events[d];

            ck_assert_cuda_ok(CU(cuEventRecord)(*event, workers[i].streams[d]));
            ck_assert_cuda_ok(CU(cuEventSynchronize)(*event));
            ck_assert_cuda_ok(CU(cuEventElapsedTime_v2)(&ret->ms[ret->n++], starts[d], *event));
        }
    ret->clock_ns = clock_ns();
    pthread_barrier_destroy(&barrier);
}

static int measure(struct sim_box *s, void *argument) {
    struct measured measured = { 0 };

    program_run(&measured);
    return write(*(int *)argument, &measured, sizeof(measured)) == sizeof(measured) ? 0 : 1;
}

static struct measured measure_once(struct sim_box *s) {
    struct measured measured;
    int pipes[2];

    ck_assert_int_eq(pipe(pipes), 0);
    sim_box_expect_success(sim_box_fork(measure, s, &pipes[1]));
    ck_assert_int_eq(read(pipes[0], &measured, sizeof(measured)), sizeof(measured));
    close(pipes[0]);
    close(pipes[1]);
    return measured;
}

static int load(struct sim_box *s, void *argument) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (volatile unsigned i = 0;; i++)
        ;
    return 0;
}

START_TEST(the_same_program_takes_the_same_modelled_time_a_hundred_times_under_load) {
    struct measured first, now;
    struct sim_box s;
    pid_t loads[2];

    sim_box_init(&s, &quad);
    first = measure_once(&s);
    ck_assert_uint_gt(first.clock_ns, 0);
    for (unsigned i = 0; i < 2; i++)
        loads[i] = sim_box_fork(load, &s, NULL);
    for (int i = 1; i < RUNS; i++) {
        now = measure_once(&s);
        ck_assert_uint_eq(now.clock_ns, first.clock_ns);
        ck_assert_int_eq(memcmp(&now, &first, sizeof(now)), 0);
    }
    for (unsigned i = 0; i < 2; i++)
        sim_box_kill(loads[i]);
    sim_box_done(&s);
}
END_TEST

START_TEST(a_timing_only_box_predicts_the_time_of_one_that_computes) {
    struct box_spec timing = quad;
    struct measured computed, predicted;
    struct sim_box s;

    sim_box_init(&s, &quad);
    computed = measure_once(&s);
    sim_box_done(&s);
    timing.timing_only = true;
    sim_box_init(&s, &timing);
    predicted = measure_once(&s);
    ck_assert_int_eq(memcmp(&computed, &predicted, sizeof(computed)), 0);
    sim_box_done(&s);
}
END_TEST

START_TEST(a_timing_only_box_moves_nothing_and_still_counts_memory) {
    struct box_spec timing = quad;
    char in[100], out[100];
    CUdeviceptr p;
    struct sim_box s;

    timing.timing_only = true;
    cuda_library_start(&s, &timing);
    memset(in, 1, sizeof(in));
    memset(out, 2, sizeof(out));
    p = cuda_library_alloc(10ul * GIB);
    ck_assert_uint_eq(sim_box_used(&s, 0), box_model(s.box, 0)->context_bytes + 10ul * GIB);
    ck_assert_cuda_ok(CU(cuMemsetD8_v2)(p, 7, 10ul * GIB));
    ck_assert_cuda_ok(CU(cuMemcpyHtoD_v2)(p, in, 100));
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(out, p, 100));
    ck_assert_int_eq(out[50], 2);
    ck_assert_uint_gt(clock_ns(), 1000000);
    ck_assert_cuda(CU(cuMemcpyDtoH_v2)(out, p + 10ul * GIB - 1, 2), CUDA_ERROR_INVALID_VALUE);
    sim_box_done(&s);
}
END_TEST

SUITE_TIMEOUT("cuda-time", 110, the_clock_goes_on_by_waiting_and_by_reported_work_only,
              costs_follow_the_shape_and_the_way_of_a_copy, events_measure_modelled_milliseconds,
              streams_overlap_and_contend_as_the_hardware_does, priority_decides_between_equals,
              the_same_program_takes_the_same_modelled_time_a_hundred_times_under_load,
              a_timing_only_box_predicts_the_time_of_one_that_computes,
              a_timing_only_box_moves_nothing_and_still_counts_memory)
