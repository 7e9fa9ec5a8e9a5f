/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Trace: when each item of a run began and ended, and on which thread or stream; to be viewed in
 * Perfetto or chrome://tracing. Runs that fail or are stopped have a trace too, up to that point.
 *
 * One run writes it, each item its own entry; it is read when the run is over.
 */
#include <stdint.h>

#include "base/cleanup.h"

struct allot_error;
struct run_state;
struct program;
struct gpu_times;

/* All times by CLOCK_MONOTONIC. */
struct trace_event {
    uint64_t begin_nsec, end_nsec;         /* on the host, if only to queue it; 0: it did not run */
    uint64_t gpu_begin_nsec, gpu_end_nsec; /* on the GPU; 0: it is the host's */
    uint32_t thread;                       /* of the workers; 0 is the caller */
    int code;                              /* what came of it on the host; 0: it went well */
};

struct trace {
    const struct program *program; /* borrowed */
    const struct trace *before;    /* of the stage before; NULL: this is the first */
    struct gpu_times *gpu_times;   /* NULL: no GPU has a part in it */
    uint32_t n_events;
    struct trace_event events[]; /* as program.items */
};

/* `before` and `program` must outlive it. -ENOMEM. */
int trace_new(struct trace **ret, const struct program *program, const struct trace *before);
struct trace *trace_free(struct trace *trace); /* accepts and returns NULL */
DEFINE_FREEP(struct trace, trace_freep, trace_free)

/* Run item `i` of the run state and note it; what the item returned. */
int trace_item(struct trace *trace, struct run_state *state, uint32_t i, uint32_t thread);

/* Empty the file, so that the trace of an earlier run is not taken for that of the run that
 * begins. */
void trace_forget(const char *path);

/*
 * Write a Chrome trace of all stages: a row per thread of the host, with what it did and what it
 * queued; a row per stream of a GPU, with what that did; and the live bytes in each slab over time.
 * Where the dynamic placer made the plan, a second process for each device has the planned step.
 * `last` NULL: nothing was run. `why`: the run's error; code 0: it succeeded. Work that was queued
 * for a GPU and had not ended is marked. -errno of the file.
 */
int trace_save(const struct trace *last, const char *path, const struct allot_error *why,
               struct allot_error *err);
