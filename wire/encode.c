/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>

#include "wire/type.h"

static void put_value(struct json_writer *w, const struct wire_field *field, const void *at) {
    switch ((enum wire_kind)field->kind) {
    case WIRE_UINT:
        json_put_uint(w, *(const uint64_t *)at);
        break;
    case WIRE_INT:
        json_put_int(w, *(const int64_t *)at);
        break;
    case WIRE_BOOL:
        json_put_bool(w, *(const bool *)at);
        break;
    case WIRE_STRING:
        /* A required text that is missing is our mistake, but no reason to send invalid Varlink. */
        json_put_string(w, *(const char *const *)at ? *(const char *const *)at : "");
        break;
    case WIRE_ENUM:
        assert(*(const int *)at >= 1);
        json_put_string(w, field->words[*(const int *)at - 1]);
        break;
    case WIRE_OBJECT:
        wire_encode(w, field->object, at);
        break;
    case WIRE_MAP:
        break;
    }
}

static void put_maybe(struct json_writer *w, const struct wire_field *field,
                      const struct wire_maybe *maybe) {
    if (field->kind == WIRE_BOOL)
        json_put_bool(w, maybe->value != 0);
    else
        json_put_int(w, maybe->value);
}

static size_t element_size(const struct wire_field *field) {
    switch ((enum wire_kind)field->kind) {
    case WIRE_OBJECT:
        return field->object->size;
    case WIRE_STRING:
        return sizeof(char *);
    default:
        return sizeof(uint64_t);
    }
}

static bool is_absent(const struct wire_field *field, const void *at) {
    if (!wire_field_is_optional(field))
        return false;
    if (wire_field_is_array(field) || field->kind == WIRE_STRING || field->kind == WIRE_OBJECT)
        return !*(const void *const *)at;
    if (field->kind == WIRE_ENUM)
        return *(const int *)at == 0;
    return !((const struct wire_maybe *)at)->has;
}

static void put_field(struct json_writer *w, const struct wire_field *field, const char *message) {
    const char *at = message + field->offset;
    size_t n = 0;

    if (is_absent(field, at))
        return;
    if (w->comma)
        json_put_raw(w, ",", 1);
    json_put_raw(w, field->key, field->key_n);
    w->comma = false;

    if (field->n_offset)
        n = *(const size_t *)(message + field->n_offset);
    if (wire_field_is_array(field)) {
        const char *first = *(const char *const *)at;
        size_t size = element_size(field);

        json_begin(w, '[');
        for (size_t i = 0; i < n; i++)
            put_value(w, field, first + i * size);
        json_end(w, ']');
    } else if (field->kind == WIRE_MAP) {
        const struct wire_variable *variables = *(const struct wire_variable *const *)at;

        json_begin(w, '{');
        for (size_t i = 0; i < n; i++) {
            json_name(w, variables[i].name);
            json_put_string(w, variables[i].value ? variables[i].value : "");
        }
        json_end(w, '}');
    } else if (field->kind == WIRE_OBJECT) {
        wire_encode(w, field->object, *(const void *const *)at);
    } else if (field->shape == WIRE_OPTIONAL && field->kind <= WIRE_BOOL) {
        put_maybe(w, field, (const struct wire_maybe *)at);
    } else {
        put_value(w, field, at);
    }
}

void wire_encode(struct json_writer *w, const struct wire_type *type, const void *message) {
    assert(message || type->n_fields == 0);
    json_begin(w, '{');
    for (unsigned i = 0; i < type->n_fields; i++)
        put_field(w, &type->fields[i], message);
    json_end(w, '}');
}
