/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Cgroup owner: which workload manager made a control group: Slurm, or a container engine.
 *
 * A name alone says nothing: users name the scopes of their own managers as they like. A component
 * of the path counts only where every directory above it belongs to root, so that root alone can
 * have made it. The container of a user's own engine (rootless podman, say) is the user's own
 * process like any other.
 */
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
    N_CGROUP_OWNERS,
};

/* As the configuration writes it: "slurm", "docker", …; "none". */
const char *cgroup_owner_name(enum cgroup_owner owner);

/* Where cgroup2 is mounted; NULL: nowhere. */
const char *cgroup_owner_root(void);

/* The owner of the cgroup at `path` ("/system.slice/…") below `root`, where cgroup2 is mounted. */
enum cgroup_owner cgroup_owner_find(const char *root, const char *path);
