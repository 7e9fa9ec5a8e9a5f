/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What time brings: timeouts, time limits, the end of the grace, places in the queue.
 *
 * The next time at which a lease is due is kept as a lower bound; only when it has come are the
 * leases walked, and a new bound is found. Waiters are sorted by their timeouts. The first waiters
 * of the queue, which may act on their places, are told them at once; the rest are told in a sweep,
 * some each second, because a grant at the head of ten thousand moves them all.
 */
#include "daemon/broker/internal.h"

#include <stdio.h>
#include <stdlib.h>

#define TOLD_AT_ONCE 16
#define TOLD_A_SWEEP 256
#define HOURS_USEC   UINT64_C(10000000) /* between looks at waiters for the end of an hour */

/* Rounded for people, who do not care about the microseconds of a wait. */
static uint64_t round_usec(uint64_t usec) {
    const uint64_t unit = usec < 10000000 ? 100000 : 1000000;

    return (usec + unit / 2) / unit * unit;
}

static void time_out(struct broker *broker, struct waiter *waiter) {
    char reason[VERDICT_REASON_SIZE], waited[UNITS_TEXT_SIZE];
    const struct book *book = waiter->blocked >= 0 ? broker->books[waiter->blocked] : NULL;

    if (waiter->why == WHY_RECALL) {
        struct holder *sibling;

        /* A process that did not answer may be asked again. */
        list_foreach (sibling, &waiter->holder->lease->holders, in_lease) {
            sibling->parts[waiter->share].is_recalled = false;
        }
    }
    acquire_reason(broker, waiter, reason, sizeof(reason));
    if (waiter->why == WHY_RECALL && waiter->no_wait)
        queue_deny(broker, waiter, REFUSAL_NO_MEMORY, book, "%s, and did not in time", reason);
    else
        queue_deny(broker, waiter, REFUSAL_TIMEOUT, book, "waited %s for %s: %s",
                   units_format_usec(round_usec(broker->now_usec - waiter->since_usec), waited),
                   waiter->asked, reason);
}

static void run_timeouts(struct broker *broker) {
    struct rank_tree_node *node;

    while ((node = rank_tree_first(broker->timeouts)) && (uint64_t)node->key <= broker->now_usec)
        time_out(broker, rank_tree_entry(node, struct waiter, in_timeouts));
}

static void run_expiry(struct broker *broker) {
    struct lease *lease;
    uint64_t next = UINT64_MAX;

    if (broker->now_usec < broker->next_expiry_usec)
        return;
    for (size_t pos = 0; (lease = map_next(&broker->leases, &pos));) {
        uint64_t due;

        if (!lease->is_ending && lease->expires_usec && lease->expires_usec <= broker->now_usec) {
            uint64_t id = lease->id;

            lease_end(broker, lease, "its time is over", true);
            lease = broker_lease(broker, id);
            if (!lease)
                continue;
        }
        if (!lease->is_ending) {
            if (lease->expires_usec)
                next = MIN(next, lease->expires_usec);
            continue;
        }
        if (!lease->evicts || lease->is_evicted)
            continue;
        due = lease->ending_usec + broker->policy->ending_usec;
        if (due > broker->now_usec) {
            next = MIN(next, due);
            continue;
        }
        lease->is_evicted = true;
        if (broker->sink.evict)
            broker->sink.evict(broker->sink.userdata, lease);
    }
    broker->next_expiry_usec = next;
}

static bool tell_place(struct broker *broker, struct waiter *waiter, uint32_t place) {
    char reason[VERDICT_REASON_SIZE];

    if (waiter->told_place == place && waiter->told_why == waiter->why)
        return false;
    waiter->told_place = place;
    waiter->told_why = waiter->why;
    if (broker->sink.moved) {
        acquire_reason(broker, waiter, reason, sizeof(reason));
        broker->sink.moved(broker->sink.userdata, waiter->cookie, place, reason);
    }
    return true;
}

static void run_places(struct broker *broker) {
    uint32_t ahead = rank_tree_count(broker->growths), n = rank_tree_count(broker->requests);
    struct rank_tree_node *node;

    if (broker->is_moved) {
        broker->is_moved = false;
        node = rank_tree_first(broker->growths);
        for (uint32_t i = 0; node && i < TOLD_AT_ONCE; node = rank_tree_next(node), i++)
            tell_place(broker, rank_tree_entry(node, struct waiter, in_queue), i + 1);
        node = rank_tree_first(broker->requests);
        for (uint32_t i = 0; node && i < TOLD_AT_ONCE; node = rank_tree_next(node), i++)
            tell_place(broker, rank_tree_entry(node, struct waiter, in_queue), ahead + i + 1);
    }
    if (broker->now_usec < broker->next_sweep_usec && n > TOLD_AT_ONCE)
        return;

    if (broker->sweep_at < TOLD_AT_ONCE)
        broker->sweep_at = TOLD_AT_ONCE;
    node = rank_tree_at(broker->requests, broker->sweep_at);
    for (uint32_t i = 0; node && i < TOLD_A_SWEEP; node = rank_tree_next(node), i++)
        tell_place(broker, rank_tree_entry(node, struct waiter, in_queue),
                   ahead + ++broker->sweep_at);
    if (broker->sweep_at < n) {
        broker->next_sweep_usec = broker->now_usec + SWEEP_USEC;
        return;
    }
    broker->sweep_at = 0;
    broker->next_sweep_usec =
        broker->is_sweep_late && n > TOLD_AT_ONCE ? broker->now_usec + SWEEP_USEC : UINT64_MAX;
    broker->is_sweep_late = false;
}

/* ---- Grace -------------------------------------------------------------------------------------
 */

void broker_grace_begin(struct broker *broker, struct moment now) {
    broker->now_usec = now.usec;
    broker->grace_usec = now.usec + broker->policy->grace_usec;
    if (broker->grace_usec == 0)
        broker->grace_usec = 1;
}

uint64_t broker_grace_until(const struct broker *broker) {
    return broker->grace_usec;
}

void broker_books_lost(struct broker *broker) {
    broker->is_lost = true;
}

static void end_grace(struct broker *broker) {
    struct recovered_waiter *recovered, *next_recovered;
    struct waiter *waiter;
    struct lease *lease;
    uint32_t n_missing = broker->n_absent;

    broker->grace_usec = 0;
    broker->is_lost = false;
    for (size_t pos = 0; (lease = map_next(&broker->leases, &pos));) {
        struct holder *holder, *next;

        list_foreach_safe (holder, next, &lease->holders, in_lease) {
            if (holder->is_absent)
                holder_gone(broker, holder, true);
        }
        lease_end_if_empty(broker, lease);
    }
    list_foreach_safe (recovered, next_recovered, &broker->recovered, in_broker) {
        emit_waiter_gone(broker, recovered->record.id);
        list_remove(&recovered->in_broker);
        free(recovered);
    }
    for (size_t pos = 0; (waiter = map_next(&broker->waiters, &pos));)
        if (waiter->why == WHY_GRACE)
            waiter->why = WHY_DEVICE;
    queue_touch_all(broker);
    broker->is_deadlock_due = true;
    emit_event(broker, "grace", NULL, 0, NULL,
               "the time to come back is over: %zu leases go on, %u processes did not come back",
               broker->leases.n, n_missing);
}

/* All recorded holders are back or known to be gone: the grace need not last. */
static bool all_are_back(const struct broker *broker) {
    return broker->n_absent == 0 && list_is_empty(&broker->recovered) && !broker->is_lost;
}

static void run_grace(struct broker *broker) {
    if (broker->grace_usec && (broker->now_usec >= broker->grace_usec || all_are_back(broker)))
        end_grace(broker);
}

/* ---- The turn ----------------------------------------------------------------------------------
 */

int broker_turn(struct broker *broker, struct moment now) {
    broker->now_usec = now.usec;
    run_grace(broker);
    run_timeouts(broker);
    run_expiry(broker);
    reservation_run(broker);
    if (broker->is_queue_due || now.week_minute != broker->week_minute)
        schedule_run(broker, now, NULL);
    if (broker_is_deadlock_due(broker) && !broker->grace_usec) {
        deadlock_resolve(broker, NULL);
        if (broker->is_queue_due)
            schedule_run(broker, now, NULL);
    }
    run_places(broker);
    return 0;
}

uint64_t broker_deadline(const struct broker *broker) {
    const struct rank_tree_node *first = rank_tree_first(broker->timeouts);
    uint64_t next = broker->next_expiry_usec;

    if (first)
        next = MIN(next, (uint64_t)first->key);

    if (!broker->grace_usec &&
        (broker->is_queue_due || broker->is_moved || broker_is_deadlock_due(broker)))
        return 0;
    if (broker->grace_usec && all_are_back(broker))
        return 0;
    if (broker->grace_usec)
        next = MIN(next, broker->grace_usec);
    if (!list_is_empty(&broker->asleep) && broker->policy->n_devices > 0)
        next = MIN(next, broker->now_usec + HOURS_USEC);
    next = MIN(next, broker->next_reserve_usec);
    return MIN(next, broker->next_sweep_usec);
}
