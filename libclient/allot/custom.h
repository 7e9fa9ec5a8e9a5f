/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ALLOT_CUSTOM_H
#define ALLOT_CUSTOM_H
/*
 * Ops of your own: a signature, and C functions that compute, know shapes and build gradients, or
 * PTX for GPUs. Once registered an op is built as any other (allot_op_begin), placed, run, traced
 * and saved.
 *
 *     static int compute(const struct allot_call *call, void *userdata) {
 *         const float *x = call->inputs[0].data;
 *         float *y = call->outputs[0].data;
 *
 *         for (size_t i = 0; i < call->inputs[0].count; i++)
 *             y[i] = x[i] * (float)allot_call_float(call, "factor");
 *         return 0;
 *     }
 *
 *     struct allot_op_options options = {
 *         .size = sizeof(options), .name = "Scale", .shape = allot_shapes_as_input,
 *         .signature = "(x: T) -> (y: T); T: {f32}; factor: float = 2", .compute = compute,
 *     };
 *     allot_op_register(&options, &err);
 *
 * If `ptx` is given too, the same op runs on GPUs. Any thread may register an op; it cannot be
 * unregistered. The threads of sessions call `compute`, for several nodes and several runs at once;
 * it may not call into graphs or sessions. The library calls `shape` when a node is made and again
 * when a session plans. The thread that asks for gradients calls `gradient`, which builds nodes
 * with the helpers of ops.h.
 */
#include "graph.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Numbers in host memory, dense, the last dimension fastest. */
struct allot_array {
    void *data; /* read-only if it is an input */
    size_t count, bytes;
    enum allot_dtype dtype;
    int rank;
    const int64_t *dims;
};

/* One computation. */
struct allot_call {
    const struct allot_array *inputs, *outputs;
    size_t n_inputs, n_outputs;
    const struct allot_node *node;
};

/* Attributes of the node; 0 if the op has none of that name and kind. */
int64_t allot_call_int(const struct allot_call *call, const char *name);
double allot_call_float(const struct allot_call *call, const char *name);
bool allot_call_bool(const struct allot_call *call, const char *name);
/* Fails the step with this message: return allot_call_fail(call, "…"). */
int allot_call_fail(const struct allot_call *call, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The known shapes of a node's inputs, and the shapes of its outputs. */
struct allot_shapes;
size_t allot_shapes_n_inputs(const struct allot_shapes *shapes);
/* As allot_output_shape(): the rank, or -1 if it is not known. */
int allot_shapes_input(const struct allot_shapes *shapes, size_t i, int64_t dims[ALLOT_RANK_MAX]);
int64_t allot_shapes_int(const struct allot_shapes *shapes, const char *name); /* an attribute */
/* 0, or -EINVAL if there is no such output or the shape is invalid. */
int allot_shapes_set(struct allot_shapes *shapes, size_t output, int rank, const int64_t *dims);
int allot_shapes_fail(struct allot_shapes *shapes, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A shape function: every output has the shape of input 0. */
int allot_shapes_as_input(struct allot_shapes *shapes, void *userdata);

struct allot_op_options {
    size_t size; /* sizeof(struct allot_op_options): members added in later releases are then 0 */
    const char *name;      /* letters, digits, '_' and '.' */
    const char *signature; /* ops.md (allot(3)) describes the syntax */
    /* Sets the shapes of the outputs: fully known if those of the inputs are. Required if the op
     * has outputs. */
    int (*shape)(struct allot_shapes *shapes, void *userdata);
    /* Computes on the CPU. This, `ptx` or both are required. */
    int (*compute)(const struct allot_call *call, void *userdata);
    /* Builds the gradient with respect to each input from the gradients of the outputs. Entries of
     * `inputs_grad` have no node at first; an entry of `outputs_grad` has no node if no gradient
     * reaches that output. NULL: the op has no gradient. */
    int (*gradient)(const struct allot_node *node, const struct allot_output *outputs_grad,
                    struct allot_output *inputs_grad, void *userdata);
    void *userdata;
    bool stateful; /* two nodes with the same inputs may give different values */
    uint64_t cost; /* of one computation, roughly, in nanoseconds; 0: no thread of its own */
    /*
     * For GPUs: the text of a PTX module and the name of a kernel in it. The kernel's parameters
     * are a 64-bit address for each input and each output, in order, and then n, a 64-bit number:
     * the elements of output 0, or of input 0 if there are no outputs. It runs in blocks of
     * `block_threads` (0: 256) along x, as many as cover n. Registering copies both texts. The
     * driver compiles them when a session first plans the op; if it finds a fault, that session's
     * error has the driver's message.
     */
    const char *ptx, *ptx_entry;
    unsigned block_threads;
};

/* -EEXIST: an op of that name exists. -EINVAL: the signature is wrong; the message says where. */
int allot_op_register(const struct allot_op_options *options, struct allot_error *err);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
