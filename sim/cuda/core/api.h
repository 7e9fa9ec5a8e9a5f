/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The driver API as a library that defines it sees it: every version of every prototype, also the
 * per-thread ones, all visible from outside. What we define is thereby checked against NVIDIA's
 * own header; no name is a macro for another.
 */
#define __CUDA_API_VERSION_INTERNAL        1
#define __CUDA_API_PUSH_VISIBILITY_DEFAULT 1
#include <cuda.h>
#pragma GCC visibility push(default)
#include <cudaProfiler.h>
#pragma GCC visibility pop
