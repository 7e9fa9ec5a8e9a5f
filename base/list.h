/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * List: intrusive, doubly linked, circular through its head.
 *
 *     struct manager { struct list leases; };              the head: list_init() or LIST_INIT
 *     struct lease   { struct list in_manager; … };        the link: zero, or list_init(), is fine
 *
 *     list_append(&manager->leases, &lease->in_manager);
 *     list_foreach(lease, &manager->leases, in_manager) …
 *
 * A list owns nothing. Remove an entry before freeing it; removing one that is in no list does no
 * harm. No locking.
 */
#include <stdbool.h>
#include <stddef.h>

struct list {
    struct list *prev; /* NULL in a link that was never in a list */
    struct list *next;
};

#define LIST_INIT(head)                                                                            \
    { &(head), &(head) }

static inline void list_init(struct list *list) {
    list->prev = list->next = list;
}

static inline bool list_is_empty(const struct list *head) {
    return head->next == head;
}

static inline bool list_is_linked(const struct list *link) {
    return link->next && link->next != link;
}

/* Put `link`, which is in no list, between `after->prev` and `after`. */
static inline void list_insert_before(struct list *after, struct list *link) {
    link->prev = after->prev;
    link->next = after;
    after->prev->next = link;
    after->prev = link;
}

static inline void list_append(struct list *head, struct list *link) {
    list_insert_before(head, link);
}

static inline void list_prepend(struct list *head, struct list *link) {
    list_insert_before(head->next, link);
}

/* Take `link` out of its list, if it is in one. */
static inline void list_remove(struct list *link) {
    if (!list_is_linked(link))
        return;
    link->prev->next = link->next;
    link->next->prev = link->prev;
    list_init(link);
}

/* Move all entries of `from` to the end of `to`; `from` is empty afterwards. */
static inline void list_move_all(struct list *to, struct list *from) {
    if (list_is_empty(from))
        return;
    from->next->prev = to->prev;
    from->prev->next = to;
    to->prev->next = from->next;
    to->prev = from->prev;
    list_init(from);
}

/* The struct around a link. */
#define list_entry(link, type, member) ((type *)(void *)((char *)(link)-offsetof(type, member)))

/* The first or last entry, NULL if there is none. */
#define list_first(head, type, member)                                                             \
    (list_is_empty(head) ? NULL : list_entry((head)->next, type, member))
#define list_last(head, type, member)                                                              \
    (list_is_empty(head) ? NULL : list_entry((head)->prev, type, member))

/*
 * Each entry from first to last; after the loop `pos` is no entry. The body may remove `pos` only
 * in the second form, where `following` is a second pointer of the same type.
 */
#define list_foreach(pos, head, member)                                                            \
    for ((pos) = list_entry((head)->next, __typeof__(*(pos)), member); &(pos)->member != (head);   \
         (pos) = list_entry((pos)->member.next, __typeof__(*(pos)), member))
#define list_foreach_safe(pos, following, head, member)                                            \
    for ((pos) = list_entry((head)->next, __typeof__(*(pos)), member),                             \
        (following) = list_entry((pos)->member.next, __typeof__(*(pos)), member);                  \
         &(pos)->member != (head); (pos) = (following),                                            \
        (following) = list_entry((pos)->member.next, __typeof__(*(pos)), member))
