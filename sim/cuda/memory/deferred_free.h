/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Deferred free: memory that the program freed in stream order, while the stream has not reached
 * that point yet.
 *
 * Earlier work of the stream may still use the memory; the program may not. The same stream may get
 * the memory again at once, because everything it does with it comes later, and so may a stream
 * that already waits for that point. Other streams get it when it is really free.
 *
 * Functions need driver.lock.
 */
#include <stdbool.h>
#include <stdint.h>

#include "sim/cuda/memory/pool.h"
#include "sim/cuda/stream/stream.h"

/* Free the allocation at `allocation->base` when the stream `handle` reaches this point; at once if
 * it is idle. Releases the lock and takes it again. */
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
