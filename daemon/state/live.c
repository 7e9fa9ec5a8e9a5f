/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An object's key is at most 28 bytes; the map wants 64 bits. Keys are therefore hashed, and
 * entries whose hashes agree hang in a chain. An entry keeps its buffer when its record changes
 * without growing, which is the daily case: a holder whose bytes go up and down.
 */
#include "daemon/state/live.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

struct live_key {
    enum record_kind kind;
    uint64_t id;    /* of a lease, a waiter, or of the lease of a holder */
    int32_t pid;    /* of a holder */
    uint64_t start; /* of a holder */
    struct gpuid device;
};

struct live_entry {
    struct list in_kind;
    struct live_entry *chain;
    struct live_key key;
    size_t size, capacity;
    uint8_t *bytes;
};

void state_live_init(struct state_live *live) {
    *live = (struct state_live){ .meta = { .next_lease = 1, .next_waiter = 1, .next_order = 1 } };
    for (size_t i = 0; i < STATE_LIVE_KINDS; i++)
        list_init(&live->kinds[i]);
}

static uint64_t mix(uint64_t hash, uint64_t value) {
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 32;
}

static uint64_t key_hash(const struct live_key *key) {
    uint64_t halves[2], hash = mix((uint64_t)key->kind, key->id);

    if (key->kind == RECORD_HOLDER)
        return mix(mix(hash, (uint64_t)key->pid), key->start);
    if (key->kind == RECORD_DEVICE) {
        memcpy(halves, key->device.uuid, sizeof(halves));
        hash = mix(mix(hash, halves[0]), halves[1]);
        hash = mix(mix(hash, key->device.gpu_instance), key->device.compute_instance);
    }
    return hash;
}

static bool key_equal(const struct live_key *a, const struct live_key *b) {
    if (a->kind != b->kind || a->id != b->id)
        return false;
    if (a->kind == RECORD_HOLDER)
        return a->pid == b->pid && a->start == b->start;
    return a->kind != RECORD_DEVICE || gpuid_equal(&a->device, &b->device);
}

/* The key of the object that a record is about, and whether the record ends it. */
static struct live_key key_of(const struct record *record, bool *ret_gone) {
    *ret_gone = false;
    switch (record->kind) {
    case RECORD_DEVICE:
        return (struct live_key){ .kind = RECORD_DEVICE, .device = record->device.id };
    case RECORD_LEASE_GONE:
        *ret_gone = true;
        return (struct live_key){ .kind = RECORD_LEASE, .id = record->lease_gone };
    case RECORD_LEASE:
        return (struct live_key){ .kind = RECORD_LEASE, .id = record->lease.id };
    case RECORD_HOLDER_GONE:
        *ret_gone = true;
        return (struct live_key){ .kind = RECORD_HOLDER,
                                  .id = record->holder_gone.lease,
                                  .pid = record->holder_gone.pid,
                                  .start = record->holder_gone.start };
    case RECORD_HOLDER:
        return (struct live_key){ .kind = RECORD_HOLDER,
                                  .id = record->holder.lease,
                                  .pid = record->holder.pid,
                                  .start = record->holder.start };
    case RECORD_WAITER_GONE:
        *ret_gone = true;
        return (struct live_key){ .kind = RECORD_WAITER, .id = record->waiter_gone };
    case RECORD_WAITER:
        return (struct live_key){ .kind = RECORD_WAITER, .id = record->waiter.id };
    case RECORD_META:
        break;
    }
    return (struct live_key){ .kind = RECORD_META };
}

static struct live_entry *entry_find(const struct state_live *live, const struct live_key *key,
                                     uint64_t hash) {
    struct live_entry *entry = map_find(&live->by_key, hash);

    while (entry && !key_equal(&entry->key, key))
        entry = entry->chain;
    return entry;
}

/* Remove an entry from its chain. Never needs memory: the head of a chain stays in place, and takes
 * over the contents of its follower. */
static void entry_remove(struct state_live *live, struct live_entry *entry) {
    uint64_t hash = key_hash(&entry->key);
    struct live_entry *first = map_find(&live->by_key, hash), *gone = entry;

    live->n[entry->key.kind]--;
    live->bytes -= entry->size;
    free(entry->bytes);
    if (entry != first) {
        while (first->chain != entry)
            first = first->chain;
        first->chain = entry->chain;
    } else if (entry->chain) {
        gone = entry->chain;
        list_remove(&entry->in_kind);
        list_insert_before(&gone->in_kind, &entry->in_kind);
        entry->chain = gone->chain;
        entry->key = gone->key;
        entry->size = gone->size;
        entry->capacity = gone->capacity;
        entry->bytes = gone->bytes;
    } else {
        map_take(&live->by_key, hash);
    }
    list_remove(&gone->in_kind);
    free(gone);
}

static int entry_new(struct state_live *live, const struct live_key *key, uint64_t hash,
                     struct live_entry **ret) {
    struct live_entry *first = map_find(&live->by_key, hash);
    struct live_entry *entry = calloc(1, sizeof(*entry));
    int r;

    if (!entry)
        return -ENOMEM;
    entry->key = *key;
    if (first) {
        entry->chain = first->chain;
        first->chain = entry;
    } else {
        r = map_put(&live->by_key, hash, entry);
        if (r < 0) {
            free(entry);
            return r;
        }
    }
    list_append(&live->kinds[key->kind], &entry->in_kind);
    live->n[key->kind]++;
    *ret = entry;
    return 0;
}

static int entry_fill(struct state_live *live, struct live_entry *entry, const uint8_t *bytes,
                      size_t size) {
    if (size > entry->capacity) {
        uint8_t *larger = realloc(entry->bytes, size);

        if (!larger)
            return -ENOMEM;
        entry->bytes = larger;
        entry->capacity = size;
    }
    memcpy(entry->bytes, bytes, size);
    live->bytes += size - entry->size;
    entry->size = size;
    return 0;
}

static void raise_above(uint64_t *next, uint64_t used) {
    if (used >= *next && used < UINT64_MAX)
        *next = used + 1;
}

static void meta_follow(struct record_meta *meta, const struct record *record) {
    switch (record->kind) {
    case RECORD_META:
        memcpy(meta->boot_id, record->meta.boot_id, sizeof(meta->boot_id));
        meta->is_lost = record->meta.is_lost;
        meta->next_lease = MAX(meta->next_lease, record->meta.next_lease);
        meta->next_waiter = MAX(meta->next_waiter, record->meta.next_waiter);
        meta->next_order = MAX(meta->next_order, record->meta.next_order);
        return;
    case RECORD_LEASE:
        raise_above(&meta->next_lease, record->lease.id);
        return;
    case RECORD_LEASE_GONE:
        raise_above(&meta->next_lease, record->lease_gone);
        return;
    case RECORD_HOLDER:
        raise_above(&meta->next_lease, record->holder.lease);
        return;
    case RECORD_WAITER:
        raise_above(&meta->next_waiter, record->waiter.id);
        raise_above(&meta->next_order, record->waiter.order);
        return;
    case RECORD_WAITER_GONE:
        raise_above(&meta->next_waiter, record->waiter_gone);
        return;
    case RECORD_DEVICE:
    case RECORD_HOLDER_GONE:
        return;
    }
}

int state_live_apply(struct state_live *live, const struct record *record, const uint8_t *bytes,
                     size_t size) {
    bool gone;
    struct live_key key = key_of(record, &gone);
    uint64_t hash = key_hash(&key);
    struct live_entry *entry;
    int r;

    if (key.kind == RECORD_META) {
        meta_follow(&live->meta, record);
        return 0;
    }
    entry = entry_find(live, &key, hash);
    if (gone) {
        if (entry)
            entry_remove(live, entry);
        meta_follow(&live->meta, record);
        return 0;
    }
    if (!entry) {
        r = entry_new(live, &key, hash, &entry);
        if (r < 0)
            return r;
        r = entry_fill(live, entry, bytes, size);
        if (r < 0) {
            entry_remove(live, entry);
            return r;
        }
    } else {
        r = entry_fill(live, entry, bytes, size);
        if (r < 0)
            return r;
    }
    meta_follow(&live->meta, record);
    return 0;
}

static void kind_clear(struct state_live *live, enum record_kind kind) {
    struct live_entry *entry;

    while ((entry = list_first(&live->kinds[kind], struct live_entry, in_kind)))
        entry_remove(live, entry);
}

void state_live_reboot(struct state_live *live) {
    kind_clear(live, RECORD_LEASE);
    kind_clear(live, RECORD_HOLDER);
    kind_clear(live, RECORD_WAITER);
}

void state_live_done(struct state_live *live) {
    if (!live->kinds[0].next)
        return;
    state_live_reboot(live);
    kind_clear(live, RECORD_DEVICE);
    map_done(&live->by_key);
}

int state_live_each(const struct state_live *live, state_live_fn fn, void *userdata) {
    static const enum record_kind order[] = { RECORD_DEVICE, RECORD_LEASE, RECORD_HOLDER,
                                              RECORD_WAITER };
    const struct live_entry *entry;
    int r;

    for (size_t i = 0; i < ELEMENTSOF(order); i++)
        list_foreach (entry, &live->kinds[order[i]], in_kind) {
            r = fn(userdata, entry->bytes, entry->size);
            if (r < 0)
                return r;
        }
    return 0;
}
