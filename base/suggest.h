/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Suggest: of a set of words, the one that a person probably meant. Pure.
 *
 *     struct suggest suggest = suggest_begin(text);
 *
 *     for (…)
 *         suggest_try(&suggest, word);
 *     if (suggest.word)
 *         … did you mean suggest.word?
 */
struct suggest {
    const char *text;  /* what the person wrote; borrowed */
    const char *word;  /* the nearest so far, the first of equals; NULL: none is near */
    unsigned distance; /* a word must be nearer than that */
};

struct suggest suggest_begin(const char *text);
/* `word` is borrowed for as long as `suggest` is used. */
void suggest_try(struct suggest *suggest, const char *word);
