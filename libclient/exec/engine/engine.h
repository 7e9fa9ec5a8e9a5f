/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Engine: a graph with its devices, placement, plans and variables: a session without the public
 * API around it. Any thread, several runs at once.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "libclient/device/gpus.h"
#include "libclient/exec/engine/cache.h"
#include "libclient/exec/engine/run_gate.h"
#include "libclient/exec/plan/dynamic_placement.h"
#include "libclient/exec/plan/placement.h"
#include "libclient/exec/stop/stop.h"
#include "libclient/exec/run/variable.h"

struct allot_error;
struct allot_tensor;
struct cancel;
struct device;
struct thread_pool;
struct trace;

struct engine_options {
    bool soft_placement;
    bool log_placement;
    unsigned inter_threads, intra_threads; /* at least 1, the caller included */
    bool own_threads;
    bool deterministic; /* the same bits whatever the number of threads */
    bool no_gpu;        /* the CPU alone */
    struct gpus_options gpus;
    uint64_t seed;
    bool is_dynamic; /* the dynamic placer, with: */
    struct dynamic_placement_options dynamic;
};

struct engine {
    struct allot_graph *graph;
    struct engine_options options;
    unsigned generation; /* of the process: how many forks it is from the first */
    struct thread_pool *inter, *intra;
    const struct gpus *gpus; /* NULL: none */
    struct device **devices; /* 0: the CPU */
    uint32_t n_devices;
    struct variable_table variables;
    _Atomic uint64_t n_steps;

    struct stop_lock plan_lock;        /* held while a plan is built */
    struct placement placement;        /* under `plan_lock` */
    struct dynamic_placement *dynamic; /* likewise; NULL: the simple placer */
    struct run_gate gate;              /* of a session with the dynamic placer */
    _Atomic uint64_t n_news_seen;      /* of those of device/gpus.h */

    struct cache cache;
};

int engine_new(struct engine **ret, struct allot_graph *graph, const struct engine_options *options,
               struct allot_error *err);
/* Waits for what runs that were stopped have left on GPUs. Accepts and returns NULL. */
struct engine *engine_free(struct engine *engine);

/* -ECHILD: this process is a fork of the one that made it. */
int engine_check(const struct engine *engine, struct allot_error *err);

/* Between these two no variable changes its device. Runs hold it themselves. */
void engine_hold(struct engine *engine);
void engine_release(struct engine *engine);

/* What to run. Pointers are borrowed. */
struct engine_call {
    const struct edge *feeds;
    uint32_t n_feeds;
    const struct edge *fetches;
    uint32_t n_fetches;
    const uint32_t *targets;
    uint32_t n_targets;
    struct allot_tensor *const *feed_known; /* by the engine: values known when it plans; NULL */
};

/* How to run it, and statistics of the run. */
struct engine_run {
    uint64_t timeout_usec;  /* 0: none */
    struct cancel *cancel;  /* NULL */
    const char *trace_file; /* NULL: none */

    uint64_t n_kernels, step_bytes, ready_order_bytes;
    bool was_planned;

    /* The engine's own: what all stages of the run share. */
    uint64_t step; /* number of the run */
    struct stop stop;
    struct trace *trace; /* of the stage under way, and through it those before; NULL */
    bool is_traced;      /* its trace is written */
};

int engine_run(struct engine *engine, const struct engine_call *call, struct engine_run *run,
               struct allot_tensor *const *feeds, struct allot_tensor **ret_fetches,
               struct allot_error *err);

/* What came of work on GPUs, `r` and `err`: if one of them is lost, -ENOTRECOVERABLE and the words
 * name it, whatever op failed first; else `r`. Within a visit of the GPUs. */
int engine_name_lost(const struct engine *engine, int r, struct allot_error *err);

/* The error of a run that was stopped, by its time limit (-ETIMEDOUT) or a cancellation
 * (-ECANCELED), and `where` it was then; NULL: nowhere in particular. */
int engine_stopped(const struct engine_run *run, int why, const char *where,
                   struct allot_error *err);
