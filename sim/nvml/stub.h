/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Stub: what a call of NVML answers that the simulated library exports but does not implement.
 */

/* UNINITIALIZED, what was injected for `call`, or NOT_SUPPORTED, as nvmlReturn_t. */
int stub_answer(const char *call);
