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

/* A GPU that a session asks for by name, and the bytes that it asks for there. */
struct gpus_need {
    const char *device;                 /* UUID */
    uint64_t lease_bytes, tensor_bytes; /* with and without the context */
};

struct gpus_options {
    uint32_t n_gpus;             /* at least this many; 0: one where there is a daemon, else all */
    uint32_t fraction_permyriad; /* of each device; 0: no such limit */
    uint64_t limit_bytes;        /* per device; 0: no such limit */
    bool no_growth;              /* take all of the share at once, instead of growing into it */
    bool must_be_managed;        /* without the daemon: an error, not unmanaged memory */
    bool no_wait;                /* a full card: an error, not a wait */
    uint64_t
        wait_usec; /* wait at most this long for the lease and for growth; 0: as the policy says */
    const char *visible_devices; /* of those that the driver shows (device/visible.h); NULL: all */
    const struct gpus_need *needs; /* exactly these, instead of all of the above about how many and
                                      how much; `visible_devices` names the same; NULL */
    size_t n_needs;
};

struct gpus {
    struct gpu **gpus; /* in the order in which CUDA numbers them */
    uint32_t n;
    bool is_managed; /* there is a lease */
};

/*
 * `*ret` is NULL if this process sees no GPU at all, or has no working driver. -ENODEV: there are
 * some, but fewer than `n_gpus`. -ENOMEM: they are full, and stayed full for as long as the options
 * let it wait. Otherwise the error of the lease or the driver.
 */
int gpus_get(const struct gpus **ret, const struct gpus_options *options, struct allot_error *err);
void gpus_put(const struct gpus *gpus); /* accepts NULL */

/* The first GPU of the set that is lost (gpu.h), and its number in the set; NULL: none is. Within a
 * visit. */
struct gpu *gpus_find_lost(const struct gpus *gpus, uint32_t *ret_number);

/* gpu_visit_begin() and _end() of device/gpu.h where there is any GPU; `gpus` may be NULL. */
static inline struct gpu_visit gpus_visit_begin(const struct gpus *gpus) {
    return gpus && gpus->n ? gpu_visit_begin(gpus->gpus[0]->cuda) : (struct gpu_visit){ 0 };
}
static inline void gpus_visit_end(const struct gpu_visit *visit) {
    if (visit->cuda)
        gpu_visit_end(visit);
}

/* A GPU without a context or memory: what it is called. */
struct gpus_seen {
    int number; /* among those that the driver shows */
    char name[128];
    char bus_id[24];
    uint64_t memory_bytes; /* bytes that this process may use, or all of the device */
};
/* The GPUs of the set if there is one, else all that the driver shows; an empty list is no error.
 * The caller frees it. */
void gpus_look(struct gpus_seen **ret, size_t *ret_n, const char *visible_devices);
