/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Explain: why would this request wait? Shows the verdict that it would get now, and changes
 * nothing.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/cleanup.h"
#include "ctl/source/call.h"
#include "ctl/job/request_options.h"
#include "ctl/gpuctl.h"
#include "ctl/source/box_view.h"
#include "ctl/view/pretty.h"
#include "ctl/view/show.h"

enum { OPT_JSON = REQUEST_OPTIONS_END };

static const struct option_def options_table[] = {
    REQUEST_OPTIONS,
    { OPT_JSON, 0, "json", NULL, "as JSON" },
};

static void print_json(const struct wire_explain_reply *reply) {
    struct json_writer w = {};

    json_begin(&w, '{');
    json_name(&w, "verdict");
    json_put_string(&w, wire_verdict_name(reply->verdict));
    json_name(&w, "place");
    if (reply->place.has)
        json_put_int(&w, reply->place.value);
    else
        json_put_null(&w);
    json_name(&w, "reason");
    json_put_string(&w, reply->reason);
    json_name(&w, "devices");
    json_begin(&w, '[');
    for (size_t i = 0; i < reply->n_devices; i++)
        json_put_string(&w, reply->devices[i]);
    json_end(&w, ']');
    json_name(&w, "detail");
    json_begin(&w, '[');
    for (size_t i = 0; i < reply->n_detail; i++)
        json_put_string(&w, reply->detail[i]);
    json_end(&w, ']');
    json_end(&w, '}');
    pretty_print(&w, stdout);
}

static void say(const struct term *term, enum term_style style, size_t indent,
                const struct wire_box *box, const char *text) {
    cleanup(freep) char *sentence = show_sentence(box, text);

    term_paragraph(term, style, indent, sentence ? sentence : text);
}

/* `box` may be NULL: then devices are named by UUID. */
static void print(const struct term *term, const struct wire_box *box,
                  const struct wire_explain_reply *reply) {
    switch (reply->verdict) {
    case WIRE_VERDICT_GRANT:
        term_put(term, STYLE_GOOD, "It would be granted now.\n");
        break;
    case WIRE_VERDICT_WAIT:
        term_put(term, STYLE_WARN, "It would wait");
        if (reply->place.has)
            term_put(term, STYLE_WARN, ", in place %" PRIi64, reply->place.value);
        fputs(".\n", term->out);
        break;
    default:
        term_put(term, STYLE_BAD, "It would be denied.\n");
    }
    say(term, STYLE_PLAIN, 2, box, reply->reason);
    if (reply->verdict == WIRE_VERDICT_GRANT)
        for (size_t i = 0; i < reply->n_devices; i++)
            say(term, STYLE_PLAIN, 2, box, reply->devices[i]);
    for (size_t i = 0; i < reply->n_detail; i++)
        say(term, STYLE_DIM, 4, box, reply->detail[i]);
}

static int run(struct gpuctl *ctl, int argc, char **argv) {
    cleanup(client_freep) struct client *client = NULL;
    cleanup(request_options_done) struct request_options wanted;
    union wire_reply reply;
    struct option_parser options;
    bool as_json = false;
    int id, status;

    request_options_init(&wanted);
    option_parser_init(&options, ctl, &verb_explain, argc, argv);
    while ((id = option_parser_next(&options)) > 0) {
        if (id == OPT_JSON)
            as_json = true;
        else if (request_options_add(&wanted, &verb_explain, id, options.value) < 0)
            return EXIT_USAGE;
    }
    if (id < 0)
        return options.status;
    if (options.first < argc)
        return gpuctl_complain_usage(&verb_explain, "unexpected argument \"%s\"",
                                     argv[options.first]);
    if (request_options_finish(&wanted, &verb_explain) < 0)
        return EXIT_USAGE;
    /* As "gpuctl run" would ask. */
    wanted.request.confine = wanted.request.guard = wire_some(true);
    status = call_connect(&client, ctl);
    if (status == EXIT_OK && wanted.is_slurm) {
        status = call_make(client, WIRE_METHOD_GET_BOX, NULL, &reply);
        if (status == EXIT_OK && request_options_resolve(&wanted, reply.get_box.box) < 0)
            status = EXIT_NOT_FOUND;
    }
    if (status != EXIT_OK)
        return status;
    status =
        call_make(client, WIRE_METHOD_EXPLAIN, &(struct wire_explain){ &wanted.request }, &reply);
    if (status != EXIT_OK)
        return status;
    if (as_json)
        print_json(&reply.explain);
    else {
        struct box_view box_view;
        const bool has_box = box_view_take(&box_view, ctl, NULL, NULL) == 0;

        print(&ctl->term, has_box ? &box_view.box : NULL, &reply.explain);
        if (has_box)
            box_view_done(&box_view);
    }
    return reply.explain.verdict == WIRE_VERDICT_GRANT  ? EXIT_OK
           : reply.explain.verdict == WIRE_VERDICT_WAIT ? EXIT_WAITING
                                                        : EXIT_REFUSED;
}

const struct verb verb_explain = {
    .name = "explain",
    .operands = "",
    .summary = "would this request wait, and why? Nothing is changed",
    VERB_OPTIONS(options_table),
    .word = WORD_NONE,
    .notes = "Takes the options of \"gpuctl run\". Exit status: 0 it would be granted, 5 it would "
             "wait,\n4 it would be denied. Example:\n  gpuctl explain --gpus 2 --fraction 0.4\n",
    .run = run,
};
