/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dlpack: tensors to and from other libraries, without copies. The structs are DLPack's ABI of
 * version 0, which every library speaks.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "libclient/core/tensor.h"

enum { DL_CPU = 1, DL_CUDA_HOST = 3 };
enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_BFLOAT = 4, DL_BOOL = 6 };

struct dl_tensor {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL: dense */
    uint64_t byte_offset;
};

struct dl_managed {
    struct dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *self);
};

/* What the other library gets: the struct, its arrays and our reference to the tensor. */
struct given {
    struct dl_managed managed;
    int64_t shape[SHAPE_RANK_MAX], strides[SHAPE_RANK_MAX];
};

static void give_up(struct dl_managed *managed) {
    allot_tensor_unref(managed->context);
    free(managed);
}

static void name_dtype(enum dtype dtype, struct dl_tensor *tensor) {
    static const uint8_t codes[] = { [DTYPE_KIND_FLOAT] = DL_FLOAT,
                                     [DTYPE_KIND_SIGNED] = DL_INT,
                                     [DTYPE_KIND_UNSIGNED] = DL_UINT,
                                     [DTYPE_KIND_TRUTH] = DL_BOOL };

    tensor->dtype.code = dtype == DTYPE_BF16 ? DL_BFLOAT : codes[dtype_kind(dtype)];
    tensor->dtype.bits = (uint8_t)(dtype_bytes(dtype) * 8);
    tensor->dtype.lanes = 1;
}

static enum dtype find_dtype(const struct dl_tensor *theirs) {
    for (int dtype = DTYPE_NONE + 1; dtype < N_DTYPES; dtype++) {
        struct dl_tensor ours;

        name_dtype((enum dtype)dtype, &ours);
        if (ours.dtype.code == theirs->dtype.code && ours.dtype.bits == theirs->dtype.bits &&
            theirs->dtype.lanes == 1)
            return (enum dtype)dtype;
    }
    return DTYPE_NONE;
}

int allot_tensor_to_dlpack(struct allot_tensor *tensor, void **ret_managed,
                           struct allot_error *err) {
    struct dl_tensor *theirs;
    struct given *given;
    int64_t stride = 1;

    if (!tensor || !ret_managed)
        return error_null(err, tensor ? "place for a DLPack tensor" : "tensor");
    given = calloc(1, sizeof(*given));
    if (!given)
        return error_set(err, -ENOMEM, "no host memory for a DLPack tensor");
    theirs = &given->managed.tensor;
    theirs->data = tensor_data(tensor);
    theirs->device.type = DL_CPU;
    theirs->ndim = tensor->shape.rank;
    name_dtype(tensor->dtype, theirs);
    theirs->shape = given->shape;
    theirs->strides = given->strides;
    for (int i = tensor->shape.rank - 1; i >= 0; i--) {
        given->shape[i] = tensor->shape.dims[i];
        given->strides[i] = stride;
        stride = shape_times(stride, MAX(tensor->shape.dims[i], (int64_t)1));
    }
    given->managed.context = allot_tensor_ref(tensor);
    given->managed.deleter = give_up;
    *ret_managed = &given->managed;
    return 0;
}

static bool is_dense(const struct dl_tensor *theirs) {
    bool is_dense = true;
    int64_t stride = 1;

    for (int i = theirs->ndim - 1; theirs->strides && i >= 0; i--) {
        if (theirs->shape[i] == 0) /* without elements, whatever the strides say */
            return true;
        is_dense &= theirs->shape[i] == 1 || theirs->strides[i] == stride;
        stride = shape_times(stride, theirs->shape[i]);
    }
    return is_dense;
}

static void release(void *data, void *userdata) {
    struct dl_managed *managed = userdata;

    (void)data;
    if (managed->deleter)
        managed->deleter(managed);
}

int allot_tensor_from_dlpack(struct allot_tensor **ret, void *managed, struct allot_error *err) {
    struct dl_managed *theirs = managed;
    struct dl_tensor *tensor;
    enum dtype dtype;

    if (!managed)
        return error_null(err, "DLPack tensor");
    tensor = &theirs->tensor;
    dtype = find_dtype(tensor);
    if (tensor->device.type != DL_CPU && tensor->device.type != DL_CUDA_HOST)
        return error_set(err, -ENOTSUP,
                         "the DLPack tensor is on device %d:%d, not in host memory: copy it there",
                         tensor->device.type, tensor->device.id);
    if (dtype == DTYPE_NONE)
        return error_set(err, -ENOTSUP, "DLPack's type %u of %u bits is not supported",
                         tensor->dtype.code, tensor->dtype.bits);
    if (tensor->ndim < 0 || tensor->ndim > SHAPE_RANK_MAX)
        return error_set(err, -EINVAL, "the DLPack tensor has %d dimensions, more than %d",
                         tensor->ndim, SHAPE_RANK_MAX);
    if (tensor->ndim > 0 && !tensor->shape)
        return error_null(err, "shape in the DLPack tensor");
    if (!is_dense(tensor))
        return error_set(err, -ENOTSUP, "the DLPack tensor is not dense: copy it first");
    return allot_tensor_over(ret, (enum allot_dtype)dtype, tensor->ndim, tensor->shape,
                             (char *)tensor->data + tensor->byte_offset, release, theirs, err);
}
