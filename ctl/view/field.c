/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/view/field.h"

#include <inttypes.h>
#include <string.h>

#include "base/safe_text.h"

static bool is_plain(const struct wire_field *field) {
    return !wire_field_is_array(field) && field->kind != WIRE_OBJECT && field->kind != WIRE_MAP;
}

/* The key without the quotes and colon that it has on the wire. */
static const char *key_text(const struct wire_field *field) {
    return field->key + 1;
}

static int key_length(const struct wire_field *field) {
    return field->key_n - (int)strlen("\"\":");
}

/* Whether `record` has this number or boolean; `*ret`: its value as a number. */
static bool number_of(const struct wire_field *field, const void *record, int64_t *ret) {
    const void *at = (const char *)record + field->offset;

    if (field->shape == WIRE_OPTIONAL) {
        *ret = ((const struct wire_maybe *)at)->value;
        return ((const struct wire_maybe *)at)->has;
    }
    *ret = field->kind == WIRE_BOOL ? *(const bool *)at : *(const int64_t *)at;
    return true;
}

/* NULL: absent. */
static const char *string_of(const struct wire_field *field, const void *record) {
    const void *at = (const char *)record + field->offset;

    if (field->kind == WIRE_STRING)
        return *(const char *const *)at;
    return words_name(field->words, *(const int *)at);
}

void field_write_json(const struct wire_type *type, const void *record, struct json_writer *w) {
    for (unsigned i = 0; i < type->n_fields; i++) {
        const struct wire_field *field = &type->fields[i];
        int64_t number;

        if (!is_plain(field))
            continue;
        if (w->comma)
            json_put_raw(w, ",", 1);
        json_put_raw(w, field->key, field->key_n);
        w->comma = false;
        if (field->kind == WIRE_STRING || field->kind == WIRE_ENUM)
            json_put_string(w, string_of(field, record));
        else if (!number_of(field, record, &number))
            json_put_null(w);
        else if (field->kind == WIRE_BOOL)
            json_put_bool(w, number);
        else if (field->kind == WIRE_UINT && field->shape == WIRE_PLAIN)
            json_put_uint(w, (uint64_t)number);
        else
            json_put_int(w, number);
    }
}

/*
 * Whether a spreadsheet would take the cell for a formula: it begins with one of these signs, in
 * ASCII or in the full-width form that some locales read as the same. An import may drop blanks
 * before them. A tab or line end at the beginning is escaped, which makes it no formula.
 */
static bool is_formula(const char *text) {
    static const char *const first[] = { "=", "+", "-", "@", "＝", "＋", "－", "＠" };

    text += strspn(text, " ");
    for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++)
        if (!strncmp(text, first[i], strlen(first[i])))
            return true;
    return false;
}

void field_write_csv_string(const char *text, FILE *out) {
    size_t left = text ? strlen(text) : 0;
    bool is_inert, is_quoted;

    if (left == 0)
        return;
    is_inert = is_formula(text);
    is_quoted = is_inert || *text == ' ' || text[strcspn(text, ",;\"")];
    if (is_quoted)
        fputc('"', out);
    if (is_inert)
        fputc('\'', out);
    while (left > 0) {
        char piece[SAFE_TEXT_ESCAPE_SIZE];
        bool is_safe;
        const size_t n = safe_text_next(text, left, &is_safe);

        safe_text_escape(piece, sizeof(piece), text, n);
        if (*text == '"')
            fputc('"', out);
        fputs(piece, out);
        text += n;
        left -= n;
    }
    if (is_quoted)
        fputc('"', out);
}

void field_write_csv(const struct wire_type *type, const void *record, bool first, FILE *out) {
    for (unsigned i = 0; i < type->n_fields; i++) {
        const struct wire_field *field = &type->fields[i];
        int64_t number;

        if (!is_plain(field))
            continue;
        if (!first)
            fputc(',', out);
        first = false;
        if (!record)
            fprintf(out, "%.*s", key_length(field), key_text(field));
        else if (field->kind == WIRE_STRING || field->kind == WIRE_ENUM)
            field_write_csv_string(string_of(field, record), out);
        else if (!number_of(field, record, &number))
            continue;
        else if (field->kind == WIRE_BOOL)
            fputs(number ? "true" : "false", out);
        else if (field->kind == WIRE_UINT && field->shape == WIRE_PLAIN)
            fprintf(out, "%" PRIu64, (uint64_t)number);
        else
            fprintf(out, "%" PRIi64, number);
    }
}
