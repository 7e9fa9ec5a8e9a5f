/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Table: linear probing, at most three quarters full; removing an entry moves the following ones
 * back, so that no tombstone slows a search.
 */
#include "guard/table.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

/* Few enough that a fork can lock them all under the thread sanitizer, which allows 64. */
enum { PARTS = 32, FIRST_SIZE = 16 };

static struct table_part {
    _Alignas(64) pthread_mutex_t lock;
    struct table_entry *entries;
    size_t size, n; /* size: a power of two */
} parts[PARTS] = { [0 ... PARTS - 1] = { .lock = PTHREAD_MUTEX_INITIALIZER } };

static uint64_t hash(enum table_kind kind, uint64_t key) {
    uint64_t h = (key ^ (uint64_t)kind << 56) * UINT64_C(0x9e3779b97f4a7c15);

    return h ^ h >> 29;
}

static struct table_part *part_of(uint64_t h) {
    return &parts[h >> 59];
}

static size_t find(const struct table_part *part, uint64_t h, enum table_kind kind, uint64_t key) {
    size_t i = h & (part->size - 1);

    while (part->entries[i].kind && (part->entries[i].key != key || part->entries[i].kind != kind))
        i = (i + 1) & (part->size - 1);
    return i;
}

static bool grow(struct table_part *part) {
    struct table_part larger = { .size = part->size ? part->size * 2 : FIRST_SIZE };

    larger.entries = calloc(larger.size, sizeof(*larger.entries));
    if (!larger.entries)
        return false;
    for (size_t i = 0; i < part->size; i++) {
        const struct table_entry *entry = &part->entries[i];

        if (entry->kind)
            larger.entries[find(&larger, hash(entry->kind, entry->key), entry->kind, entry->key)] =
                *entry;
    }
    free(part->entries);
    part->entries = larger.entries;
    part->size = larger.size;
    return true;
}

bool table_put(const struct table_entry *entry) {
    uint64_t h = hash(entry->kind, entry->key);
    struct table_part *part = part_of(h);
    bool done = true;

    pthread_mutex_lock(&part->lock);
    if ((part->n + 1) * 4 > part->size * 3)
        done = grow(part);
    if (done) {
        size_t i = find(part, h, entry->kind, entry->key);

        part->n += part->entries[i].kind == 0;
        part->entries[i] = *entry;
    }
    pthread_mutex_unlock(&part->lock);
    return done;
}

static void close_up(struct table_part *part, size_t hole) {
    size_t mask = part->size - 1;

    for (size_t i = (hole + 1) & mask; part->entries[i].kind; i = (i + 1) & mask) {
        size_t home = hash(part->entries[i].kind, part->entries[i].key) & mask;

        /* It can fill the hole unless its home is between the hole and itself. */
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            part->entries[hole] = part->entries[i];
            hole = i;
        }
    }
    part->entries[hole].kind = 0;
    part->n--;
}

static bool look(enum table_kind kind, uint64_t key, struct table_entry *ret, bool take) {
    uint64_t h = hash(kind, key);
    struct table_part *part = part_of(h);
    bool found = false;

    pthread_mutex_lock(&part->lock);
    if (part->n) {
        size_t i = find(part, h, kind, key);

        found = part->entries[i].kind != 0;
        if (found && ret)
            *ret = part->entries[i];
        if (found && take)
            close_up(part, i);
    }
    pthread_mutex_unlock(&part->lock);
    return found;
}

bool table_take(enum table_kind kind, uint64_t key, struct table_entry *ret) {
    return look(kind, key, ret, true);
}

bool table_get(enum table_kind kind, uint64_t key, struct table_entry *ret) {
    return look(kind, key, ret, false);
}

static void drop(bool (*is_it)(const struct table_entry *entry, const void *user), const void *user,
                 void (*gone)(const struct table_entry *entry)) {
    for (size_t p = 0; p < PARTS; p++) {
        struct table_part *part = &parts[p];

        pthread_mutex_lock(&part->lock);
        for (size_t i = 0; i < part->size;) {
            struct table_entry entry = part->entries[i];

            if (!entry.kind || !is_it(&entry, user)) {
                i++;
                continue;
            }
            close_up(part, i); /* another entry may stand here now */
            if (gone)
                gone(&entry);
        }
        pthread_mutex_unlock(&part->lock);
    }
}

static bool is_of_context(const struct table_entry *entry, const void *context) {
    return entry->context == context;
}

void table_drop_context(void *context, void (*gone)(const struct table_entry *entry)) {
    drop(is_of_context, context, gone);
}

static bool is_like(const struct table_entry *entry, const void *user) {
    const struct table_entry *like = user;

    return entry->kind == like->kind && entry->share == like->share;
}

void table_drop_share(enum table_kind kind, int share) {
    const struct table_entry like = { .kind = (uint8_t)kind, .share = (int16_t)share };

    drop(is_like, &like, NULL);
}

static void lock_all(void) {
    for (size_t p = 0; p < PARTS; p++)
        pthread_mutex_lock(&parts[p].lock);
}

static void unlock_all(void) {
    for (size_t p = 0; p < PARTS; p++)
        pthread_mutex_unlock(&parts[p].lock);
}

/* In the child, whose only thread locked them. */
static void start_empty(void) {
    for (size_t p = 0; p < PARTS; p++) {
        free(parts[p].entries);
        parts[p].entries = NULL;
        parts[p].size = parts[p].n = 0;
    }
    unlock_all();
}

__attribute__((constructor)) static void begin(void) {
    pthread_atfork(lock_all, unlock_all, start_empty);
}
