/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Device: a place where ops run, with its name, its memory and its threads.
 *
 * A session has the host's CPU and the GPUs of its lease, in the order of CUDA_VISIBLE_DEVICES. The
 * sessions of a process share devices, which are counted. Any thread.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct allot_error;
struct buffer;
struct gpu;
struct thread_pool;

#define DEVICE_CPU_TYPE "CPU"
#define DEVICE_GPU_TYPE "GPU"
/* Enough for every device name. */
#define DEVICE_NAME_SIZE 224

struct device {
    _Atomic uint32_t refs;
    char name[DEVICE_NAME_SIZE]; /* "/job:localhost/replica:0/task:0/device:GPU:0" */
    bool is_gpu;
    int index;             /* among those of its type */
    char description[256]; /* "device: 0, name: NVIDIA A100, pci bus id: 0000:07:00.0" */
    uint64_t memory_limit_bytes;
    struct thread_pool *intra; /* loops inside ops; borrowed */
    struct gpu *gpu;           /* NULL on the CPU */
};

/* Memory of a device for one block, aligned to 256 bytes. `tag` names the user of the block in
 * reports. */
struct device_block {
    void *data; /* address on the device */
    uint64_t handle;
};
/* Allocate memory of the host. Allocating memory of a GPU may have to wait: device/gpu_memory.h. */
int device_host_alloc(uint64_t bytes, const char *tag, struct device_block *ret,
                      struct allot_error *err);
/* Free a block. Queued work may still use it only if that work is on the device's compute stream.
 */
void device_dealloc(struct device *device, const struct device_block *block);

/* A block of the device as a buffer, whose last reference frees it. If this fails, it frees the
 * block too. */
int device_buffer_of(struct device *device, const struct device_block *block, uint64_t bytes,
                     const char *tag, struct buffer **ret, struct allot_error *err);
/* Copy within the device: at once on the CPU, on the compute stream on a GPU. */
int device_copy_within(struct device *device, void *to, const void *from, uint64_t bytes,
                       struct allot_error *err);
/* Wait until a GPU has done everything that is now queued on its compute stream: earlier users of a
 * block may have work there. -ECANCELED: `stopped` was set, and wait_stop() called; NULL: never. */
int device_await(struct device *device, const atomic_bool *stopped, struct allot_error *err);
/* Whether device_await() would return at once. */
bool device_is_idle(const struct device *device);
/* Copy from the host to memory that nothing queued reads or writes. The copy is done on return. */
int device_copy_in(struct device *device, void *to, const void *from, uint64_t bytes,
                   struct allot_error *err);

/* Copy to the host what nothing queued writes. The copy is done on return. */
int device_copy_out(struct device *device, void *to, const void *from, uint64_t bytes,
                    struct allot_error *err);

/* The host. `intra` is borrowed. */
int device_cpu_new(struct device **ret, struct thread_pool *intra, struct allot_error *err);
/* GPU `index` of a session. `gpu` is borrowed, with its memory. */
int device_gpu_new(struct device **ret, struct gpu *gpu, int index, struct thread_pool *intra,
                   struct allot_error *err);
struct device *device_ref(struct device *device);
struct device *device_unref(struct device *device); /* accepts and returns NULL */
