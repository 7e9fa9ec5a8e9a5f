/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every invariant, walked:
 *  - the chunks of each region, or of a placed shard, tile it without gap or overlap, and their
 *    links agree both ways;
 *  - no two free neighbours wait for the same; holes are whole pages and never touch; a placed
 *    shard ends in its top;
 *  - a free chunk is in the bin of its size and stream, and bins hold nothing else; bitmaps agree;
 *  - every record is used once or on the list of unused ones;
 *  - all sums, per class too, are what the walk counts; the cap and the peaks are not passed.
 */
#include "allocator/internal.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"

struct count {
    uint64_t live_bytes, deferred_size, hole_size, taken_size, mapped_size, records;
    uint64_t free[ARENA_STREAMS_MAX + 1], free_size[ARENA_STREAMS_MAX + 1], holes;
    tally live[BIN_ORDERS];
};

#define BROKEN(...) error_set(err, -EUCLEAN, __VA_ARGS__)

static int check_chunk(const struct shard *shard, uint32_t i, struct count *count,
                       struct allot_error *err) {
    const struct chunk *chunks = shard->table.chunks, *chunk = &chunks[i], *next;
    struct chunk_stream owner = chunk_stream(&shard->table, i);
    struct chunk_stream next_owner = chunk_stream(&shard->table, chunk->next);
    uint8_t stream = owner.number;

    if (chunk->next && chunks[chunk->next].prev != i)
        return BROKEN("shard %u: chunk %u is not before its next", shard->index, i);
    if (chunk->next && chunks[chunk->next].offset != chunk_end(chunk))
        return BROKEN("shard %u: chunk %u does not end where chunk %u begins", shard->index, i,
                      chunk->next);
    if (!chunk->size && chunk_state(chunk) != CHUNK_TOP)
        return BROKEN("shard %u: chunk %u is empty", shard->index, i);
    next = &chunks[chunk->next];
    count->records++;
    switch (chunk_state(chunk)) {
    case CHUNK_LIVE:
        count->live_bytes += chunk_live_bytes(chunk);
        tally_add(count->live, chunk->size);
        if ((chunk->mark & CHUNK_WASTE_MASK) > 256)
            return BROKEN("shard %u: chunk %u wastes %u bytes", shard->index, i,
                          chunk->mark & CHUNK_WASTE_MASK);
        break;
    case CHUNK_DEFERRED:
        count->deferred_size += chunk->size;
        break;
    case CHUNK_FREE:
        if (!shard->bins[stream])
            return BROKEN("shard %u: chunk %u is free for stream %u, which is not", shard->index, i,
                          stream);
        count->free[stream]++;
        count->free_size[stream] += chunk->size;
        if (!stream && owner.epoch)
            return BROKEN("shard %u: chunk %u is free for all streams, but still has an epoch",
                          shard->index, i);
        if (chunk_state(next) == CHUNK_FREE && next_owner.number == stream &&
            next_owner.epoch == owner.epoch)
            return BROKEN("shard %u: neighbouring free chunks %u and %u were not merged",
                          shard->index, i, chunk->next);
        if (chunk_state(next) == CHUNK_TOP && !stream)
            return BROKEN("shard %u: free chunk %u is not the top's", shard->index, i);
        break;
    case CHUNK_HOLE:
        count->holes++;
        count->hole_size += chunk->size;
        if (chunk->offset % shard->page_size || chunk->size % shard->page_size)
            return BROKEN("shard %u: hole %u is not whole pages", shard->index, i);
        if (chunk_state(next) == CHUNK_HOLE)
            return BROKEN("shard %u: neighbouring holes %u and %u were not merged", shard->index, i,
                          chunk->next);
        break;
    case CHUNK_TOP:
        if (i != shard->top || chunk->next)
            return BROKEN("shard %u: the top is not on top", shard->index);
        break;
    case CHUNK_TAKEN: /* another thread works on it */
        count->taken_size += chunk->size;
        break;
    default:
        return BROKEN("shard %u: chunk %u is in state %u", shard->index, i, chunk_state(chunk));
    }
    if (chunk_state(chunk) != CHUNK_HOLE)
        count->mapped_size += chunk->size;
    return 0;
}

static int check_tiles(const struct shard *shard, struct count *count, struct allot_error *err) {
    const struct chunk *chunks = shard->table.chunks;
    uint32_t i, first = 0, end = 0;
    int r;

    if (shard->placed) {
        for (i = shard->top; chunks[i].prev; i = chunks[i].prev)
            if (++first > shard->table.n_used)
                return BROKEN("shard %u: the chunks go in a circle", shard->index);
        if (chunks[i].offset)
            return BROKEN("shard %u: the first chunk does not begin at 0", shard->index);
        for (; i; i = chunks[i].next) {
            r = check_chunk(shard, i, count, err);
            if (r < 0)
                return r;
        }
        end = chunk_end(&chunks[shard->top]);
        if (end % shard->page_size || end > shard->space_size)
            return BROKEN("shard %u: the top ends at %u", shard->index, end);
        return 0;
    }

    for (uint32_t n = 0; n < shard->n_regions; n++) {
        const struct region *region = &shard->regions[n];

        if (region->offset < end)
            return BROKEN("shard %u: region %u overlaps the one before", shard->index, n);
        end = region->offset;
        if (chunks[region->first].offset != end || chunks[region->first].prev)
            return BROKEN("shard %u: region %u does not begin with its first chunk", shard->index,
                          n);
        for (i = region->first; i; i = chunks[i].next) {
            r = check_chunk(shard, i, count, err);
            if (r < 0)
                return r;
            end = chunk_end(&chunks[i]);
        }
        if (end != region->offset + region->size)
            return BROKEN("shard %u: region %u is not tiled to its end", shard->index, n);
        if (shard_address(shard, &chunks[region->first]) != region->address)
            return BROKEN("shard %u: region %u is not at its address", shard->index, n);
    }
    return 0;
}

static int check_bins(const struct shard *shard, const struct bins *bins, unsigned stream,
                      uint8_t state, uint64_t n_chunks, uint64_t size, struct allot_error *err) {
    const struct chunk *chunks = shard->table.chunks;
    uint32_t largest = 0, n_largest = 0;
    tally orders[BIN_ORDERS] = { 0 };
    uint64_t n = 0, n_size = 0;

    for (unsigned bin = 0; bin < BINS; bin++) {
        bool bit = bins->map[bin >> 6] >> (bin & 63) & 1;
        bool word = bins->words[bin >> 12] >> ((bin >> 6) & 63) & 1;
        uint32_t before = 0;

        if (bit != (bins->head[bin] != 0))
            return BROKEN("shard %u stream %u: bin %u and its bit differ", shard->index, stream,
                          bin);
        if (word != (bins->map[bin >> 6] != 0))
            return BROKEN("shard %u stream %u: word %u and its bit differ", shard->index, stream,
                          bin >> 6);
        for (uint32_t i = bins->head[bin]; i; before = i, i = chunk_link_next(&chunks[i])) {
            if (chunk_state(&chunks[i]) != state ||
                (state == CHUNK_FREE && chunk_stream(&shard->table, i).number != stream) ||
                bin_of(chunks[i].size) != bin)
                return BROKEN("shard %u stream %u: chunk %u does not belong in bin %u",
                              shard->index, stream, i, bin);
            if (before && chunks[i].link_prev != before)
                return BROKEN("shard %u stream %u: bin %u is linked wrongly", shard->index, stream,
                              bin);
            if (++n > n_chunks)
                return BROKEN("shard %u stream %u: bins hold more than is free", shard->index,
                              stream);
            n_size += chunks[i].size;
            n_largest = chunks[i].size > largest ? 0 : n_largest;
            largest = MAX(largest, chunks[i].size);
            n_largest += chunks[i].size == largest;
            tally_add(orders, chunks[i].size);
        }
    }
    if (n != n_chunks || n_size != size)
        return BROKEN("shard %u stream %u: %llu chunks are free, %llu in bins", shard->index,
                      stream, (unsigned long long)n_chunks, (unsigned long long)n);
    if (bins->n_largest ? largest != bins->largest || n_largest != bins->n_largest
                        : largest && largest >= bins->largest)
        return BROKEN("shard %u stream %u: the largest has %u granules, not %u", shard->index,
                      stream, largest, bins->largest);
    for (unsigned order = 0; order < BIN_ORDERS; order++)
        if (orders[order] != bins->orders[order])
            return BROKEN("shard %u stream %u: class %u is counted wrongly", shard->index, stream,
                          order);
    return 0;
}

static int check_shard(const struct shard *shard, uint64_t *moving, struct allot_error *err) {
    struct count count = { 0 };
    uint64_t unused = 0;
    int r;

    r = check_tiles(shard, &count, err);
    if (r < 0)
        return r;
    for (unsigned stream = 0; stream < ELEMENTSOF(shard->bins) && shard->bins[stream]; stream++) {
        r = check_bins(shard, shard->bins[stream], stream, CHUNK_FREE, count.free[stream],
                       count.free_size[stream], err);
        if (r < 0)
            return r;
    }
    r = check_bins(shard, shard->holes, 0, CHUNK_HOLE, count.holes, count.hole_size, err);
    if (r < 0)
        return r;

    for (uint32_t i = shard->table.unused; i; i = chunk_link_next(&shard->table.chunks[i]))
        if (chunk_state(&shard->table.chunks[i]) != CHUNK_UNUSED || ++unused > shard->table.n_used)
            return BROKEN("shard %u: record %u is not unused", shard->index, i);
    unused += (shard->spare[0] != 0) + (shard->spare[1] != 0);
    if (count.records + unused + 1 != shard->table.n_used)
        return BROKEN("shard %u: of %u records %llu are chunks and %llu unused", shard->index,
                      shard->table.n_used, (unsigned long long)count.records,
                      (unsigned long long)unused);

    if (count.live_bytes != shard->live_bytes)
        return BROKEN("shard %u: %llu bytes are live, %llu counted", shard->index,
                      (unsigned long long)count.live_bytes, (unsigned long long)shard->live_bytes);
    if (count.deferred_size != shard->deferred_size)
        return BROKEN("shard %u: what waits for several streams is counted wrongly", shard->index);
    if (count.mapped_size + shard->lost_size != shard->mapped_size)
        return BROKEN("shard %u: %llu granules are mapped, %llu counted", shard->index,
                      (unsigned long long)count.mapped_size,
                      (unsigned long long)shard->mapped_size);
    *moving += count.taken_size << 8;
    for (unsigned order = 0; order < BIN_ORDERS; order++)
        if (count.live[order] != shard->live[order])
            return BROKEN("shard %u: live blocks of class %u are counted wrongly", shard->index,
                          order);
    return 0;
}

int arena_check(struct arena *arena, struct allot_error *err) {
    uint64_t live = 0, limits = 0, mapped = 0, moving = 0, reserved;
    struct shard *shard;
    int r = 0;

    pthread_mutex_lock(&arena->growing); /* no memory moves from or to the source meanwhile */
    arena_lock_all(arena);
    arena_foreach_shard(arena, shard) {
        r = check_shard(shard, &moving, err);
        if (r < 0)
            break;
        live += shard->live_bytes;
        limits += shard->live_limit;
        mapped += shard->mapped_size << 8;
        if (shard->live_bytes > shard->live_limit)
            r = BROKEN("shard %u has passed its limit", shard->index);
    }
    reserved = atomic_load(&arena->reserved_bytes);
    if (r == 0 && live > arena->peak_live_bytes)
        r = BROKEN("more is live than at the peak");
    if (r == 0 && limits > arena->peak_live_bytes && atomic_load(&arena->n_shards) > 1)
        r = BROKEN("the shards' limits add up to more than the peak");
    if (r == 0 && mapped != reserved)
        r = BROKEN("%llu bytes are mapped, %llu reserved", (unsigned long long)mapped,
                   (unsigned long long)reserved);
    if (r == 0 && moving != atomic_load(&arena->moving_bytes))
        r = BROKEN("%llu bytes are on their way, %llu counted", (unsigned long long)moving,
                   (unsigned long long)atomic_load(&arena->moving_bytes));
    if (r == 0 && reserved > atomic_load(&arena->peak_reserved_bytes))
        r = BROKEN("more is reserved than at the peak");
    arena_unlock_all(arena);
    pthread_mutex_unlock(&arena->growing);
    return r;
}
