/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Broker: which request gets which memory, which ones wait, and in which order.
 *
 * The pure centre of allotd: facts and requests go in, verdicts come back, and everything else is
 * reported through one sink. It reads no clock (the caller passes the time), opens nothing and
 * calls no driver; the same calls in the same order always give the same answers. Owned by the
 * manager; event-loop thread only.
 *
 * Calls that can be answered at once are. Whatever frees bytes (shrink, release, detach, a
 * process's end, a sample, a policy) only notes that the queue must be checked: broker_turn() does
 * that, once per turn of the loop, so that a turn with many changes costs one walk.
 *
 * The queue: growth of running jobs first, then new leases; in each, the higher priority, then the
 * earlier. A step of priority is worth `age_usec` of waiting, so no waiter starves. A waiter that
 * does not fit reserves what it asks for on every device that it could use. Waiters behind it may
 * pass it with what is left beyond that, or if no waiter before them starts later because of it
 * (daemon/broker/queue/schedule.c has the rule). A request that waits for its own user's quota, for
 * hours or for a drained device reserves nothing.
 *
 * -ENOMEM is the only error: the host has no memory; then everything is as it was before the call.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/gpuid.h"
#include "base/process_id.h"
#include "daemon/broker/books.h"
#include "daemon/broker/device_facts.h"
#include "daemon/broker/lease.h"
#include "daemon/broker/policy.h"
#include "daemon/broker/record.h"
#include "daemon/broker/sample.h"
#include "daemon/broker/verdict.h"

struct broker;

/* Now, by the caller's clocks. */
struct moment {
    uint64_t usec;        /* CLOCK_BOOTTIME; never goes back */
    uint16_t week_minute; /* of local time, Monday 0:00 is 0: for the hours of devices */
};

/* ---- What the broker tells ------------------------------------------------------------------- */

struct notice {
    enum notice_kind kind;
    const struct gpuid *device; /* NULL: none */
    uint64_t bytes;             /* 0: none */
    const char *text;
};

/* An event for the journal, for Monitor and for the accounts. Borrowed during the callback. */
struct broker_event {
    const char *kind; /* "granted", "denied", "waiting", "cancelled", "attached", "detached",
                         "ending", "ended", "idle", "deadlock", "timeout", "rebuilt", "grace" */
    const char *text; /* a sentence */
    const struct gpuid *device; /* NULL: none, or several: see `lease_now` */
    uint64_t lease;             /* 0: none */
    pid_t pid;                  /* 0: none */
    uid_t uid;                  /* (uid_t)-1: of no user */
    gid_t gid;
    bool is_verdict; /* of a request: the next four are set */
    bool is_growth;
    enum verdict_kind verdict;
    enum refusal refusal;
    uint64_t waited_usec;
    const struct lease *lease_now; /* the lease, if it exists now; else NULL */
};

/*
 * The functions through which the broker reports what happens; it expects no answer. They run
 * inside broker calls and may only read from the broker. Each may be NULL.
 */
struct broker_sink {
    void *userdata;
    /* A request that waited has its verdict, GRANT or DENY. `cookie` is the request's; the broker
     * does not use it again. */
    void (*decided)(void *userdata, void *cookie, const struct verdict *verdict);
    /* The waiter's place or reason changed. Place 1 is next. */
    void (*moved)(void *userdata, void *cookie, uint32_t place, const char *reason);
    /* Send a notice to a process of a lease: `holder->cookie`. */
    void (*notice)(void *userdata, const struct holder *holder, const struct notice *notice);
    void (*event)(void *userdata, const struct broker_event *event);
    /* Write this record to disk before sending any answer of this turn. */
    void (*record)(void *userdata, const struct record *record);
    /*
     * The lease's charge on the device changed; both 0: nothing is charged there any more. For the
     * accounts.
     */
    void (*charged)(void *userdata, const struct lease *lease, const struct gpuid *device,
                    uint64_t held_bytes, uint64_t guaranteed_bytes);
    /* The lease was told to end and its processes are still there: end them. Called once. */
    void (*evict)(void *userdata, const struct lease *lease);
    /*
     * All known processes of a lease without a scope are gone, but its job may have left another
     * behind, and the caller can search for it (broker_search_as). The lease `is_orphaned`, and
     * stays until the caller reports the result by broker_inherit(). This may be called again
     * before that.
     */
    void (*orphaned)(void *userdata, const struct lease *lease);
};

/* `policy` is borrowed until broker_policy_set() or broker_free(). */
int broker_new(struct broker **ret, const struct policy *policy, const struct broker_sink *sink);
struct broker *broker_free(struct broker *broker); /* accepts NULL, returns NULL; no callbacks */
DEFINE_FREEP(struct broker, broker_freep, broker_free)

/*
 * Swap the policy. Leases stay as they are, whatever the new rules say; the queue is judged anew.
 */
int broker_policy_set(struct broker *broker, const struct policy *policy, struct moment now);

/* ---- Facts ----------------------------------------------------------------------------------- */

/*
 * A device appeared or changed: size, links, state. Holders are told when it is drained or lost. A
 * lost device keeps its page while a lease names it. `context_bytes`: what a context costs there by
 * the device's kind, 0: not known.
 */
int broker_device_set(struct broker *broker, const struct device_facts *device,
                      uint64_t context_bytes, struct moment now);

/*
 * What contexts were seen to cost on a device, 0: not known. Processes that attach from now on are
 * told to declare so much, within the limit of their lease; no verdict depends on it.
 */
void broker_context_set(struct broker *broker, const struct gpuid *device, uint64_t bytes);

/*
 * A sample of everything: charges become max(declared, seen); processes within a lease's cgroup are
 * its holders whether or not they attached, and so are, of a lease without one, its job's processes
 * (`leases`); all others are unmanaged; what was releasing and is no longer shown is free. A device
 * that could not be read keeps its numbers. Also feeds idleness.
 *
 * `leases`: of each of sample->processes the lease without a scope to whose job it belongs by its
 * environment, 0: none, or not known; NULL: of none. Only rows that broker_is_unclaimed() need one.
 * `owners`: the user whom each of them counts for; NULL: that of its uid.
 */
int broker_sample(struct broker *broker, const struct sample *sample, const uint64_t *leases,
                  const uid_t *owners, struct moment now);

/*
 * Whether only its environment could tie this process to a lease: its user has leases, and the
 * broker knows the process, on this device, of none.
 */
bool broker_is_unclaimed(const struct broker *broker, const struct sample_process *row);

/*
 * The byte·seconds that the user has used so far in the period of its quota, for a user that has
 * leases or waits. They replace the number that came with its last request; the caller reports them
 * as time passes.
 */
void broker_spent_set(struct broker *broker, uid_t uid, uint64_t byte_seconds);
/* Walks the users whose byte·seconds count; start with a `pos` of 0; false at the end. */
bool broker_next_spender(const struct broker *broker, size_t *pos, uid_t *ret);

/*
 * From now on the caller can search for processes of jobs, with the rights of this user: root can
 * search for those of every job, another user only for its own. Before this call the caller can
 * search for none, and leases end with their known processes.
 */
void broker_search_as(struct broker *broker, uid_t uid);

/* This process has ended: drop everything that it held or waited for, and end the leases that only
 * this process kept. */
void broker_process_gone(struct broker *broker, const struct process_id *process,
                         struct moment now);

/*
 * The search found this process of the job: it keeps the lease from now on, and the caller reports
 * its end by broker_process_gone(). NULL: the search found none, and the lease ends. Does nothing
 * to a lease that has a holder again or has ended.
 */
void broker_inherit(struct broker *broker, uint64_t lease, const struct process_id *survivor,
                    struct moment now);

/* ---- Requests -------------------------------------------------------------------------------- */

/* The process that asks; everything comes from the kernel. */
struct broker_peer {
    struct process_id process;
    uid_t uid;
    gid_t gid;
    const gid_t *gids; /* besides gid */
    size_t n_gids;
    bool is_admin;               /* root, or of the administrators' group: may end others' leases */
    uint64_t spent_byte_seconds; /* of the uid, within the period of its quota */
};

/* A client's request for a lease. Texts and arrays are borrowed for the call; 0, NULL and
 * UNITS_FOREVER: not given. */
struct request {
    const char *name;
    bool has_amount;
    struct amount amount;
    const struct amount *amounts; /* one for each of `devices` */
    size_t n_amounts;
    uint32_t n_gpus;
    const char *const *devices;
    size_t n_devices;
    bool has_choose;
    enum choice choose;
    const char *visible_devices, *device_order;
    bool has_priority;
    int32_t priority;
    bool no_wait;
    uint64_t timeout_usec;    /* longest wait */
    uint64_t time_limit_usec; /* longest life */
    bool has_token;
    uint8_t token[RECORD_DIGEST_SIZE]; /* digest of the token, to be kept with the lease */
    /*
     * The weakest enforcement that this job cannot have, and why; REQUIRE_NONE: it can have every
     * kind. The job cannot use a device that requires this much or more. Two requests that differ
     * only here are the same request.
     */
    enum require cannot_have;
    const char *cannot_reason; /* the second half of a sentence */
};

/*
 * Ask for a lease. GRANT: verdict->lease exists. WAIT: decided() comes later, with `cookie`. If the
 * same process made the same request before the daemon restarted, it gets its old place, or the
 * lease that was granted then without the client learning of it. DENY.
 */
int broker_submit(struct broker *broker, const struct broker_peer *peer,
                  const struct request *request, void *cookie, struct moment now,
                  struct verdict *ret);

/* The grant has reached the client. */
void broker_answered(struct broker *broker, uint64_t lease);
/*
 * The client hung up before the grant reached it: the lease ends, unless a process already holds
 * it.
 */
void broker_unheard(struct broker *broker, uint64_t lease, struct moment now);

/* What broker_submit() would answer, and why. Changes nothing. */
#define EXPLANATION_LINES 24
struct explanation {
    struct verdict verdict;
    uint32_t n_devices;
    struct gpuid devices[BOOKS_SHARES_MAX]; /* chosen now, or those that the request waits for */
    uint32_t n_details;
    char details[EXPLANATION_LINES][192];
};
int broker_explain(struct broker *broker, const struct broker_peer *peer,
                   const struct request *request, struct moment now, struct explanation *ret);

/* The client no longer waits for this verdict. -ENOENT: the broker has decided already. */
int broker_cancel(struct broker *broker, uint64_t waiter, struct moment now);

/* What a process says that it holds. */
struct broker_held {
    struct gpuid device;
    uint64_t bytes;
};

struct broker_attach {
    uint64_t lease;
    const struct broker_held *held; /* after a restart; borrowed */
    size_t n_held;
    uint8_t tier;
    bool credits;
    bool is_in_scope; /* in the scope that the hand made for the lease */
    bool has_token;
    uint8_t token[RECORD_DIGEST_SIZE]; /* digest of the token it showed: a rebuilt lease keeps it */
    void *cookie; /* for notices; must live until broker_detach() or broker_process_gone() */
};

/*
 * Make the process a holder; GRANT or DENY, never WAIT. The caller has checked cgroup or token; the
 * uid is checked here. A process that is a holder already replaces its earlier entry (the old
 * cookie is not used again). A process that was recorded before a restart, or is attached, may not
 * declare more `held` bytes than it has; those of any other process are judged like growth that
 * cannot wait. After lost books (broker_books_lost) the broker rebuilds an unknown lease from these
 * bytes, as far as the rules allow this user and the last sample shows them for the process.
 */
int broker_attach(struct broker *broker, const struct broker_peer *peer,
                  const struct broker_attach *attach, struct moment now, struct verdict *ret);

/*
 * The holder's connection ended: its bytes are releasing until NVML shows less. The lease ends with
 * its last process or, if it has a scope, when the scope is empty.
 */
void broker_detach(struct broker *broker, const struct process_id *process, uint64_t lease,
                   struct moment now);

struct broker_growth {
    uint64_t lease;
    struct gpuid device;
    uint64_t bytes; /* rounded up to granules; 0: just asks */
    bool wait;
    uint64_t timeout_usec; /* UNITS_FOREVER: not given */
};

/* By a holder. GRANT with held_bytes and limit_bytes, WAIT (then decided()), DENY. */
int broker_grow(struct broker *broker, const struct process_id *process,
                const struct broker_growth *growth, void *cookie, struct moment now,
                struct verdict *ret);

/* Give back; GRANT with held_bytes, or DENY (NOT_FOUND, or more than it declared). 0 answers a
 * recall. */
void broker_shrink(struct broker *broker, const struct process_id *process, uint64_t lease,
                   const struct gpuid *device, uint64_t bytes, struct moment now,
                   struct verdict *ret);

/* End a lease: GRANT or DENY (NOT_FOUND: also for others' leases, unless the peer is_admin). */
void broker_release(struct broker *broker, const struct broker_peer *peer, uint64_t lease,
                    struct moment now, struct verdict *ret);

/* The same, when the daemon itself ends the lease: the watch, health, an administrator's Kill. */
void broker_end(struct broker *broker, uint64_t lease, const char *reason, struct moment now);

/*
 * The lease now has this scope (NULL: none), all processes in it belong to the lease, and these
 * tiers are in force.
 */
int broker_confined(struct broker *broker, uint64_t lease, const char *scope, const char *cgroup,
                    uint32_t tiers, struct moment now);

/* The enforcement that the lease must have, by the current rules. */
enum require broker_require(const struct lease *lease);

/* Its cgroup is empty: the lease is gone. */
void broker_vacated(struct broker *broker, uint64_t lease, struct moment now);

/* ---- Time ------------------------------------------------------------------------------------ */

/* Run the queue: grants, timeouts, expiry, idle ladder, deadlocks, grace, places. */
int broker_turn(struct broker *broker, struct moment now);

/* When to call broker_turn() next if nothing happens; 0: at once; UINT64_MAX: no need. */
uint64_t broker_deadline(const struct broker *broker);

/* ---- Restart --------------------------------------------------------------------------------- */

/*
 * Restore what the daemon recorded before it restarted, in any order that has leases before their
 * holders; the same record twice changes nothing. The devices need not exist yet. -EBADMSG: it
 * contradicts other records (the lease of a holder is missing); nothing changed.
 */
int broker_restore(struct broker *broker, const struct record *record, struct moment now);

/*
 * Records are missing: unknown leases are rebuilt from the processes that attach until the grace
 * ends.
 */
void broker_books_lost(struct broker *broker);

/*
 * From now on grant nothing but growth within guarantees, until all recorded holders are back or
 * known to be gone, for at most `grace_usec`. Then holders that are not back are detached, and
 * places in the queue that no client came back for are given up.
 */
void broker_grace_begin(struct broker *broker, struct moment now);
uint64_t broker_grace_until(const struct broker *broker); /* 0: no grace */

/* ---- Reading --------------------------------------------------------------------------------- */

struct lease *broker_lease(const struct broker *broker, uint64_t id); /* NULL: none */
/* The process that acquired the lease, while it lives and is not a holder; NULL: none. */
const struct process_id *broker_owner(const struct lease *lease);
/* The lease that this user knows as `id`; if it was rebuilt after lost books, its own number may
 * differ. NULL: the user has no such lease. */
const struct lease *broker_lease_called(const struct broker *broker, uint64_t id, uid_t uid);
struct holder *broker_holder(const struct broker *broker, const struct process_id *process,
                             uint64_t lease);
/* What a process has declared on a device. */
struct broker_declared {
    uid_t uid;   /* of its leases there */
    bool is_all; /* it declares everything it takes: attached, by guard or arenas */
    uint64_t bytes;
    uint64_t context_bytes; /* of that it was told is for its context; 0: not known, it attached
                               before a restart */
};
/* False: it holds no lease there. */
bool broker_declared(const struct broker *broker, const struct process_id *process,
                     const struct gpuid *device, struct broker_declared *ret);
const struct book *broker_book(const struct broker *broker, const struct gpuid *device);

/* The lease to whose cgroup a path belongs; NULL: none. */
struct lease *broker_lease_of_cgroup(const struct broker *broker, const char *cgroup);

/* Walks them in the order in which they were made; start with a `pos` of 0; NULL at the end. */
const struct lease *broker_next_lease(const struct broker *broker, size_t *pos);

/* A waiter, for status. Texts are borrowed until the next call of the broker. */
struct broker_waiter {
    uint64_t id;
    uint32_t place;
    struct process_id process;
    uid_t uid;
    bool is_growth;
    uint64_t lease; /* of growth */
    int32_t priority;
    uint64_t since_usec, timeout_usec; /* 0: no timeout */
    const char *name;                  /* "" */
    const char *asked;                 /* "2 devices × 8 GiB" */
    char reason[VERDICT_REASON_SIZE];
};
/* Number `i` of the queue, from 0; false past the end. Costs O(log n) and the reason. */
bool broker_waiter_at(const struct broker *broker, uint32_t i, struct broker_waiter *ret);
uint32_t broker_n_waiters(const struct broker *broker);

/*
 * Walks every sum and link; 0, or -EUCLEAN with the first thing that is wrong. For tests and
 * debugging. Costs O(everything).
 */
int broker_check_books(const struct broker *broker, struct allot_error *err);

/*
 * The environment of a job of this lease: CUDA_VISIBLE_DEVICES by UUID, in the order asked for;
 * returns the length, as snprintf does. CUDA_DEVICE_ORDER is always PCI_BUS_ID.
 */
int broker_visible_devices(const struct lease *lease, char *text, size_t size);
