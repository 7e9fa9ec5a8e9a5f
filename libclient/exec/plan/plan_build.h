/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Plan build: builds the plans that the cache of a session does not have, one at a time
 * (exec/stop/stoppable_lock.h). A run that builds a plan, or waits for another to be built, can be
 * stopped as during the run itself. Any thread.
 */
#include <stddef.h>
#include <stdint.h>

struct allot_error;
struct cache_entry;
struct device;
struct engine;
struct engine_run;
struct program_request;

/* Place all nodes of the graph and return the device of `node`, owned by the session. -EINVAL: not
 * all can be placed. */
int plan_build_place(struct engine *engine, uint32_t node, struct device **ret,
                     struct allot_error *err);

/*
 * The entry for `asked` under `key`, with one more user; built, unless another thread just did.
 * -ETIMEDOUT and -ECANCELED of the run; a plan that is ready when the time is over stays for the
 * next run. Other errors as program_new().
 */
int plan_build_entry(struct engine *engine, const struct program_request *asked,
                     const unsigned char *key, size_t key_bytes, struct engine_run *run,
                     struct cache_entry **ret, struct allot_error *err);
