/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Chunk: what the host knows about a run of granules, and the table of all chunks of a shard.
 *
 * The chunks of a shard tile its space: `prev` and `next` lead to the neighbours in address
 * order, and free neighbours that may be one are one. A chunk is named by its index in the table,
 * which never moves, so that 28 bits do for a link. Index 0 is the
 * edge: the neighbour of the first and last chunk of a region, never free.
 *
 * Owned by the shard, used under its lock.
 */
#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum chunk_state {
    CHUNK_UNUSED, /* a record without a chunk */
    CHUNK_EDGE,
    CHUNK_LIVE,
    CHUNK_DEFERRED, /* freed on several streams: waits, in no bin */
    CHUNK_FREE,     /* in the bins of its stream, or of stream 0: free for all */
    CHUNK_TOP,      /* the mapped rest above every other chunk; may be empty; in no bin */
    CHUNK_HOLE,     /* addresses without memory, below the top */
    CHUNK_TAKEN,    /* neither live nor free for a moment: its pages are being moved, or the bytes
                       of a new block are still being counted, or it passes from one stream to
                       another */
};

#define CHUNK_LINK_BITS 28
#define CHUNK_LINK_MASK (((uint32_t)1 << CHUNK_LINK_BITS) - 1)
/* A live chunk has this many of the link's bits for its tag. */
#define CHUNK_TAG_BITS   22
#define CHUNK_TAG_MASK   (((uint32_t)1 << CHUNK_TAG_BITS) - 1)
#define CHUNK_WASTE_BITS 9
#define CHUNK_WASTE_MASK (((uint32_t)1 << CHUNK_WASTE_BITS) - 1)
/* The serial number distinguishes a block from earlier blocks with the same record. Part is in the
 * mark, part beside the tag. */
#define CHUNK_SERIAL_BITS (32 - CHUNK_WASTE_BITS + CHUNK_LINK_BITS - CHUNK_TAG_BITS)
#define CHUNK_MARK_BITS   (32 - CHUNK_WASTE_BITS)

/* 24 bytes: a million blocks and the chunks between them have some 36 MiB of records. Plain words
 * instead of bit fields: a word that is written in parts and read as a whole stalls the
 * processor. */
struct chunk {
    uint32_t offset; /* granules from the start of the shard's space */
    uint32_t size;   /* granules */
    uint32_t prev, next;
    uint32_t word; /* upper 4 bits: state. The rest, if free, hole or unused: the next in its bin or
                      list; if live: the upper 6 bits of its serial, and its tag */
    union {
        uint32_t link_prev; /* free, hole: the previous in its bin; not set in the first */
        uint32_t mark;      /* live: the lower 23 bits of its serial, and 9 bits for the bytes of
                               its granules that were not requested, 0 to 256 */
    };
};
static_assert(sizeof(struct chunk) == 24, "what the manual says of host memory");

/* What streams add to a record. In a separate table, which costs nothing without streams. */
struct chunk_stream {
    uint8_t number; /* free: the only stream that may have it now; live: the stream that allocated
                       it */
    uint8_t epoch;  /* free: last bit of the stream's epoch in which it was freed; live: CHUNK_PAST
                       if the stream may still use what the memory was before */
};
#define CHUNK_PAST 2

struct chunk_table {
    struct chunk *chunks;         /* reserved address space, made accessible as it fills */
    struct chunk_stream *streams; /* by the same index; NULL: no chunk has belonged to a stream so
                                     far */
    struct chunk_stream *streams_ready; /* the same, from the first stream on */
    uint32_t unused;                    /* list by link_next */
    uint32_t n_used;                    /* records handed out at least once, and the edge */
    uint32_t n_ready;                   /* accessible */
    size_t ready_bytes;
    uint32_t n_max;
};

/* Room for `n_max` chunks, none of which costs memory yet. */
int chunk_table_init(struct chunk_table *table, uint32_t n_max);
void chunk_table_done(struct chunk_table *table);
/* Slow part of chunk_new(): an index that was never used. 0: the host has no memory left. */
uint32_t chunk_table_extend(struct chunk_table *table);
/* Whether `n` more records can be had; `n` is smaller than what the host gives at a time. */
bool chunk_table_has(struct chunk_table *table, uint32_t n);
uint64_t chunk_table_bytes(const struct chunk_table *table);

/* From now on chunks may belong to streams. */
int chunk_table_add_streams(struct chunk_table *table);

static inline unsigned chunk_state(const struct chunk *chunk) {
    return chunk->word >> CHUNK_LINK_BITS;
}

static inline bool chunk_is_live(const struct chunk *chunk) {
    return chunk_state(chunk) == CHUNK_LIVE;
}

static inline uint32_t chunk_link_next(const struct chunk *chunk) {
    return chunk->word & CHUNK_LINK_MASK;
}

static inline uint32_t chunk_tag(const struct chunk *chunk) {
    return chunk->word & CHUNK_TAG_MASK;
}

/* Set the state and what shares its word: a link, a tag, or nothing (0). */
static inline void chunk_set(struct chunk *chunk, enum chunk_state state, uint32_t rest) {
    chunk->word = (uint32_t)state << CHUNK_LINK_BITS | rest;
}

static inline void chunk_set_link_next(struct chunk *chunk, uint32_t i) {
    chunk->word = (chunk->word & ~CHUNK_LINK_MASK) | i;
}

/* Begin the block with this number in its shard. */
static inline void chunk_set_live(struct chunk *chunk, uint64_t serial, uint32_t tag,
                                  uint32_t waste) {
    const uint32_t upper = (uint32_t)(serial >> CHUNK_MARK_BITS) << CHUNK_TAG_BITS;

    chunk_set(chunk, CHUNK_LIVE, (upper & CHUNK_LINK_MASK) | tag);
    chunk->mark = (uint32_t)serial << CHUNK_WASTE_BITS | waste;
}

/* Is the chunk live, and the block with this number, as far as CHUNK_SERIAL_BITS tell? */
static inline bool chunk_is_block(const struct chunk *chunk, uint32_t serial) {
    const unsigned upper_bits = CHUNK_LINK_BITS - CHUNK_TAG_BITS;
    const uint32_t upper = (uint32_t)CHUNK_LIVE << upper_bits | serial >> CHUNK_MARK_BITS;

    return chunk->word >> CHUNK_TAG_BITS == upper &&
           chunk->mark >> CHUNK_WASTE_BITS == (serial & (((uint32_t)1 << CHUNK_MARK_BITS) - 1));
}

static inline struct chunk_stream chunk_stream(const struct chunk_table *table, uint32_t i) {
    return table->streams ? table->streams[i] : (struct chunk_stream){ 0, 0 };
}

static inline void chunk_set_stream(struct chunk_table *table, uint32_t i,
                                    struct chunk_stream stream) {
    if (__builtin_expect(stream.number | stream.epoch, 0))
        table->streams = table->streams_ready;
    if (table->streams)
        table->streams[i] = stream;
}

static inline uint32_t chunk_new(struct chunk_table *table) {
    uint32_t i = table->unused;

    if (__builtin_expect(!i, 0))
        return chunk_table_extend(table);
    table->unused = chunk_link_next(&table->chunks[i]);
    return i;
}

static inline void chunk_free(struct chunk_table *table, uint32_t i) {
    chunk_set(&table->chunks[i], CHUNK_UNUSED, table->unused);
    table->unused = i;
}

static inline uint32_t chunk_end(const struct chunk *chunk) {
    return chunk->offset + chunk->size;
}
