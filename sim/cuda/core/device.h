/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Device: the abilities of devices, and their memory as the box charges it.
 */
#include <stdbool.h>
#include <stdint.h>

#include "sim/cuda/core/api.h"

struct cuda_device;

/* Whether code on `device` can reach the memory of `peer`. A device is no peer of itself. */
bool device_can_access(const struct cuda_device *device, const struct cuda_device *peer);
/* Whether its NVLinks lead to switches: then they serve all other devices together. */
bool device_is_on_fabric(const struct cuda_device *device);
/* The uplink of the PCIe switch that it is behind, which the switch's other devices share. */
unsigned device_uplink(const struct cuda_device *device);
/* Whether copies between the two stay below their uplinks: a switch passes them on, if they can
 * access each other. Otherwise the driver copies through the host's memory. */
bool device_is_behind_one_switch(const struct cuda_device *a, const struct cuda_device *b);
/* The NVLinks between two devices; 0: they talk over PCIe. */
unsigned device_nvlinks(const struct cuda_device *a, const struct cuda_device *b);
/* Bytes of L2 that can be set aside for persisting accesses; 0: the architecture cannot. */
uint64_t device_persisting_l2(const struct cuda_device *device);

/* Whether the GPU fell off the bus. */
bool device_lost(const struct cuda_device *device);

/* Take `bytes` of the device's memory for this process, or give them back. */
CUresult device_take(const struct cuda_device *device, uint64_t bytes);
void device_give(const struct cuda_device *device, uint64_t bytes);
/* Count a context that begins or ends, for the process lists of NVML. */
void device_count_context(const struct cuda_device *device, int delta);
