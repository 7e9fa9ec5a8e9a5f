/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room. Of what is still to be laid in a section, the lowest place plus all of it must fit. That is
 * so as long as one buffer of the section, its witness, comes low enough: only when the witness is
 * laid or has to move up is another one looked for.
 *
 *     limit ───────────────────
 *               │ left: all that is still to be laid here
 *               │
 *     witness → └ low          a gap up to here does no harm
 *           ███████████        laid
 */
#include "bench/plan-pack.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

enum step_kind { STEP_LAY, STEP_RAISE, STEP_WITNESS };

struct plan_pack_step {
    uint32_t kind, what; /* what: buffer or section */
    int32_t before;      /* its low, or witness */
};

void plan_pack_done(struct plan_pack *pack) {
    free(pack->index);
    free(pack->length);
    free(pack->size);
    free(pack->low);
    free(pack->from);
    free(pack->to);
    free(pack->laid);
    free(pack->near_start);
    free(pack->near);
    free(pack->left);
    free(pack->spans);
    free(pack->witness);
    free(pack->live_start);
    free(pack->live);
    free(pack->steps);
    *pack = (struct plan_pack){ 0 };
}

static int compare_times(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static uint32_t rank_of(const uint64_t *times, uint32_t n, uint64_t time) {
    uint32_t low = 0;

    while (n > 1) {
        uint32_t half = n / 2;

        if (times[low + half] <= time)
            low += half;
        n -= half;
    }
    return low;
}

static bool lives(const struct plan_buffer *buffer) {
    return buffer->start < buffer->end && buffer->bytes;
}

/* A unit in which `bytes` in all can be counted, and each of the sizes, without a rest if possible.
 */
static uint64_t choose_unit(const struct plan_buffer *buffers, size_t n, uint64_t bytes) {
    uint64_t unit = 0;

    for (size_t i = 0; i < n; i++)
        for (uint64_t rest = lives(&buffers[i]) ? buffers[i].bytes : 0; rest;) {
            uint64_t next = unit % rest;

            unit = rest;
            rest = next;
        }
    unit = MAX(unit, (uint64_t)1);
    while (bytes / unit > INT32_MAX / 4)
        unit *= 2;
    return unit;
}

/* No branches: whether two meet is beyond prediction. */
static bool meet(const struct plan_pack *pack, uint32_t a, uint32_t b) {
    return (a != b) & (pack->from[a] < pack->to[b]) & (pack->from[b] < pack->to[a]);
}

static int add_near(struct plan_pack *pack) {
    uint32_t n_near = 0;

    for (uint32_t i = 0; i < pack->n; i++)
        for (uint32_t k = 0; k < pack->n; k++)
            n_near += meet(pack, i, k);
    pack->near = reallocarray(NULL, (size_t)n_near + 1, sizeof(*pack->near));
    if (!pack->near)
        return -ENOMEM;
    n_near = 0;
    for (uint32_t i = 0; i < pack->n; i++) {
        pack->near_start[i] = n_near;
        for (uint32_t k = 0; k < pack->n; k++) {
            pack->near[n_near] = (uint16_t)k;
            n_near += meet(pack, i, k);
        }
    }
    pack->near_start[pack->n] = n_near;
    return 0;
}

static int add_live(struct plan_pack *pack) {
    uint32_t n_live = 0;

    for (uint32_t i = 0; i < pack->n; i++)
        n_live += pack->to[i] - pack->from[i];
    pack->live = reallocarray(NULL, (size_t)n_live + 1, sizeof(*pack->live));
    if (!pack->live)
        return -ENOMEM;
    /* First how many, then where each list ends, then the lists, each from its end. */
    for (uint32_t i = 0; i < pack->n; i++)
        for (uint32_t s = pack->from[i]; s < pack->to[i]; s++)
            pack->live_start[s]++;
    for (uint32_t s = 1; s <= pack->n_sections; s++)
        pack->live_start[s] += pack->live_start[s - 1];
    for (uint32_t i = pack->n; i-- > 0;)
        for (uint32_t s = pack->from[i]; s < pack->to[i]; s++)
            pack->live[--pack->live_start[s]] = (uint16_t)i;
    return 0;
}

int plan_pack_init(struct plan_pack *pack, const struct plan_buffer *buffers, size_t n,
                   uint64_t most_bytes) {
    cleanup(freep) uint64_t *times = reallocarray(NULL, n * 2 + 1, sizeof(*times));
    uint32_t n_times = 0, unique = 0;
    int r;

    assert(n <= PACK_MAX);
    *pack = (struct plan_pack){ .unit = choose_unit(buffers, n, most_bytes) };
    if (!times)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        if (lives(&buffers[i])) {
            times[n_times++] = buffers[i].start;
            times[n_times++] = buffers[i].end;
        }
    qsort(times, n_times, sizeof(*times), compare_times);
    for (uint32_t k = 0; k < n_times; k++)
        if (!unique || times[unique - 1] != times[k])
            times[unique++] = times[k];
    pack->n_sections = unique;

    pack->index = calloc(n + 1, sizeof(*pack->index));
    pack->length = calloc(n + 1, sizeof(*pack->length));
    pack->size = calloc(n + 1, sizeof(*pack->size));
    pack->low = calloc(n + 1, sizeof(*pack->low));
    pack->from = calloc(n + 1, sizeof(*pack->from));
    pack->to = calloc(n + 1, sizeof(*pack->to));
    pack->laid = calloc(n + 1, sizeof(*pack->laid));
    pack->near_start = calloc(n + 1, sizeof(*pack->near_start));
    pack->left = calloc(unique + 1, sizeof(*pack->left));
    pack->spans = calloc(unique + 1, sizeof(*pack->spans));
    pack->witness = calloc(unique + 1, sizeof(*pack->witness));
    pack->live_start = calloc(unique + 1, sizeof(*pack->live_start));
    if (!pack->index || !pack->length || !pack->size || !pack->low || !pack->from || !pack->to ||
        !pack->laid || !pack->near_start || !pack->left || !pack->spans || !pack->witness ||
        !pack->live_start)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        if (lives(&buffers[i])) {
            pack->index[pack->n] = i;
            pack->length[pack->n] = buffers[i].end - buffers[i].start;
            pack->size[pack->n] = (int32_t)((buffers[i].bytes + pack->unit - 1) / pack->unit);
            pack->from[pack->n] = rank_of(times, unique, buffers[i].start);
            pack->to[pack->n++] = rank_of(times, unique, buffers[i].end);
        }
    r = add_near(pack);
    if (r == 0)
        r = add_live(pack);
    return r;
}

bool plan_pack_begin(struct plan_pack *pack, uint64_t limit_bytes) {
    pack->limit = (int32_t)MIN(limit_bytes / pack->unit, (uint64_t)INT32_MAX / 4);
    pack->n_steps = 0;
    memset(pack->left, 0, pack->n_sections * sizeof(*pack->left));
    memset(pack->spans, 0, pack->n_sections * sizeof(*pack->spans));
    for (uint32_t i = 0; i < pack->n; i++) {
        pack->low[i] = 0;
        pack->laid[i] = false;
        for (uint32_t s = pack->from[i]; s < pack->to[i]; s++) {
            pack->left[s] += pack->size[i];
            pack->witness[s] = (uint16_t)i;
        }
        for (uint32_t s = pack->from[i]; s + 1 < pack->to[i]; s++)
            pack->spans[s]++;
    }
    for (uint32_t s = 0; s < pack->n_sections; s++)
        if (pack->left[s] > pack->limit)
            return false;
    return true;
}

static void step(struct plan_pack *pack, enum step_kind kind, uint32_t what, int32_t before) {
    pack->steps[pack->n_steps++] = (struct plan_pack_step){ kind, what, before };
}

/* Room for all the steps of laying `i`. */
static bool reserve_steps(struct plan_pack *pack, uint32_t i) {
    size_t n = pack->n_steps + 1 + pack->near_start[i + 1] - pack->near_start[i] + pack->n_sections;
    struct plan_pack_step *larger;

    if (n <= pack->n_steps_max)
        return true;
    larger = reallocarray(pack->steps, n * 2, sizeof(*larger));
    if (!larger)
        return false;
    pack->steps = larger;
    pack->n_steps_max = n * 2;
    return true;
}

/* The witness of a section is none any more: is there another? */
static bool find_witness(struct plan_pack *pack, uint32_t s) {
    int32_t highest = pack->limit - pack->left[s];

    for (uint32_t k = pack->live_start[s]; k < pack->live_start[s + 1]; k++) {
        uint32_t i = pack->live[k];

        if (!pack->laid[i] && pack->low[i] <= highest) {
            step(pack, STEP_WITNESS, s, pack->witness[s]);
            pack->witness[s] = (uint16_t)i;
            return true;
        }
    }
    return false;
}

bool plan_pack_lay(struct plan_pack *pack, uint32_t i, bool *ret_raised, bool *ret_cut) {
    int32_t top = pack->low[i] + pack->size[i];
    size_t first, last;
    bool cut = false;

    if (!reserve_steps(pack, i))
        return false;
    step(pack, STEP_LAY, i, 0);
    pack->laid[i] = true;
    for (uint32_t s = pack->from[i]; s < pack->to[i]; s++)
        pack->left[s] -= pack->size[i];
    for (uint32_t s = pack->from[i]; s + 1 < pack->to[i]; s++)
        cut |= --pack->spans[s] == 0;
    *ret_cut = cut;

    first = pack->n_steps;
    for (uint32_t k = pack->near_start[i]; k < pack->near_start[i + 1]; k++) {
        uint32_t near = pack->near[k];

        if (pack->laid[near] || pack->low[near] >= top)
            continue;
        step(pack, STEP_RAISE, near, pack->low[near]);
        pack->low[near] = top;
        if (top + pack->size[near] > pack->limit)
            return false;
    }
    last = pack->n_steps;
    *ret_raised = last > first;

    for (uint32_t s = pack->from[i]; s < pack->to[i]; s++)
        if (pack->witness[s] == i && pack->left[s] && !find_witness(pack, s))
            return false;
    for (size_t k = first; k < last; k++) {
        uint32_t raised = pack->steps[k].what;

        for (uint32_t s = pack->from[raised]; s < pack->to[raised]; s++)
            if (pack->witness[s] == raised && top > pack->limit - pack->left[s] &&
                !find_witness(pack, s))
                return false;
    }
    return true;
}

void plan_pack_undo(struct plan_pack *pack, size_t n_steps) {
    while (pack->n_steps > n_steps) {
        const struct plan_pack_step *last = &pack->steps[--pack->n_steps];
        uint32_t i = last->what;

        if (last->kind == STEP_RAISE)
            pack->low[i] = last->before;
        else if (last->kind == STEP_WITNESS)
            pack->witness[i] = (uint16_t)last->before;
        else {
            pack->laid[i] = false;
            for (uint32_t s = pack->from[i]; s < pack->to[i]; s++)
                pack->left[s] += pack->size[i];
            for (uint32_t s = pack->from[i]; s + 1 < pack->to[i]; s++)
                pack->spans[s]++;
        }
    }
}

void plan_pack_write(const struct plan_pack *pack, struct plan_buffer *buffers,
                     uint64_t *ret_bytes) {
    *ret_bytes = 0;
    for (uint32_t i = 0; i < pack->n; i++) {
        struct plan_buffer *buffer = &buffers[pack->index[i]];

        buffer->offset = (uint64_t)pack->low[i] * pack->unit;
        *ret_bytes = MAX(*ret_bytes, buffer->offset + buffer->bytes);
    }
}
