/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* NVML readings: where the readings of base/readings.h come from. See driver/nvml.h. */
#include "base/readings.h"
#include "driver/nvml.h"

/*
 * Take the readings of `groups`, in place of those that `ret` has of them: what the driver does not
 * give is absent then. Other groups stay as they are. Fails only when driver_is_gone().
 */
int nvml_readings_take(const struct nvml *nvml, const struct nvml_device *device, unsigned groups,
                       struct readings *ret, struct allot_error *err);

/* READINGS_IDENTITY, of an identity that was read. */
void nvml_readings_identify(struct readings *ret, const struct nvml_identity *identity);
