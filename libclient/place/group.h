/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Group: nodes that share one device, while groups are being formed.
 *
 * Each node starts alone; merging is a union of sets. A group knows which device types all of its
 * nodes have kernels for, and the devices asked for it in three strengths: *assigned* by an earlier
 * placement, *resource* by something that cannot move, *requested* by the user. Internal to the
 * placer; one thread.
 */
#include "libclient/place/placer.h"

/* Device types that a group supports, in order of preference. */
struct group_types {
    uint32_t n;
    struct placer_kernel types[PLACER_TYPES_MAX];
};

/* Pointers are borrowed from the groups' memory; NULL specs give nothing. */
struct group {
    uint32_t parent, rank;
    const struct spec *assigned, *resource, *requested;
    const struct group_types *types;
    uint32_t device; /* index of the one that was chosen; GROUP_UNPLACED */
};
#define GROUP_UNPLACED UINT32_MAX

struct group_set {
    struct group *groups; /* one per node */
    uint32_t n;
    struct group_set_memory *memory; /* what lives until the end of the placement */
};

int group_set_init(struct group_set *groups, uint32_t n); /* -ENOMEM */
void group_set_done(struct group_set *groups);

uint32_t group_set_root(struct group_set *groups, uint32_t node);
struct group *group_set_of(struct group_set *groups, uint32_t node); /* its root */

/* Keep a value as long as the groups live; NULL: no memory. */
const struct spec *group_set_keep_spec(struct group_set *groups, const struct spec *spec);
const struct group_types *group_set_keep_types(struct group_set *groups,
                                               const struct group_types *types);

bool group_supports(const struct group *group, uint32_t type);

/* Why two groups cannot be one. Both are then as they were. */
enum group_clash {
    GROUP_MERGED,
    GROUP_NO_TYPE,   /* no device type is left */
    GROUP_SPECS,     /* `*ret_what` differs between `*ret_a` and `*ret_b` */
    GROUP_NO_MEMORY, /* of the host */
};
enum group_clash group_set_merge(struct group_set *groups, uint32_t a, uint32_t b, bool soft,
                                 const char **ret_what, const struct spec **ret_a,
                                 const struct spec **ret_b);

/* What the group is asked for, all strengths together. */
struct spec group_wanted(const struct group *group);
