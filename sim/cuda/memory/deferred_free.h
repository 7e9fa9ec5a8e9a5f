/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Deferred free: memory that the program freed in stream order while its stream has not got there.
 *
 * Until then work before that point may use the memory; the program may not. The same stream can be
 * given the memory again at once, because all that it does with it comes later. So can a stream
 * that already waits for that point. Others get it when it is really free.
 *
 * Functions want driver.lock.
 */
#include <stdbool.h>
#include <stdint.h>

#include "sim/cuda/memory/pool.h"
#include "sim/cuda/stream/stream.h"

/* Free the allocation at `allocation->base` when `handle` gets there; at once if it is idle.
 * Releases the lock and takes it again. */
CUresult deferred_free_add(const struct allocation *allocation, CUstream handle);
/* Whether the program freed the allocation at `base` already. */
bool deferred_free_has(CUdeviceptr base);
/* Memory of `pool` that `bytes` fit exactly and that was freed before whatever comes next in
 * `stream`; false: none. `anyhow`: take other memory too, and let the stream wait for it. */
bool deferred_free_reuse(struct pool *pool, struct stream *stream, uint64_t bytes, bool anyhow,
                         CUdeviceptr *ret);
/* Wait, without the lock, until the deferred memory of `pool` that `stream` comes after (`anyhow`:
 * all of it) is really free. False: there was none. */
bool deferred_free_flush(struct pool *pool, struct stream *stream, bool anyhow);
/* The pool's memory is gone, whichever stream was to free it. */
void deferred_free_forget(struct pool *pool);
