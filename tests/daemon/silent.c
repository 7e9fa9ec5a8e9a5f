/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Silent: a library preloaded into allotd that makes the machine's user database one that does not
 * answer.
 *
 *   SILENT=FILE  while this file is there, nobody is told that `somebody` is user 4711
 */
#include <dlfcn.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static void wait(void) {
    const char *file = getenv("SILENT");

    while (file && access(file, F_OK) == 0)
        nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
}

static int give(struct passwd *ret, char *buffer, size_t size, struct passwd **found) {
    *ret = (struct passwd){ .pw_name = strncpy(buffer, "somebody", size), .pw_uid = 4711 };
    *found = ret;
    return 0;
}

EXPORT int getpwnam_r(const char *name, struct passwd *ret, char *buffer, size_t size,
                      struct passwd **found) {
    __typeof__(getpwnam_r) *next = (__typeof__(next))dlsym(RTLD_NEXT, "getpwnam_r");

    if (strcmp(name, "somebody") != 0)
        return next(name, ret, buffer, size, found);
    wait();
    return give(ret, buffer, size, found);
}

EXPORT int getpwuid_r(uid_t uid, struct passwd *ret, char *buffer, size_t size,
                      struct passwd **found) {
    __typeof__(getpwuid_r) *next = (__typeof__(next))dlsym(RTLD_NEXT, "getpwuid_r");

    if (uid != 4711)
        return next(uid, ret, buffer, size, found);
    wait();
    return give(ret, buffer, size, found);
}
