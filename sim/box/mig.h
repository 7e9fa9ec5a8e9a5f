/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Mig: cutting a GPU into instances by the vendor's profiles and placements.
 *
 * Works on the GPU's record in a locked box, or in one that is being made.
 */
#include <stdbool.h>
#include <stddef.h>

#include "sim/box/box.h"

/* Starts, in memory slices, at which `profile` can lie on an empty GPU: how many, up to 8. */
unsigned mig_placements(const struct sim_mig_profile *profile, unsigned ret_starts[8]);
/* How many more instances of `profile` fit beside those that are there. */
unsigned mig_room(const struct box_gpu *gpu, const struct sim_mig_profile *profile);
/* Make a GPU instance at `start` (-1: where it fits first). -ENOSPC: does not fit. */
int mig_gi_new(struct box_gpu *gpu, const struct sim_mig_profile *profile, int start,
               unsigned *ret_slot);
/* Make a compute instance of `compute_slices` in GPU instance `slot`. -ENOSPC: does not fit. */
int mig_ci_new(struct box_gpu *gpu, unsigned slot, unsigned compute_slices, unsigned *ret_ci);
/* Undo. -EBUSY: it has compute instances. */
int mig_gi_free(struct box_gpu *gpu, unsigned slot);
void mig_ci_free(struct box_gpu *gpu, unsigned slot, unsigned ci);

/* The slot of the GPU instance with id `gi_id`, the index of compute instance `ci_id` in it; -1:
 * none. */
int mig_find_gi(const struct box_gpu *gpu, unsigned gi_id);
int mig_find_ci(const struct box_gi *gi, unsigned ci_id);
/* "MIG 1c.3g.20gb": `ret` gets the part after "MIG ". */
void mig_device_name(const struct sim_model *model, const struct box_gi *gi,
                     const struct box_ci *ci, char *ret, size_t size);
