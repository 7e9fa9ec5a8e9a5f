/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/patience.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/units.h"

/* Shared by the two threads; the one that leaves last frees it. */
struct attempt {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    patience_fn call;
    patience_free_fn free_work;
    void *work;
    bool is_done;      /* the call has come back */
    bool is_abandoned; /* nobody waits for it any more */
    int result;
    struct allot_error err;
};

static void attempt_free(struct attempt *attempt) {
    pthread_cond_destroy(&attempt->changed);
    pthread_mutex_destroy(&attempt->lock);
    free(attempt);
}

static void *run(void *argument) {
    struct attempt *attempt = argument;
    struct allot_error err = { 0 };
    bool is_abandoned;
    int result = attempt->call(attempt->work, &err);

    pthread_mutex_lock(&attempt->lock);
    attempt->result = result;
    attempt->err = err;
    attempt->is_done = true;
    is_abandoned = attempt->is_abandoned;
    pthread_cond_signal(&attempt->changed);
    pthread_mutex_unlock(&attempt->lock);
    if (is_abandoned) {
        attempt->free_work(attempt->work);
        attempt_free(attempt);
    }
    return NULL;
}

static struct attempt *attempt_new(patience_fn call, void *work, patience_free_fn free_work) {
    struct attempt *attempt = calloc(1, sizeof(*attempt));
    pthread_condattr_t attributes;

    if (!attempt)
        return NULL;
    attempt->call = call;
    attempt->work = work;
    attempt->free_work = free_work;
    pthread_mutex_init(&attempt->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&attempt->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    return attempt;
}

static struct timespec deadline_after(uint64_t usec) {
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += (time_t)(usec / 1000000);
    t.tv_nsec += (long)(usec % 1000000) * 1000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    return t;
}

int patience_call(patience_fn call, void *work, patience_free_fn free_work, uint64_t timeout_usec,
                  const char *what, struct allot_error *err) {
    struct attempt *attempt = attempt_new(call, work, free_work);
    struct timespec deadline = deadline_after(timeout_usec);
    char text[UNITS_TEXT_SIZE];
    pthread_t thread;
    bool is_done;
    int r;

    if (!attempt)
        return error_set(err, -EAGAIN, "%s: out of memory", what);
    r = -pthread_create(&thread, NULL, run, attempt);
    if (r < 0) {
        attempt_free(attempt);
        return error_set(err, -EAGAIN, "%s: no thread can be had: %s", what, strerror(-r));
    }
    pthread_mutex_lock(&attempt->lock);
    while (!attempt->is_done &&
           pthread_cond_timedwait(&attempt->changed, &attempt->lock, &deadline) != ETIMEDOUT)
        ;
    is_done = attempt->is_done;
    attempt->is_abandoned = !is_done;
    pthread_mutex_unlock(&attempt->lock);
    if (!is_done) {
        pthread_detach(thread);
        return error_set(err, -ETIMEDOUT,
                         "%s: the driver has not answered for %s: see dmesg; the GPU may need a "
                         "reset",
                         what, units_format_usec(timeout_usec, text));
    }
    pthread_join(thread, NULL);
    r = attempt->result;
    if (err && r < 0)
        *err = attempt->err;
    attempt_free(attempt);
    return r;
}
