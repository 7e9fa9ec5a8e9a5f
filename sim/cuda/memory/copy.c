/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver accesses the address space, arrays and page-locked memory directly. Other host memory
 * it reads and writes through process_vm_readv() and process_vm_writev(): a program that passes a
 * bad pointer then gets an error instead of a signal inside the driver.
 */
#include "sim/cuda/memory/copy.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "sim/cuda/memory/array.h"
#include "sim/cuda/graph/capture.h"
#include "sim/cuda/core/device.h"
#include "sim/cuda/memory/memory.h"
#include "sim/cuda/stream/submit.h"

enum {
    BATCH = 64,           /* rows per system call */
    STAGED_BYTES = 65536, /* of pageable memory, read when a copy is submitted */
};

/* One end of a copy, found and checked. */
struct end {
    char *bytes;
    uint64_t pitch, slice;
    bool pageable;                    /* host memory that we know nothing about */
    const struct cuda_device *device; /* NULL: the host's memory */
};

static CUresult find_array(const struct copy_end *end, const struct copy *copy, struct end *ret) {
    const struct array *array = array_get(end->array);

    if (!array)
        return CUDA_ERROR_INVALID_HANDLE;
    if (end->x % array->element_bytes || copy->width % array->element_bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (end->x > array->width_bytes || copy->width > array->width_bytes - end->x ||
        end->y > array->height || copy->height > array->height - end->y || end->z > array->depth ||
        copy->depth > array->depth - end->z)
        return CUDA_ERROR_INVALID_VALUE;
    *ret = (struct end){
        .pitch = array->width_bytes,
        .slice = array->width_bytes * array->height,
        .device = array->context->device,
    };
    ret->bytes = (char *)address_space_bytes(array->base) + end->x + end->y * ret->pitch +
                 end->z * ret->slice;
    return CUDA_SUCCESS;
}

/* a * b + c, or false where that is more than an address can be. */
static bool multiply_add(uint64_t a, uint64_t b, uint64_t c, uint64_t *ret) {
    return !__builtin_mul_overflow(a, b, ret) && !__builtin_add_overflow(*ret, c, ret);
}

static CUresult find_address(const struct copy_end *end, const struct copy *copy,
                             enum memory_access access, struct end *ret) {
    uint64_t pitch = end->pitch ? end->pitch : end->x + copy->width;
    uint64_t rows = end->height ? end->height : end->y + copy->height;
    uint64_t slice, offset, extent;
    struct allocation found;
    uint64_t start;

    if (pitch > INT32_MAX && copy->height > 1)
        return CUDA_ERROR_INVALID_VALUE;
    if (copy->height > 1 && pitch < end->x + copy->width)
        return CUDA_ERROR_INVALID_VALUE;
    if (copy->depth > 1 && rows < end->y + copy->height)
        return CUDA_ERROR_INVALID_VALUE;
    if (__builtin_mul_overflow(pitch, rows, &slice) ||
        !multiply_add(end->y, pitch, end->x, &offset) ||
        !multiply_add(end->z, slice, offset, &offset) ||
        !multiply_add(copy->height - 1, pitch, copy->width, &extent) ||
        !multiply_add(copy->depth - 1, slice, extent, &extent) ||
        __builtin_add_overflow(end->address, offset, &start) || start + extent < start)
        return CUDA_ERROR_INVALID_VALUE;
    *ret = (struct end){ .pitch = pitch, .slice = slice };

    if (!memory_find(start, &found)) {
        /* No memory at all: an unused address of the address space, or an address that is not host
         * memory of any kind.
         */
        if (end->kind == COPY_DEVICE || address_space_has(start) || !end->address)
            return CUDA_ERROR_INVALID_VALUE;
        ret->bytes = (char *)(uintptr_t)start;
        ret->pageable = true;
        return CUDA_SUCCESS;
    }
    if (end->kind == COPY_HOST && found.range->kind != RANGE_HOST &&
        found.range->kind != RANGE_REGISTERED && found.range->kind != RANGE_MANAGED &&
        !(found.range->kind == RANGE_MAPPED && found.range->host_access))
        return CUDA_ERROR_INVALID_VALUE;
    ret->bytes = memory_bytes(start, extent, access, NULL);
    if (!ret->bytes) {
        /* A buffer that is registered only in part is still the program's memory. */
        if (found.range->kind != RANGE_REGISTERED || end->kind == COPY_DEVICE)
            return CUDA_ERROR_INVALID_VALUE;
        ret->bytes = (char *)(uintptr_t)start;
        ret->pageable = true;
    }
    ret->device = found.range->device;
    return CUDA_SUCCESS;
}

static CUresult find(const struct copy_end *end, const struct copy *copy, enum memory_access access,
                     struct end *ret) {
    return end->kind == COPY_ARRAY ? find_array(end, copy, ret)
                                   : find_address(end, copy, access, ret);
}

/* Move `n` pieces between our own memory and that of the program. */
static CUresult move_pageable(struct iovec *ours, struct iovec *theirs, unsigned n, bool read) {
    size_t wanted = 0;
    ssize_t moved;

    for (unsigned i = 0; i < n; i++)
        wanted += ours[i].iov_len;
    while (wanted) {
        moved = read ? process_vm_readv(getpid(), ours, n, theirs, n, 0)
                     : process_vm_writev(getpid(), ours, n, theirs, n, 0);
        if (moved < 0 && (errno == EPERM || errno == ENOSYS)) {
            /* Forbidden in this sandbox: trust the pointer. */
            for (unsigned i = 0; i < n; i++)
                memmove(read ? ours[i].iov_base : theirs[i].iov_base,
                        read ? theirs[i].iov_base : ours[i].iov_base, ours[i].iov_len);
            return CUDA_SUCCESS;
        }
        if (moved <= 0)
            return CUDA_ERROR_INVALID_VALUE;
        wanted -= (size_t)moved;
        /* A large request can end early. */
        while (n && (size_t)moved >= ours->iov_len) {
            moved -= (ssize_t)ours->iov_len;
            ours++;
            theirs++;
            n--;
        }
        if (n && moved) {
            ours->iov_base = (char *)ours->iov_base + moved;
            theirs->iov_base = (char *)theirs->iov_base + moved;
            ours->iov_len -= (size_t)moved;
            theirs->iov_len -= (size_t)moved;
        }
    }
    return CUDA_SUCCESS;
}

/* Between two pieces of the program's memory: through a buffer of the driver. */
static CUresult move_foreign(char *to, const char *from, uint64_t bytes) {
    char buffer[16384];

    while (bytes) {
        size_t n = MIN(bytes, sizeof(buffer));

        TRY(move_pageable(&(struct iovec){ buffer, n }, &(struct iovec){ (char *)from, n }, 1,
                          true));
        TRY(move_pageable(&(struct iovec){ buffer, n }, &(struct iovec){ to, n }, 1, false));
        to += n;
        from += n;
        bytes -= n;
    }
    return CUDA_SUCCESS;
}

static CUresult run(const struct end *to, const struct end *from, uint64_t width, uint64_t height,
                    uint64_t depth) {
    struct iovec ours[BATCH], theirs[BATCH];
    bool read = from->pageable;
    unsigned n = 0;

    for (uint64_t z = 0; z < depth; z++)
        for (uint64_t y = 0; y < height; y++) {
            char *target = to->bytes + z * to->slice + y * to->pitch;
            char *source = from->bytes + z * from->slice + y * from->pitch;

            if (!to->pageable && !from->pageable) {
                memmove(target, source, width);
                continue;
            }
            if (to->pageable && from->pageable) {
                TRY(move_foreign(target, source, width));
                continue;
            }
            ours[n] = (struct iovec){ read ? target : source, width };
            theirs[n] = (struct iovec){ read ? source : target, width };
            if (++n == BATCH) {
                TRY(move_pageable(ours, theirs, n, read));
                n = 0;
            }
        }
    return n ? move_pageable(ours, theirs, n, read) : CUDA_SUCCESS;
}

/* Rows that lie without a gap on both sides are one row. */
static void join_rows(const struct end *to, const struct end *from, uint64_t *width,
                      uint64_t *height, uint64_t *depth) {
    if (*height > 1 && to->pitch == *width && from->pitch == *width) {
        *width *= *height;
        *height = 1;
    }
    if (*height == 1 && *depth > 1 && to->slice == *width && from->slice == *width) {
        *width *= *depth;
        *depth = 1;
    }
}

/* A copy that waits for its turn. */
struct copy_job {
    struct context *context;
    struct copy copy; /* as it was asked for */
    struct end to, from;
    uint64_t width, height, depth;
    uint64_t cost_ns;
    CUresult *ret; /* where a caller that waits wants to be told; NULL: it does not wait */
    char staged[]; /* pageable bytes, if they were read ahead */
};

static uint64_t job_run(void *argument) {
    const struct copy_job *job = argument;
    CUresult r = CUDA_SUCCESS;

    if (!timing_only())
        r = run(&job->to, &job->from, job->width, job->height, job->depth);
    if (job->ret)
        *job->ret = r;
    else if (r != CUDA_SUCCESS)
        context_fail(job->context, CUDA_ERROR_ILLEGAL_ADDRESS);
    return job->cost_ns;
}

static bool same_gpu(const struct cuda_device *a, const struct cuda_device *b) {
    return a->part.gpu == b->part.gpu;
}

/* Over which link the bytes go, and how long that takes. */
static void plan(struct copy_job *job, const struct cuda_device *own, struct stream_order *order) {
    const struct cuda_device *to = job->to.device, *from = job->from.device;
    const uint64_t bytes = job->width * job->height * job->depth;
    const bool pinned = !job->to.pageable && !job->from.pageable;
    struct cost_device cost = device_cost(to ? to : from ? from : own);

    order->device = to ? to : from ? from : own;
    if (to && from && same_gpu(to, from)) {
        order->engine = TIMELINE_COMPUTE;
        job->cost_ns = cost_memory(&cost, 2 * bytes);
    } else if (to && from) {
        const struct cost_device source = device_cost(from);

        order->engine = device_nvlinks(from, to) == 0 ? TIMELINE_PEER_PCIE
                        : device_is_on_fabric(from)   ? TIMELINE_PEER_FABRIC
                                                      : TIMELINE_PEER;
        if (order->engine == TIMELINE_PEER_PCIE && !device_is_behind_one_switch(from, to)) {
            order->uplink = device_uplink(from);
            order->peer_uplink = device_uplink(to);
        }
        order->device = from;
        order->peer = to;
        job->cost_ns = cost_peer_copy(&source, &cost, device_nvlinks(from, to), bytes);
    } else {
        order->engine = from ? TIMELINE_DOWNLOAD : TIMELINE_UPLOAD;
        order->uplink = device_uplink(order->device);
        job->cost_ns = cost_host_copy(&cost, bytes, pinned);
    }
}

/* Read pageable memory now: the program may change it before the copy runs. */
static CUresult stage(struct copy_job *job) {
    const struct end staged = {
        .bytes = job->staged,
        .pitch = job->width,
        .slice = job->width * job->height,
    };

    if (!timing_only())
        TRY(run(&staged, &job->from, job->width, job->height, job->depth));
    job->from = staged;
    return CUDA_SUCCESS;
}

/* Find both ends. `*ret`: NULL if there is nothing to copy. */
static CUresult job_new(const struct copy *copy, struct context *context, bool may_stage,
                        struct stream_order *order, struct copy_job **ret) {
    uint64_t width = copy->width, height = copy->height, depth = copy->depth;
    bool staged = false;
    struct end to, from;
    struct copy_job *job;

    *ret = NULL;
    if (width == 0 || height == 0 || depth == 0)
        return CUDA_SUCCESS;
    TRY(find(&copy->to, copy, MEMORY_WRITE, &to));
    TRY(find(&copy->from, copy, MEMORY_READ, &from));
    join_rows(&to, &from, &width, &height, &depth);
    if (may_stage)
        staged = from.pageable && !to.pageable && width * height * depth <= STAGED_BYTES;

    job = malloc(sizeof(*job) + (staged ? width * height * depth : 0));
    if (!job)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *job = (struct copy_job){
        .context = context,
        .copy = *copy,
        .to = to,
        .from = from,
        .width = width,
        .height = height,
        .depth = depth,
    };
    *order = (struct stream_order){
        .type = CU_GRAPH_NODE_TYPE_MEMCPY,
        .run = job_run,
        .argument = job,
        .release = free,
        .utilization = UTILIZATION_MEMORY,
    };
    plan(job, context->device, order);
    if (staged) {
        CUresult r = stage(job);

        if (r != CUDA_SUCCESS) {
            free(job);
            return r;
        }
    }
    *ret = job;
    return CUDA_SUCCESS;
}

CUresult copy_order(const struct copy *copy, struct context *context, struct stream_order *ret) {
    struct copy_job *job;

    TRY(job_new(copy, context, false, ret, &job));
    return job ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

const struct copy *copy_of_order(const struct stream_order *order) {
    return &((const struct copy_job *)order->argument)->copy;
}

CUresult copy_submit(const struct copy *copy, CUstream handle, bool blocking) {
    CUresult result = CUDA_SUCCESS;
    struct stream_order order;
    struct context *context;
    struct stream *stream;
    struct copy_job *job;
    bool captured;
    CUresult r;

    TRY(stream_find(handle, &stream, &context));
    captured = !blocking && capture_is_active(stream);
    TRY(job_new(copy, context, !blocking && !captured, &order, &job));
    if (!job)
        return CUDA_SUCCESS;
    /* In a graph no caller waits: pageable memory is read and written when its turn comes. */
    if (!captured && (job->to.pageable || job->from.pageable ||
                      (blocking && (!job->to.device || !job->from.device)))) {
        job->ret = &result;
        r = stream_submit_wait(handle, &order);
    } else {
        r = stream_submit(handle, &order, NULL);
        if (r != CUDA_SUCCESS)
            free(job);
    }
    return r == CUDA_SUCCESS ? result : r;
}
