/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Sharding: how the rows of a variable lie in its shards, which are variables of their own,
 * "NAME/shard_0" and so on. What an optimizer keeps for a shard, "NAME/shard_0/Adam", is a shard of
 * "NAME/Adam" in the same way.
 *
 * The graph owns it; it does not change. The builder's thread makes it.
 */
#include "libclient/graph/graph.h"

struct graph_sharding {
    struct graph_sharding *next; /* of the graph's list */
    char *name;                  /* of the whole */
    bool is_in_turn;             /* row r is in shard r mod n; else shards are ranges */
    uint32_t n;                  /* shards */
    uint64_t begins[];           /* n + 1; a range begins at this row. In turn: how many rows the
                                    shards before it have */
};

/* `begins` as above. -ENOMEM. */
int sharding_new(struct allot_graph *graph, const char *name, bool is_in_turn,
                 const uint64_t *begins, uint32_t n, const struct graph_sharding **ret);
void sharding_free_all(struct allot_graph *graph);

static inline uint64_t sharding_n_rows(const struct graph_sharding *sharding, uint32_t shard) {
    return sharding->begins[shard + 1] - sharding->begins[shard];
}

/* The row of the whole that is row `row` of a shard. */
static inline uint64_t sharding_row(const struct graph_sharding *sharding, uint32_t shard,
                                    uint64_t row) {
    return sharding->is_in_turn ? row * sharding->n + shard : sharding->begins[shard] + row;
}

/* The name of what the variable is a shard of, for the caller to free; its own name if it is none.
 * NULL: no host memory. */
char *sharding_whole_name(const struct allot_graph *graph, uint32_t variable);
