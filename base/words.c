/* SPDX-License-Identifier: Apache-2.0 */
#include "base/words.h"

#include <string.h>

const char *const lease_mode_words[] = { WORDS_OF(LEASE_MODES) };
const char *const choice_words[] = { WORDS_OF(CHOICES) };
const char *const notice_kind_words[] = { WORDS_OF(NOTICE_KINDS) };

const char *words_name(const char *const *words, int value) {
    for (int i = 1; words[i - 1]; i++)
        if (i == value)
            return words[i - 1];
    return "?";
}

int words_find(const char *const *words, const char *text) {
    for (int i = 0; words[i]; i++)
        if (strcmp(words[i], text) == 0)
            return i + 1;
    return 0;
}
