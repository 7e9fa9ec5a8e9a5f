/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/view/top.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/cleanup.h"
#include "ctl/view/show.h"
#include "ctl/view/table.h"
#include "wire/snapshot.h"

const char *top_sort_name(enum top_sort sort) {
    static const char *const names[] = { "memory", "user", "GPU", "age", "number" };

    return names[sort];
}

void top_done(struct top *top) {
    history_done(&top->devices);
    history_done(&top->leases);
}

static uint64_t held_of(const struct wire_lease *lease) {
    uint64_t held = 0;

    for (size_t i = 0; i < lease->n_shares; i++)
        held += lease->shares[i].held_bytes;
    return held;
}

static uint64_t limit_of(const struct wire_lease *lease) {
    uint64_t limit = 0;

    for (size_t i = 0; i < lease->n_shares; i++)
        limit += lease->shares[i].limit_bytes;
    return limit;
}

void top_update(struct top *top, const struct wire_box *box) {
    history_begin(&top->devices);
    for (size_t i = 0; i < box->n_devices; i++)
        history_note(&top->devices, box->devices[i].uuid, box->devices[i].utilization_percent.has,
                     box->devices[i].utilization_percent.value, 100);
    history_end(&top->devices);
    history_begin(&top->leases);
    for (size_t i = 0; i < box->n_leases; i++) {
        char name[24];

        snprintf(name, sizeof(name), "%" PRIu64, box->leases[i].id);
        history_note(&top->leases, name, true, held_of(&box->leases[i]), limit_of(&box->leases[i]));
    }
    history_end(&top->leases);
}

static bool matches(const struct top *top, const char *const *texts, size_t n) {
    if (!*top->filter)
        return true;
    for (size_t i = 0; i < n; i++)
        if (texts[i] && strcasestr(texts[i], top->filter))
            return true;
    return false;
}

/* ---- Order
 * --------------------------------------------------------------------------------------- */

/* What two rows are compared by; numbers sort descending, texts ascending. */
struct sort_key {
    const void *row;
    const char *text;
    uint64_t number;
    uint64_t place; /* original position, for a stable order */
};

static int compare(const void *a, const void *b, void *reversed) {
    const struct sort_key *x = a, *y = b;
    const int sign = *(bool *)reversed ? -1 : 1;
    const int order = strcmp(x->text, y->text);

    if (order)
        return sign * order;
    if (x->number != y->number)
        return x->number > y->number ? -sign : sign;
    return x->place < y->place ? -1 : 1;
}

static struct sort_key lease_key(const struct top *top, const struct view *view,
                                 const struct wire_lease *lease) {
    struct sort_key key = { .row = lease, .text = "" };
    const struct wire_device *device =
        lease->n_shares ? snapshot_find_device(view->box, lease->shares[0].device) : NULL;

    switch (top->sort) {
    case TOP_USER:
        key.text = lease->user;
        break;
    case TOP_DEVICE:
        key.number = device ? UINT64_MAX - device->index : 0;
        break;
    case TOP_AGE:
        key.number = view->now_usec > lease->created_at ? view->now_usec - lease->created_at : 0;
        break;
    case TOP_NUMBER:
        key.number = UINT64_MAX - lease->id;
        break;
    default:
        key.number = held_of(lease);
    }
    return key;
}

static struct sort_key process_key(const struct top *top, const struct view *view,
                                   const struct wire_process *process) {
    struct sort_key key = { .row = process, .text = "" };
    const struct wire_device *device = snapshot_find_device(view->box, process->device);

    switch (top->sort) {
    case TOP_USER:
        key.text = process->user ? process->user : "";
        break;
    case TOP_DEVICE:
        key.number = device ? UINT64_MAX - device->index : 0;
        break;
    case TOP_NUMBER:
        key.number = UINT64_MAX - process->pid;
        break;
    default: /* the age of a process is unknown here */
        key.number = process->used_bytes.has ? process->used_bytes.value : 0;
    }
    return key;
}

/* ---- Parts
 * --------------------------------------------------------------------------------------- */

static const struct table_column device_columns[] = {
    { "GPU", TABLE_RIGHT },         { "NAME", TABLE_LEFT, 8, 2 }, { "TEMP", TABLE_RIGHT, 0, 4 },
    { "POWER", TABLE_RIGHT, 0, 3 }, { "UTIL", TABLE_RIGHT },      { "HISTORY", TABLE_LEFT },
    { "MEMORY", TABLE_LEFT },       { "USED", TABLE_RIGHT },      { "FREE", TABLE_RIGHT },
    { "HEALTH", TABLE_LEFT, 0, 1 },
};

static int print_devices(const struct top *top, const struct view *view, const struct term *term) {
    cleanup(table_freep) struct table *table =
        table_new(device_columns, ELEMENTSOF(device_columns));
    const size_t width = term->width > 110 ? MIN((term->width - 86) / 2, 60u) : 10;
    cleanup(freep) char *spark = malloc(width * 3 + 1);

    if (!spark)
        return -ENOMEM;
    for (size_t i = 0; i < view->box->n_devices; i++) {
        const struct wire_device *d = &view->box->devices[i];
        const struct show_bar parts = show_bar_of(d);
        cleanup(freep) char *bar = show_bar(&parts, width, term->utf8);
        char text[SHOW_SIZE];

        history_draw(&top->devices, d->uuid, width, term->utf8, spark);
        table_row(table);
        table_cell(table, STYLE_HEAD, "%" PRIu64, d->index);
        table_cell(table, STYLE_PLAIN, "%s", show_name(d));
        table_cell(table, STYLE_PLAIN, "%s", show_maybe(d->temperature_celsius, "C", text));
        table_cell(table, STYLE_PLAIN, "%s",
                   show_power(d->power_milliwatts, d->power_limit_milliwatts, text));
        table_cell(table, STYLE_PLAIN, "%s", show_maybe(d->utilization_percent, "%", text));
        table_cell(table, STYLE_GOOD, "%s", spark);
        table_cell(table, d->overcommitted_bytes ? STYLE_BAD : STYLE_PLAIN, "%s", bar ? bar : "");
        table_cell(table, STYLE_PLAIN, "%s", show_maybe_bytes(d->used_bytes, text));
        table_cell(table, STYLE_PLAIN, "%s", show_bytes(d->free_bytes, text));
        table_cell(table, d->state == WIRE_DEVICE_READY ? STYLE_GOOD : STYLE_BAD, "%s",
                   d->stale_usec.has && d->state != WIRE_DEVICE_LOST
                       ? "stale"
                       : wire_device_state_name(d->state));
    }
    return table_print(table, term, 0);
}

static const struct table_column lease_columns[] = {
    { "LEASE", TABLE_RIGHT },     { "OWNER", TABLE_LEFT, 6 }, { "NAME", TABLE_LEFT, 6, 1 },
    { "MODE", TABLE_LEFT, 0, 3 }, { "GPUS", TABLE_LEFT, 4 },  { "HELD", TABLE_RIGHT },
    { "LIMIT", TABLE_RIGHT },     { "HISTORY", TABLE_LEFT },  { "HOLDERS", TABLE_RIGHT, 0, 4 },
    { "AGE", TABLE_RIGHT, 0, 2 }, { "STATE", TABLE_LEFT },
};

/* "0,1,3" */
static void devices_of(const struct wire_box *box, const struct wire_lease *lease, char *text,
                       size_t size) {
    size_t length = 0;
    char one[SHOW_SIZE];

    *text = '\0';
    for (size_t i = 0; i < lease->n_shares && length + SHOW_SIZE < size; i++)
        length += snprintf(text + length, size - length, "%s%s", i ? "," : "",
                           show_device(box, lease->shares[i].device, one));
}

static void lease_row(struct table *table, const struct top *top, const struct view *view,
                      const struct wire_lease *lease, size_t width, bool utf8, char *spark) {
    char name[24], devices[512], text[SHOW_SIZE];

    snprintf(name, sizeof(name), "%" PRIu64, lease->id);
    history_draw(&top->leases, name, width, utf8, spark);
    devices_of(view->box, lease, devices, sizeof(devices));
    table_row(table);
    table_cell(table, STYLE_HEAD, "%" PRIu64, lease->id);
    table_cell(table, STYLE_PLAIN, "%s", lease->user);
    table_cell(table, STYLE_PLAIN, "%s", lease->name ? lease->name : "-");
    table_cell(table, STYLE_PLAIN, "%s", words_name(lease_mode_words, lease->mode));
    table_cell(table, STYLE_PLAIN, "%s", devices);
    table_cell(table, STYLE_PLAIN, "%s", show_bytes(held_of(lease), text));
    table_cell(table, STYLE_PLAIN, "%s", show_bytes(limit_of(lease), text));
    table_cell(table, STYLE_GOOD, "%s", spark);
    table_cell(table, STYLE_PLAIN, "%zu", lease->n_holders);
    table_cell(table, STYLE_PLAIN, "%s", show_age(lease->created_at, view->now_usec, text));
    if (view_lease_is_idle(lease))
        table_cell(table, STYLE_WARN, "idle %s", show_age(0, lease->idle_usec.value, text));
    else
        table_cell(table, lease->state == WIRE_LEASE_ACTIVE ? STYLE_PLAIN : STYLE_WARN, "%s",
                   wire_lease_state_name(lease->state));
}

static int print_leases(const struct top *top, const struct view *view, const struct term *term) {
    cleanup(table_freep) struct table *table = table_new(lease_columns, ELEMENTSOF(lease_columns));
    cleanup(freep) struct sort_key *keys = calloc(view->box->n_leases + 1, sizeof(*keys));
    const size_t width = term->width > 110 ? MIN(term->width - 98, 60u) : 10;
    cleanup(freep) char *spark = malloc(width * 3 + 1);
    bool reversed = top->reversed;
    size_t n = 0;

    if (!keys || !spark)
        return -ENOMEM;
    for (size_t i = 0; i < view->box->n_leases; i++) {
        const struct wire_lease *lease = &view->box->leases[i];

        if (!matches(top, (const char *const[]){ lease->user, lease->name }, 2))
            continue;
        keys[n] = lease_key(top, view, lease);
        keys[n].place = n;
        n++;
    }
    if (n == 0)
        return 0;
    qsort_r(keys, n, sizeof(*keys), compare, &reversed);
    for (size_t i = 0; i < n; i++)
        lease_row(table, top, view, keys[i].row, width, term->utf8, spark);
    fputc('\n', term->out);
    return table_print(table, term, 0);
}

/* The same table as in status, for a sorted and filtered copy. */
static int print_processes(const struct top *top, const struct view *view,
                           const struct term *term) {
    cleanup(freep) struct sort_key *keys = calloc(view->box->n_processes + 1, sizeof(*keys));
    cleanup(freep) struct wire_process *rows = calloc(view->box->n_processes + 1, sizeof(*rows));
    struct wire_box box = *view->box;
    struct view sorted = *view;
    bool reversed = top->reversed;
    size_t n = 0;

    if (!keys || !rows)
        return -ENOMEM;
    for (size_t i = 0; i < box.n_processes; i++) {
        const struct wire_process *p = &box.processes[i];

        if (!matches(top, (const char *const[]){ p->user, p->command, p->container }, 3))
            continue;
        keys[n] = process_key(top, view, p);
        keys[n].place = n;
        n++;
    }
    if (n == 0)
        return 0;
    qsort_r(keys, n, sizeof(*keys), compare, &reversed);
    for (size_t i = 0; i < n; i++)
        rows[i] = *(const struct wire_process *)keys[i].row;
    box.processes = rows;
    box.n_processes = n;
    sorted.box = &box;
    fputc('\n', term->out);
    return view_processes(&sorted, term);
}

int top_print(struct top *top, const struct view *view, const struct term *term) {
    int r;

    r = view_head(view, term);
    if (r < 0)
        return r;
    fputc('\n', term->out);
    r = print_devices(top, view, term);
    if (r == 0)
        r = print_leases(top, view, term);
    if (r == 0)
        r = print_processes(top, view, term);
    if (r == 0 && view->box->n_queue) {
        fputc('\n', term->out);
        r = view_queue(view, term);
    }
    for (size_t i = 0; r == 0 && i < view->box->n_notices; i++)
        term_paragraph(term, STYLE_WARN, 0, view->box->notices[i]);
    return r;
}
