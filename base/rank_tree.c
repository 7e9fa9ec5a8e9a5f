/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A treap: a search tree by key that is also a heap by a number mixed from the tie. That makes it
 * as deep as a tree of random insertions, about 2 ln n, whatever the order of insertion. Each node
 * knows the size of its subtree, so a rank is a walk to the root. It also knows the marks in its
 * subtree, so that a search enters only subtrees with a match, except those that its starting point
 * cuts.
 */
#include "base/rank_tree.h"

static bool before(const struct rank_tree_node *a, const struct rank_tree_node *b) {
    return a->key != b->key ? a->key < b->key : a->tie < b->tie;
}

static void sum_marks(struct rank_tree_node *node) {
    const struct rank_tree_node *children[] = { node->left, node->right };
    uint64_t has = 0;

    for (size_t i = 0; i < RANK_TREE_WORDS; i++)
        has |= node->any[i] = node->marks[i];
    node->least = has ? node->size : UINT64_MAX;
    for (size_t c = 0; c < 2; c++) {
        if (!children[c])
            continue;
        for (size_t i = 0; i < RANK_TREE_WORDS; i++)
            node->any[i] |= children[c]->any[i];
        if (children[c]->least < node->least)
            node->least = children[c]->least;
    }
}

static void count(struct rank_tree_node *node) {
    node->n = 1 + rank_tree_count(node->left) + rank_tree_count(node->right);
    sum_marks(node);
}

/* The pointer that leads to `node`: in its parent, or the root. */
static struct rank_tree_node **link_of(struct rank_tree_node **root, struct rank_tree_node *node) {
    if (!node->parent)
        return root;
    return node->parent->left == node ? &node->parent->left : &node->parent->right;
}

/* Rotate `node`, a child, into the place of its parent. */
static void rotate_up(struct rank_tree_node **root, struct rank_tree_node *node) {
    struct rank_tree_node *parent = node->parent, *middle;

    *link_of(root, parent) = node;
    node->parent = parent->parent;
    if (parent->left == node) {
        middle = node->right;
        node->right = parent;
        parent->left = middle;
    } else {
        middle = node->left;
        node->left = parent;
        parent->right = middle;
    }
    if (middle)
        middle->parent = parent;
    parent->parent = node;
    count(parent);
    count(node);
}

void rank_tree_insert(struct rank_tree_node **root, struct rank_tree_node *node) {
    struct rank_tree_node **link = root, *parent = NULL;
    uint64_t mixed = node->tie * UINT64_C(0x9e3779b97f4a7c15);

    while (*link) {
        parent = *link;
        parent->n++;
        link = before(node, parent) ? &parent->left : &parent->right;
    }
    node->left = node->right = NULL;
    node->parent = parent;
    node->n = 1;
    node->heap = (uint32_t)((mixed ^ mixed >> 29) >> 16);
    *link = node;
    sum_marks(node);
    while (node->parent && node->parent->heap < node->heap)
        rotate_up(root, node);
    for (struct rank_tree_node *up = node->parent; up; up = up->parent)
        sum_marks(up);
}

void rank_tree_remove(struct rank_tree_node **root, struct rank_tree_node *node) {
    struct rank_tree_node *child;

    if (node->n == 0)
        return;
    while (node->left && node->right)
        rotate_up(root, node->left->heap > node->right->heap ? node->left : node->right);
    child = node->left ? node->left : node->right;
    *link_of(root, node) = child;
    if (child)
        child->parent = node->parent;
    for (struct rank_tree_node *up = node->parent; up; up = up->parent)
        count(up);
    node->left = node->right = node->parent = NULL;
    node->n = 0;
}

struct rank_tree_node *rank_tree_first(struct rank_tree_node *root) {
    while (root && root->left)
        root = root->left;
    return root;
}

struct rank_tree_node *rank_tree_next(const struct rank_tree_node *node) {
    if (node->right)
        return rank_tree_first(node->right);
    while (node->parent && node->parent->right == node)
        node = node->parent;
    return node->parent;
}

struct rank_tree_node *rank_tree_at(struct rank_tree_node *root, uint32_t i) {
    while (root) {
        uint32_t n_left = rank_tree_count(root->left);

        if (i == n_left)
            return root;
        if (i < n_left) {
            root = root->left;
        } else {
            i -= n_left + 1;
            root = root->right;
        }
    }
    return NULL;
}

uint32_t rank_tree_rank(const struct rank_tree_node *node) {
    uint32_t rank = rank_tree_count(node->left);

    for (; node->parent; node = node->parent)
        if (node->parent->right == node)
            rank += rank_tree_count(node->parent->left) + 1;
    return rank;
}

void rank_tree_mark(struct rank_tree_node *node) {
    for (; node && node->n > 0; node = node->parent)
        sum_marks(node);
}

static bool hits(const uint64_t *a, const uint64_t *b) {
    uint64_t both = 0;

    for (size_t i = 0; i < RANK_TREE_WORDS; i++)
        both |= a[i] & b[i];
    return both != 0;
}

/* The first match in a subtree that has one. */
static struct rank_tree_node *seek_first(struct rank_tree_node *node, const uint64_t *marks) {
    for (;;) {
        if (node->left && hits(node->left->any, marks))
            node = node->left;
        else if (hits(node->marks, marks))
            return node;
        else
            node = node->right;
    }
}

struct rank_tree_node *rank_tree_seek(struct rank_tree_node *root, int64_t key, uint64_t tie,
                                      const uint64_t marks[static RANK_TREE_WORDS]) {
    struct rank_tree_node *found = NULL;

    /* Walk down to the position; the nearest node behind it is met last. */
    for (struct rank_tree_node *node = root; node && hits(node->any, marks);) {
        if (node->key < key || (node->key == key && node->tie <= tie)) {
            node = node->right;
            continue;
        }
        if (hits(node->marks, marks) || (node->right && hits(node->right->any, marks)))
            found = node;
        node = node->left;
    }
    if (!found || hits(found->marks, marks))
        return found;
    return seek_first(found->right, marks);
}

struct rank_tree_node *rank_tree_seek_after(struct rank_tree_node *node,
                                            const uint64_t marks[static RANK_TREE_WORDS]) {
    if (node->right && hits(node->right->any, marks))
        return seek_first(node->right, marks);
    for (; node->parent; node = node->parent) {
        struct rank_tree_node *up = node->parent;

        if (up->right == node)
            continue;
        if (hits(up->marks, marks))
            return up;
        if (up->right && hits(up->right->any, marks))
            return seek_first(up->right, marks);
    }
    return NULL;
}

uint64_t rank_tree_least(const struct rank_tree_node *root) {
    return root ? root->least : UINT64_MAX;
}

uint32_t rank_tree_rank_of(const struct rank_tree_node *root, int64_t key) {
    uint32_t rank = 0;

    while (root) {
        if (root->key <= key) {
            rank += rank_tree_count(root->left) + 1;
            root = root->right;
        } else {
            root = root->left;
        }
    }
    return rank;
}
