/* SPDX-License-Identifier: Apache-2.0 */
/*
 * After a restart, everything that was recorded is restored at once. Leases have their shares,
 * holders are absent until they come back (attach.c), bytes that were releasing still are, and
 * places in the queue are recovered waiters, for processes that make the same request again.
 */
#include "daemon/broker/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Update what may change during the life of a lease. */
static void update_lease(struct broker *broker, struct lease *lease, const struct record_lease *r) {
    lease->is_ending = r->ending;
    lease->ending_usec = broker->now_usec;
    lease->evicts = r->ending && strcmp(r->reason, LEASE_RELEASED) != 0;
    lease->idle_step = r->idle_step;
    lease->idle_usec = r->idle_usec;
    lease->tiers = r->tiers;
    lease->expires_usec = r->expires_usec;
    if (lease->expires_usec)
        broker->next_expiry_usec = MIN(broker->next_expiry_usec, lease->expires_usec);
    if (lease->evicts)
        broker->next_expiry_usec =
            MIN(broker->next_expiry_usec, broker->now_usec + broker->policy->ending_usec);
    if (lease->cgroup[0])
        map_take_text(&broker->cgroups, lease->cgroup);
    lease->is_unanswered = r->is_unanswered;
    if (r->is_unanswered && !list_is_linked(&lease->in_unheard))
        list_append(&broker->unheard, &lease->in_unheard);
    else if (!r->is_unanswered)
        list_remove(&lease->in_unheard);
    memcpy(lease->digest, r->digest, sizeof(lease->digest));
    snprintf(lease->reason, sizeof(lease->reason), "%s", r->reason);
    snprintf(lease->scope, sizeof(lease->scope), "%s", r->scope);
    snprintf(lease->cgroup, sizeof(lease->cgroup), "%s", r->cgroup);
    if (lease->cgroup[0] && map_put_text(&broker->cgroups, lease->cgroup, lease) < 0)
        lease->cgroup[0] = '\0';
}

static int restore_lease(struct broker *broker, const struct record_lease *r) {
    struct book *books[BOOKS_SHARES_MAX];
    struct user *user;
    struct lease *lease = broker_lease(broker, r->id);

    if (r->id == 0 || r->n_shares == 0 || r->n_shares > BOOKS_SHARES_MAX || r->mode == 0 ||
        r->mode > LEASE_EXCLUSIVE)
        return -EBADMSG;
    if (lease) {
        if (lease->uid != r->uid)
            return -EBADMSG;
        update_lease(broker, lease, r);
        return 0;
    }
    for (uint32_t i = 0; i < r->n_shares; i++) {
        if (r->shares[i].guaranteed_bytes > r->shares[i].limit_bytes ||
            r->shares[i].limit_bytes > INT64_MAX)
            return -EBADMSG;
        books[i] = broker_get_book(broker, &r->shares[i].device);
        if (!books[i])
            return broker->n_books == BOOKS_MAX ? -EBADMSG : -ENOMEM;
        for (uint32_t j = 0; j < i; j++)
            if (books[j] == books[i])
                return -EBADMSG;
    }
    user = user_get(broker, r->uid, r->gid);
    if (!user)
        return -ENOMEM;
    lease = lease_new(broker, r->id, user, r->n_shares);
    if (!lease) {
        user_put(broker, user);
        return -ENOMEM;
    }
    lease->gid = r->gid;
    lease->mode = (enum lease_mode)r->mode;
    lease->declares_max = r->declares_max;
    lease->has_token = r->has_token;
    lease->priority = r->priority;
    lease->created_usec = r->created_usec;
    memcpy(lease->token, r->token, sizeof(lease->token));
    snprintf(lease->name, sizeof(lease->name), "%s", r->name);
    update_lease(broker, lease, r);
    for (uint32_t i = 0; i < r->n_shares; i++)
        lease->shares[i] = (struct share){
            .limit_bytes = r->shares[i].limit_bytes,
            .guaranteed_bytes = r->shares[i].guaranteed_bytes,
            .declares_max = r->declares_max,
            .is_exclusive = r->mode == LEASE_EXCLUSIVE,
        };
    lease_enter(broker, lease, books);
    emit_charges(broker, lease);
    return 0;
}

/* Forget what earlier records said about this process and lease. */
static void forget_holder(struct broker *broker, uint64_t id, const struct process_id *process) {
    struct lease *lease = broker_lease(broker, id);
    struct holder *holder = lease ? holder_find(lease, process) : NULL;
    struct releasing *releasing, *next;

    if (holder)
        holder_gone(broker, holder, false);
    list_foreach_safe (releasing, next, &broker->releasing, in_broker) {
        if (releasing->lease == id && process_id_equal(&releasing->process, process))
            releasing_free(broker, releasing);
    }
}

static int restore_releasing(struct broker *broker, const struct record_holder *r) {
    struct releasing *releasing = releasing_new(r->n_held);

    if (!releasing)
        return -ENOMEM;
    releasing->process = (struct process_id){ .pid = r->pid, .start = r->start };
    releasing->lease = r->lease;
    releasing->uid = r->uid;
    releasing->since_usec = r->releasing_usec;
    for (uint32_t i = 0; i < r->n_held; i++) {
        struct book *book = broker_get_book(broker, &r->held[i].device);

        if (!book) {
            free(releasing);
            return broker->n_books == BOOKS_MAX ? -EBADMSG : -ENOMEM;
        }
        releasing->parts[releasing->n_parts].book = book;
        releasing->parts[releasing->n_parts++].bytes =
            r->held[i].held_bytes + r->held[i].context_bytes;
    }
    releasing_enter(broker, releasing);
    return 0;
}

static int restore_holder(struct broker *broker, const struct record_holder *r) {
    struct process_id process = { .pid = r->pid, .start = r->start };
    struct lease *lease = broker_lease(broker, r->lease);
    struct proc *proc;
    struct holder *holder;

    if (r->n_held > BOOKS_SHARES_MAX)
        return -EBADMSG;
    for (uint32_t i = 0; i < r->n_held; i++)
        if (r->held[i].held_bytes > INT64_MAX / 2 || r->held[i].context_bytes > INT64_MAX / 2)
            return -EBADMSG;
    for (uint32_t i = 0; lease && i < r->n_held; i++)
        if (!lease_share(lease, &r->held[i].device, NULL))
            return -EBADMSG;
    if (r->releasing_usec) {
        forget_holder(broker, r->lease, &process);
        return restore_releasing(broker, r);
    }
    if (!lease || lease->uid != r->uid)
        return -EBADMSG;

    proc = proc_get(broker, &process);
    if (!proc)
        return -ENOMEM;
    /* The process that acquired it, or otherwise its first holder, keeps it as long as it lives. */
    if (!lease->owner || r->attached_usec == 0) {
        struct proc *former = lease->owner;

        list_remove(&lease->in_owner);
        lease->owner = proc;
        list_append(&proc->leases, &lease->in_owner);
        proc_put(broker, former);
    }
    forget_holder(broker, r->lease, &process);
    if (r->attached_usec == 0) {
        proc_put(broker, proc_find(broker, &process));
        return 0;
    }
    holder = holder_new(broker, lease, &process);
    if (!holder)
        return -ENOMEM;
    holder->is_absent = true;
    broker->n_absent++;
    holder->attached_usec = r->attached_usec;
    holder->tier = r->tier;
    for (uint32_t i = 0; i < r->n_held; i++) {
        unsigned at;

        lease_share(lease, &r->held[i].device, &at);
        holder_set(broker, holder, at,
                   books_round_up(r->held[i].held_bytes + r->held[i].context_bytes), 0);
    }
    return 0;
}

static int restore_waiter(struct broker *broker, const struct record_waiter *r) {
    struct recovered_waiter *recovered;

    broker->next_waiter = MAX(broker->next_waiter, r->id + 1);
    broker->next_arrival = MAX(broker->next_arrival, r->order + 1);
    list_foreach (recovered, &broker->recovered, in_broker) {
        if (recovered->record.id == r->id)
            return 0;
    }
    recovered = calloc(1, sizeof(*recovered));
    if (!recovered)
        return -ENOMEM;
    recovered->record = *r;
    list_append(&broker->recovered, &recovered->in_broker);
    return 0;
}

int broker_restore(struct broker *broker, const struct record *record, struct moment now) {
    struct process_id process;
    struct lease *lease;
    struct recovered_waiter *recovered, *next;

    broker->now_usec = now.usec;
    switch (record->kind) {
    case RECORD_META:
        broker->next_lease = MAX(broker->next_lease, record->meta.next_lease);
        broker->next_waiter = MAX(broker->next_waiter, record->meta.next_waiter);
        broker->next_arrival = MAX(broker->next_arrival, record->meta.next_order);
        return 0;
    case RECORD_DEVICE:
        return 0; /* the inventory's */
    case RECORD_LEASE:
        return restore_lease(broker, &record->lease);
    case RECORD_LEASE_GONE:
        lease = broker_lease(broker, record->lease_gone);
        if (lease)
            lease_gone(broker, lease, "it had ended before");
        return 0;
    case RECORD_HOLDER:
        return restore_holder(broker, &record->holder);
    case RECORD_HOLDER_GONE:
        process = (struct process_id){ record->holder_gone.pid, record->holder_gone.start };
        lease = broker_lease(broker, record->holder_gone.lease);
        forget_holder(broker, record->holder_gone.lease, &process);
        if (lease && lease->owner && process_id_equal(&lease->owner->process, &process)) {
            struct proc *owner = lease->owner;

            list_remove(&lease->in_owner);
            lease->owner = NULL;
            proc_put(broker, owner);
        }
        return 0;
    case RECORD_WAITER:
        return restore_waiter(broker, &record->waiter);
    case RECORD_WAITER_GONE:
        list_foreach_safe (recovered, next, &broker->recovered, in_broker) {
            if (recovered->record.id == record->waiter_gone) {
                list_remove(&recovered->in_broker);
                free(recovered);
            }
        }
        return 0;
    }
    return -EBADMSG;
}
