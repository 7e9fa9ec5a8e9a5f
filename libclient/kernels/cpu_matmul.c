/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of matrices: one, or many whose outer dimensions broadcast as in NumPy.
 *
 * Small ones use loops of our own. Larger ones of floats use tiles if the CPU has AVX-512;
 * otherwise floats and doubles use OpenBLAS, one call per piece of the result. The pool takes the
 * pieces. The shape alone decides how they are cut, never the number of threads, so that nothing
 * depends on it. A pool without threads makes one call for everything, which is fastest; but not
 * with OpenBLAS if the result must be deterministic. 16-bit floats are converted to floats once, at
 * the beginning.
 */
#include "libclient/kernels/cpu_matmul.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "libclient/core/pool.h"
#include "libclient/graph/graph.h"
#include "libclient/kernels/blas.h"
#include "libclient/kernels/cpu_each.h"
#include "libclient/kernels/family.h"

/*
 * A piece of the result has this many rows and all columns or, if there are too few rows for two
 * pieces, this many columns. OpenBLAS packs both matrices for each call: pieces that are cut both
 * ways cost a sixth more than the whole product, these a few per cent.
 */
enum { PIECE = 256 };
/* Up to this many multiplications may be one call, which cannot be cancelled: a tenth of a second.
 */
static const double whole_max = 4e9;
/* Below this many multiplications, calling BLAS costs more than the product itself. */
enum { SMALL = 16 * 16 * 16 };
/* With fewer rows or columns most of a tile is empty, and b is packed for little. */
enum { TILED_ROWS = 4, TILED_COLUMNS = 8 };

struct matmul_work {
    const struct cpu_matmul *matmul;
    char *c;
    const char *a, *b;
    const atomic_bool *cancelled;
    const float *rate; /* of struct gemm */
};

/* ---- Run ------------------------------------------------------------------------------------- */

static void multiply(const struct cpu_matmul *matmul, const struct gemm *gemm, void *c,
                     const void *a, const void *b) {
    if (!matmul->by_blas || !blas_gemm(matmul->dtype, gemm, c, a, b))
        matmul->own(gemm, c, a, b);
}

static bool is_cancelled(const struct matmul_work *work) {
    return work->cancelled && atomic_load_explicit(work->cancelled, memory_order_relaxed);
}

static void run_pieces(void *userdata, size_t begin, size_t end) {
    const struct matmul_work *work = userdata;
    const struct cpu_matmul *matmul = work->matmul;
    const int64_t per_batch = matmul->n_rows * matmul->n_columns;
    const int64_t bytes = (int64_t)matmul->bytes;

    for (size_t piece = begin; piece < end && !is_cancelled(work); piece++) {
        const int64_t batch = (int64_t)piece / per_batch, at = (int64_t)piece % per_batch;
        const int64_t i = at / matmul->n_columns * matmul->rows,
                      j = at % matmul->n_columns * matmul->columns;
        struct gemm gemm = matmul->gemm;
        int64_t a = matmul->a_offset ? matmul->a_offset[batch] : 0,
                b = matmul->b_offset ? matmul->b_offset[batch] : 0,
                c = batch * gemm.m * gemm.n + i * gemm.c_row + j;

        a += i * gemm.a_row;
        b += j * gemm.b_column;
        gemm.m = MIN(gemm.m - i, matmul->rows);
        gemm.n = MIN(gemm.n - j, matmul->columns);
        gemm.rate = work->rate;
        multiply(matmul, &gemm, work->c + c * bytes, work->a + a * bytes, work->b + b * bytes);
    }
}

static void run_batches(const struct cpu_matmul *matmul, struct matmul_work *work,
                        const struct kernel_run *run) {
    const size_t n = (size_t)(matmul->n_batches * matmul->n_rows * matmul->n_columns);
    const bool alone = !matmul->pooled || pool_n_threads(run->pool) == 0;
    struct gemm gemm = matmul->gemm;

    gemm.rate = work->rate;

    if (matmul->by_blas)
        blas_enter();
    if (!alone)
        pool_for(run->pool, n, 1, run_pieces, work);
    else if ((run->step->deterministic && !matmul->by_tiles) || !matmul->whole)
        run_pieces(work, 0, n);
    else
        multiply(matmul, &gemm, work->c, work->a, work->b);
    if (matmul->by_blas)
        blas_leave();
}

static int run_tiny(const struct kernel_run *run) {
    const struct cpu_matmul *matmul = run->state;

    matmul->own(&matmul->gemm, run->outputs[0], run->inputs[0], run->inputs[1]);
    return 0;
}

static int run_any(const struct kernel_run *run) {
    const struct cpu_matmul *matmul = run->state;
    struct matmul_work work = { matmul,         run->outputs[0],      run->inputs[0],
                                run->inputs[1], run->step->cancelled, NULL };

    run_batches(matmul, &work, run);
    return 0;
}

/* Never cancelled: a variable takes a whole step or none. */
static int run_descend(const struct kernel_run *run) {
    const struct cpu_matmul *matmul = run->state;
    struct matmul_work work = { .matmul = matmul,
                                .c = run->inputs[0],
                                .rate = run->inputs[1],
                                .a = run->inputs[2],
                                .b = run->inputs[3] };

    run_batches(matmul, &work, run);
    return 0;
}

struct convert {
    const struct cpu_matmul *matmul;
    float *floats;
    uint16_t *halves;
    bool narrow;
    size_t n;
};

enum { CONVERT_BLOCK = 8192 };

static void convert_blocks(void *userdata, size_t begin, size_t end) {
    const struct convert *convert = userdata;

    for (size_t i = begin; i < end; i++) {
        const size_t at = i * CONVERT_BLOCK, n = MIN(convert->n - at, (size_t)CONVERT_BLOCK);

        if (convert->narrow)
            loops_get()->narrow(convert->halves + at, convert->floats + at, n,
                                convert->matmul->half);
        else
            loops_get()->widen(convert->floats + at, convert->halves + at, n,
                               convert->matmul->half);
    }
}

static void convert_all(const struct cpu_matmul *matmul, struct thread_pool *pool, float *floats,
                        void *halves, int64_t n, bool narrow) {
    struct convert convert = { matmul, floats, halves, narrow, (size_t)n };

    pool_for(pool, ((size_t)n + CONVERT_BLOCK - 1) / CONVERT_BLOCK, 4, convert_blocks, &convert);
}

static int run_half(const struct kernel_run *run) {
    const struct cpu_matmul *matmul = run->state;
    const int64_t c_count = matmul->n_batches * matmul->gemm.m * matmul->gemm.n;
    float *a = run->scratch, *b = a + matmul->a_count, *c = b + matmul->b_count;
    struct matmul_work work = {
        matmul, (char *)c, (const char *)a, (const char *)b, run->step->cancelled, NULL
    };

    convert_all(matmul, run->pool, a, run->inputs[0], matmul->a_count, false);
    convert_all(matmul, run->pool, b, run->inputs[1], matmul->b_count, false);
    run_batches(matmul, &work, run);
    convert_all(matmul, run->pool, c, run->outputs[0], c_count, true);
    return 0;
}

/* ---- Plan ------------------------------------------------------------------------------------ */

void cpu_matmul_free(void *state) {
    struct cpu_matmul *matmul = state;

    if (matmul) {
        free(matmul->a_offset);
        free(matmul->b_offset);
    }
    free(matmul);
}

static void describe(struct cpu_matmul *matmul, const struct kernel_plan *plan, bool trans_a,
                     bool trans_b) {
    const struct shape *a = &plan->inputs[0].shape, *b = &plan->inputs[1].shape;
    const int64_t a_rows = a->dims[a->rank - 2], a_columns = a->dims[a->rank - 1],
                  b_rows = b->dims[b->rank - 2], b_columns = b->dims[b->rank - 1];
    struct gemm *gemm = &matmul->gemm;

    gemm->m = trans_a ? a_columns : a_rows;
    gemm->k = trans_a ? a_rows : a_columns;
    gemm->n = trans_b ? b_rows : b_columns;
    gemm->a_row = trans_a ? 1 : a_columns;
    gemm->a_column = trans_a ? a_columns : 1;
    gemm->b_row = trans_b ? 1 : b_columns;
    gemm->b_column = trans_b ? b_columns : 1;
    gemm->c_row = gemm->n;
    matmul->a_count = shape_count(a);
    matmul->b_count = shape_count(b);
}

/* Where the matrices of each batch begin. */
static int stretch_batches(struct cpu_matmul *matmul, const struct kernel_plan *plan) {
    const struct shape *output = &plan->outputs[0].shape;
    int64_t *offsets[2];

    for (int i = 0; i < output->rank - 2; i++)
        matmul->n_batches *= output->dims[i];
    if (matmul->n_batches <= 1)
        return 0;
    for (int k = 0; k < 2; k++) {
        const struct shape *input = &plan->inputs[k].shape;
        const int shift = output->rank - input->rank;

        offsets[k] = calloc((size_t)matmul->n_batches, sizeof(int64_t));
        *(k ? &matmul->b_offset : &matmul->a_offset) = offsets[k];
        if (!offsets[k])
            return -ENOMEM;
        for (int64_t batch = 0; batch < matmul->n_batches; batch++) {
            int64_t rest = batch,
                    step = input->dims[input->rank - 1] * input->dims[input->rank - 2];

            for (int i = output->rank - 2; i-- > shift; rest /= output->dims[i]) {
                if (input->dims[i - shift] > 1)
                    offsets[k][batch] += rest % output->dims[i] * step;
                step *= input->dims[i - shift];
            }
        }
    }
    return 0;
}

int cpu_matmul_lay_out(struct cpu_matmul **ret, struct kernel_plan *plan, bool trans_a,
                       bool trans_b, struct allot_error *err) {
    const enum dtype dtype = plan->outputs[0].dtype;
    struct cpu_matmul *matmul = calloc(1, sizeof(*matmul));

    plan->state = matmul;
    plan->state_free = cpu_matmul_free;
    if (!matmul)
        return error_set(err, -ENOMEM, "no host memory for the plan of a product");
    matmul->half = dtype == DTYPE_F16 || dtype == DTYPE_BF16 ? dtype : DTYPE_NONE;
    matmul->dtype = matmul->half ? DTYPE_F32 : dtype;
    matmul->bytes = dtype_bytes(matmul->dtype);
    matmul->n_batches = 1;
    describe(matmul, plan, trans_a, trans_b);
    if (stretch_batches(matmul, plan) < 0)
        return error_set(err, -ENOMEM, "no host memory for the plan of a product");
    *ret = matmul;
    return 0;
}

static void divide(struct cpu_matmul *matmul, struct kernel_plan *plan) {
    const struct gemm *gemm = &matmul->gemm;
    const double work = (double)gemm->m * (double)gemm->n * (double)gemm->k;
    const bool by_rows = gemm->m >= 2 * PIECE;

    matmul->rows = by_rows ? PIECE : MAX(gemm->m, (int64_t)1);
    matmul->columns =
        by_rows ? MAX(gemm->n, (int64_t)1) : MAX(MIN(gemm->n, (int64_t)PIECE), (int64_t)1);
    matmul->n_rows = (gemm->m + matmul->rows - 1) / matmul->rows;
    matmul->n_columns = (gemm->n + matmul->columns - 1) / matmul->columns;
    matmul->by_tiles = work > SMALL && matmul->dtype == DTYPE_F32 && gemm->m >= TILED_ROWS &&
                       gemm->n >= TILED_COLUMNS && loops_get()->tiles;
    matmul->by_blas = work > SMALL && !matmul->by_tiles &&
                      (matmul->dtype == DTYPE_F32 || matmul->dtype == DTYPE_F64) &&
                      blas_available();
    matmul->own = matmul->by_tiles ? loops_get()->tiles : loops_get()->gemm[matmul->dtype];
    plan->cost = (uint64_t)(work * (double)matmul->n_batches /
                            (matmul->by_tiles || matmul->by_blas ? 30 : 2));
    matmul->pooled = plan->cost > 20000;
    plan->pooled = matmul->pooled && matmul->n_batches * matmul->n_rows * matmul->n_columns > 1;
    matmul->whole = matmul->n_batches == 1 && work <= whole_max;
}

static int prepare(struct kernel_plan *plan, bool trans_a, bool trans_b, struct allot_error *err) {
    struct cpu_matmul *matmul = NULL;
    int r;

    if (shape_count(&plan->outputs[0].shape) == 0) {
        plan->run = cpu_each_nothing;
        return 0;
    }
    r = cpu_matmul_lay_out(&matmul, plan, trans_a, trans_b, err);
    if (r < 0)
        return r;
    divide(matmul, plan);
    if (matmul->half) {
        plan->scratch_bytes = sizeof(float) * (size_t)(matmul->a_count + matmul->b_count +
                                                       shape_count(&plan->outputs[0].shape));
        plan->run = run_half;
    } else {
        plan->run =
            matmul->n_batches == 1 && !matmul->by_blas && !matmul->pooled ? run_tiny : run_any;
        if (matmul->by_tiles && matmul->whole && matmul->gemm.k <= TILES_DEPTH)
            plan->descend = run_descend;
    }
    return 0;
}

static int prepare_matmul(struct kernel_plan *plan, struct allot_error *err) {
    return prepare(plan, node_bool(plan->node, "transpose_a"), node_bool(plan->node, "transpose_b"),
                   err);
}

static int prepare_batch(struct kernel_plan *plan, struct allot_error *err) {
    return prepare(plan, node_bool(plan->node, "adj_x"), node_bool(plan->node, "adj_y"), err);
}

#define DTYPES_PRODUCT (DTYPES_FLOAT | DTYPE_BIT(I32) | DTYPE_BIT(I64))

static const struct kernel rows[] = {
    { .op = "MatMul", .dtypes = DTYPES_PRODUCT, .prepare = prepare_matmul },
    { .op = "BatchMatMul", .dtypes = DTYPES_PRODUCT, .prepare = prepare_batch },
};

const struct kernel_family kernel_family_cpu_matmul = { rows, ELEMENTSOF(rows), NULL };
