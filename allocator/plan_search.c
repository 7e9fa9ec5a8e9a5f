/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search for a plan that fits a given number of bytes.
 *
 * Any plan can be pressed down until each buffer lies on another or at 0, and its buffers can be
 * named from the lowest offset to the highest. So it is enough to lay buffers in that order, each
 * as low as those already laid allow, and to go back when that leads nowhere. What makes it fast:
 *
 *  - Room. Between two times at which anything begins or ends lies a section. Buffers still to be
 *    laid come no lower than the last one laid; so in each section the lowest place left plus
 *    all that is still to be laid there must fit. In a section that is full to the last byte, the
 *    first gap is already one too many.
 *  - Order. A buffer is not laid above a gap in which another one, living at the same time, would
 *    fit whole: that plan is found by laying the other one first.
 *  - Parts. Once the buffers still to be laid fall into groups that share no time, each group is a
 *    search of its own, and one without an answer ends all.
 *  - Turns. Which of several buffers at the same height goes first is decided by one of several
 *    rules; each gets a turn with a limit, the limits grow, and later turns shuffle.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "allocator/plan.h"
#include "base/cleanup.h"
#include "base/random.h"

/* More buffers than this are left to the fast plan: a branch is as deep as there are buffers. */
#define SEARCH_MAX 4096

/* Sizes are counted in a unit that divides them all, so that 31 bits are enough. */
struct entry {
    int32_t size;
    int32_t low; /* the lowest place that those already laid allow; its place once it is laid */
    int32_t from, to;       /* sections */
    uint32_t turn;          /* its place by the rule of the round */
    uint32_t changed;       /* the node that last raised `low` */
    uint32_t n_near, *near; /* those that live at the same time */
    bool laid;
    uint64_t length; /* of its life, in the caller's time */
    size_t index;
};

struct change {
    uint32_t entry;
    int32_t low;
};

struct search {
    struct entry *entries;
    uint32_t n;
    int32_t n_sections;
    uint64_t unit;   /* bytes */
    uint32_t *near;  /* all the lists */
    int32_t *left;   /* per section: what is still to be laid */
    int32_t *lowest; /* per section, while room is checked */
    int32_t *spans;  /* per section: entries still to be laid that go on into the next */
    struct change *changes;
    size_t n_changes;
    uint32_t *groups; /* a stack of lists of entries, as the search goes down */
    size_t n_groups, n_groups_max;
    uint32_t *scratch;
    int32_t limit;
    uint64_t nodes, nodes_max, deadline_usec;
    uint32_t node; /* a number for the step under way */
    bool stop;
};

static uint64_t now_usec(void) {
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void search_done(struct search *search) {
    free(search->entries);
    free(search->near);
    free(search->left);
    free(search->lowest);
    free(search->spans);
    free(search->changes);
    free(search->groups);
    free(search->scratch);
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

static bool meet(const struct entry *a, const struct entry *b) {
    return a != b && a->from < b->to && b->from < a->to;
}

/* A unit in which `bytes` in all can be counted, and each of the sizes, without a rest if possible.
 */
static uint64_t choose_unit(const struct plan_buffer *buffers, size_t n, uint64_t bytes) {
    uint64_t unit = bytes;

    for (size_t i = 0; i < n; i++)
        for (uint64_t a = buffers[i].bytes, b; a; a = b) {
            b = unit % a;
            unit = a;
        }
    return MAX(unit, (bytes >> 29) + 1);
}

static int search_init(struct search *search, const struct plan_buffer *buffers, size_t n,
                       uint64_t most_bytes) {
    cleanup(freep) uint64_t *times = reallocarray(NULL, n * 2 + 1, sizeof(*times));
    uint32_t n_times = 0, unique = 0;
    size_t n_near = 0;

    *search = (struct search){ .unit = choose_unit(buffers, n, most_bytes) };
    search->entries = calloc(n + 1, sizeof(*search->entries));
    if (!times || !search->entries)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        if (buffers[i].start < buffers[i].end && buffers[i].bytes) {
            times[n_times++] = buffers[i].start;
            times[n_times++] = buffers[i].end;
        }
    qsort(times, n_times, sizeof(*times), compare_times);
    for (uint32_t k = 0; k < n_times; k++)
        if (!unique || times[unique - 1] != times[k])
            times[unique++] = times[k];
    search->n_sections = (int32_t)unique;
    for (size_t i = 0; i < n; i++)
        if (buffers[i].start < buffers[i].end && buffers[i].bytes)
            search->entries[search->n++] = (struct entry){
                .size = (int32_t)((buffers[i].bytes + search->unit - 1) / search->unit),
                .length = buffers[i].end - buffers[i].start,
                .from = (int32_t)rank_of(times, unique, buffers[i].start),
                .to = (int32_t)rank_of(times, unique, buffers[i].end),
                .index = i,
            };

    for (uint32_t i = 0; i < search->n; i++)
        for (uint32_t k = 0; k < search->n; k++)
            n_near += meet(&search->entries[i], &search->entries[k]);
    search->near = reallocarray(NULL, n_near + 1, sizeof(*search->near));
    search->left = calloc(unique + 1, sizeof(*search->left));
    search->lowest = calloc(unique + 1, sizeof(*search->lowest));
    search->spans = calloc(unique + 1, sizeof(*search->spans));
    search->changes = reallocarray(NULL, n_near + 1, sizeof(*search->changes));
    /* The lists of one level together are shorter by one than those of the level above, and where
     * they fall into parts they are copied once more. */
    search->n_groups_max = (size_t)search->n * (search->n + 2) + 1;
    search->scratch = reallocarray(NULL, search->n + 1, sizeof(*search->scratch));
    search->groups = reallocarray(NULL, search->n_groups_max, sizeof(*search->groups));
    if (!search->near || !search->left || !search->lowest || !search->spans || !search->changes ||
        !search->groups || !search->scratch)
        return -ENOMEM;
    n_near = 0;
    for (uint32_t i = 0; i < search->n; i++) {
        search->entries[i].near = search->near + n_near;
        for (uint32_t k = 0; k < search->n; k++)
            if (meet(&search->entries[i], &search->entries[k])) {
                search->near[n_near++] = k;
                search->entries[i].n_near++;
            }
    }
    return 0;
}

/* Lay `i` at its lowest place. True if what is left now falls apart in its time. */
static bool lay(struct search *search, uint32_t i) {
    struct entry *entry = &search->entries[i];
    int32_t top = entry->low + entry->size;
    bool cut = false;

    entry->laid = true;
    search->node++;
    for (int32_t s = entry->from; s < entry->to; s++)
        search->left[s] -= entry->size;
    for (int32_t s = entry->from; s < entry->to - 1; s++)
        cut |= --search->spans[s] == 0;
    for (uint32_t k = 0; k < entry->n_near; k++) {
        struct entry *near = &search->entries[entry->near[k]];

        if (near->laid || near->low >= top)
            continue;
        search->changes[search->n_changes++] = (struct change){ entry->near[k], near->low };
        near->low = top;
        near->changed = search->node;
    }
    return cut;
}

static void take_up(struct search *search, uint32_t i) {
    struct entry *entry = &search->entries[i];

    for (int32_t s = entry->from; s < entry->to; s++)
        search->left[s] += entry->size;
    for (int32_t s = entry->from; s < entry->to - 1; s++)
        search->spans[s]++;
    entry->laid = false;
}

/* Can the group still fit, if none of it comes below `floor`? */
static bool has_room(struct search *search, const uint32_t *group, uint32_t n, int32_t floor) {
    int32_t *restrict lowest = search->lowest;
    int32_t from = INT32_MAX, to = 0;

    for (uint32_t k = 0; k < n; k++) {
        const struct entry *entry = &search->entries[group[k]];

        if (MAX(entry->low, floor) + entry->size > search->limit)
            return false;
        from = MIN(from, entry->from);
        to = MAX(to, entry->to);
    }
    for (int32_t s = from; s < to; s++)
        lowest[s] = INT32_MAX;
    for (uint32_t k = 0; k < n; k++) {
        const struct entry *entry = &search->entries[group[k]];
        int32_t low = MAX(entry->low, floor);

        for (int32_t s = entry->from; s < entry->to; s++)
            lowest[s] = low < lowest[s] ? low : lowest[s];
    }
    for (int32_t s = from; s < to; s++)
        if (lowest[s] != INT32_MAX && search->left[s] > search->limit - lowest[s])
            return false;
    return true;
}

/* Lowest place first, then by the rule. */
static bool comes_before(const struct search *search, uint32_t a, uint32_t b) {
    const struct entry *x = &search->entries[a], *y = &search->entries[b];

    return x->low != y->low ? x->low < y->low : x->turn < y->turn;
}

static void sort_by_turn(const struct search *search, uint32_t *list, uint32_t n) {
    for (uint32_t k = 1; k < n; k++) {
        uint32_t i = list[k], to = k;

        for (; to > 0 && comes_before(search, i, list[to - 1]); to--)
            list[to] = list[to - 1];
        list[to] = i;
    }
}

/* The sorted list `from` without `i`, sorted again into `to`: only what has just changed moves. */
static void copy_without(struct search *search, const uint32_t *from, uint32_t n, uint32_t i,
                         uint32_t *to) {
    uint32_t *changed = search->scratch, n_changed = 0, k = 0;

    for (uint32_t m = 0; m < n; m++)
        if (search->entries[from[m]].changed == search->node)
            changed[n_changed++] = from[m];
    sort_by_turn(search, changed, n_changed);
    for (uint32_t m = 0; m < n; m++) {
        if (from[m] == i || search->entries[from[m]].changed == search->node)
            continue;
        while (k < n_changed && comes_before(search, changed[k], from[m]))
            *to++ = changed[k++];
        *to++ = from[m];
    }
    while (k < n_changed)
        *to++ = changed[k++];
}

static bool solve(struct search *search, uint32_t *group, uint32_t n, int32_t floor, uint32_t turn);

/* Solve what is left of a group, which falls into parts that share no time. */
static bool solve_parts(struct search *search, const uint32_t *group, uint32_t n, int32_t floor,
                        uint32_t turn) {
    uint32_t *part = search->groups + search->n_groups;
    int32_t from = 0;
    bool solved = true;

    assert(search->n_groups + n <= search->n_groups_max);
    for (uint32_t done = 0; done < n && solved;) {
        int32_t to = from;
        uint32_t count = 0;

        /* A part: from here to the next section that nothing goes on from. */
        while (search->spans[to] > 0)
            to++;
        for (uint32_t k = 0; k < n; k++)
            if (search->entries[group[k]].from >= from && search->entries[group[k]].from <= to &&
                !search->entries[group[k]].laid)
                part[count++] = group[k];
        from = to + 1;
        if (!count)
            continue;
        done += count;
        search->n_groups += count;
        solved = solve(search, part, count, floor, turn);
        search->n_groups -= count;
    }
    return solved;
}

/* At this height or above it, a buffer would lie above a gap in which another of the group fits. */
static int32_t ceiling(const struct search *search, const uint32_t *group, uint32_t n) {
    int32_t lowest = INT32_MAX;

    for (uint32_t k = 0; k < n; k++) {
        const struct entry *entry = &search->entries[group[k]];

        lowest = MIN(lowest, entry->low + entry->size);
    }
    return lowest;
}

/*
 * Lay all of a sorted group, none below `floor`. Of several at the same height the order means
 * nothing, so only one is tried: at the floor itself, none whose turn was before that of the last
 * one laid. On failure nothing of the group is laid.
 */
static bool solve(struct search *search, uint32_t *group, uint32_t n, int32_t floor,
                  uint32_t turn) {
    size_t n_changes = search->n_changes;
    uint32_t *rest = search->groups + search->n_groups;
    int32_t below;

    if (++search->nodes >= search->nodes_max ||
        (search->nodes % 256 == 0 && now_usec() >= search->deadline_usec))
        search->stop = true;
    if (search->stop)
        return false;
    assert(search->n_groups + n <= search->n_groups_max);
    below = ceiling(search, group, n);
    for (uint32_t k = 0; k < n && !search->stop; k++) {
        uint32_t i = group[k];
        struct entry *entry = &search->entries[i];
        bool cut, solved;

        if (entry->low >= below)
            break;
        if (entry->low < floor || (entry->low == floor && entry->turn < turn) ||
            entry->low + entry->size > search->limit)
            continue;
        cut = lay(search, i);
        if (n == 1)
            return true;
        copy_without(search, group, n, i, rest);
        search->n_groups += n - 1;
        solved = has_room(search, rest, n - 1, entry->low) &&
                 (cut ? solve_parts(search, rest, n - 1, entry->low, entry->turn)
                      : solve(search, rest, n - 1, entry->low, entry->turn));
        search->n_groups -= n - 1;
        if (solved)
            return true;

        /* What the parts laid before one of them failed is taken up again, and then this one. */
        for (uint32_t m = 0; m < n; m++)
            if (group[m] != i && search->entries[group[m]].laid)
                take_up(search, group[m]);
        while (search->n_changes > n_changes) {
            const struct change *change = &search->changes[--search->n_changes];

            search->entries[change->entry].low = change->low;
        }
        take_up(search, i);
    }
    return false;
}

/* What may go first: a letter per key, most first. Length, Area, Total load, Sections, Bytes. */
static const char *const rules[] = { "LAT", "TAL", "TLA", "SAT", "TAS" };

struct keyed {
    uint64_t keys[3];
    uint32_t entry;
};

static int compare_keyed(const void *a, const void *b) {
    const struct keyed *x = a, *y = b;

    for (unsigned k = 0; k < 3; k++)
        if (x->keys[k] != y->keys[k])
            return x->keys[k] > y->keys[k] ? -1 : 1;
    return x->entry < y->entry ? -1 : x->entry > y->entry;
}

static void set_turns(struct search *search, struct keyed *keyed, unsigned round,
                      uint64_t *random) {
    const char *rule = rules[round % ELEMENTSOF(rules)];

    for (uint32_t i = 0; i < search->n; i++) {
        const struct entry *entry = &search->entries[i];
        uint64_t sections = (uint64_t)(entry->to - entry->from);
        int32_t load = 0;

        for (int32_t s = entry->from; s < entry->to; s++)
            load = MAX(load, search->left[s]);
        keyed[i].entry = i;
        for (unsigned k = 0; k < 3; k++) {
            uint64_t key = rule[k] == 'S'   ? sections
                           : rule[k] == 'A' ? (uint64_t)entry->size * entry->length
                           : rule[k] == 'T' ? (uint64_t)load
                           : rule[k] == 'L' ? entry->length
                                            : (uint64_t)entry->size;

            /* Every third time around, a little shuffled. */
            if (round / ELEMENTSOF(rules) % 3 == 2)
                key = key / 8 * (6 + random_next(random) % 5);
            keyed[i].keys[k] = key;
        }
    }
    qsort(keyed, search->n, sizeof(*keyed), compare_keyed);
    for (uint32_t k = 0; k < search->n; k++)
        search->entries[keyed[k].entry].turn = k;
}

/* Rounds with growing limits until it is solved or time is up. */
static bool search_limit(struct search *search, uint64_t limit_bytes, uint64_t deadline_usec) {
    uint64_t random = 1;
    uint32_t *all = search->groups;
    cleanup(freep) struct keyed *keyed = reallocarray(NULL, search->n + 1, sizeof(*keyed));

    search->limit = (int32_t)(limit_bytes / search->unit);
    search->deadline_usec = deadline_usec;
    for (unsigned round = 0; keyed && now_usec() < deadline_usec; round++) {
        unsigned doublings = MIN((unsigned)(round / ELEMENTSOF(rules)), 24u);

        memset(search->left, 0, (size_t)search->n_sections * sizeof(*search->left));
        memset(search->spans, 0, (size_t)search->n_sections * sizeof(*search->spans));
        for (uint32_t i = 0; i < search->n; i++) {
            search->entries[i].low = 0;
            search->entries[i].changed = 0;
            take_up(search, i);
            all[i] = i;
        }
        search->node = 0;
        search->n_changes = 0;
        search->n_groups = search->n;
        search->nodes = 0;
        search->nodes_max = (uint64_t)search->n * 16 << doublings;
        search->stop = false;
        set_turns(search, keyed, round, &random);
        sort_by_turn(search, all, search->n);
        if (solve_parts(search, all, search->n, 0, 0))
            return true;
        if (!search->stop)
            return false; /* every way was tried */
    }
    return false;
}

static void keep(const struct search *search, struct plan_buffer *buffers, uint64_t *bytes) {
    *bytes = 0;
    for (uint32_t i = 0; i < search->n; i++) {
        struct plan_buffer *buffer = &buffers[search->entries[i].index];

        buffer->offset = (uint64_t)search->entries[i].low * search->unit;
        *bytes = MAX(*bytes, buffer->offset + buffer->bytes);
    }
}

int plan_search(struct plan_buffer *buffers, size_t n, uint64_t target_bytes, uint64_t budget_usec,
                uint64_t *ret_bytes) {
    cleanup(search_done) struct search search = { 0 };
    uint64_t start = now_usec(), lower, best, tried;
    int r;

    r = plan_lower_bound(buffers, n, &lower);
    if (r == 0)
        r = plan_fast(buffers, n, &best);
    if (r < 0)
        return r;
    *ret_bytes = best;
    target_bytes = MAX(target_bytes, lower);
    if (best <= target_bytes)
        return 1;
    if (n > SEARCH_MAX)
        return 0;
    r = search_init(&search, buffers, n, best);
    if (r < 0)
        return r;

    /* Most of the time for the target, the rest for whatever lies between. */
    if (search_limit(&search, target_bytes, start + budget_usec / 10 * 9))
        keep(&search, buffers, &best);
    for (tried = target_bytes; best > target_bytes && now_usec() < start + budget_usec;) {
        uint64_t middle = tried + (best - tried) / 2, slice = budget_usec / 50;

        if (middle == tried || middle == best)
            break;
        if (search_limit(&search, middle, MIN(now_usec() + slice, start + budget_usec)))
            keep(&search, buffers, &best);
        else
            tried = middle;
    }
    *ret_bytes = best;
    return best <= target_bytes;
}
