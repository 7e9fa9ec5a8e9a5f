/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Session: the public header, over an engine. Structs that carry their size are copied into whole
 * ones, so that programs compiled with older headers go on working.
 */
#include "libclient/allot/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "libclient/api/config.h"
#include "libclient/api/handle.h"
#include "libclient/api/session.h"
#include "libclient/core/spec.h"
#include "libclient/device/device.h"
#include "libclient/device/gpus.h"
#include "libclient/exec/plan/explain.h"
#include "libclient/exec/stop/cancel.h"
#include "libclient/exec/engine/engine.h"
#include "libclient/exec/engine/threads.h"

struct allot_callable {
    struct allot_session *session;
    struct edge *feeds, *fetches;
    uint32_t *targets;
    uint32_t n_feeds, n_fetches, n_targets;
};

struct allot_cancel {
    struct cancel cancel;
};

static int check_size(size_t size, size_t least, size_t most, const char *what,
                      struct allot_error *err) {
    if (size < least || size > most)
        return error_set(err, -EINVAL,
                         "%s has the wrong size, %zu bytes: set it with its initialiser, and "
                         "compile with the headers of this library",
                         what, size);
    return 0;
}

/* Fill `whole` from the caller's struct, which has `size` bytes. */
#define TAKE_OPTIONS(whole, given, what, err)                                                      \
    ({                                                                                             \
        int taken_ = 0;                                                                            \
                                                                                                   \
        if (given) {                                                                               \
            taken_ = check_size((given)->size, sizeof(size_t), sizeof(whole), what, err);          \
            if (taken_ == 0)                                                                       \
                memcpy(&(whole), given, (given)->size);                                            \
        }                                                                                          \
        taken_;                                                                                    \
    })

static int permyriad_of(double fraction, uint32_t *ret, struct allot_error *err) {
    int r = config_check_fraction(fraction, err);

    if (r < 0)
        return r;
    *ret = (uint32_t)(fraction * 10000 + 0.5);
    if (fraction > 0 && *ret == 0)
        *ret = 1;
    return 0;
}

int session_options(struct allot_session_options *ret, const struct allot_session_options *given,
                    struct allot_error *err) {
    *ret = ALLOT_SESSION_OPTIONS_INIT;
    return TAKE_OPTIONS(*ret, given, "session options", err);
}

/* What a lease is asked for where it is known to the byte. */
struct exact_needs {
    struct gpus_need needs[ALLOT_NEEDS_MAX];
    char visible[ALLOT_NEEDS_MAX * (sizeof(((struct allot_need *)NULL)->device) + 1)];
};

static int take_needs(struct exact_needs *exact, const struct allot_needs *needs,
                      struct engine_options *engine, struct allot_error *err) {
    size_t n = 0;

    if (needs->size != sizeof(*needs) || needs->n_gpus > ALLOT_NEEDS_MAX)
        return error_set(err, -EINVAL,
                         "the needs of a session are those that allot_session_plan() fills in");
    engine->gpus.limit_bytes = 0;
    engine->gpus.fraction_permyriad = 0;
    engine->gpus.no_growth = false;
    engine->gpus.n_gpus = (uint32_t)needs->n_gpus;
    engine->no_gpu |= needs->n_gpus == 0;
    for (size_t i = 0; i < needs->n_gpus; i++) {
        const struct allot_need *need = &needs->gpus[i];
        size_t length = strnlen(need->device, sizeof(need->device));

        if (length == 0 || length == sizeof(need->device))
            return error_set(err, -EINVAL, "need %zu of a session names no GPU", i);
        exact->needs[i] = (struct gpus_need){ need->device, need->lease_bytes, need->tensor_bytes };
        if (i > 0)
            exact->visible[n++] = ',';
        memcpy(exact->visible + n, need->device, length);
        n += length;
    }
    exact->visible[n] = '\0';
    engine->gpus.needs = exact->needs;
    engine->gpus.n_needs = needs->n_gpus;
    engine->gpus.visible_devices = exact->visible;
    return 0;
}

/* A plan is judged by several steps. */
static uint32_t steps_to_measure(const struct allot_session_options *options) {
    enum { REPLACE_STEPS = 3 };

    return options->replace_above > 0 ? MAX(options->placer_measure, (uint32_t)REPLACE_STEPS)
                                      : options->placer_measure;
}

int session_make(struct allot_session **ret, struct allot_graph *graph,
                 const struct allot_session_options *options, struct allot_error *err) {
    unsigned n_cpus = threads_of_machine();
    struct allot_session *session;
    struct engine_options engine = {
        .soft_placement = options->allow_soft_placement,
        .log_placement = options->log_device_placement,
        .inter_threads = options->inter_op_threads ? options->inter_op_threads : n_cpus,
        .intra_threads = options->intra_op_threads ? options->intra_op_threads : n_cpus,
        .own_threads = options->per_session_threads,
        .deterministic = options->deterministic,
        .no_gpu = options->cpu_only,
        .seed = options->random_seed,
        .gpus = { .n_gpus = options->gpus,
                  .limit_bytes = options->memory_limit,
                  .no_growth = options->no_growth,
                  .must_be_managed = options->require_daemon,
                  .no_wait = options->no_wait,
                  .wait_usec = options->wait_usec,
                  .visible_devices = options->visible_devices },
        .is_dynamic = options->placer == ALLOT_PLACER_DYNAMIC,
        .dynamic = { .budget = options->placer_budget,
                     .is_stopped = options->placer_stop,
                     .data = options->placer_userdata,
                     .soft = options->allow_soft_placement,
                     .log = options->log_device_placement,
                     .cache_dir = options->cache_dir,
                     .n_measured = steps_to_measure(options),
                     .replace_above = options->replace_above },
    };
    cleanup(freep) struct exact_needs *exact = NULL;
    int r = permyriad_of(options->memory_fraction, &engine.gpus.fraction_permyriad, err);

    if (r == 0 && options->needs) {
        exact = calloc(1, sizeof(*exact));
        r = exact ? take_needs(exact, options->needs, &engine, err)
                  : error_set(err, -ENOMEM, "no host memory for a session");
    }
    if (r < 0)
        return r;
    session = calloc(1, sizeof(*session));
    if (!session)
        return error_set(err, -ENOMEM, "no host memory for a session");
    r = engine_new(&session->engine, graph, &engine, err);
    if (r == 0 && exact) { /* only asked for once */
        session->engine->options.gpus.needs = NULL;
        session->engine->options.gpus.n_needs = 0;
        session->engine->options.gpus.visible_devices = NULL;
    }
    if (r < 0) {
        free(session);
        return r;
    }
    *ret = session;
    return 0;
}

/* How many GPUs the graph needs: one more than the highest number that a node asks for. 0: no node
 * names one but the first, or there are fewer. */
static uint32_t gpus_named(const struct allot_graph *graph,
                           const struct allot_session_options *options) {
    struct gpus_seen *seen = NULL;
    size_t n_seen = 0;
    uint32_t n = 0;

    for (uint32_t i = 0; i < graph_n_nodes(graph); i++) {
        struct spec spec;

        if (graph_node(graph, i)->device[0] &&
            spec_parse(&spec, graph_node(graph, i)->device) == 0 && spec.has_id && spec.has_type &&
            strcmp(spec.type, DEVICE_GPU_TYPE) == 0)
            n = MAX(n, (uint32_t)spec.id + 1);
    }
    if (n < 2)
        return 0;
    gpus_look(&seen, &n_seen, options->visible_devices);
    free(seen);
    return n <= n_seen ? n : 0;
}

/* With soft placement, ops that name other GPUs also run where there is only one. */
static int make_as_named(struct allot_session **ret, struct allot_graph *graph,
                         struct allot_session_options *options, struct allot_error *err) {
    int r;

    if (options->gpus == 0 && !options->cpu_only) {
        options->gpus = gpus_named(graph, options);
        r = session_make(ret, graph, options, err);
        if (options->gpus < 2 || !options->allow_soft_placement || (r != -EACCES && r != -ENODEV))
            return r;
        options->gpus = 0;
    }
    return session_make(ret, graph, options, err);
}

int allot_session_new(struct allot_session **ret, struct allot_graph *graph,
                      const struct allot_session_options *given, struct allot_error *err) {
    struct allot_session_options options;
    cleanup(freep) char *text = NULL;
    int r = !ret ? error_null(err, "place for a session") : session_options(&options, given, err);

    if (r < 0)
        return r;
    if (!graph)
        return error_set(err, -EINVAL, "a session needs a graph");
    if (options.placer != ALLOT_PLACER_SIMPLE && options.placer != ALLOT_PLACER_DYNAMIC)
        return error_set(err, -EINVAL,
                         "there is no placer %d: use ALLOT_PLACER_SIMPLE (%d) or "
                         "ALLOT_PLACER_DYNAMIC (%d)",
                         (int)options.placer, (int)ALLOT_PLACER_SIMPLE, (int)ALLOT_PLACER_DYNAMIC);
    if (options.replace_above != 0 && !(options.replace_above > 1 && options.replace_above < 1e6))
        return error_set(err, -EINVAL,
                         "replace_above is a ratio of times: 0 for never, or more than 1");
    r = config_fill(&options, &text, err);
    return r < 0 ? r : make_as_named(ret, graph, &options, err);
}

struct allot_session *allot_session_free(struct allot_session *session) {
    if (session)
        engine_free(session->engine);
    free(session);
    return NULL;
}

/* The last plan, by one of the functions of exec/plan/explain.h. */
static int explain(struct allot_session *session,
                   int (*write)(const struct dynamic_placement *dynamic, char **ret), char **ret,
                   struct allot_error *err) {
    struct engine *engine;
    int r;

    if (!session || !ret)
        return error_null(err, session ? "place for a text" : "session");
    engine = session->engine;
    r = engine_check(engine, err);
    if (r < 0)
        return r;
    if (!engine->dynamic)
        return error_set(err, -EOPNOTSUPP,
                         "only a session with ALLOT_PLACER_DYNAMIC explains its plans");
    stop_lock_take(&engine->plan_lock, NULL);
    r = write(engine->dynamic, ret);
    stop_lock_give(&engine->plan_lock);
    return r == -ENODATA ? error_set(err, r, "the session has planned nothing yet: run it first")
           : r < 0       ? error_set(err, r, "no host memory for an explanation")
                         : 0;
}

int allot_session_explain(struct allot_session *session, char **ret, struct allot_error *err) {
    return explain(session, explain_text, ret, err);
}

int allot_session_explain_page(struct allot_session *session, char **ret, struct allot_error *err) {
    return explain(session, explain_page, ret, err);
}

size_t allot_session_devices(const struct allot_session *session, struct allot_device *ret,
                             size_t n) {
    const struct engine *engine = session ? session->engine : NULL;

    if (!engine)
        return 0;
    for (size_t i = 0; ret && i < n && i < engine->n_devices; i++) {
        const struct device *device = engine->devices[i];

        ret[i] = (struct allot_device){ .memory_limit = device->memory_limit_bytes };
        memcpy(ret[i].name, device->name, sizeof(ret[i].name));
        memcpy(ret[i].description, device->description, sizeof(ret[i].description));
        strcpy(ret[i].type, device->is_gpu ? DEVICE_GPU_TYPE : DEVICE_CPU_TYPE);
    }
    return engine->n_devices;
}

int session_edge(const struct allot_graph *graph, struct allot_output output, const char *what,
                 size_t i, struct edge *ret, struct allot_error *err) {
    struct edge edge = handle_edge(output);

    if (edge_is_none(edge)) {
        int r = allot_graph_error(graph, err);

        return r < 0 ? r : error_set(err, -EINVAL, "%s %zu is not an output of a node", what, i);
    }
    if (edge.node >= graph_n_nodes(graph) ||
        graph_node(graph, edge.node) != handle_node(output.node))
        return error_set(err, -EINVAL, "%s %zu: '%s' is a node of another graph", what, i,
                         allot_node_name(output.node));
    *ret = edge;
    return 0;
}

int session_target(const struct allot_graph *graph, const struct allot_node *node, size_t i,
                   uint32_t *ret, struct allot_error *err) {
    struct edge edge = GRAPH_NO_EDGE;
    int r;

    if (!node) {
        r = allot_graph_error(graph, err);
        return r < 0 ? r : error_set(err, -EINVAL, "target %zu is not a node: NULL was given", i);
    }
    r = session_edge(graph, (struct allot_output){ (struct allot_node *)(uintptr_t)node, 0 },
                     "target", i, &edge, err);
    if (r == 0)
        *ret = edge.node;
    return r;
}

static int fill(struct allot_callable *callable, const struct allot_output *feeds,
                const struct allot_output *fetches, struct allot_node *const *targets,
                struct allot_error *err) {
    const struct allot_graph *graph = callable->session->engine->graph;
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < callable->n_feeds; i++)
        r = session_edge(graph, feeds[i], "feed", i, &callable->feeds[i], err);
    for (uint32_t i = 0; r == 0 && i < callable->n_fetches; i++)
        r = session_edge(graph, fetches[i], "fetch", i, &callable->fetches[i], err);
    for (uint32_t i = 0; r == 0 && i < callable->n_targets; i++)
        r = session_target(graph, targets[i], i, &callable->targets[i], err);
    return r;
}

int allot_callable_new(struct allot_callable **ret, struct allot_session *session,
                       const struct allot_output *feeds, size_t n_feeds,
                       const struct allot_output *fetches, size_t n_fetches,
                       struct allot_node *const *targets, size_t n_targets,
                       struct allot_error *err) {
    struct allot_callable *callable;
    int r;

    if (!ret || !session)
        return error_null(err, ret ? "session" : "place for a callable");
    if ((n_feeds && !feeds) || (n_fetches && !fetches) || (n_targets && !targets))
        return error_null(err, n_feeds && !feeds       ? "array of feeds"
                               : n_fetches && !fetches ? "array of fetches"
                                                       : "array of targets");
    if (n_feeds > UINT32_MAX / 2 || n_fetches > UINT32_MAX / 2 || n_targets > UINT32_MAX / 2)
        return error_set(err, -EINVAL, "more feeds, fetches or targets than a graph has nodes");
    callable = calloc(1, sizeof(*callable));
    if (!callable)
        return error_set(err, -ENOMEM, "no host memory for a callable");
    callable->session = session;
    callable->n_feeds = (uint32_t)n_feeds;
    callable->n_fetches = (uint32_t)n_fetches;
    callable->n_targets = (uint32_t)n_targets;
    callable->feeds = calloc(n_feeds + 1, sizeof(*callable->feeds));
    callable->fetches = calloc(n_fetches + 1, sizeof(*callable->fetches));
    callable->targets = calloc(n_targets + 1, sizeof(*callable->targets));
    if (!callable->feeds || !callable->fetches || !callable->targets)
        r = error_set(err, -ENOMEM, "no host memory for a callable");
    else
        r = fill(callable, feeds, fetches, targets, err);
    if (r < 0) {
        allot_callable_free(callable);
        return r;
    }
    *ret = callable;
    return 0;
}

struct allot_callable *allot_callable_free(struct allot_callable *callable) {
    if (!callable)
        return NULL;
    free(callable->feeds);
    free(callable->fetches);
    free(callable->targets);
    free(callable);
    return NULL;
}

static int check_run(const struct allot_callable *callable,
                     struct allot_tensor *const *feed_tensors, struct allot_tensor **ret_tensors,
                     struct allot_error *err) {
    if (!callable)
        return error_null(err, "callable");
    if (callable->n_feeds && !feed_tensors)
        return error_null(err, "array of tensors to feed");
    return callable->n_fetches && !ret_tensors ? error_null(err, "place for what is fetched") : 0;
}

int allot_callable_run(struct allot_callable *callable, const struct allot_run_options *given,
                       struct allot_tensor *const *feed_tensors, struct allot_tensor **ret_tensors,
                       struct allot_error *err) {
    struct engine_call call;
    struct allot_run_options options = ALLOT_RUN_OPTIONS_INIT;
    struct allot_run_metadata metadata = { .size = sizeof(metadata) };
    struct engine_run run = { 0 };
    int r = check_run(callable, feed_tensors, ret_tensors, err);

    if (r == 0)
        r = TAKE_OPTIONS(options, given, "run options", err);
    if (r == 0 && options.metadata)
        r = check_size(options.metadata->size, sizeof(size_t), sizeof(metadata), "run metadata",
                       err);
    if (r < 0)
        return r;
    call = (struct engine_call){ callable->feeds,     callable->n_feeds, callable->fetches,
                                 callable->n_fetches, callable->targets, callable->n_targets };
    run.timeout_usec = options.timeout_usec;
    run.cancel = options.cancel ? &options.cancel->cancel : NULL;
    run.trace_file = options.trace_file;
    r = engine_run(callable->session->engine, &call, &run, feed_tensors, ret_tensors, err);
    if (options.metadata) {
        metadata.size = options.metadata->size;
        metadata.n_kernels = run.n_kernels;
        metadata.step_bytes = run.step_bytes;
        metadata.ready_order_bytes = run.ready_order_bytes;
        metadata.was_planned = run.was_planned;
        memcpy(options.metadata, &metadata, metadata.size);
    }
    return r;
}

int allot_session_run(struct allot_session *session, const struct allot_output *feeds,
                      struct allot_tensor *const *feed_tensors, size_t n_feeds,
                      const struct allot_output *fetches, size_t n_fetches,
                      struct allot_node *const *targets, size_t n_targets,
                      struct allot_tensor **ret_tensors, struct allot_error *err) {
    struct allot_callable *callable;
    int r = allot_callable_new(&callable, session, feeds, n_feeds, fetches, n_fetches, targets,
                               n_targets, err);

    if (r < 0)
        return r;
    r = allot_callable_run(callable, NULL, feed_tensors, ret_tensors, err);
    allot_callable_free(callable);
    return r;
}

int allot_cancel_new(struct allot_cancel **ret, struct allot_error *err) {
    struct allot_cancel *cancel;

    if (!ret)
        return error_null(err, "place for a cancellation");
    cancel = calloc(1, sizeof(*cancel));
    if (!cancel)
        return error_set(err, -ENOMEM, "no host memory for a cancellation");
    cancel_init(&cancel->cancel);
    *ret = cancel;
    return 0;
}

void allot_cancel_now(struct allot_cancel *cancel) {
    if (cancel)
        cancel_give(&cancel->cancel);
}

struct allot_cancel *allot_cancel_free(struct allot_cancel *cancel) {
    if (cancel)
        cancel_done(&cancel->cancel);
    free(cancel);
    return NULL;
}
