/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proc: a process that holds a lease, acquired one, or waits, found by its identity. It is freed
 * when it does none of the three.
 */
#include "daemon/broker/internal.h"

#include <stdlib.h>

struct proc *proc_find(const struct broker *broker, const struct process_id *process) {
    return map_find(&broker->procs, process_id_key(process));
}

struct proc *proc_get(struct broker *broker, const struct process_id *process) {
    struct proc *proc = proc_find(broker, process);

    if (proc)
        return proc;
    proc = calloc(1, sizeof(*proc));
    if (!proc)
        return NULL;
    proc->process = *process;
    list_init(&proc->holders);
    list_init(&proc->leases);
    list_init(&proc->waiters);
    if (map_put(&broker->procs, process_id_key(process), proc) < 0) {
        free(proc);
        return NULL;
    }
    return proc;
}

void proc_note_hold_wait(struct broker *broker, struct proc *proc, bool has_more) {
    struct waiter *waiter;
    bool holds_and_waits = !list_is_empty(&proc->waiters) &&
                           (!list_is_empty(&proc->holders) || !list_is_empty(&proc->leases));

    if (!holds_and_waits)
        list_remove(&proc->in_hold_wait);
    else if (!list_is_linked(&proc->in_hold_wait))
        list_append(&broker->hold_wait, &proc->in_hold_wait);
    if (holds_and_waits && has_more)
        list_foreach (waiter, &proc->waiters, in_proc) {
            queue_refresh(broker, waiter);
        }
}

void proc_put(struct broker *broker, struct proc *proc) {
    if (!proc)
        return;
    proc_note_hold_wait(broker, proc, false);
    if (!list_is_empty(&proc->holders) || !list_is_empty(&proc->leases) ||
        !list_is_empty(&proc->waiters))
        return;
    map_take(&broker->procs, process_id_key(&proc->process));
    free(proc);
}
