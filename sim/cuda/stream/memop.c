/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memop: a stream that waits for a value in memory, or writes one. A change by
 * another stream, a kernel or the host is noticed sooner or later: the condition is checked again
 * and again while the stream waits, without holding up anything else.
 */
#include <stdlib.h>

#include "base/cleanup.h"
#include "sim/cuda/memory/memory.h"
#include "sim/cuda/stream/submit.h"

enum {
    MAX_OPS = 256, /* of a batch */
};

struct memop {
    bool wait;
    bool wide; /* 64 bits */
    void *at;
    uint64_t value;
    unsigned flags;
};

static bool memop_holds(void *argument) {
    const struct memop *op = argument;
    const uint64_t now = op->wide ? __atomic_load_n((uint64_t *)op->at, __ATOMIC_ACQUIRE)
                                  : __atomic_load_n((uint32_t *)op->at, __ATOMIC_ACQUIRE);
    const uint64_t mask = op->wide ? UINT64_MAX : UINT32_MAX;

    switch (op->flags & 3) {
    case CU_STREAM_WAIT_VALUE_GEQ: /* cyclic */
        return op->wide ? (int64_t)(now - op->value) >= 0
                        : (int32_t)(uint32_t)(now - op->value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return now == op->value;
    case CU_STREAM_WAIT_VALUE_AND:
        return now & op->value;
    default:
        return ~(now | op->value) & mask;
    }
}

static uint64_t memop_run(void *argument) {
    const struct memop *op = argument;

    if (op->wide)
        __atomic_store_n((uint64_t *)op->at, op->value, __ATOMIC_RELEASE);
    else
        __atomic_store_n((uint32_t *)op->at, (uint32_t)op->value, __ATOMIC_RELEASE);
    return 0;
}

/* Check an operation, and say where it works. */
static CUresult memop_init(struct memop *op, bool wait, bool wide, CUdeviceptr address,
                           uint64_t value, unsigned flags) {
    const unsigned known =
        wait ? 3u | CU_STREAM_WAIT_VALUE_FLUSH : CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER;

    if (flags & ~known || address % (wide ? 8 : 4))
        return CUDA_ERROR_INVALID_VALUE;
    if (wait && flags & CU_STREAM_WAIT_VALUE_FLUSH)
        return CUDA_ERROR_NOT_SUPPORTED;
    *op = (struct memop){ .wait = wait,
                          .wide = wide,
                          .at = memory_bytes(address, wide ? 8 : 4,
                                             wait ? MEMORY_READ : MEMORY_WRITE, NULL),
                          .value = wide ? value : (uint32_t)value,
                          .flags = flags };
    return op->at ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult memop_submit(const struct memop *wanted, CUstream stream) {
    struct memop *op = malloc(sizeof(*op));
    CUresult r;

    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *op = *wanted;
    r = stream_submit(stream,
                      &(struct stream_order){
                          .type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
                          .run = op->wait ? NULL : memop_run,
                          .poll = op->wait ? memop_holds : NULL,
                          .argument = op,
                          .release = free,
                      },
                      NULL);
    if (r != CUDA_SUCCESS)
        free(op);
    return r;
}

static CUresult single(CUstream stream, bool wait, bool wide, CUdeviceptr address, uint64_t value,
                       unsigned flags) {
    struct memop op;

    TRY(stream_find(stream, NULL, NULL));
    TRY(memop_init(&op, wait, wide, address, value, flags));
    return memop_submit(&op, stream);
}

/* Both versions of a call; they differ in what devices they ask for. */
#define MEMOP(name, wait, wide, type)                                                              \
    CUresult name##_v2(CUstream stream, CUdeviceptr addr, type value, unsigned int flags) {        \
        ENTER(context_gpu());                                                                      \
        return single(stream, wait, wide, addr, value, flags);                                     \
    }                                                                                              \
    PTSZ(name##_v2, (CUstream s, CUdeviceptr p, type value, unsigned flags), stream_own(s), p,     \
         value, flags)                                                                             \
    CUresult name(CUstream stream, CUdeviceptr addr, type value, unsigned int flags) {             \
        return name##_v2(stream, addr, value, flags);                                              \
    }                                                                                              \
    PTSZ(name, (CUstream s, CUdeviceptr p, type value, unsigned flags), stream_own(s), p, value,   \
         flags)
MEMOP(cuStreamWaitValue32, true, false, cuuint32_t)
MEMOP(cuStreamWaitValue64, true, true, cuuint64_t)
MEMOP(cuStreamWriteValue32, false, false, cuuint32_t)
MEMOP(cuStreamWriteValue64, false, true, cuuint64_t)

static CUresult memop_of(const CUstreamBatchMemOpParams *params, struct memop *op, bool *ret_none) {
    *ret_none = false;
    switch (params->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
        return memop_init(op, true, false, params->waitValue.address, params->waitValue.value,
                          params->waitValue.flags);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
        return memop_init(op, true, true, params->waitValue.address, params->waitValue.value64,
                          params->waitValue.flags);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
        return memop_init(op, false, false, params->writeValue.address, params->writeValue.value,
                          params->writeValue.flags);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
        return memop_init(op, false, true, params->writeValue.address, params->writeValue.value64,
                          params->writeValue.flags);
    case CU_STREAM_MEM_OP_BARRIER: /* what a stream does is seen in order anyway */
        *ret_none = true;
        return CUDA_SUCCESS;
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
                               CUstreamBatchMemOpParams *paramArray, unsigned int flags) {
    struct memop op;
    bool none;

    ENTER(context_gpu());
    TRY(stream_find(stream, NULL, NULL));
    if (count > MAX_OPS || (count && !paramArray) || flags)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++)
        TRY(memop_of(&paramArray[i], &op, &none));
    for (unsigned i = 0; i < count; i++) {
        TRY(memop_of(&paramArray[i], &op, &none));
        if (!none)
            TRY(memop_submit(&op, stream));
    }
    return CUDA_SUCCESS;
}
PTSZ(cuStreamBatchMemOp_v2,
     (CUstream s, unsigned n, CUstreamBatchMemOpParams *params, unsigned flags), stream_own(s), n,
     params, flags)

CUresult cuStreamBatchMemOp(CUstream stream, unsigned int count,
                            CUstreamBatchMemOpParams *paramArray, unsigned int flags) {
    return cuStreamBatchMemOp_v2(stream, count, paramArray, flags);
}
PTSZ(cuStreamBatchMemOp, (CUstream s, unsigned n, CUstreamBatchMemOpParams *params, unsigned flags),
     stream_own(s), n, params, flags)
