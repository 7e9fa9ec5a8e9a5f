/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Simbox: a private box in a folder of its own, for one test.
 */
#include <limits.h>
#include <stdint.h>
#include <sys/types.h>

#include "sim/box/box.h"
#include "sim/box/spec.h"

struct simbox {
    char dir[PATH_MAX];  /* removed with everything in it by simbox_done() */
    char path[PATH_MAX]; /* of the box; GPUSIM_BOX names it too */
    struct box *box;     /* opened, not locked */
};

/* Make a box of `spec` (NULL: two T4), open it and let GPUSIM_BOX name it. Fails the test. */
void simbox_init(struct simbox *ret, const struct box_spec *spec);
void simbox_done(struct simbox *simbox);
/* The same for liballot in this process: the driver is the simulated one of `sim_dir`, and there is
 * no daemon. */
void simbox_init_driver(struct simbox *ret, const struct box_spec *spec, const char *sim_dir);

/* Run `fn` in a child process; the pid. The child ends with what `fn` returns. */
pid_t simbox_fork(int (*fn)(struct simbox *simbox, void *argument), struct simbox *simbox,
                  void *argument);
/* Wait for `pid` and fail the test unless it ended with 0. */
void simbox_expect_success(pid_t pid);
/* End `pid` with SIGKILL and collect it. */
void simbox_kill(pid_t pid);
/* Bytes that all processes hold of a GPU, the dead reaped. */
uint64_t simbox_used(struct simbox *simbox, unsigned gpu);
