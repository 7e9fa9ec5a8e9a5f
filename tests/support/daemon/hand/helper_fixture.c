/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/daemon/hand/helper_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/support/tmpdir.h"

union hand_message helper_fixture_got, helper_fixture_said;

static void sampled(void *userdata, const struct sample *sample) {
    struct helper_fixture *bench = userdata;

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
    struct helper_fixture *bench = userdata;

    bench->n_events++;
    bench->happened = *event;
}

static void stale(void *userdata, uint64_t since_usec, const char *reason) {
    struct helper_fixture *bench = userdata;

    bench->n_stale++;
    bench->stale_since = since_usec;
    snprintf(bench->stale_reason, sizeof(bench->stale_reason), "%s", reason);
}

void helper_fixture_done(void *userdata, int r, const struct hand_answer *answer,
                         const struct allot_error *err) {
    struct helper_fixture *bench = userdata;

    bench->n_answers++;
    bench->r = r;
    bench->has_answer = answer != NULL;
    if (answer)
        bench->answer = *answer;
    bench->err = *err;
}

static void listen_at(struct helper_fixture_end *end, const char *name) {
    struct sockaddr_un address = { .sun_family = AF_UNIX };

    snprintf(end->path, sizeof(end->path), "%s/%s", tmpdir(), name);
    strcpy(address.sun_path, end->path);
    end->fd = -1;
    end->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    ck_assert_int_eq(bind(end->listener, (struct sockaddr *)&address, sizeof(address)), 0);
    ck_assert_int_eq(listen(end->listener, 8), 0);
}

void helper_fixture_accept_at(struct helper_fixture *bench, struct helper_fixture_end *end,
                              int listener) {
    if (end->fd >= 0)
        close(end->fd);
    HELPER_FIXTURE_UNTIL(
        bench, (end->fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0);
}

/* The next question of this kind. */
void helper_fixture_get(struct helper_fixture *bench, struct helper_fixture_end *end,
                        uint32_t kind) {
    ssize_t n;

    memset(&helper_fixture_got, 0xee, sizeof(helper_fixture_got));
    HELPER_FIXTURE_UNTIL(
        bench, (n = recv(end->fd, &helper_fixture_got, sizeof(helper_fixture_got), 0)) >= 0);
    ck_assert_int_gt(n, 0);
    ck_assert_uint_eq(helper_fixture_got.head.kind, kind);
    ck_assert_uint_eq((size_t)n, hand_size(kind));
}

/* Nothing is asked, though allotd's side had its turn. */
void helper_fixture_expect_silence(struct helper_fixture *bench, struct helper_fixture_end *end) {
    while (sd_event_run(bench->event, 0) > 0)
        ;
    ck_assert(recv(end->fd, &helper_fixture_got, sizeof(helper_fixture_got), 0) < 0 &&
              errno == EAGAIN);
}

void helper_fixture_put(struct helper_fixture_end *end, union hand_message *row, uint32_t kind) {
    row->head.kind = kind;
    row->head.serial = kind == HAND_EVENT ? 0 : helper_fixture_got.head.serial;
    ck_assert_int_eq(send(end->fd, row, hand_size(kind), MSG_NOSIGNAL), (ssize_t)hand_size(kind));
}

void helper_fixture_say(struct helper_fixture_end *end, int r, const char *text) {
    helper_fixture_said.answer.r = r;
    snprintf(helper_fixture_said.answer.text, sizeof(helper_fixture_said.answer.text), "%s", text);
    helper_fixture_put(end, &helper_fixture_said, HAND_ANSWER);
    memset(&helper_fixture_said, 0, sizeof(helper_fixture_said));
}

void helper_fixture_greet(struct helper_fixture *bench, struct helper_fixture_end *end) {
    helper_fixture_get(bench, end, HAND_HELLO);
    ck_assert_uint_eq(helper_fixture_got.hello.abi, HAND_ABI);
    ck_assert_uint_eq(helper_fixture_got.hello.driver, DRIVER_SIM);
    helper_fixture_say(end, 0, "");
}

/* A start of both that is greeted, with a sample asked for. */
void helper_fixture_start(struct helper_fixture *bench, uint64_t timeout_usec, uint64_t period_usec,
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
    memset(&helper_fixture_said, 0, sizeof(helper_fixture_said));
    bench->fallback.fd = -1;
    listen_at(&bench->hand, "hand");
    listen_at(&bench->reader, "reader");
    ck_assert_int_ge(sd_event_new(&bench->event), 0);
    options.event = bench->event;
    ck_assert_msg(hand_new(&bench->it, &options, &err) == 0, "%s", err.text);
    helper_fixture_accept_at(bench, &bench->hand, bench->hand.listener);
    helper_fixture_accept_at(bench, &bench->reader, bench->reader.listener);
    helper_fixture_greet(bench, &bench->hand);
    helper_fixture_greet(bench, &bench->reader);
}

void helper_fixture_finish(struct helper_fixture *bench) {
    struct helper_fixture_end *const ends[] = { &bench->reader, &bench->hand, &bench->fallback };

    ck_assert_ptr_null(hand_free(bench->it));
    ck_assert_int_eq(sd_event_get_exit_code(bench->event, &(int){ 0 }), -ENODATA);
    ck_assert_ptr_null(sd_event_unref(bench->event));
    for (size_t i = 0; i < ELEMENTSOF(ends); i++)
        if (ends[i]->fd >= 0) {
            ssize_t n;

            while ((n = recv(ends[i]->fd, &helper_fixture_got, sizeof(helper_fixture_got), 0)) > 0)
                ;
            ck_assert(n == 0 || errno == ECONNRESET); /* allotd's side is closed */
            close(ends[i]->fd);
        }
    close(bench->reader.listener);
    close(bench->hand.listener);
    unlink(bench->reader.path);
    unlink(bench->hand.path);
}

struct gpuid helper_fixture_gpu_of(uint8_t number) {
    return (struct gpuid){ .uuid = { number } };
}

void helper_fixture_put_device(struct helper_fixture *bench, uint8_t number) {
    helper_fixture_said.device.device.id = helper_fixture_said.device.device.parent =
        helper_fixture_gpu_of(number);
    helper_fixture_said.device.device.readings.has = READINGS_BIT(minor);
    helper_fixture_said.device.device.readings.minor = number;
    helper_fixture_put(&bench->reader, &helper_fixture_said, HAND_DEVICE);
    memset(&helper_fixture_said, 0, sizeof(helper_fixture_said));
}

/* A sample with two GPUs and no process, from the question on. */
void helper_fixture_take_sample(struct helper_fixture *bench) {
    unsigned before = bench->n_samples;

    helper_fixture_get(bench, &bench->reader, HAND_SAMPLE);
    helper_fixture_put_device(bench, 1);
    helper_fixture_put_device(bench, 2);
    helper_fixture_said.answer.sampled.taken_usec = 1000 + before;
    helper_fixture_said.answer.sampled.n_listed = 2;
    helper_fixture_say(&bench->reader, 0, "");
    helper_fixture_get(bench, &bench->hand, HAND_DESCRIBE);
    ck_assert_uint_eq(helper_fixture_got.describe.n, 0);
    helper_fixture_say(&bench->hand, 0, "");
    HELPER_FIXTURE_UNTIL(bench, bench->n_samples > before);
}
