/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "libclient/kernels/blas.h"
#include "tests/support/suite.h"

static const char *core_name(void) {
    void *library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_NOLOAD);
    char *(*name)(void) = library ? (char *(*)(void))dlsym(library, "openblas_get_corename") : NULL;

    return name ? name() : NULL;
}

static bool cpu_has_avx2(void) {
#ifdef __x86_64__
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return false;
#endif
}

static void multiply_once(void) {
    const struct gemm gemm = {
        .m = 2, .n = 2, .k = 3, .a_row = 3, .a_column = 1, .b_row = 2, .b_column = 1, .c_row = 2
    };
    const float numbers[] = { 1, 2, 3, 4, 5, 6 };
    float c[4];

    blas_enter();
    ck_assert(blas_gemm(DTYPE_F32, &gemm, c, numbers, numbers));
    blas_leave();
    ck_assert(c[0] == 22 && c[1] == 28 && c[2] == 49 && c[3] == 64);
}

START_TEST(a_cpu_that_openblas_does_not_know_gets_its_own_code) {
    unsetenv("OPENBLAS_CORETYPE");
    if (!blas_available()) {
        printf("skipped: there is no libopenblas.so.0\n");
        return;
    }
    if (cpu_has_avx2())
        ck_assert_str_ne(core_name(), "Prescott");
    multiply_once();
}
END_TEST

START_TEST(what_the_user_chose_is_kept) {
    setenv("OPENBLAS_CORETYPE", "Prescott", 1);
    if (!blas_available()) {
        printf("skipped: there is no libopenblas.so.0\n");
        return;
    }
#ifdef __x86_64__
    ck_assert_int_eq(strcasecmp(core_name(), "Prescott"), 0);
#endif
    ck_assert_str_eq(getenv("OPENBLAS_CORETYPE"), "Prescott");
    multiply_once();
}
END_TEST

START_TEST(the_environment_stays_as_it_was) {
    char **before = environ;

    unsetenv("OPENBLAS_CORETYPE");
    setenv("ALLOT_TEST_WORD", "here", 1);
    before = environ;
    blas_available();
    ck_assert_ptr_eq(environ, before);
    ck_assert_ptr_null(getenv("OPENBLAS_CORETYPE"));
    ck_assert_str_eq(getenv("ALLOT_TEST_WORD"), "here");
}
END_TEST

SUITE("blas", a_cpu_that_openblas_does_not_know_gets_its_own_code, what_the_user_chose_is_kept,
      the_environment_stays_as_it_was)
