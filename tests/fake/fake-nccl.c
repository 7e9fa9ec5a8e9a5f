/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fake NCCL that really sums, on the simulated box: when a group ends it waits for the streams,
 * reads all ranks' numbers through the CUDA driver, adds them up in the order of the ranks, and
 * writes the sums back. `fake_nccl` counts, and makes calls fail.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fake/fake-nccl.h"
#include "tests/fake/fake.h"
#include "vendor/nccl_calls.h"

FAKE_EXPORT struct fake_nccl fake_nccl;
FAKE_EXPORT int gpusimMarker;
int gpusimMarker;

struct ncclComm {
    int rank, n;
    CUdevice device;
    CUcontext context;
};

/* One call of ncclAllReduce() within the group. */
struct reduction {
    CUdeviceptr from, to;
    size_t count;
    ncclDataType_t type;
    ncclComm_t comm;
    CUstream stream;
};

enum { CALLS_MAX = 4096 };
static struct reduction calls[CALLS_MAX];
static int n_calls, depth;

#define DRIVER(X)                                                                                  \
    X(cuCtxGetCurrent, (CUcontext *))                                                              \
    X(cuCtxSetCurrent, (CUcontext))                                                                \
    X(cuDeviceGet, (CUdevice *, int))                                                              \
    X(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                                           \
    X(cuDevicePrimaryCtxRelease_v2, (CUdevice))                                                    \
    X(cuStreamSynchronize, (CUstream))                                                             \
    X(cuMemcpyDtoH_v2, (void *, CUdeviceptr, size_t))                                              \
    X(cuMemcpyHtoD_v2, (CUdeviceptr, const void *, size_t))
static struct {
#define X(name, parameters) CUresult(*name) parameters;
    DRIVER(X)
#undef X
} cu;

/* The process has loaded it already. */
static int find_driver(void) {
    char path[PATH_MAX];
    void *library;

    snprintf(path, sizeof(path), "%s/libcuda.so.1", getenv("ALLOT_SIM_DIR"));
    library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (!library)
        return -1;
#define X(name, parameters)                                                                        \
    *(void **)&cu.name = dlsym(library, #name);                                                    \
    if (!cu.name)                                                                                  \
        return -1;
    DRIVER(X)
#undef X
    return 0;
}

FAKE_EXPORT ncclResult_t ncclGetVersion(int *version);
FAKE_EXPORT ncclResult_t ncclGetVersion(int *version) {
    *version = 22105;
    return 0;
}

FAKE_EXPORT ncclResult_t ncclCommInitAll(ncclComm_t *comm, int n, const int *devices);
FAKE_EXPORT ncclResult_t ncclCommInitAll(ncclComm_t *comm, int n, const int *devices) {
    CUresult r = CUDA_SUCCESS;

    if (fake_nccl.fail_init)
        return fake_nccl.fail_init;
    if (find_driver() < 0)
        return 2; /* ncclSystemError */
    for (int i = 0; i < n; i++) {
        comm[i] = calloc(1, sizeof(**comm));
        comm[i]->rank = i;
        comm[i]->n = n;
        r = r ? r : cu.cuDeviceGet(&comm[i]->device, devices[i]);
        r = r ? r : cu.cuDevicePrimaryCtxRetain(&comm[i]->context, comm[i]->device);
    }
    fake_nccl.n_comms += n;
    return r ? 1 : 0; /* ncclUnhandledCudaError */
}

FAKE_EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm);
FAKE_EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    cu.cuDevicePrimaryCtxRelease_v2(comm->device);
    free(comm);
    fake_nccl.n_comms--;
    return 0;
}

FAKE_EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm);
FAKE_EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm) {
    fake_nccl.n_aborts++;
    return ncclCommDestroy(comm);
}

FAKE_EXPORT ncclResult_t ncclAllReduce(const void *from, void *to, size_t count,
                                       ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                       CUstream stream);
FAKE_EXPORT ncclResult_t ncclAllReduce(const void *from, void *to, size_t count,
                                       ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                       CUstream stream) {
    if (depth == 0 || n_calls == CALLS_MAX || op != ncclSum ||
        (type != ncclFloat32 && type != ncclFloat64))
        return 5; /* ncclInvalidUsage: a rank alone would wait for ever */
    calls[n_calls++] =
        (struct reduction){ (uintptr_t)from, (uintptr_t)to, count, type, comm, stream };
    return 0;
}

FAKE_EXPORT ncclResult_t ncclGroupStart(void);
FAKE_EXPORT ncclResult_t ncclGroupStart(void) {
    if (depth++ == 0)
        n_calls = 0;
    return 0;
}

static void add(void *to, const void *own, size_t count, ncclDataType_t type) {
    for (size_t i = 0; i < count; i++)
        if (type == ncclFloat32)
            ((float *)to)[i] += ((const float *)own)[i];
        else
            ((double *)to)[i] += ((const double *)own)[i];
}

/* Calls first … first + n are those of all ranks for one tensor. */
static CUresult sum(const struct reduction *ranks, int n) {
    const size_t bytes = ranks[0].count * (ranks[0].type == ncclFloat32 ? 4 : 8);
    void *total = calloc(1, bytes), *own = malloc(bytes);
    CUresult r = CUDA_SUCCESS;

    for (int i = 0; i < n && !r; i++) {
        r = cu.cuCtxSetCurrent(ranks[i].comm->context);
        r = r ? r : cu.cuStreamSynchronize(ranks[i].stream);
        r = r ? r : cu.cuMemcpyDtoH_v2(own, ranks[i].from, bytes);
        add(total, own, ranks[i].count, ranks[i].type);
    }
    for (int i = 0; i < n && !r; i++) {
        r = cu.cuCtxSetCurrent(ranks[i].comm->context);
        r = r ? r : cu.cuMemcpyHtoD_v2(ranks[i].to, total, bytes);
    }
    free(total);
    free(own);
    return r;
}

FAKE_EXPORT ncclResult_t ncclGroupEnd(void);
FAKE_EXPORT ncclResult_t ncclGroupEnd(void) {
    CUcontext before = NULL;
    CUresult r = CUDA_SUCCESS;

    if (--depth > 0)
        return 0;
    if (fake_nccl.fail_at && ++fake_nccl.n_groups == fake_nccl.fail_at)
        return fake_nccl.fail_group;
    cu.cuCtxGetCurrent(&before);
    for (int i = 0; i < n_calls && !r; i += calls[i].comm->n) {
        for (int k = 0; k < calls[i].comm->n; k++)
            if (i + k >= n_calls || calls[i + k].comm->rank != k ||
                calls[i + k].count != calls[i].count)
                return 5;
        r = sum(&calls[i], calls[i].comm->n);
        fake_nccl.n_sums++;
    }
    cu.cuCtxSetCurrent(before);
    return r ? 1 : 0;
}
