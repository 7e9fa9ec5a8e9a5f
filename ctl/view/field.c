/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/view/field.h"

#include <inttypes.h>
#include <string.h>

static bool is_plain(const struct wire_field *field) {
    return !wire_field_is_array(field) && field->kind != WIRE_OBJECT && field->kind != WIRE_MAP;
}

/* Without the quotes and the colon that a key has on the wire. */
static const char *key_text(const struct wire_field *field) {
    return field->key + 1;
}

static int key_length(const struct wire_field *field) {
    return field->key_n - (int)strlen("\"\":");
}

/* Whether `record` has the number or the truth value; `*ret`: it as a number. */
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
    int value;

    if (field->kind == WIRE_STRING)
        return *(const char *const *)at;
    value = *(const int *)at;
    for (int i = 1; field->words[i - 1]; i++)
        if (i == value)
            return field->words[i - 1];
    return "?";
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

void field_write_csv_string(const char *text, FILE *out) {
    if (!text)
        return;
    if (!text[strcspn(text, ",\"\r\n")] && *text != ' ') {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"')
            fputc('"', out);
        fputc(*text, out);
    }
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
