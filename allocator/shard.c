/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations that fit.h leaves out: takes with an alignment, takes of memory that a stream
 * freed below the top, and takes after a full search; passing memory on from a stream; and the
 * holes and ends of a placed shard.
 *
 * Streams. A chunk freed on a stream lies in bins of that stream until its event has completed.
 * Neighbours are merged only if they wait for the same event: otherwise a few bytes that were just
 * freed would keep withholding a large neighbour that is free already. The stream itself may use
 * all of them. So before the arena grows for a stream, the shard takes neighbours together if they
 * are large enough together:
 *
 *     | live | free for all | of stream 1 | free for all | live |
 *                     |── taken by stream 1 ──|
 *
 * and the rests at both ends stay what they were. Likewise a take from the top begins in the
 * stream's chunk below it.
 */
#include "allocator/shard.h"

#include <assert.h>
#include <errno.h>

#include "allocator/fit.h"
#include "base/cleanup.h"

static struct chunk *at(const struct shard *shard, uint32_t i) {
    return &shard->table.chunks[i];
}

static void bin_insert(struct shard *shard, uint32_t i) {
    bins_insert(shard->bins[chunk_stream(&shard->table, i).number], shard->table.chunks, i,
                at(shard, i)->size, CHUNK_FREE);
}

static void bin_remove(struct shard *shard, uint32_t i) {
    bins_remove(shard->bins[chunk_stream(&shard->table, i).number], shard->table.chunks, i);
}

/* Link the new record `i` before `behind`. The links of the edge are written but never read. */
static void link_before(struct shard *shard, uint32_t behind, uint32_t i) {
    struct chunk *chunk = at(shard, i);

    chunk->next = behind;
    chunk->prev = at(shard, behind)->prev;
    at(shard, chunk->prev)->next = i;
    at(shard, behind)->prev = i;
}

static void unlink_chunk(struct shard *shard, uint32_t i) {
    struct chunk *chunk = at(shard, i);

    at(shard, chunk->prev)->next = chunk->next;
    at(shard, chunk->next)->prev = chunk->prev;
    chunk_free(&shard->table, i);
}

static uint32_t align_pad(const struct shard *shard, const struct chunk *chunk,
                          uint64_t align_bytes) {
    uint64_t address = shard_address(shard, chunk);

    return (uint32_t)(((align_bytes - (address & (align_bytes - 1))) & (align_bytes - 1)) >> 8);
}

/* Take `size` granules after the first `pad` out of the free chunk `i`. */
static uint32_t take_from(struct shard *shard, uint32_t i, uint32_t pad, uint32_t size) {
    struct chunk *chunk = at(shard, i);
    uint32_t rest = 0, front = 0;

    if (chunk->size - pad > size) {
        rest = chunk_new(&shard->table);
        if (!rest)
            return 0;
    }
    if (pad) {
        front = chunk_new(&shard->table);
        if (!front) {
            if (rest)
                chunk_free(&shard->table, rest);
            return 0;
        }
    }

    bin_remove(shard, i);
    if (pad) {
        fit_cut(shard, i, pad, front);
        bin_insert(shard, i);
        i = front;
    }
    if (rest) {
        fit_cut(shard, i, size, rest);
        bin_insert(shard, rest);
    }
    return i;
}

uint32_t shard_take_top(struct shard *shard, uint32_t size, uint64_t align_bytes, uint8_t stream) {
    struct chunk *top = at(shard, shard->top), *below = at(shard, top->prev);
    bool join = shard_is_free_for(shard, top->prev, stream);
    uint32_t pad = 0, i, front = 0;

    if (join) {
        if (align_bytes)
            pad = align_pad(shard, below, align_bytes);
        if (pad >= below->size)
            join = false;
    }
    if (!join && align_bytes)
        pad = align_pad(shard, top, align_bytes);
    if ((uint64_t)pad + size > (uint64_t)top->size + (join ? below->size : 0))
        return 0;

    if (join) {
        i = top->prev;
        if (pad) {
            front = chunk_new(&shard->table);
            if (!front)
                return 0;
        }
        bin_remove(shard, i);
        if (pad) {
            fit_cut(shard, i, pad, front);
            bin_insert(shard, i);
            i = front;
        }
        /* No chunk but the top fits: bins_find() can only miss one in the same bin. */
        if (at(shard, i)->size >= size) {
            uint32_t rest;

            if (at(shard, i)->size == size)
                return i;
            rest = chunk_new(&shard->table);
            if (!rest) {
                shard_give(shard, i, chunk_stream(&shard->table, i));
                return 0;
            }
            fit_cut(shard, i, size, rest);
            bin_insert(shard, rest);
            return i;
        }
        size -= at(shard, i)->size;
        at(shard, i)->size += size;
        top->offset += size;
        top->size -= size;
        return i;
    }

    i = chunk_new(&shard->table);
    if (!i)
        return 0;
    if (pad) {
        front = chunk_new(&shard->table);
        if (!front) {
            chunk_free(&shard->table, i);
            return 0;
        }
        link_before(shard, shard->top, front);
        at(shard, front)->offset = top->offset;
        at(shard, front)->size = pad;
        top->offset += pad;
        top->size -= pad;
    }
    link_before(shard, shard->top, i);
    chunk_set_stream(&shard->table, i, SHARD_FOR_ALL);
    at(shard, i)->offset = top->offset;
    at(shard, i)->size = size;
    top->offset += size;
    top->size -= size;
    if (front) {
        chunk_set(at(shard, i), CHUNK_TAKEN, 0); /* otherwise the front would be merged with it */
        shard_give(shard, front, SHARD_FOR_ALL);
    }
    return i;
}

static uint32_t take_aligned(struct shard *shard, uint32_t size, uint64_t align_bytes,
                             uint8_t stream) {
    uint64_t enough = size + (align_bytes >> 8) - 1;

    for (int round = 0; round < 2; round++) {
        /* First try a chunk that just fits, in case it happens to be aligned; then one that fits in
         * any case. */
        uint64_t wanted = round ? enough : size;

        if (wanted > UINT32_MAX)
            return 0;
        for (int own = stream != 0; own >= 0; own--) {
            uint8_t from = own ? stream : 0;
            uint32_t i = bins_find(shard->bins[from], shard->table.chunks, (uint32_t)wanted), pad;

            if (!i)
                continue;
            pad = align_pad(shard, at(shard, i), align_bytes);
            if ((uint64_t)pad + size <= at(shard, i)->size)
                return take_from(shard, i, pad, size);
        }
    }
    return shard_take_top(shard, size, align_bytes, stream);
}

uint32_t shard_take(struct shard *shard, uint32_t size, uint64_t align_bytes, uint8_t stream) {
    if (align_bytes > ARENA_GRANULE_BYTES)
        return take_aligned(shard, size, align_bytes, stream);
    return fit_take(shard, size, stream);
}

/* Neighbours that are free for `stream`, starting at `first`, with `size` granules in all. */
struct run {
    uint32_t first;
    uint64_t size;
};

/* The run around `i`, a chunk of the stream's own; visits at most `*look` chunks. Empty if `i` is
 * not the stream's first chunk in it, so that every run is found once. */
static struct run run_around(const struct shard *shard, uint32_t i, uint8_t stream,
                             uint32_t *look) {
    struct run run = { i, 0 };

    while (shard_is_free_for(shard, at(shard, run.first)->prev, stream)) {
        run.first = at(shard, run.first)->prev;
        if (chunk_stream(&shard->table, run.first).number)
            return (struct run){ 0 };
    }
    for (i = run.first; *look && shard_is_free_for(shard, i, stream); i = at(shard, i)->next) {
        run.size += at(shard, i)->size;
        --*look;
    }
    if (chunk_state(at(shard, i)) == CHUNK_TOP)
        run.size += at(shard, i)->size;
    return run;
}

/* Merge `size` granules after the first `pad` of a run into one chunk, which is the stream's. */
static uint32_t take_from_run(struct shard *shard, uint32_t i, uint32_t pad, uint32_t size,
                              uint8_t stream) {
    uint32_t rest, front, next;

    for (; pad >= at(shard, i)->size; i = at(shard, i)->next)
        pad -= at(shard, i)->size;
    if (at(shard, i)->size - pad >= size || chunk_state(at(shard, i)) == CHUNK_TOP)
        return 0; /* one chunk is enough: no run */
    rest = chunk_new(&shard->table);
    front = rest ? chunk_new(&shard->table) : 0;
    if (!front) {
        if (rest)
            chunk_free(&shard->table, rest);
        return 0;
    }

    bin_remove(shard, i);
    if (pad) {
        fit_cut(shard, i, pad, front);
        bin_insert(shard, i);
        i = front;
        front = 0;
    }
    chunk_set_stream(&shard->table, i, (struct chunk_stream){ stream, shard->open[stream] });
    while (at(shard, i)->size < size) {
        uint32_t lacks = size - at(shard, i)->size;

        next = at(shard, i)->next;
        if (chunk_state(at(shard, next)) == CHUNK_TOP) {
            at(shard, next)->offset += lacks;
            at(shard, next)->size -= lacks;
            at(shard, i)->size += lacks;
            break;
        }
        bin_remove(shard, next);
        if (at(shard, next)->size > lacks) {
            fit_cut(shard, next, lacks, rest);
            bin_insert(shard, rest);
            rest = 0;
        }
        at(shard, i)->size += at(shard, next)->size;
        unlink_chunk(shard, next);
    }
    if (front)
        chunk_free(&shard->table, front);
    if (rest)
        chunk_free(&shard->table, rest);
    return i;
}

/* The smallest chunk of one stream's bins that holds the aligned block. Visits at most `*look`. */
static uint32_t search_bins(const struct shard *shard, uint8_t stream, uint32_t size,
                            uint64_t align_bytes, uint32_t *look, uint32_t *ret_pad) {
    const struct bins *bins = shard->bins[stream];

    for (unsigned bin = bins_next(bins, bin_of(size)); bin < BINS; bin = bins_next(bins, bin + 1)) {
        uint32_t best = 0;

        for (uint32_t i = bins->head[bin]; i && *look; i = chunk_link_next(at(shard, i))) {
            uint32_t pad = align_pad(shard, at(shard, i), align_bytes);

            --*look;
            if ((uint64_t)pad + size <= at(shard, i)->size &&
                (!best || at(shard, i)->size < at(shard, best)->size)) {
                best = i;
                *ret_pad = pad;
                if (bin < BIN_EXACT) /* all others in this bin have the same size */
                    break;
            }
        }
        if (best)
            return best;
    }
    return 0;
}

uint32_t shard_take_hard(struct shard *shard, uint32_t size, uint64_t align_bytes, uint8_t stream,
                         uint32_t look) {
    struct run best = { 0 };
    uint32_t best_pad = 0, i, pad;

    align_bytes = MAX(align_bytes, ARENA_GRANULE_BYTES);
    for (int own = stream != 0; own >= 0; own--) {
        i = search_bins(shard, own ? stream : 0, size, align_bytes, &look, &pad);
        if (i)
            return take_from(shard, i, pad, size);
    }
    if (!stream)
        return 0;
    for (unsigned bin = bins_next(shard->bins[stream], 0); bin < BINS && look;
         bin = bins_next(shard->bins[stream], bin + 1))
        for (i = shard->bins[stream]->head[bin]; i && look; i = chunk_link_next(at(shard, i))) {
            struct run run = run_around(shard, i, stream, &look);

            look -= look != 0;
            if (!run.size)
                continue;
            pad = align_pad(shard, at(shard, run.first), align_bytes);
            if ((uint64_t)pad + size > run.size || (best.size && best.size <= run.size))
                continue;
            best = run;
            best_pad = pad;
        }
    return best.size ? take_from_run(shard, best.first, best_pad, size, stream) : 0;
}

void shard_give(struct shard *shard, uint32_t i, struct chunk_stream stream) {
    fit_give(shard, i, stream);
}

bool shard_pass(struct shard *shard, uint8_t stream, uint8_t to) {
    struct bins *bins = shard->bins[stream];
    uint32_t list = 0, i;

    /* Empty the bins first: giving may merge neighbours from these very bins. A chunk on the list
     * is TAKEN, so no neighbour is merged with it, and its links can be used. */
    for (unsigned bin = bins_next(bins, 0); bin < BINS; bin = bins_next(bins, bin + 1))
        for (uint32_t next, c = bins->head[bin]; c; c = next) {
            next = chunk_link_next(at(shard, c));
            if (chunk_stream(&shard->table, c).epoch == shard->open[stream])
                continue;
            bins_remove(bins, shard->table.chunks, c);
            chunk_set(at(shard, c), CHUNK_TAKEN, list);
            list = c;
        }
    if (!list)
        return false;
    while ((i = list)) {
        list = chunk_link_next(at(shard, i));
        shard_give(shard, i, (struct chunk_stream){ to, shard->open[to] });
    }
    return true;
}

void shard_extend(struct shard *shard, uint32_t size) {
    struct chunk *top = at(shard, shard->top);

    top->size += size;
    shard->mapped_size += size;
    assert(chunk_end(top) <= shard->space_size);

    /* A free chunk below an empty top can only be a stream's, otherwise it would be the top. */
    assert(!shard_is_free_for_all(shard, top->prev));
}

int shard_reserve(struct shard *shard) {
    for (unsigned n = 0; n < ELEMENTSOF(shard->spare); n++) {
        if (!shard->spare[n])
            shard->spare[n] = chunk_new(&shard->table);
        if (!shard->spare[n])
            return -ENOBUFS;
    }
    return 0;
}

static uint32_t take_spare(struct shard *shard, unsigned n) {
    const uint32_t i = shard->spare[n];

    assert(i);
    shard->spare[n] = 0;
    return i;
}

void shard_fill(struct shard *shard, uint32_t i, uint32_t offset, uint32_t size) {
    const struct chunk *hole = at(shard, i);
    const uint32_t front = offset - hole->offset, behind = hole->size - front - size;
    uint32_t mid = i;

    bins_remove(shard->holes, shard->table.chunks, i);
    if (front) {
        mid = take_spare(shard, 0);
        fit_cut(shard, i, front, mid);
        bins_insert(shard->holes, shard->table.chunks, i, front, CHUNK_HOLE);
    }
    if (behind) {
        const uint32_t rest = take_spare(shard, 1);

        fit_cut(shard, mid, size, rest);
        bins_insert(shard->holes, shard->table.chunks, rest, behind, CHUNK_HOLE);
    }
    shard->mapped_size += size;
    shard_give(shard, mid, SHARD_FOR_ALL);
}

int shard_carve(struct shard *shard, uint32_t i, uint32_t offset, uint32_t size, uint32_t *ret) {
    struct chunk *chunk = at(shard, i);
    uint32_t front = offset - chunk->offset, taken;

    if (chunk_state(chunk) == CHUNK_TOP) {
        uint32_t rest = chunk->size - front - size;

        taken = chunk_new(&shard->table);
        if (!taken)
            return -ENOMEM;
        if (front) {
            uint32_t below = chunk_new(&shard->table);

            if (!below) {
                chunk_free(&shard->table, taken);
                return -ENOMEM;
            }
            link_before(shard, i, below);
            at(shard, below)->offset = chunk->offset;
            at(shard, below)->size = front;
            link_before(shard, i, taken);
            chunk_set(at(shard, taken), CHUNK_TAKEN, 0);
            shard_give(shard, below, SHARD_FOR_ALL);
        } else
            link_before(shard, i, taken);
        at(shard, taken)->offset = offset;
        at(shard, taken)->size = size;
        chunk_set(at(shard, taken), CHUNK_TAKEN, 0);
        chunk->offset = offset + size;
        chunk->size = rest;
    } else {
        taken = take_from(shard, i, front, size);
        if (!taken)
            return -ENOMEM;
        chunk_set(at(shard, taken), CHUNK_TAKEN, 0);
    }
    *ret = taken;
    return 0;
}

void shard_hollow(struct shard *shard, uint32_t i) {
    struct chunk *chunk = at(shard, i), *near;

    shard->mapped_size -= chunk->size;
    near = at(shard, chunk->prev);
    if (chunk_state(near) == CHUNK_HOLE) {
        uint32_t other = chunk->prev;

        bins_remove(shard->holes, shard->table.chunks, other);
        near->size += chunk->size;
        unlink_chunk(shard, i);
        i = other;
        chunk = near;
    }
    near = at(shard, chunk->next);
    if (chunk_state(near) == CHUNK_HOLE) {
        bins_remove(shard->holes, shard->table.chunks, chunk->next);
        chunk->size += near->size;
        unlink_chunk(shard, chunk->next);
    }
    bins_insert(shard->holes, shard->table.chunks, i, chunk->size, CHUNK_HOLE);
}

void shard_settle(struct shard *shard) {
    struct chunk *top = at(shard, shard->top);
    uint32_t i = top->prev;

    if (!i || top->size || chunk_state(at(shard, i)) != CHUNK_HOLE)
        return;
    bins_remove(shard->holes, shard->table.chunks, i);
    top->offset = at(shard, i)->offset;
    unlink_chunk(shard, i);

    i = top->prev;
    if (shard_is_free_for_all(shard, i)) {
        bin_remove(shard, i);
        shard_give(shard, i, SHARD_FOR_ALL);
    }
}

uint32_t shard_largest_free(const struct shard *shard) {
    const struct chunk *top = at(shard, shard->top);
    uint32_t largest = top->size;

    for (unsigned stream = 0; stream < ELEMENTSOF(shard->bins) && shard->bins[stream]; stream++)
        largest = MAX(largest, bins_largest(shard->bins[stream], shard->table.chunks));
    if (chunk_state(at(shard, top->prev)) == CHUNK_FREE)
        largest = MAX(largest, top->size + at(shard, top->prev)->size);
    return largest;
}
