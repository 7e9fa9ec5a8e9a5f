/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * GPUs: the devices that this process may use, with the lease that covers them.
 *
 * There is one set for the process: the first session that asks for GPUs makes it, with its
 * options, and all sessions share it. Counted; any thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libclient/device/gpu.h"

struct allot_error;
struct gpu;

struct gpus_options {
    uint32_t n_gpus;             /* so many at least; 0: one where there is a daemon, else all */
    uint32_t fraction_permyriad; /* of each device; 0: not limited so */
    uint64_t limit_bytes;        /* per device; 0: not limited so */
    bool no_growth;              /* take all of the share at once, instead of growing into it */
    bool must_be_managed;        /* without the daemon: an error, not unmanaged memory */
    bool no_wait;                /* a full card: an error, not a wait */
    uint64_t wait_usec;          /* wait at most so long for the lease and for growth; 0: as the
                                    policy says */
    const char *visible_devices; /* of those that the driver shows (device/visible.h); NULL: all */
};

struct gpus {
    struct gpu **gpus; /* in the order in which CUDA numbers them */
    uint32_t n;
    bool is_managed; /* there is a lease */
};

/*
 * `*ret` is NULL where this process sees no GPU at all, or has no driver that works. -ENODEV: there
 * are some, but fewer than `n_gpus`. -ENOMEM: they are full, and were as long as the options have
 * it wait. Else what the lease or the driver said.
 */
int gpus_get(const struct gpus **ret, const struct gpus_options *options, struct allot_error *err);
void gpus_put(const struct gpus *gpus); /* accepts NULL */

/* gpu_visit_begin() and _end() of device/gpu.h where there is any GPU; `gpus` may be NULL. */
struct gpu_visit gpus_visit_begin(const struct gpus *gpus);
void gpus_visit_end(const struct gpu_visit *visit);

/* A GPU without a context or memory: what it is called. */
struct gpus_seen {
    int number; /* among those that the driver shows */
    char name[128];
    char bus_id[24];
    uint64_t memory_bytes; /* bytes that this process may use, or all of the device */
};
/* The GPUs of the set while there is one, else all that the driver shows; none is no error. To be
 * freed. */
void gpus_look(struct gpus_seen **ret, size_t *ret_n, const char *visible_devices);
