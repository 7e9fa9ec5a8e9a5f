/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Privilege: whether a process of uid 0 is the machine's root, or only called so.
 *
 * In a user namespace of its own, or without capabilities, uid 0 is a number: a container's root
 * may do nothing to this machine, and so nothing to this box. What counts is CAP_SYS_ADMIN in the
 * user namespace that allotd itself is in. Any thread.
 */
#include <stdbool.h>

#include "base/process_id.h"

/*
 * 0: it is the machine's root. -EPERM: it is not; -EACCES, -ESRCH: that cannot be told, which
 * counts as no. `why` then is a clause about the process ("it has no CAP_SYS_ADMIN"), for people.
 * `process` is looked at before and after, so that another process of the same pid is not taken for
 * it.
 */
int privilege_check(const struct process_id *process, const char **why);

/*
 * Whether the process is in allotd's own user namespace, for certain. There it has the groups that
 * its login gave it: to drop some takes a capability.
 */
bool privilege_is_at_home(const struct process_id *process);

/* The same of texts, for tests: maps as /proc/PID/uid_map has them. */
int privilege_read_caps(const char *status, unsigned long long *ret);
int privilege_is_whole_map(const char *map);
