/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a shard begins and ends and, if the source cannot place memory, its regions. Each region gets
 * a stretch of the shard's space, in whole pages, so that one lookup in a table with an entry per
 * page turns an offset into an address:
 *
 *     space    | region 0      | region 2  |  (was region 1)  | region 3 |
 *     delta    | d0 | d0 | d0  | d2  | d2  |   -    |    -    | d3       |
 *
 * Chunks of different regions are never neighbours: the edge lies between them.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "allocator/shard.h"
#include "base/cleanup.h"

/* Offsets have 32 bits; the last page is left out so that no end of a chunk wraps. */
#define SPACE_MAX ((uint64_t)UINT32_MAX + 1)

DEFINE_FREEP(struct shard, shard_freep, shard_free)

static size_t page_delta_bytes(const struct shard *shard) {
    return (size_t)(SPACE_MAX / shard->page_size) * sizeof(*shard->page_delta);
}

int shard_new(struct shard **ret, unsigned index, uint64_t page_bytes, uint64_t base,
              uint64_t slice_offset, uint64_t slice_bytes, unsigned n_streams) {
    cleanup(shard_freep) struct shard *shard = aligned_alloc(64, (sizeof(*shard) + 63) / 64 * 64);
    uint64_t space;
    int r;

    if (!shard)
        return -ENOMEM;
    memset(shard, 0, sizeof(*shard));
    shard->index = (uint8_t)index;
    shard->page_size = (uint32_t)(page_bytes >> 8);
    shard->placed = slice_bytes != 0;
    shard->slice_offset = slice_offset;
    space = shard->placed ? MIN(slice_bytes >> 8, SPACE_MAX - shard->page_size)
                          : SPACE_MAX - shard->page_size;
    shard->space_size = (uint32_t)space;

    /* In the worst case every granule is a chunk; add the top and what moves. */
    r = chunk_table_init(&shard->table, (uint32_t)MIN(space + 64, (uint64_t)1 << CHUNK_LINK_BITS));
    if (r < 0)
        return r;
    shard->holes = calloc(1, sizeof(*shard->holes));
    if (!shard->holes)
        return -ENOMEM;
    for (unsigned stream = 0; stream <= n_streams; stream++) {
        r = shard_add_stream(shard, stream);
        if (r < 0)
            return r;
    }

    if (shard->placed) {
        shard->base_delta = base + slice_offset;
        shard->delta = &shard->base_delta;
        shard->delta_shift = 32;
        shard->top = chunk_new(&shard->table);
        if (!shard->top)
            return -ENOMEM;
        shard->table.chunks[shard->top] = (struct chunk){ 0 };
        chunk_set(&shard->table.chunks[shard->top], CHUNK_TOP, 0);
    } else {
        void *delta;

        shard->delta_shift = (uint32_t)__builtin_ctz(shard->page_size);
        delta = mmap(NULL, page_delta_bytes(shard), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (delta == MAP_FAILED)
            return -ENOMEM;
        shard->page_delta = delta;
        shard->delta = shard->page_delta;
    }
    *ret = TAKE(shard);
    return 0;
}

struct shard *shard_free(struct shard *shard) {
    if (!shard)
        return NULL;
    for (unsigned stream = 0; stream < ELEMENTSOF(shard->bins); stream++)
        free(shard->bins[stream]);
    free(shard->holes);
    free(shard->regions);
    chunk_table_done(&shard->table);
    if (shard->page_delta)
        munmap(shard->page_delta, page_delta_bytes(shard));
    free(shard);
    return NULL;
}

int shard_add_stream(struct shard *shard, unsigned stream) {
    int r = stream ? chunk_table_add_streams(&shard->table) : 0;

    if (r < 0)
        return r;
    if (!shard->bins[stream])
        shard->bins[stream] = calloc(1, sizeof(*shard->bins[stream]));
    return shard->bins[stream] ? 0 : -ENOMEM;
}

int shard_region_place(struct shard *shard, uint32_t size, uint32_t *ret_offset) {
    uint32_t offset = 0;

    /* Make room for its entry first: once the source has given the memory, nothing may fail. */
    if (shard->n_regions == shard->n_regions_max) {
        uint32_t n_max = MAX(8u, shard->n_regions_max * 2);
        struct region *larger = reallocarray(shard->regions, n_max, sizeof(*larger));

        if (!larger)
            return -ENOMEM;
        shard->regions = larger;
        shard->n_regions_max = n_max;
    }

    for (uint32_t n = 0; n < shard->n_regions; n++) {
        const struct region *region = &shard->regions[n];

        if (region->offset - offset >= size)
            break;
        offset = region->offset + region->size;
    }
    if (shard->space_size - offset < size)
        return -ENOSPC;
    *ret_offset = offset;
    return 0;
}

int shard_region_add(struct shard *shard, uint32_t offset, uint32_t size, uint64_t address) {
    uint32_t i = chunk_new(&shard->table), n = shard->n_regions;
    uint64_t *delta = shard->page_delta;

    if (!i)
        return -ENOMEM;
    while (n > 0 && shard->regions[n - 1].offset > offset)
        n--;
    memmove(&shard->regions[n + 1], &shard->regions[n],
            (shard->n_regions - n) * sizeof(*shard->regions));
    shard->regions[n] = (struct region){ offset, size, i, address };
    shard->n_regions++;

    for (uint32_t page = 0; page < size / shard->page_size; page++)
        delta[offset / shard->page_size + page] = address - ((uint64_t)offset << 8);
    shard->table.chunks[i] = (struct chunk){ .offset = offset, .size = size };
    shard->mapped_size += size;
    shard_give(shard, i, SHARD_FOR_ALL);
    return 0;
}

uint32_t shard_region_idle(const struct shard *shard, uint32_t n) {
    const struct region *region = &shard->regions[n];

    return shard_is_free_for_all(shard, region->first) &&
                   shard->table.chunks[region->first].size == region->size
               ? region->first
               : 0;
}

void shard_region_remove(struct shard *shard, uint32_t n) {
    shard->mapped_size -= shard->regions[n].size;
    chunk_free(&shard->table, shard->regions[n].first);
    shard->n_regions--;
    memmove(&shard->regions[n], &shard->regions[n + 1],
            (shard->n_regions - n) * sizeof(*shard->regions));
}

uint64_t shard_metadata_bytes(const struct shard *shard) {
    uint64_t bytes = sizeof(*shard) + sizeof(*shard->holes) + chunk_table_bytes(&shard->table) +
                     shard->n_regions_max * sizeof(*shard->regions) + shard->deferred_bytes;

    for (unsigned stream = 0; stream < ELEMENTSOF(shard->bins) && shard->bins[stream]; stream++)
        bytes += sizeof(*shard->bins[stream]);
    if (shard->page_delta)
        bytes += (shard->mapped_size / shard->page_size + 1) * sizeof(*shard->page_delta);
    return bytes;
}
