/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * NCCL: each call as nccl_FIELD(nccl, err, parameters…) for each line of vendor/nccl_calls.h, with
 * the results of driver/cuda.h.
 *
 * It is a package of its own, and may be missing: then nccl_open() is -ELIBACC, and the caller sums
 * over GPUs by itself. Devices are numbered as the CUDA driver does in this process.
 */
#include "base/cleanup.h"
#include "base/error.h"
#include "vendor/nccl_calls.h"
#include "driver/driver.h"

struct nccl_calls {
#define X(needed, since, field, symbol, parameters, arguments) ncclResult_t(*field) parameters;
#define X0(needed, since, field, symbol)                       ncclResult_t (*field)(void);
    NCCL_CALLS(X, X0)
#undef X
#undef X0
};

enum nccl_call {
#define X(needed, since, field, ...) NCCL_CALL_##field,
    NCCL_CALLS(X, X)
#undef X
        NCCL_CALL_COUNT,
};

/* Read only. */
struct nccl {
    struct driver_object object; /* the first member, as driver_open() requires */
    struct nccl_calls calls;
    int version; /* 22105 is 2.21.5 */
};

int nccl_open(struct nccl **ret, const struct driver_options *options, struct allot_error *err);
void nccl_close(struct nccl *nccl); /* accepts NULL */

/* The slow paths of the calls below. */
int nccl_refuse(const struct nccl *nccl, enum nccl_call call, struct allot_error *err);
int nccl_fail(const struct nccl *nccl, enum nccl_call call, ncclResult_t code,
              struct allot_error *err);

#define NCCL_CALL(field, arguments)                                                                \
    ({                                                                                             \
        ncclResult_t code_;                                                                        \
                                                                                                   \
        if (!DRIVER_LIKELY(nccl->calls.field && nccl->object.generation == driver_generation))     \
            return nccl_refuse(nccl, NCCL_CALL_##field, err);                                      \
        code_ = nccl->calls.field arguments;                                                       \
        DRIVER_LIKELY(code_ == ncclSuccess) ? 0 : nccl_fail(nccl, NCCL_CALL_##field, code_, err);  \
    })
#define X(needed, since, field, symbol, parameters, arguments)                                     \
    static inline int nccl_##field(const struct nccl *nccl, struct allot_error *err,               \
                                   DRIVER_UNPACK parameters) {                                     \
        return NCCL_CALL(field, arguments);                                                        \
    }
#define X0(needed, since, field, symbol)                                                           \
    static inline int nccl_##field(const struct nccl *nccl, struct allot_error *err) {             \
        return NCCL_CALL(field, ());                                                               \
    }
NCCL_CALLS(X, X0)
#undef X
#undef X0
#undef NCCL_CALL
