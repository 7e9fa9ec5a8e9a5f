/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One question is out at a time; the others wait in order, with samples after them.
 *
 *     calls ─▶ [ out ] ─▶ socket ─▶ allot-hand          answer in time: the next one
 *     timer ─▶  sample ┘      ▲                         no answer, or the end of the connection:
 *                             └── link, replaced           abandoned; a new link after a while
 *
 * A new hand is told what its predecessor knew (HELLO, the devices it had read, which are closed)
 * before anything else is asked. It comes at once after the first failure, then
 * after longer and longer: a driver that hangs every hand would otherwise fill the machine with
 * hands stuck in the kernel. A signal that has waited for SIGNAL_USEC goes another way.
 */
#include "daemon/hand/hand.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <systemd/sd-event.h>

#include "base/list.h"
#include "base/units.h"
#include "daemon/hand/link.h"
#include "daemon/hand/signal_fallback.h"
#include "daemon/hand/wire.h"

#define PERIOD_USEC   (UINT64_C(1) * 1000 * 1000)
#define TIMEOUT_USEC  (UINT64_C(10) * 1000 * 1000)
#define STALE_USEC    (UINT64_C(2) * 1000 * 1000)
#define SIGNAL_USEC   (UINT64_C(200) * 1000) /* a signal waits so long for a hand that is busy */
#define BACKOFF_MIN   (UINT64_C(100) * 1000)
#define BACKOFF_MAX   (UINT64_C(30) * 1000 * 1000)
#define MESSAGES_TURN 64 /* read in one turn of the loop: others have clients waiting */
#define ACCURACY_USEC (UINT64_C(50) * 1000)

enum call_kind { CALL_ASKED, CALL_SAMPLE, CALL_PREPARE };

/* A question: a caller's, a sample, or one of those that a new hand begins with. */
struct hand_call {
    struct list link; /* in hand->waiting, or alone while it is out */
    struct hand *hand;
    enum call_kind kind;
    hand_fn done; /* NULL: forgotten, or ours */
    void *userdata;
    size_t size;
    union hand_message message;
};

struct hand {
    sd_event *event;
    struct hand_watcher watcher;
    enum driver_choice driver;
    uint64_t period_usec, timeout_usec, stale_usec;

    struct hand_link link;
    sd_event_source *io, *deadline, *period, *retry, *overdue, *hurry;
    struct hand_call *out; /* asked, not answered */
    struct list waiting;
    struct signal_fallback fallback;
    struct list hurried; /* calls that `fallback` has */
    uint64_t serial;
    bool sample_due;
    bool is_fresh; /* this link has given a sample */

    uint64_t backoff_usec;
    unsigned n_replaced;
    bool was_told_stale, was_overdue; /* the second: … and only that, not why */
    uint64_t taken_usec;              /* of the last sample; 0: never */

    struct sample *building;
    size_t n_devices_room, n_processes_room;
    size_t n_known;
    struct sample_device *known; /* GPUs and instances of the last sample, for successors */
    size_t n_closed;
    struct gpuid closed[SAMPLE_DEVICES_MAX];
};

static void ask_next(struct hand *hand);

/* ---- Questions ----------------------------------------------------------------------------------
 */

static struct hand_call *call_new(struct hand *hand, enum call_kind kind, uint32_t what) {
    struct hand_call *call = calloc(1, sizeof(*call));

    if (!call)
        return NULL;
    list_init(&call->link);
    call->hand = hand;
    call->kind = kind;
    call->message.head.kind = what;
    call->size = hand_size(what);
    return call;
}

static void call_free(struct hand_call *call) {
    list_remove(&call->link);
    free(call);
}

/* Give the answer and be done with the call. */
static void call_finish(struct hand_call *call, int r, const struct hand_answer *answer,
                        const struct allot_error *err) {
    hand_fn done = call->done;
    void *userdata = call->userdata;

    call_free(call);
    if (done)
        done(userdata, r, answer, err);
}

/* ---- The end of a link --------------------------------------------------------------------------
 */

static void tell_stale(struct hand *hand, const char *reason) {
    if (hand->was_told_stale && !hand->was_overdue)
        return;
    hand->was_told_stale = true;
    hand->was_overdue = false;
    hand->watcher.stale(hand->watcher.userdata, hand->taken_usec, reason);
}

static void drop_link(struct hand *hand) {
    hand->io = sd_event_source_disable_unref(hand->io);
    sd_event_source_set_enabled(hand->deadline, SD_EVENT_OFF);
    hand_link_close(&hand->link);
    hand->building = sample_free(hand->building);
}

static void retry_later(struct hand *hand) {
    sd_event_source_set_time_relative(hand->retry, hand->backoff_usec);
    sd_event_source_set_enabled(hand->retry, SD_EVENT_ONESHOT);
    hand->backoff_usec = MIN(MAX(2 * hand->backoff_usec, BACKOFF_MIN), BACKOFF_MAX);
}

/* Give up this hand: what is out fails with `r`, a successor comes. */
static void replace(struct hand *hand, int r, const char *reason) {
    struct hand_call *out = TAKE(hand->out), *call, *following;
    struct allot_error err;

    drop_link(hand);
    hand->n_replaced++;
    hand->is_fresh = false;
    retry_later(hand);
    /* What was to prepare the old hand is of no use to the new one. */
    list_foreach_safe (call, following, &hand->waiting, link)
        if (call->kind != CALL_ASKED)
            call_free(call);
    hand->sample_due = true;
    error_set(&err, r, "%s", reason);
    tell_stale(hand, reason);
    if (out)
        call_finish(out, r, NULL, &err);
}

/* systemd may be busy with others; when it reads all of its files again, it is so for long. */
static uint64_t patience(const struct hand *hand, uint32_t kind) {
    switch (kind) {
    case HAND_CONFINE:
    case HAND_PROBE:
        return 3 * hand->timeout_usec;
    case HAND_LOCK:
        return 10 * hand->timeout_usec;
    default:
        return hand->timeout_usec;
    }
}

static int deadline_passed(sd_event_source *source, uint64_t usec, void *userdata) {
    struct hand *hand = userdata;
    char reason[128];

    snprintf(reason, sizeof(reason),
             "the driver does not answer: allot-hand was stuck for %" PRIu64 " s and is replaced",
             patience(hand, hand->out->message.head.kind) / 1000000);
    replace(hand, -ETIMEDOUT, reason);
    return 0;
}

static void expect_sample(struct hand *hand, uint64_t usec) {
    sd_event_source_set_time_relative(hand->overdue, usec + hand->stale_usec);
    sd_event_source_set_enabled(hand->overdue, SD_EVENT_ONESHOT);
}

static int overdue_passed(sd_event_source *source, uint64_t usec, void *userdata) {
    struct hand *hand = userdata;
    char reason[96], text[UNITS_TEXT_SIZE];

    if (hand->was_told_stale)
        return 0;
    snprintf(reason, sizeof(reason), "the driver does not answer: a reading is overdue by %s",
             units_format_usec(hand->stale_usec, text));
    tell_stale(hand, reason);
    hand->was_overdue = true;
    return 0;
}

/* ---- Samples
 * ------------------------------------------------------------------------------------- */

/* What a successor is told: best effort, it can find out by itself what is not closed. */
static void remember(struct hand *hand, const struct sample *sample) {
    struct sample_device *known;

    if (!sample->n_devices)
        return;
    known = realloc(hand->known, sample->n_devices * sizeof(*known));
    if (!known)
        return;
    memcpy(known, sample->devices, sample->n_devices * sizeof(*known));
    hand->known = known;
    hand->n_known = sample->n_devices;
}

static void sampled(struct hand *hand, struct hand_answer_row *row) {
    cleanup(sample_freep) struct sample *sample = TAKE(hand->building);

    if (row->r < 0) {
        tell_stale(hand, row->text);
        return;
    }
    if (!sample)
        return;
    row->sampled.driver_version[sizeof(row->sampled.driver_version) - 1] = 0;
    sample->taken_usec = hand->taken_usec = row->sampled.taken_usec;
    sample->is_simulated = row->sampled.is_simulated;
    sample->cuda_version = row->sampled.cuda_version;
    sample->cut |= row->sampled.cut != 0;
    memcpy(sample->driver_version, row->sampled.driver_version, sizeof(sample->driver_version));
    remember(hand, sample);
    hand->is_fresh = true;
    hand->was_told_stale = hand->was_overdue = false;
    hand->backoff_usec = 0;
    expect_sample(hand, hand->period_usec);
    hand->watcher.sampled(hand->watcher.userdata, sample);
}

/* ---- Messages
 * ------------------------------------------------------------------------------------ */

/* For successors. */
static void note_closed(struct hand *hand, const struct gpuid *gpu, bool closed) {
    for (size_t i = 0; i < hand->n_closed; i++)
        if (gpuid_equal(&hand->closed[i], gpu)) {
            if (!closed)
                hand->closed[i] = hand->closed[--hand->n_closed];
            return;
        }
    if (closed && hand->n_closed < ELEMENTSOF(hand->closed))
        hand->closed[hand->n_closed++] = *gpu;
}

static void answered(struct hand *hand, struct hand_answer_row *row) {
    struct hand_call *call = TAKE(hand->out);
    struct hand_answer answer;
    struct allot_error err = { .code = row->r };

    sd_event_source_set_enabled(hand->deadline, SD_EVENT_OFF);
    row->text[sizeof(row->text) - 1] = 0;
    if (call->kind == CALL_SAMPLE) {
        call_free(call);
        sampled(hand, row);
        return;
    }
    if (call->message.head.kind == HAND_HELLO && row->r < 0) {
        char reason[sizeof(row->text)];

        memcpy(reason, row->text, sizeof(reason));
        call_free(call);
        replace(hand, row->r, reason);
        return;
    }
    memcpy(err.text, row->text, sizeof(err.text));
    memset(&answer, 0, sizeof(answer));
    switch (call->message.head.kind) {
    case HAND_CONFINE:
        answer.confined = row->confined;
        answer.confined.n_details = MIN(row->confined.n_details, (uint32_t)HAND_DETAILS_MAX);
        break;
    case HAND_SIGNAL:
        answer.signalled = row->signalled;
        break;
    case HAND_PROBE:
        answer.probes = row->probes;
        break;
    case HAND_CLOSE:
        if (row->r == 0) {
            note_closed(hand, &call->message.close.gpu, call->message.close.closed);
            hand->sample_due = true; /* events are listened to again with the next sample */
        }
        break;
    }
    call_finish(call, row->r, row->r < 0 ? NULL : &answer, &err);
}

/* Whether a message is the right one of the right size at this moment. */
static bool is_expected(const struct hand *hand, const union hand_message *message, size_t size) {
    if (size < sizeof(message->head) || size != hand_size(message->head.kind))
        return false;
    switch (message->head.kind) {
    case HAND_EVENT:
        return true;
    case HAND_DEVICE:
    case HAND_PROCESS:
        return hand->out && hand->out->kind == CALL_SAMPLE &&
               message->head.serial == hand->out->message.head.serial;
    case HAND_ANSWER:
        return hand->out && message->head.serial == hand->out->message.head.serial;
    default:
        return false;
    }
}

static int readable(sd_event_source *source, int fd, uint32_t events, void *userdata) {
    struct hand *hand = userdata;
    union hand_message message;

    for (int i = 0; i < MESSAGES_TURN && hand->link.fd == fd && hand->io == source; i++) {
        ssize_t n = recv(fd, &message, sizeof(message), MSG_DONTWAIT | MSG_TRUNC);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        if (n <= 0) {
            replace(hand, -ECONNRESET, "allot-hand ended and is replaced");
            return 0;
        }
        if (!is_expected(hand, &message, (size_t)n)) {
            replace(hand, -ECONNRESET, "allot-hand said something that was not asked");
            return 0;
        }
        switch (message.head.kind) {
        case HAND_DEVICE:
            sample_add_device(hand->building, &hand->n_devices_room, &message.device.device);
            break;
        case HAND_PROCESS:
            sample_add_process(hand->building, &hand->n_processes_room, &message.process.process);
            break;
        case HAND_EVENT:
            hand->watcher.happened(hand->watcher.userdata, &message.event.event);
            hand_sample(hand); /* what it did to the device */
            break;
        case HAND_ANSWER:
            answered(hand, &message.answer);
            ask_next(hand);
            break;
        }
    }
    return 0;
}

/* ---- Asking
 * --------------------------------------------------------------------------------------- */

/* Send `call`, which is then out. The socket holds one question easily. */
static void ask(struct hand *hand, struct hand_call *call) {
    ssize_t n;

    list_remove(&call->link);
    list_init(&call->link);
    call->message.head.serial = ++hand->serial;
    hand->out = call;
    sd_event_source_set_time_relative(hand->deadline, patience(hand, call->message.head.kind));
    sd_event_source_set_enabled(hand->deadline, SD_EVENT_ONESHOT);
    n = send(hand->link.fd, &call->message, call->size, MSG_NOSIGNAL | MSG_DONTWAIT);
    /* A broken connection is noticed by the loop: no answer comes from inside a call. */
    if (n != (ssize_t)call->size)
        shutdown(hand->link.fd, SHUT_RDWR);
}

static void ask_next(struct hand *hand) {
    struct hand_call *call, *sample;

    if (hand->link.fd < 0 || hand->out)
        return;
    if (!list_is_empty(&hand->waiting)) {
        call = list_entry(hand->waiting.next, struct hand_call, link);
        ask(hand, call);
        return;
    }
    if (!hand->sample_due)
        return;
    sample = call_new(hand, CALL_SAMPLE, HAND_SAMPLE);
    if (!sample)
        return; /* the next period tries again */
    hand->sample_due = false;
    hand->n_devices_room = hand->n_processes_room = 0;
    hand->building = calloc(1, sizeof(*hand->building));
    ask(hand, sample);
}

void hand_sample(struct hand *hand) {
    hand->sample_due = true;
    ask_next(hand);
}

void hand_set_period(struct hand *hand, uint64_t period_usec, uint64_t stale_usec) {
    if (period_usec == hand->period_usec && stale_usec == hand->stale_usec)
        return;
    hand->period_usec = period_usec;
    hand->stale_usec = stale_usec;
    sd_event_source_set_time_relative(hand->period, period_usec);
    expect_sample(hand, period_usec);
}

static int period_passed(sd_event_source *source, uint64_t usec, void *userdata) {
    struct hand *hand = userdata;

    sd_event_source_set_time_relative(source, hand->period_usec);
    hand_sample(hand);
    return 0;
}

/* ---- Signals that do not wait
 * -------------------------------------------------------------------- */

static void hurried(void *userdata, int r, const struct hand_answer *answer,
                    const struct allot_error *err) {
    call_finish(userdata, r, answer, err);
}

/* Whatever keeps the hand, these need nothing of it. */
static int hurry_passed(sd_event_source *source, uint64_t usec, void *userdata) {
    struct hand *hand = userdata;
    struct hand_call *call, *following;

    list_foreach_safe (call, following, &hand->waiting, link) {
        const struct hand_signal *signal = &call->message.signal.signal;

        if (call->message.head.kind != HAND_SIGNAL || signal->only_over)
            continue;
        /* No other hand can be had: then it is this one's turn, some time. */
        if (signal_fallback_send(&hand->fallback, signal, hurried, call) < 0)
            break;
        list_remove(&call->link);
        list_append(&hand->hurried, &call->link);
    }
    return 0;
}

/* ---- A new link
 * ----------------------------------------------------------------------------------- */

/* What a new hand is told first, in this order, before what waits already. */
static int prepare(struct hand *hand) {
    struct list first;
    struct hand_call *call;

    list_init(&first);
    call = call_new(hand, CALL_PREPARE, HAND_HELLO);
    if (!call)
        return -ENOMEM;
    call->message.hello.abi = HAND_ABI;
    call->message.hello.driver = hand->driver;
    list_append(&first, &call->link);
    for (size_t i = 0; i < hand->n_known; i++) {
        call = call_new(hand, CALL_PREPARE, HAND_KNOWN);
        if (!call)
            goto fail;
        call->message.device.device = hand->known[i];
        list_append(&first, &call->link);
    }
    for (size_t i = 0; i < hand->n_closed; i++) {
        call = call_new(hand, CALL_PREPARE, HAND_CLOSE);
        if (!call)
            goto fail;
        call->message.close.gpu = hand->closed[i];
        call->message.close.closed = 1;
        list_append(&first, &call->link);
    }
    while (!list_is_empty(&first)) {
        call = list_entry(first.prev, struct hand_call, link);
        list_remove(&call->link);
        list_prepend(&hand->waiting, &call->link);
    }
    return 0;
fail:
    while (!list_is_empty(&first))
        call_free(list_entry(first.next, struct hand_call, link));
    return -ENOMEM;
}

static int connect_link(struct hand *hand, struct allot_error *err) {
    int r;

    r = hand_link_open(&hand->link, err);
    if (r < 0)
        return r;
    r = sd_event_add_io(hand->event, &hand->io, hand->link.fd, EPOLLIN, readable, hand);
    if (r == 0)
        r = prepare(hand);
    if (r < 0) {
        drop_link(hand);
        return error_set(err, r, "out of memory");
    }
    hand->sample_due = true;
    ask_next(hand);
    return 0;
}

static int retry_passed(sd_event_source *source, uint64_t usec, void *userdata) {
    struct hand *hand = userdata;
    struct allot_error err;

    if (connect_link(hand, &err) < 0) {
        tell_stale(hand, err.text);
        retry_later(hand);
    }
    return 0;
}

static int add_timer(struct hand *hand, sd_event_source **ret, sd_event_time_handler_t passed) {
    int r = sd_event_add_time_relative(hand->event, ret, CLOCK_BOOTTIME, hand->period_usec,
                                       ACCURACY_USEC, passed, hand);

    return r < 0 ? r : sd_event_source_set_enabled(*ret, SD_EVENT_OFF);
}

int hand_new(struct hand **ret, const struct hand_options *options, struct allot_error *err) {
    cleanup(hand_freep) struct hand *hand = calloc(1, sizeof(*hand));
    int r;

    if (!hand)
        return error_set(err, -ENOMEM, "out of memory");
    hand->link.fd = -1;
    hand->event = sd_event_ref(options->event);
    hand->watcher = options->watcher;
    hand->driver = options->driver;
    hand->period_usec = options->period_usec ? options->period_usec : PERIOD_USEC;
    hand->timeout_usec = options->timeout_usec ? options->timeout_usec : TIMEOUT_USEC;
    hand->stale_usec = options->stale_usec ? options->stale_usec : STALE_USEC;
    list_init(&hand->waiting);
    list_init(&hand->hurried);
    r = hand_link_init(&hand->link, options->event, options->socket, options->program);
    if (r == 0)
        r = signal_fallback_init(&hand->fallback, options, hand->timeout_usec);
    if (r < 0)
        return error_set(err, r, "out of memory");
    r = add_timer(hand, &hand->deadline, deadline_passed);
    if (r >= 0)
        r = add_timer(hand, &hand->retry, retry_passed);
    if (r >= 0)
        r = add_timer(hand, &hand->overdue, overdue_passed);
    if (r >= 0)
        r = add_timer(hand, &hand->hurry, hurry_passed);
    if (r >= 0)
        r = add_timer(hand, &hand->period, period_passed);
    if (r >= 0)
        r = sd_event_source_set_enabled(hand->period, SD_EVENT_ON);
    if (r < 0)
        return error_set(err, r, "no timers: %s", strerror(-r));
    r = connect_link(hand, err);
    if (r < 0)
        return r;
    expect_sample(hand, 0);
    *ret = TAKE(hand);
    return 0;
}

struct hand *hand_free(struct hand *hand) {
    if (!hand)
        return NULL;
    if (hand->deadline)
        drop_link(hand);
    if (hand->out)
        call_free(hand->out);
    while (hand->waiting.next && !list_is_empty(&hand->waiting))
        call_free(list_entry(hand->waiting.next, struct hand_call, link));
    while (hand->hurried.next && !list_is_empty(&hand->hurried))
        call_free(list_entry(hand->hurried.next, struct hand_call, link));
    signal_fallback_done(&hand->fallback);
    hand_link_done(&hand->link);
    sd_event_source_disable_unref(hand->deadline);
    sd_event_source_disable_unref(hand->period);
    sd_event_source_disable_unref(hand->retry);
    sd_event_source_disable_unref(hand->overdue);
    sd_event_source_disable_unref(hand->hurry);
    sd_event_unref(hand->event);
    free(hand->known);
    free(hand);
    return NULL;
}

uint64_t hand_stale_since(const struct hand *hand) {
    return !hand->was_told_stale ? 0 : hand->taken_usec ? hand->taken_usec : 1;
}

unsigned hand_n_replaced(const struct hand *hand) {
    return hand->n_replaced;
}

/* ---- What others ask
 * ------------------------------------------------------------------------------- */

static int submit(struct hand *hand, struct hand_call *call, hand_fn done, void *userdata) {
    if (!call)
        return -ENOMEM;
    call->done = done;
    call->userdata = userdata;
    list_append(&hand->waiting, &call->link);
    ask_next(hand);
    return 0;
}

int hand_confine(struct hand *hand, const struct hand_confine *confine, hand_fn done,
                 void *userdata) {
    struct hand_call *call = call_new(hand, CALL_ASKED, HAND_CONFINE);

    if (call)
        call->message.confine.confine = *confine;
    return submit(hand, call, done, userdata);
}

int hand_signal(struct hand *hand, const struct hand_signal *signal, hand_fn done, void *userdata) {
    struct hand_call *call = call_new(hand, CALL_ASKED, HAND_SIGNAL);

    if (!call)
        return -ENOMEM;
    call->message.signal.signal = *signal;
    if (!signal->only_over && (hand->out || hand->link.fd < 0)) {
        sd_event_source_set_time_relative(hand->hurry, SIGNAL_USEC);
        sd_event_source_set_enabled(hand->hurry, SD_EVENT_ONESHOT);
    }
    return submit(hand, call, done, userdata);
}

int hand_probe(struct hand *hand, hand_fn done, void *userdata) {
    return submit(hand, call_new(hand, CALL_ASKED, HAND_PROBE), done, userdata);
}

int hand_close_device(struct hand *hand, const struct gpuid *gpu, bool closed, hand_fn done,
                      void *userdata) {
    struct hand_call *call = call_new(hand, CALL_ASKED, HAND_CLOSE);

    if (call) {
        call->message.close.gpu = *gpu;
        call->message.close.closed = closed;
    }
    return submit(hand, call, done, userdata);
}

int hand_lock(struct hand *hand, bool locked, hand_fn done, void *userdata) {
    struct hand_call *call = call_new(hand, CALL_ASKED, HAND_LOCK);

    if (call)
        call->message.lock.locked = locked;
    return submit(hand, call, done, userdata);
}
