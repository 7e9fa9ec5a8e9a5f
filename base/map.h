/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Map: key → pointer, where a key is a 64-bit number or a text.
 *
 * Embedded in its owner; zeroed memory is an empty map, and map_done() frees its memory. A
 * map holds keys of one kind only. It owns neither values nor texts: a text must live, unchanged,
 * as long as its entry, so it is usually a member of the value. Values are never NULL. A walk
 * visits entries in the order of insertion, so that output and decisions are the same in every run.
 * Texts are not trusted: they are hashed with a secret. No locking.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct map_entry;

struct map {
    size_t n; /* entries, for reading */
    struct map_entry *entries;
    uint32_t *slots;
    size_t n_entries, n_slots;
    uint64_t secret[2];
};

/* Free the map's memory and leave it empty. */
void map_done(struct map *map);

/* Insert a new key. -EEXIST if it is there already, -ENOMEM; on failure the map is unchanged. */
int map_put(struct map *map, uint64_t key, void *value);
int map_put_text(struct map *map, const char *key, void *value);

/* The value of a key; NULL if it is not there. */
void *map_find(const struct map *map, uint64_t key);
void *map_find_text(const struct map *map, const char *key);

/* Remove a key and return its value; NULL if it was not there. */
void *map_take(struct map *map, uint64_t key);
void *map_take_text(struct map *map, const char *key);

/*
 * The value after the one that `*pos` stands for, NULL at the end; start with a `pos` of 0. Entries
 * may be removed during a walk, but not inserted.
 *
 *     for (size_t pos = 0; (lease = map_next(&leases, &pos));) …
 */
void *map_next(const struct map *map, size_t *pos);
