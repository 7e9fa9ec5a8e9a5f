/* SPDX-License-Identifier: Apache-2.0 */
/* The guard attaches to a lease, and takes bytes of it: what it asks of the daemon, and when. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "guard/credit.h"
#include "tests/support/guard/credit_fixture.h"

START_TEST(sizes_are_the_drivers) {
    static const struct {
        uint64_t bytes, takes;
    } cases[] = {
        { 0, 0 },
        { 1, 512 },
        { 512, 512 },
        { 513, 1024 },
        { MIB - 1, MIB },
        { MIB, 2 * MIB },
        { MIB + 1, 2 * MIB },
        { 2 * MIB, 2 * MIB },
        { 2 * MIB + 1, 4 * MIB },
        { UINT64_MAX - 2 * MIB, UINT64_MAX - 2 * MIB + 1 },
        { UINT64_MAX - 2 * MIB + 1, UINT64_MAX },
        { UINT64_MAX, UINT64_MAX },
    };

    for (size_t i = 0; i < ELEMENTSOF(cases); i++)
        ck_assert_uint_eq(credit_size(cases[i].bytes), cases[i].takes);
}
END_TEST

START_TEST(time_goes_by_milliseconds) {
    struct timespec now;
    uint64_t before = credit_now_msec(), msec;

    clock_gettime(CLOCK_MONOTONIC, &now);
    msec = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    ck_assert_uint_le(before, msec);
    ck_assert_uint_ge(credit_now_msec(), msec);
}
END_TEST

static void try_without_lease(unsigned which) {
    pid_t pid;

    fixture_begin();
    setenv("ALLOT_LEASE", which ? "" : "x", 1);
    if (!which)
        unsetenv("ALLOT_LEASE");
    ck_assert(!credit_is_off());
    ck_assert_int_eq(fixture_share_of(0x11), CREDIT_NONE);
    ck_assert(credit_is_off());
    ck_assert_int_eq(credit_n_shares(), 0);
    ck_assert_uint_eq(fixture_daemon->n_attached, 0);
    ck_assert_uint_eq(fixture_n_notes[NOTE_DAEMON], 0);
    pid = fork();
    if (pid == 0)
        _exit(fixture_share_of(0x11) == CREDIT_NONE && fixture_daemon->n_attached == 0 ? 0 : 1);
    ck_assert_int_eq(fixture_ends_with(pid), 0);
}

START_TEST(without_a_lease_no_daemon_is_asked) {
    fixture_each(2, try_without_lease);
}
END_TEST

START_TEST(a_lease_that_cannot_be_used_refuses_everything_once) {
    fixture_begin();
    fixture_daemon->attach_result = -ENOENT;
    fixture_daemon->refusal = "there is no lease 7";
    ck_assert_int_eq(fixture_share_of(0x11), CREDIT_REFUSED);
    ck_assert_int_eq(fixture_share_of(0x11), CREDIT_REFUSED);
    ck_assert(!credit_is_off());
    ck_assert_int_eq(credit_n_shares(), 0);
    ck_assert_uint_eq(fixture_daemon->n_attached, 1);
    ck_assert_uint_eq(fixture_n_notes[NOTE_DAEMON], 1);
    ck_assert_str_eq(fixture_note,
                     "lease 7 cannot be used, so no GPU memory can be allocated: there "
                     "is no lease 7");
}
END_TEST

START_TEST(it_attaches_as_a_guard_that_has_credits) {
    fixture_lease_of(GIB);
    ck_assert_uint_eq(fixture_daemon->n_attached, 1);
    ck_assert_uint_eq(fixture_daemon->attached_id, 0);
    ck_assert_ptr_null(fixture_daemon->attached_token);
    ck_assert(fixture_daemon->options.credits);
    ck_assert_uint_eq(fixture_daemon->options.tier, 3);
    ck_assert_uint_eq(fixture_daemon->options.reconnect_usec, 30 * 1000 * 1000);
    ck_assert_int_eq(fixture_daemon->options.cancel_fd, -1);
    ck_assert_int_eq(fixture_share_of(0x11), 0);
    ck_assert_int_eq(credit_n_shares(), 1);
    ck_assert_uint_eq(fixture_daemon->n_attached, 1);
}
END_TEST

START_TEST(shares_are_the_leases_in_its_order) {
    fixture_begin();
    fixture_add_share(GPU, 3 * GIB, GIB);
    fixture_add_share("no device at all", GIB, 0);
    fixture_add_share(OTHER, 5 * GIB, 2 * GIB);
    fixture_daemon->shares[2].context_bytes = 7 * MIB;
    ck_assert_int_eq(fixture_share_of(0x99), 1);
    ck_assert_int_eq(fixture_share_of(0x11), 0);
    ck_assert_int_eq(fixture_share_of(0x77), CREDIT_REFUSED);
    ck_assert_int_eq(credit_share((const uint8_t[16]){ 0 }), CREDIT_REFUSED);
    ck_assert_int_eq(credit_n_shares(), 2);
    ck_assert_str_eq(credit_uuid(0), GPU);
    ck_assert_str_eq(credit_uuid(1), OTHER);
    ck_assert_uint_eq(credit_limit(0), 3 * GIB);
    ck_assert_uint_eq(credit_limit(1), 5 * GIB);
    ck_assert_uint_eq(credit_guaranteed(0), GIB);
    ck_assert_uint_eq(credit_guaranteed(1), 2 * GIB);
    ck_assert_uint_eq(credit_context(0), CONTEXT);
    ck_assert_uint_eq(credit_context(1), 7 * MIB);
    ck_assert(credit_take(1, MIB));
    ck_assert_str_eq(fixture_daemon->growths[0].device, OTHER);
}
END_TEST

START_TEST(a_lease_of_too_many_devices_is_cut_off) {
    fixture_begin();
    for (unsigned i = 0; i < 70; i++) {
        char name[96];

        snprintf(name, sizeof(name), "GPU-%08x-2222-3333-4444-555555555555", i);
        fixture_add_share(name, GIB, 0);
    }
    ck_assert_int_eq(credit_n_shares(), CREDIT_SHARES_MAX);
    ck_assert_str_eq(credit_uuid(63), "GPU-0000003f-2222-3333-4444-555555555555");
}
END_TEST

static void try_batch(unsigned which) {
    static const struct {
        uint64_t limit_mib, batch_mib;
    } cases[] = { { 100, 8 },        { 512, 8 },   { 640, 10 },  { 1024, 16 },
                  { 1024 + 64, 16 }, { 4096, 64 }, { 8192, 64 }, { 64 * 1024, 64 } };

    fixture_lease_of(cases[which].limit_mib * MIB);
    ck_assert(credit_take(0, 1));
    ASKED(cases[which].batch_mib);
}

START_TEST(a_batch_is_a_64th_of_the_limit_within_bounds) {
    fixture_each(8, try_batch);
}
END_TEST

START_TEST(what_is_in_hand_is_taken_without_asking) {
    fixture_lease_of(24 * MIB); /* batches of 8 MiB */
    ck_assert(credit_take(0, 8 * MIB));
    ASKED(8);
    ck_assert_uint_eq(fixture_daemon->growths[0].timeout_usec, 0);
    ck_assert_uint_eq(fixture_daemon->growths[0].reconnect_usec, 30 * 1000 * 1000);
    ck_assert_int_eq(fixture_daemon->growths[0].cancel_fd, -1);
    ck_assert_str_eq(fixture_daemon->growths[0].device, GPU);
    ck_assert(credit_take(0, MIB));
    ASKED(8, 8);
    ck_assert(credit_take(0, 7 * MIB)); /* all that is in hand */
    ASKED(8, 8);
    ck_assert(credit_take(0, 512)); /* the last batch fits exactly */
    ASKED(8, 8, 8);
    ck_assert(credit_take(0, 8 * MIB - 512));
    fixture_daemon->room_bytes = 24 * MIB;
    ck_assert(!credit_take(0, 512));
    ASKED(8, 8, 8, 2); /* a batch would pass the limit */
    credit_give(0, 512);
    ck_assert(credit_take(0, 512));
    ASKED(8, 8, 8, 2);
}
END_TEST

START_TEST(more_than_a_batch_is_asked_for_exactly) {
    fixture_lease_of(1024 * MIB); /* batches of 16 MiB */
    ck_assert(credit_take(0, 33 * MIB));
    ASKED(34);
    ck_assert(credit_take(0, MIB));
    ck_assert(credit_take(0, 16 * MIB));
    ASKED(34, 16);
    ck_assert(credit_take(0, 14 * MIB));
    ASKED(34, 16, 16);
    ck_assert_uint_eq(fixture_daemon->held_bytes[0], 66 * MIB);
}
END_TEST

START_TEST(what_no_batch_is_left_for_is_asked_for_exactly) {
    fixture_lease_of(1024 * MIB);
    fixture_daemon->room_bytes = 4 * MIB;
    ck_assert(credit_take(0, 3 * MIB));
    ASKED(16, 4);
    ck_assert(credit_take(0, MIB));
    ASKED(16, 4);
    ck_assert(!credit_take(0, 512));
    ASKED(16, 4, 16, 2);
    ck_assert_uint_eq(fixture_n_notes[NOTE_REFUSED], 1);
}
END_TEST

START_TEST(a_lease_without_room_for_a_batch_is_filled_by_pages) {
    fixture_lease_of(26 * MIB);
    ck_assert(credit_take(0, 20 * MIB));
    ck_assert(credit_take(0, MIB)); /* 20 + 8 would pass the limit */
    ASKED(20, 2);
}
END_TEST

START_TEST(more_than_the_limit_is_refused_without_asking) {
    fixture_lease_of(24 * MIB);
    ck_assert(!credit_take(0, 24 * MIB + 512));
    ck_assert_uint_eq(fixture_daemon->n_growths, 0);
    ck_assert_str_eq(fixture_note,
                     "24.0 MiB refused on GPU-11111111: this process uses 0 B (a context "
                     "takes 300 MiB): it would not fit even if nothing else were "
                     "allocated: the job may use 24 MiB");
    ck_assert(!credit_take(0, UINT64_MAX));
    ck_assert_uint_eq(fixture_daemon->n_growths, 0);
    ck_assert(credit_take(0, 24 * MIB));
    ASKED(24);
}
END_TEST

static void try_wait(unsigned which) {
    static const struct {
        const char *wait;
        uint64_t usec;
    } cases[] = { { "5s", 5000000 }, { "soon", 0 }, { "0", 0 } };

    fixture_begin();
    setenv("ALLOT_WAIT", cases[which].wait, 1);
    fixture_add_share(GPU, GIB, 0);
    ck_assert_int_eq(fixture_share_of(0x11), 0);
    fixture_daemon->room_bytes = 0;
    fixture_daemon->patient_bytes = GIB;
    ck_assert_int_eq(credit_take(0, 3 * MIB), cases[which].usec > 0);
    if (cases[which].usec > 0) {
        ASKED(16, 4, 4);
        ck_assert_uint_eq(fixture_daemon->growths[1].timeout_usec, 0);
        ck_assert_uint_eq(fixture_daemon->growths[2].timeout_usec, cases[which].usec);
        ck_assert_uint_eq(fixture_n_notes[NOTE_REFUSED], 0);
        fixture_daemon->room_bytes = GIB;
        ck_assert(credit_take(0, 16 * MIB)); /* one that need not wait asks once */
        ASKED(16, 4, 4, 16);
    } else {
        ASKED(16, 4);
    }
}

START_TEST(a_job_that_may_wait_waits_for_what_it_needs) {
    fixture_each(3, try_wait);
}
END_TEST

static void try_refusal(unsigned which) {
    static const struct {
        const char *device, *refusal, *brief, *says;
    } cases[] = {
        { GPU, "no memory on " GPU ": " GPU " is full", "GPU-11111111", "no memory: it is full" },
        { GPU, " on " GPU " is none", "GPU-11111111", " is none" },
        { GPU, "on " GPU, "GPU-11111111", "on it" },
        { GPU, "upon " GPU, "GPU-11111111", "upon it" },
        { GPU, "nothing of " OTHER, "GPU-11111111", "nothing of " OTHER },
        { MIG, MIG " is full", MIG, "it is full" },
    };
    char text[1024];

    fixture_begin();
    fixture_add_share(cases[which].device, GIB, 0);
    ck_assert_int_eq(fixture_share_of(which == 5 ? 0x88 : 0x11), 0);
    ck_assert(credit_take(0, 16 * MIB));
    fixture_daemon->room_bytes = 0;
    fixture_daemon->refusal = cases[which].refusal;
    ck_assert(!credit_take(0, 4 * MIB));
    snprintf(text, sizeof(text),
             "4 MiB refused on %s: this process uses 16 MiB (a context takes 300 MiB): %s",
             cases[which].brief, cases[which].says);
    ck_assert_str_eq(fixture_note, text);
}

START_TEST(a_refusal_names_the_device_once) {
    fixture_each(6, try_refusal);
}
END_TEST

START_TEST(what_is_allocated_already_is_counted_and_never_refused) {
    fixture_lease_of(1024 * MIB);
    credit_force(0, 3 * MIB);
    ASKED(4);
    credit_force(0, MIB); /* in hand */
    ASKED(4);
    ck_assert_uint_eq(fixture_n_notes[NOTE_OVER], 0);
    fixture_daemon->room_bytes = 4 * MIB;
    fixture_daemon->refusal = "nothing is free on " GPU;
    fixture_daemon->patient_bytes = 64 * MIB; /* for one that waits, and this does not */
    credit_force(0, 2 * MIB);
    ASKED(4, 2);
    ck_assert_uint_eq(fixture_n_notes[NOTE_OVER], 1);
    fixture_daemon->patient_bytes = 0;
    ck_assert_str_eq(fixture_note,
                     "the driver took more on GPU-11111111 than the job may use: nothing "
                     "is free");
    ck_assert(!credit_take(0, 512)); /* 6 MiB are used, and 4 held */
    fixture_tell(ALLOT_LEASE_RECALL, GPU);
    GIVEN(0);
    credit_give(0, 2 * MIB);
    ck_assert(!credit_take(0, 512));
    credit_give(0, 512);
    ck_assert(credit_take(0, 512));
}
END_TEST

SUITE("guard-credit", sizes_are_the_drivers, time_goes_by_milliseconds,
      without_a_lease_no_daemon_is_asked, a_lease_that_cannot_be_used_refuses_everything_once,
      it_attaches_as_a_guard_that_has_credits, shares_are_the_leases_in_its_order,
      a_lease_of_too_many_devices_is_cut_off, a_batch_is_a_64th_of_the_limit_within_bounds,
      what_is_in_hand_is_taken_without_asking, more_than_a_batch_is_asked_for_exactly,
      what_no_batch_is_left_for_is_asked_for_exactly,
      a_lease_without_room_for_a_batch_is_filled_by_pages,
      more_than_the_limit_is_refused_without_asking, a_job_that_may_wait_waits_for_what_it_needs,
      a_refusal_names_the_device_once, what_is_allocated_already_is_counted_and_never_refused)
