/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/plan/op_work.h"

#include <math.h>
#include <string.h>

#include "base/cleanup.h"
#include "libclient/exec/plan/compile.h"

/* Instructions for each element that an op reads or writes, besides those of matrix products; and
 * of ops that compute more than they move. */
#define OPS_PER_ELEMENT 8.0

static const struct {
    const char *op;
    double ops; /* for each element of its output */
} heavy[] = {
    { "RandomUniform", 145 },
    { "RandomNormal", 200 },
    { "Tanh", 85 },
    { "Sigmoid", 60 },
    { "Exp", 40 },
    { "Log", 40 },
    { "Softmax", 80 },
    { "Concat", 119 },
    { "Pow", 120 },
    { "Sin", 80 },
    { "Cos", 80 },
};

static bool is_op(const struct node *node, const char *name) {
    return strcmp(node->op->name, name) == 0;
}

static double elements(const struct port *port) {
    int64_t n = port->is_open ? 0 : shape_count(&port->shape);

    return n > 0 ? (double)n : 0;
}

/* The dimension over which a product sums. */
static double inner(const struct compile *compile, const struct node *node) {
    const struct shape *a = &compile_port(compile, node->inputs[0])->shape;
    int at = opdef_attr_index(node->op, "transpose_a");
    bool is_turned = at >= 0 && node->attrs[at].b;

    return a->rank < 2 ? 1 : (double)a->dims[a->rank - (is_turned ? 2 : 1)];
}

struct cost_work op_work_of(const struct compile *compile, uint32_t local) {
    const struct node *node = graph_node(compile->request->graph, compile->nodes[local]);
    const struct port *outputs = &compile->ports[compile->first_port[local]];
    const struct kernel *kernel = kernel_find(node, KERNEL_CPU);
    struct cost_work work = { .format = MACHINE_F32 };

    if (!kernel)
        kernel = kernel_find(node, KERNEL_GPU);
    if (!kernel || kernel->flags & KERNEL_ALIAS || is_op(node, "NoOp") ||
        node->op->flags & OPDEF_METADATA) {
        work.is_nothing = true;
        return work;
    }
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        const struct port *port = compile_port(compile, node->inputs[i]);

        work.bytes += elements(port) * (double)dtype_bytes(port->dtype);
        work.ops += elements(port) * OPS_PER_ELEMENT;
    }
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        work.bytes += elements(&outputs[i]) * (double)dtype_bytes(outputs[i].dtype);
        work.ops += elements(&outputs[i]) * OPS_PER_ELEMENT;
    }
    if (node->n_inputs > 0)
        work.format = machine_format_of(compile_port(compile, node->inputs[0])->dtype);
    if (is_op(node, "MatMul") || is_op(node, "BatchMatMul")) {
        work.products = elements(&outputs[0]) * inner(compile, node);
        work.ops = 0;
    }
    /* A matrix after the other. */
    if (is_op(node, "BatchMatMul")) {
        const struct shape *out = &outputs[0].shape;
        double one =
            out->rank < 2 ? 1 : (double)(out->dims[out->rank - 1] * out->dims[out->rank - 2]);

        work.launches = one > 0 ? fmax(elements(&outputs[0]) / one - 1, 0) : 0;
    }
    for (size_t i = 0; i < ELEMENTSOF(heavy); i++)
        if (is_op(node, heavy[i].op))
            work.ops = elements(&outputs[0]) * heavy[i].ops;
    /* A variable that is changed is read, and written again. */
    for (uint32_t i = 0; kernel->writes && i < node->n_inputs; i++)
        if (kernel->writes >> i & 1) {
            const struct port *port = compile_port(compile, node->inputs[i]);

            work.bytes += 2 * elements(port) * (double)dtype_bytes(port->dtype);
        }
    return work;
}
