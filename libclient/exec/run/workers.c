/* SPDX-License-Identifier: Apache-2.0 */
/*
 * With one thread the items run one after the other in their order, without counting what is ready
 * and without a queue: two loads and a call for each. That applies only if no item of the host
 * waits for a GPU.
 *
 * How helpers come and go. A helper that finds no work leaves; one that makes more work than it can
 * do itself calls another. A leaving helper looks for work once more after it has announced that it
 * is gone, so that work added in between is not lost. The caller stays to the end: it looks for
 * work for a while, then sleeps until there is some or all is done.
 *
 * Items that become ready because of a GPU go on a stack that belongs to no thread. The waiter that
 * puts them there wakes the caller if it sleeps, and calls a helper if not.
 *
 * `left` counts items that are not done. Each thread counts for itself and adds its count when it
 * has nothing to do, so that tiny items do not contend for one cache line.
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
    struct workers *workers;
    uint32_t index;
    atomic_bool is_out; /* called, and not gone again */
};

struct workers {
    struct run_state *state;
    struct thread_pool *pool;
    uint32_t n_workers;
    struct worker *list; /* 0: the caller; the last, n_workers: no thread's, see workers_tell() */
    uint32_t *later;     /* of a caller without helpers: items for which the host waits, in order of
                            arrival */
    uint32_t first_later, n_later;
    _Atomic uint32_t *waits; /* by item: predecessors that are not done */
    _Alignas(64) _Atomic uint32_t left;
    _Atomic uint32_t inside; /* helpers, and waiters that call some, that may still touch this */
    bool is_closed;          /* no helper may enter any more; state->lock */
    atomic_bool is_asleep;   /* the caller, on state->news */
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
    /* In reverse: the top of the stack is taken first. */
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
    struct workers *workers = worker->workers;

    for (uint32_t i = 1; i <= workers->n_workers; i++)
        if (steal(worker, &workers->list[(worker->index + i) % (workers->n_workers + 1)], ret))
            return true;
    return false;
}

/* An item for which this thread waits, where there is nothing else to do. */
static bool find_later(struct workers *workers, uint32_t *ret) {
    if (workers->first_later == workers->n_later)
        return false;
    if (workers->state->is_stoppable &&
        !queue_await(workers->state, workers->later[workers->first_later]))
        return false;
    *ret = workers->later[workers->first_later++];
    return true;
}

static bool has_work(const struct workers *workers) {
    for (uint32_t i = 0; i <= workers->n_workers; i++)
        if (atomic_load(&workers->list[i].n) > 0)
            return true;
    return false;
}

static bool is_over(const struct workers *workers) {
    return atomic_load(&workers->left) == 0 || atomic_load(&workers->state->cancelled);
}

static void wake_caller(struct workers *workers) {
    if (!atomic_load(&workers->is_asleep))
        return;
    pthread_mutex_lock(&workers->state->lock);
    pthread_cond_signal(&workers->state->news);
    pthread_mutex_unlock(&workers->state->lock);
}

static void call_helper(struct workers *workers) {
    wake_caller(workers);
    for (uint32_t i = 1; i < workers->n_workers; i++) {
        struct worker *helper = &workers->list[i];
        bool in = false;

        if (!atomic_load_explicit(&helper->is_out, memory_order_relaxed) &&
            atomic_compare_exchange_strong(&helper->is_out, &in, true)) {
            atomic_fetch_add(&workers->inside, 1);
            pool_run(workers->pool, &helper->task);
            return;
        }
    }
}

/* Of `item` and the newest on the worker's stack, the one that is earlier in the plan; the other is
 * on the stack then. */
static uint32_t earlier(struct worker *worker, uint32_t item) {
    uint32_t n, top;

    worker_lock(worker);
    n = atomic_load_explicit(&worker->n, memory_order_relaxed);
    top = n > 0 ? worker->stack[n - 1] : item;
    if (top < item)
        worker->stack[n - 1] = item;
    worker_unlock(worker);
    return MIN(top, item);
}

/* Release the items for which `item` was the last predecessor: returns the first, which is run
 * next; the others go on the stack. PROGRAM_NONE: none. */
static uint32_t release(struct worker *worker, const struct program_item *item) {
    struct workers *workers = worker->workers;
    const struct program *program = workers->state->program;
    uint32_t ready[64], n_ready = 0, next = PROGRAM_NONE;
    uint64_t cost = 0;
    bool pushed = false;

    for (uint32_t s = 0; s < item->n_successors; s++) {
        uint32_t then = program->successors[item->first_successor + s];

        if (atomic_fetch_sub_explicit(&workers->waits[then], 1, memory_order_acq_rel) != 1)
            continue;
        if (workers->later && program->items[then].waits_on_host) {
            workers->later[workers->n_later++] = then;
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
        call_helper(workers);
    /* What is queued on GPUs early can begin early, beside what is queued next. */
    return next != PROGRAM_NONE && program->has_gpu ? earlier(worker, next) : next;
}

static void run_item(struct worker *worker, uint32_t i) {
    struct run_state *state = worker->workers->state;
    struct run_state_item *item = &state->items[i];
    int r;

    if (state->trace)
        r = trace_item(state->trace, state, i, worker->index);
    else
        r = item->fn(&item->run);
    if (r < 0)
        run_state_fail(state, i, r);
}

/* Work until there is none to be found; how many items were done. */
static void work(struct worker *worker) {
    struct workers *workers = worker->workers;
    const struct program *program = workers->state->program;
    uint32_t n_done = 0, item = PROGRAM_NONE;

    while (!atomic_load_explicit(&workers->state->cancelled, memory_order_relaxed)) {
        if (item == PROGRAM_NONE && !pop(worker, &item) && !find_any(worker, &item) &&
            !find_later(workers, &item))
            break;
        run_item(worker, item);
        n_done++;
        if (atomic_load_explicit(&workers->state->cancelled, memory_order_relaxed))
            break;
        item = release(worker, &program->items[item]);
    }
    if (n_done > 0 && atomic_fetch_sub(&workers->left, n_done) == n_done)
        wake_caller(workers);
    else if (atomic_load(&workers->state->cancelled))
        wake_caller(workers);
}

/* Under the lock, so that the caller does not end the run between the two. */
static void leave(struct workers *workers) {
    struct run_state *state = workers->state;

    pthread_mutex_lock(&state->lock);
    if (atomic_fetch_sub(&workers->inside, 1) == 1)
        pthread_cond_signal(&state->news);
    pthread_mutex_unlock(&state->lock);
}

static void helper_main(struct pool_task *task) {
    struct worker *worker = (struct worker *)((char *)task - offsetof(struct worker, task));
    struct workers *workers = worker->workers;

    for (;;) {
        bool in = false;

        for (unsigned look = 0; look < LOOKS && !is_over(workers); look++)
            work(worker);
        atomic_store(&worker->is_out, false);
        if (is_over(workers) || !has_work(workers) ||
            !atomic_compare_exchange_strong(&worker->is_out, &in, true))
            break;
    }
    leave(workers);
}

bool workers_ask(const struct workers *workers) {
    return !workers->later || workers->state->is_stoppable;
}

/* Enter, unless the run is over. */
static bool enter(struct workers *workers) {
    bool may;

    pthread_mutex_lock(&workers->state->lock);
    may = !workers->is_closed;
    if (may)
        atomic_fetch_add(&workers->inside, 1);
    pthread_mutex_unlock(&workers->state->lock);
    return may;
}

void workers_tell(struct workers *workers, uint32_t event) {
    const struct program *program = workers->state->program;
    struct worker *nobody = &workers->list[workers->n_workers];
    uint32_t n_ready = 0;
    bool is_asleep;

    if (workers->later || !enter(workers))
        return;
    for (uint32_t t = program->first_told[event]; t < program->first_told[event + 1]; t++) {
        uint32_t item = program->told[t];

        if (atomic_fetch_sub_explicit(&workers->waits[item], 1, memory_order_acq_rel) != 1)
            continue;
        push(nobody, &item, 1);
        n_ready++;
    }
    if (n_ready > 0) {
        /* Under the lock, because no thread will look again: either the caller sees the work before
         * it sleeps, or it is woken. */
        pthread_mutex_lock(&workers->state->lock);
        is_asleep = atomic_load(&workers->is_asleep);
        pthread_cond_signal(&workers->state->news);
        pthread_mutex_unlock(&workers->state->lock);
        if (!is_asleep || n_ready > 1)
            call_helper(workers);
    }
    leave(workers);
}

static void sleep_until_news(struct workers *workers) {
    pthread_mutex_lock(&workers->state->lock);
    atomic_store(&workers->is_asleep, true);
    while (!is_over(workers) && !has_work(workers))
        pthread_cond_wait(&workers->state->news, &workers->state->lock);
    atomic_store(&workers->is_asleep, false);
    pthread_mutex_unlock(&workers->state->lock);
}

/* All items, or until one fails or the run is stopped: whether all were done. When it returns no
 * thread works on the run state any more. */
static bool run_together(struct workers *workers) {
    const struct program *program = workers->state->program;
    struct worker *caller = &workers->list[0];

    for (uint32_t i = 0; i < program->n_items; i++) {
        const struct program_item *item = &program->items[i];
        uint32_t n_told = item->waits_on_host && !workers->later ? item->n_waits : 0;

        atomic_store_explicit(&workers->waits[i], item->n_predecessors + n_told,
                              memory_order_relaxed);
    }
    for (uint32_t i = 0; i <= workers->n_workers; i++)
        atomic_store_explicit(&workers->list[i].n, 0, memory_order_relaxed);
    workers->first_later = workers->n_later = 0;
    workers->is_closed = false;
    atomic_store(&workers->left, program->n_items);
    push(caller, program->ready, program->n_ready);
    if (program->n_ready > 1)
        call_helper(workers);
    while (!is_over(workers)) {
        work(caller);
        for (unsigned look = 0; look < LOOKS && !is_over(workers) && !has_work(workers); look++)
            __builtin_ia32_pause();
        if (!is_over(workers) && !has_work(workers))
            sleep_until_news(workers);
    }
    pthread_mutex_lock(&workers->state->lock);
    while (atomic_load(&workers->inside) > 0)
        pthread_cond_wait(&workers->state->news, &workers->state->lock);
    workers->is_closed = true;
    pthread_mutex_unlock(&workers->state->lock);
    return atomic_load(&workers->left) == 0 &&
           atomic_load(&workers->state->failed_item) == PROGRAM_NONE;
}

/* For at most `n_threads`, the caller included. -ENOMEM. */
static int workers_new(struct workers **ret, struct run_state *state, struct thread_pool *pool,
                       uint32_t n_threads) {
    struct workers *workers = aligned_alloc(64, (sizeof(*workers) + 63) / 64 * 64);
    uint32_t n_items = state->program->n_items;

    if (!workers)
        return -ENOMEM;
    *workers = (struct workers){ .state = state, .pool = pool, .n_workers = n_threads };
    workers->waits = calloc(n_items + 1, sizeof(*workers->waits));
    workers->list = aligned_alloc(64, (n_threads + 1) * sizeof(*workers->list));
    if (workers->list)
        memset(workers->list, 0, (n_threads + 1) * sizeof(*workers->list));
    workers->later = n_threads == 1 ? malloc((n_items + 1) * sizeof(*workers->later)) : NULL;
    if (!workers->waits || !workers->list || (n_threads == 1 && !workers->later)) {
        workers_free(workers);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i <= n_threads; i++) {
        struct worker *worker = &workers->list[i];

        worker->workers = workers;
        worker->index = i;
        worker->task.run = helper_main;
        worker->stack = malloc((n_items + 1) * sizeof(*worker->stack));
        if (!worker->stack) {
            workers_free(workers);
            return -ENOMEM;
        }
    }
    *ret = workers;
    return 0;
}

struct workers *workers_free(struct workers *workers) {
    if (!workers)
        return NULL;
    for (uint32_t i = 0; workers->list && i <= workers->n_workers; i++)
        free(workers->list[i].stack);
    free(workers->list);
    free(workers->later);
    free(workers->waits);
    free(workers);
    return NULL;
}

/* ---- By the caller alone --------------------------------------------------------------------- */

static void run_in_order(struct run_state *state) {
    uint32_t n = state->program->n_items;

    for (uint32_t i = 0; i < n; i++) {
        const struct run_state_item *item = &state->items[i];
        int r;

        if (__builtin_expect(atomic_load_explicit(&state->cancelled, memory_order_relaxed), 0))
            return;
        r = item->fn(&item->run);
        if (__builtin_expect(r < 0, 0)) {
            run_state_fail(state, i, r);
            return;
        }
    }
    state->has_ended = true;
}

static void run_traced(struct run_state *state) {
    uint32_t n = state->program->n_items, i;

    for (i = 0; i < n && !atomic_load(&state->cancelled); i++) {
        int r = trace_item(state->trace, state, i, 0);

        if (r < 0)
            run_state_fail(state, i, r);
    }
    state->has_ended = i == n && state->failure.code == 0;
}

int workers_run(struct run_state *state, struct thread_pool *pool, uint32_t n_threads) {
    /* A wait of the host must not hold up the other items: that needs workers, even without
     * helpers. */
    if (n_threads <= 1 && state->program->n_told == 0) {
        if (state->trace)
            run_traced(state);
        else
            run_in_order(state);
        return 0;
    }
    if (!state->workers) {
        int r = workers_new(&state->workers, state, pool, n_threads);

        if (r < 0)
            return r;
    }
    state->has_ended = run_together(state->workers);
    return 0;
}
