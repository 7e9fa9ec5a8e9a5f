/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/box/charge.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "sim/box/box.h"
#include "sim/box/cgroup.h"
#include "sim/box/fault.h"
#include "sim/box/proc.h"

static uint64_t granules(uint64_t bytes) {
    return bytes > UINT64_MAX - BOX_GRANULE ? UINT64_MAX
                                            : (bytes + BOX_GRANULE - 1) / BOX_GRANULE * BOX_GRANULE;
}

static uint32_t proc_high(const struct box *box) {
    return MIN(box->file->proc_high, (uint32_t)BOX_MAX_PROCS);
}

static uint32_t segment_high(const struct box *box) {
    return MIN(box->file->segment_high, (uint32_t)BOX_MAX_SEGMENTS);
}

static unsigned limit_high(const struct box *box) {
    return MIN(box->file->limit_high, (uint32_t)BOX_MAX_LIMITS);
}

/* Each slot has one writer at a time, but readers in other processes: the store must not tear. */
static void set_private(struct box_usage *usage, unsigned part, uint64_t bytes) {
    __atomic_store_n(&usage->private_bytes[part], bytes, __ATOMIC_RELEASE);
}

uint64_t charge_held(const struct box *box, uint32_t slot, struct box_part part) {
    const struct box_file *file = box->file;
    uint64_t bytes = file->proc[slot].usage[part.gpu].private_bytes[part.part];

    for (uint32_t i = 0; i < segment_high(box); i++) {
        const struct box_segment *segment = &file->segment[i];

        if (segment->id && segment->owner == slot && segment->gpu == part.gpu &&
            segment->part == part.part)
            bytes += segment->bytes;
    }
    return bytes;
}

void charge_sums(const struct box *box, struct box_part part, struct charge_sums *ret) {
    const struct box_file *file = box->file;

    *ret = (struct charge_sums){ .capacity_bytes = box_capacity(box, part) };
    for (uint32_t i = 0; i < proc_high(box); i++) {
        const struct box_proc *proc = &file->proc[i];
        const uint64_t bytes = proc->usage[part.gpu].private_bytes[part.part];

        if (proc->state == PROC_FREE)
            continue;
        ret->used_bytes += bytes;
        if (proc->state == PROC_RELEASING)
            ret->releasing_bytes += bytes;
    }
    for (uint32_t i = 0; i < segment_high(box); i++) {
        const struct box_segment *segment = &file->segment[i];

        if (!segment->id || segment->gpu != part.gpu || segment->part != part.part)
            continue;
        ret->used_bytes += segment->bytes;
        if (segment->owner < BOX_MAX_PROCS && file->proc[segment->owner].state == PROC_RELEASING)
            ret->releasing_bytes += segment->bytes;
    }
    ret->free_bytes = ret->capacity_bytes - MIN(ret->used_bytes, ret->capacity_bytes);
}

/* Whether a reading taken at `at_ns` is still the one NVML shows. */
static bool lags(const struct box *box, uint64_t at_ns) {
    const uint64_t now = box_now_ns();

    return box->file->nvml_lag_ns && at_ns && now >= at_ns && now - at_ns < box->file->nvml_lag_ns;
}

void charge_sums_seen(struct box *box, struct box_part part, struct charge_sums *ret) {
    struct box_gpu *gpu = &box->file->gpu[part.gpu];
    struct charge_sums sums;

    charge_sums(box, part, ret);
    if (!box->file->nvml_lag_ns)
        return;
    if (!lags(box, gpu->seen_at_ns)) {
        for (unsigned p = 0; p < BOX_PARTS; p++) {
            charge_sums(box, (struct box_part){ part.gpu, p }, &sums);
            gpu->seen_bytes[p] = sums.used_bytes;
        }
        gpu->seen_at_ns = box_now_ns();
    }
    ret->used_bytes = gpu->seen_bytes[part.part];
    ret->free_bytes = ret->capacity_bytes - MIN(ret->used_bytes, ret->capacity_bytes);
}

uint64_t charge_held_seen(struct box *box, uint32_t slot, struct box_part part) {
    struct box_usage *usage = &box->file->proc[slot].usage[part.gpu];

    if (!box->file->nvml_lag_ns)
        return charge_held(box, slot, part);
    if (!lags(box, usage->seen_at_ns)) {
        for (unsigned p = 0; p < BOX_PARTS; p++)
            usage->seen_bytes[p] = charge_held(box, slot, (struct box_part){ part.gpu, p });
        usage->seen_at_ns = box_now_ns();
    }
    return usage->seen_bytes[part.part];
}

static uint64_t held_below(const struct box *box, unsigned gpu, const char *cgroup) {
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < proc_high(box); i++)
        if (box->file->proc[i].state == PROC_LIVE &&
            cgroup_is_below(box->file->proc[i].cgroup, cgroup))
            bytes += charge_held(box, i, (struct box_part){ gpu, 0 });
    return bytes;
}

/*
 * The tightest limit on process `slot`: bytes that it may still take. UINT64_MAX: none. A limit on
 * a cgroup holds for all below it. MIG devices have no such limits.
 */
static uint64_t limit_room(struct box *box, uint32_t slot, struct box_part part,
                           const struct box_limit **ret_limit) {
    struct box_proc *proc = &box->file->proc[slot];
    uint64_t room = UINT64_MAX;
    bool asked = false;

    for (unsigned i = 0; i < limit_high(box) && !part.part; i++) {
        const struct box_limit *limit = &box->file->limit[i];
        uint64_t used;

        if (!limit->in_use || limit->gpu != part.gpu || limit->hard_bytes == UINT64_MAX)
            continue;
        if (!asked && proc->pid == getpid()) /* it may have been moved to another cgroup */
            cgroup_self(proc->cgroup, sizeof(proc->cgroup));
        asked = true;
        if (!cgroup_is_below(proc->cgroup, limit->cgroup))
            continue;
        used = held_below(box, part.gpu, limit->cgroup);
        used = limit->hard_bytes - MIN(used, limit->hard_bytes);
        if (used < room) {
            room = used;
            *ret_limit = limit;
        }
    }
    return room;
}

static int take(struct box *box, uint32_t slot, struct box_part part, uint64_t bytes, bool limited,
                struct allot_error *err) {
    const uint64_t wanted = granules(bytes);
    const struct box_limit *limit = NULL;
    struct box_usage *usage;
    struct charge_sums sums;
    uint64_t all = 0;

    if (part.gpu >= box->n_gpus || part.part >= BOX_PARTS || slot >= BOX_MAX_PROCS)
        return error_set(err, -EINVAL, "no such part of the box");
    if (box->file->gpu[part.gpu].lost)
        return error_set(err, -ENODEV, "GPU %u is lost", part.gpu);
    if (fault_alloc(box, part.gpu, wanted))
        return error_set(err, -EIO, "allocation failure injected on GPU %u", part.gpu);

    charge_sums(box, part, &sums);
    if (wanted > sums.free_bytes) {
        proc_reap(box); /* ended processes may hold what is missing */
        charge_sums(box, part, &sums);
    }
    if (wanted > sums.free_bytes)
        return error_set(err, -ENOMEM, "GPU %u has %" PRIu64 " bytes free, %" PRIu64 " wanted",
                         part.gpu, sums.free_bytes, wanted);
    if (limited && wanted > limit_room(box, slot, part, &limit))
        return error_set(err, -EDQUOT, "over the limit of cgroup %s on GPU %u", limit->cgroup,
                         part.gpu);

    usage = &box->file->proc[slot].usage[part.gpu];
    set_private(usage, part.part, usage->private_bytes[part.part] + wanted);
    for (unsigned p = 0; p < BOX_PARTS; p++)
        all += charge_held(box, slot, (struct box_part){ part.gpu, p });
    usage->peak_bytes = MAX(usage->peak_bytes, all);
    return 0;
}

int charge_take(struct box *box, uint32_t slot, struct box_part part, uint64_t bytes,
                struct allot_error *err) {
    return take(box, slot, part, bytes, true, err);
}

int charge_take_unlimited(struct box *box, uint32_t slot, struct box_part part, uint64_t bytes,
                          struct allot_error *err) {
    return take(box, slot, part, bytes, false, err);
}

void charge_give(struct box *box, uint32_t slot, struct box_part part, uint64_t bytes) {
    struct box_usage *usage = &box->file->proc[slot].usage[part.gpu];
    const uint64_t held = usage->private_bytes[part.part];

    set_private(usage, part.part, held - MIN(granules(bytes), held));
}

void charge_room(struct box *box, uint32_t slot, struct box_part part, uint64_t *ret_free,
                 uint64_t *ret_total) {
    const struct box_limit *limit = NULL;
    struct charge_sums sums;

    charge_sums(box, part, &sums);
    *ret_free = slot < BOX_MAX_PROCS ? MIN(sums.free_bytes, limit_room(box, slot, part, &limit))
                                     : sums.free_bytes;
    *ret_total = sums.capacity_bytes;
}

static struct box_limit *find_limit(struct box *box, unsigned gpu, const char *cgroup) {
    for (unsigned i = 0; i < limit_high(box); i++) {
        struct box_limit *limit = &box->file->limit[i];

        if (limit->in_use && limit->gpu == gpu && !strcmp(limit->cgroup, cgroup))
            return limit;
    }
    return NULL;
}

int charge_limit_set(struct box *box, unsigned gpu, const char *cgroup, uint64_t soft_bytes,
                     uint64_t hard_bytes) {
    struct box_limit *limit = find_limit(box, gpu, cgroup);

    if (strlen(cgroup) >= sizeof(limit->cgroup))
        return -ENAMETOOLONG;
    if (!soft_bytes && hard_bytes == UINT64_MAX) {
        if (limit)
            __atomic_store_n(&limit->in_use, 0, __ATOMIC_RELEASE);
        return 0;
    }
    for (unsigned i = 0; i < BOX_MAX_LIMITS && !limit; i++)
        if (!box->file->limit[i].in_use)
            limit = &box->file->limit[i];
    if (!limit)
        return -ENOSPC;
    if (limit - box->file->limit >= (ptrdiff_t)limit_high(box))
        __atomic_store_n(&box->file->limit_high, (uint32_t)(limit - box->file->limit) + 1,
                         __ATOMIC_RELEASE);
    limit->gpu = gpu;
    limit->soft_bytes = soft_bytes;
    __atomic_store_n(&limit->hard_bytes, hard_bytes, __ATOMIC_RELEASE);
    if (!limit->in_use)
        snprintf(limit->cgroup, sizeof(limit->cgroup), "%s", cgroup);
    __atomic_store_n(&limit->in_use, 1, __ATOMIC_RELEASE);
    return 0;
}

int charge_limit_get(struct box *box, unsigned gpu, const char *cgroup, uint64_t *ret_soft,
                     uint64_t *ret_hard, uint64_t *ret_used) {
    const struct box_limit *limit = find_limit(box, gpu, cgroup);

    if (!limit)
        return -ENOENT;
    *ret_soft = limit->soft_bytes;
    *ret_hard = limit->hard_bytes;
    *ret_used = held_below(box, gpu, cgroup);
    return 0;
}

int charge_segment_new(struct box *box, uint32_t slot, struct box_part part, uint64_t bytes,
                       uint64_t *ret_id) {
    struct box_file *file = box->file;
    struct box_segment *segment;
    uint32_t i = 0;

    while (i < BOX_MAX_SEGMENTS && file->segment[i].id)
        i++;
    if (i == BOX_MAX_SEGMENTS)
        return -ENOSPC;
    segment = &file->segment[i];
    memset(segment, 0, sizeof(*segment));
    segment->bytes = granules(bytes);
    segment->gpu = part.gpu;
    segment->part = part.part;
    segment->owner = slot;
    segment->users[slot / 64] = UINT64_C(1) << slot % 64;
    if (i >= file->segment_high)
        __atomic_store_n(&file->segment_high, i + 1, __ATOMIC_RELEASE);
    *ret_id = file->next_segment_id++;
    /* Counted twice between these two stores; if we die there, both counts die with us. */
    __atomic_store_n(&segment->id, *ret_id, __ATOMIC_RELEASE);
    charge_give(box, slot, part, bytes);
    return 0;
}

static struct box_segment *find_segment(struct box *box, uint64_t id) {
    for (uint32_t i = 0; i < segment_high(box); i++)
        if (id && box->file->segment[i].id == id)
            return &box->file->segment[i];
    return NULL;
}

int charge_segment_find(struct box *box, uint64_t id, struct box_part *ret_part,
                        uint64_t *ret_bytes) {
    const struct box_segment *segment;

    proc_reap(box); /* a segment whose last user is dead is gone */
    segment = find_segment(box, id);
    if (!segment)
        return -ENOENT;
    *ret_part = (struct box_part){ segment->gpu, segment->part };
    *ret_bytes = segment->bytes;
    return 0;
}

int charge_segment_join(struct box *box, uint32_t slot, uint64_t id) {
    struct box_segment *segment;

    proc_reap(box); /* a segment whose last user is dead is gone */
    segment = find_segment(box, id);
    if (!segment)
        return -ENOENT;
    __atomic_or_fetch(&segment->users[slot / 64], UINT64_C(1) << slot % 64, __ATOMIC_RELEASE);
    return 0;
}

void charge_segment_leave(struct box *box, uint32_t slot, uint64_t id) {
    struct box_segment *segment = find_segment(box, id);

    if (!segment)
        return;
    if (segment->owner == slot) {
        uint32_t next_owner = PROC_NONE;

        for (uint32_t i = 0; i < proc_high(box) && next_owner == PROC_NONE; i++)
            if (i != slot && segment->users[i / 64] & UINT64_C(1) << i % 64 &&
                box->file->proc[i].state == PROC_LIVE)
                next_owner = i;
        if (next_owner == PROC_NONE) {
            __atomic_store_n(&segment->id, 0, __ATOMIC_RELEASE);
            return;
        }
        __atomic_store_n(&segment->owner, next_owner, __ATOMIC_RELEASE);
    }
    __atomic_and_fetch(&segment->users[slot / 64], ~(UINT64_C(1) << slot % 64), __ATOMIC_RELEASE);
}
