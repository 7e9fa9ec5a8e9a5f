/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One scheduling cycle: which waiters are served.
 *
 * The rule. The queue is walked in order. A waiter that fits is served; one that does not fit
 * reserves what it asks for on every device that it could use (reservation.c says where and for how
 * long). A waiter behind it may take from a device
 *
 *     what is free beyond all that the waiters before it reserve there; or
 *     as much as the backfill room (daemon/broker/queue/backfill.h), if it asks for a
 *     fixed amount: then no waiter before it is served later than without it.
 *
 * On each device that applies to the first PASSED_MAX waiters; none may pass behind them.
 *
 * The cycles. Nothing becomes possible on a device unless bytes come back there or a waiter that
 * reserved some leaves: such devices are dirty. A cycle only considers the waiters that could use a
 * dirty device, and fresh ones; all others go on waiting. The queue finds them by their marks
 * without visiting those in between (base/rank_tree.h), so that a long queue costs no more than a
 * short one:
 *
 *     dirty: 3    queue: a(0,1) b(3) c(2) d(2,3) …     considers b, d, … until device 3 is closed
 *
 * To judge d it must know what is left for it on device 2: those before it there (c) are counted
 * when they are needed, device by device. When a waiter is served, its devices become dirty from
 * its place on. The cycle keeps what it finds on a device: behind `place`, no waiter finds more
 * than `room_bytes` there, until it is dirty again.
 */
#include "daemon/broker/internal.h"

#include <stdlib.h>
#include <string.h>

#define PASSED_MAX     8
#define AHEAD_MAX      256
#define HOLD_WAIT_MAX  64
#define HOLD_WAIT_EACH 2

static const struct queue_place queue_begin = { false, INT64_MIN, 0 };
static const struct queue_place queue_end = { true, INT64_MAX, UINT64_MAX };

/* A device from the view of the waiter whose turn it is. */
struct slot_state {
    struct queue_place upto; /* waiters up to here are counted; if open, all before the current
                                one */
    uint64_t kept_bytes;
    uint64_t largest_bytes;
    uint64_t backfill_bytes;
    bool has_backfill; /* it is computed */
    bool is_closed;
    bool is_told; /* `bound` says what is to be kept of this cycle */
    struct room_bound bound;
    uint32_t n_needs;
    uint64_t needs[PASSED_MAX];
};

struct schedule {
    struct moment now;
    struct queue_place at; /* whose turn it is */
    struct slots open;     /* dirty devices of which something may be left */
    struct slots mine;     /* all that were */
    struct slots begun;    /* whose slot_state is set */
    bool is_unsettled;     /* something changed before the current place: start again */
    struct slot_state slot_states[BOOKS_MAX];
};

struct schedule *schedule_new(void) {
    return calloc(1, sizeof(struct schedule));
}

/* ---- Devices ----------------------------------------------------------------------------------
 */

static struct slot_state *slot_state_get(struct schedule *schedule, unsigned slot) {
    struct slot_state *slot_state = &schedule->slot_states[slot];

    if (slots_has(&schedule->begun, slot))
        return slot_state;
    slots_add(&schedule->begun, slot);
    slot_state->upto = queue_begin;
    slot_state->kept_bytes = slot_state->largest_bytes = 0;
    slot_state->has_backfill = slot_state->is_closed = slot_state->is_told = false;
    slot_state->n_needs = 0;
    return slot_state;
}

/* No waiter from here on finds more than this. */
static uint64_t most_room(const struct book *book, const struct slot_state *slot_state) {
    uint64_t left = books_free_bytes(book), beside;

    if (slot_state->n_needs == PASSED_MAX)
        return 0;
    /* No state can spare more than the empty device. */
    beside = book->usable_bytes - MIN(book->usable_bytes, slot_state->largest_bytes);
    return MAX(left - MIN(left, slot_state->kept_bytes), MIN(left, beside));
}

/* `from`: the user from whose view the device is; NULL: of all other users. */
static void slot_state_keep(struct broker *broker, struct slot_state *slot_state, unsigned slot,
                            const struct waiter *waiter, const struct user *from) {
    uint64_t bytes;

    if (slot_state->is_closed || !reservation_find(broker, waiter, slot, from, &bytes))
        return;
    slot_state->kept_bytes = units_add(slot_state->kept_bytes, bytes);
    slot_state->largest_bytes = MAX(slot_state->largest_bytes, bytes);
    slot_state->needs[slot_state->n_needs++] = bytes;
    slot_state->has_backfill = false;
    slot_state->is_closed = most_room(broker->books[slot], slot_state) < BOOKS_GRANULE;
}

/* The next behind `place` that has one of these marks. */
static struct waiter *next_of(const struct broker *broker, struct queue_place place,
                              const uint64_t *marks) {
    struct rank_tree_node *node = NULL;

    if (!place.is_request) {
        node = rank_tree_seek(broker->growths, place.key, place.tie, marks);
        if (!node)
            place = (struct queue_place){ true, INT64_MIN, 0 };
    }
    if (!node)
        node = rank_tree_seek(broker->requests, place.key, place.tie, marks);
    return rank_tree_entry(node, struct waiter, in_queue);
}

/* The same behind a waiter that is still in the queue. */
static struct waiter *next_behind(const struct broker *broker, struct waiter *waiter,
                                  const uint64_t *marks) {
    struct rank_tree_node *node = rank_tree_seek_after(&waiter->in_queue, marks);

    if (!node && waiter->holder)
        node = rank_tree_seek(broker->requests, INT64_MIN, 0, marks);
    return rank_tree_entry(node, struct waiter, in_queue);
}

/* Count all before `place` on a device. */
static void slot_state_advance(struct broker *broker, struct schedule *schedule, unsigned slot,
                               struct queue_place place) {
    struct slot_state *slot_state = slot_state_get(schedule, slot);
    uint64_t marks[RANK_TREE_WORDS] = { 0 };
    struct waiter *waiter;

    if (slot_state->is_closed || slots_has(&schedule->open, slot))
        return;
    marks[slot / 64] = UINT64_C(1) << slot % 64;
    waiter = next_of(broker, slot_state->upto, marks);
    while (waiter && queue_place_before(queue_place_of(waiter), place)) {
        slot_state_keep(broker, slot_state, slot, waiter, NULL);
        slot_state->upto = queue_place_of(waiter);
        if (slot_state->is_closed)
            return;
        waiter = next_behind(broker, waiter, marks);
    }
}

/*
 * The device as a waiter of this user sees it at `place`, where all before it are counted: with
 * what earlier waiters keep back from their own user alone. `room` is for that view.
 */
static const struct slot_state *view(struct broker *broker, const struct schedule *schedule,
                                     unsigned slot, const struct user *user,
                                     struct queue_place place, struct slot_state *room) {
    const struct slot_state *slot_state = &schedule->slot_states[slot];
    uint64_t marks[RANK_TREE_WORDS] = { 0 };
    struct waiter *waiter;

    if (slot_state->is_closed || !reservation_is_private(broker, user, slot, place))
        return slot_state;
    *room = (struct slot_state){ .upto = place };
    marks[slot / 64] = UINT64_C(1) << slot % 64;
    waiter = next_of(broker, queue_begin, marks);
    while (waiter && !room->is_closed && queue_place_before(queue_place_of(waiter), place)) {
        slot_state_keep(broker, room, slot, waiter, user);
        waiter = next_behind(broker, waiter, marks);
    }
    return room;
}

static bool is_known_closed(const struct broker *broker, const struct schedule *schedule,
                            unsigned slot, struct queue_place place, uint64_t bytes) {
    return !slots_has(&broker->dirty, slot) && !slots_has(&schedule->mine, slot) &&
           bytes > broker->bound[slot].room_bytes &&
           queue_place_before(broker->bound[slot].place, place);
}

/*
 * What a waiter of this user at `place` that wants `option` finds. If that is less than it wants,
 * the number is not exact, because it does not matter then.
 */
static uint64_t room_for(struct broker *broker, struct schedule *schedule, const struct user *user,
                         const struct option *option, struct queue_place place) {
    const struct book *book = broker->books[option->slot];
    uint64_t wanted = option->guaranteed_bytes, left = books_free_bytes(book), beyond;
    struct slot_state *shared, room;
    const struct slot_state *seen;

    if (left < wanted || is_known_closed(broker, schedule, option->slot, place, wanted))
        return 0;
    slot_state_advance(broker, schedule, option->slot, place);
    shared = &schedule->slot_states[option->slot];
    seen = view(broker, schedule, option->slot, user, place, &room);
    if (seen->is_closed)
        return 0;
    beyond = left - MIN(left, seen->kept_bytes);
    /* A lease that may grow later would grow before the waiters. */
    if (beyond >= wanted || option->limit_bytes > wanted || most_room(book, seen) < wanted)
        return beyond;
    if (seen != shared)
        return MAX(beyond, MIN(left, books_backfill_bytes(book, seen->needs, seen->n_needs)));
    if (!shared->has_backfill) {
        shared->backfill_bytes = books_backfill_bytes(book, shared->needs, shared->n_needs);
        shared->has_backfill = true;
    }
    return MAX(beyond, MIN(left, shared->backfill_bytes));
}

/* ---- The turn of one -------------------------------------------------------------------------
 */

/* Close an open device: no waiter behind finds enough there for its request. */
static void close_slot(struct broker *broker, struct schedule *schedule, unsigned slot) {
    struct slot_state *slot_state = &schedule->slot_states[slot];

    slot_state->upto = schedule->at;
    slot_state->is_told = true;
    slot_state->bound.place = schedule->at;
    slot_state->bound.room_bytes =
        slot_state->is_closed ? 0 : most_room(broker->books[slot], slot_state);
    slots_remove(&schedule->open, slot);
}

/* Less than this is of no use to any waiter that may still come. */
static uint64_t least_of_use(const struct broker *broker, const struct schedule *schedule,
                             unsigned slot) {
    if (!schedule->at.is_request && broker->n_growths_at[slot] > 0)
        return BOOKS_GRANULE;
    return MAX(rank_tree_least(broker->requests), BOOKS_GRANULE);
}

/* Open a device: all waiters before the current one are counted there. */
static void open_slot(struct broker *broker, struct schedule *schedule, unsigned slot) {
    struct slot_state *slot_state = slot_state_get(schedule, slot);

    slots_add(&schedule->mine, slot);
    slots_add(&schedule->open, slot);
    slot_state->is_closed |= most_room(broker->books[slot], slot_state) < BOOKS_GRANULE;
    if (slot_state->is_closed ||
        most_room(broker->books[slot], slot_state) < least_of_use(broker, schedule, slot))
        close_slot(broker, schedule, slot);
}

/* The waiter does not fit: it reserves what it asks for. */
static void keep(struct broker *broker, struct schedule *schedule, struct waiter *waiter) {
    for (size_t w = 0; w < ELEMENTSOF(schedule->open.words); w++) {
        uint64_t both = waiter->in_queue.marks[w] & schedule->open.words[w];

        for (; both; both &= both - 1) {
            unsigned slot = (unsigned)(w * 64) + (unsigned)__builtin_ctzll(both);
            struct slot_state *slot_state = &schedule->slot_states[slot];

            slot_state_keep(broker, slot_state, slot, waiter, NULL);
            if (slot_state->is_closed ||
                most_room(broker->books[slot], slot_state) < least_of_use(broker, schedule, slot))
                close_slot(broker, schedule, slot);
        }
    }
}

/* A waiter was served or denied: what it reserved on its devices is available to those behind
 * it. */
static void join_slots(struct broker *broker, struct schedule *schedule,
                       const struct slots *slots) {
    for (int slot = -1; (slot = slots_next(slots, slot)) >= 0;) {
        slot_state_get(schedule, (unsigned)slot)->has_backfill = false;
        if (slots_has(&schedule->open, (unsigned)slot) ||
            (!slots_has(&broker->dirty, (unsigned)slot) &&
             !slots_has(&schedule->mine, (unsigned)slot)))
            continue;
        slot_state_advance(broker, schedule, (unsigned)slot, schedule->at);
        schedule->slot_states[slot].is_told = false;
        open_slot(broker, schedule, (unsigned)slot);
    }
}

/* After a grant: does it change anything for waiters that had their turn already? */
static void settle(struct broker *broker, struct schedule *schedule, struct user *user) {
    uint64_t flags = (broker->growths ? broker->growths->any[MARKS] : 0) |
                     (broker->requests ? broker->requests->any[MARKS] : 0);

    if (user)
        queue_settle_user(broker, user);
    schedule->is_unsettled |= broker->has_parked || (flags & MARK_UNSAFE);
}

static void grant(struct broker *broker, const struct waiter *waiter, const struct fit *fit,
                  struct verdict *ret) {
    if (grant_request(broker, waiter, fit, ret) < 0) {
        verdict_refuse(ret, REFUSAL_BUSY, NULL, "the daemon is out of memory");
        return;
    }
    for (uint32_t i = 0; i < fit->n_chosen; i++)
        queue_touch(broker, fit->chosen[i]->slot);
}

/* It has its verdict: what that means for the others. `ret` is for the one that is asking. */
static void decide(struct broker *broker, struct schedule *schedule, struct waiter *waiter,
                   const struct verdict *verdict, struct verdict *ret) {
    struct user *user = waiter->user->n_waiting > 1 ? waiter->user : NULL;
    struct slots slots = { 0 };

    if (waiter->holder)
        slots_add(&slots, waiter->holder->lease->shares[waiter->share].book->slot);
    else
        slots = waiter->claim->slots;
    if (queue_answer(broker, waiter, verdict))
        *ret = *verdict;
    join_slots(broker, schedule, &slots);
    if (verdict->kind == VERDICT_GRANT)
        settle(broker, schedule, user);
}

static void set_why(struct broker *broker, struct waiter *waiter, enum wait_reason why,
                    int blocked) {
    broker->is_moved |= waiter->why != why;
    waiter->why = why;
    waiter->blocked = blocked;
    if (why == WHY_UNSAFE) {
        waiter->in_queue.marks[MARKS] |= MARK_UNSAFE;
        rank_tree_mark(&waiter->in_queue);
    }
}

/* Whether something that changed could help it; if not, it goes on waiting without being judged. */
static bool could_be_met(struct broker *broker, struct schedule *schedule,
                         const struct waiter *waiter) {
    const struct claim *claim = waiter->claim;

    for (uint32_t i = 0; i < claim->n_options; i++)
        if (slots_has(&schedule->open, claim->options[i].slot) &&
            room_for(broker, schedule, waiter->user, &claim->options[i], schedule->at) >=
                claim->options[i].guaranteed_bytes)
            return true;
    return false;
}

/* `ret` stays VERDICT_WAIT while it goes on waiting. */
static void judge_request(struct broker *broker, struct schedule *schedule, struct waiter *waiter,
                          bool is_special, struct verdict *ret) {
    const struct claim *claim = waiter->claim;
    uint64_t left[BOOKS_MAX];
    uint32_t n_fit = 0;
    struct fit fit;

    if (!is_special && !broker->has_spending && !could_be_met(broker, schedule, waiter)) {
        keep(broker, schedule, waiter);
        return;
    }
    for (uint32_t i = 0; i < claim->n_options; i++) {
        unsigned slot = claim->options[i].slot;

        left[slot] = room_for(broker, schedule, waiter->user, &claim->options[i], schedule->at);
        n_fit += left[slot] >= claim->options[i].guaranteed_bytes;
    }
    if (n_fit < claim->n_wanted && !is_special && !broker->has_spending) {
        keep(broker, schedule, waiter);
        return;
    }
    fit_decide(broker, waiter->user, claim, left, schedule->now, &fit);
    if (fit.is_spent) {
        verdict_refuse(ret, REFUSAL_DENIED, NULL,
                       "your GiB·hours are used up; they come back as their period passes");
    } else if (fit.n_chosen > 0) {
        grant(broker, waiter, &fit, ret);
    } else if (fit.why >= WHY_QUOTA) {
        set_why(broker, waiter, fit.why, fit.blocked);
        queue_park(broker, waiter);
        join_slots(broker, schedule, &claim->slots);
    } else {
        n_fit = 0;
        /* Only for the reason: is memory short, or do others come first? */
        for (uint32_t i = 0; i < claim->n_options; i++)
            n_fit += books_free_bytes(broker->books[claim->options[i].slot]) >=
                     claim->options[i].guaranteed_bytes;
        if (fit.why == WHY_DEVICE && n_fit >= claim->n_wanted)
            fit.why = WHY_BEHIND;
        set_why(broker, waiter, fit.why, fit.blocked);
        keep(broker, schedule, waiter);
    }
}

static void judge_growth(struct broker *broker, struct schedule *schedule, struct waiter *waiter,
                         struct verdict *ret) {
    struct holder *holder = waiter->holder;
    struct book *book = holder->lease->shares[waiter->share].book;
    uint64_t left = books_free_bytes(book);
    struct slots slots = { 0 };
    const struct slot_state *seen;
    struct slot_state room;
    struct growth_fit fit;

    slot_state_advance(broker, schedule, book->slot, schedule->at);
    seen = view(broker, schedule, book->slot, waiter->user, schedule->at, &room);
    left = seen->is_closed ? 0 : left - MIN(left, seen->kept_bytes);
    growth_fit(broker, holder, waiter->share, waiter->bytes, left, &fit);
    if (fit.is_spent) {
        verdict_refuse(ret, REFUSAL_DENIED, book,
                       "your GiB·hours are used up; they come back as their period passes");
    } else if (fit.is_over_limit) {
        verdict_refuse(ret, REFUSAL_NO_MEMORY, book,
                       "the other processes of lease %llu have taken the rest of its limit",
                       (unsigned long long)holder->lease->id);
    } else if (fit.fits) {
        grant_growth(broker, holder, waiter->share, waiter->bytes, waiter, ret);
        queue_touch(broker, book->slot);
    } else {
        set_why(broker, waiter, fit.why, (int)book->slot);
        if (fit.why != WHY_QUOTA) {
            keep(broker, schedule, waiter);
            return;
        }
        queue_park(broker, waiter);
        slots_add(&slots, book->slot);
        join_slots(broker, schedule, &slots);
    }
}

/* ---- Processes that have and want ------------------------------------------------------------
 */

/* What a process has on a device: it alone decides when that becomes free. */
static uint64_t own_charge(const struct proc *proc, unsigned slot) {
    const struct holder *holder;
    const struct lease *lease;
    uint64_t sum = 0;

    list_foreach (holder, &proc->holders, in_proc) {
        for (uint32_t i = 0; i < holder->lease->n_shares; i++)
            if (holder->lease->shares[i].book->slot == slot)
                sum += books_charge(&holder->lease->shares[i]);
    }
    list_foreach (lease, &proc->leases, in_owner) {
        for (uint32_t i = 0; i < lease->n_shares && !holder_find(lease, &proc->process); i++)
            if (lease->shares[i].book->slot == slot)
                sum += books_charge(&lease->shares[i]);
    }
    return sum;
}

/* Whether a waiter cannot be served before the process gives back what it has. */
static bool waits_for(const struct broker *broker, const struct waiter *waiter,
                      const struct proc *proc) {
    uint32_t n = 0;

    for (uint32_t i = 0; i < waiter->claim->n_options; i++) {
        const struct option *option = &waiter->claim->options[i];
        uint64_t usable = broker->books[option->slot]->usable_bytes;
        uint64_t own = own_charge(proc, option->slot);

        n += usable - MIN(usable, own) >= option->guaranteed_bytes;
    }
    return n < waiter->claim->n_wanted;
}

/* What the waiters before it leave, not counting those that wait for what its process has. */
static bool left_by_others(const struct broker *broker, const struct waiter *waiter,
                           uint64_t *ret_left) {
    struct queue_place end = queue_place_of(waiter), at = queue_begin;
    const struct waiter *other;
    uint32_t n = 0;

    for (size_t i = 0; i < broker->n_books; i++)
        ret_left[i] = books_free_bytes(broker->books[i]);
    while ((other = next_of(broker, at, waiter->in_queue.marks))) {
        at = queue_place_of(other);
        if (!queue_place_before(at, end))
            break;
        if (n++ == AHEAD_MAX)
            return false;
        if (!other->holder && waits_for(broker, other, waiter->proc))
            continue;
        for (unsigned slot = 0; slot < broker->n_books; slot++) {
            uint64_t bytes;

            if ((other->in_queue.marks[slot / 64] >> slot % 64 & 1) &&
                reservation_find(broker, other, slot, waiter->user, &bytes))
                ret_left[slot] -= MIN(ret_left[slot], bytes);
        }
    }
    return true;
}

/* Move those in front of `first` behind all others. */
static void hold_wait_begin_with(struct broker *broker, struct proc *first) {
    struct list *link;

    while ((link = broker->hold_wait.next) != &first->in_hold_wait) {
        list_remove(link);
        list_append(&broker->hold_wait, link);
    }
}

/* Whether this cycle changed anything for it. */
static bool is_concerned(const struct broker *broker, const struct schedule *schedule,
                         const struct waiter *waiter) {
    uint64_t both = 0;

    if (!waiter->is_active || waiter->holder)
        return false;
    for (size_t i = 0; i < ELEMENTSOF(schedule->mine.words); i++)
        both |= waiter->in_queue.marks[i] & schedule->mine.words[i];
    return both || waiter->cycle == broker->n_cycles;
}

/*
 * A process that has a lease and waits for another, behind a waiter that needs the first: neither
 * would ever move. Passing cannot delay the one in front, because it cannot start before this
 * process ends anyway. This is rare, so each cycle considers a few: two requests per process. The
 * next cycle begins with those that this one left out, so that the requests of one process do not
 * hide another's.
 */
static void serve_hold_wait(struct broker *broker, struct schedule *schedule, struct verdict *ret) {
    struct proc *proc, *next_proc;
    struct waiter *waiter, *next;
    uint64_t left[BOOKS_MAX];
    unsigned n = 0;
    struct verdict verdict;
    struct fit fit;

    list_foreach_safe (proc, next_proc, &broker->hold_wait, in_hold_wait) {
        unsigned of_this = 0;

        if (n >= HOLD_WAIT_MAX) {
            hold_wait_begin_with(broker, proc);
            return;
        }
        list_foreach_safe (waiter, next, &proc->waiters, in_proc) {
            if (!is_concerned(broker, schedule, waiter))
                continue;
            if (of_this++ == HOLD_WAIT_EACH)
                break;
            n++;
            for (size_t i = 0; i < broker->n_books; i++)
                left[i] = books_free_bytes(broker->books[i]);
            fit_decide(broker, waiter->user, waiter->claim, left, schedule->now, &fit);
            if (fit.n_chosen == 0 || fit.is_spent || !left_by_others(broker, waiter, left))
                continue;
            fit_decide(broker, waiter->user, waiter->claim, left, schedule->now, &fit);
            if (fit.n_chosen == 0)
                continue;
            schedule->at = queue_place_of(waiter);
            grant(broker, waiter, &fit, &verdict);
            decide(broker, schedule, waiter, &verdict, ret);
            schedule->is_unsettled = true;
            return;
        }
    }
}

/* ---- The cycle -------------------------------------------------------------------------------
 */

static void begin(struct broker *broker, struct schedule *schedule) {
    schedule->at = queue_begin;
    schedule->is_unsettled = false;
    memset(&schedule->open, 0, sizeof(schedule->open));
    memset(&schedule->mine, 0, sizeof(schedule->mine));
    memset(&schedule->begun, 0, sizeof(schedule->begun));
    for (int slot = -1; (slot = slots_next(&broker->dirty, slot)) >= 0;)
        open_slot(broker, schedule, (unsigned)slot);
}

/* One walk; true if another is needed. */
static bool walk(struct broker *broker, struct schedule *schedule, struct verdict *ret) {
    uint64_t marks[RANK_TREE_WORDS];
    struct waiter *waiter = NULL;

    begin(broker, schedule);
    while (!schedule->is_unsettled) {
        struct verdict verdict;
        uint64_t flags;

        broker->has_parked = false;
        memcpy(marks, schedule->open.words, sizeof(schedule->open.words));
        marks[MARKS] = MARK_FRESH | (broker->is_bankers_due ? MARK_UNSAFE : 0);
        waiter = waiter ? next_behind(broker, waiter, marks) : next_of(broker, schedule->at, marks);
        if (!waiter)
            break;
        schedule->at = queue_place_of(waiter);
        flags = waiter->in_queue.marks[MARKS] & marks[MARKS];
        if (flags) {
            waiter->cycle = broker->n_cycles;
            waiter->in_queue.marks[MARKS] &= ~flags;
            rank_tree_mark(&waiter->in_queue);
        }
        verdict.kind = VERDICT_WAIT;
        if (waiter->holder)
            judge_growth(broker, schedule, waiter, &verdict);
        else
            judge_request(broker, schedule, waiter, flags != 0, &verdict);
        if (verdict.kind == VERDICT_WAIT)
            continue;
        decide(broker, schedule, waiter, &verdict, ret);
        waiter = NULL;
    }
    if (!schedule->is_unsettled)
        broker->is_bankers_due = false;
    if (!schedule->is_unsettled && !list_is_empty(&broker->hold_wait))
        serve_hold_wait(broker, schedule, ret);
    if (schedule->is_unsettled)
        return true;

    for (int slot = -1; (slot = slots_next(&schedule->mine, slot)) >= 0;) {
        const struct slot_state *slot_state = &schedule->slot_states[slot];

        slots_remove(&broker->dirty, (unsigned)slot);
        broker->bound[slot] =
            slot_state->is_told ? slot_state->bound : (struct room_bound){ queue_end, UINT64_MAX };
    }
    return slots_next(&broker->dirty, -1) >= 0;
}

void schedule_run(struct broker *broker, struct moment now, struct verdict *ret) {
    struct schedule *schedule = broker->schedule;

    if (now.week_minute != broker->week_minute) {
        broker->week_minute = now.week_minute;
        queue_wake(broker);
        if (broker->policy->n_devices > 0)
            queue_touch_all(broker);
    }
    broker->is_queue_due = false;
    if (broker->grace_usec || broker->waiters.n == 0)
        return;
    if (broker->has_spending)
        queue_touch_all(broker);
    schedule->now = now;
    broker->n_cycles++;
    while (walk(broker, schedule, ret))
        continue;
    /* The cycles have already seen what they themselves set free. */
    broker->is_queue_due = false;
}

void schedule_left(struct broker *broker, const struct user *user, int64_t key,
                   const struct claim *claim, uint64_t ret_left[static BOOKS_MAX]) {
    struct queue_place place = { true, key, UINT64_MAX };
    struct schedule *schedule = broker->schedule;

    memset(&schedule->open, 0, sizeof(schedule->open));
    memset(&schedule->mine, 0, sizeof(schedule->mine));
    memset(&schedule->begun, 0, sizeof(schedule->begun));
    for (uint32_t i = 0; i < claim->n_options; i++)
        ret_left[claim->options[i].slot] =
            room_for(broker, schedule, user, &claim->options[i], place);
}
