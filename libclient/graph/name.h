/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Name: names of nodes, unique in their graph as TensorFlow makes them: "add", "add_1", "add_2",
 * and "hidden/add" in a name scope.
 *
 * The builder's thread.
 */
#include <stdbool.h>

struct allot_error;
struct allot_graph;

/* Letters, digits and "_.-/>", a letter, digit or '.' first. */
bool name_is_valid(const char *name);

/*
 * `name` under the innermost name scope, with a number where it is taken; the caller's to free. A
 * name that ends in '/' is taken as it is, without the '/' and outside of all scopes, if it is
 * free. -EINVAL: not valid; -ENOMEM.
 */
int name_new(struct allot_graph *graph, const char *name, char **ret, struct allot_error *err);
void name_done(struct allot_graph *graph);
