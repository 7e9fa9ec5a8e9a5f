/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An input is a text that a hostile user chose. Whatever it is: what terminals, logs, CSV and JSON
 * get of it is safe, a cell of CSV begins no formula, and JSON gives valid text back unchanged.
 */
#include <stdbool.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/json.h"
#include "base/safe_text.h"
#include "base/utf8.h"
#include "ctl/view/field.h"
#include "ctl/view/text.h"
#include "tests/fuzz/fuzz.h"

static bool is_safe_text(const char *text, size_t n) {
    while (n > 0) {
        bool is_safe;
        const size_t step = safe_text_next(text, n, &is_safe);

        if (!is_safe)
            return false;
        text += step;
        n -= step;
    }
    return true;
}

static bool is_utf8(const char *text, size_t n) {
    while (n > 0) {
        const size_t step = utf8_length(text, n);

        if (step == 0)
            return false;
        text += step;
        n -= step;
    }
    return true;
}

static void check_json(const char *text, size_t n) {
    struct json_writer w = {};
    struct json_reader r;
    char *back;
    size_t back_n;

    json_put_string_n(&w, text, n);
    fuzz_check(!w.failed && is_safe_text(w.data, w.len));
    json_reader_init(&r, w.data, w.len);
    fuzz_check(json_read_string(&r, &back, &back_n) == 0 && json_finish(&r) == 0);
    if (is_utf8(text, n))
        fuzz_check(back_n == n && memcmp(back, text, n) == 0);
    json_writer_done(&w);
}

static void check_csv(const char *text) {
    cleanup(freep) char *cell = NULL;
    size_t n, quotes = 0;
    FILE *out = open_memstream(&cell, &n);
    const char *first;

    fuzz_check(out);
    field_write_csv_string(text, out);
    fuzz_check(fclose(out) == 0 && is_safe_text(cell, n));
    first = cell + (cell[0] == '"');
    first += strspn(first, " ");
    fuzz_check(!*first || !strchr("=+-@\t\r", *first));
    for (size_t i = 0; i < n; i++)
        quotes += cell[i] == '"';
    fuzz_check(quotes % 2 == 0);
    fuzz_check(cell[0] == '"' || !strpbrk(cell, ",\"\n"));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    cleanup(freep) char *text = malloc(size + 1), *room = malloc(size * 4 + 16);
    const size_t sizes[] = { 1, 2, size / 2 + 1, size + 1, size * 4 + 16 };

    fuzz_check(text && room);
    memcpy(text, data, size);
    text[size] = '\0';
    for (size_t i = 0; i < ELEMENTSOF(sizes); i++) {
        size_t n = safe_text_clean(room, sizes[i], text, size);

        fuzz_check(n < sizes[i] && strlen(room) == n && is_safe_text(room, n));
        n = safe_text_escape(room, sizes[i], text, size);
        fuzz_check(n < sizes[i] && strlen(room) == n && is_safe_text(room, n));
    }
    check_json(text, strlen(text)); /* JSON of ours has no U+0000 */
    check_csv(text);
    for (int utf8 = 0; utf8 < 2; utf8++) {
        cleanup(freep) char *clean = text_clean(text, utf8);

        fuzz_check(clean && is_safe_text(clean, strlen(clean)));
        text_cut(clean, size % 40, utf8);
        fuzz_check(text_width(clean) <= size % 40);
        fuzz_check(is_safe_text(clean, strlen(clean)));
    }
    return 0;
}
