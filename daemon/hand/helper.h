/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Helper: one of allotd's two helpers, as allotd talks to it: a connection, the calls that wait for
 * it, and its replacement when it does not answer or is gone.
 *
 * One question is out at a time; the others wait in order.
 *
 *     calls ─▶ [ out ] ─▶ socket ─▶ helper          answer in time: the next one
 *                          ▲                        no answer, or the end of the connection:
 *                          └── link, replaced          abandoned; a new link after a while
 *
 * A new helper is first told what its predecessor knew. It is started at once after the first
 * failure, then after longer and longer pauses: otherwise a driver that hangs every reader would
 * fill the machine with readers stuck in the kernel.
 *
 * Embedded in struct hand. Event-loop thread only.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/list.h"
#include "daemon/hand/hand.h"
#include "daemon/hand/link.h"
#include "daemon/hand/wire.h"

struct sd_event;
struct sd_event_source;
struct helper;
struct helper_call;

/*
 * The answer to a call: `row->r` is 0 or -errno with a sentence, also where the helper was lost.
 * The call is freed afterwards. New calls may be made, the helper must stay.
 */
typedef void (*helper_fn)(struct helper_call *call, struct hand_answer_row *row);

struct helper_call {
    struct list in_helper; /* in helper->waiting, or alone while it is out */
    helper_fn answered;    /* NULL: a greeting; dropped with the helper that it was for */
    bool is_for_this;      /* likewise dropped, without an answer */
    struct hand *hand;
    hand_fn done; /* for the answer that the caller waits for */
    void *userdata;
    /* Of hand_signal_over(): what is sent after HAND_USED, and what that said. */
    struct hand_signal signal;
    struct hand_excess excess;
    struct hand_signalled seen;
    union hand_message message;
};

/* What a helper tells. */
struct helper_watcher {
    struct hand *hand;
    /* A new helper: make the calls that it is to begin with (helper_greet()). NULL: there are none.
     */
    int (*connected)(struct hand *hand);
    /* A row, checked, that belongs to helper->out; or an event. */
    void (*told)(struct hand *hand, union hand_message *message);
    /* The helper was given up, or no other can be had yet. */
    void (*lost)(struct hand *hand, const char *reason);
    /* Nothing is out and nothing waits. May be NULL. */
    void (*idle)(struct hand *hand);
};

struct helper {
    struct sd_event *event; /* borrowed */
    struct helper_watcher watcher;
    enum hand_role role;
    enum driver_choice driver;
    uint64_t timeout_usec;
    struct hand_link link;
    struct sd_event_source *io, *deadline, *retry;
    struct helper_call *out; /* asked, not answered */
    struct list greetings, waiting;
    uint64_t serial, backoff_usec;
    unsigned n_replaced;
};

/* Also connects. As hand_new(). */
int helper_init(struct helper *helper, enum hand_role role, const struct hand_options *options,
                const struct helper_watcher *watcher, struct allot_error *err);
void helper_done(struct helper *helper); /* also of zeroed memory; drops what is open */

/* A call that is not made yet; NULL: out of memory. */
struct helper_call *helper_call_new(struct hand *hand, uint32_t kind, helper_fn answered);
void helper_call_free(struct helper_call *call);

/* Takes the call. */
void helper_submit(struct helper *helper, struct helper_call *call);
/* Only from connected(). */
void helper_greet(struct helper *helper, struct helper_call *call);

/* Whether a call that is made now has to wait. */
bool helper_is_busy(const struct helper *helper);

/* Ask what is next, if nothing is out. */
void helper_ask_next(struct helper *helper);
