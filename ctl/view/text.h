/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Text: strings that others chose (commands, names, reasons), made fit for a terminal.
 *
 * What a process calls itself may hold escape sequences, half characters or a page of them: nothing
 * of that reaches the terminal. Plain functions, any thread.
 */
#include <stdbool.h>
#include <stddef.h>

/*
 * A copy of `text` (NULL counts as "") for free(): control characters, broken UTF-8 and, unless
 * `utf8`, everything beyond ASCII become '?'. NULL only for want of memory.
 */
char *text_clean(const char *text, bool utf8);

/* Columns that a clean text takes: two for wide characters, none for combining ones. */
size_t text_width(const char *text);

/* Shorten a text of text_clean() in place to `width` columns; where it was cut is marked. */
void text_cut(char *text, size_t width, bool utf8);

/*
 * How many bytes of a clean `text` to put on a line of `width` columns: up to the last blank that
 * fits, or as much as fits of a word that is longer; at least one character. `*ret_next` is where
 * the next line begins, at the NUL when there is none.
 */
size_t text_wrap(const char *text, size_t width, const char **ret_next);
