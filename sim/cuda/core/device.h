/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Device: what devices are able to do, for those who ask and for the calls that depend on it.
 */
#include <stdbool.h>
#include <stdint.h>

struct device;

/* Whether code on `device` can reach the memory of `peer`. A device is no peer of itself. */
bool device_can_access(const struct device *device, const struct device *peer);
/* The NVLinks between two devices; 0: they talk over PCIe. */
unsigned device_nvlinks(const struct device *a, const struct device *b);
/* Bytes of L2 that can be set aside for persisting accesses; 0: the architecture cannot. */
uint64_t device_persisting_l2(const struct device *device);
