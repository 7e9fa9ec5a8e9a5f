/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/random.h"
#include "sim/time/executor.h"
#include "tests/support/suite.h"

struct note {
    int *log;
    int *at;
    int value;
    uint64_t cost_ns;
};

static uint64_t write_note(void *argument) {
    struct note *note = argument;

    note->log[__atomic_fetch_add(note->at, 1, __ATOMIC_RELAXED)] = note->value;
    return note->cost_ns;
}

START_TEST(a_stream_runs_in_order_and_asynchronously) {
    struct executor *executor;
    struct work *last = NULL;
    static struct note notes[1000];
    int log[1000], at = 0;

    ck_assert_int_eq(executor_new(&executor, 4), 0);
    for (int i = 0; i < 1000; i++) {
        struct work *before = last;

        notes[i] = (struct note){ log, &at, i, 7 };
        ck_assert_int_eq(executor_submit(executor,
                                         &(struct work_order){ .run = write_note,
                                                               .argument = &notes[i],
                                                               .engine = TIMELINE_COMPUTE,
                                                               .sequence = i + 1,
                                                               .before = before },
                                         &last),
                         0);
        work_unref(executor, before);
    }
    ck_assert_uint_eq(executor_host_ns(executor), 0);
    work_wait(executor, last);
    ck_assert_int_eq(at, 1000);
    for (int i = 0; i < 1000; i++)
        ck_assert_int_eq(log[i], i);
    ck_assert_uint_eq(executor_host_ns(executor), 7000);
    work_unref(executor, last);
}
END_TEST

static uint64_t wait_semaphore(void *argument) {
    sem_wait(argument);
    return 10;
}

START_TEST(waiting_streams_occupy_no_thread) {
    struct executor *executor;
    struct work *gate, *waiting[64], *other;
    struct note note;
    int log[1], at = 0;
    sem_t sem;

    sem_init(&sem, 0, 0);
    ck_assert_int_eq(executor_new(&executor, 2), 0);
    ck_assert_int_eq(executor_submit(executor,
                                     &(struct work_order){ .run = wait_semaphore,
                                                           .argument = &sem,
                                                           .engine = TIMELINE_COMPUTE,
                                                           .sequence = 1 },
                                     &gate),
                     0);
    for (size_t i = 0; i < ELEMENTSOF(waiting); i++)
        ck_assert_int_eq(
            executor_submit(executor,
                            &(struct work_order){
                                .stream = i + 1, .sequence = 1, .after = &gate, .n_after = 1 },
                            &waiting[i]),
            0);
    note = (struct note){ log, &at, 1, 0 };
    ck_assert_int_eq(
        executor_submit(executor,
                        &(struct work_order){
                            .run = write_note, .argument = &note, .stream = 99, .sequence = 1 },
                        &other),
        0);
    while (!work_is_done(executor, other))
        usleep(1000);
    ck_assert(!work_is_done(executor, waiting[0]));
    sem_post(&sem);
    for (size_t i = 0; i < ELEMENTSOF(waiting); i++) {
        work_wait(executor, waiting[i]);
        ck_assert_uint_eq(work_end_ns(executor, waiting[i]), 10);
        work_unref(executor, waiting[i]);
    }
    work_unref(executor, gate);
    work_unref(executor, other);
}
END_TEST

static void count_release(void *argument) {
    __atomic_add_fetch((int *)argument, 1, __ATOMIC_RELAXED);
}

START_TEST(what_was_handed_over_is_released_once) {
    static struct executor *executor; /* static: no thread of its own refers to it at the end */
    struct work *work;
    int released = 0;

    ck_assert_int_eq(executor_new(&executor, 2), 0);
    for (int i = 0; i < 200; i++) {
        ck_assert_int_eq(executor_submit(executor,
                                         &(struct work_order){ .argument = &released,
                                                               .release = count_release,
                                                               .stream = i,
                                                               .sequence = 1 },
                                         &work),
                         0);
        work_wait(executor, work);
        work_unref(executor, work);
    }
    for (int i = 0; i < 1000 && __atomic_load_n(&released, __ATOMIC_RELAXED) < 200; i++)
        usleep(1000);
    ck_assert_int_eq(released, 200);
}
END_TEST

START_TEST(a_callback_that_takes_its_time_does_not_hold_up_the_device) {
    struct executor *executor;
    struct work *callback, *kernel;
    sem_t sem;

    sem_init(&sem, 0, 0);
    ck_assert_int_eq(executor_new(&executor, 1), 0);
    ck_assert_int_eq(executor_submit(executor,
                                     &(struct work_order){ .run = wait_semaphore,
                                                           .argument = &sem,
                                                           .on_host_thread = true,
                                                           .sequence = 1 },
                                     &callback),
                     0);
    ck_assert_int_eq(
        executor_submit(executor, &(struct work_order){ .stream = 1, .sequence = 1 }, &kernel), 0);
    work_wait(executor, kernel);
    ck_assert(!work_is_done(executor, callback));
    sem_post(&sem);
    work_wait(executor, callback);
    work_unref(executor, callback);
    work_unref(executor, kernel);
}
END_TEST

static uint64_t burn(void *argument) {
    volatile uint64_t n = (uintptr_t)argument % 997 * 20;

    while (n)
        n--;
    return (uintptr_t)argument % 997;
}

struct submitter {
    struct executor *executor;
    unsigned thread;
    struct work *last[2];
};

/* Two streams of two devices, crossing over; the same orders each time, whatever the timing. */
static void *submit_many(void *argument) {
    struct submitter *s = argument;
    uint64_t random = s->thread + 1, sequence[2] = { 0 };

    for (int i = 0; i < 300; i++) {
        const unsigned k = random_next(&random) % 2;
        struct work *before = s->last[k], *other = s->last[!k];
        struct work_order order = {
            .run = burn,
            .argument = (void *)(uintptr_t)random_next(&random),
            .engine = TIMELINE_COMPUTE,
            .device = k,
            .stream = s->thread * 2 + k,
            .sequence = ++sequence[k],
            .latency_ns = 3,
            .before = before,
            .after = &other,
            .n_after = other && random_next(&random) % 4 == 0,
        };

        ck_assert_int_eq(executor_submit(s->executor, &order, &s->last[k]), 0);
        work_unref(s->executor, before);
    }
    return NULL;
}

static uint64_t run_program(void) {
    struct submitter submitters[3];
    struct executor *executor;
    pthread_t threads[3];
    uint64_t sum = 0;

    ck_assert_int_eq(executor_new(&executor, 3), 0);
    for (unsigned i = 0; i < 3; i++) {
        submitters[i] = (struct submitter){ .executor = executor, .thread = i };
        pthread_create(&threads[i], NULL, submit_many, &submitters[i]);
    }
    for (unsigned i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < 3; i++)
        for (unsigned k = 0; k < 2; k++) {
            work_wait(executor, submitters[i].last[k]);
            sum = sum * 31 + work_end_ns(executor, submitters[i].last[k]);
            work_unref(executor, submitters[i].last[k]);
        }
    sum = sum * 31 + executor_host_ns(executor);
    return sum;
}

START_TEST(the_same_program_has_the_same_modelled_times_however_threads_race) {
    const uint64_t first = run_program();

    for (int i = 0; i < 20; i++)
        ck_assert_uint_eq(run_program(), first);
}
END_TEST

START_TEST(a_program_that_never_waits_is_held_to_a_bounded_queue) {
    struct executor *executor;
    struct work *last = NULL;

    ck_assert_int_eq(executor_new(&executor, 2), 0);
    for (int i = 0; i < 40000; i++) {
        struct work *before = last;

        ck_assert_int_eq(executor_submit(executor,
                                         &(struct work_order){ .run = burn,
                                                               .argument = (void *)1,
                                                               .engine = TIMELINE_COMPUTE,
                                                               .sequence = i + 1,
                                                               .before = before },
                                         &last),
                         0);
        work_unref(executor, before);
        executor_throttle(executor);
    }
    work_wait(executor, last);
    ck_assert_uint_eq(executor_host_ns(executor), 40000);
    work_unref(executor, last);
}
END_TEST

SUITE("executor", a_stream_runs_in_order_and_asynchronously, waiting_streams_occupy_no_thread,
      what_was_handed_over_is_released_once,
      a_callback_that_takes_its_time_does_not_hold_up_the_device,
      the_same_program_has_the_same_modelled_times_however_threads_race,
      a_program_that_never_waits_is_held_to_a_bounded_queue)
