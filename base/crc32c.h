/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Crc32c: the checksum of the Castagnoli polynomial, as in iSCSI, ext4 and Btrfs. It detects
 * accidents, not forgeries. Any thread.
 */
#include <stddef.h>
#include <stdint.h>

/* The checksum of `bytes` appended to those whose checksum is `before`; 0 at the beginning. */
uint32_t crc32c(uint32_t before, const void *bytes, size_t size);

/* The same without the instruction, for the test that compares both. */
uint32_t crc32c_by_table(uint32_t before, const void *bytes, size_t size);
