/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Readings of base/readings.h as the members of a device. */
#include "base/readings.h"
#include "wire/message.h"

/* Set every member of `ret` that is a reading; a reading that is absent stays absent. */
void wire_readings_fill(struct wire_device *ret, const struct readings *readings);
