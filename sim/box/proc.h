/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Proc: the processes that have the box open, and how others notice that one is gone.
 *
 * Presence is a POSIX record lock on one byte of the box file per slot. The kernel drops it when
 * the process ends or execs, however that happens; no pid can be mistaken for its successor, and
 * it works across pid namespaces. (It is also dropped when the process closes the descriptor:
 * then its memory is gone, as on a real box.)
 *
 * All functions except proc_self() need the box locked.
 */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct box;
struct box_proc;
struct box_part;

#define PROC_NONE UINT32_MAX

/* Take a slot for this process, or find the one it has (the other library may have made it).
 * -ENOSPC: more processes than the box has slots. */
int proc_join(struct box *box, uint32_t *ret_slot);
/* Take our presence again, if this process has joined: closing any descriptor of the box ends it.
 */
void proc_stay(struct box *box);
/* The slot of this process; PROC_NONE: has not joined. */
uint32_t proc_find_self(const struct box *box);

/* Notice processes that ended: free their slots, or let their bytes linger for the box's release
 * delay. Cheap enough for every query. */
void proc_reap(struct box *box);

/* The pid of slot `slot` as this process's pid namespace shows it; 0: not visible from here. */
pid_t proc_visible_pid(const struct box *box, uint32_t slot);

/* Start time of `pid` in clock ticks after boot; 0: no such process, or it has ended. */
uint64_t proc_start_time(pid_t pid);
