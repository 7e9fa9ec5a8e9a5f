/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compare what NVML shows with what processes declared.
 *
 * Each row of a sample is one process on one device. The broker charges the row to the process's
 * own leases on that device. If there are none, it charges the lease whose cgroup the process is
 * in, that it acquired, or that its environment names. Failing that, it counts against bytes that
 * the process is releasing. The rest is unmanaged. Bytes stop releasing when a sample that began
 * after their release no longer lists the process, and the device no longer shows them as used: a
 * slow driver may still show them as used although it lists no process for them. Bytes that no
 * process used while nothing was releasing are the driver's own.
 *
 * A device that could not be read keeps its numbers.
 */
#include "daemon/broker/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sample_reading {
    const struct sample *sample;
    const uint64_t *leases; /* by the environments of its processes; may be NULL */
    const uid_t *owners;    /* whom its processes count for; NULL: their uids */
    bool is_read[BOOKS_MAX];
    bool is_exact[BOOKS_MAX]; /* every process of it says how much it uses */
    bool has_used[BOOKS_MAX];
    uint64_t used_bytes[BOOKS_MAX];
    uint64_t listed_bytes[BOOKS_MAX];
    uint64_t unmanaged_bytes[BOOKS_MAX];
};

/* Index of a lease's share on the device; n_shares: it has none there. */
static unsigned share_at(const struct lease *lease, unsigned slot) {
    for (unsigned i = 0; i < lease->n_shares; i++)
        if (lease->shares[i].book->slot == slot)
            return i;
    return lease->n_shares;
}

static void note_busy(struct lease *lease, const struct sample_process *row) {
    if (!row->has_busy)
        lease->is_vague = true;
    else if (row->busy > 0)
        lease->is_busy = true;
}

/* Charge the leases that the process holds: each with the bytes declared for it, the first also
 * with the rest. */
static bool charge_holders(const struct proc *proc, unsigned slot, const struct sample_process *row,
                           uint64_t bytes) {
    struct holder *holder;
    struct part *first = NULL;

    list_foreach (holder, &proc->holders, in_proc) {
        unsigned i = share_at(holder->lease, slot);
        uint64_t part;

        if (i == holder->lease->n_shares)
            continue;
        part = MIN(bytes, holder->parts[i].declared_bytes);
        holder->parts[i].fresh_bytes += part;
        bytes -= part;
        if (!first)
            first = &holder->parts[i];
        note_busy(holder->lease, row);
    }
    if (first)
        first->fresh_bytes += bytes;
    return first != NULL;
}

/* Charge a share of the lease for a process that uses it without having attached. */
static bool charge_unasked(struct broker *broker, struct lease *lease, unsigned slot,
                           const struct sample_process *row, const struct process_id *process,
                           uint64_t bytes) {
    unsigned i = share_at(lease, slot);
    struct holder *holder;

    if (i == lease->n_shares)
        return false;
    holder = holder_find(lease, process);
    if (!holder)
        holder = holder_new(broker, lease, process);
    if (!holder)
        return false;
    holder->parts[i].fresh_bytes += bytes;
    note_busy(lease, row);
    return true;
}

/* Without a scope, a process that acquired a lease and uses its device counts as using the
 * lease. */
static bool charge_owner(struct broker *broker, const struct proc *proc, unsigned slot,
                         const struct sample_process *row, const struct process_id *process,
                         uint64_t bytes) {
    struct lease *lease;

    list_foreach (lease, &proc->leases, in_owner)
        if (charge_unasked(broker, lease, slot, row, process, bytes))
            return true;
    return false;
}

static bool charge_scope(struct broker *broker, unsigned slot, const struct sample_process *row,
                         const struct process_id *process, uint64_t bytes) {
    struct lease *lease = row->cgroup[0] ? broker_lease_of_cgroup(broker, row->cgroup) : NULL;

    return lease && process->start != 0 && charge_unasked(broker, lease, slot, row, process, bytes);
}

/* The user of a process, if it has a lease; NULL: it has none, or the user is not known. */
static const struct user *user_of(const struct broker *broker, const struct sample_process *row) {
    const struct user *user = row->has_uid ? map_find(&broker->users, row->uid) : NULL;

    return user && user->n_leases > 0 && row->start != 0 ? user : NULL;
}

/* Nor is there one for its children: they have its environment. */
static bool charge_by_environment(struct broker *broker, uint64_t id, unsigned slot,
                                  const struct sample_process *row,
                                  const struct process_id *process, uint64_t bytes) {
    const struct user *user = user_of(broker, row);
    struct lease *lease = user ? broker_lease(broker, id) : NULL;

    return lease && lease->user == user && !lease->cgroup[0] &&
           charge_unasked(broker, lease, slot, row, process, bytes);
}

bool broker_is_unclaimed(const struct broker *broker, const struct sample_process *row) {
    struct process_id process = { .pid = row->pid, .start = row->start };
    const struct book *book = broker_find_book(broker, &row->device);
    const struct proc *proc = proc_find(broker, &process);
    const struct lease *lease = row->cgroup[0] ? broker_lease_of_cgroup(broker, row->cgroup) : NULL;
    const struct holder *holder;

    if (!book || !user_of(broker, row) || (lease && share_at(lease, book->slot) < lease->n_shares))
        return false;
    if (!proc)
        return true;
    list_foreach (holder, &proc->holders, in_proc)
        if (share_at(holder->lease, book->slot) < holder->lease->n_shares)
            return false;
    list_foreach (lease, &proc->leases, in_owner)
        if (share_at(lease, book->slot) < lease->n_shares)
            return false;
    return true;
}

/* The bytes that this process is still releasing on the device; `ret_is_new`: it released some
 * after the sample began. */
static uint64_t owed(const struct broker *broker, const struct sample_reading *reading,
                     unsigned slot, const struct process_id *process, bool *ret_is_new) {
    const struct releasing *releasing;
    uint64_t sum = 0;

    *ret_is_new = false;
    list_foreach (releasing, &broker->releasing, in_broker) {
        /* A row without a start time belongs to a process that is gone already. */
        if (releasing->process.pid != process->pid ||
            (process->start != 0 && releasing->process.start != process->start))
            continue;
        for (uint32_t i = 0; i < releasing->n_parts; i++)
            if (releasing->parts[i].book->slot == slot) {
                sum += releasing->parts[i].bytes;
                *ret_is_new |= releasing->since_usec > reading->sample->taken_usec;
            }
    }
    return sum;
}

/*
 * For leases that the broker rebuilds from the processes that come back: how much of a claim the
 * driver confirms.
 */
static void note_unclaimed(struct broker *broker, const struct sample_reading *reading,
                           const struct sample_process *row, unsigned slot, uint64_t bytes) {
    const uid_t *owners = reading->owners;

    if (broker->n_unclaimed == broker->n_unclaimed_max) {
        size_t n = broker->n_unclaimed_max ? 2 * broker->n_unclaimed_max : 16;
        struct unclaimed *unclaimed = realloc(broker->unclaimed, n * sizeof(struct unclaimed));

        if (!unclaimed)
            return; /* only what is free decides about its claim */
        broker->unclaimed = unclaimed;
        broker->n_unclaimed_max = n;
    }
    broker->unclaimed[broker->n_unclaimed++] = (struct unclaimed){
        .process = { .pid = row->pid, .start = row->start },
        .slot = slot,
        .bytes = bytes,
        .has_uid = row->has_uid,
        .uid = owners ? owners[row - reading->sample->processes] : row->uid,
    };
}

static void read_row(struct broker *broker, struct sample_reading *reading,
                     const struct sample_process *row) {
    struct process_id process = { .pid = row->pid, .start = row->start };
    const struct book *book = broker_find_book(broker, &row->device);
    const struct proc *proc;
    uint64_t bytes = row->has_used ? books_round_up(row->used_bytes) : 0, owed_bytes;
    bool is_new;

    if (!book || !reading->is_read[book->slot])
        return;
    if (row->has_used)
        reading->listed_bytes[book->slot] += row->used_bytes;
    else
        reading->is_exact[book->slot] = false;

    proc = proc_find(broker, &process);
    if (proc && charge_holders(proc, book->slot, row, bytes))
        return;
    owed_bytes = owed(broker, reading, book->slot, &process, &is_new);
    if (is_new)
        return; /* the process used these before it ended: they count as releasing */
    if (charge_scope(broker, book->slot, row, &process, bytes) ||
        (proc && charge_owner(broker, proc, book->slot, row, &process, bytes)) ||
        (reading->leases &&
         charge_by_environment(broker, reading->leases[row - reading->sample->processes],
                               book->slot, row, &process, bytes)))
        return;
    if (bytes > owed_bytes) {
        reading->unmanaged_bytes[book->slot] += bytes - owed_bytes;
        note_unclaimed(broker, reading, row, book->slot, bytes - owed_bytes);
    }
}

bool broker_declared(const struct broker *broker, const struct process_id *process,
                     const struct gpuid *device, struct broker_declared *ret) {
    const struct proc *proc = proc_find(broker, process);
    const struct book *book = broker_find_book(broker, device);
    const struct holder *holder;
    bool is_found = false;

    *ret = (struct broker_declared){ .is_all = true };
    if (!proc || !book)
        return false;
    list_foreach (holder, &proc->holders, in_proc) {
        unsigned i = share_at(holder->lease, book->slot);

        if (i == holder->lease->n_shares)
            continue;
        is_found = true;
        ret->uid = holder->lease->uid;
        ret->is_all &= holder->is_attached && holder->tier != 0;
        ret->bytes += holder->parts[i].declared_bytes;
        ret->context_bytes = MAX(ret->context_bytes, holder->parts[i].context_bytes);
    }
    return is_found;
}

/* ---- Releasing
 * -------------------------------------------------------------------------------------
 */

static const struct sample_process *find_row(const struct sample *sample,
                                             const struct process_id *process,
                                             const struct gpuid *device) {
    for (size_t i = 0; i < sample->n_processes; i++) {
        const struct sample_process *row = &sample->processes[i];

        if (row->pid == process->pid && (row->start == 0 || row->start == process->start) &&
            gpuid_equal(&row->device, device))
            return row;
    }
    return NULL;
}

/* Bytes that a device shows as used beyond those of the listed processes and the driver's own. */
static uint64_t lingering(struct broker *broker, const struct sample_reading *reading,
                          unsigned slot) {
    uint64_t hidden;

    if (!reading->has_used[slot] || !reading->is_exact[slot] || !broker->has_base[slot])
        return 0;
    hidden =
        reading->used_bytes[slot] - MIN(reading->used_bytes[slot], reading->listed_bytes[slot]);
    return hidden - MIN(hidden, broker->base_bytes[slot]);
}

/* Whether a lease is already charged for what the process uses of the device. */
static bool is_charged(const struct broker *broker, const struct process_id *process,
                       unsigned slot) {
    const struct proc *proc = proc_find(broker, process);
    const struct holder *holder;

    if (!proc)
        return false;
    list_foreach (holder, &proc->holders, in_proc) {
        if (share_at(holder->lease, slot) < holder->lease->n_shares)
            return true;
    }
    return false;
}

static void read_releasing(struct broker *broker, const struct sample_reading *reading) {
    uint64_t left[BOOKS_MAX];
    bool has_releasing[BOOKS_MAX] = { false };
    struct releasing *releasing, *next;

    for (size_t i = 0; i < broker->n_books; i++)
        left[i] = lingering(broker, reading, (unsigned)i);

    list_foreach_safe (releasing, next, &broker->releasing, in_broker) {
        uint64_t sum = 0;

        for (uint32_t i = 0; i < releasing->n_parts; i++) {
            const struct book *book = releasing->parts[i].book;
            const struct sample_process *row;
            uint64_t bytes = releasing->parts[i].bytes, still = bytes;

            has_releasing[book->slot] = true;
            sum += bytes;
            if (!reading->is_read[book->slot] ||
                releasing->since_usec > reading->sample->taken_usec)
                continue;
            row = find_row(reading->sample, &releasing->process, &book->device.seen.id);
            if (row && is_charged(broker, &releasing->process, book->slot)) {
                still = 0; /* it is a lease's again */
            } else if (row) {
                if (row->has_used)
                    still = MIN(bytes, books_round_up(row->used_bytes));
            } else if (broker->now_usec - releasing->since_usec >= broker->policy->gone_usec) {
                still = 0;
            } else {
                still = MIN(bytes, books_round_up(left[book->slot]));
                left[book->slot] -= MIN(left[book->slot], still);
            }
            releasing_lower(broker, releasing, i, still);
            sum -= bytes - still;
        }
        if (sum == 0)
            releasing_free(broker, releasing);
    }
    for (size_t i = 0; i < broker->n_books; i++)
        if (!has_releasing[i] && reading->has_used[i] && reading->is_exact[i]) {
            broker->base_bytes[i] =
                reading->used_bytes[i] - MIN(reading->used_bytes[i], reading->listed_bytes[i]);
            broker->has_base[i] = true;
        }
}

/* ---- Idleness ----------------------------------------------------------------------------------
 */

static void idle_step(struct broker *broker, struct lease *lease, uint8_t step) {
    char text[256], since[UNITS_TEXT_SIZE];
    struct holder *holder;
    struct waiter *waiter, *next;

    lease->idle_step = step;
    emit_lease(broker, lease);
    if (step > 0) {
        snprintf(text, sizeof(text), "lease %llu holds memory and has computed nothing for %s%s",
                 (unsigned long long)lease->id,
                 units_format_usec(broker->now_usec - lease->idle_usec, since),
                 step == 1   ? "; give it back if you do not need it"
                 : step == 2 ? "; its priority is lowered"
                             : "");
        emit_event(broker, "idle", lease, 0, NULL, "%s", text);
        emit_notice(broker, lease, NOTICE_IDLE, NULL, text);
    }
    list_foreach (holder, &lease->holders, in_lease) {
        list_foreach_safe (waiter, next, &holder->proc->waiters, in_proc) {
            if (waiter->holder == holder)
                queue_reorder(broker, waiter, lease_priority(lease, broker->policy));
        }
    }
    if (step == 3)
        lease_end(broker, lease, "it held memory and computed nothing for too long", true);
}

static void judge_idleness(struct broker *broker, struct lease *lease,
                           const struct sample_reading *reading) {
    const struct policy_rules *rules = &lease->user->rules;
    bool is_idle = !lease->is_busy && !lease->is_vague && !lease->is_ending;
    uint64_t kept = 0, idle;
    uint8_t step = 0;

    for (uint32_t i = 0; i < lease->n_shares; i++) {
        is_idle &= reading->is_read[lease->shares[i].book->slot];
        /* Other leases cannot get the bytes guaranteed to this one, whether or not it ever uses
         * them. */
        kept |= books_charge(&lease->shares[i]);
    }
    if (!is_idle || kept == 0) {
        lease->idle_usec = 0;
        if (lease->idle_step > 0 && !lease->is_ending)
            idle_step(broker, lease, 0);
        return;
    }
    if (lease->idle_usec == 0)
        lease->idle_usec = reading->sample->taken_usec ? reading->sample->taken_usec : 1;
    idle = broker->now_usec - MIN(broker->now_usec, lease->idle_usec);
    if (idle >= rules->idle_end_usec)
        step = 3;
    else if (idle >= rules->idle_drop_usec)
        step = 2;
    else if (idle >= rules->idle_tell_usec)
        step = 1;
    /* Take each rung once, also if a sample comes late. */
    if (step > lease->idle_step)
        idle_step(broker, lease, step);
}

/* ---- A sample ----------------------------------------------------------------------------------
 */

static void read_devices(const struct broker *broker, struct sample_reading *reading) {
    for (size_t i = 0; i < reading->sample->n_devices; i++) {
        const struct sample_device *device = &reading->sample->devices[i];
        const struct book *book = broker_find_book(broker, &device->id);

        if (!book || device->health != SAMPLE_OK)
            continue;
        reading->is_read[book->slot] = reading->is_exact[book->slot] = true;
        reading->has_used[book->slot] = READINGS_HAVE(&device->readings, used_bytes);
        reading->used_bytes[book->slot] = device->readings.used_bytes;
    }
}

static void settle_lease(struct broker *broker, struct lease *lease,
                         const struct sample_reading *reading) {
    struct holder *holder, *next;
    bool has_left = false;

    list_foreach_safe (holder, next, &lease->holders, in_lease) {
        bool is_shown = false;

        for (uint32_t i = 0; i < lease->n_shares; i++) {
            if (reading->is_read[lease->shares[i].book->slot])
                holder_set(broker, holder, i, holder->parts[i].declared_bytes,
                           holder->parts[i].fresh_bytes);
            is_shown |= holder->parts[i].seen_bytes > 0;
        }
        if (!is_shown && !holder->is_attached && !holder->is_absent) {
            holder_gone(broker, holder, false);
            has_left = true;
        }
    }
    /* A lease that was told to end, or that all holders left, waited only for this. */
    if (lease->is_ending || has_left)
        lease_end_if_empty(broker, lease);
}

/*
 * What processes without a lease use counts against their own user's waiters (reservation.c), of
 * the devices that were read.
 */
static void settle_unmanaged(struct broker *broker, const struct sample_reading *reading) {
    struct user *user;

    for (size_t pos = 0; (user = map_next(&broker->users, &pos));) {
        uint64_t before[BOOKS_MAX];

        if (!user->has_unmanaged && broker->n_unclaimed == 0)
            continue;
        memcpy(before, user->unmanaged_bytes, sizeof(before));
        for (size_t i = 0; i < broker->n_books; i++)
            if (reading->is_read[i])
                user->unmanaged_bytes[i] = 0;
        user_count_unmanaged(broker, user);
        for (size_t i = 0; i < broker->n_books; i++)
            if (user->unmanaged_bytes[i] > before[i])
                reservation_note_taken(broker, user, (unsigned)i);
    }
}

int broker_sample(struct broker *broker, const struct sample *sample, const uint64_t *leases,
                  const uid_t *owners, struct moment now) {
    struct sample_reading *reading = calloc(1, sizeof(*reading));
    struct lease *lease;
    struct holder *holder;

    if (!reading)
        return -ENOMEM;
    broker->now_usec = now.usec;
    reading->sample = sample;
    reading->leases = leases;
    reading->owners = owners;
    read_devices(broker, reading);
    for (size_t pos = 0; (lease = map_next(&broker->leases, &pos));) {
        lease->is_busy = lease->is_vague = false;
        list_foreach (holder, &lease->holders, in_lease) {
            for (uint32_t i = 0; i < lease->n_shares; i++)
                holder->parts[i].fresh_bytes = 0;
        }
    }
    broker->n_unclaimed = 0;
    for (size_t i = 0; i < sample->n_processes; i++)
        read_row(broker, reading, &sample->processes[i]);

    for (size_t pos = 0; (lease = map_next(&broker->leases, &pos));) {
        uint64_t id = lease->id;

        settle_lease(broker, lease, reading);
        if (map_find(&broker->leases, id))
            judge_idleness(broker, lease, reading);
    }
    read_releasing(broker, reading);
    for (size_t i = 0; i < broker->n_books; i++) {
        if (!reading->is_read[i])
            continue;
        if (reading->unmanaged_bytes[i] < broker->books[i]->unmanaged_bytes)
            queue_touch(broker, (unsigned)i);
        broker->books[i]->unmanaged_bytes = reading->unmanaged_bytes[i];
    }
    settle_unmanaged(broker, reading);
    free(reading);
    return 0;
}
