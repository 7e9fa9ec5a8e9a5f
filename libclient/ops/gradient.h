/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Gradients: functions that the gradients of all ops share.
 *
 * A gradient has the shape of the input that it belongs to. If that input was stretched, or has
 * open dimensions, ops that take their shape from the input bring the gradient back to it, so that
 * it is right for any shape.
 */
#include "libclient/graph/build.h"
#include "libclient/graph/grad.h"

/* The node's inputs and outputs, and the gradient of output 0. */
static inline struct edge gradient_x(const struct graph_gradient *gradient, size_t i) {
    return gradient->node->inputs[i];
}
static inline struct edge gradient_y(const struct graph_gradient *gradient, uint32_t i) {
    return (struct edge){ gradient->node->id, i };
}
static inline struct edge gradient_dy(const struct graph_gradient *gradient) {
    return gradient->outputs_grad[0];
}
static inline struct build gradient_build(const struct graph_gradient *gradient,
                                          struct allot_error *err) {
    return (struct build){ gradient->graph, err, 0 };
}
/* Type attribute T of the node. */
static inline enum dtype gradient_type(const struct graph_gradient *gradient) {
    return graph_node_attr(gradient->node, "T")->dtype;
}

/* `value`, a stretched form of `like`, summed back to the shape of `like`. */
struct edge gradient_unstretch(struct build *build, struct edge value, struct edge like);
/* value · number */
struct edge gradient_scale(struct build *build, struct edge value, double number);
/* value + number */
struct edge gradient_shift(struct build *build, struct edge value, double number);
/* What comes back through output i; zeros where nothing does. */
struct edge gradient_or_zeros(struct build *build, const struct graph_gradient *gradient,
                              uint32_t i);
/* An attribute of the node, for one that is made. */
struct build_attr gradient_attr(const struct graph_gradient *gradient, const char *name);

/* dx = dy */
int gradient_pass(struct graph_gradient *gradient, struct allot_error *err);
