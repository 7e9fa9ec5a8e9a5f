/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One walk over the text, straight into the struct. Members mostly come in the order of the
 * interface, so the search for a name starts after the last one. The position in the message is a
 * chain of places on the stack, which is written out only for a fault.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "wire/type.h"

/* More elements than any call needs: 256 devices per box, 64 per lease. */
#define ELEMENTS_MAX 1024

struct field_path {
    const struct field_path *outer;
    const char *name; /* NULL: element `index` of an array */
    size_t name_n;
    size_t index;
};

struct decoder {
    struct json_reader *reader;
    struct store *store;
    struct wire_fault *fault;
    enum wire_strictness strictness;
};

static int read_object(struct decoder *d, void *ret, const struct wire_type *type,
                       const struct field_path *place);

static size_t write_place(char *text, size_t size, const struct field_path *place) {
    size_t n = place->outer ? write_place(text, size, place->outer) : 0;
    int more;

    if (n >= size)
        return n;
    if (place->name)
        more =
            snprintf(text + n, size - n, "%s%.*s", n ? "." : "", (int)place->name_n, place->name);
    else
        more = snprintf(text + n, size - n, "[%zu]", place->index);
    return more < 0 ? n : n + (size_t)more;
}

__attribute__((format(printf, 3, 4))) static int fault(struct decoder *d,
                                                       const struct field_path *place,
                                                       const char *format, ...) {
    va_list args;

    d->fault->member[0] = '\0';
    if (place)
        write_place(d->fault->member, sizeof(d->fault->member), place);
    va_start(args, format);
    vsnprintf(d->fault->reason, sizeof(d->fault->reason), format, args);
    va_end(args);
    return -EINVAL;
}

static int not_json(struct decoder *d) {
    fault(d, NULL, "not JSON at byte %td: %s", d->reader->at - d->reader->start,
          d->reader->why ? d->reader->why : "out of order");
    return -EBADMSG;
}

static const char *kind_words(const struct wire_field *field) {
    static const char *const words[] = {
        [WIRE_UINT] = "a whole number",
        [WIRE_INT] = "a whole number",
        [WIRE_BOOL] = "true or false",
        [WIRE_STRING] = "a string",
        [WIRE_ENUM] = "a string",
        [WIRE_OBJECT] = "an object",
        [WIRE_MAP] = "an object of strings",
    };

    return words[field->kind];
}

static int read_number(struct decoder *d, const struct wire_field *field, int64_t *ret,
                       const struct field_path *place) {
    int64_t least = field->kind == WIRE_UINT ? 0 : INT64_MIN;
    int64_t value;
    int r;

    if (field->kind == WIRE_BOOL) {
        bool truth;

        r = json_read_bool(d->reader, &truth);
        value = r == 0 && truth;
        least = 0;
    } else {
        r = json_read_int(d->reader, &value);
    }
    if (r == -ERANGE || (r == 0 && value < least))
        return fault(d, place, "must be a whole number from %jd to %jd", (intmax_t)least,
                     (intmax_t)INT64_MAX);
    if (r == 0)
        *ret = value;
    return r;
}

static int read_enum(struct decoder *d, const struct wire_field *field, int *ret,
                     const struct field_path *place) {
    char list[96] = "";
    size_t n = 0;
    char *word;
    int r;

    r = json_read_string(d->reader, &word, NULL);
    if (r < 0)
        return r;
    for (int i = 0; field->words[i]; i++) {
        if (strcmp(field->words[i], word) == 0) {
            *ret = i + 1;
            return 0;
        }
        n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%s", i ? ", " : "", field->words[i]);
    }
    return fault(d, place, "must be one of: %s", list);
}

/* Read one value, in an array or by itself; -EPROTOTYPE: it is of another kind. */
static int read_value(struct decoder *d, const struct wire_field *field, void *at,
                      const struct field_path *place) {
    int64_t number = 0;
    int r;

    switch ((enum wire_kind)field->kind) {
    case WIRE_UINT:
    case WIRE_INT:
        return read_number(d, field, at, place);
    case WIRE_BOOL:
        r = read_number(d, field, &number, place);
        if (r == 0)
            *(bool *)at = number != 0;
        return r;
    case WIRE_STRING:
        return json_read_string(d->reader, at, NULL);
    case WIRE_ENUM:
        return read_enum(d, field, at, place);
    case WIRE_OBJECT:
        return read_object(d, at, field->object, place);
    case WIRE_MAP:
        break;
    }
    return -EPROTOTYPE;
}

/* Make room for one more element behind the `n` at `*array`. */
static int array_make_room(struct decoder *d, char **array, size_t n, size_t *n_room, size_t size) {
    size_t room = *n_room ? *n_room * 2 : 4;
    char *larger;

    if (n < *n_room)
        return 0;
    larger = store_get(d->store, room * size);
    if (!larger)
        return -ENOMEM;
    if (n > 0)
        memcpy(larger, *array, n * size);
    *array = larger;
    *n_room = room;
    return 0;
}

static int read_array(struct decoder *d, const struct wire_field *field, char *message,
                      const struct field_path *place) {
    size_t size = field->kind == WIRE_OBJECT   ? field->object->size
                  : field->kind == WIRE_STRING ? sizeof(char *)
                                               : sizeof(uint64_t);
    size_t n = 0, n_room = 0;
    char *array = NULL;
    int r;

    r = json_enter(d->reader, JSON_ARRAY);
    if (r < 0)
        return r;
    array = store_get(d->store, 0); /* an empty array differs from an absent one */
    if (!array)
        return -ENOMEM;
    while ((r = json_next_element(d->reader)) > 0) {
        struct field_path element = { .outer = place, .index = n };

        if (d->strictness == WIRE_STRICT && n == ELEMENTS_MAX)
            return fault(d, place, "has more than %d elements", ELEMENTS_MAX);
        r = array_make_room(d, &array, n, &n_room, size);
        if (r < 0)
            return r;
        r = read_value(d, field, array + n * size, &element);
        if (r == -EPROTOTYPE)
            return fault(d, &element, "must be %s", kind_words(field));
        if (r < 0)
            return r;
        n++;
    }
    if (r < 0)
        return r;
    *(char **)(message + field->offset) = array;
    *(size_t *)(message + field->n_offset) = n;
    return 0;
}

static int read_map(struct decoder *d, const struct wire_field *field, char *message,
                    const struct field_path *place) {
    struct wire_variable *variables = store_get(d->store, 0);
    size_t n = 0, n_room = 0, name_n;
    char *name, *value;
    int r;

    r = variables ? json_enter(d->reader, JSON_OBJECT) : -ENOMEM;
    if (r < 0)
        return r;
    while ((r = json_next_member(d->reader, &name, &name_n)) > 0) {
        struct field_path member = { .outer = place, .name = name, .name_n = name_n };

        if (d->strictness == WIRE_STRICT && n == ELEMENTS_MAX)
            return fault(d, place, "has more than %d members", ELEMENTS_MAX);
        r = array_make_room(d, (char **)&variables, n, &n_room, sizeof(*variables));
        if (r < 0)
            return r;
        r = json_read_string(d->reader, &value, NULL);
        if (r == -EPROTOTYPE)
            return fault(d, &member, "must be a string");
        if (r < 0)
            return r;
        variables[n++] = (struct wire_variable){ name, value };
    }
    if (r < 0)
        return r;
    *(struct wire_variable **)(message + field->offset) = variables;
    *(size_t *)(message + field->n_offset) = n;
    return 0;
}

static int read_field(struct decoder *d, const struct wire_field *field, char *message,
                      const struct field_path *place) {
    char *at = message + field->offset;
    int r;

    if (json_peek(d->reader) == JSON_NULL && wire_field_is_optional(field))
        return json_read_null(d->reader);

    if (wire_field_is_array(field)) {
        r = read_array(d, field, message, place);
        if (r == -EPROTOTYPE)
            return fault(d, place, "must be an array");
    } else if (field->kind == WIRE_MAP) {
        r = read_map(d, field, message, place);
    } else if (field->kind == WIRE_OBJECT) {
        void *object = store_get(d->store, field->object->size);

        r = object ? read_object(d, object, field->object, place) : -ENOMEM;
        if (r == 0)
            *(void **)at = object;
    } else if (field->shape == WIRE_OPTIONAL && field->kind <= WIRE_BOOL) {
        struct wire_maybe *maybe = (struct wire_maybe *)at;

        r = read_number(d, field, &maybe->value, place);
        maybe->has = r == 0;
    } else {
        r = read_value(d, field, at, place);
    }
    if (r == -EPROTOTYPE)
        return fault(d, place, "must be %s", kind_words(field));
    return r;
}

static bool is_named(const struct wire_field *field, const char *name, size_t n) {
    return field->key_n == n + 3 && memcmp(field->key + 1, name, n) == 0;
}

/* The field with that name; tries `guess` first. n_fields: there is none. */
static unsigned find_field(const struct wire_type *type, unsigned guess, const char *name,
                           size_t n) {
    if (guess < type->n_fields && is_named(&type->fields[guess], name, n))
        return guess;
    for (unsigned i = 0; i < type->n_fields; i++)
        if (is_named(&type->fields[i], name, n))
            return i;
    return type->n_fields;
}

static int check_complete(struct decoder *d, const struct wire_type *type, uint64_t seen,
                          const struct field_path *outer) {
    for (unsigned i = 0; i < type->n_fields; i++) {
        const struct wire_field *field = &type->fields[i];
        struct field_path place = { .outer = outer,
                                    .name = field->key + 1,
                                    .name_n = field->key_n - 3u };

        if (!(seen & UINT64_C(1) << i) && !wire_field_is_optional(field))
            return fault(d, &place, "is missing");
    }
    return 0;
}

static int read_object(struct decoder *d, void *ret, const struct wire_type *type,
                       const struct field_path *outer) {
    uint64_t seen = 0;
    unsigned i = 0;
    char *name;
    size_t n;
    int r;

    r = json_enter(d->reader, JSON_OBJECT);
    if (r < 0)
        return r;
    while ((r = json_next_member(d->reader, &name, &n)) > 0) {
        struct field_path place = { .outer = outer, .name = name, .name_n = n };

        i = find_field(type, i, name, n);
        if (i == type->n_fields) {
            if (d->strictness == WIRE_STRICT)
                return fault(d, &place, "is not known");
            r = json_skip(d->reader, NULL, NULL);
        } else if (seen & UINT64_C(1) << i) {
            return fault(d, &place, "is given twice");
        } else {
            seen |= UINT64_C(1) << i;
            r = read_field(d, &type->fields[i], ret, &place);
            i++;
        }
        if (r < 0)
            return r;
    }
    return r < 0 ? r : check_complete(d, type, seen, outer);
}

int wire_decode(void *ret, const struct wire_type *type, enum wire_strictness strictness,
                struct json_reader *reader, struct store *store, struct wire_fault *fault_ret) {
    struct wire_fault scratch;
    struct decoder d = {
        .reader = reader,
        .store = store,
        .fault = fault_ret ? fault_ret : &scratch,
        .strictness = strictness,
    };
    int r;

    memset(ret, 0, type->size);
    r = read_object(&d, ret, type, NULL);
    if (r == -EPROTOTYPE)
        return fault(&d, NULL, "must be an object");
    return r == -EBADMSG ? not_json(&d) : r;
}
