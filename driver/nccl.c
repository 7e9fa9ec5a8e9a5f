/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/nccl.h"

#include <errno.h>
#include <stdio.h>

/* X(code, name, -errno, text); nccl_check.c lets the compiler check that none is missing. */
static const struct driver_code codes[] = {
#define X(code, name, error, text) { code, #name, error, text },
#include "vendor/nccl_codes.h"
#undef X
};

static const struct driver_symbol symbols[] = {
#define X(needed, since, field, symbol, ...) { #symbol, needed, since },
#define X0(needed, since, field, symbol)     { #symbol, needed, since },
    NCCL_CALLS(X, X0)
#undef X
#undef X0
};

_Static_assert(ELEMENTSOF(symbols) == NCCL_CALL_COUNT, "one symbol per call");
_Static_assert(sizeof(struct nccl_calls) == NCCL_CALL_COUNT * sizeof(void *),
               "one pointer per symbol, in the same order");

static const char *since_text(unsigned since, char text[static 32]) {
    snprintf(text, 32, "NCCL %u.%u", since / 1000, since % 1000 / 100);
    return text;
}

static int init(struct driver_object *object, struct allot_error *err) {
    struct nccl *nccl = (struct nccl *)object;

    return nccl_get_version(nccl, err, &nccl->version);
}

static struct driver_library library = {
    .name = "NCCL",
    .sonames = (const char *const[]){ "libnccl.so.2", NULL },
    .package = "NVIDIA's package libnccl2",
    .since_text = since_text,
    .symbols = symbols,
    .n_symbols = ELEMENTSOF(symbols),
    .codes = codes,
    .n_codes = ELEMENTSOF(codes),
    .object_size = sizeof(struct nccl),
    .calls_offset = offsetof(struct nccl, calls),
    .dies_in_fork = true,
    .init = init,
    DRIVER_LIBRARY_INIT,
};

int nccl_open(struct nccl **ret, const struct driver_options *options, struct allot_error *err) {
    struct driver_object *object;
    int r = driver_open(&object, &library, options, err);

    if (r == 0)
        *ret = (struct nccl *)object;
    return r;
}

void nccl_close(struct nccl *nccl) {
    driver_close(nccl ? &nccl->object : NULL);
}

int nccl_refuse(const struct nccl *nccl, enum nccl_call call, struct allot_error *err) {
    return driver_refuse(&nccl->object, call, NULL, err);
}

int nccl_fail(const struct nccl *nccl, enum nccl_call call, ncclResult_t code,
              struct allot_error *err) {
    return driver_fail(&nccl->object, call, NULL, (int)code, err);
}
