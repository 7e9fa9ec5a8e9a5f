/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/graph/attr.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/core/tensor.h"

const char *attr_kind_name(enum attr_kind kind) {
    static const char *const names[] = {
        [ATTR_NONE] = "none",     [ATTR_INT] = "int",       [ATTR_FLOAT] = "float",
        [ATTR_BOOL] = "bool",     [ATTR_DTYPE] = "type",    [ATTR_SHAPE] = "shape",
        [ATTR_STRING] = "string", [ATTR_TENSOR] = "tensor", [ATTR_INTS] = "ints",
    };

    return names[kind];
}

bool attr_is_null(const struct attr *attr) {
    return (attr->kind == ATTR_STRING && !attr->string) ||
           (attr->kind == ATTR_TENSOR && !attr->tensor) ||
           (attr->kind == ATTR_INTS && attr->ints.n && !attr->ints.values);
}

int attr_copy(struct attr *ret, const struct attr *attr) {
    struct attr copy = *attr;

    if (attr->kind == ATTR_STRING) {
        copy.string = strdup(attr->string);
        if (!copy.string)
            return -ENOMEM;
    } else if (attr->kind == ATTR_TENSOR)
        allot_tensor_ref(copy.tensor);
    else if (attr->kind == ATTR_INTS && attr->ints.n) {
        copy.ints.values = malloc(attr->ints.n * sizeof(copy.ints.values[0]));
        if (!copy.ints.values)
            return -ENOMEM;
        memcpy(copy.ints.values, attr->ints.values, attr->ints.n * sizeof(copy.ints.values[0]));
    } else if (attr->kind == ATTR_INTS)
        copy.ints.values = NULL;
    *ret = copy;
    return 0;
}

void attr_done(struct attr *attr) {
    if (attr->kind == ATTR_STRING)
        free(attr->string);
    else if (attr->kind == ATTR_TENSOR)
        allot_tensor_unref(attr->tensor);
    else if (attr->kind == ATTR_INTS)
        free(attr->ints.values);
    attr->kind = ATTR_NONE;
}

static bool tensor_equal(const struct allot_tensor *a, const struct allot_tensor *b) {
    return a->dtype == b->dtype && shape_equal(&a->shape, &b->shape) &&
           (a->bytes == 0 || memcmp(tensor_data(a), tensor_data(b), a->bytes) == 0);
}

bool attr_equal(const struct attr *a, const struct attr *b) {
    if (a->kind != b->kind)
        return false;
    switch (a->kind) {
    case ATTR_NONE:
        return true;
    case ATTR_INT:
        return a->i == b->i;
    case ATTR_FLOAT: /* by its bits: NaN is the same as itself */
        return memcmp(&a->f, &b->f, sizeof(a->f)) == 0;
    case ATTR_BOOL:
        return a->b == b->b;
    case ATTR_DTYPE:
        return a->dtype == b->dtype;
    case ATTR_SHAPE:
        return shape_equal(&a->shape, &b->shape);
    case ATTR_STRING:
        return strcmp(a->string, b->string) == 0;
    case ATTR_TENSOR:
        return tensor_equal(a->tensor, b->tensor);
    case ATTR_INTS:
        return a->ints.n == b->ints.n &&
               (a->ints.n == 0 ||
                memcmp(a->ints.values, b->ints.values, a->ints.n * sizeof(a->ints.values[0])) == 0);
    }
    return false;
}
