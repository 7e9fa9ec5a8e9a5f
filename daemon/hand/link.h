/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Link: a connection to a helper, by its socket or by starting it; and what became of those that
 * were started.
 *
 * Embedded in struct helper and struct signal_fallback. Event-loop thread only.
 */
#include <stddef.h>

#include "base/error.h"
#include "base/list.h"
#include "daemon/hand/hand.h"

struct sd_event;
struct child;

struct hand_link {
    int fd;           /* -1: none */
    const char *name; /* "allot-hand" or "allot-reader", static */
    struct sd_event *event;
    char *socket, *program; /* one of them is set */
    struct list children;   /* processes that we started and that have not ended yet */
    unsigned n_children;
    struct child *child; /* of them, the one behind `fd` */
};

/* `name` is that of the program, borrowed. -ENOMEM. */
int hand_link_init(struct hand_link *link, struct sd_event *event, const char *name,
                   const struct hand_address *address);
void hand_link_done(struct hand_link *link); /* also of zeroed memory */

/* -EBUSY: too many that were given up are stuck in the kernel. */
int hand_link_open(struct hand_link *link, struct allot_error *err);
/* Give the helper up: it ends when it can. */
void hand_link_close(struct hand_link *link);
