/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libclient/core/pool.h"
#include "tests/support/suite.h"

enum { N = 100000 };
static unsigned char touched[N];

static void touch(void *userdata, size_t begin, size_t end) {
    (void)userdata;
    for (size_t i = begin; i < end; i++)
        touched[i]++;
}

START_TEST(a_loop_touches_everything_once) {
    static const size_t grains[] = { 0, 1, 7, 1000, N, 2 * N };

    for (unsigned threads = 0; threads <= 8; threads += 2) {
        cleanup(pool_freep) struct thread_pool *pool = NULL;

        ck_assert_int_eq(pool_new(&pool, threads, "test"), 0);
        for (size_t g = 0; g < ELEMENTSOF(grains); g++) {
            pool_for(pool, N, grains[g], touch, NULL);
            for (size_t i = 0; i < N; i++) {
                ck_assert_uint_eq(touched[i], 1);
                touched[i] = 0;
            }
        }
        pool_for(pool, 0, 1, touch, NULL);
    }
}
END_TEST

struct nested {
    struct thread_pool *pool;
    _Atomic size_t sum;
};

static void inner(void *userdata, size_t begin, size_t end) {
    struct nested *nested = userdata;

    nested->sum += end - begin;
}

static void outer(void *userdata, size_t begin, size_t end) {
    struct nested *nested = userdata;

    for (size_t i = begin; i < end; i++)
        pool_for(nested->pool, 100, 3, inner, nested);
}

START_TEST(loops_inside_loops_never_wait_for_each_other) {
    for (unsigned threads = 1; threads <= 5; threads++) {
        cleanup(pool_freep) struct thread_pool *pool = NULL;
        struct nested nested = { 0 };

        ck_assert_int_eq(pool_new(&pool, threads, "test"), 0);
        nested.pool = pool;
        pool_for(pool, 200, 1, outer, &nested);
        ck_assert_uint_eq(nested.sum, 200 * 100);
    }
}
END_TEST

struct counted {
    struct pool_task task;
    _Atomic unsigned *count;
};

static void count(struct pool_task *task) {
    struct counted *counted = (struct counted *)task;

    (*counted->count)++;
}

START_TEST(tasks_run_before_the_pool_is_gone) {
    for (unsigned threads = 0; threads <= 3; threads++) {
        static struct counted tasks[1000];
        _Atomic unsigned n = 0;
        struct thread_pool *pool;

        ck_assert_int_eq(pool_new(&pool, threads, "test"), 0);
        for (size_t i = 0; i < ELEMENTSOF(tasks); i++) {
            tasks[i] = (struct counted){ { .run = count }, &n };
            pool_run(pool, &tasks[i].task);
        }
        pool_free(pool);
        ck_assert_uint_eq(n, ELEMENTSOF(tasks));
    }
}
END_TEST

static void *many_loops(void *user) {
    struct nested *nested = user;

    for (unsigned i = 0; i < 300; i++)
        pool_for(nested->pool, 64, 4, inner, nested);
    return NULL;
}

START_TEST(many_callers_share_one_pool) {
    cleanup(pool_freep) struct thread_pool *pool = NULL;
    struct nested nested = { 0 };
    pthread_t callers[20]; /* more than loops that can be helped at a time */

    ck_assert_int_eq(pool_new(&pool, 2, "test"), 0);
    nested.pool = pool;
    for (size_t i = 0; i < ELEMENTSOF(callers); i++)
        ck_assert_int_eq(pthread_create(&callers[i], NULL, many_loops, &nested), 0);
    for (size_t i = 0; i < ELEMENTSOF(callers); i++)
        pthread_join(callers[i], NULL);
    ck_assert_uint_eq(nested.sum, ELEMENTSOF(callers) * 300 * 64);
}
END_TEST

START_TEST(a_forked_child_does_all_itself) {
    struct nested nested = { 0 };
    struct thread_pool *pool;
    int status;
    pid_t pid;

    ck_assert_int_eq(pool_new(&pool, 3, "test"), 0);
    nested.pool = pool;
    pid = fork();
    if (pid == 0) {
        pool_for(pool, 100, 1, inner, &nested);
        pool_free(pool);
        _exit(nested.sum == 100 ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    pool_free(pool);
}
END_TEST

SUITE("pool", a_loop_touches_everything_once, loops_inside_loops_never_wait_for_each_other,
      tasks_run_before_the_pool_is_gone, many_callers_share_one_pool,
      a_forked_child_does_all_itself)
