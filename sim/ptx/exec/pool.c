/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pool: host threads that help with launches. The caller always works on its own launch, so a
 * launch ends even without any helper; helpers join any launch that still wants them.
 */
#include <signal.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "sim/ptx/exec/block.h"

#define MAX_HELPERS 255

struct pool_job {
    void (*fn)(void *arg, unsigned index);
    void *arg;
    unsigned n_wanted, n_started, n_running; /* helpers */
    struct pool_job *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work_there = PTHREAD_COND_INITIALIZER;
static pthread_cond_t work_done = PTHREAD_COND_INITIALIZER;
static struct pool_job *jobs;
static unsigned n_helpers, n_idle;

static void *help(void *arg) {
    pthread_mutex_lock(&lock);
    for (;;) {
        struct pool_job *job = jobs;

        while (job && job->n_started >= job->n_wanted)
            job = job->next;
        if (!job) {
            n_idle++;
            pthread_cond_wait(&work_there, &lock);
            n_idle--;
            continue;
        }
        unsigned index = ++job->n_started;

        job->n_running++;
        pthread_mutex_unlock(&lock);
        job->fn(job->arg, index);
        pthread_mutex_lock(&lock);
        job->n_running--;
        pthread_cond_broadcast(&work_done);
    }
    return arg;
}

/* Under the lock. */
static void add_helpers(unsigned n) {
    sigset_t all, old;
    pthread_attr_t attr;
    pthread_t thread;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are for the program's own threads */
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    for (; n && n_helpers < MAX_HELPERS; n--) {
        if (pthread_create(&thread, &attr, help, NULL))
            break;
        n_helpers++;
    }
    pthread_attr_destroy(&attr);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

unsigned ptx_pool_width(void) {
    long n = sysconf(_SC_NPROCESSORS_ONLN);

    return n < 1 ? 1 : n > 64 ? 64 : (unsigned)n;
}

void ptx_pool_run(unsigned n, void (*fn)(void *arg, unsigned index), void *arg) {
    struct pool_job job = { .fn = fn, .arg = arg, .n_wanted = n ? n - 1 : 0 };
    struct pool_job **p;

    if (job.n_wanted) {
        pthread_mutex_lock(&lock);
        if (n_idle < job.n_wanted && n_helpers < MAX_HELPERS)
            add_helpers(MIN(job.n_wanted, MAX_HELPERS - n_helpers));
        for (p = &jobs; *p; p = &(*p)->next)
            ;
        *p = &job;
        pthread_cond_broadcast(&work_there);
        pthread_mutex_unlock(&lock);
    }
    fn(arg, 0);
    if (job.n_wanted) {
        pthread_mutex_lock(&lock);
        for (p = &jobs; *p != &job; p = &(*p)->next)
            ;
        *p = job.next;
        while (job.n_running)
            pthread_cond_wait(&work_done, &lock);
        pthread_mutex_unlock(&lock);
    }
}
