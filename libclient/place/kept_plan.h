/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Kept plan: a plan as a text that outlives the process, and back.
 *
 * A text is found by its *key*, a digest of all that the search depends on: the task graph with its
 * costs, pins, groups, memory and links, the options of the search and the version of the placer.
 * What a text says is not believed: it must be a plan of this very graph, and the simulator must
 * find that it fits and takes as long as the text says.
 *
 * Pure; any thread.
 */
#include "base/sha256.h"
#include "libclient/place/dynamic.h"

#define KEPT_PLAN_KEY_SIZE (2 * SHA256_SIZE + 1)

/* `version` is that of the placer, or more. Only the seed and the budget are read of `options`. */
void kept_plan_key(const struct task_graph *graph, const struct dynamic_options *options,
                   const char *version, char ret[static KEPT_PLAN_KEY_SIZE]);

/* To be freed. -ENOMEM. */
int kept_plan_print(const struct task_graph *graph, const struct dynamic_result *result,
                    const char *key, char **ret, size_t *ret_n);
/* -EBADMSG: it is no plan of this graph, and `*ret_why` says what is wrong. -ENOMEM. */
int kept_plan_parse(const struct task_graph *graph, const char *key, const char *text, size_t n,
                    struct dynamic_result *ret, const char **ret_why);
