/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Deadline: stops a run at a given time, from a thread of its own that exists only while some
 * deadline is set. Any thread.
 */
struct stop;

/* Stop at its time limit. -EAGAIN: no thread could be started. */
int deadline_set(struct stop *stop);
void deadline_end(struct stop *stop); /* `stop` is not touched after this */
