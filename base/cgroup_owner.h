/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Cgroup owner: which workload manager made a control group: Slurm, or a container engine.
 *
 * A name alone proves nothing: users can name the scopes of their own managers as they like. A
 * component of the path counts only if every directory above it belongs to root, so that only root
 * can have created it. A container of a user's own engine (rootless podman, for example) counts as
 * an ordinary process of that user.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum cgroup_owner {
    CGROUP_OWNER_NONE,
    CGROUP_OWNER_SLURM,
    CGROUP_OWNER_DOCKER,
    CGROUP_OWNER_PODMAN,
    CGROUP_OWNER_CRIO,
    CGROUP_OWNER_CONTAINERD,
    CGROUP_OWNER_KUBERNETES,
    CGROUP_OWNER_NSPAWN,
    CGROUP_OWNER_LXC,
    CGROUP_OWNER_OTHER, /* outside of systemd's own slices, or named by the id of a container */
    N_CGROUP_OWNERS,
};

/* The name in the configuration: "slurm", "docker", …; "none". */
const char *cgroup_owner_name(enum cgroup_owner owner);

/*
 * The container that a cgroup belongs to, for people: its id (the first 12 digits of a long one) or
 * its name; "" for none. By the path alone, which proves nothing.
 */
void cgroup_owner_container(char *ret, size_t size, const char *path);

/*
 * Where cgroup2 is mounted, by /proc/self/mountinfo: /sys/fs/cgroup, in the hybrid layout
 * /sys/fs/cgroup/unified, or elsewhere. NULL: nowhere. Any thread.
 */
const char *cgroup_owner_root(void);
/* The same by another file of that form. -ENOENT: none of its mounts is cgroup2. */
int cgroup_owner_find_root(char *ret, size_t size, const char *mountinfo);

/* Whether only root can have made the cgroup at `path`: every directory above it is root's. */
bool cgroup_owner_is_root(const char *root, const char *path);

/* The owner of the cgroup at `path` ("/system.slice/…") below `root`, where cgroup2 is mounted. */
enum cgroup_owner cgroup_owner_find(const char *root, const char *path);
