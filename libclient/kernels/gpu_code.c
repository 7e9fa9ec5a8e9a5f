/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/kernels/gpu_code.h"

#include <errno.h>
#include <stdio.h>

#include "base/error.h"

#define X(family, type) extern const struct gpu_code gpu_code_##family##_##type;
GPU_CODES(X)
#undef X

static const struct gpu_code *const codes[N_GPU_FAMILIES][N_DTYPES] = {
#define X(family, type) [GPU_##family][DTYPE_##type] = &gpu_code_##family##_##type,
    GPU_CODES(X)
#undef X
};

int gpu_code_find(const struct kernel_plan *plan, enum gpu_family family, enum dtype dtype,
                  const char *name, CUfunction *ret, struct allot_error *err) {
    const struct gpu_code *code = codes[family][family == GPU_move ? DTYPE_BOOL : dtype];

    if (!code)
        return error_set(err, -ENOENT, "GPUs have no kernel '%s' for %s", name, dtype_name(dtype));
    return gpu_function(plan->gpu, code, name, ret, err);
}

unsigned gpu_code_blocks(const struct gpu *gpu, uint64_t n) {
    const uint64_t blocks = (n + GPU_THREADS - 1) / GPU_THREADS,
                   enough = (uint64_t)(gpu->multiprocessors > 0 ? gpu->multiprocessors : 1) * 16;

    return (unsigned)(blocks < 1 ? 1 : blocks < enough ? blocks : enough);
}

int gpu_code_launch(const struct gpu *gpu, const struct kernel_run *run, CUfunction function,
                    unsigned blocks, unsigned blocks_y, void *args) {
    struct allot_error err;
    int r = cuda_launch_kernel(gpu->cuda, &err, function, blocks, blocks_y, 1, GPU_THREADS, 1, 1, 0,
                               run->step->stream, (void *[]){ args }, NULL);

    return r < 0 ? kernel_fail(r, "%s", err.text) : 0;
}
