/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An input is a file of measured costs; its last line is made right, so that the checksum keeps
 * nothing away. What is read can be written, and reads as the same again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/crc32c.h"
#include "libclient/place/cost_table.h"
#include "tests/fuzz/fuzz.h"

static void check(const char *text, size_t n) {
    struct cost_table table = { 0 }, again = { 0 };
    const struct cost_table_entry *entry;
    cleanup(freep) char *printed = NULL;
    const char *why;
    size_t bytes;

    if (cost_table_parse(&table, "v1", text, n, &why) < 0) {
        fuzz_check(why && table.by_key.n == 0);
        return;
    }
    fuzz_check(table.by_key.n <= COST_TABLE_MAX);
    fuzz_check(cost_table_print(&table, "v1", &printed, &bytes) == 0);
    fuzz_check(cost_table_parse(&again, "v1", printed, bytes, &why) == 0);
    for (size_t pos = 0; (entry = map_next(&table.by_key, &pos));) {
        double x, y;

        fuzz_check(cost_table_find(&table, entry->kind, entry->op, &x));
        fuzz_check(cost_table_find(&again, entry->kind, entry->op, &y));
        fuzz_check(x == y && x >= 0 && x <= COST_TABLE_USEC_MAX);
    }
    fuzz_check(table.by_key.n == again.by_key.n);
    cost_table_done(&again);
    cost_table_done(&table);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    cleanup(freep) char *text = malloc(size + 64);
    size_t n_lines = 0;
    int more;

    fuzz_check(text);
    check((const char *)data, size);
    memcpy(text, data, size);
    for (size_t i = 0; i < size; i++)
        n_lines += data[i] == '\n';
    more = snprintf(text + size, 64, "end %zu %08x\n", n_lines ? n_lines - 1 : 0,
                    crc32c(0, text, size));
    check(text, size + (size_t)more);
    return 0;
}
