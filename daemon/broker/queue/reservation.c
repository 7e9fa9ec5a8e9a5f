/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reservation: what a waiter keeps back from those behind it, so that it is served some day.
 *
 * On a device where its own user leaves too little for it, by leases or by processes without one, a
 * waiter keeps nothing back from other users: its own user alone decides how long it waits. Nor
 * does it on any other, where its user leaves it fewer devices than it needs. And no reservation
 * lasts for ever: a waiter reserves for the policy's reserve time, then goes on waiting in its
 * place and reserves in every other such time, all waiters in the same ones. So there are times in
 * which no waiter that is older than the reserve time keeps anything back, however many a user has:
 * they delay a later waiter by no more than twice that time, whatever they wait for. And a waiter
 * is served if those that it waits for end within such a time.
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

/* Whether its own user leaves room for so much on a device. */
static bool is_left_on(const struct broker *broker, const struct user *user, unsigned slot,
                       uint64_t bytes) {
    uint64_t usable = broker->books[slot]->usable_bytes;
    uint64_t own = units_add(user->slot_bytes[slot], user->unmanaged_bytes[slot]);

    return bytes <= usable - MIN(usable, own);
}

/* Whether its own user leaves it room on this device, and on as many as it needs. */
static bool is_left_by_own(const struct broker *broker, const struct waiter *waiter,
                           unsigned slot) {
    const struct claim *claim = waiter->claim;
    uint32_t n = 0;

    if (!is_left_on(broker, waiter->user, slot, need_of(waiter, slot)))
        return false;
    if (waiter->holder || (waiter->user->n_slots == 0 && !waiter->user->has_unmanaged))
        return true;
    for (uint32_t i = 0; i < claim->n_options && n < claim->n_wanted; i++)
        n += is_left_on(broker, waiter->user, claim->options[i].slot,
                        claim->options[i].guaranteed_bytes);
    return n == claim->n_wanted;
}

bool reservation_find(const struct broker *broker, const struct waiter *waiter, unsigned slot,
                      const struct user *from, uint64_t *ret) {
    if (!is_time(broker, waiter) || (waiter->user != from && !is_left_by_own(broker, waiter, slot)))
        return false;
    *ret = need_of(waiter, slot);
    return true;
}

bool reservation_is_private(const struct broker *broker, const struct user *user, unsigned slot,
                            struct queue_place before) {
    const struct waiter *waiter;

    list_foreach (waiter, &user->waiters, in_user) {
        if (waiter->is_active && (waiter->in_queue.marks[slot / 64] >> slot % 64 & 1) &&
            queue_place_before(queue_place_of(waiter), before) && is_time(broker, waiter) &&
            !is_left_by_own(broker, waiter, slot))
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
            is_left_by_own(broker, waiter, slot))
            continue;
        for (unsigned i = 0; i < broker->n_books; i++)
            if (waiter->in_queue.marks[i / 64] >> i % 64 & 1)
                queue_touch(broker, i);
        broker->has_parked = true;
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
