/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Loader: what tests call of loader.c, and of the libraries behind it, libs.c. One thread.
 */
#pragma GCC visibility push(default)
#define __CUDA_API_VERSION_INTERNAL   1 /* no name is a macro for another */
#define NVML_NO_UNVERSIONED_FUNC_DEFS 1
#include <cuda.h>
#include <nvml.h>

extern unsigned loader_n_calls; /* that had to ask for their function */
/* The loader's own calls of cuInit, cuMemAlloc_v2 and nvmlDeviceGetCount_v2. */
CUresult loader_init(void);
CUresult loader_alloc(CUdeviceptr *pointer, size_t bytes);
nvmlReturn_t loader_count(unsigned *n);

extern unsigned libs_n_calls;
/* What the library itself is told for a name. */
void *libs_ask(void *handle, const char *name);
#pragma GCC visibility pop
