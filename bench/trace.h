/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Trace: allocations and frees of some program, to be replayed.
 *
 *     # allot-trace 1
 *     a <id> <bytes>
 *     f <id>
 *     w                what follows is measured
 *
 * Ids are any numbers; one may be used again after its free. Comments begin with '#'.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct allot_error;

#define TRACE_FREE UINT64_MAX

struct trace_op {
    uint64_t bytes; /* TRACE_FREE: free the slot */
    uint64_t slot;
};

struct trace {
    struct trace_op *ops;
    size_t n_ops;
    size_t warm; /* the first op that is measured */
    size_t n_slots;
    uint64_t peak_bytes;
};

int trace_load(struct trace *ret, const char *path, struct allot_error *err);
void trace_done(struct trace *trace);
