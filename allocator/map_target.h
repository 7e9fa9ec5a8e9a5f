/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Spot: a place of the reservation where memory is to be mapped, and donor: a free chunk whose
 * whole pages can go there.
 *
 * Whoever holds the arena's `growing` has the only spot there is, on its stack. Only that thread
 * changes holes and the end of a top, so a spot stays good while its shard is not locked; what is
 * free may change meanwhile, and then the spot merely was a worse choice than it seemed.
 */
#include "allocator/arena.h"

struct spot {
    struct shard *shard;
    bool hole;       /* inside a hole; else at the end of the top */
    uint32_t beside; /* the free chunk that what is mapped will join, 0: none */
    uint32_t start;  /* mapped so far: [start, offset) */
    uint32_t offset; /* still to map: [offset, offset + size), whole pages */
    uint32_t size;
    uint32_t beside_too; /* a second one, behind, where all of a hole is to be filled */
};

/* `size` granules in whole pages; UINT32_MAX: more than the shard has addresses. */
uint32_t spot_pages_up(const struct shard *shard, uint64_t size);
/* Where the fewest new pages make room for `size`. False: no addresses are left. `growing` is held,
 * or what another thread has found could change; takes the shard's lock. */
bool spot_find(struct shard *shard, uint32_t size, uint64_t align_bytes, uint8_t stream,
               struct spot *ret);
/* Whatever is mapped there next, whole or in part, can be put to use. -ENOBUFS: the host has no
 * records. Takes the shard's lock. */
int spot_reserve(const struct spot *spot);
/* After spot_reserve(): the first `size` of the spot are mapped: put them to use. They are new, or
 * `moved`, and then counted as moving until now. Takes the shard's lock. */
void spot_occupy(struct arena *arena, struct spot *spot, uint32_t size, bool moved);

/* The smallest free chunk with whole pages that is not part of the spot: large ones are the more
 * useful as they are. Its shard is locked; 0: there is none, and nothing is locked. */
uint32_t donor_find(struct arena *arena, const struct spot *spot, struct shard **ret_shard,
                    uint32_t *ret_offset, uint32_t *ret_size);
/* Granules in whole pages that donor_find() would find; stops counting at `enough`. */
uint64_t donor_count(struct arena *arena, const struct spot *spot, uint64_t enough);
