/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * GPU times: when GPUs did what a traced run has queued on them. Events with times are recorded
 * before and after each item, and read when all is over; runs without a trace have none. What is
 * between the two is the item's alone: one at a time is queued on a stream.
 *
 * A GPU counts from an event to another. What ties that to the host's clock is a last event, which
 * is recorded and waited for when nothing else is under way. A run that is stopped waits for
 * nothing: then it is that no item can have begun before the host did to queue it.
 */
#include <stdbool.h>
#include <stdint.h>

struct allot_error;
struct run_state;
struct program;
struct gpu_times;
struct trace;

int gpu_times_new(struct gpu_times **ret, const struct program *program); /* -ENOMEM */
struct gpu_times *gpu_times_free(struct gpu_times *gpu_times); /* accepts and returns NULL */

/* Nobody else queues anything of this run on the stream of item `i` until it is unlocked. */
void gpu_times_lock(struct gpu_times *gpu_times, uint32_t i);
void gpu_times_unlock(struct gpu_times *gpu_times, uint32_t i);
/* Item `i` begins here on its stream, or ends. Its GPU is entered, its stream locked. */
int gpu_times_mark(struct gpu_times *gpu_times, uint32_t i, bool is_end, struct allot_error *err);
/* The run is over: put the times of all items on GPUs into the trace. */
int gpu_times_read(const struct gpu_times *gpu_times, struct trace *trace, struct allot_error *err);
/* It was stopped: put in those of the items that are over by now, and wait for nothing. */
void gpu_times_read_reached(struct gpu_times *gpu_times, struct trace *trace);
