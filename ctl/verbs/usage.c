/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Usage: memory held over time, from the daemon's accounts.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/units.h"
#include "ctl/source/call.h"
#include "ctl/view/field.h"
#include "ctl/gpuctl.h"
#include "ctl/source/box_view.h"
#include "ctl/view/pretty.h"
#include "ctl/view/show.h"
#include "ctl/view/table.h"
#include "wire/snapshot.h"

enum { OPT_SINCE = 1, OPT_UNTIL, OPT_BY, OPT_JSON, OPT_CSV };

static const struct option_def options_table[] = {
    { OPT_SINCE, 's', "since", "WHEN", "7d (7 days ago), 2026-11-16, 2026-11-16 14:00",
      WORD_DURATION },
    { OPT_UNTIL, 0, "until", "WHEN", "likewise; now by default", WORD_DURATION },
    { OPT_BY, 'b', "by", "WHAT", "user, group or device", WORD_CHOICE, "user group device" },
    { OPT_JSON, 0, "json", NULL, "as JSON" },
    { OPT_CSV, 0, "csv", NULL, "as CSV" },
};

/* A duration before now, or a local date with or without a time. */
static int parse_when(const char *text, uint64_t now_usec, struct wire_maybe *ret) {
    static const char *const forms[] = { "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M",
                                         "%Y-%m-%dT%H:%M", "%Y-%m-%d" };
    uint64_t usec;

    if (!strcmp(text, "now")) {
        *ret = wire_some(now_usec);
        return 0;
    }
    for (size_t i = 0; i < ELEMENTSOF(forms); i++) {
        struct tm tm = { .tm_isdst = -1 };
        const char *end = strptime(text, forms[i], &tm);
        time_t at;

        if (!end || *end)
            continue;
        at = mktime(&tm);
        if (at < 0)
            return -EINVAL;
        *ret = wire_some((uint64_t)at * 1000000);
        return 0;
    }
    if (units_parse_usec(&usec, text) < 0)
        return -EINVAL;
    *ret = wire_some(usec < now_usec ? now_usec - usec : 0);
    return 0;
}

static const struct table_column columns[] = {
    { "WHO", TABLE_LEFT, 8 },  { "HELD", TABLE_RIGHT },          { "GUARANTEED", TABLE_RIGHT },
    { "LEASES", TABLE_RIGHT }, { "GRANTED", TABLE_RIGHT },       { "DENIED", TABLE_RIGHT },
    { "WAITED", TABLE_RIGHT }, { "ACTIONS", TABLE_RIGHT, 0, 2 }, { "XIDS", TABLE_RIGHT, 0, 1 },
};

/* Byte-seconds as GiB·hours, with two decimals. */
static const char *gib_hours(uint64_t byte_seconds, char text[static SHOW_SIZE]) {
    const uint64_t hundredths = byte_seconds / 3600 / ((UINT64_C(1) << 30) / 100);

    snprintf(text, SHOW_SIZE, "%" PRIu64 ".%02" PRIu64, hundredths / 100, hundredths % 100);
    return text;
}

/* A device's number and a short UUID; a device that is gone has no number. */
static const char *device_key(const struct wire_box *box, const char *uuid,
                              char text[static SHOW_SIZE]) {
    const struct wire_device *device = box ? snapshot_find_device(box, uuid) : NULL;
    char brief[SHOW_SIZE];

    show_uuid(uuid, brief);
    if (device)
        snprintf(text, SHOW_SIZE, "GPU %" PRIu64 " (%.*s)", device->index, SHOW_SIZE - 32, brief);
    else
        snprintf(text, SHOW_SIZE, "%s", brief);
    return text;
}

/* `box` may be NULL: then devices have no numbers. */
static int print(const struct term *term, const struct wire_usage_reply *reply, bool names_devices,
                 const struct wire_box *box) {
    cleanup(table_freep) struct table *table = table_new(columns, ELEMENTSOF(columns));
    char text[SHOW_SIZE];

    for (size_t i = 0; i < reply->n_rows; i++) {
        const struct wire_usage_row *row = &reply->rows[i];

        table_row(table);
        table_cell(table, STYLE_HEAD, "%s",
                   names_devices ? device_key(box, row->key, text) : row->key);
        table_cell(table, STYLE_PLAIN, "%s", gib_hours(row->held_byte_seconds, text));
        table_cell(table, STYLE_PLAIN, "%s", gib_hours(row->guaranteed_byte_seconds, text));
        table_cell(table, STYLE_PLAIN, "%" PRIu64, row->leases);
        table_cell(table, STYLE_PLAIN, "%" PRIu64, row->granted);
        table_cell(table, STYLE_PLAIN, "%" PRIu64, row->denied);
        table_cell(table, STYLE_PLAIN, "%s", show_age(0, row->wait_usec, text));
        table_cell(table, row->actions ? STYLE_WARN : STYLE_PLAIN, "%" PRIu64, row->actions);
        table_cell(table, row->xids ? STYLE_WARN : STYLE_PLAIN, "%" PRIu64, row->xids);
    }
    if (reply->n_rows == 0) {
        fprintf(term->out, "No usage was recorded in that period.\n");
        return 0;
    }
    if (table_print(table, term, 0) < 0)
        return -ENOMEM;
    term_paragraph(term, STYLE_DIM, 0, "held and guaranteed in GiB hours");
    return 0;
}

static void print_json(const struct wire_usage_reply *reply) {
    struct json_writer w = {};

    json_begin(&w, '[');
    for (size_t i = 0; i < reply->n_rows; i++) {
        json_begin(&w, '{');
        field_write_json(&wire_usage_row_type, &reply->rows[i], &w);
        json_end(&w, '}');
    }
    json_end(&w, ']');
    pretty_print(&w, stdout);
}

static void print_csv(const struct wire_usage_reply *reply) {
    field_write_csv(&wire_usage_row_type, NULL, true, stdout);
    putchar('\n');
    for (size_t i = 0; i < reply->n_rows; i++) {
        field_write_csv(&wire_usage_row_type, &reply->rows[i], true, stdout);
        putchar('\n');
    }
}

static int print_for_people(const struct gpuctl *ctl, const struct wire_usage_reply *reply,
                            bool names_devices) {
    cleanup(box_view_done) struct box_view box_view = {};
    const bool has_box = names_devices && box_view_take(&box_view, ctl, NULL, NULL) == 0;

    if (print(&ctl->term, reply, names_devices, has_box ? &box_view.box : NULL) < 0)
        return gpuctl_complain(EXIT_FAILED, "out of memory");
    return EXIT_OK;
}

static int run(struct gpuctl *ctl, int argc, char **argv) {
    cleanup(client_freep) struct client *client = NULL;
    const uint64_t now_usec = clock_usec(CLOCK_REALTIME);
    struct wire_usage usage = {};
    bool as_json = false, as_csv = false;
    union wire_reply reply;
    struct option_parser options;
    int id, status;

    option_parser_init(&options, ctl, &verb_usage, argc, argv);
    while ((id = option_parser_next(&options)) > 0)
        switch (id) {
        case OPT_SINCE:
        case OPT_UNTIL:
            if (parse_when(options.value, now_usec,
                           id == OPT_SINCE ? &usage.since_at : &usage.until_at) < 0)
                return gpuctl_complain_usage(&verb_usage,
                                             "\"%s\" is not a time: write 7d, or 2026-11-16 14:00",
                                             options.value);
            break;
        case OPT_BY:
            usage.by = words_find(wire_by_words, options.value);
            if (!usage.by)
                return gpuctl_complain_usage(
                    &verb_usage, "--by must be user, group or device, not \"%s\"", options.value);
            break;
        case OPT_JSON:
            as_json = true;
            break;
        default:
            as_csv = true;
        }
    if (id < 0)
        return options.status;
    if (options.first < argc)
        return gpuctl_complain_usage(&verb_usage, "unexpected argument \"%s\"",
                                     argv[options.first]);
    if (as_json && as_csv)
        return gpuctl_complain_usage(&verb_usage, "--json or --csv, not both");
    status = call_connect(&client, ctl);
    if (status == EXIT_OK)
        status = call_make(client, WIRE_METHOD_USAGE, &usage, &reply);
    if (status != EXIT_OK)
        return status;
    if (as_json)
        print_json(&reply.usage);
    else if (as_csv)
        print_csv(&reply.usage);
    else
        return print_for_people(ctl, &reply.usage, usage.by == WIRE_BY_DEVICE);
    return EXIT_OK;
}

const struct verb verb_usage = {
    .name = "usage",
    .operands = "",
    .summary = "memory held over time, by user, group or device",
    VERB_OPTIONS(options_table),
    .word = WORD_NONE,
    .notes = "GiB hours held and guaranteed, leases, verdicts, waiting. Example:\n"
             "  gpuctl usage --since 30d --by group\n",
    .run = run,
};
