/* SPDX-License-Identifier: Apache-2.0 */
#include "base/safe_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

/* Inclusive, ascending: Unicode's controls and format characters, separators of lines, and the
 * letters that are seen as nothing. */
static const struct {
    uint32_t first, last;
} unsafe[] = {
    { 0x0000, 0x001f },     { 0x007f, 0x009f },   { 0x00ad, 0x00ad },   { 0x034f, 0x034f },
    { 0x061c, 0x061c },     { 0x115f, 0x1160 },   { 0x17b4, 0x17b5 },   { 0x180b, 0x180f },
    { 0x200b, 0x200f },     { 0x2028, 0x202e },   { 0x2060, 0x206f },   { 0x3164, 0x3164 },
    { 0xfeff, 0xfeff },     { 0xffa0, 0xffa0 },   { 0xfff0, 0xfffb },   { 0x1bca0, 0x1bca3 },
    { 0x1d173, 0x1d17a },   { 0xe0000, 0xe00ff }, { 0xe01f0, 0xe0fff }, { 0xffffe, 0xfffff },
    { 0x10fffe, 0x10ffff },
};

bool safe_text_has(uint32_t c) {
    size_t low = 0, high = sizeof(unsafe) / sizeof(unsafe[0]);

    if (c >= 0x20 && c < 0x7f)
        return true;
    if (c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
        return false;
    while (low < high) {
        const size_t mid = (low + high) / 2;

        if (c > unsafe[mid].last)
            low = mid + 1;
        else if (c < unsafe[mid].first)
            high = mid;
        else
            return false;
    }
    return true;
}

size_t safe_text_next(const char *text, size_t n, bool *ret_is_safe) {
    uint32_t c;
    const size_t length = utf8_decode(text, n, &c);

    *ret_is_safe = length > 0 && safe_text_has(c);
    return length ? length : 1;
}

size_t safe_text_clean(char *ret, size_t size, const char *text, size_t n) {
    size_t len = 0;

    while (n > 0) {
        bool is_safe;
        const size_t step = safe_text_next(text, n, &is_safe), needed = is_safe ? step : 1;

        if (needed >= size - len)
            break;
        memcpy(ret + len, is_safe ? text : "?", needed);
        len += needed;
        text += step;
        n -= step;
    }
    ret[len] = '\0';
    return len;
}

size_t safe_text_escape(char *ret, size_t size, const char *text, size_t n) {
    size_t len = 0;

    while (n > 0) {
        char escape[SAFE_TEXT_ESCAPE_SIZE];
        const char *piece = text;
        bool is_safe;
        const size_t step = safe_text_next(text, n, &is_safe);
        size_t needed = step;

        if (!is_safe) {
            uint32_t c = (unsigned char)*text;

            utf8_decode(text, n, &c);
            needed = (size_t)snprintf(escape, sizeof(escape),
                                      c < 0x100     ? "\\x%02" PRIx32
                                      : c < 0x10000 ? "\\u%04" PRIx32
                                                    : "\\U%08" PRIx32,
                                      c);
            piece = escape;
        }
        if (needed >= size - len)
            break;
        memcpy(ret + len, piece, needed);
        len += needed;
        text += step;
        n -= step;
    }
    ret[len] = '\0';
    return len;
}
