/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Report: a program that asks how much memory there is sees its job's share, so that frameworks
 * choose the right sizes. The free bytes are the job's, not the process's, as the daemon counts
 * them.
 */
#include <limits.h>

#include "base/cleanup.h"
#include "guard/memory.h"

CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
    __typeof__(&cuMemGetInfo_v2) real = REAL(cuMemGetInfo_v2);
    struct credit_view view;
    size_t really_free, really_total;
    CUresult r;
    int share;

    OR_NOT_SUPPORTED(real);
    if (!free || !total)
        return real(free, total);
    r = real(&really_free, &really_total);
    if (r != CUDA_SUCCESS)
        return r;
    share = memory_share_here();
    *free = really_free;
    *total = really_total;
    if (share < 0 || !credit_view(share, &view))
        return r;
    *total = MIN(really_total, (size_t)view.limit_bytes);
    *free = view.limit_bytes > view.held_bytes ? view.limit_bytes - view.held_bytes : 0;
    *free = MIN(*free, *total);
    return r;
}

CUresult cuMemGetInfo(unsigned int *free, unsigned int *total) {
    __typeof__(&cuMemGetInfo) real = REAL(cuMemGetInfo);
    size_t large_free, large_total;
    CUresult r;

    OR_NOT_SUPPORTED(real);
    r = real(free, total);
    if (r != CUDA_SUCCESS || !free || !total ||
        cuMemGetInfo_v2(&large_free, &large_total) != CUDA_SUCCESS)
        return r;
    *free = (unsigned)MIN(large_free, (size_t)UINT_MAX);
    *total = (unsigned)MIN(large_total, (size_t)UINT_MAX);
    return r;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev) {
    __typeof__(&cuDeviceTotalMem_v2) real = REAL(cuDeviceTotalMem_v2);
    CUresult r;
    int share;

    OR_NOT_SUPPORTED(real);
    r = real(bytes, dev);
    if (r != CUDA_SUCCESS || !bytes)
        return r;
    share = memory_share_of(dev);
    if (share >= 0)
        *bytes = MIN(*bytes, (size_t)credit_limit(share));
    return r;
}

CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice dev) {
    __typeof__(&cuDeviceTotalMem) real = REAL(cuDeviceTotalMem);
    CUresult r;
    int share;

    OR_NOT_SUPPORTED(real);
    r = real(bytes, dev);
    if (r != CUDA_SUCCESS || !bytes)
        return r;
    share = memory_share_of(dev);
    if (share >= 0)
        *bytes = (unsigned)MIN((uint64_t)*bytes, credit_limit(share));
    return r;
}
