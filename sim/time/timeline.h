/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Timeline: when each piece of a process's work begins and ends, in modelled time.
 *
 * Pure: no clock, no thread, no lock. The caller says what was submitted, after what, and what it
 * cost; the timeline says when it ran on the modelled box. The result does not depend
 * on wall time or on which thread was faster, only on the order of submissions per stream and on
 * what had been submitted at the time of the query.
 *
 * The rule: an item is ready at the latest of
 *   - the end of the item before it in its stream, plus the latency of a launch,
 *   - the ends of the events that it waits for,
 *   - the host clock when it was submitted.
 * Items contend for resources (the compute engine of a device, a link in one direction), which
 * serve one at a time, in the order of (ready, epoch, hops, priority, device, stream, sequence).
 * A copy over PCIe needs several at once: the lanes of each device that takes part, and the uplinks
 * that it passes. It begins when all are free, and those that are free before wait for it.
 * The epoch of an item is how often the host had waited when it was submitted: what was there
 * before a wait goes before what came after it. Hops count the items before it that took no time at
 * all. Without these two the order of equals would depend on which of them became known first. The
 * host clock advances only when the host waits for an item, to its end, or reports work of its
 * own.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TIMELINE_MAX_DEVICES = 32,
};

enum timeline_engine {
    TIMELINE_NOTHING, /* an event, a callback: takes no resource and no time */
    TIMELINE_COMPUTE, /* kernels, memsets and copies within `device` */
    TIMELINE_UPLOAD,  /* host to `device` */
    TIMELINE_DOWNLOAD,
    TIMELINE_PEER,        /* `device` to `peer`, over links of the two alone */
    TIMELINE_PEER_FABRIC, /* `device` to `peer`, over all links of each, which lead to switches */
    TIMELINE_PEER_PCIE,   /* `device` to `peer`, over the lanes of each */
};

/* Owned by the caller, until it is resolved at least. Set the first part before adding it. */
struct timeline_item {
    enum timeline_engine engine;
    unsigned device, peer; /* < TIMELINE_MAX_DEVICES */
    /* What a copy over PCIe passes besides the lanes of `device` and `peer`: the uplinks that these
     * share with others. From 1 to TIMELINE_MAX_DEVICES; 0: none. */
    unsigned uplink, peer_uplink;
    int priority; /* lower goes first, as CUDA counts */
    uint32_t stream;
    uint64_t sequence;   /* within its stream */
    uint64_t latency_ns; /* counted from the end of the item before it in its stream */

    /* Told when it is known, with timeline_cost(): for a kernel that is after it ran. */
    uint64_t cost_ns;
    bool cost_known;
    /*
     * Set by the caller: do not wait for the unknown cost of this item; it takes its turn once its
     * cost is known. For the case that nothing could go on otherwise.
     */
    bool aside;

    /* the timeline's */
    uint64_t ready_ns, start_ns, end_ns;
    uint64_t epoch;
    unsigned hops; /* items in a row before it that took no time, at the instant it is ready */
    bool resolved;
    size_t heap_index;
    uint64_t visited;   /* the last search that reached it */
    unsigned n_awaited; /* unresolved items that this one comes after */
    struct timeline_item **dependents;
    size_t n_dependents, n_dependents_allocated;
};

/* Resources by number: of each device its compute engine, its lanes in and out, its links to
 * switches in and out, and its links to each other device; then both directions of each uplink. */
enum {
    TIMELINE_PER_DEVICE = 5 + TIMELINE_MAX_DEVICES,
    TIMELINE_N_RESOURCES = TIMELINE_MAX_DEVICES * (TIMELINE_PER_DEVICE + 2),
};

struct timeline {
    uint64_t host_ns;
    uint64_t n_waits;
    uint64_t free_at_ns[TIMELINE_N_RESOURCES];
    struct timeline_item **heap; /* items that are ready, the next one first */
    size_t n_heap, n_heap_allocated;
    struct timeline_item **scratch; /* as large as the heap may become */
    size_t n_scratch_allocated;
    size_t n_unresolved;
    uint64_t n_searches;
};

/*
 * Add `item`. `before` (may be NULL) is its predecessor in its stream, `after` what it waits for
 * besides. -ENOMEM: nothing changed.
 */
int timeline_add(struct timeline *timeline, struct timeline_item *item,
                 struct timeline_item *before, struct timeline_item *const *after, size_t n_after);
/*
 * An item that can be served now: its cost is known, and no submitted item of unknown cost could
 * claim its resource before it. NULL: none; tell more costs.
 *
 * `target` (may be NULL): an unresolved item that the caller wants to resolve. Then no item is
 * given that comes after the first of the items that `target` still waits for (or `target` itself).
 * So what is resolved when `target` has its time does not depend on which costs happened to be
 * known, as far as later items can tell.
 */
struct timeline_item *timeline_next(struct timeline *timeline, struct timeline_item *target);
/* Serve what timeline_next() gave. */
void timeline_resolve(struct timeline *timeline, struct timeline_item *item);
/* The host waited for a resolved `item`. */
void timeline_wait(struct timeline *timeline, const struct timeline_item *item);
/* The host worked for `ns`. */
void timeline_host_work(struct timeline *timeline, uint64_t ns);
/* Free what the item holds; for items that are no longer needed, resolved or not. */
void timeline_item_done(struct timeline_item *item);
