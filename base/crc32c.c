/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uses the processor's CRC instruction if there is one. Otherwise it takes four bytes at a time
 * through tables that the first caller fills: T[0][b] is the remainder of byte b alone, T[k][b] the
 * same after k more zero bytes, so that the four bytes of a word can be looked up independently.
 */
#include "base/crc32c.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#define POLYNOMIAL UINT32_C(0x82f63b78) /* bits reversed */

static uint32_t table[4][256];

static void fill(void) {
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t crc = b;

        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
        table[0][b] = crc;
    }
    for (int k = 1; k < 4; k++)
        for (uint32_t b = 0; b < 256; b++)
            table[k][b] = table[k - 1][b] >> 8 ^ table[0][table[k - 1][b] & 0xff];
}

static uint32_t by_table(uint32_t crc, const uint8_t *bytes, size_t size) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, fill);
    for (; size >= 4; bytes += 4, size -= 4) {
        crc ^= (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
               (uint32_t)bytes[3] << 24;
        crc = table[3][crc & 0xff] ^ table[2][crc >> 8 & 0xff] ^ table[1][crc >> 16 & 0xff] ^
              table[0][crc >> 24];
    }
    for (; size > 0; bytes++, size--)
        crc = crc >> 8 ^ table[0][(crc ^ *bytes) & 0xff];
    return crc;
}

#ifdef __x86_64__
__attribute__((target("sse4.2"))) static uint32_t by_processor(uint32_t crc, const uint8_t *bytes,
                                                               size_t size) {
    uint64_t wide = crc;

    for (; size >= 8; bytes += 8, size -= 8) {
        uint64_t word;

        memcpy(&word, bytes, sizeof(word));
        wide = __builtin_ia32_crc32di(wide, word);
    }
    crc = (uint32_t)wide;
    for (; size > 0; bytes++, size--)
        crc = __builtin_ia32_crc32qi(crc, *bytes);
    return crc;
}

static bool has_instruction(void) {
    return __builtin_cpu_supports("sse4.2");
}
#else
static uint32_t by_processor(uint32_t crc, const uint8_t *bytes, size_t size) {
    return by_table(crc, bytes, size);
}

static bool has_instruction(void) {
    return false;
}
#endif

uint32_t crc32c(uint32_t before, const void *bytes, size_t size) {
    return ~(has_instruction() ? by_processor : by_table)(~before, bytes, size);
}

uint32_t crc32c_by_table(uint32_t before, const void *bytes, size_t size) {
    return ~by_table(~before, bytes, size);
}
