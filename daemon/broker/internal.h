/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Internal: the inside of the broker, for its own files only.
 *
 *     broker.c        facts, lookups, the broker itself     queue/queue.c      the waiters in order
 *     user.c proc.c   holders and waiters               queue/schedule.c   which are served
 *     request.c       a request in bytes                    queue/fit.c        where a claim fits
 *     acquire.c       a request becomes a waiter            queue/backfill.c   what may be passed
 *     grant.c         what is granted: books, records       queue/bankers.c    the banker's rule
 *     explain.c       what a request would get              queue/deadlock.c   waits without end
 *     growth.c        grow, shrink, recall                  attach.c           a process joins
 *     lease.c         leases begin and end                  recover.c          after a restart
 *     holder.c        processes in a lease                  timers.c           what is due by time
 *     releasing.c     bytes of processes that ended         emit.c             records, events
 *     apply_sample.c  what NVML shows                       invariants.c       every sum, walked
 *                                                           queue/reservation.c what a waiter keeps
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
    uint64_t spent_byte_seconds;         /* as it was last told */
    uint64_t charged_bytes;              /* Σ over its leases and their devices */
    uint64_t slot_bytes[BOOKS_MAX];      /* of it on each device */
    uint64_t unmanaged_bytes[BOOKS_MAX]; /* of its processes without a lease, by the last sample */
    bool has_unmanaged;
    uint32_t slot_leases[BOOKS_MAX];
    uint32_t n_slots;    /* devices on which it has a lease */
    struct list waiters; /* all that wait, by in_user */
    struct list parked;  /* the waiters that its own quota stops, by in_parked */
};

/* Why a waiter waits. */
enum wait_reason {
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
    uint64_t cycle; /* the last cycle in which it was considered for itself */
    void *cookie;
    bool is_asking; /* the call that brought it returns its verdict; else the sink has it */
    bool no_wait;
    bool is_recorded; /* there is a record of it */
    int32_t priority;
    uint64_t since_usec;
    uint64_t timeout_usec; /* 0: none */
    uint32_t told_place;
    enum wait_reason why, told_why;
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
    bool has_uid;
    uid_t uid; /* of the user that it counts for */
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

/* Behind `place`, no waiter can have more than `room_bytes` on a device. */
struct room_bound {
    struct queue_place place;
    uint64_t room_bytes;
};

/* Marks of a waiter in the queue, behind those of the devices. */
#define MARKS       (BOOKS_MAX / 64) /* the word that they are in */
#define MARK_FRESH  UINT64_C(1)      /* consider it whatever its devices have */
#define MARK_UNSAFE UINT64_C(2)      /* only the banker's rule stops it */

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
    uint32_t n_growths_at[BOOKS_MAX];          /* active waiters for growth, by slot */
    struct rank_tree_node *timeouts;           /* waiters by when they give up */
    struct slots dirty; /* devices of which more may be had than at the last cycle */
    struct room_bound bound[BOOKS_MAX]; /* what the last cycle found on those that are not dirty */
    struct schedule *schedule;          /* owned; see schedule.c */
    uint64_t n_cycles;
    bool is_bankers_due; /* charges or free bytes changed: the banker's rule may decide differently
                            now */
    bool has_spending;   /* a user's byte·seconds may be used up any moment */
    bool has_parked;     /* a waiter ceased to reserve during a cycle, because of its own user */

    uint64_t next_lease, next_waiter, next_arrival;
    uint64_t now_usec;           /* of the last call */
    uint16_t week_minute;        /* of the last turn */
    uint64_t grace_usec;         /* until; 0: none */
    uint32_t n_absent;           /* holders */
    bool is_lost;                /* broker_books_lost() */
    struct unclaimed *unclaimed; /* of the last sample */
    size_t n_unclaimed, n_unclaimed_max;
    bool can_search;            /* broker_search_as() */
    uid_t search_uid;           /* 0: for the processes of every user */
    bool is_queue_due;          /* the queue must be looked at */
    bool is_moved;              /* places or reasons changed since they were told */
    bool is_deadlock_due;       /* a wait began, or bytes moved, since deadlocks were looked for */
    uint64_t next_expiry_usec;  /* of a lease; UINT64_MAX: none; never too late */
    uint64_t next_sweep_usec;   /* when waiters are next told their places; UINT64_MAX: never */
    uint64_t next_reserve_usec; /* when a waiter begins or stops to reserve; UINT64_MAX: never */
    uint32_t sweep_at;          /* the place from which that sweep goes on */
    bool is_sweep_late;         /* a place changed behind its back: sweep again */
};

#define SWEEP_USEC UINT64_C(1000000) /* between two parts of a sweep */

/* Whether waits may have become a deadlock: only a process that holds and waits can be in one. */
static inline bool broker_is_deadlock_due(const struct broker *broker) {
    return broker->is_deadlock_due && !list_is_empty(&broker->hold_wait);
}

/* ---- Processes, users, books, lookups ---- */

struct proc *proc_get(struct broker *broker, const struct process_id *process); /* NULL: ENOMEM */
struct proc *proc_find(const struct broker *broker, const struct process_id *process);
void proc_put(struct broker *broker, struct proc *proc); /* frees it if it is of no use */
/*
 * Call when it began to own, hold or wait. `has_more`: other waiters may depend on it now.
 */
void proc_note_hold_wait(struct broker *broker, struct proc *proc, bool has_more);
struct user *user_get(struct broker *broker, uid_t uid, gid_t gid);
void user_put(struct broker *broker, struct user *user);
void user_judge(struct broker *broker, struct user *user); /* find its rules anew */
/* Add what the last sample showed of its processes without a lease. */
void user_count_unmanaged(const struct broker *broker, struct user *user);
/* What the peer says of it: its groups, with the rules of these, and what it spent. */
int user_set_peer(struct broker *broker, struct user *user, const struct broker_peer *peer);
bool user_is_spent(const struct user *user); /* its byte·seconds are used up */
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

/* Among the leases, and in no book yet: mode, priority and shares are to be set. NULL: ENOMEM. */
struct lease *lease_new(struct broker *broker, uint64_t id, struct user *user, uint32_t n_shares);
/* From now on, for so long at most; this process keeps it. */
void lease_begin(struct broker *broker, struct lease *lease, struct proc *owner,
                 uint64_t life_usec);
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
/* Merge into one struct releasing per process and lease: takes over what `former` has, and frees
 * it. */
void releasing_merge(struct broker *broker, struct releasing *releasing, struct releasing *former);
void releasing_lower(struct broker *broker, struct releasing *releasing, uint32_t part,
                     uint64_t bytes);

/* ---- Waiters (queue.c) ---- */

/*
 * Into the queue, and out of it again where it is decided now, or may not wait. Its claim, or its
 * growth, is set. -ENOMEM: it is freed.
 */
int queue_submit(struct broker *broker, struct waiter *waiter, struct moment now,
                 struct verdict *ret);
void queue_leave(struct broker *broker, struct waiter *waiter);  /* leaves every list */
void queue_rejoin(struct broker *broker, struct waiter *waiter); /* the queue, after a recall */
uint32_t queue_position(const struct broker *broker, const struct waiter *waiter);
void acquire_reason(const struct broker *broker, const struct waiter *waiter, char *text,
                    size_t size);

/*
 * The waiter has its verdict: record that, and free the waiter. True if the call that made the
 * waiter still runs, and returns the verdict; otherwise the sink was told.
 */
bool queue_answer(struct broker *broker, struct waiter *waiter, const struct verdict *verdict);
/* The same for a waiter whose call has returned. */
void queue_deny(struct broker *broker, struct waiter *waiter, enum refusal refusal,
                const struct book *book, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Waiters that the user's quota stopped compete again; so do all that wait for hours or health. */
void queue_unpark_user(struct broker *broker, struct user *user);
void queue_wake(struct broker *broker);

/* The user has more than before: its waiters that are over the quota now reserve nothing. */
void queue_settle_user(struct broker *broker, struct user *user);

/* Its own user, hours or health stop it: it no longer competes. `why` is set. */
void queue_park(struct broker *broker, struct waiter *waiter);

/* Consider it in the next cycle, whatever happened to its devices. */
void queue_refresh(struct broker *broker, struct waiter *waiter);
struct queue_place queue_place_of(const struct waiter *waiter);
bool queue_place_before(struct queue_place a, struct queue_place b);

/* A device, or every device, may have more to give than before. */
void queue_touch(struct broker *broker, unsigned slot);
void queue_touch_all(struct broker *broker);

/* Bytes changed hands: a waiter that only the banker's rule stops may be served now. */
void queue_note_bankers(struct broker *broker);
/* The user has less than before. */
void queue_note_freed(struct broker *broker, struct user *user);

/* Measure every claim again: devices or rules changed. */
int queue_review(struct broker *broker);

/* The priority of its lease changed. */
void queue_reorder(struct broker *broker, struct waiter *waiter, int32_t priority);

/* The key in the order of a waiter that comes now. */
int64_t queue_key(const struct broker *broker, uint64_t since_usec, int32_t priority);

/* ---- Reservations (reservation.c) ---- */

/*
 * What a waiter that does not fit keeps back from a user on a device; false: nothing, now. `from`
 * NULL: from all other users.
 */
bool reservation_find(const struct broker *broker, const struct waiter *waiter, unsigned slot,
                      const struct user *from, uint64_t *ret);
/* Whether a waiter before this place keeps something back there from its own user alone. */
bool reservation_is_private(const struct broker *broker, const struct user *user, unsigned slot,
                            struct queue_place before);
void reservation_begin(struct broker *broker, const struct waiter *waiter); /* it begins to wait */
/* The user has more on a device than before: its waiters may reserve nothing any more. */
void reservation_note_taken(struct broker *broker, const struct user *user, unsigned slot);
void reservation_run(struct broker *broker); /* what is due by time */

/* ---- Schedule (schedule.c) ---- */

/* What a waiter of this user with this key and claim would find on each of its devices, with the
 * queue as it is. */
void schedule_left(struct broker *broker, const struct user *user, int64_t key,
                   const struct claim *claim, uint64_t ret_left[static BOOKS_MAX]);

/*
 * Grant whatever can be granted (schedule.c). `ret`: the verdict of the waiter that is asking,
 * where it has one now; else untouched. NULL where none is asking.
 */
void schedule_run(struct broker *broker, struct moment now, struct verdict *ret);
struct schedule *schedule_new(void); /* for free(); NULL: no memory */

/* What stops a claim, or where it would go; nothing is granted (fit.c). */
struct fit {
    enum wait_reason why;
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
    enum wait_reason why; /* it does not */
    bool is_over_limit;   /* of the lease */
    bool is_spent;        /* the user's byte·seconds are used up */
    uint64_t rise_bytes;  /* of the lease's charge */
};
void growth_fit(struct broker *broker, const struct holder *holder, unsigned share, uint64_t bytes,
                uint64_t free_bytes, struct growth_fit *ret);
uint64_t growth_rise(const struct waiter *waiter); /* of the lease's charge, were it granted */

/* Another process gave back, or said that it cannot: try the waiters of the same lease again. */
void growth_retry_siblings(struct broker *broker, struct lease *lease, unsigned share);

/* ---- Grants (grant.c) ---- */

struct grant {
    struct lease *lease;
    const struct waiter *waiter;    /* that asked for it; NULL: none */
    struct book *const *books;      /* of the shares of a lease that is in none yet; NULL */
    pid_t rebuilt_by;               /* the process from whose memory it is rebuilt; 0: it is not */
    struct holder *holder;          /* whose bytes they are; NULL: no process's yet */
    unsigned first, n_declared;     /* shares of which it declares from now on … */
    const uint64_t *declared_bytes; /* … so much; one for each of n_declared */
};

/* Grant the lease that `waiter` asked for, on the devices of `fit`. -ENOMEM: nothing happened. */
int grant_request(struct broker *broker, const struct waiter *waiter, const struct fit *fit,
                  struct verdict *ret);
/* Grant growth that fits, to `waiter`, or at once where it is NULL. */
void grant_growth(struct broker *broker, struct holder *holder, unsigned share, uint64_t bytes,
                  const struct waiter *waiter, struct verdict *ret);
/*
 * The daemon ended between the record of a grant and its reply: a client that asks the same again
 * gets that lease. False: there is none.
 */
bool grant_again(struct broker *broker, const struct broker_peer *peer,
                 const struct request *request, struct verdict *ret);
/* A lease that was made from what this process holds. */
void grant_rebuilt(struct broker *broker, struct lease *lease, struct book *const *books, pid_t pid,
                   struct verdict *ret);
/* Charge what a process that attaches has declared of each share; NULL: what it had before. */
void grant_attached(struct broker *broker, struct holder *holder, const uint64_t *declared_bytes,
                    struct verdict *ret);

/* ---- Requests (acquire.c) ---- */

/* Take the place that the same process had before a restart, if it asks the same. */
bool acquire_recovered_place(struct broker *broker, struct waiter *waiter);

/* What waiting would not change; 0, or < 0 with a verdict that denies, or -ENOMEM. */
int acquire_judge(const struct broker *broker, const struct user *user,
                  const struct request *request, struct claim **ret_claim, struct verdict *ret);

/* ---- The two rules against deadlock ---- */

/* Whether the lease could still reach its maximum if its charge were this much higher
 * (bankers.c). */
bool bankers_keeps(struct broker *broker, const struct lease *lease, unsigned share,
                   uint64_t rise_bytes);
/* The same for a lease that is not there yet. */
bool bankers_admits(struct broker *broker, const struct option *const *options, uint32_t n_options);

/*
 * Find waits that can never end, and give up one wait of each deadlock (deadlock.c). `ret` as of
 * schedule_run().
 */
void deadlock_resolve(struct broker *broker, struct verdict *ret);

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
void emit_charges(struct broker *broker, const struct lease *lease); /* on each of its devices */
/* Its charges, its records, and what is told of it. */
void emit_grant(struct broker *broker, const struct grant *grant, const struct verdict *verdict);
void emit_cancelled(struct broker *broker, const struct waiter *waiter);
void emit_verdict(struct broker *broker, const struct user *user, pid_t pid, bool is_growth,
                  const struct verdict *verdict, uint64_t waited_usec);
