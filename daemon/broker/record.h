/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Record: one fact that must outlive the daemon, as a plain struct and as bytes.
 *
 * A record says what an object *is*, whole, not how it changed: reading a log again, or a part of
 * it twice, gives the same books, and a snapshot is nothing but the list of what is. The broker
 * makes records where its books change and takes them back at the next start; daemon/state keeps
 * them in between. Values, nothing to free, any thread; only the first `n_` entries of an array
 * count, the rest need not be set. docs/state.md describes the bytes.
 *
 * Times are microseconds of CLOCK_BOOTTIME, which no clock change moves, so they mean something
 * only within one boot: META says which. 0 is "none".
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/gpuid.h"
#include "base/words.h"

#define RECORD_DEVICES_MAX 64  /* devices of a lease, as on the wire */
#define RECORD_NAME_SIZE   128 /* each with its NUL; longer texts are cut before they come here */
#define RECORD_TEXT_SIZE   256
#define RECORD_PATH_SIZE   512
#define RECORD_DIGEST_SIZE 32

/* Numbers stand in files: never reuse one. */
enum record_kind {
    RECORD_META = 1,
    RECORD_DEVICE = 2,
    RECORD_LEASE = 3,
    RECORD_LEASE_GONE = 4,
    RECORD_HOLDER = 5,
    RECORD_HOLDER_GONE = 6,
    RECORD_WAITER = 7,
    RECORD_WAITER_GONE = 8,
};

/*
 * Once per log, at its head; daemon/state makes it. Ids are never reused, not even those of leases
 * that ended: the next one is the larger of the one here and one more than any id that was read.
 */
struct record_meta {
    uint8_t boot_id[16];
    bool is_lost; /* records are missing, and the books are not rebuilt yet */
    uint64_t next_lease;
    uint64_t next_waiter;
    uint64_t next_order; /* of record_waiter.order */
};

/* What is known of a device beyond what the driver tells; key: `id`. */
struct record_device {
    struct gpuid id;
    bool drained;
    bool by_health;         /* drained by a health rule, which may resume it; else by a person */
    uint64_t drained_usec;  /* since */
    uint64_t context_bytes; /* what a context was seen to cost; 0: not measured yet */
    char reason[RECORD_TEXT_SIZE]; /* why it is drained */
    bool has_accepted;
    uint64_t accepted_uncorrected; /* ECC errors that are known: only more than these are news */
    bool has_place;                /* a GPU that was seen; the rest says where and what it is */
    bool is_lost;                  /* it was not there when it was last looked for */
    struct pci_id pci;
    uint64_t total_bytes, reserved_bytes;
    char name[96]; /* as in a sample */
};

struct record_share {
    struct gpuid device;
    uint64_t limit_bytes;
    uint64_t guaranteed_bytes;
};

/* Key: `id`. */
struct record_lease {
    uint64_t id;
    uint32_t uid, gid; /* of the process that asked */
    uint8_t mode;      /* enum lease_mode; in the file less 1 */
    bool declares_max; /* a `grow` lease that gave its maximum: the banker's rule counts on it */
    bool ending;       /* told to end, for `reason` */
    bool has_token;    /* `token` is the SHA-256 of the token; the token itself is nowhere */
    uint8_t idle_step; /* how far down the idle ladder it is; 0: not on it */
    uint32_t tiers;    /* bit n: tier n is in force */
    int32_t priority;  /* as granted; what the idle ladder takes off is not taken off here */
    uint64_t created_usec;
    uint64_t expires_usec; /* 0: never */
    uint64_t idle_usec;    /* computes nothing since; 0: busy or not known */
    uint8_t token[RECORD_DIGEST_SIZE];
    char name[RECORD_NAME_SIZE];   /* may be empty */
    char reason[RECORD_TEXT_SIZE]; /* why it ends; empty while it does not */
    char scope[RECORD_TEXT_SIZE];  /* systemd unit; empty: none */
    char cgroup[RECORD_PATH_SIZE]; /* of the scope, as in /proc/PID/cgroup; empty: none */
    uint32_t n_shares;
    struct record_share shares[RECORD_DEVICES_MAX];
    bool is_unanswered;                 /* the grant may not have reached the client; */
    uint8_t digest[RECORD_DIGEST_SIZE]; /* … this: as in record_waiter */
};

struct record_held {
    struct gpuid device;
    uint64_t held_bytes;    /* declared by the holder, contexts left out */
    uint64_t context_bytes; /* charged ahead for its context; 0: none yet */
};

/*
 * Key: lease, pid and start. A holder that ended and whose bytes NVML still shows stays, as
 * `releasing`, until they are gone; its lease may have gone before it.
 */
struct record_holder {
    uint64_t lease;
    int32_t pid;
    uint32_t uid;
    uint64_t start; /* start time of the process, field 22 of /proc/PID/stat */
    uint64_t attached_usec;
    uint64_t releasing_usec; /* ended at; 0: it lives, as far as was known */
    uint8_t tier;            /* that it declared itself under: 3 guard, 4 arenas, 0 neither */
    uint32_t n_held;
    struct record_held held[RECORD_DEVICES_MAX];
};

/*
 * A place in the queue; key: `id`. The request itself ended with its connection: the client asks
 * again, and gets this place back if process, uid and `digest` are the same.
 */
struct record_waiter {
    uint64_t id;
    uint64_t order; /* arrival: the smaller one came first */
    int32_t pid;
    uint32_t uid;
    uint64_t start;
    bool is_growth; /* of `lease` */
    uint64_t lease;
    int32_t priority;
    uint64_t since_usec;
    uint64_t timeout_usec;              /* the moment at which it ends; 0: never */
    uint8_t digest[RECORD_DIGEST_SIZE]; /* of what was asked, by whatever rule its maker has */
    char asked[RECORD_TEXT_SIZE];       /* for people */
};

struct record {
    enum record_kind kind;
    union {
        struct record_meta meta;
        struct record_device device;
        struct record_lease lease;
        uint64_t lease_gone; /* id; its holders are gone by then, or releasing */
        struct record_holder holder;
        struct {
            uint64_t lease;
            int32_t pid;
            uint64_t start;
        } holder_gone;
        struct record_waiter waiter;
        uint64_t waiter_gone; /* id */
    };
};

/* Longest encoding of any record. */
#define RECORD_SIZE_MAX 8192

/*
 * Write the bytes of a record into `bytes`; returns how many. Cannot fail: arrays and texts longer
 * than their bounds are our own mistake.
 */
size_t record_encode(const struct record *record, uint8_t bytes[static RECORD_SIZE_MAX]);

/*
 * -EBADMSG unless `bytes` are exactly one record of a known kind, every part within its bounds;
 * what is not used of `ret` is then zero, so that equal facts are equal bytes.
 */
int record_decode(struct record *ret, const uint8_t *bytes, size_t size);
