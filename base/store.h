/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Store: memory for the parts of one message, freed all at once.
 *
 * Embedded in its owner; zeroed memory is an empty store. store_reset() keeps the largest block, so
 * that messages of the same size cost no allocation. No locking.
 */
#include <stddef.h>

struct store_block;

struct store {
    struct store_block *blocks; /* the newest first */
    size_t used;                /* of the newest */
};

/* Zeroed, aligned for anything, valid until store_reset(). NULL: out of memory. */
void *store_get(struct store *store, size_t bytes);
char *store_copy(struct store *store, const char *text); /* NULL for NULL, too */

void store_reset(struct store *store); /* invalidates all memory from this store */
void store_done(struct store *store);  /* the same, and frees the memory */
