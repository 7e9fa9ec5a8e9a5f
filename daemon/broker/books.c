/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/broker/books.h"

#include <assert.h>

#include "daemon/broker/queue/backfill.h"

uint64_t books_round_up(uint64_t bytes) {
    if (bytes > UINT64_MAX - (BOOKS_GRANULE - 1))
        return UINT64_MAX - (BOOKS_GRANULE - 1);
    return (bytes + BOOKS_GRANULE - 1) / BOOKS_GRANULE * BOOKS_GRANULE;
}

uint64_t books_round_down(uint64_t bytes) {
    return bytes / BOOKS_GRANULE * BOOKS_GRANULE;
}

/* Saturates: readings are the driver's, and may be nonsense. */
static uint64_t book_sum(const struct book *book) {
    return units_add(units_add(book->unmanaged_bytes, book->releasing_bytes), book->leased_bytes);
}

uint64_t books_free_bytes(const struct book *book) {
    uint64_t sum = book_sum(book);

    return sum < book->usable_bytes ? book->usable_bytes - sum : 0;
}

uint64_t books_overcommitted_bytes(const struct book *book) {
    uint64_t sum = book_sum(book);

    return sum > book->usable_bytes ? sum - book->usable_bytes : 0;
}

uint64_t books_backfill_bytes(const struct book *book, const uint64_t *need_bytes,
                              uint32_t n_needs) {
    uint64_t leases[BACKFILL_LEASES_MAX];
    struct backfill_case in = {
        .usable_bytes = book->usable_bytes,
        .lease_bytes = leases,
        .need_bytes = need_bytes,
        .n_needs = n_needs,
    };
    const struct share *share;

    if (__builtin_add_overflow(book->unmanaged_bytes, book->releasing_bytes, &in.vague_bytes))
        return 0;
    list_foreach (share, &book->shares, in_book) {
        /* A lease that may hold more or less than now may give back a part. */
        if (share->limit_bytes > share->guaranteed_bytes ||
            share->held_bytes > share->guaranteed_bytes) {
            if (__builtin_add_overflow(in.vague_bytes, MAX(share->limit_bytes, share->held_bytes),
                                       &in.vague_bytes))
                return 0;
        } else if (in.n_leases == BACKFILL_LEASES_MAX) {
            return 0;
        } else {
            leases[in.n_leases++] = share->guaranteed_bytes;
        }
        if (in.vague_bytes >= book->usable_bytes)
            return 0;
    }
    return backfill_bytes(&in);
}

uint64_t books_charge(const struct share *share) {
    return MAX(share->guaranteed_bytes, share->held_bytes);
}

uint64_t books_context(const struct share *share) {
    const struct book *book = share->book;

    return MIN(book->learned_bytes ? book->learned_bytes : book->context_bytes, share->limit_bytes);
}

uint64_t books_rise(const struct share *share, uint64_t bytes) {
    uint64_t charge = books_charge(share), after;

    if (__builtin_add_overflow(share->held_bytes, bytes, &after))
        return UINT64_MAX;
    return after > charge ? after - charge : 0;
}

void books_enter(struct share *share, struct book *book) {
    assert(!share->book);
    share->book = book;
    book->leased_bytes += books_charge(share);
    book->guaranteed_bytes += share->guaranteed_bytes;
    book->held_bytes += share->held_bytes;
    if (share->declares_max)
        book->declared_bytes += share->limit_bytes;
    list_append(&book->shares, &share->in_book);
    book->n_shares++;
    book->n_exclusive += share->is_exclusive;
}

void books_leave(struct share *share) {
    struct book *book = share->book;

    if (!book)
        return;
    book->leased_bytes -= books_charge(share);
    book->guaranteed_bytes -= share->guaranteed_bytes;
    book->held_bytes -= share->held_bytes;
    if (share->declares_max)
        book->declared_bytes -= share->limit_bytes;
    list_remove(&share->in_book);
    book->n_shares--;
    book->n_exclusive -= share->is_exclusive;
    share->book = NULL;
}

void books_hold(struct share *share, uint64_t held_bytes) {
    struct book *book = share->book;

    book->leased_bytes -= books_charge(share);
    book->held_bytes -= share->held_bytes;
    share->held_bytes = held_bytes;
    book->held_bytes += share->held_bytes;
    book->leased_bytes += books_charge(share);
}
