/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/sim/cuda/cuda_library.h"
#include "tests/support/sim/cuda/gate.h"
#include "tests/support/suite.h"

static uint64_t attribute(CUmemoryPool pool, CUmemPool_attribute which) {
    uint64_t value;

    ck_assert_cuda_ok(CU(cuMemPoolGetAttribute)(pool, which, &value));
    return value;
}

START_TEST(a_pool_keeps_what_was_freed_until_the_program_waits) {
    CUmemoryPool pool, same;
    CUdeviceptr a, b;
    uint64_t empty, zero = 0;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    empty = sim_box_used(&s, 0);
    ck_assert_cuda_ok(CU(cuDeviceGetDefaultMemPool)(&pool, 0));
    ck_assert_cuda_ok(CU(cuDeviceGetMemPool)(&same, 0));
    ck_assert_ptr_eq(pool, same);
    ck_assert_uint_eq(attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), 0);
    ck_assert_cuda_ok(CU(cuMemAllocAsync)(&a, 1000, NULL));
    ck_assert_uint_eq(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 1024);
    ck_assert_uint_eq(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 32 * MIB);
    ck_assert_uint_eq(sim_box_used(&s, 0), empty + 32 * MIB);
    ck_assert_cuda_ok(CU(cuMemAllocAsync)(&b, 40 * MIB, NULL));
    ck_assert_uint_eq(sim_box_used(&s, 0), empty + 64 * MIB);
    ck_assert_cuda_ok(CU(cuMemFreeAsync)(b, NULL));
    ck_assert_cuda(CU(cuMemFreeAsync)(b, NULL), CUDA_ERROR_INVALID_VALUE);
    ck_assert_uint_eq(sim_box_used(&s, 0), empty + 64 * MIB);
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(NULL));
    ck_assert_uint_eq(sim_box_used(&s, 0), empty + 2 * MIB);
    ck_assert_uint_eq(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 2 * MIB);
    ck_assert_uint_eq(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 64 * MIB);
    ck_assert_uint_eq(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 40 * MIB + 1024);
    ck_assert_cuda_ok(CU(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero));
    ck_assert_uint_eq(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 2 * MIB);
    zero = 1;
    ck_assert_cuda(CU(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero),
                   CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda_ok(CU(cuMemFree_v2)(a)); /* either free will do */
    ck_assert_cuda_ok(CU(cuCtxSynchronize)());
    ck_assert_uint_eq(sim_box_used(&s, 0), empty);
    sim_box_done(&s);
}
END_TEST

START_TEST(the_threshold_is_what_may_stay) {
    uint64_t threshold = 20 * MIB, empty;
    CUmemoryPool pool;
    CUdeviceptr p;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    empty = sim_box_used(&s, 0);
    ck_assert_cuda_ok(CU(cuDeviceGetDefaultMemPool)(&pool, 0));
    ck_assert_cuda_ok(
        CU(cuMemPoolSetAttribute)(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    ck_assert_cuda_ok(CU(cuMemAllocAsync)(&p, 50 * MIB, NULL));
    ck_assert_cuda_ok(CU(cuMemFreeAsync)(p, NULL));
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(NULL));
    ck_assert_uint_eq(sim_box_used(&s, 0), empty + 20 * MIB);
    ck_assert_cuda_ok(CU(cuMemAllocAsync)(&p, 20 * MIB, NULL)); /* no more is needed */
    ck_assert_uint_eq(sim_box_used(&s, 0), empty + 20 * MIB);
    ck_assert_cuda_ok(CU(cuMemFreeAsync)(p, NULL));
    ck_assert_cuda_ok(CU(cuMemPoolTrimTo)(pool, 4 * MIB));
    ck_assert_uint_eq(sim_box_used(&s, 0), empty + 4 * MIB);
    ck_assert_cuda_ok(CU(cuMemPoolTrimTo)(pool, 0));
    ck_assert_uint_eq(sim_box_used(&s, 0), empty);
    sim_box_done(&s);
}
END_TEST

START_TEST(a_pool_of_ones_own_has_a_size_and_an_end) {
    CUmemPoolProps props = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1 },
        .maxSize = 10 * MIB,
    };
    CUmemoryPool pool, now;
    CUdeviceptr p, q;
    CUdevice ordinal;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    ck_assert_cuda_ok(CU(cuMemPoolCreate)(&pool, &props));
    ck_assert_cuda_ok(CU(cuMemAllocFromPoolAsync)(&p, 7 * MIB, pool, NULL));
    ck_assert_uint_eq(sim_box_used(&s, 1), 8 * MIB);
    ck_assert_cuda(CU(cuMemAllocFromPoolAsync)(&q, 3 * MIB, pool, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    ck_assert_cuda_ok(CU(cuMemAllocFromPoolAsync)(&q, 2 * MIB, pool, NULL));
    ck_assert_cuda_ok(CU(cuPointerGetAttribute)(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p));
    ck_assert_int_eq(ordinal, 1);
    ck_assert_cuda_ok(CU(cuPointerGetAttribute)(&now, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, p));
    ck_assert_ptr_eq(now, pool);
    ck_assert_cuda_ok(CU(cuDeviceSetMemPool)(1, pool));
    ck_assert_cuda(CU(cuDeviceSetMemPool)(0, pool), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda_ok(CU(cuDeviceGetMemPool)(&now, 1));
    ck_assert_ptr_eq(now, pool);
    ck_assert_cuda_ok(CU(cuMemPoolDestroy)(pool));
    ck_assert_cuda_ok(CU(cuDeviceGetMemPool)(&now, 1)); /* the default again */
    ck_assert_ptr_ne(now, pool);
    ck_assert_cuda(CU(cuMemPoolDestroy)(now), CUDA_ERROR_INVALID_VALUE);
    /* Its allocations outlive it, and take it with them. */
    ck_assert_uint_eq(sim_box_used(&s, 1), 10 * MIB);
    ck_assert_cuda_ok(CU(cuMemsetD8_v2)(p, 1, 7 * MIB));
    ck_assert_cuda_ok(CU(cuMemFreeAsync)(p, NULL));
    ck_assert_cuda_ok(CU(cuMemFreeAsync)(q, NULL));
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(NULL));
    ck_assert_uint_eq(sim_box_used(&s, 1), 0);
    ck_assert_cuda(CU(cuMemPoolDestroy)(pool), CUDA_ERROR_INVALID_VALUE);
    props.location.id = 5;
    ck_assert_cuda(CU(cuMemPoolCreate)(&pool, &props), CUDA_ERROR_INVALID_DEVICE);
    sim_box_done(&s);
}
END_TEST

START_TEST(a_pool_takes_less_than_it_likes_when_there_is_little) {
    CUdeviceptr all, p;
    uint64_t room;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    room = cuda_library_free_bytes() / (2 * MIB) * (2 * MIB);
    all = cuda_library_alloc(room - 4 * MIB);
    ck_assert_cuda_ok(CU(cuMemAllocAsync)(&p, 3 * MIB, NULL));
    ck_assert_cuda(CU(cuMemAllocAsync)(&p, 1, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    ck_assert_cuda_ok(CU(cuMemFree_v2)(all));
    ck_assert_cuda_ok(CU(cuMemAllocAsync)(&p, 1, NULL));
    sim_box_done(&s);
}
END_TEST

START_TEST(access_of_peers_is_asked_for) {
    CUmemAccessDesc desc = { .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1 },
                             .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    CUmemAccess_flags flags;
    CUmemoryPool pool;
    struct sim_box s;

    cuda_library_start(&s, &(struct box_spec){ .n_gpus = 2, .models = "a100-40g" });
    ck_assert_cuda_ok(CU(cuDeviceGetDefaultMemPool)(&pool, 0));
    ck_assert_cuda_ok(CU(cuMemPoolGetAccess)(&flags, pool, &desc.location));
    ck_assert_int_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    ck_assert_cuda_ok(CU(cuMemPoolSetAccess)(pool, &desc, 1));
    ck_assert_cuda_ok(CU(cuMemPoolGetAccess)(&flags, pool, &desc.location));
    ck_assert_int_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    desc.location.id = 0;
    desc.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    ck_assert_cuda(CU(cuMemPoolSetAccess)(pool, &desc, 1), CUDA_ERROR_INVALID_DEVICE);
    sim_box_done(&s);
}
END_TEST

static CUstream new_stream(void) {
    CUstream stream;

    ck_assert_cuda_ok(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static void allow(CUmemoryPool pool, CUmemPool_attribute what, int value) {
    ck_assert_cuda_ok(CU(cuMemPoolSetAttribute)(pool, what, &value));
}

static void record_and_wait(CUstream from, CUstream to) {
    CUevent event;

    ck_assert_cuda_ok(CU(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
    ck_assert_cuda_ok(CU(cuEventRecord)(event, from));
    ck_assert_cuda_ok(CU(cuStreamWaitEvent)(to, event, 0));
    ck_assert_cuda_ok(CU(cuEventDestroy_v2)(event));
}

START_TEST(a_stream_that_waits_for_a_free_gets_the_memory) {
    struct gate gate = GATE_INIT;
    CUstream a, b, c, late;
    CUdeviceptr p, q, big, small;
    CUmemoryPool pool;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    a = new_stream();
    b = new_stream();
    c = new_stream();
    late = new_stream();
    ck_assert_cuda_ok(CU(cuDeviceGetDefaultMemPool)(&pool, 0));
    ck_assert_cuda_ok(CU(cuMemAllocAsync)(&big, 5 * MIB, a));
    ck_assert_cuda_ok(CU(cuMemAllocAsync)(&small, 3000, a));
    ck_assert_cuda_ok(CU(cuLaunchHostFunc)(a, gate_pass, &gate));
    gate_await(&gate);
    record_and_wait(a, late); /* before the memory is freed: nothing to do with it */
    ck_assert_cuda_ok(CU(cuMemFreeAsync)(big, a));
    ck_assert_cuda_ok(CU(cuMemFreeAsync)(small, a));

    ck_assert_cuda_ok(CU(cuMemAllocAsync)(&p, 5 * MIB, b));
    ck_assert_uint_ne(p, big);
    ck_assert_cuda_ok(CU(cuMemAllocAsync)(&q, 3000, late));
    ck_assert_uint_ne(q, small);

    /* By way of a third stream, and of work in it. */
    record_and_wait(a, c);
    ck_assert_cuda_ok(CU(cuMemsetD8Async)(p, 1, 100, c));
    record_and_wait(c, b);
    allow(pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, 0);
    ck_assert_cuda_ok(CU(cuMemAllocAsync)(&q, 5 * MIB, b));
    ck_assert_uint_ne(q, big);
    allow(pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, 1);
    ck_assert_cuda_ok(CU(cuMemAllocAsync)(&q, 5 * MIB - 100, b));
    ck_assert_uint_eq(q, big);
    ck_assert_cuda_ok(CU(cuMemAllocAsync)(&q, 2900, c));
    ck_assert_uint_eq(q, small);
    ck_assert_cuda_ok(CU(cuMemsetD8Async)(big, 2, 5 * MIB - 100, b));
    ck_assert_cuda(CU(cuStreamQuery)(b), CUDA_ERROR_NOT_READY);
    gate_open(&gate);
    ck_assert_cuda_ok(CU(cuCtxSynchronize)());
    ck_assert_cuda_ok(CU(cuMemFree_v2)(big));
    ck_assert_cuda_ok(CU(cuMemFree_v2)(small));
    sim_box_done(&s);
}
END_TEST

START_TEST(where_memory_is_short_a_stream_waits_for_what_another_freed) {
    struct gate gate = GATE_INIT;
    unsigned char seen[4];
    CUmemoryPool pool;
    CUdeviceptr p, q;
    CUstream a, b;
    uint64_t most;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    a = new_stream();
    b = new_stream();
    most = cuda_library_free_bytes() / 3 * 2;
    ck_assert_cuda_ok(CU(cuDeviceGetDefaultMemPool)(&pool, 0));
    ck_assert_cuda_ok(CU(cuMemAllocAsync)(&p, most, a));
    ck_assert_cuda_ok(CU(cuLaunchHostFunc)(a, gate_pass, &gate));
    gate_await(&gate);
    ck_assert_cuda_ok(CU(cuMemsetD8Async)(p, 1, 4, a));
    ck_assert_cuda_ok(CU(cuMemFreeAsync)(p, a));
    allow(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 0);
    ck_assert_cuda(CU(cuMemAllocAsync)(&q, most, b), CUDA_ERROR_OUT_OF_MEMORY);
    allow(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, 1);
    ck_assert_cuda_ok(CU(cuMemAllocAsync)(&q, most, b)); /* the gate is closed: no stream waits */
    ck_assert_uint_eq(q, p);
    ck_assert_cuda_ok(CU(cuMemsetD8Async)(q, 2, 4, b));
    ck_assert_cuda(CU(cuStreamQuery)(b), CUDA_ERROR_NOT_READY);
    gate_open(&gate);
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(b));
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(seen, q, 4));
    ck_assert_int_eq(seen[3], 2);
    ck_assert_cuda_ok(CU(cuMemFree_v2)(q));
    sim_box_done(&s);
}
END_TEST

SUITE("cuda-pool", a_pool_keeps_what_was_freed_until_the_program_waits,
      the_threshold_is_what_may_stay, a_pool_of_ones_own_has_a_size_and_an_end,
      a_pool_takes_less_than_it_likes_when_there_is_little, access_of_peers_is_asked_for,
      a_stream_that_waits_for_a_free_gets_the_memory,
      where_memory_is_short_a_stream_waits_for_what_another_freed)
