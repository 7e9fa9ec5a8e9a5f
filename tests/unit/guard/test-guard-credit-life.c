/* SPDX-License-Identifier: Apache-2.0 */
/* What the guard gives back, on its own or recalled; reservations, forks and threads. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/random.h"
#include "guard/credit.h"
#include "tests/support/guard/credit_fixture.h"

START_TEST(what_lies_idle_goes_back_but_for_a_batch) {
    struct timespec before, after;

    fixture_lease_of(64 * GIB); /* batches of 64 MiB */
    ck_assert(credit_take(0, 512 * MIB));
    clock_gettime(CLOCK_MONOTONIC, &before);
    credit_give(0, 511 * MIB);
    ck_assert(fixture_gives_back(20000));
    clock_gettime(CLOCK_MONOTONIC, &after); /* not at once: it may be wanted again */
    ck_assert_int_ge(
        (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000, 199);
    GIVEN(446); /* 1 MiB is a page, and a batch is kept */
    ck_assert(credit_take(0, 511 * MIB));
    ASKED(512, 446);
    credit_give(0, 384 * MIB - 2 * MIB);
    ck_assert(fixture_gives_back(20000));
    GIVEN(446, 318);
    ck_assert_uint_eq(fixture_daemon->held_bytes[0], 194 * MIB);
    ck_assert_uint_eq(fixture_n_notes[NOTE_REFUSED], 0);
}
END_TEST

START_TEST(two_idle_batches_are_kept_in_hand) {
    fixture_lease_of(64 * GIB);
    ck_assert(credit_take(0, 128 * MIB));
    credit_give(0, 128 * MIB);
    ck_assert(!fixture_gives_back(600)); /* three times as long as they would linger */
    ck_assert_uint_eq(fixture_daemon->n_shrinks, 0);
    ck_assert(credit_take(0, 96 * MIB)); /* however much is used beside them */
    credit_give(0, 2 * MIB);
    ck_assert(!fixture_gives_back(600));
    ck_assert_uint_eq(fixture_daemon->n_shrinks, 0);
    credit_give(0, 94 * MIB);
    ck_assert(credit_take(0, 130 * MIB));
    credit_give(0, 130 * MIB);
    ck_assert(fixture_gives_back(20000));
    ck_assert_uint_eq(fixture_daemon->held_bytes[0], 64 * MIB);
}
END_TEST

/* A program's handlers run in its own threads. */
START_TEST(the_guards_thread_takes_no_signals) {
    char path[64], line[256];
    unsigned n = 0;

    fixture_lease_of(GIB);
    /* Until it waits: a thread that is just being made has every signal blocked for a moment. */
    while (n == 0)
        for (pid_t task = getpid() + 1; n == 0 && task < getpid() + 1000; task++) {
            cleanup(fclosep) FILE *file = NULL;
            bool waits = false;

            snprintf(path, sizeof(path), "/proc/self/task/%d/status", (int)task);
            file = fopen(path, "r");
            while (file && fgets(line, sizeof(line), file)) {
                waits |= strncmp(line, "State:\tS", 8) == 0;
                if (!waits || strncmp(line, "SigBlk:\t", 8) != 0)
                    continue;
                n++;
                ck_assert_uint_eq(strtoull(line + 8, NULL, 16) & 0x7fff, 0x7fff & ~(1 << 8));
            }
        }
    ck_assert_uint_eq(n, 1);
}
END_TEST

/* This program elsewhere, where no liballot lies beside it. */
__attribute__((constructor)) static void look_alone(void) {
    if (!getenv("CREDIT_ALONE"))
        return;
    _exit(fixture_share_of(0x11) == CREDIT_REFUSED && fixture_n_notes[NOTE_DAEMON] == 1 &&
                  strstr(fixture_note, "the client library cannot be loaded: liballot.so.0 is not "
                                       "beside the guard")
              ? 0
              : 1);
}

START_TEST(without_a_client_library_everything_is_refused) {
    char folder[] = "/tmp/allot-credit-XXXXXX", path[64], self[4096] = "";
    pid_t pid;

    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/alone", folder);
    ck_assert_int_gt(readlink("/proc/self/exe", self, sizeof(self) - 1), 0);
    ck_assert_int_eq(symlink(self, path), 0);
    pid = fork();
    if (pid == 0) {
        setenv("ALLOT_LEASE", "7", 1);
        setenv("CREDIT_ALONE", "1", 1);
        execl(path, path, NULL);
        _exit(2);
    }
    ck_assert_int_eq(fixture_ends_with(pid), 0);
    unlink(path);
    rmdir(folder);
}
END_TEST

static int heard_event, settled_share = -1;
static uint64_t settles_bytes;

static void hear(const struct allot_lease_notice *notice) {
    heard_event = notice->event;
}

static void settle(int share) {
    settled_share = share;
    if (settles_bytes)
        credit_give(share, settles_bytes);
    settles_bytes = 0;
}

START_TEST(a_recall_is_answered_with_all_that_is_not_needed) {
    fixture_begin();
    fixture_add_share(OTHER, GIB, 0);
    fixture_add_share(GPU, 64 * GIB, 0);
    ck_assert_int_eq(fixture_share_of(0x11), 1);
    credit_on_notice(hear);
    credit_on_short(settle);
    ck_assert(credit_take(1, 100 * MIB));
    settled_share = -1;
    credit_give(1, 39 * MIB);
    fixture_tell(ALLOT_LEASE_RECALL, GPU);
    ck_assert_int_eq(heard_event, ALLOT_LEASE_RECALL);
    ck_assert_int_eq(settled_share, 1);
    GIVEN(38);
    ck_assert_str_eq(fixture_daemon->shrinks[0].device, GPU);
    fixture_tell(ALLOT_LEASE_RECALL, GPU);
    GIVEN(38, 0); /* nothing to give is an answer, too */
    settles_bytes = 10 * MIB;
    fixture_tell(ALLOT_LEASE_RECALL, GPU);
    GIVEN(38, 0, 10);
    fixture_tell(ALLOT_LEASE_RECALL, NULL);
    fixture_tell(ALLOT_LEASE_RECALL, NOTHING);
    ck_assert_uint_eq(fixture_daemon->n_shrinks, 3);
    fixture_tell(ALLOT_LEASE_RECALL, OTHER);
    ck_assert_str_eq(fixture_daemon->shrinks[3].device, OTHER);
    ck_assert_uint_eq(fixture_n_notes[NOTE_DAEMON], 0);
}
END_TEST

static void try_notice(unsigned which) {
    static const struct {
        enum allot_lease_event event;
        bool is_told;
    } cases[] = { { ALLOT_LEASE_IDLE, false },
                  { ALLOT_LEASE_OVER, false },
                  { ALLOT_LEASE_DRAINING, false },
                  { ALLOT_LEASE_ENDING, true },
                  { ALLOT_LEASE_LOST, true } };

    fixture_lease_of(GIB);
    fixture_tell(cases[which].event, GPU);
    ck_assert_uint_eq(fixture_n_notes[NOTE_DAEMON], cases[which].is_told);
    if (cases[which].is_told)
        ck_assert_str_eq(fixture_note, "so it is");
    ck_assert_uint_eq(fixture_daemon->n_shrinks, 0);
}

START_TEST(the_program_is_told_when_its_lease_ends) {
    fixture_each(5, try_notice);
}
END_TEST

START_TEST(what_the_daemon_does_not_take_back_is_still_in_hand) {
    fixture_lease_of(64 * GIB);
    ck_assert(credit_take(0, 100 * MIB));
    credit_give(0, 100 * MIB);
    fixture_daemon->shrink_result = -ENOTCONN;
    fixture_tell(ALLOT_LEASE_RECALL, GPU);
    GIVEN(100, 0);
    fixture_daemon->shrink_result = 0;
    ck_assert(credit_take(0, 100 * MIB));
    ASKED(100);
}
END_TEST

START_TEST(charges_that_are_not_used_are_settled_before_the_daemon_is_asked) {
    fixture_lease_of(1024 * MIB);
    credit_on_short(settle);
    ck_assert(credit_take(0, 16 * MIB));
    ck_assert_int_eq(settled_share, 0);
    settles_bytes = 4 * MIB;
    ck_assert(credit_take(0, 4 * MIB));
    ASKED(16);
}
END_TEST

static struct allot_lease_patience patience_of(uint64_t timeout_usec) {
    struct allot_lease_patience patience = allot_lease_patience_init();

    patience.timeout_usec = timeout_usec;
    patience.reconnect_usec = 77;
    patience.hangs_usec = 55;
    patience.cancel_fd = 33;
    return patience;
}

START_TEST(what_is_reserved_is_no_new_charge_when_it_is_used) {
    struct allot_lease_patience patience = patience_of(0);
    struct allot_error err;

    fixture_lease_of(64 * GIB);
    ck_assert_int_eq(credit_reserve(0, 100 * MIB, &patience, &err), 0);
    ASKED(100);
    ck_assert_uint_eq(fixture_daemon->growths[0].timeout_usec, 0);
    ck_assert_uint_eq(fixture_daemon->growths[0].reconnect_usec, 1);
    ck_assert_uint_eq(fixture_daemon->growths[0].hangs_usec, 55);
    ck_assert_int_eq(fixture_daemon->growths[0].cancel_fd, 33);
    ck_assert(credit_take(0, 100 * MIB));
    ASKED(100);
    credit_give(0, 100 * MIB);
    fixture_tell(ALLOT_LEASE_RECALL, GPU);
    GIVEN(0);
    ck_assert_int_eq(credit_reserve(0, 20 * MIB, &patience, &err), 0);
    ASKED(100, 20);
    ck_assert(credit_take(0, 110 * MIB));
    credit_give(0, 110 * MIB);
    ck_assert_int_eq(credit_reserve(0, 0, &patience, &err), 0); /* all in hand */
    ASKED(100, 20);
    credit_unreserve(0, 100 * MIB);
    GIVEN(0, 100);
    ck_assert(credit_take(0, 60 * MIB));
    ASKED(100, 20, 64); /* a batch, as 40 are missing */
    credit_unreserve(0, 20 * MIB);
    GIVEN(0, 100, 24); /* all that is not used */
}
END_TEST

START_TEST(a_reservation_that_is_refused_reserves_nothing) {
    struct allot_lease_patience patience = patience_of(0);
    struct allot_error err;

    fixture_lease_of(64 * GIB);
    ck_assert(credit_take(0, 10 * MIB)); /* a batch of 64 is in hand */
    credit_give(0, 10 * MIB);
    fixture_daemon->room_bytes = 64 * MIB;
    fixture_daemon->patient_bytes = GIB;
    fixture_daemon->refusal = "it is full";
    ck_assert_int_eq(credit_reserve(0, 100 * MIB, &patience, &err), -ENOSPC);
    ck_assert_str_eq(err.text, "it is full");
    ASKED(64, 36);
    fixture_tell(ALLOT_LEASE_RECALL, GPU);
    GIVEN(64);
}
END_TEST

static void try_patience(unsigned which) {
    struct allot_lease_patience patience = patience_of(which ? 9 : 0);
    struct allot_error err;

    fixture_lease_of(64 * GIB);
    fixture_daemon->room_bytes = 0;
    fixture_daemon->patient_bytes = 100 * MIB;
    ck_assert_int_eq(credit_reserve(0, 100 * MIB, &patience, &err), which ? 0 : -ENOSPC);
    if (!which)
        return;
    ASKED(100, 100);
    ck_assert_uint_eq(fixture_daemon->growths[1].timeout_usec, 9);
    ck_assert_uint_eq(fixture_daemon->growths[1].reconnect_usec, 77);
    fixture_tell(ALLOT_LEASE_RECALL, GPU);
    GIVEN(0); /* it is reserved */
    ck_assert_int_eq(credit_reserve(0, 2 * MIB, &patience, &err), -ENOSPC);
    credit_unreserve(0, 100 * MIB);
    GIVEN(0, 100);
    ck_assert_uint_eq(fixture_daemon->held_bytes[0], 0);
}

START_TEST(a_reservation_waits_as_long_as_its_caller) {
    fixture_each(2, try_patience);
}
END_TEST

/* A daemon that is away, and a caller that was cancelled, are for the caller's own patience. */
static void try_away(unsigned which) {
    static const int results[] = { -ENOTCONN, -ECANCELED, -EACCES };
    struct allot_lease_patience patience = patience_of(0);
    struct allot_error err;

    fixture_lease_of(64 * GIB);
    fixture_daemon->room_bytes = 0;
    fixture_daemon->grow_result = results[which];
    ck_assert_int_eq(credit_reserve(0, 2 * MIB, &patience, &err), results[which]);
    ck_assert_uint_eq(fixture_daemon->n_growths, results[which] == -EACCES ? 1 : 2);
    if (fixture_daemon->n_growths == 2)
        ck_assert_uint_eq(fixture_daemon->growths[1].reconnect_usec, 77);
    fixture_daemon->room_bytes = GIB;
    ck_assert_int_eq(credit_reserve(0, 2 * MIB, &patience, &err), 0);
    ck_assert_uint_eq(fixture_daemon->growths[fixture_daemon->n_growths - 1].bytes, 2 * MIB);
}

START_TEST(a_daemon_that_is_away_is_asked_again_without_the_lock) {
    fixture_each(3, try_away);
}
END_TEST

START_TEST(the_view_is_of_all_processes_without_what_lies_idle_here) {
    struct credit_view view;
    uint64_t held;

    fixture_lease_of(64 * GIB);
    credit_on_short(settle);
    ck_assert(credit_take(0, 9 * MIB));
    settled_share = -1;
    fixture_daemon->others_bytes = 100 * MIB;
    ck_assert(credit_view(0, &view));
    ck_assert_int_eq(settled_share, 0);
    ck_assert_uint_eq(view.limit_bytes, 64 * GIB);
    ck_assert_uint_eq(view.held_bytes, 110 * MIB); /* 9 MiB are 5 pages of ours */
    ck_assert_int_eq(credit_held(0, &held, NULL), 0);
    ck_assert_uint_eq(held, 164 * MIB);

    fixture_daemon->others_bytes = 0;
    fixture_daemon->held_bytes[0] = 20 * MIB; /* as a daemon that lost some of it may say */
    ck_assert(credit_view(0, &view));
    ck_assert_uint_eq(view.held_bytes, 0);
    ck_assert_uint_eq(fixture_daemon->n_held_asked, 3);

    credit_force(0, 64 * MIB);
    fixture_daemon->room_bytes = 0;
    credit_force(0, 100 * MIB); /* over what it holds */
    fixture_daemon->held_bytes[0] = 30 * MIB;
    ck_assert(credit_view(0, &view));
    ck_assert_uint_eq(view.held_bytes, 30 * MIB);
}
END_TEST

START_TEST(a_silent_daemon_is_not_asked_for_the_view_again_at_once) {
    struct credit_view view;

    fixture_lease_of(64 * GIB);
    ck_assert(credit_take(0, 9 * MIB));
    fixture_daemon->others_bytes = 100 * MIB;
    fixture_daemon->held_result = -ENOTCONN;
    for (unsigned i = 0; i < 3; i++) {
        ck_assert(credit_view(0, &view));
        ck_assert_uint_eq(view.held_bytes, 10 * MIB);
        ck_assert_uint_eq(fixture_daemon->n_held_asked, 1);
    }
    fixture_daemon->held_result = 0;
    ck_assert(credit_view(0, &view));
    ck_assert_uint_eq(view.held_bytes, 10 * MIB);
}
END_TEST

/* Conditions of a child, which exits with the line of the first that does not hold. */
#define HOLDS(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            _exit(__LINE__ % 255 + 1);                                                             \
    } while (0)

/*
 * The daemon counts idle bytes as held until it has answered their return. A program that allocates
 * just then has room for them: all ways of asking wait for that answer.
 */
static void ask_during_return(unsigned which) {
    struct allot_lease_patience patience = allot_lease_patience_init();
    struct allot_error err;

    fixture_lease_of(96 * MIB);
    fixture_daemon->room_bytes = 96 * MIB;
    HOLDS(credit_take(0, 96 * MIB));
    fixture_daemon->holds_shrinks = true;
    credit_give(0, 96 * MIB);
    while (sem_wait(&fixture_daemon->shrinking) < 0)
        ;
    if (which == 0) {
        HOLDS(credit_take(0, 64 * MIB));
    } else if (which == 1) {
        patience.timeout_usec = 0;
        HOLDS(credit_reserve(0, 64 * MIB, &patience, &err) == 0);
    } else {
        credit_force(0, 64 * MIB);
    }
    HOLDS(fixture_n_notes[NOTE_REFUSED] == 0 && fixture_n_notes[NOTE_OVER] == 0);
    HOLDS(fixture_daemon->held_bytes[0] >= 64 * MIB);
    HOLDS(fixture_daemon->held_bytes[0] <= 96 * MIB);
}

START_TEST(bytes_on_their_way_back_are_no_reason_to_refuse) {
    fixture_each(3, ask_during_return);
}
END_TEST

START_TEST(a_forked_child_begins_with_nothing_and_attaches_itself) {
    struct allot_lease_patience patience = patience_of(0);
    struct allot_error err;
    pid_t pid;

#ifdef __SANITIZE_THREAD__
    printf("skipped: the thread sanitizer knows no threads in the child of a threaded process\n");
    return;
#endif
    fixture_lease_of(64 * GIB);
    ck_assert(credit_take(0, 130 * MIB));
    ck_assert_int_eq(credit_reserve(0, 200 * MIB, &patience, &err), 0);
    pid = fork();
    if (pid == 0) {
        HOLDS(fixture_daemon->n_freed == 1);
        fixture_daemon->n_growths = 0;
        HOLDS(fixture_share_of(0x11) == 0);
        HOLDS(fixture_daemon->n_attached == 2);
        HOLDS(credit_n_shares() == 1);
        HOLDS(credit_take(0, MIB));
        HOLDS(fixture_daemon->n_growths == 1 && fixture_daemon->growths[0].bytes == 64 * MIB);
        HOLDS(credit_take(0, 300 * MIB));
        credit_give(0, 300 * MIB);
        HOLDS(fixture_gives_back(20000)); /* by a thread of its own */
        HOLDS(fixture_daemon->held_bytes[0] == 66 * MIB);
        _exit(0);
    }
    ck_assert_int_eq(fixture_ends_with(pid), 0);
    ck_assert_uint_eq(fixture_daemon->n_freed, 0);
    ck_assert(credit_take(0, 70 * MIB));
    ASKED(130, 70);
}
END_TEST

START_TEST(a_process_cloned_behind_the_guards_back_gets_nothing) {
    pid_t pid;

    fixture_lease_of(64 * GIB);
    ck_assert(credit_take(0, 10 * MIB));
    fixture_daemon->n_growths = 0;
    pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0) {
        HOLDS(!credit_take(0, 512));
        HOLDS(fixture_daemon->n_growths == 0);
        HOLDS(fixture_n_notes[NOTE_REFUSED] == 1);
        HOLDS(strncmp(fixture_note, "this process was cloned", 23) == 0);
        _exit(0);
    }
    ck_assert_int_eq(fixture_ends_with(pid), 0);
    ck_assert(credit_take(0, 10 * MIB));
    ck_assert_uint_eq(fixture_daemon->n_growths, 0);
}
END_TEST

enum { THREADS = 4, STEPS = 20000, BLOCKS = 32 };
static const uint64_t walk_limit = 96 * MIB;
static _Atomic uint64_t walk_used;
static _Atomic unsigned n_taken, n_over;

/* Takes and gives; the daemon's books are to cover what is used at any time. */
static void *walk(void *seed) {
    uint64_t random = *(const uint64_t *)seed, blocks[BLOCKS] = { 0 };

    for (unsigned step = 0; step < STEPS; step++) {
        uint64_t *block = &blocks[random_next(&random) % BLOCKS];
        uint64_t bytes = credit_size(1 + random_next(&random) % (8 * MIB));

        if (*block) {
            walk_used -= *block;
            credit_give(0, *block);
            *block = 0;
        } else if (credit_take(0, bytes)) {
            *block = bytes;
            n_taken++;
            n_over += atomic_fetch_add(&walk_used, bytes) + bytes > walk_limit;
        }
        if (random_next(&random) % 64 == 0)
            fixture_tell(ALLOT_LEASE_RECALL, GPU);
    }
    for (unsigned i = 0; i < BLOCKS; i++) {
        walk_used -= blocks[i];
        credit_give(0, blocks[i]);
    }
    return NULL;
}

START_TEST(threads_never_use_more_than_is_held_and_lose_nothing) {
    pthread_t threads[THREADS];
    uint64_t seeds[THREADS];

    fixture_lease_of(walk_limit);
    fixture_daemon->room_bytes = walk_limit;
    for (unsigned i = 0; i < THREADS; i++) {
        seeds[i] = 0x51ed + i;
        ck_assert_int_eq(pthread_create(&threads[i], NULL, walk, &seeds[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    ck_assert_uint_gt(n_taken, STEPS / 4);
    ck_assert_uint_eq(n_over, 0);
    ck_assert_uint_eq(fixture_daemon->n_overdrawn, 0);
    fixture_tell(ALLOT_LEASE_RECALL, GPU);
    ck_assert_uint_eq(fixture_daemon->held_bytes[0], 0);
}
END_TEST

/* One thread, so that the books can be compared at every step. */
START_TEST(the_daemon_knows_of_every_page_at_every_step) {
    uint64_t random = 7, used = 0, reserved = 0, blocks[BLOCKS] = { 0 };
    struct allot_lease_patience patience = patience_of(0);

    fixture_lease_of(walk_limit);
    fixture_daemon->room_bytes = walk_limit;
    for (unsigned step = 0; step < STEPS; step++) {
        uint64_t *block = &blocks[random_next(&random) % BLOCKS];
        uint64_t bytes = credit_size(1 + random_next(&random) % (8 * MIB));
        unsigned what = random_next(&random) % 8;

        if (what == 0) {
            fixture_tell(ALLOT_LEASE_RECALL, GPU);
        } else if (what == 1 && reserved) {
            credit_unreserve(0, reserved);
            reserved = 0;
        } else if (what == 2 && !reserved) {
            struct allot_error err;
            uint64_t wanted = (1 + random_next(&random) % 16) * 2 * MIB;

            if (credit_reserve(0, wanted, &patience, &err) == 0)
                reserved = wanted;
        } else if (*block) {
            credit_give(0, *block);
            used -= *block;
            *block = 0;
        } else if (credit_take(0, bytes)) {
            *block = bytes;
            used += bytes;
        } else {
            ck_assert_uint_gt((used + bytes + 2 * MIB - 1) / (2 * MIB) * 2 * MIB, walk_limit);
        }
        pthread_mutex_lock(&fixture_daemon->lock);
        ck_assert_uint_ge(fixture_daemon->held_bytes[0], used);
        ck_assert_uint_ge(fixture_daemon->held_bytes[0], reserved);
        ck_assert_uint_le(fixture_daemon->held_bytes[0], walk_limit);
        pthread_mutex_unlock(&fixture_daemon->lock);
    }
    ck_assert_uint_eq(fixture_daemon->n_overdrawn, 0);
}
END_TEST

SUITE("guard-credit-life", what_lies_idle_goes_back_but_for_a_batch,
      two_idle_batches_are_kept_in_hand, bytes_on_their_way_back_are_no_reason_to_refuse,
      the_guards_thread_takes_no_signals, without_a_client_library_everything_is_refused,
      a_recall_is_answered_with_all_that_is_not_needed, the_program_is_told_when_its_lease_ends,
      what_the_daemon_does_not_take_back_is_still_in_hand,
      charges_that_are_not_used_are_settled_before_the_daemon_is_asked,
      what_is_reserved_is_no_new_charge_when_it_is_used,
      a_reservation_that_is_refused_reserves_nothing, a_reservation_waits_as_long_as_its_caller,
      a_daemon_that_is_away_is_asked_again_without_the_lock,
      the_view_is_of_all_processes_without_what_lies_idle_here,
      a_silent_daemon_is_not_asked_for_the_view_again_at_once,
      a_forked_child_begins_with_nothing_and_attaches_itself,
      a_process_cloned_behind_the_guards_back_gets_nothing,
      threads_never_use_more_than_is_held_and_lose_nothing,
      the_daemon_knows_of_every_page_at_every_step)
