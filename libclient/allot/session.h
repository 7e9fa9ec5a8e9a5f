/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ALLOT_SESSION_H
#define ALLOT_SESSION_H
/*
 * Sessions: a session runs a graph on the devices of this process.
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
 * Any number of threads may run one session at the same time; variables belong to the session, and
 * all of its runs share them. Another thread may add nodes to the graph meanwhile. A session, and
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
 *     -ENOTRECOVERABLE  a GPU is lost; the message says which. Free the session: that gives back
 *                what it has on all GPUs, and its lease
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

/* The algorithm that decides which device an op goes to. */
enum allot_placer {
    ALLOT_PLACER_SIMPLE = 0, /* the first device that has a kernel for an op and those it is with */
    /*
     * The devices, and the order on each, with which a step is expected to take least time within
     * the memory that the lease gives. Each kind of run is planned when it first runs; variables
     * stay where the first plan that uses them puts them, unless `replace_above` or a device that
     * is drained moves them. The same graph on the same box, with the same measured costs, is
     * always planned the same way. What cannot fit is -ENOMEM, with the device and the missing
     * bytes; what could only run on a device that is drained or lost meanwhile is -ENODEV.
     */
    ALLOT_PLACER_DYNAMIC = 1,
};

/* What a run needs of one GPU. */
struct allot_need {
    char device[96];       /* UUID */
    uint64_t tensor_bytes; /* for variables, constants and what lives between ops, with some room */
    uint64_t lease_bytes;  /* the same and a context */
};
#define ALLOT_NEEDS_MAX 32

/* What a run needs of all GPUs: see allot_session_plan(). */
struct allot_needs {
    size_t size;       /* sizeof(struct allot_needs) */
    double step_usec;  /* the time that a step is expected to take */
    uint64_t n_copies; /* between devices, in a step */
    size_t n_gpus;     /* 0: the CPU is enough */
    struct allot_need gpus[ALLOT_NEEDS_MAX];
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
    bool deterministic;        /* the same bits for any number of threads; costs a few per cent */
    uint64_t random_seed;      /* of random ops that have none; 0: a different one each time */

    /*
     * GPUs and their memory. All sessions of a process share one lease, made by the first of them
     * with these options: by default one GPU, with memory as it is needed, up to what the policy of
     * the box allows. A program that was started under a lease (gpuctl run) uses that lease.
     * Without a daemon the process uses all GPUs that CUDA_VISIBLE_DEVICES shows, unmanaged; a
     * daemon that hangs is an error, as other jobs may have leases on them. On a machine without
     * GPUs everything runs on the CPU, whatever the options say. A run that waits for memory, or
     * for the daemon to come back or to answer, logs its place and the reason (log.h).
     */
    bool cpu_only; /* no GPU, even if there is one */
    uint32_t gpus; /* how many to lease, -ENODEV if there are fewer; 0: as many as the nodes
                      that the graph has now name (4 for "/gpu:3"), if there are so many,
                      or 1 */
    double memory_fraction; /* at most this part of each GPU, 0.4; 0: no such limit */
    uint64_t memory_limit;  /* at most this many bytes of each GPU; 0: no such limit */
    bool no_growth;         /* take all of that at once */
    bool require_daemon;    /* no daemon: an error, not unmanaged memory */
    bool no_wait; /* a full GPU is an error at once; wait only 2 s for a daemon that is away */
    uint64_t wait_usec; /* wait at most this long; 0: as long as the policy allows, and a minute for
                           a daemon that is away. A daemon that does not answer for 2 s, or
                           `wait_usec` if that is less, is treated as away */
    /*
     * The GPUs that the session may use, in the syntax of CUDA_VISIBLE_DEVICES; NULL: all that the
     * driver shows; "": none. CUDA_VISIBLE_DEVICES in the environment limits what the driver shows,
     * and numbers count only the GPUs that it shows. The library does not change the environment,
     * so this also works after the driver was initialised. Of several MIG devices the driver shows
     * one, and only the environment can choose it. -ENODEV if it names a GPU that is not there.
     */
    const char *visible_devices;
    enum allot_placer placer;
    /*
     * Of ALLOT_PLACER_DYNAMIC: how long it searches, in simulated ops and copies; 0: about half a
     * second. The plan depends on this number and not on time, unless `placer_stop` ends the search
     * by returning true; the best plan so far is used then, and the log says so. It is called on
     * the thread of the run, and may not use the session.
     */
    uint64_t placer_budget;
    bool (*placer_stop)(void *userdata); /* NULL: never */
    void *placer_userdata;
    /* Lease exactly these GPUs with exactly these bytes, instead of `gpus`, `memory_fraction`,
     * `memory_limit`, `no_growth` and `visible_devices`; NULL: use those. */
    const struct allot_needs *needs;

    /* All below: of ALLOT_PLACER_DYNAMIC. */

    /*
     * The folder in which measured costs and plans outlive the process; "": none. NULL: what
     * ALLOT_CACHE_DIR says ("": none), or else $XDG_CACHE_HOME/allot or ~/.cache/allot. It must
     * belong to the user of the process, and nobody else may write to it. The same graph with the
     * same options on the same box finds its plan there, without a search.
     */
    const char *cache_dir;
    /*
     * Measure so many steps of each plan after its first, each op by itself, on GPUs by events of
     * its stream. The times are kept in `cache_dir` by kind of device, op, types and shapes, and
     * later plans use them instead of the model. 0, the default: no step is measured, and none is
     * slowed; times that were measured before are still used. Measured steps take a little longer.
     */
    uint32_t placer_measure;
    /*
     * When the measured steps of a plan show that it takes more than so many times as long as was
     * expected, or less than that part (1.5: 50 % longer, or a third shorter), the next run looks
     * for a better plan with what was measured. Variables move with their values. The log tells
     * both plans. 0, the default: never; else more than 1, and `placer_measure` counts as at least
     * 3.
     */
    double replace_above;
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
/* No run may be under way. Waits for the work that stopped runs have left on GPUs, and at most 2 s
 * for a daemon that hangs. Accepts NULL and returns NULL. */
struct allot_session *allot_session_free(struct allot_session *session);

/*
 * Feed `n_feeds` values and run only the nodes that `n_fetches` fetches and `n_targets` targets
 * need. The fetched tensors are on the host and belong to the caller. Any output may be fed, not
 * only placeholders. A fetched variable is read after everything else has run. On failure the call
 * writes nothing to `ret_tensors`.
 */
int allot_session_run(struct allot_session *session, const struct allot_output *feeds,
                      struct allot_tensor *const *feed_tensors, size_t n_feeds,
                      const struct allot_output *fetches, size_t n_fetches,
                      struct allot_node *const *targets, size_t n_targets,
                      struct allot_tensor **ret_tensors, struct allot_error *err);

/* The same run prepared once, to be run many times. The session must outlive the callable. Any
 * thread may run it, several at once. */
int allot_callable_new(struct allot_callable **ret, struct allot_session *session,
                       const struct allot_output *feeds, size_t n_feeds,
                       const struct allot_output *fetches, size_t n_fetches,
                       struct allot_node *const *targets, size_t n_targets,
                       struct allot_error *err);
struct allot_callable *allot_callable_free(struct allot_callable *callable);

/* Numbers about a run; filled whether it succeeds or fails. */
struct allot_run_metadata {
    size_t size;                /* sizeof(struct allot_run_metadata) */
    uint64_t n_kernels;         /* kernel calls of the run */
    uint64_t step_bytes;        /* memory for the tensors between ops, on all devices */
    uint64_t ready_order_bytes; /* the same for a run without a memory plan: as many threads, which
                                   run ops in the order they become ready, in place where possible;
                                   0: too little to matter */
    bool was_planned;           /* this run was the first of its kind and made the plan */
};

/*
 * A run that is stopped, by its time limit or a cancellation, does not wait for GPUs. The work that
 * it has queued there continues and keeps its memory; the next run of the session starts after it.
 */
struct allot_run_options {
    size_t size;                         /* sizeof(struct allot_run_options) */
    uint64_t timeout_usec;               /* for the whole run, including its plan; 0: none */
    struct allot_cancel *cancel;         /* NULL: cannot be cancelled */
    struct allot_run_metadata *metadata; /* NULL: not wanted */
    /* The file for a trace of the run, for Perfetto, with the planned step beside it where
     * ALLOT_PLACER_DYNAMIC made the plan; NULL: none. If the run fails or is stopped,
     * the trace has everything up to that point and the reason. An existing file is overwritten. */
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

/* Stops runs from another thread: all that have it in their options, now and later. */
int allot_cancel_new(struct allot_cancel **ret, struct allot_error *err);
void allot_cancel_now(struct allot_cancel *cancel);
struct allot_cancel *allot_cancel_free(struct allot_cancel *cancel); /* no run may have it */

/*
 * What a session with ALLOT_PLACER_DYNAMIC and these options (NULL: all defaults) would need for
 * this run: without a session, and without taking a lease or memory of a GPU. The arguments are
 * those of allot_session_run(); of tensors that are fed, only shapes count, unless other shapes
 * depend on their values. The plan chooses among the GPUs that `visible_devices` leaves and that
 * the daemon would lease now, each with at most `memory_limit`. `ret->size` must be set. Give the
 * answer to allot_session_new() as `needs`. A run whose shapes depend on data is planned up to
 * there. -ENOMEM: no plan fits, and the message says which GPU lacks how many bytes.
 */
int allot_session_plan(struct allot_needs *ret, struct allot_graph *graph,
                       const struct allot_session_options *options,
                       const struct allot_output *feeds, struct allot_tensor *const *feed_tensors,
                       size_t n_feeds, const struct allot_output *fetches, size_t n_fetches,
                       struct allot_node *const *targets, size_t n_targets,
                       struct allot_error *err);

/*
 * The last plan of a session with ALLOT_PLACER_DYNAMIC: a line for each op, in the order in which
 * they start, with its device and why; then the step that is expected, copies between devices, and
 * memory. The caller frees the text. -ENODATA: nothing was planned yet; -EOPNOTSUPP: another
 * placer.
 */
int allot_session_explain(struct allot_session *session, char **ret, struct allot_error *err);
/* The same as a page of HTML that needs nothing else: devices over time with ops, copies and bytes,
 * and the table. */
int allot_session_explain_page(struct allot_session *session, char **ret, struct allot_error *err);

/* The devices of a session, in order. */
struct allot_device {
    char name[224];        /* "/job:localhost/replica:0/task:0/device:GPU:0" */
    char type[16];         /* "CPU", "GPU" */
    uint64_t memory_limit; /* bytes */
    char description[256]; /* "device: 0, name: …, pci bus id: …" */
};
/* Returns how many there are; writes at most `n` of them to `ret`. */
size_t allot_session_devices(const struct allot_session *session, struct allot_device *ret,
                             size_t n);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
