/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/memory/stopped_runs.h"

#include "libclient/exec/plan/cache.h"
#include "libclient/exec/run/run_state.h"
#include "libclient/exec/stop/stop_scope.h"

void stopped_runs_keep(struct cache *cache, struct cache_entry *entry, struct frame *frame) {
    frame->entry = entry;
    frame->is_listed = true;
    frame->used = cache_count_use();
    pthread_mutex_lock(&cache->lock);
    frame->next = cache->stopped_runs;
    cache->stopped_runs = frame;
    atomic_fetch_add(&cache->n_stopped_runs, 1);
    pthread_mutex_unlock(&cache->lock);
    /* Its work may have ended just now, when nobody would have found it here. */
    cache_tell_idle(entry->program);
}

static void unlist(struct cache *cache, struct frame *frame) {
    struct frame **at = &cache->stopped_runs;

    while (*at != frame)
        at = &(*at)->next;
    *at = frame->next;
    frame->is_listed = false;
    atomic_fetch_sub(&cache->n_stopped_runs, 1);
}

/* With the lock held, which is let go of meanwhile: this thread no longer watches a frame. Whoever
 * sees first that its work is over takes it off the list, and the last one gives it back. */
static void unwatch(struct cache *cache, struct frame *frame, bool is_over) {
    struct cache_entry *entry = frame->entry;

    if (is_over && frame->is_listed)
        unlist(cache, frame);
    if (--frame->n_watchers > 0 || frame->is_listed)
        return;
    pthread_mutex_unlock(&cache->lock);
    frame_retire(frame);
    cache_give_frame(cache, entry, frame);
    cache_release(cache, entry);
    pthread_mutex_lock(&cache->lock);
}

static int await(struct frame *frame, uint64_t until_nsec, struct cancel *cancel,
                 struct allot_error *err) {
    atomic_bool is_stopped = false;
    const struct stop stop = { &is_stopped, &frame->lock, &frame->news };
    struct stop_scope scope;
    int r = stop_scope_begin(&scope, until_nsec, cancel, &stop, err), why;

    if (r < 0)
        return r;
    r = frame_await(frame, &is_stopped) ? 0 : 1;
    why = stop_scope_end(&scope);
    return r ? why : 0;
}

int stopped_runs_await(struct cache *cache, uint64_t until_nsec, struct cancel *cancel,
                       struct allot_error *err) {
    int r = 0;

    if (atomic_load(&cache->n_stopped_runs) == 0)
        return 0;
    pthread_mutex_lock(&cache->lock);
    while (r == 0 && cache->stopped_runs) {
        struct frame *frame = cache->stopped_runs;

        frame->n_watchers++;
        pthread_mutex_unlock(&cache->lock);
        r = await(frame, until_nsec, cancel, err);
        pthread_mutex_lock(&cache->lock);
        unwatch(cache, frame, r == 0);
    }
    pthread_mutex_unlock(&cache->lock);
    return r;
}
