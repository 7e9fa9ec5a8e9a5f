/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ALLOT_SESSION_H
#define ALLOT_SESSION_H
/*
 * Sessions: a graph that is run, on the devices of this process.
 *
 *     struct allot_session *session;
 *     struct allot_tensor *c_value;
 *
 *     allot_session_new(&session, graph, NULL, &err);
 *     allot_session_run(session, NULL, NULL, 0, &c, 1, NULL, 0, &c_value, &err);
 *     …
 *     allot_tensor_unref(c_value);
 *     allot_session_free(session);
 *
 * Any number of threads may run one session at the same time; variables are the session's and
 * shared by all of its runs. Another thread may add nodes to the graph meanwhile. A session, and
 * all it holds, belongs to the process that made it: in the child of a fork every call returns
 * -ECHILD, and allot_session_free() frees nothing but the child's own memory.
 *
 * Functions return 0 or -errno, with a message in `err` (NULL: not wanted):
 *
 *     -EINVAL    no such thing, shapes or types that do not fit, an op that cannot be placed
 *     -ENODATA   a variable was read that has no value yet
 *     -ENOMEM    no memory, of the host or of a device, at once (`no_wait`), after `wait_usec`,
 *                or after the daemon's own limit; the message says who holds it
 *     -ENODEV    a session: fewer GPUs than it asks for
 *     -EACCES    a session: the daemon's policy refuses its lease, whatever is free; also if
 *                `memory_limit` is less than a context needs
 *     -ECANCELED by allot_cancel_now()
 *     -ETIMEDOUT it took longer than its time limit
 *     -ENOTCONN  a session: no daemon, with `require_daemon`, or a daemon that hangs
 *     -ECHILD    this process is a fork of the one that made the session
 *     others     the error of an op; its name comes first
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "error.h"
#include "graph.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct allot_session;
struct allot_callable;
struct allot_cancel;

/* What decides which device an op goes to. There is one so far; any other number is -EINVAL. */
enum allot_placer {
    ALLOT_PLACER_SIMPLE = 0, /* the first device that has a kernel for an op and those it is with */
};

/* Zero, or NULL, is the default of everything but `size`: use the initialiser. The setters of
 * config.h change defaults for the whole process. */
struct allot_session_options {
    size_t size; /* sizeof(struct allot_session_options), as the caller was compiled */
    bool allow_soft_placement; /* an op goes elsewhere where its device, or a kernel, is missing */
    bool log_device_placement; /* say through the log where each op goes */
    unsigned inter_op_threads; /* ops that run at once; 0: one per CPU */
    unsigned intra_op_threads; /* threads of one op; 0: one per CPU */
    bool per_session_threads;  /* a pool of its own, not shared with other sessions */
    bool deterministic;   /* the same bits whatever the number of threads; costs a few per cent */
    uint64_t random_seed; /* of random ops that give none; 0: another one each time */

    /*
     * GPUs and their memory. All sessions of a process share one lease, made by the first of them
     * with these options: by default one GPU, with memory as it is needed, up to what the policy of
     * the box allows. A program that was started under a lease (gpuctl run) uses that lease.
     * Without a daemon the process uses all GPUs that CUDA_VISIBLE_DEVICES shows, unmanaged; a
     * daemon that hangs is an error, as other jobs may have leases on them. On a machine without
     * GPUs everything runs on the CPU, whatever the options say. A run that waits for memory, or
     * for the daemon to come back or to answer, logs its place and the reason (log.h).
     */
    bool cpu_only;          /* no GPU, even if there is one */
    uint32_t gpus;          /* how many to lease, or -ENODEV where there are fewer; 0: 1 */
    double memory_fraction; /* at most this part of each GPU, 0.4; 0: not limited so */
    uint64_t memory_limit;  /* at most so many bytes of each GPU; 0: not limited so */
    bool no_growth;         /* take all of that at once */
    bool require_daemon;    /* no daemon: an error, not unmanaged memory */
    bool no_wait;           /* a full card: an error, not a wait; the daemon is away: 2 s */
    uint64_t wait_usec;     /* wait at most so long; 0: as long as the policy allows, and a
                               minute for a daemon that is away. A daemon that does not answer for
                               2 s, or `wait_usec` if that is less, is treated as away */
    /*
     * Which GPUs may be used, written as CUDA_VISIBLE_DEVICES is; NULL: all that the driver shows,
     * which CUDA_VISIBLE_DEVICES of the environment has narrowed; "": none. Numbers count those
     * that the driver shows. The environment is not changed, so that this works after the driver
     * was initialised, too; of several MIG devices the driver shows one, which the environment
     * alone can choose. -ENODEV where it names what is not there.
     */
    const char *visible_devices;
    enum allot_placer placer;
};

#define ALLOT_SESSION_OPTIONS_INIT allot_session_options_init()
static inline struct allot_session_options allot_session_options_init(void) {
    struct allot_session_options options;

    memset(&options, 0, sizeof(options));
    options.size = sizeof(options);
    return options;
}

/* `options` NULL: all defaults. The session keeps a reference to the graph. */
int allot_session_new(struct allot_session **ret, struct allot_graph *graph,
                      const struct allot_session_options *options, struct allot_error *err);
/* No run may be under way; waits for what stopped runs have left on GPUs, and 2 s at most for a
 * daemon that hangs. Accepts NULL and returns NULL. */
struct allot_session *allot_session_free(struct allot_session *session);

/*
 * Feed `n_feeds` values, run what `n_fetches` fetches and `n_targets` nodes need, and no more. The
 * fetched tensors are the caller's, on the host. Any output may be fed, not placeholders alone. A
 * variable that is fetched is read after all that is run. On failure nothing is written to
 * `ret_tensors`.
 */
int allot_session_run(struct allot_session *session, const struct allot_output *feeds,
                      struct allot_tensor *const *feed_tensors, size_t n_feeds,
                      const struct allot_output *fetches, size_t n_fetches,
                      struct allot_node *const *targets, size_t n_targets,
                      struct allot_tensor **ret_tensors, struct allot_error *err);

/* The same with everything looked up once; the session must outlive it. Any thread, several at
 * once. */
int allot_callable_new(struct allot_callable **ret, struct allot_session *session,
                       const struct allot_output *feeds, size_t n_feeds,
                       const struct allot_output *fetches, size_t n_fetches,
                       struct allot_node *const *targets, size_t n_targets,
                       struct allot_error *err);
struct allot_callable *allot_callable_free(struct allot_callable *callable);

/* What a run was; filled whether it went well or not. */
struct allot_run_metadata {
    size_t size;                /* sizeof(struct allot_run_metadata) */
    uint64_t n_kernels;         /* kernel calls that the run consists of */
    uint64_t step_bytes;        /* memory for what flows between ops, on all devices */
    uint64_t ready_order_bytes; /* the same, had as many threads run ops in the order they become
                                   ready, each in place where it can, without a plan; 0: so little
                                   that it does not matter */
    bool was_planned;           /* this run made its plan: the first of its kind */
};

/*
 * A run that is stopped, by its time limit or a cancellation, does not wait for GPUs. What it has
 * queued there goes on, with memory of its own; the next run of the session begins behind it.
 */
struct allot_run_options {
    size_t size;                         /* sizeof(struct allot_run_options) */
    uint64_t timeout_usec;               /* for all of the run, its plan included; 0: none */
    struct allot_cancel *cancel;         /* NULL: cannot be cancelled */
    struct allot_run_metadata *metadata; /* NULL: not wanted */
    /* A trace of the run for Perfetto; NULL: none. Of a run that fails, or is stopped, it has what
     * was done until then and the reason. A file that is there already is emptied at first. */
    const char *trace_file;
};

#define ALLOT_RUN_OPTIONS_INIT allot_run_options_init()
static inline struct allot_run_options allot_run_options_init(void) {
    struct allot_run_options options;

    memset(&options, 0, sizeof(options));
    options.size = sizeof(options);
    return options;
}

/* `options` NULL: none. */
int allot_callable_run(struct allot_callable *callable, const struct allot_run_options *options,
                       struct allot_tensor *const *feed_tensors, struct allot_tensor **ret_tensors,
                       struct allot_error *err);

/* To stop runs from another thread: those that have it in their options, now and later. */
int allot_cancel_new(struct allot_cancel **ret, struct allot_error *err);
void allot_cancel_now(struct allot_cancel *cancel);
struct allot_cancel *allot_cancel_free(struct allot_cancel *cancel); /* no run may have it */

/* The devices of a session, in order. */
struct allot_device {
    char name[224];        /* "/job:localhost/replica:0/task:0/device:GPU:0" */
    char type[16];         /* "CPU", "GPU" */
    uint64_t memory_limit; /* bytes */
    char description[256]; /* "device: 0, name: …, pci bus id: …" */
};
/* How many there are; at most `n` of them are written to `ret`. */
size_t allot_session_devices(const struct allot_session *session, struct allot_device *ret,
                             size_t n);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
