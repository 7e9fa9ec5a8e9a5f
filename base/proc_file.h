/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Proc file: what the files of /proc/PID say of a process.
 *
 * `proc` is "/proc", or a made-up one in tests. A pid alone may come to name another process
 * between two calls: compare proc_file_start() before and after where that matters. The texts are
 * the process's own choice: clean them (base/safe_text.h) before they are shown.
 *
 * 0 or -errno; -ESRCH: there is no such process. Results are untouched on failure. No state.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Up to size - 1 bytes of a file, and a NUL; their number. */
ssize_t proc_file_read(const char *proc, pid_t pid, const char *file, char *ret, size_t size);

/* When it began: field 22 of `stat`. -ESRCH also for a zombie, which holds nothing any more. */
int proc_file_start(const char *proc, pid_t pid, uint64_t *ret);

struct proc_file_status {
    bool has_uid;
    uid_t uid;           /* the real one */
    pid_t namespace_pid; /* in its own pid namespace; 0: not known, or the same */
};
int proc_file_status(const char *proc, pid_t pid, struct proc_file_status *ret);

/* Longest path of a cgroup that is looked at, with its NUL; a longer one is -ENAMETOOLONG. */
#define PROC_FILE_CGROUP_SIZE 4096

/* The path of its cgroup (version 2) below the mount point: "/user.slice/…"; -ENODATA: in none. */
int proc_file_cgroup(const char *proc, pid_t pid, char ret[static PROC_FILE_CGROUP_SIZE]);

/*
 * Its arguments with blanks between, cut to fit, or its name where it has none (a kernel thread, a
 * zombie, or it overwrote them); "" where neither can be read. Returns the length.
 */
size_t proc_file_command(const char *proc, pid_t pid, char *ret, size_t size);
