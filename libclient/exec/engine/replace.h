/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Replace: plans of the dynamic placer that make way for others, between runs: because what was
 * measured contradicts them, or because a device or some of its memory is gone. Variables whose
 * place changes move with their values, while the run gate (exec/engine/run_gate.h) is closed; so
 * no run that is under way is disturbed.
 */
#include <stdbool.h>
#include <stddef.h>

struct allot_error;
struct cache_entry;
struct engine;
struct engine_run;
struct program;
struct program_request;

/*
 * A run begins: leave the devices that the daemon drains, whose lease ends or that are lost, and
 * make plans anew on what is left. -ENODEV, in words that name the device: values were lost with
 * it, or what it had can be nowhere else. Where other runs stay under way, the next run does it.
 */
int replace_gone(struct engine *engine, struct allot_error *err);

/*
 * A run got no memory for this program: if GPUs can give less than plans were made for, because
 * other jobs have it, let plans be made with what they can give now. False: it is not that.
 */
bool replace_shrunk(struct engine *engine, const struct program *program);

/*
 * The measured runs of an entry are over, and its plan may be wrong: look for a better one by what
 * was measured; `*entry`, with its use, is the one to run. With the plan lock held. Whatever fails,
 * the old plan goes on; NULL: it does not, as variables have moved, and another has to be made.
 */
void replace_review(struct engine *engine, const struct program_request *request,
                    const unsigned char *key, size_t key_bytes, struct cache_entry **entry);
