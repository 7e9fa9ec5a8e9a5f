/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/hand/signal_fallback.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <systemd/sd-event.h>

#include "base/cleanup.h"
#include "daemon/hand/message_check.h"
#include "daemon/hand/wire.h"

struct queued_signal {
    struct list in_fallback;
    struct hand_signal signal;
    hand_fn done;
    void *userdata;
};

int signal_fallback_init(struct signal_fallback *fallback, const struct hand_options *options,
                         uint64_t timeout_usec) {
    *fallback = (struct signal_fallback){
        .event = options->event,
        .driver = options->driver,
        .timeout_usec = timeout_usec,
    };
    list_init(&fallback->queue);
    return hand_link_init(&fallback->link, options->event, "allot-hand", &options->hand);
}

static void close_link(struct signal_fallback *fallback) {
    fallback->io = sd_event_source_disable_unref(fallback->io);
    fallback->deadline = sd_event_source_disable_unref(fallback->deadline);
    hand_link_close(&fallback->link);
    fallback->serial = 0;
}

void signal_fallback_done(struct signal_fallback *fallback) {
    struct queued_signal *queued;

    if (!fallback->event)
        return;
    while ((queued = list_first(&fallback->queue, struct queued_signal, in_fallback))) {
        list_remove(&queued->in_fallback);
        free(queued);
    }
    close_link(fallback);
    hand_link_done(&fallback->link);
}

static void finish_first(struct signal_fallback *fallback, int r, const struct hand_answer *answer,
                         const struct allot_error *err) {
    struct queued_signal *queued = list_first(&fallback->queue, struct queued_signal, in_fallback);
    hand_fn done = queued->done;
    void *userdata = queued->userdata;

    list_remove(&queued->in_fallback);
    free(queued);
    done(userdata, r, answer, err);
}

/* This hand is of no use: tell the callers that wait for it. They may make new calls meanwhile. */
static void give_up(struct signal_fallback *fallback, int r, const char *reason) {
    struct allot_error err;
    size_t n = 0;
    struct queued_signal *queued;

    close_link(fallback);
    error_set(&err, r, "%s", reason);
    list_foreach (queued, &fallback->queue, in_fallback)
        n++;
    while (n-- > 0)
        finish_first(fallback, r, NULL, &err);
}

static void put(struct signal_fallback *fallback, union hand_message *message, uint32_t kind) {
    message->head.kind = kind;
    message->head.serial = ++fallback->serial;
    /* A connection that is broken is noticed by the loop. */
    if (send(fallback->link.fd, message, hand_size(kind), MSG_NOSIGNAL | MSG_DONTWAIT) !=
        (ssize_t)hand_size(kind))
        shutdown(fallback->link.fd, SHUT_RDWR);
}

static void put_first(struct signal_fallback *fallback) {
    const struct queued_signal *queued =
        list_first(&fallback->queue, struct queued_signal, in_fallback);
    union hand_message message;

    memset(&message, 0, sizeof(message));
    message.signal.signal = queued->signal;
    put(fallback, &message, HAND_SIGNAL);
}

static int deadline_passed(sd_event_source *source, uint64_t usec, void *userdata) {
    give_up(userdata, -ETIMEDOUT,
            "allot-hand does not answer, though it was only asked to send a signal");
    return 0;
}

static int readable(sd_event_source *source, int fd, uint32_t events, void *userdata) {
    struct signal_fallback *fallback = userdata;
    union hand_message message;
    struct hand_answer answer;
    struct allot_error err;
    bool is_greeting = fallback->serial == 1;
    ssize_t n = recv(fd, &message, sizeof(message), MSG_DONTWAIT | MSG_TRUNC);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0 ||
        !message_check_reply(&message, (size_t)n, is_greeting ? HAND_HELLO : HAND_SIGNAL) ||
        message.head.kind != HAND_ANSWER || message.head.serial != fallback->serial) {
        give_up(fallback, -ECONNRESET, "allot-hand ended before the signal was sent");
        return 0;
    }
    if (is_greeting && message.answer.r < 0) {
        give_up(fallback, message.answer.r, message.answer.text);
        return 0;
    }
    if (!is_greeting) {
        memset(&answer, 0, sizeof(answer));
        answer.signalled = message.answer.signalled;
        error_set(&err, message.answer.r, "%s", message.answer.text);
        finish_first(fallback, message.answer.r, message.answer.r < 0 ? NULL : &answer, &err);
    }
    /* The caller that was answered may have ended all this, or asked for more. */
    if (fallback->link.fd != fd)
        return 0;
    sd_event_source_set_time_relative(fallback->deadline, fallback->timeout_usec);
    if (list_is_empty(&fallback->queue))
        close_link(fallback);
    else
        put_first(fallback);
    return 0;
}

static int open_link(struct signal_fallback *fallback) {
    union hand_message message;
    struct allot_error err;
    int r = hand_link_open(&fallback->link, &err);

    if (r < 0)
        return r;
    r = sd_event_add_io(fallback->event, &fallback->io, fallback->link.fd, EPOLLIN, readable,
                        fallback);
    if (r >= 0)
        r = sd_event_add_time_relative(fallback->event, &fallback->deadline, CLOCK_BOOTTIME,
                                       fallback->timeout_usec, 0, deadline_passed, fallback);
    if (r < 0) {
        close_link(fallback);
        return r;
    }
    memset(&message, 0, sizeof(message));
    message.hello.abi = HAND_ABI;
    message.hello.driver = fallback->driver;
    put(fallback, &message, HAND_HELLO);
    return 0;
}

int signal_fallback_send(struct signal_fallback *fallback, const struct hand_signal *signal,
                         hand_fn done, void *userdata) {
    struct queued_signal *queued = malloc(sizeof(*queued));
    int r;

    if (!queued)
        return -ENOMEM;
    *queued = (struct queued_signal){ .signal = *signal, .done = done, .userdata = userdata };
    list_init(&queued->in_fallback);
    r = fallback->link.fd < 0 ? open_link(fallback) : 0;
    if (r < 0) {
        free(queued);
        return r;
    }
    list_append(&fallback->queue, &queued->in_fallback);
    return 0;
}
