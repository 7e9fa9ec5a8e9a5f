/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products, optimizers and random numbers on a GPU. Products go to cuBLAS if it is there and has
 * the type, else to a kernel of our own. cuBLAS stores matrices by columns, so we ask it for the
 * transposed product of the transposed matrices, which have the same layout as ours by rows.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "libclient/graph/graph.h"
#include "libclient/kernels/cpu_each.h"
#include "libclient/kernels/cpu_matmul.h"
#include "libclient/kernels/gpu_code.h"

/* ---- Products -------------------------------------------------------------------------------- */

struct gpu_product {
    struct gpu *gpu;
    CUfunction function; /* NULL: by cuBLAS */
    unsigned blocks, blocks_y;
    struct cpu_matmul *matmul;
    enum dtype dtype;
    size_t bytes;
    bool trans_a, trans_b;
};

static void product_free(void *state) {
    struct gpu_product *product = state;

    if (product)
        cpu_matmul_free(product->matmul);
    free(product);
}

static int by_cublas(const struct gpu_product *product, void *c, const void *a, const void *b) {
    const struct gemm *gemm = &product->matmul->gemm;
    const int m = (int)gemm->m, n = (int)gemm->n, k = (int)gemm->k;
    const cublasOperation_t of_a = product->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N,
                            of_b = product->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int lda = product->trans_a ? m : k, ldb = product->trans_b ? k : n;
    const struct cublas *cublas = product->gpu->cublas;
    const float one = 1, zero = 0;
    const double one_double = 1, zero_double = 0;
    struct allot_error err;
    int r;

    if (product->dtype == DTYPE_F32)
        r = cublas_sgemm(cublas, &err, product->gpu->blas, of_b, of_a, n, m, k, &one, b, ldb, a,
                         lda, &zero, c, n);
    else if (product->dtype == DTYPE_F64)
        r = cublas_dgemm(cublas, &err, product->gpu->blas, of_b, of_a, n, m, k, &one_double, b, ldb,
                         a, lda, &zero_double, c, n);
    else {
        const cudaDataType type = product->dtype == DTYPE_F16 ? CUDA_R_16F : CUDA_R_16BF;

        r = cublas_gemm_ex(cublas, &err, product->gpu->blas, of_b, of_a, n, m, k, &one, b, type,
                           ldb, a, type, lda, &zero, c, type, n, CUBLAS_COMPUTE_32F,
                           CUBLAS_GEMM_DEFAULT);
    }
    return r < 0 ? kernel_fail(r, "%s", err.text) : 0;
}

static int run_product(const struct kernel_run *run) {
    const struct gpu_product *product = run->state;
    const struct cpu_matmul *matmul = product->matmul;
    const struct gemm *gemm = &matmul->gemm;
    int r = 0;

    for (int64_t batch = 0; r == 0 && batch < matmul->n_batches; batch++) {
        const int64_t a = matmul->a_offset ? matmul->a_offset[batch] : 0,
                      b = matmul->b_offset ? matmul->b_offset[batch] : 0,
                      c = batch * gemm->m * gemm->n, bytes = (int64_t)product->bytes;
        struct gpu_gemm args = { .c = (char *)run->outputs[0] + c * bytes,
                                 .a = (const char *)run->inputs[0] + a * bytes,
                                 .b = (const char *)run->inputs[1] + b * bytes,
                                 .m = gemm->m,
                                 .n = gemm->n,
                                 .k = gemm->k,
                                 .a_row = gemm->a_row,
                                 .a_column = gemm->a_column,
                                 .b_row = gemm->b_row,
                                 .b_column = gemm->b_column };

        r = product->function ? gpu_code_launch(product->gpu, run, product->function,
                                                product->blocks, product->blocks_y, &args)
                              : by_cublas(product, args.c, args.a, args.b);
    }
    return r;
}

static int prepare_product(struct kernel_plan *plan, struct allot_error *err) {
    const bool batch = strcmp(plan->kernel->op, "MatMul") != 0;
    struct kernel_plan host = *plan;
    struct gpu_product *product;
    const struct gemm *gemm;
    int r;

    if (shape_count(&plan->outputs[0].shape) == 0) {
        plan->run = cpu_each_nothing;
        return 0;
    }
    product = calloc(1, sizeof(*product));
    plan->state = product;
    plan->state_free = product_free;
    if (!product)
        return error_set(err, -ENOMEM, "no host memory for the plan of a product");
    product->gpu = plan->gpu;
    product->dtype = plan->outputs[0].dtype;
    product->bytes = dtype_bytes(product->dtype);
    product->trans_a = node_bool(plan->node, batch ? "adj_x" : "transpose_a");
    product->trans_b = node_bool(plan->node, batch ? "adj_y" : "transpose_b");
    r = cpu_matmul_lay_out(&product->matmul, &host, product->trans_a, product->trans_b, err);
    if (r < 0) {
        cpu_matmul_free(host.state);
        return r;
    }
    gemm = &product->matmul->gemm;
    plan->run = run_product;
    plan->cost = (uint64_t)(gemm->m * gemm->n) * (uint64_t)gemm->k / 1000;
    if (plan->gpu->cublas && dtype_kind(product->dtype) == DTYPE_KIND_FLOAT && gemm->k > 0 &&
        gemm->m <= INT_MAX && gemm->n <= INT_MAX && gemm->k <= INT_MAX &&
        (product->bytes != 2 || plan->gpu->cublas->calls.gemm_ex))
        return 0;
    product->blocks = (unsigned)((gemm->n + 15) / 16);
    product->blocks_y = (unsigned)((gemm->m + 15) / 16);
    if ((gemm->m + 15) / 16 > 65535 || (gemm->n + 15) / 16 > INT_MAX)
        return error_set(err, -EINVAL, "a product of %lld rows is more than this kernel can do",
                         (long long)gemm->m);
    return gpu_code_find(plan, GPU_train, product->dtype, "gemm", &product->function, err);
}

/* ---- Optimizers ------------------------------------------------------------------------------ */

struct gpu_optimizer {
    struct gpu *gpu;
    CUfunction function;
    unsigned blocks;
    uint32_t n_variables, n_numbers, gradient;
    uint8_t numbers[6]; /* inputs */
    struct gpu_apply args;
};

static int run_apply(const struct kernel_run *run) {
    const struct gpu_optimizer *optimizer = run->state;
    struct gpu_apply args = optimizer->args;

    for (uint32_t i = 0; i < optimizer->n_variables; i++)
        args.x[i] = run->inputs[i];
    for (uint32_t i = 0; i < optimizer->n_numbers; i++)
        args.number[i] = run->inputs[optimizer->numbers[i]];
    args.gradient = run->inputs[optimizer->gradient];
    return gpu_code_launch(optimizer->gpu, run, optimizer->function, optimizer->blocks, 1, &args);
}

enum { DESCENT, MOMENTUM, ADAM };

static int prepare_apply(struct kernel_plan *plan, struct allot_error *err) {
    /* Variables; numbers, and where they come in; the gradient. */
    static const struct {
        uint8_t n_variables, n_numbers, numbers[6], gradient;
    } layouts[] = { [DESCENT] = { 1, 1, { 1 }, 2 },
                    [MOMENTUM] = { 2, 2, { 2, 4 }, 3 },
                    [ADAM] = { 3, 6, { 3, 4, 5, 6, 7, 8 }, 9 } };
    const uint32_t which = plan->kernel->which;
    struct gpu_optimizer *optimizer;

    if (shape_count(&plan->inputs[layouts[which].gradient].shape) == 0) {
        plan->run = cpu_each_nothing;
        return 0;
    }
    optimizer = calloc(1, sizeof(*optimizer));
    if (!optimizer)
        return error_set(err, -ENOMEM, "no host memory for the plan of an op");
    optimizer->gpu = plan->gpu;
    optimizer->n_variables = layouts[which].n_variables;
    optimizer->n_numbers = layouts[which].n_numbers;
    optimizer->gradient = layouts[which].gradient;
    memcpy(optimizer->numbers, layouts[which].numbers, sizeof(optimizer->numbers));
    optimizer->args.n = (uint64_t)shape_count(&plan->inputs[optimizer->gradient].shape);
    optimizer->args.nesterov = which != DESCENT && node_bool(plan->node, "use_nesterov");
    optimizer->args.wide = plan->inputs[1].dtype != plan->inputs[0].dtype;
    optimizer->blocks = gpu_code_blocks(plan->gpu, optimizer->args.n);
    plan->state = optimizer;
    plan->run = run_apply;
    return gpu_code_find(plan, GPU_train, plan->inputs[0].dtype, plan->kernel->op,
                         &optimizer->function, err);
}

/* ---- Random ---------------------------------------------------------------------------------- */

struct gpu_dice {
    struct gpu *gpu;
    CUfunction function;
    unsigned blocks;
    struct gpu_random args;
};

static int run_random(const struct kernel_run *run) {
    const struct gpu_dice *dice = run->state;
    struct gpu_random args = dice->args;

    args.d = run->outputs[0];
    args.step = run->step->number;
    return gpu_code_launch(dice->gpu, run, dice->function, dice->blocks, 1, &args);
}

static int prepare_random(struct kernel_plan *plan, struct allot_error *err) {
    const bool uniform = strcmp(plan->kernel->op, "RandomUniform") == 0;
    const enum dtype dtype = plan->outputs[0].dtype;
    struct gpu_dice *dice;

    if (shape_count(&plan->outputs[0].shape) == 0) {
        plan->run = cpu_each_nothing;
        return 0;
    }
    dice = calloc(1, sizeof(*dice));
    if (!dice)
        return error_set(err, -ENOMEM, "no host memory for the plan of an op");
    dice->gpu = plan->gpu;
    dice->args.n = (uint64_t)shape_count(&plan->outputs[0].shape);
    dice->args.seed = plan->random_seed;
    dice->args.bits = dtype == DTYPE_F16 ? 11 : dtype == DTYPE_BF16 ? 8 : 24;
    dice->args.a = node_float(plan->node, uniform ? "minimum" : "mean");
    dice->args.b = node_float(plan->node, uniform ? "maximum" : "stddev");
    dice->blocks = gpu_code_blocks(plan->gpu, dice->args.n);
    plan->state = dice;
    plan->run = run_random;
    return gpu_code_find(plan, GPU_train, dtype, plan->kernel->op, &dice->function, err);
}

/* ---- Rows ------------------------------------------------------------------------------------ */

#define GPU_ROW(name, how, types, ...)                                                             \
    { .op = name, .device = KERNEL_GPU, .dtypes = types, .prepare = how, __VA_ARGS__ }

static const struct kernel rows[] = {
    GPU_ROW("MatMul", prepare_product, DTYPES_GPU_PRODUCT),
    GPU_ROW("BatchMatMul", prepare_product, DTYPES_GPU_PRODUCT),
    GPU_ROW("ApplyGradientDescent", prepare_apply, DTYPES_FLOAT, .which = DESCENT, .writes = 1),
    GPU_ROW("ApplyMomentum", prepare_apply, DTYPES_FLOAT, .which = MOMENTUM, .writes = 3),
    GPU_ROW("ApplyAdam", prepare_apply, DTYPES_FLOAT, .which = ADAM, .writes = 7),
    GPU_ROW("RandomUniform", prepare_random, DTYPES_FLOAT, .host_inputs = 1),
    GPU_ROW("RandomNormal", prepare_random, DTYPES_FLOAT, .host_inputs = 1),
    GPU_ROW("TruncatedNormal", prepare_random, DTYPES_FLOAT, .host_inputs = 1),
};

const struct kernel_family kernel_family_gpu_train = { rows, ELEMENTSOF(rows), NULL };
