/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * UTF-8: the length of the next character, and whether it is valid (RFC 3629: no surrogates, no
 * overlong forms, nothing above U+10FFFF).
 */
#include <stddef.h>

/* Bytes of the character at `p`, of the `n` > 0 that are there; 0: no valid one begins there. */
static inline size_t utf8_length(const char *text, size_t n) {
    const unsigned char *p = (const unsigned char *)text;
    unsigned char low = 0x80, high = 0xbf; /* limits of the second byte */
    size_t length;

    if (p[0] < 0x80)
        return 1;
    if (p[0] < 0xc2 || p[0] > 0xf4)
        return 0;
    length = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (length > n)
        return 0;
    if (p[0] == 0xe0)
        low = 0xa0;
    else if (p[0] == 0xed)
        high = 0x9f;
    else if (p[0] == 0xf0)
        low = 0x90;
    else if (p[0] == 0xf4)
        high = 0x8f;
    if (p[1] < low || p[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    return length;
}
