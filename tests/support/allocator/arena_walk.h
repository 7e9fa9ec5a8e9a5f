/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Arena walk: calls of an arena's whole API, chosen by numbers, judged by the device oracle.
 *
 * The numbers come from a seed (a random walk) or from bytes (a fuzzer's). After each step, or now
 * and then, the walk calls arena_check() and asks the oracle, and compares the arena's statistics
 * with its own counts.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/support/allocator/device_oracle.h"

struct arena_walk_options {
    struct device_oracle_options oracle;
    uint64_t cap_bytes, initial_bytes, max_bytes; /* of one block */
    unsigned max_shards, n_streams;
    unsigned check_every; /* steps */
    bool failures;        /* the source fails now and then */
};

struct arena_walk_numbers {
    uint64_t seed;
    const uint8_t *data; /* NULL: from the seed, for ever */
    size_t size;
};

/* Run `n_steps` steps, or until the bytes end. Returns NULL, or the first mistake, which the caller
 * frees. */
char *arena_walk_run(const struct arena_walk_options *options, struct arena_walk_numbers *numbers,
                     unsigned n_steps);

/* The configurations that matter, for walks over all of them. */
extern const struct arena_walk_options arena_walk_configs[];
extern const unsigned n_arena_walk_configs;
