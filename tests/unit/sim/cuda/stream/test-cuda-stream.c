/* SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/support/sim/cuda/cuda_library.h"
#include "tests/support/sim/cuda/gate.h"
#include "tests/support/suite.h"

static void count(void *argument) {
    (*(atomic_int *)argument)++;
}

START_TEST(a_slow_callback_holds_up_its_stream_but_not_the_caller) {
    CUstream busy, idle;
    CUevent event;
    struct gate gate = GATE_INIT;
    atomic_int n = 0;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    ck_assert_cuda_ok(CU(cuStreamCreate)(&busy, CU_STREAM_NON_BLOCKING));
    ck_assert_cuda_ok(CU(cuStreamCreate)(&idle, CU_STREAM_NON_BLOCKING));
    ck_assert_cuda_ok(CU(cuEventCreate)(&event, 0));
    ck_assert_cuda_ok(CU(cuEventQuery)(event)); /* never recorded */
    ck_assert_cuda_ok(CU(cuLaunchHostFunc)(busy, gate_pass, &gate));
    ck_assert_cuda_ok(CU(cuLaunchHostFunc)(busy, count, &n));
    ck_assert_cuda_ok(CU(cuEventRecord)(event, busy));
    gate_await(&gate);
    ck_assert_cuda(CU(cuStreamQuery)(busy), CUDA_ERROR_NOT_READY);
    ck_assert_cuda(CU(cuEventQuery)(event), CUDA_ERROR_NOT_READY);
    ck_assert_cuda_ok(CU(cuStreamQuery)(idle));
    ck_assert_cuda_ok(CU(cuStreamWaitEvent)(idle, event, 0));
    ck_assert_cuda(CU(cuStreamQuery)(idle), CUDA_ERROR_NOT_READY);
    ck_assert_int_eq(n, 0);
    gate_open(&gate);
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(idle));
    ck_assert_int_eq(n, 1);
    ck_assert_cuda_ok(CU(cuEventQuery)(event));
    ck_assert_cuda_ok(CU(cuStreamQuery)(busy));
    sim_box_done(&s);
}
END_TEST

static CUstream new_stream(unsigned flags) {
    CUstream stream;

    ck_assert_cuda_ok(CU(cuStreamCreate)(&stream, flags));
    return stream;
}

static CUevent new_event(void) {
    CUevent event;

    ck_assert_cuda_ok(CU(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
    return event;
}

/* Which streams wait for which: the first is held up, is the second too? */
enum which {
    LEGACY,
    OWN,
    BLOCKING,
    OTHER_BLOCKING,
    FREE,
    OTHER_CONTEXT,
};

static const struct {
    enum which first, second;
    bool waits;
} synchronisation[] = {
    { LEGACY, BLOCKING, true },       { LEGACY, OWN, true },    { LEGACY, FREE, false },
    { BLOCKING, LEGACY, true },       { OWN, LEGACY, true },    { FREE, LEGACY, false },
    { BLOCKING, OWN, false },         { OWN, BLOCKING, false }, { BLOCKING, OTHER_BLOCKING, false },
    { BLOCKING, BLOCKING, true },     { OWN, OWN, true },       { FREE, BLOCKING, false },
    { LEGACY, OTHER_CONTEXT, false },
};

START_TEST(the_legacy_stream_waits_for_blocking_ones_and_they_for_it) {
    CUcontext context, other;
    CUstream streams[6];
    struct sim_box s;

    cuda_library_start(&s, NULL);
    ck_assert_cuda_ok(CU(cuCtxGetCurrent)(&context));
    ck_assert_cuda_ok(CU(cuCtxCreate_v2)(&other, 0, 0));
    streams[OTHER_CONTEXT] = new_stream(0);
    ck_assert_cuda_ok(CU(cuCtxPopCurrent_v2)(NULL));
    ck_assert_cuda_ok(CU(cuCtxSetCurrent)(context));
    streams[LEGACY] = CU_STREAM_LEGACY;
    streams[OWN] = CU_STREAM_PER_THREAD;
    streams[BLOCKING] = new_stream(CU_STREAM_DEFAULT);
    streams[OTHER_BLOCKING] = new_stream(CU_STREAM_DEFAULT);
    streams[FREE] = new_stream(CU_STREAM_NON_BLOCKING);
    for (size_t i = 0; i < ELEMENTSOF(synchronisation); i++) {
        CUstream first = streams[synchronisation[i].first];
        CUstream second = streams[synchronisation[i].second];
        struct gate gate = GATE_INIT;
        CUevent event = new_event();
        CUdeviceptr p = cuda_library_alloc(100);

        if (synchronisation[i].second == OTHER_CONTEXT) {
            ck_assert_cuda_ok(CU(cuCtxSetCurrent)(other));
            event = new_event();
            ck_assert_cuda_ok(CU(cuCtxSetCurrent)(context));
        }
        ck_assert_cuda_ok(CU(cuLaunchHostFunc)(first, gate_pass, &gate));
        ck_assert_cuda_ok(CU(cuMemsetD8Async)(p, 1, 100, second));
        ck_assert_cuda_ok(CU(cuEventRecord)(event, second));
        gate_await(&gate);
        if (synchronisation[i].waits)
            ck_assert_msg(CU(cuEventQuery)(event) == CUDA_ERROR_NOT_READY, "row %zu", i);
        else
            ck_assert_cuda_ok(CU(cuEventSynchronize)(event)); /* or else it hangs */
        gate_open(&gate);
        ck_assert_cuda_ok(CU(cuEventSynchronize)(event));
        ck_assert_cuda_ok(CU(cuCtxSynchronize)());
    }
    sim_box_done(&s);
}
END_TEST

static void *own_stream_of_a_thread(void *argument) {
    struct gate *gates = argument;
    CUcontext context;

    ck_assert_cuda_ok(CU(cuDevicePrimaryCtxRetain)(&context, 0));
    ck_assert_cuda_ok(CU(cuCtxSetCurrent)(context));
    ck_assert_cuda_ok(CU(cuStreamQuery_ptsz)(NULL)); /* the other thread's is busy */
    ck_assert_cuda(CU(cuStreamQuery)(NULL), CUDA_ERROR_NOT_READY);
    ck_assert_cuda_ok(CU(cuLaunchHostFunc_ptsz)(NULL, gate_pass, &gates[1]));
    return NULL; /* its stream is busy still */
}

START_TEST(every_thread_has_a_default_stream_of_its_own) {
    struct gate gates[2] = { GATE_INIT, GATE_INIT };
    atomic_int n = 0;
    pthread_t thread;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    ck_assert_cuda_ok(CU(cuLaunchHostFunc_ptsz)(NULL, gate_pass, &gates[0]));
    pthread_create(&thread, NULL, own_stream_of_a_thread, gates);
    pthread_join(thread, NULL);
    ck_assert_cuda(CU(cuStreamQuery_ptsz)(NULL), CUDA_ERROR_NOT_READY);
    gate_open(&gates[0]);
    ck_assert_cuda_ok(CU(cuStreamSynchronize_ptsz)(NULL));
    /* What the thread left is part of the context, and legacy work comes after it. */
    ck_assert_cuda_ok(CU(cuLaunchHostFunc)(NULL, count, &n));
    gate_await(&gates[1]);
    ck_assert_int_eq(n, 0);
    gate_open(&gates[1]);
    ck_assert_cuda_ok(CU(cuCtxSynchronize)());
    ck_assert_int_eq(n, 1);
    sim_box_done(&s);
}
END_TEST

START_TEST(streams_of_other_devices_and_contexts_wait_for_events) {
    struct gate gate = GATE_INIT;
    CUcontext contexts[3];
    CUstream streams[3];
    CUevent event;
    char in[100], out[100] = { 0 };
    CUdeviceptr p, q;
    struct sim_box s;

    cuda_library_init(&s, NULL);
    ck_assert_cuda_ok(CU(cuCtxCreate_v2)(&contexts[2], 0, 0));
    streams[2] = new_stream(CU_STREAM_NON_BLOCKING);
    ck_assert_cuda_ok(CU(cuCtxCreate_v2)(&contexts[1], 0, 1));
    streams[1] = new_stream(CU_STREAM_NON_BLOCKING);
    q = cuda_library_alloc(100);
    ck_assert_cuda_ok(CU(cuCtxCreate_v2)(&contexts[0], 0, 0));
    streams[0] = new_stream(CU_STREAM_NON_BLOCKING);
    p = cuda_library_alloc(100);
    event = new_event();
    memset(in, 7, sizeof(in));
    ck_assert_cuda_ok(CU(cuMemcpyHtoD_v2)(p, in, 100));
    ck_assert_cuda_ok(CU(cuLaunchHostFunc)(streams[0], gate_pass, &gate));
    ck_assert_cuda_ok(CU(cuMemsetD8Async)(p, 9, 50, streams[0]));
    ck_assert_cuda_ok(CU(cuEventRecord)(event, streams[0]));
    ck_assert_cuda(CU(cuEventRecord)(event, streams[1]), CUDA_ERROR_INVALID_HANDLE);
    ck_assert_cuda_ok(CU(cuStreamWaitEvent)(streams[1], event, 0));
    ck_assert_cuda_ok(CU(cuMemcpyPeerAsync)(q, contexts[1], p, contexts[0], 100, streams[1]));
    ck_assert_cuda_ok(CU(cuStreamWaitEvent)(streams[2], event, 0));
    gate_await(&gate);
    ck_assert_cuda(CU(cuStreamQuery)(streams[1]), CUDA_ERROR_NOT_READY);
    ck_assert_cuda(CU(cuStreamQuery)(streams[2]), CUDA_ERROR_NOT_READY);
    gate_open(&gate);
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(streams[1]));
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(out, q, 100));
    for (int i = 0; i < 100; i++)
        ck_assert_int_eq(out[i], i < 50 ? 9 : 7);
    sim_box_done(&s);
}
END_TEST

START_TEST(an_event_can_be_recorded_again_while_others_wait_for_its_first_record) {
    struct gate first = GATE_INIT, second = GATE_INIT;
    CUstream a, b, c;
    CUevent event;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    a = new_stream(CU_STREAM_NON_BLOCKING);
    b = new_stream(CU_STREAM_NON_BLOCKING);
    c = new_stream(CU_STREAM_NON_BLOCKING);
    event = new_event();
    ck_assert_cuda_ok(CU(cuStreamWaitEvent)(b, event, 0)); /* never recorded: nothing */
    ck_assert_cuda_ok(CU(cuStreamQuery)(b));
    ck_assert_cuda_ok(CU(cuLaunchHostFunc)(a, gate_pass, &first));
    ck_assert_cuda_ok(CU(cuEventRecord)(event, a));
    ck_assert_cuda_ok(CU(cuStreamWaitEvent)(b, event, 0));
    ck_assert_cuda_ok(CU(cuLaunchHostFunc)(a, gate_pass, &second));
    ck_assert_cuda_ok(CU(cuEventRecord)(event, a));
    ck_assert_cuda_ok(CU(cuStreamWaitEvent)(c, event, 0));
    gate_await(&first);
    ck_assert_cuda(CU(cuStreamQuery)(b), CUDA_ERROR_NOT_READY);
    gate_open(&first);
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(b));
    gate_await(&second);
    ck_assert_cuda(CU(cuEventQuery)(event), CUDA_ERROR_NOT_READY);
    ck_assert_cuda(CU(cuStreamQuery)(c), CUDA_ERROR_NOT_READY);
    ck_assert_cuda_ok(CU(cuEventDestroy_v2)(event)); /* a waiter goes on waiting */
    ck_assert_cuda(CU(cuStreamQuery)(c), CUDA_ERROR_NOT_READY);
    gate_open(&second);
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(c));
    sim_box_done(&s);
}
END_TEST

static CUstream called_for;
static CUresult called_with;
static CUresult inside;

static void old_callback(CUstream stream, CUresult status, void *argument) {
    called_for = stream;
    called_with = status;
    inside = CU(cuStreamQuery)(stream);
    (*(atomic_int *)argument)++;
}

START_TEST(callbacks_are_called_in_order_and_may_not_use_cuda) {
    CUstream stream;
    atomic_int n = 0;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    stream = new_stream(0);
    ck_assert_cuda_ok(CU(cuLaunchHostFunc)(stream, count, &n));
    ck_assert_cuda_ok(CU(cuStreamAddCallback)(stream, old_callback, &n, 0));
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(stream));
    ck_assert_int_eq(n, 2);
    ck_assert_ptr_eq(called_for, stream);
    ck_assert_int_eq(called_with, CUDA_SUCCESS);
    ck_assert_int_eq(inside, CUDA_ERROR_NOT_PERMITTED);
    sim_box_done(&s);
}
END_TEST

START_TEST(what_is_destroyed_while_busy_is_finished_first) {
    struct gate gate = GATE_INIT;
    CUcontext context;
    CUstream stream;
    CUdeviceptr p;
    char *host;
    atomic_int n = 0;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    ck_assert_cuda_ok(CU(cuMemHostAlloc)((void **)&host, 100, CU_MEMHOSTALLOC_PORTABLE));
    host[0] = 0;
    ck_assert_cuda_ok(CU(cuCtxCreate_v2)(&context, 0, 0));
    stream = new_stream(CU_STREAM_NON_BLOCKING);
    p = cuda_library_alloc(100);
    ck_assert_cuda_ok(CU(cuLaunchHostFunc)(stream, gate_pass, &gate));
    ck_assert_cuda_ok(CU(cuMemsetD8Async)(p, 5, 100, stream));
    ck_assert_cuda_ok(CU(cuMemcpyDtoHAsync_v2)(host, p, 100, stream));
    ck_assert_cuda_ok(CU(cuLaunchHostFunc)(stream, count, &n));
    gate_await(&gate);
    ck_assert_cuda_ok(CU(cuStreamDestroy_v2)(stream)); /* returns at once */
    ck_assert_cuda(CU(cuStreamQuery)(stream), CUDA_ERROR_INVALID_HANDLE);
    ck_assert_int_eq(n, 0);
    gate_open(&gate);
    ck_assert_cuda_ok(CU(cuCtxDestroy_v2)(context)); /* waits for it */
    ck_assert_int_eq(n, 1);
    ck_assert_int_eq(host[99], 5);
    sim_box_done(&s);
}
END_TEST

START_TEST(memory_freed_in_stream_order_is_usable_until_then_and_reused_by_its_stream) {
    struct gate gate = GATE_INIT;
    uint64_t used;
    CUmemoryPool pool;
    CUstream a, b;
    CUdeviceptr p, q, r;
    char out[4] = { 0 }, *host;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    a = new_stream(CU_STREAM_NON_BLOCKING);
    b = new_stream(CU_STREAM_NON_BLOCKING);
    ck_assert_cuda_ok(CU(cuMemHostAlloc)((void **)&host, 4, 0));
    ck_assert_cuda_ok(CU(cuDeviceGetDefaultMemPool)(&pool, 0));
    ck_assert_cuda_ok(CU(cuMemAllocAsync)(&p, 4 * MIB, a));
    ck_assert_cuda_ok(CU(cuLaunchHostFunc)(a, gate_pass, &gate));
    ck_assert_cuda_ok(CU(cuMemsetD8Async)(p, 3, 4 * MIB, a));
    ck_assert_cuda_ok(CU(cuMemcpyDtoHAsync_v2)(host, p + MIB, 4, a));
    ck_assert_cuda_ok(CU(cuMemFreeAsync)(p, a));
    ck_assert_cuda(CU(cuMemFreeAsync)(p, a), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuMemFree_v2)(p), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda_ok(CU(cuMemPoolGetAttribute)(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    ck_assert_uint_eq(used, 0);
    ck_assert_cuda_ok(CU(cuMemAllocAsync)(&q, 4 * MIB, b)); /* another one must not have it yet */
    ck_assert_uint_ne(q, p);
    ck_assert_cuda_ok(CU(cuMemAllocAsync)(&r, 4 * MIB - 1, a)); /* this one may */
    ck_assert_uint_eq(r, p);
    ck_assert_cuda_ok(CU(cuMemsetD8Async)(r, 4, 4, a));
    gate_open(&gate);
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(a));
    ck_assert_int_eq(host[0], 3);
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(out, r, 4));
    ck_assert_int_eq(out[3], 4);
    ck_assert_cuda(CU(cuMemsetD8Async)(r, 4, 4 * MIB, a), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda_ok(CU(cuMemFreeAsync)(r, a));
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(a));
    ck_assert_cuda_ok(CU(cuMemAllocAsync)(&r, 4 * MIB, b)); /* now every stream may */
    ck_assert_uint_eq(r, p);
    sim_box_done(&s);
}
END_TEST

START_TEST(pageable_memory_is_the_programs_again_when_the_call_returns) {
    struct gate gate = GATE_INIT;
    char small[1000], back[1000];
    CUstream stream;
    CUdeviceptr p;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    stream = new_stream(CU_STREAM_NON_BLOCKING);
    p = cuda_library_alloc(1000);
    memset(small, 1, sizeof(small));
    ck_assert_cuda_ok(CU(cuLaunchHostFunc)(stream, gate_pass, &gate));
    ck_assert_cuda_ok(CU(cuMemcpyHtoDAsync_v2)(p, small, 1000, stream)); /* does not wait */
    memset(small, 2, sizeof(small));
    gate_open(&gate);
    ck_assert_cuda_ok(CU(cuMemcpyDtoHAsync_v2)(back, p, 1000, stream)); /* does */
    ck_assert_int_eq(back[999], 1);
    ck_assert_cuda(CU(cuMemcpyHtoDAsync_v2)(p, (void *)8, 1000, stream), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuMemcpyDtoHAsync_v2)((void *)8, p, 1000, stream), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(stream)); /* neither sticks */
    sim_box_done(&s);
}
END_TEST

START_TEST(an_error_of_the_device_sticks_to_its_context_alone) {
    CUcontext context, other;
    CUstream stream;
    CUgraphExec exec;
    CUgraph graph;
    CUdeviceptr p, q;
    CUevent event;
    atomic_int n = 0;
    char *gone;
    struct sim_box s;

    cuda_library_init(&s, NULL);
    ck_assert_cuda_ok(CU(cuCtxCreate_v2)(&other, 0, 0));
    q = cuda_library_alloc(100);
    ck_assert_cuda_ok(CU(cuCtxCreate_v2)(&context, 0, 0));
    stream = new_stream(CU_STREAM_NON_BLOCKING);
    event = new_event();
    p = cuda_library_alloc(4096);
    gone = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_cuda_ok(CU(cuStreamBeginCapture_v2)(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    ck_assert_cuda_ok(CU(cuMemcpyDtoHAsync_v2)(gone, p, 4096, stream));
    ck_assert_cuda_ok(CU(cuStreamEndCapture)(stream, &graph));
    ck_assert_cuda_ok(CU(cuGraphInstantiateWithFlags)(&exec, graph, 0));
    ck_assert_int_eq(mprotect(gone, 4096, PROT_NONE), 0);
    ck_assert_cuda_ok(CU(cuGraphLaunch)(exec, stream));
    CU(cuLaunchHostFunc)(stream, count, &n); /* either refused, or not called */
    CU(cuStreamAddCallback)(stream, old_callback, &n, 0);
    CU(cuEventRecord)(event, stream);
    ck_assert_cuda(CU(cuStreamSynchronize)(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    ck_assert_cuda(CU(cuStreamSynchronize)(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    ck_assert_cuda(CU(cuStreamQuery)(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    ck_assert_cuda(CU(cuEventQuery)(event), CUDA_ERROR_ILLEGAL_ADDRESS);
    ck_assert_cuda(CU(cuMemAlloc_v2)(&p, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
    ck_assert_cuda(CU(cuMemsetD8Async)(p, 1, 1, stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    ck_assert_cuda(CU(cuCtxSynchronize)(), CUDA_ERROR_ILLEGAL_ADDRESS);
    ck_assert_cuda_ok(CU(cuCtxSetCurrent)(other));
    ck_assert_cuda_ok(CU(cuMemsetD8_v2)(q, 1, 100));
    ck_assert_cuda_ok(CU(cuCtxSynchronize)());
    ck_assert_cuda_ok(CU(cuCtxDestroy_v2)(context));
    ck_assert_cuda_ok(CU(cuCtxCreate_v2)(&context, 0, 0));
    ck_assert_cuda_ok(CU(cuMemAlloc_v2)(&p, 1));
    sim_box_done(&s);
}
END_TEST

START_TEST(work_of_a_lost_device_is_not_done) {
    struct gate gate = GATE_INIT;
    CUstream stream;
    CUdeviceptr p;
    char *host;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    stream = new_stream(0);
    p = cuda_library_alloc(100);
    ck_assert_cuda_ok(CU(cuMemsetD8_v2)(p, 1, 100));
    ck_assert_cuda_ok(CU(cuMemHostAlloc)((void **)&host, 100, 0));
    host[0] = 0;
    ck_assert_cuda_ok(CU(cuLaunchHostFunc)(stream, gate_pass, &gate));
    ck_assert_cuda_ok(CU(cuMemcpyDtoHAsync_v2)(host, p, 100, stream));
    gate_await(&gate);
    box_lock(s.box);
    s.box->file->gpu[0].lost = 1;
    box_unlock(s.box);
    gate_open(&gate);
    ck_assert_cuda(CU(cuStreamSynchronize)(stream), CUDA_ERROR_DEVICE_UNAVAILABLE);
    ck_assert_cuda(CU(cuCtxSynchronize)(), CUDA_ERROR_DEVICE_UNAVAILABLE);
    ck_assert_int_eq(host[0], 0);
    sim_box_done(&s);
}
END_TEST

START_TEST(a_stream_waits_for_a_value_in_memory) {
    CUstreamBatchMemOpParams batch[2] = {
        { .writeValue = { .operation = CU_STREAM_MEM_OP_WRITE_VALUE_64, .value64 = 77 } },
        { .waitValue = { .operation = CU_STREAM_MEM_OP_WAIT_VALUE_32,
                         .value = 3,
                         .flags = CU_STREAM_WAIT_VALUE_AND } },
    };
    volatile uint32_t *flag;
    CUstream a, b;
    CUdeviceptr p;
    uint64_t wide = 0;
    atomic_int n = 0;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    a = new_stream(CU_STREAM_NON_BLOCKING);
    b = new_stream(CU_STREAM_NON_BLOCKING);
    ck_assert_cuda_ok(CU(cuMemHostAlloc)((void **)&flag, 64, 0));
    p = cuda_library_alloc(64);
    ck_assert_cuda_ok(CU(cuMemsetD8_v2)(p, 0, 64));
    ck_assert_cuda_ok(CU(cuCtxSynchronize)());
    *flag = 0;
    /* The host lets one go, and that one the other. */
    ck_assert_cuda_ok(CU(cuStreamWaitValue32_v2)(b, p, 5, CU_STREAM_WAIT_VALUE_EQ));
    ck_assert_cuda_ok(CU(cuLaunchHostFunc)(b, count, &n));
    ck_assert_cuda_ok(CU(cuStreamWaitValue32_v2)(a, (uintptr_t)flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
    ck_assert_cuda_ok(CU(cuStreamWriteValue32_v2)(a, p, 5, 0));
    ck_assert_cuda(CU(cuStreamQuery)(a), CUDA_ERROR_NOT_READY);
    ck_assert_cuda(CU(cuStreamQuery)(b), CUDA_ERROR_NOT_READY);
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(b));
    ck_assert_int_eq(n, 1);
    batch[0].writeValue.address = p + 8;
    batch[1].waitValue.address = (uintptr_t)(flag + 1);
    __atomic_store_n(flag + 1, 0, __ATOMIC_RELEASE);
    ck_assert_cuda_ok(CU(cuStreamBatchMemOp_v2)(a, 2, batch, 0));
    ck_assert_cuda(CU(cuStreamQuery)(a), CUDA_ERROR_NOT_READY);
    __atomic_store_n(flag + 1, 2, __ATOMIC_RELEASE);
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(a));
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(&wide, p + 8, 8));
    ck_assert_uint_eq(wide, 77);
    ck_assert_cuda(CU(cuStreamWriteValue32_v2)(a, p + 2, 5, 0), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuStreamWriteValue32_v2)(a, 0x1000, 5, 0), CUDA_ERROR_INVALID_VALUE);
    sim_box_done(&s);
}
END_TEST

static int leave_while_busy(struct sim_box *s, void *argument) {
    struct gate gate = GATE_INIT;
    CUstream stream;
    CUdeviceptr p;

    cuda_library_use(0);
    stream = new_stream(0);
    p = cuda_library_alloc(64 * MIB);
    for (int i = 0; i < 50; i++)
        ck_assert_cuda_ok(CU(cuMemsetD32Async)(p, 1, 16 * MIB, stream));
    if (argument)
        ck_assert_cuda_ok(CU(cuLaunchHostFunc)(stream, gate_pass, &gate));
    return 0; /* exit(), with all its handlers */
}

/*
 * Its time depends on what may go before it on the device; but a thread that waits for it is not
 * held up for ever by work that in turn waits for that thread.
 */
START_TEST(a_callback_that_does_not_return_holds_up_no_other_stream) {
    struct gate gate = GATE_INIT;
    CUstream a, b;
    CUdeviceptr p;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    p = cuda_library_alloc(1000);
    ck_assert_cuda_ok(CU(cuStreamCreate)(&a, CU_STREAM_NON_BLOCKING));
    ck_assert_cuda_ok(CU(cuStreamCreate)(&b, CU_STREAM_NON_BLOCKING));
    ck_assert_cuda_ok(CU(cuLaunchHostFunc)(a, gate_pass, &gate));
    ck_assert_cuda_ok(CU(cuMemsetD8Async)(p, 1, 1000, a));
    ck_assert_cuda_ok(CU(cuMemsetD8Async)(p, 2, 1000, b));
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(b));
    ck_assert_cuda(CU(cuStreamQuery)(a), CUDA_ERROR_NOT_READY);
    gate_open(&gate);
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(a));
    sim_box_done(&s);
}
END_TEST

static const char poller[] = ".version 7.5\n.target sm_75\n.address_size 64\n"
                             ".visible .entry poll(.param .u64 p) {\n"
                             " .reg .b64 %rd<2>; .reg .b32 %r<2>; .reg .pred %q;\n"
                             " ld.param.u64 %rd1, [p];\n"
                             "L: ld.volatile.global.u32 %r1, [%rd1]; setp.eq.u32 %q, %r1, 0;\n"
                             " @%q bra L;\n ret;\n}\n"
                             ".visible .entry nothing() { ret; }\n";

START_TEST(a_kernel_that_polls_holds_up_no_other_stream) {
    CUfunction poll, nothing;
    CUmodule module;
    CUdeviceptr p;
    CUstream a, b;
    uint32_t *flag;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    ck_assert_cuda_ok(CU(cuModuleLoadData)(&module, poller));
    ck_assert_cuda_ok(CU(cuModuleGetFunction)(&poll, module, "poll"));
    ck_assert_cuda_ok(CU(cuModuleGetFunction)(&nothing, module, "nothing"));
    ck_assert_cuda_ok(CU(cuMemHostAlloc)((void **)&flag, 4, CU_MEMHOSTALLOC_DEVICEMAP));
    ck_assert_cuda_ok(CU(cuMemHostGetDevicePointer_v2)(&p, flag, 0));
    __atomic_store_n(flag, 0, __ATOMIC_RELEASE);
    ck_assert_cuda_ok(CU(cuStreamCreate)(&a, CU_STREAM_NON_BLOCKING));
    ck_assert_cuda_ok(CU(cuStreamCreate)(&b, CU_STREAM_NON_BLOCKING));
    ck_assert_cuda_ok(CU(cuLaunchKernel)(poll, 3, 1, 1, 70, 1, 1, 0, a, (void *[]){ &p }, NULL));
    ck_assert_cuda_ok(CU(cuLaunchKernel)(nothing, 1, 1, 1, 32, 1, 1, 0, b, NULL, NULL));
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(b));
    ck_assert_cuda(CU(cuStreamQuery)(a), CUDA_ERROR_NOT_READY);
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(a));
    sim_box_done(&s);
}
END_TEST

START_TEST(a_program_can_end_while_work_runs) {
    struct sim_box s;

    sim_box_init(&s, NULL);
    sim_box_expect_success(sim_box_fork(leave_while_busy, &s, NULL));
    sim_box_expect_success(sim_box_fork(leave_while_busy, &s, &s));
    ck_assert_uint_eq(sim_box_used(&s, 0), 0);
    sim_box_done(&s);
}
END_TEST

/*
 * Random programs against a model that does everything at once. A stream only touches buffers that
 * are its own, until it passes one on by an event; so what the bytes must be is known.
 */
enum {
    WALK_STREAMS = 5,
    WALK_BUFFERS = 8,
    WALK_BYTES = 4096,
};

static uint64_t random_next(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

START_TEST(random_programs_leave_the_bytes_of_a_sequential_model) {
    uint64_t seed = 20260101, random = seed;
    unsigned char *shadow[WALK_BUFFERS], *pinned[WALK_BUFFERS], expected[WALK_BYTES];
    unsigned owner[WALK_BUFFERS];
    CUdeviceptr device[WALK_BUFFERS];
    CUstream streams[WALK_STREAMS];
    CUcontext contexts[2];
    CUevent event;
    struct sim_box s;

    cuda_library_init(&s, NULL);
    for (int i = 1; i >= 0; i--) {
        ck_assert_cuda_ok(CU(cuDevicePrimaryCtxRetain)(&contexts[i], i));
        ck_assert_cuda_ok(CU(cuCtxSetCurrent)(contexts[i]));
        for (int k = i; k < WALK_BUFFERS; k += 2)
            device[k] = cuda_library_alloc(WALK_BYTES);
        for (int k = i; k < WALK_STREAMS; k += 2)
            streams[k] = k == 4 ? CU_STREAM_PER_THREAD : new_stream(CU_STREAM_NON_BLOCKING);
    }
    for (int k = 0; k < WALK_BUFFERS; k++) {
        shadow[k] = calloc(1, WALK_BYTES);
        ck_assert_cuda_ok(
            CU(cuMemHostAlloc)((void **)&pinned[k], WALK_BYTES, CU_MEMHOSTALLOC_PORTABLE));
        memset(pinned[k], 0, WALK_BYTES);
        ck_assert_cuda_ok(CU(cuMemsetD8_v2)(device[k], 0, WALK_BYTES));
        owner[k] = (unsigned)k % WALK_STREAMS;
    }
    ck_assert_cuda_ok(CU(cuCtxSynchronize)());
    ck_assert_cuda_ok(CU(cuCtxSynchronize_v2)(contexts[1]));
    for (int step = 0; step < 4000; step++) {
        const unsigned a = random_next(&random) % WALK_BUFFERS;
        const unsigned b = random_next(&random) % WALK_BUFFERS;
        const unsigned to = random_next(&random) % WALK_STREAMS;
        const size_t at = random_next(&random) % WALK_BYTES;
        const size_t n = random_next(&random) % (WALK_BYTES - at) + 1;
        const unsigned value = random_next(&random) & 255;
        CUstream stream = streams[owner[a]];

        switch (random_next(&random) % 6) {
        case 0:
            ck_assert_cuda_ok(CU(cuMemsetD8Async)(device[a] + at, (unsigned char)value, n, stream));
            memset(shadow[a] + at, (int)value, n);
            break;
        case 1: /* within what one stream has */
            if (owner[a] != owner[b] || a == b)
                break;
            ck_assert_cuda_ok(CU(cuMemcpyAsync)(device[a] + at, device[b] + at, n, stream));
            memcpy(shadow[a] + at, shadow[b] + at, n);
            break;
        case 2: /* out and in again through page-locked memory that goes with the buffer */
            ck_assert_cuda_ok(CU(cuMemcpyDtoHAsync_v2)(pinned[a] + at, device[a] + at, n, stream));
            ck_assert_cuda_ok(CU(cuMemsetD8Async)(device[a] + at, 0, n, stream));
            ck_assert_cuda_ok(CU(cuMemcpyHtoDAsync_v2)(device[a] + at, pinned[a] + at, n, stream));
            break;
        case 3: /* pageable */
            memset(expected, (int)value, n);
            ck_assert_cuda_ok(CU(cuMemcpyHtoDAsync_v2)(device[a] + at, expected, n, stream));
            memset(shadow[a] + at, (int)value, n);
            break;
        case 4: /* pass it on */
            ck_assert_cuda_ok(CU(cuCtxSetCurrent)(contexts[owner[a] % 2]));
            event = new_event();
            ck_assert_cuda_ok(CU(cuEventRecord)(event, stream));
            ck_assert_cuda_ok(CU(cuCtxSetCurrent)(contexts[0]));
            ck_assert_cuda_ok(CU(cuStreamWaitEvent)(streams[to], event, 0));
            ck_assert_cuda_ok(CU(cuEventDestroy_v2)(event));
            owner[a] = to;
            break;
        case 5:
            if (step % 50)
                break;
            ck_assert_cuda_ok(CU(cuMemcpyDtoHAsync_v2)(expected, device[a], WALK_BYTES, stream));
            ck_assert_msg(!memcmp(expected, shadow[a], WALK_BYTES), "seed %lu, step %d", seed,
                          step);
            break;
        }
    }
    for (int k = 0; k < WALK_BUFFERS; k++) {
        ck_assert_cuda_ok(CU(cuStreamSynchronize)(streams[owner[k]]));
        ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(expected, device[k], WALK_BYTES));
        ck_assert_msg(!memcmp(expected, shadow[k], WALK_BYTES), "seed %lu, buffer %d", seed, k);
        free(shadow[k]);
    }
    sim_box_done(&s);
}
END_TEST

SUITE("cuda-stream", a_slow_callback_holds_up_its_stream_but_not_the_caller,
      the_legacy_stream_waits_for_blocking_ones_and_they_for_it,
      every_thread_has_a_default_stream_of_its_own,
      streams_of_other_devices_and_contexts_wait_for_events,
      an_event_can_be_recorded_again_while_others_wait_for_its_first_record,
      callbacks_are_called_in_order_and_may_not_use_cuda,
      what_is_destroyed_while_busy_is_finished_first,
      memory_freed_in_stream_order_is_usable_until_then_and_reused_by_its_stream,
      pageable_memory_is_the_programs_again_when_the_call_returns,
      an_error_of_the_device_sticks_to_its_context_alone, work_of_a_lost_device_is_not_done,
      a_stream_waits_for_a_value_in_memory,
      a_callback_that_does_not_return_holds_up_no_other_stream,
      a_kernel_that_polls_holds_up_no_other_stream, a_program_can_end_while_work_runs,
      random_programs_leave_the_bytes_of_a_sequential_model)
