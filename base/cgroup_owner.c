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

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/safe_text.h"

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

/* "\\040" and the like, as the kernel writes blanks in mountinfo. */
static void unescape(char *text) {
    char *to = text;
    unsigned value;

    for (const char *from = text; *from;) {
        if (from[0] == '\\' && sscanf(from + 1, "%3o", &value) == 1 && strlen(from) >= 4) {
            *to++ = (char)value;
            from += 4;
        } else
            *to++ = *from++;
    }
    *to = 0;
}

int cgroup_owner_find_root(char *ret, size_t size, const char *mountinfo) {
    cleanup(fclosep) FILE *f = fopen(mountinfo, "re");
    cleanup(freep) char *line = NULL;
    size_t room = 0;
    ssize_t n;

    if (!f)
        return -errno;
    /* "26 25 0:24 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw": of the whole tree only. */
    while ((n = getline(&line, &room, f)) > 0) {
        char *type = strstr(line, " - "), *top, *mount, *saved = NULL;

        if (!type || strncmp(type, " - cgroup2 ", 11) != 0)
            continue;
        *type = 0;
        for (int i = 0; i < 3; i++)
            strtok_r(i ? NULL : line, " ", &saved);
        top = strtok_r(NULL, " ", &saved);
        mount = strtok_r(NULL, " ", &saved);
        if (!top || !mount || strcmp(top, "/") != 0)
            continue;
        unescape(mount);
        if (strlen(mount) >= size)
            return -ENAMETOOLONG;
        strcpy(ret, mount);
        return 0;
    }
    return -ENOENT;
}

const char *cgroup_owner_root(void) {
    static char *_Atomic found; /* once found it stays: systemd does not move it */
    char root[256], *none = NULL, *copy;

    if (found)
        return found;
    if (cgroup_owner_find_root(root, sizeof(root), "/proc/self/mountinfo") < 0 ||
        !(copy = strdup(root)))
        return NULL;
    if (!atomic_compare_exchange_strong(&found, &none, copy))
        free(copy);
    return found;
}

/* Whether a component of the path has this prefix and this suffix, and something in between. */
static bool fits(const char *component, size_t n, const char *before, const char *after) {
    size_t front = strlen(before), back = strlen(after);

    return n > front + back && strncmp(component, before, front) == 0 &&
           strncmp(component + n - back, after, back) == 0;
}

static bool is_word(const char *component, size_t n, const char *word) {
    return n == strlen(word) && strncmp(component, word, n) == 0;
}

/* How the engines name the cgroups of their containers and jobs. */
static const struct form {
    enum cgroup_owner owner;
    bool has_name; /* what stands between is the id or name of a container */
    const char *before, *after;
} forms[] = {
    { CGROUP_OWNER_SLURM, false, "slurm_", "" },
    { CGROUP_OWNER_SLURM, false, "", "_slurmstepd.scope" },
    { CGROUP_OWNER_DOCKER, true, "docker-", ".scope" },
    { CGROUP_OWNER_PODMAN, true, "libpod-", "" },
    { CGROUP_OWNER_CRIO, true, "crio-", "" },
    { CGROUP_OWNER_CONTAINERD, true, "cri-containerd-", "" },
    { CGROUP_OWNER_CONTAINERD, true, "nerdctl-", ".scope" },
    { CGROUP_OWNER_NSPAWN, true, "systemd-nspawn@", ".service" },
    { CGROUP_OWNER_NSPAWN, true, "machine-", ".scope" },
    { CGROUP_OWNER_LXC, true, "lxc.payload.", "" },
    { CGROUP_OWNER_LXC, false, "lxc.monitor.", "" },
};

static const struct form *form_of(const char *component, size_t n) {
    for (size_t i = 0; i < ELEMENTSOF(forms); i++)
        if (fits(component, n, forms[i].before, forms[i].after))
            return &forms[i];
    return NULL;
}

/* The id of a container, under whatever parent its engine was given. */
static bool is_id(const char *component, size_t n) {
    return n == 64 && strspn(component, "0123456789abcdef") >= n;
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
    const struct form *form;

    for (size_t i = 0; i < ELEMENTSOF(words); i++)
        if (is_word(component, n, words[i].word))
            return words[i].owner;
    form = form_of(component, n);
    return form ? form->owner : is_id(component, n) ? CGROUP_OWNER_OTHER : CGROUP_OWNER_NONE;
}

void cgroup_owner_container(char *ret, size_t size, const char *path) {
    bool is_below_lxc = false;

    ret[0] = 0;
    while (*path) {
        const struct form *form;
        const char *name;
        size_t n, n_name;

        path += strspn(path, "/");
        n = strcspn(path, "/");
        name = path;
        n_name = n;
        form = form_of(path, n);
        if (form && form->has_name) {
            name += strlen(form->before);
            n_name -= strlen(form->before) + strlen(form->after);
            if (!*form->after && fits(name, n_name, "", ".scope"))
                n_name -= strlen(".scope");
        } else if (!is_below_lxc && !is_id(path, n)) /* /docker/ID, /kubepods/…/ID, /lxc/NAME */
            n_name = 0;
        /* The innermost one wins: a container in a container is seen by its own name. */
        if (n_name > 0)
            safe_text_clean(ret, size, name, is_id(name, n_name) ? 12 : n_name);
        is_below_lxc = is_word(path, n, "lxc");
        path += n;
    }
}

/* Whether systemd, and not another manager, made the component at the top of the tree. */
static bool is_systemds(const char *component, size_t n) {
    return fits(component, n, "", ".slice") || fits(component, n, "", ".scope") ||
           fits(component, n, "", ".service");
}

/* Whether only root can create entries in the directory, the first `n` bytes of `path`. */
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
