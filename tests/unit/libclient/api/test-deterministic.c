/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions that ask for it compute the same bits with any number of threads, even if a product is
 * large enough to be cut into pieces; those that do not ask compute the same but for rounding.
 */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "libclient/allot/ops.h"
#include "libclient/allot/session.h"
#include "tests/support/formula.h"
#include "tests/support/suite.h"

static struct allot_output numbers(struct allot_graph *graph, uint32_t seed, int64_t rows,
                                   int64_t columns) {
    struct allot_tensor *tensor;
    struct allot_output made;

    ck_assert_int_eq(allot_tensor_new(&tensor, ALLOT_F32, 2, (int64_t[]){ rows, columns }, NULL),
                     0);
    formula_fill(allot_tensor_data(tensor), (size_t)(rows * columns), seed, 1);
    made = allot_const(graph, NULL, tensor);
    allot_tensor_unref(tensor);
    return made;
}

/* The softmax of a product, by a session of its own. */
static struct allot_tensor *compute_as(enum allot_dtype dtype, int64_t m, int64_t k, int64_t n,
                                       bool transposed, unsigned n_threads, bool deterministic) {
    struct allot_session_options options = ALLOT_SESSION_OPTIONS_INIT;
    struct allot_graph *graph;
    struct allot_session *session;
    struct allot_tensor *result = NULL;
    struct allot_output a, b, c;
    struct allot_error err = { 0 };

    ck_assert_int_eq(allot_graph_new(&graph, NULL), 0);
    a = transposed ? numbers(graph, 1, k, m) : numbers(graph, 1, m, k);
    b = transposed ? numbers(graph, 2, n, k) : numbers(graph, 2, k, n);
    if (dtype != ALLOT_F32) {
        a = allot_exp(allot_cast(a, dtype)); /* of floats alone many sums would be exact */
        b = allot_exp(allot_cast(b, dtype));
    }
    c = allot_softmax(allot_matmul_of(a, b, transposed, transposed));
    ck_assert_msg(allot_graph_error(graph, &err) == 0, "%s", err.text);
    options.cpu_only = true;
    options.per_session_threads = true;
    options.inter_op_threads = options.intra_op_threads = n_threads;
    options.deterministic = deterministic;
    ck_assert_msg(allot_session_new(&session, graph, &options, &err) == 0, "%s", err.text);
    ck_assert_msg(allot_session_run(session, NULL, NULL, 0, &c, 1, NULL, 0, &result, &err) == 0,
                  "%s", err.text);
    allot_session_free(session);
    allot_graph_unref(graph);
    return result;
}

static struct allot_tensor *compute(int64_t m, int64_t k, int64_t n, bool transposed,
                                    unsigned n_threads, bool deterministic) {
    return compute_as(ALLOT_F32, m, k, n, transposed, n_threads, deterministic);
}

static const struct {
    int64_t m, k, n;
    bool transposed;
} cases[] = {
    { 700, 300, 260, false },                           /* cut by rows, the last one short */
    { 600, 500, 300, true },  { 128, 784, 700, false }, /* cut by columns */
    { 500, 100, 300, true },  { 3, 1000, 5, false },
};

START_TEST(the_same_bits_with_any_number_of_threads) {
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        struct allot_tensor *one =
            compute(cases[i].m, cases[i].k, cases[i].n, cases[i].transposed, 1, true);

        for (unsigned threads = 2; threads <= 4; threads++) {
            struct allot_tensor *many =
                compute(cases[i].m, cases[i].k, cases[i].n, cases[i].transposed, threads, true);

            ck_assert_msg(memcmp(allot_tensor_data(one), allot_tensor_data(many),
                                 allot_tensor_bytes(one)) == 0,
                          "case %zu: other bits with %u threads", i, threads);
            allot_tensor_unref(many);
        }
        allot_tensor_unref(one);
    }
}
END_TEST

START_TEST(without_it_the_same_but_for_rounding) {
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        struct allot_tensor *asked = compute(cases[i].m, cases[i].k, cases[i].n,
                                             cases[i].transposed, 1, true),
                            *plain = compute(cases[i].m, cases[i].k, cases[i].n,
                                             cases[i].transposed, 1, false);
        const float *x = allot_tensor_data(asked), *y = allot_tensor_data(plain);

        for (int64_t k = 0; k < allot_tensor_count(asked); k++)
            ck_assert_msg(fabsf(x[k] - y[k]) <= 1e-5f, "case %zu, %ld: %g and %g", i, (long)k,
                          (double)x[k], (double)y[k]);
        allot_tensor_unref(asked);
        allot_tensor_unref(plain);
    }
}
END_TEST

/*
 * Whether OpenBLAS rounds a piece otherwise than the whole is up to the CPU; the one of tests/fake
 * does so everywhere. Opened before the library looks for it, by whose name it goes. Doubles:
 * floats have products of their own on some CPUs.
 */
START_TEST(where_cuts_change_the_rounding_the_flag_is_what_counts) {
    void *library = dlopen(FAKE_BLAS, RTLD_NOW | RTLD_LOCAL);
    const unsigned *calls = library ? dlsym(library, "fake_blas_calls") : NULL;
    bool differ = false;

    ck_assert_msg(calls != NULL, "%s", dlerror());
    for (size_t i = 0; i < 3; i++) {
        struct allot_tensor *one = compute_as(ALLOT_F64, cases[i].m, 100, cases[i].n,
                                              cases[i].transposed, 1, true),
                            *plain = compute_as(ALLOT_F64, cases[i].m, 100, cases[i].n,
                                                cases[i].transposed, 1, false);

        differ |=
            memcmp(allot_tensor_data(one), allot_tensor_data(plain), allot_tensor_bytes(one)) != 0;
        allot_tensor_unref(plain);
        if (*calls == 0) {
            printf("skipped: another OpenBLAS is open already (CK_FORK=no)\n");
            allot_tensor_unref(one);
            return;
        }
        for (unsigned threads = 2; threads <= 4; threads++) {
            struct allot_tensor *many = compute_as(ALLOT_F64, cases[i].m, 100, cases[i].n,
                                                   cases[i].transposed, threads, true);

            ck_assert_msg(memcmp(allot_tensor_data(one), allot_tensor_data(many),
                                 allot_tensor_bytes(one)) == 0,
                          "case %zu: other bits with %u threads", i, threads);
            allot_tensor_unref(many);
        }
        allot_tensor_unref(one);
    }
    ck_assert_msg(differ, "who does not ask for it gets the same bits: nothing was tested");
}
END_TEST

SUITE_TIMEOUT("deterministic", 120, the_same_bits_with_any_number_of_threads,
              without_it_the_same_but_for_rounding,
              where_cuts_change_the_rounding_the_flag_is_what_counts)
