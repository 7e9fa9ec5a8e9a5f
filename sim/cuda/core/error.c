/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Error: the names and sentences of every CUresult.
 */
#include <stddef.h>

#include "sim/cuda/core/api.h"

CUresult cuGetErrorName(CUresult error, const char **pStr) {
    if (!pStr)
        return CUDA_ERROR_INVALID_VALUE;
    switch (error) {
#define ERROR(name, text)                                                                          \
    case name:                                                                                     \
        *pStr = #name;                                                                             \
        return CUDA_SUCCESS;
#include "sim/cuda/core/errors.def"
#undef ERROR
    default:
        *pStr = NULL;
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuGetErrorString(CUresult error, const char **pStr) {
    if (!pStr)
        return CUDA_ERROR_INVALID_VALUE;
    switch (error) {
#define ERROR(name, text)                                                                          \
    case name:                                                                                     \
        *pStr = text;                                                                              \
        return CUDA_SUCCESS;
#include "sim/cuda/core/errors.def"
#undef ERROR
    default:
        *pStr = NULL;
        return CUDA_ERROR_INVALID_VALUE;
    }
}
