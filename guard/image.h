/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Image: how much device memory a module takes, read off the module.
 *
 * Pure; any thread. The images that programs hand to the driver say nothing of their length, so it
 * is read off them as the driver does, trusting them as far as the driver has to; of a file the
 * length is known.
 */
#include <stddef.h>
#include <stdint.h>

#define IMAGE_UNKNOWN_LENGTH SIZE_MAX

/* Bytes of variables and code; an image that cannot be read counts by its length, where known. */
uint64_t image_bytes(const void *image, size_t length);
