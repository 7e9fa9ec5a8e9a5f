/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/selftest/row.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/safe_text.h"

static const char *const results[] = { "passed", "failed", "skipped" };

void row_print(enum row_result result, const char *name, const char *remedy, const char *format,
               ...) {
    char text[ROW_TEXT_SIZE], safe[ROW_TEXT_SIZE];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    safe_text_clean(safe, sizeof(safe), text, strlen(text)); /* no tab and no line end either */
    printf("%s\t%s\t%s\t%s\n", results[result], name, safe, remedy ? remedy : "");
    fflush(stdout);
}

bool row_read(struct row *ret, char *line) {
    char *fields[4];

    for (size_t i = 0; i < ELEMENTSOF(fields); i++) {
        fields[i] = line ? strsep(&line, "\t") : NULL;
        if (!fields[i])
            return false;
    }
    for (size_t i = 0; i < ELEMENTSOF(results); i++)
        if (!strcmp(fields[0], results[i])) {
            *ret = (struct row){ (enum row_result)i, fields[1], fields[2], fields[3] };
            return !line;
        }
    return false;
}

static int compare(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

uint64_t row_median(uint64_t *values, size_t n) {
    qsort(values, n, sizeof(*values), compare);
    return values[n / 2];
}

const char *row_time(uint64_t nsec, char text[static ROW_TIME_SIZE]) {
    static const char *const units[] = { "us", "ms", "s" };
    uint64_t tenths = nsec / 100;
    size_t unit = 0;

    if (nsec < 1000) {
        snprintf(text, ROW_TIME_SIZE, "%" PRIu64 " ns", nsec);
        return text;
    }
    for (; tenths >= 10000 && unit + 1 < ELEMENTSOF(units); unit++)
        tenths /= 1000;
    snprintf(text, ROW_TIME_SIZE, "%" PRIu64 ".%" PRIu64 " %s", tenths / 10, tenths % 10,
             units[unit]);
    return text;
}
