/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Table: live allocations, by the pointer or handle that the program will free.
 *
 * Divided by key into parts with a lock each, so that allocating threads rarely contend. Each part
 * is an open hash table, so that 100,000 entries are as fast as one. Any thread. After a fork the
 * child starts with an empty table, because it does not own its parent's allocations.
 */
#include <stdbool.h>
#include <stdint.h>

enum table_kind {
    TABLE_MEMORY = 1, /* device pointer: cuMemFree */
    TABLE_POOL,       /* device pointer of a pool; `extra`: the pool */
    TABLE_EXTERNAL,   /* CUexternalMemory */
    TABLE_HANDLE,     /* CUmemGenericAllocationHandle; `extra`: number of its uses */
    TABLE_ARRAY,
    TABLE_MIPMAP,
    TABLE_MODULE,
    TABLE_LIBRARY,
    TABLE_CONTEXT,
    TABLE_HEAP,  /* CUcontext: the heap of its kernels' malloc() */
    TABLE_GRAPH, /* graph_key(): an executable graph's memory on one share; `extra`: whether it was
                    launched */
};

struct table_entry {
    uint64_t key;
    uint64_t bytes;
    uint64_t extra;
    void *context; /* freed with this context; NULL: with none */
    int16_t share;
    uint8_t kind; /* 0: no entry */
};

/* False: no host memory. Replaces an entry of the same kind and key. */
bool table_put(const struct table_entry *entry);
/* Remove the entry; false: there is none. `ret` may be NULL. */
bool table_take(enum table_kind kind, uint64_t key, struct table_entry *ret);
bool table_get(enum table_kind kind, uint64_t key, struct table_entry *ret);

/* Remove all entries of `context`, and call `gone` for each. */
void table_drop_context(void *context, void (*gone)(const struct table_entry *entry));
/* Remove all entries of a kind and a share. */
void table_drop_share(enum table_kind kind, int share);
