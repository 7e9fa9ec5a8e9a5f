/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Suggest: the distance of two words is the number of letters to change, add, remove or swap with
 * the next one. Upper and lower case are one letter, and so are '-' and '_': "matmul" and
 * "MatMul" are the same word here.
 */
#include "base/suggest.h"

#include <ctype.h>
#include <string.h>

#include "base/cleanup.h"

/* Of each word so many letters count. */
enum { LETTERS_MAX = 100 };
/* A word that is farther away is another one; of short words, less. */
enum { FAR = 4 };

struct suggest suggest_begin(const char *text) {
    unsigned n = (unsigned)strnlen(text, LETTERS_MAX);

    return (struct suggest){ .text = text, .distance = MIN((unsigned)FAR, 1 + (n + 1) / 3) };
}

static int letter(char c) {
    return c == '_' ? '-' : tolower((unsigned char)c);
}

static unsigned distance(const char *a, const char *b) {
    /* What it takes to make the first j letters of b of those of a: without the newest letter of a,
     * without the newest two, and with all. */
    unsigned rows[3][LETTERS_MAX + 1];
    unsigned *older = rows[0], *old = rows[1], *row = rows[2];
    unsigned n_a = (unsigned)strnlen(a, LETTERS_MAX), n_b = (unsigned)strnlen(b, LETTERS_MAX);

    for (unsigned j = 0; j <= n_b; j++)
        row[j] = j;
    for (unsigned i = 1; i <= n_a; i++) {
        unsigned *spare = older;

        older = old;
        old = row;
        row = spare;
        row[0] = i;
        for (unsigned j = 1; j <= n_b; j++) {
            unsigned change = old[j - 1] + (letter(a[i - 1]) != letter(b[j - 1]));
            unsigned other = MIN(old[j], row[j - 1]) + 1;

            row[j] = MIN(change, other);
            if (i > 1 && j > 1 && letter(a[i - 1]) == letter(b[j - 2]) &&
                letter(a[i - 2]) == letter(b[j - 1]))
                row[j] = MIN(row[j], older[j - 2] + 1);
        }
    }
    return row[n_b];
}

void suggest_try(struct suggest *suggest, const char *word) {
    unsigned d = distance(suggest->text, word);

    if (d >= suggest->distance)
        return;
    suggest->distance = d;
    suggest->word = word;
}
