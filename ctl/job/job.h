/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Job: a command as a child of gpuctl, which stays between it and the caller transparently.
 *
 * The child does everything itself, from requesting the lease to exec. So the lease is the job's
 * own from the start and ends with its last process, whatever happens to gpuctl. Until it has
 * executed the command, the child dies with gpuctl, and its request is cancelled.
 */

/*
 * Run `become` in a child, where it executes a command; if it returns, its result is the exit
 * status of the child. Signals sent to gpuctl are passed to the child (those of the terminal reach
 * it anyway). Returns the exit status for gpuctl: the child's, or 128 + the signal that ended it.
 */
int job_run(int (*become)(void *userdata), void *userdata);

/* Check that the command exists before requesting a lease for it: EXIT_OK, or an error message and
 * EXIT_RUN_…. */
int job_check(const char *command);

/* Execute `argv` with this environment. Returns only on failure: after an error message,
 * EXIT_RUN_…. */
int job_exec(char **argv, char **environment);
