/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * What /proc says about a process on a GPU. Read by the hand, which may look at every user's
 * processes.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/broker/sample.h"

/*
 * Fill what concerns the process, not the device: start, namespace_pid, uid, command, name,
 * container, cgroup, and the kinds that go by its name. A process that is gone has a start of 0.
 */
void hand_proc_read(struct sample_process *process, const char *proc_dir);
