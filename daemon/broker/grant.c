/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Grant: what is granted is committed here, once, whatever it is: a new lease, growth of one, a
 * lease of which its client did not hear before a restart, a lease that is rebuilt after lost
 * books, and what a process comes back with. grant_commit() has the order: books, then what is
 * recorded and told.
 */
#include "daemon/broker/internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The reason is set. */
static void grant_commit(struct broker *broker, const struct grant *grant, struct verdict *ret) {
    struct holder *holder = grant->holder;

    if (grant->books)
        lease_enter(broker, grant->lease, grant->books);
    for (unsigned i = 0; i < grant->n_declared; i++)
        holder_set(broker, holder, grant->first + i, grant->declared_bytes[i],
                   holder->parts[grant->first + i].seen_bytes);
    ret->kind = VERDICT_GRANT;
    ret->lease = grant->lease->id;
    ret->place = 0;
    emit_grant(broker, grant, ret);
}

int grant_request(struct broker *broker, const struct waiter *waiter, const struct fit *fit,
                  struct verdict *ret) {
    const struct request *request = waiter->request;
    struct lease *lease = lease_new(broker, broker->next_lease, waiter->user, fit->n_chosen);
    struct book *books[BOOKS_SHARES_MAX];
    char text[UNITS_TEXT_SIZE];

    if (!lease)
        return -ENOMEM;
    lease->mode = fit->chosen[0]->mode;
    lease->priority = waiter->priority;
    lease->has_token = request->has_token;
    memcpy(lease->token, request->token, sizeof(lease->token));
    lease->is_unanswered = true;
    memcpy(lease->digest, waiter->digest, sizeof(lease->digest));
    memcpy(lease->name, waiter->name, sizeof(lease->name));
    for (uint32_t i = 0; i < fit->n_chosen; i++) {
        const struct option *option = fit->chosen[i];

        books[i] = broker->books[option->slot];
        lease->declares_max |= option->declares_max;
        lease->shares[i] = (struct share){
            .limit_bytes = option->limit_bytes,
            .guaranteed_bytes = option->guaranteed_bytes,
            .declares_max = option->declares_max,
            .is_exclusive = option->mode == LEASE_EXCLUSIVE,
        };
    }
    lease_begin(broker, lease, waiter->proc,
                MIN(request->time_limit_usec, waiter->user->rules.lease_usec));
    snprintf(ret->reason, sizeof(ret->reason), "%u device%s, at most %s on %s%s; %s", fit->n_chosen,
             fit->n_chosen == 1 ? "" : "s", units_format_bytes(lease->shares[0].limit_bytes, text),
             books[0]->name, fit->n_chosen > 1 ? " and so on" : "", fit->how);
    grant_commit(broker, &(struct grant){ .lease = lease, .waiter = waiter, .books = books }, ret);
    return 0;
}

void grant_growth(struct broker *broker, struct holder *holder, unsigned share, uint64_t bytes,
                  const struct waiter *waiter, struct verdict *ret) {
    const uint64_t declared_bytes = holder->parts[share].declared_bytes + bytes;

    ret->reason[0] = '\0';
    grant_commit(broker,
                 &(struct grant){ .lease = holder->lease,
                                  .waiter = waiter,
                                  .holder = holder,
                                  .first = share,
                                  .n_declared = 1,
                                  .declared_bytes = &declared_bytes },
                 ret);
    ret->held_bytes = holder->lease->shares[share].held_bytes;
    ret->limit_bytes = holder->lease->shares[share].limit_bytes;
    queue_settle_user(broker, holder->lease->user);
}

/* No client knows the old token, so the lease gets the new one. */
bool grant_again(struct broker *broker, const struct broker_peer *peer,
                 const struct request *request, struct verdict *ret) {
    const struct proc *proc = proc_find(broker, &peer->process);
    uint8_t digest[RECORD_DIGEST_SIZE];
    struct lease *lease;

    if (!proc)
        return false;
    request_digest(request, digest);
    list_foreach (lease, &broker->unheard, in_unheard) {
        if (lease->owner != proc || lease->is_ending || lease->uid != peer->uid ||
            memcmp(lease->digest, digest, sizeof(digest)) != 0)
            continue;
        list_remove(&lease->in_unheard);
        lease->has_token = request->has_token;
        memcpy(lease->token, request->token, sizeof(lease->token));
        snprintf(ret->reason, sizeof(ret->reason), "it was granted before the daemon restarted");
        grant_commit(broker, &(struct grant){ .lease = lease }, ret);
        return true;
    }
    return false;
}

void grant_rebuilt(struct broker *broker, struct lease *lease, struct book *const *books, pid_t pid,
                   struct verdict *ret) {
    ret->reason[0] = '\0';
    grant_commit(broker, &(struct grant){ .lease = lease, .books = books, .rebuilt_by = pid }, ret);
}

void grant_attached(struct broker *broker, struct holder *holder, const uint64_t *declared_bytes,
                    struct verdict *ret) {
    ret->reason[0] = '\0';
    grant_commit(broker,
                 &(struct grant){ .lease = holder->lease,
                                  .holder = holder,
                                  .n_declared = declared_bytes ? holder->lease->n_shares : 0,
                                  .declared_bytes = declared_bytes },
                 ret);
}
