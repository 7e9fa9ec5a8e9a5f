/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Copy: copies elements from one place to another in a regular order. Slices, transposes,
 * concatenations, tiles and stretches are all this one thing: nested dimensions, each with a step
 * in the source and one in the destination.
 *
 * A plain value. Fill it with cpu_copy_init() and cpu_copy_dim(), then cpu_copy_settle() once, then
 * cpu_copy_run() by any thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libclient/core/shape.h"

struct thread_pool;

#define COPY_RANK_MAX (2 * SHAPE_RANK_MAX)

enum copy_kind {
    COPY_NOTHING,
    COPY_ROWS,      /* runs of bytes */
    COPY_FILL,      /* one element, many times */
    COPY_STEPS,     /* an element at a time */
    COPY_TRANSPOSE, /* along the destination in one dimension, along the source in another */
};

struct cpu_copy {
    size_t bytes; /* of an element: 1, 2, 4, 8 */
    int rank;
    struct cpu_copy_dim {
        int64_t n;
        int64_t from, to; /* steps, in bytes */
    } dims[COPY_RANK_MAX];
    int64_t from_offset, to_offset; /* in bytes, where it begins */
    enum copy_kind kind;
    size_t n_units, grain; /* pieces that the pool may take in any order; grain 0: not worth it */
    int64_t chunk;         /* elements of the last dimension, or of the last but one, in a piece */
    uint64_t cost;         /* nanoseconds or so */
};

void cpu_copy_init(struct cpu_copy *copy, size_t bytes);
/* One more dimension, inside those before. */
void cpu_copy_dim(struct cpu_copy *copy, int64_t n, int64_t from, int64_t to);
void cpu_copy_settle(struct cpu_copy *copy);
void cpu_copy_run(const struct cpu_copy *copy, struct thread_pool *pool, void *to,
                  const void *from);

/* Steps of the dimensions of a dense tensor, in bytes. */
void cpu_copy_steps(int64_t steps[SHAPE_RANK_MAX], const struct shape *shape, size_t bytes);
