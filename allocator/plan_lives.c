/* SPDX-License-Identifier: Apache-2.0 */
#include "allocator/plan_lives.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#define DIGIT  11
#define DIGITS (1u << DIGIT)

/* Radix sort, the lowest digit first: several times as fast as comparing. */
void plan_lives_sort(struct plan_sorted *entries, struct plan_sorted *other, size_t n) {
    struct plan_sorted *from = entries, *to = other, *swap;
    uint64_t differ = 0;

    for (size_t k = 1; k < n; k++)
        differ |= entries[k].key ^ entries[0].key;
    for (unsigned shift = 0; shift < 64; shift += DIGIT) {
        uint32_t starts[DIGITS] = { 0 }, sum = 0;

        if ((differ >> shift & (DIGITS - 1)) == 0)
            continue;
        for (size_t k = 0; k < n; k++)
            starts[from[k].key >> shift & (DIGITS - 1)]++;
        for (unsigned d = 0; d < DIGITS; d++) {
            uint32_t count = starts[d];

            starts[d] = sum;
            sum += count;
        }
        for (size_t k = 0; k < n; k++)
            to[starts[from[k].key >> shift & (DIGITS - 1)]++] = from[k];
        swap = from, from = to, to = swap;
    }
    if (from != entries)
        memcpy(entries, from, n * sizeof(*entries));
}

void plan_lives_done(struct plan_lives *lives) {
    free(lives->life);
    free(lives->by_end);
    free(lives->starts);
    *lives = (struct plan_lives){ 0 };
}

/* Make the lives and their columns from the sorted moments. At each moment, ends come before
 * beginnings. Entries are the caller's; `place` receives where each of them went. */
static void set_columns(struct plan_lives *lives, const struct plan_buffer *buffers,
                        const struct plan_sorted *starts, const struct plan_sorted *ends,
                        uint32_t *place) {
    uint32_t column = 0;

    for (uint32_t s = 0, e = 0; s < lives->n; s++) {
        uint32_t index = starts[s].entry;
        bool ended = false;

        for (; ends[e].key <= starts[s].key; e++, ended = true)
            lives->life[place[ends[e].entry]].to = column + 1;
        column += ended;
        lives->life[s] =
            (struct plan_life){ .bytes = buffers[index].bytes, .from = column, .index = index };
        place[index] = s;
    }
    lives->n_columns = lives->n ? column + 1 : 0;
    for (uint32_t e = 0; e < lives->n; e++) {
        struct plan_life *life = &lives->life[place[ends[e].entry]];

        lives->by_end[e] = place[ends[e].entry];
        if (!life->to)
            life->to = lives->n_columns;
    }
}

static int set_starts(struct plan_lives *lives) {
    uint32_t i = 0;

    lives->starts = reallocarray(NULL, (size_t)lives->n_columns + 1, sizeof(*lives->starts));
    if (!lives->starts)
        return -ENOMEM;
    for (uint32_t column = 0; column <= lives->n_columns; column++) {
        while (i < lives->n && lives->life[i].from < column)
            i++;
        lives->starts[column] = i;
    }
    /* The lives that begin after it and before its end. */
    for (i = 0; i < lives->n; i++)
        lives->n_pairs += lives->starts[lives->life[i].to] - i - 1;
    return 0;
}

/* Compute how much is live in each column and, by a tree, the maximum during each life. */
static int set_loads(struct plan_lives *lives) {
    size_t size = 1;
    uint64_t live = 0;
    cleanup(freep) uint64_t *most = NULL;

    while (size < (size_t)lives->n_columns + 1)
        size *= 2;
    most = calloc(size * 2, sizeof(*most));
    if (!most)
        return -ENOMEM;
    for (uint32_t i = 0; i < lives->n; i++) {
        most[size + lives->life[i].from] += lives->life[i].bytes;
        most[size + lives->life[i].to] -= lives->life[i].bytes;
    }
    for (uint32_t c = 0; c < lives->n_columns; c++) {
        live += most[size + c];
        most[size + c] = live;
        lives->lower = MAX(lives->lower, live);
    }
    most[size + lives->n_columns] = 0;
    for (size_t node = size; node-- > 1;)
        most[node] = MAX(most[node * 2], most[node * 2 + 1]);
    for (uint32_t i = 0; i < lives->n; i++) {
        struct plan_life *life = &lives->life[i];

        for (size_t from = life->from + size, to = life->to + size; from < to; from /= 2, to /= 2) {
            if (from % 2)
                life->load = MAX(life->load, most[from]), from++;
            if (to % 2)
                to--, life->load = MAX(life->load, most[to]);
        }
    }
    return 0;
}

int plan_lives_init(struct plan_lives *lives, const struct plan_buffer *buffers, size_t n) {
    cleanup(freep) struct plan_sorted *starts = NULL, *ends = NULL, *other = NULL;
    cleanup(freep) uint32_t *place = NULL;
    uint64_t total = 0;
    int r;

    *lives = (struct plan_lives){ 0 };
    if (n > PLAN_LIVES_MAX)
        return -EOVERFLOW;
    starts = reallocarray(NULL, n + 1, sizeof(*starts));
    ends = reallocarray(NULL, n + 1, sizeof(*ends));
    other = reallocarray(NULL, n + 1, sizeof(*other));
    place = reallocarray(NULL, n + 1, sizeof(*place));
    lives->life = reallocarray(NULL, n + 1, sizeof(*lives->life));
    lives->by_end = reallocarray(NULL, n + 1, sizeof(*lives->by_end));
    if (!starts || !ends || !other || !place || !lives->life || !lives->by_end)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        if (buffers[i].start >= buffers[i].end || !buffers[i].bytes)
            continue;
        if (__builtin_add_overflow(total, buffers[i].bytes, &total) || total > INT64_MAX)
            return -EOVERFLOW;
        starts[lives->n] = (struct plan_sorted){ buffers[i].start, (uint32_t)i };
        ends[lives->n++] = (struct plan_sorted){ buffers[i].end, (uint32_t)i };
    }
    plan_lives_sort(starts, other, lives->n);
    plan_lives_sort(ends, other, lives->n);
    set_columns(lives, buffers, starts, ends, place);
    r = set_starts(lives);
    return r < 0 ? r : set_loads(lives);
}
