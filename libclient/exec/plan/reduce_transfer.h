/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Reduce transfer: one step of a sum over replicas between GPUs (exec/plan/all_reduce.c), as the
 * state of its item and the functions that queue it. Made with the plan, and never changed then;
 * any thread runs it.
 */
#include <stdint.h>

#include "libclient/kernels/kernel.h"

struct gpu;

/* One run of bytes within a chunk: from one argument of the item to another. */
struct reduce_segment {
    uint32_t from, to; /* arguments: inputs, then outputs */
    uint64_t from_offset, to_offset, bytes;
    kernel_run_fn add; /* NULL: it is copied */
    void *add_state;
    void (*add_state_free)(void *state);
};

struct reduce_transfer {
    struct gpu *from, *to;
    uint32_t channel; /* of the two */
    uint32_t n_inputs, n_segments;
    uint32_t n_addends; /* of an addition: the first inputs, all at `from_offset` */
    struct reduce_segment segments[];
};

/* Frees the states of its additions, too; accepts NULL. */
void reduce_transfer_free(void *state);

/* Functions of items, whose state it is. An output begins as its replica's input: nothing is done
 * if it lies there. */
int reduce_transfer_begin(const struct kernel_run *run);
int reduce_transfer_copy(const struct kernel_run *run);
int reduce_transfer_add(const struct kernel_run *run);
