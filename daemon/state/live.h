/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Live records: what the log amounts to, one encoded record per object that exists.
 *
 * Embedded in its owner; zeroed memory needs state_live_init(). A snapshot is its contents. No
 * locking.
 */
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "base/map.h"
#include "daemon/broker/record.h"

#define STATE_LIVE_KINDS (RECORD_WAITER_GONE + 1)

struct state_live {
    struct map by_key;                   /* hash of the key → first of a chain of entries */
    struct list kinds[STATE_LIVE_KINDS]; /* entries by kind, the oldest first */
    uint32_t n[STATE_LIVE_KINDS];
    uint64_t bytes;          /* of all encodings */
    struct record_meta meta; /* next ids follow every record that is applied */
};

void state_live_init(struct state_live *live);
void state_live_done(struct state_live *live);

/*
 * Make the records what they are after `record`, whose encoding is `bytes`. -ENOMEM leaves them as
 * they were.
 */
int state_live_apply(struct state_live *live, const struct record *record, const uint8_t *bytes,
                     size_t size);

/* Forget everything that ends with a boot: leases, holders, waiters. */
void state_live_reboot(struct state_live *live);

/*
 * Each encoding, devices first, then leases, holders, waiters; META is not among them. `fn` returns
 * 0, or an error that ends the walk and is returned.
 */
typedef int (*state_live_fn)(void *userdata, const uint8_t *bytes, size_t size);
int state_live_each(const struct state_live *live, state_live_fn fn, void *userdata);
