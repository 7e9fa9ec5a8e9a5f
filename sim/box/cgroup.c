/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/box/cgroup.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

void cgroup_self(char *ret, size_t size) {
    cleanup(fclosep) FILE *f = fopen("/proc/self/cgroup", "re");
    char line[PATH_MAX + 16];

    snprintf(ret, size, "/");
    while (f && fgets(line, sizeof(line), f)) {
        if (strncmp(line, "0::/", 4))
            continue;
        line[strcspn(line, "\n")] = 0;
        if (strlen(line + 3) < size)
            snprintf(ret, size, "%s", line + 3);
        return;
    }
}

bool cgroup_is_below(const char *path, const char *ancestor) {
    size_t n = strlen(ancestor);

    while (n && ancestor[n - 1] == '/')
        n--;
    return !strncmp(path, ancestor, n) && (path[n] == '/' || path[n] == 0);
}

int cgroup_of_folder(char *ret, size_t size, const char *dir) {
    cleanup(fclosep) FILE *f = fopen("/proc/self/mountinfo", "re");
    cleanup(freep) char *real = realpath(dir, NULL);
    char line[2 * PATH_MAX + 512];
    size_t best = 0;
    int r = -ENOTDIR;

    if (!real || !f)
        return -ENOENT;
    while (fgets(line, sizeof(line), f)) {
        char root[PATH_MAX], at[PATH_MAX];
        const char *tail = strstr(line, " - cgroup2 ");
        size_t n;

        /* 36 35 98:0 /root /mount/point rw - cgroup2 … (widths: PATH_MAX - 1) */
        if (!tail || sscanf(line, "%*d %*d %*s %4095s %4095s", root, at) != 2)
            continue;
        if (!cgroup_is_below(real, at))
            continue;
        n = strlen(at);
        if (n <= best)
            continue;
        best = n;
        if (!strcmp(root, "/"))
            root[0] = 0;
        if (snprintf(ret, size, "%s%s", root, !strcmp(at, "/") ? real : real + n) >= (int)size)
            r = -ENAMETOOLONG;
        else
            r = 0;
        if (r == 0 && !*ret)
            snprintf(ret, size, "/");
    }
    return r;
}
