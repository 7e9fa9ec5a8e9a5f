/* SPDX-License-Identifier: Apache-2.0 */
/* allotd's side, word by word: the test is both of its helpers, behind sockets. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <systemd/sd-event.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/hand/hand.h"
#include "daemon/hand/wire.h"
#include "tests/support/suite.h"
#include "tests/support/tmpdir.h"

#define HOUR (UINT64_C(3600) * 1000 * 1000)

struct end {
    int listener, fd; /* fd: that is spoken to */
    char path[108];
};

struct bench {
    struct end reader, hand, fallback; /* the last one comes to the hand's listener, too */
    sd_event *event;
    struct hand *it;
    unsigned n_samples, n_events, n_stale, n_answers;
    struct sample last;
    struct sample_device devices[4];
    struct sample_process processes[600];
    struct sample_event happened;
    uint64_t stale_since;
    char stale_reason[256];
    int r;
    bool has_answer;
    struct hand_answer answer;
    struct allot_error err;
};

static union hand_message message; /* the last one that came */

static void sampled(void *userdata, const struct sample *sample) {
    struct bench *bench = userdata;

    bench->n_samples++;
    bench->last = *sample;
    ck_assert_uint_le(sample->n_devices, ELEMENTSOF(bench->devices));
    ck_assert_uint_le(sample->n_processes, ELEMENTSOF(bench->processes));
    if (sample->n_devices)
        memcpy(bench->devices, sample->devices, sample->n_devices * sizeof(*sample->devices));
    if (sample->n_processes)
        memcpy(bench->processes, sample->processes,
               sample->n_processes * sizeof(*sample->processes));
}

static void happened(void *userdata, const struct sample_event *event) {
    struct bench *bench = userdata;

    bench->n_events++;
    bench->happened = *event;
}

static void stale(void *userdata, uint64_t since_usec, const char *reason) {
    struct bench *bench = userdata;

    bench->n_stale++;
    bench->stale_since = since_usec;
    snprintf(bench->stale_reason, sizeof(bench->stale_reason), "%s", reason);
}

static void done(void *userdata, int r, const struct hand_answer *answer,
                 const struct allot_error *err) {
    struct bench *bench = userdata;

    bench->n_answers++;
    bench->r = r;
    bench->has_answer = answer != NULL;
    if (answer)
        bench->answer = *answer;
    bench->err = *err;
}

static void listen_at(struct end *end, const char *name) {
    struct sockaddr_un address = { .sun_family = AF_UNIX };

    snprintf(end->path, sizeof(end->path), "%s/%s", tmpdir(), name);
    strcpy(address.sun_path, end->path);
    end->fd = -1;
    end->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    ck_assert_int_eq(bind(end->listener, (struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_int_eq(listen(end->listener, 8), 0);
}

/* Let allotd's side work; what it does comes to us within this, or the test's time runs out. */
#define UNTIL(bench, condition)                                                                    \
    while (!(condition))                                                                           \
    ck_assert_int_ge(sd_event_run((bench)->event, 2000), 0)

static void accept_at(struct bench *bench, struct end *end, int listener) {
    if (end->fd >= 0)
        close(end->fd);
    UNTIL(bench, (end->fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0);
}

/* The next question of this kind. */
static void get(struct bench *bench, struct end *end, uint32_t kind) {
    ssize_t n;

    memset(&message, 0xee, sizeof(message));
    UNTIL(bench, (n = recv(end->fd, &message, sizeof(message), 0)) >= 0);
    ck_assert_int_gt(n, 0);
    ck_assert_uint_eq(message.head.kind, kind);
    ck_assert_uint_eq((size_t)n, hand_size(kind));
}

/* Nothing is asked, though allotd's side had its turn. */
static void expect_silence(struct bench *bench, struct end *end) {
    while (sd_event_run(bench->event, 0) > 0)
        ;
    ck_assert(recv(end->fd, &message, sizeof(message), 0) < 0 && errno == EAGAIN);
}

static void put(struct end *end, union hand_message *said, uint32_t kind) {
    said->head.kind = kind;
    said->head.serial = kind == HAND_EVENT ? 0 : message.head.serial;
    ck_assert_int_eq(send(end->fd, said, hand_size(kind), MSG_NOSIGNAL), (ssize_t)hand_size(kind));
}

static union hand_message said; /* what is answered next */

static void say(struct end *end, int r, const char *text) {
    said.answer.r = r;
    snprintf(said.answer.text, sizeof(said.answer.text), "%s", text);
    put(end, &said, HAND_ANSWER);
    memset(&said, 0, sizeof(said));
}

static void greet(struct bench *bench, struct end *end) {
    get(bench, end, HAND_HELLO);
    ck_assert_uint_eq(message.hello.abi, HAND_ABI);
    ck_assert_uint_eq(message.hello.driver, DRIVER_SIM);
    say(end, 0, "");
}

/* A start of both that is greeted, with a sample asked for. */
static void start(struct bench *bench, uint64_t timeout_usec, uint64_t period_usec,
                  uint64_t stale_usec) {
    struct hand_options options = {
        .driver = DRIVER_SIM,
        .hand.socket = bench->hand.path,
        .reader.socket = bench->reader.path,
        .timeout_usec = timeout_usec,
        .period_usec = period_usec,
        .stale_usec = stale_usec,
        .watcher = { bench, sampled, happened, stale },
    };
    struct allot_error err = { 0 };

    memset(bench, 0, sizeof(*bench));
    memset(&said, 0, sizeof(said));
    bench->fallback.fd = -1;
    listen_at(&bench->hand, "hand");
    listen_at(&bench->reader, "reader");
    ck_assert_int_ge(sd_event_new(&bench->event), 0);
    options.event = bench->event;
    ck_assert_msg(hand_new(&bench->it, &options, &err) == 0, "%s", err.text);
    accept_at(bench, &bench->hand, bench->hand.listener);
    accept_at(bench, &bench->reader, bench->reader.listener);
    greet(bench, &bench->hand);
    greet(bench, &bench->reader);
}

static void finish(struct bench *bench) {
    struct end *const ends[] = { &bench->reader, &bench->hand, &bench->fallback };

    ck_assert_ptr_null(hand_free(bench->it));
    ck_assert_int_eq(sd_event_get_exit_code(bench->event, &(int){ 0 }), -ENODATA);
    ck_assert_ptr_null(sd_event_unref(bench->event));
    for (size_t i = 0; i < ELEMENTSOF(ends); i++)
        if (ends[i]->fd >= 0) {
            ssize_t n;

            while ((n = recv(ends[i]->fd, &message, sizeof(message), 0)) > 0)
                ;
            ck_assert(n == 0 || errno == ECONNRESET); /* allotd's side is closed */
            close(ends[i]->fd);
        }
    close(bench->reader.listener);
    close(bench->hand.listener);
    unlink(bench->reader.path);
    unlink(bench->hand.path);
}

static struct gpuid gpu_of(uint8_t number) {
    return (struct gpuid){ .uuid = { number } };
}

static void put_device(struct bench *bench, uint8_t number) {
    said.device.device.id = said.device.device.parent = gpu_of(number);
    said.device.device.readings.has = READINGS_BIT(minor);
    said.device.device.readings.minor = number;
    put(&bench->reader, &said, HAND_DEVICE);
    memset(&said, 0, sizeof(said));
}

/* A sample with two GPUs and no process, from the question on. */
static void take_sample(struct bench *bench) {
    unsigned before = bench->n_samples;

    get(bench, &bench->reader, HAND_SAMPLE);
    put_device(bench, 1);
    put_device(bench, 2);
    said.answer.sampled.taken_usec = 1000 + before;
    said.answer.sampled.n_listed = 2;
    say(&bench->reader, 0, "");
    get(bench, &bench->hand, HAND_DESCRIBE);
    ck_assert_uint_eq(message.describe.n, 0);
    say(&bench->hand, 0, "");
    UNTIL(bench, bench->n_samples > before);
}

/* ---- Samples -----------------------------------------------------------------------------------
 */

START_TEST(a_sample_is_what_both_say) {
    const uint64_t ticks = clock_usec(CLOCK_BOOTTIME) / (1000000 / (uint64_t)sysconf(_SC_CLK_TCK));
    static const pid_t pids[] = { 11, 12, 13, 14 };
    struct bench bench;

    start(&bench, HOUR, HOUR, HOUR);
    ck_assert_uint_eq(hand_stale_since(bench.it), 0);
    get(&bench, &bench.reader, HAND_SAMPLE);
    said.device.device.runs_mps = true; /* not for the reader to say */
    put_device(&bench, 1);
    put_device(&bench, 2);
    for (size_t i = 0; i < ELEMENTSOF(pids); i++) {
        said.process.process = (struct sample_process){
            .pid = pids[i],
            .device = gpu_of(2),
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
        put(&bench.reader, &said, HAND_PROCESS);
        memset(&said, 0, sizeof(said));
    }
    said.answer.sampled = (struct hand_sampled){ .taken_usec = 1234,
                                                 .is_simulated = 1,
                                                 .cuda_version = 12020,
                                                 .n_listed = 2,
                                                 .driver_version = "550.1" };
    say(&bench.reader, 0, "");
    get(&bench, &bench.hand, HAND_DESCRIBE);
    ck_assert_uint_eq(message.describe.n, 4);
    for (size_t i = 0; i < ELEMENTSOF(pids); i++) {
        ck_assert_int_eq(message.describe.pids[i], pids[i]);
        said.process.process = (struct sample_process){
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
        put(&bench.hand, &said, HAND_PROCESS);
        memset(&said, 0, sizeof(said));
    }
    ck_assert_uint_eq(bench.n_samples, 0);
    put(&bench.hand, &said, HAND_PROCESS); /* one more than was asked for */
    say(&bench.hand, 0, "");
    UNTIL(&bench, bench.n_samples == 1);
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
    expect_silence(&bench, &bench.reader); /* the period is an hour */
    finish(&bench);
}
END_TEST

START_TEST(many_processes_are_described_in_turns) {
    struct bench bench;
    pid_t next = 1;

    start(&bench, HOUR, HOUR, HOUR);
    get(&bench, &bench.reader, HAND_SAMPLE);
    for (pid_t pid = 1; pid <= 2 * HAND_DESCRIBE_MAX + 3; pid++) {
        said.process.process.pid = pid;
        put(&bench.reader, &said, HAND_PROCESS);
        memset(&said, 0, sizeof(said));
        while (pid % 20 == 0 && sd_event_run(bench.event, 0) > 0)
            ;
    }
    said.answer.sampled.taken_usec = 1;
    said.answer.sampled.cut = 1;
    say(&bench.reader, 0, "");
    for (int round = 0; round < 3; round++) {
        get(&bench, &bench.hand, HAND_DESCRIBE);
        ck_assert_uint_eq(message.describe.n, round < 2 ? HAND_DESCRIBE_MAX : 3);
        for (uint32_t i = 0; i < message.describe.n; i++)
            ck_assert_int_eq(message.describe.pids[i], next++);
        for (uint32_t i = 0; i < (round == 1 ? 1u : message.describe.n);
             i++) { /* it leaves some out */
            said.process.process.pid = message.describe.pids[i];
            said.process.process.start = 1;
            put(&bench.hand, &said, HAND_PROCESS);
            memset(&said, 0, sizeof(said));
            while (i % 20 == 0 && sd_event_run(bench.event, 0) > 0)
                ;
        }
        ck_assert_uint_eq(bench.n_samples, 0);
        say(&bench.hand, 0, "");
    }
    UNTIL(&bench, bench.n_samples == 1);
    ck_assert(bench.last.cut);
    ck_assert_uint_eq(bench.last.n_processes, 2 * HAND_DESCRIBE_MAX + 3);
    for (size_t i = 0; i < bench.last.n_processes; i++)
        ck_assert_uint_eq(bench.processes[i].start,
                          i <= HAND_DESCRIBE_MAX || i >= 2 * (size_t)HAND_DESCRIBE_MAX);
    finish(&bench);
}
END_TEST

START_TEST(samples_come_on_time_on_events_and_on_wishes) {
    struct bench bench;

    start(&bench, HOUR, HOUR, HOUR);
    take_sample(&bench);
    hand_sample(bench.it);
    hand_sample(bench.it); /* one more while one is out */
    take_sample(&bench);
    said.event.event =
        (struct sample_event){ .kind = SAMPLE_EVENT_XID, .device = gpu_of(2), .data = 31 };
    put(&bench.reader, &said, HAND_EVENT);
    memset(&said, 0, sizeof(said));
    UNTIL(&bench, bench.n_events == 1);
    ck_assert_uint_eq(bench.happened.data, 31);
    take_sample(&bench);
    if (bench.n_samples == 3) { /* the second wish */
        hand_sample(bench.it);
        take_sample(&bench);
    }
    hand_set_period(bench.it, 1000, HOUR);
    for (int i = 0; i < 3; i++)
        take_sample(&bench);
    ck_assert_uint_eq(bench.n_stale, 0);
    ck_assert_uint_eq(bench.n_events, 1);
    finish(&bench);
}
END_TEST

START_TEST(readings_are_stale_when_one_is_late_and_when_one_fails) {
    struct bench bench;

    start(&bench, HOUR, HOUR, 20000);
    UNTIL(&bench, bench.n_stale == 1);
    ck_assert_ptr_nonnull(
        strstr(bench.stale_reason, "the driver does not answer: a reading is overdue by 20"));
    ck_assert_uint_eq(bench.stale_since, 0);
    ck_assert_uint_eq(hand_stale_since(bench.it), 1);
    get(&bench, &bench.reader, HAND_SAMPLE);
    say(&bench.reader, -EIO, "the driver is in pieces"); /* more than that it is late */
    UNTIL(&bench, bench.n_stale == 2);
    ck_assert_str_eq(bench.stale_reason, "the driver is in pieces");
    hand_sample(bench.it);
    get(&bench, &bench.reader, HAND_SAMPLE);
    say(&bench.reader, -EIO, "still"); /* told once */
    hand_set_period(bench.it, HOUR, HOUR);
    hand_sample(bench.it);
    take_sample(&bench);
    ck_assert_uint_eq(bench.n_stale, 2);
    ck_assert_uint_eq(hand_stale_since(bench.it), 0);

    hand_set_period(bench.it, 10000, 20000); /* now it is the hand that is late */
    get(&bench, &bench.reader, HAND_SAMPLE);
    say(&bench.reader, 0, "");
    get(&bench, &bench.hand, HAND_DESCRIBE);
    UNTIL(&bench, bench.n_stale == 3);
    ck_assert_ptr_nonnull(
        strstr(bench.stale_reason, "allot-hand does not answer: a reading is overdue"));
    ck_assert_uint_eq(bench.stale_since, 1000);
    ck_assert_uint_eq(hand_stale_since(bench.it), 1000);
    say(&bench.hand, -EIO, "no /proc");
    UNTIL(&bench, bench.n_stale == 4);
    ck_assert_str_eq(bench.stale_reason, "no /proc");
    take_sample(&bench); /* another one begins by itself */
    ck_assert_uint_eq(hand_stale_since(bench.it), 0);
    finish(&bench);
}
END_TEST

/* ---- Helpers that are lost ----------------------------------------------------------------------
 */

START_TEST(a_successor_is_told_what_is_known) {
    struct gpuid gpu = gpu_of(2);
    struct bench bench;

    start(&bench, HOUR, HOUR, HOUR);
    take_sample(&bench);
    for (int round = 0; round < 3; round++) {
        hand_close_device(bench.it, &gpu, round != 2, done, &bench);
        get(&bench, &bench.reader, HAND_CLOSE);
        ck_assert_uint_eq(message.close.closed, round != 2);
        ck_assert(gpuid_equal(&message.close.gpu, &gpu));
        say(&bench.reader, 0, "");
        take_sample(&bench); /* events are to be listened to anew */
        ck_assert_uint_eq(bench.n_answers, (unsigned)round + 1);
        ck_assert_int_eq(bench.r, 0);
        close(bench.reader.fd);
        bench.reader.fd = -1;
        accept_at(&bench, &bench.reader, bench.reader.listener);
        ck_assert_uint_eq(hand_n_readers_replaced(bench.it), (unsigned)round + 1);
        ck_assert_uint_eq(hand_n_replaced(bench.it), 0);
        ck_assert_str_eq(bench.stale_reason, "allot-reader ended and is replaced");
        greet(&bench, &bench.reader);
        for (uint8_t i = 1; i <= 2; i++) {
            get(&bench, &bench.reader, HAND_KNOWN);
            ck_assert(gpuid_equal(&message.device.device.id, &(struct gpuid){ .uuid = { i } }));
            say(&bench.reader, 0, "");
        }
        if (round != 2) {
            get(&bench, &bench.reader, HAND_CLOSE);
            ck_assert_uint_eq(message.close.closed, 1);
            ck_assert(gpuid_equal(&message.close.gpu, &gpu));
            say(&bench.reader, 0, "");
        }
        take_sample(&bench);
    }
    /* What was refused is not told to anyone. */
    hand_close_device(bench.it, &gpu, true, done, &bench);
    get(&bench, &bench.reader, HAND_CLOSE);
    say(&bench.reader, -ENOENT, "no such GPU");
    UNTIL(&bench, bench.n_answers == 4);
    ck_assert_int_eq(bench.r, -ENOENT);
    ck_assert_str_eq(bench.err.text, "no such GPU");
    ck_assert_int_eq(bench.err.code, -ENOENT);
    expect_silence(&bench, &bench.reader);
    finish(&bench);
}
END_TEST

START_TEST(a_hand_that_ends_fails_what_was_asked_and_the_rest_goes_to_the_next) {
    struct hand_find find = { .lease = 7, .uid = 8 };
    struct bench bench;

    start(&bench, HOUR, HOUR, HOUR);
    take_sample(&bench);
    ck_assert_int_eq(hand_find(bench.it, &find, done, &bench), 0);
    ck_assert_int_eq(hand_lock(bench.it, true, done, &bench), 0);
    hand_sample(bench.it); /* whose description waits for the hand, and is dropped with it */
    get(&bench, &bench.hand, HAND_FIND);
    ck_assert_uint_eq(message.find.find.lease, 7);
    get(&bench, &bench.reader, HAND_SAMPLE);
    say(&bench.reader, 0, "");
    expect_silence(&bench, &bench.hand);
    ck_assert_uint_eq(bench.n_answers, 0);
    close(bench.hand.fd);
    bench.hand.fd = -1;
    UNTIL(&bench, bench.n_answers == 1);
    ck_assert_int_eq(bench.r, -ECONNRESET);
    ck_assert(!bench.has_answer);
    ck_assert_str_eq(bench.err.text, "allot-hand ended and is replaced");
    ck_assert_str_eq(bench.stale_reason, "allot-hand ended and is replaced");
    ck_assert_uint_eq(hand_n_replaced(bench.it), 1);
    accept_at(&bench, &bench.hand, bench.hand.listener);
    greet(&bench, &bench.hand);
    get(&bench, &bench.hand, HAND_LOCK);
    ck_assert_uint_eq(message.lock.locked, 1);
    say(&bench.hand, 0, "");
    take_sample(&bench);
    ck_assert_uint_eq(bench.n_answers, 2);
    ck_assert_int_eq(bench.r, 0);
    ck_assert(bench.has_answer);
    finish(&bench);
}
END_TEST

START_TEST(a_helper_that_talks_nonsense_is_replaced) {
    struct bench bench;

    start(&bench, HOUR, HOUR, HOUR);
    take_sample(&bench);
    for (int round = 0; round < 4; round++) {
        hand_lock(bench.it, false, done, &bench);
        get(&bench, &bench.hand, HAND_LOCK);
        switch (round) {
        case 0: /* of another question */
            message.head.serial++;
            say(&bench.hand, 0, "");
            break;
        case 1: /* for the reader to say */
            put(&bench.hand, &said, HAND_EVENT);
            break;
        case 2: /* cut off */
            said.head.kind = HAND_ANSWER;
            said.head.serial = message.head.serial;
            ck_assert_int_gt(send(bench.hand.fd, &said, hand_size(HAND_ANSWER) - 1, 0), 0);
            break;
        case 3: /* too much of it */
            said.head.kind = HAND_ANSWER;
            said.head.serial = message.head.serial;
            ck_assert_int_gt(send(bench.hand.fd, &said, sizeof(said), 0), 0);
            _Static_assert(sizeof(said) > sizeof(said.answer), "more than an answer");
            break;
        }
        memset(&said, 0, sizeof(said));
        UNTIL(&bench, bench.n_answers == (unsigned)round + 1);
        ck_assert_int_eq(bench.r, -ECONNRESET);
        ck_assert_str_eq(bench.err.text, "allot-hand sent an answer that belongs to no request");
        accept_at(&bench, &bench.hand, bench.hand.listener);
        greet(&bench, &bench.hand);
    }
    ck_assert_uint_eq(hand_n_replaced(bench.it), 4);
    ck_assert_uint_eq(hand_n_readers_replaced(bench.it), 0);
    finish(&bench);
}
END_TEST

START_TEST(a_helper_of_another_build_is_given_up) {
    struct bench bench;

    start(&bench, HOUR, HOUR, HOUR);
    take_sample(&bench);
    hand_lock(bench.it, false, done, &bench);
    get(&bench, &bench.hand, HAND_LOCK);
    close(bench.hand.fd);
    bench.hand.fd = -1;
    for (unsigned round = 1; round <= 3; round++) {
        accept_at(&bench, &bench.hand, bench.hand.listener);
        get(&bench, &bench.hand, HAND_HELLO);
        if (round == 3)
            break;
        say(&bench.hand, -EPROTO, "of another build");
        UNTIL(&bench, hand_n_replaced(bench.it) == round + 1);
    }
    ck_assert_str_eq(bench.stale_reason, "allot-hand ended and is replaced"); /* told once */
    say(&bench.hand, 0, "");
    hand_sample(bench.it);
    take_sample(&bench);
    ck_assert_uint_eq(bench.n_answers, 1);
    finish(&bench);
}
END_TEST

START_TEST(a_helper_has_its_time_and_systemd_has_more) {
    struct hand_confine confine = { .pid = 5, .n_devices = 1 };
    static const unsigned times[] = { 1, 3, 3, 10 };
    struct bench bench;

    start(&bench, 200000, HOUR, HOUR);
    take_sample(&bench);
    for (unsigned round = 0; round < ELEMENTSOF(times); round++) {
        uint64_t before = clock_usec(CLOCK_BOOTTIME), took;
        char text[128];

        switch (round) {
        case 0:
            hand_find(bench.it, &(struct hand_find){ 0 }, done, &bench);
            break;
        case 1:
            hand_confine(bench.it, &confine, done, &bench);
            break;
        case 2:
            hand_probe(bench.it, done, &bench);
            break;
        case 3:
            hand_lock(bench.it, true, done, &bench);
            break;
        }
        UNTIL(&bench, bench.n_answers == round + 1);
        took = clock_usec(CLOCK_BOOTTIME) - before;
        ck_assert_uint_ge(took, 200000 * times[round] - 50000);
        ck_assert_int_eq(bench.r, -ETIMEDOUT);
        snprintf(text, sizeof(text), "allot-hand was stuck for %u s and is replaced",
                 times[round] / 5);
        ck_assert_str_eq(bench.err.text, text);
        accept_at(&bench, &bench.hand, bench.hand.listener);
        greet(&bench, &bench.hand);
    }
    ck_assert_uint_eq(hand_n_replaced(bench.it), 4);
    hand_sample(bench.it);
    get(&bench, &bench.reader, HAND_SAMPLE);
    UNTIL(&bench, hand_n_readers_replaced(bench.it) == 1);
    ck_assert_uint_eq(bench.n_stale, 1); /* that of the hand */
    finish(&bench);
}
END_TEST

/* ---- Calls --------------------------------------------------------------------------------------
 */

START_TEST(a_confinement_names_the_nodes_that_are_known) {
    struct hand_confine confine = { .pid = 5, .n_devices = 3, .lease = 9 };
    struct bench bench;

    start(&bench, HOUR, HOUR, HOUR);
    get(&bench, &bench.reader, HAND_SAMPLE);
    put_device(&bench, 7);
    said.device.device.is_mig = true;
    said.device.device.gpu_instance = 4;
    said.device.device.compute_instance = 5;
    put_device(&bench, 8);
    say(&bench.reader, 0, "");
    get(&bench, &bench.hand, HAND_DESCRIBE);
    say(&bench.hand, 0, "");
    UNTIL(&bench, bench.n_samples == 1);
    confine.devices[0].id = gpu_of(8);
    confine.devices[1].id = gpu_of(7);
    confine.devices[2].id = gpu_of(9); /* not known */
    hand_confine(bench.it, &confine, done, &bench);
    get(&bench, &bench.hand, HAND_CONFINE);
    ck_assert_uint_eq(message.confine.confine.lease, 9);
    ck_assert(message.confine.nodes[0].has_minor && message.confine.nodes[0].is_mig);
    ck_assert_uint_eq(message.confine.nodes[0].minor, 8);
    ck_assert_uint_eq(message.confine.nodes[0].gpu_instance, 4);
    ck_assert_uint_eq(message.confine.nodes[0].compute_instance, 5);
    ck_assert(message.confine.nodes[1].has_minor && !message.confine.nodes[1].is_mig);
    ck_assert_uint_eq(message.confine.nodes[1].minor, 7);
    ck_assert(!message.confine.nodes[2].has_minor);
    said.answer.confined.tiers = 2;
    strcpy(said.answer.confined.scope, "allot-9.scope");
    say(&bench.hand, 0, "");
    UNTIL(&bench, bench.n_answers == 1);
    ck_assert_uint_eq(bench.answer.confined.tiers, 2);
    ck_assert_str_eq(bench.answer.confined.scope, "allot-9.scope");
    finish(&bench);
}
END_TEST

START_TEST(a_probe_is_made_on_a_whole_gpu_that_works) {
    struct bench bench;

    start(&bench, HOUR, HOUR, HOUR);
    hand_probe(bench.it, done, &bench); /* none is known yet */
    get(&bench, &bench.hand, HAND_PROBE);
    ck_assert_uint_eq(message.probe.has_gpu, 0);
    said.answer.probes.tiers[5].proven = true;
    said.answer.probes.tiers[2].proven = true;
    say(&bench.hand, 0, "");
    UNTIL(&bench, bench.n_answers == 1);
    ck_assert(bench.answer.probes.tiers[2].proven && !bench.answer.probes.tiers[5].proven);
    ck_assert_str_eq(bench.answer.probes.tiers[5].detail,
                     "NVML does not say what processes use: there is no device");

    get(&bench, &bench.reader, HAND_SAMPLE);
    said.device.device.mig_enabled = true;
    put_device(&bench, 1);
    said.device.device.is_mig = true;
    put_device(&bench, 2);
    said.device.device.health = SAMPLE_LOST;
    put_device(&bench, 3);
    put_device(&bench, 4);
    strcpy(said.answer.sampled.list_trouble, "no permission");
    say(&bench.reader, 0, "");
    get(&bench, &bench.hand, HAND_DESCRIBE);
    say(&bench.hand, 0, "");
    UNTIL(&bench, bench.n_samples == 1);
    hand_probe(bench.it, done, &bench);
    get(&bench, &bench.hand, HAND_PROBE);
    ck_assert_uint_eq(message.probe.has_gpu, 1);
    ck_assert(gpuid_equal(&message.probe.gpu, &(struct gpuid){ .uuid = { 4 } }));
    say(&bench.hand, 0, "");
    UNTIL(&bench, bench.n_answers == 2);
    ck_assert_str_eq(bench.answer.probes.tiers[5].detail,
                     "NVML does not say what processes use: no permission");

    hand_sample(bench.it);
    take_sample(&bench); /* both list */
    for (int proven = 0; proven < 2; proven++) {
        hand_probe(bench.it, done, &bench);
        get(&bench, &bench.hand, HAND_PROBE);
        said.answer.probes.tiers[5].proven = proven;
        strcpy(said.answer.probes.tiers[5].detail, "as it was");
        say(&bench.hand, 0, "");
        UNTIL(&bench, bench.n_answers == 3 + (unsigned)proven);
        ck_assert_int_eq(bench.answer.probes.tiers[5].proven, proven);
        ck_assert_str_eq(bench.answer.probes.tiers[5].detail,
                         proven ? "NVML lists processes of 2 devices, and a signal ended a test "
                                  "process"
                                : "as it was");
    }
    finish(&bench);
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
    struct hand_excess excess = { .device = gpu_of(2), .over_bytes = 100 };
    struct bench bench;

    start(&bench, HOUR, HOUR, HOUR);
    take_sample(&bench);
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        hand_signal_over(bench.it, &signal, &excess, done, &bench);
        get(&bench, &bench.reader, HAND_USED);
        ck_assert_int_eq(message.used.pid, 5);
        ck_assert(gpuid_equal(&message.used.device, &excess.device));
        said.answer.used.is_listed = cases[i].is_listed;
        said.answer.used.used_bytes = cases[i].used;
        say(&bench.reader, cases[i].r, "a word");
        if (cases[i].is_signalled) {
            get(&bench, &bench.hand, HAND_SIGNAL);
            ck_assert_uint_eq(message.signal.signal.start, 6);
            said.answer.signalled.n_processes = 1;
            say(&bench.hand, 0, "");
        }
        UNTIL(&bench, bench.n_answers == i + 1);
        ck_assert_int_eq(bench.r, cases[i].r);
        if (cases[i].r < 0)
            continue;
        ck_assert_uint_eq(bench.answer.signalled.n_processes, cases[i].is_signalled);
        ck_assert_uint_eq(bench.answer.signalled.has_used, cases[i].is_listed);
        ck_assert_uint_eq(bench.answer.signalled.used_bytes,
                          cases[i].is_listed ? cases[i].used : 0);
    }
    expect_silence(&bench, &bench.hand);
    finish(&bench);
}
END_TEST

/* ---- Signals that do not wait
 * -------------------------------------------------------------------- */

/* The hand is busy with something, and signals go another way. */
static void start_busy(struct bench *bench, uint64_t timeout_usec) {
    start(bench, timeout_usec, HOUR, HOUR);
    take_sample(bench);
    hand_lock(bench->it, true, done, bench);
    get(bench, &bench->hand, HAND_LOCK);
}

START_TEST(signals_go_round_a_hand_that_is_busy) {
    struct hand_signal signal = { .signal = SIGTERM, .pid = 5 };
    struct hand_excess excess = { .device = gpu_of(2), .over_bytes = 100 };
    struct bench bench;

    start_busy(&bench, HOUR);
    hand_find(bench.it, &(struct hand_find){ 0 }, done, &bench); /* this one waits */
    hand_signal(bench.it, &signal, done, &bench);
    signal.pid = 6;
    hand_signal(bench.it, &signal, done, &bench);
    accept_at(&bench, &bench.fallback, bench.hand.listener);
    greet(&bench, &bench.fallback);
    for (pid_t pid = 5; pid <= 6; pid++) {
        get(&bench, &bench.fallback, HAND_SIGNAL);
        ck_assert_int_eq(message.signal.signal.pid, pid);
        said.answer.signalled.n_processes = (uint32_t)pid;
        say(&bench.fallback, pid == 5 ? 0 : -EPERM, pid == 5 ? "" : "not yours");
        UNTIL(&bench, bench.n_answers == (unsigned)pid - 4);
        ck_assert_int_eq(bench.r, pid == 5 ? 0 : -EPERM);
        if (pid == 5)
            ck_assert_uint_eq(bench.answer.signalled.n_processes, 5);
        else
            ck_assert_str_eq(bench.err.text, "not yours");
    }
    /* Nothing more to signal: that hand goes, and another one comes for the next. */
    UNTIL(&bench, recv(bench.fallback.fd, &message, sizeof(message), 0) == 0);
    hand_signal(bench.it, &signal, done, &bench);
    accept_at(&bench, &bench.fallback, bench.hand.listener);
    greet(&bench, &bench.fallback);
    get(&bench, &bench.fallback, HAND_SIGNAL);
    say(&bench.fallback, 0, "");
    UNTIL(&bench, bench.n_answers == 3);

    /* One that was looked at before waits for its hand. */
    hand_signal_over(bench.it, &signal, &excess, done, &bench);
    get(&bench, &bench.reader, HAND_USED);
    said.answer.used.is_listed = 1;
    said.answer.used.used_bytes = 200;
    say(&bench.reader, 0, "");
    signal.pid = 9;
    hand_signal(bench.it, &signal, done, &bench);
    accept_at(&bench, &bench.fallback, bench.hand.listener);
    greet(&bench, &bench.fallback);
    get(&bench, &bench.fallback, HAND_SIGNAL);
    ck_assert_int_eq(message.signal.signal.pid, 9);
    ck_assert_uint_eq(hand_n_replaced(bench.it), 0);
    finish(&bench); /* drops what is open */
    ck_assert_uint_eq(bench.n_answers, 3);
}
END_TEST

START_TEST(a_second_hand_that_is_of_no_use_is_said) {
    struct hand_signal signal = { .signal = SIGTERM, .pid = 5 };
    struct bench bench;

    start_busy(&bench, HOUR);
    for (unsigned round = 0; round < 5; round++) {
        hand_signal(bench.it, &signal, done, &bench);
        hand_signal(bench.it, &signal, done, &bench);
        accept_at(&bench, &bench.fallback, bench.hand.listener);
        if (round == 0) {
            get(&bench, &bench.fallback, HAND_HELLO);
            say(&bench.fallback, -EPROTO, "of another build");
        } else {
            greet(&bench, &bench.fallback);
            get(&bench, &bench.fallback, HAND_SIGNAL);
        }
        switch (round) {
        case 1:
            message.head.serial++;
            say(&bench.fallback, 0, "");
            break;
        case 2:
            put(&bench.fallback, &said, HAND_EVENT);
            break;
        case 3:
            said.answer.r = 1;
            put(&bench.fallback, &said, HAND_ANSWER);
            break;
        case 4:
            shutdown(bench.fallback.fd, SHUT_RDWR);
            break;
        }
        memset(&said, 0, sizeof(said));
        UNTIL(&bench, bench.n_answers == 2 * round + 2);
        ck_assert_int_eq(bench.r, round == 0 ? -EPROTO : -ECONNRESET);
        ck_assert_int_eq(bench.err.code, bench.r);
        ck_assert_str_eq(bench.err.text, round == 0
                                             ? "of another build"
                                             : "allot-hand ended before the signal was sent");
        ck_assert(!bench.has_answer);
    }
    finish(&bench);
}
END_TEST

START_TEST(a_second_hand_has_its_time_too) {
    struct hand_signal signal = { .signal = SIGTERM, .pid = 5 };
    struct bench bench;
    uint64_t before;

    start_busy(&bench, 100000); /* a lock has ten times that */
    before = clock_usec(CLOCK_BOOTTIME);
    hand_signal(bench.it, &signal, done, &bench);
    accept_at(&bench, &bench.fallback, bench.hand.listener);
    greet(&bench, &bench.fallback);
    get(&bench, &bench.fallback, HAND_SIGNAL);
    UNTIL(&bench, bench.n_answers == 1);
    ck_assert_uint_ge(clock_usec(CLOCK_BOOTTIME) - before, 100000);
    ck_assert_int_eq(bench.r, -ETIMEDOUT);
    ck_assert_ptr_nonnull(strstr(bench.err.text, "does not answer"));
    finish(&bench);
}
END_TEST

SUITE_TIMEOUT("hand-helper", 120, a_sample_is_what_both_say, many_processes_are_described_in_turns,
              samples_come_on_time_on_events_and_on_wishes,
              readings_are_stale_when_one_is_late_and_when_one_fails,
              a_successor_is_told_what_is_known,
              a_hand_that_ends_fails_what_was_asked_and_the_rest_goes_to_the_next,
              a_helper_that_talks_nonsense_is_replaced, a_helper_of_another_build_is_given_up,
              a_helper_has_its_time_and_systemd_has_more,
              a_confinement_names_the_nodes_that_are_known,
              a_probe_is_made_on_a_whole_gpu_that_works, who_is_over_is_looked_at_before_the_signal,
              signals_go_round_a_hand_that_is_busy, a_second_hand_that_is_of_no_use_is_said,
              a_second_hand_has_its_time_too)
