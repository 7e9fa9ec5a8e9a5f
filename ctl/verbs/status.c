/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verbs that look and change nothing: status, devices, leases, queue.
 *
 * One road for all: take a picture, leave out what was not asked for, show it as tables, JSON or
 * CSV, and again after a while if it is to be watched.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/units.h"
#include "ctl/gpuctl.h"
#include "ctl/source/box_view.h"
#include "ctl/view/view.h"

enum { OPT_JSON = 1, OPT_CSV, OPT_DEVICE, OPT_USER, OPT_WATCH };

#define LOOK_OPTIONS(csv_value, csv_help)                                                          \
    { OPT_JSON, 0, "json", NULL, "everything as JSON, see gpuctl(1)" },                            \
        { OPT_CSV, 0, "csv", csv_value, csv_help, WORD_CHOICE, "devices leases processes queue" }, \
        { OPT_DEVICE,  'i', "device", "DEVICE", "only these: index, UUID or bus id, by commas",    \
          WORD_DEVICES },                                                                          \
        { OPT_USER, 'u', "user", "USER", "only this user's, by name or uid", WORD_USER }, {        \
        OPT_WATCH, 'w', "watch", "[=SECONDS]", "again and again, every 2 s or as said",            \
            WORD_DURATION                                                                          \
    }

static const struct option_def status_options[] = { LOOK_OPTIONS(
    "[=TABLE]", "devices (or leases, processes, queue) as CSV, in bytes") };
static const struct option_def other_options[] = { LOOK_OPTIONS(NULL, "as CSV, in bytes") };

struct look {
    int (*print)(const struct view *view, const struct term *term);
    bool as_json, as_csv;
    enum csv_table csv;
    struct picture_filter filter;
    bool user_is_known;  /* once is enough: whose last job has ended may still be watched */
    uint64_t watch_usec; /* 0: once */
    const char *nothing; /* what to say where the table would be empty */
    size_t (*count)(const struct wire_box *box);
};

static int show(const struct look *look, const struct picture *picture, const struct term *term) {
    if (look->as_json)
        return view_json(&picture->view, term->out);
    if (look->as_csv) {
        view_csv(&picture->box, look->csv, term->out);
        return 0;
    }
    if (look->count && look->count(&picture->box) == 0) {
        if (!picture->view.is_managed)
            return view_head(&picture->view, term);
        fprintf(term->out, "%s\n", look->nothing);
        return 0;
    }
    return look->print(&picture->view, term);
}

/* One picture onto the output. The text of a failure is in `err`. */
static int look_once(struct look *look, const struct gpuctl *ctl, struct client *client,
                     const struct term *term, struct allot_error *err) {
    struct picture picture;
    int r;

    r = picture_take(&picture, ctl, client, err);
    if (r < 0)
        return r;
    if (look->filter.user && !look->user_is_known)
        r = picture_check_user(&picture, look->filter.user, err);
    if (r == 0) {
        look->user_is_known = true;
        r = picture_filter(&picture, &look->filter, err);
    }
    if (r == 0) {
        r = show(look, &picture, term);
        if (r < 0)
            error_set(err, r, "out of memory");
    }
    picture_done(&picture);
    return r;
}

/* Over the screen as it is, line by line, so that nothing flickers. */
static void repaint(const struct term *term, const char *page, size_t length) {
    const char *end = page + length;

    fputs("\033[H", term->out);
    while (page < end) {
        const char *line_end = memchr(page, '\n', end - page);
        const size_t n = (line_end ? line_end : end) - page;

        fwrite(page, 1, n, term->out);
        fputs("\033[K\n", term->out);
        page += n + 1;
    }
    fputs("\033[J", term->out);
}

static int look_again(struct look *look, struct gpuctl *ctl, struct client *client) {
    const bool is_screen = ctl->term.is_tty && !look->as_json && !look->as_csv;
    struct timespec pause = { look->watch_usec / 1000000, look->watch_usec % 1000000 * 1000 };

    if (is_screen)
        fputs("\033[2J", ctl->term.out);
    for (;;) {
        cleanup(freep) char *page = NULL;
        struct allot_error err = {};
        struct term term;
        size_t length;
        int r;

        term_measure(&ctl->term);
        term = ctl->term;
        term.out = open_memstream(&page, &length);
        if (!term.out)
            return complain(EXIT_FAILED, "out of memory");
        r = look_once(look, ctl, client, &term, &err);
        if (r < 0)
            fprintf(term.out, "%s\n", err.text);
        if (fclose(term.out) != 0)
            return complain(EXIT_FAILED, "out of memory");
        if (r == -ENOENT || r == -EINVAL) /* a filter that names nothing will not come true */
            return complain(EXIT_NOT_FOUND, "%s", err.text);
        if (is_screen)
            repaint(&ctl->term, page, length);
        else
            fprintf(ctl->term.out, "%s%s", page, look->as_json || look->as_csv ? "" : "\n");
        if (fflush(ctl->term.out) != 0)
            return complain(EXIT_FAILED, "cannot write: %m");
        while (nanosleep(&pause, &pause) < 0 && errno == EINTR)
            ;
        pause = (struct timespec){ look->watch_usec / 1000000, look->watch_usec % 1000000 * 1000 };
    }
}

static int look_at(struct look *look, const struct verb *verb, struct gpuctl *ctl, int argc,
                   char **argv) {
    cleanup(client_freep) struct client *client = NULL;
    struct allot_error err = {};
    struct options options;
    int id, r;

    options_init(&options, ctl, verb, argc, argv);
    while ((id = options_next(&options)) > 0)
        switch (id) {
        case OPT_JSON:
            look->as_json = true;
            break;
        case OPT_CSV:
            look->as_csv = true;
            if (options.value && csv_table_parse(&look->csv, options.value) < 0)
                return complain_usage(verb,
                                      "--csv is of devices, leases, processes or queue, not \"%s\"",
                                      options.value);
            break;
        case OPT_DEVICE:
            look->filter.devices = options.value;
            break;
        case OPT_USER:
            look->filter.user = options.value;
            break;
        case OPT_WATCH:
            look->watch_usec = 2000000;
            if (options.value && (units_parse_usec(&look->watch_usec, options.value) < 0 ||
                                  look->watch_usec < 100000 || look->watch_usec > 86400000000))
                return complain_usage(verb, "--watch=%s: a time from 100ms to 1d is meant",
                                      options.value);
            break;
        }
    if (id < 0)
        return options.status;
    if (options.first < argc)
        return complain_usage(verb, "what is \"%s\"?", argv[options.first]);
    if (look->as_json && look->as_csv)
        return complain_usage(verb, "--json or --csv, not both");

    if (!look->watch_usec) {
        r = look_once(look, ctl, NULL, &ctl->term, &err);
        if (r == 0)
            return EXIT_OK;
        return complain(r == -EHOSTDOWN                ? EXIT_NO_DAEMON
                        : r == -ENOENT || r == -EINVAL ? EXIT_NOT_FOUND
                                                       : EXIT_FAILED,
                        "%s", err.text);
    }
    r = client_new(&client, ctl->socket, &err);
    if (r < 0)
        return complain(EXIT_FAILED, "%s", err.text);
    return look_again(look, ctl, client);
}

static size_t count_leases(const struct wire_box *box) {
    return box->n_leases;
}

static size_t count_queue(const struct wire_box *box) {
    return box->n_queue;
}

static int run_status(struct gpuctl *ctl, int argc, char **argv) {
    struct look look = { .print = view_status, .csv = CSV_DEVICES };

    return look_at(&look, &verb_status, ctl, argc, argv);
}

static int run_devices(struct gpuctl *ctl, int argc, char **argv) {
    struct look look = { .print = view_devices, .csv = CSV_DEVICES };

    return look_at(&look, &verb_devices, ctl, argc, argv);
}

static int run_leases(struct gpuctl *ctl, int argc, char **argv) {
    struct look look = { .print = view_leases,
                         .csv = CSV_LEASES,
                         .count = count_leases,
                         .nothing = "There is no lease." };

    return look_at(&look, &verb_leases, ctl, argc, argv);
}

static int run_queue(struct gpuctl *ctl, int argc, char **argv) {
    struct look look = {
        .print = view_queue, .csv = CSV_QUEUE, .count = count_queue, .nothing = "Nobody waits."
    };

    return look_at(&look, &verb_queue, ctl, argc, argv);
}

const struct verb verb_status = {
    .name = "status",
    .operands = "",
    .summary = "devices, leases, processes and who waits, on one page",
    VERB_OPTIONS(status_options),
    .word = WORD_NONE,
    .notes = "Without allotd it shows what the driver says, and that nothing is managed.\n"
             "A process without a lease is \"unmanaged\"; a lease that holds memory and computed\n"
             "nothing for a minute is \"idle\". Unknown readings are N/A.\n",
    .run = run_status,
};

const struct verb verb_devices = {
    .name = "devices",
    .operands = "",
    .summary = "everything known about each device",
    VERB_OPTIONS(other_options),
    .word = WORD_NONE,
    .run = run_devices,
};

const struct verb verb_leases = {
    .name = "leases",
    .operands = "",
    .summary = "who holds what",
    VERB_OPTIONS(other_options),
    .word = WORD_NONE,
    .run = run_leases,
};

const struct verb verb_queue = {
    .name = "queue",
    .operands = "",
    .summary = "who waits, in which place and why",
    VERB_OPTIONS(other_options),
    .word = WORD_NONE,
    .run = run_queue,
};
