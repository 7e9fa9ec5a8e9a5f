/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Job: a command as a child of gpuctl, which stands between it and the caller without being
 * noticed.
 *
 * The child does everything itself, from asking for the lease to exec: so the lease is the job's
 * own from the first moment, and ends with its last process, whatever becomes of gpuctl. Before the
 * command is there the child goes when gpuctl goes, and what it waited for is cancelled.
 */

/*
 * Run `become` in a child, which is to exec a command; what it returns if it cannot is its exit
 * status. Signals that are sent to gpuctl go to the child (those of the terminal reach it by
 * themselves). The exit status for gpuctl: the child's, or 128 + the signal that ended it.
 */
int job_run(int (*become)(void *userdata), void *userdata);

/* Whether there is such a command, before anything is asked for it: EXIT_OK, or told and
 * EXIT_RUN_…. */
int job_check(const char *command);

/* Become `argv` with this environment. Comes back only if that cannot be: told, and EXIT_RUN_…. */
int job_exec(char **argv, char **environment);
