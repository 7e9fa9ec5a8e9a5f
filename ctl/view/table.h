/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Table: rows of cells that line up, within the columns there are.
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
    unsigned least; /* columns that it may be cut down to; 0: it is never cut */
    unsigned drop;  /* 0: always shown; else left out where there is no room, highest first */
};

struct table;

/* `columns` is borrowed and outlives the table. NULL for want of memory. */
struct table *table_new(const struct table_column *columns, size_t n_columns);
void table_free(struct table *table); /* accepts NULL */
DEFINE_FREEP(struct table, table_freep, table_free)

/* A NULL table is accepted by these and does nothing. Cells that a row lacks are empty. */
void table_row(struct table *table);
void table_cell(struct table *table, enum term_style style, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* A line below the row, over its whole width and broken between words. One a row. */
void table_note(struct table *table, enum term_style style, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* With titles, indented by `indent`. -ENOMEM if anything is missing, then nothing is printed. */
int table_print(struct table *table, const struct term *term, size_t indent);
