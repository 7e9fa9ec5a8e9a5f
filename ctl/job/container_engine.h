/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Container engine: whether a command starts containers, whose processes are children of somebody
 * else.
 *
 * A guess for a warning: it looks through wrappers (env, sudo, timeout…) and into what a shell is
 * given with -c, as far as that can be told without being a shell.
 */

/* The container engine that `argv` runs, by the name it goes by, or NULL. */
const char *container_engine_find(char *const *argv);
