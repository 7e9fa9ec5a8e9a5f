/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reservation: what a waiter keeps back from those behind it, so that it is served some day.
 *
 * On a device where the leases of its own user leave too little for it, a waiter keeps nothing back
 * from other users: its own user alone decides how long it waits. And no reservation lasts for
 * ever: a waiter reserves for the policy's reserve time, then goes on waiting in its place and
 * reserves in every other such time, all waiters in the same ones. So there are times in which no
 * waiter that is older than the reserve time keeps anything back, however many a user has: they
 * delay a later waiter by no more than twice that time, whatever they wait for. And a waiter is
 * served if those that it waits for end within such a time.
 */
#include "daemon/broker/internal.h"

static bool is_young(const struct broker *broker, const struct waiter *waiter) {
    return broker->now_usec < waiter->since_usec ||
           broker->now_usec - waiter->since_usec < broker->policy->reserve_usec;
}

static bool is_time(const struct broker *broker, const struct waiter *waiter) {
    return is_young(broker, waiter) || broker->now_usec / broker->policy->reserve_usec % 2 == 0;
}

/* When it begins or ends to reserve, at the earliest. */
static uint64_t next_change(const struct broker *broker, const struct waiter *waiter) {
    uint64_t span = broker->policy->reserve_usec, end;

    if (is_young(broker, waiter))
        return units_add(waiter->since_usec, span);
    return __builtin_mul_overflow(broker->now_usec / span + 1, span, &end) ? UINT64_MAX : end;
}

/* What it asks for on a device. */
static uint64_t need_of(const struct waiter *waiter, unsigned slot) {
    if (waiter->holder)
        return growth_rise(waiter);
    for (uint32_t i = 0; i < waiter->claim->n_options; i++)
        if (waiter->claim->options[i].slot == slot)
            return waiter->claim->options[i].guaranteed_bytes;
    return 0;
}

/* Whether the leases of its own user leave room for so much on the device. */
static bool is_left_by_own(const struct broker *broker, const struct waiter *waiter, unsigned slot,
                           uint64_t bytes) {
    uint64_t usable = broker->books[slot]->usable_bytes;

    return bytes <= usable - MIN(usable, waiter->user->slot_bytes[slot]);
}

bool reservation_find(const struct broker *broker, const struct waiter *waiter, unsigned slot,
                      const struct user *from, uint64_t *ret) {
    uint64_t bytes = need_of(waiter, slot);

    if (!is_time(broker, waiter) ||
        (waiter->user != from && !is_left_by_own(broker, waiter, slot, bytes)))
        return false;
    *ret = bytes;
    return true;
}

bool reservation_is_private(const struct broker *broker, const struct user *user, unsigned slot,
                            struct queue_place before) {
    const struct waiter *waiter;

    list_foreach (waiter, &user->waiters, in_user) {
        if (waiter->is_active && (waiter->in_queue.marks[slot / 64] >> slot % 64 & 1) &&
            queue_place_before(queue_place_of(waiter), before) && is_time(broker, waiter) &&
            !is_left_by_own(broker, waiter, slot, need_of(waiter, slot)))
            return true;
    }
    return false;
}

void reservation_begin(struct broker *broker, const struct waiter *waiter) {
    broker->next_reserve_usec = MIN(broker->next_reserve_usec, next_change(broker, waiter));
}

void reservation_note_taken(struct broker *broker, const struct user *user, unsigned slot) {
    const struct waiter *waiter;

    list_foreach (waiter, &user->waiters, in_user) {
        if (!waiter->is_active || !(waiter->in_queue.marks[slot / 64] >> slot % 64 & 1) ||
            is_left_by_own(broker, waiter, slot, need_of(waiter, slot)))
            continue;
        queue_touch(broker, slot);
        broker->has_parked = true;
        return;
    }
}

void reservation_run(struct broker *broker) {
    const struct waiter *waiter;
    uint64_t next = UINT64_MAX;

    if (broker->now_usec < broker->next_reserve_usec)
        return;
    for (size_t pos = 0; (waiter = map_next(&broker->waiters, &pos));)
        next = MIN(next, next_change(broker, waiter));
    /* Ten thousand waiters need no cycle each. */
    broker->next_reserve_usec = MAX(next, broker->now_usec + SWEEP_USEC);
    if (next == UINT64_MAX)
        broker->next_reserve_usec = UINT64_MAX;
    queue_touch_all(broker);
}
