/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/job/lease_wait.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/units.h"
#include "ctl/source/box_view.h"
#include "ctl/view/show.h"
#include "ctl/view/text.h"

/* A daemon that closes every connection is broken, not restarting. */
#define SILENT_MAX 5

/* A daemon that is silent for this long hangs: it normally answers in milliseconds, on a busy box
 * in a second. */
#define HANGS_USEC UINT64_C(2000000)

/* However long allotd says that it is busy, gpuctl asks again after this time. */
#define RETRY_MAX_USEC UINT64_C(60000000)

/* On a terminal, one line on stderr that is overwritten; otherwise a new line per change. */
struct progress {
    struct term term;
    bool quiet;
    bool shown; /* the terminal's line has text */
    const struct gpuctl *ctl;
    bool has_box_view, asked; /* a view of the devices, for their numbers */
    struct box_view box_view;
};

/* The daemon's words, with device numbers instead of UUIDs. For free(); NULL: no memory. */
static char *progress_words(struct progress *progress, const char *text) {
    cleanup(freep) char *sentence = NULL;

    if (!progress->asked) {
        progress->asked = true;
        progress->has_box_view = box_view_take(&progress->box_view, progress->ctl, NULL, NULL) == 0;
    }
    sentence = show_sentence(progress->has_box_view ? &progress->box_view.box : NULL, text);
    return sentence ? text_clean(sentence, progress->term.utf8) : NULL;
}

static int progress_fail(struct progress *progress, int status, const char *text) {
    cleanup(freep) char *words = progress_words(progress, text);

    return gpuctl_complain(status, "%s", words ? words : text);
}

static void progress_say(struct progress *progress, struct wire_maybe place, const char *reason) {
    cleanup(freep) char *sentence = NULL;
    cleanup(freep) char *clean = NULL;
    char number[SHOW_SIZE];

    if (progress->quiet)
        return;
    sentence = progress_words(progress, reason ? reason : "");
    if (asprintf(&clean, "gpuctl: waiting%s%s: %s", place.has ? ", place " : "",
                 place.has ? show_maybe(place, "", number) : "", sentence ? sentence : "") < 0) {
        clean = NULL;
        return;
    }
    if (progress->term.is_tty) {
        text_cut(clean, progress->term.width - 1, progress->term.utf8);
        fprintf(stderr, "\r\033[K%s", clean);
        progress->shown = true;
    } else
        fprintf(stderr, "%s\n", clean);
    fflush(stderr);
}

static void progress_end(struct progress *progress) {
    if (progress->shown)
        fputs("\r\033[K", stderr);
    progress->shown = false;
}

static void progress_done(struct progress *progress) {
    if (progress->has_box_view)
        box_view_done(&progress->box_view);
}

/* When the verdict must be there, unless allotd hangs; CLOCK_MONOTONIC. */
static uint64_t verdict_due(const struct request_options *wanted) {
    const struct wire_maybe *timeout = &wanted->request.timeout_usec;
    uint64_t wait_usec = wanted->no_wait ? 0 : timeout->has ? (uint64_t)timeout->value : UINT64_MAX;

    return units_add(units_add(clock_usec(CLOCK_MONOTONIC), wait_usec), HANGS_USEC);
}

/*
 * The next reply to Acquire. If allotd is silent, the user is told once (`has_sign`), and gpuctl
 * waits as for a restarting daemon. -ENOTCONN: no verdict came by the time it was due.
 */
static int hear(struct progress *progress, struct client *client, uint64_t due_usec, bool *has_sign,
                union wire_reply *reply, struct failure *failure, struct allot_error *err) {
    for (;;) {
        uint64_t now = clock_usec(CLOCK_MONOTONIC);
        uint64_t left = due_usec == UINT64_MAX ? UINT64_MAX : due_usec > now ? due_usec - now : 1;
        int r = client_receive(client, WIRE_METHOD_ACQUIRE,
                               *has_sign ? left : MIN(left, HANGS_USEC), -1, reply, failure, err);

        if (r != -ETIMEDOUT || failure->code != FAILURE_NONE) {
            *has_sign = true;
            return r;
        }
        r = client_silent(client_path(client), err);
        if (clock_usec(CLOCK_MONOTONIC) >= due_usec)
            return r;
        *has_sign = true; /* the user was told already */
        if (!progress->quiet)
            gpuctl_say("%s; waiting for it", err->text);
    }
}

/*
 * allotd is busy and says when to ask again: wait until then, if that is before `due_usec`, and
 * take the time off the request. False: it is not, or gpuctl does not wait.
 */
static bool wait_to_retry(struct progress *progress, const struct request_options *wanted,
                          const struct failure *failure, uint64_t due_usec,
                          struct wire_request *request) {
    uint64_t usec = MIN((uint64_t)failure->retry_usec.value, RETRY_MAX_USEC);
    uint64_t now = clock_usec(CLOCK_MONOTONIC);

    if (failure->code != FAILURE_BUSY || !failure->retry_usec.has || wanted->no_wait ||
        units_add(units_add(now, usec), HANGS_USEC) >= due_usec)
        return false;
    progress_say(progress, (struct wire_maybe){}, failure->reason);
    nanosleep(&(struct timespec){ .tv_sec = (time_t)(usec / 1000000),
                                  .tv_nsec = (long)(usec % 1000000 * 1000) },
              NULL);
    progress_end(progress);
    if (request->timeout_usec.has)
        request->timeout_usec.value =
            (int64_t)(due_usec - HANGS_USEC - clock_usec(CLOCK_MONOTONIC));
    return true;
}

int lease_wait_acquire(const struct gpuctl *ctl, const struct request_options *wanted, bool quiet,
                       struct client *client, const struct wire_grant **ret) {
    struct wire_request request = wanted->request;
    const struct wire_acquire call = { &request };
    cleanup(progress_done) struct progress progress = { .ctl = ctl, .quiet = quiet };
    struct allot_error err = {}, told = {};
    uint64_t due_usec = verdict_due(wanted);
    unsigned n_silent = 0; /* connections in a row that ended without a reply */
    bool has_sign = false;
    int r;

    term_init(&progress.term, stderr, ctl->colour, ctl->ascii);
    for (;;) {
        struct failure failure = {};
        union wire_reply reply;

        r = client_send(client, WIRE_METHOD_ACQUIRE, &call, VARLINK_MORE, &err);
        while (r >= 0) {
            r = hear(&progress, client, due_usec, &has_sign, &reply, &failure, &err);
            if (r < 0)
                break;
            if (reply.acquire.grant) {
                progress_end(&progress);
                *ret = reply.acquire.grant;
                return EXIT_OK;
            }
            n_silent = 0;
            progress_say(&progress, reply.acquire.place, reply.acquire.reason);
            if (r == 0)
                r = error_set(&err, -EPROTO, "allotd answered with neither a grant nor a reason");
        }
        progress_end(&progress);
        if (wait_to_retry(&progress, wanted, &failure, due_usec, &request))
            continue;
        /* A request that even an empty box could not grant is denied: here, no memory means "not
         * now". */
        if (failure.code == FAILURE_TIMEOUT ||
            (failure.code == FAILURE_NO_MEMORY && wanted->no_wait) ||
            (failure.code == FAILURE_BUSY && failure.retry_usec.has))
            return progress_fail(&progress, EXIT_RUN_WAITING, err.text);
        n_silent += !client_is_put_off(client);
        if (failure.code != FAILURE_NONE || client_is_connected(client) || wanted->no_wait ||
            n_silent == SILENT_MAX)
            return failure.code != FAILURE_NONE
                       ? progress_fail(&progress, EXIT_RUN_FAILED, err.text)
                       : gpuctl_complain(EXIT_RUN_FAILED, "%s", err.text);
        if (!quiet && strcmp(told.text, err.text) != 0)
            gpuctl_say("%s; asking again when allotd is back", err.text);
        told = err;
        client_close(client);
        has_sign = false;
        r = client_reconnect(client, UINT64_MAX, -1, &err);
        if (r < 0)
            return gpuctl_complain(EXIT_RUN_FAILED, "%s", err.text);
        /* A daemon that was away for long reports the timeout itself: give it the time to. */
        due_usec = MAX(due_usec, clock_usec(CLOCK_MONOTONIC) + HANGS_USEC);
    }
}
