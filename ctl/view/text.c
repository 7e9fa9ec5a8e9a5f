/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/view/text.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MARK_SIZE 3 /* bytes of the mark where something was cut */

/* Inclusive ranges, ascending. The libc's wcwidth() would do, but only once a locale is loaded. */
struct range {
    uint32_t first, last;
};

static const struct range wide[] = {
    { 0x1100, 0x115f },   { 0x231a, 0x231b },   { 0x2329, 0x232a },   { 0x23e9, 0x23ec },
    { 0x23f0, 0x23f0 },   { 0x23f3, 0x23f3 },   { 0x25fd, 0x25fe },   { 0x2614, 0x2615 },
    { 0x2648, 0x2653 },   { 0x267f, 0x267f },   { 0x2693, 0x2693 },   { 0x26a1, 0x26a1 },
    { 0x26aa, 0x26ab },   { 0x26bd, 0x26be },   { 0x26c4, 0x26c5 },   { 0x26ce, 0x26ce },
    { 0x26d4, 0x26d4 },   { 0x26ea, 0x26ea },   { 0x26f2, 0x26f3 },   { 0x26f5, 0x26f5 },
    { 0x26fa, 0x26fa },   { 0x26fd, 0x26fd },   { 0x2705, 0x2705 },   { 0x270a, 0x270b },
    { 0x2728, 0x2728 },   { 0x274c, 0x274c },   { 0x274e, 0x274e },   { 0x2753, 0x2755 },
    { 0x2757, 0x2757 },   { 0x2795, 0x2797 },   { 0x27b0, 0x27b0 },   { 0x27bf, 0x27bf },
    { 0x2b1b, 0x2b1c },   { 0x2b50, 0x2b50 },   { 0x2b55, 0x2b55 },   { 0x2e80, 0x303e },
    { 0x3041, 0x33ff },   { 0x3400, 0x4dbf },   { 0x4e00, 0x9fff },   { 0xa000, 0xa4cf },
    { 0xa960, 0xa97f },   { 0xac00, 0xd7a3 },   { 0xf900, 0xfaff },   { 0xfe30, 0xfe6f },
    { 0xff00, 0xff60 },   { 0xffe0, 0xffe6 },   { 0x1f300, 0x1f64f }, { 0x1f680, 0x1f6ff },
    { 0x1f900, 0x1f9ff }, { 0x1fa70, 0x1faff }, { 0x20000, 0x3fffd },
};

static const struct range combining[] = {
    { 0x0300, 0x036f },   { 0x0483, 0x0489 },   { 0x0591, 0x05bd }, { 0x0610, 0x061a },
    { 0x064b, 0x065f },   { 0x06d6, 0x06dc },   { 0x0900, 0x0902 }, { 0x093c, 0x093c },
    { 0x0941, 0x0948 },   { 0x0e34, 0x0e3a },   { 0x0e47, 0x0e4e }, { 0x1ab0, 0x1aff },
    { 0x1dc0, 0x1dff },   { 0x20d0, 0x20ff },   { 0xfe00, 0xfe0f }, { 0xfe20, 0xfe2f },
    { 0x1f3fb, 0x1f3ff }, { 0xe0100, 0xe01ef },
};

/* Neither seen nor harmless: marks that turn the direction of what follows, and the like. */
static const struct range unseen[] = {
    { 0x00ad, 0x00ad }, { 0x061c, 0x061c }, { 0x180e, 0x180e }, { 0x200b, 0x200f },
    { 0x2028, 0x202e }, { 0x2060, 0x206f }, { 0xfeff, 0xfeff }, { 0xfff9, 0xfffb },
};

static bool in_ranges(const struct range *ranges, size_t n, uint32_t c) {
    size_t low = 0, high = n;

    while (low < high) {
        const size_t mid = (low + high) / 2;

        if (c > ranges[mid].last)
            low = mid + 1;
        else if (c < ranges[mid].first)
            high = mid;
        else
            return true;
    }
    return false;
}
#define IN(ranges, c) in_ranges(ranges, sizeof(ranges) / sizeof((ranges)[0]), c)

/* The character at `p` and its length in bytes; 0 if that is not UTF-8. */
static size_t decode(const unsigned char *p, uint32_t *ret) {
    static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
    uint32_t c;
    size_t n;

    if (*p < 0x80) {
        *ret = *p;
        return 1;
    }
    if (*p >= 0xc2 && *p <= 0xdf)
        n = 2, c = *p & 0x1f;
    else if (*p >= 0xe0 && *p <= 0xef)
        n = 3, c = *p & 0x0f;
    else if (*p >= 0xf0 && *p <= 0xf4)
        n = 4, c = *p & 0x07;
    else
        return 0;
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (p[i] & 0x3f);
    }
    if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
        return 0;
    *ret = c;
    return n;
}

static size_t columns(uint32_t c) {
    if (c < 0x300)
        return 1;
    if (IN(combining, c))
        return 0;
    return IN(wide, c) ? 2 : 1;
}

char *text_clean(const char *text, bool utf8) {
    const unsigned char *p = (const unsigned char *)(text ? text : "");
    char *copy = malloc(strlen((const char *)p) + 1 + MARK_SIZE), *to = copy;

    if (!copy)
        return NULL;
    while (*p) {
        uint32_t c;
        const size_t n = decode(p, &c);

        if (n == 0 || c < 0x20 || (c >= 0x7f && c < 0xa0) || (c > 0x7f && !utf8) || IN(unseen, c)) {
            *to++ = '?';
            p += n ? n : 1;
            continue;
        }
        memcpy(to, p, n);
        to += n;
        p += n;
    }
    *to = '\0';
    return copy;
}

size_t text_width(const char *text) {
    const unsigned char *p = (const unsigned char *)text;
    size_t width = 0;

    while (*p) {
        uint32_t c;
        const size_t n = decode(p, &c);

        width += n ? columns(c) : 1;
        p += n ? n : 1;
    }
    return width;
}

/* Bytes of `text` that fit into `width` columns. */
static size_t fitting(const char *text, size_t width) {
    const unsigned char *begin = (const unsigned char *)text, *p = begin;

    while (*p) {
        uint32_t c;
        const size_t n = decode(p, &c), w = n ? columns(c) : 1;

        if (w > width)
            break;
        width -= w;
        p += n ? n : 1;
    }
    return p - begin;
}

void text_cut(char *text, size_t width, bool utf8) {
    const char *mark = utf8 ? "…" : "~";
    size_t n;

    if (text_width(text) <= width)
        return;
    n = fitting(text, width ? width - 1 : 0);
    strcpy(text + n, width ? mark : "");
}

size_t text_wrap(const char *text, size_t width, const char **ret_next) {
    size_t n = fitting(text, width), end;

    if (n == 0 && *text) {
        uint32_t c;

        n = decode((const unsigned char *)text, &c);
        n = n ? n : 1;
    }
    end = n;
    if (text[n] && text[n] != ' ')
        for (size_t i = n; i > 0; i--)
            if (text[i - 1] == ' ') {
                end = i - 1;
                break;
            }
    if (end == 0)
        end = n; /* a word without blanks, or one that begins with them */
    *ret_next = text + end;
    while (**ret_next == ' ')
        ++*ret_next;
    return end;
}
