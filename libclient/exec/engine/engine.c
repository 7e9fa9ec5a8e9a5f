/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Engine: a run finds its plan (or builds it, once), takes an idle run state of it (or makes one)
 * and runs it; only building a plan takes a lock. So any number of runs go on at once, each with
 * memory of its own, and none waits for the memory of another.
 *
 * A stopped run leaves behind what it has queued on GPUs, with its run state. The next run begins
 * when that work has ended, or is stopped first: it would be queued behind that work on the
 * streams, and might read what was being written.
 */
#include "libclient/exec/engine/engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "libclient/core/log.h"
#include "libclient/core/tensor.h"
#include "libclient/core/wait.h"
#include "libclient/device/collective.h"
#include "libclient/device/device.h"
#include "libclient/exec/run/run_state.h"
#include "libclient/exec/engine/stopped_runs.h"
#include "libclient/exec/engine/measure.h"
#include "libclient/exec/engine/next_stage.h"
#include "libclient/exec/engine/plan_lookup.h"
#include "libclient/exec/engine/replace.h"
#include "libclient/exec/run/queue.h"
#include "libclient/exec/engine/threads.h"
#include "libclient/exec/run/trace.h"
#include "libclient/exec/run/workers.h"

/* Plans that are kept: a program that runs more kinds of runs in turn plans them again. */
enum { PLANS_MAX = 64 };

/* Raised in the child of each fork: tells what belongs to the parent. */
static _Atomic unsigned generation;

static void count_generation(void) {
    atomic_fetch_add(&generation, 1);
}

static void watch_forks(void) {
    pthread_atfork(NULL, NULL, count_generation);
}

/* A box without a GPU or a driver is no error: the CPU remains. */
static int open_devices(struct engine *engine, struct allot_error *err) {
    int r = engine->options.no_gpu ? 0 : gpus_get(&engine->gpus, &engine->options.gpus, err);
    uint32_t n_gpus;

    if (r < 0)
        return r;
    n_gpus = engine->gpus ? engine->gpus->n : 0;
    engine->devices = calloc(n_gpus + 1, sizeof(struct device *));
    if (!engine->devices)
        return error_set(err, -ENOMEM, "no host memory for a session");
    r = device_cpu_new(&engine->devices[0], engine->intra, err);
    if (r < 0)
        return r;
    for (engine->n_devices = 1; r == 0 && engine->n_devices <= n_gpus; engine->n_devices += r == 0)
        r = device_gpu_new(&engine->devices[engine->n_devices],
                           engine->gpus->gpus[engine->n_devices - 1], (int)engine->n_devices - 1,
                           engine->intra, err);
    return r;
}

static int start(struct engine *engine, struct allot_error *err) {
    const struct engine_options *options = &engine->options;
    int r = kernel_register_all(err);

    if (r < 0)
        return r;
    r = threads_get(&engine->inter, "inter", options->inter_threads - 1, options->own_threads);
    if (r == 0)
        r = threads_get(&engine->intra, "intra", options->intra_threads - 1, options->own_threads);
    if (r < 0)
        return error_set(
            err, r,
            "cannot start the threads of a session (inter_op_threads %u, intra_op_threads "
            "%u): %s; "
            "ask for fewer",
            options->inter_threads, options->intra_threads, strerror(-r));
    r = open_devices(engine, err);
    if (r < 0 || !options->is_dynamic)
        return r;
    r = dynamic_placement_new(&engine->dynamic, &options->dynamic, &engine->placement,
                              engine->devices, engine->n_devices, options->intra_threads);
    return r < 0 ? error_set(err, r, "no host memory for a session") : 0;
}

int engine_new(struct engine **ret, struct allot_graph *graph, const struct engine_options *options,
               struct allot_error *err) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct engine *engine = calloc(1, sizeof(*engine));
    int r;

    pthread_once(&once, watch_forks);
    if (!engine)
        return error_set(err, -ENOMEM, "no host memory for a session");
    engine->graph = graph_ref(graph);
    engine->options = *options;
    engine->generation = atomic_load(&generation);
    if (!options->seed && getrandom(&engine->options.seed, sizeof(engine->options.seed), 0) < 0)
        engine->options.seed = (uintptr_t)engine;
    variable_table_init(&engine->variables);
    stop_lock_init(&engine->plan_lock);
    run_gate_init(&engine->gate);
    engine->n_news_seen = 0;
    cache_init(&engine->cache, PLANS_MAX);
    r = start(engine, err);
    if (r < 0) {
        engine_free(engine);
        return r;
    }
    *ret = engine;
    return 0;
}

int engine_stopped(const struct engine_run *run, int why, const char *where,
                   struct allot_error *err) {
    const char *colon = where && *where ? ": " : "";

    where = where ? where : "";
    if (why == -ETIMEDOUT)
        return error_set(err, why, "the run took longer than %llu us%s%s",
                         (unsigned long long)run->timeout_usec, colon, where);
    return error_set(err, why, "the run was cancelled%s%s", colon, where);
}

struct engine *engine_free(struct engine *engine) {
    struct stop never = { .until_nsec = UINT64_MAX };
    struct gpu_visit visit;
    bool is_fork;

    if (!engine)
        return NULL;
    /* Do not wait in a fork: the threads that would report the end do not exist there. */
    is_fork = engine_check(engine, NULL) < 0;
    visit = gpus_visit_begin(is_fork ? NULL : engine->gpus);
    if (!is_fork)
        stopped_runs_await(&engine->cache, &never);
    cache_done(&engine->cache, is_fork);
    if (!is_fork && engine->dynamic)
        cost_store_save(&engine->dynamic->costs);
    dynamic_placement_free(engine->dynamic);
    placement_done(&engine->placement);
    variable_table_done(&engine->variables);
    for (uint32_t i = 0; i < engine->n_devices; i++)
        device_unref(engine->devices[i]);
    free(engine->devices);
    gpus_visit_end(&visit); /* before the GPUs that it began with are released */
    gpus_put(engine->gpus);
    threads_put(engine->intra);
    threads_put(engine->inter);
    graph_unref(engine->graph);
    if (!is_fork) /* in a fork, a thread of the parent may appear to wait for it for ever */
        stop_lock_done(&engine->plan_lock);
    if (!is_fork)
        run_gate_done(&engine->gate);
    free(engine);
    return NULL;
}

static int check_feeds(const struct engine *engine, const struct engine_call *call,
                       struct allot_tensor *const *feeds, struct shape *ret_shapes,
                       struct allot_error *err) {
    for (uint32_t i = 0; i < call->n_feeds; i++) {
        const struct node *node;

        if (!feeds[i])
            return error_set(err, -EINVAL, "feed %u is not a tensor", i);
        if (call->feeds[i].node >= engine->graph->n_nodes)
            return error_set(err, -EINVAL, "feed %u: the graph has no node %u", i,
                             call->feeds[i].node);
        node = graph_node(engine->graph, call->feeds[i].node);
        if (call->feeds[i].output >= node->n_outputs)
            return error_set(err, -EINVAL, "feed %u: '%s' has no output %u", i, node->name,
                             call->feeds[i].output);
        if (feeds[i]->dtype != node->outputs[call->feeds[i].output].dtype)
            return error_set(err, -EINVAL, "'%s:%u' is %s and cannot be fed with %s", node->name,
                             call->feeds[i].output,
                             dtype_name(node->outputs[call->feeds[i].output].dtype),
                             dtype_name(feeds[i]->dtype));
        ret_shapes[i] = feeds[i]->shape;
    }
    return 0;
}

/* The deadline may have passed while it waited for memory: then report that. */
static int was_late(const struct engine_run *run, int r, struct allot_error *err) {
    struct allot_error why = { 0 };

    if (r != -ENOMEM || run->stop.until_nsec == UINT64_MAX ||
        clock_nsec(CLOCK_MONOTONIC) < run->stop.until_nsec)
        return r;
    if (err)
        why = *err;
    return engine_stopped(run, -ETIMEDOUT, why.text, err);
}

/* Write the trace of a failed run, with the run's error, unless a later stage has done so. The
 * run's error takes precedence over an error of writing. */
static void save_failed(struct engine_run *run, const struct trace *trace,
                        const struct allot_error *why) {
    struct allot_error err = { 0 };

    if (!run->trace_file || run->is_traced)
        return;
    run->is_traced = true;
    if (trace_save(trace, run->trace_file, why, &err) < 0)
        log_say(ALLOT_LOG_WARNING, "the trace of a failed run was not written: %s", err.text);
}

/* The run itself, until the GPUs are done with it, too. */
static int run_stoppable(struct engine *engine, struct run_state *state, struct engine_run *run,
                         struct allot_error *err) {
    struct allot_error late = { 0 };
    int r, why;

    state->until_nsec = run->stop.until_nsec;
    state->is_stoppable = stop_is_possible(&run->stop);
    stop_enter(&run->stop, &state->cancelled, &state->lock, &state->news);
    r = workers_run(state, engine->inter, engine->options.inter_threads);
    if (queue_finish(state, &late) < 0) {
        state->has_ended = false;
        if (!state->is_out && state->failure.code == 0)
            state->failure = late;
    }
    why = stop_leave(&run->stop);
    if (r < 0)
        return error_set(err, r, "no host memory for a run");
    /* A run that ended before the stop is not affected by it; an op that saw the stop and ended has
     * not failed. */
    if (!state->has_ended && why < 0 &&
        (state->failure.code == 0 || state->failure.code == -ECANCELED))
        return engine_stopped(run, why, state->failure.text, err);
    return 0;
}

static int run_in(struct engine *engine, struct run_state *state, struct engine_run *run,
                  struct allot_tensor *const *feeds, struct allot_tensor **ret_fetches,
                  struct allot_error *err) {
    struct allot_error why = { 0 };
    int r;

    state->trace = run->trace;
    r = run_state_begin(state, feeds, run->step, err);
    if (r == 0 && run_stoppable(engine, state, run, &why) < 0)
        state->failure = why;
    r = r < 0 ? r : run_state_end(state, ret_fetches, err);
    state->trace = NULL;
    if (r < 0 || !run->trace_file || state->program->has_next)
        return r;
    run->is_traced = true;
    r = trace_save(run->trace, run->trace_file, &why, err);
    for (uint32_t i = 0; r < 0 && i < state->program->n_fetches; i++)
        allot_tensor_unref(ret_fetches[i]);
    return r;
}

static int run_stage(struct engine *engine, const struct engine_call *call,
                     const struct cache_entry *before, struct engine_run *run,
                     struct allot_tensor *const *feeds, struct allot_tensor **ret_fetches,
                     struct allot_error *err);

static int run_next(struct engine *engine, const struct engine_call *call,
                    const struct cache_entry *entry, struct engine_run *run,
                    struct allot_tensor *const *feeds, struct allot_tensor *const *fetched,
                    struct allot_tensor **ret_fetches, struct allot_error *err) {
    struct next_stage next = { 0 };
    uint32_t n = 0;
    int r = next_stage_make(&next, entry->program, call, feeds, fetched);

    if (r < 0)
        error_set(err, r, "no host memory for a run");
    else
        r = run_stage(engine, &next.call, entry, run, next.tensors, next.fetched, err);
    for (uint32_t i = 0; r == 0 && i < call->n_fetches; i++)
        if (entry->program->fetch_of[i] == PROGRAM_NONE)
            ret_fetches[i] = next.fetched[n++];
    next_stage_done(&next);
    return r;
}

static void count(struct engine_run *run, const struct program *program) {
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < program->n_devices; i++)
        bytes += program->slab_bytes[i];
    run->n_kernels += program->n_kernels;
    run->step_bytes = MAX(run->step_bytes, bytes);
    run->ready_order_bytes = MAX(run->ready_order_bytes, program->ready_order_bytes);
}

/* Hand the fetches to the caller, or to the next stage. */
static int hand_over(struct engine *engine, const struct engine_call *call,
                     const struct cache_entry *entry, struct engine_run *run,
                     struct allot_tensor *const *feeds, struct allot_tensor **fetched,
                     struct allot_tensor **ret_fetches, struct allot_error *err) {
    const struct program *program = entry->program;
    int r = program->has_next ? run_next(engine, call, entry, run, feeds, fetched, ret_fetches, err)
                              : 0;

    for (uint32_t i = 0; r == 0 && i < call->n_fetches; i++)
        if (program->fetch_of[i] != PROGRAM_NONE)
            ret_fetches[i] = allot_tensor_ref(fetched[program->fetch_of[i]]);
    for (uint32_t i = 0; i < program->n_fetches; i++)
        allot_tensor_unref(fetched[i]);
    return r;
}

static int run_stage(struct engine *engine, const struct engine_call *call,
                     const struct cache_entry *before, struct engine_run *run,
                     struct allot_tensor *const *feeds, struct allot_tensor **ret_fetches,
                     struct allot_error *err) {
    struct shape few[16], *shapes = few;
    struct allot_tensor *few_fetched[16], **fetched = few_fetched;
    cleanup(freep) struct shape *many = NULL;
    cleanup(freep) struct allot_tensor **many_fetched = NULL;
    cleanup(trace_freep) struct trace *trace = NULL;
    struct cache_entry *entry;
    struct run_state *state;
    bool is_measured;
    int r;

    if (call->n_feeds > 16 && !(shapes = many = calloc(call->n_feeds, sizeof(*many))))
        return error_set(err, -ENOMEM, "no host memory for a run");
    r = check_feeds(engine, call, feeds, shapes, err);
    if (r == 0)
        r = plan_lookup_take(engine, call, before, feeds, shapes, run, &entry, &state, err);
    if (r < 0)
        return was_late(run, r, err);
    count(run, entry->program);
    if (entry->program->n_fetches > 16 &&
        !(fetched = many_fetched = calloc(entry->program->n_fetches, sizeof(*fetched))))
        r = error_set(err, -ENOMEM, "no host memory for a run");
    is_measured = measure_begins(engine, entry);
    if (r == 0 && (run->trace_file || is_measured) &&
        trace_new(&trace, entry->program, run->trace) < 0 && run->trace_file)
        r = error_set(err, -ENOMEM, "no host memory for a trace");
    run->trace = trace;
    if (r == 0)
        r = was_late(run, run_in(engine, state, run, feeds, fetched, err), err);
    if (r == 0 && is_measured && trace)
        measure_take(engine, entry, trace);
    if (r < 0)
        save_failed(run, trace, err);
    if (state->is_out) {
        stopped_runs_keep(&engine->cache, entry, state);
        return r;
    }
    cache_give_state(&engine->cache, entry, state);
    if (r == 0)
        r = hand_over(engine, call, entry, run, feeds, fetched, ret_fetches, err);
    if (r < 0)
        save_failed(run, trace, err);
    cache_release(&engine->cache, entry);
    return r;
}

int engine_check(const struct engine *engine, struct allot_error *err) {
    if (engine->generation == atomic_load_explicit(&generation, memory_order_relaxed))
        return 0;
    return error_set(
        err, -ECHILD,
        "this process is a fork of the one that made the session: make a new session in it");
}

void engine_hold(struct engine *engine) {
    if (engine->dynamic)
        run_gate_enter(&engine->gate);
}

void engine_release(struct engine *engine) {
    if (engine->dynamic)
        run_gate_leave(&engine->gate);
}

int engine_name_lost(const struct engine *engine, int r, struct allot_error *err) {
    struct allot_error why = { 0 };
    const struct gpu *gpu;
    uint32_t number;

    if (r >= 0 || r == -ETIMEDOUT || r == -ECANCELED)
        return r;
    gpu = gpus_find_lost(engine->gpus, &number);
    if (!gpu)
        return r;
    collective_abort(gpu);
    if (err)
        why = *err;
    return error_set(err, -ENOTRECOVERABLE,
                     "GPU %u is lost (/device:GPU:%u: %s, %s, pci bus id: %s): free the session, "
                     "and go on without it from a checkpoint; %s",
                     number, number, gpu->uuid, gpu->name, gpu->bus_id, why.text);
}

int engine_run(struct engine *engine, const struct engine_call *call, struct engine_run *run,
               struct allot_tensor *const *feeds, struct allot_tensor **ret_fetches,
               struct allot_error *err) {
    struct allot_error why = { 0 };
    struct gpu_visit visit;
    int r = engine_check(engine, err);

    if (r < 0)
        return r;
    visit = gpus_visit_begin(engine->gpus);
    engine_hold(engine);
    run->step = atomic_fetch_add(&engine->n_steps, 1);
    run->trace = NULL;
    run->is_traced = false;
    if (run->trace_file)
        trace_forget(run->trace_file);
    r = stop_begin(&run->stop, run->timeout_usec ? wait_deadline(run->timeout_usec) : UINT64_MAX,
                   run->cancel, &why);
    if (r == 0) {
        r = stopped_runs_await(&engine->cache, &run->stop);
        r = r < 0 ? engine_stopped(run, r, NULL, &why) : replace_gone(engine, &why);
        if (r == 0)
            r = run_stage(engine, call, NULL, run, feeds, ret_fetches, &why);
        stop_end(&run->stop);
        r = engine_name_lost(engine, r, &why);
    }
    if (r < 0)
        save_failed(run, NULL, &why);
    if (r < 0 && err)
        *err = why;
    engine_release(engine);
    gpus_visit_end(&visit);
    return r;
}
