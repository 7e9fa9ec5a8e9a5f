/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/view/term.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "ctl/view/text.h"

#define WIDTH_LEAST 40
#define WIDTH_MOST  1000
#define WIDTH_USUAL 80

static const char *const style_codes[] = {
    [STYLE_PLAIN] = "",        [STYLE_HEAD] = "\033[1m",  [STYLE_DIM] = "\033[2m",
    [STYLE_GOOD] = "\033[32m", [STYLE_WARN] = "\033[33m", [STYLE_BAD] = "\033[1;31m",
};

/* Judge by the locale's name: loading the locale takes longer than the rest of the start. */
static bool locale_is_utf8(void) {
    static const char *const names[] = { "LC_ALL", "LC_CTYPE", "LANG" };

    for (size_t i = 0; i < ELEMENTSOF(names); i++) {
        const char *value = getenv(names[i]);

        if (value && *value) {
            const char *dot = strchr(value, '.');

            return dot && (!strncasecmp(dot + 1, "UTF-8", 5) || !strncasecmp(dot + 1, "utf8", 4));
        }
    }
    return false;
}

void term_measure(struct term *term) {
    const char *columns = getenv("COLUMNS");
    unsigned long width = 0;
    struct winsize size;
    char *end;

    if (columns && *columns >= '0' && *columns <= '9') {
        width = strtoul(columns, &end, 10);
        if (*end)
            width = 0;
    }
    if (width == 0 && term->is_tty && ioctl(fileno(term->out), TIOCGWINSZ, &size) == 0)
        width = size.ws_col;
    if (width == 0)
        width = WIDTH_USUAL;
    term->width = MAX(MIN(width, (unsigned long)WIDTH_MOST), (unsigned long)WIDTH_LEAST);
}

void term_init(struct term *term, FILE *out, enum term_choice colour, bool ascii) {
    const char *kind = getenv("TERM"), *no_color = getenv("NO_COLOR");

    *term = (struct term){ .out = out, .is_tty = isatty(fileno(out)) };
    term->utf8 = !ascii && locale_is_utf8();
    if (colour == TERM_AUTO)
        term->colour = term->is_tty && !(no_color && *no_color) && kind && strcmp(kind, "dumb");
    else
        term->colour = colour == TERM_ALWAYS;
    term_measure(term);
}

int term_choice_parse(enum term_choice *ret, const char *text) {
    static const char *const names[] = { "auto", "always", "never" };

    for (size_t i = 0; i < ELEMENTSOF(names); i++)
        if (!strcmp(text, names[i])) {
            *ret = i;
            return 0;
        }
    return -EINVAL;
}

void term_put(const struct term *term, enum term_style style, const char *format, ...) {
    const bool coloured = term->colour && style != STYLE_PLAIN;
    va_list args;

    if (coloured)
        fputs(style_codes[style], term->out);
    va_start(args, format);
    vfprintf(term->out, format, args);
    va_end(args);
    if (coloured)
        fputs("\033[0m", term->out);
}

void term_pad(const struct term *term, size_t columns) {
    fprintf(term->out, "%*s", (int)MIN(columns, (size_t)WIDTH_MOST), "");
}

void term_title(const struct term *term, const char *title) {
    const size_t width = text_width(title);

    term_put(term, STYLE_HEAD, "%s", title);
    fputc(' ', term->out);
    for (size_t i = width + 1; i < term->width; i++)
        fputs(term->utf8 ? "─" : "-", term->out);
    fputc('\n', term->out);
}

void term_item(const struct term *term, enum term_style style, size_t indent, const char *label,
               const char *text) {
    cleanup(freep) char *clean = text_clean(text, term->utf8);
    const char *line = clean;

    while (line && *line) {
        const char *next;
        const size_t n = text_wrap(line, term->width > indent ? term->width - indent : 1, &next);

        if (line == clean && *label)
            term_put(term, style, "%-*s", (int)indent, label);
        else
            term_pad(term, indent);
        term_put(term, style, "%.*s", (int)n, line);
        fputc('\n', term->out);
        line = next;
    }
}

void term_paragraph(const struct term *term, enum term_style style, size_t indent,
                    const char *text) {
    term_item(term, style, indent, "", text);
}
