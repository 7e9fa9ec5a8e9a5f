/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views: tables of devices, leases, processes and the queue.
 *
 * From 132 columns on, a device is one row. With fewer, its facts and its memory are two tables
 * with the same first column, so that numbers still line up.
 */
#include "ctl/view/view.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/units.h"
#include "ctl/view/show.h"
#include "ctl/view/table.h"
#include "wire/snapshot.h"

#define WIDE 132 /* minimum width for one row per device */

/* A lease that computed nothing for this long is marked. */
#define IDLE_LEAST_USEC (60 * UINT64_C(1000000))

bool view_lease_is_idle(const struct wire_lease *lease) {
    uint64_t held = 0;

    for (size_t i = 0; i < lease->n_shares; i++)
        held += lease->shares[i].held_bytes;
    return held > 0 && lease->idle_usec.has && lease->idle_usec.value >= (int64_t)IDLE_LEAST_USEC;
}

/* Begin a row; in a table of several hosts, with the host's name. Such tables have a column for it,
 * with which the array of their columns begins. */
static void row_begin(struct table *table, const struct view *view) {
    table_row(table);
    if (view->host)
        table_cell(table, STYLE_HEAD, "%s", view->host);
}

#define TABLE_OF(views, columns)                                                                   \
    table_new((columns) + !(views)->host, ELEMENTSOF(columns) - !(views)->host)

/* The box in which to look up devices and leases that others refer to. */
static const struct wire_box *whole(const struct view *view) {
    return view->whole ? view->whole : view->box;
}

static const struct wire_tier *find_tier(const struct wire_box *box, uint64_t number) {
    for (size_t i = 0; i < box->n_tiers; i++)
        if (box->tiers[i].number == number)
            return &box->tiers[i];
    return NULL;
}

/* ---- Head
 * ---------------------------------------------------------------------------------------- */

/* Whether a tier comes with the programs of a job: a box that lacks it is not at fault. */
static bool is_programs_own(const struct wire_tier *tier) {
    return tier->number == 3 || tier->number == 4;
}

/* "3 guard, 5 watch": the proven tiers, or those that the box lacks; "" if none. For free(). */
static char *tier_names(const struct wire_box *box, bool proven) {
    char *text = NULL;
    size_t length;
    FILE *to = open_memstream(&text, &length);
    bool first = true;

    if (!to)
        return NULL;
    for (size_t i = 0; i < box->n_tiers; i++) {
        if (box->tiers[i].proven != proven || (!proven && is_programs_own(&box->tiers[i])))
            continue;
        fprintf(to, "%s%" PRIu64 " %s", first ? "" : ", ", box->tiers[i].number,
                box->tiers[i].name);
        first = false;
    }
    return fclose(to) == 0 ? text : NULL;
}

static int say(const struct term *term, enum term_style style, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static int say(const struct term *term, enum term_style style, const char *format, ...) {
    cleanup(freep) char *text = NULL;
    va_list args;
    int n;

    va_start(args, format);
    n = vasprintf(&text, format, args);
    va_end(args);
    if (n < 0) {
        text = NULL;
        return -ENOMEM;
    }
    term_paragraph(term, style, 0, text);
    return 0;
}

int view_head(const struct view *view, const struct term *term) {
    const struct wire_box *box = view->box;
    const char *version = box->driver_version ? box->driver_version : "N/A";
    cleanup(freep) char *proven = tier_names(box, true);
    cleanup(freep) char *absent = tier_names(box, false);
    char text[SHOW_SIZE];
    int r;

    if (!proven || !absent)
        return -ENOMEM;
    if (!view->is_managed) {
        r = say(term, STYLE_HEAD, "%s  driver %s (%s)", box->host, version, box->driver);
        if (r < 0)
            return r;
        return say(term, STYLE_WARN, "Nothing is managed: %s. This is what the driver reports.",
                   view->trouble ? view->trouble : "allotd does not answer");
    }
    r = say(term, STYLE_HEAD, "%s  allotd %s, up %s  driver %s (%s)", box->host, box->version,
            show_age(box->started_at, view->now_usec, text), version, box->driver);
    if (r < 0)
        return r;
    r = say(term, STYLE_PLAIN, "mode %s  enforced by %s%s%s", wire_box_mode_name(box->mode),
            *proven ? proven : "nothing", *absent ? "  absent: " : "", absent);
    if (r < 0)
        return r;
    if (box->grace_usec.has && box->grace_usec.value > 0)
        return say(
            term, STYLE_WARN,
            "allotd was restarted: it grants nothing new for %s, while running jobs come back",
            show_age(0, box->grace_usec.value + 999999, text));
    return 0;
}

/* ---- Devices
 * ------------------------------------------------------------------------------------- */

static enum term_style device_style(const struct wire_device *device) {
    if (device->state == WIRE_DEVICE_LOST)
        return STYLE_BAD;
    return device->state == WIRE_DEVICE_READY && !device->stale_usec.has ? STYLE_GOOD : STYLE_WARN;
}

static void health_cell(struct table *table, const struct wire_device *device) {
    char text[SHOW_SIZE];

    if (device->stale_usec.has && device->state != WIRE_DEVICE_LOST)
        table_cell(table, device_style(device), "stale %s",
                   show_age(0, device->stale_usec.value, text));
    else
        table_cell(table, device_style(device), "%s", wire_device_state_name(device->state));
}

/* The device number; an instance is indented under its GPU. */
static void index_cell(struct table *table, const struct wire_device *device) {
    table_cell(table, STYLE_HEAD, "%" PRIu64 "%s", device->index,
               device->kind == WIRE_DEVICE_MIG ? "m" : "");
}

static void fact_cells(struct table *table, const struct wire_device *device) {
    char text[SHOW_SIZE];

    table_cell(table, STYLE_PLAIN, "%s", show_name(device));
    table_cell(table, STYLE_PLAIN, "%s", show_bus_id(device->bus_id, text));
    table_cell(table, STYLE_PLAIN, "%s", show_uuid(device->uuid, text));
    table_cell(table, STYLE_PLAIN, "%s", show_maybe(device->temperature_celsius, "C", text));
    table_cell(table, STYLE_PLAIN, "%s",
               show_power(device->power_milliwatts, device->power_limit_milliwatts, text));
    table_cell(table, STYLE_PLAIN, "%s", show_maybe(device->utilization_percent, "%", text));
}

static void memory_cells(struct table *table, const struct wire_device *device, size_t bar_width,
                         bool utf8) {
    const struct show_bar parts = show_bar_of(device);
    cleanup(freep) char *bar = show_bar(&parts, bar_width, utf8);
    char text[SHOW_SIZE];

    table_cell(table, STYLE_PLAIN, "%s", bar ? bar : "");
    table_cell(table, STYLE_PLAIN, "%s", show_maybe_bytes(device->used_bytes, text));
    table_cell(table, STYLE_PLAIN, "%s", show_bytes(device->leased_bytes, text));
    table_cell(table, STYLE_PLAIN, "%s", show_bytes(device->guaranteed_bytes, text));
    table_cell(table, device->unmanaged_bytes ? STYLE_WARN : STYLE_PLAIN, "%s",
               show_bytes(device->unmanaged_bytes, text));
    table_cell(table, STYLE_PLAIN, "%s", show_bytes(device->free_bytes, text));
    table_cell(table, STYLE_PLAIN, "%s", show_bytes(device->usable_bytes, text));
}

static void device_notes(struct table *table, const struct wire_device *device) {
    char text[SHOW_SIZE];

    if (device->overcommitted_bytes)
        table_note(table, STYLE_BAD,
                   "overcommitted by %s: processes outside leases use leased memory",
                   show_bytes(device->overcommitted_bytes, text));
    else if (device->releasing_bytes)
        table_note(table, STYLE_DIM, "%s are still being released by the driver",
                   show_bytes(device->releasing_bytes, text));
}

static const struct table_column wide_columns[] = {
    { "GPU", TABLE_RIGHT },       { "NAME", TABLE_LEFT, 10 },    { "BUS ID", TABLE_LEFT },
    { "UUID", TABLE_LEFT, 0, 1 }, { "TEMP", TABLE_RIGHT },       { "POWER", TABLE_RIGHT },
    { "UTIL", TABLE_RIGHT },      { "MEMORY", TABLE_LEFT },      { "USED", TABLE_RIGHT },
    { "LEASED", TABLE_RIGHT },    { "GUARANTEED", TABLE_RIGHT }, { "UNMANAGED", TABLE_RIGHT },
    { "FREE", TABLE_RIGHT },      { "USABLE", TABLE_RIGHT },     { "HEALTH", TABLE_LEFT },
};

static const struct table_column fact_columns[] = {
    { "GPU", TABLE_RIGHT },       { "NAME", TABLE_LEFT, 8 },     { "BUS ID", TABLE_LEFT, 0, 2 },
    { "UUID", TABLE_LEFT, 0, 3 }, { "TEMP", TABLE_RIGHT, 0, 4 }, { "POWER", TABLE_RIGHT, 0, 5 },
    { "UTIL", TABLE_RIGHT },      { "HEALTH", TABLE_LEFT },
};

static const struct table_column memory_columns[] = {
    { "GPU", TABLE_RIGHT },
    { "MEMORY", TABLE_LEFT },
    { "USED", TABLE_RIGHT },
    { "LEASED", TABLE_RIGHT },
    { "GUARANTEED", TABLE_RIGHT, 0, 3 },
    { "UNMANAGED", TABLE_RIGHT, 0, 2 },
    { "FREE", TABLE_RIGHT },
    { "USABLE", TABLE_RIGHT, 0, 1 },
};

static int devices_wide(const struct view *view, const struct term *term) {
    const struct wire_box *box = view->box;
    cleanup(table_freep) struct table *table = table_new(wide_columns, ELEMENTSOF(wide_columns));
    const size_t bar_width = term->width >= 150 ? MIN(term->width - 136, 60u) : 12;

    for (size_t i = 0; i < box->n_devices; i++) {
        const struct wire_device *device = &box->devices[i];

        table_row(table);
        index_cell(table, device);
        fact_cells(table, device);
        memory_cells(table, device, bar_width, term->utf8);
        health_cell(table, device);
        if (device->reason)
            table_note(table, device_style(device), "%s", device->reason);
        else
            device_notes(table, device);
    }
    return table_print(table, term, 0);
}

static int devices_narrow(const struct view *view, const struct term *term) {
    const struct wire_box *box = view->box;
    cleanup(table_freep) struct table *facts = table_new(fact_columns, ELEMENTSOF(fact_columns));
    cleanup(table_freep) struct table *memory =
        table_new(memory_columns, ELEMENTSOF(memory_columns));
    const size_t bar_width = term->width > 80 ? term->width - 60 : 20;
    int r;

    for (size_t i = 0; i < box->n_devices; i++) {
        const struct wire_device *device = &box->devices[i];

        table_row(facts);
        index_cell(facts, device);
        fact_cells(facts, device);
        health_cell(facts, device);
        if (device->reason)
            table_note(facts, device_style(device), "%s", device->reason);
        table_row(memory);
        index_cell(memory, device);
        memory_cells(memory, device, bar_width, term->utf8);
        device_notes(memory, device);
    }
    r = table_print(facts, term, 0);
    if (r < 0)
        return r;
    fputc('\n', term->out);
    return table_print(memory, term, 0);
}

/* A line about each device where processes run that only the watch holds to their share. */
static void unguarded(const struct wire_box *box, const struct term *term) {
    for (size_t i = 0; i < box->n_devices; i++) {
        const struct wire_device *device = &box->devices[i];
        char text[160];

        if (!device->unguarded_processes.has || device->unguarded_processes.value == 0)
            continue;
        snprintf(text, sizeof(text),
                 "GPU %" PRIu64 ": %" PRIi64 " %s of leases run%s without a guard: only the watch "
                 "sees what %s",
                 device->index, device->unguarded_processes.value,
                 device->unguarded_processes.value == 1 ? "process" : "processes",
                 device->unguarded_processes.value == 1 ? "s" : "",
                 device->unguarded_processes.value == 1 ? "it takes" : "they take");
        term_paragraph(term, STYLE_WARN, 5, text);
    }
}

static int devices_brief(const struct view *view, const struct term *term) {
    int r;

    if (view->box->n_devices == 0) {
        term_put(term, STYLE_WARN, "There is no GPU on this box.\n");
        return 0;
    }
    r = term->width >= WIDE ? devices_wide(view, term) : devices_narrow(view, term);
    if (r == 0)
        term_paragraph(term, STYLE_DIM, 5, show_bar_legend(term->utf8));
    if (r == 0)
        unguarded(view->box, term);
    return r;
}

/* ---- Leases
 * -------------------------------------------------------------------------------------- */

static const struct table_column lease_columns[] = {
    { "HOST", TABLE_LEFT },           { "LEASE", TABLE_RIGHT },
    { "OWNER", TABLE_LEFT, 6 },       { "NAME", TABLE_LEFT, 6, 2 },
    { "MODE", TABLE_LEFT },           { "GPU", TABLE_RIGHT },
    { "LIMIT", TABLE_RIGHT },         { "GUARANTEED", TABLE_RIGHT, 0, 6 },
    { "HELD", TABLE_RIGHT },          { "USED", TABLE_RIGHT, 0, 4 },
    { "HOLDERS", TABLE_RIGHT, 0, 1 }, { "AGE", TABLE_RIGHT },
    { "TIERS", TABLE_LEFT, 0, 5 },    { "PRIO", TABLE_RIGHT, 0, 7 },
    { "STATE", TABLE_LEFT },
};

static void lease_state_cell(struct table *table, const struct wire_lease *lease) {
    char text[SHOW_SIZE];

    if (lease->state == WIRE_LEASE_ENDING)
        table_cell(table, STYLE_WARN, "ending");
    else if (view_lease_is_idle(lease))
        table_cell(table, STYLE_WARN, "idle %s", show_age(0, lease->idle_usec.value, text));
    else
        table_cell(table, STYLE_PLAIN, "%s", wire_lease_state_name(lease->state));
}

#define TIER_LAST 5

/* Bits of the tiers that enforce a lease: those around the job, and those inside its processes. */
static unsigned lease_tiers(const struct wire_box *box, const struct wire_lease *lease) {
    unsigned mask = 0;

    for (size_t i = 0; i < lease->n_tiers; i++)
        if (lease->tiers[i] <= TIER_LAST)
            mask |= 1u << lease->tiers[i];
    for (size_t i = 0; i < box->n_processes; i++) {
        const struct wire_process *process = &box->processes[i];

        if (process->lease.has && (uint64_t)process->lease.value == lease->id &&
            process->tier.has && process->tier.value <= TIER_LAST)
            mask |= 1u << process->tier.value;
    }
    return mask;
}

static void lease_row(struct table *table, const struct view *view, const struct wire_lease *lease,
                      size_t share) {
    const struct wire_share *s = share < lease->n_shares ? &lease->shares[share] : NULL;
    const unsigned mask = lease_tiers(whole(view), lease);
    char text[SHOW_SIZE], tiers[SHOW_SIZE] = "none";
    size_t length = 0;

    row_begin(table, view);
    if (share == 0) {
        table_cell(table, STYLE_HEAD, "%" PRIu64, lease->id);
        table_cell(table, STYLE_PLAIN, "%s", lease->user);
        table_cell(table, STYLE_PLAIN, "%s", lease->name ? lease->name : "-");
        table_cell(table, STYLE_PLAIN, "%s", words_name(lease_mode_words, lease->mode));
    } else
        for (size_t i = 0; i < 4; i++)
            table_cell(table, STYLE_PLAIN, "%s", "");
    table_cell(table, STYLE_PLAIN, "%s", s ? show_device(whole(view), s->device, text) : "-");
    table_cell(table, STYLE_PLAIN, "%s", s ? show_bytes(s->limit_bytes, text) : "-");
    table_cell(table, STYLE_PLAIN, "%s", s ? show_bytes(s->guaranteed_bytes, text) : "-");
    table_cell(table, STYLE_PLAIN, "%s", s ? show_bytes(s->held_bytes, text) : "-");
    table_cell(table, STYLE_PLAIN, "%s", s ? show_maybe_bytes(s->used_bytes, text) : "-");
    if (share > 0)
        return;
    for (unsigned tier = 1; tier <= TIER_LAST; tier++)
        if (mask >> tier & 1)
            length +=
                snprintf(tiers + length, sizeof(tiers) - length, "%s%u", length ? "," : "", tier);
    table_cell(table, STYLE_PLAIN, "%zu", lease->n_holders);
    table_cell(table, STYLE_PLAIN, "%s", show_age(lease->created_at, view->now_usec, text));
    table_cell(table, STYLE_PLAIN, "%s", tiers);
    table_cell(table, STYLE_PLAIN, "%" PRIi64, lease->priority);
    lease_state_cell(table, lease);
}

static void lease_rows(struct table *table, const struct view *view) {
    const struct wire_box *box = view->box;

    for (size_t i = 0; i < box->n_leases; i++) {
        const struct wire_lease *lease = &box->leases[i];

        for (size_t share = 0; share < MAX(lease->n_shares, (size_t)1); share++)
            lease_row(table, view, lease, share);
        if (lease->reason) {
            cleanup(freep) char *reason = show_sentence(whole(view), lease->reason);

            table_note(table, STYLE_WARN, "%s", reason ? reason : lease->reason);
        }
    }
}

int view_leases(const struct view *view, const struct term *term) {
    cleanup(table_freep) struct table *table = TABLE_OF(view, lease_columns);

    lease_rows(table, view);
    return table_print(table, term, 0);
}

/* ---- Processes
 * ----------------------------------------------------------------------------------- */

static const struct table_column process_columns[] = {
    { "GPU", TABLE_RIGHT },        { "PID", TABLE_RIGHT },
    { "USER", TABLE_LEFT, 6 },     { "LEASE", TABLE_RIGHT },
    { "MEMORY", TABLE_RIGHT },     { "OF", TABLE_RIGHT },
    { "TIER", TABLE_LEFT, 9 },     { "CONTAINER", TABLE_LEFT, 6, 1 },
    { "COMMAND", TABLE_LEFT, 18 },
};

static void process_row(struct table *table, const struct view *view,
                        const struct wire_process *process) {
    const struct wire_lease *lease =
        process->lease.has ? snapshot_find_lease(whole(view), process->lease.value) : NULL;
    const struct wire_tier *tier =
        process->tier.has ? find_tier(view->box, process->tier.value) : NULL;
    const struct wire_share *share = NULL;
    char text[SHOW_SIZE];

    for (size_t i = 0; lease && i < lease->n_shares; i++)
        if (!strcmp(lease->shares[i].device, process->device))
            share = &lease->shares[i];
    table_row(table);
    table_cell(table, STYLE_PLAIN, "%s", show_device(whole(view), process->device, text));
    table_cell(table, STYLE_PLAIN, "%" PRIu64, process->pid);
    table_cell(table, STYLE_PLAIN, "%s", process->user ? process->user : "N/A");
    table_cell(table, STYLE_PLAIN, "%s",
               process->lease.has ? show_maybe(process->lease, "", text) : "none");
    table_cell(table, STYLE_PLAIN, "%s", show_maybe_bytes(process->used_bytes, text));
    table_cell(table, STYLE_PLAIN, "%s", share ? show_bytes(share->limit_bytes, text) : "-");
    if (!process->lease.has)
        table_cell(table, STYLE_WARN, "unmanaged");
    else if (tier)
        table_cell(table, STYLE_PLAIN, "%" PRIu64 " %s", tier->number, tier->name);
    else
        table_cell(table, STYLE_WARN, "nothing");
    table_cell(table, STYLE_PLAIN, "%s", process->container ? process->container : "");
    table_cell(table, STYLE_PLAIN, "%s", process->command);
    if (process->offence)
        table_note(table, STYLE_BAD, "%s", process->offence);
}

int view_processes(const struct view *view, const struct term *term) {
    cleanup(table_freep) struct table *table =
        table_new(process_columns, ELEMENTSOF(process_columns));

    for (size_t i = 0; i < view->box->n_processes; i++)
        process_row(table, view, &view->box->processes[i]);
    return table_print(table, term, 0);
}

/* ---- Queue
 * --------------------------------------------------------------------------------------- */

static const struct table_column queue_columns[] = {
    { "HOST", TABLE_LEFT },        { "PLACE", TABLE_RIGHT }, { "USER", TABLE_LEFT, 6 },
    { "NAME", TABLE_LEFT, 6, 1 },  { "FOR", TABLE_LEFT },    { "ASKED", TABLE_LEFT, 12 },
    { "PRIO", TABLE_RIGHT, 0, 2 }, { "WAITS", TABLE_RIGHT }, { "AT MOST", TABLE_RIGHT, 0, 3 },
};

static void queue_rows(struct table *table, const struct view *view) {
    char text[SHOW_SIZE];

    for (size_t i = 0; i < view->box->n_queue; i++) {
        const struct wire_waiter *waiter = &view->box->queue[i];
        cleanup(freep) char *reason = show_sentence(whole(view), waiter->reason);
        cleanup(freep) char *asked = show_sentence(whole(view), waiter->asked);

        row_begin(table, view);
        table_cell(table, STYLE_HEAD, "%" PRIu64, waiter->place);
        table_cell(table, STYLE_PLAIN, "%s", waiter->user);
        table_cell(table, STYLE_PLAIN, "%s", waiter->name ? waiter->name : "-");
        if (waiter->what == WIRE_WAITS_GROWTH && waiter->lease.has)
            table_cell(table, STYLE_PLAIN, "growth of %" PRIi64, waiter->lease.value);
        else
            table_cell(table, STYLE_PLAIN, "%s", wire_what_name(waiter->what));
        table_cell(table, STYLE_PLAIN, "%s", asked ? asked : waiter->asked);
        table_cell(table, STYLE_PLAIN, "%" PRIi64, waiter->priority);
        table_cell(table, STYLE_PLAIN, "%s", show_age(waiter->since_at, view->now_usec, text));
        table_cell(table, STYLE_PLAIN, "%s",
                   waiter->timeout_at.has
                       ? show_age(waiter->since_at, waiter->timeout_at.value, text)
                       : "-");
        table_note(table, STYLE_DIM, "%s", reason ? reason : waiter->reason);
    }
}

int view_queue(const struct view *view, const struct term *term) {
    cleanup(table_freep) struct table *table = TABLE_OF(view, queue_columns);

    queue_rows(table, view);
    return table_print(table, term, 0);
}

/* ---- All of it
 * ----------------------------------------------------------------------------------- */

static int notice(const struct wire_box *box, const struct term *term, const char *text) {
    cleanup(freep) char *sentence = show_sentence(box, text);

    if (!sentence)
        return -ENOMEM;
    term_item(term, STYLE_WARN, 2, "!", sentence);
    return 0;
}

static int section(const struct view *view, const struct term *term, const char *title,
                   int (*print)(const struct view *, const struct term *)) {
    fputc('\n', term->out);
    term_title(term, title);
    return print(view, term);
}

int view_status(const struct view *view, const struct term *term) {
    const struct wire_box *box = view->box;
    int r;

    r = view_head(view, term);
    if (r < 0)
        return r;
    fputc('\n', term->out);
    r = devices_brief(view, term);
    if (r == 0 && box->n_leases)
        r = section(view, term, "Leases", view_leases);
    if (r == 0 && box->n_processes)
        r = section(view, term, "Processes", view_processes);
    if (r == 0 && box->n_queue)
        r = section(view, term, "Waiting", view_queue);
    if (r == 0 && box->n_notices) {
        fputc('\n', term->out);
        for (size_t i = 0; i < box->n_notices; i++)
            r = r < 0 ? r : notice(whole(view), term, box->notices[i]);
    }
    return r;
}

/* ---- Several hosts
 * ------------------------------------------------------------------------------- */

/* The cells of wide_columns, of which more can be left out. */
static const struct table_column host_columns[] = {
    { "HOST", TABLE_LEFT },
    { "GPU", TABLE_RIGHT },
    { "NAME", TABLE_LEFT, 8 },
    { "BUS ID", TABLE_LEFT, 0, 8 },
    { "UUID", TABLE_LEFT, 0, 9 },
    { "TEMP", TABLE_RIGHT, 0, 6 },
    { "POWER", TABLE_RIGHT, 0, 7 },
    { "UTIL", TABLE_RIGHT, 0, 2 },
    { "MEMORY", TABLE_LEFT, 0, 5 },
    { "USED", TABLE_RIGHT },
    { "LEASED", TABLE_RIGHT },
    { "GUARANTEED", TABLE_RIGHT, 0, 4 },
    { "UNMANAGED", TABLE_RIGHT, 0, 3 },
    { "FREE", TABLE_RIGHT },
    { "USABLE", TABLE_RIGHT, 0, 1 },
    { "HEALTH", TABLE_LEFT },
};

static void host_rows(struct table *table, const struct view *view, bool utf8) {
    for (size_t i = 0; view->box && i < view->box->n_devices; i++) {
        const struct wire_device *device = &view->box->devices[i];

        row_begin(table, view);
        index_cell(table, device);
        fact_cells(table, device);
        memory_cells(table, device, 12, utf8);
        health_cell(table, device);
        if (device->reason)
            table_note(table, device_style(device), "%s", device->reason);
        else if (i + 1 == view->box->n_devices && !view->is_managed)
            table_note(table, STYLE_WARN, "nothing is managed: %s",
                       view->trouble ? view->trouble : "allotd does not answer");
        else
            device_notes(table, device);
    }
    if (view->box && view->box->n_devices > 0)
        return;
    row_begin(table, view);
    table_note(table, view->box ? STYLE_WARN : STYLE_BAD, "%s",
               view->box       ? "there is no GPU on this host"
               : view->trouble ? view->trouble
                               : "no answer");
}

/* "3 hosts, 12 GPUs, 310G of 480G free, 5 leases, 2 waiting" */
static void host_sums(const struct view *views, size_t n, const struct term *term) {
    size_t n_hosts = 0, n_gpus = 0, n_leases = 0, n_waiting = 0;
    uint64_t usable = 0, free_bytes = 0;
    char of[SHOW_SIZE], text[SHOW_SIZE];

    for (size_t i = 0; i < n; i++) {
        const struct wire_box *box = views[i].box;

        if (!box)
            continue;
        n_hosts++;
        n_leases += box->n_leases;
        n_waiting += box->n_queue;
        for (size_t d = 0; d < box->n_devices; d++) {
            n_gpus += box->devices[d].kind != WIRE_DEVICE_MIG;
            if (box->devices[d].mig_enabled && box->devices[d].kind != WIRE_DEVICE_MIG)
                continue; /* its instances count */
            usable += box->devices[d].usable_bytes;
            free_bytes += box->devices[d].free_bytes;
        }
    }
    term_put(term, STYLE_HEAD,
             "%zu of %zu hosts, %zu GPUs, %s of %s free, %zu leases, %zu waiting\n", n_hosts, n,
             n_gpus, show_bytes(free_bytes, text), show_bytes(usable, of), n_leases, n_waiting);
}

int view_hosts(const struct view *views, size_t n, const struct term *term) {
    cleanup(table_freep) struct table *devices = table_new(host_columns, ELEMENTSOF(host_columns));
    cleanup(table_freep) struct table *leases = table_new(lease_columns, ELEMENTSOF(lease_columns));
    cleanup(table_freep) struct table *queue = table_new(queue_columns, ELEMENTSOF(queue_columns));
    size_t n_leases = 0, n_waiting = 0;
    int r;

    for (size_t i = 0; i < n; i++) {
        host_rows(devices, &views[i], term->utf8);
        if (!views[i].box)
            continue;
        lease_rows(leases, &views[i]);
        queue_rows(queue, &views[i]);
        n_leases += views[i].box->n_leases;
        n_waiting += views[i].box->n_queue;
    }
    host_sums(views, n, term);
    fputc('\n', term->out);
    r = table_print(devices, term, 0);
    if (r == 0 && n_leases > 0) {
        fputc('\n', term->out);
        term_title(term, "Leases");
        r = table_print(leases, term, 0);
    }
    if (r == 0 && n_waiting > 0) {
        fputc('\n', term->out);
        term_title(term, "Waiting");
        r = table_print(queue, term, 0);
    }
    return r;
}
