/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Views: a box as tables for people.
 *
 * Pure except for the output: the box, the terminal and the time are arguments, so that the same
 * input always gives the same page. Empty tables are left out with their titles.
 */
#include <stdbool.h>
#include <stdint.h>

#include "ctl/view/term.h"
#include "wire/message.h"

struct view {
    const char *host; /* of several that are shown together; NULL: this box alone is shown */
    const struct wire_box *box;   /* NULL: a host that did not answer, and `trouble` says why */
    const struct wire_box *whole; /* the whole box if `box` is a part of it, for device numbers;
                                     otherwise NULL */
    bool is_managed;              /* read from allotd; otherwise from NVML alone */
    const char *trouble;          /* why it is not managed, or not there; otherwise NULL */
    uint64_t now_usec;            /* CLOCK_REALTIME */
};

/* All return 0 or -ENOMEM. */
int view_status(const struct view *view, const struct term *term);
int view_devices(const struct view *view, const struct term *term); /* with clocks, links, ECC */
int view_leases(const struct view *view, const struct term *term);
int view_processes(const struct view *view, const struct term *term);
int view_queue(const struct view *view, const struct term *term);

/* The devices, leases and waiting requests of several hosts, each view with its `host`, in tables
 * that they share. */
int view_hosts(const struct view *views, size_t n, const struct term *term);

/* The lines that `status` begins with: the host, the mode, the tiers. */
int view_head(const struct view *view, const struct term *term);

/* Whether a lease holds memory and computes nothing, as the daemon sees it. */
bool view_lease_is_idle(const struct wire_lease *lease);

/* One table as comma-separated values with a header line, as in RFC 4180: bytes, not "8 GiB". */
enum view_csv_table { VIEW_CSV_DEVICES, VIEW_CSV_LEASES, VIEW_CSV_PROCESSES, VIEW_CSV_QUEUE };
int view_csv_table_parse(enum view_csv_table *ret, const char *text); /* -EINVAL */
void view_csv(const struct wire_box *box, enum view_csv_table table, FILE *out);

/* The box as docs/status.schema.json describes it. */
int view_json(const struct view *view, FILE *out);
