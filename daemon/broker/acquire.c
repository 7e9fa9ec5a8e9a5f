/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request becomes a waiter, or is refused.
 *
 * Every request that is not denied outright joins the queue, even one that is served at once: the
 * queue decides, and there is no second set of rules for the first in it. Explaining is the same up
 * to the point where something would change.
 */
#include "daemon/broker/internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Reasons -----------------------------------------------------------------------------------
 */

static void reason_device(const struct broker *broker, const struct waiter *waiter, char *text,
                          size_t size) {
    const struct claim *claim = waiter->claim;
    const struct option *best = NULL;
    uint32_t n_fit = 0;
    char a[UNITS_TEXT_SIZE], b[UNITS_TEXT_SIZE];

    for (uint32_t i = 0; i < claim->n_options; i++) {
        const struct option *option = &claim->options[i];
        uint64_t left = books_free_bytes(broker->books[option->slot]);

        if (left >= option->guaranteed_bytes)
            n_fit++;
        else if (!best || left > books_free_bytes(broker->books[best->slot]))
            best = option;
    }
    if (!best || n_fit >= claim->n_wanted) {
        snprintf(text, size, "enough is free, but earlier requests come first");
        return;
    }
    units_format_bytes(best->guaranteed_bytes, a);
    units_format_bytes(books_free_bytes(broker->books[best->slot]), b);
    if (claim->is_named || claim->n_options == 1)
        snprintf(text, size, "needs %s on %s, where %s is free", a, broker->books[best->slot]->name,
                 b);
    else if (claim->n_wanted == 1)
        snprintf(text, size, "needs %s on one of %u devices; %s has most free, %s", a,
                 claim->n_options, broker->books[best->slot]->name, b);
    else
        snprintf(text, size,
                 "needs %s on each of %u devices, but %u of %u %s that much free; %s has %s", a,
                 claim->n_wanted, n_fit, claim->n_options, n_fit == 1 ? "has" : "have",
                 broker->books[best->slot]->name, b);
}

/* The device on which the user has too much for this request; -1: no device stands in its way. */
static int over_share(const struct broker *broker, const struct waiter *waiter) {
    const struct user *user = waiter->user;
    uint32_t n_left = 0;
    int over = -1;

    if (user->rules.quota_permyriad >= 10000)
        return -1;
    if (waiter->holder) {
        const struct book *book = waiter->holder->lease->shares[waiter->share].book;

        return fit_quota_leaves(user, book, growth_rise(waiter)) ? -1 : (int)book->slot;
    }
    for (uint32_t i = 0; i < waiter->claim->n_options; i++) {
        const struct option *option = &waiter->claim->options[i];

        if (fit_quota_leaves(user, broker->books[option->slot], option->guaranteed_bytes))
            n_left++;
        else if (over < 0)
            over = option->slot;
    }
    return n_left < waiter->claim->n_wanted ? over : -1;
}

/* The user's rule that stops it; if several do, the one that fit.c and growth.c check first. */
static void reason_quota(const struct broker *broker, const struct waiter *waiter, char *text,
                         size_t size) {
    const struct user *user = waiter->user;
    const struct policy_rules *rules = &user->rules;
    char a[UNITS_TEXT_SIZE], b[UNITS_TEXT_SIZE];
    bool is_over_bytes =
        waiter->holder && (user->charged_bytes > rules->quota_bytes ||
                           growth_rise(waiter) > rules->quota_bytes - user->charged_bytes);
    int over = is_over_bytes ? -1 : over_share(broker, waiter);

    if (over >= 0)
        snprintf(text, size,
                 "you have %s of %s and may have %s of each device; this request starts when your "
                 "jobs there give enough back",
                 units_format_bytes(user->slot_bytes[over], a), broker->books[over]->name,
                 units_format_permyriad(rules->quota_permyriad, b));
    else if (!waiter->holder && user->n_leases >= rules->max_leases)
        snprintf(text, size,
                 "you have %u leases of at most %u; this request starts when one of them ends",
                 user->n_leases, rules->max_leases);
    else if (!waiter->holder && !fit_quota_reaches(user, waiter->claim))
        snprintf(text, size,
                 "you use %u devices of at most %u; this request starts when one of your other "
                 "jobs ends",
                 user->n_slots, rules->quota_devices);
    else
        snprintf(
            text, size,
            "you use %s of your quota of %s; this request starts when your jobs give enough back",
            units_format_bytes(user->charged_bytes, a), units_format_bytes(rules->quota_bytes, b));
}

void acquire_reason(const struct broker *broker, const struct waiter *waiter, char *text,
                    size_t size) {
    char a[UNITS_TEXT_SIZE], b[UNITS_TEXT_SIZE];

    switch (waiter->why) {
    case WHY_DEVICE:
    case WHY_BEHIND:
        if (waiter->holder) {
            const struct book *book = waiter->holder->lease->shares[waiter->share].book;

            snprintf(text, size, "needs %s more on %s, where %s is free%s",
                     units_format_bytes(waiter->bytes, a), book->name,
                     units_format_bytes(books_free_bytes(book), b),
                     waiter->why == WHY_BEHIND ? " and other growth comes first" : "");
        } else if (waiter->why == WHY_BEHIND) {
            snprintf(text, size, "enough is free, but it is kept for earlier requests");
        } else {
            reason_device(broker, waiter, text, size);
        }
        return;
    case WHY_UNSAFE:
        snprintf(text, size,
                 "enough is free, but the running jobs could then no longer all reach the maximum "
                 "that they declared; it is granted when one of them gives memory back");
        return;
    case WHY_QUOTA:
        reason_quota(broker, waiter, text, size);
        return;
    case WHY_HOURS:
        snprintf(text, size, "%s is reserved for others at this hour",
                 waiter->blocked >= 0 ? broker->books[waiter->blocked]->name : "the device");
        return;
    case WHY_HEALTH:
        snprintf(text, size, "%s", waiter->trouble);
        return;
    case WHY_RECALL:
        snprintf(text, size,
                 "the lease's limit is reached; the daemon asks its other processes to give memory "
                 "back");
        return;
    case WHY_GRACE:
        snprintf(text, size, "the daemon has just started and waits for running jobs to come back");
        return;
    }
}

/* ---- Requests ----------------------------------------------------------------------------------
 */

int acquire_judge(const struct broker *broker, const struct user *user,
                  const struct request *request, struct claim **ret_claim, struct verdict *ret) {
    const struct policy_rules *rules = &user->rules;
    int r;

    if (request->has_priority && request->priority > rules->priority_max) {
        verdict_refuse(ret, REFUSAL_DENIED, NULL,
                       "priority %d is above %d, the highest that you may ask for",
                       request->priority, rules->priority_max);
        return -EPERM;
    }
    if (request->has_priority && request->priority < -POLICY_PRIORITY_MAX) {
        verdict_refuse(ret, REFUSAL_DENIED, NULL, "the lowest priority is %d",
                       -POLICY_PRIORITY_MAX);
        return -EPERM;
    }
    if (request->time_limit_usec == 0) {
        verdict_refuse(ret, REFUSAL_DENIED, NULL,
                       "a lease with a time limit of 0 would end before it begins");
        return -EPERM;
    }
    r = request_claim_new(ret_claim, ret, broker->books, broker->n_books, rules, request);
    if (r < 0)
        return r;
    if (user_is_spent(user)) {
        verdict_refuse(ret, REFUSAL_DENIED, NULL,
                       "your GiB·hours are used up; they come back as their period passes");
        free(*ret_claim);
        *ret_claim = NULL;
        return -EPERM;
    }
    return 0;
}

static struct recovered_waiter *recovered_find(const struct broker *broker,
                                               const struct process_id *process, uid_t uid,
                                               bool is_growth,
                                               const uint8_t digest[static RECORD_DIGEST_SIZE]) {
    struct recovered_waiter *recovered;

    list_foreach (recovered, &broker->recovered, in_broker) {
        const struct record_waiter *r = &recovered->record;

        if (r->is_growth == is_growth && r->pid == process->pid && r->start == process->start &&
            r->uid == uid && memcmp(r->digest, digest, RECORD_DIGEST_SIZE) == 0)
            return recovered;
    }
    return NULL;
}

bool acquire_recovered_place(struct broker *broker, struct waiter *waiter) {
    struct recovered_waiter *recovered = recovered_find(
        broker, &waiter->proc->process, waiter->user->uid, waiter->holder != NULL, waiter->digest);
    const struct record_waiter *r;

    if (!recovered)
        return false;
    r = &recovered->record;
    waiter->id = r->id;
    waiter->arrival = r->order;
    waiter->since_usec = r->since_usec;
    waiter->timeout_usec = r->timeout_usec;
    waiter->is_recorded = true;
    list_remove(&recovered->in_broker);
    free(recovered);
    return true;
}

/*
 * It waited before the daemon restarted, and goes on waiting for devices that are still not ready.
 */
static bool waits_on(const struct broker *broker, const struct broker_peer *peer,
                     const struct request *request, const struct verdict *verdict) {
    uint8_t digest[RECORD_DIGEST_SIZE];

    if (list_is_empty(&broker->recovered) || !verdict_may_pass(verdict))
        return false;
    request_digest(request, digest);
    return recovered_find(broker, &peer->process, peer->uid, false, digest);
}

static struct waiter *make_waiter(struct broker *broker, struct user *user,
                                  const struct broker_peer *peer, const struct request *request) {
    const struct policy_rules *rules = &user->rules;
    uint64_t longest = MIN(request->timeout_usec, rules->wait_usec);
    struct waiter *waiter = calloc(1, sizeof(*waiter));

    if (!waiter)
        return NULL;
    waiter->request = request_copy(request);
    waiter->proc = proc_get(broker, &peer->process);
    if (!waiter->request || !waiter->proc) {
        proc_put(broker, waiter->proc);
        free(waiter->request);
        free(waiter);
        return NULL;
    }
    waiter->user = user;
    waiter->blocked = -1;
    waiter->no_wait = request->no_wait;
    waiter->priority = request->has_priority ? request->priority : rules->priority;
    waiter->why = broker->grace_usec ? WHY_GRACE : WHY_DEVICE;
    snprintf(waiter->name, sizeof(waiter->name), "%s", request->name ? request->name : "");
    request_describe(request, rules, waiter->asked, sizeof(waiter->asked));
    request_digest(request, waiter->digest);

    if (!acquire_recovered_place(broker, waiter)) {
        waiter->id = broker->next_waiter++;
        waiter->arrival = broker->next_arrival++;
        waiter->since_usec = broker->now_usec;
        if (longest != UNITS_FOREVER)
            waiter->timeout_usec = units_add(broker->now_usec, longest);
    }
    return waiter;
}

void broker_answered(struct broker *broker, uint64_t id) {
    struct lease *lease = broker_lease(broker, id);

    if (!lease || !lease->is_unanswered)
        return;
    lease->is_unanswered = false;
    list_remove(&lease->in_unheard);
    emit_lease(broker, lease);
}

void broker_unheard(struct broker *broker, uint64_t id, struct moment now) {
    struct lease *lease = broker_lease(broker, id);

    broker->now_usec = now.usec;
    if (lease && lease->is_unanswered && lease->n_holders == 0)
        lease_end(broker, lease, "its grant did not reach the client", false);
}

int broker_submit(struct broker *broker, const struct broker_peer *peer,
                  const struct request *request, void *cookie, struct moment now,
                  struct verdict *ret) {
    struct user *user;
    struct claim *claim = NULL;
    struct waiter *waiter;
    bool is_unready = false;
    int r;

    broker->now_usec = now.usec;
    if (!list_is_empty(&broker->unheard) && grant_again(broker, peer, request, ret))
        return 0;
    user = user_get(broker, peer->uid, peer->gid);
    if (!user)
        return -ENOMEM;
    r = user_set_peer(broker, user, peer);
    if (r == 0)
        r = acquire_judge(broker, user, request, &claim, ret);
    if (r < 0 && r != -ENOMEM && waits_on(broker, peer, request, ret)) {
        is_unready = true;
        r = 0;
    }
    if (r == 0 && user->n_waiting >= user->rules.max_waiting) {
        verdict_refuse(ret, REFUSAL_BUSY, NULL,
                       "you already have %u requests in the queue and may have no more: cancel "
                       "one, or wait until one is granted",
                       user->n_waiting);
        free(claim);
        r = -EBUSY;
    }
    if (r < 0) {
        if (r != -ENOMEM)
            emit_verdict(broker, user, peer->process.pid, false, ret, 0);
        user_put(broker, user);
        return r == -ENOMEM ? r : 0;
    }

    waiter = make_waiter(broker, user, peer, request);
    if (!waiter) {
        free(claim);
        user_put(broker, user);
        return -ENOMEM;
    }
    if (is_unready) {
        waiter->why = WHY_HEALTH;
        snprintf(waiter->trouble, sizeof(waiter->trouble), "%s", ret->reason);
    }
    waiter->claim = claim;
    waiter->cookie = cookie;
    return queue_submit(broker, waiter, now, ret);
}

int broker_cancel(struct broker *broker, uint64_t id, struct moment now) {
    struct waiter *waiter = map_find(&broker->waiters, id);

    broker->now_usec = now.usec;
    if (!waiter)
        return -ENOENT;
    emit_cancelled(broker, waiter);
    queue_leave(broker, waiter);
    return 0;
}
