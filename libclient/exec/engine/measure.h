/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Measure: what ops took in real runs, for the dynamic placer.
 *
 * A measured run is traced, and its trace is not written but read: on GPUs the time between the two
 * events around an op on its stream, on the CPU the clock. The first run of a plan is not measured,
 * as it loads kernels and takes memory. Runs that are not measured cost nothing. Any thread.
 */
#include <stdbool.h>

struct cache_entry;
struct engine;
struct trace;

/* A run of the plan begins: whether it is to be measured. */
bool measure_begins(const struct engine *engine, struct cache_entry *entry);
/* It went well: take its times. After the last measured run of a plan they are kept. */
void measure_take(struct engine *engine, struct cache_entry *entry, const struct trace *trace);
