/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of a table:
 *
 *     allot-costs 1 VERSION
 *     KIND OP NAME USEC...            a line for each entry, that measured longest ago first
 *     end N CRC
 *
 * KIND and OP are 16 hexadecimal digits, N is the number of entries, and CRC, of 8 hexadecimal
 * digits, is the checksum of all bytes before the last line.
 */
#include "libclient/place/cost_table.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/crc32c.h"
#include "base/number.h"

#define MAGIC "allot-costs 1 "

static uint64_t key_of(uint64_t kind, uint64_t op) {
    uint64_t key = (kind ^ op >> 29) * UINT64_C(0x9e3779b97f4a7c15) + op;

    return key ^ key >> 32;
}

void cost_table_done(struct cost_table *table) {
    struct cost_table_entry *entry;

    for (size_t pos = 0; (entry = map_next(&table->by_key, &pos));)
        free(entry);
    map_done(&table->by_key);
    *table = (struct cost_table){ 0 };
}

/* NULL: there is none, or, once in many lives, one of another op in its place. */
static struct cost_table_entry *find(const struct cost_table *table, uint64_t kind, uint64_t op) {
    struct cost_table_entry *entry = map_find(&table->by_key, key_of(kind, op));

    return entry && entry->kind == kind && entry->op == op ? entry : NULL;
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

bool cost_table_find(const struct cost_table *table, uint64_t kind, uint64_t op, double *ret_usec) {
    const struct cost_table_entry *entry = find(table, kind, op);
    double sorted[COST_TABLE_SAMPLES], sum = 0;
    unsigned aside;

    if (!entry)
        return false;
    memcpy(sorted, entry->samples, sizeof(sorted));
    qsort(sorted, entry->n, sizeof(*sorted), by_size);
    aside = (entry->n + 1) / 4; /* at each end */
    for (unsigned i = aside; i < entry->n - aside; i++)
        sum += sorted[i];
    *ret_usec = sum / (entry->n - 2 * aside);
    return true;
}

/* The entry that was measured longest ago. */
static void make_way(struct cost_table *table) {
    struct cost_table_entry *entry, *oldest = NULL;

    for (size_t pos = 0; (entry = map_next(&table->by_key, &pos));)
        if (!oldest || entry->turn < oldest->turn)
            oldest = entry;
    if (oldest)
        free(map_take(&table->by_key, key_of(oldest->kind, oldest->op)));
}

/* What a file may carry: nothing that ends a word. */
static void set_name(struct cost_table_entry *entry, const char *name) {
    size_t i;

    for (i = 0; i + 1 < COST_TABLE_NAME_SIZE && name[i]; i++)
        entry->name[i] = name[i] > ' ' && name[i] < 0x7f ? name[i] : '_';
    if (i == 0)
        entry->name[i++] = '_';
    entry->name[i] = '\0';
}

static int get(struct cost_table *table, uint64_t kind, uint64_t op, const char *name,
               struct cost_table_entry **ret) {
    struct cost_table_entry *entry = find(table, kind, op);
    int r;

    if (!entry) {
        if (table->by_key.n >= COST_TABLE_MAX)
            make_way(table);
        free(map_take(&table->by_key, key_of(kind, op)));
        entry = calloc(1, sizeof(*entry));
        r = entry ? map_put(&table->by_key, key_of(kind, op), entry) : -ENOMEM;
        if (r < 0) {
            free(entry);
            return r;
        }
        entry->kind = kind;
        entry->op = op;
        set_name(entry, name);
    }
    *ret = entry;
    return 0;
}

static void put_sample(struct cost_table_entry *entry, double usec) {
    if (entry->n == COST_TABLE_SAMPLES)
        memmove(entry->samples, entry->samples + 1, --entry->n * sizeof(*entry->samples));
    entry->samples[entry->n++] = usec;
}

static bool is_time(double usec) {
    return isfinite(usec) && usec >= 0 && usec <= COST_TABLE_USEC_MAX;
}

int cost_table_add(struct cost_table *table, uint64_t kind, uint64_t op, const char *name,
                   double usec) {
    struct cost_table_entry *entry;
    int r = is_time(usec) ? get(table, kind, op, name, &entry) : -ERANGE;

    if (r < 0)
        return r;
    put_sample(entry, usec);
    entry->turn = ++table->n_turns;
    return 0;
}

static int by_turn(const void *a, const void *b) {
    const struct cost_table_entry *const *x = a, *const *y = b;

    return ((*x)->turn > (*y)->turn) - ((*x)->turn < (*y)->turn);
}

/* To be freed; NULL: -ENOMEM. */
static const struct cost_table_entry **sorted(const struct cost_table *table) {
    const struct cost_table_entry **entries = malloc((table->by_key.n + 1) * sizeof(*entries));
    const struct cost_table_entry *entry;
    size_t n = 0;

    for (size_t pos = 0; entries && (entry = map_next(&table->by_key, &pos));)
        entries[n++] = entry;
    if (entries && n > 0)
        qsort(entries, n, sizeof(*entries), by_turn);
    return entries;
}

int cost_table_merge(struct cost_table *table, const struct cost_table *from) {
    cleanup(freep) const struct cost_table_entry **entries = sorted(from);
    int r = entries ? 0 : -ENOMEM;

    for (size_t i = 0; r == 0 && i < from->by_key.n; i++)
        for (unsigned s = 0; r == 0 && s < entries[i]->n; s++)
            r = cost_table_add(table, entries[i]->kind, entries[i]->op, entries[i]->name,
                               entries[i]->samples[s]);
    return r;
}

/* ---- Text ------------------------------------------------------------------------------------ */

int cost_table_print(const struct cost_table *table, const char *version, char **ret,
                     size_t *ret_n) {
    cleanup(freep) const struct cost_table_entry **entries = sorted(table);
    char *text = NULL, number[NUMBER_SIZE];
    size_t n = 0;
    FILE *file = entries ? open_memstream(&text, &n) : NULL;

    if (!file)
        return -ENOMEM;
    fprintf(file, MAGIC "%s\n", version);
    for (size_t i = 0; i < table->by_key.n; i++) {
        fprintf(file, "%016" PRIx64 " %016" PRIx64 " %s", entries[i]->kind, entries[i]->op,
                entries[i]->name);
        for (unsigned s = 0; s < entries[i]->n; s++)
            fprintf(file, " %s", number_shortest(number, entries[i]->samples[s], 17, false));
        fputc('\n', file);
    }
    if (fflush(file) == 0)
        fprintf(file, "end %zu %08" PRIx32 "\n", table->by_key.n, crc32c(0, text, n));
    if (fclose(file) != 0) {
        free(text);
        return -ENOMEM;
    }
    *ret = text;
    *ret_n = n;
    return 0;
}

/* The word up to the next space or end of line, which it ends; NULL: there is none. */
static char *word(char **at) {
    char *begin = *at, *end = begin + strcspn(begin, " \n");

    if (end == begin || *end == '\0')
        return NULL;
    *at = *end == '\n' ? end : end + 1;
    if (*end == ' ')
        *end = '\0';
    return begin;
}

static bool hex(const char *text, unsigned n_digits, uint64_t *ret) {
    uint64_t value = 0;

    for (unsigned i = 0; i < n_digits; i++) {
        char c = text[i];

        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
            return false;
        value = value << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    *ret = value;
    return true;
}

/* One line, with its end. -EBADMSG. */
static int parse_line(struct cost_table *table, char *line) {
    struct cost_table_entry *entry;
    uint64_t kind, op;
    char *name, *end;
    int r;

    if (!hex(line, 16, &kind) || line[16] != ' ' || !hex(line + 17, 16, &op) || line[33] != ' ')
        return -EBADMSG;
    line += 34;
    name = word(&line);
    if (!name || *line == '\n' || strlen(name) >= COST_TABLE_NAME_SIZE || find(table, kind, op) ||
        table->by_key.n >= COST_TABLE_MAX)
        return -EBADMSG;
    r = get(table, kind, op, name, &entry);
    if (r < 0)
        return r;
    for (unsigned i = 0; *line != '\n'; i++) {
        double usec = *line >= '0' && *line <= '9' ? number_read(line, &end) : -1;

        if (i == COST_TABLE_SAMPLES || usec < 0 || (*end != ' ' && *end != '\n') || !is_time(usec))
            return -EBADMSG;
        put_sample(entry, usec);
        line = *end == ' ' ? end + 1 : end;
    }
    if (entry->n == 0)
        return -EBADMSG;
    entry->turn = ++table->n_turns;
    return 0;
}

/* The last line, at `last`, speaks of all before it. */
static bool is_whole(const char *text, const char *last, size_t *ret_n) {
    uint64_t sum;
    char *end;

    if (strncmp(last, "end ", 4) != 0 || last[4] < '0' || last[4] > '9')
        return false;
    *ret_n = strtoul(last + 4, &end, 10);
    return *end == ' ' && hex(end + 1, 8, &sum) && strcmp(end + 9, "\n") == 0 &&
           sum == crc32c(0, text, (size_t)(last - text));
}

static int parse(struct cost_table *table, const char *version, char *text, size_t n,
                 const char **ret_why) {
    char *last = n > 1 ? memrchr(text, '\n', n - 1) : NULL, *line;
    size_t n_entries, length = strlen(version);
    int r = 0;

    if (n < strlen(MAGIC) || strncmp(text, MAGIC, strlen(MAGIC)) != 0) {
        *ret_why = "it is no file of costs";
        return -EBADMSG;
    }
    if (memchr(text, '\0', n) || !last || !is_whole(text, last + 1, &n_entries)) {
        *ret_why = "it is cut off or damaged";
        return -EBADMSG;
    }
    line = text + strlen(MAGIC);
    if (strncmp(line, version, length) != 0 || line[length] != '\n') {
        *ret_why = "they were measured with other kernels of the library";
        return -ESTALE;
    }
    for (line = strchr(line, '\n') + 1; r == 0 && line <= last;) {
        char *next = strchr(line, '\n') + 1;

        r = parse_line(table, line);
        line = next;
    }
    if (r == 0 && table->by_key.n != n_entries)
        r = -EBADMSG;
    if (r == -EBADMSG)
        *ret_why = "a line of it makes no sense";
    return r;
}

int cost_table_parse(struct cost_table *table, const char *version, const char *text, size_t n,
                     const char **ret_why) {
    cleanup(freep) char *copy = NULL;
    int r;

    *ret_why = "it is too large";
    if (n > COST_TABLE_TEXT_MAX)
        return -EBADMSG;
    copy = malloc(n + 1);
    if (!copy)
        return -ENOMEM;
    memcpy(copy, text, n);
    copy[n] = '\0';
    r = parse(table, version, copy, n, ret_why);
    if (r < 0)
        cost_table_done(table);
    return r;
}
