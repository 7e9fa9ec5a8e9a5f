/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/cublas.h"

#include <errno.h>
#include <stdio.h>

/* X(code, name, -errno, text); cublas_check.c lets the compiler check that none is missing. */
static const struct driver_code codes[] = {
#define X(code, name, error, text) { code, #name, error, text },
#include "vendor/cublas_codes.h"
#undef X
};

static const struct driver_symbol symbols[] = {
#define X(needed, since, field, symbol, ...) { #symbol, needed, since },
    CUBLAS_CALLS(X)
#undef X
};

_Static_assert(ELEMENTSOF(symbols) == CUBLAS_CALL_COUNT, "one symbol per call");
_Static_assert(sizeof(struct cublas_calls) == CUBLAS_CALL_COUNT * sizeof(void *),
               "one pointer per symbol, in the same order");

static const char *since_text(unsigned since, char text[static 32]) {
    snprintf(text, 32, "the cuBLAS of CUDA %u.%u", since / 1000, since % 1000 / 10);
    return text;
}

/* Loading is enough: cuBLAS initialises everything else per handle. */
static int init(struct driver_object *object, struct allot_error *err) {
    return 0;
}

static struct driver_library library = {
    .name = "cuBLAS",
    .sonames = (const char *const[]){ "libcublas.so.13", "libcublas.so.12", NULL },
    .package = "the CUDA toolkit",
    .since_text = since_text,
    .symbols = symbols,
    .n_symbols = ELEMENTSOF(symbols),
    .codes = codes,
    .n_codes = ELEMENTSOF(codes),
    .object_size = sizeof(struct cublas),
    .calls_offset = offsetof(struct cublas, calls),
    .dies_in_fork = true,
    .init = init,
    DRIVER_LIBRARY_INIT,
};

int cublas_open(struct cublas **ret, const struct cuda *cuda, const struct driver_options *options,
                struct allot_error *err) {
    struct driver_object *object;
    struct cublas *cublas;
    int r = driver_open(&object, &library, options, err);

    if (r < 0)
        return r;
    cublas = (struct cublas *)object;
    /* The object is shared: another thread may be storing the same value. */
    __atomic_store_n(&cublas->cuda, cuda, __ATOMIC_RELAXED);
    *ret = cublas;
    return 0;
}

void cublas_close(struct cublas *cublas) {
    driver_close(cublas ? &cublas->object : NULL);
}

static const char *find_name(const struct cublas *cublas, char text[static 32]) {
    const struct cuda *cuda = __atomic_load_n(&cublas->cuda, __ATOMIC_RELAXED);

    return cuda ? cuda_device_here(cuda, text) : NULL;
}

int cublas_refuse(const struct cublas *cublas, enum cublas_call call, struct allot_error *err) {
    char text[32];

    return driver_refuse(&cublas->object, call, err ? find_name(cublas, text) : NULL, err);
}

int cublas_fail(const struct cublas *cublas, enum cublas_call call, cublasStatus_t code,
                struct allot_error *err) {
    char text[32];

    return driver_fail(&cublas->object, call, err ? find_name(cublas, text) : NULL, (int)code, err);
}
