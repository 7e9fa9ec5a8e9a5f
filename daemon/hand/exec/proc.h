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
 * Fill what concerns the process, not the device: start, namespace_pid, uid, command, container,
 * cgroup, and the kinds that go by its name. A process that is gone has a start of 0.
 */
void hand_proc_read(struct sample_process *process, const char *proc_dir);

/*
 * The container that a cgroup2 path belongs to: Docker, Podman, CRI-O, containerd, LXC, nspawn by
 * its id (the first 12 digits of a long one) or name; "" for none.
 */
void hand_proc_container(char *ret, size_t size, const char *cgroup);

/* `text` of `n` bytes as printable UTF-8 of at most `size` bytes with its NUL: the rest is '?'. */
void hand_proc_clean(char *ret, size_t size, const char *text, size_t n);
