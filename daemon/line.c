/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is next.
 *
 * The order is fixed when somebody joins. A step of priority is worth `age_usec` of waiting; as
 * everybody ages alike, comparing priority + waited / age at any moment is comparing
 * since - priority × age, which never changes: nothing is sorted again, and who waits long enough
 * is passed by nobody.
 *
 * A run walks the line. Who fits gets; who does not keeps what it asks for on every device that it
 * could use, and those behind see only what is left beyond that: they pass where, and only where,
 * it cannot delay anybody before them. A device whose rest is all kept is closed, and when all are,
 * the run ends. Waiters for the same number of the same devices are of one kind, each kind in an
 * order of its own; a run merges the kinds and drops a kind when its devices are closed, so a long
 * line costs no more than a short one:
 *
 *     kind {0,1}×1   a c e …          run: a, b, c, … until {0,1} and {2} are closed
 *     kind {2}×1     b d f …
 *
 * Of each kind at most UNMET_MAX are looked at past those who were met; what lies behind them on
 * these devices then waits, which is slower than could be but never wrong.
 *
 * Who waits for something that others do not decide (its user's quota, hours, health) is taken out
 * of its kind, so that it keeps nothing back, and keeps its place.
 */
#include "daemon/brokerage.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNMET_MAX   32
#define AHEAD_MAX   256
#define HOOKED_MAX  64
#define HOOKED_EACH 2
#define AGE_MAX     (UINT64_C(1000) * 365 * 24 * 3600 * 1000000) /* a thousand years: never */

/* ---- Kinds -------------------------------------------------------------------------------------
 */

static uint64_t kind_key(const struct kind *like) {
    uint64_t hash = like->is_growth + 2 * (uint64_t)like->n_wanted;

    for (size_t i = 0; i < ELEMENTSOF(like->slots.words); i++) {
        hash = (hash ^ like->slots.words[i]) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 32;
    }
    return hash;
}

static struct kind *kind_get(struct broker *broker, const struct kind *like) {
    struct kind *kind;
    uint64_t key = kind_key(like);

    for (; (kind = map_find(&broker->kinds, key)); key++)
        if (kind->is_growth == like->is_growth && kind->n_wanted == like->n_wanted &&
            memcmp(&kind->slots, &like->slots, sizeof(like->slots)) == 0)
            return kind;

    if (broker->kinds.n >= broker->n_heap_max) {
        size_t n = broker->n_heap_max ? 2 * broker->n_heap_max : 16;
        struct kind **heap = realloc(broker->heap, n * sizeof(struct kind *));

        if (!heap)
            return NULL;
        broker->heap = heap;
        broker->n_heap_max = n;
    }
    kind = malloc(sizeof(*kind));
    if (!kind)
        return NULL;
    *kind = *like;
    kind->key = key;
    if (map_put(&broker->kinds, key, kind) < 0) {
        free(kind);
        return NULL;
    }
    return kind;
}

static void kind_put(struct broker *broker, struct kind *kind) {
    if (kind->root || broker->is_running)
        return;
    map_take(&broker->kinds, kind->key);
    free(kind);
}

static int enter_kind(struct broker *broker, struct waiter *waiter) {
    struct kind like = { .is_growth = waiter->holder != NULL, .n_wanted = 1 }, *kind;
    unsigned slot = 0;

    if (waiter->holder) {
        slot = waiter->holder->lease->shares[waiter->share].book->slot;
        slots_add(&like.slots, slot);
    } else {
        like.slots = waiter->claim->slots;
        like.n_wanted = waiter->claim->n_wanted;
    }
    kind = kind_get(broker, &like);
    if (!kind)
        return -ENOMEM;
    waiter->kind = kind;
    waiter->in_kind.key = waiter->in_line.key;
    waiter->in_kind.tie = waiter->in_line.tie;
    order_insert(&kind->root, &waiter->in_kind);
    if (waiter->holder)
        broker->n_growths_at[slot]++;
    return 0;
}

static void leave_kind(struct broker *broker, struct waiter *waiter) {
    struct kind *kind = waiter->kind;

    list_remove(&waiter->in_parked);
    list_remove(&waiter->in_recalls);
    if (!kind)
        return;
    if (waiter->holder)
        broker->n_growths_at[waiter->holder->lease->shares[waiter->share].book->slot]--;
    order_remove(&kind->root, &waiter->in_kind);
    waiter->kind = NULL;
    kind_put(broker, kind);
}

/* ---- Waiters -----------------------------------------------------------------------------------
 */

int64_t line_key(const struct broker *broker, uint64_t since_usec, int32_t priority) {
    uint64_t age = MIN(broker->policy->age_usec, AGE_MAX);

    return (int64_t)since_usec - priority * (int64_t)age;
}

/* Somebody behind has another place now: to be told, see turn.c. */
static void places_changed(struct broker *broker) {
    broker->is_moved = true;
    if (broker->next_sweep_usec == UINT64_MAX) {
        broker->next_sweep_usec = broker->now_usec + SWEEP_USEC;
        broker->sweep_at = 0;
    } else if (broker->sweep_at > 0) {
        broker->is_sweep_late = true;
    }
}

int waiter_enter(struct broker *broker, struct waiter *waiter) {
    int r;

    waiter->in_line.key = line_key(broker, waiter->since_usec, waiter->priority);
    waiter->in_line.tie = waiter->arrival;
    r = map_put(&broker->waiters, waiter->id, waiter);
    if (r < 0)
        return r;
    if (waiter->why == WHY_RECALL) {
        list_append(&broker->recalls, &waiter->in_recalls);
    } else {
        r = enter_kind(broker, waiter);
        if (r < 0) {
            map_take(&broker->waiters, waiter->id);
            return r;
        }
    }
    order_insert(waiter->holder ? &broker->growths : &broker->requests, &waiter->in_line);
    list_append(&waiter->member->waiters, &waiter->in_member);
    member_hook(broker, waiter->member);
    waiter->tenant->n_waiting++;
    if (waiter->holder)
        waiter->holder->lease->n_growths++;
    if (waiter->timeout_usec)
        broker->next_timeout_usec = MIN(broker->next_timeout_usec, waiter->timeout_usec);
    if (order_next(&waiter->in_line) || (waiter->holder && broker->requests))
        places_changed(broker);
    broker->is_knot_due = true;
    return 0;
}

void waiter_join(struct broker *broker, struct waiter *waiter) {
    if (enter_kind(broker, waiter) < 0)
        return;
    list_remove(&waiter->in_recalls);
    waiter->why = WHY_DEVICE;
    broker->is_stirred = broker->is_knot_due = true;
}

void waiter_free(struct broker *broker, struct waiter *waiter) {
    if (waiter->in_line.n > 0) {
        if (waiter->is_kept)
            keep_waiter_gone(broker, waiter->id);
        map_take(&broker->waiters, waiter->id);
        leave_kind(broker, waiter);
        order_remove(waiter->holder ? &broker->growths : &broker->requests, &waiter->in_line);
        list_remove(&waiter->in_member);
        waiter->tenant->n_waiting--;
        if (waiter->holder)
            waiter->holder->lease->n_growths--;
        broker->is_stirred = true; /* what it kept back may be had */
        places_changed(broker);
    }
    member_put(broker, waiter->member);
    tenant_put(broker, waiter->tenant);
    free(waiter->demand);
    free(waiter->claim);
    free(waiter);
}

void waiter_reorder(struct broker *broker, struct waiter *waiter, int32_t priority) {
    struct order_node **root = waiter->holder ? &broker->growths : &broker->requests;

    waiter->priority = priority;
    order_remove(root, &waiter->in_line);
    waiter->in_line.key = line_key(broker, waiter->since_usec, priority);
    order_insert(root, &waiter->in_line);
    if (waiter->kind) {
        order_remove(&waiter->kind->root, &waiter->in_kind);
        waiter->in_kind.key = waiter->in_line.key;
        order_insert(&waiter->kind->root, &waiter->in_kind);
    }
    if (waiter->is_kept)
        keep_waiter(broker, waiter);
    broker->is_stirred = true;
    places_changed(broker);
}

uint32_t waiter_place(const struct broker *broker, const struct waiter *waiter) {
    uint32_t ahead = waiter->holder ? 0 : order_count(broker->growths);

    return ahead + order_rank(&waiter->in_line) + 1;
}

void waiter_decide(struct broker *broker, struct waiter *waiter, const struct verdict *verdict) {
    uint64_t waited = broker->now_usec - waiter->since_usec;

    if (waiter->answer)
        *waiter->answer = *verdict;
    else if (broker->sink.decided)
        broker->sink.decided(broker->sink.userdata, waiter->cookie, verdict);
    tell_verdict(broker, waiter->tenant, waiter->member->process.pid, waiter->holder != NULL,
                 verdict, waited);
    waiter_free(broker, waiter);
}

void waiter_deny(struct broker *broker, struct waiter *waiter, enum refusal refusal,
                 const struct book *book, const char *format, ...) {
    struct verdict verdict;
    va_list args;

    verdict.kind = VERDICT_DENY;
    verdict.refusal = refusal;
    verdict.place = refusal == REFUSAL_TIMEOUT ? waiter_place(broker, waiter) : 0;
    verdict.n_holders = 0;
    verdict.has_device = book != NULL;
    if (book) {
        verdict.device = book->device.seen.id;
        verdict.free_bytes = book_free(book);
    }
    va_start(args, format);
    vsnprintf(verdict.reason, sizeof(verdict.reason), format, args);
    va_end(args);
    waiter_decide(broker, waiter, &verdict);
}

static void park(struct broker *broker, struct waiter *waiter) {
    leave_kind(broker, waiter);
    list_append(waiter->why == WHY_QUOTA ? &waiter->tenant->parked : &broker->asleep,
                &waiter->in_parked);
}

/* Back into its kind. Without memory it stays where it is, and is tried again. */
static void unpark(struct broker *broker, struct list *list) {
    struct waiter *waiter, *next;

    list_foreach_safe (waiter, next, list, in_parked) {
        if (waiter->why == WHY_HEALTH || enter_kind(broker, waiter) < 0)
            continue;
        list_remove(&waiter->in_parked);
        broker->is_stirred = true;
    }
}

void tenant_unpark(struct broker *broker, struct tenant *tenant) {
    unpark(broker, &tenant->parked);
}

void line_wake(struct broker *broker) {
    unpark(broker, &broker->asleep);
}

int line_review(struct broker *broker) {
    struct order_node *node = order_first(broker->requests), *next;
    int result = 0;

    broker->is_stirred = true;
    for (; node; node = next) {
        struct waiter *waiter = order_entry(node, struct waiter, in_line);
        struct verdict verdict;
        struct claim *claim = NULL;
        int r;

        next = order_next(node);
        r = claim_new(&claim, &verdict, broker->books, broker->n_books, &waiter->tenant->rules,
                      waiter->demand);
        if (r == -ENOMEM) {
            result = r;
            continue;
        }
        if (r < 0 && (verdict.refusal == REFUSAL_DENIED || verdict.refusal == REFUSAL_NO_MEMORY)) {
            waiter_decide(broker, waiter, &verdict);
            continue;
        }
        leave_kind(broker, waiter);
        free(waiter->claim);
        waiter->claim = claim;
        waiter->why = claim ? WHY_DEVICE : WHY_HEALTH;
        if (!claim)
            snprintf(waiter->trouble, sizeof(waiter->trouble), "%s", verdict.reason);
        if (!claim || enter_kind(broker, waiter) < 0)
            list_append(&broker->asleep, &waiter->in_parked);
    }
    return result;
}

/* ---- A run -------------------------------------------------------------------------------------
 */

struct run {
    struct moment now;
    uint64_t free_bytes[BOOKS_MAX];
    uint64_t growth_bytes[BOOKS_MAX]; /* kept for growth */
    uint64_t kept_bytes[BOOKS_MAX];   /* kept in all */
    uint64_t left_bytes[BOOKS_MAX];   /* free - kept, at least 0 */
    struct slots open;                /* of which something is left */
    bool has_unmet;                   /* somebody keeps something */
    bool is_unsettled;                /* somebody who keeps may have come to its quota since */
};

static void run_measure(struct broker *broker, struct run *run, unsigned slot) {
    run->free_bytes[slot] = book_free(broker->books[slot]);
    run->left_bytes[slot] =
        run->free_bytes[slot] - MIN(run->free_bytes[slot], run->kept_bytes[slot]);
    if (run->left_bytes[slot] >= BOOKS_GRANULE)
        slots_add(&run->open, slot);
    else
        slots_remove(&run->open, slot);
}

static void run_keep(struct broker *broker, struct run *run, unsigned slot, uint64_t bytes) {
    if (__builtin_add_overflow(run->kept_bytes[slot], bytes, &run->kept_bytes[slot]))
        run->kept_bytes[slot] = UINT64_MAX;
    run_measure(broker, run, slot);
}

static bool is_open(const struct kind *kind, const struct run *run) {
    uint64_t any = 0;

    for (size_t i = 0; i < ELEMENTSOF(run->open.words); i++)
        any |= kind->slots.words[i] & run->open.words[i];
    return any != 0;
}

static bool comes_before(const struct kind *a, const struct kind *b) {
    if (a->is_growth != b->is_growth)
        return a->is_growth;
    return a->next->key != b->next->key ? a->next->key < b->next->key : a->next->tie < b->next->tie;
}

static void sift_down(struct kind **heap, size_t n, size_t at) {
    for (;;) {
        size_t least = at, child = 2 * at + 1;

        for (size_t i = child; i < child + 2 && i < n; i++)
            if (comes_before(heap[i], heap[least]))
                least = i;
        if (least == at)
            return;
        struct kind *kind = heap[at];
        heap[at] = heap[least];
        heap[least] = kind;
        at = least;
    }
}

/* What a process has of a device: it alone decides when that becomes free. */
static uint64_t own_charge(const struct member *member, unsigned slot) {
    const struct holder *holder;
    const struct lease *lease;
    uint64_t sum = 0;

    list_foreach (holder, &member->holders, in_member) {
        for (uint32_t i = 0; i < holder->lease->n_shares; i++)
            if (holder->lease->shares[i].book->slot == slot)
                sum += share_charge(&holder->lease->shares[i]);
    }
    list_foreach (lease, &member->leases, in_owner) {
        for (uint32_t i = 0; i < lease->n_shares && !holder_find(lease, &member->process); i++)
            if (lease->shares[i].book->slot == slot)
                sum += share_charge(&lease->shares[i]);
    }
    return sum;
}

/* Whether a waiter cannot be met before the process gives back what it has. */
static bool waits_for(const struct broker *broker, const struct waiter *waiter,
                      const struct member *member) {
    uint32_t n = 0;

    for (uint32_t i = 0; i < waiter->claim->n_options; i++) {
        const struct option *option = &waiter->claim->options[i];
        uint64_t usable = broker->books[option->slot]->usable_bytes;
        uint64_t own = own_charge(member, option->slot);

        n += usable - MIN(usable, own) >= option->guaranteed_bytes;
    }
    return n < waiter->claim->n_wanted;
}

/* What those before the waiter keep, but for those who wait for what its process has. */
static bool kept_by_others(const struct broker *broker, const struct run *run,
                           const struct waiter *waiter, uint64_t *kept) {
    uint32_t n = 0;

    memcpy(kept, run->growth_bytes, sizeof(run->growth_bytes));
    for (struct order_node *node = order_first(broker->requests); node != &waiter->in_line;
         node = order_next(node)) {
        const struct waiter *other = order_entry(node, struct waiter, in_line);

        if (!other->kind)
            continue;
        if (n++ == AHEAD_MAX)
            return false;
        if (waits_for(broker, other, waiter->member))
            continue;
        for (uint32_t i = 0; i < other->claim->n_options; i++) {
            const struct option *option = &other->claim->options[i];

            if (__builtin_add_overflow(kept[option->slot], option->guaranteed_bytes,
                                       &kept[option->slot]))
                kept[option->slot] = UINT64_MAX;
        }
    }
    return true;
}

static void run_grant(struct broker *broker, struct run *run, struct waiter *waiter,
                      const struct fit *fit) {
    struct verdict verdict;
    uint8_t slots[BOOKS_SHARES_MAX];
    uint32_t n = fit->n_chosen;
    bool waits_more = waiter->tenant->n_waiting > 1;

    for (uint32_t i = 0; i < n; i++)
        slots[i] = fit->chosen[i]->slot;
    if (lease_grant(broker, waiter, fit, &verdict) < 0) {
        waiter_deny(broker, waiter, REFUSAL_BUSY, NULL, "the daemon is out of memory");
        return;
    }
    waiter_decide(broker, waiter, &verdict);
    run->is_unsettled |= run->has_unmet && waits_more;
    for (uint32_t i = 0; i < n; i++)
        run_measure(broker, run, slots[i]);
}

/* Those in front of `first` go behind all others. */
static void hooked_begin_with(struct broker *broker, struct member *first) {
    struct list *link;

    while ((link = broker->hooked.next) != &first->in_hooked) {
        list_remove(link);
        list_append(&broker->hooked, link);
    }
}

/*
 * A process that has a lease and waits for another, behind somebody who waits for the first:
 * neither would ever move. Passing cannot delay the one in front, because it cannot start before
 * this process ends anyway. Rare, so a few are looked at in each run: two of a process, and the
 * next run begins with those that this one left out, so that nobody's requests hide another's.
 */
static void run_hooked(struct broker *broker, struct run *run) {
    struct member *member, *next_member;
    struct waiter *waiter, *next;
    uint64_t kept[BOOKS_MAX], left[BOOKS_MAX];
    unsigned n = 0;
    struct fit fit;

    list_foreach_safe (member, next_member, &broker->hooked, in_hooked) {
        unsigned of_this = 0;

        if (n >= HOOKED_MAX) {
            hooked_begin_with(broker, member);
            return;
        }
        list_foreach_safe (waiter, next, &member->waiters, in_member) {
            if (!waiter->kind || waiter->holder)
                continue;
            if (of_this++ == HOOKED_EACH)
                break;
            n++;
            claim_fit(broker, waiter->tenant, waiter->claim, run->free_bytes, run->now, &fit);
            if (fit.n_chosen == 0 || fit.is_spent || !kept_by_others(broker, run, waiter, kept))
                continue;
            for (size_t i = 0; i < broker->n_books; i++)
                left[i] = run->free_bytes[i] - MIN(run->free_bytes[i], kept[i]);
            claim_fit(broker, waiter->tenant, waiter->claim, left, run->now, &fit);
            if (fit.n_chosen > 0)
                run_grant(broker, run, waiter, &fit);
        }
    }
}

static void run_request(struct broker *broker, struct run *run, struct waiter *waiter) {
    struct fit fit;

    claim_fit(broker, waiter->tenant, waiter->claim, run->left_bytes, run->now, &fit);
    if (fit.is_spent) {
        waiter_deny(broker, waiter, REFUSAL_DENIED, NULL,
                    "your GiB·hours are used up; they come back as their period passes");
        return;
    }
    if (fit.n_chosen > 0) {
        run_grant(broker, run, waiter, &fit);
        return;
    }

    waiter->why = fit.why;
    waiter->blocked = fit.blocked;
    broker->has_unsafe |= fit.why == WHY_UNSAFE;
    if (fit.why >= WHY_QUOTA) {
        park(broker, waiter);
        return;
    }
    if (fit.why == WHY_DEVICE) {
        struct fit raw;

        /* For the reason only: is it memory that is short, or the others that come first? */
        if (run->has_unmet) {
            claim_fit(broker, waiter->tenant, waiter->claim, run->free_bytes, run->now, &raw);
            if (raw.n_chosen > 0)
                waiter->why = WHY_BEHIND;
        }
    }
    for (uint32_t i = 0; i < waiter->claim->n_options; i++)
        run_keep(broker, run, waiter->claim->options[i].slot,
                 waiter->claim->options[i].guaranteed_bytes);
    run->has_unmet = true;
    waiter->kind->n_unmet++;
}

static void run_growth(struct broker *broker, struct run *run, struct waiter *waiter) {
    struct holder *holder = waiter->holder;
    struct book *book = holder->lease->shares[waiter->share].book;
    struct growth_fit fit;
    struct verdict verdict;
    bool waits_more = waiter->tenant->n_waiting > 1;

    growth_fit(broker, holder, waiter->share, waiter->bytes, run->left_bytes[book->slot], &fit);
    if (fit.is_spent) {
        waiter_deny(broker, waiter, REFUSAL_DENIED, book,
                    "your GiB·hours are used up; they come back as their period passes");
        return;
    }
    if (fit.is_over_limit) {
        waiter_deny(broker, waiter, REFUSAL_NO_MEMORY, book,
                    "the other processes of lease %llu took the rest of its limit meanwhile",
                    (unsigned long long)holder->lease->id);
        return;
    }
    if (fit.fits) {
        growth_take(broker, holder, waiter->share, waiter->bytes, &verdict);
        waiter_decide(broker, waiter, &verdict);
        run->is_unsettled |= run->has_unmet && waits_more;
        run_measure(broker, run, book->slot);
        return;
    }
    waiter->why = fit.why;
    waiter->blocked = (int)book->slot;
    if (fit.why == WHY_QUOTA) {
        park(broker, waiter);
        return;
    }
    run_keep(broker, run, book->slot, fit.rise_bytes);
    if (__builtin_add_overflow(run->growth_bytes[book->slot], fit.rise_bytes,
                               &run->growth_bytes[book->slot]))
        run->growth_bytes[book->slot] = UINT64_MAX;
    run->has_unmet = true;
    waiter->kind->n_unmet++;
}

void line_left(struct broker *broker, int64_t key, uint64_t ret_left[static BOOKS_MAX]) {
    struct run run = { 0 };
    struct kind *kind;

    for (size_t i = 0; i < broker->n_books; i++)
        run_measure(broker, &run, (unsigned)i);
    for (size_t pos = 0; (kind = map_next(&broker->kinds, &pos));) {
        struct order_node *node = order_first(kind->root);

        for (uint32_t n = 0; node && is_open(kind, &run); node = order_next(node), n++) {
            struct waiter *waiter = order_entry(node, struct waiter, in_kind);

            if (!kind->is_growth && node->key > key)
                break;
            if (n == UNMET_MAX)
                for (int slot = -1; (slot = slots_next(&kind->slots, slot)) >= 0;)
                    run_keep(broker, &run, (unsigned)slot, UINT64_MAX);
            else if (kind->is_growth)
                run_keep(broker, &run, (unsigned)slots_next(&kind->slots, -1), waiter->bytes);
            else
                for (uint32_t i = 0; i < waiter->claim->n_options; i++)
                    run_keep(broker, &run, waiter->claim->options[i].slot,
                             waiter->claim->options[i].guaranteed_bytes);
        }
    }
    memcpy(ret_left, run.left_bytes, sizeof(run.left_bytes));
}

/* One walk; whether another is needed. */
static bool walk(struct broker *broker, struct moment now) {
    struct kind *kind, **heap = broker->heap;
    struct run run = { .now = now };
    size_t n = 0;

    for (size_t i = 0; i < broker->n_books; i++)
        run_measure(broker, &run, (unsigned)i);

    for (size_t pos = 0; (kind = map_next(&broker->kinds, &pos));) {
        kind->next = order_first(kind->root);
        kind->n_unmet = 0;
        if (kind->next && is_open(kind, &run))
            heap[n++] = kind;
    }
    for (size_t i = n / 2; i-- > 0;)
        sift_down(heap, n, i);

    while (n > 0 && !run.is_unsettled) {
        struct waiter *waiter = order_entry(heap[0]->next, struct waiter, in_kind);

        kind = heap[0];
        kind->next = order_next(kind->next);
        if (is_open(kind, &run)) {
            if (kind->is_growth)
                run_growth(broker, &run, waiter);
            else
                run_request(broker, &run, waiter);
            if (kind->n_unmet >= UNMET_MAX && kind->next)
                for (int slot = -1; (slot = slots_next(&kind->slots, slot)) >= 0;) {
                    run_keep(broker, &run, (unsigned)slot, UINT64_MAX);
                    if (kind->is_growth)
                        run.growth_bytes[slot] = UINT64_MAX;
                }
        } else {
            kind->next = NULL;
        }
        if (!kind->next)
            heap[0] = heap[--n];
        sift_down(heap, n, 0);
    }
    if (!run.is_unsettled && !list_is_empty(&broker->hooked))
        run_hooked(broker, &run);
    return run.is_unsettled;
}

void line_run(struct broker *broker, struct moment now) {
    struct kind *kind;

    if (now.week_minute != broker->week_minute) {
        broker->week_minute = now.week_minute;
        line_wake(broker);
    }
    broker->is_stirred = false;
    if (broker->grace_usec || broker->kinds.n == 0)
        return;

    /* Who was served may have used up the quota of its user, who then keeps nothing any more. */
    broker->is_running = broker->is_moved = true;
    broker->has_unsafe = false;
    while (walk(broker, now))
        continue;
    broker->is_running = false;
    for (size_t pos = 0; (kind = map_next(&broker->kinds, &pos));)
        kind_put(broker, kind);
    /* What the run itself set free (denials) it has seen; places changed all the same. */
    broker->is_stirred = false;
}
