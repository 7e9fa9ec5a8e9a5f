/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * UTF-8: the length of the next character, and whether it is valid (RFC 3629: no surrogates, no
 * overlong forms, nothing above U+10FFFF).
 */
#include <stddef.h>
#include <stdint.h>

/* Length of the character at `text`, of which `n` > 0 bytes are there; 0: it is not valid. */
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

/* As utf8_length(), and which character that is. */
static inline size_t utf8_decode(const char *text, size_t n, uint32_t *ret) {
    static const unsigned char lead[] = { 0, 0x7f, 0x1f, 0x0f,
                                          0x07 }; /* its bits in the first byte */
    const size_t length = utf8_length(text, n);

    if (length == 0)
        return 0;
    *ret = (unsigned char)text[0] & lead[length];
    for (size_t i = 1; i < length; i++)
        *ret = *ret << 6 | ((unsigned char)text[i] & 0x3f);
    return length;
}
