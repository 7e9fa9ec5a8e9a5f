/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Container engine: whether a command starts containers, whose processes are not its own children.
 *
 * A guess, for a warning: it looks behind wrappers (env, sudo, timeout…) and into the -c argument
 * of a shell, as far as possible without parsing shell.
 */

/* The name of the container engine that `argv` runs, or NULL. */
const char *container_engine_find(char *const *argv);
