/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Box view: the box as it is now, from allotd or, if that does not answer, from the driver alone.
 *
 * Owned by the caller of box_view_take(); everything in `view` lives as long.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "ctl/gpuctl.h"
#include "ctl/view/view.h"
#include "wire/client.h"

struct box_view {
    struct view view;
    struct wire_box whole; /* the whole box */
    struct wire_box box;   /* what `view` shows, perhaps filtered */
    struct client *client; /* its last reply holds the box; NULL without allotd */
    struct snapshot *nvml; /* NULL with allotd */
    char trouble[512];     /* why allotd did not answer */
    void *kept[5];         /* arrays of a filtered box */
};

/*
 * `client` may be NULL. Otherwise this function uses it and connects it if necessary; it stays the
 * caller's, who can reuse it for a view every second. -EHOSTDOWN: neither allotd nor the driver
 * answers, and `err` says why for both.
 */
int box_view_take(struct box_view *box_view, const struct gpuctl *ctl, struct client *client,
                  struct allot_error *err);
void box_view_done(struct box_view *box_view);

/* What to keep; an empty filter keeps everything. */
struct box_view_filter {
    const char *devices; /* separated by commas: index, UUID or a unique prefix of one, bus id */
    const char *user;    /* name or uid */
};

/*
 * A lease stays whole if one of its devices stays. A waiting request stays unless allotd says that
 * it waits only for other devices; the same goes for notices. -ENOENT: no such device; `err` names
 * it.
 */
int box_view_filter(struct box_view *box_view, const struct box_view_filter *filter,
                    struct allot_error *err);

/*
 * -ENOENT: neither the box nor /etc/passwd knows this user name; `err` says so. Uids are always
 * accepted. Users of a directory service are known while the box has a lease, process or request of
 * theirs.
 */
int box_view_check_user(const struct box_view *box_view, const char *user, struct allot_error *err);
