/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/box/devnode.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "sim/box/box.h"

static void closedirp(DIR **dir) {
    if (*dir)
        closedir(*dir);
}

/* Whether `dir` has any nvidiaN at all. */
static bool has_nodes(const char *dir) {
    cleanup(closedirp) DIR *d = opendir(dir);
    const struct dirent *entry;

    while (d && (entry = readdir(d)))
        if (!strncmp(entry->d_name, "nvidia", 6) && entry->d_name[6] >= '0' &&
            entry->d_name[6] <= '9')
            return true;
    return false;
}

static bool is_present(const char *dir, const char *name) {
    char path[PATH_MAX];
    cleanup(closep) int fd = -1;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    fd = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    return fd >= 0 || errno == ENXIO || errno == ENODEV;
}

uint32_t devnode_visible_gpus(const struct box *box) {
    const char *dir = box->file->dev_dir;
    uint32_t visible = 0;
    char name[32];

    if (!has_nodes(dir))
        return (UINT32_C(1) << box->n_gpus) - 1;
    /* A control node that cannot be opened hides all GPUs. */
    if (!is_present(dir, "nvidiactl") && errno != ENOENT)
        return 0;
    for (unsigned i = 0; i < box->n_gpus; i++) {
        snprintf(name, sizeof(name), "nvidia%u", box->file->gpu[i].minor);
        if (is_present(dir, name))
            visible |= UINT32_C(1) << i;
    }
    return visible;
}
