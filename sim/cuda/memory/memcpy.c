/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memcpy: every copy of the driver API, as a struct copy.
 */
#include "sim/cuda/memory/array.h"
#include "sim/cuda/core/context.h"
#include "sim/cuda/memory/copy.h"
#include "sim/cuda/stream/submit.h"

/* NAME and NAME_ptds: a copy that is over when it returns. */
#define SYNC(name, params, ...)                                                                    \
    CUresult name params {                                                                         \
        ENTER(context_gpu());                                                                      \
        return copy_submit(&(struct copy)__VA_ARGS__, CU_STREAM_LEGACY, true);                     \
    }                                                                                              \
    CUresult name##_ptds params {                                                                  \
        ENTER(context_gpu());                                                                      \
        return copy_submit(&(struct copy)__VA_ARGS__, CU_STREAM_PER_THREAD, true);                 \
    }
/* NAME and NAME_ptsz: a copy in the order of `stream`. */
#define ASYNC(name, params, ...)                                                                   \
    CUresult name params {                                                                         \
        ENTER(context_gpu());                                                                      \
        return copy_submit(&(struct copy)__VA_ARGS__, stream, false);                              \
    }                                                                                              \
    CUresult name##_ptsz params {                                                                  \
        ENTER(context_gpu());                                                                      \
        return copy_submit(&(struct copy)__VA_ARGS__, stream_own(stream), false);                  \
    }

#define ROW(to_, from_, bytes)                                                                     \
    { .to = to_, .from = from_, .width = bytes, .height = 1, .depth = 1 }
#define HOST(p)                                                                                    \
    { .kind = COPY_HOST, .address = (uintptr_t)(p) }
#define DEVICE(p)                                                                                  \
    { .kind = COPY_DEVICE, .address = (p) }
#define UNIFIED(p)                                                                                 \
    { .kind = COPY_UNIFIED, .address = (p) }
#define ARRAY(a, offset)                                                                           \
    { .kind = COPY_ARRAY, .array = (a), .x = (offset) }

SYNC(cuMemcpy, (CUdeviceptr to, CUdeviceptr from, size_t n), ROW(UNIFIED(to), UNIFIED(from), n))
SYNC(cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t n), ROW(DEVICE(to), HOST(from), n))
SYNC(cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t n), ROW(HOST(to), DEVICE(from), n))
SYNC(cuMemcpyDtoD_v2, (CUdeviceptr to, CUdeviceptr from, size_t n),
     ROW(DEVICE(to), DEVICE(from), n))
SYNC(cuMemcpyDtoA_v2, (CUarray to, size_t at, CUdeviceptr from, size_t n),
     ROW(ARRAY(to, at), DEVICE(from), n))
SYNC(cuMemcpyAtoD_v2, (CUdeviceptr to, CUarray from, size_t at, size_t n),
     ROW(DEVICE(to), ARRAY(from, at), n))
SYNC(cuMemcpyHtoA_v2, (CUarray to, size_t at, const void *from, size_t n),
     ROW(ARRAY(to, at), HOST(from), n))
SYNC(cuMemcpyAtoH_v2, (void *to, CUarray from, size_t at, size_t n),
     ROW(HOST(to), ARRAY(from, at), n))
SYNC(cuMemcpyAtoA_v2, (CUarray to, size_t to_at, CUarray from, size_t from_at, size_t n),
     ROW(ARRAY(to, to_at), ARRAY(from, from_at), n))

ASYNC(cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t n, CUstream stream),
      ROW(UNIFIED(to), UNIFIED(from), n))
ASYNC(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t n, CUstream stream),
      ROW(DEVICE(to), HOST(from), n))
ASYNC(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t n, CUstream stream),
      ROW(HOST(to), DEVICE(from), n))
ASYNC(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t n, CUstream stream),
      ROW(DEVICE(to), DEVICE(from), n))
ASYNC(cuMemcpyHtoAAsync_v2, (CUarray to, size_t at, const void *from, size_t n, CUstream stream),
      ROW(ARRAY(to, at), HOST(from), n))
ASYNC(cuMemcpyAtoHAsync_v2, (void *to, CUarray from, size_t at, size_t n, CUstream stream),
      ROW(HOST(to), ARRAY(from, at), n))

/* Between contexts: both must be there. */
static CUresult peer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                     size_t n, CUstream stream, bool blocking) {
    struct copy copy = ROW(DEVICE(to), DEVICE(from), n);

    if (!context_get(to_context) || !context_get(from_context))
        return CUDA_ERROR_INVALID_CONTEXT;
    TRY(context_check(context_get(to_context)));
    TRY(context_check(context_get(from_context)));
    /* The copy is ordered against all other work of both contexts: only waiting does that. */
    if (blocking) {
        TRY(stream_wait_context(context_get(to_context)));
        TRY(stream_wait_context(context_get(from_context)));
        TRY(copy_submit(&copy, stream, true));
        return stream_wait(stream);
    }
    return copy_submit(&copy, stream, false);
}

#define PEER(name, stream_)                                                                        \
    CUresult name(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,  \
                  size_t n) {                                                                      \
        ENTER(context_gpu());                                                                      \
        return peer(to, to_context, from, from_context, n, stream_, true);                         \
    }
PEER(cuMemcpyPeer, CU_STREAM_LEGACY)
PEER(cuMemcpyPeer_ptds, CU_STREAM_PER_THREAD)

CUresult cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                           CUcontext srcContext, size_t ByteCount, CUstream hStream) {
    ENTER(context_gpu());
    return peer(dstDevice, dstContext, srcDevice, srcContext, ByteCount, hStream, false);
}
PTSZ(cuMemcpyPeerAsync,
     (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t n,
      CUstream s),
     to, to_context, from, from_context, n, stream_own(s))

/* One end of a 2D or 3D copy, from the fields that begin with src or dst. */
static CUresult end_of(CUmemorytype type, const void *host, CUdeviceptr device, CUarray array,
                       struct copy_end *end) {
    switch (type) {
    case CU_MEMORYTYPE_HOST:
        end->kind = COPY_HOST;
        end->address = (uintptr_t)host;
        return CUDA_SUCCESS;
    case CU_MEMORYTYPE_DEVICE:
        end->kind = COPY_DEVICE;
        end->address = device;
        return CUDA_SUCCESS;
    case CU_MEMORYTYPE_UNIFIED:
        end->kind = COPY_UNIFIED;
        end->address = device;
        return CUDA_SUCCESS;
    case CU_MEMORYTYPE_ARRAY:
        end->kind = COPY_ARRAY;
        end->array = array;
        end->pitch = end->height = 0;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult copy_2d(const CUDA_MEMCPY2D *p, CUstream stream, bool blocking) {
    struct copy copy;

    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    copy = (struct copy){
        .to = { .x = p->dstXInBytes, .y = p->dstY, .pitch = p->dstPitch },
        .from = { .x = p->srcXInBytes, .y = p->srcY, .pitch = p->srcPitch },
        .width = p->WidthInBytes,
        .height = p->Height,
        .depth = 1,
    };
    TRY(end_of(p->dstMemoryType, p->dstHost, p->dstDevice, p->dstArray, &copy.to));
    TRY(end_of(p->srcMemoryType, p->srcHost, p->srcDevice, p->srcArray, &copy.from));
    return copy_submit(&copy, stream, blocking);
}

/* The members that CUDA_MEMCPY3D and CUDA_MEMCPY3D_PEER have in common. */
#define FILL_3D(copy, p)                                                                           \
    do {                                                                                           \
        (copy) = (struct copy){                                                                    \
            .to = { .x = (p)->dstXInBytes,                                                         \
                    .y = (p)->dstY,                                                                \
                    .z = (p)->dstZ,                                                                \
                    .pitch = (p)->dstPitch,                                                        \
                    .height = (p)->dstHeight },                                                    \
            .from = { .x = (p)->srcXInBytes,                                                       \
                      .y = (p)->srcY,                                                              \
                      .z = (p)->srcZ,                                                              \
                      .pitch = (p)->srcPitch,                                                      \
                      .height = (p)->srcHeight },                                                  \
            .width = (p)->WidthInBytes,                                                            \
            .height = (p)->Height,                                                                 \
            .depth = (p)->Depth,                                                                   \
        };                                                                                         \
        if ((p)->srcLOD || (p)->dstLOD)                                                            \
            return CUDA_ERROR_INVALID_VALUE;                                                       \
        TRY(end_of((p)->dstMemoryType, (p)->dstHost, (p)->dstDevice, (p)->dstArray, &(copy).to));  \
        TRY(end_of((p)->srcMemoryType, (p)->srcHost, (p)->srcDevice, (p)->srcArray,                \
                   &(copy).from));                                                                 \
    } while (0)

CUresult copy_of_3d(const CUDA_MEMCPY3D *params, struct copy *ret) {
    struct copy copy;

    FILL_3D(copy, params);
    *ret = copy;
    return CUDA_SUCCESS;
}

static CUmemorytype type_of(enum copy_side kind) {
    static const CUmemorytype types[] = {
        [COPY_UNIFIED] = CU_MEMORYTYPE_UNIFIED,
        [COPY_HOST] = CU_MEMORYTYPE_HOST,
        [COPY_DEVICE] = CU_MEMORYTYPE_DEVICE,
        [COPY_ARRAY] = CU_MEMORYTYPE_ARRAY,
    };

    return types[kind];
}

void copy_to_3d(const struct copy *copy, CUDA_MEMCPY3D *ret) {
    const struct copy_end *to = &copy->to, *from = &copy->from;

    *ret = (CUDA_MEMCPY3D){
        .srcXInBytes = from->x,
        .srcY = from->y,
        .srcZ = from->z,
        .srcMemoryType = type_of(from->kind),
        .srcHost = from->kind == COPY_HOST ? (const void *)(uintptr_t)from->address : NULL,
        .srcDevice = from->kind == COPY_HOST ? 0 : from->address,
        .srcArray = from->array,
        .srcPitch = from->pitch,
        .srcHeight = from->height,
        .dstXInBytes = to->x,
        .dstY = to->y,
        .dstZ = to->z,
        .dstMemoryType = type_of(to->kind),
        .dstHost = to->kind == COPY_HOST ? (void *)(uintptr_t)to->address : NULL,
        .dstDevice = to->kind == COPY_HOST ? 0 : to->address,
        .dstArray = to->array,
        .dstPitch = to->pitch,
        .dstHeight = to->height,
        .WidthInBytes = copy->width,
        .Height = copy->height,
        .Depth = copy->depth,
    };
}

static CUresult copy_3d(const CUDA_MEMCPY3D *p, CUstream stream, bool blocking) {
    struct copy copy;

    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(copy_of_3d(p, &copy));
    return copy_submit(&copy, stream, blocking);
}

static CUresult copy_3d_peer(const CUDA_MEMCPY3D_PEER *p, CUstream stream, bool blocking) {
    struct copy copy;

    if (!p)
        return CUDA_ERROR_INVALID_VALUE;
    FILL_3D(copy, p);
    if ((p->dstMemoryType != CU_MEMORYTYPE_HOST && !context_get(p->dstContext)) ||
        (p->srcMemoryType != CU_MEMORYTYPE_HOST && !context_get(p->srcContext)))
        return CUDA_ERROR_INVALID_CONTEXT;
    return copy_submit(&copy, stream, blocking);
}

/*
 * All variants of a call that takes a description: blocking or in a stream, with the legacy default
 * stream or the thread's own.
 */
#define DESCRIBED(function, type, sync, async)                                                     \
    CUresult sync(const type *p) {                                                                 \
        ENTER(context_gpu());                                                                      \
        return function(p, CU_STREAM_LEGACY, true);                                                \
    }                                                                                              \
    CUresult sync##_ptds(const type *p) {                                                          \
        ENTER(context_gpu());                                                                      \
        return function(p, CU_STREAM_PER_THREAD, true);                                            \
    }                                                                                              \
    CUresult async(const type *p, CUstream stream) {                                               \
        ENTER(context_gpu());                                                                      \
        return function(p, stream, false);                                                         \
    }                                                                                              \
    CUresult async##_ptsz(const type *p, CUstream stream) {                                        \
        ENTER(context_gpu());                                                                      \
        return function(p, stream_own(stream), false);                                             \
    }
DESCRIBED(copy_2d, CUDA_MEMCPY2D, cuMemcpy2D_v2, cuMemcpy2DAsync_v2)
DESCRIBED(copy_3d, CUDA_MEMCPY3D, cuMemcpy3D_v2, cuMemcpy3DAsync_v2)
DESCRIBED(copy_3d_peer, CUDA_MEMCPY3D_PEER, cuMemcpy3DPeer, cuMemcpy3DPeerAsync)

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D *pCopy) {
    ENTER(context_gpu());
    return copy_2d(pCopy, CU_STREAM_LEGACY, true);
}

CUresult cuMemcpy2DUnaligned_v2_ptds(const CUDA_MEMCPY2D *pCopy) {
    ENTER(context_gpu());
    return copy_2d(pCopy, CU_STREAM_PER_THREAD, true);
}

/* Batches: which copy failed is told only to callers that ask. */
static CUresult batch(CUdeviceptr *to, CUdeviceptr *from, size_t *sizes, size_t n,
                      const CUmemcpyAttributes *attributes, const size_t *starts,
                      size_t n_attributes, size_t *ret_failed, CUstream stream) {
    if (ret_failed)
        *ret_failed = SIZE_MAX;
    if (!to || !from || !sizes || !n || !attributes || !starts || !n_attributes ||
        n_attributes > n || starts[0] != 0)
        return CUDA_ERROR_INVALID_VALUE;
    /* The default streams would make every copy wait for every other. */
    if (stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < n; i++) {
        struct copy copy = ROW(UNIFIED(to[i]), UNIFIED(from[i]), sizes[i]);
        CUresult r = copy_submit(&copy, stream, false);

        if (r != CUDA_SUCCESS) {
            if (ret_failed)
                *ret_failed = i;
            return r;
        }
    }
    return CUDA_SUCCESS;
}

CUresult cuMemcpyBatchAsync(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                            CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs,
                            size_t *failIdx, CUstream hStream) {
    ENTER(context_gpu());
    return batch(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, failIdx, hStream);
}
PTSZ(cuMemcpyBatchAsync,
     (CUdeviceptr * to, CUdeviceptr *from, size_t *sizes, size_t n, CUmemcpyAttributes *attributes,
      size_t *starts, size_t n_attributes, size_t *failed, CUstream s),
     to, from, sizes, n, attributes, starts, n_attributes, failed, stream_own(s))

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
                               CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs,
                               CUstream hStream) {
    ENTER(context_gpu());
    return batch(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, NULL, hStream);
}
PTSZ(cuMemcpyBatchAsync_v2,
     (CUdeviceptr * to, CUdeviceptr *from, size_t *sizes, size_t n, CUmemcpyAttributes *attributes,
      size_t *starts, size_t n_attributes, CUstream s),
     to, from, sizes, n, attributes, starts, n_attributes, stream_own(s))

/* One end of a copy in a batch of boxes. */
static CUresult operand(const CUmemcpy3DOperand *in, struct copy_end *end) {
    switch (in->type) {
    case CU_MEMCPY_OPERAND_TYPE_POINTER:
        *end = (struct copy_end){
            .kind = COPY_UNIFIED,
            .address = in->op.ptr.ptr,
            .pitch = in->op.ptr.rowLength,
            .height = in->op.ptr.layerHeight,
        };
        return CUDA_SUCCESS;
    case CU_MEMCPY_OPERAND_TYPE_ARRAY:
        *end = (struct copy_end){
            .kind = COPY_ARRAY,
            .array = in->op.array.array,
            .x = in->op.array.offset.x,
            .y = in->op.array.offset.y,
            .z = in->op.array.offset.z,
        };
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* Extents and rows count elements where an array takes part, else bytes. */
static CUresult batch_3d_one(const CUDA_MEMCPY3D_BATCH_OP *op, CUstream stream) {
    const struct array *array = NULL;
    uint64_t element = 1;
    struct copy copy = {
        .width = op->extent.width,
        .height = op->extent.height,
        .depth = op->extent.depth,
    };

    TRY(operand(&op->src, &copy.from));
    TRY(operand(&op->dst, &copy.to));
    if (op->src.type == CU_MEMCPY_OPERAND_TYPE_ARRAY)
        array = array_get(copy.from.array);
    if (op->dst.type == CU_MEMCPY_OPERAND_TYPE_ARRAY)
        array = array_get(copy.to.array);
    if (array)
        element = array->element_bytes;
    copy.width *= element;
    copy.from.x *= element;
    copy.to.x *= element;
    copy.from.pitch *= element;
    copy.to.pitch *= element;
    return copy_submit(&copy, stream, false);
}

static CUresult batch_3d(size_t n, const CUDA_MEMCPY3D_BATCH_OP *ops, size_t *ret_failed,
                         unsigned long long flags, CUstream stream) {
    if (ret_failed)
        *ret_failed = SIZE_MAX;
    if (!n || !ops || flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < n; i++) {
        CUresult r = batch_3d_one(&ops[i], stream);

        if (r != CUDA_SUCCESS) {
            if (ret_failed)
                *ret_failed = i;
            return r;
        }
    }
    return CUDA_SUCCESS;
}

CUresult cuMemcpy3DBatchAsync(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, size_t *failIdx,
                              unsigned long long flags, CUstream hStream) {
    ENTER(context_gpu());
    return batch_3d(numOps, opList, failIdx, flags, hStream);
}
PTSZ(cuMemcpy3DBatchAsync,
     (size_t n, CUDA_MEMCPY3D_BATCH_OP *ops, size_t *failed, unsigned long long flags, CUstream s),
     n, ops, failed, flags, stream_own(s))

CUresult cuMemcpy3DBatchAsync_v2(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList,
                                 unsigned long long flags, CUstream hStream) {
    ENTER(context_gpu());
    return batch_3d(numOps, opList, NULL, flags, hStream);
}
PTSZ(cuMemcpy3DBatchAsync_v2,
     (size_t n, CUDA_MEMCPY3D_BATCH_OP *ops, unsigned long long flags, CUstream s), n, ops, flags,
     stream_own(s))
