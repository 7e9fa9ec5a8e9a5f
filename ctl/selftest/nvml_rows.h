/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * NVML rows: what NVML says of the box, and what its calls cost. Makes no context.
 */
#include "driver/driver.h"

void nvml_rows_try(enum driver_choice choice);
