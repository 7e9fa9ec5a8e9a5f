/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Session: for parts of the API that make a session of their own.
 */
#include "libclient/allot/session.h"

struct edge;
struct engine;

struct allot_session {
    struct engine *engine;
};

/* Make a session with exactly these options, which are all filled in; ignores allot/config.h. */
int session_make(struct allot_session **ret, struct allot_graph *graph,
                 const struct allot_session_options *options, struct allot_error *err);

/* The caller's options, of an older header or this one, or none, as whole ones. -EINVAL: neither.
 */
int session_options(struct allot_session_options *ret, const struct allot_session_options *given,
                    struct allot_error *err);

/* What a run is told, in the graph's terms; `what` and `i` name it in errors. -EINVAL. */
int session_edge(const struct allot_graph *graph, struct allot_output output, const char *what,
                 size_t i, struct edge *ret, struct allot_error *err);
int session_target(const struct allot_graph *graph, const struct allot_node *node, size_t i,
                   uint32_t *ret, struct allot_error *err);
