/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/engine/stopped_runs.h"

#include "libclient/exec/engine/cache.h"
#include "libclient/exec/run/run_state.h"
#include "libclient/exec/stop/stop.h"

void stopped_runs_keep(struct cache *cache, struct cache_entry *entry, struct run_state *state) {
    state->entry = entry;
    state->is_listed = true;
    state->used = cache_count_use();
    pthread_mutex_lock(&cache->lock);
    state->next = cache->stopped_runs;
    cache->stopped_runs = state;
    atomic_fetch_add(&cache->n_stopped_runs, 1);
    pthread_mutex_unlock(&cache->lock);
    /* Its work may have ended just now, before it was listed here. */
    memory_user_tell_idle(entry->program);
}

static void unlist(struct cache *cache, struct run_state *state) {
    struct run_state **at = &cache->stopped_runs;

    while (*at != state)
        at = &(*at)->next;
    *at = state->next;
    state->is_listed = false;
    atomic_fetch_sub(&cache->n_stopped_runs, 1);
}

/* With the lock held, which is released meanwhile: this thread no longer watches a run state. The
 * thread that first sees its work ended takes it off the list, and the last watcher gives it back.
 */
static void unwatch(struct cache *cache, struct run_state *state, bool is_over) {
    struct cache_entry *entry = state->entry;

    if (is_over && state->is_listed)
        unlist(cache, state);
    if (--state->n_watchers > 0 || state->is_listed)
        return;
    pthread_mutex_unlock(&cache->lock);
    run_state_retire(state);
    cache_give_state(cache, entry, state);
    cache_release(cache, entry);
    pthread_mutex_lock(&cache->lock);
}

static int await(struct run_state *state, struct stop *stop) {
    bool is_over;
    int why;

    stop_enter(stop, NULL, &state->lock, &state->news);
    is_over = run_state_await(state, &stop->is_given);
    why = stop_leave(stop);
    return is_over ? 0 : why;
}

int stopped_runs_await(struct cache *cache, struct stop *stop) {
    int r = 0;

    if (atomic_load(&cache->n_stopped_runs) == 0)
        return 0;
    pthread_mutex_lock(&cache->lock);
    while (r == 0 && cache->stopped_runs) {
        struct run_state *state = cache->stopped_runs;

        state->n_watchers++;
        pthread_mutex_unlock(&cache->lock);
        r = await(state, stop);
        pthread_mutex_lock(&cache->lock);
        unwatch(cache, state, r == 0);
    }
    pthread_mutex_unlock(&cache->lock);
    return r;
}
