/* SPDX-License-Identifier: Apache-2.0 */
/* Tags: names of what memory is for, each kept once and known by its number. */
#include "allocator/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TAG_SLOTS_MIN 64

static uint32_t hash(const char *name) {
    uint32_t h = 2166136261u; /* FNV-1a */

    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * 16777619u;
    return h;
}

static uint32_t *find_slot(const struct arena *arena, const char *name) {
    uint32_t at = hash(name) & arena->tag_mask;

    while (arena->tag_slots[at] && strcmp(arena->tags[arena->tag_slots[at] - 1], name) != 0)
        at = (at + 1) & arena->tag_mask;
    return &arena->tag_slots[at];
}

static int reserve_tag(struct arena *arena) {
    uint32_t n_max = MAX(TAG_SLOTS_MIN / 2u, arena->n_tags_max * 2), *slots;
    char **tags;

    if (arena->n_tags < arena->n_tags_max)
        return 0;
    tags = reallocarray(arena->tags, n_max, sizeof(*tags));
    if (!tags)
        return -ENOMEM;
    arena->tags = tags;
    slots = calloc((size_t)n_max * 2, sizeof(*slots));
    if (!slots)
        return -ENOMEM;
    free(arena->tag_slots);
    arena->tag_slots = slots;
    arena->tag_mask = n_max * 2 - 1;
    atomic_fetch_add(&arena->tag_bytes,
                     (n_max - arena->n_tags_max) * (sizeof(*tags) + 2 * sizeof(*slots)));
    arena->n_tags_max = n_max;
    for (uint32_t n = 0; n < arena->n_tags; n++)
        *find_slot(arena, tags[n]) = n + 1;
    return 0;
}

uint32_t arena_tag(struct arena *arena, const char *name) {
    uint32_t *slot, tag = 0;

    if (!name || !*name)
        return 0;
    pthread_mutex_lock(&arena->tagging);
    if (reserve_tag(arena) == 0) {
        slot = find_slot(arena, name);
        if (!*slot && arena->n_tags < CHUNK_TAG_MASK) {
            char *copy = strdup(name);

            if (copy) {
                atomic_fetch_add(&arena->tag_bytes, strlen(copy) + 1);
                arena->tags[arena->n_tags++] = copy;
                *slot = arena->n_tags;
            }
        }
        tag = *slot;
    }
    pthread_mutex_unlock(&arena->tagging);
    return tag;
}

const char *tag_name(struct arena *arena, uint32_t tag) {
    const char *name = "";

    pthread_mutex_lock(&arena->tagging);
    if (tag && tag <= arena->n_tags)
        name = arena->tags[tag - 1]; /* names live as long as the arena */
    pthread_mutex_unlock(&arena->tagging);
    return name;
}

void tag_done(struct arena *arena) {
    for (uint32_t n = 0; n < arena->n_tags; n++)
        free(arena->tags[n]);
    free(arena->tags);
    free(arena->tag_slots);
}
