/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/support/sim/cuda/cuda_library.h"
#include "tests/support/suite.h"

enum { N = 4096 };

static void fill(unsigned char *bytes, size_t n, unsigned seed) {
    for (size_t i = 0; i < n; i++)
        bytes[i] = (unsigned char)((i * 31 + seed) ^ (i >> 8));
}

/* Every kind of memory that an address can be. */
enum kind { PAGEABLE, PINNED, REGISTERED, MANAGED, SMALL, LARGE, OTHER_DEVICE, POOL, KINDS };

static CUdeviceptr kind_new(enum kind kind, CUcontext other) {
    CUdeviceptr p = 0;
    void *host;

    switch (kind) {
    case PAGEABLE:
        return (uintptr_t)malloc(N);
    case PINNED:
        ck_assert_cuda_ok(CU(cuMemAllocHost_v2)(&host, N));
        return (uintptr_t)host;
    case REGISTERED:
        host = malloc(N);
        ck_assert_cuda_ok(CU(cuMemHostRegister_v2)(host, N, 0));
        return (uintptr_t)host;
    case MANAGED:
        ck_assert_cuda_ok(CU(cuMemAllocManaged)(&p, N, CU_MEM_ATTACH_GLOBAL));
        return p;
    case SMALL:
        return cuda_library_alloc(N);
    case LARGE:
        return cuda_library_alloc(3 * MIB);
    case OTHER_DEVICE:
        ck_assert_cuda_ok(CU(cuCtxPushCurrent_v2)(other));
        p = cuda_library_alloc(N);
        ck_assert_cuda_ok(CU(cuCtxPopCurrent_v2)(NULL));
        return p;
    default:
        ck_assert_cuda_ok(CU(cuMemAllocAsync)(&p, N, NULL));
        return p;
    }
}

START_TEST(an_address_can_be_copied_to_any_other) {
    unsigned char data[N], seen[N];
    CUcontext other, current;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    ck_assert_cuda_ok(CU(cuCtxGetCurrent)(&current));
    ck_assert_cuda_ok(CU(cuDevicePrimaryCtxRetain)(&other, 1));
    for (enum kind from = 0; from < KINDS; from++)
        for (enum kind to = 0; to < KINDS; to++) {
            CUdeviceptr a = kind_new(from, other), b = kind_new(to, other);
            void *bytes = data;

            fill(data, N, from * 16 + to);
            ck_assert_cuda_ok(CU(cuMemcpy)(a, (uintptr_t)bytes, N));
            ck_assert_cuda_ok(CU(cuMemcpyAsync)(b, a, N, NULL));
            memset(seen, 0, N);
            bytes = seen;
            ck_assert_cuda_ok(CU(cuMemcpy_ptds)((uintptr_t)bytes, b, N));
            ck_assert_mem_eq(seen, data, N);
            if (from == PAGEABLE)
                free((void *)(uintptr_t)a);
            if (to == PAGEABLE)
                free((void *)(uintptr_t)b);
            if (from == REGISTERED) {
                ck_assert_cuda_ok(CU(cuMemHostUnregister)((void *)(uintptr_t)a));
                free((void *)(uintptr_t)a);
            }
            if (to == REGISTERED) {
                ck_assert_cuda_ok(CU(cuMemHostUnregister)((void *)(uintptr_t)b));
                free((void *)(uintptr_t)b);
            }
        }
    sim_box_done(&s);
}
END_TEST

START_TEST(directions_are_checked) {
    char host[16] = "text", seen[16];
    CUdeviceptr p, q;
    void *gone = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct sim_box s;

    cuda_library_start(&s, NULL);
    p = cuda_library_alloc(16);
    q = cuda_library_alloc(16);
    ck_assert_cuda_ok(CU(cuMemcpyHtoD_v2)(p, host, 16));
    ck_assert_cuda_ok(CU(cuMemcpyDtoD_v2)(q, p, 16));
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(seen, q, 16));
    ck_assert_str_eq(seen, "text");
    /* A host pointer is no device pointer, nor the other way round. */
    ck_assert_cuda(CU(cuMemcpyHtoD_v2)((uintptr_t)host, host, 16), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuMemcpyHtoD_v2)(p, (void *)(uintptr_t)q, 16), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuMemcpyDtoH_v2)((void *)(uintptr_t)q, p, 16), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuMemcpyDtoD_v2)(p, (uintptr_t)host, 16), CUDA_ERROR_INVALID_VALUE);
    /* What cannot be read or written is an error, not a signal. */
    ck_assert_cuda(CU(cuMemcpyHtoD_v2)(p, gone, 16), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuMemcpyDtoH_v2)(gone, p, 16), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuMemcpyDtoH_v2)(NULL, p, 16), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuMemcpy)((uintptr_t)seen, (uintptr_t)gone, 16), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuMemcpyDtoD_v2)(p, q, 17), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuMemcpyDtoD_v2)(p, q, SIZE_MAX), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda_ok(CU(cuMemcpyDtoD_v2)(p, q, 0));
    sim_box_done(&s);
}
END_TEST

/* Nothing after the bytes that were asked for, though the heap gives them in larger units. */
START_TEST(copies_and_memsets_end_where_memory_ends) {
    static const int64_t places[] = { 64, 65, 100, 164, 508, -1, -4 };
    static const uint64_t lengths[] = { 1, 4, 8, 64, 4096, UINT64_MAX - 8192, UINT64_MAX };
    CUdeviceptr before, p, after;
    char data[64], seen[64];
    struct sim_box s;

    cuda_library_start(&s, NULL);
    before = cuda_library_alloc(64);
    p = cuda_library_alloc(64);
    after = cuda_library_alloc(64);
    ck_assert_uint_eq(before + 512, p);
    ck_assert_uint_eq(p + 512, after);
    memset(data, 0x5a, sizeof(data));
    ck_assert_cuda_ok(CU(cuMemsetD8_v2)(before, 0x5a, 64));
    ck_assert_cuda_ok(CU(cuMemsetD8_v2)(after, 0x5a, 64));
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++)
        for (size_t k = 0; k < sizeof(lengths) / sizeof(*lengths); k++) {
            const CUdeviceptr at = p + (uint64_t)places[i];
            const uint64_t n = lengths[k];

            ck_assert_cuda(CU(cuMemcpyHtoD_v2)(at, seen, n), CUDA_ERROR_INVALID_VALUE);
            ck_assert_cuda(CU(cuMemcpyDtoH_v2)(seen, at, n), CUDA_ERROR_INVALID_VALUE);
            ck_assert_cuda(CU(cuMemcpyDtoD_v2)(at, p, n), CUDA_ERROR_INVALID_VALUE);
            ck_assert_cuda(CU(cuMemcpyDtoD_v2)(p, at, n), CUDA_ERROR_INVALID_VALUE);
            ck_assert_cuda(CU(cuMemsetD8_v2)(at, 1, n), CUDA_ERROR_INVALID_VALUE);
        }
    ck_assert_cuda(CU(cuMemcpyHtoD_v2)(p + 60, seen, 8), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuMemsetD8_v2)(p + 60, 1, 5), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuMemsetD32_v2)(p + 64, 1, 1), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuMemsetD2D8_v2)(p, 16, 1, 8, 5), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda_ok(CU(cuMemsetD8_v2)(p + 60, 1, 4));
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(seen, before, 64));
    ck_assert_mem_eq(seen, data, 64);
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(seen, after, 64));
    ck_assert_mem_eq(seen, data, 64);
    sim_box_done(&s);
}
END_TEST

START_TEST(memset_writes_values_of_every_size) {
    uint16_t two[8];
    uint32_t four[8];
    unsigned char rows[4 * 32], one[8];
    CUdeviceptr p;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    p = cuda_library_alloc(4 * 32);
    ck_assert_cuda_ok(CU(cuMemsetD8_v2)(p, 0xab, 128));
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(one, p, 8));
    ck_assert_uint_eq(one[7], 0xab);
    ck_assert_cuda_ok(CU(cuMemsetD16Async)(p + 2, 0x1234, 3, NULL));
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(two, p, 16));
    ck_assert_uint_eq(two[0], 0xabab);
    ck_assert_uint_eq(two[3], 0x1234);
    ck_assert_uint_eq(two[4], 0xabab);
    ck_assert_cuda_ok(CU(cuMemsetD32_v2)(p + 4, 0xdeadbeef, 2));
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(four, p, 32));
    ck_assert_uint_eq(four[2], 0xdeadbeef);
    ck_assert_uint_eq(four[3], 0xabababab);
    ck_assert_cuda(CU(cuMemsetD16_v2)(p + 1, 0, 1), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuMemsetD32_v2)(p + 2, 0, 1), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuMemsetD32_v2)(p, 0, 33), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuMemsetD32_v2)(p, 0, SIZE_MAX / 2), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuMemsetD8_v2)((uintptr_t)rows, 0, 1), CUDA_ERROR_INVALID_VALUE);

    ck_assert_cuda_ok(CU(cuMemsetD8_v2)(p, 0, 128));
    ck_assert_cuda_ok(CU(cuMemsetD2D32_v2)(p + 4, 32, 0x01010101, 5, 4));
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(rows, p, 128));
    for (unsigned y = 0; y < 4; y++)
        for (unsigned x = 0; x < 32; x++)
            ck_assert_uint_eq(rows[y * 32 + x], x >= 4 && x < 24);
    ck_assert_cuda(CU(cuMemsetD2D8_v2)(p, 8, 0, 9, 2), CUDA_ERROR_INVALID_VALUE);
    sim_box_done(&s);
}
END_TEST

START_TEST(a_box_of_rows_is_copied_with_its_pitches) {
    enum { W = 40, H = 9, PITCH = 64 };
    unsigned char from[H * PITCH], to[H * 100];
    CUDA_MEMCPY2D copy = {
        .srcXInBytes = 3,
        .srcY = 1,
        .srcMemoryType = CU_MEMORYTYPE_HOST,
        .srcHost = from,
        .srcPitch = PITCH,
        .dstXInBytes = 8,
        .dstY = 2,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .WidthInBytes = W,
        .Height = 5,
    };
    CUdeviceptr p;
    size_t pitch;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    fill(from, sizeof(from), 5);
    ck_assert_cuda_ok(CU(cuMemAllocPitch_v2)(&p, &pitch, W + 8, H, 4));
    ck_assert_cuda_ok(CU(cuMemsetD8_v2)(p, 0, pitch * H));
    copy.dstDevice = p;
    copy.dstPitch = pitch;
    ck_assert_cuda_ok(CU(cuMemcpy2D_v2)(&copy));
    memset(to, 0xee, sizeof(to));
    copy = (CUDA_MEMCPY2D){
        .srcMemoryType = CU_MEMORYTYPE_UNIFIED,
        .srcDevice = p,
        .srcPitch = pitch,
        .srcXInBytes = 8,
        .srcY = 2,
        .dstMemoryType = CU_MEMORYTYPE_HOST,
        .dstHost = to,
        .dstPitch = 100,
        .WidthInBytes = W,
        .Height = 5,
    };
    ck_assert_cuda_ok(CU(cuMemcpy2DAsync_v2)(&copy, NULL));
    for (unsigned y = 0; y < 5; y++) {
        ck_assert_mem_eq(to + y * 100, from + (y + 1) * PITCH + 3, W);
        if (y < 4)
            ck_assert_uint_eq(to[y * 100 + W], 0xee);
    }
    copy.Height = H - 1; /* past the end of the source */
    ck_assert_cuda(CU(cuMemcpy2D_v2)(&copy), CUDA_ERROR_INVALID_VALUE);
    copy.Height = 2;
    copy.dstPitch = W - 1;
    ck_assert_cuda(CU(cuMemcpy2DUnaligned_v2)(&copy), CUDA_ERROR_INVALID_VALUE);
    copy.srcMemoryType = (CUmemorytype)77;
    ck_assert_cuda(CU(cuMemcpy2D_v2)(&copy), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuMemcpy2D_v2)(NULL), CUDA_ERROR_INVALID_VALUE);
    sim_box_done(&s);
}
END_TEST

START_TEST(slices_are_copied_in_three_dimensions) {
    enum { W = 24, H = 5, D = 4 };
    unsigned char from[W * H * D], to[W * H * D];
    CUDA_MEMCPY3D copy = {
        .srcMemoryType = CU_MEMORYTYPE_HOST,
        .srcHost = from,
        .srcPitch = W,
        .srcHeight = H,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstPitch = 32,
        .dstHeight = 7,
        .WidthInBytes = W,
        .Height = H,
        .Depth = D,
    };
    CUDA_MEMCPY3D_PEER peer;
    CUcontext context;
    CUdeviceptr p, q;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    ck_assert_cuda_ok(CU(cuCtxGetCurrent)(&context));
    fill(from, sizeof(from), 9);
    p = cuda_library_alloc(32 * 7 * D);
    q = cuda_library_alloc(W * H * D);
    copy.dstDevice = p;
    ck_assert_cuda_ok(CU(cuMemcpy3D_v2)(&copy));
    peer = (CUDA_MEMCPY3D_PEER){
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = p,
        .srcContext = context,
        .srcPitch = 32,
        .srcHeight = 7,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = q,
        .dstContext = context,
        .dstPitch = W,
        .dstHeight = H,
        .WidthInBytes = W,
        .Height = H,
        .Depth = D,
    };
    ck_assert_cuda_ok(CU(cuMemcpy3DPeer)(&peer));
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(to, q, sizeof(to)));
    ck_assert_mem_eq(to, from, sizeof(to));
    peer.srcContext = (CUcontext)0x10;
    ck_assert_cuda(CU(cuMemcpy3DPeer)(&peer), CUDA_ERROR_INVALID_CONTEXT);
    copy.Depth = D + 1;
    ck_assert_cuda(CU(cuMemcpy3D_v2)(&copy), CUDA_ERROR_INVALID_VALUE);
    copy.Depth = D;
    copy.dstLOD = 1;
    ck_assert_cuda(CU(cuMemcpy3D_v2)(&copy), CUDA_ERROR_INVALID_VALUE);
    sim_box_done(&s);
}
END_TEST

START_TEST(peers_copy_to_each_other) {
    CUcontext a, b;
    CUdeviceptr p, q;
    char seen[8];
    struct sim_box s;

    cuda_library_start(&s, NULL);
    ck_assert_cuda_ok(CU(cuCtxGetCurrent)(&a));
    p = cuda_library_alloc(8);
    ck_assert_cuda_ok(CU(cuCtxCreate_v2)(&b, 0, 1));
    q = cuda_library_alloc(8);
    ck_assert_cuda_ok(CU(cuMemcpyHtoD_v2)(q, "peers!!", 8));
    ck_assert_cuda_ok(CU(cuMemcpyPeer)(p, a, q, b, 8));
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(seen, p, 8));
    ck_assert_str_eq(seen, "peers!!");
    ck_assert_cuda(CU(cuMemcpyPeer)(p, (CUcontext)8, q, b, 8), CUDA_ERROR_INVALID_CONTEXT);
    sim_box_done(&s);
}
END_TEST

START_TEST(arrays_hold_rows_and_slices) {
    enum { W = 16, H = 6, D = 3 }; /* elements of float2 */
    CUDA_ARRAY3D_DESCRIPTOR desc = { .Width = W,
                                     .Height = H,
                                     .Depth = D,
                                     .Format = CU_AD_FORMAT_FLOAT,
                                     .NumChannels = 2 },
                            got;
    unsigned char from[W * 8 * H * D], to[W * 8 * H * D];
    CUDA_MEMCPY3D copy = {
        .srcMemoryType = CU_MEMORYTYPE_HOST,
        .srcHost = from,
        .dstMemoryType = CU_MEMORYTYPE_ARRAY,
        .WidthInBytes = W * 8,
        .Height = H,
        .Depth = D,
    };
    CUarray array, line;
    uint64_t empty;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    empty = sim_box_used(&s, 0);
    fill(from, sizeof(from), 3);
    ck_assert_cuda_ok(CU(cuArray3DCreate_v2)(&array, &desc));
    ck_assert_uint_eq(sim_box_used(&s, 0), empty + 2 * MIB);
    ck_assert_cuda_ok(CU(cuArray3DGetDescriptor_v2)(&got, array));
    ck_assert_mem_eq(&got, &desc, sizeof(got));
    copy.dstArray = array;
    ck_assert_cuda_ok(CU(cuMemcpy3D_v2)(&copy));
    copy = (CUDA_MEMCPY3D){
        .srcMemoryType = CU_MEMORYTYPE_ARRAY,
        .srcArray = array,
        .srcXInBytes = 8,
        .srcY = 1,
        .srcZ = 2,
        .dstMemoryType = CU_MEMORYTYPE_HOST,
        .dstHost = to,
        .WidthInBytes = 24,
        .Height = 2,
        .Depth = 1,
    };
    ck_assert_cuda_ok(CU(cuMemcpy3D_v2)(&copy));
    for (unsigned y = 0; y < 2; y++)
        ck_assert_mem_eq(to + y * 24, from + 2 * W * 8 * H + (y + 1) * W * 8 + 8, 24);
    copy.srcXInBytes = 4; /* half an element */
    ck_assert_cuda(CU(cuMemcpy3D_v2)(&copy), CUDA_ERROR_INVALID_VALUE);
    copy.srcXInBytes = 0;
    copy.srcZ = 3;
    ck_assert_cuda(CU(cuMemcpy3D_v2)(&copy), CUDA_ERROR_INVALID_VALUE);

    desc = (CUDA_ARRAY3D_DESCRIPTOR){ .Width = 64,
                                      .Format = CU_AD_FORMAT_UNSIGNED_INT8,
                                      .NumChannels = 1 };
    ck_assert_cuda_ok(CU(cuArray3DCreate_v2)(&line, &desc));
    ck_assert_cuda_ok(CU(cuMemcpyHtoA_v2)(line, 10, from, 20));
    ck_assert_cuda_ok(CU(cuMemcpyAtoA_v2)(line, 40, line, 10, 20));
    ck_assert_cuda_ok(CU(cuMemcpyAtoH_v2)(to, line, 40, 20));
    ck_assert_mem_eq(to, from, 20);
    ck_assert_cuda(CU(cuMemcpyAtoH_v2)(to, line, 50, 20), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda_ok(CU(cuArrayDestroy)(line));
    ck_assert_cuda(CU(cuArrayDestroy)(line), CUDA_ERROR_INVALID_HANDLE);
    ck_assert_cuda(CU(cuMemcpyAtoH_v2)(to, line, 0, 1), CUDA_ERROR_INVALID_HANDLE);
    ck_assert_cuda_ok(CU(cuArrayDestroy)(array));
    ck_assert_uint_eq(sim_box_used(&s, 0), empty);
    desc.NumChannels = 3;
    ck_assert_cuda(CU(cuArray3DCreate_v2)(&line, &desc), CUDA_ERROR_INVALID_VALUE);
    desc.NumChannels = 1;
    desc.Width = 0;
    ck_assert_cuda(CU(cuArray3DCreate_v2)(&line, &desc), CUDA_ERROR_INVALID_VALUE);
    sim_box_done(&s);
}
END_TEST

START_TEST(a_mipmapped_array_has_levels) {
    CUDA_ARRAY3D_DESCRIPTOR desc = { .Width = 64,
                                     .Height = 16,
                                     .Format = CU_AD_FORMAT_UNSIGNED_INT8,
                                     .NumChannels = 4 },
                            got;
    CUmipmappedArray mipmap;
    CUarray level;
    uint64_t empty;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    empty = sim_box_used(&s, 0);
    ck_assert_cuda_ok(CU(cuMipmappedArrayCreate)(&mipmap, &desc, 99)); /* 64 … 1 */
    for (unsigned i = 0; i < 7; i++) {
        ck_assert_cuda_ok(CU(cuMipmappedArrayGetLevel)(&level, mipmap, i));
        ck_assert_cuda_ok(CU(cuArray3DGetDescriptor_v2)(&got, level));
        ck_assert_uint_eq(got.Width, 64u >> i);
        ck_assert_uint_eq(got.Height, 16u >> i ? 16u >> i : 1);
    }
    ck_assert_cuda(CU(cuMipmappedArrayGetLevel)(&level, mipmap, 7), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuArrayDestroy)(level), CUDA_ERROR_INVALID_HANDLE);
    ck_assert_cuda_ok(CU(cuMipmappedArrayDestroy)(mipmap));
    ck_assert_uint_eq(sim_box_used(&s, 0), empty);
    sim_box_done(&s);
}
END_TEST

START_TEST(a_batch_says_which_copy_failed) {
    CUmemcpyAttributes attributes = { .srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM };
    char host[2][8] = { "first", "second" };
    CUdeviceptr to[3], from[3] = { (uintptr_t)host[0], (uintptr_t)host[1], 16 };
    size_t sizes[3] = { 8, 8, 8 }, start = 0, failed;
    CUstream stream;
    char seen[8];
    struct sim_box s;

    cuda_library_start(&s, NULL);
    for (int i = 0; i < 3; i++)
        to[i] = cuda_library_alloc(8);
    ck_assert_cuda_ok(CU(cuStreamCreate)(&stream, 0));
    ck_assert_cuda_ok(
        CU(cuMemcpyBatchAsync)(to, from, sizes, 2, &attributes, &start, 1, &failed, stream));
    ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(seen, to[1], 8));
    ck_assert_str_eq(seen, "second");
    ck_assert_cuda(
        CU(cuMemcpyBatchAsync)(to, from, sizes, 3, &attributes, &start, 1, &failed, stream),
        CUDA_ERROR_INVALID_VALUE);
    ck_assert_uint_eq(failed, 2);
    sim_box_done(&s);
}
END_TEST

START_TEST(a_batch_of_boxes_counts_elements_of_arrays) {
    enum { W = 8, H = 4 }; /* elements of four bytes */
    CUDA_ARRAY3D_DESCRIPTOR desc = {
        .Width = W, .Height = H, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1
    };
    unsigned char from[W * 4 * H], to[W * 4 * H];
    CUDA_MEMCPY3D_BATCH_OP ops[2] = { 0 };
    CUstream stream;
    CUarray array;
    size_t failed;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    fill(from, sizeof(from), 1);
    memset(to, 0, sizeof(to));
    ck_assert_cuda_ok(CU(cuArray3DCreate_v2)(&array, &desc));
    ck_assert_cuda_ok(CU(cuStreamCreate)(&stream, 0));
    ops[0].src.type = ops[1].dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    ops[0].dst.type = ops[1].src.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
    ops[0].src.op.ptr.ptr = (uintptr_t)from;
    ops[1].dst.op.ptr.ptr = (uintptr_t)to;
    ops[0].dst.op.array.array = ops[1].src.op.array.array = array;
    ops[0].extent = (CUextent3D){ W, H, 1 };
    ops[1].extent = (CUextent3D){ W - 2, H - 1, 1 };
    ops[1].src.op.array.offset = (CUoffset3D){ 2, 1, 0 };
    ck_assert_cuda_ok(CU(cuMemcpy3DBatchAsync)(2, ops, &failed, 0, stream));
    for (unsigned y = 0; y < H - 1; y++)
        ck_assert_mem_eq(to + y * (W - 2) * 4, from + (y + 1) * W * 4 + 8, (W - 2) * 4);
    ops[1].extent.width = W;
    ck_assert_cuda(CU(cuMemcpy3DBatchAsync)(2, ops, &failed, 0, stream), CUDA_ERROR_INVALID_VALUE);
    ck_assert_uint_eq(failed, 1);
    sim_box_done(&s);
}
END_TEST

SUITE("cuda-copy", an_address_can_be_copied_to_any_other, directions_are_checked,
      copies_and_memsets_end_where_memory_ends, memset_writes_values_of_every_size,
      a_box_of_rows_is_copied_with_its_pitches, slices_are_copied_in_three_dimensions,
      peers_copy_to_each_other, arrays_hold_rows_and_slices, a_mipmapped_array_has_levels,
      a_batch_says_which_copy_failed, a_batch_of_boxes_counts_elements_of_arrays)
