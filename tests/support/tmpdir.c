/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/tmpdir.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char path[4096];
static pid_t owner;

static int remove_one(const char *name, const struct stat *st, int flag, struct FTW *ftw) {
    remove(name);
    return 0;
}

static void remove_all(void) {
    if (getpid() == owner)
        nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

const char *tmpdir(void) {
    const char *base = getenv("TMPDIR");

    if (owner == getpid())
        return path;
    snprintf(path, sizeof(path), "%s/allot-test-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(path))
        return NULL;
    owner = getpid();
    atexit(remove_all);
    return path;
}
