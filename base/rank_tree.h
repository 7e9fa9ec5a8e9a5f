/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Order: things sorted by a key, each of which can say its rank.
 *
 * Intrusive: the node is a member of the thing and belongs to its owner; the tree is a pointer to
 * the root, NULL when it is empty. Smaller keys come first, equal ones by `tie`, which is unique.
 * A thing may carry marks, and the first one behind a place with any of certain marks is found
 * without looking at those in between.
 * Everything costs O(log n); the shape depends on the ties alone, so runs repeat exactly. No
 * locking.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ORDER_WORDS 5 /* of 64 marks each */

struct order_node {
    int64_t key;
    uint64_t tie;
    uint64_t marks[ORDER_WORDS]; /* its own; order_mark() after a change within a tree */
    uint64_t size;               /* its own, for order_least(); counts only where it has marks */
    struct order_node *left, *right, *parent;
    uint32_t n;                /* of the subtree; 0: in no tree */
    uint32_t heap;             /* a parent's is at least its children's */
    uint64_t any[ORDER_WORDS]; /* marks of the subtree together */
    uint64_t least;            /* size of the subtree's smallest */
};

/* `key` and `tie` are set; the node is in no tree. */
void order_insert(struct order_node **root, struct order_node *node);

/* Does no harm to a node that is in no tree. */
void order_remove(struct order_node **root, struct order_node *node);

struct order_node *order_first(struct order_node *root);          /* NULL: empty */
struct order_node *order_next(const struct order_node *node);     /* NULL: it was the last */
struct order_node *order_at(struct order_node *root, uint32_t i); /* from 0; NULL past the end */
uint32_t order_rank(const struct order_node *node);               /* from 0 */

/* The marks or the size of a node are others now. */
void order_mark(struct order_node *node);

/* The first behind the place (`key`, `tie`) that has one of these marks. NULL: none. */
struct order_node *order_seek(struct order_node *root, int64_t key, uint64_t tie,
                              const uint64_t marks[static ORDER_WORDS]);

/* The same behind a node of the tree: the nearer it is, the less that costs. */
struct order_node *order_seek_behind(struct order_node *node,
                                     const uint64_t marks[static ORDER_WORDS]);

/* The smallest size of all that have marks; UINT64_MAX: there is none. */
uint64_t order_least(const struct order_node *root);

/* How many come before a node that had this key and the largest tie. */
uint32_t order_rank_of(const struct order_node *root, int64_t key);

static inline uint32_t order_count(const struct order_node *root) {
    return root ? root->n : 0;
}

/* The struct around a node, NULL for NULL. */
#define order_entry(node, type, member)                                                            \
    ({                                                                                             \
        __typeof__(node) entry_node_ = (node);                                                     \
        entry_node_ ? (type *)(void *)((char *)entry_node_ - offsetof(type, member)) : NULL;       \
    })
