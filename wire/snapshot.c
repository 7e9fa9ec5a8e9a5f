/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/snapshot.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void snapshot_write(struct json_writer *w, const struct wire_box *box) {
    wire_encode(w, &wire_box_type, box);
}

int snapshot_read(struct snapshot **ret, const char *text, size_t n, struct allot_error *err) {
    cleanup(snapshot_freep) struct snapshot *snapshot = calloc(1, sizeof(*snapshot));
    struct wire_fault fault = { 0 };
    struct json_reader r;
    int code;

    if (snapshot)
        snapshot->text = malloc(n ? n : 1);
    if (!snapshot || !snapshot->text)
        return error_set(err, -ENOMEM, "out of memory for a box of %zu bytes", n);
    memcpy(snapshot->text, text, n);

    json_reader_init(&r, snapshot->text, n);
    code = wire_decode(&snapshot->box, &wire_box_type, WIRE_LENIENT, &r, &snapshot->store, &fault);
    if (code == -ENOMEM)
        return error_set(err, code, "out of memory for a box of %zu bytes", n);
    if (code < 0)
        return error_set(err, code, "no description of a box: %s%s%s", fault.member,
                         fault.member[0] ? " " : "", fault.reason);
    code = json_finish(&r);
    if (code < 0)
        return error_set(err, code, "no description of a box: %s", r.why);
    *ret = TAKE(snapshot);
    return 0;
}

struct snapshot *snapshot_free(struct snapshot *snapshot) {
    if (!snapshot)
        return NULL;
    store_done(&snapshot->store);
    free(snapshot->text);
    free(snapshot);
    return NULL;
}

const struct wire_device *snapshot_find_device(const struct wire_box *box, const char *uuid) {
    for (size_t i = 0; i < box->n_devices; i++)
        if (strcmp(box->devices[i].uuid, uuid) == 0)
            return &box->devices[i];
    return NULL;
}

const struct wire_lease *snapshot_find_lease(const struct wire_box *box, uint64_t id) {
    for (size_t i = 0; i < box->n_leases; i++)
        if (box->leases[i].id == id)
            return &box->leases[i];
    return NULL;
}
