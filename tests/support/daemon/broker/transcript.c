/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/daemon/broker/transcript.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "tests/support/daemon/broker/broker_fixture.h"

struct transcript {
    FILE *words, *chapters, *copy; /* copy: NULL unless wanted */
    char *words_text, *chapters_text;
    size_t n_words, n_chapters;
};

struct transcript *transcript_new(void) {
    struct transcript *transcript = calloc(1, sizeof(*transcript));
    const char *copy = getenv("ALLOT_TRANSCRIPT");

    ck_assert_ptr_nonnull(transcript);
    transcript->words = open_memstream(&transcript->words_text, &transcript->n_words);
    transcript->chapters = open_memstream(&transcript->chapters_text, &transcript->n_chapters);
    ck_assert(transcript->words && transcript->chapters);
    if (copy && *copy) {
        transcript->copy = fopen(copy, "w");
        ck_assert_ptr_nonnull(transcript->copy);
    }
    return transcript;
}

void transcript_follow(struct transcript *transcript, struct broker_fixture *fixture) {
    fixture->transcript = transcript->words;
}

void transcript_end_chapter(struct transcript *transcript, uint64_t seed, unsigned step) {
    ck_assert_int_eq(fflush(transcript->words), 0);
    fprintf(transcript->chapters, "%#llx %4u %08x\n", (unsigned long long)seed, step,
            crc32c(0, transcript->words_text, transcript->n_words));
    if (transcript->copy)
        fwrite(transcript->words_text, 1, transcript->n_words, transcript->copy);
    rewind(transcript->words);
}

/* The line at `text`, for a message. */
static int line_length(const char *text) {
    return (int)strcspn(text, "\n");
}

void transcript_compare(struct transcript *transcript, const char *path) {
    char golden[65536] = "";
    const char *now, *then = golden;
    FILE *file;

    ck_assert(!fclose(transcript->words) && !fclose(transcript->chapters));
    if (transcript->copy)
        ck_assert_int_eq(fclose(transcript->copy), 0);
    file = fopen(path, getenv("ALLOT_GOLDEN_WRITE") ? "w" : "r");
    ck_assert_msg(file != NULL, "%s: %m", path);
    if (getenv("ALLOT_GOLDEN_WRITE"))
        fputs(transcript->chapters_text, file);
    else
        golden[fread(golden, 1, sizeof(golden) - 1, file)] = '\0';
    ck_assert_int_eq(fclose(file), 0);
    for (now = transcript->chapters_text; *now && !getenv("ALLOT_GOLDEN_WRITE");) {
        int n = line_length(now), m = line_length(then);

        ck_assert_msg(n == m && strncmp(now, then, (size_t)n) == 0,
                      "the broker told something else: seed, step and checksum are %.*s, not %.*s; "
                      "tests/support/daemon/broker/transcript.h says how to see what",
                      n, now, m, then);
        now += n + (now[n] == '\n');
        then += m + (then[m] == '\n');
    }
    free(transcript->words_text);
    free(transcript->chapters_text);
    free(transcript);
}
