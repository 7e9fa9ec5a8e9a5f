/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Patience: make a call that may hang in the driver, but wait for it only so long.
 *
 * For tools that show something and end. A thread stuck in the kernel cannot be cancelled, only
 * left behind: it keeps its `work` until it comes back, if it ever does, and the process may exit
 * over it. Whoever goes on afterwards (the daemon) makes its calls in another process instead.
 */
#include <stdint.h>

#include "base/error.h"

/* `work` is heap memory with all that the call reads and writes. */
typedef int (*patience_fn)(void *work, struct allot_error *err);
typedef void (*patience_free_fn)(void *work);

/*
 * Runs call(work) in a thread of its own. In time: its result and error, and `work` is still the
 * caller's. Otherwise -ETIMEDOUT, naming `what`: `work` is no longer the caller's, and free_work()
 * is called with it when the call has come back. -EAGAIN if no thread can be had; `work` is the
 * caller's.
 */
int patience_call(patience_fn call, void *work, patience_free_fn free_work, uint64_t timeout_usec,
                  const char *what, struct allot_error *err);
