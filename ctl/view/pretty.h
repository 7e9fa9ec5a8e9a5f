/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Pretty: JSON as people like to read it.
 */
#include <stdio.h>

#include "base/json.h"

/* Print what `w` holds, a whole value, with line ends and indentation; `w` is empty afterwards.
 * -ENOMEM. */
int pretty_print(struct json_writer *w, FILE *out);
/* The same in one line. */
int pretty_print_line(struct json_writer *w, FILE *out);
