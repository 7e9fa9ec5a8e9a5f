/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ALLOT_LEASE_H
#define ALLOT_LEASE_H
/*
 * A lease of GPU memory, as the process that holds it sees it.
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
 * signal or prints. Each returns 0 or -errno with a message in `err` (NULL: not wanted):
 *
 *     -ENOSPC     the device or the lease does not have that much left
 *     -EACCES     policy refuses it             -ETIMEDOUT  waited long enough
 *     -ENODEV     no such device                -EDEADLK    the wait would never end
 *     -ENOENT     no such lease, or it ended    -ECANCELED  by cancel_fd
 *     -ESHUTDOWN  the device is being drained   -ENOTCONN   no daemon, or it did not come back,
 *                                                           or does not answer
 *     -ECHILD     this process is a fork of the holder and has not attached itself yet
 *     -EINVAL     the arguments make no sense together
 *     -EBUSY      too many requests at once, or nothing can be granted now: try again later
 *
 * The daemon may be restarted at any time: the process attaches again by itself with what it holds,
 * and calls wait for that, at most `reconnect_usec`. A growth that may wait for memory waits for
 * the daemon as well, but no longer than for the memory; giving back does not wait. Only the first
 * connection of allot_lease_acquire() fails at once where there is no daemon.
 *
 * A daemon that does not answer for 2 s hangs: until it answers, it is treated as one that is away.
 * For a request of a lease, a place in the queue is an answer. A daemon that stops after that
 * cannot be told from a queue that does not move: the library notices when the connection ends, as
 * it does when systemd replaces a daemon that hangs, or 2 s after `timeout_usec`.
 *
 * Each byte has one charger. In a job that `gpuctl run` started use allot_lease_attach(): if the
 * guard is in the process, it charges what the driver allocates, and what is grown here is reserved
 * with it, so that allocating it is not charged again. A lease acquired in such a job is a separate
 * lease, and the guard knows nothing of it.
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

/* Numbers that are 0 are not given. */
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

/* While a request waits: `place` is 1 for the next one, 0 where there is no queue, as for a daemon
 * that is away; `reason` says what it waits for. Called by the waiting thread, at each change. */
typedef void (*allot_lease_progress_fn)(void *userdata, uint64_t place, const char *reason);

enum allot_lease_event {
    ALLOT_LEASE_RECALL = 1, /* give back `bytes` of `device` if you can: others starve */
    ALLOT_LEASE_IDLE,       /* memory is held and nothing computed: it will be reclaimed */
    ALLOT_LEASE_OVER,       /* more is used than the lease allows */
    ALLOT_LEASE_DRAINING,   /* the device is about to be taken out of service */
    ALLOT_LEASE_ENDING,     /* the lease ends: free what you hold */
    ALLOT_LEASE_LOST,       /* the device is gone, or the lease with all that it held */
};

struct allot_lease_notice {
    enum allot_lease_event event;
    const char *device; /* UUID; NULL: all of the lease */
    uint64_t bytes;     /* of a recall; else 0 */
    const char *text;   /* for people */
};

/*
 * Something happened to the lease. Called on a thread of the library, one notice at a time, none
 * before acquire or attach has begun and none after allot_lease_free() has returned. It may call
 * every function except allot_lease_free() of this lease.
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
    uint32_t gpus;              /* so many, any; 0 and no devices: 1 */
    const char *const *devices; /* UUIDs, unique beginnings of them, bus ids, or indices */
    size_t n_devices;
    enum allot_lease_choose choose;
    const char *visible_devices; /* NULL: CUDA_VISIBLE_DEVICES of the environment */
    const char *device_order;    /* NULL: CUDA_DEVICE_ORDER */
    int32_t priority;            /* with has_priority */
    bool has_priority;
    bool no_wait;             /* refuse at once what cannot be had at once */
    uint64_t timeout_usec;    /* wait for the lease at most so long; 0: as the policy says */
    uint64_t time_limit_usec; /* the lease ends by itself after so long; 0: as the policy says */
    int cancel_fd;            /* readable: stop waiting; -1: none */

    bool credits; /* asks for bytes ahead of need, and answers each recall by a shrink */
    uint8_t tier; /* enforcement that this process brings: 3 the guard, 4 arenas; 0: none */
    uint64_t reconnect_usec; /* calls wait so long for a daemon that is away; 0: 60 s */
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
    uint64_t context_bytes; /* what a context costs there: to be asked for before one is made */
};

/*
 * Ask for a lease, wait for it, and make this process its holder. `options` NULL: all defaults. The
 * call waits `reconnect_usec` for a daemon that hangs or goes away meanwhile, but no longer than
 * `timeout_usec`, and with `no_wait` 2 s; then there is no lease, even if the daemon goes on later.
 */
int allot_lease_acquire(struct allot_lease **ret, const struct allot_lease_options *options,
                        struct allot_error *err);

/*
 * Make this process a holder of a lease that exists. `id` 0: that of the job this process belongs
 * to, by ALLOT_LEASE and ALLOT_TOKEN of the environment (-ENOENT if there is none); `token` NULL:
 * membership is shown by the process's cgroup, or by ALLOT_TOKEN where ALLOT_LEASE is `id`.
 */
int allot_lease_attach(struct allot_lease **ret, uint64_t id, const char *token,
                       const struct allot_lease_options *options, struct allot_error *err);

/*
 * The process no longer holds anything of the lease, and the lease ends with its last process.
 * Accepts NULL and returns NULL. No other thread may be in a call on it. In a child after fork()
 * it frees the child's memory and says nothing to the daemon.
 */
struct allot_lease *allot_lease_free(struct allot_lease *lease);

/* In a child after fork(): hold in the child's own name, beginning with nothing. */
int allot_lease_reattach(struct allot_lease *lease, struct allot_error *err);

uint64_t allot_lease_id(const struct allot_lease *lease);

/* How many shares there are; at most `n` of them are written to `ret`. */
size_t allot_lease_shares(struct allot_lease *lease, struct allot_lease_share *ret, size_t n);

/*
 * What a program is to be started with so that it belongs to the lease: the i-th variable. 0, or
 * -ENOENT behind the last. Texts live as long as the lease. Only of a lease that was acquired here.
 */
int allot_lease_environment(const struct allot_lease *lease, size_t i, const char **ret_name,
                            const char **ret_value);

/*
 * Ask for `bytes` more on `device` (UUID; NULL: the lease's only one), all or nothing, before they
 * are allocated. Rounded up to 2 MiB, in which devices give memory. 0: they are this process's.
 * Waits for others to give back where `timeout_usec` is not 0 (UINT64_MAX: as long as the policy
 * allows); 0: -ENOSPC at once.
 */
int allot_lease_grow(struct allot_lease *lease, const char *device, uint64_t bytes,
                     uint64_t timeout_usec, struct allot_error *err);

/* How long a growth may wait, and where its progress is reported. Use the initialiser. */
struct allot_lease_patience {
    size_t size;             /* sizeof(struct allot_lease_patience), as the caller was compiled */
    uint64_t timeout_usec;   /* for others to give back, as above */
    uint64_t reconnect_usec; /* for a daemon that is away; 0: as allot_lease_grow() does */
    allot_lease_progress_fn progress;
    void *userdata; /* of both functions */

    /* Readable: the growth is cancelled, wherever it waits: it gives up its place in the queue and
     * returns -ECANCELED, or 0 if the bytes were granted first; -1: none. */
    int cancel_fd;
    /* Asked then, by the waiting thread: true means that it has read `cancel_fd`, and the wait goes
     * on in its place. It may call every function except allot_lease_free() of this lease. NULL:
     * never. */
    bool (*go_on)(void *userdata);

    /* For an answer that is due: a daemon that takes longer hangs, and is treated as away; 0: 2 s.
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

/* What all processes of the lease hold on `device` together, now. */
int allot_lease_held(struct allot_lease *lease, const char *device, uint64_t *ret_bytes,
                     struct allot_error *err);

/*
 * Give back `bytes` after they were freed, rounded down to 2 MiB: a process that grew by an amount
 * that is not a multiple of that also gives back what was rounded up. -EINVAL: more than this
 * process holds. 0 bytes answer a recall where there is nothing to give. A daemon that is away, or
 * does not answer within 2 s, learns of it when it is back.
 */
int allot_lease_shrink(struct allot_lease *lease, const char *device, uint64_t bytes,
                       struct allot_error *err);

/* End the lease for all of its processes: they get a notice, and its bytes are free when they go.
 */
int allot_lease_release(struct allot_lease *lease, struct allot_error *err);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
