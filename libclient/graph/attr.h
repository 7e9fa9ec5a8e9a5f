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

const char *attr_kind_name(enum attr_kind kind);          /* "int", "list(int)" */
int attr_copy(struct attr *ret, const struct attr *attr); /* -ENOMEM */
void attr_done(struct attr *attr);
