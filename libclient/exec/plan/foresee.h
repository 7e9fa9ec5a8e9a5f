/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Foresee: what a run will need of each GPU, found out by the dynamic placer without a session,
 * a lease, a context or a byte of device memory. The GPUs are those that the driver shows and that
 * the daemon would lease now; without a daemon all that the driver shows.
 */
#include "libclient/exec/plan/dynamic_placement.h"

struct allot_error;
struct program_request;

struct foresee_options {
    const char *visible_devices; /* as in device/gpus.h */
    uint64_t limit_bytes;        /* of each GPU; 0: all that is free */
    unsigned n_cpu_threads;
    struct dynamic_placement_options dynamic;
};

/* A GPU that the plan uses. */
struct foresee_gpu {
    char uuid[96];
    uint64_t tensor_bytes;  /* variables, constants, and what lives between ops at most */
    uint64_t context_bytes; /* what a context costs besides; 0: not known */
};

struct foresee_result {
    double step_usec;
    uint32_t n_copies;
    struct foresee_gpu gpus[TASK_GRAPH_DEVICES_MAX];
    uint32_t n_gpus;
};

/* Only what says what to run is read of `request`. -ENOMEM: no plan fits, or no host memory. */
int foresee_run(struct foresee_result *ret, const struct program_request *request,
                const struct foresee_options *options, struct allot_error *err);
