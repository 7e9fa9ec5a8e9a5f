/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Piece: what `x[begin:end:strides]` means, worked out once for shapes and kernels alike. A plain
 * value; any thread.
 */
#include "libclient/core/shape.h"

struct allot_error;
struct node;

/* One per dimension of x: `count` elements from `begin` on, `stride` apart. */
struct piece {
    int rank;
    int64_t begin[SHAPE_RANK_MAX], stride[SHAPE_RANK_MAX], count[SHAPE_RANK_MAX];
    bool dropped[SHAPE_RANK_MAX]; /* a single one, whose dimension goes */
};

/* Of a StridedSlice or StridedSliceGrad whose x has this whole shape. -EINVAL in words. */
int piece_of(struct piece *ret, const struct node *node, const struct shape *x,
             struct allot_error *err);
