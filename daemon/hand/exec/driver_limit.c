/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/hand/exec/driver_limit.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "daemon/hand/limit/exit_status.h"

#define PROGRAM "allot-limit"

/* It is installed beside the hand. */
static int find_program(char ret[static PATH_MAX], struct allot_error *err) {
    ssize_t n = readlink("/proc/self/exe", ret, PATH_MAX - sizeof(PROGRAM));
    char *slash;

    if (n <= 0)
        return error_set(err, -errno, "/proc/self/exe cannot be read: %s", strerror(errno));
    ret[n] = 0;
    slash = strrchr(ret, '/');
    strcpy(slash ? slash + 1 : ret, PROGRAM);
    return 0;
}

/* Become it, with these words after the options. */
static int run(struct probe_child *child, enum driver_choice driver, const char *const words[4],
               int *ret_status, struct allot_error *err) {
    struct probe_child_output output;
    char program[PATH_MAX];
    int r = find_program(program, err);

    if (r < 0)
        return r;
    r = probe_child_exec(child,
                         (const char *const[]){ program, "--driver", driver_choice_name(driver),
                                                words[0], words[1], words[2], words[3], NULL },
                         ret_status, &output, err);
    if (r == 0 && (*ret_status == LIMIT_FAILED || *ret_status == LIMIT_UNKNOWN))
        return error_set(err, *ret_status == LIMIT_FAILED ? -EIO : -EOPNOTSUPP, "%s", output.text);
    return r;
}

static int run_here(enum driver_choice driver, const char *const words[4],
                    struct allot_error *err) {
    cleanup(probe_child_done) struct probe_child child = PROBE_CHILD_INIT;
    int status = 0, r = probe_child_start(&child, err);

    if (r == 0)
        r = run(&child, driver, words, &status, err);
    if (r < 0)
        return r;
    return status == LIMIT_DONE
               ? 0
               : error_set(err, -EIO, PROGRAM " ended with exit status %d", status);
}

int driver_limit_set(enum driver_choice driver, const struct gpuid *gpu, const char *folder,
                     uint64_t bytes, struct allot_error *err) {
    char uuid[GPUID_TEXT_SIZE], number[32];

    snprintf(number, sizeof(number), "%" PRIu64, bytes);
    return run_here(driver,
                    (const char *const[4]){ "set", gpuid_format(gpu, uuid), folder, number }, err);
}

int driver_limit_check(enum driver_choice driver, const struct gpuid *gpu, const char *folder,
                       struct allot_error *err) {
    char uuid[GPUID_TEXT_SIZE];

    return run_here(driver, (const char *const[4]){ "check", gpuid_format(gpu, uuid), folder },
                    err);
}

int driver_limit_try(struct probe_child *child, enum driver_choice driver, const struct gpuid *gpu,
                     struct allot_error *err) {
    char uuid[GPUID_TEXT_SIZE];
    int status = 0, r;

    r = run(child, driver, (const char *const[4]){ "try", gpuid_format(gpu, uuid) }, &status, err);
    if (r < 0)
        return r;
    if (status == LIMIT_REFUSED)
        return 0;
    if (status == LIMIT_GRANTED)
        return error_set(err, -ENOTSUP, "the driver accepts limits but does not enforce them");
    return error_set(err, -EIO, "no CUDA program could be run to try it (exit status %d)", status);
}
