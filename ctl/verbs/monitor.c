/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Monitor: events as they happen, until interrupted. If the daemon restarts, gpuctl waits for it
 * and reports the gap, because the events of that time are lost.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/cleanup.h"
#include "ctl/source/call.h"
#include "ctl/view/field.h"
#include "ctl/gpuctl.h"
#include "ctl/view/pretty.h"
#include "ctl/view/show.h"
#include "ctl/view/text.h"

enum { OPT_JSON = 1 };

static const struct option_def options_table[] = {
    { OPT_JSON, 0, "json", NULL, "as JSON, one object per line" },
};

static void print_json(const struct wire_event *event) {
    struct json_writer w = {};

    json_begin(&w, '{');
    field_write_json(&wire_event_type, event, &w);
    json_end(&w, '}');
    pretty_print_line(&w, stdout);
}

static void print(const struct term *term, const struct wire_event *event) {
    cleanup(freep) char *kind = text_clean(event->kind, term->utf8);
    cleanup(freep) char *text = text_clean(event->text, term->utf8);
    char when[SHOW_SIZE];

    term_put(term, STYLE_DIM, "%s  ", show_time(event->at, when));
    term_put(term, STYLE_HEAD, "%-10s", kind ? kind : "");
    fprintf(term->out, "  %s", text ? text : "");
    if (event->lease.has)
        term_put(term, STYLE_DIM, "  lease %" PRIi64, event->lease.value);
    if (event->pid.has)
        term_put(term, STYLE_DIM, "  pid %" PRIi64, event->pid.value);
    fputc('\n', term->out);
}

/* Print events until the connection ends. */
static int follow(const struct gpuctl *ctl, struct client *client, bool as_json,
                  struct failure *failure, struct allot_error *err) {
    int r;

    r = client_send(client, WIRE_METHOD_MONITOR, NULL, VARLINK_MORE, err);
    while (r >= 0) {
        union wire_reply reply;

        r = client_receive(client, WIRE_METHOD_MONITOR, UINT64_MAX, -1, &reply, failure, err);
        if (r < 0)
            break;
        if (reply.monitor.event && as_json)
            print_json(reply.monitor.event);
        else if (reply.monitor.event)
            print(&ctl->term, reply.monitor.event);
        if (fflush(stdout) != 0)
            return -EPIPE;
        if (r == 0)
            return error_set(err, -ENOTCONN, "allotd ended the stream");
    }
    return r;
}

static int run(struct gpuctl *ctl, int argc, char **argv) {
    cleanup(client_freep) struct client *client = NULL;
    struct allot_error err = {};
    struct failure failure = {};
    struct option_parser options;
    bool as_json = false;
    int id, r, status;

    option_parser_init(&options, ctl, &verb_monitor, argc, argv);
    while ((id = option_parser_next(&options)) > 0)
        as_json = true;
    if (id < 0)
        return options.status;
    if (options.first < argc)
        return gpuctl_complain_usage(&verb_monitor, "unexpected argument \"%s\"",
                                     argv[options.first]);
    status = call_connect(&client, ctl);
    if (status != EXIT_OK)
        return status;
    for (;;) {
        r = follow(ctl, client, as_json, &failure, &err);
        if (r == -EPIPE)
            return gpuctl_complain(EXIT_FAILED, "cannot write: %m");
        if (failure.code != FAILURE_NONE)
            return call_complain(r, &failure, &err);
        gpuctl_say("%s; waiting for allotd to come back", err.text);
        client_close(client);
        r = client_reconnect(client, UINT64_MAX, -1, &err);
        if (r < 0)
            return call_complain(r, NULL, &err);
        gpuctl_say("allotd is back; what happened meanwhile is not shown");
    }
}

const struct verb verb_monitor = {
    .name = "monitor",
    .operands = "",
    .summary = "events as they happen, until interrupted",
    VERB_OPTIONS(options_table),
    .word = WORD_NONE,
    .run = run,
};
