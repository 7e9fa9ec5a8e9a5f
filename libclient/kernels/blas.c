/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OpenBLAS chooses its code when it is loaded, by a table of the CPUs that its version knows; on a
 * newer CPU it takes generic code, which is five times slower. OPENBLAS_CORETYPE overrides that,
 * but OpenBLAS reads it only in its constructor. So if it chose code without AVX on a CPU that has
 * it, we close it and open it again with the variable set. We do not change the environment,
 * because other threads may be reading it: another array takes its place for that long. If the
 * program itself has OpenBLAS open, it stays as it is.
 */
#include "libclient/kernels/blas.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* Constants of the C interface of BLAS. */
enum { ROW_MAJOR = 101, NO_TRANSPOSE = 111, TRANSPOSE = 112 };

static struct {
    pthread_once_t once;
    void (*sgemm)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                  const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);
    void (*dgemm)(int order, int trans_a, int trans_b, int m, int n, int k, double alpha,
                  const double *a, int lda, const double *b, int ldb, double beta, double *c,
                  int ldc);
    void (*set_num_threads)(int n);
    int (*get_num_threads)(void);
    bool available;

    pthread_mutex_t lock;
    unsigned n_inside;
    int n_threads; /* its own thread count, before the first blas_enter() */
} blas = { .once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER };

#ifdef __x86_64__
/* OpenBLAS's name for the best code that this CPU runs; NULL: it chose well by itself. */
static char *better_core(void *library) {
    /* Its names for code without AVX, on CPUs of Intel, AMD and VIA. */
    static const char *const old[] = {
        "Prescott",     "Core2",  "Penryn", "Dunnington", "Nehalem", "Athlon",    "Opteron", "Atom",
        "Opteron_SSE3", "Bobcat", "Nano",   "Barcelona",  "Banias",  "Northwood", "Katmai"
    };
    static char skylake[] = "OPENBLAS_CORETYPE=SkylakeX", haswell[] = "OPENBLAS_CORETYPE=Haswell";
    char *(*core_name)(void) = (char *(*)(void))dlsym(library, "openblas_get_corename");
    const char *core = core_name ? core_name() : "";
    bool is_old = false;

    for (size_t i = 0; i < sizeof(old) / sizeof(old[0]); i++)
        is_old = is_old || strcasecmp(core, old[i]) == 0;
    if (!is_old || getenv("OPENBLAS_CORETYPE") || !__builtin_cpu_supports("avx2") ||
        !__builtin_cpu_supports("fma"))
        return NULL;
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                   __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                   __builtin_cpu_supports("avx512cd")
               ? skylake
               : haswell;
}

static void *open_better(void *library) {
    static char **with; /* kept: a getenv() of another thread may still be reading it */
    char *word = better_core(library), **old = environ;
    size_t n = 0;

    if (!word)
        return library;
    while (old && old[n])
        n++;
    with = malloc((n + 2) * sizeof(*with));
    if (!with)
        return library;
    if (n > 0)
        memcpy(with, old, n * sizeof(*with));
    with[n] = word;
    with[n + 1] = NULL;
    dlclose(library);
    environ = with;
    library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (environ == with)
        environ = old;
    else
        unsetenv(
            "OPENBLAS_CORETYPE"); /* the program called setenv() meanwhile, which copied ours */
    return library;
}
#else
static void *open_better(void *library) {
    return library;
}
#endif

static void open_blas(void) {
    void *library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);

    if (library)
        library = open_better(library);
    if (!library)
        return;
    blas.sgemm = (__typeof__(blas.sgemm))dlsym(library, "cblas_sgemm");
    blas.dgemm = (__typeof__(blas.dgemm))dlsym(library, "cblas_dgemm");
    blas.set_num_threads =
        (__typeof__(blas.set_num_threads))dlsym(library, "openblas_set_num_threads");
    blas.get_num_threads =
        (__typeof__(blas.get_num_threads))dlsym(library, "openblas_get_num_threads");
    blas.available = blas.sgemm && blas.dgemm && blas.set_num_threads && blas.get_num_threads;
    /* Never close it: its threads run its code. */
}

bool blas_available(void) {
    pthread_once(&blas.once, open_blas);
    return blas.available;
}

void blas_enter(void) {
    pthread_mutex_lock(&blas.lock);
    if (blas.n_inside++ == 0) {
        blas.n_threads = blas.get_num_threads();
        if (blas.n_threads != 1)
            blas.set_num_threads(1);
    }
    pthread_mutex_unlock(&blas.lock);
}

void blas_leave(void) {
    pthread_mutex_lock(&blas.lock);
    if (--blas.n_inside == 0 && blas.n_threads != 1)
        blas.set_num_threads(blas.n_threads);
    pthread_mutex_unlock(&blas.lock);
}

/* How to describe a matrix with these steps to BLAS. A single row or column may be either. */
static bool matrix(int64_t rows, int64_t columns, int64_t row, int64_t column, int *ret_trans,
                   int64_t *ret_ld) {
    if (column == 1 && (row >= columns || rows == 1)) {
        *ret_trans = NO_TRANSPOSE;
        *ret_ld = row > columns ? row : columns;
        return true;
    }
    if (row == 1 && (column >= rows || columns == 1)) {
        *ret_trans = TRANSPOSE;
        *ret_ld = column > rows ? column : rows;
        return true;
    }
    return false;
}

bool blas_gemm(enum dtype dtype, const struct gemm *gemm, void *c, const void *a, const void *b) {
    const int m = (int)gemm->m, n = (int)gemm->n, k = (int)gemm->k;
    int trans_a, trans_b;
    int64_t lda, ldb, ldc = gemm->c_row > gemm->n ? gemm->c_row : gemm->n;

    if (gemm->k == 0 || !matrix(gemm->m, gemm->k, gemm->a_row, gemm->a_column, &trans_a, &lda) ||
        !matrix(gemm->k, gemm->n, gemm->b_row, gemm->b_column, &trans_b, &ldb) ||
        gemm->m > INT_MAX || gemm->n > INT_MAX || gemm->k > INT_MAX || lda > INT_MAX ||
        ldb > INT_MAX || ldc > INT_MAX)
        return false;
    if (dtype == DTYPE_F32)
        blas.sgemm(ROW_MAJOR, trans_a, trans_b, m, n, k, 1, a, (int)lda, b, (int)ldb, 0, c,
                   (int)ldc);
    else
        blas.dgemm(ROW_MAJOR, trans_a, trans_b, m, n, k, 1, a, (int)lda, b, (int)ldb, 0, c,
                   (int)ldc);
    return true;
}
