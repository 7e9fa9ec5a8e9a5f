/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Policy: what the administrator allows each user, as plain values.
 *
 * Built by daemon/config from its files, or by a test; never changed afterwards: a reload makes
 * another one and the broker swaps them (broker_policy_set). Pure: no clock, no user database;
 * names are already uids and gids. What only concerns the watch over processes without a lease,
 * sockets or files is in the configuration, not here.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/cleanup.h"
#include "base/gpuid.h"
#include "base/units.h"
#include "base/words.h"

/*
 * The enforcement that a lease must have, weakest first; each includes those before it. The numbers
 * of the tiers are those of docs/enforcement.md.
 */
#define REQUIRES(X)                                                                                \
    X(NONE, 0, "none")                                                                             \
    X(GUARD, 1, "guard")   /* tier 3, or tier 4 in a program that declares its memory itself */    \
    X(SCOPE, 2, "scope")   /* tier 2 */                                                            \
    X(DRIVER, 3, "driver") /* tier 1 */
#define X(name, value, word) REQUIRE_##name = value,
enum require { REQUIRES(X) };
#undef X
extern const char *const policy_require_words[];
const char *policy_require_name(enum require require); /* "none", … */
uint32_t policy_require_tiers(
    enum require require); /* bit n: tier n, of those that Confine makes */

/* How much on a device. A member that is not given is UNITS_FOREVER, or POLICY_NO_SHARE. */
#define POLICY_NO_SHARE UINT32_MAX
struct amount {
    enum lease_mode mode;
    uint32_t permyriad; /* fraction: needed; grow: a cap as a share of the device */
    uint64_t bytes;     /* fixed: needed */
    uint64_t min_bytes; /* grow */
    uint64_t max_bytes; /* grow: declared, so that the banker's rule counts on it */
};

#define AMOUNT_GROW                                                                                \
    (struct amount) {                                                                              \
        LEASE_GROW, POLICY_NO_SHARE, UNITS_FOREVER, UNITS_FOREVER, UNITS_FOREVER                   \
    }

/*
 * A set of devices by name: UUID or a prefix of one, bus id, or index in bus order, each
 * NUL-terminated. A name that no device of the box has is no mistake: devices come and go.
 */
struct policy_names {
    char **names; /* owned */
    size_t n_names;
    bool all; /* every device; `names` is then empty */
};

/*
 * What holds for a user: X(type, member, default).
 * UNITS_FOREVER and UINT32_MAX mean "no limit".
 */
/* clang-format off */
#define POLICY_RULES(X)                                                                            \
    /* Quotas count all leases of the user together. */                                            \
    X(uint64_t, quota_bytes, UNITS_FOREVER)          /* over all devices */                        \
    X(uint32_t, quota_permyriad, 10000)              /* of the usable bytes of each device */      \
    X(uint32_t, quota_devices, UINT32_MAX)           /* different devices */                       \
    X(uint64_t, quota_byte_seconds, UNITS_FOREVER)   /* within quota_period_usec */                    \
    X(uint64_t, quota_period_usec, UINT64_C(30) * 24 * 3600 * 1000000)                             \
    X(bool, small_leases, false)                     /* may be smaller than a context; otherwise
                                                        such a request is denied */ \
    X(uint32_t, max_leases, 64)                                                                    \
    X(uint32_t, grants_per_minute, 600)              /* leases; as many at once */                 \
    X(uint32_t, max_waiting, 64)                     /* requests in the queue */                        \
    X(int32_t, priority, 0)                          /* of a request that gives none */            \
    X(int32_t, priority_max, POLICY_PRIORITY_UNSET)  /* that may be asked for; unset: `priority` */ \
    X(enum choice, choose, CHOICE_PACK)              /* of a request that gives none */            \
    X(uint32_t, require, POLICY_REQUIRE_UNSET)       /* enum require; unset: policy.require */     \
    X(uint64_t, wait_usec, UNITS_FOREVER)            /* longest wait for a lease */                \
    X(uint64_t, grow_wait_usec, UINT64_C(60000000))  /* longest wait for growth: never for ever */ \
    X(uint64_t, lease_usec, UNITS_FOREVER)           /* longest life of a lease */                 \
    /* A lease that holds bytes and computes nothing for so long … */                              \
    X(uint64_t, idle_tell_usec, UNITS_FOREVER)       /* … is told, */                              \
    X(uint64_t, idle_drop_usec, UNITS_FOREVER)       /* … has its priority lowered, */             \
    X(uint64_t, idle_end_usec, UNITS_FOREVER)        /* … ends. */
/* clang-format on */

/* Priorities are -100 … 100, larger goes first. */
#define POLICY_PRIORITY_MAX   100
#define POLICY_PRIORITY_UNSET INT32_MIN
#define POLICY_REQUIRE_UNSET  UINT32_MAX

enum policy_rule {
#define X(type, member, value) POLICY_RULE_##member,
    POLICY_RULES(X)
#undef X
        POLICY_RULE_devices,
    POLICY_RULE_amount,
};
#define POLICY_HAS(member) (UINT32_C(1) << POLICY_RULE_##member)

struct policy_rules {
    uint32_t has; /* POLICY_HAS() bits of what was set; all of them after policy_rules_for() */
#define X(type, member, value) type member;
    POLICY_RULES(X)
#undef X
    struct policy_names devices; /* that this user may see; default: all */
    struct amount amount;        /* of a request that gives none; default: AMOUNT_GROW */
};

enum policy_who {
    POLICY_USER,
    POLICY_GROUP,
};

/* The rules of one user or group. */
struct policy_section {
    enum policy_who who;
    uint32_t id; /* uid or gid */
    struct policy_rules rules;
};

/*
 * Hours in which a device is reserved for the users and groups named or, if none is, for exclusive
 * leases. Only new leases are concerned. Minutes are of the local week, Monday 0:00 is 0, from ≤ m
 * < to; a window across the end of the week is two windows.
 */
#define POLICY_WEEK_MINUTES (7 * 24 * 60)
struct policy_hours {
    uint16_t from_minute, to_minute;
    size_t n_uids, n_gids;
    uid_t *uids; /* owned */
    gid_t *gids; /* owned */
};

/* Rules for a device. Several may apply to one device: the last that sets something counts. */
struct policy_device {
    struct policy_names devices;
    bool has_reserve;
    struct units_amount reserve; /* kept back beyond what the driver keeps */
    bool has_require;
    enum require require; /* of every lease on it; where the user's rule is stronger, that */
    size_t n_hours;
    struct policy_hours *hours; /* owned; all that fit a device hold together */
};

struct policy {
    struct policy_rules defaults;
    size_t n_sections;
    struct policy_section *sections; /* owned; in the order of the files */
    size_t n_devices;
    struct policy_device *devices; /* owned */

    enum require require;  /* where no rule says: guard, in locked mode scope */
    uint64_t age_usec;     /* a step of priority is worth so long a wait; default 10 min */
    uint64_t reserve_usec; /* for this long a waiter keeps memory back, later in every other
                              such stretch of time; > 0; default 30 min */
    uint64_t grace_usec;   /* after a restart; default 10 s */
    uint64_t ending_usec;  /* from being told to end until processes are ended; default 30 s */
    uint64_t recall_usec;  /* to answer a recall; default 1 s */
    uint64_t gone_usec;    /* how long bytes that no process has may count as releasing; 30 s */
    int32_t idle_drop;     /* by how much the priority of an idle lease drops; default 10 */
};

/* The defaults above and no sections. */
void policy_init(struct policy *policy);
void policy_done(struct policy *policy);
void policy_names_done(struct policy_names *names);

/*
 * The rules for a user: each member from the user's section; otherwise from the first section of
 * one of its groups that sets it; otherwise from the defaults. `ret` borrows from `policy`.
 */
void policy_rules_for(struct policy_rules *ret, const struct policy *policy, uid_t uid,
                      const gid_t *gids, size_t n_gids);

/* The names of a device. */
struct policy_identity {
    struct gpuid id;
    struct pci_id pci;
    uint32_t index;             /* bus order among GPUs */
    const struct gpuid *parent; /* of a MIG instance: its GPU, whose names mean it too */
    uint32_t place;             /* of a MIG instance within its GPU: "2:0" is the first of GPU 2 */
};

/* Whether a name means this very device: exact, or the beginning of its UUID ("GPU-9e8d"). */
bool policy_name_fits(const char *name, const struct policy_identity *identity);

/* Whether one of the names means it, or the GPU that it is an instance of. */
bool policy_names_fit(const struct policy_names *names, const struct policy_identity *identity);

/* Bytes that the administrator keeps back on a device of `total_bytes`. */
uint64_t policy_reserve(const struct policy *policy, const struct policy_identity *identity,
                        uint64_t total_bytes);

/* What a lease on the device must have by the device's own rule; REQUIRE_NONE where it has none. */
enum require policy_require(const struct policy *policy, const struct policy_identity *identity);

/* The strongest requirement that any rule of the policy makes. */
enum require policy_strongest(const struct policy *policy);

/* Whether any user has a quota of byte·seconds. */
bool policy_has_spending(const struct policy *policy);

/*
 * Whether a new lease may be made at this minute of the week; `ret_until` (may be NULL) is the
 * minute at which the window that refuses it ends.
 */
bool policy_hours_allow(const struct policy *policy, const struct policy_identity *identity,
                        uint16_t week_minute, uid_t uid, const gid_t *gids, size_t n_gids,
                        bool is_exclusive, uint16_t *ret_until);
