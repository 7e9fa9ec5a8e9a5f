/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/device/gpu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/gpuid.h"
#include "libclient/device/gpu_memory.h"

/* The GPU whose context we made current on this thread, by gpu.serial, as a new context may have
 * the address of an old one. 0: none. */
static _Thread_local uint64_t entered;
static _Thread_local CUcontext entered_context;
static _Atomic uint64_t n_opened;

int gpu_enter(struct gpu *gpu, struct allot_error *err) {
    int r;

    if (entered == gpu->serial)
        return 0;
    r = cuda_ctx_set_current(gpu->cuda, err, gpu->context);
    if (r == 0) {
        entered = gpu->serial;
        entered_context = gpu->context;
    }
    return r;
}

struct gpu_visit gpu_visit_begin(const struct cuda *cuda) {
    struct gpu_visit visit = { .cuda = cuda };

    entered = 0;
    if (cuda_ctx_get_current(cuda, NULL, &visit.before) < 0)
        visit.before = NULL;
    return visit;
}

void gpu_visit_end(const struct gpu_visit *visit) {
    /* After a nested visit it is unknown which context is current. */
    if (visit->before && (!entered || entered_context != visit->before))
        cuda_ctx_set_current(visit->cuda, NULL, visit->before);
    entered = 0;
}

int gpu_host_alloc(struct gpu *gpu, uint64_t bytes, void **ret, struct allot_error *err) {
    int r = gpu_enter(gpu, err);

    return r < 0 ? r : cuda_mem_host_alloc(gpu->cuda, err, ret, bytes, CU_MEMHOSTALLOC_PORTABLE);
}

void gpu_host_free(struct gpu *gpu, void *data) {
    if (gpu_enter(gpu, NULL) == 0)
        cuda_mem_free_host(gpu->cuda, NULL, data);
}

int gpu_identify(struct gpu *gpu, struct allot_error *err) {
    struct gpuid id = { 0 };
    char text[GPUID_TEXT_SIZE];
    CUuuid uuid;
    int r = cuda_device_get(gpu->cuda, err, &gpu->device, gpu->number);

    if (r == 0)
        r = cuda_device_get_name(gpu->cuda, err, gpu->name, sizeof(gpu->name), gpu->device);
    if (r == 0)
        r = cuda_device_get_pci_bus_id(gpu->cuda, err, gpu->bus_id, sizeof(gpu->bus_id),
                                       gpu->device);
    if (r == 0)
        r = cuda_can(gpu->cuda, CUDA_CALL_device_get_uuid_v2)
                ? cuda_device_get_uuid_v2(gpu->cuda, err, &uuid, gpu->device)
                : cuda_device_get_uuid(gpu->cuda, err, &uuid, gpu->device);
    if (r == 0)
        r = cuda_device_get_attribute(gpu->cuda, err, &gpu->multiprocessors,
                                      CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, gpu->device);
    if (r < 0)
        return r;
    memcpy(id.uuid, uuid.bytes, sizeof(id.uuid));
    snprintf(gpu->uuid, sizeof(gpu->uuid), "%s", gpuid_format(&id, text));
    return 0;
}

static int make_streams(struct gpu *gpu, struct allot_error *err) {
    int r = 0;

    for (size_t i = 0; r == 0 && i < N_GPU_STREAMS; i++) {
        r = cuda_stream_create(gpu->cuda, err, &gpu->streams[i], CU_STREAM_NON_BLOCKING);
        if (r == 0)
            waiter_init(&gpu->waiters[i], gpu->cuda, gpu->context);
    }
    if (r == 0)
        r = cuda_stream_create(gpu->cuda, err, &gpu->idle, CU_STREAM_NON_BLOCKING);
    if (r == 0)
        stream_progress_init(&gpu->progress, gpu);
    return r;
}

/* Without cuBLAS, or where it does not start, our own kernels do GEMM. */
static void open_cublas(struct gpu *gpu, const struct driver_options *options) {
    if (cublas_open(&gpu->cublas, gpu->cuda, options, NULL) < 0)
        return;
    if (cublas_create(gpu->cublas, NULL, &gpu->blas) == 0 &&
        cublas_set_stream(gpu->cublas, NULL, gpu->blas, gpu->compute) == 0)
        return;
    if (gpu->blas)
        cublas_destroy(gpu->cublas, NULL, gpu->blas);
    cublas_close(gpu->cublas);
    gpu->cublas = NULL;
    gpu->blas = NULL;
}

static int start(struct gpu *gpu, const struct driver_options *options, struct allot_error *err) {
    int r = gpu_identify(gpu, err);

    if (r == 0)
        r = cuda_primary_ctx_retain(gpu->cuda, err, &gpu->context, gpu->device);
    if (r == 0)
        r = gpu_enter(gpu, err);
    if (r == 0)
        r = make_streams(gpu, err);
    if (r == 0)
        open_cublas(gpu, options);
    return r;
}

int gpu_open(struct gpu **ret, int number, struct allot_error *err) {
    struct driver_options options = driver_options_read(DRIVER_AUTO);
    struct gpu *gpu = calloc(1, sizeof(*gpu));
    int r;

    if (!gpu)
        return error_set(err, -ENOMEM, "no host memory for a GPU");
    pthread_mutex_init(&gpu->lock, NULL);
    gpu->number = number;
    gpu->serial = atomic_fetch_add(&n_opened, 1) + 1;
    r = cuda_open(&gpu->cuda, &options, err);
    if (r == 0)
        r = start(gpu, &options, err);
    if (r < 0) {
        gpu_close(gpu);
        return r;
    }
    *ret = gpu;
    return 0;
}

static void unload_modules(struct gpu *gpu) {
    CUmodule module;

    for (size_t pos = 0; (module = map_next(&gpu->modules, &pos));)
        cuda_module_unload(gpu->cuda, NULL, module);
    map_done(&gpu->modules);
}

struct gpu *gpu_close(struct gpu *gpu) {
    struct gpu_visit visit;

    if (!gpu)
        return NULL;
    if (gpu->context) {
        visit = gpu_visit_begin(gpu->cuda);
        gpu_enter(gpu, NULL);
        for (int i = 0; i < N_GPU_STREAMS; i++)
            waiter_done(&gpu->waiters[i]);
        stream_progress_done(&gpu->progress);
        gpu_memory_free(gpu);
        if (gpu->cublas) {
            cublas_destroy(gpu->cublas, NULL, gpu->blas);
            cublas_close(gpu->cublas);
        }
        unload_modules(gpu);
        for (int i = 0; i < N_GPU_STREAMS; i++)
            if (gpu->streams[i])
                cuda_stream_destroy(gpu->cuda, NULL, gpu->streams[i]);
        if (gpu->idle)
            cuda_stream_destroy(gpu->cuda, NULL, gpu->idle);
        if (visit.before == gpu->context)
            visit.before = NULL;
        cuda_ctx_set_current(gpu->cuda, NULL, visit.before);
        entered = 0;
        cuda_primary_ctx_release(gpu->cuda, NULL, gpu->device);
    }
    cuda_close(gpu->cuda);
    pthread_mutex_destroy(&gpu->lock);
    free(gpu);
    return NULL;
}

bool gpu_is_lost(struct gpu *gpu) {
    int r = gpu_enter(gpu, NULL);

    if (r == 0)
        r = cuda_stream_query(gpu->cuda, NULL, gpu->idle);
    return r == -EBUSY || r == -EIO || r == -ENOTRECOVERABLE || driver_is_gone(r);
}

static int load_module(struct gpu *gpu, const struct gpu_code *code, CUmodule *ret,
                       struct allot_error *err) {
    char log[1024] = "";
    CUjit_option options[] = { CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES };
    void *values[] = { log, (void *)(uintptr_t)sizeof(log) };
    struct allot_error refused = { 0 };
    int r = cuda_module_load_data_ex(gpu->cuda, &refused, ret, code->ptx, 2, options, values);

    if (r == 0)
        r = map_put(&gpu->modules, (uintptr_t)code->ptx, *ret);
    else
        return error_set(err, r == -ENOEXEC ? -EBADMSG : r, "the kernels '%s': %s%s%s", code->name,
                         refused.text, *log ? ": " : "", log);
    if (r < 0) {
        cuda_module_unload(gpu->cuda, NULL, *ret);
        return error_set(err, r, "no host memory for the kernels '%s'", code->name);
    }
    return 0;
}

int gpu_function(struct gpu *gpu, const struct gpu_code *code, const char *name, CUfunction *ret,
                 struct allot_error *err) {
    struct allot_error refused = { 0 };
    CUmodule module;
    int r = gpu_enter(gpu, err);

    if (r < 0)
        return r;
    pthread_mutex_lock(&gpu->lock);
    module = map_find(&gpu->modules, (uintptr_t)code->ptx);
    if (!module)
        r = load_module(gpu, code, &module, err);
    pthread_mutex_unlock(&gpu->lock);
    if (r < 0)
        return r;
    r = cuda_module_get_function(gpu->cuda, &refused, ret, module, name);
    if (r == -ENOENT)
        return error_set(err, r, "the kernels '%s' have no '%s'", code->name, name);
    /* The driver may report an earlier error here, such as a lost context. */
    return r < 0 ? error_set(err, r, "the kernel '%s' of '%s': %s", name, code->name, refused.text)
                 : 0;
}
