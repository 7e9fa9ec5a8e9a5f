/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Graph fixture: nodes from one line of text, for tables of tests.
 *
 *     graph_fixture_add(graph, "Sum", "f32[2,?]", "axes=[1] keep_dims=true", &id, &err)
 *
 * Inputs, with spaces between: "f32[2,?]" a placeholder, "f32?" one of which nothing is known,
 * "i64=[2,-1]" and "i64=3" constants (i32, i64, f32, f64), "var:f32[2]" a variable, "@name:1" an
 * output that there is. Attributes: name=value, lists in brackets without spaces, types as f32.
 */
#include "libclient/graph/build.h"

int graph_fixture_add(struct allot_graph *graph, const char *op, const char *inputs,
                      const char *attrs, uint32_t *ret, struct allot_error *err);
/* The same, named; fails the test where it fails. */
struct edge graph_fixture_node(struct allot_graph *graph, const char *name, const char *op,
                               const char *inputs, const char *attrs);
/* "i64=[2,3]" or "f32=4" as a tensor. */
struct allot_tensor *graph_fixture_tensor(const char *word);
/* A graph, with the ops registered. */
struct allot_graph *graph_fixture_new(void);
