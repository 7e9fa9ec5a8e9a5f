/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Driver limit: the driver's own limit on the memory of a cgroup (tier 1), set through allot-limit.
 *
 * The driver takes limits from CAP_SYS_ADMIN alone, and only through NVIDIA's libraries. So the one
 * call is made by a process of its own, which has no other capability, is told a UUID, a folder and
 * a number, and ends. The hand loads nothing.
 */
#include <stdint.h>

#include "base/error.h"
#include "base/gpuid.h"
#include "daemon/hand/exec/probe_child.h"
#include "driver/driver.h"

/* Set it, and have it read back. `folder` is that of the cgroup. */
int driver_limit_set(enum driver_choice driver, const struct gpuid *gpu, const char *folder,
                     uint64_t bytes, struct allot_error *err);

/* -EOPNOTSUPP: this driver has no limits. */
int driver_limit_check(enum driver_choice driver, const struct gpuid *gpu, const char *folder,
                       struct allot_error *err);

/*
 * Have `child`, wherever it was put, ask for more memory than a limit of some MiB allows. 0: it was
 * refused; -ENOTSUP: it was granted; -EIO: it could not be tried.
 */
int driver_limit_try(struct probe_child *child, enum driver_choice driver, const struct gpuid *gpu,
                     struct allot_error *err);
