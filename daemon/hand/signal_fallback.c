/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/hand/signal_fallback.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <systemd/sd-event.h>

#include "base/cleanup.h"
#include "daemon/hand/wire.h"

struct shot {
    struct list in_urgent;
    struct hand_signal signal;
    hand_fn done;
    void *userdata;
};

int urgent_init(struct urgent *urgent, const struct hand_options *options, uint64_t timeout_usec) {
    *urgent = (struct urgent){
        .event = options->event,
        .driver = options->driver,
        .timeout_usec = timeout_usec,
    };
    list_init(&urgent->shots);
    return hand_link_init(&urgent->link, options->event, options->socket, options->program);
}

static void close_link(struct urgent *urgent) {
    urgent->io = sd_event_source_disable_unref(urgent->io);
    urgent->deadline = sd_event_source_disable_unref(urgent->deadline);
    hand_link_close(&urgent->link);
    urgent->serial = 0;
}

void urgent_done(struct urgent *urgent) {
    struct shot *shot;

    if (!urgent->event)
        return;
    while ((shot = list_first(&urgent->shots, struct shot, in_urgent))) {
        list_remove(&shot->in_urgent);
        free(shot);
    }
    close_link(urgent);
    hand_link_done(&urgent->link);
}

static void finish_first(struct urgent *urgent, int r, const struct hand_answer *answer,
                         const struct allot_error *err) {
    struct shot *shot = list_first(&urgent->shots, struct shot, in_urgent);
    hand_fn done = shot->done;
    void *userdata = shot->userdata;

    list_remove(&shot->in_urgent);
    free(shot);
    done(userdata, r, answer, err);
}

/* This hand is of no use: whoever waits for it hears so. New ones may come meanwhile. */
static void give_up(struct urgent *urgent, int r, const char *reason) {
    struct allot_error err;
    size_t n = 0;
    struct shot *shot;

    close_link(urgent);
    error_set(&err, r, "%s", reason);
    list_foreach (shot, &urgent->shots, in_urgent)
        n++;
    while (n-- > 0)
        finish_first(urgent, r, NULL, &err);
}

static void put(struct urgent *urgent, union hand_message *message, uint32_t kind) {
    message->head.kind = kind;
    message->head.serial = ++urgent->serial;
    /* A connection that is broken is noticed by the loop. */
    if (send(urgent->link.fd, message, hand_size(kind), MSG_NOSIGNAL | MSG_DONTWAIT) !=
        (ssize_t)hand_size(kind))
        shutdown(urgent->link.fd, SHUT_RDWR);
}

static void put_first(struct urgent *urgent) {
    const struct shot *shot = list_first(&urgent->shots, struct shot, in_urgent);
    union hand_message message;

    memset(&message, 0, sizeof(message));
    message.signal.signal = shot->signal;
    put(urgent, &message, HAND_SIGNAL);
}

static int deadline_passed(sd_event_source *source, uint64_t usec, void *userdata) {
    give_up(userdata, -ETIMEDOUT, "allot-hand does not answer, and was only to send a signal");
    return 0;
}

static int readable(sd_event_source *source, int fd, uint32_t events, void *userdata) {
    struct urgent *urgent = userdata;
    union hand_message message;
    struct hand_answer answer;
    struct allot_error err;
    bool is_greeting = urgent->serial == 1;
    ssize_t n = recv(fd, &message, sizeof(message), MSG_DONTWAIT | MSG_TRUNC);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n < (ssize_t)sizeof(message.head) || message.head.kind != HAND_ANSWER ||
        (size_t)n != hand_size(HAND_ANSWER) || message.head.serial != urgent->serial) {
        give_up(urgent, -ECONNRESET, "allot-hand ended before the signal was sent");
        return 0;
    }
    message.answer.text[sizeof(message.answer.text) - 1] = 0;
    if (is_greeting && message.answer.r < 0) {
        give_up(urgent, message.answer.r, message.answer.text);
        return 0;
    }
    if (!is_greeting) {
        memset(&answer, 0, sizeof(answer));
        answer.signalled = message.answer.signalled;
        error_set(&err, message.answer.r, "%s", message.answer.text);
        finish_first(urgent, message.answer.r, message.answer.r < 0 ? NULL : &answer, &err);
    }
    /* Whoever was answered may have ended all this, or asked for more. */
    if (urgent->link.fd != fd)
        return 0;
    sd_event_source_set_time_relative(urgent->deadline, urgent->timeout_usec);
    if (list_is_empty(&urgent->shots))
        close_link(urgent);
    else
        put_first(urgent);
    return 0;
}

static int open_link(struct urgent *urgent) {
    union hand_message message;
    struct allot_error err;
    int r = hand_link_open(&urgent->link, &err);

    if (r < 0)
        return r;
    r = sd_event_add_io(urgent->event, &urgent->io, urgent->link.fd, EPOLLIN, readable, urgent);
    if (r >= 0)
        r = sd_event_add_time_relative(urgent->event, &urgent->deadline, CLOCK_BOOTTIME,
                                       urgent->timeout_usec, 0, deadline_passed, urgent);
    if (r < 0) {
        close_link(urgent);
        return r;
    }
    memset(&message, 0, sizeof(message));
    message.hello.abi = HAND_ABI;
    message.hello.driver = urgent->driver;
    put(urgent, &message, HAND_HELLO);
    return 0;
}

int urgent_signal(struct urgent *urgent, const struct hand_signal *signal, hand_fn done,
                  void *userdata) {
    struct shot *shot = malloc(sizeof(*shot));
    int r;

    assert(!signal->only_over);
    if (!shot)
        return -ENOMEM;
    *shot = (struct shot){ .signal = *signal, .done = done, .userdata = userdata };
    list_init(&shot->in_urgent);
    r = urgent->link.fd < 0 ? open_link(urgent) : 0;
    if (r < 0) {
        free(shot);
        return r;
    }
    list_append(&urgent->shots, &shot->in_urgent);
    return 0;
}
