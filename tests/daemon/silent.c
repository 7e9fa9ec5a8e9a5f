/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Silent: a library preloaded into allotd that makes the machine's user database one that does not
 * answer.
 *
 *   SILENT=FILE  while this file is there, nobody is told who `somebody` is; then it is user 4711
 */
#include <dlfcn.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int getpwnam_r(const char *name, struct passwd *ret, char *buffer, size_t size,
                      struct passwd **found) {
    static __typeof__(getpwnam_r) *next;
    const char *file = getenv("SILENT");

    if (!file || strcmp(name, "somebody") != 0) {
        if (!next)
            next = (__typeof__(next))dlsym(RTLD_NEXT, "getpwnam_r");
        return next(name, ret, buffer, size, found);
    }
    while (access(file, F_OK) == 0)
        nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
    *ret = (struct passwd){ .pw_name = strncpy(buffer, name, size), .pw_uid = 4711 };
    *found = ret;
    return 0;
}
