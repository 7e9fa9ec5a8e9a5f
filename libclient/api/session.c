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
#include "libclient/device/device.h"
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
                         "%s of %zu bytes: use its initialiser, and the headers of this library",
                         what, size);
    return 0;
}

/* Fill `whole` from what the caller gave, of which the first `size` bytes are there. */
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
    };
    int r = permyriad_of(options->memory_fraction, &engine.gpus.fraction_permyriad, err);

    if (r < 0)
        return r;
    session = calloc(1, sizeof(*session));
    if (!session)
        return error_set(err, -ENOMEM, "no host memory for a session");
    r = engine_new(&session->engine, graph, &engine, err);
    if (r < 0) {
        free(session);
        return r;
    }
    *ret = session;
    return 0;
}

int allot_session_new(struct allot_session **ret, struct allot_graph *graph,
                      const struct allot_session_options *given, struct allot_error *err) {
    struct allot_session_options options = ALLOT_SESSION_OPTIONS_INIT;
    cleanup(freep) char *text = NULL;
    int r = !ret ? error_null(err, "place for a session")
                 : TAKE_OPTIONS(options, given, "session options", err);

    if (r < 0)
        return r;
    if (!graph)
        return error_set(err, -EINVAL, "a session needs a graph");
    if (options.placer != ALLOT_PLACER_SIMPLE)
        return error_set(err, -EINVAL,
                         "there is no placer %d: ALLOT_PLACER_SIMPLE (%d) is the only one",
                         (int)options.placer, (int)ALLOT_PLACER_SIMPLE);
    r = config_fill(&options, &text, err);
    return r < 0 ? r : session_make(ret, graph, &options, err);
}

struct allot_session *allot_session_free(struct allot_session *session) {
    if (session)
        engine_free(session->engine);
    free(session);
    return NULL;
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

static int edge_from(const struct allot_session *session, struct allot_output output,
                     const char *what, size_t i, struct edge *ret, struct allot_error *err) {
    struct edge edge = handle_edge(output);

    if (edge_is_none(edge)) {
        int r = allot_graph_error(session->engine->graph, err);

        return r < 0 ? r : error_set(err, -EINVAL, "%s %zu is not an output of a node", what, i);
    }
    if (edge.node >= graph_n_nodes(session->engine->graph) ||
        graph_node(session->engine->graph, edge.node) != handle_node(output.node))
        return error_set(err, -EINVAL, "%s %zu: '%s' is a node of another graph", what, i,
                         allot_node_name(output.node));
    *ret = edge;
    return 0;
}

static int target_from(const struct allot_session *session, const struct allot_node *node, size_t i,
                       uint32_t *ret, struct allot_error *err) {
    struct edge edge;
    int r;

    if (!node) {
        r = allot_graph_error(session->engine->graph, err);
        return r < 0 ? r : error_set(err, -EINVAL, "target %zu is not a node: NULL was given", i);
    }
    r = edge_from(session, (struct allot_output){ (struct allot_node *)(uintptr_t)node, 0 },
                  "target", i, &edge, err);
    if (r == 0)
        *ret = edge.node;
    return r;
}

static int fill(struct allot_callable *callable, const struct allot_output *feeds,
                const struct allot_output *fetches, struct allot_node *const *targets,
                struct allot_error *err) {
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < callable->n_feeds; i++)
        r = edge_from(callable->session, feeds[i], "feed", i, &callable->feeds[i], err);
    for (uint32_t i = 0; r == 0 && i < callable->n_fetches; i++)
        r = edge_from(callable->session, fetches[i], "fetch", i, &callable->fetches[i], err);
    for (uint32_t i = 0; r == 0 && i < callable->n_targets; i++)
        r = target_from(callable->session, targets[i], i, &callable->targets[i], err);
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
