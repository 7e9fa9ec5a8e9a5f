/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>

#include "base/list.h"
#include "tests/support/suite.h"

struct item {
    int number;
    struct list link; /* not first: list_entry() must step back */
};

/* Compare forwards and backwards; the numbers end with 0. */
static void expect(struct list *head, ...) {
    struct item *item;
    struct list *last = head;
    va_list args;

    va_start(args, head);
    list_foreach (item, head, link) {
        ck_assert_int_eq(item->number, va_arg(args, int));
        ck_assert_ptr_eq(item->link.prev, last);
        last = &item->link;
    }
    ck_assert_int_eq(va_arg(args, int), 0);
    ck_assert_ptr_eq(head->prev, last);
    va_end(args);
}

START_TEST(entries_keep_the_order_they_were_put_in) {
    struct list head = LIST_INIT(head);
    struct item a = { 1 }, b = { 2 }, c = { 3 }, d = { 4 };

    ck_assert(list_is_empty(&head));
    ck_assert_ptr_null(list_first(&head, struct item, link));
    ck_assert_ptr_null(list_last(&head, struct item, link));
    expect(&head, 0);
    list_append(&head, &b.link);
    list_append(&head, &d.link);
    list_prepend(&head, &a.link);
    list_insert_before(&d.link, &c.link);
    expect(&head, 1, 2, 3, 4, 0);
    ck_assert_ptr_eq(list_first(&head, struct item, link), &a);
    ck_assert_ptr_eq(list_last(&head, struct item, link), &d);
}
END_TEST

START_TEST(removing_what_is_in_no_list_does_no_harm) {
    struct list head = LIST_INIT(head);
    struct item a = { 1 }, b = { 2 };

    list_remove(&a.link); /* zeroed */
    list_append(&head, &a.link);
    list_append(&head, &b.link);
    ck_assert(list_is_linked(&a.link));
    list_remove(&a.link);
    ck_assert(!list_is_linked(&a.link));
    list_remove(&a.link);
    expect(&head, 2, 0);
    list_append(&head, &a.link);
    expect(&head, 2, 1, 0);
}
END_TEST

START_TEST(a_safe_walk_may_remove_each_entry_it_meets) {
    struct list head = LIST_INIT(head);
    struct item items[5], *item, *following;
    int seen = 0;

    for (int i = 0; i < 5; i++) {
        items[i] = (struct item){ i + 1 };
        list_append(&head, &items[i].link);
    }
    list_foreach_safe (item, following, &head, link) {
        seen++;
        if (item->number % 2)
            list_remove(&item->link);
    }
    ck_assert_int_eq(seen, 5);
    expect(&head, 2, 4, 0);
}
END_TEST

START_TEST(a_whole_list_moves_to_the_end_of_another) {
    struct list to = LIST_INIT(to), from = LIST_INIT(from);
    struct item a = { 1 }, b = { 2 }, c = { 3 };

    list_move_all(&to, &from);
    expect(&to, 0);
    list_append(&to, &a.link);
    list_append(&from, &b.link);
    list_append(&from, &c.link);
    list_move_all(&to, &from);
    expect(&to, 1, 2, 3, 0);
    expect(&from, 0);
}
END_TEST

SUITE("list", entries_keep_the_order_they_were_put_in, removing_what_is_in_no_list_does_no_harm,
      a_safe_walk_may_remove_each_entry_it_meets, a_whole_list_moves_to_the_end_of_another)
