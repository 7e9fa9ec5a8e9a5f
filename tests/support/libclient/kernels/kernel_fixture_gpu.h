/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

struct gpu;
struct kernel_fixture;

/* As kernel_fixture_run(), on the device; what was written comes back to the fixture's own memory.
 */
void kernel_fixture_run_on_gpu(struct kernel_fixture *fixture, struct gpu *gpu);
