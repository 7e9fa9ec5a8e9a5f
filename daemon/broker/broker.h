/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Broker: which request gets which memory, which ones wait, and in which order.
 *
 * The pure centre of allotd: facts and requests go in, verdicts come back, and everything else is
 * told through one sink. It reads no clock (the caller passes the moment), opens nothing, speaks to
 * no driver; the same calls in the same order always give the same answers. Owned by the manager;
 * event-loop thread only.
 *
 * Calls that answer at once decide at once. Whatever frees bytes (shrink, release, detach, a
 * process's end, a sample, a policy) only notes that the queue must be looked at: broker_turn()
 * does it, once per turn of the loop, so that a turn with many changes costs one walk.
 *
 * The queue: growth of running jobs first, then new leases; in each the higher priority, then the
 * earlier; a step of priority is worth `age_usec` of waiting, so no waiter starves. A waiter that
 * does not fit keeps, on every device that it could use, what it asks for. Waiters behind it may
 * pass with what is left beyond that, or where no waiter before them starts later for it
 * (daemon/broker/queue/schedule.c has the rule). A request that waits for its own user's quota, for
 * hours or for a drained device keeps nothing back.
 *
 * -ENOMEM is the only error: of the host's memory; everything is then as it was before the call.
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

/* As Notice of the interface file. */
enum notice_kind {
    NOTICE_RECALL,   /* give back `bytes` of `device` if you can; answer by Shrink */
    NOTICE_IDLE,     /* holds memory and computes nothing */
    NOTICE_OVER,     /* for the watch; the broker itself sends none */
    NOTICE_DRAINING, /* `device` is being drained */
    NOTICE_ENDING,   /* the lease ends */
    NOTICE_LOST,     /* `device` is lost */
};

struct notice {
    enum notice_kind kind;
    const struct gpuid *device; /* NULL: none */
    uint64_t bytes;             /* 0: none */
    const char *text;
};

/* Something for the journal, for Monitor and for the accounts. Borrowed during the callback. */
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
 * Callbacks are called from inside broker calls and must not call the broker, but for reading.
 * All may be NULL.
 */
struct broker_sink {
    void *userdata;
    /* A request that waited has its verdict, GRANT or DENY. `cookie` is its own, not used again. */
    void (*decided)(void *userdata, void *cookie, const struct verdict *verdict);
    /* The waiter's place or reason changed. Place 1 is next. */
    void (*moved)(void *userdata, void *cookie, uint32_t place, const char *reason);
    /* To a process of a lease: `holder->cookie`. */
    void (*notice)(void *userdata, const struct holder *holder, const struct notice *notice);
    void (*event)(void *userdata, const struct broker_event *event);
    /* Must be kept before anything that this turn answered is sent. */
    void (*record)(void *userdata, const struct record *record);
    /*
     * The lease's charge on the device changed; both 0: it has none there any more. For the
     * accounts.
     */
    void (*charged)(void *userdata, const struct lease *lease, const struct gpuid *device,
                    uint64_t held_bytes, uint64_t guaranteed_bytes);
    /* The lease was told to end and its processes are still there: end them. Once. */
    void (*evict)(void *userdata, const struct lease *lease);
    /*
     * All known processes of a lease without a scope are gone: look for a process that its job left
     * behind. The answer is broker_inherit(), from inside this call or later; the broker may ask
     * again before that. False: no search is possible, and the lease ends.
     */
    bool (*seek_survivor)(void *userdata, const struct lease *lease);
    /*
     * The lease without a scope to whose job this process belongs, which NVML shows and the broker
     * does not know. 0: none, or not known.
     */
    uint64_t (*lease_of_process)(void *userdata, const struct process_id *process);
    /* Byte·seconds of the user within the quota's period, so far. NULL: 0. */
    uint64_t (*spent)(void *userdata, uid_t uid);
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
 * lost device keeps its page while a lease names it. `context_bytes`: what a context costs there,
 * 0: not known.
 */
int broker_device_set(struct broker *broker, const struct device *device, uint64_t context_bytes,
                      struct moment now);

/*
 * A sample of everything: charges become max(declared, seen); processes within a lease's cgroup are
 * its holders whether or not they attached, and so are, of a lease without one, its job's processes
 * (broker_sink.lease_of_process); all others are unmanaged; what was releasing and is no longer
 * shown is free. A device that could not be read keeps its numbers. Also feeds idleness.
 */
int broker_sample(struct broker *broker, const struct sample *sample, struct moment now);

/* Exactly this process has ended: whatever it held or waited for, and leases that it alone kept. */
void broker_process_gone(struct broker *broker, const struct process_id *process,
                         struct moment now);

/*
 * A process that a job left behind keeps the lease from now on; the caller tells its end by
 * broker_process_gone(). NULL: there is none, and the lease ends. Nothing happens to a lease that
 * has a holder again, or that has ended.
 */
void broker_inherit(struct broker *broker, uint64_t lease, const struct process_id *survivor,
                    struct moment now);

/* ---- Requests -------------------------------------------------------------------------------- */

/* The process that asks; all of it from the kernel. */
struct broker_peer {
    struct process_id process;
    uid_t uid;
    gid_t gid;
    const gid_t *gids; /* besides gid */
    size_t n_gids;
    bool is_admin; /* root, or of the administrators' group: may end others' leases */
};

/* What is asked. Texts and arrays are borrowed for the call; 0, NULL and UNITS_FOREVER: not given.
 */
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
     * The weakest enforcement that the job cannot have, and why; REQUIRE_NONE: it can have all. A
     * device that requires as much is not for it. Not part of what makes two requests the same one.
     */
    enum require cannot_have;
    const char *cannot_reason; /* a sentence's second half */
};

/*
 * Ask for a lease. GRANT: verdict->lease is there. WAIT: decided() comes later, with `cookie`;
 * where the same process asked the same in the daemon's last life it has its old place, or the
 * lease that was granted then and of which it did not hear. DENY.
 */
int broker_submit(struct broker *broker, const struct broker_peer *peer,
                  const struct request *request, void *cookie, struct moment now,
                  struct verdict *ret);

/* The grant has reached the client. */
void broker_answered(struct broker *broker, uint64_t lease);
/*
 * The client hung up before the grant reached it: the lease ends, unless a process holds it all the
 * same.
 */
void broker_unheard(struct broker *broker, uint64_t lease, struct moment now);

/* What broker_submit() would answer, and why. Nothing changes. */
#define EXPLANATION_LINES 24
struct explanation {
    struct verdict verdict;
    uint32_t n_devices;
    struct gpuid devices[BOOKS_SHARES_MAX]; /* chosen now, or those that it waits for */
    uint32_t n_details;
    char details[EXPLANATION_LINES][192];
};
int broker_explain(struct broker *broker, const struct broker_peer *peer,
                   const struct request *request, struct moment now, struct explanation *ret);

/* The client does not wait for this verdict any more. -ENOENT: it is decided already. */
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
    uint8_t token[RECORD_DIGEST_SIZE]; /* digest of what it showed: a lease made again keeps it */
    void *cookie; /* for notices; must live until broker_detach() or broker_process_gone() */
};

/*
 * Make the process a holder; GRANT or DENY, never WAIT. The caller has checked cgroup or token; the
 * uid is checked here. A process that is a holder already takes its place anew (the old cookie is
 * not used again). `held` of a process that was recorded before a restart, or is attached, may not
 * exceed what it has; of others it is judged like growth that cannot wait. After lost books
 * (broker_books_lost) an unknown lease is rebuilt from it, as far as the rules let this user have
 * it.
 */
int broker_attach(struct broker *broker, const struct broker_peer *peer,
                  const struct broker_attach *attach, struct moment now, struct verdict *ret);

/*
 * Its holder connection ended: what it held is releasing until NVML shows less. The lease ends with
 * its last process; with a scope, when that is empty.
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

/* The same for a reason of our own: the watch, health, an administrator's Kill. */
void broker_end(struct broker *broker, uint64_t lease, const char *reason, struct moment now);

/*
 * The lease has a scope now (or none: NULL), whose processes are its own, and these tiers in force.
 */
int broker_confined(struct broker *broker, uint64_t lease, const char *scope, const char *cgroup,
                    uint32_t tiers, struct moment now);

/* The enforcement that the lease must have, by the rules of now. */
enum require broker_require(const struct lease *lease);

/* Its cgroup is empty: the lease is gone. */
void broker_vacated(struct broker *broker, uint64_t lease, struct moment now);

/* ---- Time ------------------------------------------------------------------------------------ */

/* Run the queue: grants, timeouts, expiry, idle ladder, deadlocks, grace, places. */
int broker_turn(struct broker *broker, struct moment now);

/* When to call broker_turn() next though nothing happens; 0: at once; UINT64_MAX: no need. */
uint64_t broker_deadline(const struct broker *broker);

/* ---- Restart --------------------------------------------------------------------------------- */

/*
 * Take back what the daemon recorded before it restarted, in any order that has leases before their
 * holders; the same record twice changes nothing. Devices need not be there yet. -EBADMSG: it
 * contradicts what is there (the lease of a holder is missing); nothing changed.
 */
int broker_restore(struct broker *broker, const struct record *record, struct moment now);

/*
 * Records are missing: unknown leases are rebuilt from the processes that attach until the grace
 * ends.
 */
void broker_books_lost(struct broker *broker);

/*
 * Nothing is granted from now on but growth within what is guaranteed, until all recorded holders
 * are back or known to be gone, and `grace_usec` at most. Holders that are not back then are
 * detached, and places in the queue that no client came back for are given up.
 */
void broker_grace_begin(struct broker *broker, struct moment now);
uint64_t broker_grace_until(const struct broker *broker); /* 0: no grace */

/* All of it, as records: META apart, which is the caller's but for the ids. */
void broker_dump(const struct broker *broker,
                 void (*fn)(void *userdata, const struct record *record), void *userdata);
void broker_next_ids(const struct broker *broker, struct record_meta *ret); /* sets next_… only */

/* ---- Reading --------------------------------------------------------------------------------- */

struct lease *broker_lease(const struct broker *broker, uint64_t id); /* NULL: none */
/* The process that acquired it, while it lives and is no holder; NULL: none. */
const struct process_id *broker_owner(const struct lease *lease);
/* What this user calls `id`: after lost books that may be another lease. NULL: none of its own. */
const struct lease *broker_lease_called(const struct broker *broker, uint64_t id, uid_t uid);
struct holder *broker_holder(const struct broker *broker, const struct process_id *process,
                             uint64_t lease);
/*
 * What a process that declares everything it takes (it is attached, by guard or arenas) has
 * declared on a device, and how much of that it was told is for its context (0: not known, it
 * attached in an earlier life); false: there is none such.
 */
bool broker_declared(const struct broker *broker, const struct process_id *process,
                     const struct gpuid *device, uint64_t *ret, uint64_t *ret_context);
const struct book *broker_book(const struct broker *broker, const struct gpuid *device);

/* The lease to whose cgroup a path belongs; NULL: none. */
struct lease *broker_lease_of_cgroup(const struct broker *broker, const char *cgroup);

/* Walks, in the order in which they were made; start with a `pos` of 0; NULL at the end. */
const struct lease *broker_next_lease(const struct broker *broker, size_t *pos);
const struct book *broker_next_book(const struct broker *broker, size_t *pos);

/* One that waits, for status. Texts are borrowed until the next call of the broker. */
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
