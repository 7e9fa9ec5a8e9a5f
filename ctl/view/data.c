/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A box for programs: JSON with everything in it, CSV of one table.
 *
 * Members and columns come from the tables of wire/type.h, names as on the wire. In JSON what is
 * not known is null, in CSV it is empty. CSV of leases has a row for each share, because a lease of
 * four devices has four limits.
 */
#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "ctl/view/field.h"
#include "ctl/view/pretty.h"
#include "ctl/view/view.h"

int view_csv_table_parse(enum view_csv_table *ret, const char *text) {
    static const char *const names[] = { "devices", "leases", "processes", "queue" };

    for (size_t i = 0; i < ELEMENTSOF(names); i++)
        if (!strcmp(text, names[i])) {
            *ret = i;
            return 0;
        }
    return -EINVAL;
}

#define EACH(noun, array)                                                                          \
    do {                                                                                           \
        field_write_csv(&wire_##noun##_type, NULL, true, out);                                     \
        fputc('\n', out);                                                                          \
        for (size_t i = 0; i < box->n_##array; i++) {                                              \
            field_write_csv(&wire_##noun##_type, &box->array[i], true, out);                       \
            fputc('\n', out);                                                                      \
        }                                                                                          \
    } while (0)

static void csv_leases(const struct wire_box *box, FILE *out) {
    static const struct wire_share none;

    field_write_csv(&wire_lease_type, NULL, true, out);
    fputs(",holders", out);
    field_write_csv(&wire_share_type, NULL, false, out);
    fputc('\n', out);
    for (size_t i = 0; i < box->n_leases; i++)
        for (size_t share = 0; share < MAX(box->leases[i].n_shares, (size_t)1); share++) {
            field_write_csv(&wire_lease_type, &box->leases[i], true, out);
            fprintf(out, ",%zu", box->leases[i].n_holders);
            field_write_csv(&wire_share_type,
                            box->leases[i].n_shares ? &box->leases[i].shares[share] : &none, false,
                            out);
            fputc('\n', out);
        }
}

void view_csv(const struct wire_box *box, enum view_csv_table table, FILE *out) {
    switch (table) {
    case VIEW_CSV_DEVICES:
        EACH(device, devices);
        break;
    case VIEW_CSV_LEASES:
        csv_leases(box, out);
        break;
    case VIEW_CSV_PROCESSES:
        EACH(process, processes);
        break;
    case VIEW_CSV_QUEUE:
        EACH(waiter, queue);
        break;
    }
}

/* Write one object of an array. */
static void put_record(struct json_writer *w, const struct wire_type *type, const void *record) {
    json_begin(w, '{');
    field_write_json(type, record, w);
    json_end(w, '}');
}

static void put_array(struct json_writer *w, const char *name, const struct wire_type *type,
                      const void *records, size_t n, size_t size) {
    json_name(w, name);
    json_begin(w, '[');
    for (size_t i = 0; i < n; i++)
        put_record(w, type, (const char *)records + i * size);
    json_end(w, ']');
}
#define PUT_ARRAY(w, of, noun, array)                                                              \
    put_array(w, #array, &wire_##noun##_type, (of)->array, (of)->n_##array, sizeof(*(of)->array))

static void put_devices(struct json_writer *w, const struct wire_box *box) {
    json_name(w, "devices");
    json_begin(w, '[');
    for (size_t i = 0; i < box->n_devices; i++) {
        json_begin(w, '{');
        field_write_json(&wire_device_type, &box->devices[i], w);
        PUT_ARRAY(w, &box->devices[i], link, links);
        json_end(w, '}');
    }
    json_end(w, ']');
}

static void put_leases(struct json_writer *w, const struct wire_box *box) {
    json_name(w, "leases");
    json_begin(w, '[');
    for (size_t i = 0; i < box->n_leases; i++) {
        const struct wire_lease *lease = &box->leases[i];

        json_begin(w, '{');
        field_write_json(&wire_lease_type, lease, w);
        json_name(w, "idle");
        json_put_bool(w, view_lease_is_idle(lease));
        json_name(w, "tiers");
        json_begin(w, '[');
        for (size_t tier = 0; tier < lease->n_tiers; tier++)
            json_put_uint(w, lease->tiers[tier]);
        json_end(w, ']');
        PUT_ARRAY(w, lease, share, shares);
        PUT_ARRAY(w, lease, holder, holders);
        json_end(w, '}');
    }
    json_end(w, ']');
}

int view_json(const struct view *view, FILE *out) {
    const struct wire_box *box = view->box;
    struct json_writer w = {};

    json_begin(&w, '{');
    json_name(&w, "schema");
    json_put_uint(&w, 1);
    json_name(&w, "managed");
    json_put_bool(&w, view->is_managed);
    json_name(&w, "trouble");
    json_put_string(&w, view->trouble);
    json_name(&w, "at");
    json_put_uint(&w, view->now_usec);
    json_name(&w, "box");
    json_begin(&w, '{');
    field_write_json(&wire_box_type, box, &w);
    put_devices(&w, box);
    put_leases(&w, box);
    PUT_ARRAY(&w, box, process, processes);
    PUT_ARRAY(&w, box, waiter, queue);
    PUT_ARRAY(&w, box, tier, tiers);
    json_name(&w, "notices");
    json_begin(&w, '[');
    for (size_t i = 0; i < box->n_notices; i++)
        json_put_string(&w, box->notices[i]);
    json_end(&w, ']');
    json_end(&w, '}');
    json_end(&w, '}');
    return pretty_print(&w, out);
}
