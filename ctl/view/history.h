/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * History: the last values of named things, for sparklines.
 *
 * Embedded in its owner. At the end of a round, a thing without a new value is forgotten, so that
 * ended things do not pile up.
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

/* A round: note every thing once; at the end, all others are forgotten. */
void history_begin(struct history *history);
/* Note `value` out of `most`; an unknown value is a gap. Without memory nothing is noted. */
void history_note(struct history *history, const char *name, bool is_known, uint64_t value,
                  uint64_t most);
void history_end(struct history *history);

/*
 * The newest `width` values, oldest first, as one character each; short ones are padded on the
 * left. `text` has room for 3 × width + 1 bytes.
 */
void history_draw(const struct history *history, const char *name, size_t width, bool utf8,
                  char *text);
