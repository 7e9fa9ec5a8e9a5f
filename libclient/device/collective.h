/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Collective: NCCL's communicators for a list of GPUs, and sums over them.
 *
 * All users of the same GPUs in the process share one. Counted; any thread. It must be put back
 * before the GPUs are closed.
 *
 * NCCL is used where it is installed. ALLOT_NCCL in the environment is "no" to leave it alone, or
 * the folder of its library. The simulated box has none of its own.
 */
#include <stdbool.h>
#include <stdint.h>

#include "libclient/core/dtype.h"

struct allot_error;
struct collective;
struct gpu;

/* Whether NCCL has sums of this type. */
bool collective_has(enum dtype dtype);

/* `gpus` are different devices. NULL: there is no NCCL, or it cannot do it; the log says so once,
 * unless it is merely switched off. */
struct collective *collective_get(struct gpu *const *gpus, uint32_t n);
struct collective *collective_ref(struct collective *collective);
void collective_put(struct collective *collective); /* accepts NULL */

/*
 * Tensors become their sums over all GPUs, in place: `data` has those of GPU 0 first, with
 * `counts[t]` elements of tensor t each. Queued on the collective streams of `channel`
 * (device/gpu.h): everything on that of GPU 0 is done before, and what is queued there next comes
 * after the sums of all GPUs.
 */
int collective_sum(struct collective *collective, void *const *data, const uint64_t *counts,
                   uint32_t n_tensors, enum dtype dtype, uint32_t channel, struct allot_error *err);

/* A GPU is lost: sums that wait for it will never end, unless they are aborted. */
void collective_abort(const struct gpu *lost);
