/* SPDX-License-Identifier: Apache-2.0 */
#include "allocator/chunk.h"

#include <errno.h>
#include <sys/mman.h>

#include "base/cleanup.h"

/* The kernel's huge page size: a table that fills one should have one, since a million chunks touch
 * 24 MiB. */
#define HUGE_BYTES  ((size_t)2 << 20)
#define FIRST_BYTES ((size_t)16 << 10)

static size_t reserve_bytes(uint32_t n_max) {
    return ((size_t)n_max * sizeof(struct chunk) + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
}

int chunk_table_init(struct chunk_table *table, uint32_t n_max) {
    size_t bytes = reserve_bytes(n_max);
    char *start, *aligned;

    start = mmap(NULL, bytes + HUGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                 -1, 0);
    if (start == MAP_FAILED)
        return -ENOMEM;

    aligned = (char *)(((uintptr_t)start + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES);
    if (aligned > start)
        munmap(start, (size_t)(aligned - start));
    if (start + HUGE_BYTES > aligned)
        munmap(aligned + bytes, (size_t)(start + HUGE_BYTES - aligned));

    *table = (struct chunk_table){ .chunks = (struct chunk *)aligned, .n_max = n_max };
    if (chunk_table_extend(table) != 0 || !table->n_ready) {
        chunk_table_done(table);
        return -ENOMEM;
    }
    chunk_set(&table->chunks[0], CHUNK_EDGE, 0);
    return 0;
}

int chunk_table_add_streams(struct chunk_table *table) {
    void *streams;

    if (table->streams_ready)
        return 0;
    streams = mmap(NULL, table->n_max * sizeof(*table->streams), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (streams == MAP_FAILED)
        return -ENOMEM;
    table->streams_ready = streams;
    return 0;
}

void chunk_table_done(struct chunk_table *table) {
    if (table->streams_ready)
        munmap(table->streams_ready, table->n_max * sizeof(*table->streams));
    if (table->chunks)
        munmap(table->chunks, reserve_bytes(table->n_max));
    *table = (struct chunk_table){ 0 };
}

/* Make the next part of the reserved addresses accessible. */
static bool make_ready(struct chunk_table *table) {
    size_t step = table->ready_bytes ? MIN(table->ready_bytes, HUGE_BYTES) : FIRST_BYTES;
    char *at = (char *)table->chunks + table->ready_bytes;

    if (table->n_ready >= table->n_max || table->ready_bytes + step > reserve_bytes(table->n_max) ||
        mprotect(at, step, PROT_READ | PROT_WRITE) < 0)
        return false;
    if (step == HUGE_BYTES)
        madvise(at, step, MADV_HUGEPAGE); /* only a hint: without it, it is slower */
    table->ready_bytes += step;
    table->n_ready = (uint32_t)MIN(table->ready_bytes / sizeof(struct chunk), (size_t)table->n_max);
    return true;
}

uint32_t chunk_table_extend(struct chunk_table *table) {
    if (table->n_used == table->n_ready && !make_ready(table))
        return 0;
    return table->n_used++;
}

bool chunk_table_has(struct chunk_table *table, uint32_t n) {
    uint32_t has = table->n_ready - table->n_used;

    for (uint32_t i = table->unused; i && has < n; i = chunk_link_next(&table->chunks[i]))
        has++;
    return has >= n || make_ready(table);
}

uint64_t chunk_table_bytes(const struct chunk_table *table) {
    return table->ready_bytes + (table->streams ? table->n_used * sizeof(*table->streams) : 0);
}
