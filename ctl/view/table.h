/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Table: aligned rows of cells, fitted into the width of the terminal.
 *
 * Each column is as wide as its widest cell. If the table is too wide, columns that allow it are
 * cut (the widest first), then optional columns are left out, the least important first. Cells are
 * cleaned (ctl/view/text.h), so untrusted text is safe.
 *
 *     table_row(table);
 *     table_cell(table, STYLE_PLAIN, "%u", lease->id);
 *     table_cell(table, STYLE_WARN, "idle");
 *     table_note(table, STYLE_DIM, "waits for 8 GiB of GPU 0");
 *
 * Owned by the caller of table_new(). table_print() reports if memory ran out.
 */
#include <stddef.h>

#include "base/cleanup.h"
#include "ctl/view/term.h"

enum table_align { TABLE_LEFT, TABLE_RIGHT };

struct table_column {
    const char *title;
    enum table_align align;
    unsigned least; /* minimum width when cut; 0: never cut */
    unsigned drop;  /* 0: always shown; otherwise left out if there is no room, the highest first */
};

struct table;

/* `columns` is borrowed and outlives the table. NULL: out of memory. */
struct table *table_new(const struct table_column *columns, size_t n_columns);
void table_free(struct table *table); /* accepts NULL */
DEFINE_FREEP(struct table, table_freep, table_free)

/* These accept a NULL table and do nothing with it. Missing cells of a row are empty. */
void table_row(struct table *table);
void table_cell(struct table *table, enum term_style style, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* A line below the row, over the whole width, wrapped between words. At most one per row. */
void table_note(struct table *table, enum term_style style, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Print with titles, indented by `indent`. -ENOMEM: something is missing, and nothing is
 * printed. */
int table_print(struct table *table, const struct term *term, size_t indent);
