/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Pretty: JSON for people to read.
 */
#include <stdio.h>

#include "base/json.h"

/* Print the value in `w` with line breaks and indentation. `w` is empty afterwards. -ENOMEM. */
int pretty_print(struct json_writer *w, FILE *out);
/* The same in one line. */
int pretty_print_line(struct json_writer *w, FILE *out);
