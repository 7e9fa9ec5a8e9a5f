/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>

#include "driver/patience.h"
#include "tests/support/suite.h"

/* A call that comes back when it is let go. */
struct work {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool may_end, has_ended;
    int result;
};

static int wait_for_leave(void *argument, struct allot_error *err) {
    struct work *work = argument;

    pthread_mutex_lock(&work->lock);
    while (!work->may_end)
        pthread_cond_wait(&work->changed, &work->lock);
    pthread_mutex_unlock(&work->lock);
    return work->result < 0 ? error_set(err, work->result, "as told") : 0;
}

static void note_end(void *argument) {
    struct work *work = argument;

    pthread_mutex_lock(&work->lock);
    work->has_ended = true;
    pthread_cond_broadcast(&work->changed);
    pthread_mutex_unlock(&work->lock);
}

static struct work work_init(bool may_end, int result) {
    return (struct work){
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .changed = PTHREAD_COND_INITIALIZER,
        .may_end = may_end,
        .result = result,
    };
}

START_TEST(a_call_in_time_gives_its_result_and_error) {
    struct work good = work_init(true, 0), bad = work_init(true, -ENXIO);
    struct allot_error err = { 0 };

    ck_assert_int_eq(patience_call(wait_for_leave, &good, note_end, 10000000, "x", &err), 0);
    ck_assert_int_eq(patience_call(wait_for_leave, &bad, note_end, 10000000, "x", &err), -ENXIO);
    ck_assert_str_eq(err.text, "as told");
    ck_assert(!good.has_ended && !bad.has_ended); /* the work stayed the caller's */
    ck_assert_int_eq(patience_call(wait_for_leave, &bad, note_end, 10000000, "x", NULL), -ENXIO);
}
END_TEST

START_TEST(a_call_that_hangs_is_left_behind_with_its_work) {
    struct work work = work_init(false, 0);
    struct allot_error err;

    ck_assert_int_eq(patience_call(wait_for_leave, &work, note_end, 50000, "GPU 0", &err),
                     -ETIMEDOUT);
    ck_assert_str_eq(err.text,
                     "GPU 0: the driver has not answered for 50ms: see dmesg; the GPU may "
                     "need a reset");
    pthread_mutex_lock(&work.lock);
    ck_assert(!work.has_ended);
    work.may_end = true; /* the driver comes back after all */
    pthread_cond_broadcast(&work.changed);
    while (!work.has_ended)
        pthread_cond_wait(&work.changed, &work.lock);
    pthread_mutex_unlock(&work.lock);
}
END_TEST

SUITE("patience", a_call_in_time_gives_its_result_and_error,
      a_call_that_hangs_is_left_behind_with_its_work)
