/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/engine/plan_lookup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "libclient/core/tensor.h"
#include "libclient/exec/engine/engine.h"
#include "libclient/exec/run/run_state.h"
#include "libclient/exec/stop/stop_scope.h"
#include "libclient/exec/plan/plan_build.h"
#include "libclient/exec/memory/run_memory.h"
#include "libclient/exec/memory/alloc.h"

/* The plan for a request, or the question that it raises; built where there is none. */
static int find_entry(struct engine *engine, const struct program_request *asked,
                      struct engine_run *run, struct cache_entry **ret, struct allot_error *err) {
    cleanup(freep) unsigned char *key = NULL;
    size_t key_bytes;

    if (cache_key(asked, &key, &key_bytes) < 0)
        return error_set(err, -ENOMEM, "no host memory for a run");
    *ret = cache_find(&engine->cache, key, key_bytes);
    return *ret ? 0 : plan_build_entry(engine, asked, key, key_bytes, run, ret, err);
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

/* The plan for a call: questions are answered until there is one. */
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
static int make_state(struct engine *engine, struct cache_entry *entry,
                      const struct engine_run *run, struct run_state **ret,
                      struct allot_error *err) {
    atomic_bool is_stopped = false;
    const struct stop stop = { &is_stopped, &engine->cache.lock, &engine->cache.news };
    const struct alloc_wait wait = { .until_nsec = run->until_nsec, .stopped = &is_stopped };
    struct allot_error where = { 0 };
    struct stop_scope scope;
    int r = stop_scope_begin(&scope, run->until_nsec, run->cancel, &stop, err), why;

    if (r < 0)
        return r;
    r = run_memory_new(ret, &engine->cache, entry, &engine->variables, &wait, &where);
    why = stop_scope_end(&scope);
    if (r == -ECANCELED && why < 0)
        return engine_stopped(run, why, where.text, err);
    return r < 0 ? error_set(err, r, "%s", where.text) : 0;
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
    struct cache_entry *entry;
    struct run_state *state;
    int r;

    /* Only host memory: building a plan takes no memory of a GPU. */
    do
        r = find_plan(engine, &request, feeds, run, &entry, err);
    while (r == -ENOMEM && cache_reclaim(engine->devices[0]));
    if (r < 0)
        return r;
    state = cache_take_state(&engine->cache, entry);
    if (!state)
        r = make_state(engine, entry, run, &state, err);
    if (r < 0) {
        cache_release(&engine->cache, entry);
        return r;
    }
    *ret = entry;
    *ret_state = state;
    return 0;
}
