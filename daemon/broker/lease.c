/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attaching and detaching holders, and ending leases.
 *
 * A lease ends when it has no process left. With a scope, its cgroup says so (broker_vacated).
 * Without one, its holders and the process that acquired it must be gone, and then each process
 * that the job left behind (broker_sink.orphaned). A lease that is told to end waits only for its
 * holders and, if its job is evicted and has no scope, for the process that acquired it.
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

struct lease *broker_lease(const struct broker *broker, uint64_t id) {
    return map_find(&broker->leases, id);
}

int32_t lease_priority(const struct lease *lease, const struct policy *policy) {
    return lease->idle_step >= 2 ? lease->priority - policy->idle_drop : lease->priority;
}

/* ---- Bytes -------------------------------------------------------------------------------------
 */

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
        reservation_note_taken(broker, user, slot);
    }
    user->n_leases++;
    if (lease->declares_max)
        list_append(&broker->declared, &lease->in_declared);
    queue_note_bankers(broker);
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
    queue_note_bankers(broker);
    queue_note_freed(broker, user);
}

/* ---- Leases ------------------------------------------------------------------------------------
 */

struct lease *lease_new(struct broker *broker, uint64_t id, struct user *user, uint32_t n_shares) {
    struct lease *lease = calloc(1, sizeof(*lease) + n_shares * sizeof(struct share));

    if (!lease || map_put(&broker->leases, id, lease) < 0) {
        free(lease);
        return NULL;
    }
    broker->next_lease = MAX(broker->next_lease, id + 1);
    lease->id = id;
    lease->user = user;
    lease->uid = user->uid;
    lease->gid = user->gid;
    lease->n_shares = n_shares;
    list_init(&lease->holders);
    return lease;
}

void lease_begin(struct broker *broker, struct lease *lease, struct proc *owner,
                 uint64_t life_usec) {
    lease->created_usec = broker->now_usec;
    if (life_usec != UNITS_FOREVER) {
        lease->expires_usec = units_add(broker->now_usec, life_usec);
        broker->next_expiry_usec = MIN(broker->next_expiry_usec, lease->expires_usec);
    }
    lease->owner = owner;
    list_append(&owner->leases, &lease->in_owner);
    proc_note_hold_wait(broker, owner, true);
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
    /*
     * The lease may end before the process that acquired it: its scope is empty while gpuctl still
     * runs.
     */
    if (owner && !releasing_find(broker, lease->id, &owner->process))
        emit_holder_gone(broker, lease->id, &owner->process);
    proc_put(broker, owner);
    emit_lease_gone(broker, lease->id);
    emit_event(broker, "ended", lease, 0, NULL, "lease %llu of uid %u ended%s%s",
               (unsigned long long)lease->id, (unsigned)lease->uid, why[0] ? ": " : "", why);
    free(lease);
    user_put(broker, user);
}

/* No known process keeps it, and no scope says when it ends. */
static bool is_vacant(const struct lease *lease) {
    return lease->n_holders == 0 && !lease->owner && !lease->cgroup[0];
}

void broker_inherit(struct broker *broker, uint64_t id, const struct process_id *survivor,
                    struct moment now) {
    struct lease *lease = broker_lease(broker, id);
    struct proc *proc = NULL;

    broker->now_usec = now.usec;
    if (!lease)
        return;
    lease->is_orphaned = false;
    if (lease->is_ending || !is_vacant(lease))
        return;
    if (survivor)
        proc = proc_get(broker, survivor);
    if (!proc) {
        lease_gone(broker, lease, "its last process is gone");
        return;
    }
    lease->owner = proc;
    list_append(&proc->leases, &lease->in_owner);
    proc_note_hold_wait(broker, proc, true);
    /* Both records have the same key; the end of the releasing bytes records the owner. */
    if (!releasing_find(broker, lease->id, survivor))
        emit_owner(broker, lease);
}

void broker_search_as(struct broker *broker, uid_t uid) {
    broker->can_search = true;
    broker->search_uid = uid;
}

/* The lease's known processes are gone: it ends, unless its job may have left one that a search can
 * find. */
static void lease_orphan(struct broker *broker, struct lease *lease) {
    if (!broker->can_search || (broker->search_uid != 0 && broker->search_uid != lease->uid)) {
        lease_gone(broker, lease, "its last process is gone");
        return;
    }
    lease->is_orphaned = true;
    if (broker->sink.orphaned)
        broker->sink.orphaned(broker->sink.userdata, lease);
}

void lease_end_if_empty(struct broker *broker, struct lease *lease) {
    if (lease->n_holders > 0)
        return;
    /* The job may use the device at any moment, so it must end before another lease gets the bytes.
     */
    if (lease->is_ending && (lease->cgroup[0] || (lease->evicts && lease->owner)))
        return;
    if (lease->is_ending)
        lease_gone(broker, lease, lease->reason);
    else if (is_vacant(lease))
        lease_orphan(broker, lease);
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
        holder_deny_growth(broker, holder, lease, text);
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

    /* The lease need not wait for a holder that releases it and holds nothing. */
    holder = holder_find(lease, &peer->process);
    if (holder && !lease->is_ending) {
        bool is_empty = true;

        for (uint32_t i = 0; i < lease->n_shares; i++)
            is_empty &= lease_part_held(&holder->parts[i]) == 0;
        if (is_empty)
            holder_gone(broker, holder, false);
    }
    /* Nor for the process that acquired it, which by releasing it says that it is done. */
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
        strcpy(lease->cgroup, cgroup);
        if (cgroup[0] && map_put_text(&broker->cgroups, lease->cgroup, lease) < 0) {
            /* This uses the room of the entry that was just removed, so it cannot fail. */
            memcpy(lease->cgroup, path, sizeof(path));
            if (path[0] && map_put_text(&broker->cgroups, lease->cgroup, lease) < 0)
                lease->cgroup[0] = '\0';
            return -ENOMEM;
        }
    }
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

int broker_visible_devices(const struct lease *lease, char *text, size_t size) {
    size_t length = 0;

    if (size > 0)
        text[0] = '\0';
    for (uint32_t i = 0; i < lease->n_shares; i++) {
        int n = snprintf(length < size ? text + length : NULL, length < size ? size - length : 0,
                         "%s%s", i ? "," : "", lease->shares[i].book->name);

        length += (size_t)n;
    }
    return (int)length;
}
