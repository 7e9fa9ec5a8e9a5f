/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Launch: a kernel with its shape and arguments, ready to run, once or often.
 *
 * Constant once it is made. Any thread may run it.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/cuda/module/function.h"

struct stream_order;

struct launch_shape {
    unsigned grid[3], block[3];
    unsigned shared_bytes; /* dynamic */
    unsigned cluster[3];   /* 0: none */
    bool cooperative;
};

struct launch {
    struct context *context;
    struct function *function; /* as it was named; may be gone, never looked into by launch_run() */
    struct module_code *code;  /* a reference */
    struct ptx_function *kernel;
    struct launch_shape shape;
    size_t param_bytes;
    size_t n_params;
    unsigned char params[] __attribute__((aligned(16))); /* then a pointer to each */
};

/*
 * Check everything that can be checked and copy the arguments: from `params`, one pointer for each,
 * or from the one buffer that `extra` describes. Without driver.lock.
 */
CUresult launch_new(struct launch **ret, struct function *function,
                    const struct launch_shape *shape, void **params, void **extra);
void launch_free(void *launch);
/* A pointer to each argument, as cuLaunchKernel() takes them. */
void **launch_pointers(const struct launch *launch);
/* What a stream or a graph does to run it; it takes the launch over. */
struct stream_order launch_order(struct launch *launch);
/* An attribute of a launch goes into its shape; hints change nothing. */
CUresult launch_attribute(CUlaunchAttributeID id, const CUlaunchAttributeValue *value,
                          struct launch_shape *shape);
/* Run it to its end; what it cost. For stream_order.run. */
uint64_t launch_run(void *launch);
/* Hand it to a stream, which takes it over in any case. */
CUresult launch_submit(struct launch *launch, CUstream stream);

/* The context ends: give its kernels some time to finish, then cancel them. */
void launch_context_end(struct context *context);
