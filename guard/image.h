/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Image: how much device memory a module takes, read off the module.
 *
 * Pure; any thread. Programs pass images to the driver without their length, so it is read from the
 * image, which is trusted as far as the driver trusts it. The length of a file is known.
 */
#include <stddef.h>
#include <stdint.h>

#define IMAGE_UNKNOWN_LENGTH SIZE_MAX

/* Bytes of variables and code; an image that cannot be read counts by its length, where known. */
uint64_t image_bytes(const void *image, size_t length);
