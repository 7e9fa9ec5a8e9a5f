/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How an arena and its shards begin and end. The first shard has all of the reservation; every
 * other shard takes a slice from its end:
 *
 *     one shard      | 0 ··································································|
 *     three shards   | 0 ·············································· | 2 ····· | 1 ····· |
 *
 * So every address belongs to a shard, and the first shard keeps half of them in one piece however
 * many shards there are. A shard that has no addresses left, or needs a block larger than its
 * slice, uses those.
 */
#include "allocator/internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "allocator/thread_shard.h"
#include "base/error.h"

/* As many threads as usually allocate on one device at a time. */
#define SHARDS_DEFAULT 16u
/* A slice has addresses for at least this part of the cap. */
#define SLICE_PART 2

int arena_new_shard(struct arena *arena, unsigned n) {
    uint64_t start = n ? arena->slices_end - n * arena->slice_bytes : 0;
    uint64_t bytes = n ? arena->slice_bytes : arena->slices_end;
    struct shard *shard, *first = arena->shards[0];
    int r;

    r = shard_new(&shard, n, arena->page_bytes, arena->source.base, start, bytes,
                  atomic_load(&arena->n_streams));
    if (r < 0)
        return r;
    if (n == 0) {
        arena->shards[0] = shard;
        atomic_store(&arena->n_shards, 1);
        return 0;
    }

    arena_lock_all(arena);
    if (first->placed && chunk_end(&first->table.chunks[first->top]) > start >> 8) {
        atomic_store(&arena->max_shards, n);
        r = -ENOSPC;
    }
    /* A stream that was added meanwhile needs its bins here too. */
    for (unsigned stream = 1; r == 0 && stream <= atomic_load(&arena->n_streams); stream++)
        r = shard_add_stream(shard, stream);
    if (r == 0) {
        memcpy(shard->open, first->open, sizeof(shard->open));
        if (first->placed)
            first->space_size = (uint32_t)MIN(start >> 8, (uint64_t)first->space_size);
        lock_take(&shard->lock);
        arena->shards[n] = shard;
        atomic_store_explicit(&arena->n_shards, n + 1, memory_order_release);
    } else
        shard_free(shard);
    arena_unlock_all(arena);
    return r;
}

static int check_source(const struct mem_source *source, uint64_t page, struct allot_error *err) {
    if (page < 4096 || (page & (page - 1)) || page > (uint64_t)1 << 32)
        return error_set(err, -EINVAL, "a page size of %llu bytes is not supported",
                         (unsigned long long)page);
    if (!source->span_bytes && !source->region_new)
        return error_set(err, -EINVAL, "the source has neither a reservation nor regions");
    if (source->span_bytes && (!source->grow || source->base % page || source->span_bytes < page ||
                               source->base + source->span_bytes < source->base))
        return error_set(err, -EINVAL, "the source's reservation cannot be used");
    return 0;
}

/* How the reservation is cut up does not depend on the machine; how many of the slices are used
 * may. */
static void choose_shards(struct arena *arena, unsigned wanted, uint64_t cap_bytes) {
    uint64_t page = arena->page_bytes, span = arena->source.span_bytes / page * page;
    unsigned shards = MIN(wanted ? wanted : SHARDS_DEFAULT, (unsigned)ARENA_SHARDS_MAX);
    long n_cpus = sysconf(_SC_NPROCESSORS_ONLN);

    arena->slices_end = span;
    if (span && shards > 1) {
        uint64_t cap = MIN(cap_bytes ? cap_bytes : span / 4, span), keep, slice;

        /* The first shard can always hold the whole cap and as much again, for pages that move. The
         * others get what several threads may well use; if one needs more, the first helps out. */
        keep = MIN(MAX(cap * 2, span / 2), span);
        slice = MAX((span - keep) / (shards - 1) / page, (cap / SLICE_PART + page - 1) / page);
        slice = MAX(slice, UINT64_C(1)) * page;
        shards = (unsigned)MIN((uint64_t)shards, 1 + (span - keep) / slice);
        arena->slice_bytes = slice;
    }
    atomic_store(&arena->max_shards,
                 wanted ? shards : MIN(shards, n_cpus < 1 ? 1u : (unsigned)n_cpus));
}

static int take_initial(struct arena *arena, uint64_t bytes, struct allot_error *err) {
    uint64_t space = (uint64_t)arena->shards[0]->space_size << 8, cap = arena->cap_bytes;
    bool misplaced;
    int r;

    if (bytes > cap)
        return error_set(err, -EINVAL,
                         "%s: the initial %llu bytes are more than the cap of %llu: take less at "
                         "the start, or raise the cap",
                         arena->name, (unsigned long long)bytes, (unsigned long long)cap);
    if (bytes > space / arena->page_bytes * arena->page_bytes)
        return error_set(err, -EINVAL,
                         "%s: the initial %llu bytes are more than the %llu for which the source "
                         "has addresses: take less at the start",
                         arena->name, (unsigned long long)bytes, (unsigned long long)space);
    r = grow_initial(arena, bytes, &misplaced);
    if (r < 0 && misplaced)
        return error_set(err, r, "%s: " ARENA_MISPLACED_TEXT, arena->name);
    if (r < 0)
        return error_set(err, r, "%s: the source refused the initial %llu bytes: %s", arena->name,
                         (unsigned long long)bytes, strerror(-r));
    return 0;
}

int arena_new(struct arena **ret, const struct mem_source *source,
              const struct arena_options *options, struct allot_error *err) {
    static _Atomic uint64_t last_id;
    static const struct arena_options defaults;
    uint64_t page = source->page_bytes ? source->page_bytes : ARENA_PAGE_BYTES;
    cleanup(arena_freep) struct arena *arena = NULL;
    int r;

    if (!options)
        options = &defaults;
    r = check_source(source, page, err);
    if (r < 0)
        return r;
    arena = calloc(1, sizeof(*arena));
    if (!arena)
        return error_set(err, -ENOMEM, "no host memory for an arena");
    pthread_mutex_init(&arena->growing, NULL);
    pthread_mutex_init(&arena->streaming, NULL);
    pthread_mutex_init(&arena->tagging, NULL);
    arena->source = *source;
    arena->name = options->name ? options->name : "device";
    arena->id = atomic_fetch_add(&last_id, 1) + 1;
    arena->page_bytes = page;
    arena->stream_ops = options->stream_ops;
    arena->stream_userdata = options->stream_userdata;
    arena_set_cap(arena, options->cap_bytes);

    choose_shards(arena, options->max_shards, options->cap_bytes);
    if (thread_shard_add_arena(arena) < 0)
        atomic_store(&arena->max_shards, 1); /* its threads could not find their shards */

    r = arena_new_shard(arena, 0);
    if (r == 0 && source->span_bytes && source->region_new)
        r = shard_new(&arena->shards[PLAIN_INDEX], PLAIN_INDEX, page, 0, 0, 0, 0);
    if (r < 0)
        return error_set(err, r, "no host memory for an arena's tables");
    if (options->initial_bytes) {
        r = take_initial(arena, options->initial_bytes, err);
        if (r < 0)
            return r;
    }
    *ret = TAKE(arena);
    return 0;
}

/* Give back contiguous mapped memory, from hole to hole, in as few calls as possible. */
static void give_placed(const struct mem_source *source, const struct shard *shard) {
    const struct chunk *chunks = shard->table.chunks;
    const struct chunk *top = &chunks[shard->top];
    uint32_t end = chunk_end(top);

    for (uint32_t i = shard->top; i; i = chunks[i].prev)
        if (chunk_state(&chunks[i]) == CHUNK_HOLE || !chunks[i].prev) {
            uint32_t start = chunk_state(&chunks[i]) == CHUNK_HOLE ? chunk_end(&chunks[i]) : 0;

            if (end > start)
                source->trim(source->userdata, shard->slice_offset + ((uint64_t)start << 8),
                             (uint64_t)(end - start) << 8);
            end = chunks[i].offset;
        }
}

/* Give all memory back, whether it is in use or not. */
static void give_all(struct arena *arena) {
    const struct mem_source *source = &arena->source;
    struct shard *shard;

    arena_foreach_shard(arena, shard) {
        if (shard->placed && source->trim)
            give_placed(source, shard);
        for (uint32_t n = 0; source->region_free && n < shard->n_regions; n++)
            source->region_free(source->userdata, shard->regions[n].address,
                                (uint64_t)shard->regions[n].size << 8);
    }
}

struct arena *arena_free(struct arena *arena) {
    if (!arena)
        return NULL;
    stream_done(arena);
    give_all(arena);
    thread_shard_remove_arena(arena);
    for (unsigned n = 0; n <= PLAIN_INDEX; n++)
        shard_free(arena->shards[n]);
    tag_done(arena);
    pthread_mutex_destroy(&arena->growing);
    pthread_mutex_destroy(&arena->streaming);
    pthread_mutex_destroy(&arena->tagging);
    free(arena);
    return NULL;
}
