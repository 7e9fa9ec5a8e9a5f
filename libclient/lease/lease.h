/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Lease, inside: its connections and its threads.
 *
 * There are two kinds of connections. The *holder connection* stands for the process: a thread of
 * its own (holder.c) waits on it for notices, and reconnects after the daemon was away. *Calls*
 * (call.c) go over other connections, one per thread that is in a call, kept for the next call: a
 * growth that waits must not block a shrink.
 *
 * The process counts what it holds here, because after a restart the daemon compares its records
 * with our count. For the count to be exact, no call may be under way when it is sent:
 *
 *     ATTACHED ──connection lost──▶ AWAY: calls are interrupted, new ones wait
 *         ▲                           │ none under way any more
 *         └──── Attach(held) ◀────────┘           ENDED: the lease is gone, for good
 *
 * A grow counts when its answer has arrived; if the answer was lost, our count takes the bytes back
 * and the grow is asked again. A shrink counts before it is sent: the bytes are free already,
 * whatever becomes of the call. While the daemon is away a shrink only counts; if a count is on its
 * way to the daemon, a new one follows.
 *
 * Where the guard is in the process and the lease is the job's, the guard is the holder: the lease
 * is *registered* there (via_guard.c) instead of a holder connection and a thread, and is always
 * ATTACHED.
 */
#include <pthread.h>
#include <sys/types.h>

#include "base/cleanup.h"
#include "base/list.h"
#include "libclient/allot/charger.h"
#include "libclient/allot/lease.h"
#include "libclient/core/wait.h"
#include "libclient/lease/lease_event.h"
#include "wire/client.h"

enum lease_state { LEASE_AWAY, LEASE_ATTACHED, LEASE_ENDED };

struct lease_variable {
    char *name;
    char *value;
};

struct allot_lease {
    /* Never changed once it is built. */
    uint64_t id;
    char *token; /* NULL: none */
    char *path;  /* of the socket */
    struct lease_variable *environment;
    size_t n_environment;
    struct allot_lease_options
        options; /* its texts and arrays belonged to the caller: do not use them */

    const struct allot_charger *charger; /* NULL: this lease holds by itself */
    void *registration;                  /* with it */

    pid_t pid; /* the process that holds; in any other this is a copy left by fork() */

    pthread_mutex_t lock; /* all below */
    pthread_cond_t changed;
    enum lease_state state;
    struct allot_error why; /* ENDED: why it ended; AWAY: the error of the last attempt */
    struct allot_lease_share *shares;
    size_t n_shares;
    unsigned n_calls;  /* under way */
    struct list calls; /* struct lease_call: idle connections, and how many */
    unsigned n_idle;
    bool stop;
    bool again;         /* it was attached before: send the count of held bytes */
    bool telling;       /* the count of held bytes is on its way */
    bool changed_since; /* and is outdated: it has to be sent again */
    bool silent;        /* AWAY because the daemon does not answer; else it is gone */

    /* Owned by the thread while it runs. */
    struct client *holder;
    pthread_t thread;
    bool has_thread;
    struct lease_event wake;      /* look at `stop` and `state` */
    struct lease_event interrupt; /* raised while calls are to give up */
    struct lease_event there;     /* raised while the state is not AWAY */
};

/* ---- lease.c -------------------------------------------------------------------------------- */

/* Locked. Wakes callers that wait for a lease that is AWAY. */
void lease_set_state(struct allot_lease *lease, enum lease_state state);

/* An empty lease that will connect to `socket` (NULL: the default). */
int lease_new(struct allot_lease **ret, const struct allot_lease_options *options,
              struct allot_error *err);
DEFINE_FREEP(struct allot_lease, lease_freep, allot_lease_free)

/* Copy the caller's struct, which begins with its size, over ours. -EINVAL */
int lease_struct_take(void *ret, size_t size, const void *given, size_t given_size,
                      struct allot_error *err);

/* The caller's options in this library's version of the struct, whatever version the caller was
 * compiled with. */
int lease_options_take(struct allot_lease_options *ret, const struct allot_lease_options *given,
                       struct allot_error *err);

/* -ECHILD in a child that has not attached itself; -EINVAL for NULL. */
int lease_check_process(const struct allot_lease *lease, struct allot_error *err);

/* The share that is meant; -ENODEV, -EINVAL. Locked. */
int lease_find_share(struct allot_lease *lease, const char *device, struct allot_lease_share **ret,
                     struct allot_error *err);

/* ---- grow.c --------------------------------------------------------------------------------- */

/*
 * As allot_lease_grow_with(): waits for memory, and for the daemon, as the limits of `wait` say,
 * but not longer than until its deadline.
 */
int lease_grow(struct allot_lease *lease, const char *device, uint64_t bytes, struct wait *wait,
               struct allot_error *err);

/*
 * As allot_lease_shrink(). Waits for an answer as long as `hangs_usec` of the limits says, and only
 * a moment once the descriptor of `wait` is readable, unless `go_on`. 0: the bytes are given back,
 * even if the daemon learns of it later or the lease has ended; else the process still holds them
 * and can give them back later.
 */
int lease_shrink(struct allot_lease *lease, const char *device, uint64_t bytes, struct wait *wait,
                 struct allot_error *err);

/* allot_lease_release(), but without waiting for a daemon that is away, and only briefly for one
 * that hangs. */
int lease_release_at_once(struct allot_lease *lease, struct allot_error *err);

/* ---- holder.c ------------------------------------------------------------------------------- */

/* Attach, take the shares over, and start the thread. Waits for a daemon that is away, or hangs. */
int lease_hold(struct allot_lease *lease, struct wait *wait, struct allot_error *err);

/* End the thread and the holder connection. */
void lease_let_go(struct allot_lease *lease);

/* The connection to the daemon broke, or the daemon does not answer (`silent`): attach again. With
 * the lock held. */
void lease_suspect(struct allot_lease *lease, bool silent);

/* ---- via_guard.c ---------------------------------------------------------------------------- */

/* The guard of this process if it charges what `lease` asks for; else NULL. */
const struct allot_charger *via_guard_charger(const struct allot_lease *lease);

/* Register the lease with it and take over the shares; nothing is declared yet. */
int via_guard_hold(struct allot_lease *lease, const struct allot_charger *charger,
                   struct allot_error *err);
/* Give back all that was declared, and leave. */
void via_guard_let_go(struct allot_lease *lease);

/* Grow and Shrink, counted by the caller. */
int via_guard_call(struct allot_lease *lease, enum wire_method method, const void *parameters,
                   const struct wait *wait, union wire_reply *ret, struct allot_error *err);

/* ---- call.c --------------------------------------------------------------------------------- */

/* A daemon that does not answer for this long counts as hung, unless the caller sets another limit:
 * the process attaches to the lease again, and until the daemon answers that, it counts as away. */
#define LEASE_HANGS_USEC UINT64_C(2000000)

/* For a call that does not wait in the queue. */
struct wait lease_wait_begin(const struct allot_lease *lease);

/*
 * Call a method for this process as soon as it is attached, and update the count after Grow and
 * Shrink. -ERESTART: the daemon went away during the call, and the outcome is not known. The daemon
 * will adopt our count, so the caller must repeat a Grow, while a Shrink is done. -ECANCELED: the
 * wait's descriptor cancelled the call, and the Grow was not done.
 */
int lease_call(struct allot_lease *lease, enum wire_method method, const void *parameters,
               struct wait *wait, union wire_reply *ret, struct allot_error *err);

/* Set the error for a daemon that was not back in time: -ENOTCONN. Locked. */
int lease_away(struct allot_lease *lease, struct allot_error *err);

void lease_calls_free(struct allot_lease *lease);    /* the idle connections */
void lease_calls_abandon(struct allot_lease *lease); /* the same in a child */

/* ---- liveness.c ----------------------------------------------------------------------------- */

/* Report once through `wait` that the daemon is away, or hangs (`silent`), and that the call waits
 * for it. */
void lease_tell_away(const char *path, bool silent, struct wait *wait);

/* Connect; if the daemon is away, wait until it is back. -ENOTCONN, -ECANCELED, and errors that
 * waiting cannot fix. */
int lease_reach(struct client *client, struct wait *wait, struct allot_error *err);

/* As client_receive(), for the first answer to a call. A daemon that gives none for
 * LEASE_HANGS_USEC hangs: that is reported, and the call waits for it as for one that is away; then
 * -ENOTCONN, and the connection is still open. */
int lease_first_answer(struct client *client, enum wire_method method, struct wait *wait,
                       union wire_reply *ret, struct failure *failure, struct allot_error *err);

/* Whether a daemon listens at `socket` (NULL: the default), even one that hangs. */
bool lease_daemon_is_there(const char *socket);
