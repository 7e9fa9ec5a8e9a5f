/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Books: which lease has how many bytes of each device.
 *
 *     usable + overcommitted = unmanaged + releasing + Σ leases max(guaranteed, held) + free
 *
 * A book is one device's page. It holds sums only; what they are sums of are shares
 * (daemon/broker/lease.h) and the broker's `releasing` (bytes of processes that ended and that NVML
 * still shows). All changes go through here, so that no caller can change one side of the equation
 * alone. Owned by the broker; event-loop thread only; no clock, no allocation.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/list.h"
#include "daemon/broker/device_facts.h"
#include "daemon/broker/policy.h"
#include "daemon/broker/slots.h"

#define BOOKS_GRANULE    (UINT64_C(2) << 20) /* every amount is a multiple of it */
#define BOOKS_SHARES_MAX 64                  /* devices of a lease */

uint64_t books_round_up(uint64_t bytes); /* to the granule; saturates */
uint64_t books_round_down(uint64_t bytes);

/* One device's page. Everything is for reading; only books_*() and the broker write. */
struct book {
    unsigned slot; /* its place in the broker's arrays, for as long as the broker lives */
    struct device_facts device; /* as the inventory told last */
    char name[GPUID_TEXT_SIZE]; /* its UUID as text, for reasons */
    uint64_t reserved_bytes;    /* the driver's and the administrator's together */
    uint64_t usable_bytes;      /* total - reserved, whole granules */
    uint64_t context_bytes;     /* what a context costs by the device's kind; 0: not known. Requests
                                   are judged by this, never by what was learned */
    uint64_t learned_bytes;     /* what contexts were seen to cost; 0: not learned */
    enum require require;       /* by the device's own rule */
    uint64_t unmanaged_bytes;
    uint64_t releasing_bytes;
    uint64_t leased_bytes;     /* Σ max(guaranteed, held) */
    uint64_t guaranteed_bytes; /* Σ */
    uint64_t held_bytes;       /* Σ */
    uint64_t declared_bytes;   /* Σ limits of leases that declared their maximum */
    struct list shares;        /* leases on it: of struct share, by in_book */
    uint32_t n_shares;         /* so many */
    uint32_t n_exclusive;      /* of them exclusive ones: 0 or 1 */
};

/* What a sum of charges leaves, and by how much it is over. */
uint64_t books_free_bytes(const struct book *book);
uint64_t books_overcommitted_bytes(const struct book *book);

/* One lease's part of a device. */
struct share {
    struct book *book; /* borrowed; NULL: not entered in the books */
    struct list in_book;
    uint64_t limit_bytes;
    uint64_t guaranteed_bytes; /* ≤ limit */
    uint64_t held_bytes;       /* Σ over processes max(declared, seen): may be over the limit */
    uint64_t seen_bytes;       /* Σ of what NVML shows */
    bool declares_max, is_exclusive;
};

/* What a waiter may take although these wait before it: see daemon/broker/queue/backfill.h. */
uint64_t books_backfill_bytes(const struct book *book, const uint64_t *need_bytes,
                              uint32_t n_needs);

/* max(guaranteed, held) */
uint64_t books_charge(const struct share *share);

/* What the processes of a lease are told to declare for a context, within its limit. */
uint64_t books_context(const struct share *share);

/* By how much the charge would rise with `bytes` more held. */
uint64_t books_rise(const struct share *share, uint64_t bytes);

void books_enter(struct share *share, struct book *book); /* with its numbers as they are */
void books_leave(struct share *share);
void books_hold(struct share *share, uint64_t held_bytes); /* from now on */
