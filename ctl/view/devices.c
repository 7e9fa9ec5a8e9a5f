/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices in full: a block per device, with everything that is known.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "base/cleanup.h"
#include "ctl/view/show.h"
#include "ctl/view/text.h"
#include "ctl/view/view.h"
#include "wire/snapshot.h"

#define LABEL 14 /* columns for the labels at the left */

static int line(const struct term *term, const char *label, enum term_style style,
                const char *format, ...) __attribute__((format(printf, 4, 5)));
static int line(const struct term *term, const char *label, enum term_style style,
                const char *format, ...) {
    cleanup(freep) char *text = NULL;
    cleanup(freep) char *clean = NULL;
    const char *next;
    va_list args;
    int n;

    va_start(args, format);
    n = vasprintf(&text, format, args);
    va_end(args);
    if (n < 0) {
        text = NULL;
        return -ENOMEM;
    }
    clean = text_clean(text, term->utf8);
    if (!clean)
        return -ENOMEM;
    next = clean;
    do {
        const char *at = next;
        const size_t bytes = text_wrap(at, term->width - LABEL - 4, &next);

        fprintf(term->out, "    ");
        term_put(term, STYLE_DIM, "%-*s", LABEL, at == clean ? label : "");
        term_put(term, style, "%.*s", (int)bytes, at);
        fputc('\n', term->out);
    } while (*next);
    return 0;
}

static int memory(const struct wire_device *d, const struct term *term) {
    char a[SHOW_SIZE], b[SHOW_SIZE], c[SHOW_SIZE], e[SHOW_SIZE], f[SHOW_SIZE];
    int r;

    r = line(term, "memory", STYLE_PLAIN, "%s in all, %s reserved, %s usable, %s used",
             show_bytes(d->total_bytes, a), show_bytes(d->reserved_bytes, b),
             show_bytes(d->usable_bytes, c), show_maybe_bytes(d->used_bytes, e));
    if (r < 0)
        return r;
    r = line(term, "books", STYLE_PLAIN,
             "%s leased (%s guaranteed, %s held), %s unmanaged, %s free",
             show_bytes(d->leased_bytes, a), show_bytes(d->guaranteed_bytes, b),
             show_bytes(d->held_bytes, c), show_bytes(d->unmanaged_bytes, e),
             show_bytes(d->free_bytes, f));
    if (r == 0 && d->releasing_bytes)
        r = line(term, "", STYLE_WARN, "%s are still being released by the driver",
                 show_bytes(d->releasing_bytes, a));
    if (r == 0 && d->overcommitted_bytes)
        r = line(term, "", STYLE_BAD,
                 "overcommitted by %s: processes outside leases use leased memory",
                 show_bytes(d->overcommitted_bytes, a));
    if (r == 0 && d->context_bytes)
        r = line(term, "context", STYLE_PLAIN, "%s each", show_bytes(d->context_bytes, a));
    return r;
}

static int readings(const struct wire_device *d, const struct term *term) {
    char a[SHOW_SIZE], b[SHOW_SIZE];
    int r;

    r = line(term, "utilization", STYLE_PLAIN, "%s, memory %s",
             show_maybe(d->utilization_percent, "%", a),
             show_maybe(d->memory_utilization_percent, "%", b));
    if (r == 0)
        r = line(term, "temperature", STYLE_PLAIN, "%s",
                 show_maybe(d->temperature_celsius, "C", a));
    if (r == 0)
        r = line(term, "power", STYLE_PLAIN, "%s",
                 show_power(d->power_milliwatts, d->power_limit_milliwatts, a));
    if (r == 0)
        r = line(term, "clocks", STYLE_PLAIN, "SM %s, memory %s",
                 show_maybe(d->sm_clock_mhz, " MHz", a),
                 show_maybe(d->memory_clock_mhz, " MHz", b));
    if (r == 0)
        r = line(term, "ECC errors",
                 d->ecc_uncorrected.has && d->ecc_uncorrected.value > 0 ? STYLE_BAD : STYLE_PLAIN,
                 "%s corrected, %s uncorrected", show_maybe(d->ecc_corrected, "", a),
                 show_maybe(d->ecc_uncorrected, "", b));
    return r;
}

static int links(const struct wire_box *box, const struct wire_device *d, const struct term *term) {
    cleanup(freep) char *text = NULL;
    size_t length;
    FILE *to;

    if (d->n_links == 0)
        return 0;
    to = open_memstream(&text, &length);
    if (!to)
        return -ENOMEM;
    for (size_t i = 0; i < d->n_links; i++) {
        const struct wire_link *link = &d->links[i];
        char peer[SHOW_SIZE];

        fprintf(to, "%sGPU %s by %s", i ? ", " : "", show_device(box, link->device, peer),
                link->kind);
        if (link->lanes.has)
            fprintf(to, " x%" PRIi64, link->lanes.value);
    }
    if (fclose(to) != 0)
        return -ENOMEM;
    return line(term, "links", STYLE_PLAIN, "%s", text);
}

static int identity(const struct wire_box *box, const struct wire_device *d,
                    const struct term *term) {
    char a[SHOW_SIZE], b[SHOW_SIZE], c[SHOW_SIZE];
    int r;

    r = line(term, "UUID", STYLE_PLAIN, "%s", d->uuid);
    if (r == 0 && d->parent)
        r = line(term, "instance of", STYLE_PLAIN, "GPU %s (%s)", show_device(box, d->parent, a),
                 d->parent);
    if (r == 0)
        r = line(term, "bus id", STYLE_PLAIN, "%s, minor number %s, NUMA node %s",
                 show_bus_id(d->bus_id, a), show_maybe(d->minor, "", b),
                 show_maybe(d->numa, "", c));
    if (r == 0 && d->mig_enabled)
        r = line(term, "MIG", STYLE_PLAIN, "enabled");
    if (r == 0)
        r = line(term, "health",
                 d->state == WIRE_DEVICE_LOST    ? STYLE_BAD
                 : d->state == WIRE_DEVICE_READY ? STYLE_GOOD
                                                 : STYLE_WARN,
                 "%s%s%s", wire_device_state_name(d->state), d->reason ? ": " : "",
                 d->reason ? d->reason : "");
    if (r == 0 && d->stale_usec.has)
        r = line(term, "readings", STYLE_WARN, "stale for %s: the driver does not answer",
                 show_age(0, d->stale_usec.value, a));
    return r;
}

int view_devices(const struct view *view, const struct term *term) {
    const struct wire_box *box = view->box, *whole = view->whole ? view->whole : box;
    int r = 0;

    if (!view->is_managed)
        r = view_head(view, term);
    for (size_t i = 0; r == 0 && i < box->n_devices; i++) {
        const struct wire_device *d = &box->devices[i];
        cleanup(freep) char *name = text_clean(d->name, term->utf8);

        if (!name)
            return -ENOMEM;
        if (i > 0 || !view->is_managed)
            fputc('\n', term->out);
        term_put(term, STYLE_HEAD, "%s %" PRIu64 "  %s\n",
                 d->kind == WIRE_DEVICE_MIG ? "MIG instance" : "GPU", d->index, name);
        r = identity(whole, d, term);
        if (r == 0)
            r = memory(d, term);
        if (r == 0)
            r = readings(d, term);
        if (r == 0)
            r = links(whole, d, term);
    }
    return r;
}
