/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verbs that only show: status, devices, leases, queue.
 *
 * All work the same way: read the box, filter it, print it as tables, JSON or CSV, and with --watch
 * repeat after a while.
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
#include "ctl/source/remote.h"
#include "ctl/view/view.h"

enum { OPT_JSON = 1, OPT_CSV, OPT_DEVICE, OPT_USER, OPT_WATCH };

#define QUERY_OPTIONS(csv_value, csv_help)                                                         \
    { OPT_JSON, 0, "json", NULL, "everything as JSON, see gpuctl(1)" },                            \
        { OPT_CSV, 0, "csv", csv_value, csv_help, WORD_CHOICE, "devices leases processes queue" }, \
        { OPT_DEVICE,  'i', "device", "DEVICE", "only these: index, UUID or bus id; a comma list", \
          WORD_DEVICES },                                                                          \
        { OPT_USER, 'u', "user", "USER", "only this user's, by name or uid", WORD_USER }, {        \
        OPT_WATCH, 'w', "watch", "[=SECONDS]", "repeat every 2 s, or as often as you say",         \
            WORD_DURATION                                                                          \
    }

static const struct option_def status_options[] = { QUERY_OPTIONS(
    "[=TABLE]", "devices (or leases, processes, queue) as CSV, in bytes") };
static const struct option_def other_options[] = { QUERY_OPTIONS(NULL, "as CSV, in bytes") };

struct query {
    int (*print)(const struct view *view, const struct term *term);
    bool as_json, as_csv;
    enum view_csv_table csv;
    struct box_view_filter filter;
    bool user_is_known;  /* checked once: a user whose last job has ended can still be watched */
    uint64_t watch_usec; /* 0: no repetition */
    const char *nothing; /* message if the table would be empty */
    size_t (*count)(const struct wire_box *box);
};

static int show(const struct query *query, const struct box_view *box_view,
                const struct term *term) {
    if (query->as_json)
        return view_json(&box_view->view, term->out);
    if (query->as_csv) {
        view_csv(&box_view->box, query->csv, term->out);
        return 0;
    }
    if (query->count && query->count(&box_view->box) == 0) {
        if (!box_view->view.is_managed)
            return view_head(&box_view->view, term);
        fprintf(term->out, "%s\n", query->nothing);
        return 0;
    }
    return query->print(&box_view->view, term);
}

/* CSV of one host, with its name before every line but the header, which is for the first host. */
static int csv_of_host(const struct query *query, const struct remote_host *host, bool is_first,
                       FILE *out) {
    cleanup(freep) char *text = NULL;
    size_t length = 0;
    FILE *to = open_memstream(&text, &length);
    char *rest = NULL;
    bool is_header = true;

    if (!to)
        return -ENOMEM;
    view_csv(&host->snapshot->box, query->csv, to);
    if (fclose(to) != 0)
        return -ENOMEM;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        if (!is_header || is_first)
            fprintf(out, "%s,%s\n", is_header ? "host" : host->name, line);
        is_header = false;
    }
    return 0;
}

static int json_of_hosts(const struct view *views, size_t n, FILE *out) {
    int r = 0;

    fputs("{\"schema\": 1, \"hosts\": [", out);
    for (size_t i = 0; r == 0 && i < n; i++) {
        fprintf(out, "%s\n{\"name\": \"%s\", \"status\": ", i ? "," : "", views[i].host);
        if (views[i].box)
            r = view_json(&views[i], out);
        else {
            struct json_writer w = {};

            json_put_string(&w, views[i].trouble);
            fprintf(out, "null, \"trouble\": %.*s", (int)w.len, w.data ? w.data : "null");
            r = w.failed ? -ENOMEM : 0;
            json_writer_done(&w);
        }
        fputc('}', out);
    }
    fputs("\n]}\n", out);
    return r;
}

/* The same for several hosts. -EHOSTDOWN: some did not answer, and `err` names them; the others are
 * printed. */
static int query_hosts(const struct query *query, const struct gpuctl *ctl, const struct term *term,
                       struct allot_error *err) {
    cleanup(freep) struct remote_host *hosts = calloc(REMOTE_HOSTS_MAX, sizeof(*hosts));
    const char *words[] = { NULL, NULL, NULL, NULL, NULL };
    struct view views[REMOTE_HOSTS_MAX];
    size_t n = 0, n_words = 0, n_silent = 0, length = 0;
    bool is_first = true;
    char silent[320] = "";
    int r;

    if (!hosts)
        return error_set(err, -ENOMEM, "out of memory");
    r = remote_hosts_parse(ctl->host, hosts, &n);
    if (r < 0)
        return error_set(err, r, "-H %s: expected 1 to %d hosts, [USER@]HOST[:PORT], with commas",
                         ctl->host, REMOTE_HOSTS_MAX);
    if (query->filter.devices) {
        words[n_words++] = "--device";
        words[n_words++] = query->filter.devices;
    }
    if (query->filter.user) {
        words[n_words++] = "--user";
        words[n_words++] = query->filter.user;
    }
    r = remote_gather(ctl, words, hosts, n);
    for (size_t i = 0; i < n; i++) {
        const struct remote_host *host = &hosts[i];

        views[i] = (struct view){ .host = host->name,
                                  .box = host->snapshot ? &host->snapshot->box : NULL,
                                  .is_managed = host->is_managed,
                                  .trouble = host->trouble.code ? host->trouble.text : NULL,
                                  .now_usec = host->at_usec };
        if (host->snapshot)
            continue;
        n_silent++;
        if (length < sizeof(silent))
            length += (size_t)snprintf(silent + length, sizeof(silent) - length, "%s%s",
                                       length ? ", " : "", host->name);
    }
    if (r == 0 && query->as_json)
        r = json_of_hosts(views, n, term->out);
    else if (r == 0 && query->as_csv)
        for (size_t i = 0; r == 0 && i < n; i++) {
            if (!hosts[i].snapshot)
                continue;
            r = csv_of_host(query, &hosts[i], is_first, term->out);
            is_first = false;
        }
    else if (r == 0)
        r = view_hosts(views, n, term);
    remote_hosts_done(hosts, n);
    if (r < 0)
        return error_set(err, r, "out of memory");
    return n_silent == 0 ? 0
                         : error_set(err, -EHOSTDOWN, "%zu of %zu hosts did not answer: %s",
                                     n_silent, n, silent);
}

/* Read the box and print it once. `err` has the text of a failure. */
static int query_once(struct query *query, const struct gpuctl *ctl, struct client *client,
                      const struct term *term, struct allot_error *err) {
    struct box_view box_view;
    int r;

    if (ctl->host)
        return query_hosts(query, ctl, term, err);
    r = box_view_take(&box_view, ctl, client, err);
    if (r < 0)
        return r;
    if (query->filter.user && !query->user_is_known)
        r = box_view_check_user(&box_view, query->filter.user, err);
    if (r == 0) {
        query->user_is_known = true;
        r = box_view_filter(&box_view, &query->filter, err);
    }
    if (r == 0) {
        r = show(query, &box_view, term);
        if (r < 0)
            error_set(err, r, "out of memory");
    }
    box_view_done(&box_view);
    return r;
}

/* Overwrite the screen line by line, so that nothing flickers. */
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

static int query_again(struct query *query, struct gpuctl *ctl, struct client *client) {
    const bool is_screen = ctl->term.is_tty && !query->as_json && !query->as_csv;
    struct timespec pause = { query->watch_usec / 1000000, query->watch_usec % 1000000 * 1000 };

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
            return gpuctl_complain(EXIT_FAILED, "out of memory");
        r = query_once(query, ctl, client, &term, &err);
        if (r < 0)
            term_paragraph(&term, STYLE_PLAIN, 0, err.text);
        if (fclose(term.out) != 0)
            return gpuctl_complain(EXIT_FAILED, "out of memory");
        if (r == -ENOENT || r == -EINVAL) /* waiting does not help: the filter names nothing that
                                             exists */
            return gpuctl_complain(EXIT_NOT_FOUND, "%s", err.text);
        if (is_screen)
            repaint(&ctl->term, page, length);
        else
            fprintf(ctl->term.out, "%s%s", page, query->as_json || query->as_csv ? "" : "\n");
        if (fflush(ctl->term.out) != 0)
            return gpuctl_complain(EXIT_FAILED, "cannot write: %m");
        while (nanosleep(&pause, &pause) < 0 && errno == EINTR)
            ;
        pause =
            (struct timespec){ query->watch_usec / 1000000, query->watch_usec % 1000000 * 1000 };
    }
}

static int query_run(struct query *query, const struct verb *verb, struct gpuctl *ctl, int argc,
                     char **argv) {
    cleanup(client_freep) struct client *client = NULL;
    struct allot_error err = {};
    struct option_parser options;
    int id, r;

    option_parser_init(&options, ctl, verb, argc, argv);
    while ((id = option_parser_next(&options)) > 0)
        switch (id) {
        case OPT_JSON:
            query->as_json = true;
            break;
        case OPT_CSV:
            query->as_csv = true;
            if (options.value && view_csv_table_parse(&query->csv, options.value) < 0)
                return gpuctl_complain_usage(
                    verb, "--csv must be devices, leases, processes or queue, not \"%s\"",
                    options.value);
            break;
        case OPT_DEVICE:
            query->filter.devices = options.value;
            break;
        case OPT_USER:
            query->filter.user = options.value;
            break;
        case OPT_WATCH:
            query->watch_usec = 2000000;
            if (options.value && (units_parse_usec(&query->watch_usec, options.value) < 0 ||
                                  query->watch_usec < 100000 || query->watch_usec > 86400000000))
                return gpuctl_complain_usage(verb, "--watch=%s: expected a time from 100ms to 1d",
                                             options.value);
            break;
        }
    if (id < 0)
        return options.status;
    if (options.first < argc)
        return gpuctl_complain_usage(verb, "unexpected argument \"%s\"", argv[options.first]);
    if (query->as_json && query->as_csv)
        return gpuctl_complain_usage(verb, "--json or --csv, not both");

    if (!query->watch_usec) {
        r = query_once(query, ctl, NULL, &ctl->term, &err);
        if (r == 0)
            return EXIT_OK;
        return gpuctl_complain(r == -EHOSTDOWN                ? EXIT_NO_DAEMON
                               : r == -ENOENT || r == -EINVAL ? EXIT_NOT_FOUND
                                                              : EXIT_FAILED,
                               "%s", err.text);
    }
    r = client_new(&client, ctl->socket, &err);
    if (r < 0)
        return gpuctl_complain(EXIT_FAILED, "%s", err.text);
    return query_again(query, ctl, client);
}

static size_t count_leases(const struct wire_box *box) {
    return box->n_leases;
}

static size_t count_queue(const struct wire_box *box) {
    return box->n_queue;
}

static int run_status(struct gpuctl *ctl, int argc, char **argv) {
    struct query query = { .print = view_status, .csv = VIEW_CSV_DEVICES };

    return query_run(&query, &verb_status, ctl, argc, argv);
}

static int run_devices(struct gpuctl *ctl, int argc, char **argv) {
    struct query query = { .print = view_devices, .csv = VIEW_CSV_DEVICES };

    return query_run(&query, &verb_devices, ctl, argc, argv);
}

static int run_leases(struct gpuctl *ctl, int argc, char **argv) {
    struct query query = { .print = view_leases,
                           .csv = VIEW_CSV_LEASES,
                           .count = count_leases,
                           .nothing = "There are no leases." };

    return query_run(&query, &verb_leases, ctl, argc, argv);
}

static int run_queue(struct gpuctl *ctl, int argc, char **argv) {
    struct query query = { .print = view_queue,
                           .csv = VIEW_CSV_QUEUE,
                           .count = count_queue,
                           .nothing = "The queue is empty." };

    return query_run(&query, &verb_queue, ctl, argc, argv);
}

const struct verb verb_status = {
    .name = "status",
    .operands = "",
    .takes_hosts = true,
    .summary = "devices, leases, processes and the queue, on one page",
    VERB_OPTIONS(status_options),
    .word = WORD_NONE,
    .notes = "Without allotd it shows what the driver reports, and says that nothing is "
             "managed.\nA process without a lease is \"unmanaged\"; a lease that holds memory and "
             "computed\nnothing for a minute is \"idle\". Unknown readings are N/A.\n",
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
    .summary = "leases and the memory that they hold",
    VERB_OPTIONS(other_options),
    .word = WORD_NONE,
    .run = run_leases,
};

const struct verb verb_queue = {
    .name = "queue",
    .operands = "",
    .summary = "waiting requests: their places and reasons",
    VERB_OPTIONS(other_options),
    .word = WORD_NONE,
    .run = run_queue,
};
