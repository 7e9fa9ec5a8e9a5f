/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Callback: functions of the program that a stream calls, for graphs.
 */
#include "sim/cuda/stream/submit.h"

/* Make the order of a call for `context`; the caller must release or submit its argument. */
CUresult callback_order(const CUDA_HOST_NODE_PARAMS *params, struct context *context,
                        struct stream_order *ret);
/* The call that an order stands for, also one that was captured. */
void callback_of_order(const struct stream_order *order, CUDA_HOST_NODE_PARAMS *ret);
