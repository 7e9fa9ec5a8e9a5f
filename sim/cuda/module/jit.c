/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/cuda/module/jit.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "sim/box/box.h"

static CUresult read_one(struct jit *jit, CUjit_option option, void **value) {
    const uintptr_t number = (uintptr_t)*value;

    switch (option) {
    case CU_JIT_INFO_LOG_BUFFER:
        jit->info.at = *value;
        return CUDA_SUCCESS;
    case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        jit->info.bytes = (unsigned)number;
        jit->info.used_value = value;
        return CUDA_SUCCESS;
    case CU_JIT_ERROR_LOG_BUFFER:
        jit->error.at = *value;
        return CUDA_SUCCESS;
    case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        jit->error.bytes = (unsigned)number;
        jit->error.used_value = value;
        return CUDA_SUCCESS;
    case CU_JIT_WALL_TIME:
        jit->wall_time = value;
        return CUDA_SUCCESS;
    case CU_JIT_MAX_REGISTERS:
        jit->max_registers = (unsigned)number;
        return CUDA_SUCCESS;
    case CU_JIT_OPTIMIZATION_LEVEL:
        return (unsigned)number <= 4 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_JIT_LTO:
        return CUDA_SUCCESS; /* its inputs are refused where they come */
    default:
        return (unsigned)option < CU_JIT_NUM_OPTIONS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult jit_read_more(struct jit *jit, unsigned n, const CUjit_option *options, void **values) {
    if (n && (!options || !values))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < n; i++) {
        CUresult r = read_one(jit, options[i], &values[i]);

        if (r != CUDA_SUCCESS)
            return r;
    }
    for (struct jit_log *log = &jit->info;; log = &jit->error) {
        if (!log->at || log->used >= log->bytes)
            log->used = 0;
        if (log->at && log->bytes && log->used == 0)
            log->at[0] = '\0';
        if (log == &jit->error)
            return CUDA_SUCCESS;
    }
}

CUresult jit_read(struct jit *ret, unsigned n, const CUjit_option *options, void **values) {
    *ret = (struct jit){ .started_ns = box_now_ns() };
    return jit_read_more(ret, n, options, values);
}

__attribute__((format(printf, 2, 0))) static void say(struct jit_log *log, const char *format,
                                                      va_list arguments) {
    int n;

    if (!log->at || log->bytes == 0)
        return;
    n = vsnprintf(log->at + log->used, log->bytes - log->used, format, arguments);
    if (n > 0)
        log->used = MIN(log->used + (size_t)n, log->bytes - 1);
}

void jit_info(struct jit *jit, const char *format, ...) {
    va_list arguments;

    if (!jit)
        return;
    va_start(arguments, format);
    say(&jit->info, format, arguments);
    va_end(arguments);
}

void jit_error(struct jit *jit, const char *format, ...) {
    va_list arguments;

    if (!jit)
        return;
    va_start(arguments, format);
    say(&jit->error, format, arguments);
    va_end(arguments);
}

void jit_finish(struct jit *jit) {
    float milliseconds = (float)(box_now_ns() - jit->started_ns) / 1e6F;

    if (jit->info.used_value)
        *jit->info.used_value = (void *)(jit->info.at ? jit->info.used : 0);
    if (jit->error.used_value)
        *jit->error.used_value = (void *)(jit->error.at ? jit->error.used : 0);
    if (jit->wall_time)
        memcpy(jit->wall_time, &milliseconds, sizeof(milliseconds));
}
