/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Image: how much device memory a module takes, read from the module.
 *
 * Pure; any thread. Programs pass images to the driver without their length, so the guard reads it
 * from the image, and trusts that as far as the driver does. The length of a file is known.
 */
#include <stddef.h>
#include <stdint.h>

#define IMAGE_UNKNOWN_LENGTH SIZE_MAX

/* Bytes of variables and code. An image that cannot be parsed counts by its length, if that is
 * known. */
uint64_t image_bytes(const void *image, size_t length);
