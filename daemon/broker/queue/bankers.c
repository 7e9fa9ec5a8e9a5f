/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The banker's rule, among leases that declared their maximum.
 *
 * A state is safe if there is an order in which each of them can get everything that it may still
 * ask for, on all its devices, from what is free and what those before it gave back. From a safe
 * state a step of one lease leads to a safe state if, and only if, that lease itself can finish in
 * some such order: so the search stops there. Leases without a declared maximum, and unmanaged and
 * releasing bytes, do not count as taken: they end by other rules (daemon/broker/queue/deadlock.c,
 * time limits), and waiting for them is waiting for memory, which the queue does already.
 *
 * If the maxima on a device add up to no more than it has, every lease can reach its maximum at any
 * time, and there is nothing to search.
 */
#include "daemon/broker/internal.h"

/* What a lease has and may still ask for on one device. */
struct want {
    unsigned slot;
    uint64_t charge_bytes, need_bytes;
};

static bool is_met(const struct want *wants, uint32_t n, const int64_t *work) {
    for (uint32_t i = 0; i < n; i++)
        if (wants[i].need_bytes > 0 &&
            (work[wants[i].slot] < 0 || wants[i].need_bytes > (uint64_t)work[wants[i].slot]))
            return false;
    return true;
}

static uint64_t need_of(const struct share *share) {
    uint64_t charge = books_charge(share);

    return share->limit_bytes > charge ? share->limit_bytes - charge : 0;
}

/* Whether a lease with these wants can finish; `self` is that lease, NULL: not made yet. */
static bool comes_to_end(struct broker *broker, const struct lease *self, const struct want *wants,
                         uint32_t n_wants) {
    int64_t work[BOOKS_MAX];
    struct lease *lease;
    uint64_t mark = ++broker->mark;
    bool moved = true;

    for (size_t i = 0; i < broker->n_books; i++)
        work[i] = (int64_t)broker->books[i]->usable_bytes;
    list_foreach (lease, &broker->declared, in_declared) {
        for (uint32_t i = 0; i < lease->n_shares && lease != self; i++)
            work[lease->shares[i].book->slot] -= (int64_t)books_charge(&lease->shares[i]);
    }
    for (uint32_t i = 0; i < n_wants; i++)
        work[wants[i].slot] -= (int64_t)wants[i].charge_bytes;

    while (!is_met(wants, n_wants, work)) {
        if (!moved)
            return false;
        moved = false;
        list_foreach (lease, &broker->declared, in_declared) {
            bool met = true;

            if (lease == self || lease->mark == mark)
                continue;
            for (uint32_t i = 0; met && i < lease->n_shares; i++) {
                uint64_t need = need_of(&lease->shares[i]);
                int64_t left = work[lease->shares[i].book->slot];

                met = need == 0 || (left >= 0 && need <= (uint64_t)left);
            }
            if (!met)
                continue;
            lease->mark = mark;
            moved = true;
            for (uint32_t i = 0; i < lease->n_shares; i++)
                work[lease->shares[i].book->slot] += (int64_t)books_charge(&lease->shares[i]);
        }
    }
    return true;
}

bool bankers_keeps(struct broker *broker, const struct lease *lease, unsigned share,
                   uint64_t rise_bytes) {
    struct want wants[BOOKS_SHARES_MAX];
    bool is_scarce = false;

    for (uint32_t i = 0; i < lease->n_shares; i++) {
        uint64_t need = need_of(&lease->shares[i]);
        uint64_t rise = i == share ? rise_bytes : 0;

        is_scarce |= lease->shares[i].book->declared_bytes > lease->shares[i].book->usable_bytes;
        wants[i] = (struct want){
            .slot = lease->shares[i].book->slot,
            .charge_bytes = books_charge(&lease->shares[i]) + rise,
            .need_bytes = need > rise ? need - rise : 0,
        };
    }
    return !is_scarce || comes_to_end(broker, lease, wants, lease->n_shares);
}

bool bankers_admits(struct broker *broker, const struct option *const *options,
                    uint32_t n_options) {
    struct want wants[BOOKS_SHARES_MAX];
    bool is_scarce = false;

    for (uint32_t i = 0; i < n_options; i++) {
        const struct book *book = broker->books[options[i]->slot];

        is_scarce |= book->declared_bytes + options[i]->limit_bytes > book->usable_bytes;
        wants[i] = (struct want){
            .slot = book->slot,
            .charge_bytes = options[i]->guaranteed_bytes,
            .need_bytes = options[i]->limit_bytes - options[i]->guaranteed_bytes,
        };
    }
    return !is_scarce || comes_to_end(broker, NULL, wants, n_options);
}
