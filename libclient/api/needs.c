/* SPDX-License-Identifier: Apache-2.0 */
/* Needs: allot_session_plan() of allot/session.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "libclient/allot/session.h"
#include "libclient/api/config.h"
#include "libclient/api/session.h"
#include "libclient/core/tensor.h"
#include "libclient/exec/plan/foresee.h"
#include "libclient/exec/plan/program.h"
#include "libclient/exec/engine/threads.h"

/* Arenas grow by this much, and slabs have gaps: a sixteenth was enough for all that was tried. */
#define STEP_BYTES (UINT64_C(2) << 20)
#define GAPS_PART  16

/* The run in the graph's terms. */
struct wanted {
    struct edge *feeds, *fetches;
    struct shape *shapes;
    uint32_t *targets;
};

static void wanted_done(struct wanted *wanted) {
    free(wanted->feeds);
    free(wanted->fetches);
    free(wanted->shapes);
    free(wanted->targets);
}

static int wanted_make(struct wanted *wanted, size_t n_feeds, size_t n_fetches, size_t n_targets) {
    if (n_feeds > UINT32_MAX / 2 || n_fetches > UINT32_MAX / 2 || n_targets > UINT32_MAX / 2)
        return -ENOMEM;
    wanted->feeds = calloc(n_feeds + 1, sizeof(*wanted->feeds));
    wanted->shapes = calloc(n_feeds + 1, sizeof(*wanted->shapes));
    wanted->fetches = calloc(n_fetches + 1, sizeof(*wanted->fetches));
    wanted->targets = calloc(n_targets + 1, sizeof(*wanted->targets));
    return wanted->feeds && wanted->shapes && wanted->fetches && wanted->targets ? 0 : -ENOMEM;
}

static uint64_t round_up(uint64_t bytes) {
    return (bytes + STEP_BYTES - 1) / STEP_BYTES * STEP_BYTES;
}

static int give(struct allot_needs *ret, const struct foresee_result *found,
                struct allot_error *err) {
    if (found->n_gpus > ALLOT_NEEDS_MAX)
        return error_set(err, -EINVAL, "the plan uses %u GPUs, more than the %d that a lease has",
                         found->n_gpus, ALLOT_NEEDS_MAX);
    *ret = (struct allot_needs){ .size = sizeof(*ret),
                                 .step_usec = found->step_usec,
                                 .n_copies = found->n_copies,
                                 .n_gpus = found->n_gpus };
    for (uint32_t i = 0; i < found->n_gpus; i++) {
        const struct foresee_gpu *gpu = &found->gpus[i];
        struct allot_need *need = &ret->gpus[i];

        memcpy(need->device, gpu->uuid, sizeof(need->device));
        need->tensor_bytes =
            round_up(gpu->tensor_bytes + gpu->tensor_bytes / GAPS_PART + STEP_BYTES);
        need->lease_bytes = need->tensor_bytes + round_up(gpu->context_bytes);
    }
    return 0;
}

int allot_session_plan(struct allot_needs *ret, struct allot_graph *graph,
                       const struct allot_session_options *given, const struct allot_output *feeds,
                       struct allot_tensor *const *feed_tensors, size_t n_feeds,
                       const struct allot_output *fetches, size_t n_fetches,
                       struct allot_node *const *targets, size_t n_targets,
                       struct allot_error *err) {
    cleanup(wanted_done) struct wanted wanted = { 0 };
    cleanup(freep) struct foresee_result *found = calloc(1, sizeof(*found));
    cleanup(freep) char *text = NULL;
    struct allot_session_options options;
    struct program_request request;
    struct foresee_options foresee;
    int r;

    if (!ret || !graph)
        return error_null(err, ret ? "graph" : "place for needs");
    if (ret->size != sizeof(*ret))
        return error_set(err, -EINVAL,
                         "the needs have the wrong size, %zu bytes: set it to sizeof(struct "
                         "allot_needs), and compile with the headers of this library",
                         ret->size);
    if ((n_feeds && (!feeds || !feed_tensors)) || (n_fetches && !fetches) ||
        (n_targets && !targets))
        return error_null(err, "array of what is run");
    r = session_options(&options, given, err);
    if (r == 0)
        r = config_fill(&options, &text, err);
    if (r < 0)
        return r;
    if (!found || wanted_make(&wanted, n_feeds, n_fetches, n_targets) < 0)
        return error_set(err, -ENOMEM, "no host memory for a plan");
    for (size_t i = 0; r == 0 && i < n_feeds; i++) {
        r = feed_tensors[i] ? session_edge(graph, feeds[i], "feed", i, &wanted.feeds[i], err)
                            : error_set(err, -EINVAL, "feed %zu is not a tensor", i);
        if (r == 0)
            wanted.shapes[i] = feed_tensors[i]->shape;
    }
    for (size_t i = 0; r == 0 && i < n_fetches; i++)
        r = session_edge(graph, fetches[i], "fetch", i, &wanted.fetches[i], err);
    for (size_t i = 0; r == 0 && i < n_targets; i++)
        r = session_target(graph, targets[i], i, &wanted.targets[i], err);
    if (r < 0)
        return r;
    request = (struct program_request){ .graph = graph,
                                        .feeds = wanted.feeds,
                                        .feed_shapes = wanted.shapes,
                                        .feed_known = feed_tensors,
                                        .n_feeds = (uint32_t)n_feeds,
                                        .fetches = wanted.fetches,
                                        .n_fetches = (uint32_t)n_fetches,
                                        .targets = wanted.targets,
                                        .n_targets = (uint32_t)n_targets };
    foresee = (struct foresee_options){
        .visible_devices = options.cpu_only ? "" : options.visible_devices,
        .limit_bytes = options.memory_limit,
        .n_cpu_threads = options.intra_op_threads ? options.intra_op_threads : threads_of_machine(),
        .dynamic = { .budget = options.placer_budget,
                     .is_stopped = options.placer_stop,
                     .data = options.placer_userdata,
                     .soft = options.allow_soft_placement,
                     .cache_dir = options.cache_dir },
    };
    r = foresee_run(found, &request, &foresee, err);
    return r < 0 ? r : give(ret, found, err);
}
