/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Limbo: memory that was freed in the order of a stream whose turn has not come. Until it has, work
 * before it may use the memory; the program may not, except that the same stream can be given it
 * again at once, as whatever it does with it comes later, and so can a stream that waits for that
 * point already. Others get it when it is really free.
 *
 * Functions want driver.lock.
 */
#include <stdbool.h>
#include <stdint.h>

#include "sim/cuda/memory/pool.h"
#include "sim/cuda/stream/stream.h"

/* Free what begins at `allocation->base` when `handle` gets there; at once if it is idle. Lets the
 * lock go and takes it again. */
CUresult limbo_free(const struct allocation *allocation, CUstream handle);
/* Whether the program freed the allocation at `base` already. */
bool limbo_has(CUdeviceptr base);
/* Memory of `pool` that `bytes` fit exactly and that was freed before whatever comes next in
 * `stream`; false: none. `anyhow`: if there is other memory, let the stream wait for it. */
bool limbo_reuse(struct pool *pool, struct stream *stream, uint64_t bytes, bool anyhow,
                 CUdeviceptr *ret);
/* Wait until all that `pool` has in limbo (`anyhow`: not only what `stream` comes after) is really
 * free, for which the lock is let go. False: there was nothing. */
bool limbo_flush(struct pool *pool, struct stream *stream, bool anyhow);
/* The pool's memory is gone, whoever freed it. */
void limbo_forget(struct pool *pool);
