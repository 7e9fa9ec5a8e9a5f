/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Job environment: the environment variables of a job: gpuctl's own, those of the grant, and the
 * guard.
 *
 * Owned by the caller of job_env_init(). All return 0 or -ENOMEM.
 */
#include <stdbool.h>
#include <stddef.h>

#include "ctl/installed.h"
#include "wire/message.h"

struct job_env {
    char **list; /* "NAME=value" strings, then NULL; each is owned */
    size_t n, room;
};

void job_env_init(struct job_env *env);
void job_env_done(struct job_env *env);

/* Set NAME to `value`, replacing an earlier one. */
int job_env_set(struct job_env *env, const char *name, const char *value);
void job_env_unset(struct job_env *env, const char *name);
const char *job_env_get(const struct job_env *env, const char *name); /* NULL: not set */

/*
 * gpuctl's own environment, then the variables of the grant and ALLOT_SOCKET. The lease and token
 * of an enclosing job are removed. `by_index`: name the devices 0, 1, … among those that the job
 * can open, instead of by UUID.
 */
int job_env_make(struct job_env *env, const struct wire_grant *grant, const char *socket,
                 bool by_index);

/*
 * Find the guard: the file that ALLOT_GUARD names, otherwise the one beside this program or the
 * installed one. False: it cannot be preloaded, which is reported on stderr.
 */
bool job_env_find_guard(char ret[static INSTALLED_PATH_SIZE]);
/* Put the guard first in LD_PRELOAD. */
int job_env_add_guard(struct job_env *env, const char *guard);
