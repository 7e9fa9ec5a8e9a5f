/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Internal: the inside of the broker, for its own files only.
 *
 *     broker.c        facts, lookups, the broker itself     queue/queue.c      the waiters in order
 *     user.c proc.c   holders and waiters               queue/schedule.c   which are served
 *     request.c       a request in bytes                    queue/fit.c        where a claim fits
 *     acquire.c       a request becomes a waiter or lease   queue/backfill.c   what may be passed
 *     explain.c       the same without doing it             queue/bankers.c    the banker's rule
 *     growth.c        grow, shrink, recall                  queue/deadlock.c   waits without end
 *     lease.c         leases begin and end                  attach.c           a process joins
 *     holder.c        processes in a lease                  recover.c          after a restart
 *     releasing.c     bytes of processes that ended         timers.c           what is due by time
 *     apply_sample.c  what NVML shows                       emit.c             records, events
 *     invariants.c    every sum, walked
 *
 * Leases, holders, waiters and releasing bytes are objects that are linked into all they concern
 * and unlink themselves when they are freed. Whatever changes bytes goes through the three calls
 * under "Bytes", which keep books, user and accounts together.
 */
#include "base/list.h"
#include "base/map.h"
#include "base/rank_tree.h"
#include "daemon/broker/broker.h"
#include "daemon/broker/request.h"

/* A process that holds, owns or waits. Freed when it does none of the three. */
struct proc {
    struct process_id process;
    struct list holders; /* of struct holder, by in_proc */
    struct list leases;  /* that it acquired, by in_owner */
    struct list waiters; /* by in_proc */
    struct list
        in_hold_wait; /* of broker.hold_wait: it holds and waits, so it may be in a deadlock */
    uint64_t mark;    /* of deadlock.c */
};

/* A user and the sums of all that it has. Freed when it has no lease and no waiter. */
struct user {
    uid_t uid;
    gid_t gid;
    gid_t *gids; /* owned; as of its last request */
    size_t n_gids;
    struct policy_rules rules; /* borrows from the policy */
    uint32_t n_leases, n_waiting;
    uint64_t charged_bytes;         /* Σ over its leases and their devices */
    uint64_t slot_bytes[BOOKS_MAX]; /* of it on each device */
    uint32_t slot_leases[BOOKS_MAX];
    uint32_t n_slots;    /* devices on which it has a lease */
    struct list waiters; /* all that wait, by in_user */
    struct list parked;  /* of them those that its own quota stops, by in_parked */
};

/* Why a waiter waits. */
enum why {
    WHY_DEVICE, /* not enough is free */
    WHY_BEHIND, /* enough is free, but kept for an earlier waiter */
    WHY_UNSAFE, /* the banker's rule */
    WHY_QUOTA,  /* its user's own leases; from here on the waiter keeps nothing back from others */
    WHY_HOURS,  /* hours of the devices */
    WHY_HEALTH, /* devices that are not ready */
    WHY_RECALL, /* siblings in the same lease were asked to give back */
    WHY_GRACE,  /* the daemon has just started */
};

struct waiter {
    uint64_t id, arrival;
    struct proc *proc;
    struct user *user;
    struct list in_proc, in_user;
    struct list in_parked;             /* of its user, or broker.asleep; not active then */
    struct list in_recalls;            /* of broker.recalls; not active then */
    struct rank_tree_node in_queue;    /* of broker.growths or broker.requests: every waiter */
    struct rank_tree_node in_timeouts; /* of broker.timeouts, if it has one */
    bool is_active; /* it competes for memory: its marks are the devices that it could use */
    uint64_t round; /* the last in which it was looked at for itself */
    void *cookie;
    struct verdict *answer; /* the caller is still there to hear it; NULL: through the sink */
    bool no_wait;
    bool is_recorded; /* there is a record of it */
    int32_t priority;
    uint64_t since_usec;
    uint64_t timeout_usec; /* 0: none */
    uint32_t told_place;
    enum why why, told_why;
    int blocked; /* slot that is short, -1: none to name */
    char name[RECORD_NAME_SIZE];
    char asked[160];
    char trouble[VERDICT_REASON_SIZE]; /* WHY_HEALTH: what is not ready */
    uint8_t digest[RECORD_DIGEST_SIZE];

    /* A new lease. */
    struct request *request; /* owned; NULL: growth */
    struct claim *claim;     /* owned; NULL while WHY_HEALTH */

    /* Growth. */
    struct holder *holder;
    unsigned share; /* of its lease */
    uint64_t bytes;
};

/* What a process held when it ended, until NVML no longer shows it. */
struct releasing {
    struct process_id process;
    uint64_t lease;
    uid_t uid;
    uint64_t since_usec;
    struct list in_broker;
    uint32_t n_parts;
    struct {
        struct book *book;
        uint64_t bytes;
    } parts[];
};

/* What NVML shows of a process without a known lease. */
struct unclaimed {
    struct process_id process;
    unsigned slot;
    uint64_t bytes;
};

/* A place in the queue from before a restart, for the client that asks the same again. */
struct recovered_waiter {
    struct record_waiter record;
    struct list in_broker;
};

/* A rebuilt lease whose number was taken: what its user calls it, and what it is. */
struct alias {
    uid_t uid;
    uint64_t called, lease;
    struct list in_broker;
};

/* A place in the queue; growth comes before all requests. */
struct queue_place {
    bool is_request;
    int64_t key;
    uint64_t tie;
};

/* Behind `place`, no waiter finds more than `room_bytes` on a device. */
struct room_bound {
    struct queue_place place;
    uint64_t room_bytes;
};

/* Marks of a waiter in the queue, behind those of the devices. */
#define MARKS       (BOOKS_MAX / 64) /* the word that they are in */
#define MARK_FRESH  UINT64_C(1)      /* to be looked at whatever its devices have */
#define MARK_UNSAFE UINT64_C(2)      /* only the banker's rule stands against it */

struct broker {
    const struct policy *policy; /* borrowed */
    struct broker_sink sink;

    struct book *books[BOOKS_MAX]; /* owned, by slot */
    size_t n_books;
    uint64_t base_bytes[BOOKS_MAX]; /* used, but of no process, while nothing was releasing */
    bool has_base[BOOKS_MAX];

    struct map leases;  /* by id */
    struct map procs;   /* by proc_key() */
    struct map users;   /* by uid */
    struct map waiters; /* by id */
    struct map cgroups; /* of leases, by path */
    struct list releasing, recovered, aliases;
    struct list asleep;    /* waiters for hours or health */
    struct list recalls;   /* waiters for siblings */
    struct list unheard;   /* leases, by in_unheard */
    struct list declared;  /* leases that declared a maximum, by in_declared */
    struct list hold_wait; /* procs, by in_hold_wait */
    uint64_t mark;         /* the last one given out, see bankers.c and deadlock.c */

    struct rank_tree_node *growths, *requests; /* the queue */
    uint32_t n_growths_at[BOOKS_MAX];          /* of them active, by slot */
    struct rank_tree_node *timeouts;           /* waiters by when they give up */
    struct slots dirty; /* devices of which more may be had than at the last round */
    struct room_bound bound[BOOKS_MAX]; /* what the last round found on those that are not dirty */
    struct schedule *schedule;          /* owned; see schedule.c */
    uint64_t n_rounds;
    bool is_bankers_due; /* charges or rooms changed: the banker's rule may say other now */
    bool has_spending;   /* a user's byte·seconds may be used up any moment */
    bool has_parked;     /* a quota parked a waiter during a round */

    uint64_t next_lease, next_waiter, next_arrival;
    uint64_t now_usec;           /* of the last call */
    uint16_t week_minute;        /* of the last turn */
    uint64_t grace_usec;         /* until; 0: none */
    uint32_t n_absent;           /* holders */
    bool is_lost;                /* broker_books_lost() */
    struct unclaimed *unclaimed; /* of the last sample, only while is_lost */
    size_t n_unclaimed, n_unclaimed_max;
    bool is_queue_due;         /* the queue must be looked at */
    bool is_moved;             /* places or reasons changed since they were told */
    bool is_deadlock_due;      /* a wait began, or bytes moved, since deadlocks were looked for */
    uint64_t next_expiry_usec; /* of a lease; UINT64_MAX: none; never too late */
    uint64_t next_sweep_usec;  /* places to be told, UINT64_MAX: none */
    uint32_t sweep_at;         /* place from which on */
    bool is_sweep_late;        /* a place changed behind its back: sweep again */
};

#define SWEEP_USEC UINT64_C(1000000) /* between two parts of a sweep */

/* ---- Processes, users, books, lookups ---- */

struct proc *proc_get(struct broker *broker, const struct process_id *process); /* NULL: ENOMEM */
struct proc *proc_find(const struct broker *broker, const struct process_id *process);
void proc_put(struct broker *broker, struct proc *proc); /* frees it if it is of no use */
/*
 * To be called when it began to own, hold or wait. `has_more`: other waiters may depend on it now.
 */
void proc_note_hold_wait(struct broker *broker, struct proc *proc, bool has_more);
struct user *user_get(struct broker *broker, uid_t uid, gid_t gid);
void user_put(struct broker *broker, struct user *user);
void user_judge(struct broker *broker, struct user *user); /* find its rules anew */
int user_set_groups(struct broker *broker, struct user *user, const struct broker_peer *peer);
struct book *broker_get_book(struct broker *broker,
                             const struct gpuid *id); /* -E2BIG, ENOMEM: NULL */
struct book *broker_find_book(const struct broker *broker, const struct gpuid *id);
struct lease *broker_lease_of_peer(const struct broker *broker, uint64_t id, uid_t uid);

/* ---- Bytes ---- */

/* Put a lease with its shares (entered nowhere yet) into these books, or take it out. */
void lease_enter(struct broker *broker, struct lease *lease, struct book *const *books);
void lease_leave(struct broker *broker, struct lease *lease);

/* From now on the process declares, and NVML shows of it, so much of a share. */
void holder_set(struct broker *broker, struct holder *holder, unsigned share,
                uint64_t declared_bytes, uint64_t seen_bytes);

/* ---- Leases, holders, releasing ---- */

/* The one reason to end that evicts no process: the user released it. */
#define LEASE_RELEASED "released by its user"

struct lease *lease_new(struct broker *broker, uint32_t n_shares); /* id and all else unset */
void lease_gone(struct broker *broker, struct lease *lease, const char *why);
struct holder *holder_new(struct broker *broker, struct lease *lease,
                          const struct process_id *process);
struct holder *holder_find(const struct lease *lease, const struct process_id *process);
void holder_gone(struct broker *broker, struct holder *holder, bool leaves_releasing);
void lease_end(struct broker *broker, struct lease *lease, const char *reason, bool evicts);
void lease_end_if_empty(struct broker *broker, struct lease *lease);
/* Its growth, as far as it waits for some, is refused. */
void holder_deny_growth(struct broker *broker, const struct holder *holder,
                        const struct lease *lease, const char *why);
struct releasing *releasing_new(uint32_t n_parts); /* room for so many; NULL: no memory */
/* Of a process by a lease; its record stands under the same key as that of a living holder. */
struct releasing *releasing_find(const struct broker *broker, uint64_t lease,
                                 const struct process_id *process);
void releasing_enter(struct broker *broker, struct releasing *releasing); /* its parts are set */
void releasing_free(struct broker *broker,
                    struct releasing *releasing); /* accepts NULL; out of the books too */
/* One struct releasing for a process and lease: takes over what `former` has, and frees it. */
void releasing_merge(struct broker *broker, struct releasing *releasing, struct releasing *former);
void releasing_lower(struct broker *broker, struct releasing *releasing, uint32_t part,
                     uint64_t bytes);

/* ---- Waiters (queue.c) ---- */

/* Into the queue; its claim, or its growth, is set. */
int queue_enter(struct broker *broker, struct waiter *waiter);
void queue_leave(struct broker *broker, struct waiter *waiter);  /* out of everything */
void queue_rejoin(struct broker *broker, struct waiter *waiter); /* the queue, after a recall */
uint32_t queue_position(const struct broker *broker, const struct waiter *waiter);
void acquire_reason(const struct broker *broker, const struct waiter *waiter, char *text,
                    size_t size);

/* Its verdict is there: tells, notes, frees. `verdict` may be the waiter's own answer. */
void queue_answer(struct broker *broker, struct waiter *waiter, const struct verdict *verdict);
void queue_deny(struct broker *broker, struct waiter *waiter, enum refusal refusal,
                const struct book *book, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Waiters that the user's quota stopped compete again; so do all that sleep. */
void queue_unpark_user(struct broker *broker, struct user *user);
void queue_wake(struct broker *broker);

/* The user has more than before: its waiters that are over the quota now keep nothing back. */
void queue_settle_user(struct broker *broker, struct user *user);

/* Its own user, hours or health stop it: it leaves the competition. `why` is set. */
void queue_park(struct broker *broker, struct waiter *waiter);

/* It is to be looked at in the next round, whatever happened to its devices. */
void queue_refresh(struct broker *broker, struct waiter *waiter);
struct queue_place queue_place_of(const struct waiter *waiter);
bool queue_place_before(struct queue_place a, struct queue_place b);

/* More may be had of a device than before; of every device. */
void queue_touch(struct broker *broker, unsigned slot);
void queue_touch_all(struct broker *broker);

/* Bytes changed hands: a waiter that only the banker's rule stops may be met now. */
void queue_note_bankers(struct broker *broker);
/* The user has less than before. */
void queue_note_freed(struct broker *broker, struct user *user);

/* Every claim anew: devices or rules changed. */
int queue_review(struct broker *broker);

/* The priority of its lease changed. */
void queue_reorder(struct broker *broker, struct waiter *waiter, int32_t priority);

/* The place in the order of a waiter that comes now. */
int64_t queue_key(const struct broker *broker, uint64_t since_usec, int32_t priority);

/* What a waiter with this key and claim would find on each device of it, as the queue stands. */
void schedule_left(struct broker *broker, int64_t key, const struct claim *claim,
                   uint64_t ret_left[static BOOKS_MAX]);

/* Grant whatever can be granted (schedule.c). */
void schedule_run(struct broker *broker, struct moment now);
struct schedule *schedule_new(void); /* for free(); NULL: no memory */

/* What stands in the way of a claim, or where it would go; nothing is granted (fit.c). */
struct fit {
    enum why why;
    int blocked;   /* slot */
    bool is_spent; /* the user's byte·seconds are used up: deny */
    uint16_t until_minute;
    uint32_t n_chosen; /* 0: it does not fit */
    const struct option *chosen[BOOKS_SHARES_MAX];
    char how[192];
};
void fit_decide(struct broker *broker, const struct user *user, const struct claim *claim,
                const uint64_t free_bytes[static BOOKS_MAX], struct moment now, struct fit *ret);
/* Whether hours and quotas leave it enough devices now, whatever is free; if not, why. */
bool fit_is_permitted(const struct broker *broker, const struct user *user,
                      const struct claim *claim, struct moment now, struct fit *ret);
/* Whether the user's share of a device has room for so much more. */
bool fit_quota_leaves(const struct user *user, const struct book *book, uint64_t bytes);
/* Whether the user's number of devices is enough for the claim. */
bool fit_quota_reaches(const struct user *user, const struct claim *claim);

/* ---- Growth (growth.c) ---- */

struct growth_fit {
    bool fits;
    enum why why;        /* it does not */
    bool is_over_limit;  /* of the lease */
    bool is_spent;       /* the user's byte·seconds are used up */
    uint64_t rise_bytes; /* of the lease's charge */
};
void growth_fit(struct broker *broker, const struct holder *holder, unsigned share, uint64_t bytes,
                uint64_t free_bytes, struct growth_fit *ret);
void growth_take(struct broker *broker, struct holder *holder, unsigned share, uint64_t bytes,
                 struct verdict *ret);
uint64_t growth_rise(const struct waiter *waiter); /* of the lease's charge, were it granted */

/* A sibling gave back, or said that it cannot: try the waiters of the same lease again. */
void growth_retry_siblings(struct broker *broker, struct lease *lease, unsigned share);

/* ---- Grants (acquire.c) ---- */

/* Take the place that the same process had before a restart, if it asks the same. */
bool acquire_recovered_place(struct broker *broker, struct waiter *waiter);

/* What no wait would change; 0, or < 0 with a verdict that denies, or -ENOMEM. */
int acquire_judge(const struct broker *broker, const struct user *user,
                  const struct request *request, struct claim **ret_claim, struct verdict *ret);
int acquire_grant(struct broker *broker, struct waiter *waiter, const struct fit *fit,
                  struct verdict *ret);

/* ---- The two rules against deadlock ---- */

/* Whether the lease could still reach its maximum, were its charge so much higher (bankers.c). */
bool bankers_keeps(struct broker *broker, const struct lease *lease, unsigned share,
                   uint64_t rise_bytes);
/* The same for a lease that is not there yet. */
bool bankers_admits(struct broker *broker, const struct option *const *options, uint32_t n_options);

/* Waits that can never end: each gets its victim (deadlock.c). */
void deadlock_resolve(struct broker *broker);

/* ---- Keeping (emit.c) ---- */
void emit_lease(struct broker *broker, const struct lease *lease);
void emit_lease_gone(struct broker *broker, uint64_t lease);
void emit_holder(struct broker *broker, const struct holder *holder);
void emit_holder_gone(struct broker *broker, uint64_t lease, const struct process_id *process);
void emit_owner(struct broker *broker, const struct lease *lease); /* as a holder of nothing */
void emit_releasing(struct broker *broker, const struct releasing *releasing);
void emit_waiter(struct broker *broker, const struct waiter *waiter);
void emit_waiter_gone(struct broker *broker, uint64_t waiter);

void emit_notice(struct broker *broker, const struct lease *lease, enum notice_kind kind,
                 const struct gpuid *device, const char *text);
void emit_event(struct broker *broker, const char *kind, const struct lease *lease, pid_t pid,
                const struct gpuid *device, const char *format, ...)
    __attribute__((format(printf, 6, 7)));
/* The lease's charge on a device changed; `has_left`: it is none any more. */
void emit_charge(struct broker *broker, const struct lease *lease, const struct share *share,
                 bool has_left);
void emit_cancelled(struct broker *broker, const struct waiter *waiter);
void emit_verdict(struct broker *broker, const struct user *user, pid_t pid, bool is_growth,
                  const struct verdict *verdict, uint64_t waited_usec);
