/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Crew: how helpers come and go.
 *
 * A helper that finds no work leaves; one that makes more work than it can do itself calls another.
 * Whoever leaves looks once more after it has said that it is gone, so that work which was put out
 * in between is not lost. The caller stays to the end: it looks for work for a while, then sleeps
 * until there is some or all is done.
 *
 * Items that become ready because a GPU has done something go on a stack that belongs to none of
 * the threads. Whoever puts them there wakes the caller if it sleeps, and a helper if not.
 *
 * `left` counts items that are not done. Each thread counts for itself and settles when it has
 * nothing to do, so that tiny items do not meet in one cache line.
 */
#include "libclient/exec/run/workers.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/core/pool.h"
#include "libclient/exec/run/run_state.h"
#include "libclient/exec/run/queue.h"
#include "libclient/exec/run/trace.h"

/* LOOKS: how often to look at all the others before giving up. */
enum { LOOKS = 64 };
/* Another thread is worth calling for this much work, in nanoseconds: more than waking it costs. */
enum { WORTH_NSEC = 5000 };

struct worker {
    _Alignas(64) atomic_flag lock;
    _Atomic uint32_t n; /* items on the stack */
    uint32_t *stack;    /* room for all items */
    struct pool_task task;
    struct crew *crew;
    uint32_t index;
    atomic_bool is_out; /* called, and not gone again */
};

struct crew {
    struct frame *frame;
    struct pool *pool;
    uint32_t n_workers;
    struct worker *list; /* 0: the caller; the last, n_workers: nobody, see crew_tell() */
    uint32_t *later;     /* of a crew of one: items that have the host wait, first come first */
    uint32_t first_later, n_later;
    _Atomic uint32_t *waits; /* by item: predecessors that are not done */
    _Alignas(64) _Atomic uint32_t left;
    _Atomic uint32_t inside; /* helpers, and waiters who call some, who may still touch this */
    bool is_closed;          /* nobody may come in any more; frame->lock */
    atomic_bool is_asleep;   /* the caller, on frame->news */
};

static void worker_lock(struct worker *worker) {
    while (atomic_flag_test_and_set_explicit(&worker->lock, memory_order_acquire))
        __builtin_ia32_pause();
}

static void worker_unlock(struct worker *worker) {
    atomic_flag_clear_explicit(&worker->lock, memory_order_release);
}

static void push(struct worker *worker, const uint32_t *items, uint32_t n_items) {
    uint32_t n;

    worker_lock(worker);
    n = atomic_load_explicit(&worker->n, memory_order_relaxed);
    /* The first is to be taken first. */
    for (uint32_t i = n_items; i-- > 0;)
        worker->stack[n++] = items[i];
    atomic_store_explicit(&worker->n, n, memory_order_release);
    worker_unlock(worker);
}

static bool pop(struct worker *worker, uint32_t *ret) {
    uint32_t n;

    if (atomic_load_explicit(&worker->n, memory_order_relaxed) == 0)
        return false;
    worker_lock(worker);
    n = atomic_load_explicit(&worker->n, memory_order_relaxed);
    if (n > 0) {
        *ret = worker->stack[n - 1];
        atomic_store_explicit(&worker->n, n - 1, memory_order_relaxed);
    }
    worker_unlock(worker);
    return n > 0;
}

/* Take the older half of what `victim` has: the newer is warm in its cache. */
static bool steal(struct worker *thief, struct worker *victim, uint32_t *ret) {
    uint32_t taken[256];
    uint32_t n, n_taken;

    if (atomic_load_explicit(&victim->n, memory_order_relaxed) == 0)
        return false;
    worker_lock(victim);
    n = atomic_load_explicit(&victim->n, memory_order_relaxed);
    n_taken = (n + 1) / 2 > 256 ? 256 : (n + 1) / 2;
    memcpy(taken, victim->stack, n_taken * sizeof(*taken));
    memmove(victim->stack, victim->stack + n_taken, (n - n_taken) * sizeof(*taken));
    atomic_store_explicit(&victim->n, n - n_taken, memory_order_relaxed);
    worker_unlock(victim);
    if (n_taken == 0)
        return false;
    *ret = taken[n_taken - 1];
    if (n_taken > 1) {
        worker_lock(thief);
        memcpy(thief->stack, taken, (n_taken - 1) * sizeof(*taken));
        atomic_store_explicit(&thief->n, n_taken - 1, memory_order_release);
        worker_unlock(thief);
    }
    return true;
}

static bool find_any(struct worker *worker, uint32_t *ret) {
    struct crew *crew = worker->crew;

    for (uint32_t i = 1; i <= crew->n_workers; i++)
        if (steal(worker, &crew->list[(worker->index + i) % (crew->n_workers + 1)], ret))
            return true;
    return false;
}

/* An item that has this thread wait, where that is all there is to do. */
static bool find_later(struct crew *crew, uint32_t *ret) {
    if (crew->first_later == crew->n_later)
        return false;
    if (crew->frame->is_stoppable && !queue_await(crew->frame, crew->later[crew->first_later]))
        return false;
    *ret = crew->later[crew->first_later++];
    return true;
}

static bool has_work(const struct crew *crew) {
    for (uint32_t i = 0; i <= crew->n_workers; i++)
        if (atomic_load(&crew->list[i].n) > 0)
            return true;
    return false;
}

static bool is_over(const struct crew *crew) {
    return atomic_load(&crew->left) == 0 || atomic_load(&crew->frame->cancelled);
}

static void wake_caller(struct crew *crew) {
    if (!atomic_load(&crew->is_asleep))
        return;
    pthread_mutex_lock(&crew->frame->lock);
    pthread_cond_signal(&crew->frame->news);
    pthread_mutex_unlock(&crew->frame->lock);
}

static void call_helper(struct crew *crew) {
    wake_caller(crew);
    for (uint32_t i = 1; i < crew->n_workers; i++) {
        struct worker *helper = &crew->list[i];
        bool in = false;

        if (!atomic_load_explicit(&helper->is_out, memory_order_relaxed) &&
            atomic_compare_exchange_strong(&helper->is_out, &in, true)) {
            atomic_fetch_add(&crew->inside, 1);
            pool_run(crew->pool, &helper->task);
            return;
        }
    }
}

/* Those that `item` was the last to keep waiting: the first is to be run next, the others go on the
 * stack. PROGRAM_NONE: none. */
static uint32_t release(struct worker *worker, const struct program_item *item) {
    struct crew *crew = worker->crew;
    const struct program *program = crew->frame->program;
    uint32_t ready[64], n_ready = 0, next = PROGRAM_NONE;
    uint64_t cost = 0;
    bool pushed = false;

    for (uint32_t s = 0; s < item->n_successors; s++) {
        uint32_t then = program->successors[item->first_successor + s];

        if (atomic_fetch_sub_explicit(&crew->waits[then], 1, memory_order_acq_rel) != 1)
            continue;
        if (crew->later && program->items[then].waits_on_host) {
            crew->later[crew->n_later++] = then;
            continue;
        }
        if (next == PROGRAM_NONE) {
            next = then;
            continue;
        }
        if (n_ready == 64) {
            push(worker, ready, n_ready);
            pushed = true;
            n_ready = 0;
        }
        ready[n_ready++] = then;
        cost += program->items[then].cost + 100;
    }
    if (n_ready > 0) {
        push(worker, ready, n_ready);
        pushed = true;
    }
    if (pushed && cost >= WORTH_NSEC)
        call_helper(crew);
    return next;
}

static void run_item(struct worker *worker, uint32_t i) {
    struct frame *frame = worker->crew->frame;
    struct frame_item *item = &frame->items[i];
    int r;

    if (frame->trace)
        r = trace_item(frame->trace, frame, i, worker->index);
    else
        r = item->fn(&item->run);
    if (r < 0)
        frame_fail(frame, i, r);
}

/* Work until there is none to be found; how many items were done. */
static void work(struct worker *worker) {
    struct crew *crew = worker->crew;
    const struct program *program = crew->frame->program;
    uint32_t n_done = 0, item = PROGRAM_NONE;

    while (!atomic_load_explicit(&crew->frame->cancelled, memory_order_relaxed)) {
        if (item == PROGRAM_NONE && !pop(worker, &item) && !find_any(worker, &item) &&
            !find_later(crew, &item))
            break;
        run_item(worker, item);
        n_done++;
        if (atomic_load_explicit(&crew->frame->cancelled, memory_order_relaxed))
            break;
        item = release(worker, &program->items[item]);
    }
    if (n_done > 0 && atomic_fetch_sub(&crew->left, n_done) == n_done)
        wake_caller(crew);
    else if (atomic_load(&crew->frame->cancelled))
        wake_caller(crew);
}

/* Under the lock, so that the caller does not end it all between the two. */
static void leave(struct crew *crew) {
    struct frame *frame = crew->frame;

    pthread_mutex_lock(&frame->lock);
    if (atomic_fetch_sub(&crew->inside, 1) == 1)
        pthread_cond_signal(&frame->news);
    pthread_mutex_unlock(&frame->lock);
}

static void helper_main(struct pool_task *task) {
    struct worker *worker = (struct worker *)((char *)task - offsetof(struct worker, task));
    struct crew *crew = worker->crew;

    for (;;) {
        bool in = false;

        for (unsigned look = 0; look < LOOKS && !is_over(crew); look++)
            work(worker);
        atomic_store(&worker->is_out, false);
        if (is_over(crew) || !has_work(crew) ||
            !atomic_compare_exchange_strong(&worker->is_out, &in, true))
            break;
    }
    leave(crew);
}

bool crew_asks(const struct crew *crew) {
    return !crew->later || crew->frame->is_stoppable;
}

/* Come in, unless all is over. */
static bool enter(struct crew *crew) {
    bool may;

    pthread_mutex_lock(&crew->frame->lock);
    may = !crew->is_closed;
    if (may)
        atomic_fetch_add(&crew->inside, 1);
    pthread_mutex_unlock(&crew->frame->lock);
    return may;
}

void crew_tell(struct crew *crew, uint32_t event) {
    const struct program *program = crew->frame->program;
    struct worker *nobody = &crew->list[crew->n_workers];
    uint32_t n_ready = 0;
    bool is_asleep;

    if (crew->later || !enter(crew))
        return;
    for (uint32_t t = program->first_told[event]; t < program->first_told[event + 1]; t++) {
        uint32_t item = program->told[t];

        if (atomic_fetch_sub_explicit(&crew->waits[item], 1, memory_order_acq_rel) != 1)
            continue;
        push(nobody, &item, 1);
        n_ready++;
    }
    if (n_ready > 0) {
        /* Under the lock, as nobody looks again for us: either the caller sees the work before it
         * sleeps, or it is woken. */
        pthread_mutex_lock(&crew->frame->lock);
        is_asleep = atomic_load(&crew->is_asleep);
        pthread_cond_signal(&crew->frame->news);
        pthread_mutex_unlock(&crew->frame->lock);
        if (!is_asleep || n_ready > 1)
            call_helper(crew);
    }
    leave(crew);
}

static void sleep_until_news(struct crew *crew) {
    pthread_mutex_lock(&crew->frame->lock);
    atomic_store(&crew->is_asleep, true);
    while (!is_over(crew) && !has_work(crew))
        pthread_cond_wait(&crew->frame->news, &crew->frame->lock);
    atomic_store(&crew->is_asleep, false);
    pthread_mutex_unlock(&crew->frame->lock);
}

bool crew_run(struct crew *crew) {
    const struct program *program = crew->frame->program;
    struct worker *caller = &crew->list[0];

    for (uint32_t i = 0; i < program->n_items; i++) {
        const struct program_item *item = &program->items[i];
        uint32_t n_told = item->waits_on_host && !crew->later ? item->n_waits : 0;

        atomic_store_explicit(&crew->waits[i], item->n_predecessors + n_told, memory_order_relaxed);
    }
    for (uint32_t i = 0; i <= crew->n_workers; i++)
        atomic_store_explicit(&crew->list[i].n, 0, memory_order_relaxed);
    crew->first_later = crew->n_later = 0;
    crew->is_closed = false;
    atomic_store(&crew->left, program->n_items);
    push(caller, program->ready, program->n_ready);
    if (program->n_ready > 1)
        call_helper(crew);
    while (!is_over(crew)) {
        work(caller);
        for (unsigned look = 0; look < LOOKS && !is_over(crew) && !has_work(crew); look++)
            __builtin_ia32_pause();
        if (!is_over(crew) && !has_work(crew))
            sleep_until_news(crew);
    }
    pthread_mutex_lock(&crew->frame->lock);
    while (atomic_load(&crew->inside) > 0)
        pthread_cond_wait(&crew->frame->news, &crew->frame->lock);
    crew->is_closed = true;
    pthread_mutex_unlock(&crew->frame->lock);
    return atomic_load(&crew->left) == 0 && atomic_load(&crew->frame->failed_item) == PROGRAM_NONE;
}

int crew_new(struct crew **ret, struct frame *frame, struct pool *pool, uint32_t n_threads) {
    struct crew *crew = aligned_alloc(64, (sizeof(*crew) + 63) / 64 * 64);
    uint32_t n_items = frame->program->n_items;

    if (!crew)
        return -ENOMEM;
    *crew = (struct crew){ .frame = frame, .pool = pool, .n_workers = n_threads };
    crew->waits = calloc(n_items + 1, sizeof(*crew->waits));
    crew->list = aligned_alloc(64, (n_threads + 1) * sizeof(*crew->list));
    if (crew->list)
        memset(crew->list, 0, (n_threads + 1) * sizeof(*crew->list));
    crew->later = n_threads == 1 ? malloc((n_items + 1) * sizeof(*crew->later)) : NULL;
    if (!crew->waits || !crew->list || (n_threads == 1 && !crew->later)) {
        crew_free(crew);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i <= n_threads; i++) {
        struct worker *worker = &crew->list[i];

        worker->crew = crew;
        worker->index = i;
        worker->task.run = helper_main;
        worker->stack = malloc((n_items + 1) * sizeof(*worker->stack));
        if (!worker->stack) {
            crew_free(crew);
            return -ENOMEM;
        }
    }
    *ret = crew;
    return 0;
}

struct crew *crew_free(struct crew *crew) {
    if (!crew)
        return NULL;
    for (uint32_t i = 0; crew->list && i <= crew->n_workers; i++)
        free(crew->list[i].stack);
    free(crew->list);
    free(crew->later);
    free(crew->waits);
    free(crew);
    return NULL;
}
