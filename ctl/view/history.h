/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * History: the last values of things that have a name, for sparklines.
 *
 * Embedded in its owner. A thing that was not mentioned in a round is forgotten with the round, so
 * what ends does not pile up.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HISTORY_LENGTH 120

struct history_line;

struct history {
    struct history_line *first;
};

void history_done(struct history *history);

/* A round: every thing is noted once, then those that were not are forgotten. */
void history_begin(struct history *history);
/* `value` of `most`; what is not known is a gap. Without memory nothing is noted. */
void history_note(struct history *history, const char *name, bool is_known, uint64_t value,
                  uint64_t most);
void history_end(struct history *history);

/*
 * The newest `width` values, oldest first, as one character each; short ones are padded on the
 * left. `text` has room for 3 × width + 1 bytes.
 */
void history_draw(const struct history *history, const char *name, size_t width, bool utf8,
                  char *text);
