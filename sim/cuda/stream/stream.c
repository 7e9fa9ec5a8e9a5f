/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/cuda/stream/stream.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "sim/cuda/graph/capture.h"
#include "sim/cuda/memory/memory.h"
#include "sim/cuda/stream/submit.h"

static struct slab streams = SLAB(struct stream);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t last_id;
static uint32_t last_number; /* stream_lock() */

void stream_lock(void) {
    pthread_mutex_lock(&lock);
}

void stream_unlock(void) {
    pthread_mutex_unlock(&lock);
}

uint32_t stream_lane_new(void) {
    return ++last_number;
}

/* Needs driver.lock and stream_lock(). */
static struct stream *stream_new(struct context *context, enum stream_kind kind, unsigned flags,
                                 int priority) {
    struct stream *stream = slab_new(&streams);

    if (!stream)
        return NULL;
    stream->kind = kind;
    stream->context = context;
    stream->flags = flags;
    stream->priority = priority;
    stream->policy.syncPolicy = CU_SYNC_POLICY_AUTO;
    stream->number = stream_lane_new();
    stream->next = context->streams;
    if (stream->next)
        stream->next->previous = stream;
    context->streams = stream;
    slab_publish(stream);
    return stream;
}

/* Needs both locks; what it still had to do was left to others, or is done. */
static void stream_free(struct stream *stream) {
    capture_leave(stream);
    if (stream->previous)
        stream->previous->next = stream->next;
    else
        stream->context->streams = stream->next;
    if (stream->next)
        stream->next->previous = stream->previous;
    slab_free(&streams, stream);
}

struct stream *stream_next(struct stream *stream) {
    return slab_next(&streams, stream);
}

CUresult stream_context_begin(struct context *context) {
    static const unsigned hidden_flags[] = { CU_STREAM_DEFAULT, CU_STREAM_NON_BLOCKING };

    STREAM_LOCKED();
    context->streams = NULL;
    context->legacy = stream_new(context, STREAM_LEGACY, CU_STREAM_DEFAULT, 0);
    if (!context->legacy)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < ELEMENTSOF(hidden_flags); i++) {
        context->hidden[i] = stream_new(context, STREAM_HIDDEN, hidden_flags[i], 0);
        if (!context->hidden[i])
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

void stream_context_end(struct context *context) {
    STREAM_LOCKED();
    while (context->streams) {
        stream_drop(context->streams);
        stream_free(context->streams);
    }
}

/* The default streams of this thread, one per context that it used. */
struct own_stream {
    struct context *context;
    uint64_t life; /* of the context */
    struct stream *stream;
};

struct own_streams {
    size_t n, n_allocated;
    struct own_stream at[];
};

static pthread_once_t own_once = PTHREAD_ONCE_INIT;
static pthread_key_t own_key;

/* The thread ends, and so do its streams, once they are idle. */
static void own_end(void *argument) {
    struct own_streams *own = argument;

    for (size_t i = 0; i < own->n && atomic_load(&driver.state) == DRIVER_READY; i++) {
        DRIVER_LOCKED();
        STREAM_LOCKED();
        if (atomic_load(&own->at[i].context->id) != own->at[i].life)
            continue;
        stream_retire(own->at[i].stream);
        stream_free(own->at[i].stream);
    }
    free(own);
}

static void own_begin(void) {
    pthread_key_create(&own_key, own_end);
}

static struct own_streams *own_reserve(struct own_streams *own) {
    const size_t n = own ? 2 * own->n_allocated : 4;
    struct own_streams *larger;

    if (own && own->n < own->n_allocated)
        return own;
    larger = realloc(own, sizeof(*larger) + n * sizeof(larger->at[0]));
    if (!larger)
        return NULL;
    if (!own)
        larger->n = 0;
    larger->n_allocated = n;
    pthread_setspecific(own_key, larger);
    return larger;
}

static CUresult own_find(struct context *context, struct stream **ret) {
    const uint64_t life = atomic_load(&context->id);
    struct own_streams *own;
    size_t i;

    pthread_once(&own_once, own_begin);
    own = pthread_getspecific(own_key);
    for (i = 0; own && i < own->n && own->at[i].context != context;)
        i++;
    if (own && i < own->n && own->at[i].life == life) {
        *ret = own->at[i].stream;
        return CUDA_SUCCESS;
    }
    if (!own || i == own->n) {
        own = own_reserve(own);
        if (!own)
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    DRIVER_LOCKED();
    STREAM_LOCKED();
    if (!life || atomic_load(&context->id) != life)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *ret = stream_new(context, STREAM_THREAD, CU_STREAM_DEFAULT, 0);
    if (!*ret)
        return CUDA_ERROR_OUT_OF_MEMORY;
    own->at[i] = (struct own_stream){ context, life, *ret };
    own->n = MAX(own->n, i + 1);
    return CUDA_SUCCESS;
}

CUresult stream_find(CUstream handle, struct stream **ret, struct context **ret_context) {
    struct stream *stream = (struct stream *)handle;
    struct context *context;

    if (handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
        TRY(context_current(&context));
        if (handle == CU_STREAM_PER_THREAD && ret)
            TRY(own_find(context, ret));
        else if (ret)
            *ret = context->legacy;
    } else {
        if (!slab_live(&streams, stream) || stream->kind != STREAM_MADE)
            return CUDA_ERROR_INVALID_HANDLE;
        context = stream->context;
        TRY(context_check(context));
        if (ret)
            *ret = stream;
    }
    if (ret_context)
        *ret_context = context;
    return CUDA_SUCCESS;
}

CUresult cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority) {
    struct context *context;
    struct stream *stream;

    ENTER_CONTEXT(context);
    if (!phStream || flags > CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    priority = MIN(priority, (int)STREAM_LEAST_PRIORITY);
    priority = MAX(priority, (int)STREAM_GREATEST_PRIORITY);
    DRIVER_LOCKED();
    STREAM_LOCKED();
    stream = stream_new(context, STREAM_MADE, flags, priority);
    if (!stream)
        return CUDA_ERROR_OUT_OF_MEMORY;
    stream->id = ++last_id;
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
    STREAM_LOCKED();
    if (!slab_live(&streams, stream) || stream->kind != STREAM_MADE)
        return CUDA_ERROR_INVALID_HANDLE;
    stream_retire(stream);
    stream_free(stream);
    return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream hStream) {
    return cuStreamDestroy_v2(hStream);
}

CUresult cuStreamQuery(CUstream hStream) {
    struct context *context;
    struct stream *stream;

    ENTER(context_gpu());
    TRY(stream_find(hStream, &stream, &context));
    TRY(capture_forbid_wait(stream));
    if (!stream_idle(stream))
        return CUDA_ERROR_NOT_READY;
    return context_check(context);
}
PTSZ(cuStreamQuery, (CUstream s), stream_own(s))

CUresult cuStreamSynchronize(CUstream hStream) {
    ENTER(context_gpu());
    return stream_wait(hStream);
}
PTSZ(cuStreamSynchronize, (CUstream s), stream_own(s))

CUresult cuStreamGetPriority(CUstream hStream, int *priority) {
    struct context *context;
    struct stream *stream;

    ENTER(context_gpu());
    if (!priority)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(stream_find(hStream, &stream, &context));
    *priority = stream->priority;
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
    *flags = stream->flags;
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
    *streamId = stream->kind == STREAM_MADE ? stream->id : (UINT64_C(1) << 62 | stream->number);
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
        value->priority = stream->priority;
        return CUDA_SUCCESS;
    }
    place = attribute(stream, attr);
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
        stream->priority = value->priority;
        return CUDA_SUCCESS;
    }
    place = attribute(stream, attr);
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
    to->window = from->window;
    to->policy = from->policy;
    to->domain = from->domain;
    to->domain_map = from->domain_map;
    to->priority = from->priority;
    return CUDA_SUCCESS;
}
PTSZ(cuStreamCopyAttributes, (CUstream to, CUstream from), stream_own(to), stream_own(from))
