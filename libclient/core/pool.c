/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pool: a loop is a struct on its caller's stack, linked into one of a few slots for as long as it
 * has parts left. Idle threads look through the slots and take parts by an atomic addition; the
 * caller takes parts too, then unlinks the loop and waits for helpers that are still inside.
 * Nothing is allocated, and a loop without helpers costs two atomic operations more than a plain
 * one.
 *
 * Sleeping and waking go through one counter (`news`): a thread reads it, looks for work, finds
 * none and sleeps unless the counter has changed (futex). A thread that brings work raises the
 * counter, and makes a system call only if a thread sleeps.
 */
#include "libclient/core/pool.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LOOPS = 16, LOOKS = 200 }; /* LOOKS: how often to look again before a sleep */

struct loop {
    pool_range_fn fn;
    void *userdata;
    size_t n, grain;
    _Atomic size_t next; /* the first index that is not taken */
};

/* Marks the slot of a loop that has no parts left until its last helper has gone. Another loop must
 * not get the slot before that: its caller would wait for those helpers too, or be one of them. */
static struct loop drained;

/* `helpers` is counted in the slot, not in the loop: a helper must be able to leave a loop whose
 * caller has gone. */
struct pool_slot {
    _Alignas(64) _Atomic(struct loop *) loop;
    _Atomic uint32_t helpers; /* threads that may still look at the loop */
};

struct thread_pool {
    struct pool_slot slots[LOOPS];
    _Alignas(64) _Atomic uint32_t news;
    _Atomic uint32_t sleepers;
    _Atomic bool ending;
    pthread_mutex_t lock; /* of the tasks */
    struct pool_task *first, **last;
    _Atomic uint32_t n_tasks;
    pid_t pid; /* whose threads they are */
    unsigned n_threads, n_started;
    char name[12];
    pthread_t threads[];
};

static void futex_wait(_Atomic uint32_t *word, uint32_t value) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int n) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

static inline void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void announce(struct thread_pool *pool, int n) {
    atomic_fetch_add(&pool->news, 1);
    if (atomic_load(&pool->sleepers))
        futex_wake(&pool->news, n);
}

/* ---- Loops ----------------------------------------------------------------------------------- */

static bool take_part(struct loop *loop) {
    size_t begin = atomic_fetch_add(&loop->next, loop->grain), end;

    if (begin >= loop->n)
        return false;
    end = loop->n - begin < loop->grain ? loop->n : begin + loop->grain;
    loop->fn(loop->userdata, begin, end);
    return true;
}

static bool help(struct pool_slot *slot) {
    struct loop *loop;
    bool helped = false;

    loop = atomic_load_explicit(&slot->loop, memory_order_relaxed);
    if (!loop || loop == &drained)
        return false;
    /* Count this helper first, then read the slot: a caller that unlinks its loop waits for all
     * helpers counted before. */
    atomic_fetch_add(&slot->helpers, 1);
    loop = atomic_load(&slot->loop);
    while (loop && loop != &drained && take_part(loop))
        helped = true;
    if (atomic_fetch_sub(&slot->helpers, 1) == 1)
        futex_wake(&slot->helpers, INT_MAX);
    return helped;
}

static void wait_for_helpers(struct pool_slot *slot) {
    uint32_t helpers;

    for (unsigned look = 0; (helpers = atomic_load(&slot->helpers)); look++) {
        if (look < LOOKS)
            relax();
        else
            futex_wait(&slot->helpers, helpers);
    }
}

static struct pool_slot *hang(struct thread_pool *pool, struct loop *loop) {
    for (size_t i = 0; i < LOOPS; i++) {
        struct loop *none = NULL;

        if (!atomic_load_explicit(&pool->slots[i].loop, memory_order_relaxed) &&
            atomic_compare_exchange_strong(&pool->slots[i].loop, &none, loop))
            return &pool->slots[i];
    }
    return NULL;
}

void pool_for(struct thread_pool *pool, size_t n, size_t grain, pool_range_fn fn, void *userdata) {
    struct loop loop = { .fn = fn, .userdata = userdata, .n = n, .grain = grain ? grain : 1 };
    struct pool_slot *slot;

    if (n == 0)
        return;
    if (n <= loop.grain || pool->n_started == 0 || pool->pid != getpid() ||
        !(slot = hang(pool, &loop))) {
        fn(userdata, 0, n);
        return;
    }
    announce(pool, (int)((n + loop.grain - 1) / loop.grain - 1 > INT_MAX
                             ? INT_MAX
                             : (n + loop.grain - 1) / loop.grain - 1));
    while (take_part(&loop))
        ;
    atomic_store(&slot->loop, &drained);
    wait_for_helpers(slot);
    atomic_store(&slot->loop, NULL);
}

/* ---- Tasks ----------------------------------------------------------------------------------- */

static bool run_task(struct thread_pool *pool) {
    struct pool_task *task;

    if (!atomic_load_explicit(&pool->n_tasks, memory_order_relaxed))
        return false;
    pthread_mutex_lock(&pool->lock);
    task = pool->first;
    if (task) {
        pool->first = task->link;
        if (!pool->first)
            pool->last = &pool->first;
        atomic_fetch_sub(&pool->n_tasks, 1);
    }
    pthread_mutex_unlock(&pool->lock);
    if (task)
        task->run(task);
    return task != NULL;
}

void pool_run(struct thread_pool *pool, struct pool_task *task) {
    if (pool->n_started == 0 || pool->pid != getpid()) {
        task->run(task);
        return;
    }
    task->link = NULL;
    pthread_mutex_lock(&pool->lock);
    *pool->last = task;
    pool->last = &task->link;
    atomic_fetch_add(&pool->n_tasks, 1);
    pthread_mutex_unlock(&pool->lock);
    announce(pool, 1);
}

/* ---- Threads --------------------------------------------------------------------------------- */

static bool work(struct thread_pool *pool) {
    bool worked = run_task(pool);

    for (size_t i = 0; i < LOOPS; i++)
        worked |= help(&pool->slots[i]);
    return worked;
}

static void *serve(void *user) {
    struct thread_pool *pool = user;

    for (;;) {
        uint32_t news = atomic_load(&pool->news);
        bool worked = false;

        for (unsigned look = 0; look < LOOKS && !(worked = work(pool)); look++)
            relax();
        if (worked)
            continue;
        if (atomic_load(&pool->ending))
            return NULL;
        atomic_fetch_add(&pool->sleepers, 1);
        futex_wait(&pool->news, news);
        atomic_fetch_sub(&pool->sleepers, 1);
    }
}

static int start(struct thread_pool *pool) {
    sigset_t all, before;
    int r = 0;

    /* Leave signals to the program's own threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (r == 0 && pool->n_started < pool->n_threads) {
        char name[16];

        r = pthread_create(&pool->threads[pool->n_started], NULL, serve, pool);
        if (r != 0)
            break;
        snprintf(name, sizeof(name), "%s-%u", pool->name, pool->n_started % 1000);
        pthread_setname_np(pool->threads[pool->n_started], name);
        pool->n_started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -r;
}

int pool_new(struct thread_pool **ret, unsigned n_threads, const char *name) {
    size_t size = (sizeof(struct thread_pool) + n_threads * sizeof(pthread_t) + 63) / 64 * 64;
    struct thread_pool *pool = aligned_alloc(64, size);
    int r;

    if (!pool)
        return -ENOMEM;
    memset(pool, 0, size);
    pthread_mutex_init(&pool->lock, NULL);
    pool->last = &pool->first;
    pool->n_threads = n_threads;
    pool->pid = getpid();
    snprintf(pool->name, sizeof(pool->name), "%s", name);
    r = start(pool);
    if (r < 0) {
        pool_free(pool);
        return r;
    }
    *ret = pool;
    return 0;
}

struct thread_pool *pool_free(struct thread_pool *pool) {
    if (!pool)
        return NULL;
    if (pool->pid == getpid()) {
        atomic_store(&pool->ending, true);
        announce(pool, INT_MAX);
        for (unsigned i = 0; i < pool->n_started; i++)
            pthread_join(pool->threads[i], NULL);
    }
    pthread_mutex_destroy(&pool->lock);
    free(pool);
    return NULL;
}

unsigned pool_n_threads(const struct thread_pool *pool) {
    return pool->n_threads;
}
