/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Serving in the order of readiness is enough to be exact: an item whose predecessors are not
 * resolved cannot be ready before one of them is, because times only add up. So the smallest ready
 * time among the items that are known is the smallest of all, and a heap of them, taken from the
 * top, resolves everything in the one order that the rule allows (as Dijkstra's search does).
 *
 * The item at the top may be a kernel that still runs. Those behind it need not wait for it if
 * neither it nor anything that comes after it can claim their resource: then their times are the
 * same in either order. So a program can wait for a copy while its kernel runs on.
 */
#include "sim/time/timeline.h"

#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"

static bool precedes(const struct timeline_item *a, const struct timeline_item *b) {
    if (a->ready_ns != b->ready_ns)
        return a->ready_ns < b->ready_ns;
    if (a->epoch != b->epoch)
        return a->epoch < b->epoch;
    if (a->hops != b->hops)
        return a->hops < b->hops;
    if (a->priority != b->priority)
        return a->priority < b->priority;
    if (a->device != b->device)
        return a->device < b->device;
    if (a->stream != b->stream)
        return a->stream < b->stream;
    return a->sequence < b->sequence;
}

static int reserve(struct timeline_item ***array, size_t *allocated, size_t n) {
    struct timeline_item **larger;
    size_t wanted = MAX(*allocated, (size_t)4);

    while (wanted < n)
        wanted *= 2;
    if (wanted == *allocated)
        return 0;
    larger = reallocarray(*array, wanted, sizeof(**array));
    if (!larger)
        return -ENOMEM;
    *array = larger;
    *allocated = wanted;
    return 0;
}

static void place(struct timeline *timeline, size_t i, struct timeline_item *item) {
    timeline->heap[i] = item;
    item->heap_index = i;
}

static void sift_up(struct timeline *timeline, size_t i, struct timeline_item *item) {
    for (; i && precedes(item, timeline->heap[(i - 1) / 2]); i = (i - 1) / 2)
        place(timeline, i, timeline->heap[(i - 1) / 2]);
    place(timeline, i, item);
}

static void sift_down(struct timeline *timeline, size_t i, struct timeline_item *item) {
    size_t child;

    for (; (child = 2 * i + 1) < timeline->n_heap; i = child) {
        if (child + 1 < timeline->n_heap &&
            precedes(timeline->heap[child + 1], timeline->heap[child]))
            child++;
        if (!precedes(timeline->heap[child], item))
            break;
        place(timeline, i, timeline->heap[child]);
    }
    place(timeline, i, item);
}

/* The caller reserved room. */
static void push(struct timeline *timeline, struct timeline_item *item) {
    sift_up(timeline, timeline->n_heap++, item);
}

static void remove_item(struct timeline *timeline, struct timeline_item *item) {
    const size_t i = item->heap_index;
    struct timeline_item *last = timeline->heap[--timeline->n_heap];

    if (last == item)
        return;
    if (i && precedes(last, timeline->heap[(i - 1) / 2]))
        sift_up(timeline, i, last);
    else
        sift_down(timeline, i, last);
}

enum { COMPUTE, IN, OUT, FABRIC_IN, FABRIC_OUT, LINKS };
enum { UP, DOWN };

/* What an item needs, all at once. */
struct uses {
    size_t n;
    size_t at[4];
};

static void use(struct uses *uses, unsigned device, unsigned which) {
    uses->at[uses->n++] = (size_t)(device % TIMELINE_MAX_DEVICES) * TIMELINE_PER_DEVICE + which;
}

static void use_uplink(struct uses *uses, unsigned uplink, unsigned way) {
    if (uplink)
        uses->at[uses->n++] = (size_t)TIMELINE_MAX_DEVICES * TIMELINE_PER_DEVICE +
                              (size_t)((uplink - 1) % TIMELINE_MAX_DEVICES) * 2 + way;
}

static struct uses uses_of(const struct timeline_item *item) {
    struct uses uses = { .n = 0 };

    switch (item->engine) {
    case TIMELINE_COMPUTE:
        use(&uses, item->device, COMPUTE);
        break;
    case TIMELINE_UPLOAD:
        use(&uses, item->device, IN);
        use_uplink(&uses, item->uplink, DOWN);
        break;
    case TIMELINE_DOWNLOAD:
        use(&uses, item->device, OUT);
        use_uplink(&uses, item->uplink, UP);
        break;
    case TIMELINE_PEER:
        use(&uses, item->device, LINKS + item->peer % TIMELINE_MAX_DEVICES);
        break;
    case TIMELINE_PEER_FABRIC:
        use(&uses, item->device, FABRIC_OUT);
        use(&uses, item->peer, FABRIC_IN);
        break;
    case TIMELINE_PEER_PCIE:
        use(&uses, item->device, OUT);
        use(&uses, item->peer, IN);
        use_uplink(&uses, item->uplink, UP);
        use_uplink(&uses, item->peer_uplink, DOWN);
        break;
    case TIMELINE_NOTHING:
        break;
    }
    return uses;
}

/* `earlier` is resolved: `item` cannot be ready before it ended. */
static void not_before(struct timeline_item *item, const struct timeline_item *earlier,
                       uint64_t latency_ns) {
    const uint64_t at_ns = earlier->end_ns + latency_ns;
    const unsigned hops = at_ns == earlier->ready_ns ? earlier->hops + 1 : 0;

    if (at_ns > item->ready_ns)
        item->hops = hops;
    else if (at_ns == item->ready_ns)
        item->hops = MAX(item->hops, hops);
    item->ready_ns = MAX(item->ready_ns, at_ns);
}

/* `item` comes after `earlier`, by `latency_ns` at least. */
static void follow(struct timeline_item *item, struct timeline_item *earlier, uint64_t latency_ns) {
    if (earlier->resolved)
        not_before(item, earlier, latency_ns);
    else {
        earlier->dependents[earlier->n_dependents++] = item;
        item->n_awaited++;
    }
}

int timeline_add(struct timeline *timeline, struct timeline_item *item,
                 struct timeline_item *before, struct timeline_item *const *after, size_t n_after) {
    int r = reserve(&timeline->heap, &timeline->n_heap_allocated, timeline->n_unresolved + 1);

    if (r == 0)
        r = reserve(&timeline->scratch, &timeline->n_scratch_allocated,
                    2 * (timeline->n_unresolved + 1));
    /* The same item may be named twice; room for all of them is never too much. */
    if (r == 0 && before && !before->resolved)
        r = reserve(&before->dependents, &before->n_dependents_allocated,
                    before->n_dependents + n_after + 1);
    for (size_t i = 0; i < n_after && r == 0; i++)
        if (!after[i]->resolved)
            r = reserve(&after[i]->dependents, &after[i]->n_dependents_allocated,
                        after[i]->n_dependents + n_after + 1);
    if (r < 0)
        return r;

    item->ready_ns = timeline->host_ns;
    item->epoch = timeline->n_waits;
    item->hops = 0;
    item->resolved = false;
    item->visited = 0;
    item->n_awaited = 0;
    if (before)
        follow(item, before, item->latency_ns);
    for (size_t i = 0; i < n_after; i++)
        follow(item, after[i], 0);
    timeline->n_unresolved++;
    if (!item->n_awaited)
        push(timeline, item);
    return 0;
}

static bool is_claimed(const struct timeline_item *item, const bool claimed[TIMELINE_N_RESOURCES]) {
    const struct uses uses = uses_of(item);

    for (size_t i = 0; i < uses.n; i++)
        if (claimed[uses.at[i]])
            return true;
    return false;
}

/* Add to `claimed` what `item` and all that comes after it may use. `stack` has room for all. */
static void claim(struct timeline *timeline, struct timeline_item *item,
                  struct timeline_item **stack, bool claimed[TIMELINE_N_RESOURCES]) {
    size_t n = 0;

    for (stack[n++] = item; n;) {
        struct uses uses;

        item = stack[--n];
        uses = uses_of(item);
        for (size_t i = 0; i < uses.n; i++)
            claimed[uses.at[i]] = true;
        for (size_t i = 0; i < item->n_dependents; i++) {
            if (item->dependents[i]->visited == timeline->n_searches)
                continue;
            item->dependents[i]->visited = timeline->n_searches;
            stack[n++] = item->dependents[i];
        }
    }
}

static int compare(const void *a, const void *b) {
    struct timeline_item *const *x = a, *const *y = b;

    return precedes(*x, *y) ? -1 : precedes(*y, *x);
}

struct timeline_item *timeline_next(struct timeline *timeline, struct timeline_item *target) {
    struct timeline_item **sorted = timeline->scratch;
    bool claimed[TIMELINE_N_RESOURCES] = { false }, any = false;

    if (!timeline->n_heap || timeline->heap[0]->cost_known)
        return timeline->n_heap ? timeline->heap[0] : NULL;
    for (size_t i = 0; i < timeline->n_heap; i++) {
        sorted[i] = timeline->heap[i];
        any |= sorted[i]->cost_known;
    }
    if (!any)
        return NULL;
    qsort(sorted, timeline->n_heap, sizeof(sorted[0]), compare);
    timeline->n_searches++;
    for (size_t i = 0; i < timeline->n_heap; i++) {
        struct timeline_item *item = sorted[i];

        if (item->cost_known && !is_claimed(item, claimed))
            return item;
        if (item->aside && !item->cost_known)
            continue;
        /* Whether or not its cost is known: an item that waits here also holds up its successors on
         * other resources. */
        claim(timeline, item, sorted + timeline->n_heap, claimed);
        if (target && (item == target || target->visited == timeline->n_searches))
            return NULL;
    }
    return NULL;
}

void timeline_resolve(struct timeline *timeline, struct timeline_item *item) {
    const struct uses uses = uses_of(item);

    remove_item(timeline, item);
    item->start_ns = item->ready_ns;
    for (size_t i = 0; i < uses.n; i++)
        item->start_ns = MAX(item->start_ns, timeline->free_at_ns[uses.at[i]]);
    item->end_ns = item->start_ns + item->cost_ns;
    for (size_t i = 0; i < uses.n; i++)
        timeline->free_at_ns[uses.at[i]] = item->end_ns;
    item->resolved = true;
    timeline->n_unresolved--;

    for (size_t i = 0; i < item->n_dependents; i++) {
        struct timeline_item *later = item->dependents[i];
        const bool same_stream =
            later->stream == item->stream && later->sequence == item->sequence + 1;

        not_before(later, item, same_stream ? later->latency_ns : 0);
        if (--later->n_awaited == 0)
            push(timeline, later);
    }
    item->n_dependents = 0;
}

void timeline_wait(struct timeline *timeline, const struct timeline_item *item) {
    timeline->host_ns = MAX(timeline->host_ns, item->end_ns);
    timeline->n_waits++;
}

void timeline_host_work(struct timeline *timeline, uint64_t ns) {
    timeline->host_ns += ns;
}

void timeline_item_done(struct timeline_item *item) {
    free(item->dependents);
    item->dependents = NULL;
    item->n_dependents = item->n_dependents_allocated = 0;
}
