/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The outermost component that names a manager decides: everything below it belongs to that
 * manager, whatever its name.
 *
 *     /system.slice/slurmstepd.scope/job_7/step_0              root's all the way: Slurm's
 *     /system.slice/docker-3f….scope                           root's all the way: Docker's
 *     /user.slice/user-1000.slice/user@1000.service/slurm-x.scope
 *                                 └ belongs to the user: nothing below it counts
 */
#include "base/cgroup_owner.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "base/cleanup.h"

#define CGROUP2_MAGIC 0x63677270

const char *cgroup_owner_name(enum cgroup_owner owner) {
    static const char *const names[N_CGROUP_OWNERS] = {
        [CGROUP_OWNER_NONE] = "none",
        [CGROUP_OWNER_SLURM] = "slurm",
        [CGROUP_OWNER_DOCKER] = "docker",
        [CGROUP_OWNER_PODMAN] = "podman",
        [CGROUP_OWNER_CRIO] = "crio",
        [CGROUP_OWNER_CONTAINERD] = "containerd",
        [CGROUP_OWNER_KUBERNETES] = "kubernetes",
        [CGROUP_OWNER_NSPAWN] = "nspawn",
        [CGROUP_OWNER_LXC] = "lxc",
        [CGROUP_OWNER_OTHER] = "other",
    };

    return names[owner];
}

const char *cgroup_owner_root(void) {
    static const char *const mounts[] = { "/sys/fs/cgroup", "/sys/fs/cgroup/unified" };
    struct statfs fs;

    for (size_t i = 0; i < ELEMENTSOF(mounts); i++)
        if (statfs(mounts[i], &fs) == 0 && fs.f_type == CGROUP2_MAGIC)
            return mounts[i];
    return NULL;
}

/* Whether a component of the path has this beginning and this ending, and something between. */
static bool fits(const char *component, size_t n, const char *before, const char *after) {
    size_t front = strlen(before), back = strlen(after);

    return n > front + back && strncmp(component, before, front) == 0 &&
           strncmp(component + n - back, after, back) == 0;
}

static bool is_word(const char *component, size_t n, const char *word) {
    return n == strlen(word) && strncmp(component, word, n) == 0;
}

static enum cgroup_owner named_owner(const char *component, size_t n) {
    static const struct {
        enum cgroup_owner owner;
        const char *word; /* the whole component */
    } words[] = {
        { CGROUP_OWNER_SLURM, "slurm" },
        { CGROUP_OWNER_SLURM, "slurmstepd.scope" },
        { CGROUP_OWNER_SLURM, "slurmd.service" }, /* steps of a Slurm without a cgroup plugin */
        { CGROUP_OWNER_DOCKER, "docker" },
        { CGROUP_OWNER_PODMAN, "libpod_parent" },
        { CGROUP_OWNER_KUBERNETES, "kubepods" },
        { CGROUP_OWNER_KUBERNETES, "kubepods.slice" },
        { CGROUP_OWNER_LXC, "lxc" },
    };
    static const struct {
        enum cgroup_owner owner;
        const char *before, *after;
    } forms[] = {
        { CGROUP_OWNER_SLURM, "slurm_", "" },
        { CGROUP_OWNER_SLURM, "", "_slurmstepd.scope" },
        { CGROUP_OWNER_DOCKER, "docker-", ".scope" },
        { CGROUP_OWNER_PODMAN, "libpod-", "" },
        { CGROUP_OWNER_CRIO, "crio-", "" },
        { CGROUP_OWNER_CONTAINERD, "cri-containerd-", "" },
        { CGROUP_OWNER_CONTAINERD, "nerdctl-", ".scope" },
        { CGROUP_OWNER_NSPAWN, "systemd-nspawn@", ".service" },
        { CGROUP_OWNER_NSPAWN, "machine-", ".scope" },
        { CGROUP_OWNER_LXC, "lxc.payload.", "" },
        { CGROUP_OWNER_LXC, "lxc.monitor.", "" },
    };

    for (size_t i = 0; i < ELEMENTSOF(words); i++)
        if (is_word(component, n, words[i].word))
            return words[i].owner;
    for (size_t i = 0; i < ELEMENTSOF(forms); i++)
        if (fits(component, n, forms[i].before, forms[i].after))
            return forms[i].owner;
    /* The id of a container, under whatever parent its engine was given. */
    return n == 64 && strspn(component, "0123456789abcdef") >= n ? CGROUP_OWNER_OTHER
                                                                 : CGROUP_OWNER_NONE;
}

/* Whether systemd has made the component at the top of the tree, and not another manager. */
static bool is_systemds(const char *component, size_t n) {
    return fits(component, n, "", ".slice") || fits(component, n, "", ".scope") ||
           fits(component, n, "", ".service");
}

/* Whether root alone can make something in the directory: the first `n` bytes of `path`. */
static bool is_roots(const char *root, const char *path, size_t n) {
    char folder[4096 + 64];
    struct stat st;

    return (size_t)snprintf(folder, sizeof(folder), "%s%.*s", root, (int)n, path) <
               sizeof(folder) &&
           stat(folder, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == 0 &&
           !(st.st_mode & (S_IWGRP | S_IWOTH));
}

enum cgroup_owner cgroup_owner_find(const char *root, const char *path) {
    const char *component = path;
    bool is_top = true;

    if (!root || path[0] != '/')
        return CGROUP_OWNER_NONE;
    for (;;) {
        enum cgroup_owner owner;
        size_t n;

        component += strspn(component, "/");
        n = strcspn(component, "/");
        if (n == 0 || is_word(component, n, "..") ||
            !is_roots(root, path, (size_t)(component - path)))
            return CGROUP_OWNER_NONE;
        owner = named_owner(component, n);
        if (owner == CGROUP_OWNER_NONE && is_top && !is_systemds(component, n))
            owner = CGROUP_OWNER_OTHER;
        if (owner != CGROUP_OWNER_NONE)
            return owner;
        is_top = false;
        component += n;
    }
}

bool cgroup_owner_is_root(const char *root, const char *path) {
    if (!root || path[0] != '/' || strstr(path, "/../"))
        return false;
    for (const char *slash = path; slash; slash = strchr(slash + 1, '/'))
        if (!is_roots(root, path, (size_t)(slash - path)))
            return false;
    return true;
}
