/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits that can never end.
 *
 * Only a process that holds something and waits for something can be in a deadlock
 * (broker.hold_wait). Suppose that all others end and give back what they have; every process whose
 * wait that satisfies ends as well, and so on. The processes that are left over wait for each other
 * for ever: that is a deadlock, across all devices, and nothing else is. A process can always give
 * back what is its own, so no process is in a deadlock with itself alone: holding one lease and
 * waiting for another is just waiting.
 *
 * A lease is stuck if every process that holds bytes of it is. Waits for quota, hours, health or
 * siblings have other ends than memory and are no part of it.
 *
 * One wait of each deadlock is given up: of the lowest priority, of these the youngest.
 */
#include "daemon/broker/internal.h"

#include <stdio.h>

/* State of a search: processes and leases that carry `mark` are stuck. */
struct deadlock_search {
    uint64_t mark;
    int64_t free_bytes[BOOKS_MAX];
};

static bool is_stuck_wait(const struct waiter *waiter) {
    return waiter->why <= WHY_UNSAFE && waiter->is_active;
}

/* A holder that has nothing of the lease does not count, unless no holder has anything. */
static bool is_stuck(const struct lease *lease, uint64_t mark) {
    const struct holder *holder;
    bool some = false;

    list_foreach (holder, &lease->holders, in_lease) {
        uint64_t held = 0;

        for (uint32_t i = 0; i < lease->n_shares; i++)
            held |= lease_part_held(&holder->parts[i]);
        if (held == 0)
            continue;
        some = true;
        if (holder->proc->mark != mark)
            return false;
    }
    if (some)
        return true;
    list_foreach (holder, &lease->holders, in_lease) {
        some = true;
        if (holder->proc->mark != mark)
            return false;
    }
    return some || (lease->owner && lease->owner->mark == mark);
}

static void charge(struct deadlock_search *search, const struct lease *lease, int sign) {
    for (uint32_t i = 0; i < lease->n_shares; i++)
        search->free_bytes[lease->shares[i].book->slot] +=
            sign * (int64_t)books_charge(&lease->shares[i]);
}

/* Call `fn` for each lease of the process; one that it holds and acquired comes twice. */
static void each_lease(const struct proc *proc,
                       void (*fn)(struct deadlock_search *search, struct lease *lease),
                       struct deadlock_search *search) {
    struct holder *holder;
    struct lease *lease;

    list_foreach (holder, &proc->holders, in_proc) {
        fn(search, holder->lease);
    }
    list_foreach (lease, &proc->leases, in_owner) {
        fn(search, lease);
    }
}

static void take(struct deadlock_search *search, struct lease *lease) {
    if (lease->mark == search->mark || !is_stuck(lease, search->mark))
        return;
    lease->mark = search->mark;
    charge(search, lease, -1);
}

static void give(struct deadlock_search *search, struct lease *lease) {
    if (lease->mark != search->mark)
        return;
    lease->mark = 0;
    charge(search, lease, 1);
}

/* Bytes of stuck leases that are the process's own, not counting one lease. */
static int64_t own_bytes(const struct deadlock_search *search, const struct proc *proc,
                         unsigned slot, const struct lease *but) {
    const struct holder *holder;
    const struct lease *lease;
    int64_t sum = 0;

    list_foreach (holder, &proc->holders, in_proc) {
        for (uint32_t i = 0; i < holder->lease->n_shares; i++)
            if (holder->lease != but && holder->lease->mark == search->mark &&
                holder->lease->shares[i].book->slot == slot)
                sum += (int64_t)books_charge(&holder->lease->shares[i]);
    }
    list_foreach (lease, &proc->leases, in_owner) {
        for (uint32_t i = 0; i < lease->n_shares; i++)
            if (lease != but && lease->mark == search->mark &&
                lease->shares[i].book->slot == slot && !holder_find(lease, &proc->process))
                sum += (int64_t)books_charge(&lease->shares[i]);
    }
    return sum;
}

static bool could_end(const struct deadlock_search *search, const struct waiter *waiter) {
    uint32_t n = 0;

    if (waiter->holder) {
        const struct lease *lease = waiter->holder->lease;
        const struct share *share = &lease->shares[waiter->share];
        int64_t left = search->free_bytes[share->book->slot] +
                       own_bytes(search, waiter->proc, share->book->slot, lease);

        return left >= 0 && books_rise(share, waiter->bytes) <= (uint64_t)left;
    }
    for (uint32_t i = 0; i < waiter->claim->n_options; i++) {
        const struct option *option = &waiter->claim->options[i];
        int64_t left =
            search->free_bytes[option->slot] + own_bytes(search, waiter->proc, option->slot, NULL);

        n += left >= 0 && option->guaranteed_bytes <= (uint64_t)left;
    }
    return n >= waiter->claim->n_wanted;
}

static bool all_could_end(const struct deadlock_search *search, const struct proc *proc) {
    const struct waiter *waiter;

    list_foreach (waiter, &proc->waiters, in_proc) {
        if (is_stuck_wait(waiter) && !could_end(search, waiter))
            return false;
    }
    return true;
}

/* Processes that are left over carry the mark. Returns how many. */
static uint32_t find_deadlock(struct broker *broker, struct deadlock_search *search) {
    struct proc *proc;
    uint32_t n = 0;
    bool moved = true;

    search->mark = ++broker->mark;
    for (size_t i = 0; i < broker->n_books; i++)
        search->free_bytes[i] = (int64_t)broker->books[i]->usable_bytes;
    list_foreach (proc, &broker->hold_wait, in_hold_wait) {
        const struct waiter *waiter;

        list_foreach (waiter, &proc->waiters, in_proc) {
            if (is_stuck_wait(waiter))
                proc->mark = search->mark;
        }
        n += proc->mark == search->mark;
    }
    if (n < 2)
        return 0;
    list_foreach (proc, &broker->hold_wait, in_hold_wait) {
        if (proc->mark == search->mark)
            each_lease(proc, take, search);
    }

    while (moved) {
        moved = false;
        list_foreach (proc, &broker->hold_wait, in_hold_wait) {
            if (proc->mark != search->mark || !all_could_end(search, proc))
                continue;
            proc->mark = 0;
            each_lease(proc, give, search);
            moved = true;
            n--;
        }
    }
    return n;
}

/* The wait to give up. */
static struct waiter *find_victim(const struct broker *broker,
                                  const struct deadlock_search *search) {
    struct waiter *victim = NULL, *waiter;
    struct proc *proc;

    list_foreach (proc, &broker->hold_wait, in_hold_wait) {
        if (proc->mark != search->mark)
            continue;
        list_foreach (waiter, &proc->waiters, in_proc) {
            if (!is_stuck_wait(waiter) || could_end(search, waiter))
                continue;
            if (!victim || waiter->priority < victim->priority ||
                (waiter->priority == victim->priority && waiter->arrival > victim->arrival))
                victim = waiter;
        }
    }
    return victim;
}

/* "process 12 of uid 1000 holds 15 GiB under lease 3 and waits for …" */
static void name_member(const struct proc *proc, char *text, size_t size) {
    const struct waiter *waiter = list_first(&proc->waiters, struct waiter, in_proc);
    const struct holder *holder = list_first(&proc->holders, struct holder, in_proc);
    const struct lease *lease =
        holder ? holder->lease : list_first(&proc->leases, struct lease, in_owner);
    uint64_t charge_bytes = 0;
    char bytes[UNITS_TEXT_SIZE];

    for (uint32_t i = 0; lease && i < lease->n_shares; i++)
        charge_bytes += books_charge(&lease->shares[i]);
    snprintf(text, size, "process %d of uid %u holds %s under lease %llu and waits for %s",
             (int)proc->process.pid, (unsigned)waiter->user->uid,
             units_format_bytes(charge_bytes, bytes), lease ? (unsigned long long)lease->id : 0,
             waiter->asked);
}

void deadlock_resolve(struct broker *broker, struct verdict *ret) {
    struct deadlock_search search;

    broker->is_deadlock_due = false;
    while (find_deadlock(broker, &search) > 0) {
        struct waiter *victim = find_victim(broker, &search);
        struct verdict verdict = {
            .kind = VERDICT_DENY,
            .refusal = REFUSAL_DEADLOCK,
        };
        const struct proc *proc;

        if (!victim)
            return;
        list_foreach (proc, &broker->hold_wait, in_hold_wait) {
            if (proc->mark == search.mark && verdict.n_holders < VERDICT_HOLDERS_MAX)
                name_member(proc, verdict.holders[verdict.n_holders++], sizeof(verdict.holders[0]));
        }
        snprintf(
            verdict.reason, sizeof(verdict.reason),
            "%u processes wait for each other's memory, and none could ever go on: this wait, the "
            "youngest of the lowest priority, is given up; give memory back and ask again",
            verdict.n_holders);
        if (queue_answer(broker, victim, &verdict))
            *ret = verdict;
    }
}
