/* SPDX-License-Identifier: Apache-2.0 */
#include "base/store.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define STORE_FIRST ((size_t)1024) /* enough for a usual call */

struct store_block {
    struct store_block *next;
    size_t size; /* of `bytes` */
    alignas(max_align_t) char bytes[];
};

void *store_get(struct store *store, size_t bytes) {
    struct store_block *block = store->blocks;
    void *got;

    if (bytes > SIZE_MAX / 4)
        return NULL;
    bytes = (bytes + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);
    if (!block || block->size - store->used < bytes) {
        size_t size = block ? block->size * 2 : STORE_FIRST;

        if (size < bytes)
            size = bytes;
        block = malloc(sizeof(*block) + size);
        if (!block)
            return NULL;
        block->next = store->blocks;
        block->size = size;
        store->blocks = block;
        store->used = 0;
    }
    got = block->bytes + store->used;
    store->used += bytes;
    return memset(got, 0, bytes);
}

char *store_copy(struct store *store, const char *text) {
    size_t n = text ? strlen(text) + 1 : 0;
    char *copy = text ? store_get(store, n) : NULL;

    return copy ? memcpy(copy, text, n) : NULL;
}

void store_reset(struct store *store) {
    /* The newest block is the largest. */
    for (struct store_block *block = store->blocks ? store->blocks->next : NULL; block;) {
        struct store_block *next = block->next;

        free(block);
        block = next;
    }
    if (store->blocks)
        store->blocks->next = NULL;
    store->used = 0;
}

void store_done(struct store *store) {
    store_reset(store);
    free(store->blocks);
    *store = (struct store){ 0 };
}
