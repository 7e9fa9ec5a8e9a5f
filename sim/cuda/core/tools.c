/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tools: calls of profilers, debuggers and loaders. The simulator offers them nothing and
 * answers as a driver that lacks the feature.
 */
#include <stdio.h>
#include <string.h>

#include "sim/cuda/core/context.h"

CUresult cuProfilerInitialize(const char *configFile, const char *outputFile,
                              CUoutput_mode outputMode) {
    ENTER(-1);
    return CUDA_ERROR_NOT_SUPPORTED; /* as every driver since CUDA 12 */
}

CUresult cuProfilerStart(void) {
    struct context *context;

    ENTER_CONTEXT(context);
    return CUDA_SUCCESS; /* no profiler listens: the real driver answers the same then */
}

CUresult cuProfilerStop(void) {
    struct context *context;

    ENTER_CONTEXT(context);
    return CUDA_SUCCESS;
}

CUresult cuGetExportTable(const void **ppExportTable, const CUuuid *pExportTableId) {
    ENTER(-1);
    if (!ppExportTable || !pExportTableId)
        return CUDA_ERROR_INVALID_VALUE;
    *ppExportTable = NULL;
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode) {
    ENTER(-1);
    if (!mode)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

/* Core dumps are never made; settings are only kept, to be read again. */
static struct {
    bool enabled, trigger, light, user;
    char file[1024], pipe[1024];
} coredump = { .trigger = true };

static CUresult coredump_get(CUcoredumpSettings attribute, void *value, size_t *size) {
    const char *text = NULL;
    bool flag = false;

    if (!size)
        return CUDA_ERROR_INVALID_VALUE;
    switch ((int)attribute) {
    case CU_COREDUMP_ENABLE_ON_EXCEPTION:
        flag = coredump.enabled;
        break;
    case CU_COREDUMP_TRIGGER_HOST:
        flag = coredump.trigger;
        break;
    case CU_COREDUMP_LIGHTWEIGHT:
        flag = coredump.light;
        break;
    case CU_COREDUMP_ENABLE_USER_TRIGGER:
        flag = coredump.user;
        break;
    case CU_COREDUMP_FILE:
        text = coredump.file;
        break;
    case CU_COREDUMP_PIPE:
        text = coredump.pipe;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!value) {
        *size = text ? strlen(text) + 1 : sizeof(flag);
        return CUDA_SUCCESS;
    }
    if (text) {
        snprintf(value, *size, "%s", text);
        *size = strlen(text) + 1;
    } else {
        if (*size < sizeof(flag))
            return CUDA_ERROR_INVALID_VALUE;
        memcpy(value, &flag, sizeof(flag));
    }
    return CUDA_SUCCESS;
}

static CUresult coredump_set(CUcoredumpSettings attribute, const void *value, const size_t *size) {
    if (!value || !size || !*size)
        return CUDA_ERROR_INVALID_VALUE;
    switch ((int)attribute) {
    case CU_COREDUMP_ENABLE_ON_EXCEPTION:
        memcpy(&coredump.enabled, value, sizeof(bool));
        return CUDA_SUCCESS;
    case CU_COREDUMP_TRIGGER_HOST:
        memcpy(&coredump.trigger, value, sizeof(bool));
        return CUDA_SUCCESS;
    case CU_COREDUMP_LIGHTWEIGHT:
        memcpy(&coredump.light, value, sizeof(bool));
        return CUDA_SUCCESS;
    case CU_COREDUMP_ENABLE_USER_TRIGGER:
        memcpy(&coredump.user, value, sizeof(bool));
        return CUDA_SUCCESS;
    case CU_COREDUMP_FILE:
    case CU_COREDUMP_PIPE: {
        char *text = attribute == CU_COREDUMP_FILE ? coredump.file : coredump.pipe;

        if (*size > sizeof(coredump.file))
            return CUDA_ERROR_INVALID_VALUE;
        snprintf(text, sizeof(coredump.file), "%.*s", (int)*size, (const char *)value);
        return CUDA_SUCCESS;
    }
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuCoredumpGetAttributeGlobal(CUcoredumpSettings attrib, void *value, size_t *size) {
    ENTER(-1);
    DRIVER_LOCKED();
    return coredump_get(attrib, value, size);
}

CUresult cuCoredumpSetAttributeGlobal(CUcoredumpSettings attrib, void *value, size_t *size) {
    ENTER(-1);
    DRIVER_LOCKED();
    return coredump_set(attrib, value, size);
}

CUresult cuCoredumpGetAttribute(CUcoredumpSettings attrib, void *value, size_t *size) {
    struct context *context;

    ENTER_CONTEXT(context);
    DRIVER_LOCKED();
    return coredump_get(attrib, value, size);
}

CUresult cuCoredumpSetAttribute(CUcoredumpSettings attrib, void *value, size_t *size) {
    struct context *context;

    ENTER_CONTEXT(context);
    DRIVER_LOCKED();
    return coredump_set(attrib, value, size);
}
