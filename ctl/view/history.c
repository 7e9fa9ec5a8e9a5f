/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/view/history.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#define GAP UINT8_MAX

/* A ring of levels in 1/100. */
struct history_line {
    struct history_line *next;
    bool is_noted; /* in this round */
    size_t n;      /* values ever noted */
    uint8_t levels[HISTORY_LENGTH];
    char name[];
};

void history_done(struct history *history) {
    while (history->first) {
        struct history_line *next = history->first->next;

        free(history->first);
        history->first = next;
    }
}

static struct history_line *find(const struct history *history, const char *name) {
    struct history_line *line = history->first;

    while (line && strcmp(line->name, name))
        line = line->next;
    return line;
}

void history_begin(struct history *history) {
    for (struct history_line *line = history->first; line; line = line->next)
        line->is_noted = false;
}

void history_note(struct history *history, const char *name, bool is_known, uint64_t value,
                  uint64_t most) {
    struct history_line *line = find(history, name);

    if (!line) {
        line = calloc(1, sizeof(*line) + strlen(name) + 1);
        if (!line)
            return;
        strcpy(line->name, name);
        line->next = history->first;
        history->first = line;
    }
    line->is_noted = true;
    line->levels[line->n++ % HISTORY_LENGTH] =
        !is_known || most == 0 ? GAP : (uint8_t)((double)MIN(value, most) / most * 100);
}

void history_end(struct history *history) {
    for (struct history_line **at = &history->first; *at;) {
        struct history_line *line = *at;

        if (line->is_noted) {
            at = &line->next;
            continue;
        }
        *at = line->next;
        free(line);
    }
}

void history_draw(const struct history *history, const char *name, size_t width, bool utf8,
                  char *text) {
    static const char *const glyphs[2][9] = {
        { " ", "_", ".", "-", "=", "+", "*", "%", "#" },
        { " ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" },
    };
    const struct history_line *line = find(history, name);
    const size_t known = line ? MIN(line->n, (size_t)HISTORY_LENGTH) : 0, n = MIN(known, width);

    for (size_t i = n; i < width; i++)
        text = stpcpy(text, " ");
    for (size_t i = n; i > 0; i--) {
        const uint8_t level = line->levels[(line->n - i) % HISTORY_LENGTH];

        /* Zero gets the lowest mark; a gap is blank. */
        text = stpcpy(text, glyphs[utf8][level == GAP ? 0 : 1 + MIN(level * 8 / 100, 7)]);
    }
    *text = '\0';
}
