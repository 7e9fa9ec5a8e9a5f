/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Number: floating point to text and back, always with a decimal point, so that files and messages
 * are the same everywhere. printf() and strtod() follow the program's locale, which may use a
 * comma.
 *
 * Any thread. Allocates nothing.
 */
#include <stdbool.h>

/* Enough for every number with up to 17 digits. */
#define NUMBER_SIZE 40

/* Like %.*g, but "nan" has no sign. Returns `text`. */
const char *number_format(char text[static NUMBER_SIZE], double value, int digits);
/* Use the fewest digits, at most `digits_max`, that read back as the same number (the same float,
 * if `is_float`). Returns `text`. */
const char *number_shortest(char text[static NUMBER_SIZE], double value, int digits_max,
                            bool is_float);
/* As strtod(). */
double number_read(const char *text, char **ret_end);
