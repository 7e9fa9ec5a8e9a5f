/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ops that only move elements. `prepare` plans which elements go from which input to which output,
 * in which order; the run just does that. Places that no element goes to (the border of Pad, the
 * rest of a slice's gradient) are filled first, with a number from the state.
 */
#include "libclient/kernels/cpu_array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "libclient/graph/graph.h"
#include "libclient/graph/piece.h"
#include "libclient/kernels/cpu_each.h"
#include "libclient/kernels/family.h"

static int run_moves(const struct kernel_run *run) {
    const struct cpu_array *array = run->state;

    for (uint32_t i = 0; i < array->n; i++) {
        const struct cpu_array_move *move = &array->moves[i];

        cpu_copy_run(&move->copy, run->pool, run->outputs[move->output],
                     move->input == FROM_NUMBER ? &array->number : run->inputs[move->input]);
    }
    return 0;
}

/* Make a plan with room for `n` moves. */
static int array_new(struct cpu_array **ret, struct kernel_plan *plan, size_t n,
                     struct allot_error *err) {
    struct cpu_array *array = calloc(1, sizeof(*array) + n * sizeof(array->moves[0]));

    if (!array)
        return error_set(err, -ENOMEM, "no host memory for the plan of an op");
    plan->state = *ret = array;
    plan->run = run_moves;
    return 0;
}

static struct cpu_copy *array_move(struct cpu_array *array, const struct kernel_plan *plan,
                                   int32_t input, uint32_t output) {
    struct cpu_array_move *move = &array->moves[array->n++];

    move->input = input;
    move->output = output;
    cpu_copy_init(&move->copy, dtype_bytes(plan->outputs[output].dtype));
    return &move->copy;
}

static void array_settle(struct cpu_array *array, struct kernel_plan *plan) {
    for (uint32_t i = 0; i < array->n; i++) {
        cpu_copy_settle(&array->moves[i].copy);
        plan->cost += array->moves[i].copy.cost;
        plan->pooled |= array->moves[i].copy.grain > 0;
    }
}

static void fill_output(struct cpu_array *array, const struct kernel_plan *plan, double value) {
    struct cpu_copy *copy = array_move(array, plan, FROM_NUMBER, 0);

    cpu_each_number(plan->outputs[0].dtype, value, &array->number);
    cpu_copy_dim(copy, shape_count(&plan->outputs[0].shape), 0, (int64_t)copy->bytes);
}

static int64_t product(const struct shape *shape, int begin, int end) {
    int64_t count = 1;

    for (int i = begin; i < end; i++)
        count = shape_times(count, shape->dims[i]);
    return count;
}

static int axis_of(const struct kernel_plan *plan, int rank) {
    int64_t axis = node_int(plan->node, "axis");

    return (int)(axis < 0 ? axis + rank : axis);
}

/* ---- The same under another shape ------------------------------------------------------------ */

static int run_same(const struct kernel_run *run) {
    return run->outputs[0] == run->inputs[0] ? 0 : run_moves(run);
}

static int prepare_same(struct kernel_plan *plan, struct allot_error *err) {
    struct cpu_array *array = NULL;
    struct cpu_copy *copy;
    int r = array_new(&array, plan, 1, err);

    if (r < 0)
        return r;
    copy = array_move(array, plan, 0, 0);
    cpu_copy_dim(copy, shape_count(&plan->outputs[0].shape), (int64_t)copy->bytes,
                 (int64_t)copy->bytes);
    array_settle(array, plan);
    plan->run = run_same;
    return 0;
}

/* ---- One element for all --------------------------------------------------------------------- */

/* `which` is the number, 0 or 1. */
static int prepare_number(struct kernel_plan *plan, struct allot_error *err) {
    struct cpu_array *array = NULL;
    int r = array_new(&array, plan, 1, err);

    if (r < 0)
        return r;
    fill_output(array, plan, plan->kernel->which);
    array_settle(array, plan);
    return 0;
}

static int prepare_fill(struct kernel_plan *plan, struct allot_error *err) {
    struct cpu_array *array = NULL;
    struct cpu_copy *copy;
    int r = array_new(&array, plan, 1, err);

    if (r < 0)
        return r;
    copy = array_move(array, plan, 1, 0);
    cpu_copy_dim(copy, shape_count(&plan->outputs[0].shape), 0, (int64_t)copy->bytes);
    array_settle(array, plan);
    return 0;
}

/* ---- Stretches ------------------------------------------------------------------------------- */

/* `shape` has the output's rank; its dimensions of 1 are stretched. */
static int stretch(struct kernel_plan *plan, const struct shape *shape, struct allot_error *err) {
    const struct shape *output = &plan->outputs[0].shape;
    int64_t from[SHAPE_RANK_MAX], to[SHAPE_RANK_MAX];
    struct cpu_array *array = NULL;
    struct cpu_copy *copy;
    int r = array_new(&array, plan, 1, err);

    if (r < 0)
        return r;
    copy = array_move(array, plan, 0, 0);
    cpu_copy_steps(from, shape, copy->bytes);
    cpu_copy_steps(to, output, copy->bytes);
    for (int i = 0; i < output->rank; i++)
        cpu_copy_dim(copy, output->dims[i], shape->dims[i] == 1 ? 0 : from[i], to[i]);
    array_settle(array, plan);
    return 0;
}

static int prepare_broadcast(struct kernel_plan *plan, struct allot_error *err) {
    const struct shape *x = &plan->inputs[0].shape;
    struct shape shape = { .rank = plan->outputs[0].shape.rank };

    for (int i = 0; i < shape.rank; i++)
        shape.dims[i] = i < shape.rank - x->rank ? 1 : x->dims[i - (shape.rank - x->rank)];
    return stretch(plan, &shape, err);
}

static int prepare_broadcast_like(struct kernel_plan *plan, struct allot_error *err) {
    const struct attr *axes = graph_node_attr(plan->node, "axes");
    const struct shape *x = &plan->inputs[0].shape;
    struct shape shape = { .rank = plan->outputs[0].shape.rank };
    unsigned put_in = 0;
    int next = 0;

    if (axes->ints.n == 0)
        return prepare_broadcast(plan, err);
    for (size_t i = 0; i < axes->ints.n; i++) {
        int64_t axis = axes->ints.values[i];

        put_in |= 1u << ((axis < 0 ? axis + shape.rank : axis) & 31);
    }
    for (int i = 0; i < shape.rank; i++)
        shape.dims[i] = put_in >> i & 1 || next == x->rank ? 1 : x->dims[next++];
    return stretch(plan, &shape, err);
}

static int prepare_tile(struct kernel_plan *plan, struct allot_error *err) {
    const struct shape *x = &plan->inputs[0].shape, *output = &plan->outputs[0].shape;
    int64_t from[SHAPE_RANK_MAX], to[SHAPE_RANK_MAX];
    struct cpu_array *array = NULL;
    struct cpu_copy *copy;
    int r = array_new(&array, plan, 1, err);

    if (r < 0)
        return r;
    copy = array_move(array, plan, 0, 0);
    cpu_copy_steps(from, x, copy->bytes);
    cpu_copy_steps(to, output, copy->bytes);
    for (int i = 0; i < x->rank; i++) {
        cpu_copy_dim(copy, x->dims[i] ? output->dims[i] / x->dims[i] : 0, 0, to[i] * x->dims[i]);
        cpu_copy_dim(copy, x->dims[i], from[i], to[i]);
    }
    array_settle(array, plan);
    return 0;
}

static int prepare_transpose(struct kernel_plan *plan, struct allot_error *err) {
    const struct attr *perm = graph_node_attr(plan->node, "perm");
    const struct shape *x = &plan->inputs[0].shape, *output = &plan->outputs[0].shape;
    int64_t from[SHAPE_RANK_MAX], to[SHAPE_RANK_MAX];
    struct cpu_array *array = NULL;
    struct cpu_copy *copy;
    int r = array_new(&array, plan, 1, err);

    if (r < 0)
        return r;
    copy = array_move(array, plan, 0, 0);
    cpu_copy_steps(from, x, copy->bytes);
    cpu_copy_steps(to, output, copy->bytes);
    for (int i = 0; i < output->rank; i++) {
        int64_t source = perm->ints.n ? perm->ints.values[i] : output->rank - 1 - i;

        cpu_copy_dim(copy, output->dims[i], from[source < 0 ? source + x->rank : source], to[i]);
    }
    array_settle(array, plan);
    return 0;
}

/* ---- Many and one ---------------------------------------------------------------------------- */

enum { CUTS, JOINS }; /* `which`: cut one tensor into many, or join many into one */

static int prepare_join(struct kernel_plan *plan, struct allot_error *err) {
    const bool joins = plan->kernel->which == JOINS;
    const struct shape *one = joins ? &plan->outputs[0].shape : &plan->inputs[0].shape;
    const struct kernel_value *many = joins ? plan->inputs : plan->outputs;
    const uint32_t n = joins ? plan->n_inputs : plan->n_outputs;
    const int axis = axis_of(plan, one->rank);
    const int64_t outer = product(one, 0, axis), row = product(one, axis, one->rank);
    int64_t done = 0;
    struct cpu_array *array = NULL;
    int r = array_new(&array, plan, n, err);

    if (r < 0)
        return r;
    for (uint32_t i = 0; i < n; i++) {
        /* How much of a row of the large tensor belongs to this of the small ones. */
        const int64_t part = product(&many[i].shape, axis, many[i].shape.rank);
        struct cpu_copy *copy = array_move(array, plan, joins ? (int32_t)i : 0, joins ? 0 : i);
        const int64_t bytes = (int64_t)copy->bytes;

        cpu_copy_dim(copy, outer, (joins ? part : row) * bytes, (joins ? row : part) * bytes);
        cpu_copy_dim(copy, part, bytes, bytes);
        *(joins ? &copy->to_offset : &copy->from_offset) = done * bytes;
        done += part;
    }
    array_settle(array, plan);
    if (done != row && outer)
        return error_set(err, -EINVAL, "%u parts of %lld elements do not add up to %lld", n,
                         (long long)done, (long long)row);
    return 0;
}

/* ---- Pieces ---------------------------------------------------------------------------------- */

/* The piece from `begins` on that is as large as the part. */
static void plain_piece(struct piece *piece, const struct attr *begins, const struct shape *whole,
                        const struct shape *part) {
    piece->rank = whole->rank;
    for (int i = 0; i < whole->rank; i++) {
        piece->begin[i] = (size_t)i < begins->ints.n ? begins->ints.values[i] : 0;
        piece->count[i] = part->dims[i];
        piece->stride[i] = 1;
    }
}

static void shard_piece(struct piece *piece, const struct node *node, const struct shape *whole) {
    piece->rank = whole->rank;
    for (int i = 0; i < whole->rank; i++) {
        piece->begin[i] = 0;
        piece->count[i] = whole->dims[i];
        piece->stride[i] = 1;
    }
    piece_shard(node, whole->dims[0], &piece->begin[0], &piece->count[0]);
}

/* A piece of input 0 goes to the output, or all of input 0 to a piece of the output. `begins`: the
 * attribute that says where the piece begins; NULL: it is the piece of a StridedSlice or Shard. */
static int move_piece(struct kernel_plan *plan, bool into, double rest, const char *begins,
                      struct allot_error *err) {
    const struct shape *whole = into ? &plan->outputs[0].shape : &plan->inputs[0].shape;
    const struct shape *part = into ? &plan->inputs[0].shape : &plan->outputs[0].shape;
    int64_t steps[SHAPE_RANK_MAX], dense, offset = 0, count = 1;
    struct piece piece;
    struct cpu_array *array = NULL;
    struct cpu_copy *copy;
    int r = array_new(&array, plan, 2, err);

    if (r < 0)
        return r;
    if (into)
        fill_output(array, plan, rest);
    copy = array_move(array, plan, 0, 0);
    cpu_copy_steps(steps, whole, copy->bytes);
    if (begins)
        plain_piece(&piece, graph_node_attr(plan->node, begins), whole, part);
    else if (opdef_attr_index(plan->node->op, "count") >= 0)
        shard_piece(&piece, plan->node, whole);
    else if ((r = piece_of(&piece, plan->node, whole, err)) < 0)
        return r;
    for (int i = 0; i < whole->rank; i++) {
        const int64_t last = piece.begin[i] + (piece.count[i] - 1) * piece.stride[i];

        count = shape_times(count, piece.count[i]);
        offset += shape_times(piece.begin[i], steps[i]);
        if (piece.count[i] && (piece.begin[i] < 0 || piece.begin[i] >= whole->dims[i] || last < 0 ||
                               last >= whole->dims[i]))
            return error_set(err, -EINVAL, "elements %lld to %lld of dimension %d, which has %lld",
                             (long long)piece.begin[i], (long long)last, i,
                             (long long)whole->dims[i]);
    }
    if (count != shape_count(part))
        return error_set(err, -EINVAL, "a piece of %lld elements, where %lld are asked for",
                         (long long)count, (long long)shape_count(part));
    dense = (int64_t)copy->bytes * count;
    for (int i = 0; i < whole->rank && count; i++) {
        const int64_t step = steps[i] * piece.stride[i];

        dense /= piece.count[i];
        cpu_copy_dim(copy, piece.count[i], into ? dense : step, into ? step : dense);
    }
    if (!count)
        cpu_copy_dim(copy, 0, 0, 0);
    *(into ? &copy->to_offset : &copy->from_offset) = count ? offset : 0;
    array_settle(array, plan);
    return 0;
}

static int prepare_slice(struct kernel_plan *plan, struct allot_error *err) {
    return move_piece(plan, false, 0, "begin", err);
}

static int prepare_slice_grad(struct kernel_plan *plan, struct allot_error *err) {
    return move_piece(plan, true, 0, "begin", err);
}

static int prepare_strided(struct kernel_plan *plan, struct allot_error *err) {
    return move_piece(plan, false, 0, NULL, err);
}

static int prepare_strided_grad(struct kernel_plan *plan, struct allot_error *err) {
    return move_piece(plan, true, 0, NULL, err);
}

/* The part of all rows that a shard has. */
static int prepare_shard_weight(struct kernel_plan *plan, struct allot_error *err) {
    const int64_t n_rows = plan->inputs[0].shape.dims[0];
    struct cpu_array *array = NULL;
    int64_t begin, count;
    int r = array_new(&array, plan, 1, err);

    if (r < 0)
        return r;
    piece_shard(plan->node, n_rows, &begin, &count);
    fill_output(array, plan, n_rows ? (double)count / (double)n_rows : 0);
    array_settle(array, plan);
    return 0;
}

static int prepare_pad(struct kernel_plan *plan, struct allot_error *err) {
    return move_piece(plan, true, node_float(plan->node, "value"), "before", err);
}

/* ---- Rows ------------------------------------------------------------------------------------ */

#define SAME(name, ...)                                                                            \
    { .op = name, .flags = KERNEL_ALIAS, .prepare = prepare_same, __VA_ARGS__ }

static const struct kernel rows[] = {
    SAME("Identity"),
    SAME("StopGradient"),
    SAME("Reshape", .host_inputs = 1 << 1),
    SAME("ReshapeLike", .shape_inputs = 1 << 1),
    SAME("ExpandDims"),
    SAME("Squeeze"),
    { .op = "Fill", .host_inputs = 1 << 0, .prepare = prepare_fill },
    { .op = "ZerosLike", .shape_inputs = 1 << 0, .which = 0, .prepare = prepare_number },
    { .op = "OnesLike", .shape_inputs = 1 << 0, .which = 1, .prepare = prepare_number },
    { .op = "BroadcastTo", .host_inputs = 1 << 1, .prepare = prepare_broadcast },
    { .op = "BroadcastLike", .shape_inputs = 1 << 1, .prepare = prepare_broadcast_like },
    { .op = "Tile", .prepare = prepare_tile },
    { .op = "Transpose", .prepare = prepare_transpose },
    { .op = "Concat", .which = JOINS, .prepare = prepare_join },
    { .op = "Pack", .which = JOINS, .prepare = prepare_join },
    { .op = "Split", .which = CUTS, .prepare = prepare_join },
    { .op = "SplitLike", .shape_inputs = 1 << 1, .which = CUTS, .prepare = prepare_join },
    { .op = "Unpack", .which = CUTS, .prepare = prepare_join },
    { .op = "Slice", .prepare = prepare_slice },
    { .op = "SliceLike", .shape_inputs = 1 << 1, .prepare = prepare_slice },
    { .op = "SliceGrad", .shape_inputs = 1 << 1, .prepare = prepare_slice_grad },
    { .op = "StridedSlice", .prepare = prepare_strided },
    { .op = "StridedSliceGrad", .shape_inputs = 1 << 1, .prepare = prepare_strided_grad },
    { .op = "Shard", .prepare = prepare_strided },
    { .op = "ShardGrad",
      .dtypes = DTYPES_NUMBER,
      .shape_inputs = 1 << 1,
      .prepare = prepare_strided_grad },
    { .op = "ShardWeight",
      .dtypes = DTYPES_FLOAT,
      .shape_inputs = 1 << 0,
      .prepare = prepare_shard_weight },
    { .op = "Pad", .prepare = prepare_pad },
};

const struct kernel_family kernel_family_cpu_array = { rows, ELEMENTSOF(rows), NULL };
