/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/time/cost.h"
#include "tests/support/suite.h"

static struct cost_device device(const char *key) {
    const struct sim_model *model = model_find(key);

    return (struct cost_device){ model, model->multiprocessors };
}

/* Published peaks, as a float of 10^12 per second. */
static double gemm_tera(const char *key, enum cost_gemm_type type, unsigned bytes) {
    const struct cost_device d = device(key);
    const double n = 8192;

    return 2 * n * n * n / cost_gemm(&d, type, 8192, 8192, 8192, 1, bytes) / 1e3;
}

START_TEST(large_products_reach_most_of_the_published_peak) {
    static const struct {
        const char *model;
        enum cost_gemm_type type;
        unsigned bytes;
        double peak;
    } rows[] = {
        { "a100-40g", COST_GEMM_F32, 4, 19.5 },    { "a100-40g", COST_GEMM_TF32, 4, 156 },
        { "a100-40g", COST_GEMM_F16, 2, 312 },     { "a100-40g", COST_GEMM_F64, 8, 19.5 },
        { "h100-80g", COST_GEMM_F32, 4, 67 },      { "h100-80g", COST_GEMM_F16, 2, 990 },
        { "t4-16g", COST_GEMM_F32, 4, 8.1 },       { "t4-16g", COST_GEMM_F16, 2, 65 },
        { "rtx4090-24g", COST_GEMM_F32, 4, 82.6 },
    };

    for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
        const double tera = gemm_tera(rows[i].model, rows[i].type, rows[i].bytes);

        ck_assert_msg(tera > rows[i].peak * 0.6 && tera < rows[i].peak * 1.1,
                      "%s type %d: %.1f of %.1f", rows[i].model, rows[i].type, tera, rows[i].peak);
    }
}
END_TEST

START_TEST(a_kernel_costs_the_slower_of_computing_and_moving) {
    const struct cost_device a100 = device("a100-40g");
    const uint64_t compute = cost_kernel(&a100, UINT64_C(1000000000000), 0);
    const uint64_t memory = cost_kernel(&a100, 0, UINT64_C(1) << 40);

    ck_assert_uint_eq(cost_kernel(&a100, UINT64_C(1000000000000), UINT64_C(1) << 40),
                      MAX(compute, memory));
    ck_assert_uint_gt(cost_kernel(&a100, 0, 0), 0);
    /* 10^12 thread instructions at 108 × 64 × 1.41 GHz. */
    ck_assert_uint_gt(compute, 100000000);
    ck_assert_uint_lt(compute, 105000000);
}
END_TEST

START_TEST(links_are_faster_in_the_order_of_their_generations) {
    const struct cost_device t4 = device("t4-16g"), a100 = device("a100-40g"),
                             h100 = device("h100-80g");
    const uint64_t bytes = UINT64_C(1) << 30;

    ck_assert_uint_gt(cost_host_copy(&t4, bytes, true), cost_host_copy(&a100, bytes, true));
    ck_assert_uint_gt(cost_host_copy(&a100, bytes, true), cost_host_copy(&h100, bytes, true));
    ck_assert_uint_gt(cost_host_copy(&a100, bytes, false), cost_host_copy(&a100, bytes, true));
    ck_assert_uint_gt(cost_peer_copy(&a100, &a100, 0, bytes),
                      cost_peer_copy(&a100, &a100, 12, bytes));
    ck_assert_uint_gt(cost_peer_copy(&a100, &a100, 12, bytes), cost_memory(&a100, bytes));
}
END_TEST

START_TEST(an_instance_has_its_share_of_the_gpu) {
    struct cost_device whole = device("a100-40g"), instance = whole;
    const uint64_t n = UINT64_C(1) << 40;

    instance.multiprocessors = 14;
    ck_assert_uint_gt(cost_kernel(&instance, n, 0), 7 * cost_kernel(&whole, n, 0));
    ck_assert_uint_gt(cost_memory(&instance, n), 7 * cost_memory(&whole, n));
}
END_TEST

START_TEST(absurd_amounts_cost_for_ever_but_do_not_overflow) {
    const struct cost_device t4 = device("t4-16g");
    const uint64_t n = UINT32_MAX;

    ck_assert_uint_ge(cost_gemm(&t4, COST_GEMM_F64, n, n, n, n, 8), INT64_MAX / 2);
    ck_assert_uint_lt(cost_gemm(&t4, COST_GEMM_F64, n, n, n, n, 8), INT64_MAX);
    ck_assert_uint_ge(cost_kernel(&t4, UINT64_MAX, UINT64_MAX), UINT64_C(4000000000000000));
}
END_TEST

SUITE("cost", large_products_reach_most_of_the_published_peak,
      a_kernel_costs_the_slower_of_computing_and_moving,
      links_are_faster_in_the_order_of_their_generations, an_instance_has_its_share_of_the_gpu,
      absurd_amounts_cost_for_ever_but_do_not_overflow)
