/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/daemon/hand/fake_limit.h"

#include <check.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "tests/support/daemon/hand/fake_machine.h"

void fake_limit_install(void) {
    char path[PATH_MAX], *slash;
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 32);

    ck_assert_int_gt(n, 0);
    path[n] = 0;
    slash = strrchr(path, '/');
    *slash = 0;
    ck_assert_int_eq(mount("tests", path, "tmpfs", 0, NULL), 0);
    strcpy(slash, "/allot-limit");
    fake_machine_file(path, "#!/bin/sh\necho \"$@\" >> /run/limit-asked\ncat /run/limit-text-$3\n"
                            "exit $(cat /run/limit-status-$3)\n");
    ck_assert_int_eq(chmod(path, 0755), 0);
    fake_limit_answer(NULL, LIMIT_DONE, "");
}

void fake_limit_answer(const char *word, int status, const char *text) {
    static const char *const words[] = { "set", "check", "try" };
    char path[64], number[16];

    unlink("/run/limit-asked");
    snprintf(number, sizeof(number), "%d", status);
    for (size_t i = 0; i < ELEMENTSOF(words); i++) {
        if (word && strcmp(word, words[i]) != 0)
            continue;
        snprintf(path, sizeof(path), "/run/limit-text-%s", words[i]);
        fake_machine_file(path, text);
        snprintf(path, sizeof(path), "/run/limit-status-%s", words[i]);
        fake_machine_file(path, number);
    }
}

const char *fake_limit_asked(void) {
    static char text[4096];
    cleanup(fclosep) FILE *f = fopen("/run/limit-asked", "re");

    text[f ? fread(text, 1, sizeof(text) - 1, f) : 0] = 0;
    return text;
}
