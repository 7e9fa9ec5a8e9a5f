/* SPDX-License-Identifier: Apache-2.0 */
/* Constants and rows of nodes, for code that builds pieces of graph: gradients, optimizers, the
 * API. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "libclient/core/tensor.h"
#include "libclient/graph/build.h"

/* One element as bytes; the nearest value if the type is coarser, 0 if an integer cannot represent
 * it. */
static size_t element(uint8_t bytes[static 8], enum dtype dtype, double value) {
    size_t size = dtype_bytes(dtype);
    uint16_t half;
    float single = (float)value;
    int64_t whole = 0;
    uint64_t natural;

    switch (dtype) {
    case DTYPE_F64:
        memcpy(bytes, &value, size);
        return size;
    case DTYPE_F32:
        memcpy(bytes, &single, size);
        return size;
    case DTYPE_F16:
    case DTYPE_BF16:
        half = dtype == DTYPE_F16 ? dtype_to_f16(single) : dtype_to_bf16(single);
        memcpy(bytes, &half, size);
        return size;
    case DTYPE_BOOL:
        bytes[0] = value != 0;
        return size;
    default:
        if (value >= 0x1p63 && value < 0x1p64) {
            natural = (uint64_t)value;
            memcpy(bytes, &natural, size);
            return size;
        }
        if (value >= -0x1p63 && value < 0x1p63)
            whole = (int64_t)value;
        memcpy(bytes, &whole, size); /* little-endian: the low bytes */
        return size;
    }
}

int constant_new(struct allot_tensor **ret, enum dtype dtype, const struct shape *shape,
                 double value, struct allot_error *err) {
    struct allot_tensor *tensor;
    uint8_t bytes[8];
    size_t size;
    char *data;
    int r = allot_tensor_new(&tensor, (enum allot_dtype)dtype, shape->rank, shape->dims, err);

    if (r < 0)
        return r;
    size = element(bytes, dtype, value);
    data = tensor_data(tensor);
    if (value != 0 || signbit(value))
        for (size_t i = 0; i < tensor->bytes; i += size)
            memcpy(data + i, bytes, size);
    *ret = tensor;
    return 0;
}

struct edge build_n(struct build *build, const char *op, const struct edge *inputs, size_t n_inputs,
                    const struct build_attr *attrs, size_t n_attrs) {
    struct build_node request = {
        .op = op, .inputs = inputs, .n_inputs = n_inputs, .attrs = attrs, .n_attrs = n_attrs
    };
    uint32_t id;

    if (build->r < 0)
        return GRAPH_NO_EDGE;
    for (size_t i = 0; i < n_inputs; i++)
        if (edge_is_none(inputs[i]))
            return GRAPH_NO_EDGE;
    build->r = build_add(build->graph, &request, &id, build->err);
    return build->r < 0 ? GRAPH_NO_EDGE : (struct edge){ id, 0 };
}

struct edge build_1(struct build *build, const char *op, struct edge x) {
    return build_n(build, op, &x, 1, NULL, 0);
}

struct edge build_2(struct build *build, const char *op, struct edge x, struct edge y) {
    return build_n(build, op, EDGES(x, y), NULL, 0);
}

struct edge build_3(struct build *build, const char *op, struct edge x, struct edge y,
                    struct edge z) {
    return build_n(build, op, EDGES(x, y, z), NULL, 0);
}

struct edge build_const(struct build *build, struct allot_tensor *tensor) {
    return build_n(build, "Const", NULL, 0,
                   (const struct build_attr[]){ { "T", attr_dtype(tensor->dtype) },
                                                { "value", attr_tensor(tensor) } },
                   2);
}

struct edge build_number(struct build *build, enum dtype dtype, double value) {
    struct allot_tensor *tensor;
    struct edge edge;

    if (build->r < 0)
        return GRAPH_NO_EDGE;
    build->r = constant_new(&tensor, dtype, &(struct shape){ 0 }, value, build->err);
    if (build->r < 0)
        return GRAPH_NO_EDGE;
    edge = build_const(build, tensor);
    allot_tensor_unref(tensor);
    return edge;
}
