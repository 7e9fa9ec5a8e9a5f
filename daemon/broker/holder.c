/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holder: a process that holds, or may hold, bytes of a lease.
 *
 * What a holder had when it left is `releasing` in the books until NVML agrees. The memory for that
 * record is allocated when the holder comes, because an end must not fail.
 */
#include "daemon/broker/internal.h"

#include <stdlib.h>

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
    queue_note_bankers(broker);
    /* Growth of another process may need less now, though the lease is charged the same. */
    if (charge < charge_before || (held < held_before && lease->n_growths > 0))
        queue_touch(broker, share->book->slot);
    if (charge < charge_before)
        queue_note_freed(broker, lease->user);
    /* More that is held within the guarantee leaves less of it for growth that waits. */
    if (held > held_before)
        reservation_note_taken(broker, lease->user, share->book->slot);
    if (held < held_before && lease->n_growths > 0)
        growth_retry_siblings(broker, lease, i);
}

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

void holder_deny_growth(struct broker *broker, const struct holder *holder,
                        const struct lease *lease, const char *why) {
    struct waiter *waiter, *next;

    list_foreach_safe (waiter, next, &holder->proc->waiters, in_proc) {
        if (waiter->holder == holder && waiter->holder->lease == lease)
            queue_deny(broker, waiter, REFUSAL_NOT_FOUND, NULL, "%s", why);
    }
}

void holder_gone(struct broker *broker, struct holder *holder, bool leaves_releasing) {
    struct lease *lease = holder->lease;
    struct releasing *releasing = holder->releasing, *former = NULL;
    bool was_recorded = holder->is_attached || holder->is_absent;

    holder_deny_growth(broker, holder, lease, "the process no longer holds the lease");
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
