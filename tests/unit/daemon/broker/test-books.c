/* SPDX-License-Identifier: Apache-2.0 */
/* The sums of a device's page, by themselves. */
#include <string.h>

#include "daemon/broker/books.h"
#include "tests/support/suite.h"

#define PAGE BOOKS_GRANULE

START_TEST(amounts_are_whole_granules) {
    static const struct {
        uint64_t bytes, up, down;
    } cases[] = {
        { 0, 0, 0 },
        { 1, PAGE, 0 },
        { PAGE - 1, PAGE, 0 },
        { PAGE, PAGE, PAGE },
        { PAGE + 1, 2 * PAGE, PAGE },
        { UINT64_MAX, UINT64_MAX - (PAGE - 1), UINT64_MAX - (PAGE - 1) },
        { UINT64_MAX - (PAGE - 1), UINT64_MAX - (PAGE - 1), UINT64_MAX - (PAGE - 1) },
        { UINT64_MAX - PAGE, UINT64_MAX - (PAGE - 1), UINT64_MAX - (PAGE - 1) - PAGE },
    };

    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        ck_assert_uint_eq(books_round_up(cases[i].bytes), cases[i].up);
        ck_assert_uint_eq(books_round_down(cases[i].bytes), cases[i].down);
    }
}
END_TEST

START_TEST(a_page_is_free_or_over_and_never_both) {
    static const struct {
        uint64_t usable, unmanaged, releasing, leased, left, over;
    } cases[] = {
        { 10, 0, 0, 0, 10, 0 },
        { 10, 1, 2, 3, 4, 0 },
        { 10, 2, 3, 5, 0, 0 },
        { 10, 3, 3, 5, 0, 1 },
        { 10, UINT64_MAX, 3, 5, 0, UINT64_MAX - 10 },
    };

    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        struct book book = { .usable_bytes = cases[i].usable,
                             .unmanaged_bytes = cases[i].unmanaged,
                             .releasing_bytes = cases[i].releasing,
                             .leased_bytes = cases[i].leased };

        ck_assert_uint_eq(books_free_bytes(&book), cases[i].left);
        ck_assert_uint_eq(books_overcommitted_bytes(&book), cases[i].over);
    }
}
END_TEST

START_TEST(a_share_is_charged_for_the_larger_of_guaranteed_and_held) {
    static const struct {
        uint64_t guaranteed, held, charge, more, rise;
    } cases[] = {
        { 4, 0, 4, 4, 0 },
        { 4, 1, 4, 3, 0 },
        { 4, 1, 4, 4, 1 },
        { 4, 4, 4, 1, 1 },
        { 4, 9, 9, 2, 2 },
        { 0, 7, 7, 0, 0 },
        { 0, 7, 7, UINT64_MAX, UINT64_MAX },
    };

    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        struct share share = { .guaranteed_bytes = cases[i].guaranteed,
                               .held_bytes = cases[i].held };

        ck_assert_uint_eq(books_charge(&share), cases[i].charge);
        ck_assert_uint_eq(books_rise(&share, cases[i].more), cases[i].rise);
    }
}
END_TEST

START_TEST(what_was_learned_of_contexts_comes_before_their_kind_within_the_limit) {
    struct book book = { .context_bytes = 5 };
    struct share share = { .book = &book, .limit_bytes = 8 };

    ck_assert_uint_eq(books_context(&share), 5);
    book.learned_bytes = 7;
    ck_assert_uint_eq(books_context(&share), 7);
    book.learned_bytes = 9;
    ck_assert_uint_eq(books_context(&share), 8);
}
END_TEST

static void check_sums(const struct book *book, uint64_t leased, uint64_t guaranteed, uint64_t held,
                       uint64_t declared, uint32_t n_shares, uint32_t n_exclusive) {
    ck_assert_uint_eq(book->leased_bytes, leased);
    ck_assert_uint_eq(book->guaranteed_bytes, guaranteed);
    ck_assert_uint_eq(book->held_bytes, held);
    ck_assert_uint_eq(book->declared_bytes, declared);
    ck_assert_uint_eq(book->n_shares, n_shares);
    ck_assert_uint_eq(book->n_exclusive, n_exclusive);
}

/* Also of a share that still holds something when it leaves. */
START_TEST(sums_follow_every_share_that_comes_changes_and_goes) {
    struct book book = { 0 };
    struct share a = { .limit_bytes = 10, .guaranteed_bytes = 4, .held_bytes = 6 };
    struct share b = { .limit_bytes = 20, .guaranteed_bytes = 5, .declares_max = true };
    struct share c = { .limit_bytes = 30, .guaranteed_bytes = 30, .is_exclusive = true };

    list_init(&book.shares);
    books_enter(&a, &book);
    check_sums(&book, 6, 4, 6, 0, 1, 0);
    books_enter(&b, &book);
    check_sums(&book, 11, 9, 6, 20, 2, 0);
    books_enter(&c, &book);
    check_sums(&book, 41, 39, 6, 20, 3, 1);
    ck_assert_ptr_eq(a.book, &book);
    books_hold(&b, 7);
    check_sums(&book, 43, 39, 13, 20, 3, 1);
    books_hold(&a, 1);
    check_sums(&book, 41, 39, 8, 20, 3, 1);
    books_leave(&c);
    check_sums(&book, 11, 9, 8, 20, 2, 0);
    books_leave(&c); /* once */
    check_sums(&book, 11, 9, 8, 20, 2, 0);
    books_leave(&b);
    check_sums(&book, 4, 4, 1, 0, 1, 0);
    books_leave(&a);
    check_sums(&book, 0, 0, 0, 0, 0, 0);
    ck_assert_ptr_null(a.book);
    ck_assert(list_is_empty(&book.shares));
}
END_TEST

START_TEST(nothing_passes_a_waiter_where_leases_may_take_all) {
    struct book book = { .usable_bytes = 20 * PAGE };
    struct share fixed = { .limit_bytes = 8 * PAGE, .guaranteed_bytes = 8 * PAGE };
    struct share grows = { .limit_bytes = 12 * PAGE, .guaranteed_bytes = 4 * PAGE };
    const uint64_t need[] = { 16 * PAGE };

    list_init(&book.shares);
    books_enter(&fixed, &book);
    /* When the fixed one ends, the waiter fits beside what passed it. */
    ck_assert_uint_eq(books_backfill_bytes(&book, need, 1), 4 * PAGE);
    books_enter(&grows, &book);
    ck_assert_uint_eq(books_backfill_bytes(&book, need, 1), 0);
    books_leave(&grows);
    book.unmanaged_bytes = UINT64_MAX;
    book.releasing_bytes = 1;
    ck_assert_uint_eq(books_backfill_bytes(&book, need, 1), 0);
    book.releasing_bytes = 0;
    ck_assert_uint_eq(books_backfill_bytes(&book, need, 1), 0);
}
END_TEST

SUITE("books", amounts_are_whole_granules, a_page_is_free_or_over_and_never_both,
      a_share_is_charged_for_the_larger_of_guaranteed_and_held,
      what_was_learned_of_contexts_comes_before_their_kind_within_the_limit,
      sums_follow_every_share_that_comes_changes_and_goes,
      nothing_passes_a_waiter_where_leases_may_take_all)
