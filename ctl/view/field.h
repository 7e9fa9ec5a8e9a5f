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

/* Write the values of `record`, or their names if it is NULL, separated by commas. `first`: nothing
 * stands before them. */
void field_write_csv(const struct wire_type *type, const void *record, bool first, FILE *out);
/*
 * Write one text as CSV: quoted if necessary, unsafe characters escaped (base/safe_text.h), and
 * with an apostrophe in front if a spreadsheet would take it for a formula.
 */
void field_write_csv_string(const char *text, FILE *out);
