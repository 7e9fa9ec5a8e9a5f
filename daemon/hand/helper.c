/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/hand/helper.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <systemd/sd-event.h>

#include "base/cleanup.h"
#include "daemon/hand/message_check.h"

#define BACKOFF_MIN   (UINT64_C(100) * 1000)
#define BACKOFF_MAX   (UINT64_C(30) * 1000 * 1000)
#define MESSAGES_TURN 64 /* read in one turn of the loop: others have clients waiting */
#define ACCURACY_USEC (UINT64_C(50) * 1000)

struct helper_call *helper_call_new(struct hand *hand, uint32_t kind, helper_fn answered) {
    struct helper_call *call = calloc(1, sizeof(*call));

    if (!call)
        return NULL;
    list_init(&call->in_helper);
    call->hand = hand;
    call->answered = answered;
    call->message.head.kind = kind;
    return call;
}

void helper_call_free(struct helper_call *call) {
    list_remove(&call->in_helper);
    free(call);
}

static void call_finish(struct helper_call *call, struct hand_answer_row *row) {
    if (call->answered)
        call->answered(call, row);
    helper_call_free(call);
}

static void free_calls(struct list *calls) {
    while (calls->next && !list_is_empty(calls))
        helper_call_free(list_entry(calls->next, struct helper_call, in_helper));
}

/* ---- The end of a link --------------------------------------------------------------------------
 */

static void drop_link(struct helper *helper) {
    helper->io = sd_event_source_disable_unref(helper->io);
    if (helper->deadline)
        sd_event_source_set_enabled(helper->deadline, SD_EVENT_OFF);
    hand_link_close(&helper->link);
    free_calls(&helper->greetings);
}

static void retry_later(struct helper *helper) {
    sd_event_source_set_time_relative(helper->retry, helper->backoff_usec);
    sd_event_source_set_enabled(helper->retry, SD_EVENT_ONESHOT);
    helper->backoff_usec = MIN(MAX(2 * helper->backoff_usec, BACKOFF_MIN), BACKOFF_MAX);
}

/* Give up this helper: what is out fails with `r`, a successor comes. */
static void replace(struct helper *helper, int r, const char *reason) {
    struct helper_call *out = TAKE(helper->out), *call, *following;
    struct hand_answer_row row;

    drop_link(helper);
    helper->n_replaced++;
    retry_later(helper);
    list_foreach_safe (call, following, &helper->waiting, in_helper)
        if (call->is_for_this)
            helper_call_free(call);
    memset(&row, 0, sizeof(row));
    row.r = r;
    snprintf(row.text, sizeof(row.text), "%s", reason);
    helper->watcher.lost(helper->watcher.hand, reason);
    if (out && out->is_for_this)
        helper_call_free(out);
    else if (out)
        call_finish(out, &row);
}

/* systemd may be busy; when it reads all of its unit files again, it is busy for long. */
static uint64_t patience(const struct helper *helper, uint32_t kind) {
    switch (kind) {
    case HAND_CONFINE:
    case HAND_PROBE:
        return 3 * helper->timeout_usec;
    case HAND_LOCK:
        return 10 * helper->timeout_usec;
    default:
        return helper->timeout_usec;
    }
}

static int deadline_passed(sd_event_source *source, uint64_t usec, void *userdata) {
    struct helper *helper = userdata;
    char reason[128];

    snprintf(reason, sizeof(reason), "%s%s was stuck for %" PRIu64 " s and is replaced",
             helper->role == HAND_ROLE_READER ? "the driver does not answer: " : "",
             helper->link.name, patience(helper, helper->out->message.head.kind) / 1000000);
    replace(helper, -ETIMEDOUT, reason);
    return 0;
}

/* ---- Messages
 * ------------------------------------------------------------------------------------
 */

static void answered(struct helper *helper, struct hand_answer_row *row) {
    struct helper_call *call = TAKE(helper->out);

    sd_event_source_set_enabled(helper->deadline, SD_EVENT_OFF);
    if (call->message.head.kind == HAND_HELLO && row->r < 0) {
        char reason[sizeof(row->text)];

        memcpy(reason, row->text, sizeof(reason));
        helper_call_free(call);
        replace(helper, row->r, reason);
        return;
    }
    if (call->answered && row->r == 0)
        helper->backoff_usec = 0;
    call_finish(call, row);
}

/* Whether a message makes sense, and answers what is out. */
static bool is_expected(const struct helper *helper, union hand_message *message, size_t size) {
    if (!message_check_reply(message, size, helper->out ? helper->out->message.head.kind : 0))
        return false;
    if (message->head.kind == HAND_EVENT)
        return helper->role == HAND_ROLE_READER;
    return message->head.serial == helper->out->message.head.serial;
}

static int readable(sd_event_source *source, int fd, uint32_t events, void *userdata) {
    struct helper *helper = userdata;
    union hand_message message;
    char reason[96];

    for (int i = 0; i < MESSAGES_TURN && helper->link.fd == fd && helper->io == source; i++) {
        ssize_t n = recv(fd, &message, sizeof(message), MSG_DONTWAIT | MSG_TRUNC);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        if (n <= 0 || !is_expected(helper, &message, (size_t)n)) {
            snprintf(reason, sizeof(reason),
                     n <= 0 ? "%s ended and is replaced"
                            : "%s sent an answer that belongs to no request",
                     helper->link.name);
            replace(helper, -ECONNRESET, reason);
            return 0;
        }
        if (message.head.kind != HAND_ANSWER) {
            helper->watcher.told(helper->watcher.hand, &message);
            continue;
        }
        answered(helper, &message.answer);
        helper_ask_next(helper);
    }
    return 0;
}

/* ---- Asking
 * --------------------------------------------------------------------------------------
 */

/* Send `call`, which is then out. The socket holds one question easily. */
static void ask(struct helper *helper, struct helper_call *call) {
    size_t size = hand_size(call->message.head.kind);
    ssize_t n;

    list_remove(&call->in_helper);
    list_init(&call->in_helper);
    call->message.head.serial = ++helper->serial;
    helper->out = call;
    sd_event_source_set_time_relative(helper->deadline, patience(helper, call->message.head.kind));
    sd_event_source_set_enabled(helper->deadline, SD_EVENT_ONESHOT);
    n = send(helper->link.fd, &call->message, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    /* The loop notices a broken connection: no answer comes from inside a call. */
    if (n != (ssize_t)size)
        shutdown(helper->link.fd, SHUT_RDWR);
}

void helper_ask_next(struct helper *helper) {
    struct helper_call *call;

    if (helper->link.fd < 0 || helper->out)
        return;
    call = list_first(&helper->greetings, struct helper_call, in_helper);
    if (!call)
        call = list_first(&helper->waiting, struct helper_call, in_helper);
    if (call)
        ask(helper, call);
    else if (helper->watcher.idle)
        helper->watcher.idle(helper->watcher.hand);
}

void helper_submit(struct helper *helper, struct helper_call *call) {
    list_append(&helper->waiting, &call->in_helper);
    helper_ask_next(helper);
}

void helper_greet(struct helper *helper, struct helper_call *call) {
    list_append(&helper->greetings, &call->in_helper);
}

bool helper_is_busy(const struct helper *helper) {
    return helper->out || helper->link.fd < 0;
}

/* ---- A new link
 * ----------------------------------------------------------------------------------
 */

static int greet(struct helper *helper) {
    struct helper_call *call = helper_call_new(helper->watcher.hand, HAND_HELLO, NULL);

    if (!call)
        return -ENOMEM;
    call->message.hello.abi = HAND_ABI;
    call->message.hello.driver = helper->driver;
    helper_greet(helper, call);
    return helper->watcher.connected ? helper->watcher.connected(helper->watcher.hand) : 0;
}

static int connect_link(struct helper *helper, struct allot_error *err) {
    int r;

    r = hand_link_open(&helper->link, err);
    if (r < 0)
        return r;
    r = sd_event_add_io(helper->event, &helper->io, helper->link.fd, EPOLLIN, readable, helper);
    if (r >= 0)
        r = greet(helper);
    if (r < 0) {
        drop_link(helper);
        return error_set(err, r, "out of memory");
    }
    helper_ask_next(helper);
    return 0;
}

static int retry_passed(sd_event_source *source, uint64_t usec, void *userdata) {
    struct helper *helper = userdata;
    struct allot_error err;

    if (connect_link(helper, &err) < 0) {
        helper->watcher.lost(helper->watcher.hand, err.text);
        retry_later(helper);
    }
    return 0;
}

static int add_timer(struct helper *helper, sd_event_source **ret, sd_event_time_handler_t passed) {
    int r = sd_event_add_time_relative(helper->event, ret, CLOCK_BOOTTIME, 0, ACCURACY_USEC, passed,
                                       helper);

    return r < 0 ? r : sd_event_source_set_enabled(*ret, SD_EVENT_OFF);
}

int helper_init(struct helper *helper, enum hand_role role, const struct hand_options *options,
                const struct helper_watcher *watcher, struct allot_error *err) {
    bool is_reader = role == HAND_ROLE_READER;
    int r;

    *helper = (struct helper){
        .event = options->event,
        .watcher = *watcher,
        .role = role,
        .driver = options->driver,
        .timeout_usec = options->timeout_usec,
    };
    list_init(&helper->greetings);
    list_init(&helper->waiting);
    r = hand_link_init(&helper->link, options->event, is_reader ? "allot-reader" : "allot-hand",
                       is_reader ? &options->reader : &options->hand);
    if (r < 0)
        return error_set(err, r, "out of memory");
    r = add_timer(helper, &helper->deadline, deadline_passed);
    if (r >= 0)
        r = add_timer(helper, &helper->retry, retry_passed);
    if (r < 0)
        return error_set(err, r, "cannot make a timer: %s", strerror(-r));
    return connect_link(helper, err);
}

void helper_done(struct helper *helper) {
    if (!helper->event)
        return;
    drop_link(helper);
    if (helper->out)
        helper_call_free(helper->out);
    free_calls(&helper->waiting);
    hand_link_done(&helper->link);
    sd_event_source_disable_unref(helper->deadline);
    sd_event_source_disable_unref(helper->retry);
}
