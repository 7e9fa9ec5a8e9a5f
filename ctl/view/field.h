/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Field: the plain members of a struct of wire/message.h, as CSV and JSON.
 *
 * Names and order are those of the interface file. Arrays and objects are left out: tiers, shares,
 * holders, links.
 */
#include <stdbool.h>
#include <stdio.h>

#include "base/json.h"
#include "wire/type.h"

/* Write all of `record` as members of the object that `w` is in; absent ones are null. */
void field_write_json(const struct wire_type *type, const void *record, struct json_writer *w);

/* Values of `record`, or their names if it is NULL, by commas; `first`: none stands before them. */
void field_write_csv(const struct wire_type *type, const void *record, bool first, FILE *out);
/* One value as CSV wants it: quoted where it must be. */
void field_write_csv_string(const char *text, FILE *out);
