/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Plan lookup: the plan for a call, and memory to run it in. A plan is built once, by one thread of
 * a session at a time; memory is allocated, and waited for, without any lock. A run that builds a
 * plan, or waits for another to be built, can be stopped as during the run itself. Any thread.
 */
#include "libclient/graph/graph.h"

struct allot_error;
struct allot_tensor;
struct cache_entry;
struct device;
struct engine;
struct engine_call;
struct engine_run;
struct program;
struct program_request;
struct run_state;

/*
 * The entry of the plan, with one more user, and a run state for it. `before`: the previous stage;
 * NULL: this is the first. `shapes` are those of the feeds. -ENOMEM; -ETIMEDOUT and -ECANCELED from
 * the run, with the op and the bytes that it waited for.
 */
int plan_lookup_take(struct engine *engine, const struct engine_call *call,
                     const struct cache_entry *before, struct allot_tensor *const *feeds,
                     const struct shape *shapes, struct engine_run *run, struct cache_entry **ret,
                     struct run_state **ret_state, struct allot_error *err);

/* A program that fits, where the dynamic placer decides. With the plan lock held. */
int plan_lookup_program(const struct program_request *request, struct program **ret,
                        struct allot_error *err);

/* Place all nodes of the graph and return the device of `node`, owned by the session. -EINVAL: not
 * all can be placed. */
int plan_lookup_place(struct engine *engine, uint32_t node, struct device **ret,
                      struct allot_error *err);
