/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/plan/plan_build.h"

#include <errno.h>

#include "base/error.h"
#include "libclient/exec/engine/engine.h"
#include "libclient/exec/stop/stop_scope.h"

/* With the plan lock held: place all nodes that were added since. */
static int place(struct engine *engine, const atomic_bool *halt, struct allot_error *err) {
    return placement_extend(&engine->placement, engine->graph, engine->devices, engine->n_devices,
                            engine->options.soft_placement, engine->options.log_placement, halt,
                            err);
}

int plan_build_place(struct engine *engine, uint32_t node, struct device **ret,
                     struct allot_error *err) {
    int r;

    stoppable_lock_take(&engine->plan_lock, NULL);
    r = place(engine, NULL, err);
    if (r == 0)
        *ret = engine->devices[engine->placement.devices[node]];
    stoppable_lock_give(&engine->plan_lock);
    return r;
}

/* With the plan lock held: build what the cache does not have, unless another thread just did. */
static int make_entry(struct engine *engine, const struct program_request *asked,
                      const unsigned char *key, size_t key_bytes, const atomic_bool *halt,
                      struct engine_run *run, struct cache_entry **ret, struct allot_error *err) {
    struct program_request request = *asked;
    struct program *program;
    int r;

    *ret = cache_find(&engine->cache, key, key_bytes);
    if (*ret)
        return 0;
    r = place(engine, halt, err);
    if (r < 0)
        return r;
    request.placement = engine->placement.devices;
    request.halt = halt;
    r = program_new(&program, &request, err);
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

int plan_build_entry(struct engine *engine, const struct program_request *asked,
                     const unsigned char *key, size_t key_bytes, struct engine_run *run,
                     struct cache_entry **ret, struct allot_error *err) {
    atomic_bool is_stopped = false;
    const struct stop stop = stoppable_lock_stop(&engine->plan_lock, &is_stopped);
    struct stop_scope scope;
    int r = stop_scope_begin(&scope, run->until_nsec, run->cancel, &stop, err), why;

    if (r < 0)
        return r;
    r = stoppable_lock_take(&engine->plan_lock, &is_stopped);
    if (r == 0) {
        r = make_entry(engine, asked, key, key_bytes, &is_stopped, run, ret, err);
        stoppable_lock_give(&engine->plan_lock);
    }
    why = stop_scope_end(&scope);
    if (why == 0 || (r < 0 && r != -ECANCELED))
        return r;
    if (r == 0)
        cache_release(&engine->cache, *ret);
    return engine_stopped(run, why, NULL, err);
}
