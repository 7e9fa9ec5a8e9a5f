/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One walk over the members of a record serves both directions, so that reading matches writing:
 * each step moves one value between the struct and the bytes. Numbers are little-endian, a flag is
 * one byte, a text is its length (two bytes) and its bytes, a list is its length (one byte) and its
 * entries. Reading trusts nothing: a step that would leave the bytes or break a bound sets
 * `is_bad`, and every later step then does nothing.
 */
#include "daemon/broker/record.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

struct record_walk {
    uint8_t *bytes; /* const when reading */
    size_t size, at;
    bool is_reading;
    bool is_bad;
};

static bool step(struct record_walk *w, void *value, size_t size) {
    if (w->is_bad || w->size - w->at < size) {
        assert(w->is_reading);
        w->is_bad = true;
        return false;
    }
    if (w->is_reading)
        memcpy(value, w->bytes + w->at, size);
    else
        memcpy(w->bytes + w->at, value, size);
    w->at += size;
    return true;
}

static void number(struct record_walk *w, uint64_t *value, size_t size) {
    uint8_t bytes[8];

    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(*value >> 8 * i);
    if (!step(w, bytes, size) || !w->is_reading)
        return;
    *value = 0;
    for (size_t i = 0; i < size; i++)
        *value |= (uint64_t)bytes[i] << 8 * i;
}

static void u64(struct record_walk *w, uint64_t *value) {
    number(w, value, 8);
}

static void u32(struct record_walk *w, uint32_t *value) {
    uint64_t wide = *value;

    number(w, &wide, 4);
    if (w->is_reading)
        *value = (uint32_t)wide;
}

static void i32(struct record_walk *w, int32_t *value) {
    uint32_t bits = (uint32_t)*value;

    u32(w, &bits);
    if (w->is_reading)
        *value = (int32_t)bits;
}

static void u8(struct record_walk *w, uint8_t *value, uint8_t max) {
    step(w, value, 1);
    if (w->is_reading && *value > max)
        w->is_bad = true;
}

static void flag(struct record_walk *w, bool *value) {
    uint8_t byte = *value;

    u8(w, &byte, 1);
    if (w->is_reading)
        *value = byte == 1;
}

/* From 0, as it was before the enum began at 1. */
static void mode(struct record_walk *w, uint8_t *value) {
    uint8_t byte = *value - 1;

    u8(w, &byte, LEASE_EXCLUSIVE - 1);
    if (w->is_reading)
        *value = byte + 1;
}

/* Ids and pids begin at 1. */
static void id(struct record_walk *w, uint64_t *value) {
    u64(w, value);
    if (w->is_reading && *value == 0)
        w->is_bad = true;
}

static void pid(struct record_walk *w, int32_t *value) {
    i32(w, value);
    if (w->is_reading && *value <= 0)
        w->is_bad = true;
}

static void text(struct record_walk *w, char *value, size_t capacity) {
    uint64_t length = 0;

    if (!w->is_reading)
        length = strnlen(value, capacity - 1);
    number(w, &length, 2);
    if (w->is_bad)
        return;
    if (length >= capacity) {
        w->is_bad = true;
        return;
    }
    if (step(w, value, length) && w->is_reading && memchr(value, 0, length))
        w->is_bad = true;
}

static void count(struct record_walk *w, uint32_t *value) {
    uint8_t byte = (uint8_t)*value;

    assert(w->is_reading || *value <= RECORD_DEVICES_MAX);
    u8(w, &byte, RECORD_DEVICES_MAX);
    if (w->is_reading)
        *value = w->is_bad ? 0 : byte;
}

static void device_id(struct record_walk *w, struct gpuid *value) {
    uint8_t kind = (uint8_t)value->kind;

    u8(w, &kind, GPUID_MIG_PATH);
    if (w->is_reading)
        value->kind = (enum gpuid_kind)kind;
    step(w, value->uuid, sizeof(value->uuid));
    u32(w, &value->gpu_instance);
    u32(w, &value->compute_instance);
}

static void meta(struct record_walk *w, struct record_meta *r) {
    step(w, r->boot_id, sizeof(r->boot_id));
    flag(w, &r->is_lost);
    u64(w, &r->next_lease);
    u64(w, &r->next_waiter);
    u64(w, &r->next_order);
}

/*
 * The last members came after the first version of the file: they are written only if they say
 * something, and may be missing.
 */
static bool tail(struct record_walk *w, bool *is_there) {
    if (w->is_reading)
        *is_there = !w->is_bad && w->at < w->size;
    return *is_there;
}

/* Stands for "no accepted errors" if the members after them are present. */
#define NOT_ACCEPTED UINT64_MAX

static void device(struct record_walk *w, struct record_device *r) {
    bool has_tail = r->has_accepted || r->has_place;
    uint64_t accepted = r->has_accepted ? r->accepted_uncorrected : NOT_ACCEPTED;

    device_id(w, &r->id);
    flag(w, &r->drained);
    flag(w, &r->by_health);
    u64(w, &r->drained_usec);
    u64(w, &r->context_bytes);
    text(w, r->reason, sizeof(r->reason));
    if (!tail(w, &has_tail))
        return;
    u64(w, &accepted);
    if (w->is_reading) {
        r->has_accepted = accepted != NOT_ACCEPTED;
        r->accepted_uncorrected = r->has_accepted ? accepted : 0;
    }
    if (!tail(w, &r->has_place)) {
        w->is_bad |= accepted == NOT_ACCEPTED;
        return;
    }
    flag(w, &r->is_lost);
    u32(w, &r->pci.domain);
    u8(w, &r->pci.bus, UINT8_MAX);
    u8(w, &r->pci.device, UINT8_MAX);
    u8(w, &r->pci.function, UINT8_MAX);
    u64(w, &r->total_bytes);
    u64(w, &r->reserved_bytes);
    text(w, r->name, sizeof(r->name));
}

static void lease(struct record_walk *w, struct record_lease *r) {
    id(w, &r->id);
    u32(w, &r->uid);
    u32(w, &r->gid);
    mode(w, &r->mode);
    flag(w, &r->declares_max);
    flag(w, &r->ending);
    flag(w, &r->has_token);
    u8(w, &r->idle_step, UINT8_MAX);
    u32(w, &r->tiers);
    i32(w, &r->priority);
    u64(w, &r->created_usec);
    u64(w, &r->expires_usec);
    u64(w, &r->idle_usec);
    if (r->has_token)
        step(w, r->token, sizeof(r->token));
    text(w, r->name, sizeof(r->name));
    text(w, r->reason, sizeof(r->reason));
    text(w, r->scope, sizeof(r->scope));
    text(w, r->cgroup, sizeof(r->cgroup));
    count(w, &r->n_shares);
    for (uint32_t i = 0; i < r->n_shares; i++) {
        device_id(w, &r->shares[i].device);
        u64(w, &r->shares[i].limit_bytes);
        u64(w, &r->shares[i].guaranteed_bytes);
    }
    if (tail(w, &r->is_unanswered))
        step(w, r->digest, sizeof(r->digest));
}

static void holder(struct record_walk *w, struct record_holder *r) {
    id(w, &r->lease);
    pid(w, &r->pid);
    u32(w, &r->uid);
    u64(w, &r->start);
    u64(w, &r->attached_usec);
    u64(w, &r->releasing_usec);
    u8(w, &r->tier, UINT8_MAX);
    count(w, &r->n_held);
    for (uint32_t i = 0; i < r->n_held; i++) {
        device_id(w, &r->held[i].device);
        u64(w, &r->held[i].held_bytes);
        u64(w, &r->held[i].context_bytes);
    }
}

static void waiter(struct record_walk *w, struct record_waiter *r) {
    id(w, &r->id);
    u64(w, &r->order);
    pid(w, &r->pid);
    u32(w, &r->uid);
    u64(w, &r->start);
    flag(w, &r->is_growth);
    u64(w, &r->lease);
    i32(w, &r->priority);
    u64(w, &r->since_usec);
    u64(w, &r->timeout_usec);
    step(w, r->digest, sizeof(r->digest));
    text(w, r->asked, sizeof(r->asked));
}

static void whole(struct record_walk *w, struct record *record) {
    uint8_t kind = (uint8_t)record->kind;

    u8(w, &kind, RECORD_WAITER_GONE);
    if (w->is_reading)
        record->kind = (enum record_kind)kind;
    switch (record->kind) {
    case RECORD_META:
        meta(w, &record->meta);
        return;
    case RECORD_DEVICE:
        device(w, &record->device);
        return;
    case RECORD_LEASE:
        lease(w, &record->lease);
        return;
    case RECORD_LEASE_GONE:
        id(w, &record->lease_gone);
        return;
    case RECORD_HOLDER:
        holder(w, &record->holder);
        return;
    case RECORD_HOLDER_GONE:
        id(w, &record->holder_gone.lease);
        pid(w, &record->holder_gone.pid);
        u64(w, &record->holder_gone.start);
        return;
    case RECORD_WAITER:
        waiter(w, &record->waiter);
        return;
    case RECORD_WAITER_GONE:
        id(w, &record->waiter_gone);
        return;
    }
    w->is_bad = true;
}

size_t record_encode(const struct record *record, uint8_t bytes[static RECORD_SIZE_MAX]) {
    struct record_walk w = { .bytes = bytes, .size = RECORD_SIZE_MAX };

    /* No step that writes bytes touches the record. */
    whole(&w, (struct record *)(uintptr_t)record);
    assert(!w.is_bad);
    return w.at;
}

int record_decode(struct record *ret, const uint8_t *bytes, size_t size) {
    struct record_walk w = { .bytes = (uint8_t *)(uintptr_t)bytes,
                             .size = size,
                             .is_reading = true };

    memset(ret, 0, sizeof(*ret));
    whole(&w, ret);
    return w.is_bad || w.at != size ? -EBADMSG : 0;
}
