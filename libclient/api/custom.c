/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Custom: ops of users. Each is a row in the table of ops, and one per kind of device in the table
 * of kernels. All have the same kernel functions, which find the user's by the op of the node.
 */
#include "libclient/allot/custom.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/map.h"
#include "libclient/api/handle.h"
#include "libclient/device/gpu.h"
#include "libclient/graph/grad.h"
#include "libclient/kernels/kernel.h"
#include "libclient/ops/ops.h"

/* For ever: nodes point to it. */
struct custom {
    struct allot_op_options options;
    struct kernel cpu, gpu;
    struct gpu_code code; /* of `ptx` */
    char name[OPDEF_NAME_SIZE];
};

#define BLOCK_THREADS     256
#define BLOCK_THREADS_MAX 1024
/* Along x, as every GPU has it. */
#define BLOCKS_MAX INT32_MAX

struct allot_shapes {
    struct opdef_shapes *inner;
    struct allot_error *err;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct map customs; /* name → struct custom; under `lock` */

static const struct custom *custom_of(const struct node *node) {
    const struct custom *custom;

    pthread_mutex_lock(&lock);
    custom = map_find_text(&customs, node->op->name);
    pthread_mutex_unlock(&lock);
    return custom;
}

/* An attribute of that name and kind; NULL: none. */
static const struct attr *attr_of(const struct node *node, const char *name, enum attr_kind kind) {
    int i = name ? opdef_attr_index(node->op, name) : -1;

    return i >= 0 && node->attrs[i].kind == kind ? &node->attrs[i] : NULL;
}

/* ---- Shapes ---------------------------------------------------------------------------------- */

static int custom_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    const struct custom *custom = custom_of(shapes->node);
    struct allot_error words = { 0 };
    struct allot_shapes outer = { shapes, &words };
    int r = custom->options.shape ? custom->options.shape(&outer, custom->options.userdata) : 0;

    if (r >= 0)
        return 0;
    return error_set(err, -EINVAL, "%s: %s", custom->name,
                     words.code ? words.text : "its shape function failed");
}

size_t allot_shapes_n_inputs(const struct allot_shapes *shapes) {
    return shapes ? shapes->inner->n_inputs : 0;
}

int allot_shapes_input(const struct allot_shapes *shapes, size_t i, int64_t dims[ALLOT_RANK_MAX]) {
    const struct shape *shape;

    if (i >= allot_shapes_n_inputs(shapes))
        return -1;
    shape = &shapes->inner->inputs[i];
    if (shape->rank > 0 && dims)
        memcpy(dims, shape->dims, (size_t)shape->rank * sizeof(dims[0]));
    return shape->rank;
}

int64_t allot_shapes_int(const struct allot_shapes *shapes, const char *name) {
    const struct attr *attr = shapes ? attr_of(shapes->inner->node, name, ATTR_INT) : NULL;

    return attr ? attr->i : 0;
}

int allot_shapes_set(struct allot_shapes *shapes, size_t output, int rank, const int64_t *dims) {
    struct allot_error err;

    if (!shapes || output >= shapes->inner->n_outputs)
        return allot_shapes_fail(shapes, "there is no output %zu", output);
    if (shape_take(&shapes->inner->outputs[output], rank, dims, &err) < 0)
        return allot_shapes_fail(shapes, "output %zu cannot have this shape: %s", output, err.text);
    return 0;
}

int allot_shapes_fail(struct allot_shapes *shapes, const char *format, ...) {
    char text[400];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format ? format : "NULL was given", args);
    va_end(args);
    return error_set(shapes ? shapes->err : NULL, -EINVAL, "%s", text);
}

int allot_shapes_as_input(struct allot_shapes *shapes, void *userdata) {
    if (allot_shapes_n_inputs(shapes) == 0)
        return allot_shapes_fail(shapes, "there is no input whose shape it could have");
    for (size_t i = 0; i < shapes->inner->n_outputs; i++)
        shapes->inner->outputs[i] = shapes->inner->inputs[0];
    return 0;
}

/* ---- Computing ------------------------------------------------------------------------------- */

/* A call as the plan keeps it: everything except the addresses. */
struct prepared {
    const struct custom *custom;
    const struct node *node;
    struct gpu *gpu;     /* NULL on the CPU */
    CUfunction function; /* on a GPU */
    unsigned n_blocks;
    uint64_t count; /* of elements, for the GPU's kernel */
    uint32_t n_inputs, n_outputs;
    struct kernel_value values[]; /* inputs, then outputs */
};

static void describe(struct allot_array *array, const struct kernel_value *value, void *data) {
    *array = (struct allot_array){
        .data = data,
        .count = (size_t)shape_count(&value->shape),
        .bytes = (size_t)shape_count(&value->shape) * dtype_bytes(value->dtype),
        .dtype = (enum allot_dtype)value->dtype,
        .rank = value->shape.rank,
        .dims = value->shape.dims,
    };
}

static int custom_run(const struct kernel_run *run) {
    const struct prepared *prepared = run->state;
    uint32_t n_inputs = prepared->n_inputs, n = n_inputs + prepared->n_outputs;
    struct allot_array few[8], *arrays = few;
    struct allot_error words;
    struct allot_call call;
    int r;

    if (n > ELEMENTSOF(few))
        arrays = malloc(n * sizeof(arrays[0]));
    if (!arrays)
        return kernel_fail(-ENOMEM, "no host memory to call %s", prepared->custom->name);
    for (uint32_t i = 0; i < n; i++)
        describe(&arrays[i], &prepared->values[i],
                 i < n_inputs ? run->inputs[i] : run->outputs[i - n_inputs]);
    call = (struct allot_call){ arrays, arrays + n_inputs, n_inputs, prepared->n_outputs,
                                handle_of(prepared->node) };
    kernel_fail(0, "its function failed");
    r = prepared->custom->options.compute(&call, prepared->custom->options.userdata);
    if (arrays != few)
        free(arrays);
    /* The error text is that of allot_call_fail(), or the one above. */
    words = *kernel_failure();
    return r < 0 ? kernel_fail(r, "%s", words.text) : 0;
}

static int gpu_run(const struct kernel_run *run) {
    const struct prepared *prepared = run->state;
    uint32_t n_inputs = prepared->n_inputs, n = n_inputs + prepared->n_outputs;
    unsigned threads = prepared->custom->options.block_threads;
    CUdeviceptr addresses[2 * OPDEF_ARGS_MAX];
    void *parameters[2 * OPDEF_ARGS_MAX + 1];
    uint64_t count = prepared->count;
    struct allot_error err = { 0 };
    int r;

    if (count == 0)
        return 0;
    for (uint32_t i = 0; i < n; i++) {
        addresses[i] = (uintptr_t)(i < n_inputs ? run->inputs[i] : run->outputs[i - n_inputs]);
        parameters[i] = &addresses[i];
    }
    parameters[n] = &count;
    r = cuda_launch_kernel(prepared->gpu->cuda, &err, prepared->function, prepared->n_blocks, 1, 1,
                           threads, 1, 1, 0, run->step->stream, parameters, NULL);
    return r < 0 ? kernel_fail(r, "%s", err.text) : 0;
}

static int prepare_gpu(struct prepared *prepared, struct kernel_plan *plan,
                       struct allot_error *err) {
    const struct allot_op_options *options = &prepared->custom->options;
    const struct kernel_value *counted = plan->n_outputs  ? plan->outputs
                                         : plan->n_inputs ? plan->inputs
                                                          : NULL;
    uint64_t blocks;

    prepared->gpu = plan->gpu;
    prepared->count = counted ? (uint64_t)shape_count(&counted->shape) : 1;
    blocks = (prepared->count + options->block_threads - 1) / options->block_threads;
    if (blocks > BLOCKS_MAX)
        return error_set(err, -EOVERFLOW, "%llu elements are more than a grid of blocks covers",
                         (unsigned long long)prepared->count);
    prepared->n_blocks = (unsigned)blocks;
    plan->run = gpu_run;
    return gpu_function(plan->gpu, &prepared->custom->code, options->ptx_entry, &prepared->function,
                        err);
}

static int custom_prepare(struct kernel_plan *plan, struct allot_error *err) {
    uint32_t n = plan->n_inputs + plan->n_outputs;
    struct prepared *prepared = calloc(1, sizeof(*prepared) + n * sizeof(prepared->values[0]));

    if (!prepared)
        return error_set(err, -ENOMEM, "no host memory for op %s", plan->node->op->name);
    prepared->custom = custom_of(plan->node);
    prepared->node = plan->node;
    prepared->n_inputs = plan->n_inputs;
    prepared->n_outputs = plan->n_outputs;
    if (plan->n_inputs)
        memcpy(prepared->values, plan->inputs, plan->n_inputs * sizeof(prepared->values[0]));
    if (plan->n_outputs)
        memcpy(prepared->values + plan->n_inputs, plan->outputs,
               plan->n_outputs * sizeof(prepared->values[0]));
    plan->state = prepared;
    if (plan->gpu)
        return prepare_gpu(prepared, plan, err);
    plan->run = custom_run;
    plan->cost = prepared->custom->options.cost;
    return 0;
}

static const struct attr *call_attr(const struct allot_call *call, const char *name,
                                    enum attr_kind kind) {
    return call && call->node ? attr_of(handle_node(call->node), name, kind) : NULL;
}

int64_t allot_call_int(const struct allot_call *call, const char *name) {
    const struct attr *attr = call_attr(call, name, ATTR_INT);

    return attr ? attr->i : 0;
}

double allot_call_float(const struct allot_call *call, const char *name) {
    const struct attr *attr = call_attr(call, name, ATTR_FLOAT);

    return attr ? attr->f : 0;
}

bool allot_call_bool(const struct allot_call *call, const char *name) {
    const struct attr *attr = call_attr(call, name, ATTR_BOOL);

    return attr && attr->b;
}

int allot_call_fail(const struct allot_call *call, const char *format, ...) {
    char text[400];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format ? format : "NULL was given", args);
    va_end(args);
    return kernel_fail(-EINVAL, "%s", text);
}

/* ---- Gradients ------------------------------------------------------------------------------- */

/* The user's function builds with helpers, which keep their first error in the graph. Take that
 * error from there, and put back the one that was there before. */
static int custom_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    const struct custom *custom = custom_of(gradient->node);
    struct allot_graph *graph = gradient->graph;
    uint32_t n_in = gradient->node->n_inputs, n_out = gradient->node->n_outputs;
    struct allot_error before = graph->failure;
    cleanup(freep) struct allot_output *outputs = calloc(n_in + n_out + 1, sizeof(outputs[0]));
    struct allot_output *inputs;
    int r;

    if (!outputs)
        return error_set(err, -ENOMEM, "no host memory for a gradient");
    inputs = outputs + n_out;
    for (uint32_t i = 0; i < n_out; i++)
        outputs[i] = handle_output(graph, gradient->outputs_grad[i]);
    graph->failure.code = 0;
    r = custom->options.gradient(handle_of(gradient->node), outputs, inputs,
                                 custom->options.userdata);
    if (graph->failure.code < 0)
        r = error_set(err, graph->failure.code, "%s", graph->failure.text);
    else if (r < 0)
        r = error_set(err, r, "the gradient function of op %s failed", custom->name);
    graph->failure = before;
    for (uint32_t i = 0; i < n_in && r == 0; i++) {
        if (inputs[i].node && handle_node(inputs[i].node)->graph != graph)
            return error_set(err, -EINVAL, "the gradient function of op %s built in another graph",
                             custom->name);
        gradient->inputs_grad[i] = handle_edge(inputs[i]);
    }
    return r;
}

/* ---- Registering ----------------------------------------------------------------------------- */

/* Add rows to both tables, which never lose rows. The kernel goes first: without the op no lookup
 * finds it. */
static int add(const struct custom *custom, struct allot_error *err) {
    const struct opdef_row row = {
        .name = custom->name,
        .signature = custom->options.signature,
        .shape = custom_shape,
        .gradient = custom->options.gradient ? custom_gradient : NULL,
        .flags = custom->options.stateful ? OPDEF_STATEFUL : 0,
    };
    int r = custom->options.compute ? kernel_register(&custom->cpu, err) : 0;

    if (r == 0 && custom->options.ptx)
        r = kernel_register(&custom->gpu, err);
    return r < 0 ? r : opdef_register(&row, err);
}

/* Under the lock. A kernel without an op is left from an attempt that ran out of memory. */
static int enter(const struct allot_op_options *options, struct allot_error *err) {
    struct custom *custom = map_find_text(&customs, options->name);
    int r;

    if (opdef_find(options->name))
        return error_set(err, -EEXIST, "there is an op %s already", options->name);
    if (!custom) {
        custom = calloc(1, sizeof(*custom));
        if (custom) {
            strcpy(custom->name, options->name); /* signature_parse() saw to its length */
            custom->cpu = (struct kernel){ .op = custom->name,
                                           .device = KERNEL_CPU,
                                           .flags = KERNEL_FOREIGN,
                                           .prepare = custom_prepare };
            custom->gpu = custom->cpu;
            custom->gpu.device = KERNEL_GPU;
        }
        if (!custom || map_put_text(&customs, custom->name, custom) < 0) {
            free(custom);
            return error_set(err, -ENOMEM, "no host memory for op %s", options->name);
        }
    }
    free((char *)custom->code.ptx);
    free((char *)custom->options.ptx_entry);
    custom->options = *options;
    custom->code = (struct gpu_code){ custom->name, options->ptx ? strdup(options->ptx) : NULL };
    custom->options.ptx = custom->code.ptx;
    custom->options.ptx_entry = options->ptx ? strdup(options->ptx_entry) : NULL;
    if (options->ptx && (!custom->code.ptx || !custom->options.ptx_entry))
        return error_set(err, -ENOMEM, "no host memory for op %s", options->name);
    r = add(custom, err);
    custom->options.name = custom->name;
    custom->options.signature = NULL; /* the caller's */
    return r;
}

int allot_op_register(const struct allot_op_options *options, struct allot_error *err) {
    struct allot_op_options own = { 0 };
    struct opdef op;
    int r = ops_register_all(err);

    if (r == 0)
        r = kernel_register_all(err);
    if (r < 0)
        return r;
    if (!options)
        return error_null(err, "op to register");
    memcpy(&own, options, MIN(options->size, sizeof(own)));
    if (!own.name || !own.signature || (!own.compute && !own.ptx))
        return error_set(err, -EINVAL, "an op needs name, signature, and compute or ptx");
    if (own.ptx && !own.ptx_entry)
        return error_set(err, -EINVAL, "op %s: ptx needs the name of a kernel, ptx_entry",
                         own.name);
    if (own.block_threads > BLOCK_THREADS_MAX)
        return error_set(err, -EINVAL, "op %s: a block has at most %d threads, not %u", own.name,
                         BLOCK_THREADS_MAX, own.block_threads);
    if (own.block_threads == 0)
        own.block_threads = BLOCK_THREADS;
    /* Check everything before adding rows: they stay for ever. */
    r = signature_parse(&op, own.name, own.signature, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < op.n_attrs; i++)
        attr_done(&op.attrs[i].value);
    for (size_t i = 0; i < op.n_inputs + op.n_outputs; i++) {
        const struct opdef_arg *arg =
            i < op.n_inputs ? &op.inputs[i] : &op.outputs[i - op.n_inputs];

        if (arg->is_variable)
            return error_set(err, -ENOTSUP, "op %s: a custom op takes values, not variables",
                             own.name);
        if (arg->length_attr >= 0 && own.ptx)
            return error_set(err, -ENOTSUP, "op %s: a kernel in PTX takes no lists", own.name);
    }
    if (op.n_outputs && !own.shape)
        return error_set(err, -EINVAL, "op %s has outputs: it needs a shape function", own.name);

    pthread_mutex_lock(&lock);
    r = enter(&own, err);
    pthread_mutex_unlock(&lock);
    return r;
}
