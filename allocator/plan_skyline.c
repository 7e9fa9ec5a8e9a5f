/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the lowest offset up: the lowest part of the skyline, a valley, gets a buffer that lives
 * within it; of several candidates, the one that is first in the order. If there is none, the
 * valley is filled up to the lower of its two sides, which wastes that space and makes the valley
 * wider.
 *
 *     bytes │ ▓▓        ▓▓▓        ▓▓        ▓▓▓        ▓▓        ▓▓▓
 *           │ ▓▓▓       ▓▓▓        ▓▓▓ ┌──┐  ▓▓▓        ▓▓▓░┌──┐░░▓▓▓
 *           │ ▓▓▓▓▓▓▓▓▓▓▓▓▓   →    ▓▓▓▓└──┘▓▓▓▓▓   →    ▓▓▓▓└──┘▓▓▓▓▓
 *           └────────────────── time
 *
 * Separate valleys do not affect each other, so it need not be the lowest of all: any
 * part lower than both its neighbours gives the same plan.
 *
 * What lives within [from, to) is a corner of the plane of beginnings and ends. A tree halves
 * the lives by their beginnings and by their ends in turn, and knows of each half the corners and
 * the first turn. Subtrees that cannot fit, or that come later than the best candidate, are
 * skipped. Most valleys are narrow: there the few buffers that begin in it are checked one by one.
 */
#include "allocator/plan_skyline.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/halt.h"

/* The most lives in a leaf: all of them are checked at once. */
#define LEAF 32
/* A valley is narrow if at most so many lives begin in it. */
#define NARROW 256

struct plan_skyline_node {
    int32_t least_from, most_from, least_to, most_to;
    int32_t turn; /* the first one not yet laid; PLAN_SKYLINE_LAID: none */
};

/* At the first column of each part. */
struct plan_skyline_part {
    uint64_t height;
    uint32_t end;    /* the column behind it */
    uint32_t before; /* the first column of the part before; UINT32_MAX: none */
};

void plan_skyline_done(struct plan_skyline *skyline) {
    free(skyline->nodes);
    free(skyline->order);
    free(skyline->bounds);
    free(skyline->leaf);
    free(skyline->place);
    free(skyline->to);
    free(skyline->turns);
    free(skyline->leaf_from);
    free(skyline->leaf_to);
    free(skyline->leaf_turns);
    free(skyline->by_turn);
    free(skyline->parts);
    *skyline = (struct plan_skyline){ 0 };
}

/* Working state of build(): the lives of each node stand together, in one list by their beginnings
 * and in another by their ends. */
struct halves {
    uint32_t *lists[2], *other;
    bool *second; /* by life: whether it goes to the second half */
};

/* Halve the list `which`, and the other list in the same way. */
static void halve(struct halves *halves, unsigned which, uint32_t start, uint32_t middle,
                  uint32_t end) {
    uint32_t *list = halves->lists[!which], first = start, second = 0;

    for (uint32_t k = start; k < end; k++)
        halves->second[halves->lists[which][k]] = k >= middle;
    for (uint32_t k = start; k < end; k++) {
        uint32_t i = list[k];
        bool is_second = halves->second[i];

        /* Write both, of which one counts, because the branch is unpredictable. */
        halves->other[second] = i;
        list[first] = i;
        first += !is_second;
        second += is_second;
    }
    memcpy(list + first, halves->other, second * sizeof(*list));
}

static void build(struct plan_skyline *skyline, struct halves *halves, uint32_t at, uint32_t start,
                  uint32_t end, unsigned level) {
    const struct plan_life *life = skyline->lives->life;
    struct plan_skyline_node *node = &skyline->nodes[at];
    uint32_t middle = start + (end - start) / 2;

    *node = (struct plan_skyline_node){ INT32_MAX, 0, INT32_MAX, 0, PLAN_SKYLINE_LAID };
    if (start < end) {
        node->least_from = (int32_t)life[halves->lists[0][start]].from;
        node->most_from = (int32_t)life[halves->lists[0][end - 1]].from;
        node->least_to = (int32_t)life[halves->lists[1][start]].to;
        node->most_to = (int32_t)life[halves->lists[1][end - 1]].to;
    }
    if (at < skyline->n_leaves) {
        halve(halves, level % 2, start, middle, end);
        build(skyline, halves, at * 2, start, middle, level + 1);
        build(skyline, halves, at * 2 + 1, middle, end, level + 1);
        return;
    }
    skyline->bounds[at - skyline->n_leaves] = start;
    for (uint32_t k = start; k < end; k++) {
        uint32_t i = skyline->order[k];

        skyline->leaf[i] = at;
        skyline->place[i] = k;
        skyline->leaf_from[k] = (int32_t)life[i].from;
        skyline->leaf_to[k] = (int32_t)life[i].to;
    }
}

int plan_skyline_init(struct plan_skyline *skyline, const struct plan_lives *lives) {
    cleanup(freep) uint32_t *by_end = NULL, *other = NULL;
    cleanup(freep) bool *second = NULL;
    uint32_t n = lives->n;

    *skyline = (struct plan_skyline){ .lives = lives, .n_leaves = 1 };
    while ((uint64_t)skyline->n_leaves * LEAF < n)
        skyline->n_leaves *= 2;
    skyline->nodes = reallocarray(NULL, (size_t)skyline->n_leaves * 2, sizeof(*skyline->nodes));
    skyline->order = reallocarray(NULL, (size_t)n + 1, sizeof(*skyline->order));
    skyline->bounds = reallocarray(NULL, (size_t)skyline->n_leaves + 1, sizeof(*skyline->bounds));
    skyline->leaf = reallocarray(NULL, (size_t)n + 1, sizeof(*skyline->leaf));
    skyline->place = reallocarray(NULL, (size_t)n + 1, sizeof(*skyline->place));
    skyline->to = reallocarray(NULL, (size_t)n + 1, sizeof(*skyline->to));
    skyline->turns = reallocarray(NULL, (size_t)n + 1, sizeof(*skyline->turns));
    skyline->leaf_from = reallocarray(NULL, (size_t)n + 1, sizeof(*skyline->leaf_from));
    skyline->leaf_to = reallocarray(NULL, (size_t)n + 1, sizeof(*skyline->leaf_to));
    skyline->leaf_turns = reallocarray(NULL, (size_t)n + 1, sizeof(*skyline->leaf_turns));
    skyline->by_turn = reallocarray(NULL, (size_t)n + 1, sizeof(*skyline->by_turn));
    skyline->parts = reallocarray(NULL, (size_t)lives->n_columns + 1, sizeof(*skyline->parts));
    by_end = reallocarray(NULL, (size_t)n + 1, sizeof(*by_end));
    other = reallocarray(NULL, (size_t)n + 1, sizeof(*other));
    second = reallocarray(NULL, (size_t)n + 1, sizeof(*second));
    if (!skyline->nodes || !skyline->order || !skyline->bounds || !skyline->leaf ||
        !skyline->place || !skyline->to || !skyline->turns || !skyline->leaf_from ||
        !skyline->leaf_to || !skyline->leaf_turns || !skyline->by_turn || !skyline->parts ||
        !by_end || !other || !second)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++) {
        skyline->order[i] = i;
        skyline->to[i] = (int32_t)lives->life[i].to;
    }
    memcpy(by_end, lives->by_end, n * sizeof(*by_end));
    skyline->bounds[skyline->n_leaves] = n;
    build(skyline, &(struct halves){ { skyline->order, by_end }, other, second }, 1, 0, n, 0);
    return 0;
}

/* The turn if it fits, otherwise PLAN_SKYLINE_LAID: computed by an or, so that the compiler can
 * vectorise it. Turns are not negative. */
static inline int32_t turn_if(int32_t turn, bool fits) {
    return turn | (-(int32_t)!fits & PLAN_SKYLINE_LAID);
}

static int32_t first_turn(const struct plan_skyline *skyline, uint32_t leaf) {
    const int32_t *turns = skyline->leaf_turns;
    int32_t first = PLAN_SKYLINE_LAID;

    for (size_t k = skyline->bounds[leaf], end = skyline->bounds[leaf + 1]; k < end; k++)
        first = MIN(first, turns[k]);
    return first;
}

/* The first turn among the lives [start, end) that end by `to`. */
static int32_t find_narrow(const struct plan_skyline *skyline, size_t start, size_t end,
                           int32_t to) {
    const int32_t *turns = skyline->turns, *ends = skyline->to;
    int32_t first = PLAN_SKYLINE_LAID;

    for (size_t i = start; i < end; i++) {
        int32_t turn = turn_if(turns[i], ends[i] <= to);

        first = MIN(first, turn);
    }
    return first;
}

static int32_t find_in_leaf(const struct plan_skyline *skyline, uint32_t leaf, int32_t from,
                            int32_t to) {
    const int32_t *turns = skyline->leaf_turns, *starts = skyline->leaf_from;
    const int32_t *ends = skyline->leaf_to;
    int32_t first = PLAN_SKYLINE_LAID;

    for (size_t k = skyline->bounds[leaf], end = skyline->bounds[leaf + 1]; k < end; k++) {
        int32_t turn = turn_if(turns[k], (ends[k] <= to) & (starts[k] >= from));

        first = MIN(first, turn);
    }
    return first;
}

static bool may_have(const struct plan_skyline_node *node, int32_t from, int32_t to,
                     int32_t before) {
    return (node->turn < before) & (node->most_from >= from) & (node->least_to <= to);
}

/* The first turn among the lives within [from, to). */
static int32_t find(struct plan_skyline *skyline, int32_t from, int32_t to) {
    const struct plan_skyline_node *nodes = skyline->nodes;
    uint32_t stack[64], n_stack = 0, start, end;
    int32_t best = PLAN_SKYLINE_LAID;

    start = skyline->lives->starts[from];
    end = skyline->lives->starts[to];
    if (end - start <= NARROW) {
        skyline->steps += 4 + (end - start) / 16;
        return find_narrow(skyline, start, end, to);
    }
    stack[n_stack++] = 1;
    while (n_stack > 0) {
        uint32_t at = stack[--n_stack], first;

        skyline->steps += 2;
        if (!may_have(&nodes[at], from, to, best))
            continue;
        if (nodes[at].least_from >= from && nodes[at].most_to <= to) {
            best = nodes[at].turn;
            continue;
        }
        if (at >= skyline->n_leaves) {
            int32_t turn = find_in_leaf(skyline, at - skyline->n_leaves, from, to);

            skyline->steps += LEAF / 4;
            best = MIN(best, turn);
            continue;
        }
        /* The half with the earlier turn goes on top of the stack. */
        first = at * 2 + (nodes[at * 2].turn > nodes[at * 2 + 1].turn);
        stack[n_stack++] = first ^ 1;
        stack[n_stack++] = first;
    }
    return best;
}

static void take(struct plan_skyline *skyline, uint32_t i) {
    struct plan_skyline_node *nodes = skyline->nodes;
    uint32_t leaf = skyline->leaf[i];
    int32_t turn = skyline->turns[i];

    skyline->turns[i] = skyline->leaf_turns[skyline->place[i]] = PLAN_SKYLINE_LAID;
    if (nodes[leaf].turn != turn)
        return;
    nodes[leaf].turn = first_turn(skyline, leaf - skyline->n_leaves);
    for (uint32_t at = leaf / 2; at >= 1 && nodes[at].turn == turn; at /= 2) {
        nodes[at].turn = MIN(nodes[at * 2].turn, nodes[at * 2 + 1].turn);
        skyline->steps++;
    }
}

static void begin(struct plan_skyline *skyline, const int32_t *turns) {
    for (uint32_t i = 0; i < skyline->lives->n; i++) {
        skyline->turns[i] = skyline->leaf_turns[skyline->place[i]] = turns[i];
        if (turns[i] != PLAN_SKYLINE_LAID)
            skyline->by_turn[turns[i]] = i;
    }
    for (uint32_t l = 0; l < skyline->n_leaves; l++)
        skyline->nodes[skyline->n_leaves + l].turn = first_turn(skyline, l);
    for (uint32_t at = skyline->n_leaves; at-- > 1;)
        skyline->nodes[at].turn = MIN(skyline->nodes[at * 2].turn, skyline->nodes[at * 2 + 1].turn);
    skyline->parts[0] = (struct plan_skyline_part){ 0, skyline->lives->n_columns, UINT32_MAX };
    skyline->steps += (uint64_t)skyline->lives->n * 4;
}

/* Replace everything in [from, to) by one part of this height, merged with neighbours of the same
 * height. The parts before and behind must be whole. Returns where the new part begins. */
static uint32_t set_part(struct plan_skyline *skyline, uint32_t from, uint32_t to, uint32_t before,
                         uint64_t height) {
    struct plan_skyline_part *parts = skyline->parts;
    uint32_t n_columns = skyline->lives->n_columns;

    if (before != UINT32_MAX && parts[before].height == height) {
        from = before;
        before = parts[from].before;
    }
    if (to < n_columns && parts[to].height == height)
        to = parts[to].end;
    parts[from] = (struct plan_skyline_part){ height, to, before };
    if (to < n_columns)
        parts[to].before = from;
    return from;
}

uint64_t plan_skyline_lay(struct plan_skyline *skyline, const int32_t *turns, uint64_t *offsets) {
    struct plan_skyline_part *parts = skyline->parts;
    uint32_t n_columns = skyline->lives->n_columns, at = 0;
    uint64_t bytes = 0;

    begin(skyline, turns);
    while (skyline->nodes[1].turn != PLAN_SKYLINE_LAID) {
        struct plan_skyline_part part = parts[at];
        uint64_t left = part.before == UINT32_MAX ? UINT64_MAX : parts[part.before].height;
        uint64_t right = part.end == n_columns ? UINT64_MAX : parts[part.end].height;
        const struct plan_life *life;
        uint32_t i, before;
        int32_t turn;

        skyline->steps += 8;
        if (skyline->steps > skyline->steps_max || halt_is_set(skyline->halt))
            return UINT64_MAX;
        if (left < part.height) {
            at = part.before;
            continue;
        }
        if (right < part.height) {
            at = part.end;
            continue;
        }
        turn = find(skyline, (int32_t)at, (int32_t)part.end);
        if (turn == PLAN_SKYLINE_LAID) {
            at = set_part(skyline, at, part.end, part.before, MIN(left, right));
            continue;
        }
        i = skyline->by_turn[turn];
        life = &skyline->lives->life[i];
        offsets[i] = part.height;
        bytes = MAX(bytes, part.height + life->bytes);
        take(skyline, i);

        /* First restore what is left of the parts before and behind it, then set the part
         * itself. */
        before = part.before;
        if (at < life->from) {
            parts[at].end = life->from;
            before = at;
        }
        if (life->to < part.end) {
            parts[life->to] = (struct plan_skyline_part){ part.height, part.end, life->from };
            if (part.end < n_columns)
                parts[part.end].before = life->to;
        }
        at = set_part(skyline, life->from, life->to, before, part.height + life->bytes);
    }
    return bytes;
}
