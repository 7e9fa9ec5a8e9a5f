/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/broker/internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((format(printf, 2, 3))) static void detail(struct explanation *ret,
                                                         const char *format, ...) {
    va_list args;

    if (ret->n_details == EXPLANATION_LINES)
        return;
    va_start(args, format);
    vsnprintf(ret->details[ret->n_details++], sizeof(ret->details[0]), format, args);
    va_end(args);
}

static void explain_device(const struct broker *broker, const struct option *option, uint64_t left,
                           struct explanation *ret) {
    const struct book *book = broker->books[option->slot];
    char a[UNITS_TEXT_SIZE], b[UNITS_TEXT_SIZE], c[UNITS_TEXT_SIZE], d[UNITS_TEXT_SIZE];

    detail(ret, "%s: needs %s; %s of %s are free, and a new lease could have %s%s", book->name,
           units_format_bytes(option->guaranteed_bytes, a),
           units_format_bytes(books_free_bytes(book), b), units_format_bytes(book->usable_bytes, c),
           units_format_bytes(left, d),
           book->unmanaged_bytes ? "; processes without a lease use some of it" : "");
}

static void explain_user(const struct user *user, struct explanation *ret) {
    const struct policy_rules *rules = &user->rules;
    char a[UNITS_TEXT_SIZE], b[UNITS_TEXT_SIZE];

    detail(ret, "you have %u of at most %u leases, on %u device%s%s%s", user->n_leases,
           rules->max_leases, user->n_slots, user->n_slots == 1 ? "" : "s",
           rules->quota_bytes == UNITS_FOREVER ? "" : ", with ",
           rules->quota_bytes == UNITS_FOREVER ? "" : units_format_bytes(user->charged_bytes, a));
    if (rules->quota_bytes != UNITS_FOREVER)
        detail(ret, "your quota is %s", units_format_bytes(rules->quota_bytes, b));
    if (rules->quota_permyriad < 10000)
        detail(ret, "your quota is %s of each device",
               units_format_permyriad(rules->quota_permyriad, b));
}

static int explain(struct broker *broker, struct user *user, const struct request *request,
                   struct moment now, struct explanation *ret) {
    int32_t priority = request->has_priority ? request->priority : user->rules.priority;
    int64_t key = queue_key(broker, now.usec, priority);
    uint64_t left[BOOKS_MAX];
    cleanup(freep) struct claim *claim = NULL;
    struct waiter waiter = { .user = user, .blocked = -1 };
    struct fit fit;
    int r;

    r = acquire_judge(broker, user, request, &claim, &ret->verdict);
    if (r < 0)
        return r == -ENOMEM ? r : 0;

    schedule_left(broker, user, key, claim, left);
    fit_decide(broker, user, claim, left, now, &fit);
    explain_user(user, ret);
    for (uint32_t i = 0; i < claim->n_options; i++)
        explain_device(broker, &claim->options[i], left[claim->options[i].slot], ret);

    if (fit.n_chosen > 0 && !broker->grace_usec) {
        ret->verdict.kind = VERDICT_GRANT;
        ret->verdict.lease = 0;
        ret->verdict.place = 0;
        snprintf(ret->verdict.reason, sizeof(ret->verdict.reason), "it fits; %s", fit.how);
        for (uint32_t i = 0; i < fit.n_chosen; i++)
            ret->devices[ret->n_devices++] = broker->books[fit.chosen[i]->slot]->device.seen.id;
        return 0;
    }

    waiter.claim = claim;
    waiter.why = broker->grace_usec ? WHY_GRACE : fit.why;
    waiter.blocked = fit.blocked;
    if (fit.why == WHY_DEVICE) {
        struct fit raw;
        uint64_t all[BOOKS_MAX];

        for (size_t i = 0; i < broker->n_books; i++)
            all[i] = books_free_bytes(broker->books[i]);
        fit_decide(broker, user, claim, all, now, &raw);
        if (raw.n_chosen > 0 && !broker->grace_usec)
            waiter.why = WHY_BEHIND;
    }
    ret->verdict.kind = request->no_wait ? VERDICT_DENY : VERDICT_WAIT;
    ret->verdict.refusal = REFUSAL_NO_MEMORY;
    ret->verdict.has_device = false;
    ret->verdict.waiter = 0;
    ret->verdict.place =
        rank_tree_count(broker->growths) + rank_tree_rank_of(broker->requests, key) + 1;
    acquire_reason(broker, &waiter, ret->verdict.reason, sizeof(ret->verdict.reason));
    for (uint32_t i = 0; i < claim->n_options && ret->n_devices < BOOKS_SHARES_MAX; i++)
        ret->devices[ret->n_devices++] = broker->books[claim->options[i].slot]->device.seen.id;
    if (ret->verdict.place > 1)
        detail(ret,
               ret->verdict.place == 2 ? "one request waits before it"
                                       : "%u requests wait before it",
               ret->verdict.place - 1);
    return 0;
}

int broker_explain(struct broker *broker, const struct broker_peer *peer,
                   const struct request *request, struct moment now, struct explanation *ret) {
    struct user *user = user_get(broker, peer->uid, peer->gid);
    int r;

    if (!user)
        return -ENOMEM;
    ret->n_devices = ret->n_details = 0;
    r = user_set_peer(broker, user, peer);
    if (r == 0)
        r = explain(broker, user, request, now, ret);
    user_put(broker, user);
    return r;
}
