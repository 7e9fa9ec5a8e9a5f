/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Group: union-find over the nodes. Groups with equal specs and type lists share them. They are
 * replaced, never changed, so a group without requests costs only three pointers.
 */
#include "libclient/place/group.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

struct group_set_memory {
    struct group_set_memory *next;
    _Alignas(16) char bytes[];
};

static void *keep(struct group_set *groups, const void *value, size_t size) {
    struct group_set_memory *memory = malloc(sizeof(*memory) + size);

    if (!memory)
        return NULL;
    memory->next = groups->memory;
    groups->memory = memory;
    return memcpy(memory->bytes, value, size);
}

const struct spec *group_set_keep_spec(struct group_set *groups, const struct spec *spec) {
    return keep(groups, spec, sizeof(*spec));
}

const struct group_types *group_set_keep_types(struct group_set *groups,
                                               const struct group_types *types) {
    return keep(groups, types, sizeof(*types));
}

int group_set_init(struct group_set *groups, uint32_t n) {
    *groups = (struct group_set){ .n = n, .groups = calloc(MAX(n, 1u), sizeof(struct group)) };
    if (!groups->groups)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++)
        groups->groups[i] = (struct group){ .parent = i, .device = GROUP_UNPLACED };
    return 0;
}

void group_set_done(struct group_set *groups) {
    while (groups->memory) {
        struct group_set_memory *next = groups->memory->next;

        free(groups->memory);
        groups->memory = next;
    }
    free(groups->groups);
    *groups = (struct group_set){ 0 };
}

uint32_t group_set_root(struct group_set *groups, uint32_t node) {
    struct group *all = groups->groups;

    while (all[node].parent != node) {
        all[node].parent = all[all[node].parent].parent;
        node = all[node].parent;
    }
    return node;
}

struct group *group_set_of(struct group_set *groups, uint32_t node) {
    return &groups->groups[group_set_root(groups, node)];
}

bool group_supports(const struct group *group, uint32_t type) {
    for (uint32_t i = 0; i < group->types->n; i++)
        if (group->types->types[i].type == type)
            return true;
    return false;
}

struct spec group_wanted(const struct group *group) {
    struct spec wanted = { 0 };

    if (group->requested)
        wanted = *group->requested;
    if (group->resource)
        spec_override(&wanted, group->resource);
    if (group->assigned)
        spec_override(&wanted, group->assigned);
    return wanted;
}

/* ---- Merging --------------------------------------------------------------------------------- */

static bool has_priorities(const struct group_types *types) {
    for (uint32_t i = 0; i < types->n; i++)
        if (types->types[i].priority != 0)
            return true;
    return false;
}

/* The types of `a` that `b` has too, in the order and with the priorities of `a`. */
static void intersect(const struct group_types *a, const struct group_types *b,
                      struct group_types *ret) {
    ret->n = 0;
    for (uint32_t i = 0; i < a->n; i++)
        for (uint32_t j = 0; j < b->n; j++)
            if (a->types[i].type == b->types[j].type)
                ret->types[ret->n++] = a->types[i];
}

static bool same_order(const struct group_types *a, const struct group_types *b) {
    for (uint32_t i = 0; i < a->n; i++)
        if (a->types[i].type != b->types[i].type)
            return false;
    return true;
}

static int by_preference(const void *a, const void *b) {
    const struct placer_kernel *x = a, *y = b;

    return x->type < y->type ? -1 : x->type > y->type;
}

static void merge_types(const struct group_types *a, const struct group_types *b,
                        struct group_types *ret) {
    struct group_types as_b;
    bool a_has = has_priorities(a), b_has = has_priorities(b);

    intersect(a, b, ret);
    intersect(b, a, &as_b);
    if (a_has && !b_has)
        return;
    if (b_has && !a_has) {
        *ret = as_b;
        return;
    }
    if (a_has && same_order(ret, &as_b))
        return;
    for (uint32_t i = 0; i < ret->n; i++)
        ret->types[i].priority = 0;
    qsort(ret->types, ret->n, sizeof(ret->types[0]), by_preference);
}

/* Unite two specs, either of which may be NULL. Returns NULL, or the name of the part on which they
 * disagree. */
static const char *unite(struct group_set *groups, const struct spec *a, const struct spec *b,
                         bool soft, const struct spec **ret, bool *ret_no_memory) {
    struct spec merged;
    const char *what;

    *ret = a ? a : b;
    if (!a || !b || a == b)
        return NULL;
    merged = *a;
    what = spec_merge(&merged, b, soft);
    if (what)
        return what;
    *ret = group_set_keep_spec(groups, &merged);
    if (!*ret)
        *ret_no_memory = true;
    return NULL;
}

static bool same_types(const struct group_types *a, const struct group_types *b) {
    return a == b || (a->n == b->n && memcmp(a->types, b->types, a->n * sizeof(a->types[0])) == 0);
}

enum group_clash group_set_merge(struct group_set *groups, uint32_t a, uint32_t b, bool soft,
                                 const char **ret_what, const struct spec **ret_a,
                                 const struct spec **ret_b) {
    uint32_t root = group_set_root(groups, a), other = group_set_root(groups, b);
    struct group *x = &groups->groups[root], *y = &groups->groups[other];
    const struct spec *united[3], *const of_x[] = { x->assigned, x->resource, x->requested };
    const struct spec *const of_y[] = { y->assigned, y->resource, y->requested };
    const struct group_types *types = x->types;
    struct group_types merged;
    bool no_memory = false;

    if (root == other)
        return GROUP_MERGED;
    for (int i = 0; i < 3; i++) {
        /* Only the user's own wish may be softened. */
        *ret_what = unite(groups, of_x[i], of_y[i], soft && i == 2, &united[i], &no_memory);
        if (*ret_what) {
            *ret_a = of_x[i];
            *ret_b = of_y[i];
            return GROUP_SPECS;
        }
    }
    if (!same_types(x->types, y->types)) {
        merge_types(x->types, y->types, &merged);
        if (merged.n == 0)
            return GROUP_NO_TYPE;
        types = group_set_keep_types(groups, &merged);
    }
    if (no_memory || !types)
        return GROUP_NO_MEMORY;
    if (x->rank < y->rank) {
        struct group *swap = x;
        uint32_t index = root;

        x = y;
        y = swap;
        root = other;
        other = index;
    }
    x->rank += x->rank == y->rank;
    y->parent = root;
    x->assigned = united[0];
    x->resource = united[1];
    x->requested = united[2];
    x->types = types;
    return GROUP_MERGED;
}
