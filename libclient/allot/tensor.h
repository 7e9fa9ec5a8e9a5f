/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ALLOT_TENSOR_H
#define ALLOT_TENSOR_H
/*
 * Tensors: numbers of one type in up to eight dimensions, contiguous, the last dimension fastest.
 *
 *     float numbers[] = { 1, 2, 3, 4, 5, 6 };
 *     int64_t dims[] = { 2, 3 };
 *     struct allot_tensor *tensor;
 *
 *     allot_tensor_copy_of(&tensor, ALLOT_F32, 2, dims, numbers, &err);
 *     …
 *     allot_tensor_unref(tensor);
 *
 * Tensors are reference-counted: any thread may ref and unref one at any time. The type and shape
 * never change. The holder of the only reference may write the contents; threads that share a
 * tensor and write to it must synchronise among themselves. Functions return 0 or -errno, with a
 * message in `err` (NULL: not wanted):
 *
 *     -EINVAL   no such type or shape            -ERANGE   not within the tensor
 *     -ENOMEM   no host memory                   -EOVERFLOW  more bytes than can be counted
 */
#include <stddef.h>
#include <stdint.h>

#include "error.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Files contain these numbers: they never change. */
enum allot_dtype {
    ALLOT_F16 = 1,
    ALLOT_BF16 = 2,
    ALLOT_F32 = 3,
    ALLOT_F64 = 4,
    ALLOT_I8 = 5,
    ALLOT_I16 = 6,
    ALLOT_I32 = 7,
    ALLOT_I64 = 8,
    ALLOT_U8 = 9,
    ALLOT_U16 = 10,
    ALLOT_U32 = 11,
    ALLOT_U64 = 12,
    ALLOT_BOOL = 13,
};

#define ALLOT_RANK_MAX 8

struct allot_tensor;

/* A tensor of zeros. A rank of 0 is a single number. */
int allot_tensor_new(struct allot_tensor **ret, enum allot_dtype dtype, int rank,
                     const int64_t *dims, struct allot_error *err);
/* A tensor with a copy of `data`, which is contiguous and has as many elements as the shape says.
 */
int allot_tensor_copy_of(struct allot_tensor **ret, enum allot_dtype dtype, int rank,
                         const int64_t *dims, const void *data, struct allot_error *err);

/*
 * A tensor over the caller's memory, without a copy. The thread that drops the last reference calls
 * `release` with `userdata`; NULL: the memory is borrowed and must outlive all references. The
 * memory must be aligned for the element type. If this fails, it does not call `release`.
 */
typedef void (*allot_tensor_release_fn)(void *data, void *userdata);
int allot_tensor_over(struct allot_tensor **ret, enum allot_dtype dtype, int rank,
                      const int64_t *dims, void *data, allot_tensor_release_fn release,
                      void *userdata, struct allot_error *err);

/* Views: other tensors over the same numbers, which live as long as any of these tensors. */
int allot_tensor_reshape(struct allot_tensor **ret, struct allot_tensor *tensor, int rank,
                         const int64_t *dims, struct allot_error *err); /* one dim may be -1 */
int allot_tensor_slice(struct allot_tensor **ret, struct allot_tensor *tensor, int64_t begin,
                       int64_t n, struct allot_error *err); /* rows begin … begin+n of the first */

struct allot_tensor *allot_tensor_ref(struct allot_tensor *tensor);   /* accepts NULL */
struct allot_tensor *allot_tensor_unref(struct allot_tensor *tensor); /* accepts and returns NULL */

enum allot_dtype allot_tensor_dtype(const struct allot_tensor *tensor);
int allot_tensor_rank(const struct allot_tensor *tensor);
int64_t allot_tensor_dim(const struct allot_tensor *tensor, int i); /* -1: no such dimension */
int64_t allot_tensor_count(const struct allot_tensor *tensor);      /* elements */
size_t allot_tensor_bytes(const struct allot_tensor *tensor);
void *allot_tensor_data(
    struct allot_tensor *tensor); /* aligned to 64 bytes if liballot allocated it */

/* Bytes of an element; 0: no such type. Its name: "f32". */
size_t allot_dtype_bytes(enum allot_dtype dtype);
const char *allot_dtype_name(enum allot_dtype dtype);

/*
 * The numbers as text for people, as NumPy prints them: [[22 28] [49 64]]. Writes at most `size`
 * bytes, including the NUL, and shortens long tensors with "..."; returns `text`.
 */
const char *allot_tensor_format(const struct allot_tensor *tensor, char *text, size_t size);

/*
 * DLPack, both ways and without copies. `managed` is a `DLManagedTensor *`, and its new owner must
 * call its deleter: allot_tensor_from_dlpack() does so when the tensor is freed. -ENOTSUP for
 * memory that is not on the host, for strides that are not contiguous, and for types that liballot
 * does not have; `managed` then stays the caller's.
 */
int allot_tensor_to_dlpack(struct allot_tensor *tensor, void **ret_managed,
                           struct allot_error *err);
int allot_tensor_from_dlpack(struct allot_tensor **ret, void *managed, struct allot_error *err);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
