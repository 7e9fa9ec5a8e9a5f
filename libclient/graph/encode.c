/* SPDX-License-Identifier: Apache-2.0 */
/* Encode: a graph's bytes, in the order of docs/graph-file.md, into one block that grows. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "libclient/core/tensor.h"
#include "libclient/graph/file.h"
#include "libclient/graph/format.h"

struct writer {
    uint8_t *bytes;
    size_t n, size;
    int r; /* the first failure */
};

static void put(struct writer *writer, const void *bytes, size_t n) {
    if (writer->r < 0 || n == 0)
        return;
    if (n > writer->size - writer->n) {
        size_t size = writer->size;
        uint8_t *grown;

        do
            size = size ? size * 2 : 4096;
        while (n > size - writer->n);
        grown = realloc(writer->bytes, size);
        if (!grown) {
            writer->r = -ENOMEM;
            return;
        }
        writer->bytes = grown;
        writer->size = size;
    }
    memcpy(writer->bytes + writer->n, bytes, n);
    writer->n += n;
}

/* The low `n` bytes of a number, the lowest first. */
static void put_number(struct writer *writer, uint64_t value, size_t n) {
    uint8_t bytes[8];

    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)(value >> 8 * i);
    put(writer, bytes, n);
}

static void put_text(struct writer *writer, const char *text) {
    size_t length = strlen(text);

    if (length > FORMAT_TEXT_MAX && writer->r == 0)
        writer->r = -EOVERFLOW;
    put_number(writer, length, 4);
    put(writer, text, length);
}

static void put_ids(struct writer *writer, const uint32_t *ids, uint32_t n) {
    put_number(writer, n, 4);
    for (uint32_t i = 0; i < n; i++)
        put_number(writer, ids[i], 4);
}

static void put_shape(struct writer *writer, const struct shape *shape) {
    put_number(writer, (uint64_t)(int64_t)shape->rank, 1);
    for (int d = 0; d < shape->rank; d++)
        put_number(writer, (uint64_t)shape->dims[d], 8);
}

static void put_attr(struct writer *writer, const struct attr *attr) {
    uint64_t bits;

    put_number(writer, (uint64_t)attr->kind, 1);
    switch (attr->kind) {
    case ATTR_NONE:
        break;
    case ATTR_INT:
        put_number(writer, (uint64_t)attr->i, 8);
        break;
    case ATTR_FLOAT:
        memcpy(&bits, &attr->f, sizeof(bits));
        put_number(writer, bits, 8);
        break;
    case ATTR_BOOL:
        put_number(writer, attr->b, 1);
        break;
    case ATTR_DTYPE:
        put_number(writer, attr->dtype, 1);
        break;
    case ATTR_SHAPE:
        put_shape(writer, &attr->shape);
        break;
    case ATTR_STRING:
        put_text(writer, attr->string);
        break;
    case ATTR_TENSOR:
        put_number(writer, attr->tensor->dtype, 1);
        put_shape(writer, &attr->tensor->shape);
        put(writer, tensor_data(attr->tensor), attr->tensor->bytes);
        break;
    case ATTR_INTS:
        put_number(writer, attr->ints.n, 4);
        for (size_t i = 0; i < attr->ints.n; i++)
            put_number(writer, (uint64_t)attr->ints.values[i], 8);
        break;
    }
}

static void put_node(struct writer *writer, const struct node *node) {
    put_text(writer, node->op->name);
    put_text(writer, node->name);
    put_text(writer, node->device);
    put_number(writer, node->n_inputs, 4);
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        put_number(writer, node->inputs[i].node, 4);
        put_number(writer, node->inputs[i].output, 4);
    }
    put_ids(writer, node->controls, node->n_controls);
    put_ids(writer, node->colocate, node->n_colocate);
    put_number(writer, node->op->n_attrs, 4);
    for (size_t i = 0; i < node->op->n_attrs; i++) {
        put_text(writer, node->op->attrs[i].name);
        put_attr(writer, &node->attrs[i]);
    }
}

int graph_encode(const struct allot_graph *graph, uint8_t **ret, size_t *ret_size,
                 struct allot_error *err) {
    uint32_t n_nodes = graph_n_nodes(graph), sum;
    const struct graph_variable *variable;
    struct writer writer = { 0 };

    put(&writer, FORMAT_MAGIC, FORMAT_MAGIC_SIZE);
    put_number(&writer, FORMAT_VERSION, 4);
    put_number(&writer, n_nodes, 4);
    put_number(&writer, graph->seed, 8);
    for (uint32_t i = 0; i < n_nodes; i++)
        put_node(&writer, graph_node(graph, i));
    put_number(&writer, graph->variables.n, 4);
    for (size_t pos = 0; (variable = map_next(&graph->variables, &pos));) {
        put_number(&writer, variable->id, 4);
        put_number(&writer, variable->initial, 4);
        put_number(&writer, variable->read, 4);
    }
    sum = writer.r < 0 ? 0 : crc32c(0, writer.bytes, writer.n);
    put_number(&writer, sum, 4);
    if (writer.r < 0) {
        free(writer.bytes);
        return error_set(err, writer.r,
                         writer.r == -ENOMEM ? "no host memory to save a graph of %u nodes"
                                             : "a graph of %u nodes has a text that is too long",
                         n_nodes);
    }
    *ret = writer.bytes;
    *ret_size = writer.n;
    return 0;
}
