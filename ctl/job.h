/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Job: a command that runs under a lease, as a child of gpuctl.
 *
 * Between fork and exec the child has itself confined by allotd. From then on the lease belongs to
 * the job: it ends when the last of its processes is gone, whatever becomes of gpuctl.
 */
#include <stdint.h>

#include "base/error.h"
#include "wire/message.h"

/* What the child is told, all borrowed. */
struct job {
    char **argv;        /* the command */
    char **environment; /* all of it */
    const char *socket; /* of allotd */
    uint64_t lease;
    const char *token; /* NULL: none was given */
    bool confine;      /* ask for it; else the command just runs with the lease's environment */
    bool verbose;      /* say on stderr which tiers are in force */
};

/*
 * Run the command to its end: signals that are sent to gpuctl go to it (those of the terminal reach
 * it by themselves), and gpuctl stops and goes on with it. The exit status for gpuctl: the
 * command's, 128 + signal, or one of EXIT_RUN_…, in which case the command never ran and
 * `*ret_started` is false.
 */
int job_run(const struct job *job, bool *ret_started);
