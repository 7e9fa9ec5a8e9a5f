/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/view/table.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include "ctl/view/text.h"

#define GAP 2 /* blanks between columns */

struct cell {
    char *text; /* NULL: empty */
    enum term_style style;
};

/* A row is n_columns cells and its note. */
struct table {
    const struct table_column *columns;
    size_t n_columns;
    struct cell *cells;
    size_t n_rows, room;
    size_t next; /* the next cell of the last row */
    bool failed;
};

struct table *table_new(const struct table_column *columns, size_t n_columns) {
    struct table *table = calloc(1, sizeof(*table));

    if (table)
        *table = (struct table){ .columns = columns, .n_columns = n_columns };
    return table;
}

void table_free(struct table *table) {
    if (!table)
        return;
    for (size_t i = 0; i < table->n_rows * (table->n_columns + 1); i++)
        free(table->cells[i].text);
    free(table->cells);
    free(table);
}

static struct cell *row_at(const struct table *table, size_t row) {
    return table->cells + row * (table->n_columns + 1);
}

void table_row(struct table *table) {
    if (!table || table->failed)
        return;
    if (table->n_rows == table->room) {
        const size_t room = table->room ? table->room * 2 : 16;
        struct cell *cells =
            reallocarray(table->cells, room, (table->n_columns + 1) * sizeof(*cells));

        if (!cells) {
            table->failed = true;
            return;
        }
        table->cells = cells;
        table->room = room;
    }
    memset(row_at(table, table->n_rows), 0, (table->n_columns + 1) * sizeof(struct cell));
    table->n_rows++;
    table->next = 0;
}

__attribute__((format(printf, 4, 0))) static void fill(struct table *table, struct cell *cell,
                                                       enum term_style style, const char *format,
                                                       va_list args) {
    cell->style = style;
    if (vasprintf(&cell->text, format, args) < 0) {
        cell->text = NULL;
        table->failed = true;
    }
}

void table_cell(struct table *table, enum term_style style, const char *format, ...) {
    va_list args;

    if (!table || table->failed || table->n_rows == 0 || table->next == table->n_columns)
        return;
    va_start(args, format);
    fill(table, &row_at(table, table->n_rows - 1)[table->next++], style, format, args);
    va_end(args);
}

void table_note(struct table *table, enum term_style style, const char *format, ...) {
    struct cell *note;
    va_list args;

    if (!table || table->failed || table->n_rows == 0)
        return;
    note = &row_at(table, table->n_rows - 1)[table->n_columns];
    if (note->text)
        return;
    va_start(args, format);
    fill(table, note, style, format, args);
    va_end(args);
}

/* Replace every cell by its clean copy. */
static int clean(struct table *table, bool utf8) {
    for (size_t i = 0; i < table->n_rows * (table->n_columns + 1); i++) {
        char *copy;

        if (!table->cells[i].text)
            continue;
        copy = text_clean(table->cells[i].text, utf8);
        if (!copy)
            return -ENOMEM;
        free(table->cells[i].text);
        table->cells[i].text = copy;
    }
    return 0;
}

static size_t sum(const size_t *widths, size_t n) {
    size_t total = 0, shown = 0;

    for (size_t c = 0; c < n; c++)
        if (widths[c]) {
            total += widths[c];
            shown++;
        }
    return total + (shown ? (shown - 1) * GAP : 0);
}

/* Compute the width of each column (0: left out) so that all fit into `room` if possible. */
static void decide_widths(const struct table *table, size_t room, size_t *widths) {
    for (size_t c = 0; c < table->n_columns; c++) {
        for (size_t row = 0; row < table->n_rows; row++) {
            const char *text = row_at(table, row)[c].text;

            if (text)
                widths[c] = MAX(widths[c], text_width(text));
        }
        if (widths[c] || !table->columns[c].drop)
            widths[c] = MAX(widths[c], text_width(table->columns[c].title));
    }
    for (;;) {
        size_t total = sum(widths, table->n_columns), widest = SIZE_MAX, last = SIZE_MAX;
        size_t could = 0;

        if (total <= room)
            return;
        for (size_t c = 0; c < table->n_columns; c++) {
            const struct table_column *column = &table->columns[c];

            if (!widths[c])
                continue;
            if (column->least && widths[c] > column->least) {
                could += widths[c] - column->least;
                if (widest == SIZE_MAX || widths[c] > widths[widest])
                    widest = c;
            }
            if (column->drop && (last == SIZE_MAX || column->drop > table->columns[last].drop))
                last = c;
        }
        /* Cut only if that is enough: cutting a column that is then dropped is useless. */
        if (widest != SIZE_MAX && (could >= total - room || last == SIZE_MAX))
            widths[widest]--;
        else if (last != SIZE_MAX)
            widths[last] = 0;
        else
            return;
    }
}

static void put_cell(const struct term *term, const struct table_column *column, size_t width,
                     const struct cell *cell, bool is_last) {
    const size_t own = cell->text ? text_width(cell->text) : 0;

    if (column->align == TABLE_RIGHT)
        term_pad(term, width - own);
    if (own)
        term_put(term, cell->style, "%s", cell->text);
    if (column->align == TABLE_LEFT && !is_last)
        term_pad(term, width - own);
}

static void put_row(const struct table *table, const struct term *term, const struct cell *cells,
                    const size_t *widths, size_t indent) {
    size_t last = 0;
    bool first = true;

    for (size_t c = 0; c < table->n_columns; c++)
        if (widths[c] && (cells[c].text && *cells[c].text))
            last = c;
    term_pad(term, indent);
    for (size_t c = 0; c <= last; c++) {
        if (!widths[c])
            continue;
        if (!first)
            term_pad(term, GAP);
        if (cells[c].text)
            text_cut(cells[c].text, widths[c], term->utf8);
        put_cell(term, &table->columns[c], widths[c], &cells[c], c == last);
        first = false;
    }
    fputc('\n', term->out);
}

int table_print(struct table *table, const struct term *term, size_t indent) {
    cleanup(freep) size_t *widths = NULL;
    cleanup(freep) struct cell *head = NULL;

    if (!table || table->failed || clean(table, term->utf8) < 0)
        return -ENOMEM;
    widths = calloc(table->n_columns, sizeof(*widths));
    head = calloc(table->n_columns, sizeof(*head));
    if (!widths || !head)
        return -ENOMEM;
    decide_widths(table, term->width > indent ? term->width - indent : 1, widths);
    for (size_t c = 0; c < table->n_columns; c++) {
        head[c] = (struct cell){ text_clean(table->columns[c].title, term->utf8), STYLE_HEAD };
        table->failed |= !head[c].text;
    }
    if (!table->failed) {
        put_row(table, term, head, widths, indent);
        for (size_t row = 0; row < table->n_rows; row++) {
            const struct cell *note = &row_at(table, row)[table->n_columns];

            put_row(table, term, row_at(table, row), widths, indent);
            if (note->text)
                term_paragraph(term, note->style, indent + 4, note->text);
        }
    }
    for (size_t c = 0; c < table->n_columns; c++)
        free(head[c].text);
    return table->failed ? -ENOMEM : 0;
}
