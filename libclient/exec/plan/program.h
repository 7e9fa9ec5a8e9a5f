/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Program: the part of a graph that some fetches and targets need, ready to be run many times.
 *
 * Made once for a set of feeds, fetches and feed shapes: pruned, every shape known, kernels chosen
 * and prepared, copies between devices put in, an order fixed and memory laid out. What it says
 * never changes once its constants are there (exec/memory/constants.h): any number of runs
 * (exec/run/workers.h) use it at once.
 *
 *     item    something to do: a kernel, a copy, a read of a variable
 *     value   bytes that items read and write, in one memory space
 *     storage where values lie in the slab; values whose lives do not meet share one
 *
 * Items stand in the order in which one thread runs them. Several threads may run them in any order
 * that keeps the edges, among which are those that sharing memory needs.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libclient/graph/graph.h"
#include "libclient/kernels/kernel.h"

struct allot_tensor;
struct buffer;
struct device;
struct dynamic_placement;

#define PROGRAM_NONE UINT32_MAX
/* Blocks of a slab begin at multiples of this: what device memory and vector units like. */
#define PROGRAM_ALIGNMENT 256

enum value_where {
    VALUE_SLAB,     /* in the run's own memory */
    VALUE_CONSTANT, /* in the program's */
    VALUE_FEED,     /* in the tensor that is fed */
    VALUE_FETCH,    /* in a tensor that the caller gets */
    VALUE_READ,     /* in a variable, as it was when it was read */
    VALUE_HANDLE,   /* a variable itself */
    VALUE_OPEN, /* in memory that is allocated when it is computed, because only then is its shape
                   known */
};

struct program_value {
    enum value_where where;
    enum dtype dtype;
    uint32_t space;    /* index of the device that has its memory; 0 is the host */
    uint32_t index;    /* feed, fetch, variable; PROGRAM_NONE */
    uint32_t producer; /* item; PROGRAM_NONE: it is there before the first */
    uint64_t bytes;
    bool is_apart;                 /* its memory is its own for the whole run */
    uint64_t offset;               /* of VALUE_SLAB */
    struct allot_tensor *constant; /* one reference; on the host */
    void *address;           /* of VALUE_CONSTANT, in its space; on a device: once it is there */
    const void *source;      /* of VALUE_CONSTANT on a device: the bytes on the host */
    struct buffer *uploaded; /* of VALUE_CONSTANT on a device: the memory; one reference */
    const struct node *node; /* the node that it is an output of, for messages; NULL */
};

enum item_kind {
    ITEM_KERNEL,  /* calls a kernel with addresses */
    ITEM_READ,    /* settles where a variable's value is */
    ITEM_WRITE,   /* a kernel that changes variables */
    ITEM_COPY,    /* copies bytes from one value to another, between spaces or within the host's */
    ITEM_NOTHING, /* keeps others in order */
};

/* Where an item is queued: nowhere, on the host, or from QUEUE_FIRST on the streams of device 0, of
 * device 1 and so on, each in the order of enum gpu_stream. */
enum { QUEUE_NONE, QUEUE_HOST, QUEUE_FIRST };

struct program_item {
    enum item_kind kind;
    uint32_t device;
    const struct node *node;
    const struct kernel *kernel;
    kernel_run_fn run;
    kernel_run_fn descend;     /* of its plan; NULL */
    const struct node *joined; /* the node that does its work, see exec/plan/fuse_update.c; NULL */
    void *state;
    void (*state_free)(void *state);
    uint64_t cost;      /* as kernels tell it */
    bool pooled;        /* likewise */
    uint32_t first_arg; /* of program.args: inputs, then outputs */
    uint32_t n_inputs, n_outputs;
    uint32_t scratch; /* value; PROGRAM_NONE */
    uint32_t n_predecessors;
    uint32_t first_successor, n_successors;
    uint32_t first_pin, n_pins;   /* of program.pins: reads that are over when this one writes */
    uint32_t first_wait, n_waits; /* of program.waits: work on devices that must be over before */
    uint32_t event;               /* marks its end for others; PROGRAM_NONE */
    uint8_t stream;               /* of a kernel on a GPU: enum gpu_stream */
    uint32_t queue;               /* QUEUE_HOST and so on; only if has_gpu */
    bool waits_on_host;           /* it is the host that has to wait, not a stream */
};

struct program_feed {
    struct edge edge;
    enum dtype dtype;
    struct shape shape; /* whole */
};

struct program_fetch {
    struct edge edge;
    enum dtype dtype;
    struct shape shape;         /* whole, but for VALUE_OPEN */
    uint32_t value;             /* VALUE_FETCH or VALUE_OPEN */
    struct allot_tensor *known; /* what it always is, if that is known; one reference */
};

/* The dynamic placer's plan that a program was made by (place/assignment.h). */
struct program_plan {
    double expected_usec;
    uint32_t n_tasks, n_devices;
    uint32_t *device, *sequence, *first;
};

struct planned_step;

struct program {
    struct allot_graph *graph;    /* one reference */
    struct planned_step *planned; /* what the dynamic placer expects; NULL: another placed it */
    struct program_feed *feeds;
    uint32_t n_feeds;
    /*
     * Feeds on whose values shapes depend, and which were not known. If there are any, this is no
     * program but a question: ask again with their values; everything else is empty.
     */
    uint32_t *asked;
    uint32_t n_asked;
    struct program_fetch *fetches; /* those asked for, then what the next stage is fed with */
    uint32_t n_fetches;
    /*
     * If a shape depends on data, everything that depends on it is left to a next stage: another
     * program, which is fed with what this one computed, once the shapes, or the numbers that they
     * are made from, are known.
     */
    bool has_next;
    bool has_open;      /* some value is VALUE_OPEN */
    uint32_t *fetch_of; /* by fetch asked for: which of `fetches`; PROGRAM_NONE: the next stage's */
    bool *is_done;      /* by node of the graph as it was: it has run in this stage or before */
    uint32_t n_graph;   /* how many nodes it had */
    uint32_t *variables; /* nodes */
    uint32_t n_variables;

    struct program_value *values;
    uint32_t n_values;
    struct program_item *items;
    uint32_t n_items;
    uint32_t n_kernels; /* kernel calls in a run */
    uint32_t *args;     /* values */
    uint32_t n_args;
    uint32_t *successors; /* items */
    uint32_t *pins;       /* values of VALUE_READ */
    /* Where in `args` each value that has no address before a run stands. */
    uint32_t *first_place; /* by value, n_values + 1 */
    uint32_t *places;
    uint32_t *late; /* the values that have no address before a run */
    uint32_t n_late;
    uint32_t *ready; /* items that need nothing before them */
    uint32_t n_ready;

    struct device *const *devices; /* borrowed from the session */
    uint32_t n_devices;
    bool has_gpu;          /* some item runs on one */
    bool deterministic;    /* as requested */
    uint32_t *waits;       /* items, see exec/run/queue.h */
    uint32_t *event_items; /* by event: the item whose end it marks */
    uint32_t n_events;
    uint32_t *first_told; /* by event, n_events + 1: which of `told` */
    uint32_t *told;       /* items for which the host waits for it */
    uint32_t n_told;
    uint64_t *slab_bytes; /* by space */
    /* Of the dynamic placer: */
    uint64_t *cost_keys;        /* by item: how its measured time is found (exec/plan/op_key.h);
                                   0: it is not measured. NULL: another placer */
    struct program_plan *plan;  /* NULL: another placer */
    uint64_t ready_order_bytes; /* what a plain first-ready order would have needed, in all,
                                   with as many threads */
};

/* What a program is made for. Everything is borrowed for the call, devices for longer. */
struct program_request {
    struct allot_graph *graph;
    const struct edge *feeds;
    const struct shape *feed_shapes; /* whole */
    struct allot_tensor *const
        *feed_known; /* what a feed always is; each may be NULL; NULL: none */
    uint32_t n_feeds;
    const uint32_t *valued; /* feeds whose known value was asked for */
    uint32_t n_valued;
    const struct edge *fetches;
    uint32_t n_fetches;
    const uint32_t *targets; /* nodes */
    uint32_t n_targets;
    struct device *const *devices; /* 0: the host's CPU */
    uint32_t n_devices;
    const uint32_t *placement; /* device of each node of the graph; with `dynamic`: not used */
    struct dynamic_placement *dynamic; /* decides instead (exec/plan/dynamic_placement.h); NULL */
    const bool *is_done;      /* by node: has run in a stage before; NULL: this is the first */
    uint32_t n_done;          /* how many nodes `is_done` is about */
    uint64_t stage;           /* tells programs of later stages from others; 0: the first */
    uint32_t n_threads;       /* that will run its items; at least 1 */
    uint32_t n_intra_threads; /* that an item can use where it divides its work; at least 1 */
    bool deterministic;       /* the same bits whatever the number of threads */
    uint64_t seed;            /* of random ops */
    const atomic_bool *halt;  /* set: -ECANCELED; NULL: never */
};

/*
 * -EINVAL: a feed, fetch or target that does not exist, or a shape that does not fit; the error
 * names the node. -ENOTSUP: no kernel. -ENOMEM. -ECANCELED: `halt` was set.
 */
int program_new(struct program **ret, const struct program_request *request,
                struct allot_error *err);
struct program *program_free(struct program *program); /* accepts and returns NULL */
void program_plan_free(struct program_plan *plan);     /* accepts NULL */

/* Whether the item's first output may overwrite its input `a`, once no other item needs that. */
bool program_may_lie_over(const struct program *program, const struct program_item *item,
                          uint32_t a);
