/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/engine/plan_lookup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "libclient/core/tensor.h"
#include "libclient/core/wait.h"
#include "libclient/exec/engine/engine.h"
#include "libclient/exec/engine/replace.h"
#include "libclient/exec/run/run_state.h"
#include "libclient/exec/engine/run_memory.h"

/* With the plan lock held: place all nodes that were added since. */
static int place(struct engine *engine, const atomic_bool *halt, struct allot_error *err) {
    const struct placement_request request = { engine->graph, engine->devices, engine->n_devices,
                                               engine->options.soft_placement, halt };

    return placement_extend(&engine->placement, &request, engine->options.log_placement, err);
}

/* With the plan lock held: the device of a variable, which the dynamic placer may have to choose
 * before any plan uses it. */
static int place_variable(struct engine *engine, uint32_t node, struct allot_error *err) {
    const struct placement_request request = { engine->graph, engine->devices, engine->n_devices,
                                               engine->options.soft_placement, NULL };

    return node < engine->placement.n_nodes && engine->placement.devices[node] != PLACEMENT_NONE
               ? 0
               : dynamic_placement_variables(engine->dynamic, &request, err);
}

int plan_lookup_place(struct engine *engine, uint32_t node, struct device **ret,
                      struct allot_error *err) {
    int r;

    stop_lock_take(&engine->plan_lock, NULL);
    r = engine->dynamic ? place_variable(engine, node, err) : place(engine, NULL, err);
    if (r == 0)
        *ret = engine->devices[engine->placement.devices[node]];
    stop_lock_give(&engine->plan_lock);
    return r;
}

/* How often to plan anew where the memory of a program has gaps that the plan did not know of. */
enum { REPLANS_MAX = 4 };

int plan_lookup_program(const struct program_request *request, struct program **ret,
                        struct allot_error *err) {
    int r;

    if (!request->dynamic)
        return program_new(ret, request, err);
    dynamic_placement_begin(request->dynamic);
    for (int i = 0;; i++) {
        r = program_new(ret, request, err);
        if (r < 0 || (*ret)->n_asked > 0 || i == REPLANS_MAX ||
            dynamic_placement_fits(request->dynamic, *ret))
            return r;
        program_free(*ret);
    }
}

/* With the plan lock held: build what the cache does not have, unless another thread just did, or
 * something better than what it has. */
static int make_entry(struct engine *engine, const struct program_request *asked,
                      const unsigned char *key, size_t key_bytes, const atomic_bool *halt,
                      struct engine_run *run, struct cache_entry **ret, struct allot_error *err) {
    struct program_request request = *asked;
    struct program *program;
    int r;

    request.dynamic = engine->dynamic;
    request.halt = halt;
    *ret = cache_find(&engine->cache, key, key_bytes);
    if (*ret && atomic_load(&(*ret)->wants_review) && request.stage == 0)
        replace_review(engine, &request, key, key_bytes, ret);
    if (*ret)
        return 0;
    if (!request.dynamic) {
        r = place(engine, halt, err);
        if (r < 0)
            return r;
        request.placement = engine->placement.devices;
    }
    r = plan_lookup_program(&request, &program, err);
    if (r < 0)
        return r;
    r = cache_add(&engine->cache, key, key_bytes, program, ret);
    if (r < 0) {
        program_free(program);
        return error_set(err, r, "no host memory for a plan");
    }
    run->was_planned = true;
    return 0;
}

/*
 * Build the entry, unless another thread just did. A plan that is ready too late is kept for the
 * next run.
 */
static int build_entry(struct engine *engine, const struct program_request *asked,
                       const unsigned char *key, size_t key_bytes, struct engine_run *run,
                       struct cache_entry **ret, struct allot_error *err) {
    int r, why;

    stop_enter(&run->stop, NULL, &engine->plan_lock.mutex, &engine->plan_lock.news);
    r = stop_lock_take(&engine->plan_lock, &run->stop.is_given);
    if (r == 0) {
        r = make_entry(engine, asked, key, key_bytes, &run->stop.is_given, run, ret, err);
        stop_lock_give(&engine->plan_lock);
    }
    why = stop_leave(&run->stop);
    if (why == 0 || (r < 0 && r != -ECANCELED))
        return r;
    if (r == 0)
        cache_release(&engine->cache, *ret);
    return engine_stopped(run, why, NULL, err);
}

/* The plan for a request, or the question that it raises; built if there is none. */
static int find_entry(struct engine *engine, const struct program_request *asked,
                      struct engine_run *run, struct cache_entry **ret, struct allot_error *err) {
    cleanup(freep) unsigned char *key = NULL;
    size_t key_bytes;

    if (cache_key(asked, &key, &key_bytes) < 0)
        return error_set(err, -ENOMEM, "no host memory for a run");
    *ret = cache_find(&engine->cache, key, key_bytes);
    if (*ret && atomic_load_explicit(&(*ret)->wants_review, memory_order_relaxed)) {
        cache_release(&engine->cache, *ret);
        *ret = NULL;
    }
    return *ret ? 0 : build_entry(engine, asked, key, key_bytes, run, ret, err);
}

/* Values that a plan asks for, copied from the caller's feeds. */
struct answers {
    struct allot_tensor **known; /* by feed */
    uint32_t *valued;            /* those that are copies */
    uint32_t n;
};

static void answers_done(struct answers *answers) {
    for (uint32_t i = 0; i < answers->n; i++)
        allot_tensor_unref(answers->known[answers->valued[i]]);
    free(answers->known);
    free(answers->valued);
}

static int answer(struct answers *answers, const struct program *question,
                  struct program_request *request, struct allot_tensor *const *feeds) {
    if (!answers->known) {
        answers->known = calloc(request->n_feeds, sizeof(struct allot_tensor *));
        answers->valued = calloc(request->n_feeds, sizeof(*answers->valued));
        if (!answers->known || !answers->valued)
            return -ENOMEM;
        if (request->feed_known)
            memcpy(answers->known, request->feed_known,
                   request->n_feeds * sizeof(struct allot_tensor *));
    }
    for (uint32_t i = 0; i < question->n_asked; i++) {
        uint32_t feed = question->asked[i];
        const struct allot_tensor *from = feeds[feed];
        int r = allot_tensor_copy_of(&answers->known[feed], (enum allot_dtype)from->dtype,
                                     from->shape.rank, from->shape.dims, tensor_data(from), NULL);

        if (r < 0)
            return r;
        answers->valued[answers->n++] = feed;
    }
    request->feed_known = answers->known;
    request->valued = answers->valued;
    request->n_valued = answers->n;
    return 0;
}

/* The plan for a call: answers questions until there is one. */
static int find_plan(struct engine *engine, const struct program_request *asked,
                     struct allot_tensor *const *feeds, struct engine_run *run,
                     struct cache_entry **ret, struct allot_error *err) {
    struct program_request request = *asked;
    struct answers answers = { 0 };
    int r = find_entry(engine, &request, run, ret, err);

    while (r == 0 && (*ret)->program->n_asked) {
        r = answer(&answers, (*ret)->program, &request, feeds);
        cache_release(&engine->cache, *ret);
        r = r < 0 ? error_set(err, r, "no host memory for a run")
                  : find_entry(engine, &request, run, ret, err);
    }
    answers_done(&answers);
    return r;
}

/* Memory for a run, which may have to be waited for: then the run can be stopped. */
static int make_state(struct engine *engine, struct cache_entry *entry, struct engine_run *run,
                      struct run_state **ret, struct allot_error *err) {
    struct wait wait = wait_begin(run->stop.until_nsec, &run->stop.is_given);
    struct allot_error where = { 0 };
    int r, why;

    stop_enter(&run->stop, NULL, &engine->cache.lock, &engine->cache.news);
    r = run_memory_new(ret, &engine->cache, entry, &engine->variables, &wait, &where);
    why = stop_leave(&run->stop);
    wait_end(&wait);
    if (r == -ECANCELED && why < 0)
        return engine_stopped(run, why, where.text, err);
    return r < 0 ? error_set(err, r, "%s", where.text) : 0;
}

/* The plan, with a use of it, and a run state; building takes only memory of the host. */
static int take(struct engine *engine, const struct program_request *request,
                struct allot_tensor *const *feeds, struct engine_run *run,
                struct cache_entry **ret_entry, struct run_state **ret_state,
                struct allot_error *err) {
    struct cache_entry *entry;
    struct run_state *state;
    bool is_shrunk;
    int r;

    do
        r = find_plan(engine, request, feeds, run, &entry, err);
    while (r == -ENOMEM && cache_reclaim(engine->devices[0]));
    if (r < 0)
        return r;
    state = cache_take_state(&engine->cache, entry);
    if (!state)
        r = make_state(engine, entry, run, &state, err);
    if (r == 0) {
        *ret_entry = entry;
        *ret_state = state;
        return 0;
    }
    is_shrunk = (r == -ENOMEM || r == -ETIMEDOUT) && engine->dynamic && request->stage == 0 &&
                !atomic_load(&run->stop.is_given) && replace_shrunk(engine, entry->program);
    cache_release(&engine->cache, entry);
    return is_shrunk ? -EAGAIN : r;
}

int plan_lookup_take(struct engine *engine, const struct engine_call *call,
                     const struct cache_entry *before, struct allot_tensor *const *feeds,
                     const struct shape *shapes, struct engine_run *run, struct cache_entry **ret,
                     struct run_state **ret_state, struct allot_error *err) {
    const struct program_request request = {
        .graph = engine->graph,
        .feeds = call->feeds,
        .feed_shapes = shapes,
        .feed_known = call->feed_known,
        .n_feeds = call->n_feeds,
        .fetches = call->fetches,
        .n_fetches = call->n_fetches,
        .targets = call->targets,
        .n_targets = call->n_targets,
        .devices = engine->devices,
        .n_devices = engine->n_devices,
        .is_done = before ? before->program->is_done : NULL,
        .n_done = before ? before->program->n_graph : 0,
        .stage = before ? before->hash | 1 : 0,
        .n_threads = engine->options.inter_threads,
        .n_intra_threads = engine->options.intra_threads,
        .deterministic = engine->options.deterministic,
        .seed = engine->options.seed,
    };
    int r;

    do /* ends: every time there is less memory to plan with */
        r = take(engine, &request, feeds, run, ret, ret_state, err);
    while (r == -EAGAIN);
    return r;
}
