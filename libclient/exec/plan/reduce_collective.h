/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Reduce collective: a whole sum over replicas by NCCL (device/collective.h), as the state of one
 * item on the first replica's GPU. Made with the plan, and never changed then; any thread runs it.
 */
#include <stdint.h>

#include "libclient/device/collective.h"
#include "libclient/kernels/kernel.h"

struct device;

struct reduce_collective {
    struct collective *collective;
    enum dtype dtype;
    uint32_t channel, n_tensors; /* the item's inputs are the tensors of each replica */
    uint64_t counts[];           /* elements, by tensor */
};

/* NCCL for the GPUs devices[spaces[0]] to devices[spaces[n - 1]]; the caller puts it back. NULL: it
 * is not there, or has no sums of this type. */
struct collective *reduce_collective_find(struct device *const *devices, const uint32_t *spaces,
                                          uint32_t n, enum dtype dtype);
/* `offsets`: where tensors begin in the row, n_tensors + 1. It takes a reference. -ENOMEM. */
int reduce_collective_new(struct reduce_collective **ret, struct collective *collective,
                          enum dtype dtype, uint32_t channel, const uint64_t *offsets,
                          uint32_t n_tensors);
void reduce_collective_free(void *state); /* accepts NULL */
/* The function of the item. */
int reduce_collective_sum(const struct kernel_run *run);
