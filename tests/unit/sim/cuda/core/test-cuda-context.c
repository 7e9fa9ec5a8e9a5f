/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <string.h>

#include "tests/support/sim/cuda/cuda_library.h"
#include "tests/support/suite.h"

static uint64_t cost(struct sim_box *s) {
    return box_model(s->box, 0)->context_bytes;
}

static unsigned contexts(struct sim_box *s, unsigned gpu) {
    unsigned n;

    ck_assert_int_eq(box_lock(s->box), 0);
    n = s->box->file->proc[0].usage[gpu].contexts;
    box_unlock(s->box);
    return n;
}

START_TEST(a_primary_context_costs_once_however_often_it_is_retained) {
    CUcontext a, b;
    unsigned flags;
    int active;
    struct sim_box s;

    cuda_library_init(&s, NULL);
    ck_assert_uint_eq(sim_box_used(&s, 0), 0);
    ck_assert_cuda_ok(CU(cuDevicePrimaryCtxGetState)(0, &flags, &active));
    ck_assert_int_eq(active, 0);
    ck_assert_cuda(CU(cuDevicePrimaryCtxRelease_v2)(0), CUDA_ERROR_INVALID_CONTEXT);
    ck_assert_cuda_ok(CU(cuDevicePrimaryCtxRetain)(&a, 0));
    ck_assert_cuda_ok(CU(cuDevicePrimaryCtxRetain)(&b, 0));
    ck_assert_ptr_eq(a, b);
    ck_assert_uint_eq(sim_box_used(&s, 0), cost(&s));
    ck_assert_uint_eq(contexts(&s, 0), 1);
    ck_assert_cuda_ok(CU(cuDevicePrimaryCtxGetState)(0, &flags, &active));
    ck_assert_int_eq(active, 1);
    ck_assert_cuda(CU(cuCtxDestroy_v2)(a), CUDA_ERROR_INVALID_CONTEXT);
    ck_assert_cuda_ok(CU(cuDevicePrimaryCtxRelease_v2)(0));
    ck_assert_uint_eq(sim_box_used(&s, 0), cost(&s));
    ck_assert_cuda_ok(CU(cuDevicePrimaryCtxRelease_v2)(0));
    ck_assert_uint_eq(sim_box_used(&s, 0), 0);
    ck_assert_uint_eq(contexts(&s, 0), 0);
    ck_assert_cuda(CU(cuCtxSetCurrent)(a), CUDA_ERROR_INVALID_CONTEXT);
    ck_assert_cuda_ok(CU(cuDevicePrimaryCtxRetain)(&b, 0));
    ck_assert_ptr_eq(a, b); /* the handle stays */
    sim_box_done(&s);
}
END_TEST

START_TEST(flags_of_a_primary_context_hold_even_before_it_lives) {
    CUcontext context;
    unsigned flags;
    int active;
    struct sim_box s;

    cuda_library_init(&s, NULL);
    ck_assert_cuda_ok(CU(cuDevicePrimaryCtxSetFlags_v2)(0, CU_CTX_SCHED_BLOCKING_SYNC));
    ck_assert_cuda(CU(cuDevicePrimaryCtxSetFlags_v2)(0, 0x4000), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda_ok(CU(cuDevicePrimaryCtxRetain)(&context, 0));
    ck_assert_cuda_ok(CU(cuDevicePrimaryCtxGetState)(0, &flags, &active));
    ck_assert_uint_eq(flags, CU_CTX_SCHED_BLOCKING_SYNC);
    ck_assert_cuda_ok(CU(cuCtxSetCurrent)(context));
    ck_assert_cuda_ok(CU(cuCtxGetFlags)(&flags));
    ck_assert_uint_eq(flags, CU_CTX_SCHED_BLOCKING_SYNC);
    sim_box_done(&s);
}
END_TEST

START_TEST(every_other_context_costs_and_takes_its_memory_with_it) {
    CUcontext a, b, current;
    CUdeviceptr p;
    struct sim_box s;

    cuda_library_init(&s, NULL);
    ck_assert_cuda_ok(CU(cuCtxCreate_v2)(&a, CU_CTX_SCHED_YIELD, 0));
    ck_assert_cuda_ok(CU(cuCtxCreate_v4)(&b, NULL, 0, 0));
    ck_assert_ptr_ne(a, b);
    ck_assert_uint_eq(sim_box_used(&s, 0), 2 * cost(&s));
    ck_assert_cuda_ok(CU(cuCtxGetCurrent)(&current));
    ck_assert_ptr_eq(current, b);
    cuda_library_alloc(3 * MIB);
    cuda_library_alloc(100);
    p = cuda_library_alloc(200);
    ck_assert_uint_eq(sim_box_used(&s, 0), 2 * cost(&s) + 6 * MIB);
    ck_assert_cuda_ok(CU(cuCtxDestroy_v2)(b));
    ck_assert_uint_eq(sim_box_used(&s, 0), cost(&s));
    ck_assert_cuda_ok(CU(cuCtxGetCurrent)(&current));
    ck_assert_ptr_eq(current, a); /* the one below */
    ck_assert_cuda(CU(cuMemFree_v2)(p), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuCtxDestroy_v2)(b), CUDA_ERROR_INVALID_CONTEXT);
    ck_assert_cuda(CU(cuCtxDestroy_v2)((CUcontext)0x1234), CUDA_ERROR_INVALID_CONTEXT);
    ck_assert_cuda(CU(cuCtxCreate_v2)(&b, 0x3f, 0), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuCtxCreate_v2)(&b, 0, 9), CUDA_ERROR_INVALID_DEVICE);
    sim_box_done(&s);
}
END_TEST

START_TEST(the_stack_of_a_thread_is_its_own) {
    CUcontext a, b, c;
    CUdevice device;
    struct sim_box s;

    cuda_library_init(&s, NULL);
    ck_assert_cuda(CU(cuCtxGetDevice)(&device), CUDA_ERROR_INVALID_CONTEXT);
    ck_assert_cuda(CU(cuCtxPopCurrent_v2)(&a), CUDA_ERROR_INVALID_CONTEXT);
    ck_assert_cuda_ok(CU(cuCtxGetCurrent)(&c));
    ck_assert_ptr_null(c);
    ck_assert_cuda_ok(CU(cuCtxCreate_v2)(&a, 0, 0));
    ck_assert_cuda_ok(CU(cuCtxCreate_v2)(&b, 0, 1));
    ck_assert_cuda_ok(CU(cuCtxGetDevice)(&device));
    ck_assert_int_eq(device, 1);
    ck_assert_cuda_ok(CU(cuCtxPushCurrent_v2)(a));
    ck_assert_cuda_ok(CU(cuCtxGetDevice)(&device));
    ck_assert_int_eq(device, 0);
    ck_assert_cuda_ok(CU(cuCtxGetDevice_v2)(&device, b));
    ck_assert_int_eq(device, 1);
    ck_assert_cuda_ok(CU(cuCtxPopCurrent_v2)(&c));
    ck_assert_ptr_eq(c, a);
    ck_assert_cuda_ok(CU(cuCtxPopCurrent_v2)(&c));
    ck_assert_ptr_eq(c, b);
    ck_assert_cuda_ok(CU(cuCtxSetCurrent)(b)); /* replaces the top */
    ck_assert_cuda_ok(CU(cuCtxPopCurrent_v2)(&c));
    ck_assert_ptr_eq(c, b);
    ck_assert_cuda(CU(cuCtxGetDevice)(&device), CUDA_ERROR_INVALID_CONTEXT);
    sim_box_done(&s);
}
END_TEST

static void *destroy(void *context) {
    ck_assert_cuda_ok(CU(cuCtxDestroy_v2)(context));
    return NULL;
}

START_TEST(a_context_that_another_thread_destroyed_is_known_to_be_gone) {
    CUcontext a, b;
    CUdeviceptr p;
    pthread_t thread;
    struct sim_box s;

    cuda_library_init(&s, NULL);
    ck_assert_cuda_ok(CU(cuCtxCreate_v2)(&a, 0, 0));
    pthread_create(&thread, NULL, destroy, a);
    pthread_join(thread, NULL);
    ck_assert_cuda(CU(cuMemAlloc_v2)(&p, 10), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    ck_assert_cuda_ok(CU(cuCtxGetCurrent)(&b));
    ck_assert_ptr_eq(a, b);
    sim_box_done(&s);
}
END_TEST

START_TEST(a_device_reset_ends_the_primary_context) {
    CUdeviceptr p;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    cuda_library_alloc(10 * MIB);
    ck_assert_cuda_ok(CU(cuMemAllocAsync)(&p, 100, NULL));
    ck_assert_cuda_ok(CU(cuDevicePrimaryCtxReset_v2)(0));
    ck_assert_uint_eq(sim_box_used(&s, 0), 0);
    ck_assert_cuda(CU(cuMemAlloc_v2)(&p, 10), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    cuda_library_use(0);
    cuda_library_alloc(100);
    ck_assert_uint_eq(sim_box_used(&s, 0), cost(&s) + 2 * MIB);
    sim_box_done(&s);
}
END_TEST

START_TEST(limits_are_kept_and_checked) {
    size_t value;
    struct sim_box s;
    int least, greatest;

    cuda_library_start(&s, &(struct box_spec){ .n_gpus = 1, .models = "a100-40g" });
    ck_assert_cuda_ok(CU(cuCtxGetLimit)(&value, CU_LIMIT_STACK_SIZE));
    ck_assert_uint_eq(value, 1024);
    ck_assert_cuda_ok(CU(cuCtxSetLimit)(CU_LIMIT_STACK_SIZE, 4096));
    ck_assert_cuda_ok(CU(cuCtxGetLimit)(&value, CU_LIMIT_STACK_SIZE));
    ck_assert_uint_eq(value, 4096);
    ck_assert_cuda(CU(cuCtxSetLimit)((CUlimit)99, 1), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuCtxGetLimit)(&value, (CUlimit)99), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda_ok(CU(cuCtxSetLimit)(CU_LIMIT_PERSISTING_L2_CACHE_SIZE, SIZE_MAX));
    ck_assert_cuda_ok(CU(cuCtxGetLimit)(&value, CU_LIMIT_PERSISTING_L2_CACHE_SIZE));
    ck_assert_uint_eq(value, box_model(s.box, 0)->l2_bytes * 3 / 4);
    ck_assert_cuda_ok(CU(cuCtxGetStreamPriorityRange)(&least, &greatest));
    ck_assert_int_eq(least, 0);
    ck_assert_int_lt(greatest, 0);
    sim_box_done(&s);
}
END_TEST

START_TEST(peer_access_is_enabled_once_and_disabled_once) {
    const struct box_spec pair = { .n_gpus = 2, .models = "a100-40g", .seed = 5 };
    CUcontext a, b;
    struct sim_box s;

    cuda_library_init(&s, &pair);
    ck_assert_cuda_ok(CU(cuCtxCreate_v2)(&b, 0, 1));
    ck_assert_cuda_ok(CU(cuCtxCreate_v2)(&a, 0, 0));
    ck_assert_cuda(CU(cuCtxEnablePeerAccess)(b, 1), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda_ok(CU(cuCtxEnablePeerAccess)(b, 0));
    ck_assert_cuda(CU(cuCtxEnablePeerAccess)(b, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    ck_assert_cuda(CU(cuCtxEnablePeerAccess)(a, 0), CUDA_ERROR_INVALID_CONTEXT);
    ck_assert_cuda_ok(CU(cuCtxDisablePeerAccess)(b));
    ck_assert_cuda(CU(cuCtxDisablePeerAccess)(b), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    sim_box_done(&s);
}
END_TEST

static int hold_context(struct sim_box *s, void *argument) {
    struct cuda_library_pair *pair = argument;
    char byte = 0;

    cuda_library_use(0);
    cuda_library_send(pair->to_parent[1], &byte, 1);
    cuda_library_receive(pair->to_child[0], &byte, 1);
    return 0;
}

START_TEST(the_compute_mode_of_the_device_is_obeyed) {
    struct cuda_library_pair pair;
    CUcontext context;
    struct sim_box s;
    char byte = 0;
    pid_t pid;

    sim_box_init(&s, NULL);
    cuda_library_pair_init(&pair);
    pid = sim_box_fork(hold_context, &s, &pair);
    cuda_library_receive(pair.to_parent[0], &byte, 1);
    ck_assert_cuda_ok(CU(cuInit)(0));
    box_lock(s.box);
    s.box->file->gpu[0].compute_mode = CU_COMPUTEMODE_EXCLUSIVE_PROCESS;
    s.box->file->gpu[1].compute_mode = CU_COMPUTEMODE_PROHIBITED;
    box_unlock(s.box);
    ck_assert_cuda(CU(cuDevicePrimaryCtxRetain)(&context, 0), CUDA_ERROR_DEVICE_UNAVAILABLE);
    ck_assert_cuda(CU(cuDevicePrimaryCtxRetain)(&context, 1), CUDA_ERROR_DEVICE_UNAVAILABLE);
    cuda_library_send(pair.to_child[1], &byte, 1);
    sim_box_expect_success(pid);
    ck_assert_cuda_ok(CU(cuDevicePrimaryCtxRetain)(&context, 0));
    sim_box_done(&s);
}
END_TEST

START_TEST(streams_and_events_exist_and_are_idle) {
    unsigned long long id, other_id;
    CUstream stream, other;
    CUevent start, end;
    CUcontext context;
    unsigned flags;
    int priority;
    float ms = -1;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    ck_assert_cuda_ok(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    ck_assert_cuda_ok(CU(cuStreamCreateWithPriority)(&other, 0, -100));
    ck_assert_cuda_ok(CU(cuStreamGetPriority)(other, &priority));
    ck_assert_int_eq(priority, -5);
    ck_assert_cuda_ok(CU(cuStreamGetFlags)(stream, &flags));
    ck_assert_uint_eq(flags, CU_STREAM_NON_BLOCKING);
    ck_assert_cuda_ok(CU(cuStreamGetId)(stream, &id));
    ck_assert_cuda_ok(CU(cuStreamGetId)(other, &other_id));
    ck_assert_uint_ne(id, other_id);
    ck_assert_cuda_ok(CU(cuStreamGetCtx)(stream, &context));
    ck_assert_cuda_ok(CU(cuStreamQuery)(stream));
    ck_assert_cuda_ok(CU(cuStreamQuery)(NULL));
    ck_assert_cuda_ok(CU(cuStreamQuery_ptsz)(NULL));
    ck_assert_cuda_ok(CU(cuEventCreate)(&start, 0));
    ck_assert_cuda_ok(CU(cuEventCreate)(&end, 0));
    ck_assert_cuda(CU(cuEventElapsedTime_v2)(&ms, start, end), CUDA_ERROR_INVALID_HANDLE);
    ck_assert_cuda_ok(CU(cuEventRecord)(start, stream));
    ck_assert_cuda_ok(CU(cuStreamWaitEvent)(other, start, 0));
    ck_assert_cuda_ok(CU(cuEventRecord)(end, other));
    ck_assert_cuda_ok(CU(cuEventSynchronize)(end));
    ck_assert_cuda_ok(CU(cuEventElapsedTime_v2)(&ms, start, end));
    ck_assert(ms >= 0);
    ck_assert_cuda_ok(CU(cuEventDestroy_v2)(start));
    ck_assert_cuda(CU(cuEventQuery)(start), CUDA_ERROR_INVALID_HANDLE);
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(stream));
    ck_assert_cuda_ok(CU(cuStreamDestroy_v2)(stream));
    ck_assert_cuda(CU(cuStreamDestroy_v2)(stream), CUDA_ERROR_INVALID_HANDLE);
    ck_assert_cuda(CU(cuStreamQuery)((CUstream)0x77777777), CUDA_ERROR_INVALID_HANDLE);
    sim_box_done(&s);
}
END_TEST

static CUresult answers[6];

static void call_cuda(void *argument) {
    CUdeviceptr p;
    CUstream stream;
    size_t bytes;

    answers[0] = CU(cuMemAlloc_v2)(&p, 8);
    answers[1] = CU(cuStreamCreate)(&stream, 0);
    answers[2] = CU(cuMemGetInfo_v2)(&bytes, &bytes);
    answers[3] = CU(cuCtxSynchronize)();
    answers[4] = CU(cuCtxSetCurrent)(argument);
    answers[5] = CU(cuCtxPopCurrent_v2)(NULL);
}

static void call_cuda_as_told(CUstream stream, CUresult status, void *argument) {
    (void)stream, (void)status;
    call_cuda(argument);
}

/* Though the thread that calls it has no context either. */
START_TEST(a_callback_is_told_that_cuda_is_not_for_it) {
    CUcontext context;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    ck_assert_cuda_ok(CU(cuCtxGetCurrent)(&context));
    for (int old = 0; old < 2; old++) {
        memset(answers, 0, sizeof(answers));
        if (old)
            ck_assert_cuda_ok(CU(cuStreamAddCallback)(NULL, call_cuda_as_told, context, 0));
        else
            ck_assert_cuda_ok(CU(cuLaunchHostFunc)(NULL, call_cuda, context));
        ck_assert_cuda_ok(CU(cuStreamSynchronize)(NULL));
        for (int i = 0; i < 6; i++)
            ck_assert_msg(answers[i] == CUDA_ERROR_NOT_PERMITTED, "%d: %s", i,
                          cuda_library_name(answers[i]));
    }
    sim_box_done(&s);
}
END_TEST

SUITE("cuda-context", a_callback_is_told_that_cuda_is_not_for_it,
      a_primary_context_costs_once_however_often_it_is_retained,
      flags_of_a_primary_context_hold_even_before_it_lives,
      every_other_context_costs_and_takes_its_memory_with_it, the_stack_of_a_thread_is_its_own,
      a_context_that_another_thread_destroyed_is_known_to_be_gone,
      a_device_reset_ends_the_primary_context, limits_are_kept_and_checked,
      peer_access_is_enabled_once_and_disabled_once, the_compute_mode_of_the_device_is_obeyed,
      streams_and_events_exist_and_are_idle)
