/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Cost table: how long ops took where they were measured, by kind of device and by what the op is.
 *
 * Both are numbers that the caller makes (exec/plan/op_key.h). An entry keeps the last
 * COST_TABLE_SAMPLES times; what it says is the mean of those in the middle, so that a step that
 * something disturbed changes nothing. The table is bounded: the entry that was measured longest
 * ago makes way.
 *
 * Its text is what is kept in a file. Nothing of a text is believed before all of it was checked.
 *
 * Pure. One thread at a time.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/map.h"

#define COST_TABLE_SAMPLES   7
#define COST_TABLE_MAX       8192
#define COST_TABLE_NAME_SIZE 32
#define COST_TABLE_USEC_MAX  1e9 /* of one op: a quarter of an hour */
/* The text of a full table is shorter. */
#define COST_TABLE_TEXT_MAX (2u << 20)

struct cost_table_entry {
    uint64_t kind, op;
    char name[COST_TABLE_NAME_SIZE];    /* of the op, for people who read the file */
    double samples[COST_TABLE_SAMPLES]; /* the oldest first */
    unsigned n;
    uint64_t turn; /* the higher, the later it was measured */
};

/* Zeroed memory is an empty table. */
struct cost_table {
    struct map by_key;
    uint64_t n_turns;
};

void cost_table_done(struct cost_table *table);

/* False: it was never measured. */
bool cost_table_find(const struct cost_table *table, uint64_t kind, uint64_t op, double *ret_usec);

/* -ERANGE: that is no time. -ENOMEM. */
int cost_table_add(struct cost_table *table, uint64_t kind, uint64_t op, const char *name,
                   double usec);
/* All that `from` has, as if it was measured now. -ENOMEM. */
int cost_table_merge(struct cost_table *table, const struct cost_table *from);

/* `version`: without spaces; costs of another version are not costs. The text is to be freed.
 * -ENOMEM. */
int cost_table_print(const struct cost_table *table, const char *version, char **ret,
                     size_t *ret_n);
/* Fill an empty table. -EBADMSG: it is no such text, or damaged; -ESTALE: of another version;
 * `*ret_why` says so, and the table stays empty. -ENOMEM. */
int cost_table_parse(struct cost_table *table, const char *version, const char *text, size_t n,
                     const char **ret_why);
