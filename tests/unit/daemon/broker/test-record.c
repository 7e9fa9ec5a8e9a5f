/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "daemon/broker/record.h"
#include "tests/support/suite.h"

static uint64_t seed = 7;

static void random_bytes(void *bytes, size_t size) {
    for (size_t i = 0; i < size; i++)
        ((uint8_t *)bytes)[i] = (uint8_t)random_next(&seed);
}

static void random_text(char *text, size_t capacity) {
    size_t length = random_next(&seed) % capacity;

    for (size_t i = 0; i < length; i++)
        text[i] = (char)(1 + random_next(&seed) % 255);
    text[length] = '\0';
}

static void random_device(struct gpuid *id) {
    id->kind = random_next(&seed) % 3;
    random_bytes(id->uuid, sizeof(id->uuid));
    id->gpu_instance = (uint32_t)random_next(&seed);
    id->compute_instance = (uint32_t)random_next(&seed);
}

/* Any record, every member of it set. */
static void random_record(struct record *ret) {
    memset(ret, 0, sizeof(*ret));
    ret->kind = RECORD_META + random_next(&seed) % RECORD_WAITER_GONE;
    switch (ret->kind) {
    case RECORD_META:
        random_bytes(ret->meta.boot_id, 16);
        ret->meta.is_lost = random_next(&seed) & 1;
        ret->meta.next_lease = random_next(&seed);
        ret->meta.next_waiter = random_next(&seed);
        ret->meta.next_order = random_next(&seed);
        return;
    case RECORD_DEVICE:
        random_device(&ret->device.id);
        ret->device.drained = random_next(&seed) & 1;
        ret->device.by_health = random_next(&seed) & 1;
        ret->device.drained_usec = random_next(&seed);
        ret->device.context_bytes = random_next(&seed);
        random_text(ret->device.reason, sizeof(ret->device.reason));
        ret->device.has_accepted = random_next(&seed) & 1;
        if (ret->device.has_accepted)
            ret->device.accepted_uncorrected = random_next(&seed) >> 1;
        ret->device.has_place = random_next(&seed) & 1;
        if (ret->device.has_place) {
            ret->device.is_lost = random_next(&seed) & 1;
            ret->device.pci.domain = (uint32_t)random_next(&seed);
            ret->device.pci.bus = (uint8_t)random_next(&seed);
            ret->device.pci.device = (uint8_t)random_next(&seed);
            ret->device.pci.function = (uint8_t)random_next(&seed);
            ret->device.total_bytes = random_next(&seed);
            ret->device.reserved_bytes = random_next(&seed);
            random_text(ret->device.name, sizeof(ret->device.name));
        }
        return;
    case RECORD_LEASE:
        ret->lease.id = random_next(&seed) | 1;
        ret->lease.uid = (uint32_t)random_next(&seed);
        ret->lease.gid = (uint32_t)random_next(&seed);
        ret->lease.mode = 1 + random_next(&seed) % 4;
        ret->lease.declares_max = random_next(&seed) & 1;
        ret->lease.ending = random_next(&seed) & 1;
        ret->lease.has_token = random_next(&seed) & 1;
        if (ret->lease.has_token)
            random_bytes(ret->lease.token, sizeof(ret->lease.token));
        ret->lease.idle_step = (uint8_t)random_next(&seed);
        ret->lease.tiers = (uint32_t)random_next(&seed);
        ret->lease.priority = (int32_t)random_next(&seed);
        ret->lease.created_usec = random_next(&seed);
        ret->lease.expires_usec = random_next(&seed);
        ret->lease.idle_usec = random_next(&seed);
        random_text(ret->lease.name, sizeof(ret->lease.name));
        random_text(ret->lease.reason, sizeof(ret->lease.reason));
        random_text(ret->lease.scope, sizeof(ret->lease.scope));
        random_text(ret->lease.cgroup, sizeof(ret->lease.cgroup));
        ret->lease.n_shares = random_next(&seed) % (RECORD_DEVICES_MAX + 1);
        for (uint32_t i = 0; i < ret->lease.n_shares; i++) {
            random_device(&ret->lease.shares[i].device);
            ret->lease.shares[i].limit_bytes = random_next(&seed);
            ret->lease.shares[i].guaranteed_bytes = random_next(&seed);
        }
        ret->lease.is_unanswered = random_next(&seed) & 1;
        if (ret->lease.is_unanswered)
            random_bytes(ret->lease.digest, sizeof(ret->lease.digest));
        return;
    case RECORD_LEASE_GONE:
        ret->lease_gone = random_next(&seed) | 1;
        return;
    case RECORD_HOLDER:
        ret->holder.lease = random_next(&seed) | 1;
        ret->holder.pid = 1 + (int32_t)(1 + random_next(&seed) % 4194304);
        ret->holder.uid = (uint32_t)random_next(&seed);
        ret->holder.start = random_next(&seed);
        ret->holder.attached_usec = random_next(&seed);
        ret->holder.releasing_usec = random_next(&seed);
        ret->holder.tier = (uint8_t)random_next(&seed);
        ret->holder.n_held = random_next(&seed) % (RECORD_DEVICES_MAX + 1);
        for (uint32_t i = 0; i < ret->holder.n_held; i++) {
            random_device(&ret->holder.held[i].device);
            ret->holder.held[i].held_bytes = random_next(&seed);
            ret->holder.held[i].context_bytes = random_next(&seed);
        }
        return;
    case RECORD_HOLDER_GONE:
        ret->holder_gone.lease = random_next(&seed) | 1;
        ret->holder_gone.pid = 1;
        ret->holder_gone.start = random_next(&seed);
        return;
    case RECORD_WAITER:
        ret->waiter.id = random_next(&seed) | 1;
        ret->waiter.order = random_next(&seed);
        ret->waiter.pid = INT32_MAX;
        ret->waiter.uid = (uint32_t)random_next(&seed);
        ret->waiter.start = random_next(&seed);
        ret->waiter.is_growth = random_next(&seed) & 1;
        ret->waiter.lease = random_next(&seed);
        ret->waiter.priority = (int32_t)random_next(&seed);
        ret->waiter.since_usec = random_next(&seed);
        ret->waiter.timeout_usec = random_next(&seed);
        random_bytes(ret->waiter.digest, sizeof(ret->waiter.digest));
        random_text(ret->waiter.asked, sizeof(ret->waiter.asked));
        return;
    case RECORD_WAITER_GONE:
        ret->waiter_gone = random_next(&seed) | 1;
        return;
    }
}

START_TEST(what_is_written_is_what_is_read) {
    static struct record record, again;
    uint8_t bytes[RECORD_SIZE_MAX];
    bool seen[RECORD_WAITER_GONE + 1] = { false };

    for (int i = 0; i < 2000; i++) {
        size_t size;

        random_record(&record);
        size = record_encode(&record, bytes);
        ck_assert_int_eq(record_decode(&again, bytes, size), 0);
        ck_assert_mem_eq(&record, &again, sizeof(record));
        seen[record.kind] = true;
    }
    for (int kind = RECORD_META; kind <= RECORD_WAITER_GONE; kind++)
        ck_assert(seen[kind]);
}
END_TEST

/* But for the members that may be missing at the end: without them it is a record of its own. */
START_TEST(a_record_cut_or_lengthened_anywhere_is_refused) {
    static struct record record, again;
    uint8_t bytes[RECORD_SIZE_MAX + 1] = { 0 }, back[RECORD_SIZE_MAX];
    size_t n_whole = 0;

    for (int i = 0; i < 100; i++) {
        size_t size;

        random_record(&record);
        size = record_encode(&record, bytes);
        for (size_t cut = 0; cut < size; cut++) {
            uint8_t *exact = malloc(cut ? cut : 1); /* a sanitizer sees what is read behind it */
            int r;

            ck_assert_ptr_nonnull(exact);
            memcpy(exact, bytes, cut);
            r = record_decode(&again, exact, cut);
            free(exact);
            if (r < 0)
                continue;
            ck_assert((record.kind == RECORD_DEVICE &&
                       ((record.device.has_accepted && !again.device.has_accepted) ||
                        (record.device.has_place && !again.device.has_place))) ||
                      (record.kind == RECORD_LEASE && record.lease.is_unanswered &&
                       !again.lease.is_unanswered));
            ck_assert_uint_eq(record_encode(&again, back), cut);
            ck_assert_mem_eq(bytes, back, cut);
            n_whole++;
        }
        ck_assert_int_eq(record_decode(&again, bytes, size + 1), -EBADMSG);
    }
    ck_assert_uint_gt(n_whole, 0);
}
END_TEST

/* A record that can be read is within its bounds, and is written as it was read. */
START_TEST(changed_bytes_are_refused_or_read_within_bounds) {
    static struct record record, again;
    uint8_t bytes[RECORD_SIZE_MAX], back[RECORD_SIZE_MAX];
    size_t n_read = 0;

    for (int i = 0; i < 20000; i++) {
        size_t size;

        random_record(&record);
        size = record_encode(&record, bytes);
        bytes[random_next(&seed) % size] ^= (uint8_t)(1 + random_next(&seed) % 255);
        if (record_decode(&again, bytes, size) < 0)
            continue;
        n_read++;
        ck_assert_uint_eq(record_encode(&again, back), size);
        ck_assert_mem_eq(bytes, back, size);
    }
    ck_assert_uint_gt(n_read, 0);
}
END_TEST

START_TEST(ids_of_zero_and_unknown_kinds_are_refused) {
    static struct record record = { .kind = RECORD_LEASE_GONE, .lease_gone = 0 };
    uint8_t bytes[RECORD_SIZE_MAX];
    size_t size = record_encode(&record, bytes);

    ck_assert_int_eq(record_decode(&record, bytes, size), -EBADMSG);
    for (int kind = 0; kind < 256; kind++) {
        bytes[0] = (uint8_t)kind;
        if (kind < RECORD_META || kind > RECORD_WAITER_GONE)
            ck_assert_int_eq(record_decode(&record, bytes, size), -EBADMSG);
    }
    ck_assert_int_eq(record_decode(&record, bytes, 0), -EBADMSG);
}
END_TEST

SUITE("record", what_is_written_is_what_is_read, a_record_cut_or_lengthened_anywhere_is_refused,
      changed_bytes_are_refused_or_read_within_bounds, ids_of_zero_and_unknown_kinds_are_refused)
