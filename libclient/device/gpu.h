/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * GPU: one CUDA device of this process: its context, its streams, its memory, its code.
 *
 * Work goes to `compute` in the order in which it is queued; copies have a stream for each
 * direction, sums over replicas two of their own, so that they run beside both; events order the
 * streams. Any thread may call everything but gpu_open() and
 * gpu_close(), after gpu_enter() on that thread.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/map.h"
#include "driver/cublas.h"
#include "driver/cuda.h"
#include "libclient/device/stream_progress.h"
#include "libclient/device/waiter.h"

struct allot_error;
struct arena;
struct gpu_memory;

/* Sums over replicas that may be under way at once. Each has streams of its own: a sum goes round
 * all GPUs and waits for them more than it works. */
enum { GPU_CHANNELS = 4 };

/* Copies of pageable memory block the thread that queues them until they are done: they have
 * streams of their own, on which nothing waits for anything. */
enum gpu_stream {
    GPU_COMPUTE,
    GPU_TO_HOST,
    GPU_TO_DEVICE,
    GPU_ADDEND, /* a replica's own part of a sum, where it does not lie there already */
    GPU_PEER,   /* by channel: copies from other GPUs, for sums over replicas … */
    GPU_COLLECTIVE = GPU_PEER + GPU_CHANNELS, /* … and what is done with them */
    GPU_PAGEABLE_TO_HOST = GPU_COLLECTIVE + GPU_CHANNELS,
    GPU_PAGEABLE_TO_DEVICE,
    N_GPU_STREAMS
};

struct gpu {
    struct cuda *cuda;
    uint64_t serial; /* unique in the process, never reused */
    int number;      /* among those that the driver shows */
    CUdevice device;
    CUcontext context; /* the primary one, retained */
    union {
        struct {
            CUstream compute, to_host, to_device;
        };
        CUstream streams[N_GPU_STREAMS];
    };
    struct event_waiter waiters[N_GPU_STREAMS]; /* for the marks on each */
    CUstream idle;                   /* never has anything to do: marks on it are reached */
    struct stream_progress progress; /* on `compute` */
    struct cublas *cublas;           /* NULL: there is none, and kernels of our own are used */
    cublasHandle_t blas;             /* on `compute`; host pointers for scalars */
    char name[128];                  /* "NVIDIA A100-SXM4-80GB" */
    char uuid[96];                   /* "GPU-…", or as the lease calls it: "MIG-…" */
    char bus_id[24];                 /* "0000:07:00.0" */
    int multiprocessors;
    struct arena *arena;
    struct gpu_memory *memory; /* where the arena gets it from */
    pthread_mutex_t lock;      /* of `modules` */
    struct map modules;        /* by address of the text */
};

/*
 * Open the device that the driver calls `number`: retain its primary context, make streams, and
 * open cuBLAS if it is installed. This takes no memory yet (device/gpu_memory.h).
 */
int gpu_open(struct gpu **ret, int number, struct allot_error *err);
struct gpu *gpu_close(struct gpu *gpu); /* accepts and returns NULL */

/* Fill in what identifies the device; `gpu` has only `cuda` and `number` so far. */
int gpu_identify(struct gpu *gpu, struct allot_error *err);

/* Make the device's context current on the calling thread. Costs next to nothing if it was current
 * there last time. */
int gpu_enter(struct gpu *gpu, struct allot_error *err);

/* Whether the device does not answer any more: it fell off the bus, or met an error that no context
 * on it survives. A kernel that used memory that is not its own loses its context, not the device.
 */
bool gpu_is_lost(struct gpu *gpu);

/* Call these before and after all work on a thread of the program: the program may have made
 * another context current since our last visit, and gets it back. */
struct gpu_visit {
    const struct cuda *cuda;
    CUcontext before; /* NULL: none was, and ours may stay */
};
struct gpu_visit gpu_visit_begin(const struct cuda *cuda);
void gpu_visit_end(const struct gpu_visit *visit);

/* Pinned host memory, which copies need to run beside other work. */
int gpu_host_alloc(struct gpu *gpu, uint64_t bytes, void **ret, struct allot_error *err);
void gpu_host_free(struct gpu *gpu, void *data);

/* PTX that is part of the library, NUL-terminated. */
struct gpu_code {
    const char *name; /* "elementwise", for messages */
    const char *ptx;
};

/*
 * A kernel of such a text; the text is loaded when its first kernel is asked for. -ENOENT: no
 * kernel of that name; -EBADMSG: the driver refuses the text, with its compiler's message; else the
 * driver's error, as of a context that is lost.
 */
int gpu_function(struct gpu *gpu, const struct gpu_code *code, const char *name, CUfunction *ret,
                 struct allot_error *err);
