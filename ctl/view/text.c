/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/view/text.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/safe_text.h"
#include "base/utf8.h"

#define MARK_SIZE 3 /* bytes of the mark for cut text */

/* Inclusive ranges, ascending. The libc's wcwidth() would need a loaded locale. */
struct char_range {
    uint32_t first, last;
};

static const struct char_range wide[] = {
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

static const struct char_range combining[] = {
    { 0x0300, 0x036f },   { 0x0483, 0x0489 },   { 0x0591, 0x05bd }, { 0x0610, 0x061a },
    { 0x064b, 0x065f },   { 0x06d6, 0x06dc },   { 0x0900, 0x0902 }, { 0x093c, 0x093c },
    { 0x0941, 0x0948 },   { 0x0e34, 0x0e3a },   { 0x0e47, 0x0e4e }, { 0x1ab0, 0x1aff },
    { 0x1dc0, 0x1dff },   { 0x20d0, 0x20ff },   { 0xfe00, 0xfe0f }, { 0xfe20, 0xfe2f },
    { 0x1f3fb, 0x1f3ff }, { 0xe0100, 0xe01ef },
};

static bool in_ranges(const struct char_range *ranges, size_t n, uint32_t c) {
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

static size_t columns(uint32_t c) {
    if (c < 0x300)
        return 1;
    if (IN(combining, c))
        return 0;
    return IN(wide, c) ? 2 : 1;
}

char *text_clean(const char *text, bool utf8) {
    size_t left = text ? strlen(text) : 0;
    char *copy = malloc(left + 1 + MARK_SIZE), *to = copy;

    if (!copy)
        return NULL;
    while (left > 0) {
        bool is_safe;
        const size_t n = safe_text_next(text, left, &is_safe);

        if (is_safe && (utf8 || n == 1))
            to = mempcpy(to, text, n);
        else
            *to++ = '?';
        text += n;
        left -= n;
    }
    *to = '\0';
    return copy;
}

/* Bytes of the character at `text`, of the `left` > 0 that are there, and its columns. */
static size_t measure(const char *text, size_t left, size_t *ret_columns) {
    uint32_t c;
    const size_t n = utf8_decode(text, left, &c);

    *ret_columns = n ? columns(c) : 1;
    return n ? n : 1;
}

size_t text_width(const char *text) {
    size_t width = 0, left = strlen(text);

    while (left > 0) {
        size_t w;
        const size_t n = measure(text, left, &w);

        width += w;
        text += n;
        left -= n;
    }
    return width;
}

/* Bytes of `text` that fit into `width` columns. */
static size_t fitting(const char *text, size_t width) {
    const size_t length = strlen(text);
    size_t at = 0;

    while (at < length) {
        size_t w;
        const size_t n = measure(text + at, length - at, &w);

        if (w > width)
            break;
        width -= w;
        at += n;
    }
    return at;
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
        size_t unused;

        n = measure(text, strlen(text), &unused);
    }
    end = n;
    if (text[n] && text[n] != ' ')
        for (size_t i = n; i > 0; i--)
            if (text[i - 1] == ' ') {
                end = i - 1;
                break;
            }
    if (end == 0)
        end = n; /* a word without blanks, or a text that begins with them */
    *ret_next = text + end;
    while (**ret_next == ' ')
        ++*ret_next;
    return end;
}
