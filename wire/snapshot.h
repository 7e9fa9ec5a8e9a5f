/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Snapshot: a copy of a box at one instant, as GetBox answers it, that outlives the connection.
 * gpuctl-nvml-view writes it, gpuctl reads it, and tests keep it in files.
 *
 * Owned by the caller of snapshot_read(); everything in `box` lives as long. Any thread, one at a
 * time.
 */
#include <stddef.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "wire/message.h"

struct snapshot {
    struct wire_box box;
    struct store store;
    char *text;
};

/* Write `box` as one JSON object without newlines: the member `box` of GetBox's reply. */
void snapshot_write(struct json_writer *w, const struct wire_box *box);

/*
 * Read such an object; the text is copied. -EBADMSG or -EINVAL, and `err` names the member that is
 * wrong; unknown members are skipped; -ENOMEM.
 */
int snapshot_read(struct snapshot **ret, const char *text, size_t n, struct allot_error *err);
struct snapshot *snapshot_free(struct snapshot *snapshot); /* accepts NULL, returns NULL */
DEFINE_FREEP(struct snapshot, snapshot_freep, snapshot_free)

/* Find a device by its exact UUID, or a lease; NULL if the box has none. */
const struct wire_device *snapshot_find_device(const struct wire_box *box, const char *uuid);
const struct wire_lease *snapshot_find_lease(const struct wire_box *box, uint64_t id);
