/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Plan build: plans that the cache of a session has not. One thread makes one at a time
 * (exec/stop/stoppable_lock.h); its run, and those that wait for their turn, are stopped meanwhile
 * as when they run. Any thread.
 */
#include <stddef.h>
#include <stdint.h>

struct allot_error;
struct cache_entry;
struct device;
struct engine;
struct engine_run;
struct program_request;

/* Place all nodes that there are: the device of `node`, the session's. -EINVAL: not all can be. */
int plan_build_place(struct engine *engine, uint32_t node, struct device **ret,
                     struct allot_error *err);

/*
 * The entry for `asked`, whose key it is, with one more user; made, unless another thread just did.
 * -ETIMEDOUT and -ECANCELED of the run; a plan that is ready when the time is over stays for the
 * next one. Others as program_new() has them.
 */
int plan_build_entry(struct engine *engine, const struct program_request *asked,
                     const unsigned char *key, size_t key_bytes, struct engine_run *run,
                     struct cache_entry **ret, struct allot_error *err);
