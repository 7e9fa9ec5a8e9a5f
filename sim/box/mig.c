/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/box/mig.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"

enum {
    COMPUTE_SLICES = 7,
    MEMORY_SLICES = 8,
};

unsigned mig_placements(const struct sim_mig_profile *profile, unsigned ret_starts[8]) {
    const unsigned size = profile->memory_slices;
    /* Seven small instances, although there are eight memory slices: the eighth has no compute. The
     * larger of the half profiles (4g) fits only into the first half. */
    const unsigned last = profile->compute_slices == 4   ? 0
                          : profile->compute_slices == 2 ? 4
                          : size == 1                    ? 6
                                                         : MEMORY_SLICES - size;
    unsigned n = 0;

    for (unsigned start = 0; start <= last; start += size)
        ret_starts[n++] = start;
    return n;
}

static unsigned slice_mask(unsigned start, unsigned size) {
    return ((1u << size) - 1) << start;
}

static void occupied(const struct box_gpu *gpu, unsigned *ret_mask, unsigned *ret_compute) {
    *ret_mask = *ret_compute = 0;
    for (unsigned i = 0; i < BOX_MAX_GI; i++) {
        const struct box_gi *gi = &gpu->gi[i];

        if (!gi->in_use)
            continue;
        *ret_mask |= slice_mask(gi->placement_start % MEMORY_SLICES,
                                MIN(gi->placement_size, (uint32_t)MEMORY_SLICES));
        *ret_compute += gi->compute_slices;
    }
}

unsigned mig_room(const struct box_gpu *gpu, const struct sim_mig_profile *profile) {
    unsigned starts[8], mask, compute, room = 0;
    const unsigned n = mig_placements(profile, starts);

    occupied(gpu, &mask, &compute);
    for (unsigned i = 0; i < n; i++) {
        if (mask & slice_mask(starts[i], profile->memory_slices) ||
            compute + profile->compute_slices > COMPUTE_SLICES)
            continue;
        compute += profile->compute_slices;
        room++;
    }
    return room;
}

int mig_gi_new(struct box_gpu *gpu, const struct sim_mig_profile *profile, int start,
               unsigned *ret_slot) {
    unsigned starts[8], mask, compute, slot = 0, found = 0;
    const unsigned n = mig_placements(profile, starts);
    struct box_gi *gi;

    occupied(gpu, &mask, &compute);
    if (compute + profile->compute_slices > COMPUTE_SLICES)
        return -ENOSPC;
    while (found < n && (mask & slice_mask(starts[found], profile->memory_slices) ||
                         (start >= 0 && starts[found] != (unsigned)start)))
        found++;
    while (slot < BOX_MAX_GI && gpu->gi[slot].in_use)
        slot++;
    if (found == n || slot == BOX_MAX_GI)
        return -ENOSPC;

    gi = &gpu->gi[slot];
    memset(gi, 0, sizeof(*gi));
    /* Ids as the driver gives them: 0 the whole, 1–2 halves, 3–6 quarters, 7–13 eighths. */
    gi->id = MEMORY_SLICES / profile->memory_slices - 1 + starts[found] / profile->memory_slices;
    gi->profile_id = profile->id;
    gi->placement_start = starts[found];
    gi->placement_size = profile->memory_slices;
    gi->compute_slices = profile->compute_slices;
    gi->multiprocessors = profile->multiprocessors;
    gi->memory_bytes = profile->memory_bytes;
    __atomic_store_n(&gi->in_use, 1, __ATOMIC_RELEASE);
    *ret_slot = slot;
    return 0;
}

/* A UUID derived from the GPU's and the place of the instance: the same each time it is made. */
static void name_device(const struct box_gpu *gpu, const struct box_gi *gi, struct box_ci *ci) {
    uint64_t half[2] = { UINT64_C(0xcbf29ce484222325), UINT64_C(0x84222325cbf29ce4) };
    const unsigned place[] = { gi->id, gi->placement_start, ci->id, ci->compute_slices };
    unsigned char b[16];

    for (unsigned h = 0; h < 2; h++) {
        for (const char *p = gpu->uuid; *p; p++)
            half[h] = (half[h] ^ (unsigned char)*p) * UINT64_C(0x100000001b3);
        for (unsigned i = 0; i < ELEMENTSOF(place); i++)
            half[h] = (half[h] ^ (place[i] + h)) * UINT64_C(0x100000001b3);
    }
    memcpy(b, half, sizeof(b));
    b[6] = (b[6] & 0x0f) | 0x50; /* version 5: derived from a name */
    b[8] = (b[8] & 0x3f) | 0x80;
    snprintf(ci->uuid, sizeof(ci->uuid),
             "MIG-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
             b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
             b[15]);
}

int mig_ci_new(struct box_gpu *gpu, unsigned slot, unsigned compute_slices, unsigned *ret_ci) {
    struct box_gi *gi = &gpu->gi[slot];
    unsigned used = 0, free_ci = BOX_MAX_CI;
    struct box_ci *ci;

    for (unsigned i = 0; i < BOX_MAX_CI; i++) {
        if (gi->ci[i].in_use)
            used += gi->ci[i].compute_slices;
        else if (free_ci == BOX_MAX_CI)
            free_ci = i;
    }
    if (!compute_slices || used + compute_slices > gi->compute_slices || free_ci == BOX_MAX_CI)
        return -ENOSPC;
    ci = &gi->ci[free_ci];
    memset(ci, 0, sizeof(*ci));
    ci->id = free_ci;
    ci->compute_slices = compute_slices;
    ci->multiprocessors = gi->multiprocessors * compute_slices / gi->compute_slices;
    name_device(gpu, gi, ci);
    __atomic_store_n(&ci->in_use, 1, __ATOMIC_RELEASE);
    *ret_ci = free_ci;
    return 0;
}

int mig_gi_free(struct box_gpu *gpu, unsigned slot) {
    for (unsigned i = 0; i < BOX_MAX_CI; i++)
        if (gpu->gi[slot].ci[i].in_use)
            return -EBUSY;
    __atomic_store_n(&gpu->gi[slot].in_use, 0, __ATOMIC_RELEASE);
    return 0;
}

void mig_ci_free(struct box_gpu *gpu, unsigned slot, unsigned ci) {
    __atomic_store_n(&gpu->gi[slot].ci[ci].in_use, 0, __ATOMIC_RELEASE);
}

int mig_find_gi(const struct box_gpu *gpu, unsigned gi_id) {
    for (unsigned i = 0; i < BOX_MAX_GI; i++)
        if (gpu->gi[i].in_use && gpu->gi[i].id == gi_id)
            return (int)i;
    return -1;
}

int mig_find_ci(const struct box_gi *gi, unsigned ci_id) {
    for (unsigned i = 0; i < BOX_MAX_CI; i++)
        if (gi->ci[i].in_use && gi->ci[i].id == ci_id)
            return (int)i;
    return -1;
}

void mig_device_name(const struct sim_model *model, const struct box_gi *gi,
                     const struct box_ci *ci, char *ret, size_t size) {
    const struct sim_mig_profile *profile = model_find_profile(model, NULL, gi->profile_id);
    const char *name = profile ? profile->name : "?";

    if (ci->compute_slices == gi->compute_slices)
        snprintf(ret, size, "%s", name);
    else
        snprintf(ret, size, "%uc.%s", ci->compute_slices, name);
}
