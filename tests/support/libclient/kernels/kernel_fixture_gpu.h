/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

struct gpu;
struct trial;

/* As trial_run(), on the device; what was written comes back to the trial's own memory. */
void trial_run_on_gpu(struct trial *trial, struct gpu *gpu);
