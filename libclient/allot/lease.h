/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ALLOT_LEASE_H
#define ALLOT_LEASE_H
/*
 * A lease of GPU memory, from the side of the process that holds it.
 *
 *     struct allot_lease_options options = ALLOT_LEASE_OPTIONS_INIT;
 *     struct allot_lease *lease;
 *     struct allot_error err;
 *
 *     options.gpus = 1;
 *     options.amount.mode = ALLOT_LEASE_FRACTION;
 *     options.amount.permyriad = 4000;
 *     if (allot_lease_acquire(&lease, &options, &err) < 0)
 *         fprintf(stderr, "%s\n", err.text);
 *     …
 *     allot_lease_free(lease);
 *
 * Any thread may call every function except allot_lease_free() at any time. None aborts, raises a
 * signal or prints. Each returns 0 or -errno, with a message in `err` (NULL: not wanted):
 *
 *     -ENOSPC     the device or the lease does not have that much left
 *     -EACCES     policy refuses it             -ETIMEDOUT  waited long enough
 *     -ENODEV     no such device                -EDEADLK    the wait would never end
 *     -ENOENT     no such lease, or it ended    -ECANCELED  by cancel_fd
 *     -ESHUTDOWN  the device is being drained   -ENOTCONN   no daemon, or it did not come back,
 *                                                           or does not answer
 *     -ECHILD     this process is a fork of the holder and has not attached itself yet
 *     -EINVAL     the arguments make no sense together
 *     -EBUSY      too many requests at once, or nothing can be granted now: try again later; where
 *                 the daemon says when, the library does so itself, within `timeout_usec`
 *
 * The daemon may be restarted at any time: the library then attaches the process again with the
 * bytes it holds, and calls wait for that for at most `reconnect_usec`. A growth that may wait for
 * memory also waits for the daemon, but no longer than for the memory; giving back does not wait.
 * Only the first connection of allot_lease_acquire() fails at once if there is no daemon.
 *
 * The library takes a daemon that does not answer for 2 s to be hung, and treats it as away until
 * it answers. For a lease request, a place in the queue is an answer. After that, the library
 * cannot tell a hung daemon from a queue that does not move: it notices when the connection ends,
 * as it does when systemd replaces a hung daemon, or 2 s after `timeout_usec`.
 *
 * Each byte is charged once. In a job that `gpuctl run` started, use allot_lease_attach(): if the
 * guard is in the process, it charges what the driver allocates, and a growth here reserves the
 * bytes with the guard, which does not charge them again when they are allocated. A lease acquired
 * in such a job is a separate lease, and the guard knows nothing about it.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "error.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct allot_lease;

enum allot_lease_mode {
    ALLOT_LEASE_DEFAULT = 0, /* what the administrator set for this user */
    ALLOT_LEASE_FRACTION,    /* permyriad of each device */
    ALLOT_LEASE_GROW,        /* min_bytes guaranteed, up to max_bytes or permyriad */
    ALLOT_LEASE_FIXED,       /* bytes */
    ALLOT_LEASE_EXCLUSIVE,   /* all of each device */
};

/* A number that is 0 counts as not given. */
struct allot_lease_amount {
    enum allot_lease_mode mode;
    uint32_t permyriad; /* 1/10000: 4000 is 0.4 */
    uint64_t bytes;
    uint64_t min_bytes;
    uint64_t max_bytes;
};

enum allot_lease_choose {
    ALLOT_LEASE_CHOOSE_DEFAULT = 0,
    ALLOT_LEASE_PACK,   /* devices that are in use already */
    ALLOT_LEASE_SPREAD, /* those with the most room */
    ALLOT_LEASE_LINKS,  /* those joined best to each other */
};

/* Progress of a request that waits. `place` is 1 for the next in the queue, and 0 if there is no
 * queue, for example because the daemon is away; `reason` says what the request waits for. The
 * waiting thread calls it at each change. */
typedef void (*allot_lease_progress_fn)(void *userdata, uint64_t place, const char *reason);

enum allot_lease_event {
    ALLOT_LEASE_RECALL = 1, /* give back `bytes` of `device` if you can: other leases need them */
    ALLOT_LEASE_IDLE,       /* the lease holds memory and computes nothing: it will be reclaimed */
    ALLOT_LEASE_OVER,       /* the job uses more than the lease allows */
    ALLOT_LEASE_DRAINING,   /* the administrator is taking the device out of service */
    ALLOT_LEASE_ENDING,     /* the lease ends: free what you hold */
    ALLOT_LEASE_LOST,       /* the device is gone, or the lease with all its memory */
};

struct allot_lease_notice {
    enum allot_lease_event event;
    const char *device; /* UUID; NULL: all of the lease */
    uint64_t bytes;     /* of a recall; else 0 */
    const char *text;   /* for people */
};

/*
 * A thread of the library calls this when something happens to the lease: one notice at a time,
 * none before acquire or attach has begun and none after allot_lease_free() has returned. The
 * function may call everything except allot_lease_free() of this lease.
 */
typedef void (*allot_lease_notice_fn)(void *userdata, const struct allot_lease_notice *notice);

/* Zero, or NULL, is the default of everything but `size` and `cancel_fd`: use the initialiser. */
struct allot_lease_options {
    size_t size;        /* sizeof(struct allot_lease_options), as the caller was compiled */
    const char *socket; /* NULL: ALLOT_SOCKET, else /run/allot/io.allot */

    const char *name; /* shown to people */
    struct allot_lease_amount amount;
    const struct allot_lease_amount *amounts; /* one for each of `devices`, instead of `amount` */
    size_t n_amounts;
    uint32_t gpus;              /* how many, of any kind; 0 and no devices: 1 */
    const char *const *devices; /* UUIDs, unique beginnings of them, bus ids, or indices */
    size_t n_devices;
    enum allot_lease_choose choose;
    const char *visible_devices; /* NULL: CUDA_VISIBLE_DEVICES of the environment */
    const char *device_order;    /* NULL: CUDA_DEVICE_ORDER */
    int32_t priority;            /* with has_priority */
    bool has_priority;
    bool no_wait;             /* fail at once if the lease cannot be granted at once */
    uint64_t timeout_usec;    /* wait for the lease at most this long; 0: as the policy says */
    uint64_t time_limit_usec; /* the lease ends by itself after this time; 0: as the policy says */
    int cancel_fd;            /* readable: stop waiting; -1: none */

    bool credits; /* the process asks for bytes ahead of need and answers each recall with a shrink
                   */
    uint8_t tier; /* enforcement that this process brings: 3 the guard, 4 arenas; 0: none */
    uint64_t reconnect_usec; /* how long calls wait for a daemon that is away; 0: 60 s */
    allot_lease_progress_fn progress;
    allot_lease_notice_fn notice;
    void *userdata; /* of both */
};

/* The initialiser for C and C++. Inline, because its size is that of the caller's header. */
#define ALLOT_LEASE_OPTIONS_INIT allot_lease_options_init()
static inline struct allot_lease_options allot_lease_options_init(void) {
    struct allot_lease_options options;

    memset(&options, 0, sizeof(options));
    options.size = sizeof(options);
    options.cancel_fd = -1;
    return options;
}

/* The bytes of one device that the lease may use. */
struct allot_lease_share {
    char device[96]; /* UUID */
    uint64_t limit_bytes;
    uint64_t guaranteed_bytes;
    uint64_t held_bytes;    /* by this process */
    uint64_t context_bytes; /* what a context costs there: grow by this before you create one */
};

/*
 * Ask for a lease, wait for it, and make this process its holder. `options` NULL: all defaults. If
 * the daemon hangs or goes away meanwhile, the call waits `reconnect_usec` for it, but no longer
 * than `timeout_usec`, and 2 s with `no_wait`. After that there is no lease, even if the daemon
 * continues later.
 */
int allot_lease_acquire(struct allot_lease **ret, const struct allot_lease_options *options,
                        struct allot_error *err);

/*
 * Make this process a holder of an existing lease. `id` 0: the lease of the job this process
 * belongs to, from ALLOT_LEASE and ALLOT_TOKEN in the environment (-ENOENT if there is none).
 * `token` NULL: the process's cgroup proves that it belongs to the lease, or ALLOT_TOKEN if
 * ALLOT_LEASE is `id`.
 */
int allot_lease_attach(struct allot_lease **ret, uint64_t id, const char *token,
                       const struct allot_lease_options *options, struct allot_error *err);

/*
 * Gives back everything that this process holds of the lease; the lease ends with its last process.
 * Accepts NULL and returns NULL. No other thread may be in a call on the lease. In a child after
 * fork() it frees the child's memory and does not tell the daemon anything.
 */
struct allot_lease *allot_lease_free(struct allot_lease *lease);

/* In a child after fork(): make the child a holder of its own, which begins with 0 bytes. */
int allot_lease_reattach(struct allot_lease *lease, struct allot_error *err);

uint64_t allot_lease_id(const struct allot_lease *lease);

/* Returns how many shares there are; writes at most `n` of them to `ret`. */
size_t allot_lease_shares(struct allot_lease *lease, struct allot_lease_share *ret, size_t n);

/*
 * The environment that a program needs to belong to the lease: the i-th variable. Returns 0, or
 * -ENOENT after the last. The texts live as long as the lease. Only for a lease that this process
 * acquired.
 */
int allot_lease_environment(const struct allot_lease *lease, size_t i, const char **ret_name,
                            const char **ret_value);

/*
 * Ask for `bytes` more on `device` (UUID; NULL: the lease's only one), all or nothing, before you
 * allocate them. They are rounded up to 2 MiB, the unit in which devices give memory. On success
 * this process holds them. With a `timeout_usec` of 0 a full device is -ENOSPC at once; otherwise
 * the call waits that long for other leases to give back (UINT64_MAX: as long as the policy
 * allows).
 */
int allot_lease_grow(struct allot_lease *lease, const char *device, uint64_t bytes,
                     uint64_t timeout_usec, struct allot_error *err);

/* How long a growth may wait, and where its progress is reported. Use the initialiser. */
struct allot_lease_patience {
    size_t size;             /* sizeof(struct allot_lease_patience), as the caller was compiled */
    uint64_t timeout_usec;   /* for other leases to give back, as above */
    uint64_t reconnect_usec; /* for a daemon that is away; 0: as allot_lease_grow() does */
    allot_lease_progress_fn progress;
    void *userdata; /* of both functions */

    /* When this becomes readable, the growth is cancelled wherever it waits: it gives up its place
     * in the queue and returns -ECANCELED, or 0 if the daemon granted the bytes first. -1: none. */
    int cancel_fd;
    /* The waiting thread then calls this. True means that the function has read `cancel_fd` and the
     * growth keeps waiting in its place. It may call everything except allot_lease_free() of this
     * lease. NULL: every cancellation counts. */
    bool (*go_on)(void *userdata);

    /* How long an answer may take: a daemon that takes longer is treated as away; 0: 2 s.
     */
    uint64_t hangs_usec;
};

#define ALLOT_LEASE_PATIENCE_INIT allot_lease_patience_init()
static inline struct allot_lease_patience allot_lease_patience_init(void) {
    struct allot_lease_patience patience;

    memset(&patience, 0, sizeof(patience));
    patience.size = sizeof(patience);
    patience.cancel_fd = -1;
    return patience;
}

/* As allot_lease_grow(), with more control over the wait. `patience` NULL: it does not wait. */
int allot_lease_grow_with(struct allot_lease *lease, const char *device, uint64_t bytes,
                          const struct allot_lease_patience *patience, struct allot_error *err);

/* The bytes that all processes of the lease together hold on `device` now. */
int allot_lease_held(struct allot_lease *lease, const char *device, uint64_t *ret_bytes,
                     struct allot_error *err);

/*
 * Give back `bytes` after freeing them, rounded down to 2 MiB: a process that grew by another
 * amount must also give back what the growth rounded up. -EINVAL: more than this process holds. 0
 * bytes answer a recall when there is nothing to give. A daemon that is away, or does not answer
 * within 2 s, learns of it when it is back.
 */
int allot_lease_shrink(struct allot_lease *lease, const char *device, uint64_t bytes,
                       struct allot_error *err);

/* End the lease for all of its processes: they get a notice, and its bytes are free when the
 * processes end.
 */
int allot_lease_release(struct allot_lease *lease, struct allot_error *err);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
