/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Attr: what is fixed about a node when it is made: numbers, flags, types, shapes, texts, tensors.
 *
 * A plain value that owns what it points to. One thread at a time, as the graph.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libclient/core/dtype.h"
#include "libclient/core/shape.h"

struct allot_tensor;

enum attr_kind {
    ATTR_NONE,
    ATTR_INT,
    ATTR_FLOAT,
    ATTR_BOOL,
    ATTR_DTYPE,
    ATTR_SHAPE,
    ATTR_STRING,
    ATTR_TENSOR,
    ATTR_INTS, /* a list of int */
};

struct attr {
    enum attr_kind kind;
    union {
        int64_t i;
        double f;
        bool b;
        enum dtype dtype;
        struct shape shape;
        char *string;                /* owned */
        struct allot_tensor *tensor; /* one reference */
        struct {
            int64_t *values; /* owned; NULL where there are none */
            size_t n;
        } ints;
    };
};

/* Values to pass as arguments: they borrow what they point to; do not call attr_done() on them. */
static inline struct attr attr_int(int64_t i) {
    return (struct attr){ .kind = ATTR_INT, .i = i };
}
static inline struct attr attr_float(double f) {
    return (struct attr){ .kind = ATTR_FLOAT, .f = f };
}
static inline struct attr attr_bool(bool b) {
    return (struct attr){ .kind = ATTR_BOOL, .b = b };
}
static inline struct attr attr_dtype(enum dtype dtype) {
    return (struct attr){ .kind = ATTR_DTYPE, .dtype = dtype };
}
static inline struct attr attr_shape(struct shape shape) {
    return (struct attr){ .kind = ATTR_SHAPE, .shape = shape };
}
static inline struct attr attr_string(const char *string) {
    return (struct attr){ .kind = ATTR_STRING, .string = (char *)string };
}
static inline struct attr attr_tensor(struct allot_tensor *tensor) {
    return (struct attr){ .kind = ATTR_TENSOR, .tensor = tensor };
}
static inline struct attr attr_ints(const int64_t *values, size_t n) {
    return (struct attr){ .kind = ATTR_INTS, .ints = { (int64_t *)values, n } };
}

/* Whether it points to nothing where something is required: a text, a tensor, or a list that is not
 * empty. */
bool attr_is_null(const struct attr *attr);

const char *attr_kind_name(enum attr_kind kind);          /* as in signatures: "int", "ints" */
int attr_copy(struct attr *ret, const struct attr *attr); /* -ENOMEM */
void attr_done(struct attr *attr);
/* Whether both have the same kind and value; for tensors: type, shape and bytes. */
bool attr_equal(const struct attr *a, const struct attr *b);
