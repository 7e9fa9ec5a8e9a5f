/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Growth that is cancelled while it waits: it ends at once, and the daemon's books and ours agree.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/random.h"
#include "libclient/allot/lease.h"
#include "tests/support/libclient/lease/fake_allotd.h"
#include "tests/support/suite.h"

#define G(n) ((n)*WIRE_GRANULE)
/* Longer than a daemon that hangs may delay a call, shorter than it once did. */
#define KEPT_USEC UINT64_C(5000000)

/* A growth on a thread of its own, and what it is told. */
struct growth {
    struct allot_lease *lease;
    struct allot_lease_patience patience;
    uint64_t bytes;
    atomic_uint n_told, n_asked;
    atomic_bool goes_on;
    pthread_t thread;
    struct allot_error err;
    int r;
};

static struct fake_allotd *d;

static struct allot_lease *setup(void) {
    struct allot_lease *lease = NULL;
    struct allot_error err = { 0 };

    unsetenv("ALLOT_LEASE");
    unsetenv("ALLOT_TOKEN");
    unsetenv("CUDA_VISIBLE_DEVICES");
    d = fake_allotd_new();
    setenv("ALLOT_SOCKET", fake_allotd_path(d), 1);
    ck_assert_msg(allot_lease_acquire(&lease, NULL, &err) == 0, "%s", err.text);
    return lease;
}

static uint64_t held(struct allot_lease *lease) {
    struct allot_lease_share share = { 0 };

    ck_assert_uint_eq(allot_lease_shares(lease, &share, 1), 1);
    return share.held_bytes;
}

static void teardown(struct allot_lease *lease, uint64_t expected) {
    ck_assert_uint_eq(held(lease), expected);
    ck_assert_uint_eq(fake_allotd_held(d, getpid()), expected);
    allot_lease_free(lease);
    ck_assert_uint_eq(fake_allotd_mistakes(d), 0);
    fake_allotd_free(d);
}

static void note_told(void *userdata, uint64_t place, const char *reason) {
    struct growth *growth = userdata;

    growth->n_told++;
}

static bool asked(void *userdata) {
    struct growth *growth = userdata;
    uint64_t value;

    if (!growth->goes_on)
        return false;
    ck_assert_int_eq((int)read(growth->patience.cancel_fd, &value, sizeof(value)),
                     (int)sizeof(value));
    growth->n_asked++;
    return true;
}

static void *grow(void *argument) {
    struct growth *growth = argument;

    growth->r =
        allot_lease_grow_with(growth->lease, NULL, growth->bytes, &growth->patience, &growth->err);
    return NULL;
}

static void growth_init(struct growth *growth, struct allot_lease *lease, uint64_t bytes) {
    *growth = (struct growth){ .lease = lease, .bytes = bytes };
    growth->patience = allot_lease_patience_init();
    growth->patience.timeout_usec = UINT64_MAX;
    growth->patience.cancel_fd = eventfd(0, EFD_CLOEXEC);
    growth->patience.progress = note_told;
    growth->patience.go_on = asked;
    growth->patience.userdata = growth;
}

static void growth_go(struct growth *growth) {
    ck_assert_int_eq(pthread_create(&growth->thread, NULL, grow, growth), 0);
}

static void growth_begin(struct growth *growth, struct allot_lease *lease, uint64_t bytes) {
    growth_init(growth, lease, bytes);
    growth_go(growth);
}

static void growth_raise(struct growth *growth) {
    ck_assert_int_eq(eventfd_write(growth->patience.cancel_fd, 1), 0);
}

static int growth_end(struct growth *growth) {
    ck_assert_int_eq(pthread_join(growth->thread, NULL), 0);
    close(growth->patience.cancel_fd);
    return growth->r;
}

START_TEST(growth_in_line_is_called_off_and_forgotten) {
    struct allot_lease *lease = setup();
    struct growth growth;

    ck_assert_int_eq(allot_lease_grow(lease, NULL, G(800), 0, NULL), 0);
    for (int round = 0; round < 3; round++) {
        growth_begin(&growth, lease, G(300));
        fake_allotd_await_waiting(d, 1);
        growth_raise(&growth);
        ck_assert_int_eq(growth_end(&growth), -ECANCELED);
        ck_assert_str_eq(growth.err.text, "the growth was cancelled");
        fake_allotd_await_waiting(d, 0);
    }
    /* It was forgotten: what is given back stays free. */
    ck_assert_int_eq(allot_lease_shrink(lease, NULL, G(400), NULL), 0);
    ck_assert_uint_eq(fake_allotd_attached(d), 1);
    teardown(lease, G(400));
}
END_TEST

/* A growth that looks up while it waits, and goes on, keeps its place. */
START_TEST(a_growth_that_goes_on_keeps_its_place) {
    struct allot_lease *lease = setup();
    struct growth growth;

    ck_assert_int_eq(allot_lease_grow(lease, NULL, G(800), 0, NULL), 0);
    growth_init(&growth, lease, G(300));
    growth.goes_on = true;
    growth_go(&growth);
    fake_allotd_await_waiting(d, 1);
    for (unsigned i = 1; i <= 3; i++) {
        growth_raise(&growth);
        while (growth.n_asked < i)
            usleep(100);
    }
    ck_assert_int_eq(allot_lease_shrink(lease, NULL, G(200), NULL), 0);
    ck_assert_int_eq(growth_end(&growth), 0);
    /* It was never asked for again. */
    ck_assert_uint_eq(growth.n_told, 1);
    teardown(lease, G(900));
}
END_TEST

START_TEST(growth_that_waits_for_a_daemon_is_called_off) {
    struct allot_lease *lease = setup();
    struct growth growth;

    ck_assert_int_eq(allot_lease_grow(lease, NULL, G(5), 0, NULL), 0);
    fake_allotd_kill(d, true);
    growth_begin(&growth, lease, G(300));
    while (growth.n_told == 0) /* that it is away */
        usleep(100);
    growth_raise(&growth);
    ck_assert_int_eq(growth_end(&growth), -ECANCELED);
    fake_allotd_start(d);
    ck_assert_int_eq(allot_lease_grow(lease, NULL, G(5), 0, NULL), 0);
    teardown(lease, G(10));
}
END_TEST

/* The outcome is settled when the daemon goes on: it adopts our count. */
START_TEST(a_daemon_that_hangs_does_not_delay_a_cancellation) {
    struct allot_lease *lease = setup();
    uint64_t begin;
    struct growth growth;

    ck_assert_int_eq(allot_lease_grow(lease, NULL, G(800), 0, NULL), 0);
    growth_begin(&growth, lease, G(300));
    fake_allotd_await_waiting(d, 1);
    fake_allotd_hang(d, true);
    begin = clock_usec(CLOCK_MONOTONIC);
    growth_raise(&growth);
    ck_assert_int_eq(growth_end(&growth), -ECANCELED);
    ck_assert_uint_lt(clock_usec(CLOCK_MONOTONIC) - begin, 5000000);
    fake_allotd_hang(d, false);
    fake_allotd_await_attached(d, 2);
    ck_assert_int_eq(allot_lease_grow(lease, NULL, G(100), 0, NULL), 0);
    teardown(lease, G(900));
}
END_TEST

static int grow_now(struct allot_lease *lease, struct allot_error *err) {
    struct allot_lease_patience patience = ALLOT_LEASE_PATIENCE_INIT;

    patience.reconnect_usec = 1;
    return allot_lease_grow_with(lease, NULL, G(1), &patience, err);
}

/* What is given back counts at once: also while the daemon is being told what is held. */
START_TEST(a_daemon_that_hangs_does_not_delay_giving_back) {
    struct allot_lease *lease = setup();
    uint64_t begin = clock_usec(CLOCK_MONOTONIC);
    struct allot_error err = { 0 };

    ck_assert_int_eq(allot_lease_grow(lease, NULL, G(800), 0, NULL), 0);
    fake_allotd_hang(d, true);
    ck_assert_int_eq(allot_lease_shrink(lease, NULL, G(100), NULL), 0);
    ck_assert_uint_eq(held(lease), G(700));
    ck_assert_int_eq(grow_now(lease, &err), -ENOTCONN);
    ck_assert_msg(strstr(err.text, "does not answer"), "%s", err.text);
    /* By now the count is on its way, or soon will be. */
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(allot_lease_shrink(lease, NULL, G(100), NULL), 0);
    ck_assert_uint_eq(held(lease), G(400));
    ck_assert_uint_lt(clock_usec(CLOCK_MONOTONIC) - begin, KEPT_USEC);
    fake_allotd_hang(d, false);
    /* A call that is answered finds what is free in the books. */
    ck_assert_int_eq(allot_lease_grow(lease, NULL, G(600), 0, &err), 0);
    teardown(lease, G(1000));
}
END_TEST

/* The error text says which: a daemon that hangs need not be started. */
START_TEST(a_daemon_that_hangs_is_distinguished_from_one_that_is_gone) {
    struct allot_lease *lease = setup();
    uint64_t begin = clock_usec(CLOCK_MONOTONIC);
    struct allot_error err = { 0 };

    fake_allotd_hang(d, true);
    ck_assert_int_eq(grow_now(lease, &err), -ENOTCONN);
    ck_assert_uint_lt(clock_usec(CLOCK_MONOTONIC) - begin, KEPT_USEC);
    ck_assert_msg(strstr(err.text, "does not answer") && strstr(err.text, "restart allotd"), "%s",
                  err.text);
    fake_allotd_hang(d, false);
    ck_assert_int_eq(allot_lease_grow(lease, NULL, G(1), 0, &err), 0);
    fake_allotd_kill(d, true);
    do
        ck_assert_int_eq(grow_now(lease, &err), -ENOTCONN);
    while (!strstr(err.text, "is gone")); /* once that was seen */
    ck_assert_msg(strstr(err.text, "start allotd"), "%s", err.text);
    fake_allotd_start(d);
    ck_assert_int_eq(allot_lease_grow(lease, NULL, G(1), 0, &err), 0);
    teardown(lease, G(2));
}
END_TEST

/*
 * Neither waits in the queue longer than it should, except for the moment in which an answer is
 * due.
 */
START_TEST(a_daemon_that_hangs_keeps_no_growth_waiting) {
    struct allot_lease *lease = setup();
    struct growth growth;
    uint64_t begin;

    ck_assert_int_eq(allot_lease_grow(lease, NULL, G(800), 0, NULL), 0);
    growth_init(&growth, lease, G(300));
    growth.patience.timeout_usec = growth.patience.reconnect_usec = 500000;
    growth.patience.hangs_usec = 100000;
    begin = clock_usec(CLOCK_MONOTONIC);
    growth_go(&growth);
    fake_allotd_await_waiting(d, 1);
    fake_allotd_hang(d, true);
    ck_assert_int_eq(growth_end(&growth), -ENOTCONN);
    ck_assert_msg(strstr(growth.err.text, "does not answer"), "%s", growth.err.text);
    ck_assert_uint_lt(clock_usec(CLOCK_MONOTONIC) - begin, KEPT_USEC);
    fake_allotd_hang(d, false);
    fake_allotd_await_attached(d, 2);
    teardown(lease, G(800));
}
END_TEST

/* Grants and cancellations meet: whichever comes first, not a byte is lost or counted twice. */
START_TEST(a_grant_that_meets_a_cancellation_counts_once) {
    struct allot_lease *lease = setup();
    uint64_t seed = 7, holds = G(800);
    unsigned n_granted = 0, n_cancelled = 0;

    ck_assert_int_eq(allot_lease_grow(lease, NULL, holds, 0, NULL), 0);
    for (int round = 0; round < 300; round++) {
        struct growth growth;
        bool cancels_first = random_next(&seed) % 2;

        growth_begin(&growth, lease, G(300));
        fake_allotd_await_waiting(d, 1);
        if (cancels_first)
            growth_raise(&growth);
        for (uint64_t spin = random_next(&seed) % 20000; spin > 0; spin--)
            __asm__ volatile("");
        ck_assert_int_eq(allot_lease_shrink(lease, NULL, G(200), NULL), 0);
        if (!cancels_first)
            growth_raise(&growth);
        if (growth_end(&growth) == 0) {
            n_granted++;
            ck_assert_int_eq(allot_lease_shrink(lease, NULL, G(300), NULL), 0);
        } else {
            n_cancelled++;
            ck_assert_int_eq(growth.r, -ECANCELED);
        }
        ck_assert_int_eq(allot_lease_grow(lease, NULL, G(200), 0, NULL), 0);
    }
    ck_assert_uint_gt(n_granted, 0);
    ck_assert_uint_gt(n_cancelled, 0);
    teardown(lease, holds);
}
END_TEST

/* A caller that was compiled before there was a cancel_fd says nothing of one. */
START_TEST(an_older_caller_is_not_called_off) {
    struct allot_lease *lease = setup();
    struct growth growth;

    ck_assert_int_eq(allot_lease_grow(lease, NULL, G(800), 0, NULL), 0);
    growth_init(&growth, lease, G(300));
    growth.patience.size = offsetof(struct allot_lease_patience, cancel_fd);
    growth_go(&growth);
    growth_raise(&growth);
    fake_allotd_await_waiting(d, 1);
    ck_assert_int_eq(allot_lease_shrink(lease, NULL, G(100), NULL), 0);
    ck_assert_int_eq(growth_end(&growth), 0);
    teardown(lease, G(1000));
}
END_TEST

SUITE("lease-cancel", growth_in_line_is_called_off_and_forgotten,
      a_growth_that_goes_on_keeps_its_place, growth_that_waits_for_a_daemon_is_called_off,
      a_daemon_that_hangs_does_not_delay_a_cancellation,
      a_daemon_that_hangs_does_not_delay_giving_back,
      a_daemon_that_hangs_is_distinguished_from_one_that_is_gone,
      a_daemon_that_hangs_keeps_no_growth_waiting, a_grant_that_meets_a_cancellation_counts_once,
      an_older_caller_is_not_called_off)
