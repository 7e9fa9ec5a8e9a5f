/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The queue: the waiters in their order, and which of them to consider again.
 *
 * The order is fixed when a waiter joins. A step of priority is worth `age_usec` of waiting. As all
 * waiters age alike, comparing priority + waited / age at any time is the same as comparing since -
 * priority × age, which never changes. So nothing is sorted again, and no waiter can pass one that
 * has waited long enough.
 *
 * daemon/broker/queue/schedule.c decides which waiters are served, for the devices that are dirty
 * (they may have more to give: bytes came back, or a waiter that reserved some left) and for the
 * waiters that are fresh (they are new, or what stopped them is over). A waiter that waits for
 * something other than other leases (its user's quota, hours, health) is not active: it keeps its
 * place, and reserves nothing.
 */
#include "daemon/broker/internal.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AGE_MAX (UINT64_C(1000) * 365 * 24 * 3600 * 1000000) /* a thousand years: never */

/* ---- Waiters that the next schedule looks at ---------------------------------------------------
 */

bool queue_place_before(struct queue_place a, struct queue_place b) {
    if (a.is_request != b.is_request)
        return b.is_request;
    return a.key != b.key ? a.key < b.key : a.tie < b.tie;
}

struct queue_place queue_place_of(const struct waiter *waiter) {
    return (struct queue_place){ !waiter->holder, waiter->in_queue.key, waiter->in_queue.tie };
}

void queue_touch(struct broker *broker, unsigned slot) {
    slots_add(&broker->dirty, slot);
    broker->is_queue_due = true;
}

void queue_touch_all(struct broker *broker) {
    for (unsigned i = 0; i < broker->n_books; i++)
        slots_add(&broker->dirty, i);
    broker->is_queue_due = true;
}

/* Bytes of a device changed hands: a waiter that only the banker's rule stops may be served now. */
void queue_note_bankers(struct broker *broker) {
    broker->is_bankers_due = true;
    broker->is_queue_due |= (broker->growths && broker->growths->any[MARKS] & MARK_UNSAFE) ||
                            (broker->requests && broker->requests->any[MARKS] & MARK_UNSAFE);
}

/* The user has less than before, and so has the device: one of its waiters may be served now. */
void queue_note_freed(struct broker *broker, struct user *user) {
    broker->is_deadlock_due = true;
    queue_unpark_user(broker, user);
}

void queue_refresh(struct broker *broker, struct waiter *waiter) {
    if (!waiter->is_active)
        return;
    waiter->in_queue.marks[MARKS] |= MARK_FRESH;
    rank_tree_mark(&waiter->in_queue);
    broker->is_queue_due = true;
}

static void activate(struct broker *broker, struct waiter *waiter, bool is_fresh) {
    struct rank_tree_node *node = &waiter->in_queue;

    memset(node->marks, 0, sizeof(node->marks));
    if (waiter->holder) {
        unsigned slot = waiter->holder->lease->shares[waiter->share].book->slot;

        node->marks[slot / 64] = UINT64_C(1) << slot % 64;
        node->size = 0; /* it may be within the guarantee by now */
        broker->n_growths_at[slot]++;
    } else {
        memcpy(node->marks, waiter->claim->slots.words, sizeof(waiter->claim->slots.words));
        node->size = UINT64_MAX;
        for (uint32_t i = 0; i < waiter->claim->n_options; i++)
            node->size = MIN(node->size, waiter->claim->options[i].guaranteed_bytes);
    }
    waiter->is_active = true;
    broker->is_bankers_due = true; /* what it reserves may move another waiter to other devices */
    rank_tree_mark(node);
    if (is_fresh)
        queue_refresh(broker, waiter);
}

/* What it reserved is available now, if that is enough for some waiter. */
static void deactivate(struct broker *broker, struct waiter *waiter) {
    struct rank_tree_node *node = &waiter->in_queue;
    struct queue_place at = queue_place_of(waiter);

    list_remove(&waiter->in_parked);
    list_remove(&waiter->in_recalls);
    if (!waiter->is_active)
        return;
    if (waiter->holder)
        broker->n_growths_at[waiter->holder->lease->shares[waiter->share].book->slot]--;
    for (unsigned i = 0; i < broker->n_books; i++) {
        const struct room_bound *bound = &broker->bound[i];

        if ((node->marks[i / 64] >> i % 64 & 1) &&
            (!queue_place_before(bound->place, at) ||
             bound->room_bytes >=
                 (broker->n_growths_at[i] > 0 ? BOOKS_GRANULE : rank_tree_least(broker->requests))))
            queue_touch(broker, i);
    }
    memset(node->marks, 0, sizeof(node->marks));
    waiter->is_active = false;
    rank_tree_mark(node);
}

/* ---- Waiters -----------------------------------------------------------------------------------
 */

int64_t queue_key(const struct broker *broker, uint64_t since_usec, int32_t priority) {
    uint64_t age = MIN(broker->policy->age_usec, AGE_MAX);

    return (int64_t)since_usec - priority * (int64_t)age;
}

/* Waiters behind have other places now: timers.c tells them. */
static void places_changed(struct broker *broker) {
    if (broker->waiters.n == 0)
        return;
    broker->is_moved = true;
    if (broker->next_sweep_usec == UINT64_MAX) {
        broker->next_sweep_usec = broker->now_usec + SWEEP_USEC;
        broker->sweep_at = 0;
    } else if (broker->sweep_at > 0) {
        broker->is_sweep_late = true;
    }
}

static int enter(struct broker *broker, struct waiter *waiter) {
    int r;

    waiter->in_queue.key = queue_key(broker, waiter->since_usec, waiter->priority);
    waiter->in_queue.tie = waiter->arrival;
    r = map_put(&broker->waiters, waiter->id, waiter);
    if (r < 0)
        return r;
    rank_tree_insert(waiter->holder ? &broker->growths : &broker->requests, &waiter->in_queue);
    if (waiter->why == WHY_RECALL)
        list_append(&broker->recalls, &waiter->in_recalls);
    else if (waiter->why == WHY_HEALTH)
        list_append(&broker->asleep, &waiter->in_parked);
    else
        activate(broker, waiter, true);
    list_append(&waiter->proc->waiters, &waiter->in_proc);
    list_append(&waiter->user->waiters, &waiter->in_user);
    proc_note_hold_wait(broker, waiter->proc, false);
    waiter->user->n_waiting++;
    reservation_begin(broker, waiter);
    if (waiter->holder)
        waiter->holder->lease->n_growths++;
    if (waiter->timeout_usec) {
        waiter->in_timeouts.key = (int64_t)MIN(waiter->timeout_usec, (uint64_t)INT64_MAX);
        waiter->in_timeouts.tie = waiter->arrival;
        rank_tree_insert(&broker->timeouts, &waiter->in_timeouts);
    }
    if (rank_tree_next(&waiter->in_queue) || (waiter->holder && broker->requests))
        places_changed(broker);
    broker->is_deadlock_due = true;
    return 0;
}

void queue_rejoin(struct broker *broker, struct waiter *waiter) {
    list_remove(&waiter->in_recalls);
    waiter->why = WHY_DEVICE;
    activate(broker, waiter, true);
    broker->is_deadlock_due = true;
}

void queue_leave(struct broker *broker, struct waiter *waiter) {
    if (waiter->in_queue.n > 0) {
        if (waiter->is_recorded)
            emit_waiter_gone(broker, waiter->id);
        map_take(&broker->waiters, waiter->id);
        deactivate(broker, waiter);
        rank_tree_remove(waiter->holder ? &broker->growths : &broker->requests, &waiter->in_queue);
        rank_tree_remove(&broker->timeouts, &waiter->in_timeouts);
        list_remove(&waiter->in_proc);
        list_remove(&waiter->in_user);
        waiter->user->n_waiting--;
        if (waiter->holder)
            waiter->holder->lease->n_growths--;
        places_changed(broker);
    }
    proc_put(broker, waiter->proc);
    user_put(broker, waiter->user);
    free(waiter->request);
    free(waiter->claim);
    free(waiter);
}

void queue_reorder(struct broker *broker, struct waiter *waiter, int32_t priority) {
    struct rank_tree_node **root = waiter->holder ? &broker->growths : &broker->requests;
    bool was_active = waiter->is_active;

    if (was_active)
        deactivate(broker, waiter);
    waiter->priority = priority;
    rank_tree_remove(root, &waiter->in_queue);
    waiter->in_queue.key = queue_key(broker, waiter->since_usec, priority);
    rank_tree_insert(root, &waiter->in_queue);
    if (was_active)
        activate(broker, waiter, true);
    if (waiter->is_recorded)
        emit_waiter(broker, waiter);
    places_changed(broker);
}

uint32_t queue_position(const struct broker *broker, const struct waiter *waiter) {
    uint32_t ahead = waiter->holder ? 0 : rank_tree_count(broker->growths);

    return ahead + rank_tree_rank(&waiter->in_queue) + 1;
}

bool queue_answer(struct broker *broker, struct waiter *waiter, const struct verdict *verdict) {
    const bool is_asking = waiter->is_asking;

    if (!is_asking && broker->sink.decided)
        broker->sink.decided(broker->sink.userdata, waiter->cookie, verdict);
    if (verdict->kind == VERDICT_DENY) /* of a grant, grant.c has told */
        emit_verdict(broker, waiter->user, waiter->proc->process.pid, waiter->holder != NULL,
                     verdict, broker->now_usec - waiter->since_usec);
    queue_leave(broker, waiter);
    return is_asking;
}

void queue_deny(struct broker *broker, struct waiter *waiter, enum refusal refusal,
                const struct book *book, const char *format, ...) {
    struct verdict verdict;
    va_list args;

    assert(!waiter->is_asking);
    va_start(args, format);
    verdict_refuse_va(&verdict, refusal, book, format, args);
    va_end(args);
    if (refusal == REFUSAL_TIMEOUT)
        verdict.place = queue_position(broker, waiter);
    queue_answer(broker, waiter, &verdict);
}

/* It may not wait: what it would wait for is why it is refused. */
static void refuse_wait(const struct broker *broker, const struct waiter *waiter,
                        struct verdict *ret) {
    static const enum refusal refusals[] = {
        [WHY_DEVICE] = REFUSAL_NO_MEMORY, [WHY_BEHIND] = REFUSAL_NO_MEMORY,
        [WHY_UNSAFE] = REFUSAL_NO_MEMORY, [WHY_QUOTA] = REFUSAL_DENIED,
        [WHY_HOURS] = REFUSAL_DENIED,     [WHY_HEALTH] = REFUSAL_DRAINING,
        [WHY_RECALL] = REFUSAL_NO_MEMORY, [WHY_GRACE] = REFUSAL_BUSY,
    };
    char reason[VERDICT_REASON_SIZE];

    acquire_reason(broker, waiter, reason, sizeof(reason));
    verdict_refuse(ret, refusals[waiter->why],
                   waiter->blocked >= 0 ? broker->books[waiter->blocked] : NULL, "%s", reason);
}

int queue_submit(struct broker *broker, struct waiter *waiter, struct moment now,
                 struct verdict *ret) {
    int r;

    waiter->is_asking = true;
    r = enter(broker, waiter);
    if (r < 0) {
        queue_leave(broker, waiter);
        return r;
    }
    ret->kind = VERDICT_WAIT;
    if (waiter->why != WHY_RECALL) {
        schedule_run(broker, now, ret);
        if (ret->kind == VERDICT_WAIT && broker_is_deadlock_due(broker) &&
            (waiter->holder || !waiter->no_wait))
            deadlock_resolve(broker, ret);
    }
    if (ret->kind != VERDICT_WAIT)
        return 0;
    if (waiter->no_wait && waiter->why != WHY_RECALL) {
        refuse_wait(broker, waiter, ret);
        queue_answer(broker, waiter, ret);
        return 0;
    }
    waiter->is_asking = false;
    waiter->is_recorded = true;
    emit_waiter(broker, waiter);
    ret->waiter = waiter->id;
    ret->place = waiter->told_place = queue_position(broker, waiter);
    waiter->told_why = waiter->why;
    acquire_reason(broker, waiter, ret->reason, sizeof(ret->reason));
    if (waiter->why != WHY_RECALL)
        emit_verdict(broker, waiter->user, waiter->proc->process.pid, waiter->holder != NULL, ret,
                     0);
    return 0;
}

void queue_park(struct broker *broker, struct waiter *waiter) {
    deactivate(broker, waiter);
    list_append(waiter->why == WHY_QUOTA ? &waiter->user->parked : &broker->asleep,
                &waiter->in_parked);
    broker->has_parked = true;
}

static void unpark(struct broker *broker, struct list *list) {
    struct waiter *waiter, *next;

    list_foreach_safe (waiter, next, list, in_parked) {
        if (waiter->why == WHY_HEALTH)
            continue;
        list_remove(&waiter->in_parked);
        activate(broker, waiter, true);
    }
}

void queue_unpark_user(struct broker *broker, struct user *user) {
    struct waiter *waiter;

    unpark(broker, &user->parked);
    /* The quota may have allowed one device too few for it, and the others were full. */
    if (user->rules.quota_devices == UINT32_MAX)
        return;
    list_foreach (waiter, &user->waiters, in_user) {
        queue_refresh(broker, waiter);
    }
}

void queue_settle_user(struct broker *broker, struct user *user) {
    struct moment now = { broker->now_usec, broker->week_minute };
    const struct policy_rules *rules = &user->rules;
    struct waiter *waiter, *next;

    if (user->n_leases < rules->max_leases && rules->quota_bytes == UNITS_FOREVER &&
        rules->quota_permyriad >= 10000 && rules->quota_devices == UINT32_MAX)
        return;
    list_foreach_safe (waiter, next, &user->waiters, in_user) {
        struct growth_fit growth;
        struct fit fit;

        if (!waiter->is_active)
            continue;
        if (waiter->holder) {
            growth_fit(broker, waiter->holder, waiter->share, waiter->bytes, 0, &growth);
            if (growth.is_over_limit || growth.is_spent || growth.fits || growth.why != WHY_QUOTA)
                continue;
        } else if (fit_is_permitted(broker, user, waiter->claim, now, &fit)) {
            continue;
        }
        waiter->why = waiter->holder ? WHY_QUOTA : fit.why;
        queue_park(broker, waiter);
    }
}

void queue_wake(struct broker *broker) {
    unpark(broker, &broker->asleep);
}

int queue_review(struct broker *broker) {
    struct rank_tree_node *node = rank_tree_first(broker->requests), *next;
    bool is_told = true;
    int result = 0;

    queue_touch_all(broker);
    for (; node; node = next) {
        struct waiter *waiter = rank_tree_entry(node, struct waiter, in_queue);
        struct verdict verdict;
        struct claim *claim = NULL;
        int r;

        next = rank_tree_next(node);
        r = request_claim_new(&claim, &verdict, broker->books, broker->n_books,
                              &waiter->user->rules, waiter->request);
        if (r == -ENOMEM) {
            result = r;
            continue;
        }
        if (r < 0 && !verdict_may_pass(&verdict)) {
            queue_answer(broker, waiter, &verdict);
            continue;
        }
        deactivate(broker, waiter);
        free(waiter->claim);
        waiter->claim = claim;
        if (claim) {
            waiter->why = waiter->why == WHY_GRACE ? WHY_GRACE : WHY_DEVICE;
            activate(broker, waiter, false);
            continue;
        }
        if (waiter->why != WHY_HEALTH || strcmp(waiter->trouble, verdict.reason) != 0) {
            waiter->told_place = 0; /* tell the waiter, whatever its place */
            is_told = false;
        }
        waiter->why = WHY_HEALTH;
        snprintf(waiter->trouble, sizeof(waiter->trouble), "%s", verdict.reason);
        list_append(&broker->asleep, &waiter->in_parked);
    }
    if (!is_told)
        places_changed(broker);
    return result;
}
