/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Map target: a place of the reservation where memory is to be mapped, and donor: a free chunk
 * whose whole pages can go there.
 *
 * The thread that holds the arena's `growing` has the only target, on its stack. Only that thread
 * changes holes and the end of a top, so a target stays valid while its shard is not locked. Free
 * chunks may change meanwhile; then the target is valid, but no longer the best choice.
 */
#include "allocator/internal.h"

struct map_target {
    struct shard *shard;
    bool hole;       /* inside a hole; otherwise at the end of the top */
    uint32_t beside; /* the free chunk that the new memory will join; 0: none */
    uint32_t start;  /* mapped so far: [start, offset) */
    uint32_t offset; /* still to map: [offset, offset + size), whole pages */
    uint32_t size;
    uint32_t beside_too; /* a second one, behind, if the whole hole is to be filled */
};

/* `size` granules rounded up to whole pages; UINT32_MAX: more than the shard has addresses. */
uint32_t map_target_pages_up(const struct shard *shard, uint64_t size);
/* Find where the fewest new pages make room for `size`. False: no addresses are left. `growing`
 * must be held, otherwise the result of another thread could change. Takes the shard's lock. */
bool map_target_find(struct shard *shard, uint32_t size, uint64_t align_bytes, uint8_t stream,
                     struct map_target *ret);
/* Make sure that whatever is mapped there next, whole or in part, can be used. -ENOBUFS: the host
 * has no memory for records. Takes the shard's lock. */
int map_target_reserve(const struct map_target *target);
/* After map_target_reserve(): the first `size` of the target are mapped now; make them usable. They
 * are new or, if `moved`, were counted as moving until now. Takes the shard's lock. */
void map_target_occupy(struct arena *arena, struct map_target *target, uint32_t size, bool moved);

/* The smallest free chunk with whole pages that is not part of the target: large ones are more
 * useful as they are. Its shard is locked. 0: there is none, and nothing is locked. */
uint32_t map_target_find_donor(struct arena *arena, const struct map_target *target,
                               struct shard **ret_shard, uint32_t *ret_offset, uint32_t *ret_size);
/* Granules in whole pages that map_target_find_donor() would find; stops counting at `enough`. */
uint64_t map_target_count_donors(struct arena *arena, const struct map_target *target,
                                 uint64_t enough);
