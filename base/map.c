/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two arrays: the entries in the order of insertion, and a table of slots. The slots are a power of
 * two and at most half full; each has the position of an entry plus one, or 0. The search for a key
 * starts at the slot of its hash and goes right until it finds the key or an empty slot.
 *
 *     slots    | 0 | 2 | 0 | 1 | 3 | 0 | 0 | 0 |
 *     entries  | a | b | c |               n_entries = 3
 *
 * Removing a key leaves a hole in the entries (value NULL), which disappears when the arrays are
 * next rebuilt. It leaves none in the slots: the ones to its right move up as far as their hashes
 * allow, so that a search never passes a deleted slot.
 */
#include "base/map.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct map_entry {
    uint64_t hash;
    uint64_t key;
    const char *text; /* NULL: the key is the number */
    void *value;      /* NULL: a hole */
};

#define SLOTS_MIN 8

static uint64_t rotate(uint64_t x, unsigned bits) {
    return x << bits | x >> (64 - bits);
}

/* SipHash-1-3 of a text: protects against keys that were chosen to collide. */
static uint64_t hash_text(const uint64_t secret[static 2], const char *text) {
    uint64_t v0 = secret[0] ^ UINT64_C(0x736f6d6570736575);
    uint64_t v1 = secret[1] ^ UINT64_C(0x646f72616e646f6d);
    uint64_t v2 = secret[0] ^ UINT64_C(0x6c7967656e657261);
    uint64_t v3 = secret[1] ^ UINT64_C(0x7465646279746573);
    size_t length = strlen(text), left = length;
    unsigned rounds = 1;

    for (;;) {
        uint64_t word = 0;

        if (rounds == 3) {
            v2 ^= 0xff;
        } else {
            memcpy(&word, text, left < 8 ? left : 8);
            if (left < 8)
                word |= (uint64_t)length << 56;
            v3 ^= word;
        }
        for (unsigned i = 0; i < rounds; i++) {
            v0 += v1, v1 = rotate(v1, 13) ^ v0, v0 = rotate(v0, 32);
            v2 += v3, v3 = rotate(v3, 16) ^ v2;
            v0 += v3, v3 = rotate(v3, 21) ^ v0;
            v2 += v1, v1 = rotate(v1, 17) ^ v2, v2 = rotate(v2, 32);
        }
        if (rounds == 3)
            return v0 ^ v1 ^ v2 ^ v3;
        v0 ^= word;
        if (left < 8) {
            rounds = 3;
        } else {
            text += 8;
            left -= 8;
        }
    }
}

/* Numbers are our own (ids, addresses, pids): a good mixer is enough. */
static uint64_t hash_number(uint64_t x) {
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static bool is_key(const struct map_entry *entry, uint64_t hash, uint64_t key, const char *text) {
    if (entry->hash != hash)
        return false;
    assert(!entry->text == !text); /* a map has one kind of key */
    return text ? strcmp(entry->text, text) == 0 : entry->key == key;
}

/* The slot of the key, or the empty one where it would go. The table must have slots. */
static size_t find_slot(const struct map *map, uint64_t hash, uint64_t key, const char *text) {
    size_t slot = hash & (map->n_slots - 1);

    while (map->slots[slot] && !is_key(&map->entries[map->slots[slot] - 1], hash, key, text))
        slot = (slot + 1) & (map->n_slots - 1);
    return slot;
}

/* Rebuild both arrays without holes, with room for one more. */
static int make_room(struct map *map) {
    size_t n_slots = SLOTS_MIN, n = 0;
    struct map_entry *entries;
    uint32_t *slots;

    /* Half of the slots may be used; leave as much room as there are entries. */
    while (n_slots / 2 < map->n + map->n / 2 + 1)
        n_slots *= 2;
    if (n_slots > UINT32_MAX / 2)
        return -ENOMEM;
    entries = calloc(n_slots / 2, sizeof(*entries));
    slots = calloc(n_slots, sizeof(*slots));
    if (!entries || !slots) {
        free(entries);
        free(slots);
        return -ENOMEM;
    }
    for (size_t i = 0; i < map->n_entries; i++) {
        size_t slot;

        if (!map->entries[i].value)
            continue;
        entries[n++] = map->entries[i];
        for (slot = map->entries[i].hash & (n_slots - 1); slots[slot];)
            slot = (slot + 1) & (n_slots - 1);
        slots[slot] = (uint32_t)n;
    }
    free(map->entries);
    free(map->slots);
    map->entries = entries;
    map->slots = slots;
    map->n_entries = n;
    map->n_slots = n_slots;
    return 0;
}

static int put(struct map *map, uint64_t hash, uint64_t key, const char *text, void *value) {
    size_t slot;
    int r;

    assert(value);
    if (map->n_slots > 0 && map->slots[find_slot(map, hash, key, text)])
        return -EEXIST;
    if (map->n_entries == map->n_slots / 2) {
        r = make_room(map);
        if (r < 0)
            return r;
    }
    slot = find_slot(map, hash, key, text);
    map->entries[map->n_entries++] = (struct map_entry){ hash, key, text, value };
    map->slots[slot] = (uint32_t)map->n_entries;
    map->n++;
    return 0;
}

static void *find(const struct map *map, uint64_t hash, uint64_t key, const char *text) {
    uint32_t place = map->n_slots > 0 ? map->slots[find_slot(map, hash, key, text)] : 0;

    return place ? map->entries[place - 1].value : NULL;
}

/* Empty a slot and close the gap: an entry moves into it unless its hash lies right of the gap. */
static void empty_slot(struct map *map, size_t gap) {
    size_t mask = map->n_slots - 1;

    for (size_t slot = (gap + 1) & mask; map->slots[slot]; slot = (slot + 1) & mask) {
        size_t home = map->entries[map->slots[slot] - 1].hash & mask;

        if (((slot - home) & mask) < ((slot - gap) & mask))
            continue;
        map->slots[gap] = map->slots[slot];
        gap = slot;
    }
    map->slots[gap] = 0;
}

static void *take(struct map *map, uint64_t hash, uint64_t key, const char *text) {
    struct map_entry *entry;
    void *value;
    size_t slot;

    if (map->n_slots == 0)
        return NULL;
    slot = find_slot(map, hash, key, text);
    if (!map->slots[slot])
        return NULL;
    entry = &map->entries[map->slots[slot] - 1];
    value = entry->value;
    empty_slot(map, slot);
    *entry = (struct map_entry){ 0 };
    map->n--;
    return value;
}

void map_done(struct map *map) {
    free(map->entries);
    free(map->slots);
    *map = (struct map){ 0 };
}

int map_put(struct map *map, uint64_t key, void *value) {
    return put(map, hash_number(key), key, NULL, value);
}

int map_put_text(struct map *map, const char *key, void *value) {
    /* A map without slots has no entry that was hashed with an older secret. Early in boot the
     * kernel may have no randomness yet; then an address is better than nothing. */
    if (map->n_slots == 0 &&
        getrandom(map->secret, sizeof(map->secret), GRND_NONBLOCK) != sizeof(map->secret))
        map->secret[0] = (uintptr_t)map ^ (uintptr_t)&map;
    return put(map, hash_text(map->secret, key), 0, key, value);
}

void *map_find(const struct map *map, uint64_t key) {
    return find(map, hash_number(key), key, NULL);
}

void *map_find_text(const struct map *map, const char *key) {
    return find(map, hash_text(map->secret, key), 0, key);
}

void *map_take(struct map *map, uint64_t key) {
    return take(map, hash_number(key), key, NULL);
}

void *map_take_text(struct map *map, const char *key) {
    return take(map, hash_text(map->secret, key), 0, key);
}

void *map_next(const struct map *map, size_t *pos) {
    while (*pos < map->n_entries) {
        void *value = map->entries[(*pos)++].value;

        if (value)
            return value;
    }
    return NULL;
}
