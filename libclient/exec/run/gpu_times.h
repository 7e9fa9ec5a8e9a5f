/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * GPU times: when GPUs did what a traced run queued on them. Timed events are recorded before and
 * after each item and read when the run is over; runs without a trace have none. Items are queued
 * on a stream one at a time, so that nothing else lies between the two events of an item.
 *
 * A GPU measures time from one event to another. To relate that to the host's clock, a last event
 * is recorded and waited for when nothing else is under way. A stopped run waits for nothing:
 * there, the only bound is that no item can have begun before the host began to queue it.
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

/* Lock the stream of item `i`: no other thread queues anything of this run on it until it is
 * unlocked. */
void gpu_times_lock(struct gpu_times *gpu_times, uint32_t i);
void gpu_times_unlock(struct gpu_times *gpu_times, uint32_t i);
/* Item `i` begins, or ends, at this point of its stream. Its GPU is entered, its stream locked. */
int gpu_times_mark(struct gpu_times *gpu_times, uint32_t i, bool is_end, struct allot_error *err);
/* The run is over: put the times of all items on GPUs into the trace. */
int gpu_times_read(const struct gpu_times *gpu_times, struct trace *trace, struct allot_error *err);
/* The run was stopped: put in the times of the items that have ended, and wait for nothing. */
void gpu_times_read_reached(struct gpu_times *gpu_times, struct trace *trace);
