/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Rank tree: nodes sorted by a key, each of which knows its rank.
 *
 * Intrusive: the node is a member of the struct that is sorted, and belongs to its owner; the tree
 * is a pointer to the root, NULL when it is empty. Smaller keys come first, equal ones by `tie`,
 * which is unique. A node may carry marks. Finding the first node after a position that has any of
 * a set of marks does not visit the nodes in between. Everything costs O(log n); the shape depends
 * on the ties alone, so runs repeat exactly. No locking.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RANK_TREE_WORDS 5 /* of 64 marks each */

struct rank_tree_node {
    int64_t key;
    uint64_t tie;
    uint64_t marks[RANK_TREE_WORDS]; /* change only with rank_tree_mark() while in a tree */
    uint64_t size;                   /* for rank_tree_least(); counts only if the node has marks */
    struct rank_tree_node *left, *right, *parent;
    uint32_t n;                    /* of the subtree; 0: in no tree */
    uint32_t heap;                 /* at least that of its children */
    uint64_t any[RANK_TREE_WORDS]; /* union of the marks in the subtree */
    uint64_t least;                /* smallest size in the subtree */
};

/* `key` and `tie` are set; the node is in no tree. */
void rank_tree_insert(struct rank_tree_node **root, struct rank_tree_node *node);

/* Does nothing if the node is in no tree. */
void rank_tree_remove(struct rank_tree_node **root, struct rank_tree_node *node);

struct rank_tree_node *rank_tree_first(struct rank_tree_node *root); /* NULL: empty */
struct rank_tree_node *rank_tree_next(
    const struct rank_tree_node *node); /* NULL: it was the last */
struct rank_tree_node *rank_tree_at(struct rank_tree_node *root,
                                    uint32_t i);            /* from 0; NULL past the end */
uint32_t rank_tree_rank(const struct rank_tree_node *node); /* from 0 */

/* The marks or the size of a node have changed. */
void rank_tree_mark(struct rank_tree_node *node);

/* The first node after (`key`, `tie`) that has one of these marks. NULL: none. */
struct rank_tree_node *rank_tree_seek(struct rank_tree_node *root, int64_t key, uint64_t tie,
                                      const uint64_t marks[static RANK_TREE_WORDS]);

/* The same after a node of the tree; the cost grows with the distance to the result. */
struct rank_tree_node *rank_tree_seek_after(struct rank_tree_node *node,
                                            const uint64_t marks[static RANK_TREE_WORDS]);

/* The smallest size among nodes with marks; UINT64_MAX: there is none. */
uint64_t rank_tree_least(const struct rank_tree_node *root);

/* How many nodes come before one with this key and the largest tie. */
uint32_t rank_tree_rank_of(const struct rank_tree_node *root, int64_t key);

static inline uint32_t rank_tree_count(const struct rank_tree_node *root) {
    return root ? root->n : 0;
}

/* The struct around a node, NULL for NULL. */
#define rank_tree_entry(node, type, member)                                                        \
    ({                                                                                             \
        __typeof__(node) entry_node_ = (node);                                                     \
        entry_node_ ? (type *)(void *)((char *)entry_node_ - offsetof(type, member)) : NULL;       \
    })
