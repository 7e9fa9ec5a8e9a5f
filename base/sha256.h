/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Sha256: what stands in a file for a secret that must not stand there (FIPS 180-4).
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHA256_SIZE 32

void sha256(uint8_t ret[static SHA256_SIZE], const void *bytes, size_t n);

/* In a time that does not depend on where they differ. */
bool sha256_equal(const uint8_t a[static SHA256_SIZE], const uint8_t b[static SHA256_SIZE]);
