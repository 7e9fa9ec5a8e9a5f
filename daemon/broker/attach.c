/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attaching: a process becomes a holder of a lease.
 *
 * A process that comes back after a restart says what it holds; it may not be more than what was
 * recorded for it. Only if records were lost is a lease rebuilt from what its processes say, and
 * then by the rules that apply to it (what the user may see, and its quotas), and only as far as
 * NVML shows that this very process has the bytes: any process could claim them.
 */
#include "daemon/broker/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/broker/visibility.h"

/* Numbers that a lease could have: JSON readers cannot represent larger ones. */
#define LEASE_ID_MAX (UINT64_C(1) << 53)

/* How far ahead of all known numbers a claimed one may be: the next leases number on from there. */
#define LEASE_AHEAD_MAX (UINT64_C(1) << 32)

/* ---- Rebuilding --------------------------------------------------------------------------------
 */

/* What NVML shows for the process that claims a lease, and no lease is charged for. */
static uint64_t shown_of(const struct broker *broker, const struct process_id *process,
                         unsigned slot) {
    uint64_t sum = 0;

    for (size_t i = 0; i < broker->n_unclaimed; i++)
        if (broker->unclaimed[i].slot == slot &&
            process_id_equal(&broker->unclaimed[i].process, process))
            sum += broker->unclaimed[i].bytes;
    return sum;
}

/* Take up to `bytes` of what the driver shows of the process from the unmanaged memory: a lease is
 * charged for them from now on. Returns how many were taken. */
static uint64_t claim_shown(struct broker *broker, const struct process_id *process,
                            struct book *book, uint64_t bytes) {
    uint64_t left = bytes;

    for (size_t i = 0; i < broker->n_unclaimed; i++) {
        struct unclaimed *unclaimed = &broker->unclaimed[i];
        uint64_t part = MIN(left, unclaimed->bytes);

        if (unclaimed->slot != book->slot || !process_id_equal(&unclaimed->process, process))
            continue;
        unclaimed->bytes -= part;
        book->unmanaged_bytes -= MIN(book->unmanaged_bytes, part);
        left -= part;
    }
    return bytes - left;
}

/* The shares of a rebuilt lease, by the rules. */
static int judge_rebuilt(struct broker *broker, struct user *user, const struct process_id *process,
                         const struct broker_attach *attach, struct book **books,
                         struct share *shares, struct verdict *ret) {
    const struct policy_rules *rules = &user->rules;
    uint64_t sum = 0;
    uint32_t n_new = 0;

    if (user->n_leases >= rules->max_leases)
        return verdict_refuse(
            ret, REFUSAL_DENIED, NULL,
            "you already have %u leases and may have no more: end one, or ask your administrator",
            user->n_leases);
    if (user_is_spent(user))
        return verdict_refuse(ret, REFUSAL_DENIED, NULL, "your GiB·hours are used up");
    if (attach->n_held == 0 || attach->n_held > BOOKS_SHARES_MAX)
        return verdict_refuse(ret, REFUSAL_NOT_FOUND, NULL,
                              "there is no lease %llu, and the client did not say what it holds",
                              (unsigned long long)attach->lease);

    for (size_t i = 0; i < attach->n_held; i++) {
        struct book *book = broker_find_book(broker, &attach->held[i].device);
        uint64_t held = books_round_up(attach->held[i].bytes), quota;
        struct policy_identity identity;

        /* Hours and drains concern new leases; this one existed before. */
        if (!book || book->device.state == DEVICE_LOST || book->device.seen.mig_enabled)
            return verdict_refuse(ret, REFUSAL_NO_DEVICE, NULL,
                                  "a device of the lease no longer exists");
        for (size_t j = 0; j < i; j++)
            if (books[j] == book)
                return verdict_refuse(ret, REFUSAL_DENIED, NULL, "%s is named twice", book->name);
        identity = visibility_identity(book);
        if (!policy_names_fit(&rules->devices, &identity))
            return verdict_refuse(ret, REFUSAL_DENIED, NULL,
                                  "the administrator's rules do not let you use %s", book->name);
        if (!attach->is_in_scope &&
            MAX((enum require)rules->require, book->require) >= REQUIRE_SCOPE)
            return verdict_refuse(ret, REFUSAL_DENIED, NULL,
                                  "the administrator requires a scope for leases on %s, and this "
                                  "process is not in that of lease %llu",
                                  book->name, (unsigned long long)attach->lease);
        quota = books_round_down(units_share(rules->quota_permyriad, book->usable_bytes));
        held = MIN(held, shown_of(broker, process, book->slot));
        if (held > quota || user->slot_bytes[book->slot] > quota - held)
            return verdict_refuse(ret, REFUSAL_DENIED, NULL,
                                  "it holds more of %s than the administrator's rules allow you",
                                  book->name);
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
    if (sum == 0)
        return verdict_refuse(ret, REFUSAL_NOT_FOUND, NULL,
                              "there is no lease %llu, and the driver shows no memory of this "
                              "process that could be of one",
                              (unsigned long long)attach->lease);
    if (sum > rules->quota_bytes - MIN(rules->quota_bytes, user->charged_bytes))
        return verdict_refuse(ret, REFUSAL_DENIED, NULL,
                              "it holds more than is left of your quota");
    if (n_new > rules->quota_devices - MIN(rules->quota_devices, user->n_slots))
        return verdict_refuse(ret, REFUSAL_DENIED, NULL,
                              "it holds more devices than your quota allows");
    return 0;
}

/*
 * A lease that no record mentions. It is unknown which user had its number: a second user who
 * claims the same number gets a lease with a new one, and may go on using the old number. So does
 * one who claims a number that no box comes to: those of all later leases would be larger.
 */
static int rebuild(struct broker *broker, const struct broker_peer *peer,
                   const struct broker_attach *attach, struct lease **ret_lease,
                   struct verdict *ret) {
    struct user *user = user_get(broker, peer->uid, peer->gid);
    struct book *books[BOOKS_SHARES_MAX];
    struct share shares[BOOKS_SHARES_MAX];
    bool is_taken = broker_lease(broker, attach->lease) ||
                    attach->lease > units_add(broker->next_lease, LEASE_AHEAD_MAX);
    struct alias *alias = NULL;
    struct proc *owner;
    struct lease *lease;
    int r;

    if (!user)
        return -ENOMEM;
    r = user_set_peer(broker, user, peer);
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

    owner = proc_get(broker, &peer->process);
    if (is_taken)
        alias = calloc(1, sizeof(*alias));
    if (!owner || (is_taken && !alias))
        goto fail;
    lease = lease_new(broker, is_taken ? broker->next_lease : attach->lease, user,
                      (uint32_t)attach->n_held);
    if (!lease)
        goto fail;

    if (alias) {
        *alias = (struct alias){
            .uid = peer->uid,
            .called = attach->lease,
            .lease = lease->id,
        };
        list_append(&broker->aliases, &alias->in_broker);
    }
    lease->mode = LEASE_GROW;
    lease->priority = user->rules.priority;
    /* Its other processes come with the same token. */
    lease->has_token = attach->has_token;
    memcpy(lease->token, attach->token, sizeof(lease->token));
    memcpy(lease->shares, shares, attach->n_held * sizeof(shares[0]));
    lease_begin(broker, lease, owner, user->rules.lease_usec);
    grant_rebuilt(broker, lease, books, peer->process.pid, ret);
    *ret_lease = lease;
    return 0;

fail:
    free(alias);
    proc_put(broker, owner);
    user_put(broker, user);
    return -ENOMEM;
}

/* ---- Attach ------------------------------------------------------------------------------------
 */

/* The bytes that the process is still releasing on a device, because the daemon believed it to be
 * gone: it may come back with those. */
static uint64_t lingering(const struct releasing *releasing, const struct book *book) {
    for (uint32_t i = 0; releasing && i < releasing->n_parts; i++)
        if (releasing->parts[i].book == book)
            return books_round_up(releasing->parts[i].bytes);
    return 0;
}

/*
 * A process that left, or was never here, says that it holds this much: it gets what a Grow would
 * give it at once. What it has releasing is its own. 0: granted; otherwise refused.
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
        return verdict_refuse(
            ret, REFUSAL_DENIED, NULL,
            "%s on top of what lease %llu holds on %s would exceed its limit of %s",
            units_format_bytes(bytes, a), (unsigned long long)lease->id, share->book->name,
            units_format_bytes(share->limit_bytes, b));
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
            "the daemon took back the %s on %s when the connection ended, and other jobs have them "
            "now (%s is free): free them, and ask again with Grow",
            units_format_bytes(rise, a), share->book->name,
            units_format_bytes(books_free_bytes(share->book), b));
    return 0;
}

/*
 * What a process may come back with, after lost books, on a share: what was recorded, or what NVML
 * shows for it, as far as the limit allows.
 */
static uint64_t most_of_lost(const struct broker *broker, const struct share *share,
                             const struct process_id *process, const struct part *part,
                             uint64_t recorded_bytes) {
    uint64_t others = share->held_bytes - (part ? lease_part_held(part) : 0);
    uint64_t left = share->limit_bytes - MIN(share->limit_bytes, others);
    uint64_t shown = shown_of(broker, process, share->book->slot);

    return MAX(recorded_bytes, MIN(left, shown));
}

static int judge_held(struct broker *broker, struct lease *lease, const struct process_id *process,
                      const struct holder *holder, const struct broker_attach *attach,
                      uint64_t *declared, struct verdict *ret) {
    const struct releasing *releasing = releasing_find(broker, lease->id, process);

    for (size_t i = 0; i < attach->n_held; i++) {
        uint64_t bytes = books_round_up(attach->held[i].bytes), most;
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
        /* What it was granted ahead of its use is not shown: it is asked for again when needed. */
        if (broker->is_lost) {
            most = most_of_lost(broker, share, process, holder ? &holder->parts[at] : NULL, most);
            bytes = MIN(bytes, most);
        }
        if (bytes > most && !broker->grace_usec &&
            (!holder || (!holder->is_attached && !holder->is_absent))) {
            int r = judge_returning(broker, lease, at, holder, most, bytes, ret);

            if (r < 0)
                return r;
        } else if (bytes > most)
            return verdict_refuse(ret, REFUSAL_DENIED, NULL,
                                  "it says that it holds more of %s than was recorded for it",
                                  share->book->name);
        declared[at] = bytes;
    }
    return 0;
}

/* The process left and is back: its releasing bytes are its own again, until NVML says how many
 * they are. */
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
        r = rebuild(broker, peer, attach, &lease, ret);
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
    if (judge_held(broker, lease, &peer->process, holder, attach, declared, ret) < 0)
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
        struct part *part = &holder->parts[i];

        part->is_recalled = false;
        if (broker->is_lost)
            holder_set(broker, holder, i, part->declared_bytes,
                       part->seen_bytes +
                           claim_shown(broker, &peer->process, lease->shares[i].book, declared[i]));
    }
    grant_attached(broker, holder, attach->held ? declared : NULL, ret);
    for (uint32_t i = 0; i < lease->n_shares; i++)
        /* It is told the cost now, and charges that before it makes a context. */
        if (holder->parts[i].declared_bytes == 0)
            holder->parts[i].context_bytes = books_context(&lease->shares[i]);
    return 0;
}
