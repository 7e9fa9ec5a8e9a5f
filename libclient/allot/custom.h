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
 * Where `ptx` is given too, the same op runs on GPUs. Registering is for any thread, and for ever.
 * `compute` is called by the threads of sessions, for several nodes and several runs at once; it
 * may not call into graphs or sessions. `shape` is called when a node is made and again when a
 * session plans; `gradient` by the thread that asks for gradients; it builds with the helpers of
 * ops.h.
 */
#include "graph.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Numbers in host memory, dense, the last dimension fastest. */
struct allot_array {
    void *data; /* of inputs: to be read alone */
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

/* Attributes of the node; 0 where the op has none of that name and kind. */
int64_t allot_call_int(const struct allot_call *call, const char *name);
double allot_call_float(const struct allot_call *call, const char *name);
bool allot_call_bool(const struct allot_call *call, const char *name);
/* Fail the step with this sentence: return allot_call_fail(call, "…"). */
int allot_call_fail(const struct allot_call *call, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* What is known of the shapes around a node, and what its outputs will be. */
struct allot_shapes;
size_t allot_shapes_n_inputs(const struct allot_shapes *shapes);
/* As allot_output_shape(): the rank, -1 for one that is open. */
int allot_shapes_input(const struct allot_shapes *shapes, size_t i, int64_t dims[ALLOT_RANK_MAX]);
int64_t allot_shapes_int(const struct allot_shapes *shapes, const char *name); /* an attribute */
/* 0, or -EINVAL where there is no such output or shape. */
int allot_shapes_set(struct allot_shapes *shapes, size_t output, int rank, const int64_t *dims);
int allot_shapes_fail(struct allot_shapes *shapes, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A shape function: every output is as input 0. */
int allot_shapes_as_input(struct allot_shapes *shapes, void *userdata);

struct allot_op_options {
    size_t size;           /* sizeof(struct allot_op_options): those to come are then 0 */
    const char *name;      /* letters, digits, '_' and '.' */
    const char *signature; /* ops.md (allot(3)) tells how they are written */
    /* The shapes of the outputs: whole when those of the inputs are. Required if it has outputs. */
    int (*shape)(struct allot_shapes *shapes, void *userdata);
    /* On the CPU. One of this and `ptx` is required. */
    int (*compute)(const struct allot_call *call, void *userdata);
    /* What goes back through each input, of which `inputs_grad` has no nodes at first; outputs_grad
     * has none where nothing comes. NULL: it has no gradient. */
    int (*gradient)(const struct allot_node *node, const struct allot_output *outputs_grad,
                    struct allot_output *inputs_grad, void *userdata);
    void *userdata;
    bool stateful; /* two nodes with the same inputs may give different values */
    uint64_t cost; /* of one computation in nanoseconds or so; 0: not worth a thread of its own */
    /*
     * On GPUs: the text of a PTX module and a kernel in it. It is given a 64-bit address for each
     * input and each output, in order, and then n, a 64-bit number: the elements of output 0, or of
     * input 0 where there are no outputs. It runs in blocks of `block_threads` (0: 256), as many as
     * cover n, along x. Both texts are copied; the driver compiles them when a session first plans
     * the op, and what it says of a fault is in that error.
     */
    const char *ptx, *ptx_entry;
    unsigned block_threads;
};

/* -EEXIST: there is one of that name. -EINVAL: the signature, with the place of the fault. */
int allot_op_register(const struct allot_op_options *options, struct allot_error *err);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
