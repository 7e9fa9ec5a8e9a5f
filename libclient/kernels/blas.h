/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Blas: OpenBLAS, if the machine has it.
 *
 * It is opened when the first product is planned, not linked: liballot loads and runs where it is
 * missing, and programs that multiply nothing do not get its threads. Any thread.
 */
#include <stdbool.h>
#include <stdint.h>

#include "libclient/kernels/loops.h"

/* Whether it is there; the first call looks for it. */
bool blas_available(void);

/*
 * A product of f32 or f64 on the calling thread alone. OpenBLAS's thread count belongs to the whole
 * process: it is 1 from the first blas_enter() to the last blas_leave(), and then what it was.
 * False: the sizes are beyond its integers, or neither step of a matrix is 1; nothing was done.
 */
void blas_enter(void);
void blas_leave(void);
bool blas_gemm(enum dtype dtype, const struct gemm *gemm, void *c, const void *a, const void *b);
