/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Next stage: the call of the next stage of a run, made from the call and the results of this one
 * (exec/plan/program.h). Owned by the run; one thread.
 */
#include "libclient/exec/engine/engine.h"

struct program;

struct next_stage {
    struct edge *feeds, *fetches;
    uint32_t *targets;
    struct allot_tensor **tensors, **known; /* of the feeds; borrowed */
    struct allot_tensor **fetched;
    struct engine_call call;
};

/* `fetched` are the program's own; all is borrowed until next_stage_done(). -ENOMEM. */
int next_stage_make(struct next_stage *next, const struct program *program,
                    const struct engine_call *call, struct allot_tensor *const *feeds,
                    struct allot_tensor *const *fetched);
void next_stage_done(struct next_stage *next); /* also of one that could not be made, or is zeros */
