/* SPDX-License-Identifier: Apache-2.0 */
/* Samples, and helpers that are lost: allotd's side, word by word. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/support/daemon/hand/helper_fixture.h"

/* ---- Samples -----------------------------------------------------------------------------------
 */

START_TEST(a_sample_is_what_both_say) {
    const uint64_t ticks = clock_usec(CLOCK_BOOTTIME) / (1000000 / (uint64_t)sysconf(_SC_CLK_TCK));
    static const pid_t pids[] = { 11, 12, 13, 14 };
    struct helper_fixture bench;

    helper_fixture_start(&bench, HELPER_FIXTURE_HOUR, HELPER_FIXTURE_HOUR, HELPER_FIXTURE_HOUR);
    ck_assert_uint_eq(hand_stale_since(bench.it), 0);
    helper_fixture_get(&bench, &bench.reader, HAND_SAMPLE);
    helper_fixture_said.device.device.runs_mps = true; /* not for the reader to say */
    helper_fixture_put_device(&bench, 1);
    helper_fixture_put_device(&bench, 2);
    for (size_t i = 0; i < ELEMENTSOF(pids); i++) {
        helper_fixture_said.process.process = (struct sample_process){
            .pid = pids[i],
            .device = helper_fixture_gpu_of(2),
            .start = 99, /* neither this nor what follows is the reader's to say */
            .has_uid = true,
            .uid = 7,
            .kinds = SAMPLE_COMPUTE | SAMPLE_DISPLAY,
            .has_used = true,
            .used_bytes = 4096,
            .has_busy = true,
            .busy = 50,
            .command = "reader",
        };
        helper_fixture_put(&bench.reader, &helper_fixture_said, HAND_PROCESS);
        memset(&helper_fixture_said, 0, sizeof(helper_fixture_said));
    }
    helper_fixture_said.answer.sampled = (struct hand_sampled){ .taken_usec = 1234,
                                                                .is_simulated = 1,
                                                                .cuda_version = 12020,
                                                                .n_listed = 2,
                                                                .driver_version = "550.1" };
    helper_fixture_say(&bench.reader, 0, "");
    helper_fixture_get(&bench, &bench.hand, HAND_DESCRIBE);
    ck_assert_uint_eq(helper_fixture_got.describe.n, 4);
    for (size_t i = 0; i < ELEMENTSOF(pids); i++) {
        ck_assert_int_eq(helper_fixture_got.describe.pids[i], pids[i]);
        helper_fixture_said.process.process = (struct sample_process){
            .pid = i == 1 ? 77 : pids[i], /* another process */
            .start = i == 2   ? ticks + 1000000
                     : i == 3 ? 0
                              : ticks - 1, /* younger, or gone */
            .namespace_pid = 5,
            .has_uid = true,
            .uid = 1000,
            .kinds = SAMPLE_MPS_SERVER | SAMPLE_GRAPHICS,
            .used_bytes = 1,
            .owner = CGROUP_OWNER_SLURM,
            .command = "train --fast",
            .name = "train",
            .container = "box",
            .cgroup = "/a",
        };
        helper_fixture_put(&bench.hand, &helper_fixture_said, HAND_PROCESS);
        memset(&helper_fixture_said, 0, sizeof(helper_fixture_said));
    }
    ck_assert_uint_eq(bench.n_samples, 0);
    helper_fixture_put(&bench.hand, &helper_fixture_said,
                       HAND_PROCESS); /* one more than was asked for */
    helper_fixture_say(&bench.hand, 0, "");
    HELPER_FIXTURE_UNTIL(&bench, bench.n_samples == 1);
    ck_assert_uint_eq(bench.last.taken_usec, 1234);
    ck_assert(bench.last.is_simulated && !bench.last.cut);
    ck_assert_uint_eq(bench.last.cuda_version, 12020);
    ck_assert_str_eq(bench.last.driver_version, "550.1");
    ck_assert_uint_eq(bench.last.n_devices, 2);
    ck_assert(!bench.devices[0].runs_mps && bench.devices[1].runs_mps);
    ck_assert_uint_eq(bench.last.n_processes, 4);
    for (size_t i = 0; i < 4; i++) {
        const struct sample_process *process = &bench.processes[i];

        ck_assert_int_eq(process->pid, pids[i]);
        ck_assert(process->has_used && process->has_busy);
        ck_assert_uint_eq(process->used_bytes, 4096);
        ck_assert_uint_eq(process->busy, 50);
        ck_assert(gpuid_equal(&process->device, &(struct gpuid){ .uuid = { 2 } }));
        ck_assert_uint_eq(process->kinds,
                          i == 0 ? SAMPLE_COMPUTE | SAMPLE_MPS_SERVER : SAMPLE_COMPUTE);
        ck_assert_uint_eq(process->start, i == 0 ? ticks - 1 : 0);
        ck_assert_uint_eq(process->has_uid, i == 0);
        ck_assert_uint_eq(process->uid, i == 0 ? 1000 : 0);
        ck_assert_int_eq(process->namespace_pid, i == 0 ? 5 : 0);
        ck_assert_int_eq(process->owner, i == 0 ? CGROUP_OWNER_SLURM : CGROUP_OWNER_NONE);
        ck_assert_str_eq(process->command, i == 0 ? "train --fast" : "");
        ck_assert_str_eq(process->name, i == 0 ? "train" : "");
        ck_assert_str_eq(process->container, i == 0 ? "box" : "");
        ck_assert_str_eq(process->cgroup, i == 0 ? "/a" : "");
    }
    ck_assert_uint_eq(bench.n_stale, 0);
    helper_fixture_expect_silence(&bench, &bench.reader); /* the period is an hour */
    helper_fixture_finish(&bench);
}
END_TEST

START_TEST(many_processes_are_described_in_turns) {
    struct helper_fixture bench;
    pid_t next = 1;

    helper_fixture_start(&bench, HELPER_FIXTURE_HOUR, HELPER_FIXTURE_HOUR, HELPER_FIXTURE_HOUR);
    helper_fixture_get(&bench, &bench.reader, HAND_SAMPLE);
    for (pid_t pid = 1; pid <= 2 * HAND_DESCRIBE_MAX + 3; pid++) {
        helper_fixture_said.process.process.pid = pid;
        helper_fixture_put(&bench.reader, &helper_fixture_said, HAND_PROCESS);
        memset(&helper_fixture_said, 0, sizeof(helper_fixture_said));
        /* More than are read in one turn of the loop, and no more than the socket holds. */
        while (pid % 70 == 0 && sd_event_run(bench.event, 0) > 0)
            ;
    }
    helper_fixture_said.answer.sampled.taken_usec = 1;
    helper_fixture_said.answer.sampled.cut = 1;
    helper_fixture_say(&bench.reader, 0, "");
    for (int round = 0; round < 3; round++) {
        helper_fixture_get(&bench, &bench.hand, HAND_DESCRIBE);
        ck_assert_uint_eq(helper_fixture_got.describe.n, round < 2 ? HAND_DESCRIBE_MAX : 3);
        for (uint32_t i = 0; i < helper_fixture_got.describe.n; i++)
            ck_assert_int_eq(helper_fixture_got.describe.pids[i], next++);
        for (uint32_t i = 0; i < (round == 1 ? 1u : helper_fixture_got.describe.n);
             i++) { /* it leaves some out */
            helper_fixture_said.process.process.pid = helper_fixture_got.describe.pids[i];
            helper_fixture_said.process.process.start = 1;
            helper_fixture_put(&bench.hand, &helper_fixture_said, HAND_PROCESS);
            memset(&helper_fixture_said, 0, sizeof(helper_fixture_said));
            while (i % 20 == 0 && sd_event_run(bench.event, 0) > 0)
                ;
        }
        ck_assert_uint_eq(bench.n_samples, 0);
        helper_fixture_say(&bench.hand, 0, "");
    }
    HELPER_FIXTURE_UNTIL(&bench, bench.n_samples == 1);
    ck_assert(bench.last.cut);
    ck_assert_uint_eq(bench.last.n_processes, 2 * HAND_DESCRIBE_MAX + 3);
    for (size_t i = 0; i < bench.last.n_processes; i++)
        ck_assert_uint_eq(bench.processes[i].start,
                          i <= HAND_DESCRIBE_MAX || i >= 2 * (size_t)HAND_DESCRIBE_MAX);
    helper_fixture_finish(&bench);
}
END_TEST

START_TEST(samples_come_on_time_on_events_and_on_wishes) {
    struct helper_fixture bench;

    helper_fixture_start(&bench, HELPER_FIXTURE_HOUR, HELPER_FIXTURE_HOUR, HELPER_FIXTURE_HOUR);
    helper_fixture_take_sample(&bench);
    hand_sample(bench.it);
    hand_sample(bench.it); /* one more while one is out */
    helper_fixture_take_sample(&bench);
    helper_fixture_said.event.event = (struct sample_event){ .kind = SAMPLE_EVENT_XID,
                                                             .device = helper_fixture_gpu_of(2),
                                                             .data = 31 };
    helper_fixture_put(&bench.reader, &helper_fixture_said, HAND_EVENT);
    memset(&helper_fixture_said, 0, sizeof(helper_fixture_said));
    HELPER_FIXTURE_UNTIL(&bench, bench.n_events == 1);
    ck_assert_uint_eq(bench.happened.data, 31);
    helper_fixture_take_sample(&bench);
    if (bench.n_samples == 3) { /* the second wish */
        hand_sample(bench.it);
        helper_fixture_take_sample(&bench);
    }
    hand_set_period(bench.it, 1000, HELPER_FIXTURE_HOUR);
    for (int i = 0; i < 3; i++)
        helper_fixture_take_sample(&bench);
    ck_assert_uint_eq(bench.n_stale, 0);
    ck_assert_uint_eq(bench.n_events, 1);
    helper_fixture_finish(&bench);
}
END_TEST

START_TEST(readings_are_stale_when_one_is_late_and_when_one_fails) {
    struct helper_fixture bench;

    helper_fixture_start(&bench, HELPER_FIXTURE_HOUR, HELPER_FIXTURE_HOUR, 20000);
    HELPER_FIXTURE_UNTIL(&bench, bench.n_stale == 1);
    ck_assert_ptr_nonnull(
        strstr(bench.stale_reason, "the driver does not answer: a reading is overdue by 20"));
    ck_assert_uint_eq(bench.stale_since, 0);
    ck_assert_uint_eq(hand_stale_since(bench.it), 1);
    helper_fixture_get(&bench, &bench.reader, HAND_SAMPLE);
    helper_fixture_say(&bench.reader, -EIO,
                       "the driver is in pieces"); /* more than that it is late */
    HELPER_FIXTURE_UNTIL(&bench, bench.n_stale == 2);
    ck_assert_str_eq(bench.stale_reason, "the driver is in pieces");
    hand_sample(bench.it);
    helper_fixture_get(&bench, &bench.reader, HAND_SAMPLE);
    helper_fixture_say(&bench.reader, -EIO, "still"); /* told once */
    hand_set_period(bench.it, HELPER_FIXTURE_HOUR, HELPER_FIXTURE_HOUR);
    hand_sample(bench.it);
    helper_fixture_take_sample(&bench);
    ck_assert_uint_eq(bench.n_stale, 2);
    ck_assert_uint_eq(hand_stale_since(bench.it), 0);

    hand_set_period(bench.it, 10000, 20000); /* now it is the hand that is late */
    helper_fixture_get(&bench, &bench.reader, HAND_SAMPLE);
    helper_fixture_say(&bench.reader, 0, "");
    helper_fixture_get(&bench, &bench.hand, HAND_DESCRIBE);
    HELPER_FIXTURE_UNTIL(&bench, bench.n_stale == 3);
    ck_assert_ptr_nonnull(
        strstr(bench.stale_reason, "allot-hand does not answer: a reading is overdue"));
    ck_assert_uint_eq(bench.stale_since, 1000);
    ck_assert_uint_eq(hand_stale_since(bench.it), 1000);
    helper_fixture_say(&bench.hand, -EIO, "no /proc");
    HELPER_FIXTURE_UNTIL(&bench, bench.n_stale == 4);
    ck_assert_str_eq(bench.stale_reason, "no /proc");
    helper_fixture_take_sample(&bench); /* another one begins by itself */
    ck_assert_uint_eq(hand_stale_since(bench.it), 0);
    helper_fixture_finish(&bench);
}
END_TEST

/* ---- Helpers that are lost ----------------------------------------------------------------------
 */

START_TEST(a_successor_is_told_what_is_known) {
    struct gpuid gpu = helper_fixture_gpu_of(2);
    struct helper_fixture bench;

    helper_fixture_start(&bench, HELPER_FIXTURE_HOUR, HELPER_FIXTURE_HOUR, HELPER_FIXTURE_HOUR);
    helper_fixture_take_sample(&bench);
    for (int round = 0; round < 3; round++) {
        hand_close_device(bench.it, &gpu, round != 2, helper_fixture_done, &bench);
        helper_fixture_get(&bench, &bench.reader, HAND_CLOSE);
        ck_assert_uint_eq(helper_fixture_got.close.closed, round != 2);
        ck_assert(gpuid_equal(&helper_fixture_got.close.gpu, &gpu));
        helper_fixture_say(&bench.reader, 0, "");
        helper_fixture_take_sample(&bench); /* events are to be listened to anew */
        ck_assert_uint_eq(bench.n_answers, (unsigned)round + 1);
        ck_assert_int_eq(bench.r, 0);
        close(bench.reader.fd);
        bench.reader.fd = -1;
        helper_fixture_accept_at(&bench, &bench.reader, bench.reader.listener);
        ck_assert_uint_eq(hand_n_readers_replaced(bench.it), (unsigned)round + 1);
        ck_assert_uint_eq(hand_n_replaced(bench.it), 0);
        ck_assert_str_eq(bench.stale_reason, "allot-reader ended and is replaced");
        helper_fixture_greet(&bench, &bench.reader);
        for (uint8_t i = 1; i <= 2; i++) {
            helper_fixture_get(&bench, &bench.reader, HAND_KNOWN);
            ck_assert(gpuid_equal(&helper_fixture_got.device.device.id,
                                  &(struct gpuid){ .uuid = { i } }));
            helper_fixture_say(&bench.reader, 0, "");
        }
        if (round != 2) {
            helper_fixture_get(&bench, &bench.reader, HAND_CLOSE);
            ck_assert_uint_eq(helper_fixture_got.close.closed, 1);
            ck_assert(gpuid_equal(&helper_fixture_got.close.gpu, &gpu));
            helper_fixture_say(&bench.reader, 0, "");
        }
        helper_fixture_take_sample(&bench);
    }
    /* What was refused is not told to anyone. */
    hand_close_device(bench.it, &gpu, true, helper_fixture_done, &bench);
    helper_fixture_get(&bench, &bench.reader, HAND_CLOSE);
    helper_fixture_say(&bench.reader, -ENOENT, "no such GPU");
    HELPER_FIXTURE_UNTIL(&bench, bench.n_answers == 4);
    ck_assert_int_eq(bench.r, -ENOENT);
    ck_assert_str_eq(bench.err.text, "no such GPU");
    ck_assert_int_eq(bench.err.code, -ENOENT);
    helper_fixture_expect_silence(&bench, &bench.reader);
    helper_fixture_finish(&bench);
}
END_TEST

START_TEST(a_hand_that_ends_fails_what_was_asked_and_the_rest_goes_to_the_next) {
    struct hand_find find = { .lease = 7, .uid = 8 };
    struct helper_fixture bench;

    helper_fixture_start(&bench, HELPER_FIXTURE_HOUR, HELPER_FIXTURE_HOUR, HELPER_FIXTURE_HOUR);
    helper_fixture_take_sample(&bench);
    ck_assert_int_eq(hand_find(bench.it, &find, helper_fixture_done, &bench), 0);
    ck_assert_int_eq(hand_lock(bench.it, true, helper_fixture_done, &bench), 0);
    hand_sample(bench.it); /* whose description waits for the hand, and is dropped with it */
    helper_fixture_get(&bench, &bench.hand, HAND_FIND);
    ck_assert_uint_eq(helper_fixture_got.find.find.lease, 7);
    helper_fixture_get(&bench, &bench.reader, HAND_SAMPLE);
    helper_fixture_say(&bench.reader, 0, "");
    helper_fixture_expect_silence(&bench, &bench.hand);
    ck_assert_uint_eq(bench.n_answers, 0);
    close(bench.hand.fd);
    bench.hand.fd = -1;
    HELPER_FIXTURE_UNTIL(&bench, bench.n_answers == 1);
    ck_assert_int_eq(bench.r, -ECONNRESET);
    ck_assert(!bench.has_answer);
    ck_assert_str_eq(bench.err.text, "allot-hand ended and is replaced");
    ck_assert_str_eq(bench.stale_reason, "allot-hand ended and is replaced");
    ck_assert_uint_eq(hand_n_replaced(bench.it), 1);
    helper_fixture_accept_at(&bench, &bench.hand, bench.hand.listener);
    helper_fixture_greet(&bench, &bench.hand);
    helper_fixture_get(&bench, &bench.hand, HAND_LOCK);
    ck_assert_uint_eq(helper_fixture_got.lock.locked, 1);
    helper_fixture_say(&bench.hand, 0, "");
    helper_fixture_take_sample(&bench);
    ck_assert_uint_eq(bench.n_answers, 2);
    ck_assert_int_eq(bench.r, 0);
    ck_assert(bench.has_answer);
    helper_fixture_finish(&bench);
}
END_TEST

START_TEST(a_helper_that_talks_nonsense_is_replaced) {
    struct helper_fixture bench;

    helper_fixture_start(&bench, HELPER_FIXTURE_HOUR, HELPER_FIXTURE_HOUR, HELPER_FIXTURE_HOUR);
    helper_fixture_take_sample(&bench);
    for (int round = 0; round < 4; round++) {
        hand_lock(bench.it, false, helper_fixture_done, &bench);
        helper_fixture_get(&bench, &bench.hand, HAND_LOCK);
        switch (round) {
        case 0: /* of another question */
            helper_fixture_got.head.serial++;
            helper_fixture_say(&bench.hand, 0, "");
            break;
        case 1: /* for the reader to say */
            helper_fixture_put(&bench.hand, &helper_fixture_said, HAND_EVENT);
            break;
        case 2: /* cut off */
            helper_fixture_said.head.kind = HAND_ANSWER;
            helper_fixture_said.head.serial = helper_fixture_got.head.serial;
            ck_assert_int_gt(
                send(bench.hand.fd, &helper_fixture_said, hand_size(HAND_ANSWER) - 1, 0), 0);
            break;
        case 3: /* too much of it */
            helper_fixture_said.head.kind = HAND_ANSWER;
            helper_fixture_said.head.serial = helper_fixture_got.head.serial;
            ck_assert_int_gt(
                send(bench.hand.fd, &helper_fixture_said, sizeof(helper_fixture_said), 0), 0);
            _Static_assert(sizeof(helper_fixture_said) > sizeof(helper_fixture_said.answer),
                           "more than an answer");
            break;
        }
        memset(&helper_fixture_said, 0, sizeof(helper_fixture_said));
        HELPER_FIXTURE_UNTIL(&bench, bench.n_answers == (unsigned)round + 1);
        ck_assert_int_eq(bench.r, -ECONNRESET);
        ck_assert_str_eq(bench.err.text, "allot-hand sent an answer that belongs to no request");
        helper_fixture_accept_at(&bench, &bench.hand, bench.hand.listener);
        helper_fixture_greet(&bench, &bench.hand);
    }
    ck_assert_uint_eq(hand_n_replaced(bench.it), 4);
    ck_assert_uint_eq(hand_n_readers_replaced(bench.it), 0);
    helper_fixture_finish(&bench);
}
END_TEST

START_TEST(a_helper_of_another_build_is_given_up) {
    struct helper_fixture bench;

    helper_fixture_start(&bench, HELPER_FIXTURE_HOUR, HELPER_FIXTURE_HOUR, HELPER_FIXTURE_HOUR);
    helper_fixture_take_sample(&bench);
    hand_lock(bench.it, false, helper_fixture_done, &bench);
    /* It ends before it has read that. */
    close(bench.hand.fd);
    bench.hand.fd = -1;
    for (unsigned round = 1; round <= 3; round++) {
        helper_fixture_accept_at(&bench, &bench.hand, bench.hand.listener);
        helper_fixture_get(&bench, &bench.hand, HAND_HELLO);
        if (round == 3)
            break;
        helper_fixture_say(&bench.hand, -EPROTO, "of another build");
        HELPER_FIXTURE_UNTIL(&bench, hand_n_replaced(bench.it) == round + 1);
    }
    ck_assert_str_eq(bench.stale_reason, "allot-hand ended and is replaced"); /* told once */
    helper_fixture_say(&bench.hand, 0, "");
    hand_sample(bench.it);
    helper_fixture_take_sample(&bench);
    ck_assert_uint_eq(bench.n_answers, 1);
    helper_fixture_finish(&bench);
}
END_TEST

/* Else a helper that ends as soon as it works would be started as fast as the machine can. */
START_TEST(only_an_answer_makes_the_next_attempt_come_at_once) {
    struct helper_fixture bench;
    uint64_t before, took;

    helper_fixture_start(&bench, HELPER_FIXTURE_HOUR, HELPER_FIXTURE_HOUR, HELPER_FIXTURE_HOUR);
    helper_fixture_take_sample(&bench);
    before = clock_usec(CLOCK_BOOTTIME);
    for (unsigned round = 1; round <= 4; round++) { /* at once, after 100, 200 and 400 ms */
        close(bench.hand.fd);
        bench.hand.fd = -1;
        helper_fixture_accept_at(&bench, &bench.hand, bench.hand.listener);
        helper_fixture_greet(&bench, &bench.hand);
        while (sd_event_run(bench.event, 0) > 0)
            ;
        ck_assert_uint_eq(hand_n_replaced(bench.it), round);
    }
    took = clock_usec(CLOCK_BOOTTIME) - before;
    ck_assert_uint_ge(took, 600000);
    helper_fixture_finish(&bench);
}
END_TEST

START_TEST(what_is_asked_of_a_helper_that_is_gone_fails) {
    struct helper_fixture bench;

    helper_fixture_start(&bench, HELPER_FIXTURE_HOUR, HELPER_FIXTURE_HOUR, HELPER_FIXTURE_HOUR);
    helper_fixture_take_sample(&bench);
    close(bench.hand.fd); /* allotd does not know it yet */
    bench.hand.fd = -1;
    ck_assert_int_eq(hand_lock(bench.it, true, helper_fixture_done, &bench), 0);
    ck_assert_uint_eq(bench.n_answers, 0);
    HELPER_FIXTURE_UNTIL(&bench, bench.n_answers == 1);
    ck_assert_int_eq(bench.r, -ECONNRESET);
    ck_assert_str_eq(bench.err.text, "allot-hand ended and is replaced");
    helper_fixture_finish(&bench);
}
END_TEST

START_TEST(a_helper_has_its_time_and_systemd_has_more) {
    struct hand_confine confine = { .pid = 5, .n_devices = 1 };
    static const unsigned times[] = { 1, 3, 3, 10 };
    struct helper_fixture bench;

    helper_fixture_start(&bench, 200000, HELPER_FIXTURE_HOUR, HELPER_FIXTURE_HOUR);
    helper_fixture_take_sample(&bench);
    for (unsigned round = 0; round < ELEMENTSOF(times); round++) {
        uint64_t before = clock_usec(CLOCK_BOOTTIME), took;
        char text[128];

        switch (round) {
        case 0:
            hand_find(bench.it, &(struct hand_find){ 0 }, helper_fixture_done, &bench);
            break;
        case 1:
            hand_confine(bench.it, &confine, helper_fixture_done, &bench);
            break;
        case 2:
            hand_probe(bench.it, helper_fixture_done, &bench);
            break;
        case 3:
            hand_lock(bench.it, true, helper_fixture_done, &bench);
            break;
        }
        HELPER_FIXTURE_UNTIL(&bench, bench.n_answers == round + 1);
        took = clock_usec(CLOCK_BOOTTIME) - before;
        ck_assert_uint_ge(took, 200000 * times[round] - 50000);
        ck_assert_int_eq(bench.r, -ETIMEDOUT);
        snprintf(text, sizeof(text), "allot-hand was stuck for %u s and is replaced",
                 times[round] / 5);
        ck_assert_str_eq(bench.err.text, text);
        helper_fixture_accept_at(&bench, &bench.hand, bench.hand.listener);
        helper_fixture_greet(&bench, &bench.hand);
    }
    ck_assert_uint_eq(hand_n_replaced(bench.it), 4);
    hand_sample(bench.it);
    helper_fixture_get(&bench, &bench.reader, HAND_SAMPLE);
    HELPER_FIXTURE_UNTIL(&bench, hand_n_readers_replaced(bench.it) == 1);
    ck_assert_uint_eq(bench.n_stale, 1); /* that of the hand */
    helper_fixture_finish(&bench);
}
END_TEST

SUITE_TIMEOUT("hand-helper", 120, a_sample_is_what_both_say, many_processes_are_described_in_turns,
              samples_come_on_time_on_events_and_on_wishes,
              readings_are_stale_when_one_is_late_and_when_one_fails,
              a_successor_is_told_what_is_known,
              a_hand_that_ends_fails_what_was_asked_and_the_rest_goes_to_the_next,
              a_helper_that_talks_nonsense_is_replaced, a_helper_of_another_build_is_given_up,
              a_helper_has_its_time_and_systemd_has_more,
              only_an_answer_makes_the_next_attempt_come_at_once,
              what_is_asked_of_a_helper_that_is_gone_fails)
