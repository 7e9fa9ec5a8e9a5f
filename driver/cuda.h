/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * CUDA: the driver API, each call as cuda_FIELD(cuda, err, parameters…) for each line of
 * driver/cuda_calls.h.
 *
 *     r = cuda_mem_alloc(cuda, err, &pointer, bytes);
 *     if (r < 0)
 *         return r;
 *
 * 0, or -errno with a text in `err` (may be NULL) that names the call and the device. A call that
 * this driver lacks is -EOPNOTSUPP, and the text says which driver has it; cuda_can() asks
 * beforehand. Costs two loads and two branches more than the bare call. Loading, threads and fork:
 * driver/driver.h. A context is current to a thread, as ever with CUDA.
 *
 * -errno to act upon:
 *     -ENOMEM            out of device memory (or of pinned host memory)
 *     -EAGAIN            not finished yet: cuda_stream_query(), cuda_event_query()
 *     -EFAULT, -ENOTRECOVERABLE   a kernel or the hardware failed: the context is lost
 *     -ENODEV            no driver, or no device is visible
 *     -ELIBBAD           library and kernel module are of different versions
 */
#include <cuda.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "driver/cuda_calls.h"
#include "driver/driver.h"

#if CUDA_VERSION < 12000
#error "the cuda.h of CUDA 12 or later is needed to build; the driver at run time may be older"
#endif

struct cuda_calls {
#define X(needed, since, where, field, symbol, parameters, arguments) CUresult(*field) parameters;
#define X0(needed, since, where, field, symbol)                       CUresult (*field)(void);
    CUDA_CALLS(X, X0)
#undef X
#undef X0
};

enum cuda_call {
#define X(needed, since, where, field, ...) CUDA_CALL_##field,
    CUDA_CALLS(X, X)
#undef X
        CUDA_CALL_COUNT,
};

/* Where an error happened, besides the number of a device. */
enum { CUDA_HERE = -1, CUDA_NOWHERE = -2 };

#define CUDA_NAME_SIZE 208

struct cuda_device_name {
    char text[CUDA_NAME_SIZE]; /* "CUDA device 0 (GPU-9e8d35e3-…, NVIDIA A100)", for messages */
};

/* Read only. */
struct cuda {
    struct driver_object object; /* the first member, as driver_open() requires */
    struct cuda_calls calls;
    int version;   /* the newest CUDA this driver can do: 12020 */
    int n_devices; /* visible to this process, at least 1 */
    struct cuda_device_name *names;
};

/*
 * Load libcuda.so.1 and initialise it: later changes of CUDA_VISIBLE_DEVICES have no effect.
 * -ENODEV if no device is visible.
 */
int cuda_open(struct cuda **ret, const struct driver_options *options, struct allot_error *err);
void cuda_close(struct cuda *cuda); /* accepts NULL */
DEFINE_FREEP(struct cuda, cuda_closep, cuda_close)

/* Whether this driver has a call: cuda_can(cuda, CUDA_CALL_mem_create). */
bool cuda_can(const struct cuda *cuda, enum cuda_call call);

/* The name of the current context's device, NULL if none is current; `text` is room for it. */
const char *cuda_device_here(const struct cuda *cuda, char text[static 32]);

/* The slow paths of the calls below. */
int cuda_refuse(const struct cuda *cuda, enum cuda_call call, int where, struct allot_error *err);
int cuda_fail(const struct cuda *cuda, enum cuda_call call, int where, CUresult code,
              struct allot_error *err);

#define CUDA_TRY(field, where, ...)                                                                \
    CUresult code;                                                                                 \
                                                                                                   \
    if (!DRIVER_LIKELY(cuda->calls.field && cuda->object.generation == driver_generation))         \
        return cuda_refuse(cuda, CUDA_CALL_##field, where, err);                                   \
    code = cuda->calls.field(__VA_ARGS__);                                                         \
    if (DRIVER_LIKELY(code == CUDA_SUCCESS))                                                       \
        return 0;                                                                                  \
    return cuda_fail(cuda, CUDA_CALL_##field, where, code, err);

#define X(needed, since, where, field, symbol, parameters, arguments)                              \
    static inline int cuda_##field(const struct cuda *cuda, struct allot_error *err,               \
                                   DRIVER_UNPACK parameters) {                                     \
        CUDA_TRY(field, where, DRIVER_UNPACK arguments)                                            \
    }
#define X0(needed, since, where, field, symbol)                                                    \
    static inline int cuda_##field(const struct cuda *cuda, struct allot_error *err) {             \
        CUDA_TRY(field, where)                                                                     \
    }
CUDA_CALLS(X, X0)
#undef X
#undef X0
#undef CUDA_TRY
