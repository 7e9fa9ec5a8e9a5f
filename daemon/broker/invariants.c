/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every sum from its parts, every link from both ends. Written without the functions that keep
 * them, so that a mistake there shows here.
 */
#include "daemon/broker/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct sums {
    uint64_t leased[BOOKS_MAX], guaranteed[BOOKS_MAX], held[BOOKS_MAX], declared[BOOKS_MAX];
    uint64_t releasing[BOOKS_MAX];
    uint32_t n_shares[BOOKS_MAX], n_exclusive[BOOKS_MAX], n_growths[BOOKS_MAX];
    uint32_t n_absent, n_declared;
};

#define WRONG(...) error_set(err, -EUCLEAN, __VA_ARGS__)

static int check_lease(const struct broker *broker, const struct lease *lease, struct sums *sums,
                       struct allot_error *err) {
    const struct holder *holder;
    unsigned long long id = lease->id;
    uint32_t n_holders = 0, n_growths = 0;

    if (map_find(&broker->leases, lease->id) != lease)
        return WRONG("lease %llu is not found by its number", id);
    if (lease->id >= broker->next_lease)
        return WRONG("lease %llu has a number that was not given yet", id);
    if (!lease->user || map_find(&broker->users, lease->uid) != lease->user)
        return WRONG("lease %llu is of no user", id);
    if (lease->cgroup[0] && map_find_text(&broker->cgroups, lease->cgroup) != lease)
        return WRONG("lease %llu is not found by its cgroup", id);
    list_foreach (holder, &lease->holders, in_lease) {
        const struct waiter *waiter;

        n_holders++;
        if (holder->lease != lease || proc_find(broker, &holder->process) != holder->proc)
            return WRONG("a holder of lease %llu is linked wrongly", id);
        sums->n_absent += holder->is_absent;
        if (holder->is_absent && holder->is_attached)
            return WRONG("a holder of lease %llu is absent and there", id);
        list_foreach (waiter, &holder->proc->waiters, in_proc) {
            n_growths += waiter->holder == holder;
        }
    }
    if (n_holders != lease->n_holders || n_growths != lease->n_growths)
        return WRONG("lease %llu counts its holders or their growth wrongly", id);
    if (lease->declares_max != list_is_linked(&lease->in_declared))
        return WRONG("lease %llu is not listed by its maximum", id);
    sums->n_declared += lease->declares_max;

    for (uint32_t i = 0; i < lease->n_shares; i++) {
        const struct share *share = &lease->shares[i];
        uint64_t held = 0, seen = 0;
        unsigned slot;

        if (!share->book || broker->books[share->book->slot] != share->book)
            return WRONG("lease %llu has a share of no device", id);
        slot = share->book->slot;
        for (uint32_t j = 0; j < i; j++)
            if (lease->shares[j].book == share->book)
                return WRONG("lease %llu has two shares of %s", id, share->book->name);
        list_foreach (holder, &lease->holders, in_lease) {
            const struct part *part = &holder->parts[i];

            if (part->declared_bytes % BOOKS_GRANULE || part->seen_bytes % BOOKS_GRANULE)
                return WRONG("lease %llu holds parts of a granule", id);
            held +=
                part->declared_bytes > part->seen_bytes ? part->declared_bytes : part->seen_bytes;
            seen += part->seen_bytes;
        }
        if (held != share->held_bytes || seen != share->seen_bytes)
            return WRONG("lease %llu sums up what it holds on %s wrongly", id, share->book->name);
        if (share->is_exclusive != (lease->mode == LEASE_EXCLUSIVE) ||
            share->declares_max != lease->declares_max)
            return WRONG("lease %llu has a share of another kind on %s", id, share->book->name);
        if (share->guaranteed_bytes > share->limit_bytes)
            return WRONG("lease %llu is guaranteed more than its limit", id);
        sums->leased[slot] += held > share->guaranteed_bytes ? held : share->guaranteed_bytes;
        sums->guaranteed[slot] += share->guaranteed_bytes;
        sums->held[slot] += held;
        sums->declared[slot] += share->declares_max ? share->limit_bytes : 0;
        sums->n_shares[slot]++;
        sums->n_exclusive[slot] += share->is_exclusive;
    }
    return 0;
}

static int check_user(const struct broker *broker, const struct user *user,
                      struct allot_error *err) {
    uint64_t bytes = 0, slot_bytes[BOOKS_MAX] = { 0 };
    uint32_t n_leases = 0, n_slots = 0, n_waiting = 0, slot_leases[BOOKS_MAX] = { 0 };
    const struct lease *lease;
    const struct waiter *waiter;

    for (size_t pos = 0; (lease = map_next(&broker->leases, &pos));) {
        if (lease->user != user)
            continue;
        n_leases++;
        for (uint32_t i = 0; i < lease->n_shares; i++) {
            uint64_t charge = books_charge(&lease->shares[i]);
            unsigned slot = lease->shares[i].book->slot;

            bytes += charge;
            slot_bytes[slot] += charge;
            n_slots += slot_leases[slot]++ == 0;
        }
    }
    for (size_t pos = 0; (waiter = map_next(&broker->waiters, &pos));)
        n_waiting += waiter->user == user;
    if (n_leases != user->n_leases || bytes != user->charged_bytes || n_slots != user->n_slots ||
        n_waiting != user->n_waiting ||
        memcmp(slot_bytes, user->slot_bytes, sizeof(slot_bytes)) != 0 ||
        memcmp(slot_leases, user->slot_leases, sizeof(slot_leases)) != 0)
        return WRONG("the sums of uid %u are wrong", (unsigned)user->uid);
    if (n_leases == 0 && n_waiting == 0)
        return WRONG("uid %u has and wants nothing, and is still there", (unsigned)user->uid);
    return 0;
}

static int check_waiter(const struct broker *broker, const struct waiter *waiter, struct sums *sums,
                        struct allot_error *err) {
    unsigned long long id = waiter->id;
    const struct share *share =
        waiter->holder ? &waiter->holder->lease->shares[waiter->share] : NULL;
    unsigned n_places = waiter->is_active + list_is_linked(&waiter->in_parked) +
                        list_is_linked(&waiter->in_recalls);

    if (map_find(&broker->waiters, waiter->id) != waiter)
        return WRONG("waiter %llu is not found by its number", id);
    if (n_places != 1)
        return WRONG("waiter %llu is in %u places", id, n_places);
    for (unsigned i = 0; i < broker->n_books; i++) {
        bool could = waiter->is_active && (waiter->holder ? share->book->slot == i
                                                          : slots_has(&waiter->claim->slots, i));

        if (could != (waiter->in_queue.marks[i / 64] >> i % 64 & 1))
            return WRONG("waiter %llu would not be found by its devices", id);
    }
    if ((waiter->holder != NULL) == (waiter->request != NULL))
        return WRONG("waiter %llu wants both growth and a lease, or neither", id);
    if (waiter->is_asking)
        return WRONG("waiter %llu has a caller that has left", id);
    if (waiter->is_active && waiter->holder)
        sums->n_growths[share->book->slot]++;
    if ((waiter->timeout_usec != 0) != (waiter->in_timeouts.n > 0))
        return WRONG("waiter %llu would not be timed out", id);
    if (waiter->holder && waiter->holder->lease->is_ending)
        return WRONG("waiter %llu wants growth of a lease that ends", id);
    return 0;
}

static int check_line(const struct broker *broker, struct sums *sums, struct allot_error *err) {
    struct rank_tree_node *roots[] = { broker->growths, broker->requests };
    const struct proc *proc;
    size_t n = 0;

    for (size_t i = 0; i < ELEMENTSOF(roots); i++) {
        struct rank_tree_node *before = NULL;
        uint32_t rank = 0;

        for (struct rank_tree_node *node = rank_tree_first(roots[i]); node;
             node = rank_tree_next(node)) {
            int r = check_waiter(broker, rank_tree_entry(node, struct waiter, in_queue), sums, err);

            if (r < 0)
                return r;
            if (before &&
                (before->key > node->key || (before->key == node->key && before->tie >= node->tie)))
                return WRONG("the queue is out of order");
            if (rank_tree_rank(node) != rank || rank_tree_at(roots[i], rank) != node)
                return WRONG("a place in the queue is counted wrongly");
            before = node;
            rank++;
            n++;
        }
    }
    if (n != broker->waiters.n)
        return WRONG("a waiter is outside the queue");
    for (size_t pos = 0; (proc = map_next(&broker->procs, &pos));) {
        bool has = !list_is_empty(&proc->holders) || !list_is_empty(&proc->leases);
        bool wants = !list_is_empty(&proc->waiters);

        if (!has && !wants)
            return WRONG("process %d has and wants nothing, and is still there",
                         (int)proc->process.pid);
        if ((has && wants) != list_is_linked(&proc->in_hold_wait))
            return WRONG("process %d would not be found in a deadlock", (int)proc->process.pid);
    }
    return 0;
}

int broker_check_books(const struct broker *broker, struct allot_error *err) {
    struct sums sums = { 0 };
    const struct lease *lease;
    const struct user *user;
    const struct releasing *releasing;
    int r;

    for (size_t pos = 0; (lease = map_next(&broker->leases, &pos));) {
        r = check_lease(broker, lease, &sums, err);
        if (r < 0)
            return r;
    }
    for (size_t pos = 0; (user = map_next(&broker->users, &pos));) {
        r = check_user(broker, user, err);
        if (r < 0)
            return r;
    }
    r = check_line(broker, &sums, err);
    if (r < 0)
        return r;
    if (sums.n_absent != broker->n_absent)
        return WRONG("%u holders are absent, counted %u", sums.n_absent, broker->n_absent);
    list_foreach (releasing, &broker->releasing, in_broker) {
        for (uint32_t i = 0; i < releasing->n_parts; i++)
            sums.releasing[releasing->parts[i].book->slot] += releasing->parts[i].bytes;
    }

    for (size_t i = 0; i < broker->n_books; i++) {
        const struct book *book = broker->books[i];
        uint64_t sum = book->unmanaged_bytes + book->releasing_bytes + book->leased_bytes;

        if (book->slot != i)
            return WRONG("%s is in the wrong place", book->name);
        if (book->leased_bytes != sums.leased[i] || book->guaranteed_bytes != sums.guaranteed[i] ||
            book->held_bytes != sums.held[i] || book->declared_bytes != sums.declared[i] ||
            book->releasing_bytes != sums.releasing[i])
            return WRONG("the sums of %s are wrong", book->name);
        if (book->n_shares != sums.n_shares[i] || book->n_exclusive != sums.n_exclusive[i] ||
            broker->n_growths_at[i] != sums.n_growths[i])
            return WRONG("the counts of %s are wrong", book->name);
        if (book->usable_bytes + books_overcommitted_bytes(book) != sum + books_free_bytes(book) ||
            (books_overcommitted_bytes(book) > 0 && books_free_bytes(book) > 0))
            return WRONG("the books of %s do not balance", book->name);
        if (book->usable_bytes % BOOKS_GRANULE ||
            book->usable_bytes + book->reserved_bytes != book->device.seen.total_bytes)
            return WRONG("%s is measured wrongly", book->name);
    }
    return 0;
}
