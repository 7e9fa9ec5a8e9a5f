/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ALLOT_NOW_H
#define ALLOT_NOW_H
/*
 * Immediate mode: ops that run at once, on tensors, without a graph or a session of yours.
 *
 *     allot_set_log_device_placement(true);                                       (config.h)
 *     allot_now_matmul(&c, a, b, &err);
 *
 *     Executing op MatMul in device /job:localhost/replica:0/task:0/device:GPU:0
 *
 * Each op is placed by the same rules as in a graph, on the device that allot_now_set_device() or
 * the call asks for, and runs with the same kernels. The settings for soft placement and for the
 * log are those of config.h. For the next call of the same op with the same types and shapes, the
 * library keeps its plan and the memory it ran in: up to 128 kinds of calls, of which it drops the
 * least recently used.
 *
 * Any thread may call these functions, several at once. In the child of a fork they return -ECHILD
 * until allot_now_clear(), and also after it if the parent had opened GPUs. Ops that take the
 * handle of a variable work only in graphs. Functions return 0 or -errno as those of session.h, and
 * write nothing to `ret` on failure. The tensors that they return are on the host and belong to the
 * caller.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "ops.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Runs an op of ops.md (allot(3)), "MatMul" for example, with default attributes, and returns its
 * first `n_ret` outputs. */
int allot_now(const char *op, struct allot_tensor *const *inputs, size_t n_inputs,
              struct allot_tensor **ret, size_t n_ret, struct allot_error *err);

/* The device for this thread's calls from now on: "/cpu:0"; NULL: the placer chooses. -EINVAL: not
 * a device name. */
int allot_now_set_device(const char *device, struct allot_error *err);

/* An op with attributes: add its inputs in order, then call allot_now_run(), which frees `now` in
 * any case and reports the errors of all calls before it. One thread at a time. */
struct allot_now_op;
struct allot_now_op *allot_now_begin(const char *op);
void allot_now_input(struct allot_now_op *now, struct allot_tensor *input);
void allot_now_attr_int(struct allot_now_op *now, const char *name, int64_t value);
void allot_now_attr_float(struct allot_now_op *now, const char *name, double value);
void allot_now_attr_bool(struct allot_now_op *now, const char *name, bool value);
void allot_now_attr_type(struct allot_now_op *now, const char *name, enum allot_dtype value);
void allot_now_attr_string(struct allot_now_op *now, const char *name, const char *value);
void allot_now_attr_ints(struct allot_now_op *now, const char *name, const int64_t *values,
                         size_t n);
int allot_now_run(struct allot_now_op *now, struct allot_tensor **ret, size_t n_ret,
                  struct allot_error *err);

/* int allot_now_relu(struct allot_tensor **ret, struct allot_tensor *x, struct allot_error *err) */
#define X(name, op)                                                                                \
    int allot_now_##name(struct allot_tensor **ret, struct allot_tensor *x,                        \
                         struct allot_error *err);
ALLOT_UNARY_OPS(X)
#undef X
/* int allot_now_add(struct allot_tensor **ret, struct allot_tensor *x, struct allot_tensor *y, …)
 */
#define X(name, op)                                                                                \
    int allot_now_##name(struct allot_tensor **ret, struct allot_tensor *x,                        \
                         struct allot_tensor *y, struct allot_error *err);
ALLOT_BINARY_OPS(X)
#undef X

/* Drop all kept plans and give back their memory, and the lease if no session uses it. */
void allot_now_clear(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
