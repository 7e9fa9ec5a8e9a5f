/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ALLOT_SHARD_H
#define ALLOT_SHARD_H
/*
 * Sharded variables: a variable whose rows lie on several devices, for models that do not fit one
 * card. Each device has a shard, a variable of its own.
 *
 *     struct allot_sharded *words = allot_sharded_variable(graph, "words", initial, NULL);
 *     struct allot_output rows = allot_sharded_lookup(words, word_numbers);
 *     struct allot_output scores = allot_sharded_matmul(hidden, words, true);
 *
 * Shards are trained like other variables: allot_minimize() makes a step for each, on its device,
 * where the optimizer's state for it lies, too. Values and gradients are those of a variable that
 * is whole; sums that go over several shards differ from it by rounding.
 *
 * A checkpoint (saver.h) has one whole tensor of the variable's name, and one for each part of the
 * optimizer's state, as if it were not sharded: a program with another number of shards restores
 * it, or with other devices, or with a whole variable of that name. A graph file (graph.h) does not
 * keep what belongs together: there each shard is a variable of its own.
 *
 * With a strategy (strategy.h), make the variable outside of its scope and use it inside: it is not
 * mirrored, and all replicas look up and train the same shards.
 *
 * graph.h describes errors and threads; a sharded variable belongs to its graph's thread.
 */
#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct allot_sharded;

/* Which rows a shard has. */
enum allot_shard_by {
    ALLOT_SHARD_ROWS = 0,    /* a range of rows, of the same length everywhere, give or take one */
    ALLOT_SHARD_IN_TURN = 1, /* row r is in shard r mod n: rows next to each other are elsewhere */
    /* A range of rows, of such a length that in the end all devices have the same bytes of
     * variables; those that the graph has there already count. */
    ALLOT_SHARD_BYTES = 2,
};

struct allot_shard_options {
    size_t size;                /* sizeof(struct allot_shard_options) */
    const char *const *devices; /* a shard on each; NULL: on all GPUs that allot_devices() lists, or
                                   on the CPU where there is none */
    size_t n_devices;
    enum allot_shard_by by;
    /* Of ALLOT_SHARD_BYTES, by device: bytes of variables that it has room for, so that all are
     * filled to the same part; NULL: all have the same room. It is no limit. */
    const uint64_t *room_bytes;
    /* Of allot_sharded_variable_of(): the initial value of one shard, of this type and shape, made
     * in a scope of its device. NULL: shards have none. */
    struct allot_output (*initial)(struct allot_graph *graph, size_t shard, enum allot_dtype dtype,
                                   int rank, const int64_t *dims, void *userdata);
    void *userdata;
};

#define ALLOT_SHARD_OPTIONS_INIT allot_shard_options_init()
static inline struct allot_shard_options allot_shard_options_init(void) {
    struct allot_shard_options options;

    memset(&options, 0, sizeof(options));
    options.size = sizeof(options);
    return options;
}

/*
 * A variable of at least one dimension, cut along the first. There are no empty shards: devices
 * that would have no row have no shard. `options` NULL: all defaults. NULL: the error is in the
 * graph. The first takes type and shape from `initial`, which should be made on the CPU if it is
 * too large for a card: each device gets its rows of it.
 */
struct allot_sharded *allot_sharded_variable(struct allot_graph *graph, const char *name,
                                             struct allot_output initial,
                                             const struct allot_shard_options *options);
struct allot_sharded *allot_sharded_variable_of(struct allot_graph *graph, const char *name,
                                                enum allot_dtype dtype, int rank,
                                                const int64_t *dims,
                                                const struct allot_shard_options *options);
/* The nodes stay in the graph, to which it keeps a reference. NULL is fine. */
struct allot_sharded *allot_sharded_free(struct allot_sharded *sharded);

size_t allot_sharded_n_shards(const struct allot_sharded *sharded);
/* The variable that is shard `i`. */
struct allot_output allot_sharded_shard(const struct allot_sharded *sharded, size_t i);

/* Rows by their numbers, i32 or i64, of any shape, as allot_gather() gives them: only the rows that
 * are asked for leave the devices. */
struct allot_output allot_sharded_lookup(const struct allot_sharded *sharded,
                                         struct allot_output indices);
/* x times the variable, which has two dimensions, or times its transpose. Each device multiplies by
 * its own rows. x has two dimensions or more. */
struct allot_output allot_sharded_matmul(struct allot_output x, const struct allot_sharded *sharded,
                                         bool transpose);
/* All rows in order, on the device of the scope. */
struct allot_output allot_sharded_value(const struct allot_sharded *sharded);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
