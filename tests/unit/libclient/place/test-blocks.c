/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks: levels of ever larger parts of a graph that units and devices allow to move as one. */
#include <check.h>
#include <stdlib.h>

#include "libclient/place/blocks.h"
#include "tests/support/libclient/place/task_fixture.h"
#include "tests/support/suite.h"

static void check_level(const struct task_graph *g, const struct blocks_level *level) {
    uint8_t *seen = calloc(g->n_tasks + 1, 1);

    for (uint32_t b = 0; b < level->n_blocks; b++) {
        uint64_t allowed = UINT64_MAX, resident = 0;

        ck_assert_uint_lt(level->members.first[b], level->members.first[b + 1]);
        for (uint32_t i = level->members.first[b]; i < level->members.first[b + 1]; i++) {
            uint32_t v = level->members.items[i];

            ck_assert_uint_eq(level->block[v], b);
            ck_assert_uint_eq(seen[v]++, 0);
            allowed &= g->allowed[g->unit[v]];
            resident += g->resident_bytes[v];
            if (i > level->members.first[b])
                ck_assert_uint_gt(g->position[v], g->position[level->members.items[i - 1]]);
        }
        ck_assert_uint_ne(allowed, 0);
        ck_assert_uint_eq(level->allowed[b], allowed);
        ck_assert_uint_eq(level->resident_bytes[b], resident);
    }
    for (uint32_t v = 0; v < g->n_tasks; v++) {
        ck_assert_uint_eq(seen[v], 1);
        ck_assert_uint_eq(level->block[v],
                          level->block[g->members.items[g->members.first[g->unit[v]]]]);
    }
    free(seen);
}

START_TEST(each_level_joins_blocks_of_the_one_below) {
    uint64_t random = 23;
    unsigned n_levels = 0;

    for (unsigned round = 0; round < 60; round++) {
        struct task_fixture_shape shape = {
            .n_tasks = 1 + task_fixture_below(&random, 200),
            .n_devices = 1 + task_fixture_below(&random, 5),
            .is_capped = round % 3 == 1,
            .has_groups = round % 4 == 2,
            .lacks_links = round % 5 == 4,
        };
        struct task_graph graph;
        struct blocks blocks;
        bool is_possible = true;

        task_fixture_random(&graph, &random, &shape);
        for (uint32_t u = 0; u < graph.n_units; u++)
            is_possible &= graph.allowed[u] != 0;
        if (is_possible) {
            ck_assert_int_eq(blocks_init(&blocks, &graph), 0);
            for (unsigned l = 0; l < blocks.n_levels; l++) {
                check_level(&graph, &blocks.levels[l]);
                if (l == 0)
                    continue;
                ck_assert_uint_lt(blocks.levels[l].n_blocks, blocks.levels[l - 1].n_blocks);
                for (uint32_t v = 0; v < graph.n_tasks; v++) {
                    uint32_t below = blocks.levels[l - 1].block[v];
                    uint32_t head = blocks.levels[l - 1]
                                        .members.items[blocks.levels[l - 1].members.first[below]];

                    ck_assert_uint_eq(blocks.levels[l].block[v], blocks.levels[l].block[head]);
                }
            }
            n_levels += blocks.n_levels;
            blocks_done(&blocks);
        }
        task_graph_done(&graph);
    }
    ck_assert_uint_ge(n_levels, 60);
}
END_TEST

SUITE("blocks", each_level_joins_blocks_of_the_one_below)
