/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <unistd.h>

#include "tests/support/sim/cuda/cuda_library.h"
#include "tests/support/suite.h"

static const struct box_spec two_a100 = { .n_gpus = 2, .models = "a100-40g", .seed = 9 };

static CUmemAllocationProp on_device(int ordinal, bool exportable) {
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = exportable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0,
        .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal },
    };
}

static CUmemAccessDesc full(int ordinal) {
    return (CUmemAccessDesc){
        .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal },
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
}

START_TEST(memory_lives_while_it_is_named_or_mapped) {
    CUmemAllocationProp prop = on_device(0, false), seen;
    CUmemGenericAllocationHandle handle, again;
    CUmemAccessDesc access = full(0);
    unsigned long long flags;
    CUdeviceptr va;
    size_t granule;
    char text[16] = "a mapped text", back[16];
    uint64_t empty;
    struct sim_box s;

    cuda_library_start(&s, &two_a100);
    empty = sim_box_used(&s, 0);
    ck_assert_cuda_ok(
        CU(cuMemGetAllocationGranularity)(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    ck_assert_uint_eq(granule, 2 * MIB);
    ck_assert_cuda_ok(CU(cuMemAddressReserve)(&va, 64 * MIB, 0, 0, 0));
    ck_assert_uint_eq(sim_box_used(&s, 0), empty); /* addresses are free */
    ck_assert_cuda(CU(cuMemCreate)(&handle, 3 * MIB, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda_ok(CU(cuMemCreate)(&handle, 4 * MIB, &prop, 0));
    ck_assert_uint_eq(sim_box_used(&s, 0), empty + 4 * MIB);
    ck_assert_cuda(CU(cuMemMap)(va, 4 * MIB, 2 * MIB, handle, 0), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuMemMap)(va, 6 * MIB, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda_ok(CU(cuMemMap)(va + 2 * MIB, 4 * MIB, 0, handle, 0));
    ck_assert_cuda(CU(cuMemMap)(va + 4 * MIB, 4 * MIB, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    /* Mapped is not yet accessible. */
    ck_assert_cuda(CU(cuMemcpyHtoD_v2)(va + 2 * MIB, text, 16), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda_ok(CU(cuMemSetAccess)(va + 2 * MIB, 4 * MIB, &access, 1));
    ck_assert_cuda_ok(CU(cuMemGetAccess)(&flags, &access.location, va + 3 * MIB));
    ck_assert_uint_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    ck_assert_cuda_ok(CU(cuMemcpyHtoD_v2)(va + 2 * MIB + 77, text, 16));
    ck_assert_cuda(CU(cuMemcpyHtoD_v2)(va, text, 16), CUDA_ERROR_INVALID_VALUE);

    ck_assert_cuda_ok(CU(cuMemRetainAllocationHandle)(&again, (void *)(uintptr_t)(va + 5 * MIB)));
    ck_assert_uint_eq(again, handle);
    ck_assert_cuda_ok(CU(cuMemGetAllocationPropertiesFromHandle)(&seen, handle));
    ck_assert_int_eq(seen.location.id, 0);
    ck_assert_cuda_ok(CU(cuMemRelease)(handle));
    ck_assert_cuda_ok(CU(cuMemRelease)(again));
    ck_assert_cuda(CU(cuMemRelease)(handle), CUDA_ERROR_INVALID_VALUE);
    ck_assert_uint_eq(sim_box_used(&s, 0), empty + 4 * MIB); /* still mapped */
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(back, va + 2 * MIB + 77, 16));
    ck_assert_str_eq(back, text);
    ck_assert_cuda(CU(cuMemAddressFree)(va, 64 * MIB), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuMemUnmap)(va + 2 * MIB, 2 * MIB), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda_ok(CU(cuMemUnmap)(va + 2 * MIB, 4 * MIB));
    ck_assert_uint_eq(sim_box_used(&s, 0), empty);
    ck_assert_cuda(CU(cuMemcpyDtoH_v2)(back, va + 2 * MIB, 16), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda_ok(CU(cuMemAddressFree)(va, 64 * MIB));
    sim_box_done(&s);
}
END_TEST

START_TEST(neighbouring_mappings_are_one_piece_of_memory) {
    enum { N = 8 };
    CUmemAllocationProp prop = on_device(0, false);
    CUmemAccessDesc access = full(0);
    CUmemGenericAllocationHandle handles[N];
    unsigned char seen[64], pattern[64];
    CUdeviceptr va;
    struct sim_box s;

    cuda_library_start(&s, &two_a100);
    ck_assert_cuda_ok(CU(cuMemAddressReserve)(&va, N * 2 * MIB, 0, 0, 0));
    for (int i = 0; i < N; i++) {
        ck_assert_cuda_ok(CU(cuMemCreate)(&handles[i], 2 * MIB, &prop, 0));
        ck_assert_cuda_ok(CU(cuMemMap)(va + (unsigned)i * 2 * MIB, 2 * MIB, 0, handles[i], 0));
        ck_assert_cuda_ok(CU(cuMemRelease)(handles[i]));
    }
    ck_assert_cuda_ok(CU(cuMemSetAccess)(va, N * 2 * MIB, &access, 1));
    ck_assert_cuda_ok(CU(cuMemsetD8_v2)(va, 0x5a, N * 2 * MIB));
    ck_assert_cuda(CU(cuMemsetD8_v2)(va, 0x5a, N * 2 * MIB + 1), CUDA_ERROR_INVALID_VALUE);
    memset(pattern, 0x5a, sizeof(pattern));
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(seen, va + 2 * MIB - 32, 64));
    ck_assert_mem_eq(seen, pattern, 64);
    /* A hole in the middle makes it two. */
    ck_assert_cuda_ok(CU(cuMemUnmap)(va + 4 * MIB, 2 * MIB));
    ck_assert_cuda(CU(cuMemsetD8_v2)(va, 1, N * 2 * MIB), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda_ok(CU(cuMemsetD8_v2)(va, 1, 4 * MIB));
    ck_assert_cuda_ok(CU(cuCtxSynchronize)()); /* what is unmapped must not be in use */
    /* The others go in one call. */
    ck_assert_cuda_ok(CU(cuMemUnmap)(va + 6 * MIB, (N - 3) * 2 * MIB));
    ck_assert_cuda_ok(CU(cuMemUnmap)(va, 4 * MIB));
    ck_assert_cuda_ok(CU(cuMemAddressFree)(va, N * 2 * MIB));
    sim_box_done(&s);
}
END_TEST

START_TEST(one_handle_at_two_addresses_is_the_same_memory) {
    CUmemAllocationProp prop = on_device(0, false);
    CUmemAccessDesc access = full(0);
    CUmemGenericAllocationHandle handle;
    CUdeviceptr a, b, hinted;
    char seen = 0;
    struct sim_box s;

    cuda_library_start(&s, &two_a100);
    ck_assert_cuda_ok(CU(cuMemAddressReserve)(&a, 2 * MIB, 0, 0, 0));
    ck_assert_cuda_ok(CU(cuMemAddressReserve)(&b, 2 * MIB, 1 * GIB, 0, 0));
    ck_assert_uint_eq(b % GIB, 0);
    ck_assert_cuda_ok(CU(cuMemAddressReserve)(&hinted, 2 * MIB, 0, b + 64 * MIB, 0));
    ck_assert_uint_eq(hinted, b + 64 * MIB);
    ck_assert_cuda_ok(CU(cuMemCreate)(&handle, 2 * MIB, &prop, 0));
    ck_assert_cuda_ok(CU(cuMemMap)(a, 2 * MIB, 0, handle, 0));
    ck_assert_cuda_ok(CU(cuMemMap)(b, 2 * MIB, 0, handle, 0));
    ck_assert_cuda_ok(CU(cuMemSetAccess)(a, 2 * MIB, &access, 1));
    ck_assert_cuda_ok(CU(cuMemSetAccess)(b, 2 * MIB, &access, 1));
    ck_assert_cuda_ok(CU(cuMemsetD8_v2)(a + 5, 'x', 1));
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(&seen, b + 5, 1));
    ck_assert_int_eq(seen, 'x');
    sim_box_done(&s);
}
END_TEST

START_TEST(wrong_access_is_refused) {
    CUmemAllocationProp prop = on_device(0, false);
    CUmemAccessDesc access[2] = { full(0), full(7) };
    CUmemGenericAllocationHandle handle;
    CUdeviceptr va;
    struct sim_box s;

    cuda_library_start(&s, &two_a100);
    ck_assert_cuda_ok(CU(cuMemAddressReserve)(&va, 2 * MIB, 0, 0, 0));
    ck_assert_cuda(CU(cuMemAddressReserve)(&va, 1, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuMemAddressReserve)(&va, 2 * MIB, 3, 0, 0), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuMemAddressReserve)(&va, UINT64_C(1) << 60, 0, 0, 0),
                   CUDA_ERROR_OUT_OF_MEMORY);
    ck_assert_cuda_ok(CU(cuMemCreate)(&handle, 2 * MIB, &prop, 0));
    ck_assert_cuda(CU(cuMemSetAccess)(va, 2 * MIB, access, 1), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda_ok(CU(cuMemMap)(va, 2 * MIB, 0, handle, 0));
    ck_assert_cuda(CU(cuMemSetAccess)(va, 2 * MIB, access, 2), CUDA_ERROR_INVALID_DEVICE);
    /* All or nothing. */
    ck_assert_cuda(CU(cuMemsetD8_v2)(va, 0, 1), CUDA_ERROR_INVALID_VALUE);
    access[0].flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
    ck_assert_cuda_ok(CU(cuMemSetAccess)(va, 2 * MIB, access, 1));
    ck_assert_cuda(CU(cuMemsetD8_v2)(va, 0, 1), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(access, va, 1));
    prop.location.id = 5;
    ck_assert_cuda(CU(cuMemCreate)(&handle, 2 * MIB, &prop, 0), CUDA_ERROR_INVALID_DEVICE);
    prop.type = CU_MEM_ALLOCATION_TYPE_INVALID;
    ck_assert_cuda(CU(cuMemCreate)(&handle, 2 * MIB, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuMemMap)(va, 2 * MIB, 0, 0xdeadbeef, 0), CUDA_ERROR_INVALID_VALUE);
    sim_box_done(&s);
}
END_TEST

START_TEST(capacity_holds_for_handles_too) {
    CUmemAllocationProp prop = on_device(0, false);
    CUmemGenericAllocationHandle handle, more;
    uint64_t room;
    struct sim_box s;

    cuda_library_start(&s, &two_a100);
    room = cuda_library_free_bytes() / (2 * MIB) * (2 * MIB);
    ck_assert_cuda(CU(cuMemCreate)(&handle, room + 2 * MIB, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
    ck_assert_cuda_ok(CU(cuMemCreate)(&handle, room, &prop, 0));
    ck_assert_cuda(CU(cuMemCreate)(&more, 2 * MIB, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
    ck_assert_cuda_ok(CU(cuMemRelease)(handle));
    ck_assert_cuda_ok(CU(cuMemCreate)(&more, 2 * MIB, &prop, 0));
    sim_box_done(&s);
}
END_TEST

START_TEST(host_memory_can_be_mapped_and_touched) {
    CUmemAllocationProp prop = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = { .type = CU_MEM_LOCATION_TYPE_HOST },
    };
    CUmemAccessDesc access[2] = { full(0),
                                  { .location = { .type = CU_MEM_LOCATION_TYPE_HOST },
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE } };
    CUmemGenericAllocationHandle handle;
    uint64_t empty;
    CUdeviceptr va;
    struct sim_box s;
    char seen = 0;

    cuda_library_start(&s, &two_a100);
    empty = sim_box_used(&s, 0);
    ck_assert_cuda_ok(CU(cuMemAddressReserve)(&va, 2 * MIB, 0, 0, 0));
    ck_assert_cuda_ok(CU(cuMemCreate)(&handle, 2 * MIB, &prop, 0));
    ck_assert_uint_eq(sim_box_used(&s, 0), empty);
    ck_assert_cuda_ok(CU(cuMemMap)(va, 2 * MIB, 0, handle, 0));
    ck_assert_cuda_ok(CU(cuMemSetAccess)(va, 2 * MIB, access, 2));
    ((char *)(uintptr_t)va)[9] = 'q';
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(&seen, va + 9, 1));
    ck_assert_int_eq(seen, 'q');
    ck_assert_cuda_ok(CU(cuMemUnmap)(va, 2 * MIB));
    ck_assert_cuda_ok(CU(cuMemRelease)(handle));
    sim_box_done(&s);
}
END_TEST

static int import_and_write(struct sim_box *s, void *argument) {
    struct cuda_library_pair *pair = argument;
    CUmemGenericAllocationHandle handle;
    CUmemAccessDesc access = full(0);
    CUmemAllocationProp prop;
    CUdeviceptr va;
    char text[16];
    int fd;

    cuda_library_use(0);
    fd = cuda_library_receive_fd(pair->to_child[0]);
    ck_assert_cuda_ok(CU(cuMemImportFromShareableHandle)(&handle, (void *)(intptr_t)fd,
                                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    ck_assert_cuda_ok(CU(cuMemGetAllocationPropertiesFromHandle)(&prop, handle));
    ck_assert_int_eq(prop.location.id, 0);
    ck_assert_cuda_ok(CU(cuMemAddressReserve)(&va, 4 * MIB, 0, 0, 0));
    ck_assert_cuda_ok(CU(cuMemMap)(va, 4 * MIB, 0, handle, 0));
    ck_assert_cuda_ok(CU(cuMemSetAccess)(va, 4 * MIB, &access, 1));
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(text, va + 3 * MIB, 16));
    ck_assert_str_eq(text, "from the parent");
    ck_assert_cuda_ok(CU(cuMemcpyHtoD_v2)(va, "from the child!", 16));
    cuda_library_send(pair->to_parent[1], "", 1);
    cuda_library_receive(pair->to_child[0], text, 1);
    /* The exporter has let go meanwhile: the bytes are ours now. */
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(text, va, 16));
    ck_assert_str_eq(text, "from the child!");
    cuda_library_send(pair->to_parent[1], "", 1);
    cuda_library_receive(pair->to_child[0], text, 1);
    return 0;
}

START_TEST(a_handle_goes_to_another_process_and_is_charged_once) {
    CUmemAllocationProp prop = on_device(0, true);
    CUmemGenericAllocationHandle handle, twice;
    CUmemAccessDesc access = full(0);
    struct cuda_library_pair pair;
    uint64_t context;
    CUdeviceptr va;
    struct sim_box s;
    char text[16];
    pid_t pid;
    int fd;

    sim_box_init(&s, &two_a100);
    context = box_model(s.box, 0)->context_bytes;
    cuda_library_pair_init(&pair);
    pid = sim_box_fork(import_and_write, &s, &pair);
    cuda_library_use(0);
    ck_assert_cuda_ok(CU(cuMemCreate)(&handle, 4 * MIB, &prop, 0));
    ck_assert_cuda_ok(CU(cuMemAddressReserve)(&va, 4 * MIB, 0, 0, 0));
    ck_assert_cuda_ok(CU(cuMemMap)(va, 4 * MIB, 0, handle, 0));
    ck_assert_cuda_ok(CU(cuMemSetAccess)(va, 4 * MIB, &access, 1));
    ck_assert_cuda_ok(CU(cuMemcpyHtoD_v2)(va + 3 * MIB, "from the parent", 16));
    ck_assert_cuda_ok(
        CU(cuMemExportToShareableHandle)(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    /* The exporter itself may import it as well. */
    ck_assert_cuda_ok(CU(cuMemImportFromShareableHandle)(&twice, (void *)(intptr_t)fd,
                                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    ck_assert_cuda_ok(CU(cuMemRelease)(twice));
    cuda_library_send_fd(pair.to_child[1], fd);
    close(fd);
    cuda_library_receive(pair.to_parent[0], text, 1);
    ck_assert_uint_eq(sim_box_used(&s, 0), 2 * context + 4 * MIB);
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(text, va, 16));
    ck_assert_str_eq(text, "from the child!");
    ck_assert_cuda_ok(CU(cuMemUnmap)(va, 4 * MIB));
    ck_assert_cuda_ok(CU(cuMemRelease)(handle));
    ck_assert_uint_eq(sim_box_used(&s, 0), 2 * context + 4 * MIB);
    cuda_library_send(pair.to_child[1], "", 1);
    cuda_library_receive(pair.to_parent[0], text, 1);
    cuda_library_send(pair.to_child[1], "", 1);
    sim_box_expect_success(pid);
    ck_assert_uint_eq(sim_box_used(&s, 0), context);
    sim_box_done(&s);
}
END_TEST

START_TEST(foreign_descriptors_are_not_memory) {
    CUmemAllocationProp prop = on_device(0, false);
    CUmemGenericAllocationHandle handle;
    struct sim_box s;
    int fds[2], fd;

    cuda_library_start(&s, &two_a100);
    ck_assert_int_eq(pipe(fds), 0);
    ck_assert_cuda(CU(cuMemImportFromShareableHandle)(&handle, (void *)(intptr_t)fds[0],
                                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                   CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuMemImportFromShareableHandle)(&handle, (void *)(intptr_t)9999,
                                                      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                   CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda_ok(CU(cuMemCreate)(&handle, 2 * MIB, &prop, 0));
    ck_assert_cuda(
        CU(cuMemExportToShareableHandle)(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
        CUDA_ERROR_INVALID_VALUE);
    sim_box_done(&s);
}
END_TEST

SUITE("cuda-vmm", memory_lives_while_it_is_named_or_mapped,
      neighbouring_mappings_are_one_piece_of_memory, one_handle_at_two_addresses_is_the_same_memory,
      wrong_access_is_refused, capacity_holds_for_handles_too,
      host_memory_can_be_mapped_and_touched, a_handle_goes_to_another_process_and_is_charged_once,
      foreign_descriptors_are_not_memory)
