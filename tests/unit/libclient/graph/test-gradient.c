/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "libclient/graph/grad.h"
#include "libclient/ops/ops.h"
#include "tests/support/libclient/graph/graph_fixture.h"
#include "tests/support/suite.h"

static struct edge at(struct allot_graph *graph, const char *name) {
    struct allot_error err = { 0 };
    struct edge edge;

    ck_assert_msg(graph_find_output(graph, name, &edge, &err) == 0, "%s", err.text);
    return edge;
}

static struct edge gradient(struct allot_graph *graph, const char *y, const char *x) {
    struct edge ys = at(graph, y), xs = at(graph, x), ret;
    struct allot_error err = { 0 };

    ck_assert_msg(grad_add(graph, &ys, 1, &xs, 1, NULL, &ret, &err) == 0, "%s", err.text);
    return ret;
}

static const char *op_of(struct allot_graph *graph, struct edge edge) {
    return graph_node(graph, edge.node)->op->name;
}

START_TEST(what_comes_by_several_ways_is_added_up) {
    cleanup(graph_unrefp) struct allot_graph *graph = graph_fixture_new();
    struct edge grad;

    graph_fixture_node(graph, "x", "Placeholder", "", "T=f32 shape=[2]");
    graph_fixture_node(graph, "a", "Exp", "@x", "");
    graph_fixture_node(graph, "b", "Sin", "@x", "");
    graph_fixture_node(graph, "c", "AddN", "@a @b @x", "");
    grad = gradient(graph, "c", "x");
    ck_assert_str_eq(op_of(graph, grad), "AddN");
    ck_assert_uint_eq(graph_node(graph, grad.node)->n_inputs, 3);
    ck_assert_str_eq(graph_node(graph, grad.node)->name, "gradients/x_grad/AddN");
    /* Twice the same input of one node. */
    graph_fixture_node(graph, "d", "Mul", "@x @x", "");
    ck_assert_uint_eq(graph_node(graph, gradient(graph, "d", "x").node)->n_inputs, 2);
}
END_TEST

/* A list of inputs ends at BUILD_LIST_MAX: what comes by more ways is added up in pieces. */
START_TEST(more_ways_than_a_list_can_have_are_added_up_too) {
    cleanup(graph_unrefp) struct allot_graph *graph = graph_fixture_new();
    cleanup(freep) struct edge *many = calloc(BUILD_LIST_MAX + 1, sizeof(*many));
    struct edge x = graph_fixture_node(graph, "x", "Placeholder", "", "T=f32 shape=[2]"), y, grad;
    struct allot_error err = { 0 };
    struct build build = { graph, &err, 0 };
    const struct node *sum, *first;

    ck_assert_ptr_nonnull(many);
    for (size_t i = 0; i <= BUILD_LIST_MAX; i++)
        many[i] = x;
    y = build_n(&build, "AddN", many, BUILD_LIST_MAX, NULL, 0);
    y = build_2(&build, "Add", y, build_2(&build, "Mul", x, x));
    ck_assert_msg(build.r == 0, "%s", err.text);
    ck_assert_msg(grad_add(graph, &y, 1, &x, 1, NULL, &grad, &err) == 0, "%s", err.text);
    sum = graph_node(graph, grad.node);
    ck_assert_str_eq(sum->op->name, "AddN");
    ck_assert_uint_eq(sum->n_inputs, 2);
    first = graph_node(graph, sum->inputs[0].node);
    ck_assert_uint_eq(first->n_inputs, BUILD_LIST_MAX);
    ck_assert_uint_eq(graph_node(graph, sum->inputs[1].node)->n_inputs, 2);

    build_n(&build, "AddN", many, BUILD_LIST_MAX + 1, NULL, 0);
    ck_assert_int_eq(build.r, -EINVAL);
    ck_assert_str_eq(err.text, "node 'AddN' (op AddN): 65537 inputs are given, but a list has at "
                               "most 65536 entries");
}
END_TEST

START_TEST(what_does_not_lead_to_y_has_none) {
    cleanup(graph_unrefp) struct allot_graph *graph = graph_fixture_new();

    graph_fixture_node(graph, "x", "Placeholder", "", "T=f32 shape=[4]");
    graph_fixture_node(graph, "other", "Placeholder", "", "T=f32 shape=[4]");
    graph_fixture_node(graph, "y", "Exp", "@x", "");
    ck_assert(edge_is_none(gradient(graph, "y", "other")));
    graph_fixture_node(graph, "cut", "Split", "@x", "N=2");
    graph_fixture_node(graph, "z", "Exp", "@cut:0", "");
    ck_assert(edge_is_none(gradient(graph, "z", "cut:1")));
    ck_assert(!edge_is_none(gradient(graph, "z", "cut:0")));
    ck_assert_str_eq(op_of(graph, gradient(graph, "z", "x")), "Concat");
    graph_fixture_node(graph, "stop", "StopGradient", "@x", "");
    graph_fixture_node(graph, "s", "Exp", "@stop", "");
    ck_assert(edge_is_none(gradient(graph, "s", "x")));
    graph_fixture_node(graph, "whole", "Cast", "@x", "U=i32");
    graph_fixture_node(graph, "back", "Cast", "@whole", "U=f32");
    ck_assert(edge_is_none(gradient(graph, "back", "x")));
    graph_fixture_node(graph, "less", "Less", "@x @other", "");
    graph_fixture_node(graph, "one", "Cast", "@less", "U=f32");
    ck_assert(edge_is_none(gradient(graph, "one", "x")));
    /* y itself, and y behind x. */
    ck_assert_str_eq(op_of(graph, gradient(graph, "y", "y")), "OnesLike");
    ck_assert(edge_is_none(gradient(graph, "x", "y")));
}
END_TEST

START_TEST(gradients_of_variables_and_constants_are_found) {
    cleanup(graph_unrefp) struct allot_graph *graph = graph_fixture_new();
    struct edge grad;

    graph_fixture_node(graph, "v", "Variable", "", "T=f32 shape=[2]");
    graph_fixture_node(graph, "c", "Fill", "i64=[2] f32=3", "");
    graph_fixture_node(graph, "y", "Mul", "@v @c", "");
    graph_fixture_node(graph, "r", "ReadVariable", "@v", "");
    graph_fixture_node(graph, "z", "Add", "@y @r", "");
    grad = gradient(graph, "z", "v");
    ck_assert_str_eq(op_of(graph, grad), "AddN");
    ck_assert_str_eq(graph_node(graph, grad.node)->name, "gradients/v_grad/AddN");
    ck_assert_str_eq(op_of(graph, gradient(graph, "y", "v/read")), "Mul");
    ck_assert_str_eq(op_of(graph, gradient(graph, "y", "c")), "Mul");
    ck_assert_str_eq(op_of(graph, gradient(graph, "y", "Const_1")), "Sum");
}
END_TEST

START_TEST(gradients_run_where_their_node_does) {
    cleanup(graph_unrefp) struct allot_graph *graph = graph_fixture_new();
    struct build_node request = { .op = "Exp", .name = "y", .device = "/gpu:1", .n_inputs = 1 };
    struct edge x = graph_fixture_node(graph, "x", "Placeholder", "", "T=f32 shape=[2]"), grad;
    uint32_t id;

    request.inputs = &x;
    ck_assert_int_eq(build_add(graph, &request, &id, NULL), 0);
    grad = gradient(graph, "y", "x");
    ck_assert_str_eq(graph_node(graph, grad.node)->device, "/device:GPU:1");
    ck_assert_str_eq(graph_node(graph, grad.node)->name, "gradients/y_grad/Mul");
    grad = gradient(graph, "y", "x");
    ck_assert_str_eq(graph_node(graph, grad.node)->name, "gradients_1/y_grad/Mul");
    ck_assert_ptr_null(graph->scope);
}
END_TEST

START_TEST(what_has_no_gradient_is_named) {
    cleanup(graph_unrefp) struct allot_graph *graph = graph_fixture_new();
    struct edge x = graph_fixture_node(graph, "x", "Placeholder", "", "T=f32 shape=[2]"), y, ret,
                no;
    struct allot_error err = { 0 };

    y = graph_fixture_node(graph, "n", "ArgMax", "@x", "");
    ck_assert_int_eq(grad_add(graph, &y, 1, &x, 1, NULL, &ret, &err), -EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "'n:0' (op ArgMax) is of type i64, which has no"));
    ck_assert_int_eq(
        opdef_register(&(struct opdef_row){ "Stiff", "(x: T) -> (y: T); T: type" }, NULL), 0);
    graph_fixture_node(graph, "p", "Stiff", "@x", "");
    y = graph_fixture_node(graph, "s", "Sum", "@p", "");
    ck_assert_int_eq(grad_add(graph, &y, 1, &x, 1, NULL, &ret, &err), -EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "node 'p': op Stiff has no gradient"));
    ck_assert_ptr_null(graph->scope);
    no = (struct edge){ 99, 0 };
    ck_assert_int_eq(grad_add(graph, &y, 1, &no, 1, NULL, &ret, &err), -EINVAL);
    ck_assert_int_eq(grad_add(graph, &no, 1, &x, 1, NULL, &ret, &err), -EINVAL);
    ck_assert_int_eq(grad_add(graph, &y, 1, &x, 1, &no, &ret, &err), -EINVAL);
    no = graph_fixture_node(graph, "w", "Placeholder", "", "T=f64 shape=[]");
    ck_assert_int_eq(grad_add(graph, &y, 1, &x, 1, &no, &ret, &err), -EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "must have its type and shape"));
}
END_TEST

/* y = op(inputs), with inputs a, b, c: every float input has a gradient of its shape, once and
 * twice, and with open shapes. */
static const struct {
    const char *op, *inputs, *attrs;
} smooth[] = {
    { "Identity", "f32[2,3]", "" },
    { "Print", "f32[2,3]", "" },
    { "CheckNumerics", "f32[2,3]", "" },
    { "Neg", "f32[2,3]", "" },
    { "Abs", "f32[2,3]", "" },
    { "Square", "f32[2,3]", "" },
    { "Exp", "f32[2,3]", "" },
    { "Expm1", "f32[2,3]", "" },
    { "Log", "f32[2,3]", "" },
    { "Log1p", "f16[2,3]", "" },
    { "Sqrt", "f32[2,3]", "" },
    { "Rsqrt", "f32[2,3]", "" },
    { "Reciprocal", "f32[2,3]", "" },
    { "Sin", "f32[2,3]", "" },
    { "Cos", "f64[2,3]", "" },
    { "Tanh", "f32[2,3]", "" },
    { "Sigmoid", "bf16[2,3]", "" },
    { "Relu", "f32[2,3]", "" },
    { "Relu6", "f32[2,3]", "" },
    { "LeakyRelu", "f32[2,3]", "alpha=0.3" },
    { "Elu", "f32[2,3]", "" },
    { "Gelu", "f32[2,3]", "" },
    { "Gelu", "f32[2,3]", "approximate=true" },
    { "Silu", "f32[2,3]", "" },
    { "Softplus", "f32[2,3]", "" },
    { "Erf", "f32[2,3]", "" },
    { "Add", "f32[2,3] f32[3]", "" },
    { "Sub", "f32[2,1] f32[1,3]", "" },
    { "Mul", "f32[2,3] f32[]", "" },
    { "Div", "f32[2,3] f32[2,1]", "" },
    { "FloorMod", "f32[2,3] f32[3]", "" },
    { "Pow", "f32[2,3] f32[3]", "" },
    { "Maximum", "f32[2,3] f32[3]", "" },
    { "Minimum", "f32[2,3] f32[3]", "" },
    { "SquaredDifference", "f32[2,3] f32[3]", "" },
    { "Select", "bool[3] f32[2,1] f32[1,3]", "" },
    { "AddN", "f32[2] f32[2]", "" },
    { "BiasAdd", "f32[2,3] f32[3]", "" },
    { "BiasAddGrad", "f32[2,3]", "" },
    { "MatMul", "f32[2,3] f32[3,4]", "" },
    { "MatMul", "f32[3,2] f32[3,4]", "transpose_a=true" },
    { "MatMul", "f32[2,3] f32[4,3]", "transpose_b=true" },
    { "MatMul", "f32[3,2] f32[4,3]", "transpose_a=true transpose_b=true" },
    { "BatchMatMul", "f32[5,1,2,3] f32[4,3,6]", "" },
    { "BatchMatMul", "f32[3,2] f32[4,6,3]", "adj_x=true adj_y=true" },
    { "Sum", "f32[2,3]", "" },
    { "Sum", "f32[2,3]", "axes=[-1]" },
    { "Mean", "f32[2,3]", "axes=[0] keep_dims=true" },
    { "Prod", "f32[2,3]", "axes=[0] keep_dims=true" },
    { "Mean", "f32[2,3]", "" },
    { "Max", "f32[2,3]", "axes=[1]" },
    { "Min", "f32[2,3]", "" },
    { "Softmax", "f32[2,3]", "" },
    { "LogSoftmax", "f32[2,3]", "" },
    { "SoftmaxCrossEntropy", "f32[2,3] f32[2,3]", "" },
    { "SparseSoftmaxCrossEntropy", "f32[2,3] i64[2]", "" },
    { "Reshape", "f32[2,3] i64=[6]", "" },
    { "BroadcastTo", "f32[3] i64=[2,3]", "" },
    { "Transpose", "f32[2,3,4]", "perm=[2,0,1]" },
    { "Transpose", "f32[2,3]", "" },
    { "ExpandDims", "f32[2,3]", "axis=1" },
    { "Squeeze", "f32[2,1]", "axes=[1]" },
    { "Cast", "f32[2,3]", "U=f64" },
    { "Concat", "f32[2,3] f32[4,3]", "" },
    { "Split", "f32[4,3]", "N=2" },
    { "Pack", "f32[3] f32[3]", "axis=1" },
    { "Unpack", "f32[2,3]", "N=2" },
    { "Slice", "f32[4,6]", "begin=[1,2] size=[2,-1]" },
    { "Pad", "f32[2,3]", "before=[1,0] after=[0,2]" },
    { "StridedSlice", "f32[10,3]", "begin=[8,1] end=[1,0] strides=[-3,1] shrink_axis_mask=2" },
    { "Gather", "f32[5,3] i32[2,2]", "axis=1" },
    { "Tile", "f32[2,3]", "multiples=[2,1]" },
    { "SumLike", "f32[2,3] f32[3]", "" },
    { "BroadcastLike", "f32[2] f32[2,3]", "axes=[1]" },
    { "ReshapeLike", "f32[6] f32[2,3]", "" },
    { "SliceLike", "f32[4,6] f32[2,3]", "begin=[2,3]" },
    { "SliceGrad", "f32[2] f32[4]", "begin=[1]" },
    { "SplitLike", "f32[6,2] f32[4,2] f32[2,2]", "" },
    { "Fill", "i64=[2,3] f32[]", "" },
    { "Shard", "f32[7,2]", "index=1 count=3" },
    { "ShardGrad", "f32[2,2] f32[7,2]", "index=1 count=3" },
    { "AllReduce", "f32[2] f32[3] f32[2] f32[3]", "replicas=2" },
};

static bool is_float(const struct node_output *output) {
    return dtype_kind(output->dtype) == DTYPE_KIND_FLOAT;
}

static void once_and_twice(struct allot_graph *graph, const char *op, const char *inputs,
                           const char *attrs) {
    struct allot_error err = { 0 };
    const struct node *node;
    struct edge y, ret[8], again[8];
    uint32_t id;

    ck_assert_msg(graph_fixture_add(graph, op, inputs, attrs, &id, &err) == 0, "%s %s: %s", op,
                  inputs, err.text);
    node = graph_node(graph, id);
    y = (struct edge){ id, 0 };
    ck_assert_msg(grad_add(graph, &y, 1, node->inputs, node->n_inputs, NULL, ret, &err) == 0,
                  "%s %s: %s", op, inputs, err.text);
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        const struct node_output *input = node_input(graph, node, i);
        bool is_like = strstr(op, "Like") && i > 0;

        if (!is_float(input) || is_like || (strstr(op, "Grad") && strstr(inputs, " ") && i > 0)) {
            ck_assert_msg(edge_is_none(ret[i]), "%s %s", op, inputs);
            continue;
        }
        ck_assert_msg(!edge_is_none(ret[i]), "%s %s: input %u", op, inputs, i);
        ck_assert_msg(shape_is_whole(&input->shape)
                          ? shape_equal(&graph_output(graph, ret[i])->shape, &input->shape)
                          : shape_compatible(&graph_output(graph, ret[i])->shape, &input->shape),
                      "%s %s: input %u", op, inputs, i);
        ck_assert_int_eq(graph_output(graph, ret[i])->dtype, input->dtype);
        /* The gradient of the gradient: it need not depend on anything, but must be there. */
        ck_assert_msg(
            grad_add(graph, &ret[i], 1, node->inputs, node->n_inputs, NULL, again, &err) == 0,
            "%s %s, twice: %s", op, inputs, err.text);
    }
}

START_TEST(every_gradient_has_the_shape_of_its_input_once_and_twice) {
    for (size_t i = 0; i < ELEMENTSOF(smooth); i++) {
        cleanup(graph_unrefp) struct allot_graph *graph = graph_fixture_new();
        char open[256], *to = open;

        once_and_twice(graph, smooth[i].op, smooth[i].inputs, smooth[i].attrs);
        /* "f32[2,3]" becomes "f32?", but constants stay. */
        for (const char *c = smooth[i].inputs; *c; c++)
            if (*c != '[' || c[-1] == '=')
                *to++ = *c;
            else {
                *to++ = '?';
                c = strchr(c, ']');
            }
        *to = '\0';
        once_and_twice(graph, smooth[i].op, open, smooth[i].attrs);
    }
}
END_TEST

START_TEST(every_op_with_a_gradient_is_tried) {
    const struct opdef *op;
    size_t n_smooth = 0;

    ck_assert_int_eq(ops_register_all(NULL), 0);
    for (size_t i = 0; (op = opdef_at(i)); i++) {
        const size_t length = strlen(op->name);
        /* The gradient of …Grad is met where the op itself is tried twice. */
        bool is_tried = !op->gradient || strcmp(op->name, "ReadVariable") == 0 ||
                        (length > 4 && strcmp(op->name + length - 4, "Grad") == 0);

        for (size_t k = 0; !is_tried && k < ELEMENTSOF(smooth); k++)
            is_tried = strcmp(smooth[k].op, op->name) == 0;
        ck_assert_msg(is_tried, "%s has a gradient and no row in `smooth`", op->name);
        n_smooth += op->gradient != NULL;
    }
    ck_assert_uint_gt(n_smooth, 50);
}
END_TEST

SUITE("gradient", what_comes_by_several_ways_is_added_up,
      more_ways_than_a_list_can_have_are_added_up_too, what_does_not_lead_to_y_has_none,
      gradients_of_variables_and_constants_are_found, gradients_run_where_their_node_does,
      what_has_no_gradient_is_named, every_op_with_a_gradient_is_tried,
      every_gradient_has_the_shape_of_its_input_once_and_twice)
