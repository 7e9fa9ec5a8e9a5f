/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Sha256: the digest that state files keep instead of a lease's token (FIPS 180-4).
 *
 * Our own 84 lines: libsystemd exports no digest, OpenSSL and libgcrypt are megabytes to load and
 * one more package to build with, and the kernel's AF_ALG is missing in many containers.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHA256_SIZE 32

void sha256(uint8_t ret[static SHA256_SIZE], const void *bytes, size_t n);

/* Takes the same time wherever they differ. */
bool sha256_equal(const uint8_t a[static SHA256_SIZE], const uint8_t b[static SHA256_SIZE]);
