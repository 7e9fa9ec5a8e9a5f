/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Blas: OpenBLAS, if the machine has it.
 *
 * The library is not linked, but opened when the first product is planned: so liballot also works
 * without it, and programs that multiply nothing do not get its threads. Any thread.
 */
#include <stdbool.h>
#include <stdint.h>

#include "libclient/kernels/loops.h"

/* Whether it is there; the first call looks for it. */
bool blas_available(void);

/*
 * A product of f32 or f64 on the calling thread only. OpenBLAS's thread count applies to the whole
 * process: the first blas_enter() sets it to 1, and the last blas_leave() restores it. False:
 * OpenBLAS cannot do it, because the sizes exceed its integers or neither step of a matrix is 1;
 * nothing was done.
 */
void blas_enter(void);
void blas_leave(void);
bool blas_gemm(enum dtype dtype, const struct gemm *gemm, void *c, const void *a, const void *b);
