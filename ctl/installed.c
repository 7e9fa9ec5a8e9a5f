/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/installed.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool installed_find(char ret[static INSTALLED_PATH_SIZE], const char *built,
                    const char *installed) {
    char self[INSTALLED_PATH_SIZE];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    if (n > 0) {
        char *slash;

        self[n] = '\0';
        slash = strrchr(self, '/');
        if (slash) {
            *slash = '\0';
            if (snprintf(ret, INSTALLED_PATH_SIZE, "%s/%s", self, built) < INSTALLED_PATH_SIZE &&
                access(ret, R_OK) == 0)
                return true;
        }
    }
    strcpy(ret, installed); /* the path is fixed when building */
    return access(ret, R_OK) == 0;
}
