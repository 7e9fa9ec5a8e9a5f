/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/cublas/cublas.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#define HANDLE_MAGIC UINT64_C(0x6c62757363697567)

/* The version that this library claims: 13.1.0, as 10000 × major + 100 × minor. */
#define CUBLAS_CLAIMED_VERSION 130100

static const struct private_table *find_cuda(void) {
    static const struct private_table *_Atomic found;
    const struct private_table *table = found;
    private_fn get;
    void *library;

    if (table)
        return table;
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    get = library ? (private_fn)dlsym(library, PRIVATE_SYMBOL) : NULL;
    table = get ? get() : NULL;
    if (get && !table)
        return NULL; /* cuInit() was not called */
    if (!table || table->size != sizeof(*table)) {
        fprintf(stderr, "gpusim: libcublas.so.13 of the simulated box needs its libcuda.so.1, and "
                        "another one was found first: use \"gpusim exec\"\n");
        return NULL;
    }
    found = table;
    return table;
}

cublasStatus_t cublas_check_handle(cublasHandle_t handle) {
    return handle && handle->magic == HANDLE_MAGIC ? CUBLAS_STATUS_SUCCESS
                                                   : CUBLAS_STATUS_NOT_INITIALIZED;
}

static cublasStatus_t from_cuda(CUresult r) {
    switch (r) {
    case CUDA_SUCCESS:
        return CUBLAS_STATUS_SUCCESS;
    case CUDA_ERROR_OUT_OF_MEMORY:
        return CUBLAS_STATUS_ALLOC_FAILED;
    case CUDA_ERROR_NOT_INITIALIZED:
    case CUDA_ERROR_INVALID_CONTEXT:
        return CUBLAS_STATUS_NOT_INITIALIZED;
    default:
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
}

struct cublas_scalar cublas_scalar_take(const struct cublasContext *handle, const void *pointer,
                                        size_t bytes) {
    struct cublas_scalar scalar = { .on_device =
                                        handle->pointer_mode == CUBLAS_POINTER_MODE_DEVICE };

    if (scalar.on_device)
        memcpy(scalar.value, &pointer, sizeof(pointer));
    else
        memcpy(scalar.value, pointer, bytes);
    return scalar;
}

bool cublas_scalar_read(const struct cublasContext *handle, const struct cublas_scalar *scalar,
                        void *ret, size_t bytes) {
    const void *from = scalar->value;

    if (scalar->on_device) {
        const void *address;

        memcpy(&address, scalar->value, sizeof(address));
        from = cublas_memory(handle, address, bytes, false);
        if (!from)
            return false;
    }
    memcpy(ret, from, bytes);
    return true;
}

void *cublas_memory(const struct cublasContext *handle, const void *address, uint64_t bytes,
                    bool write) {
    void *memory = handle->cuda->memory(handle->context, (CUdeviceptr)address, bytes, write);

    if (!memory)
        handle->cuda->fail(handle->context, CUDA_ERROR_ILLEGAL_ADDRESS);
    return memory;
}

cublasStatus_t cublas_submit(const struct cublasContext *handle, work_fn run, void *job,
                             bool wait) {
    /* A caller that waits frees the job itself; otherwise its last user does. */
    const struct private_order order = {
        .run = run,
        .argument = job,
        .release = wait ? NULL : free,
    };

    CUresult r = handle->cuda->submit(handle->stream, &order, wait);

    if (r != CUDA_SUCCESS || wait)
        free(job);
    return from_cuda(r);
}

static struct {
    pthread_rwlock_t lock;
    bool is_shut;
} gate = { .lock = PTHREAD_RWLOCK_INITIALIZER };

static void gate_shut(void) {
    pthread_rwlock_wrlock(&gate.lock);
    gate.is_shut = true;
    pthread_rwlock_unlock(&gate.lock);
}

/* Runs before the destructors of libraries, because it is registered after them. */
static void gate_make(void) {
    atexit(gate_shut);
}

bool cublas_compute_begin(void) {
    pthread_rwlock_rdlock(&gate.lock);
    if (!gate.is_shut)
        return true;
    pthread_rwlock_unlock(&gate.lock);
    return false;
}

void cublas_compute_end(void) {
    pthread_rwlock_unlock(&gate.lock);
}

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const struct private_table *cuda;
    struct cublasContext *made;
    CUresult r;

    if (!handle)
        return CUBLAS_STATUS_INVALID_VALUE;
    *handle = NULL;
    cuda = find_cuda();
    if (!cuda)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    made = calloc(1, sizeof(*made));
    if (!made)
        return CUBLAS_STATUS_ALLOC_FAILED;
    r = cuda->current(&made->context, &made->device);
    if (r != CUDA_SUCCESS) {
        free(made);
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    pthread_once(&once, gate_make);
    made->cuda = cuda;
    made->magic = HANDLE_MAGIC;
    *handle = made;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
    cublasStatus_t r = cublas_check_handle(handle);

    if (r != CUBLAS_STATUS_SUCCESS)
        return r;
    /* Jobs that are under way have copies of what they need of it. */
    handle->magic = 0;
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int *version) {
    if (!version)
        return CUBLAS_STATUS_INVALID_VALUE;
    *version = CUBLAS_CLAIMED_VERSION;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, CUstream stream_id) {
    cublasStatus_t r = cublas_check_handle(handle);

    if (r == CUBLAS_STATUS_SUCCESS) {
        handle->stream = stream_id;
        /* A workspace that the program gave was for the stream of before. */
        handle->workspace = NULL;
        handle->workspace_bytes = 0;
    }
    return r;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace,
                                     size_t workspace_size_in_bytes) {
    cublasStatus_t r = cublas_check_handle(handle);

    if (r != CUBLAS_STATUS_SUCCESS)
        return r;
    if ((uintptr_t)workspace % 256 || (!workspace && workspace_size_in_bytes))
        return CUBLAS_STATUS_INVALID_VALUE;
    handle->workspace = workspace;
    handle->workspace_bytes = workspace_size_in_bytes;
    return CUBLAS_STATUS_SUCCESS;
}

/* A setting with its get and set calls: the values from `low` to `high` are valid. */
#define SETTING(set, get, type, field, low, high)                                                  \
    cublasStatus_t set(cublasHandle_t handle, type mode) {                                         \
        cublasStatus_t r = cublas_check_handle(handle);                                            \
                                                                                                   \
        if (r != CUBLAS_STATUS_SUCCESS)                                                            \
            return r;                                                                              \
        if (mode < (low) || mode > (high))                                                         \
            return CUBLAS_STATUS_INVALID_VALUE;                                                    \
        handle->field = mode;                                                                      \
        return CUBLAS_STATUS_SUCCESS;                                                              \
    }                                                                                              \
    GETTER(get, type, field)
#define GETTER(get, type, field)                                                                   \
    cublasStatus_t get(cublasHandle_t handle, type *mode) {                                        \
        cublasStatus_t r = cublas_check_handle(handle);                                            \
                                                                                                   \
        if (r != CUBLAS_STATUS_SUCCESS)                                                            \
            return r;                                                                              \
        if (!mode)                                                                                 \
            return CUBLAS_STATUS_INVALID_VALUE;                                                    \
        *mode = handle->field;                                                                     \
        return CUBLAS_STATUS_SUCCESS;                                                              \
    }

GETTER(cublasGetStream_v2, CUstream, stream)
SETTING(cublasSetPointerMode_v2, cublasGetPointerMode_v2, cublasPointerMode_t, pointer_mode,
        CUBLAS_POINTER_MODE_HOST, CUBLAS_POINTER_MODE_DEVICE)
SETTING(cublasSetAtomicsMode, cublasGetAtomicsMode, cublasAtomicsMode_t, atomics_mode,
        CUBLAS_ATOMICS_NOT_ALLOWED, CUBLAS_ATOMICS_ALLOWED)
/* The flag 16 may be added to a mode: it forbids reduced precision in reductions. */
SETTING(cublasSetMathMode, cublasGetMathMode, cublasMath_t, math_mode, CUBLAS_DEFAULT_MATH, 31)
