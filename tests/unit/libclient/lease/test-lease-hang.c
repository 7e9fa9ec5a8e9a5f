/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asking a daemon that hangs for a lease: its socket accepts connections, but it does not answer.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "libclient/allot/lease.h"
#include "tests/support/libclient/lease/fake_allotd.h"
#include "tests/support/suite.h"

/*
 * After this time a silent daemon counts as hung, and that is reported; a little longer; and a time
 * that no call takes even on a busy machine.
 */
#define HANGS_USEC UINT64_C(2000000)
#define AWAY_USEC  UINT64_C(2500000)
#define KEPT_USEC  UINT64_C(6000000)

/* A lease that is asked for on a thread of its own, and what is heard meanwhile. */
struct asker {
    struct allot_lease_options options;
    bool attaches;
    atomic_uint n_told, n_hangs, n_away;
    pthread_t thread;
    struct allot_lease *lease;
    struct allot_error err;
    uint64_t begun_usec, took_usec;
    int r;
};

static struct fake_allotd *d;

static void setup(void) {
    unsetenv("ALLOT_LEASE");
    unsetenv("ALLOT_TOKEN");
    unsetenv("CUDA_VISIBLE_DEVICES");
    d = fake_allotd_new();
    setenv("ALLOT_SOCKET", fake_allotd_path(d), 1);
}

static void teardown(void) {
    ck_assert_uint_eq(fake_allotd_mistakes(d), 0);
    fake_allotd_free(d);
}

static void note_told(void *userdata, uint64_t place, const char *reason) {
    struct asker *asker = userdata;

    asker->n_hangs += strstr(reason, "hangs, and must answer first") != NULL;
    asker->n_away += strstr(reason, "is away, and must come back first") != NULL;
    asker->n_told++;
}

static void *ask(void *argument) {
    struct asker *asker = argument;

    asker->r = asker->attaches ? allot_lease_attach(&asker->lease, FAKE_LEASE, FAKE_TOKEN,
                                                    &asker->options, &asker->err)
                               : allot_lease_acquire(&asker->lease, &asker->options, &asker->err);
    asker->took_usec = clock_usec(CLOCK_MONOTONIC) - asker->begun_usec;
    return NULL;
}

static void asker_init(struct asker *asker, bool attaches, uint64_t reconnect_usec) {
    *asker = (struct asker){ .attaches = attaches };
    asker->options = allot_lease_options_init();
    asker->options.reconnect_usec = reconnect_usec;
    asker->options.progress = note_told;
    asker->options.userdata = asker;
    asker->options.cancel_fd = eventfd(0, EFD_CLOEXEC);
}

static void asker_go(struct asker *asker) {
    asker->begun_usec = clock_usec(CLOCK_MONOTONIC);
    ck_assert_int_eq(pthread_create(&asker->thread, NULL, ask, asker), 0);
}

static int asker_end(struct asker *asker) {
    ck_assert_int_eq(pthread_join(asker->thread, NULL), 0);
    close(asker->options.cancel_fd);
    if (asker->r == 0)
        allot_lease_free(asker->lease);
    return asker->r;
}

static void asker_fails(struct asker *asker, uint64_t least_usec) {
    ck_assert_msg(asker_end(asker) == -ENOTCONN, "%d: %s", asker->r, asker->err.text);
    ck_assert_msg(strstr(asker->err.text, "does not answer") &&
                      strstr(asker->err.text, "systemctl restart allotd"),
                  "%s", asker->err.text);
    ck_assert_int_eq(asker->err.code, -ENOTCONN);
    ck_assert_uint_ge(asker->took_usec, least_usec);
    ck_assert_uint_lt(asker->took_usec, KEPT_USEC);
}

static void await_told(const struct asker *asker) {
    while (asker->n_told == 0)
        usleep(1000);
}

/* As with a daemon that is away: the call reports it once, and gives up after the same time. */
START_TEST(a_daemon_that_hangs_is_reported_and_given_up) {
    for (unsigned attaches = 0; attaches < 2; attaches++) {
        struct asker asker;

        setup();
        fake_allotd_hang(d, true);
        asker_init(&asker, attaches, AWAY_USEC);
        asker_go(&asker);
        asker_fails(&asker, AWAY_USEC);
        ck_assert_uint_eq(asker.n_told, 1);
        ck_assert_uint_eq(asker.n_hangs, 1);
        fake_allotd_hang(d, false);
        asker_init(&asker, attaches, AWAY_USEC);
        asker_go(&asker);
        ck_assert_int_eq(asker_end(&asker), 0);
        ck_assert_uint_eq(asker.n_told, 0);
        teardown();
    }
}
END_TEST

START_TEST(a_daemon_that_goes_on_or_is_restarted_is_waited_for) {
    for (unsigned round = 0; round < 4; round++) {
        struct asker asker;

        setup();
        fake_allotd_hang(d, true);
        asker_init(&asker, round % 2, 0);
        asker_go(&asker);
        await_told(&asker);
        ck_assert_uint_ge(clock_usec(CLOCK_MONOTONIC) - asker.begun_usec, HANGS_USEC);
        if (round / 2)
            fake_allotd_kill(d, false);
        fake_allotd_hang(d, false);
        ck_assert_msg(asker_end(&asker) == 0, "%s", asker.err.text);
        ck_assert_uint_eq(asker.n_hangs, 1);
        ck_assert_uint_eq(asker.n_told, 1);
        fake_allotd_await_holders(d, 0);
        teardown();
    }
}
END_TEST

START_TEST(a_call_that_may_not_wait_does_not_wait_for_a_hung_daemon) {
    struct asker asker;

    setup();
    fake_allotd_hang(d, true);
    asker_init(&asker, false, 0);
    asker.options.no_wait = true;
    asker_go(&asker);
    asker_fails(&asker, HANGS_USEC);
    asker_init(&asker, false, 0);
    asker.options.timeout_usec = 300000;
    asker_go(&asker);
    asker_fails(&asker, 300000);
    fake_allotd_hang(d, false);
    teardown();
}
END_TEST

/* It had told a place before it stopped; an answer is due when the waiting is over. */
START_TEST(a_daemon_that_hangs_keeps_no_request_much_longer_than_asked) {
    struct asker asker;

    setup();
    fake_allotd_line(d, 1, true);
    asker_init(&asker, false, 0);
    asker.options.timeout_usec = 500000;
    asker_go(&asker);
    fake_allotd_await_waiting(d, 1);
    fake_allotd_hang(d, true);
    asker_fails(&asker, 500000 + HANGS_USEC);
    ck_assert_uint_eq(asker.n_told, 1); /* its place */
    ck_assert_uint_eq(asker.n_hangs, 0);
    fake_allotd_hang(d, false);
    fake_allotd_await_waiting(d, 0);
    teardown();
}
END_TEST

/* It has granted the lease, which no process will hold: it is given back, whenever that is read. */
START_TEST(a_daemon_that_hangs_before_the_lease_is_held_gets_it_back) {
    for (unsigned cancels = 0; cancels < 2; cancels++) {
        struct asker asker;

        setup();
        fake_allotd_hang_at_attach(d);
        asker_init(&asker, false, cancels ? 0 : AWAY_USEC);
        asker_go(&asker);
        await_told(&asker);
        ck_assert_uint_eq(asker.n_hangs, 1);
        if (cancels) {
            ck_assert_int_eq(eventfd_write(asker.options.cancel_fd, 1), 0);
            ck_assert_int_eq(asker_end(&asker), -ECANCELED);
            ck_assert_uint_lt(asker.took_usec, KEPT_USEC);
        } else {
            asker_fails(&asker, AWAY_USEC);
        }
        fake_allotd_hang(d, false);
        fake_allotd_await_released(d);
        fake_allotd_await_holders(d, 0);
        teardown();
    }
}
END_TEST

START_TEST(waiting_for_a_hung_daemon_can_be_cancelled) {
    for (unsigned attaches = 0; attaches < 2; attaches++) {
        struct asker asker;

        setup();
        fake_allotd_hang(d, true);
        asker_init(&asker, attaches, 0);
        asker_go(&asker);
        if (attaches)
            await_told(&asker);
        ck_assert_int_eq(eventfd_write(asker.options.cancel_fd, 1), 0);
        ck_assert_int_eq(asker_end(&asker), -ECANCELED);
        ck_assert_uint_lt(asker.took_usec, KEPT_USEC);
        fake_allotd_hang(d, false);
        teardown();
    }
}
END_TEST

static void *end_all(void *argument) {
    int fd, *listener = argument;

    while ((fd = accept(*listener, NULL, NULL)) >= 0)
        close(fd);
    return NULL;
}

/* Nor does a call ask for ever a daemon that accepts every connection and ends it. */
START_TEST(a_daemon_that_ends_every_connection_is_given_up) {
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    char folder[] = "/tmp/allot-ends-XXXXXX";
    struct asker asker;
    pthread_t thread;
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(address.sun_path, sizeof(address.sun_path), "%s/io.allot", folder);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_int_eq(listen(listener, 8), 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, end_all, &listener), 0);
    asker_init(&asker, false, 200000);
    asker.options.socket = address.sun_path;
    asker_go(&asker);
    ck_assert_int_eq(asker_end(&asker), -ENOTCONN);
    ck_assert_int_eq(asker.err.code, -ENOTCONN);
    ck_assert_uint_lt(asker.took_usec, KEPT_USEC);
    shutdown(listener, SHUT_RDWR);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    close(listener);
    unlink(address.sun_path);
    rmdir(folder);
}
END_TEST

SUITE("lease-hang", a_daemon_that_hangs_is_reported_and_given_up,
      a_daemon_that_goes_on_or_is_restarted_is_waited_for,
      a_call_that_may_not_wait_does_not_wait_for_a_hung_daemon,
      a_daemon_that_hangs_keeps_no_request_much_longer_than_asked,
      a_daemon_that_hangs_before_the_lease_is_held_gets_it_back,
      waiting_for_a_hung_daemon_can_be_cancelled, a_daemon_that_ends_every_connection_is_given_up)
