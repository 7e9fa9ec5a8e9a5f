/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Run state: the memory and the addresses of one run of a program.
 *
 * It is made once and used by one run after the other: all addresses that do not change from run to
 * run are filled in when it is made.
 *
 * A stopped run does not wait for what it has queued on GPUs: its run state then stays *out*, with
 * all memory that this work may touch, until the last of it has ended (run_state_await()).
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/error.h"
#include "libclient/device/device.h"
#include "libclient/exec/plan/program.h"
#include "libclient/exec/memory/memory_user.h"
#include "libclient/exec/run/variable.h"
#include "libclient/kernels/kernel.h"

struct allot_tensor;
struct cache_entry;
struct workers;
struct run_state_stream;
struct run_state_event;
struct trace;

struct run_state_item {
    struct kernel_run run;
    kernel_run_fn fn; /* the kernel, or what stands for another kind of item */
};

struct run_state_step {
    struct kernel_step step;
    struct run_state *state;
};

struct run_state {
    const struct program *program;
    struct run_state *next;       /* of those that are idle, or out; for the owner */
    uint64_t used;                /* for the owner: the higher, the later */
    struct cache_entry *entry;    /* for the owner */
    struct memory_user user;      /* as long as a run has it, or it is out */
    bool is_listed;               /* for the owner: among those that are out */
    uint32_t n_watchers;          /* for the owner: threads that wait until it is no longer out */
    void **args;                  /* addresses, as program.args */
    struct run_state_item *items; /* as program.items */
    struct run_state_step *steps; /* by device */
    struct device_block *slabs;   /* by device; data NULL: none */
    struct variable **variables;  /* as program.variables; borrowed from the session */
    bool *has_written;            /* by variable: this run has, and is counted there; on a GPU */
    struct buffer **pins;         /* by value: of VALUE_READ, VALUE_FETCH and VALUE_OPEN */
    struct shape *open_shapes;    /* by value: of VALUE_OPEN; NULL: there is none */
    struct allot_tensor **feeds; /* of this run, one reference each, where it has GPUs; else NULL */
    struct run_state_event *events; /* as program.event_items; NULL until the first run */
    struct run_state_stream *ends;  /* of the streams that it uses; NULL until the first run */
    uint32_t n_ends;
    struct workers *workers;      /* for several threads; NULL until the first such run */
    atomic_bool cancelled;        /* stop: an error, a cancellation, a time limit */
    _Atomic uint32_t failed_item; /* the first; PROGRAM_NONE */
    struct allot_error failure;   /* why the run failed */
    bool has_ended;               /* every item of this run was done, on the GPUs too */
    uint64_t until_nsec;          /* when this run has to be over; UINT64_MAX: never */
    bool is_stoppable;            /* another thread may set `cancelled` while this run waits */
    bool is_out;                  /* see above */
    pthread_mutex_t lock;
    pthread_cond_t
        news; /* signalled when something that a thread of this run waits for has happened */
    _Atomic uint32_t
        n_awaited;       /* events that waiters have yet to report; decreased under the lock */
    struct trace *trace; /* of this run; NULL: none is wanted */
};

/* Memory for one run of a program whose constants are there. `variables` is borrowed. `slabs`, by
 * device, are its memory on GPUs and become the run state's on success; NULL: it needs none. The
 * host's memory is taken now, so that it is not held while waiting for a GPU's. -ENOMEM. */
int run_state_new(struct run_state **ret, const struct program *program,
                  struct variable_table *variables, const struct device_block *slabs,
                  struct allot_error *err);
/* The error of a slab that cannot be allocated: it is for many nodes, and the message begins with
 * the one that needs the most. Returns `r`. */
int run_state_no_slab(const struct program *program, uint32_t device, int r,
                      struct allot_error *err);
struct run_state *run_state_free(struct run_state *state); /* accepts and returns NULL */

/* Before a run: set the feeds' addresses, allocate the fetches, clear the last failure. */
int run_state_begin(struct run_state *state, struct allot_tensor *const *feeds,
                    uint64_t step_number, struct allot_error *err);
/* After a run: give back the references of the run state, unless it is *out* (see above). After a
 * successful run, make tensors of the fetches. */
int run_state_end(struct run_state *state, struct allot_tensor **ret_fetches,
                  struct allot_error *err);

/* Wait until all queued work has ended, or until `*stopped` is set and `state->news` signalled
 * (NULL: never). Returns whether it has ended. Any thread. */
bool run_state_await(struct run_state *state, const atomic_bool *stopped);
/* Give back what the run state kept while it was out. */
void run_state_retire(struct run_state *state);

/* The run state, and the number of the item, that a kernel's run belongs to. */
struct run_state *run_state_of(const struct kernel_run *run);
uint32_t run_state_item_of(const struct run_state *state, const struct kernel_run *run);
/* The function of an item that the host alone, or the compute stream alone, runs. */
kernel_run_fn run_state_plain_function(const struct program_item *item);
/* A read of a variable, with what variable_read() says. */
int run_state_read(const struct kernel_run *run, bool *ret_settled);

/* An item failed with `code` and kernel_failure(): the first failure is kept, and the run stops. */
void run_state_fail(struct run_state *state, uint32_t item, int code);
