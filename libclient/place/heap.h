/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Heap: jobs by a key, the least first; of equal keys the lower job number first.
 */
#include <stdbool.h>
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

static inline bool heap_comes_first(const struct heap_entry *a, const struct heap_entry *b) {
    return a->key != b->key ? a->key < b->key : a->job < b->job;
}

static inline void heap_push(struct heap *heap, struct heap_entry entry) {
    uint32_t i = heap->n++;

    while (i > 0 && heap_comes_first(&entry, &heap->entries[(i - 1) / 2])) {
        heap->entries[i] = heap->entries[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap->entries[i] = entry;
}

/* The heap must not be empty. */
static inline struct heap_entry heap_pop(struct heap *heap) {
    struct heap_entry top = heap->entries[0], last = heap->entries[--heap->n];
    uint32_t i = 0, child;

    while ((child = 2 * i + 1) < heap->n) {
        if (child + 1 < heap->n &&
            heap_comes_first(&heap->entries[child + 1], &heap->entries[child]))
            child++;
        if (!heap_comes_first(&heap->entries[child], &last))
            break;
        heap->entries[i] = heap->entries[child];
        i = child;
    }
    heap->entries[i] = last;
    return top;
}
