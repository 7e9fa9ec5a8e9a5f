/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/config/subuid.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#define LINE_MAX_BYTES 256

/* A decimal number and nothing else. */
static bool read_number(uint64_t *ret, const char *text) {
    char *after;

    if (!isdigit((unsigned char)*text))
        return false;
    errno = 0;
    *ret = strtoull(text, &after, 10);
    return errno == 0 && !*after;
}

/* -EINVAL: the line is none that counts. */
static int read_range(struct subuid_range *ret, char *line, subuid_user_fn find_user) {
    char *first = strchr(line, ':'), *count;
    uint64_t from, n;
    int r;

    if (!first)
        return -EINVAL;
    *first++ = '\0';
    count = strchr(first, ':');
    if (!count)
        return -EINVAL;
    *count++ = '\0';
    if (!read_number(&from, first) || !read_number(&n, count))
        return -EINVAL;
    /* (uid_t)-1 is no uid. */
    if (from == 0 || n == 0 || from >= UINT32_MAX || n > UINT32_MAX - from)
        return -EINVAL;
    ret->first = (uid_t)from;
    ret->last = (uid_t)(from + n - 1);
    r = find_user(&ret->owner, line);
    return r < 0 && r != -ENOENT ? r : r < 0 || ret->owner == 0 ? -EINVAL : 0;
}

int subuid_parse(struct subuid_table *ret, const char *text, size_t size,
                 subuid_user_fn find_user) {
    struct subuid_table table = { 0 };
    const char *end = text + size;
    size_t capacity = 0;

    while (text < end && table.n_ranges < SUBUID_RANGES_MAX) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        size_t n = (size_t)((newline ? newline : end) - text);
        char line[LINE_MAX_BYTES];
        struct subuid_range range;
        int r = -EINVAL;

        if (n < sizeof(line)) {
            memcpy(line, text, n);
            line[n] = '\0';
            r = read_range(&range, line, find_user);
        }
        text += n + (newline ? 1 : 0);
        if (r == -EINVAL)
            continue;
        if (r < 0) {
            subuid_done(&table);
            return r;
        }
        if (table.n_ranges == capacity) {
            struct subuid_range *more;

            capacity = 2 * capacity + 16;
            more = reallocarray(table.ranges, capacity, sizeof(*more));
            if (!more) {
                subuid_done(&table);
                return -ENOMEM;
            }
            table.ranges = more;
        }
        table.ranges[table.n_ranges++] = range;
    }
    *ret = table;
    return 0;
}

void subuid_done(struct subuid_table *table) {
    free(table->ranges);
    *table = (struct subuid_table){ 0 };
}

bool subuid_find(const struct subuid_table *table, uid_t uid, uid_t *ret_owner) {
    for (size_t i = 0; i < table->n_ranges; i++)
        if (uid >= table->ranges[i].first && uid <= table->ranges[i].last) {
            *ret_owner = table->ranges[i].owner;
            return true;
        }
    return false;
}
