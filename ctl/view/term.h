/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Term: what the output can show: columns, UTF-8, colour.
 *
 * Decided once, in main(), from the environment, the terminal and the options; passed on by
 * reference. Only the width changes, when a window is resized.
 */
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum term_choice { TERM_AUTO, TERM_ALWAYS, TERM_NEVER };

enum term_style {
    STYLE_PLAIN,
    STYLE_HEAD, /* titles */
    STYLE_DIM,  /* less important */
    STYLE_GOOD,
    STYLE_WARN, /* deserves attention: unmanaged, idle, stale */
    STYLE_BAD,  /* lost, overcommitted */
};

struct term {
    FILE *out;
    bool is_tty;
    bool utf8;
    bool colour;
    unsigned width; /* columns, 40 to 1000 */
};

/*
 * UTF-8 if LC_ALL, LC_CTYPE or LANG says so, in the libc's order, unless `ascii`. Colour on a
 * terminal that is not "dumb" unless NO_COLOR is set, or as `colour` says. Width from COLUMNS,
 * otherwise from the terminal, otherwise 80.
 */
void term_init(struct term *term, FILE *out, enum term_choice colour, bool ascii);

/* Read the width again. */
void term_measure(struct term *term);

/* "auto", "always", "never"; -EINVAL for anything else. */
int term_choice_parse(enum term_choice *ret, const char *text);

/* Print in a style; plain where there is no colour. */
void term_put(const struct term *term, enum term_style style, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void term_pad(const struct term *term, size_t columns); /* print this many blanks */

/* Print a horizontal line with a title at its left. */
void term_title(const struct term *term, const char *title);
/* Print a paragraph, indented by `indent` columns, wrapped between words. */
void term_paragraph(const struct term *term, enum term_style style, size_t indent,
                    const char *text);
/* The same with a label in the indentation of the first line. */
void term_item(const struct term *term, enum term_style style, size_t indent, const char *label,
               const char *text);
