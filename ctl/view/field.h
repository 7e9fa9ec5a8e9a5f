/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Field: the plain members of what a box is made of, as tables, for CSV and JSON.
 *
 * Names are those of the interface file. Arrays within are not among them: shares, holders, links.
 */
#include <stddef.h>
#include <stdio.h>

#include "base/json.h"
#include "wire/message.h"

enum field_type {
    FIELD_UINT,   /* uint64_t */
    FIELD_INT,    /* int64_t */
    FIELD_BOOL,   /* bool */
    FIELD_MAYBE,  /* struct wire_maybe */
    FIELD_STRING, /* const char *, NULL: absent */
    FIELD_WORD,   /* an enum, by `word` */
};

struct field {
    const char *name;
    enum field_type type;
    size_t offset;
    const char *(*word)(unsigned value);
};

struct fields {
    const struct field *list;
    size_t n;
};

extern const struct fields fields_box, fields_device, fields_link, fields_lease, fields_share,
    fields_holder, fields_process, fields_waiter, fields_tier, fields_usage, fields_event;

/* Write all of `record` as members of the object that `w` is in; absent ones are null. */
void field_write_json(const struct fields *fields, const void *record, struct json_writer *w);

/* Values of `record`, or their names if it is NULL, by commas; `first`: none stands before them. */
void field_write_csv(const struct fields *fields, const void *record, bool first, FILE *out);
/* One value as CSV wants it: quoted where it must be. */
void field_write_csv_string(const char *text, FILE *out);
