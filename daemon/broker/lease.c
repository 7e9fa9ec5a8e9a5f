/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holders come and go, leases end.
 *
 * A lease is gone when nobody is left in it: with a scope its cgroup says so (broker_vacated), else
 * its holders and the process that acquired it, and after that whoever the job left behind, one
 * after the other (broker_sink.heir). One that is told to end needs only its holders to go, and
 * where its job is evicted and has no scope, whoever acquired it too.
 * Whatever a holder had when it went is `releasing` in the books, until NVML agrees; the
 * room for it is taken when the holder comes, because an end must not fail.
 */
#include "daemon/broker/internal.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t lease_part_held(const struct part *part) {
    return MAX(part->declared_bytes, part->seen_bytes);
}

struct share *lease_share(struct lease *lease, const struct gpuid *device, unsigned *ret_i) {
    for (uint32_t i = 0; i < lease->n_shares; i++) {
        if (!gpuid_equal(&lease->shares[i].book->device.seen.id, device))
            continue;
        if (ret_i)
            *ret_i = i;
        return &lease->shares[i];
    }
    return NULL;
}

int32_t lease_priority(const struct lease *lease, const struct policy *policy) {
    return lease->idle_step >= 2 ? lease->priority - policy->idle_drop : lease->priority;
}

/* ---- Bytes -------------------------------------------------------------------------------------
 */

static void emit_charge(struct broker *broker, const struct lease *lease, const struct share *share,
                        bool has_left) {
    if (broker->sink.charged)
        broker->sink.charged(broker->sink.userdata, lease, &share->book->device.seen.id,
                             has_left ? 0 : share->held_bytes,
                             has_left ? 0 : share->guaranteed_bytes);
}

/* Bytes of a device are another's, or nobody's: somebody may wait by the banker's rule. */
static void note_bankers_due(struct broker *broker) {
    broker->is_bankers_due = true;
    broker->is_queue_due |= (broker->growths && broker->growths->any[MARKS] & MARK_UNSAFE) ||
                            (broker->requests && broker->requests->any[MARKS] & MARK_UNSAFE);
}

/* The user has less than before, and so has the device: somebody may have waited for it. */
static void note_freed(struct broker *broker, struct user *user) {
    broker->is_deadlock_due = true;
    queue_unpark_user(broker, user);
}

void lease_enter(struct broker *broker, struct lease *lease, struct book *const *books) {
    struct user *user = lease->user;

    for (uint32_t i = 0; i < lease->n_shares; i++) {
        struct share *share = &lease->shares[i];
        unsigned slot = books[i]->slot;

        books_enter(share, books[i]);
        user->charged_bytes += books_charge(share);
        user->slot_bytes[slot] += books_charge(share);
        if (user->slot_leases[slot]++ == 0)
            user->n_slots++;
        emit_charge(broker, lease, share, false);
    }
    user->n_leases++;
    if (lease->declares_max)
        list_append(&broker->declared, &lease->in_declared);
    note_bankers_due(broker);
}

void lease_leave(struct broker *broker, struct lease *lease) {
    struct user *user = lease->user;

    for (uint32_t i = 0; i < lease->n_shares; i++) {
        struct share *share = &lease->shares[i];
        unsigned slot = share->book->slot;

        user->charged_bytes -= books_charge(share);
        user->slot_bytes[slot] -= books_charge(share);
        if (--user->slot_leases[slot] == 0)
            user->n_slots--;
        emit_charge(broker, lease, share, true);
        books_leave(share);
        queue_touch(broker, slot);
    }
    user->n_leases--;
    list_remove(&lease->in_declared);
    note_bankers_due(broker);
    note_freed(broker, user);
}

void holder_set(struct broker *broker, struct holder *holder, unsigned i, uint64_t declared_bytes,
                uint64_t seen_bytes) {
    struct lease *lease = holder->lease;
    struct share *share = &lease->shares[i];
    struct part *part = &holder->parts[i];
    uint64_t held_before = lease_part_held(part), charge_before = books_charge(share), charge, held;

    share->seen_bytes += seen_bytes - part->seen_bytes;
    part->declared_bytes = declared_bytes;
    part->seen_bytes = seen_bytes;
    held = lease_part_held(part);
    if (held == held_before)
        return;

    books_hold(share, share->held_bytes + held - held_before);
    charge = books_charge(share);
    lease->user->charged_bytes += charge - charge_before;
    lease->user->slot_bytes[share->book->slot] += charge - charge_before;
    emit_charge(broker, lease, share, false);
    note_bankers_due(broker);
    /* Growth of a sibling may need less now, though the lease is charged the same. */
    if (charge < charge_before || (held < held_before && lease->n_growths > 0))
        queue_touch(broker, share->book->slot);
    if (charge < charge_before)
        note_freed(broker, lease->user);
    if (held < held_before && lease->n_growths > 0)
        growth_retry_siblings(broker, lease, i);
}

/* ---- Releasing
 * -------------------------------------------------------------------------------------
 */

struct releasing *releasing_new(uint32_t n_parts) {
    struct releasing *releasing =
        calloc(1, sizeof(*releasing) + n_parts * sizeof(releasing->parts[0]));

    return releasing;
}

void releasing_enter(struct broker *broker, struct releasing *releasing) {
    for (uint32_t i = 0; i < releasing->n_parts; i++)
        releasing->parts[i].book->releasing_bytes += releasing->parts[i].bytes;
    list_append(&broker->releasing, &releasing->in_broker);
    emit_releasing(broker, releasing);
}

struct releasing *releasing_find(const struct broker *broker, uint64_t lease,
                                 const struct process_id *process) {
    struct releasing *releasing;

    list_foreach (releasing, &broker->releasing, in_broker) {
        if (releasing->lease == lease && process_id_equal(&releasing->process, process))
            return releasing;
    }
    return NULL;
}

void releasing_lower(struct broker *broker, struct releasing *releasing, uint32_t part,
                     uint64_t bytes) {
    struct lease *lease;
    unsigned share;

    assert(bytes <= releasing->parts[part].bytes);
    if (bytes == releasing->parts[part].bytes)
        return;
    releasing->parts[part].book->releasing_bytes -= releasing->parts[part].bytes - bytes;
    releasing->parts[part].bytes = bytes;
    queue_touch(broker, releasing->parts[part].book->slot);
    lease = broker_lease(broker, releasing->lease);
    if (lease && lease->n_growths > 0 &&
        lease_share(lease, &releasing->parts[part].book->device.seen.id, &share))
        growth_retry_siblings(broker, lease, share);
}

void releasing_free(struct broker *broker, struct releasing *releasing) {
    struct lease *lease;

    if (!releasing)
        return;
    if (list_is_linked(&releasing->in_broker)) {
        for (uint32_t i = 0; i < releasing->n_parts; i++)
            releasing_lower(broker, releasing, i, 0);
        list_remove(&releasing->in_broker);
        lease = broker_lease(broker, releasing->lease);
        /* Both stand under one key. */
        if (lease && lease->owner && process_id_equal(&lease->owner->process, &releasing->process))
            emit_owner(broker, lease);
        else
            emit_holder_gone(broker, releasing->lease, &releasing->process);
    }
    free(releasing);
}

/* ---- Holders -----------------------------------------------------------------------------------
 */

struct holder *holder_find(const struct lease *lease, const struct process_id *process) {
    struct holder *holder;

    list_foreach (holder, &lease->holders, in_lease) {
        if (process_id_equal(&holder->process, process))
            return holder;
    }
    return NULL;
}

struct holder *holder_new(struct broker *broker, struct lease *lease,
                          const struct process_id *process) {
    struct holder *holder = calloc(1, sizeof(*holder) + lease->n_shares * sizeof(struct part));
    struct proc *proc = proc_get(broker, process);

    if (holder)
        holder->releasing = releasing_new(lease->n_shares);
    if (!holder || !proc || !holder->releasing) {
        if (holder)
            free(holder->releasing);
        free(holder);
        proc_put(broker, proc);
        return NULL;
    }
    holder->lease = lease;
    holder->proc = proc;
    holder->process = *process;
    list_append(&lease->holders, &holder->in_lease);
    list_append(&proc->holders, &holder->in_proc);
    proc_note_hold_wait(broker, proc, true);
    lease->n_holders++;
    return holder;
}

static void deny_growth_of(struct broker *broker, const struct holder *holder,
                           const struct lease *lease, const char *why) {
    struct waiter *waiter, *next;

    list_foreach_safe (waiter, next, &holder->proc->waiters, in_proc) {
        if (waiter->holder == holder && waiter->holder->lease == lease)
            queue_deny(broker, waiter, REFUSAL_NOT_FOUND, NULL, "%s", why);
    }
}

/* One struct releasing for a process and lease: take over what it left behind when it went before.
 */
static void releasing_merge(struct broker *broker, struct releasing *releasing,
                            struct releasing *former) {
    for (uint32_t i = 0; i < former->n_parts; i++) {
        uint64_t bytes = former->parts[i].bytes;
        uint32_t at = 0;

        while (at < releasing->n_parts && releasing->parts[at].book != former->parts[i].book)
            at++;
        if (at == releasing->n_parts) {
            releasing->parts[at].book = former->parts[i].book;
            releasing->parts[releasing->n_parts++].bytes = 0;
        }
        releasing->parts[at].bytes += bytes;
        former->parts[i].book->releasing_bytes -= bytes;
    }
    list_remove(&former->in_broker);
    free(former);
}

void holder_gone(struct broker *broker, struct holder *holder, bool leaves_releasing) {
    struct lease *lease = holder->lease;
    struct releasing *releasing = holder->releasing, *former = NULL;
    bool was_recorded = holder->is_attached || holder->is_absent;

    deny_growth_of(broker, holder, lease, "the process no longer holds the lease");
    if (holder->is_absent)
        broker->n_absent--;
    for (uint32_t i = 0; i < lease->n_shares; i++) {
        uint64_t held = lease_part_held(&holder->parts[i]);

        if (held > 0 && leaves_releasing) {
            releasing->parts[releasing->n_parts].book = lease->shares[i].book;
            releasing->parts[releasing->n_parts++].bytes = held;
        }
        holder->parts[i].is_recalled = false;
        holder_set(broker, holder, i, 0, 0);
        if (lease->n_growths > 0)
            growth_retry_siblings(broker, lease, i);
    }
    if (releasing->n_parts > 0) {
        former = releasing_find(broker, lease->id, &holder->process);
        if (former)
            releasing_merge(broker, releasing, former);
        releasing->process = holder->process;
        releasing->lease = lease->id;
        releasing->uid = lease->uid;
        releasing->since_usec = broker->now_usec;
        releasing_enter(broker, releasing);
    } else {
        free(releasing);
        if (lease->owner == holder->proc && was_recorded)
            emit_owner(broker, lease);
        else if (was_recorded)
            emit_holder_gone(broker, lease->id, &holder->process);
    }
    list_remove(&holder->in_lease);
    list_remove(&holder->in_proc);
    lease->n_holders--;
    proc_put(broker, holder->proc);
    free(holder);
}

/* ---- Leases ------------------------------------------------------------------------------------
 */

struct lease *lease_new(struct broker *broker, uint32_t n_shares) {
    struct lease *lease = calloc(1, sizeof(*lease) + n_shares * sizeof(struct share));

    if (!lease)
        return NULL;
    lease->n_shares = n_shares;
    list_init(&lease->holders);
    return lease;
}

void lease_gone(struct broker *broker, struct lease *lease, const char *why) {
    struct holder *holder, *next;
    struct alias *alias, *next_alias;
    struct proc *owner = lease->owner;
    struct user *user = lease->user;

    list_foreach_safe (holder, next, &lease->holders, in_lease) {
        holder_gone(broker, holder, true);
    }
    lease_leave(broker, lease);
    map_take(&broker->leases, lease->id);
    if (lease->cgroup[0])
        map_take_text(&broker->cgroups, lease->cgroup);
    list_foreach_safe (alias, next_alias, &broker->aliases, in_broker) {
        if (alias->lease == lease->id) {
            list_remove(&alias->in_broker);
            free(alias);
        }
    }
    list_remove(&lease->in_owner);
    list_remove(&lease->in_unheard);
    /* It may end before who acquired it: its scope is empty, and gpuctl still there. */
    if (owner && !releasing_find(broker, lease->id, &owner->process))
        emit_holder_gone(broker, lease->id, &owner->process);
    proc_put(broker, owner);
    emit_lease_gone(broker, lease->id);
    emit_event(broker, "ended", lease, 0, NULL, "lease %llu of uid %u ended%s%s",
               (unsigned long long)lease->id, (unsigned)lease->uid, why[0] ? ": " : "", why);
    free(lease);
    user_put(broker, user);
}

/* Nobody known keeps it, and no scope says when it ends. */
static bool is_vacant(const struct lease *lease) {
    return lease->n_holders == 0 && !lease->owner && !lease->cgroup[0];
}

void broker_inherit(struct broker *broker, uint64_t id, const struct process_id *heir,
                    struct moment now) {
    struct lease *lease = broker_lease(broker, id);
    struct proc *proc = NULL;

    broker->now_usec = now.usec;
    if (!lease || lease->is_ending || !is_vacant(lease))
        return;
    if (heir)
        proc = proc_get(broker, heir);
    if (!proc) {
        lease_gone(broker, lease, "its last process is gone");
        return;
    }
    lease->owner = proc;
    list_append(&proc->leases, &lease->in_owner);
    proc_note_hold_wait(broker, proc, true);
    /* Both stand under one key; the end of the releasing bytes records the owner. */
    if (!releasing_find(broker, lease->id, heir))
        emit_owner(broker, lease);
}

void lease_end_if_empty(struct broker *broker, struct lease *lease) {
    if (lease->n_holders > 0)
        return;
    /* Its job may use the device any moment: it is to end before anybody else gets that. */
    if (lease->is_ending && lease->evicts && lease->owner && !lease->cgroup[0])
        return;
    if (lease->is_ending)
        lease_gone(broker, lease, lease->reason);
    else if (is_vacant(lease) &&
             (!broker->sink.heir || !broker->sink.heir(broker->sink.userdata, lease)))
        lease_gone(broker, lease, "its last process is gone");
}

void lease_end(struct broker *broker, struct lease *lease, const char *reason, bool evicts) {
    struct holder *holder, *next;
    char text[RECORD_TEXT_SIZE + 64];

    if (lease->is_ending) {
        lease->evicts |= evicts;
        return;
    }
    lease->is_ending = true;
    lease->evicts = evicts;
    lease->ending_usec = broker->now_usec;
    snprintf(lease->reason, sizeof(lease->reason), "%s", reason);
    emit_lease(broker, lease);
    snprintf(text, sizeof(text), "lease %llu ends: %s", (unsigned long long)lease->id, reason);
    emit_event(broker, "ending", lease, 0, NULL, "%s", text);
    emit_notice(broker, lease, NOTICE_ENDING, NULL, text);
    list_foreach_safe (holder, next, &lease->holders, in_lease) {
        deny_growth_of(broker, holder, lease, text);
    }
    if (evicts)
        broker->next_expiry_usec =
            MIN(broker->next_expiry_usec, broker->now_usec + broker->policy->ending_usec);
    lease_end_if_empty(broker, lease);
}

void broker_end(struct broker *broker, uint64_t id, const char *reason, struct moment now) {
    struct lease *lease = broker_lease(broker, id);

    broker->now_usec = now.usec;
    if (lease)
        lease_end(broker, lease, reason, true);
}

void broker_release(struct broker *broker, const struct broker_peer *peer, uint64_t id,
                    struct moment now, struct verdict *ret) {
    struct lease *lease = broker_lease_of_peer(broker, id, peer->uid);
    struct holder *holder;
    char reason[96];

    broker->now_usec = now.usec;
    if (!lease || (lease->uid != peer->uid && !peer->is_admin)) {
        ret->kind = VERDICT_DENY;
        ret->refusal = REFUSAL_NOT_FOUND;
        ret->has_device = false;
        ret->n_holders = 0;
        snprintf(ret->reason, sizeof(ret->reason), "you have no lease %llu",
                 (unsigned long long)id);
        return;
    }
    ret->kind = VERDICT_GRANT;
    ret->lease = lease->id;
    ret->reason[0] = '\0';
    if (lease->uid == peer->uid)
        snprintf(reason, sizeof(reason), "%s", LEASE_RELEASED);
    else
        snprintf(reason, sizeof(reason), "released by uid %u, an administrator",
                 (unsigned)peer->uid);

    /* Who releases and holds nothing need not be waited for. */
    holder = holder_find(lease, &peer->process);
    if (holder && !lease->is_ending) {
        bool is_empty = true;

        for (uint32_t i = 0; i < lease->n_shares; i++)
            is_empty &= lease_part_held(&holder->parts[i]) == 0;
        if (is_empty)
            holder_gone(broker, holder, false);
    }
    /* Nor who acquired it, where that was told to go. */
    if (lease->is_ending && lease->owner && lease->n_holders == 0 &&
        process_id_equal(&lease->owner->process, &peer->process)) {
        lease_gone(broker, lease, lease->reason);
        return;
    }
    lease->is_ended_by_admin |= peer->is_admin;
    lease_end(broker, lease, reason, lease->uid != peer->uid);
}

enum require broker_require(const struct lease *lease) {
    enum require require = (enum require)lease->user->rules.require;

    for (uint32_t i = 0; i < lease->n_shares; i++)
        if (lease->shares[i].book)
            require = MAX(require, lease->shares[i].book->require);
    return require;
}

int broker_confined(struct broker *broker, uint64_t id, const char *scope, const char *cgroup,
                    uint32_t tiers, struct moment now) {
    struct lease *lease = broker_lease(broker, id);
    char path[RECORD_PATH_SIZE];

    broker->now_usec = now.usec;
    if (!lease)
        return -ENOENT;
    if (!cgroup)
        cgroup = "";
    if (strlen(cgroup) >= sizeof(path))
        return -ENAMETOOLONG;
    if (strcmp(cgroup, lease->cgroup) != 0) {
        if (cgroup[0] && map_find_text(&broker->cgroups, cgroup))
            return -EEXIST;
        if (lease->cgroup[0])
            map_take_text(&broker->cgroups, lease->cgroup);
        memcpy(path, lease->cgroup, sizeof(path));
        memset(lease->cgroup, 0, sizeof(lease->cgroup));
        strcpy(lease->cgroup, cgroup);
        if (cgroup[0] && map_put_text(&broker->cgroups, lease->cgroup, lease) < 0) {
            /* There was room for the old one a moment ago. */
            memcpy(lease->cgroup, path, sizeof(path));
            if (path[0] && map_put_text(&broker->cgroups, lease->cgroup, lease) < 0)
                lease->cgroup[0] = '\0';
            return -ENOMEM;
        }
    }
    memset(lease->scope, 0, sizeof(lease->scope));
    snprintf(lease->scope, sizeof(lease->scope), "%s", scope ? scope : "");
    lease->tiers = tiers;
    emit_lease(broker, lease);
    return 0;
}

void broker_vacated(struct broker *broker, uint64_t id, struct moment now) {
    struct lease *lease = broker_lease(broker, id);

    broker->now_usec = now.usec;
    if (lease)
        lease_gone(broker, lease, lease->is_ending ? lease->reason : "its scope is empty");
}

void broker_detach(struct broker *broker, const struct process_id *process, uint64_t id,
                   struct moment now) {
    struct holder *holder = broker_holder(broker, process, id);
    struct lease *lease;

    broker->now_usec = now.usec;
    if (!holder)
        return;
    lease = holder->lease;
    emit_event(broker, "detached", lease, process->pid, NULL,
               "process %d no longer holds lease %llu", (int)process->pid,
               (unsigned long long)lease->id);
    holder_gone(broker, holder, true);
    lease_end_if_empty(broker, lease);
}

void broker_process_gone(struct broker *broker, const struct process_id *process,
                         struct moment now) {
    struct proc *proc;
    struct waiter *waiter;
    struct holder *holder;
    struct lease *lease;
    struct recovered_waiter *recovered, *next;

    broker->now_usec = now.usec;
    list_foreach_safe (recovered, next, &broker->recovered, in_broker) {
        if (recovered->record.pid != process->pid || recovered->record.start != process->start)
            continue;
        emit_waiter_gone(broker, recovered->record.id);
        list_remove(&recovered->in_broker);
        free(recovered);
    }
    /* Each step may free the proc. */
    while ((proc = proc_find(broker, process)) &&
           (waiter = list_first(&proc->waiters, struct waiter, in_proc))) {
        emit_cancelled(broker, waiter);
        queue_leave(broker, waiter);
    }
    while ((proc = proc_find(broker, process)) &&
           (holder = list_first(&proc->holders, struct holder, in_proc))) {
        lease = holder->lease;
        holder_gone(broker, holder, true);
        lease_end_if_empty(broker, lease);
    }
    while ((proc = proc_find(broker, process)) &&
           (lease = list_first(&proc->leases, struct lease, in_owner))) {
        list_remove(&lease->in_owner);
        lease->owner = NULL;
        if (!releasing_find(broker, lease->id, process))
            emit_holder_gone(broker, lease->id, process);
        lease_end_if_empty(broker, lease);
        proc_put(broker, proc_find(broker, process));
    }
}

const struct process_id *broker_owner(const struct lease *lease) {
    if (!lease->owner || holder_find(lease, &lease->owner->process))
        return NULL;
    return &lease->owner->process;
}
