/* SPDX-License-Identifier: Apache-2.0 */
/* What allotd asks of its helpers, word by word, and signals that do not wait for a hand that is
 * busy. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/support/base/failing_malloc.h"
#include "tests/support/daemon/hand/helper_fixture.h"

/* ---- Calls --------------------------------------------------------------------------------------
 */

START_TEST(a_confinement_names_the_nodes_that_are_known) {
    struct hand_confine confine = { .pid = 5, .n_devices = 3, .lease = 9 };
    struct helper_fixture bench;

    helper_fixture_start(&bench, HELPER_FIXTURE_HOUR, HELPER_FIXTURE_HOUR, HELPER_FIXTURE_HOUR);
    helper_fixture_get(&bench, &bench.reader, HAND_SAMPLE);
    helper_fixture_put_device(&bench, 7);
    helper_fixture_said.device.device.is_mig = true;
    helper_fixture_said.device.device.gpu_instance = 4;
    helper_fixture_said.device.device.compute_instance = 5;
    helper_fixture_put_device(&bench, 8);
    helper_fixture_say(&bench.reader, 0, "");
    helper_fixture_get(&bench, &bench.hand, HAND_DESCRIBE);
    helper_fixture_say(&bench.hand, 0, "");
    HELPER_FIXTURE_UNTIL(&bench, bench.n_samples == 1);
    confine.devices[0].id = helper_fixture_gpu_of(8);
    confine.devices[1].id = helper_fixture_gpu_of(7);
    confine.devices[2].id = helper_fixture_gpu_of(9); /* not known */
    hand_confine(bench.it, &confine, helper_fixture_done, &bench);
    helper_fixture_get(&bench, &bench.hand, HAND_CONFINE);
    ck_assert_uint_eq(helper_fixture_got.confine.confine.lease, 9);
    ck_assert(helper_fixture_got.confine.nodes[0].has_minor &&
              helper_fixture_got.confine.nodes[0].is_mig);
    ck_assert_uint_eq(helper_fixture_got.confine.nodes[0].minor, 8);
    ck_assert_uint_eq(helper_fixture_got.confine.nodes[0].gpu_instance, 4);
    ck_assert_uint_eq(helper_fixture_got.confine.nodes[0].compute_instance, 5);
    ck_assert(helper_fixture_got.confine.nodes[1].has_minor &&
              !helper_fixture_got.confine.nodes[1].is_mig);
    ck_assert_uint_eq(helper_fixture_got.confine.nodes[1].minor, 7);
    ck_assert(!helper_fixture_got.confine.nodes[2].has_minor);
    helper_fixture_said.answer.confined.tiers = 2;
    strcpy(helper_fixture_said.answer.confined.scope, "allot-9.scope");
    helper_fixture_say(&bench.hand, 0, "");
    HELPER_FIXTURE_UNTIL(&bench, bench.n_answers == 1);
    ck_assert_uint_eq(bench.answer.confined.tiers, 2);
    ck_assert_str_eq(bench.answer.confined.scope, "allot-9.scope");
    helper_fixture_finish(&bench);
}
END_TEST

START_TEST(a_probe_is_made_on_a_whole_gpu_that_works) {
    struct helper_fixture bench;

    helper_fixture_start(&bench, HELPER_FIXTURE_HOUR, HELPER_FIXTURE_HOUR, HELPER_FIXTURE_HOUR);
    hand_probe(bench.it, helper_fixture_done, &bench); /* none is known yet */
    helper_fixture_get(&bench, &bench.hand, HAND_PROBE);
    ck_assert_uint_eq(helper_fixture_got.probe.has_gpu, 0);
    helper_fixture_said.answer.probes.tiers[5].proven = true;
    helper_fixture_said.answer.probes.tiers[2].proven = true;
    helper_fixture_say(&bench.hand, 0, "");
    HELPER_FIXTURE_UNTIL(&bench, bench.n_answers == 1);
    ck_assert(bench.answer.probes.tiers[2].proven && !bench.answer.probes.tiers[5].proven);
    ck_assert_str_eq(bench.answer.probes.tiers[5].detail,
                     "NVML does not say what processes use: there is no device");

    helper_fixture_get(&bench, &bench.reader, HAND_SAMPLE);
    helper_fixture_said.device.device.mig_enabled = true;
    helper_fixture_put_device(&bench, 1);
    helper_fixture_said.device.device.is_mig = true;
    helper_fixture_put_device(&bench, 2);
    helper_fixture_said.device.device.health = SAMPLE_LOST;
    helper_fixture_put_device(&bench, 3);
    helper_fixture_put_device(&bench, 4);
    strcpy(helper_fixture_said.answer.sampled.list_trouble, "no permission");
    helper_fixture_say(&bench.reader, 0, "");
    helper_fixture_get(&bench, &bench.hand, HAND_DESCRIBE);
    helper_fixture_say(&bench.hand, 0, "");
    HELPER_FIXTURE_UNTIL(&bench, bench.n_samples == 1);
    hand_probe(bench.it, helper_fixture_done, &bench);
    helper_fixture_get(&bench, &bench.hand, HAND_PROBE);
    ck_assert_uint_eq(helper_fixture_got.probe.has_gpu, 1);
    ck_assert(gpuid_equal(&helper_fixture_got.probe.gpu, &(struct gpuid){ .uuid = { 4 } }));
    helper_fixture_say(&bench.hand, 0, "");
    HELPER_FIXTURE_UNTIL(&bench, bench.n_answers == 2);
    ck_assert_str_eq(bench.answer.probes.tiers[5].detail,
                     "NVML does not say what processes use: no permission");

    hand_sample(bench.it);
    helper_fixture_take_sample(&bench); /* both list */
    for (int proven = 0; proven < 2; proven++) {
        hand_probe(bench.it, helper_fixture_done, &bench);
        helper_fixture_get(&bench, &bench.hand, HAND_PROBE);
        helper_fixture_said.answer.probes.tiers[5].proven = proven;
        strcpy(helper_fixture_said.answer.probes.tiers[5].detail, "as it was");
        helper_fixture_say(&bench.hand, 0, "");
        HELPER_FIXTURE_UNTIL(&bench, bench.n_answers == 3 + (unsigned)proven);
        ck_assert_int_eq(bench.answer.probes.tiers[5].proven, proven);
        ck_assert_str_eq(bench.answer.probes.tiers[5].detail,
                         proven ? "NVML lists processes of 2 devices, and a signal ended a test "
                                  "process"
                                : "as it was");
    }
    helper_fixture_finish(&bench);
}
END_TEST

START_TEST(who_is_over_is_looked_at_before_the_signal) {
    static const struct {
        int r;
        uint32_t is_listed;
        uint64_t used;
        bool is_signalled;
    } cases[] = {
        { 0, 1, 101, true }, { 0, 1, 100, false }, { 0, 0, 999, false }, { -EIO, 0, 0, false }
    };
    struct hand_signal signal = { .signal = SIGTERM, .pid = 5, .start = 6 };
    struct hand_excess excess = { .device = helper_fixture_gpu_of(2), .over_bytes = 100 };
    struct helper_fixture bench;

    helper_fixture_start(&bench, HELPER_FIXTURE_HOUR, HELPER_FIXTURE_HOUR, HELPER_FIXTURE_HOUR);
    helper_fixture_take_sample(&bench);
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        hand_signal_over(bench.it, &signal, &excess, helper_fixture_done, &bench);
        helper_fixture_get(&bench, &bench.reader, HAND_USED);
        ck_assert_int_eq(helper_fixture_got.used.pid, 5);
        ck_assert(gpuid_equal(&helper_fixture_got.used.device, &excess.device));
        helper_fixture_said.answer.used.is_listed = cases[i].is_listed;
        helper_fixture_said.answer.used.used_bytes = cases[i].used;
        helper_fixture_say(&bench.reader, cases[i].r, "a word");
        if (cases[i].is_signalled) {
            helper_fixture_get(&bench, &bench.hand, HAND_SIGNAL);
            ck_assert_uint_eq(helper_fixture_got.signal.signal.start, 6);
            helper_fixture_said.answer.signalled.n_processes = 1;
            helper_fixture_say(&bench.hand, 0, "");
        }
        HELPER_FIXTURE_UNTIL(&bench, bench.n_answers == i + 1);
        ck_assert_int_eq(bench.r, cases[i].r);
        if (cases[i].r < 0)
            continue;
        ck_assert_uint_eq(bench.answer.signalled.n_processes, cases[i].is_signalled);
        ck_assert_uint_eq(bench.answer.signalled.has_used, cases[i].is_listed);
        ck_assert_uint_eq(bench.answer.signalled.used_bytes,
                          cases[i].is_listed ? cases[i].used : 0);
    }
    helper_fixture_expect_silence(&bench, &bench.hand);
    helper_fixture_finish(&bench);
}
END_TEST

/* The only allocation of a call fails: it is said at once, and nothing is asked. */
#define NEEDS_MEMORY(call)                                                                         \
    do {                                                                                           \
        failing_malloc_at(1);                                                                      \
        ck_assert_int_eq(call, -ENOMEM);                                                           \
        ck_assert(failing_malloc_end());                                                           \
    } while (0)

START_TEST(calls_need_memory) {
    const struct hand_confine confine = { .pid = 5 };
    const struct hand_signal signal = { .signal = SIGTERM, .pid = 5 };
    const struct hand_excess excess = { .over_bytes = 100 };
    const struct hand_find find = { .lease = 7 };
    const struct gpuid gpu = helper_fixture_gpu_of(2);
    struct helper_fixture bench;

    helper_fixture_start(&bench, HELPER_FIXTURE_HOUR, HELPER_FIXTURE_HOUR, HELPER_FIXTURE_HOUR);
    helper_fixture_take_sample(&bench);
    NEEDS_MEMORY(hand_confine(bench.it, &confine, helper_fixture_done, &bench));
    NEEDS_MEMORY(hand_signal(bench.it, &signal, helper_fixture_done, &bench));
    NEEDS_MEMORY(hand_signal_over(bench.it, &signal, &excess, helper_fixture_done, &bench));
    NEEDS_MEMORY(hand_find(bench.it, &find, helper_fixture_done, &bench));
    NEEDS_MEMORY(hand_probe(bench.it, helper_fixture_done, &bench));
    NEEDS_MEMORY(hand_close_device(bench.it, &gpu, true, helper_fixture_done, &bench));
    NEEDS_MEMORY(hand_lock(bench.it, true, helper_fixture_done, &bench));
    helper_fixture_expect_silence(&bench, &bench.hand);
    helper_fixture_expect_silence(&bench, &bench.reader);
    ck_assert_uint_eq(bench.n_answers, 0);

    /* What was used is known, and there is no memory to act on it. */
    hand_signal_over(bench.it, &signal, &excess, helper_fixture_done, &bench);
    helper_fixture_get(&bench, &bench.reader, HAND_USED);
    helper_fixture_said.answer.used.is_listed = 1;
    helper_fixture_said.answer.used.used_bytes = 200;
    helper_fixture_say(&bench.reader, 0, "");
    failing_malloc_at(1);
    HELPER_FIXTURE_UNTIL(&bench, bench.n_answers == 1);
    ck_assert(failing_malloc_end());
    ck_assert_int_eq(bench.r, -ENOMEM);
    ck_assert(!bench.has_answer);
    ck_assert_str_eq(bench.err.text, "out of memory");
    helper_fixture_finish(&bench);
}
END_TEST

/* ---- Signals that do not wait
 * -------------------------------------------------------------------- */

/* The hand is busy with something, and signals go another way. */
static void start_busy(struct helper_fixture *bench, uint64_t timeout_usec) {
    helper_fixture_start(bench, timeout_usec, HELPER_FIXTURE_HOUR, HELPER_FIXTURE_HOUR);
    helper_fixture_take_sample(bench);
    hand_lock(bench->it, true, helper_fixture_done, bench);
    helper_fixture_get(bench, &bench->hand, HAND_LOCK);
}

START_TEST(signals_go_round_a_hand_that_is_busy) {
    struct hand_signal signal = { .signal = SIGTERM, .pid = 5 };
    struct hand_excess excess = { .device = helper_fixture_gpu_of(2), .over_bytes = 100 };
    struct helper_fixture bench;

    start_busy(&bench, HELPER_FIXTURE_HOUR);
    hand_find(bench.it, &(struct hand_find){ 0 }, helper_fixture_done, &bench); /* this one waits */
    hand_signal(bench.it, &signal, helper_fixture_done, &bench);
    signal.pid = 6;
    hand_signal(bench.it, &signal, helper_fixture_done, &bench);
    helper_fixture_accept_at(&bench, &bench.fallback, bench.hand.listener);
    helper_fixture_greet(&bench, &bench.fallback);
    for (pid_t pid = 5; pid <= 6; pid++) {
        helper_fixture_get(&bench, &bench.fallback, HAND_SIGNAL);
        ck_assert_int_eq(helper_fixture_got.signal.signal.pid, pid);
        helper_fixture_said.answer.signalled.n_processes = (uint32_t)pid;
        helper_fixture_say(&bench.fallback, pid == 5 ? 0 : -EPERM, pid == 5 ? "" : "not yours");
        HELPER_FIXTURE_UNTIL(&bench, bench.n_answers == (unsigned)pid - 4);
        ck_assert_int_eq(bench.r, pid == 5 ? 0 : -EPERM);
        if (pid == 5)
            ck_assert_uint_eq(bench.answer.signalled.n_processes, 5);
        else
            ck_assert_str_eq(bench.err.text, "not yours");
    }
    /* Nothing more to signal: that hand goes, and another one comes for the next. */
    HELPER_FIXTURE_UNTIL(
        &bench, recv(bench.fallback.fd, &helper_fixture_got, sizeof(helper_fixture_got), 0) == 0);
    hand_signal(bench.it, &signal, helper_fixture_done, &bench);
    helper_fixture_accept_at(&bench, &bench.fallback, bench.hand.listener);
    helper_fixture_greet(&bench, &bench.fallback);
    helper_fixture_get(&bench, &bench.fallback, HAND_SIGNAL);
    helper_fixture_say(&bench.fallback, 0, "");
    HELPER_FIXTURE_UNTIL(&bench, bench.n_answers == 3);

    /* One that was looked at before waits for its hand. */
    hand_signal_over(bench.it, &signal, &excess, helper_fixture_done, &bench);
    helper_fixture_get(&bench, &bench.reader, HAND_USED);
    helper_fixture_said.answer.used.is_listed = 1;
    helper_fixture_said.answer.used.used_bytes = 200;
    helper_fixture_say(&bench.reader, 0, "");
    signal.pid = 9;
    hand_signal(bench.it, &signal, helper_fixture_done, &bench);
    helper_fixture_accept_at(&bench, &bench.fallback, bench.hand.listener);
    helper_fixture_greet(&bench, &bench.fallback);
    helper_fixture_get(&bench, &bench.fallback, HAND_SIGNAL);
    ck_assert_int_eq(helper_fixture_got.signal.signal.pid, 9);
    ck_assert_uint_eq(hand_n_replaced(bench.it), 0);
    helper_fixture_finish(&bench); /* drops what is open */
    ck_assert_uint_eq(bench.n_answers, 3);
}
END_TEST

START_TEST(a_second_hand_that_is_of_no_use_is_said) {
    struct hand_signal signal = { .signal = SIGTERM, .pid = 5 };
    struct helper_fixture bench;

    start_busy(&bench, HELPER_FIXTURE_HOUR);
    for (unsigned round = 0; round < 5; round++) {
        hand_signal(bench.it, &signal, helper_fixture_done, &bench);
        hand_signal(bench.it, &signal, helper_fixture_done, &bench);
        helper_fixture_accept_at(&bench, &bench.fallback, bench.hand.listener);
        if (round == 0) {
            helper_fixture_get(&bench, &bench.fallback, HAND_HELLO);
            helper_fixture_say(&bench.fallback, -EPROTO, "of another build");
        } else {
            helper_fixture_greet(&bench, &bench.fallback);
            helper_fixture_get(&bench, &bench.fallback, HAND_SIGNAL);
        }
        switch (round) {
        case 1:
            helper_fixture_got.head.serial++;
            helper_fixture_say(&bench.fallback, 0, "");
            break;
        case 2:
            helper_fixture_put(&bench.fallback, &helper_fixture_said, HAND_EVENT);
            break;
        case 3:
            helper_fixture_said.answer.r = 1;
            helper_fixture_put(&bench.fallback, &helper_fixture_said, HAND_ANSWER);
            break;
        case 4:
            shutdown(bench.fallback.fd, SHUT_RDWR);
            break;
        }
        memset(&helper_fixture_said, 0, sizeof(helper_fixture_said));
        HELPER_FIXTURE_UNTIL(&bench, bench.n_answers == 2 * round + 2);
        ck_assert_int_eq(bench.r, round == 0 ? -EPROTO : -ECONNRESET);
        ck_assert_int_eq(bench.err.code, bench.r);
        ck_assert_str_eq(bench.err.text, round == 0
                                             ? "of another build"
                                             : "allot-hand ended before the signal was sent");
        ck_assert(!bench.has_answer);
    }
    helper_fixture_finish(&bench);
}
END_TEST

START_TEST(a_second_hand_has_its_time_too) {
    struct hand_signal signal = { .signal = SIGTERM, .pid = 5 };
    struct helper_fixture bench;
    uint64_t before;

    start_busy(&bench, 100000); /* a lock has ten times that */
    before = clock_usec(CLOCK_BOOTTIME);
    hand_signal(bench.it, &signal, helper_fixture_done, &bench);
    helper_fixture_accept_at(&bench, &bench.fallback, bench.hand.listener);
    helper_fixture_greet(&bench, &bench.fallback);
    helper_fixture_get(&bench, &bench.fallback, HAND_SIGNAL);
    HELPER_FIXTURE_UNTIL(&bench, bench.n_answers == 1);
    ck_assert_uint_ge(clock_usec(CLOCK_BOOTTIME) - before, 100000);
    ck_assert_int_eq(bench.r, -ETIMEDOUT);
    ck_assert_ptr_nonnull(strstr(bench.err.text, "does not answer"));
    helper_fixture_finish(&bench);
}
END_TEST

SUITE_TIMEOUT("hand-calls", 120, calls_need_memory, a_confinement_names_the_nodes_that_are_known,
              a_probe_is_made_on_a_whole_gpu_that_works, who_is_over_is_looked_at_before_the_signal,
              signals_go_round_a_hand_that_is_busy, a_second_hand_that_is_of_no_use_is_said,
              a_second_hand_has_its_time_too)
