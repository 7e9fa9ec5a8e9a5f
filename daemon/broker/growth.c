/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Grow, shrink and recall.
 *
 * Growth within the guarantee was paid for at admission: it never waits, not even in the grace
 * time. Beyond that it goes before every new lease, behind growth that came first on the same
 * device. Growth that the lease's own limit stops can only be helped by the lease's other
 * processes: those that hold credits are asked to give back, and the one that asked waits for their
 * answers, outside the queue.
 */
#include "daemon/broker/internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* By how much the process's own sum rises: NVML may show more than it declared already. */
static uint64_t part_rise(const struct part *part, uint64_t bytes) {
    uint64_t declared;

    if (__builtin_add_overflow(part->declared_bytes, bytes, &declared))
        return UINT64_MAX;
    return declared > lease_part_held(part) ? declared - lease_part_held(part) : 0;
}

static bool is_over_limit(const struct share *share, uint64_t rise) {
    return rise > share->limit_bytes || share->held_bytes > share->limit_bytes - rise;
}

/*
 * Whether bytes of the lease's own former processes are still releasing on a device that has none
 * to spare: then the guaranteed bytes are still in use, and would be promised twice.
 */
static bool is_haunted(const struct broker *broker, const struct lease *lease,
                       const struct book *book) {
    const struct releasing *releasing;

    if (books_overcommitted_bytes(book) == 0)
        return false;
    list_foreach (releasing, &broker->releasing, in_broker) {
        for (uint32_t i = 0; i < releasing->n_parts && releasing->lease == lease->id; i++)
            if (releasing->parts[i].book == book && releasing->parts[i].bytes > 0)
                return true;
    }
    return false;
}

void growth_fit(struct broker *broker, const struct holder *holder, unsigned i, uint64_t bytes,
                uint64_t free_bytes, struct growth_fit *ret) {
    const struct lease *lease = holder->lease;
    const struct share *share = &lease->shares[i];
    const struct user *user = lease->user;
    const struct policy_rules *rules = &user->rules;
    uint64_t rise = part_rise(&holder->parts[i], bytes);

    *ret = (struct growth_fit){ .is_over_limit = is_over_limit(share, rise) };
    if (ret->is_over_limit)
        return;
    ret->rise_bytes = books_rise(share, rise);
    if (ret->rise_bytes == 0) {
        ret->fits = !is_haunted(broker, lease, share->book);
        ret->why = WHY_DEVICE;
        return;
    }
    if (user_is_spent(user)) {
        ret->is_spent = true;
        return;
    }
    if (user->charged_bytes > rules->quota_bytes ||
        ret->rise_bytes > rules->quota_bytes - user->charged_bytes ||
        !fit_quota_leaves(user, share->book, ret->rise_bytes))
        ret->why = WHY_QUOTA;
    else if (ret->rise_bytes > free_bytes)
        ret->why = ret->rise_bytes <= books_free_bytes(share->book) ? WHY_BEHIND : WHY_DEVICE;
    else if (lease->declares_max && !bankers_keeps(broker, lease, i, ret->rise_bytes))
        ret->why = WHY_UNSAFE;
    else
        ret->fits = true;
}

uint64_t growth_rise(const struct waiter *waiter) {
    return books_rise(&waiter->holder->lease->shares[waiter->share],
                      part_rise(&waiter->holder->parts[waiter->share], waiter->bytes));
}

/* ---- Recall ------------------------------------------------------------------------------------
 */

static bool has_recalled(const struct lease *lease, unsigned i) {
    const struct holder *holder;

    list_foreach (holder, &lease->holders, in_lease) {
        if (holder->parts[i].is_recalled)
            return true;
    }
    return false;
}

/* Ask the other processes for `bytes`; false: there is none to ask. */
static bool recall(struct broker *broker, const struct holder *from, unsigned i, uint64_t bytes) {
    const struct lease *lease = from->lease;
    struct notice notice = {
        .kind = NOTICE_RECALL,
        .device = &lease->shares[i].book->device.seen.id,
        .bytes = bytes,
        .text = "another process of this lease needs memory that you hold; give back what you can",
    };
    struct holder *holder;
    bool asked = false;

    list_foreach (holder, &lease->holders, in_lease) {
        if (holder == from || !holder->is_attached || !holder->credits ||
            holder->parts[i].declared_bytes == 0)
            continue;
        asked = true;
        if (holder->parts[i].is_recalled)
            continue;
        holder->parts[i].is_recalled = true;
        if (broker->sink.notice)
            broker->sink.notice(broker->sink.userdata, holder, &notice);
    }
    return asked;
}

/* Whether the other processes hold so much that the growth would fit the limit without it. */
static bool siblings_could_help(const struct holder *holder, unsigned i, uint64_t bytes) {
    const struct share *share = &holder->lease->shares[i];
    uint64_t own = lease_part_held(&holder->parts[i]), after;

    return !__builtin_add_overflow(own, part_rise(&holder->parts[i], bytes), &after) &&
           after <= share->limit_bytes;
}

static void deny_over_limit(struct broker *broker, struct waiter *waiter) {
    const struct lease *lease = waiter->holder->lease;
    const struct share *share = &lease->shares[waiter->share];
    char a[UNITS_TEXT_SIZE], b[UNITS_TEXT_SIZE], c[UNITS_TEXT_SIZE];

    queue_deny(broker, waiter, REFUSAL_NO_MEMORY, share->book,
               "%s more would exceed the limit of lease %llu on %s: its processes hold %s of %s, "
               "and could give nothing back",
               units_format_bytes(waiter->bytes, a), (unsigned long long)lease->id,
               share->book->name, units_format_bytes(share->held_bytes, b),
               units_format_bytes(share->limit_bytes, c));
}

void growth_retry_siblings(struct broker *broker, struct lease *lease, unsigned i) {
    struct holder *holder;
    struct waiter *waiter, *next;
    bool waits_on = has_recalled(lease, i);

    if (lease->is_ending)
        return;
    list_foreach (holder, &lease->holders, in_lease) {
        list_foreach_safe (waiter, next, &holder->proc->waiters, in_proc) {
            struct share *share = &lease->shares[i];
            uint64_t rise;
            struct verdict verdict;

            if (waiter->holder != holder || waiter->share != i)
                continue;
            rise = part_rise(&holder->parts[i], waiter->bytes);
            if (is_over_limit(share, rise)) {
                /* A waiter that still waits for answers, or may wait for the other processes,
                 * stays. */
                if (waiter->why == WHY_RECALL && waiter->no_wait && !waits_on)
                    deny_over_limit(broker, waiter);
                continue;
            }
            if (books_rise(share, rise) == 0) {
                if (is_haunted(broker, lease, share->book))
                    continue;
                grant_growth(broker, holder, i, waiter->bytes, waiter, &verdict);
                queue_answer(broker, waiter, &verdict);
            } else if (waiter->why == WHY_RECALL) {
                queue_rejoin(broker, waiter);
            }
        }
    }
}

/* ---- Calls -------------------------------------------------------------------------------------
 */

__attribute__((format(printf, 6, 7))) static void refuse(struct broker *broker,
                                                         const struct holder *holder,
                                                         struct verdict *ret, enum refusal refusal,
                                                         const struct book *book,
                                                         const char *format, ...) {
    va_list args;

    va_start(args, format);
    verdict_refuse_va(ret, refusal, book, format, args);
    va_end(args);
    if (holder)
        emit_verdict(broker, holder->lease->user, holder->process.pid, true, ret, 0);
}

/* To the queue, or to its siblings. */
static int wait_for(struct broker *broker, struct holder *holder, unsigned i,
                    const struct broker_growth *growth, uint64_t bytes, enum wait_reason why,
                    void *cookie, struct moment now, struct verdict *ret) {
    const struct policy_rules *rules = &holder->lease->user->rules;
    uint64_t longest = MIN(growth->timeout_usec, rules->grow_wait_usec);
    const struct share *share = &holder->lease->shares[i];
    struct waiter *waiter;
    char text[UNITS_TEXT_SIZE];
    int r;

    if (holder->lease->user->n_waiting >= rules->max_waiting) {
        refuse(broker, holder, ret, REFUSAL_BUSY, share->book,
               "you already have %u requests in the queue and may have no more: cancel one, or "
               "wait until one is granted",
               holder->lease->user->n_waiting);
        return 0;
    }
    waiter = calloc(1, sizeof(*waiter));
    if (!waiter)
        return -ENOMEM;
    waiter->proc = holder->proc;
    waiter->user = holder->lease->user;
    waiter->holder = holder;
    waiter->share = i;
    waiter->bytes = bytes;
    waiter->cookie = cookie;
    waiter->no_wait = !growth->wait;
    waiter->priority = lease_priority(holder->lease, broker->policy);
    waiter->why = why;
    waiter->blocked = (int)share->book->slot;
    snprintf(waiter->name, sizeof(waiter->name), "%s", holder->lease->name);
    snprintf(waiter->asked, sizeof(waiter->asked), "%s more on %s", units_format_bytes(bytes, text),
             share->book->name);
    request_growth_digest(holder->lease->id, &share->book->device.seen.id, bytes, waiter->digest);
    if (!acquire_recovered_place(broker, waiter)) {
        waiter->id = broker->next_waiter++;
        waiter->arrival = broker->next_arrival++;
        waiter->since_usec = now.usec;
        if (why == WHY_RECALL && waiter->no_wait)
            longest = broker->policy->recall_usec;
        if (longest != UNITS_FOREVER)
            waiter->timeout_usec = now.usec + longest < now.usec ? UINT64_MAX : now.usec + longest;
    }

    r = queue_submit(broker, waiter, now, ret);
    if (r == 0 && why == WHY_RECALL)
        recall(broker, holder, i, share->held_bytes + bytes - share->limit_bytes);
    return r;
}

int broker_grow(struct broker *broker, const struct process_id *process,
                const struct broker_growth *growth, void *cookie, struct moment now,
                struct verdict *ret) {
    struct holder *holder = broker_holder(broker, process, growth->lease);
    uint64_t bytes = books_round_up(growth->bytes);
    struct growth_fit fit;
    struct share *share;
    unsigned i;
    char a[UNITS_TEXT_SIZE], b[UNITS_TEXT_SIZE], c[UNITS_TEXT_SIZE];

    broker->now_usec = now.usec;
    if (!holder || !holder->is_attached) {
        refuse(broker, NULL, ret, REFUSAL_NOT_FOUND, NULL,
               "this process holds no lease %llu; attach first", (unsigned long long)growth->lease);
        return 0;
    }
    share = lease_share(holder->lease, &growth->device, &i);
    if (!share) {
        refuse(broker, holder, ret, REFUSAL_NO_DEVICE, NULL,
               "lease %llu has no such device; it was granted others",
               (unsigned long long)holder->lease->id);
        return 0;
    }
    if (bytes == 0) {
        ret->kind = VERDICT_GRANT;
        ret->lease = holder->lease->id;
        ret->held_bytes = share->held_bytes;
        ret->limit_bytes = share->limit_bytes;
        ret->reason[0] = '\0';
        return 0;
    }
    if (holder->lease->is_ending) {
        refuse(broker, holder, ret, REFUSAL_DENIED, share->book, "lease %llu ends: %s",
               (unsigned long long)holder->lease->id, holder->lease->reason);
        return 0;
    }

    growth_fit(broker, holder, i, bytes, books_free_bytes(share->book), &fit);
    if (fit.is_over_limit) {
        const struct holder *sibling;
        bool has_credits = false;

        list_foreach (sibling, &holder->lease->holders, in_lease) {
            has_credits |= sibling != holder && sibling->is_attached && sibling->credits &&
                           sibling->parts[i].declared_bytes > 0;
        }
        if (siblings_could_help(holder, i, bytes) && (has_credits || growth->wait))
            return wait_for(broker, holder, i, growth, bytes, WHY_RECALL, cookie, now, ret);
        refuse(broker, holder, ret, REFUSAL_NO_MEMORY, share->book,
               "%s more would exceed the limit of lease %llu on %s: it holds %s of %s",
               units_format_bytes(bytes, a), (unsigned long long)holder->lease->id,
               share->book->name, units_format_bytes(share->held_bytes, b),
               units_format_bytes(share->limit_bytes, c));
        return 0;
    }
    if (fit.is_spent) {
        refuse(broker, holder, ret, REFUSAL_DENIED, share->book,
               "your GiB·hours are used up; they come back as their period passes");
        return 0;
    }
    /* It is within the guarantee, or no waiter comes first. */
    if (fit.fits && (fit.rise_bytes == 0 ||
                     (!broker->grace_usec && broker->n_growths_at[share->book->slot] == 0 &&
                      share->book->device.state != DEVICE_LOST))) {
        grant_growth(broker, holder, i, bytes, NULL, ret);
        return 0;
    }
    if (share->book->device.state == DEVICE_LOST && !broker->grace_usec) {
        refuse(broker, holder, ret, REFUSAL_NO_DEVICE, share->book, "%s is lost: %s",
               share->book->name, share->book->device.reason);
        return 0;
    }
    return wait_for(broker, holder, i, growth, bytes, broker->grace_usec ? WHY_GRACE : WHY_DEVICE,
                    cookie, now, ret);
}

void broker_shrink(struct broker *broker, const struct process_id *process, uint64_t id,
                   const struct gpuid *device, uint64_t bytes, struct moment now,
                   struct verdict *ret) {
    struct holder *holder = broker_holder(broker, process, id);
    struct share *share;
    struct part *part;
    unsigned i;
    char a[UNITS_TEXT_SIZE], b[UNITS_TEXT_SIZE];

    broker->now_usec = now.usec;
    if (!holder || !holder->is_attached) {
        refuse(broker, NULL, ret, REFUSAL_NOT_FOUND, NULL,
               "this process holds no lease %llu; attach first", (unsigned long long)id);
        return;
    }
    share = lease_share(holder->lease, device, &i);
    if (!share) {
        refuse(broker, holder, ret, REFUSAL_NO_DEVICE, NULL,
               "lease %llu has no such device; it was granted others",
               (unsigned long long)holder->lease->id);
        return;
    }
    part = &holder->parts[i];
    bytes = books_round_down(bytes);
    if (bytes > part->declared_bytes) {
        refuse(broker, holder, ret, REFUSAL_DENIED, share->book,
               "%s are more than this process declared on %s (%s)", units_format_bytes(bytes, a),
               share->book->name, units_format_bytes(part->declared_bytes, b));
        return;
    }
    part->is_recalled = false;
    if (bytes > 0) {
        holder_set(broker, holder, i, part->declared_bytes - bytes, part->seen_bytes);
        emit_holder(broker, holder);
    }
    if (holder->lease->n_growths > 0)
        growth_retry_siblings(broker, holder->lease, i);
    ret->kind = VERDICT_GRANT;
    ret->lease = holder->lease->id;
    ret->held_bytes = share->held_bytes;
    ret->limit_bytes = share->limit_bytes;
    ret->reason[0] = '\0';
}
