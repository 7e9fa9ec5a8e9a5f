/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/time/executor.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"

/* How many pieces of work may be under way: a program that submits more waits for the oldest, as
 * with a real driver, whose queues are shorter. */
#define MAX_UNRESOLVED 16384

/* How often to look at conditions whose changes the executor cannot see. */
#define POLL_NS 200000

/* How long a wait considers work that itself waits for the outside world. */
#define PATIENCE_NS UINT64_C(2000000000)
#define LOOK_NS     UINT64_C(100000000)

struct work {
    struct timeline_item item; /* first: a timeline item is cast to its work */
    unsigned refs;
    bool done;
    bool on_host_thread;
    bool for_caller; /* can run, and does so in work_wait() */
    work_fn run;
    bool (*poll)(void *argument); /* NULL once it holds */
    void *argument;
    void (*release)(void *argument);

    unsigned n_awaited; /* not yet executed works that this one comes after */
    struct work **dependents;
    size_t n_dependents, n_dependents_allocated;
    struct work *next;    /* in the queue of those that can run */
    uint64_t visited;     /* the last search that reached it */
    _Atomic bool waiting; /* it runs, and only waits for something else */
};

static __thread struct work *running;

struct queue {
    struct work *first, *last;
    pthread_cond_t filled;
};

struct executor {
    pthread_mutex_t lock;
    pthread_cond_t done; /* some work was executed */
    struct queue device; /* for the device threads */
    struct queue host;   /* for the one thread that calls the program back */
    struct queue polled; /* for the one thread that looks whether conditions hold */
    unsigned n_threads;  /* wanted */
    unsigned n_running;  /* device threads started */
    bool host_running, polled_running;
    struct timeline timeline;
    uint64_t n_searches;
};

/* Higher priority (a lower number) first, else in the order of arrival. */
static void queue_put(struct queue *queue, struct work *work) {
    struct work **at = &queue->first;

    if (queue->last && queue->last->item.priority <= work->item.priority)
        at = &queue->last->next;
    else
        while (*at && (*at)->item.priority <= work->item.priority)
            at = &(*at)->next;
    work->next = *at;
    *at = work;
    if (!work->next)
        queue->last = work;
    pthread_cond_signal(&queue->filled);
}

static struct work *queue_take(struct queue *queue) {
    struct work *work = queue->first;

    queue->first = work->next;
    if (!queue->first)
        queue->last = NULL;
    return work;
}

static struct work *from_item(struct timeline_item *item) {
    return (struct work *)item;
}

struct work *work_ref(struct work *work) {
    __atomic_add_fetch(&work->refs, 1, __ATOMIC_RELAXED);
    return work;
}

/* Drop a reference. Returns work that the caller must destroy() after it has released the lock. */
static struct work *drop(struct work *work) {
    return __atomic_sub_fetch(&work->refs, 1, __ATOMIC_ACQ_REL) == 0 ? work : NULL;
}

static void destroy(struct work *work) {
    if (!work)
        return;
    if (work->release)
        work->release(work->argument);
    timeline_item_done(&work->item);
    free(work->dependents);
    free(work);
}

struct work *work_unref(struct executor *executor, struct work *work) {
    if (work)
        destroy(drop(work));
    return NULL;
}

static void make_runnable(struct executor *executor, struct work *work) {
    queue_put(work->poll             ? &executor->polled
              : work->on_host_thread ? &executor->host
                                     : &executor->device,
              work);
}

/*
 * Note that `work` was executed, and release the work that waited for it. Released work that runs
 * nothing counts as executed at once, so events need no thread. Needs the lock.
 */
static void finish(struct executor *executor, struct work *work, uint64_t cost_ns) {
    work->item.cost_ns = cost_ns;
    work->next = NULL;
    while (work) {
        struct work *next = work->next;

        work->item.cost_known = true;
        work->done = true;
        for (size_t i = 0; i < work->n_dependents; i++) {
            struct work *later = work->dependents[i];

            /* `later` has its own reference from the executor until it is done. */
            if (--later->n_awaited)
                continue;
            if (later->run || later->poll)
                make_runnable(executor, later);
            else {
                later->next = next;
                next = later;
            }
        }
        free(work->dependents);
        work->dependents = NULL;
        work->n_dependents = work->n_dependents_allocated = 0;
        if (!work->run)
            drop(work); /* never the last: it is resolved only after it was done */
        work = next;
    }
    pthread_cond_broadcast(&executor->done);
}

/* Drop a reference; the lock is released while the work is freed. */
static void drop_locked(struct executor *executor, struct work *work) {
    work = drop(work);
    if (!work)
        return;
    pthread_mutex_unlock(&executor->lock);
    destroy(work);
    pthread_mutex_lock(&executor->lock);
}

/* Run it, with the lock released. */
static void execute(struct executor *executor, struct work *work) {
    struct work *outer = running;
    uint64_t cost_ns;

    pthread_mutex_unlock(&executor->lock);
    running = work;
    cost_ns = work->run(work->argument);
    running = outer;
    pthread_mutex_lock(&executor->lock);
    finish(executor, work, cost_ns);
    drop_locked(executor, work);
}

_Atomic bool *executor_waiting_flag(void) {
    return running ? &running->waiting : NULL;
}

/* The executor's threads end with the process. */
static _Noreturn void serve(struct executor *executor, struct queue *queue) {
    pthread_mutex_lock(&executor->lock);
    for (;;) {
        while (!queue->first)
            pthread_cond_wait(&queue->filled, &executor->lock);
        execute(executor, queue_take(queue));
    }
}

static _Noreturn void *serve_device(void *argument) {
    serve(argument, &((struct executor *)argument)->device);
}

static _Noreturn void *serve_host(void *argument) {
    serve(argument, &((struct executor *)argument)->host);
}

/* Ask for the condition of each work in the queue; those where it holds go on. Needs the lock. */
static bool poll_all(struct executor *executor) {
    struct work *work, *rest = executor->polled.first;
    bool any = false;

    executor->polled.first = executor->polled.last = NULL;
    while ((work = rest)) {
        bool holds;

        rest = work->next;
        pthread_mutex_unlock(&executor->lock);
        holds = work->poll(work->argument);
        pthread_mutex_lock(&executor->lock);
        any |= holds;
        if (holds)
            work->poll = NULL;
        if (holds && !work->run)
            finish(executor, work, 0);
        else
            make_runnable(executor, work);
    }
    return any;
}

/* Sleep until some work was executed, but not for long. Needs the lock. */
static void wait_some(struct executor *executor, uint64_t ns) {
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)ns;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&executor->done, &executor->lock, &until);
}

static _Noreturn void *serve_polled(void *argument) {
    struct executor *executor = argument;

    pthread_mutex_lock(&executor->lock);
    for (;;) {
        if (!executor->polled.first) {
            pthread_cond_wait(&executor->polled.filled, &executor->lock);
            continue;
        }
        if (poll_all(executor))
            continue;
        /*
         * Other work may make the condition true, and so may the program, unnoticed by the
         * executor.
         */
        wait_some(executor, POLL_NS);
    }
}

/* The executor's threads take none of the program's signals. */
static int start_thread(struct executor *executor, void *(*fn)(void *)) {
    sigset_t all, before;
    pthread_attr_t attr;
    pthread_t thread;
    int r;

    sigfillset(&all);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    r = pthread_create(&thread, &attr, fn, executor);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return -r;
}

int executor_new(struct executor **ret, unsigned n_threads) {
    struct executor *executor = calloc(1, sizeof(*executor));

    if (!executor)
        return -ENOMEM;
    pthread_mutex_init(&executor->lock, NULL);
    pthread_cond_init(&executor->done, NULL);
    pthread_cond_init(&executor->device.filled, NULL);
    pthread_cond_init(&executor->host.filled, NULL);
    pthread_cond_init(&executor->polled.filled, NULL);
    executor->n_threads = MAX(n_threads, 1u);
    *ret = executor;
    return 0;
}

/* Threads start when there is something to do: most processes only look at the devices. */
static int ensure_threads(struct executor *executor, bool host, bool polled) {
    int r = 0;

    if (polled && !executor->polled_running) {
        r = start_thread(executor, serve_polled);
        if (r < 0)
            return r;
        executor->polled_running = true;
    }

    if (host && !executor->host_running) {
        r = start_thread(executor, serve_host);
        executor->host_running = r == 0;
    }
    while (!host && executor->n_running < executor->n_threads) {
        r = start_thread(executor, serve_device);
        if (r < 0)
            return executor->n_running ? 0 : r;
        executor->n_running++;
    }
    return r;
}

/* `work` is executed after `earlier`. Room was reserved. */
static void follow(struct work *work, struct work *earlier) {
    if (earlier->done)
        return;
    earlier->dependents[earlier->n_dependents++] = work;
    work->n_awaited++;
}

static int reserve_dependents(struct work *earlier, size_t n) {
    const size_t wanted = earlier->n_dependents + n;
    struct work **larger;

    if (earlier->done || wanted <= earlier->n_dependents_allocated)
        return 0;
    larger = reallocarray(earlier->dependents, 2 * wanted, sizeof(*larger));
    if (!larger)
        return -ENOMEM;
    earlier->dependents = larger;
    earlier->n_dependents_allocated = 2 * wanted;
    return 0;
}

static int add(struct executor *executor, const struct work_order *order, struct work *work) {
    cleanup(freep) struct timeline_item **items = NULL;
    int r;

    if (order->n_after) {
        items = calloc(order->n_after, sizeof(*items));
        if (!items)
            return -ENOMEM;
    }
    r = order->before ? reserve_dependents(order->before, order->n_after + 1) : 0;
    for (size_t i = 0; i < order->n_after && r == 0; i++) {
        items[i] = &order->after[i]->item;
        r = reserve_dependents(order->after[i], order->n_after + 1);
    }
    if (r == 0)
        r = timeline_add(&executor->timeline, &work->item,
                         order->before ? &order->before->item : NULL, items, order->n_after);
    if (r < 0)
        return r;

    /* Three references: one for the executor until the work is executed, one for the timeline until
     * it is resolved, one for the caller. */
    work->refs = 3;
    if (order->before)
        follow(work, order->before);
    for (size_t i = 0; i < order->n_after; i++)
        follow(work, order->after[i]);
    if (!work->n_awaited && work->run && !work->poll && order->caller_waits)
        work->for_caller = true;
    else if (!work->n_awaited && (work->run || work->poll))
        make_runnable(executor, work);
    else if (!work->n_awaited)
        finish(executor, work, 0);
    return 0;
}

/* Leave out work that could have been executed but waits for something outside the executor. */
static bool leave_aside(struct executor *executor) {
    bool any = false;

    for (size_t i = 0; i < executor->timeline.n_heap; i++) {
        struct work *work = from_item(executor->timeline.heap[i]);

        if (work->done || work->n_awaited || work->item.aside ||
            !(work->on_host_thread || work->poll || atomic_load(&work->waiting)))
            continue;
        work->item.aside = any = true;
    }
    return any;
}

/*
 * Resolve work in the timeline's order, until `target` is resolved. Sleeps while work that matters
 * is not executed, because its cost is unknown. Needs the lock.
 */
static void resolve(struct executor *executor, struct work *target) {
    uint64_t stuck_ns = 0;

    while (!target->item.resolved) {
        struct timeline_item *item = timeline_next(&executor->timeline, &target->item);

        if (item) {
            timeline_resolve(&executor->timeline, item);
            drop_locked(executor, from_item(item));
            stuck_ns = 0;
        } else if (!target->done) {
            pthread_cond_wait(&executor->done, &executor->lock);
        } else if (!stuck_ns) {
            stuck_ns = clock_nsec(CLOCK_MONOTONIC);
        } else if (clock_nsec(CLOCK_MONOTONIC) - stuck_ns < PATIENCE_NS || !leave_aside(executor)) {
            wait_some(executor, LOOK_NS);
        }
    }
}

int executor_submit(struct executor *executor, const struct work_order *order, struct work **ret) {
    struct work *work = calloc(1, sizeof(*work));
    int r = 0;

    if (!work)
        return -ENOMEM;
    work->item.engine = order->engine;
    work->item.device = order->device;
    work->item.peer = order->peer;
    work->item.uplink = order->uplink;
    work->item.peer_uplink = order->peer_uplink;
    work->item.priority = order->priority;
    work->item.stream = order->stream;
    work->item.sequence = order->sequence;
    work->item.latency_ns = order->latency_ns;
    work->item.cost_known = order->engine == TIMELINE_NOTHING && !order->poll;
    work->run = order->run;
    work->poll = order->poll;
    work->argument = order->argument;
    work->on_host_thread = order->on_host_thread;

    pthread_mutex_lock(&executor->lock);
    if (order->run || order->poll)
        r = ensure_threads(executor, order->on_host_thread, order->poll);
    if (r == 0)
        r = add(executor, order, work);
    if (r == 0) {
        work->release = order->release;
        *ret = work;
    }
    pthread_mutex_unlock(&executor->lock);
    if (r < 0)
        free(work);
    return r;
}

void executor_throttle(struct executor *executor) {
    pthread_mutex_lock(&executor->lock);
    while (executor->timeline.n_unresolved > MAX_UNRESOLVED) {
        struct work *oldest = work_ref(from_item(executor->timeline.heap[0]));

        resolve(executor, oldest);
        drop_locked(executor, oldest);
    }
    pthread_mutex_unlock(&executor->lock);
}

bool work_is_done(struct executor *executor, struct work *work) {
    bool done;

    pthread_mutex_lock(&executor->lock);
    done = work->done;
    pthread_mutex_unlock(&executor->lock);
    return done;
}

/* Needs the lock. */
static void join(struct executor *executor, struct work *work) {
    if (work->for_caller) {
        work->for_caller = false;
        execute(executor, work);
    }
    while (!work->done)
        pthread_cond_wait(&executor->done, &executor->lock);
}

bool work_precedes(struct executor *executor, struct work *work, struct work *later) {
    struct work *todo = NULL;
    bool found = work == later;

    pthread_mutex_lock(&executor->lock);
    found |= work->done;
    executor->n_searches++;
    /* Work that waits for other work is in no queue, so this search may use its `next`. */
    for (struct work *at = work; at && !found;) {
        for (size_t i = 0; i < at->n_dependents && !found; i++) {
            struct work *dependent = at->dependents[i];

            found = dependent == later;
            if (dependent->visited == executor->n_searches)
                continue;
            dependent->visited = executor->n_searches;
            dependent->next = todo;
            todo = dependent;
        }
        at = todo;
        if (at)
            todo = at->next;
    }
    pthread_mutex_unlock(&executor->lock);
    return found;
}

void work_join(struct executor *executor, struct work *work) {
    pthread_mutex_lock(&executor->lock);
    join(executor, work);
    pthread_mutex_unlock(&executor->lock);
}

void work_wait(struct executor *executor, struct work *work) {
    pthread_mutex_lock(&executor->lock);
    join(executor, work);
    resolve(executor, work);
    timeline_wait(&executor->timeline, &work->item);
    pthread_mutex_unlock(&executor->lock);
}

uint64_t work_end_ns(struct executor *executor, struct work *work) {
    uint64_t end_ns;

    pthread_mutex_lock(&executor->lock);
    resolve(executor, work);
    end_ns = work->item.end_ns;
    pthread_mutex_unlock(&executor->lock);
    return end_ns;
}

uint64_t executor_host_ns(struct executor *executor) {
    uint64_t ns;

    pthread_mutex_lock(&executor->lock);
    ns = executor->timeline.host_ns;
    pthread_mutex_unlock(&executor->lock);
    return ns;
}

void executor_host_work(struct executor *executor, uint64_t ns) {
    pthread_mutex_lock(&executor->lock);
    timeline_host_work(&executor->timeline, ns);
    pthread_mutex_unlock(&executor->lock);
}
