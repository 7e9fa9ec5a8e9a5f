/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attaching: a process becomes a holder of a lease.
 *
 * A process that comes back after a restart says what it holds; it may not be more than what was
 * recorded of it. Only where records were lost is a lease made again from what its processes say,
 * and then by the rules that held for it: what the user may see, its quotas, and what is really
 * free.
 */
#include "daemon/broker/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/broker/visibility.h"

/* Numbers that a lease could have had: JSON readers cannot hold larger ones. */
#define LEASE_ID_MAX (UINT64_C(1) << 53)

/* ---- Rebuilding --------------------------------------------------------------------------------
 */

/* What NVML shows of the process that claims a lease, and no lease is charged for. */
static uint64_t shown_of(const struct broker *broker, const struct process_id *process,
                         unsigned slot) {
    uint64_t sum = 0;

    for (size_t i = 0; i < broker->n_unclaimed; i++)
        if (broker->unclaimed[i].slot == slot && broker->unclaimed[i].process.pid == process->pid &&
            broker->unclaimed[i].process.start == process->start)
            sum += broker->unclaimed[i].bytes;
    return sum;
}

/* The shares of a rebuilt lease, by the rules. */
static int judge_rebuilt(struct broker *broker, struct user *user, const struct process_id *process,
                         const struct broker_attach *attach, struct book **books,
                         struct share *shares, struct verdict *ret) {
    const struct policy_rules *rules = &user->rules;
    uint64_t sum = 0;
    uint32_t n_new = 0;

    if (user->n_leases >= rules->max_leases)
        return verdict_refuse(ret, REFUSAL_DENIED, NULL,
                              "you have %u leases already, and may have no more", user->n_leases);
    if (rules->quota_byte_seconds != UNITS_FOREVER && broker->sink.spent &&
        broker->sink.spent(broker->sink.userdata, user->uid) >= rules->quota_byte_seconds)
        return verdict_refuse(ret, REFUSAL_DENIED, NULL, "your GiB·hours are used up");
    if (attach->n_held == 0 || attach->n_held > BOOKS_SHARES_MAX)
        return verdict_refuse(ret, REFUSAL_NOT_FOUND, NULL,
                              "there is no lease %llu, and nothing was said of what it holds",
                              (unsigned long long)attach->lease);

    for (size_t i = 0; i < attach->n_held; i++) {
        struct book *book = broker_find_book(broker, &attach->held[i].device);
        uint64_t held = books_round_up(attach->held[i].bytes), quota;
        struct policy_face face;

        /* Hours and drains are for new leases: this one was there before them. */
        if (!book || book->device.state == DEVICE_LOST || book->device.seen.mig_enabled)
            return verdict_refuse(ret, REFUSAL_NO_DEVICE, NULL,
                                  "a device of the lease is not there any more");
        for (size_t j = 0; j < i; j++)
            if (books[j] == book)
                return verdict_refuse(ret, REFUSAL_DENIED, NULL, "%s is named twice", book->name);
        face = visibility_face(book);
        if (!policy_names_fit(&rules->devices, &face))
            return verdict_refuse(ret, REFUSAL_DENIED, NULL,
                                  "the administrator's rules do not let you use %s", book->name);
        if (!attach->is_in_scope &&
            MAX((enum require)rules->require, book->require) >= REQUIRE_SCOPE)
            return verdict_refuse(ret, REFUSAL_DENIED, NULL,
                                  "the administrator requires a scope for leases on %s, and this "
                                  "process is not in that of lease %llu",
                                  book->name, (unsigned long long)attach->lease);
        quota = books_round_down(units_share(rules->quota_permyriad, book->usable_bytes));
        if (held > quota || user->slot_bytes[book->slot] > quota - held)
            return verdict_refuse(ret, REFUSAL_DENIED, NULL,
                                  "it holds more of %s than your rules allow", book->name);
        /*
         * NVML may have shown these bytes already as unmanaged: those of this process count, not
         * others'.
         */
        if (held > books_free_bytes(book) + shown_of(broker, process, book->slot))
            return verdict_refuse(ret, REFUSAL_NO_MEMORY, NULL,
                                  "%s has less free than the process says it holds", book->name);
        books[i] = book;
        n_new += user->slot_leases[book->slot] == 0;
        sum = units_add(sum, held);
        shares[i] = (struct share){
            .guaranteed_bytes = held,
            .limit_bytes = MIN(quota, books_round_down(rules->quota_bytes)),
        };
        if (shares[i].limit_bytes < held)
            shares[i].limit_bytes = held;
    }
    if (sum > rules->quota_bytes - MIN(rules->quota_bytes, user->charged_bytes))
        return verdict_refuse(ret, REFUSAL_DENIED, NULL,
                              "it holds more than is left of your quota");
    if (n_new > rules->quota_devices - MIN(rules->quota_devices, user->n_slots))
        return verdict_refuse(ret, REFUSAL_DENIED, NULL,
                              "it holds more devices than your quota allows");
    return 0;
}

/*
 * A lease that no record tells of. It is not known which user had its number: a second user who
 * claims the same number gets a lease with a new one, and may go on using the old.
 */
static int rebuild(struct broker *broker, const struct broker_peer *peer,
                   const struct broker_attach *attach, struct moment now, struct lease **ret_lease,
                   struct verdict *ret) {
    struct user *user = user_get(broker, peer->uid, peer->gid);
    struct book *books[BOOKS_SHARES_MAX];
    struct share shares[BOOKS_SHARES_MAX];
    struct alias *alias = NULL;
    struct proc *owner;
    struct lease *lease;
    int r;

    if (!user)
        return -ENOMEM;
    r = user_set_groups(broker, user, peer);
    if (r == 0 && (attach->lease == 0 || attach->lease > LEASE_ID_MAX))
        r = verdict_refuse(ret, REFUSAL_NOT_FOUND, NULL, "there is no lease %llu",
                           (unsigned long long)attach->lease);
    if (r == 0)
        r = judge_rebuilt(broker, user, &peer->process, attach, books, shares, ret);
    if (r < 0) {
        if (r != -ENOMEM)
            emit_verdict(broker, user, peer->process.pid, false, ret, 0);
        user_put(broker, user);
        return r;
    }

    lease = lease_new(broker, (uint32_t)attach->n_held);
    owner = proc_get(broker, &peer->process);
    if (broker_lease(broker, attach->lease))
        alias = calloc(1, sizeof(*alias));
    if (!lease || !owner || (broker_lease(broker, attach->lease) && !alias))
        goto fail;
    lease->id = alias ? MAX(broker->next_lease, attach->lease + 1) : attach->lease;
    if (map_put(&broker->leases, lease->id, lease) < 0)
        goto fail;

    broker->next_lease = MAX(broker->next_lease, lease->id + 1);
    if (alias) {
        *alias = (struct alias){
            .uid = peer->uid,
            .called = attach->lease,
            .lease = lease->id,
        };
        list_append(&broker->aliases, &alias->in_broker);
    }
    lease->user = user;
    lease->uid = peer->uid;
    lease->gid = peer->gid;
    lease->mode = LEASE_GROW;
    lease->priority = user->rules.priority;
    lease->created_usec = now.usec;
    /* Its other processes come with the same one. */
    lease->has_token = attach->has_token;
    memcpy(lease->token, attach->token, sizeof(lease->token));
    if (user->rules.lease_usec != UNITS_FOREVER) {
        lease->expires_usec = now.usec + user->rules.lease_usec;
        broker->next_expiry_usec = MIN(broker->next_expiry_usec, lease->expires_usec);
    }
    memcpy(lease->shares, shares, attach->n_held * sizeof(shares[0]));
    lease->owner = owner;
    list_append(&owner->leases, &lease->in_owner);
    lease_enter(broker, lease, books);
    emit_lease(broker, lease);
    emit_event(broker, "rebuilt", lease, peer->process.pid, NULL,
               "lease %llu of uid %u was made again from what process %d holds",
               (unsigned long long)lease->id, (unsigned)lease->uid, (int)peer->process.pid);
    *ret_lease = lease;
    return 0;

fail:
    free(lease);
    free(alias);
    proc_put(broker, owner);
    user_put(broker, user);
    return -ENOMEM;
}

/* ---- Attach ------------------------------------------------------------------------------------
 */

/* What a process that was given up for gone still owes of a device: it may come back with that. */
static uint64_t lingering(const struct releasing *releasing, const struct book *book) {
    for (uint32_t i = 0; releasing && i < releasing->n_parts; i++)
        if (releasing->parts[i].book == book)
            return books_round_up(releasing->parts[i].bytes);
    return 0;
}

/*
 * A process that left, or was never here, says that it holds so much: as much as a Grow of it would
 * get at once. What it owes is its own. 0: it may; else it was refused.
 */
static int judge_returning(struct broker *broker, struct lease *lease, unsigned at,
                           const struct holder *holder, uint64_t owed_bytes, uint64_t bytes,
                           struct verdict *ret) {
    const struct share *share = &lease->shares[at];
    const struct user *user = lease->user;
    const struct policy_rules *rules = &user->rules;
    uint64_t seen = holder ? holder->parts[at].seen_bytes : 0;
    uint64_t own = holder ? lease_part_held(&holder->parts[at]) : 0, quota, rise;
    char a[UNITS_TEXT_SIZE], b[UNITS_TEXT_SIZE];

    bytes = MAX(bytes, seen) - own;
    if (bytes > share->limit_bytes - MIN(share->limit_bytes, share->held_bytes))
        return verdict_refuse(ret, REFUSAL_DENIED, NULL,
                              "%s more than lease %llu holds on %s is over its limit of %s",
                              units_format_bytes(bytes, a), (unsigned long long)lease->id,
                              share->book->name, units_format_bytes(share->limit_bytes, b));
    rise = books_rise(share, bytes);
    if (rise == 0)
        return 0;
    quota = units_share(rules->quota_permyriad, share->book->usable_bytes);
    if (rise > rules->quota_bytes - MIN(rules->quota_bytes, user->charged_bytes) ||
        (rules->quota_permyriad < 10000 &&
         rise > quota - MIN(quota, user->slot_bytes[share->book->slot])))
        return verdict_refuse(ret, REFUSAL_DENIED, NULL,
                              "it holds more of %s than is left of your quota", share->book->name);
    if (rise > books_free_bytes(share->book) + owed_bytes ||
        (lease->declares_max && !bankers_keeps(broker, lease, at, rise)))
        return verdict_refuse(
            ret, REFUSAL_NO_MEMORY, NULL,
            "%s that it says it holds on %s were given back when its connection ended, "
            "and others have them now (%s is free): free them, and ask again by Grow",
            units_format_bytes(rise, a), share->book->name,
            units_format_bytes(books_free_bytes(share->book), b));
    return 0;
}

static int judge_held(struct broker *broker, struct lease *lease, const struct holder *holder,
                      const struct releasing *releasing, const struct broker_attach *attach,
                      uint64_t *declared, struct verdict *ret) {
    for (size_t i = 0; i < attach->n_held; i++) {
        uint64_t bytes = books_round_up(attach->held[i].bytes), most, others;
        struct share *share;
        unsigned at;

        share = lease_share(lease, &attach->held[i].device, &at);
        if (!share)
            return verdict_refuse(ret, REFUSAL_NO_DEVICE, NULL, "lease %llu has no such device",
                                  (unsigned long long)lease->id);
        if (declared[at] != 0)
            return verdict_refuse(ret, REFUSAL_DENIED, NULL, "%s is named twice",
                                  share->book->name);
        most = holder ? holder->parts[at].declared_bytes : lingering(releasing, share->book);
        if (broker->is_lost) {
            others = share->held_bytes - (holder ? lease_part_held(&holder->parts[at]) : 0);
            others = share->limit_bytes - MIN(share->limit_bytes, others);
            most = MAX(most, others);
        }
        if (bytes > most && !broker->grace_usec &&
            (!holder || (!holder->is_attached && !holder->is_absent))) {
            int r = judge_returning(broker, lease, at, holder, most, bytes, ret);

            if (r < 0)
                return r;
        } else if (bytes > most)
            return verdict_refuse(ret, REFUSAL_DENIED, NULL,
                                  "it says that it holds more of %s than was recorded of it",
                                  share->book->name);
        declared[at] = bytes;
    }
    return 0;
}

/* It left, and is back: what lingers is its own again, until NVML says how much that is. */
static void absorb_releasing(struct broker *broker, struct holder *holder) {
    struct releasing *releasing = releasing_find(broker, holder->lease->id, &holder->process);

    if (!releasing)
        return;
    for (uint32_t i = 0; i < releasing->n_parts; i++) {
        uint64_t bytes = releasing->parts[i].bytes;
        unsigned at;

        releasing_lower(broker, releasing, i, 0);
        if (lease_share(holder->lease, &releasing->parts[i].book->device.seen.id, &at))
            holder_set(broker, holder, at, holder->parts[at].declared_bytes,
                       MAX(holder->parts[at].seen_bytes, books_round_up(bytes)));
    }
    releasing_free(broker, releasing);
}

int broker_attach(struct broker *broker, const struct broker_peer *peer,
                  const struct broker_attach *attach, struct moment now, struct verdict *ret) {
    struct lease *lease = broker_lease_of_peer(broker, attach->lease, peer->uid);
    uint64_t declared[BOOKS_SHARES_MAX] = { 0 };
    struct holder *holder;
    bool is_rebuilt = false;
    int r;

    broker->now_usec = now.usec;
    if ((!lease || lease->uid != peer->uid) && broker->is_lost && broker->grace_usec) {
        r = rebuild(broker, peer, attach, now, &lease, ret);
        if (r < 0)
            return r == -ENOMEM ? r : 0;
        is_rebuilt = true;
    }
    if (!lease || lease->uid != peer->uid) {
        verdict_refuse(ret, REFUSAL_NOT_FOUND, NULL, "you have no lease %llu",
                       (unsigned long long)attach->lease);
        return 0;
    }
    if (lease->is_ending && !holder_find(lease, &peer->process)) {
        verdict_refuse(ret, REFUSAL_DENIED, NULL, "lease %llu ends: %s",
                       (unsigned long long)lease->id, lease->reason);
        return 0;
    }

    holder = holder_find(lease, &peer->process);
    if (judge_held(broker, lease, holder, releasing_find(broker, lease->id, &peer->process), attach,
                   declared, ret) < 0)
        return 0;
    if (!holder) {
        holder = holder_new(broker, lease, &peer->process);
        if (!holder) {
            if (is_rebuilt)
                lease_gone(broker, lease, "the daemon is out of memory");
            return -ENOMEM;
        }
    }
    absorb_releasing(broker, holder);
    if (holder->is_absent) {
        holder->is_absent = false;
        broker->n_absent--;
    }
    if (!holder->is_attached)
        emit_event(broker, "attached", lease, peer->process.pid, NULL,
                   "process %d holds lease %llu", (int)peer->process.pid,
                   (unsigned long long)lease->id);
    /* A process that attaches has the grant. */
    if (lease->is_unanswered)
        broker_answered(broker, lease->id);
    holder->is_attached = true;
    holder->attached_usec = holder->attached_usec ? holder->attached_usec : MAX(now.usec, 1u);
    holder->tier = attach->tier;
    holder->credits = attach->credits;
    holder->cookie = attach->cookie;
    for (uint32_t i = 0; i < lease->n_shares; i++) {
        holder->parts[i].is_recalled = false;
        if (attach->held)
            holder_set(broker, holder, i, declared[i], holder->parts[i].seen_bytes);
        /* It is told now, and charges that before it makes one. */
        if (holder->parts[i].declared_bytes == 0)
            holder->parts[i].context_bytes = lease->shares[i].book->context_bytes;
    }
    emit_holder(broker, holder);
    ret->kind = VERDICT_GRANT;
    ret->lease = lease->id;
    ret->place = 0;
    ret->reason[0] = '\0';
    return 0;
}
