/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Heap: jobs by a key, the least first; of equal keys the lower job number first.
 */
#include <stdint.h>

struct heap_entry {
    int64_t key;
    uint32_t job;
};

/* The entries are the owner's, with room for all that it puts in. */
struct heap {
    struct heap_entry *entries;
    uint32_t n;
};

void heap_push(struct heap *heap, struct heap_entry entry);
struct heap_entry heap_pop(struct heap *heap); /* not of an empty one */
