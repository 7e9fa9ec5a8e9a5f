/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <unistd.h>

#include "tests/support/sim/cuda/cuda_library.h"
#include "tests/support/sim/cuda/gate.h"
#include "tests/support/suite.h"

static int open_and_use(struct sim_box *s, void *argument) {
    struct cuda_library_pair *pair = argument;
    CUdeviceptr small, large, again;
    CUipcMemHandle handles[2];
    char text[16];

    cuda_library_receive(pair->to_child[0], handles, sizeof(handles));
    cuda_library_use(0);
    ck_assert_cuda_ok(
        CU(cuIpcOpenMemHandle_v2)(&small, handles[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    ck_assert_cuda_ok(
        CU(cuIpcOpenMemHandle_v2)(&large, handles[1], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    ck_assert_cuda_ok(
        CU(cuIpcOpenMemHandle_v2)(&again, handles[1], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    ck_assert_uint_eq(again, large);
    ck_assert_cuda_ok(CU(cuIpcCloseMemHandle)(again));
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(text, small, 16));
    ck_assert_str_eq(text, "a small secret!");
    ck_assert_cuda(CU(cuMemcpyDtoH_v2)(text, small + 1000, 16), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuMemFree_v2)(large), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda_ok(CU(cuMemcpyHtoD_v2)(large + 5 * MIB, "from the child!", 16));
    cuda_library_send(pair->to_parent[1], "", 1);
    cuda_library_receive(pair->to_child[0], text, 1);
    /* Freed by the exporter, but still open here. */
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(text, large + 5 * MIB, 16));
    ck_assert_str_eq(text, "from the child!");
    cuda_library_send(pair->to_parent[1], "", 1);
    cuda_library_receive(pair->to_child[0], text, 1);
    ck_assert_cuda_ok(CU(cuIpcCloseMemHandle)(large));
    ck_assert_cuda(CU(cuIpcCloseMemHandle)(large), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda_ok(CU(cuIpcCloseMemHandle)(small));
    return 0;
}

START_TEST(memory_is_shared_between_processes_and_charged_once) {
    CUdeviceptr filler, small, large, p;
    struct cuda_library_pair pair;
    CUipcMemHandle handles[2];
    uint64_t context;
    struct sim_box s;
    char text[16];
    pid_t pid;

    sim_box_init(&s, NULL);
    context = box_model(s.box, 0)->context_bytes;
    cuda_library_pair_init(&pair);
    pid = sim_box_fork(open_and_use, &s, &pair);
    cuda_library_use(0);
    filler = cuda_library_alloc(100);
    small = cuda_library_alloc(1000);
    large = cuda_library_alloc(6 * MIB);
    ck_assert_cuda_ok(CU(cuMemcpyHtoD_v2)(small, "a small secret!", 16));
    ck_assert_cuda_ok(CU(cuIpcGetMemHandle)(&handles[0], small));
    ck_assert_cuda_ok(CU(cuIpcGetMemHandle)(&handles[1], large));
    ck_assert_cuda(CU(cuIpcOpenMemHandle_v2)(&p, handles[0], 1), CUDA_ERROR_INVALID_CONTEXT);
    ck_assert_uint_eq(sim_box_used(&s, 0), context + 8 * MIB);
    cuda_library_send(pair.to_child[1], handles, sizeof(handles));
    cuda_library_receive(pair.to_parent[0], text, 1);
    ck_assert_uint_eq(sim_box_used(&s, 0), 2 * context + 8 * MIB);
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(text, large + 5 * MIB, 16));
    ck_assert_str_eq(text, "from the child!");
    ck_assert_cuda_ok(CU(cuMemFree_v2)(large));
    ck_assert_cuda_ok(CU(cuMemFree_v2)(small));
    ck_assert_cuda_ok(CU(cuMemFree_v2)(filler));
    ck_assert_uint_eq(sim_box_used(&s, 0), 2 * context + 8 * MIB);
    /* New memory here is not what the other still uses. */
    p = cuda_library_alloc(6 * MIB);
    ck_assert_uint_ne(p, large);
    ck_assert_cuda_ok(CU(cuMemsetD8_v2)(p, 0, 6 * MIB));
    cuda_library_send(pair.to_child[1], "", 1);
    cuda_library_receive(pair.to_parent[0], text, 1);
    cuda_library_send(pair.to_child[1], "", 1);
    sim_box_expect_success(pid);
    ck_assert_uint_eq(sim_box_used(&s, 0), context + 6 * MIB);
    sim_box_done(&s);
}
END_TEST

static int export_and_wait(struct sim_box *s, void *argument) {
    struct cuda_library_pair *pair = argument;
    CUipcMemHandle handle;
    CUdeviceptr p;

    cuda_library_use(0);
    p = cuda_library_alloc(4 * MIB);
    ck_assert_cuda_ok(CU(cuMemcpyHtoD_v2)(p, "last words here", 16));
    ck_assert_cuda_ok(CU(cuIpcGetMemHandle)(&handle, p));
    cuda_library_send(pair->to_parent[1], &handle, sizeof(handle));
    pause();
    return 1;
}

START_TEST(an_exporter_that_is_killed_leaves_the_memory_to_its_user) {
    struct cuda_library_pair pair;
    CUipcMemHandle handle;
    uint64_t context;
    CUdeviceptr p, q;
    struct sim_box s;
    char text[16];
    pid_t pid;

    sim_box_init(&s, NULL);
    context = box_model(s.box, 0)->context_bytes;
    cuda_library_pair_init(&pair);
    pid = sim_box_fork(export_and_wait, &s, &pair);
    cuda_library_receive(pair.to_parent[0], &handle, sizeof(handle));
    cuda_library_use(0);
    ck_assert_cuda_ok(CU(cuIpcOpenMemHandle_v2)(&p, handle, 1));
    sim_box_kill(pid);
    ck_assert_uint_eq(sim_box_used(&s, 0), context + 4 * MIB);
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(text, p, 16));
    ck_assert_str_eq(text, "last words here");
    ck_assert_cuda_ok(CU(cuIpcCloseMemHandle)(p));
    ck_assert_uint_eq(sim_box_used(&s, 0), context);
    ck_assert_cuda(CU(cuIpcOpenMemHandle_v2)(&q, handle, 1), CUDA_ERROR_INVALID_VALUE);
    sim_box_done(&s);
}
END_TEST

START_TEST(only_plain_device_memory_has_a_handle) {
    CUipcMemHandle handle;
    CUdeviceptr p;
    struct sim_box s;
    void *host;

    cuda_library_start(&s, NULL);
    ck_assert_cuda_ok(CU(cuMemAllocManaged)(&p, 100, CU_MEM_ATTACH_GLOBAL));
    ck_assert_cuda(CU(cuIpcGetMemHandle)(&handle, p), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda_ok(CU(cuMemAllocAsync)(&p, 100, NULL));
    ck_assert_cuda(CU(cuIpcGetMemHandle)(&handle, p), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda_ok(CU(cuMemAllocHost_v2)(&host, 100));
    ck_assert_cuda(CU(cuIpcGetMemHandle)(&handle, (uintptr_t)host), CUDA_ERROR_INVALID_VALUE);
    memset(&handle, 0x5a, sizeof(handle));
    ck_assert_cuda(CU(cuIpcOpenMemHandle_v2)(&p, handle, 1), CUDA_ERROR_INVALID_VALUE);
    sim_box_done(&s);
}
END_TEST

static int import_pool(struct sim_box *s, void *argument) {
    struct cuda_library_pair *pair = argument;
    CUmemPoolPtrExportData data;
    CUmemoryPool pool;
    CUdeviceptr p;
    char text[16];
    int fd;

    cuda_library_use(0);
    fd = cuda_library_receive_fd(pair->to_child[0]);
    cuda_library_receive(pair->to_child[0], &data, sizeof(data));
    ck_assert_cuda_ok(CU(cuMemPoolImportFromShareableHandle)(
        &pool, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    close(fd);
    ck_assert_cuda(CU(cuMemAllocFromPoolAsync)(&p, 100, pool, NULL), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda_ok(CU(cuMemPoolImportPointer)(&p, pool, &data));
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(text, p, 16));
    ck_assert_str_eq(text, "through a pool!");
    ck_assert_cuda_ok(CU(cuMemcpyHtoD_v2)(p, "back again here", 16));
    ck_assert_cuda_ok(CU(cuMemFreeAsync)(p, NULL));
    ck_assert_cuda_ok(CU(cuMemPoolDestroy)(pool));
    return 0;
}

START_TEST(a_pool_is_shared_by_its_descriptor_and_pointers) {
    CUmemPoolProps props = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 },
    };
    CUmemPoolPtrExportData data;
    struct cuda_library_pair pair;
    CUmemoryPool pool;
    CUdeviceptr p, before;
    struct sim_box s;
    char text[16];
    pid_t pid;
    int fd;

    sim_box_init(&s, NULL);
    cuda_library_pair_init(&pair);
    pid = sim_box_fork(import_pool, &s, &pair);
    cuda_library_use(0);
    ck_assert_cuda_ok(CU(cuMemPoolCreate)(&pool, &props));
    ck_assert_cuda_ok(CU(cuMemAllocFromPoolAsync)(&before, 1000, pool, NULL));
    ck_assert_cuda_ok(CU(cuMemAllocFromPoolAsync)(&p, 1000, pool, NULL));
    ck_assert_cuda_ok(CU(cuMemcpyHtoD_v2)(p, "through a pool!", 16));
    ck_assert_cuda_ok(CU(cuMemPoolExportToShareableHandle)(
        &fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    ck_assert_cuda_ok(CU(cuMemPoolExportPointer)(&data, p));
    cuda_library_send_fd(pair.to_child[1], fd);
    close(fd);
    cuda_library_send(pair.to_child[1], &data, sizeof(data));
    sim_box_expect_success(pid);
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(text, p, 16));
    ck_assert_str_eq(text, "back again here");
    sim_box_done(&s);
}
END_TEST

static CUstream new_stream(void) {
    CUstream stream;

    ck_assert_cuda_ok(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static CUevent shared_event(CUipcEventHandle *ret) {
    CUevent event;

    ck_assert_cuda_ok(CU(cuEventCreate)(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    ck_assert_cuda_ok(CU(cuIpcGetEventHandle)(ret, event));
    return event;
}

static void count(void *argument) {
    ++*(volatile int *)argument;
}

/* The stream gets no further until the test says so. */
static void hold(CUstream stream, struct gate *gate) {
    ck_assert_cuda_ok(CU(cuLaunchHostFunc)(stream, gate_pass, gate));
    gate_await(gate);
}

static int wait_and_answer(struct sim_box *s, void *argument) {
    struct cuda_library_pair *pair = argument;
    struct gate gate = GATE_INIT;
    CUipcEventHandle handles[2];
    CUevent theirs, ours;
    volatile int n = 0;
    CUstream stream;
    float ms;
    char c;

    (void)s;
    cuda_library_receive(pair->to_child[0], handles, sizeof(handles));
    cuda_library_use(0);
    stream = new_stream();
    ck_assert_cuda_ok(CU(cuIpcOpenEventHandle)(&theirs, handles[0]));
    ck_assert_cuda_ok(CU(cuIpcOpenEventHandle)(&ours, handles[1]));
    ck_assert_cuda(CU(cuIpcGetEventHandle)(&handles[0], theirs), CUDA_ERROR_INVALID_HANDLE);
    ck_assert_cuda(CU(cuEventElapsedTime_v2)(&ms, theirs, ours), CUDA_ERROR_INVALID_HANDLE);
    ck_assert_cuda_ok(CU(cuEventQuery)(ours)); /* never recorded */
    ck_assert_cuda_ok(CU(cuStreamWaitEvent)(stream, ours, 0));
    ck_assert_cuda(CU(cuEventQuery)(theirs), CUDA_ERROR_NOT_READY);
    ck_assert_cuda_ok(CU(cuStreamWaitEvent)(stream, theirs, 0));
    ck_assert_cuda_ok(CU(cuLaunchHostFunc)(stream, count, (void *)&n));
    ck_assert_cuda(CU(cuStreamQuery)(stream), CUDA_ERROR_NOT_READY);
    cuda_library_send(pair->to_parent[1], "", 1);
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(stream));
    ck_assert_int_eq(n, 1);
    ck_assert_cuda_ok(CU(cuEventQuery)(theirs));
    ck_assert_cuda_ok(CU(cuEventDestroy_v2)(theirs));

    hold(stream, &gate);
    ck_assert_cuda_ok(CU(cuEventRecord)(ours, stream));
    cuda_library_send(pair->to_parent[1], "", 1);
    cuda_library_receive(pair->to_child[0], &c, 1);
    gate_open(&gate);
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(stream));
    cuda_library_send(pair->to_parent[1], "", 1);
    cuda_library_receive(pair->to_child[0], &c, 1);
    return 0;
}

START_TEST(streams_of_two_processes_wait_for_each_others_events) {
    struct gate gate = GATE_INIT;
    CUipcEventHandle handles[2];
    struct cuda_library_pair pair;
    CUevent ours, theirs;
    volatile int n = 0;
    CUstream stream;
    struct sim_box s;
    pid_t pid;
    char c;

    sim_box_init(&s, NULL);
    cuda_library_pair_init(&pair);
    pid = sim_box_fork(wait_and_answer, &s, &pair);
    cuda_library_use(0);
    stream = new_stream();
    /* Recorded before the driver can know that it will be shared. */
    ck_assert_cuda_ok(CU(cuEventCreate)(&ours, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    hold(stream, &gate);
    ck_assert_cuda_ok(CU(cuEventRecord)(ours, stream));
    ck_assert_cuda_ok(CU(cuIpcGetEventHandle)(&handles[0], ours));
    theirs = shared_event(&handles[1]);
    cuda_library_send(pair.to_child[1], handles, sizeof(handles));
    cuda_library_receive(pair.to_parent[0], &c, 1);
    gate_open(&gate);

    /* Now the child records, and we wait. */
    cuda_library_receive(pair.to_parent[0], &c, 1);
    ck_assert_cuda(CU(cuEventQuery)(theirs), CUDA_ERROR_NOT_READY);
    ck_assert_cuda_ok(CU(cuStreamWaitEvent)(stream, theirs, 0));
    ck_assert_cuda_ok(CU(cuLaunchHostFunc)(stream, count, (void *)&n));
    ck_assert_cuda(CU(cuStreamQuery)(stream), CUDA_ERROR_NOT_READY);
    cuda_library_send(pair.to_child[1], "", 1);
    ck_assert_cuda_ok(CU(cuEventSynchronize)(theirs));
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(stream));
    ck_assert_int_eq(n, 1);
    cuda_library_receive(pair.to_parent[0], &c, 1);
    ck_assert_cuda_ok(CU(cuEventQuery)(theirs));
    /* Recorded here again, it is ours. */
    ck_assert_cuda_ok(CU(cuEventRecord)(theirs, stream));
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(stream));
    ck_assert_cuda_ok(CU(cuEventQuery)(theirs));
    cuda_library_send(pair.to_child[1], "", 1);
    sim_box_expect_success(pid);
    sim_box_done(&s);
}
END_TEST

static int record_and_stay(struct sim_box *s, void *argument) {
    struct cuda_library_pair *pair = argument;
    struct gate gate = GATE_INIT;
    CUipcEventHandle handle;
    CUstream stream;
    CUevent event;
    char c;

    (void)s;
    cuda_library_receive(pair->to_child[0], &handle, sizeof(handle));
    cuda_library_use(0);
    stream = new_stream();
    ck_assert_cuda_ok(CU(cuIpcOpenEventHandle)(&event, handle));
    hold(stream, &gate);
    ck_assert_cuda_ok(CU(cuEventRecord)(event, stream));
    cuda_library_send(pair->to_parent[1], "", 1);
    cuda_library_receive(pair->to_child[0], &c, 1);
    _exit(0); /* without ever getting there */
}

START_TEST(no_process_waits_for_an_event_of_an_ended_one) {
    CUipcEventHandle handle;
    struct cuda_library_pair pair;
    CUstream stream;
    CUevent event;
    struct sim_box s;
    char c;

    sim_box_init(&s, NULL);
    cuda_library_pair_init(&pair);
    sim_box_fork(record_and_stay, &s, &pair);
    cuda_library_use(0);
    stream = new_stream();
    event = shared_event(&handle);
    cuda_library_send(pair.to_child[1], &handle, sizeof(handle));
    cuda_library_receive(pair.to_parent[0], &c, 1);
    ck_assert_cuda(CU(cuEventQuery)(event), CUDA_ERROR_NOT_READY);
    ck_assert_cuda_ok(CU(cuStreamWaitEvent)(stream, event, 0));
    cuda_library_send(pair.to_child[1], "", 1);
    ck_assert_cuda_ok(CU(cuEventSynchronize)(event));
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(stream));
    sim_box_done(&s);
}
END_TEST

START_TEST(handles_of_events_are_not_trusted) {
    CUipcEventHandle handle, broken;
    CUevent plain, event;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    ck_assert_cuda_ok(CU(cuEventCreate)(&plain, CU_EVENT_DISABLE_TIMING));
    ck_assert_cuda(CU(cuIpcGetEventHandle)(&handle, plain), CUDA_ERROR_INVALID_HANDLE);
    ck_assert_cuda(CU(cuIpcGetEventHandle)(&handle, NULL), CUDA_ERROR_INVALID_HANDLE);
    event = shared_event(&handle);
    ck_assert_cuda(CU(cuIpcGetEventHandle)(NULL, event), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuIpcOpenEventHandle)(&plain, handle), CUDA_ERROR_INVALID_CONTEXT);
    for (size_t i = 0; i < sizeof(handle) - 28; i++) { /* the rest is padding */
        broken = handle;
        ((unsigned char *)&broken)[i] ^= 0x41;
        ck_assert_int_ne(CU(cuIpcOpenEventHandle)(&plain, broken), CUDA_SUCCESS);
    }
    memset(&broken, 0, sizeof(broken));
    ck_assert_cuda(CU(cuIpcOpenEventHandle)(&plain, broken), CUDA_ERROR_INVALID_HANDLE);
    sim_box_done(&s);
}
END_TEST

SUITE("cuda-ipc", memory_is_shared_between_processes_and_charged_once,
      an_exporter_that_is_killed_leaves_the_memory_to_its_user,
      only_plain_device_memory_has_a_handle, a_pool_is_shared_by_its_descriptor_and_pointers,
      streams_of_two_processes_wait_for_each_others_events,
      no_process_waits_for_an_event_of_an_ended_one, handles_of_events_are_not_trusted)
