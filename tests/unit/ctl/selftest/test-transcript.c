/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "ctl/selftest/row.h"
#include "ctl/selftest/transcript.h"
#include "tests/support/suite.h"
#include "tests/support/tmpdir.h"

START_TEST(what_names_people_hosts_and_cards_is_not_written) {
    const char *const hidden[] = { "alice", "gpubox.example", "train model.py", "/home/alice" };
    static const struct {
        const char *text, *written;
    } cases[] = {
        { "GPU 0 is fine", "GPU 0 is fine" },
        { "leased to 17 (alice)", "leased to 17 ((hidden))" },
        { "malice and alice2", "malice and alice2" }, /* other words */
        { "at /home/alice/x", "at (hidden)/x" },
        { "on gpubox.example: train model.py", "on (hidden): (hidden)" },
        { "as root", "as root" },
        { "GPU-9942190a", "GPU#" },
        { "of GPU-9942190a-aa31-4ff1-4aa9-c388d80f85f1, alice", "of GPU#" },
        { "MIG-5b1c9a70-1111-5222-8333-444455556666", "MIG#" },
        { "GPU-1", "GPU-1" },
    };
    char path[4096], line[256];
    struct transcript transcript;
    struct allot_error err = {};
    FILE *in;

    snprintf(path, sizeof(path), "%s/transcript", tmpdir());
    setenv("USER", "alice", true);
    ck_assert_int_eq(transcript_open(&transcript, path, &err), 0);
    for (size_t i = 0; i < ELEMENTSOF(hidden); i++)
        ck_assert_int_eq(transcript_hide(&transcript, hidden[i]), 0);
    ck_assert_int_eq(transcript_hide(&transcript, NULL), 0);
    for (size_t i = 0; i < ELEMENTSOF(cases); i++)
        transcript_write(&transcript, "%s\n", cases[i].text);
    ck_assert_int_eq(transcript_close(&transcript), 0);

    in = fopen(path, "r");
    ck_assert_ptr_nonnull(in);
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        ck_assert_ptr_nonnull(fgets(line, sizeof(line), in));
        line[strcspn(line, "\n")] = '\0';
        if (strchr(cases[i].written, '#')) { /* then a digest */
            ck_assert_int_eq(strncmp(line, cases[i].written, strlen(cases[i].written)), 0);
            ck_assert_ptr_null(strstr(line, "9942190a"));
            ck_assert_ptr_null(strstr(line, "5b1c9a70"));
            ck_assert_ptr_null(strstr(line, "alice"));
        } else
            ck_assert_str_eq(line, cases[i].written);
    }
    fclose(in);
    ck_assert_int_lt(transcript_open(&transcript, "/nonexistent/x", &err), 0);
    transcript_close(&transcript);
    ck_assert_ptr_nonnull(strstr(err.text, "/nonexistent/x"));
}
END_TEST

START_TEST(no_transcript_is_no_error) {
    struct transcript transcript;

    ck_assert_int_eq(transcript_open(&transcript, NULL, NULL), 0);
    transcript_write(&transcript, "%s\n", "lost");
    ck_assert_int_eq(transcript_close(&transcript), 0);
}
END_TEST

START_TEST(rows_are_lines_of_four_fields) {
    static const char *const wrong[] = { "",
                                         "passed",
                                         "passed\ta\tb",
                                         "passed\ta\tb\tc\td",
                                         "perhaps\ta\tb\tc",
                                         "allot: out of memory" };
    char line[] = "failed\tguard: context\tno memory\tfree some", bad[64];
    struct row row;

    ck_assert(row_read(&row, line));
    ck_assert_int_eq(row.result, ROW_FAILED);
    ck_assert_str_eq(row.name, "guard: context");
    ck_assert_str_eq(row.text, "no memory");
    ck_assert_str_eq(row.remedy, "free some");
    for (size_t i = 0; i < ELEMENTSOF(wrong); i++) {
        strcpy(bad, wrong[i]);
        ck_assert_msg(!row_read(&row, bad), "%s", wrong[i]);
    }
}
END_TEST

START_TEST(times_are_short_and_the_median_is_the_middle) {
    static const struct {
        uint64_t nsec;
        const char *text;
    } cases[] = {
        { 0, "0 ns" },           { 999, "999 ns" },         { 1000, "1.0 us" },
        { 999999, "999.9 us" },  { 1000000, "1.0 ms" },     { 12345678, "12.3 ms" },
        { 1500000000, "1.5 s" }, { 90000000000, "90.0 s" },
    };
    uint64_t values[] = { 9, 1, 5, 3, 7 };
    char text[ROW_TIME_SIZE];

    for (size_t i = 0; i < ELEMENTSOF(cases); i++)
        ck_assert_str_eq(row_time(cases[i].nsec, text), cases[i].text);
    ck_assert_uint_eq(row_median(values, ELEMENTSOF(values)), 5);
    ck_assert_uint_eq(values[4], 9);
}
END_TEST

SUITE("transcript", what_names_people_hosts_and_cards_is_not_written, no_transcript_is_no_error,
      rows_are_lines_of_four_fields, times_are_short_and_the_median_is_the_middle)
