/* SPDX-License-Identifier: Apache-2.0 */
/* liballot's lease against a daemon that dies, forgets to answer, and comes back. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/random.h"
#include "libclient/allot/lease.h"
#include "tests/support/libclient/lease/fake_allotd.h"
#include "tests/support/suite.h"

#define G(n) ((n)*WIRE_GRANULE)

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

static struct allot_lease *acquired(const struct allot_lease_options *options) {
    struct allot_lease *lease = NULL;
    struct allot_error err = { 0 };

    ck_assert_msg(allot_lease_acquire(&lease, options, &err) == 0, "%s", err.text);
    return lease;
}

static uint64_t held(struct allot_lease *lease) {
    struct allot_lease_share share = { 0 };

    ck_assert_uint_eq(allot_lease_shares(lease, &share, 1), 1);
    return share.held_bytes;
}

#define ck_ok(call)                                                                                \
    do {                                                                                           \
        int code_ = (call);                                                                        \
        ck_assert_msg(code_ == 0, "%d: %s", code_, err.text);                                      \
    } while (0)

struct places {
    uint64_t seen[8];
    size_t n;
};

static void note_place(void *userdata, uint64_t place, const char *reason) {
    struct places *places = userdata;

    ck_assert_str_eq(reason, "full");
    places->seen[places->n++] = place;
}

START_TEST(a_lease_is_waited_for_held_and_given_back) {
    struct allot_lease_options options = ALLOT_LEASE_OPTIONS_INIT;
    struct places places = { 0 };
    struct allot_lease_share share;
    struct allot_error err = { 0 };
    const char *name, *value;
    struct allot_lease *lease;
    uint64_t all;

    setup();
    fake_allotd_line(d, 3, false);
    options.progress = note_place;
    options.userdata = &places;
    lease = acquired(&options);
    ck_assert_uint_eq(places.n, 3);
    ck_assert_uint_eq(places.seen[0], 3);
    ck_assert_uint_eq(places.seen[2], 1);
    ck_assert_uint_eq(allot_lease_id(lease), FAKE_LEASE);
    ck_assert_uint_eq(fake_allotd_holders(d), 1);
    ck_assert_uint_eq(allot_lease_shares(lease, &share, 1), 1);
    ck_assert_str_eq(share.device, FAKE_DEVICE);
    ck_assert_uint_eq(share.limit_bytes, FAKE_LIMIT);
    ck_assert_uint_eq(share.context_bytes, 100);
    ck_assert_int_eq(allot_lease_environment(lease, 1, &name, &value), 0);
    ck_assert_str_eq(name, "ALLOT_TOKEN");
    ck_assert_str_eq(value, FAKE_TOKEN);
    ck_assert_int_eq(allot_lease_environment(lease, 2, &name, &value), -ENOENT);

    ck_ok(allot_lease_grow(lease, NULL, G(400), 0, &err));
    ck_ok(allot_lease_grow(lease, FAKE_DEVICE, G(599) + 1, 0, &err)); /* a granule begun is one */
    ck_assert_int_eq(allot_lease_grow(lease, NULL, 1, 0, &err), -ENOSPC);
    ck_assert_str_eq(err.text, "the lease is full");
    ck_assert_int_eq(allot_lease_grow(lease, NULL, UINT64_MAX, 0, &err), -EINVAL);
    ck_assert_int_eq(allot_lease_grow(lease, "GPU-other", 1, 0, &err), -ENODEV);
    ck_assert_uint_eq(held(lease), FAKE_LIMIT);
    ck_ok(allot_lease_held(lease, NULL, &all, &err));
    ck_assert_uint_eq(all, FAKE_LIMIT);
    ck_assert_int_eq(allot_lease_shrink(lease, NULL, G(1001), &err), -EINVAL);
    ck_ok(allot_lease_shrink(lease, NULL, G(999) - 1, &err));
    ck_ok(allot_lease_shrink(lease, NULL, 0, &err));
    ck_assert_uint_eq(held(lease), G(2));
    ck_assert_uint_eq(fake_allotd_held(d, getpid()), G(2));
    ck_ok(allot_lease_release(lease, &err));
    ck_assert(fake_allotd_was_released(d));
    ck_assert_ptr_null(allot_lease_free(lease));
    fake_allotd_await_holders(d, 0);
    ck_assert_uint_eq(fake_allotd_held(d, getpid()), 0);
    teardown();
}
END_TEST

START_TEST(a_process_of_a_job_attaches_by_its_environment) {
    struct allot_error err = { 0 };
    struct allot_lease *lease;

    setup();
    ck_assert_int_eq(allot_lease_attach(&lease, 0, NULL, NULL, &err), -ENOENT);
    setenv("ALLOT_LEASE", "7", 1);
    ck_assert_int_eq(allot_lease_attach(&lease, 0, NULL, NULL, &err), -EACCES);
    setenv("ALLOT_TOKEN", FAKE_TOKEN, 1);
    ck_ok(allot_lease_attach(&lease, 0, NULL, NULL, &err));
    allot_lease_free(lease);
    fake_allotd_await_holders(d, 0);
    setenv("ALLOT_LEASE", "8", 1);
    ck_assert_int_eq(allot_lease_attach(&lease, 0, NULL, NULL, &err), -ENOENT);
    ck_assert_int_eq(allot_lease_attach(&lease, 7, NULL, NULL, &err), -EACCES);
    setenv("ALLOT_LEASE", "7x", 1);
    ck_assert_int_eq(allot_lease_attach(&lease, 0, NULL, NULL, &err), -ENOENT);
    ck_ok(allot_lease_attach(&lease, 7, FAKE_TOKEN, NULL, &err));
    allot_lease_free(lease);
    teardown();
}
END_TEST

START_TEST(without_a_daemon_it_says_so_at_once) {
    struct allot_lease_options options = ALLOT_LEASE_OPTIONS_INIT;
    struct allot_error err = { 0 };
    struct allot_lease *lease = NULL;

    options.socket = "/nowhere/at/all";
    ck_assert_int_eq(allot_lease_acquire(&lease, &options, &err), -ENOTCONN);
    ck_assert_int_eq(err.code, -ENOTCONN);
    ck_assert_ptr_nonnull(strstr(err.text, "/nowhere/at/all"));
    options.reconnect_usec = 1000;
    ck_assert_int_eq(allot_lease_attach(&lease, 7, NULL, &options, &err), -ENOTCONN);
    options.amount.mode = 99;
    ck_assert_int_eq(allot_lease_acquire(&lease, &options, NULL), -EINVAL);
    options = ALLOT_LEASE_OPTIONS_INIT;
    options.choose = 99;
    ck_assert_int_eq(allot_lease_acquire(&lease, &options, NULL), -EINVAL);
    options.size = 3;
    ck_assert_int_eq(allot_lease_acquire(&lease, &options, NULL), -EINVAL);
    ck_assert_ptr_null(lease);
    ck_assert_ptr_null(allot_lease_free(NULL));
}
END_TEST

START_TEST(a_newer_caller_is_understood_as_far_as_it_asks_for_nothing_new) {
    struct {
        struct allot_lease_options options;
        uint64_t more;
    } newer = { ALLOT_LEASE_OPTIONS_INIT, 0 };
    struct allot_lease *lease = NULL;

    setup();
    newer.options.size = sizeof(newer);
    allot_lease_free(acquired(&newer.options));
    newer.more = 1;
    ck_assert_int_eq(allot_lease_acquire(&lease, &newer.options, NULL), -EINVAL);
    teardown();
}
END_TEST

START_TEST(a_busy_daemon_is_asked_again_when_it_says) {
    struct allot_lease_options options = ALLOT_LEASE_OPTIONS_INIT;
    struct allot_lease *lease = NULL;
    struct places places = { 0 };
    struct allot_error err = { 0 };
    uint64_t began;

    setup();
    options.progress = note_place;
    options.userdata = &places;
    fake_allotd_busy(d, 2, 20000);
    began = clock_usec(CLOCK_MONOTONIC);
    allot_lease_free(acquired(&options));
    ck_assert_uint_ge(clock_usec(CLOCK_MONOTONIC) - began, 40000);
    ck_assert_uint_eq(places.n, 2);
    ck_assert_uint_eq(places.seen[0], 0);
    /* Not for longer than the caller waits. */
    fake_allotd_busy(d, 2, 3600 * UINT64_C(1000000));
    options.timeout_usec = 10 * UINT64_C(1000000);
    ck_assert_int_eq(allot_lease_acquire(&lease, &options, &err), -EBUSY);
    ck_assert_str_eq(err.text, "full");
    options.no_wait = true;
    ck_assert_int_eq(allot_lease_acquire(&lease, &options, &err), -EBUSY);
    teardown();
}
END_TEST

START_TEST(waiting_for_a_busy_daemon_can_be_cancelled) {
    struct allot_lease_options options = ALLOT_LEASE_OPTIONS_INIT;
    struct allot_lease *lease = NULL;
    int stop[2];

    setup();
    fake_allotd_busy(d, 1, 3600 * UINT64_C(1000000));
    ck_assert_int_eq(pipe(stop), 0);
    ck_assert_int_eq((int)write(stop[1], "", 1), 1);
    options.cancel_fd = stop[0];
    ck_assert_int_eq(allot_lease_acquire(&lease, &options, NULL), -ECANCELED);
    close(stop[0]);
    close(stop[1]);
    teardown();
}
END_TEST

START_TEST(waiting_for_a_lease_can_be_cancelled) {
    struct allot_lease_options options = ALLOT_LEASE_OPTIONS_INIT;
    struct allot_lease *lease = NULL;
    int stop[2];

    setup();
    fake_allotd_line(d, 1, true);
    ck_assert_int_eq(pipe(stop), 0);
    ck_assert_int_eq((int)write(stop[1], "", 1), 1);
    options.cancel_fd = stop[0];
    ck_assert_int_eq(allot_lease_acquire(&lease, &options, NULL), -ECANCELED);
    fake_allotd_await_waiting(d, 0);
    close(stop[0]);
    close(stop[1]);
    teardown();
}
END_TEST

START_TEST(a_restart_is_a_pause_and_nothing_more) {
    struct allot_error err = { 0 };
    struct allot_lease *lease;

    setup();
    lease = acquired(NULL);
    ck_ok(allot_lease_grow(lease, NULL, G(10), 0, &err));
    for (unsigned i = 1; i <= 5; i++) {
        fake_allotd_kill(d, i % 2);
        if (i % 2)
            fake_allotd_start(d);
        ck_ok(allot_lease_grow(lease, NULL, G(10), 0, &err));
        ck_assert_uint_eq(held(lease), G(10) * (i + 1));
        ck_assert_uint_eq(fake_allotd_held(d, getpid()), G(10) * (i + 1));
    }
    allot_lease_free(lease);
    teardown();
}
END_TEST

START_TEST(a_grow_whose_answer_was_lost_counts_once) {
    struct allot_error err = { 0 };
    struct allot_lease *lease;

    setup();
    lease = acquired(NULL);
    for (unsigned i = 1; i <= 4; i++) {
        fake_allotd_die_after(d, 1);
        ck_ok(allot_lease_grow(lease, NULL, G(10), 0, &err));
        ck_assert_uint_eq(held(lease), G(10) * i);
        ck_assert_uint_eq(fake_allotd_held(d, getpid()), G(10) * i);
    }
    fake_allotd_die_after(d, 1);
    ck_ok(allot_lease_shrink(lease, NULL, G(15), &err));
    fake_allotd_await_attached(d, 6);
    ck_assert_uint_eq(held(lease), G(25));
    ck_assert_uint_eq(fake_allotd_held(d, getpid()), G(25));
    allot_lease_free(lease);
    teardown();
}
END_TEST

START_TEST(a_call_that_is_cut_off_by_a_living_daemon_counts_once) {
    struct allot_error err = { 0 };
    struct allot_lease *lease;

    setup();
    lease = acquired(NULL);
    ck_ok(allot_lease_grow(lease, NULL, G(5), 0, &err));
    fake_allotd_drop_next(d);
    ck_ok(allot_lease_grow(lease, NULL, G(10), 0, &err));
    ck_assert_uint_eq(fake_allotd_held(d, getpid()), G(15));
    fake_allotd_drop_next(d);
    ck_ok(allot_lease_shrink(lease, NULL, G(10), &err));
    ck_ok(allot_lease_grow(lease, NULL, G(1), 0, &err));
    ck_assert_uint_eq(held(lease), G(6));
    ck_assert_uint_eq(fake_allotd_held(d, getpid()), G(6));
    ck_assert_uint_eq(fake_allotd_holders(d), 1);
    allot_lease_free(lease);
    teardown();
}
END_TEST

START_TEST(a_daemon_that_dies_between_grant_and_holding_is_waited_for) {
    struct allot_error err = { 0 };
    struct allot_lease *lease;

    setup();
    fake_allotd_die_at_attach(d, 3);
    lease = acquired(NULL);
    ck_ok(allot_lease_grow(lease, NULL, G(3), 0, &err));
    fake_allotd_die_at_attach(d, 3);
    fake_allotd_kill(d, false);
    ck_ok(allot_lease_grow(lease, NULL, G(3), 0, &err));
    ck_assert_uint_eq(fake_allotd_held(d, getpid()), G(6));
    allot_lease_free(lease);
    teardown();
}
END_TEST

static void *grow_and_wait(void *argument) {
    struct allot_error err = { 0 };

    ck_ok(allot_lease_grow(argument, NULL, G(300), UINT64_MAX, &err));
    return NULL;
}

START_TEST(a_grow_that_waits_does_not_stop_a_shrink_and_survives_a_restart) {
    struct allot_error err = { 0 };
    struct allot_lease *lease;
    pthread_t waiter;

    setup();
    lease = acquired(NULL);
    ck_ok(allot_lease_grow(lease, NULL, G(800), 0, &err));
    ck_assert_int_eq(pthread_create(&waiter, NULL, grow_and_wait, lease), 0);
    fake_allotd_await_waiting(d, 1);
    fake_allotd_kill(d, false);
    fake_allotd_await_waiting(d, 1);
    ck_ok(allot_lease_shrink(lease, NULL, G(200), &err));
    ck_assert_int_eq(pthread_join(waiter, NULL), 0);
    ck_assert_uint_eq(fake_allotd_held(d, getpid()), G(900));
    ck_assert_uint_eq(held(lease), G(900));
    allot_lease_free(lease);
    teardown();
}
END_TEST

START_TEST(a_daemon_that_stays_away_is_not_waited_for_for_ever) {
    struct allot_lease_options options = ALLOT_LEASE_OPTIONS_INIT;
    struct allot_error err = { 0 };
    struct allot_lease *lease;

    setup();
    options.reconnect_usec = 20000;
    lease = acquired(&options);
    fake_allotd_kill(d, true);
    ck_assert_int_eq(allot_lease_grow(lease, NULL, G(1), 0, &err), -ENOTCONN);
    ck_assert_uint_eq(held(lease), 0);
    allot_lease_free(lease); /* while the thread tries to come back */
    teardown();
}
END_TEST

struct told {
    unsigned n;
    uint64_t place;
    char reason[256];
};

static void note_told(void *userdata, uint64_t place, const char *reason) {
    struct told *told = userdata;

    told->n++;
    told->place = place;
    snprintf(told->reason, sizeof(told->reason), "%s", reason);
}

START_TEST(a_daemon_that_is_gone_is_waited_for_as_long_as_the_caller_says) {
    struct allot_lease_patience patience = ALLOT_LEASE_PATIENCE_INIT;
    uint64_t begin = clock_usec(CLOCK_MONOTONIC);
    struct allot_error err = { 0 };
    struct allot_lease *lease;
    struct told told = { 0 };

    setup();
    lease = acquired(NULL); /* whose calls wait for a minute where nothing else is said */
    ck_ok(allot_lease_grow(lease, NULL, G(10), 0, &err));
    fake_allotd_kill(d, true);
    ck_assert_int_eq(allot_lease_grow(lease, NULL, G(1), 100000, &err), -ENOTCONN);
    ck_assert_msg(strstr(err.text, "systemctl start allotd") != NULL, "%s", err.text);
    patience.reconnect_usec = 100000;
    patience.progress = note_told;
    patience.userdata = &told;
    ck_assert_int_eq(allot_lease_grow_with(lease, NULL, G(1), &patience, &err), -ENOTCONN);
    ck_assert_msg(strstr(err.text, "systemctl start allotd") != NULL, "%s", err.text);
    ck_assert_uint_eq(told.n, 1);
    ck_assert_uint_eq(told.place, 0);
    ck_assert_msg(strstr(told.reason, "is away") != NULL, "%s", told.reason);
    patience.timeout_usec = UINT64_MAX;
    ck_assert_int_eq(allot_lease_grow_with(lease, NULL, G(1), &patience, &err), -ENOTCONN);
    /* Freed bytes are free, and reported when a daemon is there. */
    ck_ok(allot_lease_shrink(lease, NULL, G(4), &err));
    ck_assert_int_eq(allot_lease_shrink(lease, NULL, G(7), &err), -EINVAL);
    ck_assert_uint_eq(held(lease), G(6));
    ck_assert_uint_lt(clock_usec(CLOCK_MONOTONIC) - begin, 30000000);
    fake_allotd_start(d);
    ck_ok(allot_lease_grow(lease, NULL, G(1), UINT64_MAX, &err));
    ck_assert_uint_eq(fake_allotd_held(d, getpid()), G(7));
    patience.size = 0;
    ck_assert_int_eq(allot_lease_grow_with(lease, NULL, G(1), &patience, &err), -EINVAL);
    allot_lease_free(lease);
    teardown();
}
END_TEST

static void *grow_and_be_told(void *argument) {
    struct allot_lease_patience patience = ALLOT_LEASE_PATIENCE_INIT;
    static struct told told;
    struct allot_error err = { 0 };

    patience.timeout_usec = UINT64_MAX;
    patience.progress = note_told;
    patience.userdata = &told;
    ck_ok(allot_lease_grow_with(argument, NULL, G(300), &patience, &err));
    return &told;
}

START_TEST(a_growth_in_line_is_told_its_place_and_outlives_any_restart) {
    struct allot_lease_options options = ALLOT_LEASE_OPTIONS_INIT;
    struct allot_error err = { 0 };
    struct allot_lease *lease;
    pthread_t waiter;
    void *told;

    setup();
    options.reconnect_usec = 2000000;
    lease = acquired(&options);
    ck_ok(allot_lease_grow(lease, NULL, G(800), 0, &err));
    ck_assert_int_eq(pthread_create(&waiter, NULL, grow_and_be_told, lease), 0);
    fake_allotd_await_waiting(d, 1);
    usleep(2200000); /* longer in the queue than any call waits for a daemon that is away */
    fake_allotd_kill(d, false);
    fake_allotd_await_waiting(d, 1);
    ck_ok(allot_lease_shrink(lease, NULL, G(200), &err));
    ck_assert_int_eq(pthread_join(waiter, &told), 0);
    ck_assert_uint_ge(((struct told *)told)->n, 2);
    ck_assert_uint_eq(((struct told *)told)->place, 1);
    ck_assert_str_eq(((struct told *)told)->reason, "full");
    ck_assert_uint_eq(fake_allotd_held(d, getpid()), G(900));
    allot_lease_free(lease);
    teardown();
}
END_TEST

struct news {
    struct allot_lease *_Atomic lease;
    atomic_uint n_recalls, n_lost;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
};

static void on_notice(void *userdata, const struct allot_lease_notice *notice) {
    struct news *news = userdata;
    struct allot_error err = { 0 };
    sigset_t blocked;

    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    ck_assert(sigismember(&blocked, SIGTERM));
    pthread_mutex_lock(&news->lock);
    if (notice->event == ALLOT_LEASE_RECALL) {
        ck_assert_str_eq(notice->device, FAKE_DEVICE);
        ck_ok(allot_lease_shrink(news->lease, notice->device, notice->bytes, &err));
        news->n_recalls++;
    } else if (notice->event == ALLOT_LEASE_LOST) {
        news->n_lost++;
    }
    pthread_cond_broadcast(&news->changed);
    pthread_mutex_unlock(&news->lock);
}

static void await_news(struct news *news, unsigned n_recalls, unsigned n_lost) {
    pthread_mutex_lock(&news->lock);
    while (news->n_recalls < n_recalls || news->n_lost < n_lost)
        pthread_cond_wait(&news->changed, &news->lock);
    pthread_mutex_unlock(&news->lock);
}

START_TEST(recalls_are_told_and_may_be_answered_where_they_are_told) {
    struct news news = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };
    struct allot_lease_options options = ALLOT_LEASE_OPTIONS_INIT;
    struct allot_error err = { 0 };

    setup();
    options.notice = on_notice;
    options.userdata = &news;
    options.credits = true;
    options.tier = 4;
    news.lease = acquired(&options);
    ck_ok(allot_lease_grow(news.lease, NULL, G(100), 0, &err));
    fake_allotd_notice(d, NOTICE_RECALL, G(30));
    await_news(&news, 1, 0);
    ck_assert_uint_eq(fake_allotd_held(d, getpid()), G(70));
    fake_allotd_kill(d, false);
    fake_allotd_await_attached(d, 2);
    fake_allotd_notice(d, NOTICE_RECALL, G(30));
    await_news(&news, 2, 0);
    ck_assert_uint_eq(fake_allotd_held(d, getpid()), G(40));

    fake_allotd_end_lease(d);
    await_news(&news, 2, 1);
    ck_assert_int_eq(allot_lease_grow(news.lease, NULL, G(1), 0, &err), -ENOENT);
    ck_assert_ptr_nonnull(strstr(err.text, "lease 7 has ended"));
    allot_lease_free(news.lease);
    teardown();
}
END_TEST

START_TEST(a_lease_that_is_gone_after_a_restart_is_told_as_lost) {
    struct news news = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };
    struct allot_lease_options options = ALLOT_LEASE_OPTIONS_INIT;
    struct allot_error err = { 0 };

    setup();
    options.notice = on_notice;
    options.userdata = &news;
    news.lease = acquired(&options);
    fake_allotd_kill(d, true);
    fake_allotd_end_lease(d);
    fake_allotd_start(d);
    await_news(&news, 0, 1);
    ck_assert_int_eq(allot_lease_grow(news.lease, NULL, G(1), 0, &err), -ENOENT);
    allot_lease_free(news.lease);
    teardown();
}
END_TEST

/* In the child: 0 if all is well, else a line number. */
static int be_a_child(struct allot_lease *lease) {
    struct allot_error err = { 0 };
    struct allot_lease_share share;

    if (allot_lease_grow(lease, NULL, G(1), 0, &err) != -ECHILD ||
        !strstr(err.text, "allot_lease_reattach"))
        return __LINE__;
    if (allot_lease_shrink(lease, NULL, 0, &err) != -ECHILD ||
        allot_lease_release(lease, &err) != -ECHILD || allot_lease_shares(lease, &share, 1) != 0)
        return __LINE__;
    if (allot_lease_reattach(lease, &err) != 0)
        return __LINE__;
    if (allot_lease_shares(lease, &share, 1) != 1 || share.held_bytes != 0)
        return __LINE__;
    if (allot_lease_grow(lease, NULL, G(7), 0, &err) != 0)
        return __LINE__;
    if (allot_lease_reattach(lease, &err) != -EALREADY)
        return __LINE__;
    allot_lease_free(lease);
    return 0;
}

static void wait_well(pid_t child) {
    int status;

    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", (unsigned)status);
}

START_TEST(a_fork_holds_nothing_until_it_attaches_and_leaves_its_parent_alone) {
    struct allot_error err = { 0 };
    struct allot_lease *lease;
    pid_t child;

#ifdef __SANITIZE_THREAD__
    printf("skipped: the thread sanitizer knows no threads in the child of a threaded process\n");
    return;
#endif
    setup();
    lease = acquired(NULL);
    ck_ok(allot_lease_grow(lease, NULL, G(5), 0, &err));
    child = fake_allotd_fork(d);
    if (child == 0)
        _exit(be_a_child(lease) & 0xff);
    wait_well(child);
    fake_allotd_await_holders(d, 1);
    child = fake_allotd_fork(d);
    if (child == 0) {
        allot_lease_free(lease);
        _exit(0);
    }
    wait_well(child);
    ck_ok(allot_lease_grow(lease, NULL, G(5), 0, &err));
    ck_assert_uint_eq(fake_allotd_held(d, getpid()), G(10));
    ck_assert_uint_eq(fake_allotd_attached(d), 2);

    /* A child that keeps a copy of the connection does not keep the parent attached. */
    child = fake_allotd_fork(d);
    if (child == 0) {
        pause();
        _exit(0);
    }
    allot_lease_free(lease);
    fake_allotd_await_holders(d, 0);
    kill(child, SIGKILL);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    teardown();
}
END_TEST

/* Many threads, and a daemon that dies again and again: not a byte is lost or counted twice. */
struct storm {
    struct allot_lease *lease;
    uint64_t seed;
    uint64_t holds;
};

static void *rage(void *argument) {
    struct storm *storm = argument;
    struct allot_error err = { 0 };

    for (int i = 0; i < 300; i++) {
        uint64_t bytes = G(1 + random_next(&storm->seed) % 9);

        if (random_next(&storm->seed) % 2) {
            int r = allot_lease_grow(storm->lease, NULL, bytes, 0, &err);

            ck_assert_msg(r == 0 || r == -ENOSPC, "%d: %s", r, err.text);
            storm->holds += r == 0 ? bytes : 0;
        } else if (storm->holds >= bytes) {
            ck_ok(allot_lease_shrink(storm->lease, NULL, bytes, &err));
            storm->holds -= bytes;
        }
    }
    return NULL;
}

START_TEST(a_storm_of_calls_and_restarts_loses_no_byte) {
    struct allot_error err = { 0 };
    struct allot_lease *lease;
    struct storm storms[6];
    pthread_t threads[ELEMENTSOF(storms)];
    uint64_t sum = 0;

    setup();
    lease = acquired(NULL);
    for (size_t i = 0; i < ELEMENTSOF(storms); i++) {
        storms[i] = (struct storm){ .lease = lease, .seed = i + 1 };
        ck_assert_int_eq(pthread_create(&threads[i], NULL, rage, &storms[i]), 0);
    }
    for (unsigned i = 0; i < 12; i++) {
        unsigned before = fake_allotd_attached(d);

        if (i % 3 == 0)
            fake_allotd_kill(d, false);
        else if (i % 3 == 1)
            fake_allotd_die_after(d, 5);
        else
            fake_allotd_drop_next(d);
        /* The threads may have ended before they met what was set up for them. */
        if (i % 3 == 0)
            fake_allotd_await_attached(d, before + 1);
    }
    for (size_t i = 0; i < ELEMENTSOF(storms); i++) {
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
        sum += storms[i].holds;
    }
    /* What the threads left set up. */
    for (int i = 0; i < 10; i++)
        ck_ok(allot_lease_grow(lease, NULL, 0, 0, &err));
    ck_assert_uint_eq(held(lease), sum);
    ck_assert_uint_eq(fake_allotd_held(d, getpid()), sum);
    allot_lease_free(lease);
    teardown();
}
END_TEST

SUITE("lease-client", a_lease_is_waited_for_held_and_given_back,
      a_process_of_a_job_attaches_by_its_environment, without_a_daemon_it_says_so_at_once,
      a_newer_caller_is_understood_as_far_as_it_asks_for_nothing_new,
      a_busy_daemon_is_asked_again_when_it_says, waiting_for_a_busy_daemon_can_be_cancelled,
      waiting_for_a_lease_can_be_cancelled, a_restart_is_a_pause_and_nothing_more,
      a_grow_whose_answer_was_lost_counts_once,
      a_call_that_is_cut_off_by_a_living_daemon_counts_once,
      a_daemon_that_dies_between_grant_and_holding_is_waited_for,
      a_grow_that_waits_does_not_stop_a_shrink_and_survives_a_restart,
      a_daemon_that_stays_away_is_not_waited_for_for_ever,
      a_daemon_that_is_gone_is_waited_for_as_long_as_the_caller_says,
      a_growth_in_line_is_told_its_place_and_outlives_any_restart,
      recalls_are_told_and_may_be_answered_where_they_are_told,
      a_lease_that_is_gone_after_a_restart_is_told_as_lost,
      a_fork_holds_nothing_until_it_attaches_and_leaves_its_parent_alone,
      a_storm_of_calls_and_restarts_loses_no_byte)
