/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Simulated box: a private box in a folder of its own, for one test.
 */
#include <limits.h>
#include <stdint.h>
#include <sys/types.h>

#include "sim/box/box.h"
#include "sim/box/spec.h"

struct sim_box {
    char dir[PATH_MAX];  /* removed with everything in it by sim_box_done() */
    char path[PATH_MAX]; /* of the box; GPUSIM_BOX names it too */
    struct box *box;     /* opened, not locked */
};

/* Make a box of `spec` (NULL: two T4), open it and let GPUSIM_BOX name it. Fails the test. */
void sim_box_init(struct sim_box *ret, const struct box_spec *spec);
void sim_box_done(struct sim_box *sim_box);
/* The same for liballot in this process: the driver is the simulated one of `sim_dir`, and there is
 * no daemon. */
void sim_box_init_driver(struct sim_box *ret, const struct box_spec *spec, const char *sim_dir);

/* Run `fn` in a child process and return its pid. The child exits with the result of `fn`. */
pid_t sim_box_fork(int (*fn)(struct sim_box *sim_box, void *argument), struct sim_box *sim_box,
                   void *argument);
/* Wait for `pid` and fail the test unless it ended with 0. */
void sim_box_expect_success(pid_t pid);
/* End `pid` with SIGKILL and collect it. */
void sim_box_kill(pid_t pid);
/* Bytes that all processes hold of a GPU, the dead reaped. */
uint64_t sim_box_used(struct sim_box *sim_box, unsigned gpu);

/*
 * Whether the pages of an arena can move, for a test whose memory is tight. Under the thread
 * sanitizer the simulated driver has addresses for the arena of one GPU alone, and the others are
 * made of regions: it says that the test is skipped.
 */
bool sim_box_arenas_move(void);
