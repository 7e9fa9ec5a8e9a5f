/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Charge: bytes of a part, by process.
 *
 * Everything is counted in whole granules (BOX_GRANULE), as the driver hands memory out. A
 * part's use is the sum over processes and segments, computed on every query, so nothing can go
 * stale. All functions need the box locked.
 */
#include <stdint.h>

#include "base/error.h"

struct box;
struct box_part;

/*
 * Charge `bytes` (rounded up to granules) of `part` to process `slot`.
 * -ENOMEM: the part is full. -EDQUOT: over a limit of the process's cgroup. -ENODEV: the GPU is
 * lost. -EIO: a fault was injected. `err` says which in words.
 */
int charge_take(struct box *box, uint32_t slot, struct box_part part, uint64_t bytes,
                struct allot_error *err);
/* The same without the limits of cgroups, for managed memory: the driver does not count it. */
int charge_take_unlimited(struct box *box, uint32_t slot, struct box_part part, uint64_t bytes,
                          struct allot_error *err);
/* Give back what charge_take() took: the same bytes give the same granules. */
void charge_give(struct box *box, uint32_t slot, struct box_part part, uint64_t bytes);

struct charge_sums {
    uint64_t capacity_bytes;  /* total - reserved */
    uint64_t used_bytes;      /* held by processes, living and releasing */
    uint64_t releasing_bytes; /* of that, by processes that have ended */
    uint64_t free_bytes;      /* capacity - used */
};
void charge_sums(const struct box *box, struct box_part part, struct charge_sums *ret);
/* Like charge_sums(), but as NVML would show it: behind by the box's lag. */
void charge_sums_seen(struct box *box, struct box_part part, struct charge_sums *ret);

/* What process `slot` holds of `part`: private bytes and the segments it owns. */
uint64_t charge_held(const struct box *box, uint32_t slot, struct box_part part);
/* The same as NVML would show it. */
uint64_t charge_held_seen(struct box *box, uint32_t slot, struct box_part part);

/*
 * For cuMemGetInfo: what a process may still take (the part's free bytes, or less where a limit
 * on its cgroup is tighter) and the part's capacity.
 */
void charge_room(struct box *box, uint32_t slot, struct box_part part, uint64_t *ret_free,
                 uint64_t *ret_total);

/* Limits by cgroup (cgroup2 path, "/a/b"): hard UINT64_MAX and soft 0 remove it. -ENOSPC: the
 * table is full. */
int charge_limit_set(struct box *box, unsigned gpu, const char *cgroup, uint64_t soft_bytes,
                     uint64_t hard_bytes);
/* -ENOENT: no limit for this GPU and cgroup. `ret_used`: bytes held at or below the cgroup. */
int charge_limit_get(struct box *box, unsigned gpu, const char *cgroup, uint64_t *ret_soft,
                     uint64_t *ret_hard, uint64_t *ret_used);

/* Prepare memory for sharing: move `bytes` from the private bytes of `slot` into a new segment.
 * -ENOSPC: no room in the table. */
int charge_segment_new(struct box *box, uint32_t slot, struct box_part part, uint64_t bytes,
                       uint64_t *ret_id);
/* Where segment `id` is and how large. -ENOENT: it is gone. */
int charge_segment_find(struct box *box, uint64_t id, struct box_part *ret_part,
                        uint64_t *ret_bytes);
/* Another process takes part in segment `id`. -ENOENT: it is gone. */
int charge_segment_join(struct box *box, uint32_t slot, uint64_t id);
/* `slot` stops using it. The last user gives the bytes back. */
void charge_segment_leave(struct box *box, uint32_t slot, uint64_t id);
