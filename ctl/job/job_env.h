/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Jobenv: the environment that a job is started with: ours, what the grant says, and the guard.
 *
 * Owned by its maker. All return 0 or -ENOMEM.
 */
#include <stdbool.h>
#include <stddef.h>

#include "wire/message.h"

struct jobenv {
    char **list; /* "NAME=value", NULL at its end; each owned */
    size_t n, room;
};

void jobenv_init(struct jobenv *env);
void jobenv_done(struct jobenv *env);

/* "NAME=value" in the place of what NAME was. */
int jobenv_set(struct jobenv *env, const char *name, const char *value);
void jobenv_unset(struct jobenv *env, const char *name);
const char *jobenv_get(const struct jobenv *env, const char *name); /* NULL: not set */

/*
 * Our own environment, then the variables of the grant and ALLOT_SOCKET. Tokens and leases of a job
 * around this one are forgotten. `by_index`: devices as 0, 1, … of those the job can open, not as
 * UUIDs.
 */
int jobenv_make(struct jobenv *env, const struct wire_grant *grant, const char *socket,
                bool by_index);

#define JOBENV_PATH_SIZE 4096

/*
 * The file of the guard: as ALLOT_GUARD says, else beside this program or where it is installed.
 * False: it cannot be preloaded, which is said on stderr.
 */
bool jobenv_find_guard(char ret[static JOBENV_PATH_SIZE]);
/* Put the guard first in LD_PRELOAD. */
int jobenv_add_guard(struct jobenv *env, const char *guard);

/* Where a program or library of ours is: beside this one in a build tree, or installed. */
bool jobenv_find(char ret[static JOBENV_PATH_SIZE], const char *built, const char *installed);
