/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Visible rows: compare what the driver makes of CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER with
 * what base/visible.h, which allotd uses, makes of them. Each case runs in a process of its own,
 * which creates no context.
 */
#include "driver/driver.h"

void visible_rows_try(enum driver_choice choice);

/* In the process of one case: the devices that it sees, a line each; the exit status. */
int visible_rows_list(enum driver_choice choice);
