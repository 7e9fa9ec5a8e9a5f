/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/ops/gradient.h"

struct edge gradient_unstretch(struct build *build, struct edge value, struct edge like) {
    const struct shape *have, *want;

    if (build->r < 0 || edge_is_none(value))
        return GRAPH_NO_EDGE;
    have = &graph_output(build->graph, value)->shape;
    want = &graph_output(build->graph, like)->shape;
    if (shape_is_whole(have) && shape_equal(have, want))
        return value;
    return build_2(build, "SumLike", value, like);
}

static struct edge number_like(struct build *build, struct edge value, double number) {
    if (build->r < 0 || edge_is_none(value))
        return GRAPH_NO_EDGE;
    return build_number(build, graph_output(build->graph, value)->dtype, number);
}

struct edge gradient_scale(struct build *build, struct edge value, double number) {
    return build_2(build, "Mul", value, number_like(build, value, number));
}

struct edge gradient_shift(struct build *build, struct edge value, double number) {
    return build_2(build, "Add", value, number_like(build, value, number));
}

struct edge gradient_or_zeros(struct build *build, const struct graph_gradient *gradient,
                              uint32_t i) {
    struct edge dy = gradient->outputs_grad[i];

    return edge_is_none(dy) ? build_1(build, "ZerosLike", gradient_y(gradient, i)) : dy;
}

struct build_attr gradient_attr(const struct graph_gradient *gradient, const char *name) {
    return (struct build_attr){ name, *graph_node_attr(gradient->node, name) };
}

int gradient_pass(struct graph_gradient *gradient, struct allot_error *err) {
    gradient->inputs_grad[0] = gradient_dy(gradient);
    return 0;
}
