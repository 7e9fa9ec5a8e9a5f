/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/cuda_stream.h"

#include <string.h>

#include "base/cleanup.h"
#include "sim/cuda_memory.h"
#include "sim/cuda_pool.h"

static struct slab streams = SLAB(struct stream);
static uint64_t last_id;

CUresult stream_find(CUstream handle, struct stream **ret, struct context **ret_context) {
    struct stream *stream = (struct stream *)handle;

    if (ret)
        *ret = NULL;
    if (handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD)
        return context_current(ret_context);
    if (!slab_live(&streams, stream))
        return CUDA_ERROR_INVALID_HANDLE;
    if (ret)
        *ret = stream;
    *ret_context = stream->context;
    return context_check(stream->context);
}

CUresult stream_wait_context(struct context *context) {
    DRIVER_LOCKED();
    pools_settle(context->device);
    return CUDA_SUCCESS;
}

void streams_end(struct context *context) {
    for (struct stream *stream = slab_next(&streams, NULL), *next; stream; stream = next) {
        next = slab_next(&streams, stream);
        if (stream->context == context)
            slab_free(&streams, stream);
    }
}

CUresult cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority) {
    struct context *context;
    struct stream *stream;

    ENTER_CONTEXT(context);
    if (!phStream || flags > CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    DRIVER_LOCKED();
    stream = slab_new(&streams);
    if (!stream)
        return CUDA_ERROR_OUT_OF_MEMORY;
    stream->context = context;
    stream->flags = flags;
    priority = MIN(priority, (int)STREAM_LEAST_PRIORITY);
    stream->priority = MAX(priority, (int)STREAM_GREATEST_PRIORITY);
    stream->id = ++last_id;
    stream->policy.syncPolicy = CU_SYNC_POLICY_AUTO;
    slab_publish(stream);
    *phStream = (CUstream)stream;
    return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *phStream, unsigned int Flags) {
    return cuStreamCreateWithPriority(phStream, Flags, 0);
}

CUresult cuStreamDestroy_v2(CUstream hStream) {
    struct stream *stream = (struct stream *)hStream;

    ENTER(context_gpu());
    DRIVER_LOCKED();
    if (!slab_live(&streams, stream))
        return CUDA_ERROR_INVALID_HANDLE;
    slab_free(&streams, stream);
    return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream hStream) {
    return cuStreamDestroy_v2(hStream);
}

CUresult cuStreamQuery(CUstream hStream) {
    struct context *context;

    ENTER(context_gpu());
    return stream_find(hStream, NULL, &context);
}
PTSZ(cuStreamQuery, (CUstream s), stream_own(s))

CUresult cuStreamSynchronize(CUstream hStream) {
    struct context *context;

    ENTER(context_gpu());
    TRY(stream_find(hStream, NULL, &context));
    return stream_wait_context(context);
}
PTSZ(cuStreamSynchronize, (CUstream s), stream_own(s))

CUresult cuStreamGetPriority(CUstream hStream, int *priority) {
    struct context *context;
    struct stream *stream;

    ENTER(context_gpu());
    if (!priority)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(stream_find(hStream, &stream, &context));
    *priority = stream ? stream->priority : 0;
    return CUDA_SUCCESS;
}
PTSZ(cuStreamGetPriority, (CUstream s, int *priority), stream_own(s), priority)

CUresult cuStreamGetFlags(CUstream hStream, unsigned int *flags) {
    struct context *context;
    struct stream *stream;

    ENTER(context_gpu());
    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(stream_find(hStream, &stream, &context));
    *flags = stream ? stream->flags : CU_STREAM_DEFAULT;
    return CUDA_SUCCESS;
}
PTSZ(cuStreamGetFlags, (CUstream s, unsigned *flags), stream_own(s), flags)

CUresult cuStreamGetId(CUstream hStream, unsigned long long *streamId) {
    struct context *context;
    struct stream *stream;

    ENTER(context_gpu());
    if (!streamId)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(stream_find(hStream, &stream, &context));
    /* Ids of default streams are far from those that count up. */
    *streamId = stream ? stream->id
                       : (UINT64_C(1) << 62 | atomic_load(&context->id) << 2 |
                          (hStream == CU_STREAM_PER_THREAD ? 2 : 1));
    return CUDA_SUCCESS;
}
PTSZ(cuStreamGetId, (CUstream s, unsigned long long *id), stream_own(s), id)

CUresult cuStreamGetCtx(CUstream hStream, CUcontext *pctx) {
    struct context *context;

    ENTER(context_gpu());
    if (!pctx)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(stream_find(hStream, NULL, &context));
    *pctx = context_handle(context);
    return CUDA_SUCCESS;
}
PTSZ(cuStreamGetCtx, (CUstream s, CUcontext *context), stream_own(s), context)

CUresult cuStreamGetCtx_v2(CUstream hStream, CUcontext *pCtx, CUgreenCtx *pGreenCtx) {
    TRY(cuStreamGetCtx(hStream, pCtx));
    if (pGreenCtx)
        *pGreenCtx = NULL;
    return CUDA_SUCCESS;
}
PTSZ(cuStreamGetCtx_v2, (CUstream s, CUcontext *context, CUgreenCtx *green), stream_own(s), context,
     green)

CUresult cuStreamGetGreenCtx(CUstream hStream, CUgreenCtx *phCtx) {
    struct context *context;

    ENTER(context_gpu());
    if (!phCtx)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(stream_find(hStream, NULL, &context));
    *phCtx = NULL;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetDevice(CUstream hStream, CUdevice *device) {
    struct context *context;

    ENTER(context_gpu());
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(stream_find(hStream, NULL, &context));
    *device = context->device->ordinal;
    return CUDA_SUCCESS;
}
PTSZ(cuStreamGetDevice, (CUstream s, CUdevice *device), stream_own(s), device)

CUresult cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void *userData,
                             unsigned int flags) {
    struct context *context;

    ENTER(context_gpu());
    if (!callback || flags)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(stream_find(hStream, NULL, &context));
    callback(hStream, CUDA_SUCCESS, userData);
    return CUDA_SUCCESS;
}
PTSZ(cuStreamAddCallback, (CUstream s, CUstreamCallback call, void *data, unsigned flags),
     stream_own(s), call, data, flags)

CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData) {
    struct context *context;

    ENTER(context_gpu());
    if (!fn)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(stream_find(hStream, NULL, &context));
    fn(userData);
    return CUDA_SUCCESS;
}
PTSZ(cuLaunchHostFunc, (CUstream s, CUhostFn call, void *data), stream_own(s), call, data)

CUresult cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length,
                                unsigned int flags) {
    struct context *context;
    struct allocation found;

    ENTER(context_gpu());
    TRY(stream_find(hStream, NULL, &context));
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST &&
        flags != CU_MEM_ATTACH_SINGLE)
        return CUDA_ERROR_INVALID_VALUE;
    if (!memory_find(dptr, &found) || found.range->kind != RANGE_MANAGED)
        return CUDA_ERROR_INVALID_VALUE;
    /* Only whole allocations can be attached. */
    if (length && (dptr != found.base || length != found.bytes))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}
PTSZ(cuStreamAttachMemAsync, (CUstream s, CUdeviceptr p, size_t n, unsigned flags), stream_own(s),
     p, n, flags)

CUresult cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus) {
    struct context *context;

    ENTER(context_gpu());
    if (!captureStatus)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(stream_find(hStream, NULL, &context));
    *captureStatus = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}
PTSZ(cuStreamIsCapturing, (CUstream s, CUstreamCaptureStatus *status), stream_own(s), status)

/* The attribute's place in a stream; NULL: streams have no such attribute. */
static CUstreamAttrValue *attribute(struct stream *stream, CUstreamAttrID id) {
    switch ((int)id) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        return &stream->window;
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        return &stream->policy;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        return &stream->domain;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        return &stream->domain_map;
    default:
        return NULL;
    }
}

CUresult cuStreamGetAttribute(CUstream hStream, CUstreamAttrID attr, CUstreamAttrValue *value) {
    struct context *context;
    struct stream *stream;
    const CUstreamAttrValue *place;

    ENTER(context_gpu());
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(stream_find(hStream, &stream, &context));
    DRIVER_LOCKED();
    memset(value, 0, sizeof(*value));
    if (attr == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
        value->priority = stream ? stream->priority : 0;
        return CUDA_SUCCESS;
    }
    place = attribute(stream ? stream : &(struct stream){ .flags = 0 }, attr);
    if (!place)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(value, place, sizeof(*value));
    return CUDA_SUCCESS;
}
PTSZ(cuStreamGetAttribute, (CUstream s, CUstreamAttrID id, CUstreamAttrValue *value), stream_own(s),
     id, value)

CUresult cuStreamSetAttribute(CUstream hStream, CUstreamAttrID attr,
                              const CUstreamAttrValue *value) {
    struct context *context;
    struct stream *stream;
    CUstreamAttrValue *place;

    ENTER(context_gpu());
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(stream_find(hStream, &stream, &context));
    DRIVER_LOCKED();
    if (attr == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
        if (value->priority > STREAM_LEAST_PRIORITY || value->priority < STREAM_GREATEST_PRIORITY)
            return CUDA_ERROR_INVALID_VALUE;
        if (stream)
            stream->priority = value->priority;
        return CUDA_SUCCESS;
    }
    place = attribute(stream ? stream : &(struct stream){ .flags = 0 }, attr);
    if (!place)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(place, value, sizeof(*place));
    return CUDA_SUCCESS;
}
PTSZ(cuStreamSetAttribute, (CUstream s, CUstreamAttrID id, const CUstreamAttrValue *value),
     stream_own(s), id, value)

CUresult cuStreamCopyAttributes(CUstream dst, CUstream src) {
    struct context *context;
    struct stream *from, *to;

    ENTER(context_gpu());
    TRY(stream_find(dst, &to, &context));
    TRY(stream_find(src, &from, &context));
    DRIVER_LOCKED();
    if (from && to) {
        to->window = from->window;
        to->policy = from->policy;
        to->domain = from->domain;
        to->domain_map = from->domain_map;
        to->priority = from->priority;
    }
    return CUDA_SUCCESS;
}
PTSZ(cuStreamCopyAttributes, (CUstream to, CUstream from), stream_own(to), stream_own(from))

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    static _Thread_local CUstreamCaptureMode current = CU_STREAM_CAPTURE_MODE_GLOBAL;
    CUstreamCaptureMode previous = current;

    ENTER(-1);
    if (!mode || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    current = *mode;
    *mode = previous;
    return CUDA_SUCCESS;
}
