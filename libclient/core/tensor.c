/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/core/tensor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"

#define X(name, number, bytes, kind, safetensors)                                                  \
    _Static_assert((int)ALLOT_##name == (int)DTYPE_##name, "one numbering");
DTYPES(X)
#undef X
_Static_assert(ALLOT_RANK_MAX == SHAPE_RANK_MAX, "one limit");

int tensor_check(struct shape *ret_shape, size_t *ret_bytes, int dtype, int rank,
                 const int64_t *dims, struct allot_error *err) {
    char text[SHAPE_TEXT_SIZE];
    struct shape shape;
    int64_t count;

    if (!dtype_is_valid(dtype))
        return error_set(err, -EINVAL, "there is no element type %d: see enum allot_dtype", dtype);
    if (rank < 0 || rank > SHAPE_RANK_MAX)
        return error_set(err, -EINVAL, "a tensor has 0 to %d dimensions, not %d", SHAPE_RANK_MAX,
                         rank);
    if (rank > 0 && !dims)
        return error_set(err, -EINVAL,
                         "a tensor of %d dimensions whose lengths are not given: NULL", rank);
    if (shape_make(&shape, rank, dims) < 0 || !shape_is_whole(&shape))
        return error_set(err, -EINVAL, "each dimension of a tensor must be 0 or more");
    count = shape_count(&shape);
    if (count < 0 || (uint64_t)count > SIZE_MAX / 2 / dtype_bytes((enum dtype)dtype))
        return error_set(err, -EOVERFLOW, "%s elements of %s are more bytes than can be counted",
                         shape_format(&shape, text), dtype_name((enum dtype)dtype));
    *ret_shape = shape;
    *ret_bytes = (size_t)count * dtype_bytes((enum dtype)dtype);
    return 0;
}

int tensor_of_buffer(struct allot_tensor **ret, enum dtype dtype, const struct shape *shape,
                     struct buffer *buffer, size_t offset) {
    struct allot_tensor *tensor = malloc(sizeof(*tensor));

    if (!tensor)
        return -ENOMEM;
    *tensor = (struct allot_tensor){ .refs = 1,
                                     .dtype = dtype,
                                     .shape = *shape,
                                     .bytes = (size_t)shape_count(shape) * dtype_bytes(dtype),
                                     .buffer = buffer,
                                     .offset = offset };
    *ret = tensor;
    return 0;
}

static int no_place(struct allot_error *err) {
    return error_null(err, "place for a tensor");
}

static int no_tensor(struct allot_error *err) {
    return error_null(err, "tensor");
}

static int no_memory(struct allot_error *err, size_t bytes) {
    return error_set(err, -ENOMEM, "no host memory for a tensor of %zu bytes", bytes);
}

int allot_tensor_new(struct allot_tensor **ret, enum allot_dtype dtype, int rank,
                     const int64_t *dims, struct allot_error *err) {
    struct buffer *buffer;
    struct shape shape;
    size_t bytes;
    int r = ret ? tensor_check(&shape, &bytes, (int)dtype, rank, dims, err) : no_place(err);

    if (r < 0)
        return r;
    if (buffer_new(&buffer, bytes) < 0)
        return no_memory(err, bytes);
    if (tensor_of_buffer(ret, (enum dtype)dtype, &shape, buffer, 0) < 0) {
        buffer_unref(buffer);
        return no_memory(err, bytes);
    }
    return 0;
}

int allot_tensor_copy_of(struct allot_tensor **ret, enum allot_dtype dtype, int rank,
                         const int64_t *dims, const void *data, struct allot_error *err) {
    struct allot_tensor *tensor = NULL;
    int r = ret ? allot_tensor_new(&tensor, dtype, rank, dims, err) : no_place(err);

    if (r < 0)
        return r;
    if (tensor->bytes && !data) {
        r = error_set(err, -EINVAL, "a tensor of %zu bytes has nothing to copy: NULL was given",
                      tensor->bytes);
        allot_tensor_unref(tensor);
        return r;
    }
    if (tensor->bytes)
        memcpy(tensor_data(tensor), data, tensor->bytes);
    *ret = tensor;
    return 0;
}

int allot_tensor_over(struct allot_tensor **ret, enum allot_dtype dtype, int rank,
                      const int64_t *dims, void *data, allot_tensor_release_fn release,
                      void *userdata, struct allot_error *err) {
    struct buffer *buffer;
    struct shape shape;
    size_t bytes;
    int r = ret ? tensor_check(&shape, &bytes, (int)dtype, rank, dims, err) : no_place(err);

    if (r < 0)
        return r;
    if (!data && bytes)
        return error_set(err, -EINVAL, "a tensor of %zu bytes needs memory: NULL was given", bytes);
    if ((uintptr_t)data % dtype_bytes((enum dtype)dtype))
        return error_set(err, -EINVAL, "%p is not aligned for elements of %s", data,
                         dtype_name((enum dtype)dtype));
    if (buffer_over(&buffer, data, bytes, release, userdata) < 0)
        return no_memory(err, bytes);
    if (tensor_of_buffer(ret, (enum dtype)dtype, &shape, buffer, 0) < 0) {
        buffer->release = NULL; /* it stays the caller's */
        buffer_unref(buffer);
        return no_memory(err, bytes);
    }
    return 0;
}

/* ---- Views ----------------------------------------------------------------------------------- */

static int view(struct allot_tensor **ret, struct allot_tensor *tensor, const struct shape *shape,
                size_t offset, struct allot_error *err) {
    struct buffer *buffer = buffer_ref(tensor->buffer);

    if (tensor_of_buffer(ret, tensor->dtype, shape, buffer, offset) < 0) {
        buffer_unref(buffer);
        return no_memory(err, 0);
    }
    return 0;
}

int allot_tensor_reshape(struct allot_tensor **ret, struct allot_tensor *tensor, int rank,
                         const int64_t *dims, struct allot_error *err) {
    char from[SHAPE_TEXT_SIZE], to[SHAPE_TEXT_SIZE];
    int64_t count, known = 1;
    struct shape shape;
    int open = -1;

    if (!ret || !tensor)
        return ret ? no_tensor(err) : no_place(err);
    if (rank < 0)
        return error_set(err, -EINVAL, "a tensor has 0 to %d dimensions, not %d", SHAPE_RANK_MAX,
                         rank);
    if (shape_take(&shape, rank, dims, err) < 0)
        return error_wrap(err, -EINVAL, "the shape is not valid");
    count = shape_count(&tensor->shape);
    for (int i = 0; i < rank; i++) {
        if (shape.dims[i] >= 0)
            known = __builtin_mul_overflow(known, shape.dims[i], &known) ? INT64_MAX : known;
        else if (open >= 0)
            return error_set(err, -EINVAL, "more than one dimension of %s is open",
                             shape_format(&shape, to));
        else
            open = i;
    }
    if (open >= 0 && known > 0 && count % known == 0)
        shape.dims[open] = count / known;
    if (!shape_is_whole(&shape) || shape_count(&shape) != count)
        return error_set(err, -EINVAL, "%s cannot be reshaped to %s",
                         shape_format(&tensor->shape, from), shape_format(&shape, to));
    return view(ret, tensor, &shape, tensor->offset, err);
}

int allot_tensor_slice(struct allot_tensor **ret, struct allot_tensor *tensor, int64_t begin,
                       int64_t n, struct allot_error *err) {
    char text[SHAPE_TEXT_SIZE];
    struct shape shape;

    if (!ret || !tensor)
        return ret ? no_tensor(err) : no_place(err);
    shape = tensor->shape;
    if (shape.rank == 0)
        return error_set(err, -EINVAL, "a single number has no rows");
    if (begin < 0 || n < 0 || begin > shape.dims[0] || n > shape.dims[0] - begin)
        return error_set(err, -ERANGE, "%lld rows from row %lld on are not within %s", (long long)n,
                         (long long)begin, shape_format(&shape, text));
    shape.dims[0] = n;
    return view(ret, tensor, &shape,
                tensor->offset +
                    (tensor->shape.dims[0]
                         ? tensor->bytes / (size_t)tensor->shape.dims[0] * (size_t)begin
                         : 0),
                err);
}

/* ---- Use ------------------------------------------------------------------------------------- */

struct allot_tensor *allot_tensor_ref(struct allot_tensor *tensor) {
    if (tensor)
        atomic_fetch_add_explicit(&tensor->refs, 1, memory_order_relaxed);
    return tensor;
}

struct allot_tensor *allot_tensor_unref(struct allot_tensor *tensor) {
    if (tensor && atomic_fetch_sub_explicit(&tensor->refs, 1, memory_order_acq_rel) == 1) {
        buffer_unref(tensor->buffer);
        free(tensor);
    }
    return NULL;
}

enum allot_dtype allot_tensor_dtype(const struct allot_tensor *tensor) {
    return (enum allot_dtype)(tensor ? tensor->dtype : DTYPE_NONE);
}

int allot_tensor_rank(const struct allot_tensor *tensor) {
    return tensor ? tensor->shape.rank : -1;
}

int64_t allot_tensor_dim(const struct allot_tensor *tensor, int i) {
    return tensor && i >= 0 && i < tensor->shape.rank ? tensor->shape.dims[i] : -1;
}

int64_t allot_tensor_count(const struct allot_tensor *tensor) {
    return tensor ? shape_count(&tensor->shape) : 0;
}

size_t allot_tensor_bytes(const struct allot_tensor *tensor) {
    return tensor ? tensor->bytes : 0;
}

void *allot_tensor_data(struct allot_tensor *tensor) {
    return tensor ? tensor_data(tensor) : NULL;
}

size_t allot_dtype_bytes(enum allot_dtype dtype) {
    return dtype_bytes((enum dtype)dtype);
}

const char *allot_dtype_name(enum allot_dtype dtype) {
    return dtype_name((enum dtype)dtype);
}
