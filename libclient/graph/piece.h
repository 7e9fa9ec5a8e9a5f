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
    bool dropped[SHAPE_RANK_MAX]; /* a single index, which removes the dimension */
};

/* Rows ⌊i·N/n⌋ to ⌊(i+1)·N/n⌋ of N: shard `index` of `count`, as the node's attributes say. */
void piece_shard(const struct node *node, int64_t n_rows, int64_t *ret_begin, int64_t *ret_count);
/*
 * The piece of a StridedSlice or StridedSliceGrad whose x has this whole shape. -EINVAL, with a
 * text.
 */
int piece_of(struct piece *ret, const struct node *node, const struct shape *x,
             struct allot_error *err);
