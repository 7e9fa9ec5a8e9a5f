/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replica: what copies of one model on several devices need: their parts of a batch, and sums over
 * all of them.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "libclient/graph/piece.h"
#include "libclient/ops/gradient.h"
#include "libclient/ops/ops.h"
#include "libclient/ops/shapes.h"

/* ---- Sums over replicas ---------------------------------------------------------------------- */

static int all_reduce_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    const int64_t n_replicas = node_int(shapes->node, "replicas");
    size_t n_tensors;

    if (n_replicas < 1 || shapes->n_inputs == 0 || shapes->n_inputs % (uint64_t)n_replicas)
        return error_set(err, -EINVAL,
                         "AllReduce: %zu inputs cannot be the tensors of %" PRId64 " replicas",
                         shapes->n_inputs, n_replicas);
    n_tensors = shapes->n_inputs / (size_t)n_replicas;
    for (size_t t = 0; t < n_tensors; t++) {
        struct shape all = shapes->inputs[t];

        for (size_t i = t + n_tensors; i < shapes->n_inputs; i += n_tensors)
            if (shape_merge(&all, &all, &shapes->inputs[i]) < 0)
                return shapes_refuse(shapes, err, &all, &shapes->inputs[i],
                                     "a tensor must have the same shape in all replicas");
        for (size_t i = t; i < shapes->n_inputs; i += n_tensors)
            shapes->outputs[i] = all;
    }
    return 0;
}

static int all_reduce_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    struct build build = gradient_build(gradient, err);
    const uint32_t n = gradient->node->n_inputs;
    cleanup(freep) struct edge *back = malloc((n + 1) * sizeof(*back));
    struct edge made;

    if (!back)
        return error_set(err, -ENOMEM, "no host memory for gradients");
    for (uint32_t i = 0; i < n; i++)
        back[i] = gradient_or_zeros(&build, gradient, i);
    made = build_n(&build, "AllReduce", back, n,
                   (struct build_attr[]){ gradient_attr(gradient, "replicas") }, 1);
    for (uint32_t i = 0; build.r == 0 && i < n; i++)
        gradient->inputs_grad[i] = (struct edge){ made.node, i };
    return build.r;
}

/* ---- Parts of a batch ------------------------------------------------------------------------ */

/* The shape of the node's shard of x. */
static int shard_of(const struct opdef_shapes *shapes, const struct shape *x, struct shape *ret,
                    struct allot_error *err) {
    const int64_t index = node_int(shapes->node, "index"), count = node_int(shapes->node, "count");
    int64_t begin;

    if (count < 1 || count > BUILD_LIST_MAX || index < 0 || index >= count)
        return shapes_refuse_one(shapes, err, x, "there is no shard %" PRId64 " of %" PRId64, index,
                                 count);
    if (x->rank == 0)
        return shapes_refuse_one(shapes, err, x, "a single number has no rows");
    *ret = *x;
    if (x->rank > 0 && x->dims[0] >= 0)
        piece_shard(shapes->node, x->dims[0], &begin, &ret->dims[0]);
    return 0;
}

static int shard_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    return shard_of(shapes, &shapes->inputs[0], &shapes->outputs[0], err);
}

static int shard_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    struct build build = gradient_build(gradient, err);

    gradient->inputs_grad[0] =
        build_with(&build, "ShardGrad", EDGES(gradient_dy(gradient), gradient_x(gradient, 0)),
                   gradient_attr(gradient, "index"), gradient_attr(gradient, "count"));
    return build.r;
}

static int shard_grad_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    struct shape part, merged;
    int r = shard_of(shapes, &shapes->inputs[1], &part, err);

    if (r < 0)
        return r;
    if (shape_merge(&merged, &part, &shapes->inputs[0]) < 0)
        return shapes_refuse(shapes, err, &shapes->inputs[0], &part,
                             "the gradient must have the shape of the shard");
    shapes->outputs[0] = shapes->inputs[1];
    return 0;
}

static int shard_grad_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    struct build build = gradient_build(gradient, err);

    gradient->inputs_grad[0] =
        build_with(&build, "Shard", EDGES(gradient_dy(gradient)), gradient_attr(gradient, "index"),
                   gradient_attr(gradient, "count"));
    return build.r;
}

static int shard_weight_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    struct shape part;
    int r = shard_of(shapes, &shapes->inputs[0], &part, err);

    return r < 0 ? r : shapes_single(shapes, err);
}

#define WHICH "; index: int; count: int"

static const struct opdef_row rows[] = {
    { "AllReduce", "(inputs: M * T) -> (outputs: M * T); M: int; replicas: int; T: " FLOATS,
      all_reduce_shape, all_reduce_gradient },
    { "Shard", "(x: T) -> (y: T); T: type" WHICH, shard_shape, shard_gradient },
    { "ShardGrad", "(gradient: T, like: T) -> (x_gradient: T); T: " NUMBERS WHICH, shard_grad_shape,
      shard_grad_gradient },
    { "ShardWeight", "(like: U) -> (weight: T); U: type; T: " FLOATS WHICH, shard_weight_shape,
      .is_flat = true },
};

const struct ops_table ops_replica = OPS_TABLE(rows);
