/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels may touch, found out by touching it. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "tests/support/sim/cuda/cuda_library.h"
#include "tests/support/suite.h"

static const struct box_spec two_a100 = { .n_gpus = 2, .models = "a100-40g", .seed = 7 };

static CUfunction kernel_of(const char *file, const char *name) {
    CUfunction function;
    CUmodule module;
    char path[4096];

    snprintf(path, sizeof(path), "%s/%s", PTX_DIR, file);
    ck_assert_cuda_ok(CU(cuModuleLoad)(&module, path));
    ck_assert_cuda_ok(CU(cuModuleGetFunction)(&function, module, name));
    return function;
}

/*
 * A context of its own on `device` that reads or writes the int at `address`: a fault kills the
 * context, never the process. What cuCtxSynchronize() answers.
 */
static CUresult touch_from(CUdevice device, CUdeviceptr address, bool write, CUcontext peer) {
    CUcontext context;
    CUfunction function;
    CUdeviceptr out;
    int value = 77;
    void *to_write[] = { &address, &value }, *to_read[] = { &address, &out };
    CUresult r;

    ck_assert_cuda_ok(CU(cuCtxCreate_v2)(&context, 0, device));
    if (peer)
        ck_assert_cuda_ok(CU(cuCtxEnablePeerAccess)(peer, 0));
    function = kernel_of("kernel_access.O3.ptx", write ? "write_int" : "read_int");
    out = cuda_library_alloc(4);
    ck_assert_cuda_ok(
        CU(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, NULL, write ? to_write : to_read, NULL));
    r = CU(cuCtxSynchronize)();
    if (r != CUDA_SUCCESS) { /* it sticks */
        ck_assert_cuda(CU(cuCtxSynchronize)(), r);
        ck_assert_cuda(CU(cuMemAlloc_v2)(&out, 4), r);
        ck_assert_cuda(CU(cuMemcpyDtoH_v2)(&value, out, 4), r);
        ck_assert_cuda(CU(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, NULL, to_read, NULL), r);
        ck_assert_cuda(CU(cuStreamSynchronize)(NULL), r);
    }
    ck_assert_cuda_ok(CU(cuCtxDestroy_v2)(context));
    return r;
}

static CUresult touch(CUdeviceptr address, bool write) {
    return touch_from(0, address, write, NULL);
}

#define ck_assert_reached(address)                                                                 \
    do {                                                                                           \
        ck_assert_cuda_ok(touch(address, false));                                                  \
        ck_assert_cuda_ok(touch(address, true));                                                   \
    } while (0)
#define ck_assert_refused(address)                                                                 \
    do {                                                                                           \
        ck_assert_cuda(touch(address, false), CUDA_ERROR_ILLEGAL_ADDRESS);                         \
        ck_assert_cuda(touch(address, true), CUDA_ERROR_ILLEGAL_ADDRESS);                          \
    } while (0)

START_TEST(small_allocations_are_exact) {
    CUdeviceptr a, b;
    struct sim_box s;

    cuda_library_start(&s, &two_a100);
    a = cuda_library_alloc(100);
    b = cuda_library_alloc(1000);
    ck_assert_reached(a);
    ck_assert_reached(a + 96);
    ck_assert_refused(a + 100); /* in the same unit of the heap */
    ck_assert_refused(a - 4);
    ck_assert_reached(b + 996);
    ck_assert_refused(b + 1000);
    ck_assert_refused(0);
    ck_assert_refused(16);
    ck_assert_cuda(touch(a + 2, true), CUDA_ERROR_MISALIGNED_ADDRESS);
    ck_assert_cuda_ok(CU(cuMemFree_v2)(a));
    ck_assert_refused(a);
    ck_assert_reached(b);
    sim_box_done(&s);
}
END_TEST

/* Beyond the end of one that does not fill its unit of the heap, and before one that follows. */
START_TEST(the_rest_of_a_unit_is_not_accessible) {
    static const uint64_t beyond[] = { 0, 4, 36, 100, 444 };
    CUdeviceptr a, b;
    int kept[16], seen[16];
    struct sim_box s;

    cuda_library_start(&s, &two_a100);
    a = cuda_library_alloc(64);
    b = cuda_library_alloc(64);
    memset(kept, 0x5a, sizeof(kept));
    ck_assert_cuda_ok(CU(cuMemcpyHtoD_v2)(a, kept, 64));
    ck_assert_cuda_ok(CU(cuMemcpyHtoD_v2)(b, kept, 64));
    ck_assert_uint_eq(b, a + 512);
    for (size_t i = 0; i < sizeof(beyond) / sizeof(*beyond); i++)
        ck_assert_refused(a + 64 + beyond[i]);
    ck_assert_refused(b + 100);
    ck_assert_refused(a - 4);
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(seen, a, 64));
    ck_assert_mem_eq(seen, kept, 64);
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(seen, b, 64));
    ck_assert_mem_eq(seen, kept, 64);
    sim_box_done(&s);
}
END_TEST

START_TEST(large_allocations_end_where_they_end) {
    CUdeviceptr a;
    struct sim_box s;

    cuda_library_start(&s, &two_a100);
    a = cuda_library_alloc(5 * MIB + 12);
    ck_assert_reached(a + 5 * MIB + 8);
    ck_assert_refused(a + 5 * MIB + 12);
    ck_assert_cuda_ok(CU(cuMemFree_v2)(a));
    ck_assert_refused(a + MIB);
    sim_box_done(&s);
}
END_TEST

START_TEST(mappings_have_rights) {
    CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 } };
    CUmemAccessDesc access = { .location = prop.location };
    CUmemGenericAllocationHandle handle;
    CUdeviceptr va;
    struct sim_box s;

    cuda_library_start(&s, &two_a100);
    ck_assert_cuda_ok(CU(cuMemAddressReserve)(&va, 16 * MIB, 0, 0, 0));
    ck_assert_refused(va);
    ck_assert_cuda_ok(CU(cuMemCreate)(&handle, 4 * MIB, &prop, 0));
    ck_assert_cuda_ok(CU(cuMemMap)(va, 4 * MIB, 0, handle, 0));
    ck_assert_refused(va);
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
    ck_assert_cuda_ok(CU(cuMemSetAccess)(va, 4 * MIB, &access, 1));
    ck_assert_cuda_ok(touch(va, false));
    ck_assert_cuda(touch(va, true), CUDA_ERROR_ILLEGAL_ADDRESS);
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    ck_assert_cuda_ok(CU(cuMemSetAccess)(va, 4 * MIB, &access, 1));
    ck_assert_reached(va + 4 * MIB - 4);
    ck_assert_refused(va + 4 * MIB);
    ck_assert_cuda(touch_from(1, va, false, NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
    access.location.id = 1;
    ck_assert_cuda_ok(CU(cuMemSetAccess)(va, 4 * MIB, &access, 1));
    ck_assert_cuda_ok(touch_from(1, va, true, NULL));
    ck_assert_cuda_ok(CU(cuMemUnmap)(va, 4 * MIB));
    ck_assert_refused(va);
    sim_box_done(&s);
}
END_TEST

START_TEST(peers_are_reached_when_enabled) {
    CUcontext context;
    CUdeviceptr a;
    struct sim_box s;

    cuda_library_start(&s, &two_a100);
    ck_assert_cuda_ok(CU(cuCtxGetCurrent)(&context));
    a = cuda_library_alloc(4096);
    ck_assert_cuda(touch_from(1, a, false, NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
    ck_assert_cuda_ok(touch_from(1, a, true, context));
    sim_box_done(&s);
}
END_TEST

START_TEST(host_memory_is_reached_when_locked) {
    int *pinned,
        *own = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct sim_box s;

    cuda_library_start(&s, &two_a100);
    ck_assert_cuda_ok(CU(cuMemHostAlloc)((void **)&pinned, 4096, 0));
    ck_assert_reached((uintptr_t)pinned);
    ck_assert_int_eq(pinned[0], 77);
    ck_assert_cuda_ok(touch_from(1, (uintptr_t)(pinned + 1), true, NULL));
    ck_assert_int_eq(pinned[1], 77);
    ck_assert_refused((uintptr_t)pinned + 4096);
    ck_assert_cuda_ok(CU(cuMemFreeHost)(pinned));
    ck_assert_refused((uintptr_t)pinned);

    ck_assert_refused((uintptr_t)own);
    ck_assert_cuda_ok(CU(cuMemHostRegister_v2)(own, 4096, 0));
    ck_assert_reached((uintptr_t)(own + 3));
    ck_assert_int_eq(own[3], 77);
    ck_assert_refused((uintptr_t)own + 4096);
    ck_assert_cuda_ok(CU(cuMemHostUnregister)(own));
    ck_assert_refused((uintptr_t)own);
    munmap(own, 1 << 16);
    sim_box_done(&s);
}
END_TEST

START_TEST(managed_memory_moves_to_the_device_that_touches_it) {
    CUdeviceptr a;
    uint64_t before;
    struct sim_box s;

    cuda_library_start(&s, &two_a100);
    before = sim_box_used(&s, 0);
    ck_assert_cuda_ok(CU(cuMemAllocManaged)(&a, 64 * MIB, CU_MEM_ATTACH_GLOBAL));
    ck_assert_uint_eq(sim_box_used(&s, 0), before);
    ck_assert_reached(a + 10 * MIB);
    ck_assert_int_eq(*(int *)(uintptr_t)(a + 10 * MIB), 77);
    ck_assert_uint_eq(sim_box_used(&s, 0), before + 2 * MIB); /* a granule, not all of it */
    ck_assert_refused(a + 64 * MIB);
    ck_assert_cuda_ok(CU(cuMemFree_v2)(a));
    ck_assert_refused(a);
    sim_box_done(&s);
}
END_TEST

static int importer(struct sim_box *unused, void *argument) {
    struct cuda_library_pair *pair = argument;
    CUipcMemHandle handle;
    CUfunction function;
    CUdeviceptr a;
    int value = 4711;
    void *params[] = { &a, &value };

    (void)unused;
    cuda_library_use(0);
    cuda_library_receive(pair->to_child[1], &handle, sizeof(handle));
    ck_assert_cuda_ok(CU(cuIpcOpenMemHandle_v2)(&a, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    function = kernel_of("kernel_access.O3.ptx", "write_int");
    ck_assert_cuda_ok(CU(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    ck_assert_cuda_ok(CU(cuCtxSynchronize)());
    cuda_library_send(pair->to_parent[1], &value, 1);
    ck_assert_cuda_ok(CU(cuIpcCloseMemHandle)(a));
    ck_assert_cuda_ok(CU(cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    ck_assert_cuda(CU(cuCtxSynchronize)(), CUDA_ERROR_ILLEGAL_ADDRESS);
    return 0;
}

START_TEST(memory_of_another_process_is_written) {
    struct cuda_library_pair pair;
    CUipcMemHandle handle;
    CUdeviceptr a;
    struct sim_box s;
    int value = 0;
    pid_t child;
    char byte;

    cuda_library_pair_init(&pair);
    sim_box_init(&s, &two_a100);
    child = sim_box_fork(importer, &s, &pair); /* before CUDA is up here */
    cuda_library_use(0);
    a = cuda_library_alloc(4096);
    ck_assert_cuda_ok(CU(cuIpcGetMemHandle)(&handle, a));
    cuda_library_send(pair.to_child[0], &handle, sizeof(handle));
    cuda_library_receive(pair.to_parent[0], &byte, 1);
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(&value, a, 4));
    ck_assert_int_eq(value, 4711);
    sim_box_expect_success(child);
    sim_box_done(&s);
}
END_TEST

/* Each kind of fault once, and the code it has. */
START_TEST(faults_have_their_codes) {
    static const struct {
        const char *kernel;
        CUresult answer;
    } cases[] = {
        { "trap", CUDA_ERROR_LAUNCH_FAILED },
        { "stack", CUDA_ERROR_LAUNCH_FAILED },
        { "lost_barrier", CUDA_ERROR_LAUNCH_TIMEOUT },
        { "wild_call", CUDA_ERROR_ILLEGAL_INSTRUCTION },
    };
    CUcontext context;
    CUdeviceptr p;
    int wanted = 1;
    struct sim_box s;

    cuda_library_init(&s, &two_a100);
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        void *params[] = { &p };

        ck_assert_cuda_ok(CU(cuCtxCreate_v2)(&context, 0, 0));
        p = cuda_library_alloc(1024);
        ck_assert_cuda_ok(CU(cuLaunchKernel)(kernel_of("wrong.O3.ptx", cases[i].kernel), 1, 1, 1,
                                             64, 1, 1, 0, NULL, params, NULL));
        ck_assert_cuda(CU(cuCtxSynchronize)(), cases[i].answer);
        ck_assert_cuda_ok(CU(cuCtxDestroy_v2)(context));
    }
    for (unsigned threads = 1; threads <= 2; threads++) {
        void *params[] = { &wanted };

        ck_assert_cuda_ok(CU(cuCtxCreate_v2)(&context, 0, 0));
        ck_assert_cuda_ok(CU(cuLaunchKernel)(kernel_of("launch.O0.ptx", "check"), 1, 1, 1, threads,
                                             1, 1, 0, NULL, params, NULL));
        ck_assert_cuda(CU(cuCtxSynchronize)(), threads == 1 ? CUDA_SUCCESS : CUDA_ERROR_ASSERT);
        ck_assert_cuda_ok(CU(cuCtxDestroy_v2)(context));
    }
    sim_box_done(&s);
}
END_TEST

START_TEST(an_error_stays_in_its_context) {
    CUcontext bad, good;
    CUfunction wild, fine;
    CUdeviceptr nowhere = 64, p;
    int value = 5, seen = 0;
    void *params[] = { &nowhere, &value }, *right[] = { &p, &value };
    struct sim_box s;

    cuda_library_init(&s, &two_a100);
    ck_assert_cuda_ok(CU(cuCtxCreate_v2)(&good, 0, 1));
    fine = kernel_of("kernel_access.O3.ptx", "write_int");
    p = cuda_library_alloc(4);
    ck_assert_cuda_ok(CU(cuDevicePrimaryCtxRetain)(&bad, 0));
    ck_assert_cuda_ok(CU(cuCtxPushCurrent_v2)(bad));
    wild = kernel_of("kernel_access.O3.ptx", "write_int");
    ck_assert_cuda_ok(CU(cuLaunchKernel)(wild, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    ck_assert_cuda(CU(cuCtxSynchronize)(), CUDA_ERROR_ILLEGAL_ADDRESS);
    ck_assert_cuda_ok(CU(cuCtxPopCurrent_v2)(NULL));
    ck_assert_cuda_ok(CU(cuLaunchKernel)(fine, 1, 1, 1, 1, 1, 1, 0, NULL, right, NULL));
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(&seen, p, 4));
    ck_assert_int_eq(seen, 5);
    /* Reset, it works again. */
    ck_assert_cuda_ok(CU(cuDevicePrimaryCtxReset_v2)(0));
    ck_assert_cuda_ok(CU(cuDevicePrimaryCtxRetain)(&bad, 0));
    ck_assert_cuda_ok(CU(cuCtxSetCurrent)(bad));
    p = cuda_library_alloc(4);
    ck_assert_cuda_ok(CU(cuLaunchKernel)(kernel_of("kernel_access.O3.ptx", "write_int"), 1, 1, 1, 1,
                                         1, 1, 0, NULL, right, NULL));
    ck_assert_cuda_ok(CU(cuCtxSynchronize)());
    sim_box_done(&s);
}
END_TEST

static double seconds(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

START_TEST(a_kernel_that_runs_away_ends_with_its_context) {
    CUcontext context;
    CUdeviceptr p;
    void *params[] = { &p };
    double began;
    struct sim_box s;

    cuda_library_init(&s, &two_a100);
    ck_assert_cuda_ok(CU(cuCtxCreate_v2)(&context, 0, 0));
    p = cuda_library_alloc(64);
    ck_assert_cuda_ok(CU(cuLaunchKernel)(kernel_of("wrong.O3.ptx", "busy_for_ever"), 4, 1, 1, 32, 1,
                                         1, 0, NULL, params, NULL));
    ck_assert_cuda(CU(cuStreamQuery)(NULL), CUDA_ERROR_NOT_READY);
    began = seconds();
    ck_assert_cuda_ok(CU(cuCtxDestroy_v2)(context));
    ck_assert_double_lt(seconds() - began, 20);
    cuda_library_use(0); /* the device is free again */
    p = cuda_library_alloc(64);
    ck_assert_cuda_ok(CU(cuMemFree_v2)(p));
    sim_box_done(&s);
}
END_TEST

static int runs_away(struct sim_box *unused, void *argument) {
    CUdeviceptr p;
    void *params[] = { &p };

    (void)unused, (void)argument;
    cuda_library_use(0);
    p = cuda_library_alloc(64);
    ck_assert_cuda_ok(CU(cuLaunchKernel)(kernel_of("wrong.O3.ptx", "busy_for_ever"), 4, 1, 1, 32, 1,
                                         1, 0, NULL, params, NULL));
    return 0; /* exit() with the kernel still running */
}

START_TEST(a_process_can_end_while_its_kernel_runs) {
    struct sim_box s;
    double began = seconds();

    sim_box_init(&s, &two_a100);
    sim_box_expect_success(sim_box_fork(runs_away, &s, NULL));
    ck_assert_double_lt(seconds() - began, 15);
    ck_assert_uint_eq(sim_box_used(&s, 0), 0);
    sim_box_done(&s);
}
END_TEST

START_TEST(memory_that_a_running_kernel_of_another_device_uses_is_freed_safely) {
    CUcontext context;
    CUdeviceptr done;
    int *flag;
    void *params[] = { &flag, &done };
    struct sim_box s;

    cuda_library_start(&s, &two_a100);
    ck_assert_cuda_ok(CU(cuMemHostAlloc)((void **)&flag, 4096, CU_MEMHOSTALLOC_PORTABLE));
    *flag = 0;
    ck_assert_cuda_ok(CU(cuCtxCreate_v2)(&context, 0, 1));
    done = cuda_library_alloc(4);
    ck_assert_cuda_ok(CU(cuLaunchKernel)(kernel_of("kernel_access.O3.ptx", "wait_for"), 1, 1, 1, 1,
                                         1, 1, 0, NULL, params, NULL));
    usleep(20000);
    ck_assert_cuda_ok(CU(cuCtxPopCurrent_v2)(NULL)); /* to the first one, which has no work */
    ck_assert_cuda_ok(CU(cuMemFreeHost)(flag));
    ck_assert_cuda_ok(CU(cuCtxPushCurrent_v2)(context));
    ck_assert_cuda(CU(cuCtxSynchronize)(), CUDA_ERROR_ILLEGAL_ADDRESS);
    sim_box_done(&s);
}
END_TEST

START_TEST(the_report_names_kernel_thread_address_and_neighbour) {
    char text[2048] = "";
    int pipes[2], kept = dup(2);
    long long index = 300;
    CUdeviceptr p;
    void *params[] = { &p, &index };
    char address[32];
    ssize_t n;
    struct sim_box s;

    setenv("GPUSIM_REPORT", "1", 1);
    cuda_library_start(&s, &two_a100);
    p = cuda_library_alloc(1000);
    ck_assert_int_eq(pipe(pipes), 0);
    dup2(pipes[1], 2);
    ck_assert_cuda_ok(CU(cuLaunchKernel)(kernel_of("wrong.O3.ptx", "write_at"), 1, 1, 1, 32, 1, 1,
                                         0, NULL, params, NULL));
    ck_assert_cuda(CU(cuCtxSynchronize)(), CUDA_ERROR_ILLEGAL_ADDRESS);
    dup2(kept, 2);
    close(pipes[1]);
    n = read(pipes[0], text, sizeof(text) - 1);
    ck_assert_int_gt(n, 0);
    snprintf(address, sizeof(address), "0x%llx", p + 1200);
    ck_assert_msg(strstr(text, "'write_at'") && strstr(text, "thread (7, 0, 0)") &&
                      strstr(text, address) && strstr(text, "200 bytes after") &&
                      strstr(text, "1000 bytes of device memory"),
                  "%s", text);
    sim_box_done(&s);
}
END_TEST

/* Allocating and freeing beside a kernel that runs all the time. */
static void *allocate(void *argument) {
    CUcontext context = argument;

    ck_assert_cuda_ok(CU(cuCtxSetCurrent)(context));
    for (int i = 0; i < 300; i++) {
        CUdeviceptr p = cuda_library_alloc((uint64_t)(i % 7 + 1) * 1000);

        ck_assert_cuda_ok(CU(cuMemFree_v2)(p));
    }
    return NULL;
}

START_TEST(allocating_beside_a_running_kernel_is_fine) {
    CUcontext first, second;
    CUdeviceptr done;
    volatile int *flag;
    void *params[] = { &flag, &done };
    pthread_t thread;
    int value = 0;
    struct sim_box s;

    cuda_library_start(&s, &two_a100);
    ck_assert_cuda_ok(CU(cuCtxGetCurrent)(&first));
    ck_assert_cuda_ok(CU(cuCtxCreate_v2)(&second, 0, 1));
    ck_assert_cuda_ok(CU(cuMemHostAlloc)((void **)&flag, 4096, CU_MEMHOSTALLOC_PORTABLE));
    *flag = 0;
    done = cuda_library_alloc(4);
    ck_assert_cuda_ok(CU(cuLaunchKernel)(kernel_of("kernel_access.O3.ptx", "wait_for"), 1, 1, 1, 1,
                                         1, 1, 0, NULL, params, NULL));
    pthread_create(&thread, NULL, allocate, first);
    pthread_join(thread, NULL);
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE);
    ck_assert_cuda_ok(CU(cuCtxSynchronize)());
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(&value, done, 4));
    ck_assert_int_eq(value, 1);
    sim_box_done(&s);
}
END_TEST

SUITE_TIMEOUT("cuda-kernel-access", 60, small_allocations_are_exact,
              the_rest_of_a_unit_is_not_accessible, large_allocations_end_where_they_end,
              mappings_have_rights, peers_are_reached_when_enabled,
              host_memory_is_reached_when_locked,
              managed_memory_moves_to_the_device_that_touches_it,
              memory_of_another_process_is_written, faults_have_their_codes,
              an_error_stays_in_its_context, a_kernel_that_runs_away_ends_with_its_context,
              a_process_can_end_while_its_kernel_runs,
              memory_that_a_running_kernel_of_another_device_uses_is_freed_safely,
              the_report_names_kernel_thread_address_and_neighbour,
              allocating_beside_a_running_kernel_is_fine)
