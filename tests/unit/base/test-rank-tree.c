/* SPDX-License-Identifier: Apache-2.0 */
/* A sorted tree against a sorted array. */
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "base/rank_tree.h"
#include "tests/support/suite.h"

#define N 300

struct world {
    struct rank_tree_node nodes[N], *sorted[N], *root;
    uint32_t n;
    uint64_t random;
};

static unsigned pick(struct world *world, unsigned n) {
    return (unsigned)(random_next(&world->random) % n);
}

static bool before(const struct rank_tree_node *a, const struct rank_tree_node *b) {
    return a->key != b->key ? a->key < b->key : a->tie < b->tie;
}

static void mark_any(struct world *world, struct rank_tree_node *node) {
    memset(node->marks, 0, sizeof(node->marks));
    for (unsigned i = pick(world, 4); i > 0; i--) {
        unsigned bit = pick(world, 64 * RANK_TREE_WORDS);

        node->marks[bit / 64] |= UINT64_C(1) << bit % 64;
    }
    node->size = pick(world, 1000);
}

static void put(struct world *world, struct rank_tree_node *node) {
    uint32_t at = world->n++;

    for (; at > 0 && before(node, world->sorted[at - 1]); at--)
        world->sorted[at] = world->sorted[at - 1];
    world->sorted[at] = node;
    rank_tree_insert(&world->root, node);
}

static void take(struct world *world, struct rank_tree_node *node) {
    uint32_t at = 0;

    while (world->sorted[at] != node)
        at++;
    memmove(&world->sorted[at], &world->sorted[at + 1],
            (--world->n - at) * sizeof(world->sorted[0]));
    rank_tree_remove(&world->root, node);
}

static void compare(struct world *world) {
    uint64_t least = UINT64_MAX, marks[RANK_TREE_WORDS] = { 0 };
    int64_t key = pick(world, 50);
    uint64_t tie = pick(world, N + 1);
    struct rank_tree_node *found = NULL, place = { .key = key, .tie = tie }, *behind = NULL;
    uint32_t from = world->n > 0 ? pick(world, world->n) : 0;
    static const uint64_t none[RANK_TREE_WORDS];

    for (unsigned i = pick(world, 8); i > 0; i--) {
        unsigned bit = pick(world, 64 * RANK_TREE_WORDS);

        marks[bit / 64] |= UINT64_C(1) << bit % 64;
    }
    for (uint32_t i = 0; i < world->n; i++) {
        const struct rank_tree_node *node = world->sorted[i];
        bool hits = false;

        ck_assert_uint_eq(rank_tree_rank(node), i);
        ck_assert_ptr_eq(rank_tree_at(world->root, i), node);
        ck_assert_ptr_eq(rank_tree_next(node), i + 1 < world->n ? world->sorted[i + 1] : NULL);
        if (memcmp(node->marks, none, sizeof(none)) != 0 && node->size < least)
            least = node->size;
        for (size_t w = 0; w < RANK_TREE_WORDS; w++)
            hits |= node->marks[w] & marks[w];
        if (!found && hits && before(&place, node))
            found = world->sorted[i];
        if (!behind && hits && i > from)
            behind = world->sorted[i];
    }
    if (world->n > 0)
        ck_assert_ptr_eq(rank_tree_seek_after(world->sorted[from], marks), behind);
    ck_assert_ptr_eq(rank_tree_seek(world->root, key, tie, marks), found);
    ck_assert_uint_eq(rank_tree_least(world->root), least);
    ck_assert_uint_eq(rank_tree_count(world->root), world->n);
}

START_TEST(a_tree_says_what_a_sorted_array_does) {
    struct world *world = calloc(1, sizeof(*world));

    world->random = 11;
    for (unsigned i = 0; i < N; i++) {
        world->nodes[i].key = pick(world, 50);
        world->nodes[i].tie = i + 1;
    }
    for (unsigned step = 0; step < 4000; step++) {
        struct rank_tree_node *node = &world->nodes[pick(world, N)];

        if (node->n == 0) {
            mark_any(world, node);
            put(world, node);
        } else if (pick(world, 2)) {
            take(world, node);
        } else {
            mark_any(world, node);
            rank_tree_mark(node);
        }
        compare(world);
    }
    free(world);
}
END_TEST

SUITE("rank-tree", a_tree_says_what_a_sorted_array_does)
