/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/place/heap.h"

#include <stdbool.h>

static bool comes_first(const struct heap_entry *a, const struct heap_entry *b) {
    return a->key != b->key ? a->key < b->key : a->job < b->job;
}

void heap_push(struct heap *heap, struct heap_entry entry) {
    uint32_t i = heap->n++;

    while (i > 0 && comes_first(&entry, &heap->entries[(i - 1) / 2])) {
        heap->entries[i] = heap->entries[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap->entries[i] = entry;
}

struct heap_entry heap_pop(struct heap *heap) {
    struct heap_entry top = heap->entries[0], last = heap->entries[--heap->n];
    uint32_t i = 0, child;

    while ((child = 2 * i + 1) < heap->n) {
        if (child + 1 < heap->n && comes_first(&heap->entries[child + 1], &heap->entries[child]))
            child++;
        if (!comes_first(&heap->entries[child], &last))
            break;
        heap->entries[i] = heap->entries[child];
        i = child;
    }
    heap->entries[i] = last;
    return top;
}
