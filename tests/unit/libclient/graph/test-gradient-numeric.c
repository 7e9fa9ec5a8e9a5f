/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients against finite differences, in f64: of every op with respect to every input, with
 * shapes known and open; and the gradient of the gradient likewise.
 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "libclient/allot/train.h"
#include "libclient/api/handle.h"
#include "libclient/graph/grad.h"
#include "libclient/ops/ops.h"
#include "tests/support/libclient/graph/graph_fixture.h"
#include "tests/support/libclient/graph/graph_reference.h"
#include "tests/support/suite.h"

enum { INPUTS_MAX = 4 };

static const struct {
    const char *op, *inputs, *attrs;
    bool positive; /* only defined, or only smooth, there */
} cases[] = {
    { "Identity", "[2,3]", "" },
    { "Neg", "[2,3]", "" },
    { "Abs", "[2,3]", "" },
    { "Square", "[2,3]", "" },
    { "Exp", "[2,3]", "" },
    { "Expm1", "[2,3]", "" },
    { "Log", "[2,3]", "", true },
    { "Log1p", "[2,3]", "", true },
    { "Sqrt", "[2,3]", "", true },
    { "Rsqrt", "[2,3]", "", true },
    { "Reciprocal", "[2,3]", "" },
    { "Sin", "[2,3]", "" },
    { "Cos", "[2,3]", "" },
    { "Tanh", "[2,3]", "" },
    { "Sigmoid", "[2,3]", "" },
    { "Relu", "[2,3]", "" },
    { "Relu6", "[2,3]", "" },
    { "LeakyRelu", "[2,3]", "alpha=0.3" },
    { "Elu", "[2,3]", "" },
    { "Gelu", "[2,3]", "" },
    { "Gelu", "[2,3]", "approximate=true" },
    { "Silu", "[2,3]", "" },
    { "Softplus", "[2,3]", "" },
    { "Erf", "[2,3]", "" },
    { "Add", "[2,3] [3]", "" },
    { "Sub", "[2,1] [1,3]", "" },
    { "Mul", "[2,3] []", "" },
    { "Mul", "[2,1,3] [4,1]", "" },
    { "Div", "[2,3] [2,1]", "" },
    { "FloorMod", "[2,3] [3]", "" },
    { "Pow", "[2,3] [3]", "", true },
    { "Maximum", "[2,3] [3]", "" },
    { "Minimum", "[2,3] [3]", "" },
    { "SquaredDifference", "[2,3] [3]", "" },
    { "AddN", "[2] [2]", "" },
    { "BiasAdd", "[2,2,3] [3]", "" },
    { "BiasAddGrad", "[2,2,3]", "" },
    { "MatMul", "[2,3] [3,4]", "" },
    { "MatMul", "[3,2] [3,4]", "transpose_a=true" },
    { "MatMul", "[2,3] [4,3]", "transpose_b=true" },
    { "MatMul", "[3,2] [4,3]", "transpose_a=true transpose_b=true" },
    { "BatchMatMul", "[2,1,2,3] [2,3,2]", "" },
    { "BatchMatMul", "[3,2] [2,2,3]", "adj_x=true adj_y=true" },
    { "BatchMatMul", "[2,3,2] [3,2]", "adj_x=true" },
    { "BatchMatMul", "[2,2,3] [2,2,3]", "adj_y=true" },
    { "Sum", "[2,3]", "" },
    { "Sum", "[2,3,2]", "axes=[-1,0]" },
    { "Mean", "[2,3]", "axes=[0] keep_dims=true" },
    { "Mean", "[2,3]", "axes=[1]" },
    { "Mean", "[2,3]", "" },
    { "Prod", "[2,3]", "axes=[1]" },
    { "Prod", "[2,3]", "keep_dims=true" },
    { "ProdGrad", "[2] [2,3]", "axes=[1]" },
    { "ProdGrad", "[1,1] [2,2]", "keep_dims=true" },
    { "ProdGrad", "[3] [2,3] [2,3]", "axes=[0]" },
    { "ProdGrad", "[] [4] [4] [4]", "" },
    { "Max", "[2,3]", "axes=[1]" },
    { "Max", "[2,3]", "axes=[0] keep_dims=true" },
    { "Min", "[2,3]", "" },
    { "Softmax", "[2,3]", "" },
    { "LogSoftmax", "[2,3]", "" },
    { "SoftmaxCrossEntropy", "[2,3] [2,3]", "" },
    { "SparseSoftmaxCrossEntropy", "[2,3] i64[2]", "" },
    { "Select", "bool[3] [2,1] [1,3]", "" },
    { "Reshape", "[2,3] i64=[3,-1]", "" },
    { "BroadcastTo", "[2,1] i64=[2,2,3]", "" },
    { "Transpose", "[2,3,4]", "perm=[2,0,1]" },
    { "Transpose", "[2,3]", "" },
    { "ExpandDims", "[2,3]", "axis=1" },
    { "Squeeze", "[2,1,3]", "axes=[1]" },
    { "Concat", "[2,3] [1,3]", "" },
    { "Concat", "[2,1] [2,3]", "axis=-1" },
    { "Split", "[2,4]", "N=2 axis=1" },
    { "Pack", "[3] [3]", "axis=1" },
    { "Unpack", "[2,3]", "N=2" },
    { "Slice", "[3,4]", "begin=[1,2] size=[2,-1]" },
    { "Pad", "[2,3]", "before=[1,0] after=[0,2]" },
    { "StridedSlice", "[7,3]", "begin=[6,1] end=[0,0] strides=[-3,1] shrink_axis_mask=2" },
    { "Gather", "[3,4] i32[2,2]", "" },
    { "Gather", "[2,3] i64[4]", "axis=1" },
    { "Tile", "[2,3]", "multiples=[2,2]" },
    { "SumLike", "[2,2,3] like[2,1]", "" },
    { "BroadcastLike", "[2] like[2,3]", "axes=[1]" },
    { "ReshapeLike", "[6] like[2,3]", "" },
    { "SliceLike", "[3,4] like[2,2]", "begin=[1,2]" },
    { "SliceGrad", "[2] like[4]", "begin=[1]" },
    { "SplitLike", "[3,2] like[2,2] like[1,2]", "" },
    { "Fill", "i64=[2,3] []", "" },
    { "Cast", "[2,3]", "U=f64" },
    { "CheckNumerics", "[2,3]", "" },
    { "ReluGrad", "[2,3] [2,3]", "" },
    { "Relu6Grad", "[2,3] [2,3]", "" },
    { "LeakyReluGrad", "[2,3] [2,3]", "alpha=0.3" },
    { "EluGrad", "[2,3] [2,3]", "" },
    { "GeluGrad", "[2,3] [2,3]", "" },
    { "GeluGrad", "[2,3] [2,3]", "approximate=true" },
    { "SiluGrad", "[2,3] [2,3]", "" },
    { "SoftplusGrad", "[2,3] [2,3]", "" },
    { "TanhGrad", "[2,3] [2,3]", "" },
    { "SigmoidGrad", "[2,3] [2,3]", "" },
    { "StridedSliceGrad", "[2] like[7]", "begin=[6] end=[0] strides=[-3]" },
    { "GatherGrad", "[2,2,4] i32[2,2] like[3,4]", "" },
    { "TileGrad", "[4,6] like[2,3]", "multiples=[2,2]" },
    { "Shard", "[7,2]", "index=1 count=3" },
    { "ShardGrad", "[2,2] like[7,2]", "index=1 count=3" },
};

/* Ops whose gradient has no case above, with the reason. */
static const struct {
    const char *op, *why;
} without_case[] = {
    { "AllReduce", "the executor makes it of other kernels; test-gradient has its gradient" },
    { "Print", "passes its gradient on, and would write to the log at every difference" },
    { "ReadVariable", "its input is a variable, which optimizers_step_as_their_rules_say moves" },
};

struct world {
    struct allot_graph *graph;
    struct graph_reference reference;
    struct edge feeds[INPUTS_MAX];
    struct allot_tensor *fed[INPUTS_MAX];
    bool is_float[INPUTS_MAX], is_like[INPUTS_MAX];
    size_t n;
    uint64_t seed;
};

static double draw(struct world *world, bool positive) {
    double value;

    world->seed = world->seed * 6364136223846793005u + 1442695040888963407u;
    value = 0.3 + 1.4 * (double)(world->seed >> 33) / 0x1p31;
    return !positive && world->seed >> 32 & 1 ? -value : value;
}

/* Placeholders for the inputs, and numbers to feed them. Constants are left to the fixture. */
static void make_inputs(struct world *world, const char *inputs, bool positive, bool open,
                        char *words) {
    cleanup(freep) char *text = strdup(inputs);
    char *word, *save;

    for (word = strtok_r(text, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        char attrs[64], name[8], *bracket = strchr(word, '[');
        struct shape shape = { 0 };
        enum dtype dtype;
        size_t i = world->n;

        if (strchr(word, '=')) {
            words += sprintf(words, "%s ", word);
            continue;
        }
        for (const char *c = bracket + 1; *c && *c != ']'; c++)
            if (*c != ',')
                shape.dims[shape.rank++] = *c - '0';
        *bracket = '\0';
        world->is_like[i] = strcmp(word, "like") == 0;
        dtype = *word && !world->is_like[i] ? dtype_by_name(word) : DTYPE_F64;
        world->is_float[i] = dtype == DTYPE_F64;
        *bracket = '[';
        snprintf(attrs, sizeof(attrs), "T=%s shape=%s", dtype_name(dtype), open ? "?" : bracket);
        snprintf(name, sizeof(name), "x%zu", i);
        world->feeds[i] = graph_fixture_node(world->graph, name, "Placeholder", "", attrs);
        ck_assert_int_eq(constant_new(&world->fed[i], dtype, &shape, 0, NULL), 0);
        for (int64_t e = 0; e < shape_count(&shape); e++) {
            void *data = tensor_data(world->fed[i]);

            if (dtype == DTYPE_F64)
                ((double *)data)[e] = draw(world, positive);
            else if (dtype == DTYPE_I64)
                ((int64_t *)data)[e] = e % 2;
            else if (dtype == DTYPE_I32)
                ((int32_t *)data)[e] = (int32_t)(e % 3 % 2);
            else
                ((uint8_t *)data)[e] = e % 2 == 0;
        }
        words += sprintf(words, "@x%zu ", i);
        world->n++;
    }
}

static struct allot_tensor *value_of(struct world *world, struct edge edge) {
    struct topo_request request = {
        .fetches = &edge, .n_fetches = 1, .feeds = world->feeds, .n_feeds = world->n
    };
    struct allot_tensor *tensor;
    int r = graph_reference_run(&world->reference, &request, world->fed, &tensor);

    ck_assert_msg(r == 0, "%s", world->reference.error.text);
    return tensor;
}

static double number_of(struct world *world, struct edge edge) {
    struct allot_tensor *tensor = value_of(world, edge);
    double value = *(double *)tensor_data(tensor);

    ck_assert_int_eq(allot_tensor_count(tensor), 1);
    allot_tensor_unref(tensor);
    return value;
}

/* Σ y·w with weights that differ from element to element: cos(1 + i). */
static struct edge weigh(struct world *world, struct edge y) {
    struct build build = { world->graph, NULL, 0 };
    struct allot_tensor *now = value_of(world, y), *weights;
    struct edge product;

    ck_assert_int_eq(constant_new(&weights, DTYPE_F64, &now->shape, 0, NULL), 0);
    for (int64_t i = 0; i < allot_tensor_count(weights); i++)
        ((double *)tensor_data(weights))[i] = cos(1 + (double)i);
    product = build_2(&build, "Mul", y, build_const(&build, weights));
    product = build_1(&build, "Sum", product);
    ck_assert_int_eq(build.r, 0);
    allot_tensor_unref(weights);
    allot_tensor_unref(now);
    return product;
}

/* dL/dx by the graph and by differences, for all floats that are fed. */
static void compare(struct world *world, struct edge loss, const char *what, struct edge *ret) {
    static const double step = 1e-6;
    struct allot_error err = { 0 };

    ck_assert_msg(grad_add(world->graph, &loss, 1, world->feeds, world->n, NULL, ret, &err) == 0,
                  "%s: %s", what, err.text);
    for (size_t i = 0; i < world->n; i++) {
        double *x = tensor_data(world->fed[i]);
        struct allot_tensor *grad;

        if (!world->is_float[i] || world->is_like[i]) {
            ck_assert_msg(edge_is_none(ret[i]), "%s: input %zu", what, i);
            continue;
        }
        grad = edge_is_none(ret[i]) ? NULL : value_of(world, ret[i]);
        if (grad)
            ck_assert_msg(shape_equal(&grad->shape, &world->fed[i]->shape), "%s: input %zu", what,
                          i);
        for (int64_t e = 0; e < allot_tensor_count(world->fed[i]); e++) {
            double was = x[e], above, below, expected;
            double got = grad ? ((double *)tensor_data(grad))[e] : 0;

            x[e] = was + step;
            above = number_of(world, loss);
            x[e] = was - step;
            below = number_of(world, loss);
            x[e] = was;
            expected = (above - below) / (2 * step);
            ck_assert_msg(fabs(got - expected) <= 2e-7 * (1 + fabs(expected)) + 1e-7 * fabs(above),
                          "%s: input %zu, element %d: %.12g, and by differences %.12g", what, i,
                          (int)e, got, expected);
        }
        allot_tensor_unref(grad);
    }
}

static void try_case(size_t at, bool open) {
    struct world world = { .graph = graph_fixture_new(), .seed = 17 + at };
    struct edge y, loss, grads[INPUTS_MAX], again[INPUTS_MAX];
    char words[128], what[256];

    graph_reference_init(&world.reference, world.graph);
    make_inputs(&world, cases[at].inputs, cases[at].positive, open, words);
    if (strcmp(cases[at].op, "SoftmaxCrossEntropy") == 0) { /* labels that add up to 1 */
        graph_fixture_node(world.graph, "labels", "Softmax", "@x1", "");
        strcpy(words, "@x0 @labels");
    }
    y = graph_fixture_node(world.graph, "y", cases[at].op, words, cases[at].attrs);
    snprintf(what, sizeof(what), "%s %s %s%s", cases[at].op, cases[at].inputs, cases[at].attrs,
             open ? ", open" : "");
    loss = weigh(&world, y);
    compare(&world, loss, what, grads);

    for (size_t i = 0; i < world.n; i++) {
        if (edge_is_none(grads[i]))
            continue;
        snprintf(what, sizeof(what), "%s %s %s%s, twice by input %zu", cases[at].op,
                 cases[at].inputs, cases[at].attrs, open ? ", open" : "", i);
        compare(&world, weigh(&world, grads[i]), what, again);
    }
    for (size_t i = 0; i < world.n; i++)
        allot_tensor_unref(world.fed[i]);
    graph_reference_done(&world.reference);
    graph_unref(world.graph);
}

START_TEST(gradients_agree_with_differences_once_and_twice) {
    for (size_t i = 0; i < ELEMENTSOF(cases); i++)
        try_case(i, false);
}
END_TEST

START_TEST(every_gradient_has_a_case_or_a_reason) {
    const struct opdef *op;
    struct allot_error err;

    ck_assert_int_eq(ops_register_all(&err), 0);
    for (size_t i = 0; (op = opdef_at(i)); i++) {
        unsigned n = 0, n_reasons = 0;

        for (size_t k = 0; k < ELEMENTSOF(cases); k++)
            n += strcmp(cases[k].op, op->name) == 0;
        for (size_t k = 0; k < ELEMENTSOF(without_case); k++)
            n_reasons += strcmp(without_case[k].op, op->name) == 0;
        ck_assert_msg(!op->gradient || op->is_flat || n + n_reasons > 0,
                      "%s has a gradient, and no case here: wrong numbers would not be seen",
                      op->name);
        ck_assert_msg(n == 0 || n_reasons == 0, "%s has a case, and a reason to have none",
                      op->name);
    }
}
END_TEST

START_TEST(gradients_agree_where_all_shapes_were_open) {
    for (size_t i = 0; i < ELEMENTSOF(cases); i++)
        try_case(i, true);
}
END_TEST

/* ---- At the corners -------------------------------------------------------------------------- */

/* The gradient of Σ op(x) at these numbers, as text. */
static void at_numbers(const char *op, const char *attrs, const char *inputs,
                       const char *expected) {
    struct world world = { .graph = graph_fixture_new() };
    struct edge y = graph_fixture_node(world.graph, "y", op, inputs, attrs), x, grad;
    struct allot_error err = { 0 };
    struct allot_tensor *value;
    char text[256];

    graph_reference_init(&world.reference, world.graph);
    x = graph_node(world.graph, y.node)->inputs[0];
    ck_assert_msg(grad_add(world.graph, &y, 1, &x, 1, NULL, &grad, &err) == 0, "%s", err.text);
    value = value_of(&world, grad);
    ck_assert_str_eq(allot_tensor_format(value, text, sizeof(text)), expected);
    allot_tensor_unref(value);
    graph_reference_done(&world.reference);
    graph_unref(world.graph);
}

START_TEST(gradients_are_right_at_the_corners) {
    at_numbers("Prod", "", "f64=[2,0,3]", "[0 6 0]");
    at_numbers("Prod", "", "f64=[0,5,0]", "[0 0 0]");
    /* Its own input 0 is what counts for the product: Σ of all others. */
    at_numbers("ProdGrad", "", "f64=1 f64=[2,0,3]", "6");
    at_numbers("ProdGrad", "", "f64=1 f64=[2,0,0,5] f64=[1,1,1,1]", "20");
    at_numbers("Max", "", "f64=[1,3,3,2]", "[0 0.5 0.5 0]");
    at_numbers("Min", "", "f64=[1,3,3,2]", "[1 0 0 0]");
    at_numbers("Pow", "", "f64=[0,0,2] f64=[0,2,3]", "[0 0 12]");
    at_numbers("Relu", "", "f64=[-1,0,2]", "[0 0 1]");
    at_numbers("Abs", "", "f64=[-1,0,2]", "[-1 0 1]");
    at_numbers("Maximum", "", "f64=[1,2,3] f64=[2,2,2]", "[0 1 1]");
    at_numbers("Gather", "", "f64=[1,2,3] i64=[2,0,2]", "[1 0 2]");
}
END_TEST

/* ---- Optimizers ------------------------------------------------------------------------------ */

static void run_node(struct graph_reference *reference, struct allot_node *node) {
    uint32_t id = handle_node(node)->id;
    int r = graph_reference_run(reference, &(struct topo_request){ .targets = &id, .n_targets = 1 },
                                NULL, NULL);

    ck_assert_msg(r == 0, "%s", reference->error.text);
}

/* Down x²/2 + 3x from 2, whose gradient is x + 3: against the rules written out. */
static void walk_down(int method) {
    static const double rate = 0.1, momentum = 0.9, b1 = 0.9, b2 = 0.999, epsilon = 1e-8;
    struct allot_optimizer *optimizer = method == 0   ? allot_sgd(rate)
                                        : method == 1 ? allot_momentum(rate, momentum, false)
                                        : method == 2 ? allot_momentum(rate, momentum, true)
                                                      : allot_adam(rate, ALLOT_ADAM_DEFAULTS);
    double x = 2, a = 0, m = 0, v = 0, p1 = b1, p2 = b2;
    struct allot_output variable, loss;
    struct allot_node *train;
    struct allot_graph *graph;
    struct graph_reference reference;

    ck_assert_int_eq(allot_graph_new(&graph, NULL), 0);
    graph_reference_init(&reference, graph);
    variable = allot_variable(graph, "x", allot_scalar(graph, ALLOT_F64, 2));
    loss = allot_add(allot_mul(allot_square(variable), allot_scalar(graph, ALLOT_F64, 0.5)),
                     allot_mul(variable, allot_scalar(graph, ALLOT_F64, 3)));
    train = allot_minimize(optimizer, loss);
    run_node(&reference, allot_initializer(graph));
    for (int i = 0; i < 25; i++) {
        double g = x + 3, *now;

        run_node(&reference, train);
        if (method == 0)
            x -= rate * g;
        else if (method < 3) {
            a = momentum * a + g;
            x -= method == 1 ? rate * a : rate * (g + momentum * a);
        } else {
            m += (g - m) * (1 - b1);
            v += (g * g - v) * (1 - b2);
            x -= rate * sqrt(1 - p2) / (1 - p1) * m / (sqrt(v) + epsilon);
            p1 *= b1;
            p2 *= b2;
        }
        now = tensor_data(
            (struct allot_tensor *)map_find(&reference.variables, handle_node(variable.node)->id));
        ck_assert_msg(fabs(*now - x) < 1e-12, "method %d, step %d: %.15g instead of %.15g", method,
                      i, *now, x);
    }
    allot_optimizer_free(optimizer);
    graph_reference_done(&reference);
    allot_graph_unref(graph);
}

START_TEST(optimizers_step_as_their_rules_say) {
    for (int method = 0; method < 4; method++)
        walk_down(method);
}
END_TEST

START_TEST(a_changed_variable_is_read_after_the_change) {
    struct allot_output v, after, twice;
    struct allot_tensor *value;
    struct graph_reference reference;
    struct allot_graph *graph;
    struct edge fetch;

    ck_assert_int_eq(allot_graph_new(&graph, NULL), 0);
    graph_reference_init(&reference, graph);
    v = allot_variable(graph, "v", allot_scalar(graph, ALLOT_I32, 40));
    after = allot_assign_add(v, allot_scalar(graph, ALLOT_I32, 1));
    allot_with_control(graph, after.node) twice =
        allot_assign_add(v, allot_scalar(graph, ALLOT_I32, 1));
    fetch = handle_edge(twice);
    ck_assert_int_eq(
        graph_reference_run(&reference, &(struct topo_request){ .fetches = &fetch, .n_fetches = 1 },
                            NULL, &value),
        -EINVAL);
    ck_assert_ptr_nonnull(strstr(reference.error.text, "variable 'v' has no value"));
    run_node(&reference, allot_initializer(graph));
    ck_assert_int_eq(
        graph_reference_run(&reference, &(struct topo_request){ .fetches = &fetch, .n_fetches = 1 },
                            NULL, &value),
        0);
    ck_assert_int_eq(*(int32_t *)tensor_data(value), 42);
    allot_tensor_unref(value);
    graph_reference_done(&reference);
    allot_graph_unref(graph);
}
END_TEST

SUITE_TIMEOUT("gradient-numeric", 120, gradients_agree_with_differences_once_and_twice,
              gradients_agree_where_all_shapes_were_open, every_gradient_has_a_case_or_a_reason,
              gradients_are_right_at_the_corners, optimizers_step_as_their_rules_say,
              a_changed_variable_is_read_after_the_change)
