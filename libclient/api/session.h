/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Session: for parts of the API that make a session of their own.
 */
#include "libclient/allot/session.h"

struct engine;

struct allot_session {
    struct engine *engine;
};

/* With these options, which are whole, and nothing of allot/config.h. */
int session_make(struct allot_session **ret, struct allot_graph *graph,
                 const struct allot_session_options *options, struct allot_error *err);
