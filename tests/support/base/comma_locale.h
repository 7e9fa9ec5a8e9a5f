/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Comma locale: a locale that writes 1,5. The test makes it itself, because the machine may have
 * none. */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/suite.h"

/* Writes LC_NUMERIC in the C library's own format. False: the library does not take such a file; a
 * skip was printed. */
static inline bool comma_locale_set(void) {
    static const struct {
        uint32_t magic, n, at[6];
        char point[4], separator[4], grouping[4];
        uint32_t wide_point, wide_separator;
        char codeset[8];
    } numeric = {
        0x20031115 ^ LC_NUMERIC, 6, { 32, 36, 40, 44, 48, 52 }, ",", "", "", ',', 0, "UTF-8"
    };
    char dir[] = "/tmp/allot-locale.XXXXXX", own[64], path[96], text[8];
    bool is_set;
    FILE *file;

    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(own, sizeof(own), "%s/comma", dir);
    snprintf(path, sizeof(path), "%s/LC_NUMERIC", own);
    ck_assert_int_eq(mkdir(own, 0755), 0);
    file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(&numeric, sizeof(numeric), 1, file), 1);
    ck_assert_int_eq(fclose(file), 0);
    setenv("LOCPATH", dir, 1);
    is_set = setlocale(LC_NUMERIC, "comma") != NULL;
    unlink(path);
    rmdir(own);
    rmdir(dir);
    snprintf(text, sizeof(text), "%.1f", 1.5);
    is_set = is_set && strcmp(text, "1,5") == 0;
    if (!is_set)
        puts("skipped: no locale with a comma can be made");
    return is_set;
}
