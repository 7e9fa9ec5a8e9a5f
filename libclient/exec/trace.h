/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Trace: when each item of a run began and ended, and on which thread; for people to look at in
 * Perfetto or chrome://tracing.
 *
 * One run writes it, each item its own entry; it is read when the run is over.
 */
#include <stdint.h>
#include <stdio.h>

struct allot_error;
struct frame;
struct program;

struct trace_event {
    uint64_t begin_nsec, end_nsec; /* CLOCK_MONOTONIC; 0: it did not run */
    uint32_t thread;               /* of the crew; 0 is the caller */
};

struct trace {
    const struct program *program; /* borrowed */
    const struct trace *before;    /* of the stage before; NULL: this is the first */
    uint32_t n_events;
    struct trace_event events[]; /* as program.items */
};

/* `before` and `program` must outlive it. To be freed. -ENOMEM. */
int trace_new(struct trace **ret, const struct program *program, const struct trace *before);

/* Run item `i` of the frame and note it; what the item returned. */
int trace_item(struct trace *trace, struct frame *frame, uint32_t i, uint32_t thread);

/* As a Chrome trace: a row per device and thread, op and shapes of each item of all stages, and the
 * bytes that are live in each slab over time. -errno of the stream. */
int trace_write(const struct trace *last, FILE *file);
