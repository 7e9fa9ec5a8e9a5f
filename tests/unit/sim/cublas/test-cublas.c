/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated cuBLAS, through driver/ as the product calls it, against loops written out here. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/random.h"
#include "driver/cublas.h"
#include "sim/cublas/cublas.h"
#include "sim/half.h"
#include "tests/support/sim/box/sim_box.h"
#include "tests/support/suite.h"

struct world {
    struct sim_box sim_box;
    struct allot_error err;
    struct cuda *cuda;
    struct cublas *cublas;
    CUcontext context;
    cublasHandle_t handle;
    uint64_t random;
};

#define OK(call) ck_assert_msg((call) == 0, "%s", w.err.text)

static void open_world(struct world *ret, const struct box_spec *spec) {
    struct driver_options options;
    struct world w = { .random = 3 };

    sim_box_init(&w.sim_box, spec);
    options = driver_options_read(DRIVER_AUTO);
    OK(cuda_open(&w.cuda, &options, &w.err));
    OK(cuda_primary_ctx_retain(w.cuda, &w.err, &w.context, 0));
    OK(cuda_ctx_set_current(w.cuda, &w.err, w.context));
    OK(cublas_open(&w.cublas, w.cuda, &options, &w.err));
    OK(cublas_create(w.cublas, &w.err, &w.handle));
    *ret = w;
}

static void close_world(struct world *w) {
    ck_assert_int_eq(cublas_destroy(w->cublas, &w->err, w->handle), 0);
    cublas_close(w->cublas);
    cuda_close(w->cuda);
    sim_box_done(&w->sim_box);
}

/* Device memory with a copy of `n` bytes. */
static void *upload(struct world *w, const void *from, size_t n) {
    CUdeviceptr to;

    ck_assert_msg(cuda_mem_alloc(w->cuda, &w->err, &to, n) == 0, "%s", w->err.text);
    ck_assert_msg(cuda_copy_htod(w->cuda, &w->err, to, from, n) == 0, "%s", w->err.text);
    return (void *)to;
}

static void download(struct world *w, void *to, const void *from, size_t n) {
    ck_assert_msg(cuda_copy_dtoh(w->cuda, &w->err, to, (CUdeviceptr)from, n) == 0, "%s",
                  w->err.text);
}

static void fill(struct world *w, double *values, size_t n) {
    for (size_t i = 0; i < n; i++)
        values[i] = (double)(int64_t)(random_next(&w->random) % 17) - 8;
}

enum {
    M = 5,
    N = 7,
    K = 6,
    LD = 11,
    BATCH = 3,
    ELEMENTS = LD * LD,
};

/* IEEE half by its definition: sign, 5 bits of exponent, 10 of fraction. */
static double half_value(uint16_t half) {
    const int exponent = half >> 10 & 31, fraction = half & 1023;
    const double sign = half & 0x8000 ? -1 : 1;

    if (exponent == 31)
        return fraction ? NAN : sign * INFINITY;
    return sign * (exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24));
}

/* The nearest half, ties to even: nearbyint() counts in steps of the last place. */
static uint16_t half_nearest(double value) {
    const uint16_t sign = signbit(value) ? 0x8000 : 0;
    int exponent;
    double steps;

    if (isinf(value))
        return sign | 0x7c00;
    frexp(value, &exponent);
    exponent = MAX(exponent - 1, -14);
    steps = nearbyint(ldexp(fabs(value), 10 - exponent));
    if (steps >= 2048) {
        steps /= 2;
        exponent++;
    }
    if (exponent > 15)
        return sign | 0x7c00;
    return sign | (uint16_t)(steps < 1024 ? steps : steps - 1024 + 1024 * (exponent + 15));
}

static size_t bytes_of(cudaDataType type) {
    return type == CUDA_R_64F                         ? 8
           : type == CUDA_R_32F || type == CUDA_R_32I ? 4
           : type == CUDA_R_8I                        ? 1
                                                      : 2;
}

static void to_type(cudaDataType type, const double *from, void *to, size_t n) {
    for (size_t i = 0; i < n; i++)
        switch (type) {
        case CUDA_R_64F:
            ((double *)to)[i] = from[i];
            break;
        case CUDA_R_32F:
            ((float *)to)[i] = (float)from[i];
            break;
        case CUDA_R_32I:
            ((int32_t *)to)[i] = (int32_t)from[i];
            break;
        case CUDA_R_8I:
            ((int8_t *)to)[i] = (int8_t)from[i];
            break;
        case CUDA_R_16F:
            ((uint16_t *)to)[i] = half_nearest(from[i]);
            break;
        case CUDA_R_16BF: { /* small whole numbers: the upper half of a float is exact */
            const float value = (float)from[i];

            memcpy((uint16_t *)to + i, (const char *)&value + 2, 2);
            break;
        }
        }
}

static void from_type(cudaDataType type, const void *from, double *to, size_t n) {
    for (size_t i = 0; i < n; i++)
        switch (type) {
        case CUDA_R_64F:
            to[i] = ((const double *)from)[i];
            break;
        case CUDA_R_32F:
            to[i] = ((const float *)from)[i];
            break;
        case CUDA_R_32I:
            to[i] = ((const int32_t *)from)[i];
            break;
        case CUDA_R_16F:
            to[i] = half_value(((const uint16_t *)from)[i]);
            break;
        case CUDA_R_16BF: {
            float value = 0;

            memcpy((char *)&value + 2, (const uint16_t *)from + i, 2);
            to[i] = value;
            break;
        }
        }
}

static double at(const double *matrix, bool transposed, int row, int column) {
    return transposed ? matrix[row * LD + column] : matrix[column * LD + row];
}

static void reference(bool ta, bool tb, double alpha, const double *a, const double *b, double beta,
                      double *c) {
    for (int j = 0; j < N; j++)
        for (int i = 0; i < M; i++) {
            double sum = 0;

            for (int p = 0; p < K; p++)
                sum += at(a, ta, i, p) * at(b, tb, p, j);
            c[j * LD + i] = alpha * sum + beta * c[j * LD + i];
        }
}

/* Small whole numbers: every type that can hold the results holds them exactly. */
START_TEST(products_of_every_type_and_orientation_are_exact) {
    static const struct {
        cudaDataType ab, c;
        cublasComputeType_t compute;
        cudaDataType scale;
    } rows[] = {
        { CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUDA_R_32F },
        { CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F },
        { CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F, CUDA_R_64F },
        { CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_16F, CUDA_R_16F },
        { CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_32F, CUDA_R_32F },
        { CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUDA_R_32F },
        { CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUDA_R_32F },
        { CUDA_R_8I, CUDA_R_32I, CUBLAS_COMPUTE_32I, CUDA_R_32I },
        { CUDA_R_8I, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUDA_R_32F },
    };
    struct world w;

    open_world(&w, NULL);
    for (size_t i = 0; i < ELEMENTSOF(rows); i++)
        for (int variant = 0; variant < 8; variant++) {
            const bool ta = variant & 1, tb = variant & 2;
            const double alpha = 2, beta = variant & 4 ? -1 : 0;
            double a[ELEMENTS], b[ELEMENTS], c[ELEMENTS], got[ELEMENTS];
            unsigned char buffer[8 * ELEMENTS], scalars[2][8];
            void *da, *db, *dc;

            fill(&w, a, ELEMENTS);
            fill(&w, b, ELEMENTS);
            fill(&w, c, ELEMENTS);
            to_type(rows[i].ab, a, buffer, ELEMENTS);
            da = upload(&w, buffer, ELEMENTS * bytes_of(rows[i].ab));
            to_type(rows[i].ab, b, buffer, ELEMENTS);
            db = upload(&w, buffer, ELEMENTS * bytes_of(rows[i].ab));
            to_type(rows[i].c, c, buffer, ELEMENTS);
            dc = upload(&w, buffer, ELEMENTS * bytes_of(rows[i].c));
            to_type(rows[i].scale, &alpha, scalars[0], 1);
            to_type(rows[i].scale, &beta, scalars[1], 1);
            OK(cublas_gemm_ex(w.cublas, &w.err, w.handle, ta ? CUBLAS_OP_T : CUBLAS_OP_N,
                              tb ? CUBLAS_OP_C : CUBLAS_OP_N, M, N, K, scalars[0], da, rows[i].ab,
                              LD, db, rows[i].ab, LD, scalars[1], dc, rows[i].c, LD,
                              rows[i].compute, CUBLAS_GEMM_DEFAULT));
            download(&w, buffer, dc, ELEMENTS * bytes_of(rows[i].c));
            from_type(rows[i].c, buffer, got, ELEMENTS);
            reference(ta, tb, alpha, a, b, beta, c);
            for (int e = 0; e < ELEMENTS; e++)
                ck_assert_msg(got[e] == c[e], "row %zu variant %d element %d: %g, not %g", i,
                              variant, e, got[e], c[e]);
        }
    close_world(&w);
}
END_TEST

START_TEST(batches_by_stride_and_by_pointers_are_products_one_by_one) {
    double a[BATCH][ELEMENTS], b[BATCH][ELEMENTS], c[BATCH][ELEMENTS], got[BATCH][ELEMENTS];
    const double alpha = 1, beta = 1;
    double *pointers[3][BATCH], *da, *db, *dc;
    const double *const *dpa, *const *dpb;
    double *const *dpc;
    struct world w;

    open_world(&w, NULL);
    fill(&w, a[0], BATCH * ELEMENTS);
    fill(&w, b[0], BATCH * ELEMENTS);
    fill(&w, c[0], BATCH * ELEMENTS);
    da = upload(&w, a, sizeof(a));
    db = upload(&w, b, sizeof(b));
    dc = upload(&w, c, sizeof(c));
    for (int i = 0; i < BATCH; i++) {
        pointers[0][i] = da + i * ELEMENTS;
        pointers[1][i] = db + i * ELEMENTS;
        pointers[2][i] = dc + i * ELEMENTS;
    }
    dpa = upload(&w, pointers[0], sizeof(pointers[0]));
    dpb = upload(&w, pointers[1], sizeof(pointers[1]));
    dpc = upload(&w, pointers[2], sizeof(pointers[2]));

    OK(cublas_dgemm_strided_batched(w.cublas, &w.err, w.handle, CUBLAS_OP_N, CUBLAS_OP_N, M, N, K,
                                    &alpha, da, LD, ELEMENTS, db, LD, ELEMENTS, &beta, dc, LD,
                                    ELEMENTS, BATCH));
    OK(cublas_dgemm_batched(w.cublas, &w.err, w.handle, CUBLAS_OP_N, CUBLAS_OP_N, M, N, K, &alpha,
                            dpa, LD, dpb, LD, &beta, dpc, LD, BATCH));
    download(&w, got, dc, sizeof(got));
    for (int i = 0; i < BATCH; i++) {
        reference(false, false, 1, a[i], b[i], 1, c[i]);
        reference(false, false, 1, a[i], b[i], 1, c[i]);
        ck_assert_int_eq(memcmp(got[i], c[i], sizeof(c[i])), 0);
    }
    close_world(&w);
}
END_TEST

START_TEST(vectors_with_strides_and_scalars_on_either_side) {
    const float x[6] = { 1, -2, 3, -4, 5, -6 }, y[6] = { 1, 1, 1, 1, 1, 1 };
    const float a[6] = { 1, 2, 3, 4, 5, 6 }; /* 2 × 3 */
    float two = 2, one = 1, zero = 0, got[6], dot = 0, norm = 0, *dx, *dy, *da, *dtwo, *ddot;
    struct world w;

    open_world(&w, NULL);
    dx = upload(&w, x, sizeof(x));
    dy = upload(&w, y, sizeof(y));
    da = upload(&w, a, sizeof(a));
    dtwo = upload(&w, &two, sizeof(two));
    ddot = upload(&w, &zero, sizeof(zero));

    OK(cublas_saxpy(w.cublas, &w.err, w.handle, 3, &two, dx, 2, dy, 1));
    download(&w, got, dy, sizeof(got));
    ck_assert_float_eq(got[0], 3);
    ck_assert_float_eq(got[1], 7);
    ck_assert_float_eq(got[2], 11);
    ck_assert_float_eq(got[3], 1);
    OK(cublas_sdot(w.cublas, &w.err, w.handle, 6, dx, 1, dx, 1, &dot));
    ck_assert_float_eq(dot, 91);
    OK(cublas_snrm2(w.cublas, &w.err, w.handle, 2, dx + 2, 1, &norm));
    ck_assert_float_eq(norm, 5);
    OK(cublas_sdot(w.cublas, &w.err, w.handle, 0, dx, 1, dx, 1, &dot));
    ck_assert_float_eq(dot, 0);

    OK(cublas_set_pointer_mode(w.cublas, &w.err, w.handle, CUBLAS_POINTER_MODE_DEVICE));
    OK(cublas_sscal(w.cublas, &w.err, w.handle, 6, dtwo, dx, 1));
    OK(cublas_sdot(w.cublas, &w.err, w.handle, 6, dx, 1, dx, 1, ddot));
    download(&w, &dot, ddot, sizeof(dot));
    ck_assert_float_eq(dot, 4 * 91);

    OK(cublas_set_pointer_mode(w.cublas, &w.err, w.handle, CUBLAS_POINTER_MODE_HOST));
    OK(cublas_sgemv(w.cublas, &w.err, w.handle, CUBLAS_OP_N, 2, 3, &one, da, 2, dx, 1, &zero, dy,
                    1));
    download(&w, got, dy, sizeof(got));
    ck_assert_float_eq(got[0], 2 * (1 * 1 + 3 * -2 + 5 * 3));
    ck_assert_float_eq(got[1], 2 * (2 * 1 + 4 * -2 + 6 * 3));
    close_world(&w);
}
END_TEST

START_TEST(wrong_arguments_are_answered_as_the_real_library_does) {
    const float one = 1;
    struct world w;
    float *d;

    open_world(&w, NULL);
    d = upload(&w, (float[64]){ 0 }, 64 * sizeof(float));
#define GEMM(handle, op, m, n, k, lda, ldb, ldc, alpha)                                            \
    w.cublas->calls.sgemm(handle, op, CUBLAS_OP_N, m, n, k, alpha, d, lda, d, ldb, &one, d, ldc)
    ck_assert_int_eq(GEMM(NULL, CUBLAS_OP_N, 2, 2, 2, 2, 2, 2, &one),
                     CUBLAS_STATUS_NOT_INITIALIZED);
    ck_assert_int_eq(GEMM(w.handle, CUBLAS_OP_N, -1, 2, 2, 2, 2, 2, &one),
                     CUBLAS_STATUS_INVALID_VALUE);
    ck_assert_int_eq(GEMM(w.handle, 9, 2, 2, 2, 2, 2, 2, &one), CUBLAS_STATUS_INVALID_VALUE);
    ck_assert_int_eq(GEMM(w.handle, CUBLAS_OP_N, 4, 2, 2, 3, 2, 4, &one),
                     CUBLAS_STATUS_INVALID_VALUE);
    ck_assert_int_eq(GEMM(w.handle, CUBLAS_OP_N, 2, 2, 4, 2, 3, 2, &one),
                     CUBLAS_STATUS_INVALID_VALUE);
    ck_assert_int_eq(GEMM(w.handle, CUBLAS_OP_N, 4, 2, 2, 4, 2, 3, &one),
                     CUBLAS_STATUS_INVALID_VALUE);
    ck_assert_int_eq(GEMM(w.handle, CUBLAS_OP_N, 2, 2, 2, 2, 2, 2, NULL),
                     CUBLAS_STATUS_INVALID_VALUE);
    ck_assert_int_eq(GEMM(w.handle, CUBLAS_OP_N, 0, 2, 2, 1, 2, 1, &one), CUBLAS_STATUS_SUCCESS);
#undef GEMM
    ck_assert_int_eq(w.cublas->calls.gemm_ex(w.handle, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, d,
                                             CUDA_R_16F, 2, d, CUDA_R_32F, 2, &one, d, CUDA_R_32F,
                                             2, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
                     CUBLAS_STATUS_NOT_SUPPORTED);
    ck_assert_int_eq(w.cublas->calls.set_pointer_mode(w.handle, 7), CUBLAS_STATUS_INVALID_VALUE);
    close_world(&w);
}
END_TEST

START_TEST(a_product_outside_its_memory_fails_the_context_not_the_process) {
    const float one = 1;
    struct world w;
    float *d;

    open_world(&w, NULL);
    d = upload(&w, (float[16]){ 0 }, 16 * sizeof(float));
    OK(cublas_sgemm(w.cublas, &w.err, w.handle, CUBLAS_OP_N, CUBLAS_OP_N, 4, 5, 4, &one, d, 4, d, 4,
                    &one, d, 4));
    ck_assert_int_eq(w.cuda->calls.ctx_synchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    ck_assert_int_eq(w.cublas->calls.sgemm(w.handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, d, 1,
                                           d, 1, &one, d, 1),
                     CUBLAS_STATUS_EXECUTION_FAILED);
    close_world(&w);
}
END_TEST

/* Modelled milliseconds of one product on a stream. */
static float modelled(const struct box_spec *spec, cudaDataType type, cublasMath_t math) {
    const float one = 1;
    CUevent start, end;
    CUstream stream;
    CUdeviceptr d;
    struct world w;
    float ms;

    open_world(&w, spec);
    OK(cuda_stream_create(w.cuda, &w.err, &stream, CU_STREAM_NON_BLOCKING));
    OK(cublas_set_stream(w.cublas, &w.err, w.handle, stream));
    OK(cublas_set_math_mode(w.cublas, &w.err, w.handle, math));
    OK(cuda_mem_alloc(w.cuda, &w.err, &d, 512 * 512 * 4));
    OK(cuda_event_create(w.cuda, &w.err, &start, CU_EVENT_DEFAULT));
    OK(cuda_event_create(w.cuda, &w.err, &end, CU_EVENT_DEFAULT));
    OK(cuda_event_record(w.cuda, &w.err, start, stream));
    OK(cublas_gemm_ex(w.cublas, &w.err, w.handle, CUBLAS_OP_N, CUBLAS_OP_N, 512, 512, 512, &one,
                      (void *)d, type, 512, (void *)d, type, 512, &one, (void *)d, type, 512,
                      CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    OK(cuda_event_record(w.cuda, &w.err, end, stream));
    OK(cuda_event_synchronize(w.cuda, &w.err, end));
    OK(cuda_event_elapsed_time(w.cuda, &w.err, &ms, start, end));
    close_world(&w);
    return ms;
}

static int time_products(struct sim_box *sim_box, void *argument) {
    static const struct box_spec a100 = { .n_gpus = 1, .models = "a100-40g" };
    static const struct box_spec t4 = { .n_gpus = 1, .models = "t4-16g" };
    static const struct box_spec timing = { .n_gpus = 1,
                                            .models = "a100-40g",
                                            .timing_only = true };
    float *ms = argument;

    /* A process opens one box in its life: one child for each. */
    *ms = sim_box == (void *)1   ? modelled(&t4, CUDA_R_32F, CUBLAS_DEFAULT_MATH)
          : sim_box == (void *)2 ? modelled(&timing, CUDA_R_32F, CUBLAS_DEFAULT_MATH)
          : sim_box == (void *)3 ? modelled(&a100, CUDA_R_16F, CUBLAS_DEFAULT_MATH)
                                 : modelled(&a100, CUDA_R_32F, CUBLAS_DEFAULT_MATH);
    return 0;
}

START_TEST(modelled_time_follows_the_model_and_needs_no_computing) {
    float *ms = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    for (uintptr_t i = 0; i < 4; i++)
        sim_box_expect_success(sim_box_fork(time_products, (void *)i, &ms[i]));
    ck_assert_float_gt(ms[0], 0);
    ck_assert_float_gt(ms[1], 1.5f * ms[0]); /* a T4 is slower */
    ck_assert_float_eq(ms[2], ms[0]);        /* timing only: the same to the bit */
    ck_assert_float_lt(ms[3], ms[0]);        /* tensor cores */
    munmap(ms, 4096);
}
END_TEST

START_TEST(sixteen_bit_floats_convert_by_their_definition) {
    uint64_t random = 1;

    for (unsigned bits = 0; bits < 0x10000; bits++) {
        const float value = half_to_float(bits);

        if ((bits & 0x7fff) > 0x7c00)
            ck_assert(isnan(value));
        else {
            ck_assert_double_eq(value, half_value(bits));
            ck_assert_uint_eq(half_from_float(value), bits);
        }
    }
    for (int i = 0; i < 1000000; i++) {
        const float value = float_of((uint32_t)random_next(&random));

        if (!isnan(value))
            ck_assert_uint_eq(half_from_float(value), half_nearest(value));
    }
}
END_TEST

/* A process ends with products queued: OpenBLAS, which computes them, ends its threads meanwhile.
 */
static int end_amid_products(struct sim_box *sim_box, void *argument) {
    enum { SIDE = 700, PRODUCTS = 200 };
    struct driver_options options = driver_options_read(DRIVER_AUTO);
    const float one = 1, none = 0;
    const struct timespec pause = { 0, 1000000 * (long)(intptr_t)argument };
    static struct world w;
    CUdeviceptr data;

    OK(cuda_open(&w.cuda, &options, &w.err));
    OK(cuda_primary_ctx_retain(w.cuda, &w.err, &w.context, 0));
    OK(cuda_ctx_set_current(w.cuda, &w.err, w.context));
    OK(cublas_open(&w.cublas, w.cuda, &options, &w.err));
    OK(cublas_create(w.cublas, &w.err, &w.handle));
    OK(cuda_mem_alloc(w.cuda, &w.err, &data, 3 * SIDE * SIDE * sizeof(float)));
    for (int i = 0; i < PRODUCTS; i++) {
        float *a = (float *)data, *b = a + SIDE * SIDE, *c = b + SIDE * SIDE;

        OK(cublas_sgemm(w.cublas, &w.err, w.handle, CUBLAS_OP_N, CUBLAS_OP_N, SIDE, SIDE, SIDE,
                        &one, a, SIDE, b, SIDE, &none, c, SIDE));
    }
    nanosleep(&pause, NULL);
    exit(0); /* not as the test's children end, but as programs do */
}

START_TEST(a_process_may_end_while_it_computes) {
    struct sim_box sim_box;

    sim_box_init(&sim_box, NULL);
    for (intptr_t i = 0; i < 20; i++)
        sim_box_expect_success(sim_box_fork(end_amid_products, &sim_box, (void *)i));
    sim_box_done(&sim_box);
}
END_TEST

SUITE_TIMEOUT("cublas", 60, a_process_may_end_while_it_computes,
              products_of_every_type_and_orientation_are_exact,
              batches_by_stride_and_by_pointers_are_products_one_by_one,
              vectors_with_strides_and_scalars_on_either_side,
              wrong_arguments_are_answered_as_the_real_library_does,
              a_product_outside_its_memory_fails_the_context_not_the_process,
              modelled_time_follows_the_model_and_needs_no_computing,
              sixteen_bit_floats_convert_by_their_definition)
