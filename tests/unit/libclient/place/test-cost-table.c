/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/random.h"
#include "libclient/place/cost_table.h"
#include "tests/support/suite.h"

enum { KIND = 7 };

static void add(struct cost_table *table, uint64_t op, double usec) {
    ck_assert_int_eq(cost_table_add(table, KIND, op, "MatMul", usec), 0);
}

static double find(const struct cost_table *table, uint64_t op) {
    double usec = NAN;

    ck_assert(cost_table_find(table, KIND, op, &usec));
    return usec;
}

START_TEST(what_was_not_measured_is_not_found) {
    struct cost_table table = { 0 };
    double usec = 3;

    ck_assert(!cost_table_find(&table, KIND, 1, &usec));
    add(&table, 1, 10);
    ck_assert(!cost_table_find(&table, KIND, 2, &usec));
    ck_assert(!cost_table_find(&table, KIND + 1, 1, &usec));
    ck_assert_double_eq(usec, 3);
    ck_assert_double_eq(find(&table, 1), 10);
    cost_table_done(&table);
}
END_TEST

/* Steps that something disturbed, and those that something was left out of. */
START_TEST(outliers_count_for_nothing) {
    struct cost_table table = { 0 };
    double usual[] = { 10, 11, 9, 10 };

    for (size_t i = 0; i < ELEMENTSOF(usual); i++)
        add(&table, 1, usual[i]);
    add(&table, 1, 5000);
    ck_assert_double_ge(find(&table, 1), 9);
    ck_assert_double_le(find(&table, 1), 11);
    add(&table, 1, 0);
    ck_assert_double_ge(find(&table, 1), 9);
    ck_assert_double_le(find(&table, 1), 11);
    cost_table_done(&table);
}
END_TEST

START_TEST(one_and_two_samples_are_their_mean) {
    struct cost_table table = { 0 };

    add(&table, 1, 4);
    ck_assert_double_eq(find(&table, 1), 4);
    add(&table, 1, 8);
    ck_assert_double_eq(find(&table, 1), 6);
    add(&table, 1, 1000);
    ck_assert_double_eq(find(&table, 1), 8); /* of three, the one in the middle */
    cost_table_done(&table);
}
END_TEST

/* A device that was made faster is known as such after a few steps. */
START_TEST(old_samples_are_forgotten) {
    struct cost_table table = { 0 };

    for (int i = 0; i < 20; i++)
        add(&table, 1, 100);
    for (int i = 0; i < COST_TABLE_SAMPLES; i++)
        add(&table, 1, 50);
    ck_assert_double_eq(find(&table, 1), 50);
    cost_table_done(&table);
}
END_TEST

START_TEST(what_is_no_time_is_refused) {
    struct cost_table table = { 0 };

    ck_assert_int_eq(cost_table_add(&table, KIND, 1, "x", NAN), -ERANGE);
    ck_assert_int_eq(cost_table_add(&table, KIND, 1, "x", INFINITY), -ERANGE);
    ck_assert_int_eq(cost_table_add(&table, KIND, 1, "x", -1), -ERANGE);
    ck_assert_int_eq(cost_table_add(&table, KIND, 1, "x", COST_TABLE_USEC_MAX * 2), -ERANGE);
    ck_assert_uint_eq(table.by_key.n, 0);
    cost_table_done(&table);
}
END_TEST

START_TEST(the_longest_unmeasured_entry_makes_way) {
    struct cost_table table = { 0 };
    double usec;

    for (uint64_t op = 1; op <= COST_TABLE_MAX; op++)
        add(&table, op, (double)op);
    add(&table, 1, 1); /* used again */
    add(&table, COST_TABLE_MAX + 1, 5);
    ck_assert_uint_eq(table.by_key.n, COST_TABLE_MAX);
    ck_assert(cost_table_find(&table, KIND, 1, &usec));
    ck_assert(!cost_table_find(&table, KIND, 2, &usec));
    ck_assert(cost_table_find(&table, KIND, COST_TABLE_MAX + 1, &usec));
    cost_table_done(&table);
}
END_TEST

static void fill(struct cost_table *table, uint64_t seed, unsigned n) {
    for (unsigned i = 0; i < n; i++)
        ck_assert_int_eq(cost_table_add(table, random_next(&seed) % 3, random_next(&seed) % 40,
                                        "Op with\nspace",
                                        (double)(random_next(&seed) % 1000000) / 7),
                         0);
}

/* By all that can be found. */
static void expect_equal(const struct cost_table *a, const struct cost_table *b) {
    const struct cost_table_entry *entry;

    ck_assert_uint_eq(a->by_key.n, b->by_key.n);
    for (size_t pos = 0; (entry = map_next(&a->by_key, &pos));) {
        double x, y;

        ck_assert(cost_table_find(a, entry->kind, entry->op, &x));
        ck_assert(cost_table_find(b, entry->kind, entry->op, &y));
        ck_assert_double_eq(x, y);
    }
}

START_TEST(a_text_reads_back_as_the_same_table) {
    struct cost_table table = { 0 }, again = { 0 };
    const char *why;
    char *text;
    size_t n;

    fill(&table, 3, 300);
    ck_assert_int_eq(cost_table_print(&table, "v1", &text, &n), 0);
    ck_assert_int_eq(cost_table_parse(&again, "v1", text, n, &why), 0);
    expect_equal(&table, &again);
    cost_table_done(&again);

    ck_assert_int_eq(cost_table_parse(&again, "v", text, n, &why), -ESTALE);
    ck_assert_int_eq(cost_table_parse(&again, "v12", text, n, &why), -ESTALE);
    ck_assert_ptr_nonnull(strstr(why, "other kernels"));
    ck_assert_uint_eq(again.by_key.n, 0);
    free(text);
    cost_table_done(&table);
}
END_TEST

START_TEST(a_full_table_fits_the_largest_text) {
    struct cost_table table = { 0 }, again = { 0 };
    const char *why;
    char *text;
    size_t n;

    for (uint64_t op = 1; op <= COST_TABLE_MAX; op++)
        for (int i = 0; i < COST_TABLE_SAMPLES; i++)
            ck_assert_int_eq(cost_table_add(&table, UINT64_MAX, op << 40,
                                            "AnOpWithAVeryLongNameThatIsCutOffAtItsEnd",
                                            123456789.0 / 7 + i * 1e-7),
                             0);
    ck_assert_int_eq(cost_table_print(&table, "v1", &text, &n), 0);
    ck_assert_uint_le(n, COST_TABLE_TEXT_MAX);
    ck_assert_int_eq(cost_table_parse(&again, "v1", text, n, &why), 0);
    expect_equal(&table, &again);
    free(text);
    cost_table_done(&again);
    cost_table_done(&table);
}
END_TEST

/* Every beginning of a text, and every text with one byte changed, is refused. */
START_TEST(no_part_of_a_text_and_no_damage_passes) {
    struct cost_table table = { 0 }, again = { 0 };
    const char *why;
    char *text;
    size_t n;

    fill(&table, 5, 12);
    ck_assert_int_eq(cost_table_print(&table, "v1", &text, &n), 0);
    for (size_t i = 0; i < n; i++) {
        char was = text[i];

        ck_assert_int_eq(cost_table_parse(&again, "v1", text, i, &why), -EBADMSG);
        for (int bit = 0; bit < 8; bit++) {
            text[i] = (char)(was ^ 1 << bit);
            ck_assert_msg(cost_table_parse(&again, "v1", text, n, &why) < 0, "byte %zu, bit %d", i,
                          bit);
        }
        text[i] = was;
        ck_assert_uint_eq(again.by_key.n, 0);
    }
    free(text);
    cost_table_done(&table);
}
END_TEST

/* Lines that the checksum is right for, and that make no sense. */
START_TEST(nonsense_with_a_right_checksum_is_refused) {
    static const char *const lines[] = {
        "0000000000000001 0000000000000002 MatMul\n",
        "0000000000000001 0000000000000002 MatMul \n",
        "0000000000000001 0000000000000002  5\n",
        "0000000000000001 0000000000000002 MatMul nan\n",
        "0000000000000001 0000000000000002 MatMul -1\n",
        "0000000000000001 0000000000000002 MatMul 1e300\n",
        "0000000000000001 0000000000000002 MatMul 1 2 3 4 5 6 7 8\n",
        "000000000000000g 0000000000000002 MatMul 1\n",
        "0000000000000001 0000000000000002 MatMulMatMulMatMulMatMulMatMulMatMul 1\n",
        "1 2 MatMul 1\n",
        "\n",
    };

    for (size_t i = 0; i < ELEMENTSOF(lines); i++) {
        struct cost_table table = { 0 };
        const char *why;
        char text[512];
        int n = snprintf(text, sizeof(text), "allot-costs 1 v1\n%s", lines[i]);

        n += snprintf(text + n, sizeof(text) - (size_t)n, "end 1 %08" PRIx32 "\n",
                      crc32c(0, text, (size_t)n));
        ck_assert_msg(cost_table_parse(&table, "v1", text, (size_t)n, &why) == -EBADMSG, "line %zu",
                      i);
        ck_assert_uint_eq(table.by_key.n, 0);
    }
}
END_TEST

START_TEST(merging_is_as_measuring_one_after_the_other) {
    struct cost_table both = { 0 }, first = { 0 }, second = { 0 };

    add(&first, 1, 10);
    add(&first, 2, 20);
    add(&second, 2, 40);
    add(&second, 3, 60);
    ck_assert_int_eq(cost_table_merge(&both, &first), 0);
    ck_assert_int_eq(cost_table_merge(&both, &second), 0);
    ck_assert_double_eq(find(&both, 1), 10);
    ck_assert_double_eq(find(&both, 2), 30);
    ck_assert_double_eq(find(&both, 3), 60);
    cost_table_done(&both);
    cost_table_done(&first);
    cost_table_done(&second);
}
END_TEST

SUITE("cost-table", what_was_not_measured_is_not_found, outliers_count_for_nothing,
      one_and_two_samples_are_their_mean, old_samples_are_forgotten, what_is_no_time_is_refused,
      the_longest_unmeasured_entry_makes_way, a_text_reads_back_as_the_same_table,
      a_full_table_fits_the_largest_text, no_part_of_a_text_and_no_damage_passes,
      nonsense_with_a_right_checksum_is_refused, merging_is_as_measuring_one_after_the_other)
