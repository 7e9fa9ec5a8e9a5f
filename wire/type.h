/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Type: how a struct of wire/message.h lies in memory, member by member, so that one writer and one
 * reader serve all of them. Constant tables, for wire/, its tests and gpuctl's views.
 */
#include <stddef.h>
#include <stdint.h>

#include "wire/message.h"

enum wire_kind {
    WIRE_UINT,   /* uint64_t */
    WIRE_INT,    /* int64_t */
    WIRE_BOOL,   /* bool */
    WIRE_STRING, /* const char * */
    WIRE_ENUM,   /* an enum that begins at 1 */
    WIRE_OBJECT, /* const struct … * */
    WIRE_MAP,    /* const struct wire_variable *, with a count */
};

enum wire_shape {
    WIRE_PLAIN,
    WIRE_OPTIONAL, /* numbers and bools are then struct wire_maybe */
    WIRE_ARRAY,    /* a pointer to the first, with a count */
    WIRE_OPTIONAL_ARRAY,
};

struct wire_field {
    const char *key; /* "\"bytes\":", as on the wire */
    uint8_t key_n;
    uint8_t kind;
    uint8_t shape;
    uint16_t offset;
    uint16_t n_offset;              /* of the count, if there is one */
    const char *const *words;       /* of an enum: [value - 1], NULL at the end */
    const struct wire_type *object; /* of an object */
};

struct wire_type {
    const char *name; /* "Share", "Grow()", "Grow->" */
    const struct wire_field *fields;
    uint16_t n_fields; /* at most 64 */
    uint16_t size;
};

static inline bool wire_field_is_optional(const struct wire_field *field) {
    return field->shape == WIRE_OPTIONAL || field->shape == WIRE_OPTIONAL_ARRAY;
}

static inline bool wire_field_is_array(const struct wire_field *field) {
    return field->shape == WIRE_ARRAY || field->shape == WIRE_OPTIONAL_ARRAY;
}

/* ---- For the tables ----------------------------------------------------------------------------
 */

/* The offset of a member, which must have the type that the table says. */
#define WIRE_AT(T, m, want)                                                                        \
    .offset =                                                                                      \
        offsetof(struct T, m) +                                                                    \
        0 * sizeof(                                                                                \
                char[__builtin_types_compatible_p(__typeof__(((struct T *)0)->m), want) ? 1 : -1])
#define WIRE_KEY(m)                  .key = "\"" #m "\":", .key_n = sizeof("\"" #m "\":") - 1
#define WIRE_FIELD(T, m, want, k, s) WIRE_KEY(m), WIRE_AT(T, m, want), .kind = k, .shape = s

#define UINT(T, m)                                                                                 \
    { WIRE_FIELD(T, m, uint64_t, WIRE_UINT, WIRE_PLAIN) }
#define INT(T, m)                                                                                  \
    { WIRE_FIELD(T, m, int64_t, WIRE_INT, WIRE_PLAIN) }
#define BOOL(T, m)                                                                                 \
    { WIRE_FIELD(T, m, bool, WIRE_BOOL, WIRE_PLAIN) }
#define STRING(T, m)                                                                               \
    { WIRE_FIELD(T, m, const char *, WIRE_STRING, WIRE_PLAIN) }
#define ENUM(T, m, e)                                                                              \
    { WIRE_FIELD(T, m, enum e, WIRE_ENUM, WIRE_PLAIN), .words = e##_words }
#define OBJECT(T, m, o)                                                                            \
    { WIRE_FIELD(T, m, const struct o *, WIRE_OBJECT, WIRE_PLAIN), .object = &o##_type }
#define MAYBE_UINT(T, m)                                                                           \
    { WIRE_FIELD(T, m, struct wire_maybe, WIRE_UINT, WIRE_OPTIONAL) }
#define MAYBE_INT(T, m)                                                                            \
    { WIRE_FIELD(T, m, struct wire_maybe, WIRE_INT, WIRE_OPTIONAL) }
#define MAYBE_BOOL(T, m)                                                                           \
    { WIRE_FIELD(T, m, struct wire_maybe, WIRE_BOOL, WIRE_OPTIONAL) }
#define MAYBE_STRING(T, m)                                                                         \
    { WIRE_FIELD(T, m, const char *, WIRE_STRING, WIRE_OPTIONAL) }
#define MAYBE_ENUM(T, m, e)                                                                        \
    { WIRE_FIELD(T, m, enum e, WIRE_ENUM, WIRE_OPTIONAL), .words = e##_words }
#define MAYBE_OBJECT(T, m, o)                                                                      \
    { WIRE_FIELD(T, m, const struct o *, WIRE_OBJECT, WIRE_OPTIONAL), .object = &o##_type }
#define UINTS(T, m)                                                                                \
    {                                                                                              \
        WIRE_FIELD(T, m, const uint64_t *, WIRE_UINT, WIRE_ARRAY),                                 \
            .n_offset = offsetof(struct T, n_##m)                                                  \
    }
#define STRINGS_OF(T, m, s)                                                                        \
    { WIRE_FIELD(T, m, const char *const *, WIRE_STRING, s), .n_offset = offsetof(struct T, n_##m) }
#define OBJECTS_OF(T, m, o, s)                                                                     \
    {                                                                                              \
        WIRE_FIELD(T, m, const struct o *, WIRE_OBJECT, s), .n_offset = offsetof(struct T, n_##m), \
                                                            .object = &o##_type                    \
    }
#define STRINGS(T, m)          STRINGS_OF(T, m, WIRE_ARRAY)
#define MAYBE_STRINGS(T, m)    STRINGS_OF(T, m, WIRE_OPTIONAL_ARRAY)
#define OBJECTS(T, m, o)       OBJECTS_OF(T, m, o, WIRE_ARRAY)
#define MAYBE_OBJECTS(T, m, o) OBJECTS_OF(T, m, o, WIRE_OPTIONAL_ARRAY)
#define MAP(T, m)                                                                                  \
    {                                                                                              \
        WIRE_FIELD(T, m, const struct wire_variable *, WIRE_MAP, WIRE_PLAIN),                      \
            .n_offset = offsetof(struct T, n_##m)                                                  \
    }

#define WIRE_TYPE(T, shown, table)                                                                 \
    { .name = shown, .fields = table, .n_fields = ELEMENTSOF(table), .size = sizeof(struct T) }

/* Words and types that more than one table needs. */
extern const char *const wire_verdict_words[];
extern const struct wire_type wire_share_type, wire_grant_type, wire_held_type, wire_notice_type;
extern const struct wire_type wire_event_type, wire_usage_row_type;
extern const struct wire_type wire_link_type, wire_device_type, wire_holder_type, wire_lease_type;
extern const struct wire_type wire_process_type, wire_waiter_type, wire_tier_type;

/* Every type that has a name in the interface, NULL at the end. */
extern const struct wire_type *const wire_types[];
