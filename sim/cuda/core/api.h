/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The driver API for a library that defines it: every version of every prototype, including the
 * per-thread ones, all exported. The compiler thus checks our definitions against NVIDIA's own
 * header; no name is a macro for another.
 */
#define __CUDA_API_VERSION_INTERNAL        1
#define __CUDA_API_PUSH_VISIBILITY_DEFAULT 1
#include <cuda.h>
#pragma GCC visibility push(default)
#include <cudaProfiler.h>
#pragma GCC visibility pop
