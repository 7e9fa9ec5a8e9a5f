/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Find memory that no free chunk of the shard can give. In this order:
 *
 *  1. take free chunks of other shards; check the events of streams; search the free chunks, but
 *     no more of them than a growth costs;
 *  2. move pages that are wholly free but lie elsewhere to where they are needed: within a
 *     budget, because moving a page costs as much as mapping a new one;
 *  3. grow by a little more than is needed;
 *  4. if refused, grow by exactly what is needed; search everything that is free;
 *  5. have the stream, or the host, wait for memory that other streams freed;
 *  6. move pages without a budget, and grow for the rest; or give back idle memory that cannot
 *     move here, and grow for all of it;
 *  7. fail.
 *
 * If the source would have to wait, all this ends at once (-EAGAIN): `growing` is held only as long
 * as the driver takes. The same happens if the host has no memory for records (-ENOBUFS): the arena
 * asks the source for nothing that it could not record.
 */
#include <errno.h>

#include "allocator/map_target.h"

/* Growth beyond the need, as a part of what is held: this saves calls, and never wastes 1 %. */
#define BATCH_PART 512
/* A region beside others cannot grow, so it exceeds the need by a larger part. */
#define REGION_PART 8
/*
 * The budget of moves: a quarter of what is held, once, plus a part of everything ever allocated.
 * At 80 µs a page, 1/2048 is 20 µs a GiB, which is negligible against any use of a GiB. If growth
 * would leave more than a sixth of the memory unused, moving may cost as much as 640 µs a GiB.
 */
#define MOVE_ONCE_PART 4
#define MOVE_PART      2048
#define MOVE_PART_MOST 64
#define UNUSED_PART    6
/* Chunks of a shard to search before asking the source: some ten microseconds, while a page costs
 * eighty. */
#define LOOK 4096
/* Records that growing, and then taking the memory, may need. */
#define RECORDS 8
/* A shard among several is fed after so many misses, by this part of what is held. */
#define FEED_MISSES 32
#define FEED_PART   64

/* Whether to try nothing else. */
static bool ends_all(int r) {
    return r == -EAGAIN || r == -ENOBUFS;
}

/* The source's error: a source knows nothing of records, so -ENOBUFS from it means no memory. */
static int said(int r) {
    return r == -ENOBUFS ? -ENOMEM : r;
}

/* `look`: how many chunks to search if shard_take() found nothing. */
static bool try_shard(struct shard *shard, uint32_t look, uint32_t size, uint64_t align_bytes,
                      uint8_t stream, uint32_t *ret_chunk) {
    lock_take(&shard->lock);
    *ret_chunk = shard_take(shard, size, align_bytes, stream);
    if (!*ret_chunk && look)
        *ret_chunk = shard_take_hard(shard, size, align_bytes, stream, look);
    if (*ret_chunk)
        return true;
    lock_drop(&shard->lock);
    return false;
}

/* Try the thread's own shard first. Ordinary blocks never come from the shard of ARENA_PLAIN, nor
 * the other way round. */
static bool try_shards(struct arena *arena, struct shard *own, uint32_t look, uint32_t size,
                       uint64_t align_bytes, uint8_t stream, struct shard **ret_shard,
                       uint32_t *ret_chunk) {
    unsigned n_shards = atomic_load_explicit(&arena->n_shards, memory_order_acquire);

    *ret_shard = own;
    if (try_shard(own, look, size, align_bytes, stream, ret_chunk))
        return true;
    for (unsigned n = 1; own->index != PLAIN_INDEX && n < n_shards; n++) {
        *ret_shard = arena->shards[(own->index + n) % n_shards];
        if (try_shard(*ret_shard, look, size, align_bytes, stream, ret_chunk))
            return true;
    }
    return false;
}

static uint64_t room_under_cap(struct arena *arena) {
    uint64_t cap = atomic_load(&arena->cap_bytes), reserved = atomic_load(&arena->reserved_bytes);

    return cap > reserved ? cap - reserved : 0;
}

/* Ask the source for memory at the target, and undo what it mapped if it fails. The bytes that it
 * gave (or `*ret_kept` of them) are counted when the target is occupied. */
static int source_grow(struct arena *arena, const struct map_target *target, uint32_t size,
                       uint32_t *ret_kept) {
    uint64_t from = target->shard->slice_offset + ((uint64_t)target->offset << 8);
    uint64_t bytes = (uint64_t)size << 8, part = 0;
    int r;

    *ret_kept = 0;
    if (bytes > room_under_cap(arena))
        return -ENOMEM;
    r = map_target_reserve(target);
    if (r < 0)
        return r;
    r = said(arena->source.grow(arena->source.userdata, from, bytes, &part));
    if (r == 0) {
        atomic_fetch_add(&arena->grows, 1);
        return 0;
    }
    if (r != -EAGAIN)
        atomic_fetch_add(&arena->refusals, 1);

    part = MIN(part, bytes) / arena->page_bytes * arena->page_bytes;
    if (!part)
        return r;
    if (arena->source.trim && arena->source.trim(arena->source.userdata, from, part) == 0)
        return r;
    /* It cannot be undone, so we keep it and count it. */
    *ret_kept = (uint32_t)(part >> 8);
    return r;
}

static bool can_move(const struct arena *arena) {
    return arena->source.remap || arena->source.trim;
}

/* Move up to the target's size of whole free pages to it. */
static int move_pages(struct arena *arena, struct map_target *target) {
    const struct mem_source *source = &arena->source;

    while (target->size) {
        uint32_t offset, size, taken, kept;
        struct shard *donor;
        uint64_t from, to;
        uint32_t i;
        int r = map_target_reserve(target);

        if (r < 0)
            return r;
        i = map_target_find_donor(arena, target, &donor, &offset, &size);
        if (!i)
            return -ENOMEM;
        /* Take from its end: the front is more likely to be useful together with what lies
         * below. */
        if (size > target->size) {
            offset += size - target->size;
            size = target->size;
        }
        r = shard_carve(donor, i, offset, size, &taken);
        if (r == 0)
            atomic_fetch_add(&arena->moving_bytes, (uint64_t)size << 8);
        lock_drop(&donor->lock);
        if (r < 0)
            return r;

        from = donor->slice_offset + ((uint64_t)offset << 8);
        to = target->shard->slice_offset + ((uint64_t)target->offset << 8);
        if (source->remap)
            r = said(source->remap(source->userdata, from, to, (uint64_t)size << 8));
        else
            r = said(source->trim(source->userdata, from, (uint64_t)size << 8));

        lock_take(&donor->lock);
        if (r == 0)
            shard_hollow(donor, taken);
        else
            shard_give(donor, taken, SHARD_FOR_ALL);
        if (r < 0 || !source->remap)
            atomic_fetch_sub(&arena->moving_bytes, (uint64_t)size << 8);
        if (r == 0 && !source->remap)
            atomic_fetch_sub(&arena->reserved_bytes, (uint64_t)size << 8);
        lock_drop(&donor->lock);
        if (r < 0)
            return r;

        if (!source->remap) {
            r = source_grow(arena, target, size, &kept);
            if (r < 0) {
                if (kept)
                    map_target_occupy(arena, target, kept, false);
                return r;
            }
        }
        atomic_fetch_add(&arena->moved_bytes, (uint64_t)size << 8);
        map_target_occupy(arena, target, size, source->remap);
    }
    return 0;
}

static bool move_budget(struct arena *arena, const struct map_target *target) {
    uint64_t need = (uint64_t)target->size << 8, reserved = atomic_load(&arena->reserved_bytes);
    uint64_t taken = 0, used = 0;
    struct shard *shard;

    arena_foreach_shard(arena, shard) {
        lock_take(&shard->lock);
        taken += shard->taken_size << 8;
        used += tally_size(tally_sum(shard->live)) << 8;
        lock_drop(&shard->lock);
    }
    taken /= reserved + need - used > (reserved + need) / UNUSED_PART ? MOVE_PART_MOST : MOVE_PART;
    return atomic_load(&arena->moved_bytes) + need <= taken + reserved / MOVE_ONCE_PART;
}

/* Grow at the target by what it lacks and, if it is at the top, by `batch` more. */
static int grow_spot(struct arena *arena, struct map_target *target, bool batch) {
    struct shard *shard = target->shard;
    uint64_t more = 0;
    uint32_t size, kept;
    int r;

    if (batch && !target->hole) {
        uint64_t need = (uint64_t)target->size << 8, room = room_under_cap(arena);

        more = atomic_load(&arena->reserved_bytes) / BATCH_PART;
        more = MIN(more, room > need ? room - need : 0) >> 8;
        more = MIN(more, (uint64_t)(shard->space_size - target->offset - target->size));
        more = more / shard->page_size * shard->page_size;
    }
    size = target->size + (uint32_t)more;
    r = source_grow(arena, target, size, &kept);
    if (r < 0) {
        if (kept) {
            target->size = MAX(target->size, kept);
            map_target_occupy(arena, target, kept, false);
        }
        return r;
    }
    target->size = size;
    map_target_occupy(arena, target, size, false);
    return 0;
}

/* -EIO, and `*ret_misplaced`: the source's region lies where the arena cannot use it. */
static int grow_region(struct arena *arena, struct shard *shard, uint32_t size,
                       bool *ret_misplaced) {
    uint64_t address, bytes = (uint64_t)size << 8;
    uint32_t offset;
    int r;

    if (bytes > room_under_cap(arena))
        return -ENOMEM;
    lock_take(&shard->lock);
    r = shard_region_place(shard, size, &offset);
    lock_drop(&shard->lock);
    if (r < 0)
        return r;
    r = said(arena->source.region_new(arena->source.userdata, bytes, &address));
    if (r < 0) {
        if (r != -EAGAIN)
            atomic_fetch_add(&arena->refusals, 1);
        return r;
    }
    atomic_fetch_add(&arena->grows, 1);
    *ret_misplaced = address % ARENA_GRANULE_BYTES;
    lock_take(&shard->lock);
    r = *ret_misplaced ? -EIO : shard_region_add(shard, offset, size, address);
    if (r == 0)
        stats_count_held(arena, bytes);
    lock_drop(&shard->lock);
    if (r == 0 || (arena->source.region_free &&
                   arena->source.region_free(arena->source.userdata, address, bytes) == 0))
        return r;

    /* The source does not take it back: it is held, and useless, until the arena ends. */
    lock_take(&shard->lock);
    stats_count_held(arena, bytes);
    shard->mapped_size += size;
    shard->lost_size += size;
    lock_drop(&shard->lock);
    return r;
}

/* Steps 2 to 4 in a placed shard. */
static int grow_placed(struct arena *arena, struct shard *own, uint32_t size, uint64_t align_bytes,
                       uint8_t stream) {
    struct map_target target;
    int r;

    if (!map_target_find(own, size, align_bytes, stream, &target))
        return -ENOMEM;
    if (can_move(arena) && move_budget(arena, &target) &&
        map_target_count_donors(arena, &target, target.size) >= target.size &&
        move_pages(arena, &target) == 0)
        return 0;
    if (!map_target_find(own, size, align_bytes, stream, &target))
        return -ENOMEM;
    r = grow_spot(arena, &target, true);
    if (r < 0 && !ends_all(r) && map_target_find(own, size, align_bytes, stream, &target))
        r = grow_spot(arena, &target, false);
    return r;
}

/* Step 6: use whatever can be had, if together it is enough. */
static int scrape_placed(struct arena *arena, struct shard *own, uint32_t size,
                         uint64_t align_bytes, uint8_t stream) {
    struct map_target target;
    uint64_t donors;
    int r;

    if (!map_target_find(own, size, align_bytes, stream, &target))
        return -ENOMEM;
    donors = can_move(arena) ? map_target_count_donors(arena, &target, target.size) : 0;
    if (((uint64_t)target.size << 8) > (donors << 8) + room_under_cap(arena))
        return -ENOMEM;

    /* Ask for new memory first: if that is refused, nothing was moved in vain. */
    if (target.size > donors) {
        struct map_target part = target;

        part.size = target.size - (uint32_t)donors;
        r = grow_spot(arena, &part, false);
        if (r < 0 || !donors)
            return r;
        if (!map_target_find(own, size, align_bytes, stream, &target))
            return -ENOMEM;
    }
    return move_pages(arena, &target);
}

static int grow_regions(struct arena *arena, struct shard *own, uint32_t size, uint64_t align_bytes,
                        bool *ret_misplaced) {
    uint64_t want = align_bytes > 256 ? size + (align_bytes >> 8) - 1 : size, room;
    uint32_t need = map_target_pages_up(own, want), more;
    int r;

    if (need == UINT32_MAX)
        return -ENOMEM;
    room = room_under_cap(arena) >> 8;
    more = (uint32_t)MIN(atomic_load(&arena->reserved_bytes) / REGION_PART >> 8,
                         (uint64_t)own->space_size);
    more = map_target_pages_up(own, MAX(more, need));
    if (more > room)
        more = (uint32_t)(room / own->page_size * own->page_size);
    for (more = MAX(more, need);; more = MAX(more / 2 / own->page_size * own->page_size, need)) {
        r = grow_region(arena, own, more, ret_misplaced);
        if (r == 0 || r == -EAGAIN || more == need || *ret_misplaced)
            return r;
    }
}

/*
 * Threads that take memory from another shard contend there. So a shard that often misses gets
 * memory of its own: whole pages from others or new ones, each time a fraction of what the arena
 * holds. Only if the arena has several shards: one thread packs as tightly as it can.
 */
static void feed(struct arena *arena, struct shard *own, uint32_t size) {
    uint64_t part = atomic_load(&arena->reserved_bytes) / FEED_PART >> 8;
    struct map_target target;
    uint64_t mapped;

    lock_take(&own->lock);
    mapped = own->mapped_size;
    lock_drop(&own->lock);
    /* Up to its share of the whole: beyond that, using the memory of others saves memory. */
    if (mapped * atomic_load(&arena->n_shards) << 8 >= atomic_load(&arena->reserved_bytes) ||
        pthread_mutex_trylock(&arena->growing) != 0)
        return;
    part = MAX(part, (uint64_t)size);
    if (map_target_find(own, (uint32_t)MIN(part, (uint64_t)own->space_size), 0, 0, &target) &&
        !(can_move(arena) && move_budget(arena, &target) &&
          map_target_count_donors(arena, &target, target.size) >= target.size &&
          move_pages(arena, &target) == 0) &&
        map_target_find(own, size, 0, 0, &target))
        grow_spot(arena, &target, false);
    pthread_mutex_unlock(&arena->growing);
}

/* Growth is no help if the host has no memory for records. */
static bool has_records(struct shard *shard) {
    bool has;

    lock_take(&shard->lock);
    has = chunk_table_has(&shard->table, RECORDS);
    lock_drop(&shard->lock);
    return has;
}

/* `own` or, if that has no addresses left for this, a shard that has. The first shard only if no
 * other has any, since large blocks fit nowhere else. */
static struct shard *find_addresses(struct arena *arena, struct shard *own, uint32_t size,
                                    uint64_t align_bytes, uint8_t stream) {
    unsigned n_shards = atomic_load_explicit(&arena->n_shards, memory_order_acquire);
    struct map_target target;

    if (!own->placed || n_shards == 1 || map_target_find(own, size, align_bytes, stream, &target))
        return own;
    for (unsigned n = n_shards; n-- > 0;)
        if (map_target_find(arena->shards[n], size, align_bytes, stream, &target))
            return arena->shards[n];
    return own;
}

int grow_make_room(struct arena *arena, struct shard *own, uint32_t size, uint64_t align_bytes,
                   uint8_t stream, struct shard **ret_shard, uint32_t *ret_chunk) {
    bool misplaced = false;
    int r = -ENOMEM;

    if (own->placed && atomic_load_explicit(&arena->n_shards, memory_order_relaxed) > 1 &&
        atomic_fetch_add_explicit(&own->misses, 1, memory_order_relaxed) % FEED_MISSES ==
            FEED_MISSES - 1)
        feed(arena, own, size);
    if (try_shards(arena, own, 0, size, align_bytes, stream, ret_shard, ret_chunk))
        return 0;
    if (stream_poll(arena) &&
        try_shards(arena, own, 0, size, align_bytes, stream, ret_shard, ret_chunk))
        return 0;

    pthread_mutex_lock(&arena->growing);
    /* Other threads may take what was grown before we do, so try again; but not for ever. */
    for (unsigned attempt = 0; attempt < 16; attempt++) {
        if (try_shards(arena, own, LOOK, size, align_bytes, stream, ret_shard, ret_chunk)) {
            r = 0;
            break;
        }
        own = find_addresses(arena, own, size, align_bytes, stream);
        if (!has_records(own)) {
            r = -ENOBUFS;
            break;
        }
        r = own->placed ? grow_placed(arena, own, size, align_bytes, stream)
                        : grow_regions(arena, own, size, align_bytes, &misplaced);
        if (r == 0)
            continue;
        if (try_shards(arena, own, SHARD_LOOK_ALL, size, align_bytes, stream, ret_shard,
                       ret_chunk)) {
            misplaced = false;
            r = 0;
            break;
        }
        if (misplaced || ends_all(r))
            break;

        /* Streams that keep freeing must not keep us from trying the rest. */
        if (attempt < 8 && stream_wait(arena, stream))
            continue;
        if (own->placed)
            r = scrape_placed(arena, own, size, align_bytes, stream);
        if (ends_all(r))
            break;
        if (r < 0 && trim_idle(arena, own, ((uint64_t)size << 8) + align_bytes))
            continue;
        if (r < 0) {
            r = try_shards(arena, own, SHARD_LOOK_ALL, size, align_bytes, stream, ret_shard,
                           ret_chunk)
                    ? 0
                    : -ENOMEM;
            break;
        }
    }
    pthread_mutex_unlock(&arena->growing);
    if (misplaced)
        return -EIO;
    if (ends_all(r))
        return r;
    return r < 0 ? -ENOMEM : *ret_chunk ? 0 : -ENOMEM;
}

int grow_initial(struct arena *arena, uint64_t bytes, bool *ret_misplaced) {
    struct shard *shard = arena->shards[0];
    uint32_t size = map_target_pages_up(shard, (bytes >> 8) + (bytes % 256 != 0));
    struct map_target target = { .shard = shard };

    *ret_misplaced = false;
    if (size == UINT32_MAX)
        return -ENOMEM;
    if ((uint64_t)size << 8 > room_under_cap(arena))
        size -= shard->page_size;
    if (!size)
        return 0;
    if (!shard->placed)
        return grow_region(arena, shard, size, ret_misplaced);
    target.size = size;
    return grow_spot(arena, &target, false);
}
