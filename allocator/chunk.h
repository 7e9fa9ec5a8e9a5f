/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Chunk: what the host knows about a run of granules, and the table of all chunks of a shard.
 *
 * The chunks of a shard tile its space: `prev` and `next` lead to the neighbours in address
 * order, and free neighbours that may be one are one. A chunk is named by its index in the table,
 * which never moves, so that 32 bits and half a cache line per chunk are enough. Index 0 is the
 * edge: the neighbour of the first and last chunk of a region, never free.
 *
 * Owned by the shard, used under its lock.
 */
#include <stddef.h>
#include <stdint.h>

enum chunk_state {
    CHUNK_UNUSED, /* a record without a chunk */
    CHUNK_EDGE,
    CHUNK_LIVE,
    CHUNK_LIMBO, /* freed on several streams: waits, and is in no bin */
    CHUNK_FREE,  /* in the bins of its stream, 0 where everybody may have it */
    CHUNK_TOP,   /* the mapped rest above every other chunk; may be empty; in no bin */
    CHUNK_HOLE,  /* addresses without memory, below the top */
    CHUNK_TAKEN, /* neither live nor free for a moment: its pages are on their way */
};

struct chunk {
    uint32_t offset; /* granules from the start of the shard's space */
    uint32_t size;   /* granules */
    uint32_t prev, next;
    union {
        uint32_t link_next; /* free, hole: in its bin; unused: the next unused */
        uint32_t tag;       /* live */
    };
    union {
        uint32_t link_prev; /* free, hole: in its bin, except for the first */
        uint32_t serial;    /* live: 24 bits that tell this block from the last one here */
    };
    uint32_t
        epoch; /* free: the stream's event that makes it free for all; live: 1 if in the lookup */
    uint16_t waste; /* live: bytes of its granules that were not asked for, 0 to 256 */
    uint8_t state;
    uint8_t stream; /* free: the only stream that may have it now; live: that allocated it */
};

struct chunk_table {
    struct chunk *chunks; /* reserved address space, made accessible as it fills */
    uint32_t unused;      /* list by link_next */
    uint32_t n_unused;
    uint32_t n_used;  /* records handed out at least once, and the edge */
    uint32_t n_ready; /* accessible */
    uint32_t n_max;
};

/* Room for `n_max` chunks, of which none costs memory yet. */
int chunk_table_init(struct chunk_table *table, uint32_t n_max);
void chunk_table_done(struct chunk_table *table);
/* Slow part of chunk_new(): an index that was never used, 0 where the host has no memory left. */
uint32_t chunk_table_extend(struct chunk_table *table);
uint64_t chunk_table_bytes(const struct chunk_table *table);

static inline uint32_t chunk_new(struct chunk_table *table) {
    uint32_t i = table->unused;

    if (__builtin_expect(!i, 0))
        return chunk_table_extend(table);
    table->unused = table->chunks[i].link_next;
    table->n_unused--;
    return i;
}

static inline void chunk_free(struct chunk_table *table, uint32_t i) {
    table->chunks[i].state = CHUNK_UNUSED;
    table->chunks[i].link_next = table->unused;
    table->unused = i;
    table->n_unused++;
}

static inline uint32_t chunk_end(const struct chunk *chunk) {
    return chunk->offset + chunk->size;
}
