/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/sim/cuda/cuda_library.h"
#include "tests/support/suite.h"

START_TEST(managed_memory_is_charged_where_it_was_prefetched) {
    uint64_t empty, other;
    CUdeviceptr p;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    empty = sim_box_used(&s, 0);
    other = sim_box_used(&s, 1);
    ck_assert_cuda_ok(CU(cuMemAllocManaged)(&p, 8 * MIB, CU_MEM_ATTACH_GLOBAL));
    memset((void *)(uintptr_t)p, 7, 8 * MIB); /* the host's as well */
    ck_assert_uint_eq(sim_box_used(&s, 0), empty);
    ck_assert_cuda_ok(CU(cuMemPrefetchAsync)(p, 8 * MIB, 0, NULL));
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(NULL));
    ck_assert_uint_eq(sim_box_used(&s, 0), empty + 8 * MIB);
    ck_assert_cuda_ok(CU(cuMemPrefetchAsync)(p, 3 * MIB, 1, NULL));
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(NULL));
    ck_assert_uint_eq(sim_box_used(&s, 0), empty + 4 * MIB);
    ck_assert_uint_eq(sim_box_used(&s, 1), other + 4 * MIB);
    ck_assert_cuda_ok(CU(cuMemPrefetchAsync)(p, 8 * MIB, CU_DEVICE_CPU, NULL));
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(NULL));
    ck_assert_uint_eq(sim_box_used(&s, 0), empty);
    ck_assert_uint_eq(sim_box_used(&s, 1), other);
    ck_assert_cuda_ok(CU(cuMemsetD8_v2)(p, 9, 8 * MIB)); /* a device writes it */
    ck_assert_uint_eq(sim_box_used(&s, 0), empty + 8 * MIB);
    ck_assert_int_eq(((char *)(uintptr_t)p)[8 * MIB - 1], 9);
    ck_assert_cuda(CU(cuMemPrefetchAsync)(p, 9 * MIB, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuMemPrefetchAsync)(p, MIB, 7, NULL), CUDA_ERROR_INVALID_DEVICE);
    ck_assert_cuda_ok(CU(cuMemFree_v2)(p));
    ck_assert_uint_eq(sim_box_used(&s, 0), empty);
    sim_box_done(&s);
}
END_TEST

START_TEST(discarded_memory_takes_no_place) {
    size_t bytes = 4 * MIB, first = 0;
    CUmemLocation there = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 };
    uint64_t empty;
    CUdeviceptr p;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    empty = sim_box_used(&s, 0);
    ck_assert_cuda_ok(CU(cuMemAllocManaged)(&p, bytes, CU_MEM_ATTACH_GLOBAL));
    ck_assert_cuda_ok(CU(cuMemsetD8_v2)(p, 1, bytes));
    ck_assert_uint_eq(sim_box_used(&s, 0), empty + bytes);
    ck_assert_cuda_ok(CU(cuMemDiscardBatchAsync)(&p, &bytes, 1, 0, NULL));
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(NULL));
    ck_assert_uint_eq(sim_box_used(&s, 0), empty);
    ck_assert_cuda_ok(
        CU(cuMemDiscardAndPrefetchBatchAsync)(&p, &bytes, 1, &there, &first, 1, 0, NULL));
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(NULL));
    ck_assert_uint_eq(sim_box_used(&s, 0), empty + bytes);
    bytes++;
    ck_assert_cuda(CU(cuMemDiscardBatchAsync)(&p, &bytes, 1, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    sim_box_done(&s);
}
END_TEST

START_TEST(managed_memory_makes_room_for_everything_else) {
    CUdeviceptr managed, p;
    uint64_t room;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    room = cuda_library_free_bytes() / (2 * MIB) * (2 * MIB);
    ck_assert_cuda_ok(CU(cuMemAllocManaged)(&managed, room + 64 * MIB, CU_MEM_ATTACH_GLOBAL));
    ck_assert_cuda_ok(CU(cuMemPrefetchAsync)(managed, room + 64 * MIB, 0, NULL));
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(NULL));
    ck_assert_uint_lt(cuda_library_free_bytes(), 2 * MIB); /* more than fits: the rest stays */
    p = cuda_library_alloc(100 * MIB);
    ck_assert_cuda_ok(CU(cuMemFree_v2)(p));
    p = cuda_library_alloc(room);
    ck_assert_cuda(CU(cuMemAlloc_v2)(&p, 1), CUDA_ERROR_OUT_OF_MEMORY);
    sim_box_done(&s);
}
END_TEST

START_TEST(advice_is_kept_by_page_and_asked_by_range) {
    CUmem_range_attribute which[] = { CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY,
                                      CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION };
    int value, last, by[3];
    void *data[] = { &value, &last };
    size_t sizes[] = { 4, 4 };
    CUdeviceptr p;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    ck_assert_cuda_ok(CU(cuMemAllocManaged)(&p, 4 * MIB, CU_MEM_ATTACH_GLOBAL));
    ck_assert_cuda_ok(CU(cuMemRangeGetAttribute)(
        &value, 4, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, p, 4 * MIB));
    ck_assert_int_eq(value, CU_DEVICE_INVALID);
    ck_assert_cuda_ok(
        CU(cuMemAdvise)(p, 2 * MIB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU));
    ck_assert_cuda_ok(CU(cuMemRangeGetAttribute)(
        &value, 4, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, p, 2 * MIB));
    ck_assert_int_eq(value, CU_DEVICE_CPU);
    ck_assert_cuda_ok(CU(cuMemRangeGetAttribute)(
        &value, 4, CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, p, 4 * MIB));
    ck_assert_int_eq(value, CU_DEVICE_INVALID); /* not all of it agrees */
    ck_assert_cuda_ok(CU(cuMemAdvise)(p, 4 * MIB, CU_MEM_ADVISE_SET_ACCESSED_BY, 1));
    ck_assert_cuda_ok(
        CU(cuMemRangeGetAttribute)(by, 12, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, p, 4 * MIB));
    ck_assert_int_eq(by[0], 1);
    ck_assert_int_eq(by[1], CU_DEVICE_INVALID);
    ck_assert_cuda_ok(CU(cuMemAdvise)(p, 4 * MIB, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
    ck_assert_cuda_ok(CU(cuMemPrefetchAsync)(p, 4 * MIB, 1, NULL));
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(NULL));
    ck_assert_cuda_ok(CU(cuMemRangeGetAttributes)(data, sizes, which, 2, p, 4 * MIB));
    ck_assert_int_eq(value, 1);
    ck_assert_int_eq(last, 1);
    ck_assert_cuda(CU(cuMemAdvise)(p, 5 * MIB, CU_MEM_ADVISE_SET_READ_MOSTLY, 0),
                   CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuMemAdvise)(p, MIB, (CUmem_advise)99, 0), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuMemAdvise)(p, MIB, CU_MEM_ADVISE_SET_ACCESSED_BY, 42),
                   CUDA_ERROR_INVALID_DEVICE);
    ck_assert_cuda(CU(cuMemAllocManaged)(&p, 1, 77), CUDA_ERROR_INVALID_VALUE);
    sim_box_done(&s);
}
END_TEST

START_TEST(host_memory_is_one_address_for_both_sides) {
    CUdeviceptr device;
    unsigned flags;
    uint64_t empty;
    char *host, *own = malloc(100000);
    struct sim_box s;

    cuda_library_start(&s, NULL);
    empty = sim_box_used(&s, 0);
    ck_assert_cuda_ok(CU(cuMemHostAlloc)((void **)&host, 10000, CU_MEMHOSTALLOC_PORTABLE));
    ck_assert_uint_eq(sim_box_used(&s, 0), empty);
    memset(host, 1, 10000);
    ck_assert_cuda_ok(CU(cuMemHostGetDevicePointer_v2)(&device, host + 10, 0));
    ck_assert_uint_eq(device, (uintptr_t)host + 10);
    ck_assert_cuda_ok(CU(cuMemHostGetFlags)(&flags, host));
    ck_assert_uint_eq(flags, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    ck_assert_cuda_ok(CU(cuMemsetD8_v2)(device, 5, 10));
    ck_assert_int_eq(host[10], 5);
    ck_assert_cuda(CU(cuMemFree_v2)((uintptr_t)host), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuMemHostAlloc)((void **)&host, 100, 0x80), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda_ok(CU(cuMemFreeHost)(host));
    ck_assert_cuda(CU(cuMemFreeHost)(host), CUDA_ERROR_INVALID_VALUE);

    ck_assert_cuda(CU(cuMemHostGetDevicePointer_v2)(&device, own, 0), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda_ok(CU(cuMemHostRegister_v2)(own, 100000, CU_MEMHOSTREGISTER_DEVICEMAP));
    ck_assert_cuda(CU(cuMemHostRegister_v2)(own + 500, 10, 0),
                   CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    ck_assert_cuda_ok(CU(cuMemHostGetDevicePointer_v2)(&device, own + 5, 0));
    ck_assert_uint_eq(device, (uintptr_t)own + 5);
    ck_assert_cuda_ok(CU(cuMemHostUnregister)(own));
    ck_assert_cuda(CU(cuMemHostUnregister)(own), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    ck_assert_cuda(CU(cuMemHostRegister_v2)((void *)4096, 4096, 0), CUDA_ERROR_INVALID_VALUE);
    free(own);
    sim_box_done(&s);
}
END_TEST

static CUmemorytype type_of(CUdeviceptr p) {
    CUmemorytype type;

    ck_assert_cuda_ok(CU(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p));
    return type;
}

static uint64_t number_of(CUdeviceptr p, CUpointer_attribute which) {
    uint64_t value = 0;

    ck_assert_cuda_ok(CU(cuPointerGetAttribute)(&value, which, p));
    return value;
}

START_TEST(a_pointer_tells_what_it_is) {
    CUpointer_attribute which[] = { CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_CONTEXT,
                                    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL };
    CUcontext context, owner;
    CUdeviceptr a, b, managed;
    CUmemorytype type = (CUmemorytype)9;
    int ordinal = 0;
    void *data[] = { &type, &owner, &ordinal }, *host;
    bool flag;
    unsigned on = 1;
    char own[8];
    struct sim_box s;

    cuda_library_start(&s, NULL);
    ck_assert_cuda_ok(CU(cuCtxGetCurrent)(&context));
    a = cuda_library_alloc(1000);
    b = cuda_library_alloc(1000);
    ck_assert_cuda_ok(CU(cuMemAllocManaged)(&managed, 100, CU_MEM_ATTACH_GLOBAL));
    ck_assert_cuda_ok(CU(cuMemAllocHost_v2)(&host, 100));
    ck_assert_int_eq(type_of(a), CU_MEMORYTYPE_DEVICE);
    ck_assert_int_eq(type_of(managed), CU_MEMORYTYPE_DEVICE);
    ck_assert_int_eq(type_of((uintptr_t)host), CU_MEMORYTYPE_HOST);
    ck_assert_uint_eq(number_of(a + 99, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR), a);
    ck_assert_uint_eq(number_of(a + 99, CU_POINTER_ATTRIBUTE_RANGE_SIZE), 1000);
    ck_assert_uint_eq(number_of(a + 99, CU_POINTER_ATTRIBUTE_DEVICE_POINTER), a + 99);
    ck_assert_uint_ne(number_of(a, CU_POINTER_ATTRIBUTE_BUFFER_ID),
                      number_of(b, CU_POINTER_ATTRIBUTE_BUFFER_ID));
    ck_assert_cuda_ok(CU(cuPointerGetAttribute)(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, a));
    ck_assert_ptr_eq(owner, context);
    ck_assert_cuda_ok(CU(cuPointerGetAttribute)(&flag, CU_POINTER_ATTRIBUTE_IS_MANAGED, managed));
    ck_assert(flag);
    ck_assert_cuda_ok(CU(cuPointerGetAttribute)(&flag, CU_POINTER_ATTRIBUTE_IS_MANAGED, a));
    ck_assert(!flag);
    ck_assert_cuda_ok(CU(cuPointerSetAttribute)(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a));
    ck_assert_cuda_ok(CU(cuPointerGetAttribute)(&flag, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a + 1));
    ck_assert(flag);
    ck_assert_cuda_ok(CU(cuPointerGetAttribute)(&flag, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, b));
    ck_assert(!flag);
    ck_assert_cuda(CU(cuPointerGetAttribute)(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, a),
                   CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(
        CU(cuPointerGetAttribute)(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)own),
        CUDA_ERROR_INVALID_VALUE);
    /* The plural asks about any address. */
    ck_assert_cuda_ok(CU(cuPointerGetAttributes)(3, which, data, (uintptr_t)own));
    ck_assert_int_eq((int)type, 0);
    ck_assert_ptr_null(owner);
    ck_assert_int_eq(ordinal, CU_DEVICE_INVALID);
    ck_assert_cuda_ok(CU(cuPointerGetAttributes)(3, which, data, a));
    ck_assert_int_eq((int)type, CU_MEMORYTYPE_DEVICE);
    ck_assert_int_eq(ordinal, 0);
    sim_box_done(&s);
}
END_TEST

SUITE("cuda-managed", managed_memory_is_charged_where_it_was_prefetched,
      discarded_memory_takes_no_place, managed_memory_makes_room_for_everything_else,
      advice_is_kept_by_page_and_asked_by_range, host_memory_is_one_address_for_both_sides,
      a_pointer_tells_what_it_is)
