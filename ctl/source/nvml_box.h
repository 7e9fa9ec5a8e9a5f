/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * NVML box: the box as gpuctl-nvml-view reads it: devices, readings and processes from NVML.
 *
 * Owned by the caller of nvml_box_read(). If the driver hangs, the caller hangs.
 */
#include "base/cleanup.h"
#include "base/error.h"
#include "driver/driver.h"
#include "wire/message.h"

struct nvml_box;

int nvml_box_read(struct nvml_box **ret, enum driver_choice choice, struct allot_error *err);
struct nvml_box *nvml_box_free(struct nvml_box *reading); /* accepts NULL */
DEFINE_FREEP(struct nvml_box, nvml_box_freep, nvml_box_free)

/* Borrowed. All used bytes count as unmanaged. */
const struct wire_box *nvml_box_get(const struct nvml_box *reading);
