/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Fake machine: namespaces in which a test has /run, /dev and a tree of cgroups to itself. The
 * kernel is the real one: cgroups hold processes, and a device filter refuses nodes.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Enter one, for the rest of this process: /run/systemd/system is there, as on a machine that
 * systemd booted, /dev has null, zero, urandom and kmsg and no GPU. False, with a line "skipped:
 * why": this process may not.
 */
bool fake_machine_enter(void);
/* Leave nothing behind: ends the processes in the cgroups, and removes these. */
void fake_machine_leave(void);

/* A node "/dev/NAME" without a driver: opening it gives ENXIO. */
void fake_machine_node(const char *name, unsigned major, unsigned minor);
/* A file of this text at `path`, with the folders that it needs. */
void fake_machine_file(const char *path, const char *text);
/* Another file in the place of one under /proc. */
void fake_machine_cover(const char *path, const char *text);
/* An empty folder in the place of one. */
void fake_machine_cover_folder(const char *path);

/* The folder of the cgroup "/user.slice/…", made with those above it. */
const char *fake_machine_cgroup(const char *cgroup);
/* Put a process there. */
int fake_machine_move(const char *cgroup, pid_t pid);
/* From now on processes there can open only `n` nodes, and null, zero and urandom. */
void fake_machine_filter(const char *cgroup, const dev_t *allow, size_t n);

/* A process that waits for a signal, as user `uid`, in that cgroup; `environment` may be NULL. */
pid_t fake_machine_process(const char *cgroup, uid_t uid, const char *const *environment);
/* SIGKILL, and collect it. */
void fake_machine_end(pid_t pid);
