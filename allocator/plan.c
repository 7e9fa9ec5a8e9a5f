/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fast plan: several simple rules, and the best of what they give.
 *
 *  - Stacking. In some order, each buffer is laid on whatever is highest during its life. By length
 *    of life, longest first, this fits what training graphs do, where lives are nested: the
 *    first activation lives longest and lies lowest.
 *
 *        bytes │      ┌─┐┌─┐
 *              │    ┌─┴─┴┴─┴─┐
 *              │  ┌─┴────────┴─┐
 *              └──┴────────────┴── time
 *
 *  - Fitting. In some order, each buffer is laid into the lowest gap between those already laid
 * that live at the same time. By size, largest first, this fits chains of short lives. It costs as
 *    many steps as there are pairs that meet, so it is given up when that becomes too many.
 */
#include "allocator/plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

/* Pairs of buffers that fitting may look at in all: some milliseconds. */
#define FIT_STEPS 2000000
/* More than this alive at once on average: stack first. */
#define NESTED 200

/* A buffer as the rules see it: its life in ranks of the times at which anything begins or ends. */
struct item {
    uint64_t bytes, offset;
    uint64_t length;
    uint64_t load; /* the most that is live at once during its life */
    uint32_t from, to;
    uint32_t index;
};

struct plan {
    struct item *items;
    size_t n;
    uint32_t n_ranks;
    uint64_t lower, best;
    uint64_t *heights, *lazy; /* a tree over the ranks: highest, and what is still to be set */
    uint32_t tree_size;
    uint64_t *offsets; /* the best so far, by index */
};

static int compare_u64(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static uint32_t rank_of(const uint64_t *times, size_t n, uint64_t time) {
    size_t low = 0;

    while (n > 1) {
        size_t half = n / 2;

        if (times[low + half] <= time)
            low += half;
        n -= half;
    }
    return (uint32_t)low;
}

static void plan_done(struct plan *plan) {
    free(plan->items);
    free(plan->heights);
    free(plan->lazy);
    free(plan->offsets);
}

static int plan_init(struct plan *plan, const struct plan_buffer *buffers, size_t n) {
    cleanup(freep) uint64_t *times = NULL, *load = NULL;
    uint64_t live = 0, total = 0;
    size_t n_times = 0, unique = 0;

    if (n > UINT32_MAX / 4)
        return -EOVERFLOW;
    *plan = (struct plan){ .best = UINT64_MAX };
    times = reallocarray(NULL, n * 2 + 1, sizeof(*times));
    plan->items = calloc(n + 1, sizeof(*plan->items));
    plan->offsets = calloc(n + 1, sizeof(*plan->offsets));
    if (!times || !plan->items || !plan->offsets)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        if (buffers[i].start >= buffers[i].end || !buffers[i].bytes)
            continue;
        if (__builtin_add_overflow(total, buffers[i].bytes, &total) || total > INT64_MAX)
            return -EOVERFLOW;
        times[n_times++] = buffers[i].start;
        times[n_times++] = buffers[i].end;
    }
    qsort(times, n_times, sizeof(*times), compare_u64);
    for (size_t k = 0; k < n_times; k++)
        if (!unique || times[unique - 1] != times[k])
            times[unique++] = times[k];
    plan->n_ranks = (uint32_t)unique;
    for (size_t i = 0; i < n; i++) {
        struct item *item = &plan->items[plan->n];

        if (buffers[i].start >= buffers[i].end || !buffers[i].bytes)
            continue;
        item->bytes = buffers[i].bytes;
        item->from = rank_of(times, unique, buffers[i].start);
        item->to = rank_of(times, unique, buffers[i].end);
        item->length = item->to - item->from;
        item->index = (uint32_t)i;
        plan->n++;
    }

    load = calloc(unique + 1, sizeof(*load));
    for (plan->tree_size = 1; plan->tree_size < unique + 1; plan->tree_size *= 2)
        ;
    plan->heights = calloc((size_t)plan->tree_size * 2, sizeof(*plan->heights));
    plan->lazy = calloc((size_t)plan->tree_size * 2, sizeof(*plan->lazy));
    if (!load || !plan->heights || !plan->lazy)
        return -ENOMEM;
    for (size_t k = 0; k < plan->n; k++) {
        load[plan->items[k].from] += plan->items[k].bytes;
        load[plan->items[k].to] -= plan->items[k].bytes;
    }
    for (size_t k = 0; k < unique; k++) {
        live += load[k];
        plan->heights[plan->tree_size + k] = live;
        plan->lower = MAX(plan->lower, live);
    }
    for (uint32_t node = plan->tree_size; node-- > 1;)
        plan->heights[node] = MAX(plan->heights[node * 2], plan->heights[node * 2 + 1]);
    for (size_t k = 0; k < plan->n; k++) {
        struct item *item = &plan->items[k];

        for (uint32_t from = item->from + plan->tree_size, to = item->to + plan->tree_size;
             from < to; from /= 2, to /= 2) {
            if (from % 2)
                item->load = MAX(item->load, plan->heights[from]), from++;
            if (to % 2)
                to--, item->load = MAX(item->load, plan->heights[to]);
        }
    }
    return 0;
}

/* Keep what the items say, if it is better than the best. */
static void keep(struct plan *plan, uint64_t bytes) {
    if (bytes >= plan->best)
        return;
    plan->best = bytes;
    for (size_t k = 0; k < plan->n; k++)
        plan->offsets[plan->items[k].index] = plan->items[k].offset;
}

/* The highest of [from, to), which is only ever raised: so a node's set value is its minimum. */
static uint64_t highest(const struct plan *plan, uint32_t node, uint32_t low, uint32_t high,
                        uint32_t from, uint32_t to) {
    uint32_t middle = (low + high) / 2;
    uint64_t left, right;

    if (from >= high || to <= low)
        return 0;
    if (from <= low && to >= high)
        return plan->heights[node];
    left = highest(plan, node * 2, low, middle, from, to);
    right = highest(plan, node * 2 + 1, middle, high, from, to);
    left = MAX(left, right);
    return MAX(left, plan->lazy[node]);
}

static void raise_to(struct plan *plan, uint32_t node, uint32_t low, uint32_t high, uint32_t from,
                     uint32_t to, uint64_t height) {
    uint32_t middle = (low + high) / 2;

    if (from >= high || to <= low)
        return;
    plan->heights[node] = MAX(plan->heights[node], height);
    if (from <= low && to >= high) {
        plan->lazy[node] = MAX(plan->lazy[node], height);
        return;
    }
    raise_to(plan, node * 2, low, middle, from, to, height);
    raise_to(plan, node * 2 + 1, middle, high, from, to, height);
}

static void stack(struct plan *plan) {
    uint64_t bytes = 0;

    memset(plan->heights, 0, (size_t)plan->tree_size * 2 * sizeof(*plan->heights));
    memset(plan->lazy, 0, (size_t)plan->tree_size * 2 * sizeof(*plan->lazy));
    for (size_t k = 0; k < plan->n; k++) {
        struct item *item = &plan->items[k];

        item->offset = highest(plan, 1, 0, plan->tree_size, item->from, item->to);
        raise_to(plan, 1, 0, plan->tree_size, item->from, item->to, item->offset + item->bytes);
        bytes = MAX(bytes, item->offset + item->bytes);
        if (bytes >= plan->best)
            return;
    }
    keep(plan, bytes);
}

/* A block laid by fit(), in the lists of the buckets of time that it lives in. */
#define BUCKETS 512

struct laid {
    uint64_t offset, end;
    uint32_t from, to;
};

struct bucket {
    struct laid *laid; /* by offset */
    uint32_t n, n_max;
};

static int bucket_add(struct bucket *bucket, const struct laid *laid) {
    uint32_t at = bucket->n;

    if (bucket->n == bucket->n_max) {
        uint32_t n_max = MAX(bucket->n_max * 2, 16u);
        struct laid *larger = reallocarray(bucket->laid, n_max, sizeof(*larger));

        if (!larger)
            return -ENOMEM;
        bucket->laid = larger;
        bucket->n_max = n_max;
    }
    while (at > 0 && bucket->laid[at - 1].offset > laid->offset)
        at--;
    memmove(&bucket->laid[at + 1], &bucket->laid[at], (bucket->n - at) * sizeof(*laid));
    bucket->laid[at] = *laid;
    bucket->n++;
    return 0;
}

/* The lowest place from `offset` on that no block of this bucket takes away from the item. */
static uint64_t lowest_gap(const struct bucket *bucket, const struct item *item, uint64_t offset,
                           uint64_t *steps) {
    for (uint32_t k = 0; k < bucket->n; k++) {
        const struct laid *laid = &bucket->laid[k];

        if (laid->offset >= offset + item->bytes)
            break;
        if (laid->end > offset && laid->from < item->to && item->from < laid->to)
            offset = laid->end;
        ++*steps;
    }
    return offset;
}

/* Given up when there are no steps left, or it is no better than the best. */
static int fit(struct plan *plan, uint64_t *steps_left) {
    struct bucket buckets[BUCKETS] = { 0 };
    uint32_t width = plan->n_ranks / BUCKETS + 1;
    uint64_t bytes = 0, steps = 0;
    int r = 0;

    for (size_t k = 0; k < plan->n && r == 0; k++) {
        struct item *item = &plan->items[k];
        uint32_t first = item->from / width, last = (item->to - 1) / width;
        uint64_t offset = 0, before;

        /* Each bucket may push it up; what one lets pass another may not. */
        do {
            before = offset;
            for (uint32_t b = first; b <= last; b++)
                offset = lowest_gap(&buckets[b], item, offset, &steps);
            steps += last - first + 16; /* and what it costs to lay it */
        } while (offset != before && first != last);
        item->offset = offset;
        bytes = MAX(bytes, offset + item->bytes);
        for (uint32_t b = first; b <= last && r == 0; b++)
            r = bucket_add(&buckets[b],
                           &(struct laid){ offset, offset + item->bytes, item->from, item->to });
        if (steps > *steps_left || bytes >= plan->best)
            r = r < 0 ? r : 1;
    }
    for (unsigned b = 0; b < BUCKETS; b++)
        free(buckets[b].laid);
    *steps_left -= MIN(steps, *steps_left);
    if (r == 0)
        keep(plan, bytes);
    return MIN(r, 0);
}

/* Orders. The last word is the index, so that a plan does not depend on qsort(). */
#define ORDER(name, ...)                                                                           \
    static int name(const void *a, const void *b) {                                                \
        const struct item *x = a, *y = b;                                                          \
                                                                                                   \
        __VA_ARGS__                                                                                \
        return x->index < y->index ? -1 : x->index > y->index;                                     \
    }
#define MOST(key)                                                                                  \
    if (x->key != y->key)                                                                          \
        return x->key > y->key ? -1 : 1;
ORDER(by_length, MOST(length) MOST(bytes))
ORDER(by_bytes, MOST(bytes) MOST(length))
ORDER(by_load, MOST(load) MOST(bytes))

/* Good enough is good enough: below 2 % more, other rules are not worth their time. */
static bool is_good(const struct plan *plan) {
    return plan->best != UINT64_MAX && plan->best - plan->lower <= plan->lower / 50;
}

static int plan_fast_init(struct plan *plan, const struct plan_buffer *buffers, size_t n) {
    static int (*const fits[])(const void *a, const void *b) = { by_bytes, by_length, by_load };
    uint64_t steps = FIT_STEPS, lives = 0;
    bool nested;
    int r;

    r = plan_init(plan, buffers, n);
    if (r < 0)
        return r;
    if (!plan->n) {
        plan->best = 0;
        return 0;
    }

    /* Where many live at once, lives are long and nested, and fitting would look at all of them. */
    for (size_t k = 0; k < plan->n; k++)
        lives += plan->items[k].length;
    nested = lives / plan->n_ranks > NESTED;
    if (nested) {
        qsort(plan->items, plan->n, sizeof(*plan->items), by_length);
        stack(plan);
    }
    for (unsigned k = 0; k < ELEMENTSOF(fits) && r == 0 && steps && !is_good(plan); k++) {
        qsort(plan->items, plan->n, sizeof(*plan->items), fits[k]);
        r = fit(plan, &steps);
    }
    if (r == 0 && !nested && plan->best - plan->lower > plan->lower / 10) {
        qsort(plan->items, plan->n, sizeof(*plan->items), by_length);
        stack(plan);
    }
    return r;
}

int plan_fast(struct plan_buffer *buffers, size_t n, uint64_t *ret_bytes) {
    cleanup(plan_done) struct plan plan = { 0 };
    int r;

    r = plan_fast_init(&plan, buffers, n);
    if (r < 0)
        return r;
    for (size_t i = 0; i < n; i++)
        buffers[i].offset = plan.offsets[i];
    *ret_bytes = plan.best;
    return 0;
}

int plan_lower_bound(const struct plan_buffer *buffers, size_t n, uint64_t *ret_bytes) {
    cleanup(plan_done) struct plan plan = { 0 };
    int r;

    r = plan_init(&plan, buffers, n);
    if (r == 0)
        *ret_bytes = plan.lower;
    return r;
}

int plan_check(const struct plan_buffer *buffers, size_t n, uint64_t bytes) {
    for (size_t i = 0; i < n; i++) {
        const struct plan_buffer *a = &buffers[i];

        if (a->start >= a->end || !a->bytes)
            continue;
        if (a->bytes > bytes || a->offset > bytes - a->bytes)
            return -EUCLEAN;
        for (size_t k = 0; k < i; k++) {
            const struct plan_buffer *b = &buffers[k];

            if (b->start < b->end && a->start < b->end && b->start < a->end &&
                a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes)
                return -EUCLEAN;
        }
    }
    return 0;
}
