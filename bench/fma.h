/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Fma: as many multiply-adds of f32 as a product has, in registers and in no order: less time no
 * program takes for it on this CPU, whatever its caches and kernels.
 */
#include <stdbool.h>
#include <stdint.h>

/* False: no vector unit that is known here. */
bool fma_run(uint64_t n_fmas);
