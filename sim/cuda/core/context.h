/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Context: a process's state on a device. Each costs the model's context_bytes as long as it lives;
 * everything made in it ends with it.
 *
 * The primary context of a device always keeps its handle and is alive while the program retains
 * it. Every thread has a stack of contexts, the topmost is current.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "sim/cuda/memory/heap.h"

struct ptx_memory;
struct stream;
struct work;

/* What kernels printed, see sim/cuda/module/print.c. */
struct print {
    char *text;
    size_t n, room;
};

struct context {
    struct slab_head head;
    struct cuda_device *device;
    bool primary;
    _Atomic uint64_t id; /* of this life; 0: not alive */
    _Atomic int error;   /* the CUresult that it answers from now on; 0: none */
    bool ending;         /* waiting for its work before it goes; cannot be retained */
    unsigned flags;
    unsigned retained; /* primary: by how many callers */
    unsigned attached; /* others: cuCtxAttach() */
    uint32_t peers;    /* bit per device ordinal: access was enabled */
    size_t limits[CU_LIMIT_MAX];
    CUfunc_cache cache;
    CUsharedconfig shared;
    struct memory_heap heap;
    struct range *first;    /* ranges outside the heap: host, managed, imported */
    struct stream *streams; /* see sim/cuda/stream/stream.h */
    struct stream *legacy, *hidden[2];
    _Atomic bool cancel;        /* kernels that run are to end */
    uint64_t device_heap_bytes; /* what malloc() on the device gave */
    struct print print;
    _Atomic(struct ptx_memory *)
        kernel_access; /* see sim/cuda/memory/kernel_access.h; NULL: no kernel ran yet */
};

/* Handles are pointers; these say so in one place. */
static inline CUcontext context_handle(struct context *context) {
    return (CUcontext)context;
}
/* The live context of a handle; NULL: there is none. No lock. */
struct context *context_get(CUcontext handle);

/*
 * The current context, ready for work: not destroyed, not in error, its device still there.
 * No lock.
 */
CUresult context_current(struct context **ret);
/* Whether `context` is ready for work, as above. */
CUresult context_check(struct context *context);
/* Forbid CUDA calls from this thread while it runs a callback of the program, or allow them again.
 */
void context_forbid(bool forbid);
/* The GPU of the current context, for fault_call(); -1: none. */
int context_gpu(void);

/* ENTER() and the current context, for everything that works in one. */
#define ENTER_CONTEXT(context)                                                                     \
    do {                                                                                           \
        ENTER(context_gpu());                                                                      \
        TRY(context_current(&(context)));                                                          \
    } while (0)

/* A sticky error: `context` answers `error` to everything from now on, unless it has one. */
void context_fail(struct context *context, CUresult error);
/* A point in all streams of the context: done when everything submitted so far is. Wants
 * stream_lock(). */
CUresult context_mark(struct context *context, struct work **ret);
/* Sleep until all work of a context is done, in whatever state the context is. Without any lock. */
void context_drain(struct context *context);
/* The same for two contexts (the second may be NULL): memory of theirs is to be freed. */
void context_wait_users(struct context *context, struct context *owner);
/* Whether all work of a context is done. Without any lock. */
bool context_idle(struct context *context);

/* Ranges outside the heap that end with the context. Need driver.lock. */
void context_link(struct context *context, struct range *range);
void context_unlink(struct context *context, struct range *range);

/* Called with the lock when a context ends, so that other files can free what they have in it. */
void event_context_end(struct context *context);
void array_context_end(struct context *context);
void host_context_end(struct context *context);
