/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A round of the scheduler: which waiters are served.
 *
 * The rule. The queue is walked in its order. A waiter that fits is served; one that does not
 * keeps, on every device that it could use, what it asks for. A waiter behind it may take of a
 * device
 *
 *     what is free beyond all that those before it keep there: then they have theirs; or
 *     as much as the backfill room (daemon/broker/queue/backfill.h), where it asks for a
 *     fixed amount: then no waiter before it is served later than without it.
 *
 * On each device that holds for the first PASSED_MAX waiters; behind them none may pass.
 *
 * The rounds. Nothing becomes possible on a device unless bytes come back there or a waiter that
 * kept some leaves: such devices are dirty. A round only looks at the waiters that could use a
 * dirty device, and at fresh ones; all others wait as they did. The queue finds them by their marks
 * without meeting those in between (base/rank_tree.h), so that a long queue costs what a short one
 * does:
 *
 *     dirty: 3    queue: a(0,1) b(3) c(2) d(2,3) …     looks at b, d, … until device 3 is closed
 *
 * To judge d it must know what is left of device 2 for it: those before it there (c) are counted
 * when they are needed, device by device. When a waiter is served, its devices join the dirty ones,
 * from its place on. What a round finds on a device is kept: behind `place`, no waiter finds more
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

/* A device, as the waiter whose turn it is finds it. */
struct slot_state {
    struct queue_place upto; /* waiters up to here are counted; if open: all before the turn */
    uint64_t kept_bytes;
    uint64_t largest_bytes;
    uint64_t backfill_bytes;
    bool has_backfill; /* it is computed */
    bool is_closed;
    bool is_told; /* `bound` says what is to be kept of this round */
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
    bool is_unsettled;     /* something changed before the turn: begin anew */
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
    /* No state has more to spare than the empty device. */
    beside = book->usable_bytes - MIN(book->usable_bytes, slot_state->largest_bytes);
    return MAX(left - MIN(left, slot_state->kept_bytes), MIN(left, beside));
}

static void slot_state_keep(struct broker *broker, struct slot_state *slot_state, unsigned slot,
                            uint64_t bytes) {
    if (slot_state->is_closed)
        return;
    slot_state->kept_bytes = units_add(slot_state->kept_bytes, bytes);
    slot_state->largest_bytes = MAX(slot_state->largest_bytes, bytes);
    slot_state->needs[slot_state->n_needs++] = bytes;
    slot_state->has_backfill = false;
    slot_state->is_closed = most_room(broker->books[slot], slot_state) < BOOKS_GRANULE;
}

/* What a waiter keeps of a device. */
static uint64_t need_of(const struct waiter *waiter, unsigned slot) {
    if (waiter->holder)
        return growth_rise(waiter);
    for (uint32_t i = 0; i < waiter->claim->n_options; i++)
        if (waiter->claim->options[i].slot == slot)
            return waiter->claim->options[i].guaranteed_bytes;
    return 0;
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
        slot_state_keep(broker, slot_state, slot, need_of(waiter, slot));
        slot_state->upto = queue_place_of(waiter);
        if (slot_state->is_closed)
            return;
        waiter = next_behind(broker, waiter, marks);
    }
}

static bool is_known_closed(const struct broker *broker, const struct schedule *schedule,
                            unsigned slot, struct queue_place place, uint64_t bytes) {
    return !slots_has(&broker->dirty, slot) && !slots_has(&schedule->mine, slot) &&
           bytes > broker->bound[slot].room_bytes &&
           queue_place_before(broker->bound[slot].place, place);
}

/*
 * What a waiter at `place` that wants `option` finds of it. Where that is less than it wants, the
 * number is not exact: it does not matter then.
 */
static uint64_t room_for(struct broker *broker, struct schedule *schedule,
                         const struct option *option, struct queue_place place) {
    const struct book *book = broker->books[option->slot];
    uint64_t wanted = option->guaranteed_bytes, left = books_free_bytes(book), beyond;
    struct slot_state *slot_state;

    if (left < wanted || is_known_closed(broker, schedule, option->slot, place, wanted))
        return 0;
    slot_state_advance(broker, schedule, option->slot, place);
    slot_state = &schedule->slot_states[option->slot];
    if (slot_state->is_closed)
        return 0;
    beyond = left - MIN(left, slot_state->kept_bytes);
    /* A lease that may grow later grows before the waiters. */
    if (beyond >= wanted || option->limit_bytes > wanted || most_room(book, slot_state) < wanted)
        return beyond;
    if (!slot_state->has_backfill) {
        slot_state->backfill_bytes =
            books_backfill_bytes(book, slot_state->needs, slot_state->n_needs);
        slot_state->has_backfill = true;
    }
    return MAX(beyond, MIN(left, slot_state->backfill_bytes));
}

/* ---- The turn of one -------------------------------------------------------------------------
 */

/* Of an open device: no waiter behind finds enough for what any asks for. */
static void close_slot(struct broker *broker, struct schedule *schedule, unsigned slot) {
    struct slot_state *slot_state = &schedule->slot_states[slot];

    slot_state->upto = schedule->at;
    slot_state->is_told = true;
    slot_state->bound.place = schedule->at;
    slot_state->bound.room_bytes =
        slot_state->is_closed ? 0 : most_room(broker->books[slot], slot_state);
    slots_remove(&schedule->open, slot);
}

/* Less than this is of no use to any waiter that could come now. */
static uint64_t least_of_use(const struct broker *broker, const struct schedule *schedule,
                             unsigned slot) {
    if (!schedule->at.is_request && broker->n_growths_at[slot] > 0)
        return BOOKS_GRANULE;
    return MAX(rank_tree_least(broker->requests), BOOKS_GRANULE);
}

/* All before the turn are counted there. */
static void open_slot(struct broker *broker, struct schedule *schedule, unsigned slot) {
    struct slot_state *slot_state = slot_state_get(schedule, slot);

    slots_add(&schedule->mine, slot);
    slots_add(&schedule->open, slot);
    slot_state->is_closed |= most_room(broker->books[slot], slot_state) < BOOKS_GRANULE;
    if (slot_state->is_closed ||
        most_room(broker->books[slot], slot_state) < least_of_use(broker, schedule, slot))
        close_slot(broker, schedule, slot);
}

/* It does not fit: it keeps what it asks for. */
static void keep(struct broker *broker, struct schedule *schedule, struct waiter *waiter) {
    for (size_t w = 0; w < ELEMENTSOF(schedule->open.words); w++) {
        uint64_t both = waiter->in_queue.marks[w] & schedule->open.words[w];

        for (; both; both &= both - 1) {
            unsigned slot = (unsigned)(w * 64) + (unsigned)__builtin_ctzll(both);
            struct slot_state *slot_state = &schedule->slot_states[slot];

            slot_state_keep(broker, slot_state, slot, need_of(waiter, slot));
            if (slot_state->is_closed ||
                most_room(broker->books[slot], slot_state) < least_of_use(broker, schedule, slot))
                close_slot(broker, schedule, slot);
        }
    }
}

/* Its devices, once it was served or denied: what it kept is there for those behind it. */
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

static void grant(struct broker *broker, struct schedule *schedule, struct waiter *waiter,
                  const struct fit *fit) {
    struct user *user = waiter->user->n_waiting > 1 ? waiter->user : NULL;
    struct slots slots = waiter->claim->slots;
    struct verdict verdict;

    if (acquire_grant(broker, waiter, fit, &verdict) < 0) {
        queue_deny(broker, waiter, REFUSAL_BUSY, NULL, "the daemon is out of memory");
    } else {
        for (uint32_t i = 0; i < fit->n_chosen; i++)
            queue_touch(broker, fit->chosen[i]->slot);
        queue_answer(broker, waiter, &verdict);
    }
    join_slots(broker, schedule, &slots);
    settle(broker, schedule, user);
}

static void set_why(struct broker *broker, struct waiter *waiter, enum why why, int blocked) {
    broker->is_moved |= waiter->why != why;
    waiter->why = why;
    waiter->blocked = blocked;
    if (why == WHY_UNSAFE) {
        waiter->in_queue.marks[MARKS] |= MARK_UNSAFE;
        rank_tree_mark(&waiter->in_queue);
    }
}

/* Whether something that changed could help it: else it waits on, unjudged. */
static bool could_be_met(struct broker *broker, struct schedule *schedule,
                         const struct waiter *waiter) {
    const struct claim *claim = waiter->claim;

    for (uint32_t i = 0; i < claim->n_options; i++)
        if (slots_has(&schedule->open, claim->options[i].slot) &&
            room_for(broker, schedule, &claim->options[i], schedule->at) >=
                claim->options[i].guaranteed_bytes)
            return true;
    return false;
}

/* Whether it waits on. */
static bool judge_request(struct broker *broker, struct schedule *schedule, struct waiter *waiter,
                          bool is_special) {
    const struct claim *claim = waiter->claim;
    struct slots slots = claim->slots;
    uint64_t left[BOOKS_MAX];
    uint32_t n_fit = 0;
    struct fit fit;

    if (!is_special && !broker->has_spending && !could_be_met(broker, schedule, waiter)) {
        keep(broker, schedule, waiter);
        return true;
    }
    for (uint32_t i = 0; i < claim->n_options; i++) {
        unsigned slot = claim->options[i].slot;

        left[slot] = room_for(broker, schedule, &claim->options[i], schedule->at);
        n_fit += left[slot] >= claim->options[i].guaranteed_bytes;
    }
    if (n_fit < claim->n_wanted && !is_special && !broker->has_spending) {
        keep(broker, schedule, waiter);
        return true;
    }
    fit_decide(broker, waiter->user, claim, left, schedule->now, &fit);
    if (fit.is_spent) {
        queue_deny(broker, waiter, REFUSAL_DENIED, NULL,
                   "your GiB·hours are used up; they come back as their period passes");
        join_slots(broker, schedule, &slots);
        return false;
    }
    if (fit.n_chosen > 0) {
        grant(broker, schedule, waiter, &fit);
        return false;
    }
    if (fit.why >= WHY_QUOTA) {
        set_why(broker, waiter, fit.why, fit.blocked);
        queue_park(broker, waiter);
        join_slots(broker, schedule, &slots);
    } else {
        n_fit = 0;
        /* For the reason only: is it memory that is short, or the others that come first? */
        for (uint32_t i = 0; i < claim->n_options; i++)
            n_fit += books_free_bytes(broker->books[claim->options[i].slot]) >=
                     claim->options[i].guaranteed_bytes;
        if (fit.why == WHY_DEVICE && n_fit >= claim->n_wanted)
            fit.why = WHY_BEHIND;
        set_why(broker, waiter, fit.why, fit.blocked);
        keep(broker, schedule, waiter);
    }
    return true;
}

static bool judge_growth(struct broker *broker, struct schedule *schedule, struct waiter *waiter) {
    struct holder *holder = waiter->holder;
    struct user *user = waiter->user->n_waiting > 1 ? waiter->user : NULL;
    struct book *book = holder->lease->shares[waiter->share].book;
    uint64_t left = books_free_bytes(book);
    struct slots slots = { 0 };
    bool is_waiting = false;
    const struct slot_state *slot_state;
    struct growth_fit fit;
    struct verdict verdict;

    slots_add(&slots, book->slot);
    slot_state_advance(broker, schedule, book->slot, schedule->at);
    slot_state = &schedule->slot_states[book->slot];
    left = slot_state->is_closed ? 0 : left - MIN(left, slot_state->kept_bytes);
    growth_fit(broker, holder, waiter->share, waiter->bytes, left, &fit);
    if (fit.is_spent) {
        queue_deny(broker, waiter, REFUSAL_DENIED, book,
                   "your GiB·hours are used up; they come back as their period passes");
    } else if (fit.is_over_limit) {
        queue_deny(broker, waiter, REFUSAL_NO_MEMORY, book,
                   "the other processes of lease %llu took the rest of its limit meanwhile",
                   (unsigned long long)holder->lease->id);
    } else if (fit.fits) {
        growth_take(broker, holder, waiter->share, waiter->bytes, &verdict);
        queue_answer(broker, waiter, &verdict);
        queue_touch(broker, book->slot);
        join_slots(broker, schedule, &slots);
        settle(broker, schedule, user);
        return false;
    } else {
        set_why(broker, waiter, fit.why, (int)book->slot);
        if (fit.why != WHY_QUOTA) {
            keep(broker, schedule, waiter);
            return true;
        }
        queue_park(broker, waiter);
        is_waiting = true;
    }
    join_slots(broker, schedule, &slots);
    return is_waiting;
}

/* ---- Processes that have and want ------------------------------------------------------------
 */

/* What a process has of a device: it alone decides when that becomes free. */
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

/* Whether a waiter cannot be met before the process gives back what it has. */
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
        for (unsigned slot = 0; slot < broker->n_books; slot++)
            if (other->in_queue.marks[slot / 64] >> slot % 64 & 1)
                ret_left[slot] -= MIN(ret_left[slot], need_of(other, slot));
    }
    return true;
}

/* Those in front of `first` go behind all others. */
static void hold_wait_begin_with(struct broker *broker, struct proc *first) {
    struct list *link;

    while ((link = broker->hold_wait.next) != &first->in_hold_wait) {
        list_remove(link);
        list_append(&broker->hold_wait, link);
    }
}

/* Whether this round brought anything for it. */
static bool is_concerned(const struct broker *broker, const struct schedule *schedule,
                         const struct waiter *waiter) {
    uint64_t both = 0;

    if (!waiter->is_active || waiter->holder)
        return false;
    for (size_t i = 0; i < ELEMENTSOF(schedule->mine.words); i++)
        both |= waiter->in_queue.marks[i] & schedule->mine.words[i];
    return both || waiter->round == broker->n_rounds;
}

/*
 * A process that has a lease and waits for another, behind a waiter that needs the first: neither
 * would ever move. Passing cannot delay the one in front, because it cannot start before this
 * process ends anyway. Rare, so a few are looked at in each round: two of a process, and the next
 * round begins with those that this one left out, so that the requests of one process do not hide
 * another's.
 */
static void serve_hold_wait(struct broker *broker, struct schedule *schedule) {
    struct proc *proc, *next_proc;
    struct waiter *waiter, *next;
    uint64_t left[BOOKS_MAX];
    unsigned n = 0;
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
            grant(broker, schedule, waiter, &fit);
            schedule->is_unsettled = true;
            return;
        }
    }
}

/* ---- The round -------------------------------------------------------------------------------
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

/* One walk; whether another is needed. */
static bool walk(struct broker *broker, struct schedule *schedule) {
    uint64_t marks[RANK_TREE_WORDS];
    struct waiter *waiter = NULL;

    begin(broker, schedule);
    while (!schedule->is_unsettled) {
        bool is_waiting;
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
            waiter->round = broker->n_rounds;
            waiter->in_queue.marks[MARKS] &= ~flags;
            rank_tree_mark(&waiter->in_queue);
        }
        is_waiting = waiter->holder ? judge_growth(broker, schedule, waiter)
                                    : judge_request(broker, schedule, waiter, flags != 0);
        if (!is_waiting)
            waiter = NULL;
    }
    if (!schedule->is_unsettled)
        broker->is_bankers_due = false;
    if (!schedule->is_unsettled && !list_is_empty(&broker->hold_wait))
        serve_hold_wait(broker, schedule);
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

void schedule_run(struct broker *broker, struct moment now) {
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
    broker->n_rounds++;
    while (walk(broker, schedule))
        continue;
    /* What the rounds themselves set free they have seen. */
    broker->is_queue_due = false;
}

void schedule_left(struct broker *broker, int64_t key, const struct claim *claim,
                   uint64_t ret_left[static BOOKS_MAX]) {
    struct queue_place place = { true, key, UINT64_MAX };
    struct schedule *schedule = broker->schedule;

    memset(&schedule->open, 0, sizeof(schedule->open));
    memset(&schedule->mine, 0, sizeof(schedule->mine));
    memset(&schedule->begun, 0, sizeof(schedule->begun));
    for (uint32_t i = 0; i < claim->n_options; i++)
        ret_left[claim->options[i].slot] = room_for(broker, schedule, &claim->options[i], place);
}
