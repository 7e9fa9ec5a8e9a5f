/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/device/device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "libclient/core/buffer.h"
#include "libclient/device/gpu.h"
#include "libclient/device/gpu_memory.h"

enum { HOST_ALIGNMENT = 256 };

static uint64_t host_memory_bytes(void) {
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);

    return pages > 0 && page_bytes > 0 ? (uint64_t)pages * (uint64_t)page_bytes : 0;
}

int device_cpu_new(struct device **ret, struct thread_pool *intra, struct allot_error *err) {
    struct device *device = calloc(1, sizeof(*device));

    if (!device)
        return error_set(err, -ENOMEM, "no host memory for a device");
    device->refs = 1;
    device->intra = intra;
    device->memory_limit_bytes = host_memory_bytes();
    snprintf(device->name, sizeof(device->name), "/job:localhost/replica:0/task:0/device:CPU:0");
    snprintf(device->description, sizeof(device->description), "device: 0, name: CPU");
    *ret = device;
    return 0;
}

int device_gpu_new(struct device **ret, struct gpu *gpu, int index, struct thread_pool *intra,
                   struct allot_error *err) {
    struct device *device = calloc(1, sizeof(*device));
    struct arena_stats stats;

    if (!device)
        return error_set(err, -ENOMEM, "no host memory for a device");
    arena_get_stats(gpu->arena, &stats);
    device->refs = 1;
    device->is_gpu = true;
    device->index = index;
    device->intra = intra;
    device->gpu = gpu;
    device->memory_limit_bytes = stats.cap_bytes;
    snprintf(device->name, sizeof(device->name), "/job:localhost/replica:0/task:0/device:GPU:%d",
             index);
    snprintf(device->description, sizeof(device->description),
             "device: %d, name: %s, pci bus id: %s", gpu->number, gpu->name, gpu->bus_id);
    *ret = device;
    return 0;
}

struct device *device_ref(struct device *device) {
    atomic_fetch_add_explicit(&device->refs, 1, memory_order_relaxed);
    return device;
}

struct device *device_unref(struct device *device) {
    if (device && atomic_fetch_sub_explicit(&device->refs, 1, memory_order_acq_rel) == 1)
        free(device);
    return NULL;
}

int device_host_alloc(uint64_t bytes, const char *tag, struct device_block *ret,
                      struct allot_error *err) {
    void *data;

    if (bytes > PTRDIFF_MAX || posix_memalign(&data, HOST_ALIGNMENT, bytes ? bytes : 1))
        return error_set(err, -ENOMEM, "%s: no host memory for %llu bytes", tag,
                         (unsigned long long)bytes);
    *ret = (struct device_block){ .data = data };
    return 0;
}

void device_dealloc(struct device *device, const struct device_block *block) {
    if (device->gpu)
        gpu_memory_dealloc(device->gpu, block->handle);
    else
        free(block->data);
}

/* What a buffer needs to free its block. */
struct owned_block {
    struct device *device;
    struct device_block block;
};

static void owned_block_end(void *data, void *userdata) {
    struct owned_block *owned = userdata;

    device_dealloc(owned->device, &owned->block);
    device_unref(owned->device);
    free(owned);
}

int device_buffer_of(struct device *device, const struct device_block *block, uint64_t bytes,
                     const char *tag, struct buffer **ret, struct allot_error *err) {
    struct owned_block *owned = calloc(1, sizeof(*owned));
    int r;

    if (!owned) {
        device_dealloc(device, block);
        return error_set(err, -ENOMEM, "%s: no host memory for a buffer", tag);
    }
    owned->device = device_ref(device);
    owned->block = *block;
    r = buffer_over(ret, owned->block.data, bytes, owned_block_end, owned);
    if (r < 0) {
        owned_block_end(NULL, owned);
        return error_set(err, r, "%s: no host memory for a buffer", tag);
    }
    return 0;
}

int device_copy_within(struct device *device, void *to, const void *from, uint64_t bytes,
                       struct allot_error *err) {
    if (!device->gpu) {
        memcpy(to, from, bytes);
        return 0;
    }
    return cuda_copy_dtod_async(device->gpu->cuda, err, (CUdeviceptr)(uintptr_t)to,
                                (CUdeviceptr)(uintptr_t)from, bytes, device->gpu->compute);
}

int device_await(struct device *device, const atomic_bool *stopped, struct allot_error *err) {
    return device->gpu ? stream_progress_await(&device->gpu->progress, stopped, err) : 0;
}

bool device_is_idle(const struct device *device) {
    return !device->gpu || stream_progress_query(&device->gpu->progress, NULL) != -EAGAIN;
}

int device_copy_in(struct device *device, void *to, const void *from, uint64_t bytes,
                   struct allot_error *err) {
    struct gpu *gpu = device->gpu;
    CUstream stream;
    int r;

    if (!gpu) {
        memcpy(to, from, bytes);
        return 0;
    }
    stream = gpu->streams[GPU_PAGEABLE_TO_DEVICE];
    r = gpu_enter(gpu, err);
    if (r == 0 && bytes > 0)
        r = cuda_copy_htod_async(gpu->cuda, err, (CUdeviceptr)(uintptr_t)to, from, bytes, stream);
    if (r == 0)
        r = cuda_stream_synchronize(gpu->cuda, err, stream);
    return r;
}

int device_copy_out(struct device *device, void *to, const void *from, uint64_t bytes,
                    struct allot_error *err) {
    struct gpu *gpu = device->gpu;
    CUstream stream;
    int r;

    if (!gpu) {
        memcpy(to, from, bytes);
        return 0;
    }
    stream = gpu->streams[GPU_PAGEABLE_TO_HOST];
    r = gpu_enter(gpu, err);
    if (r == 0 && bytes > 0)
        r = cuda_copy_dtoh_async(gpu->cuda, err, to, (CUdeviceptr)(uintptr_t)from, bytes, stream);
    if (r == 0)
        r = cuda_stream_synchronize(gpu->cuda, err, stream);
    return r;
}
