/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Tensor: type, shape and a part of a buffer: the struct behind the public header (allot/tensor.h).
 */
#include "libclient/allot/tensor.h"
#include "libclient/core/buffer.h"
#include "libclient/core/dtype.h"
#include "libclient/core/shape.h"

struct allot_tensor {
    _Atomic uint32_t refs;
    enum dtype dtype;
    struct shape shape; /* whole */
    size_t bytes;
    struct buffer *buffer; /* one reference */
    size_t offset;         /* within the buffer, in bytes */
};

static inline void *tensor_data(const struct allot_tensor *tensor) {
    return (char *)tensor->buffer->data + tensor->offset;
}

/* Takes over the reference to `buffer`, on success. -ENOMEM. */
int tensor_of_buffer(struct allot_tensor **ret, enum dtype dtype, const struct shape *shape,
                     struct buffer *buffer, size_t offset);

/* Type and shape of what a caller gave, checked; the bytes that they take. */
int tensor_check(struct shape *ret_shape, size_t *ret_bytes, int dtype, int rank,
                 const int64_t *dims, struct allot_error *err);
