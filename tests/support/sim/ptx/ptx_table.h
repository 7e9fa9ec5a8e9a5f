/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * PTX table: device memory for kernels that run without a driver: a list of extents, and the
 * ptx_memory that asks it. Any thread.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "sim/ptx/ptx.h"

struct ptx_table {
    pthread_rwlock_t lock;
    struct ptx_extent *extents;
    size_t n, n_allocated;
    _Atomic uint64_t generation;
    struct ptx_memory *memory;
};

static inline int ptx_table_find(void *user, uint64_t address, struct ptx_extent *ret) {
    struct ptx_table *table = user;
    int r = -ENOENT;

    pthread_rwlock_rdlock(&table->lock);
    for (size_t i = 0; i < table->n && r < 0; i++)
        if (address - table->extents[i].base < table->extents[i].bytes) {
            *ret = table->extents[i];
            r = 0;
        }
    pthread_rwlock_unlock(&table->lock);
    return r;
}

static inline int ptx_table_init(struct ptx_table *table) {
    *table = (struct ptx_table){ .generation = 1 };
    pthread_rwlock_init(&table->lock, NULL);
    return ptx_memory_new(&table->memory, ptx_table_find, table, &table->generation);
}

/* No launch may be running. The bytes stay the caller's. */
static inline void ptx_table_done(struct ptx_table *table) {
    ptx_memory_free(table->memory);
    free(table->extents);
    pthread_rwlock_destroy(&table->lock);
}

/* -EINVAL: empty, or beyond what allocations may be at. */
static inline int ptx_table_add(struct ptx_table *table, const struct ptx_extent *extent) {
    int r = 0;

    if (!extent->bytes || extent->base >= PTX_SHARED_BASE ||
        extent->bytes > PTX_SHARED_BASE - extent->base)
        return -EINVAL;
    pthread_rwlock_wrlock(&table->lock);
    if (table->n == table->n_allocated) {
        const size_t wanted = table->n ? 2 * table->n : 16;
        struct ptx_extent *larger = reallocarray(table->extents, wanted, sizeof(*larger));

        if (larger) {
            table->extents = larger;
            table->n_allocated = wanted;
        } else {
            r = -ENOMEM;
        }
    }
    if (r == 0)
        table->extents[table->n++] = *extent;
    pthread_rwlock_unlock(&table->lock);
    return r;
}

/* Returns when no running kernel touches the extent any more. -ENOENT. */
static inline int ptx_table_remove(struct ptx_table *table, uint64_t base) {
    int r = -ENOENT;

    pthread_rwlock_wrlock(&table->lock);
    for (size_t i = 0; i < table->n && r < 0; i++)
        if (table->extents[i].base == base) {
            table->extents[i] = table->extents[--table->n];
            atomic_fetch_add(&table->generation, 1);
            r = 0;
        }
    pthread_rwlock_unlock(&table->lock);
    if (r == 0)
        ptx_memory_settle(table->memory);
    return r;
}
