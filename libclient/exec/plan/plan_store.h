/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Plan store: plans in the cache folder, found by what was planned and for which box
 * (place/kept_plan.h). A file that is damaged or does not hold what it says is ignored, with a line
 * in the log, and replaced by the next search. Their number and size are bounded. Any thread.
 */
#include "libclient/exec/plan/cache_folder.h"
#include "libclient/place/kept_plan.h"

/* Plans that are kept in a folder, all of them and the largest. */
#define PLAN_STORE_MAX       256
#define PLAN_STORE_BYTES_MAX (64u << 20)
#define PLAN_STORE_FILE_MAX  (8u << 20)

/* -ENOENT: there is none. */
int plan_store_find(struct cache_folder *folder, const struct task_graph *graph,
                    const char key[static KEPT_PLAN_KEY_SIZE], struct dynamic_result *ret);
void plan_store_keep(struct cache_folder *folder, const struct task_graph *graph,
                     const char key[static KEPT_PLAN_KEY_SIZE],
                     const struct dynamic_result *result);
