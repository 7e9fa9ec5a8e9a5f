/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/leftovers.h"

#include "libclient/exec/cache.h"
#include "libclient/exec/frame.h"
#include "libclient/exec/guard.h"

void leftovers_init(struct leftovers *leftovers, pthread_mutex_t *lock, struct cache *cache) {
    *leftovers = (struct leftovers){ .lock = lock, .cache = cache };
}

void leftovers_keep(struct leftovers *leftovers, struct cache_entry *entry, struct frame *frame) {
    frame->entry = entry;
    frame->is_listed = true;
    frame->next = leftovers->first;
    leftovers->first = frame;
    atomic_fetch_add(&leftovers->n, 1);
}

static void unlist(struct leftovers *leftovers, struct frame *frame) {
    struct frame **at = &leftovers->first;

    while (*at != frame)
        at = &(*at)->next;
    *at = frame->next;
    frame->is_listed = false;
    atomic_fetch_sub(&leftovers->n, 1);
}

/* With the lock held, which is let go of meanwhile: this thread no longer watches a frame. Whoever
 * sees first that its work is over takes it off the list, and the last one gives it back. */
static void unwatch(struct leftovers *leftovers, struct frame *frame, bool is_over) {
    if (is_over && frame->is_listed)
        unlist(leftovers, frame);
    if (--frame->n_watchers > 0 || frame->is_listed)
        return;
    pthread_mutex_unlock(leftovers->lock);
    frame_retire(frame);
    pthread_mutex_lock(leftovers->lock);
    cache_give_frame(frame->entry, frame);
    cache_release(leftovers->cache, frame->entry);
}

static int await(struct frame *frame, uint64_t until_nsec, struct cancel *cancel,
                 struct allot_error *err) {
    atomic_bool is_stopped = false;
    const struct stop stop = { &is_stopped, &frame->lock, &frame->news };
    struct guard guard;
    int r = guard_begin(&guard, until_nsec, cancel, &stop, err), why;

    if (r < 0)
        return r;
    r = frame_await(frame, &is_stopped) ? 0 : 1;
    why = guard_end(&guard);
    return r ? why : 0;
}

int leftovers_settle(struct leftovers *leftovers, uint64_t until_nsec, struct cancel *cancel,
                     struct allot_error *err) {
    int r = 0;

    if (atomic_load(&leftovers->n) == 0)
        return 0;
    pthread_mutex_lock(leftovers->lock);
    while (r == 0 && leftovers->first) {
        struct frame *frame = leftovers->first;

        frame->n_watchers++;
        pthread_mutex_unlock(leftovers->lock);
        r = await(frame, until_nsec, cancel, err);
        pthread_mutex_lock(leftovers->lock);
        unwatch(leftovers, frame, r == 0);
    }
    pthread_mutex_unlock(leftovers->lock);
    return r;
}
