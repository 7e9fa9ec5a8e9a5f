/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Text: makes strings from others (commands, names, reasons) fit for a terminal.
 *
 * A process can put escape sequences, broken characters or a whole page into its name: none of that
 * reaches the terminal. Plain functions, any thread.
 */
#include <stdbool.h>
#include <stddef.h>

/*
 * A copy of `text` (NULL counts as "") for free(): what base/safe_text.h calls unsafe and, unless
 * `utf8`, everything beyond ASCII become '?'. NULL: out of memory.
 */
char *text_clean(const char *text, bool utf8);

/* Columns that a clean text takes: two for wide characters, none for combining ones. */
size_t text_width(const char *text);

/* Shorten a clean text in place to `width` columns, and mark where it was cut. */
void text_cut(char *text, size_t width, bool utf8);

/*
 * How many bytes of a clean `text` to put on a line of `width` columns: up to the last blank that
 * fits or, if a word is longer than the line, as much of it as fits; at least one character.
 * `*ret_next` is where the next line begins, at the NUL if there is none.
 */
size_t text_wrap(const char *text, size_t width, const char **ret_next);
