/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Memset: fills rows of device memory with a value of 1, 2 or 4 bytes, for graphs.
 */
#include "sim/cuda/stream/submit.h"

/* Make the order of a memset for `context`; the caller must release or submit its argument. */
CUresult memset_order(const CUDA_MEMSET_NODE_PARAMS *params, const struct context *context,
                      struct stream_order *ret);
/* The memset that an order stands for, also one that was captured. */
const CUDA_MEMSET_NODE_PARAMS *memset_of_order(const struct stream_order *order);
