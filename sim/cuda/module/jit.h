/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * JIT: the program's options for the compiler of device code, and its logs.
 *
 * Options that only make code faster are accepted and change nothing. The logs are the program's
 * buffers; they always end with a NUL. Option values that are results are written by jit_finish().
 */
#include <stddef.h>
#include <stdint.h>

#include "sim/cuda/core/api.h"

struct jit_log {
    char *at; /* the program's; NULL: it wants none */
    size_t bytes, used;
    void **used_value; /* where to write how much was used; NULL: nowhere */
};

struct jit {
    struct jit_log info, error;
    void **wall_time; /* where to write the milliseconds; NULL: nowhere */
    uint64_t started_ns;
    unsigned max_registers; /* 0: no limit */
};

/* Read options. CUDA_ERROR_INVALID_VALUE: one is unknown or impossible. */
CUresult jit_read(struct jit *ret, unsigned n, const CUjit_option *options, void **values);
/* Read options that are added to those before. */
CUresult jit_read_more(struct jit *jit, unsigned n, const CUjit_option *options, void **values);
/* Write to the program's logs. `jit` may be NULL. A line ends with "\n". */
void jit_info(struct jit *jit, const char *format, ...) __attribute__((format(printf, 2, 3)));
void jit_error(struct jit *jit, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Write the values that are results. */
void jit_finish(struct jit *jit);
