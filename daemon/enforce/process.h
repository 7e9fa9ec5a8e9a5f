/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Process: the identity of a process that a reused pid cannot fake.
 *
 * A pid alone names the process that has it now. With its start time it names one process of this
 * boot, also in a file; with a pidfd it also tells when that process ends. All of it is read from
 * the kernel; nothing in a message is believed.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/proc_file.h"
#include "base/process_id.h"

struct peer;

/* Its identity now. -ESRCH: no such process, or a zombie that holds nothing any more. */
int process_identify(struct process_id *ret, pid_t pid);

/*
 * A descriptor that becomes readable when exactly this process ends (to be closed by the caller).
 * -ESRCH: it has ended already, though another process may have its pid.
 */
int process_open(int *ret_fd, const struct process_id *id);

/*
 * The process at the other end of a connection. -ESRCH: it has ended, or its pid cannot be seen
 * from here.
 */
int process_of_peer(struct process_id *ret, const struct peer *peer);

/* The path of its cgroup (version 2) below the mount point: "/user.slice/…". -ESRCH, -ENODATA. */
#define PROCESS_CGROUP_SIZE PROC_FILE_CGROUP_SIZE
int process_cgroup(char ret[static PROCESS_CGROUP_SIZE], pid_t pid);

/* Whether `cgroup` is `scope` or lies below it. Nothing is within an empty scope. */
bool process_is_within(const char *cgroup, const char *scope);

/* Its short name (/proc/PID/comm) as printable ASCII; "?" where there is none. */
#define PROCESS_NAME_SIZE 32
void process_name(char ret[static PROCESS_NAME_SIZE], pid_t pid);
