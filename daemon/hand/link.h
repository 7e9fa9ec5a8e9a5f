/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Link: a connection to an allot-hand, by its socket or by starting one; and what became of those
 * that were started.
 *
 * Embedded in struct hand. Event-loop thread only.
 */
#include <stddef.h>

#include "base/error.h"
#include "base/list.h"

struct sd_event;
struct child;

struct hand_link {
    int fd; /* -1: none */
    struct sd_event *event;
    char *socket, *program; /* one of them is set */
    struct list children;   /* processes that we started and that have not ended yet */
    unsigned n_children;
    struct child *child; /* of them, the one behind `fd` */
};

/* `socket` NULL: start `program`, NULL: the allot-hand beside this program or the installed one. */
int hand_link_init(struct hand_link *link, struct sd_event *event, const char *socket,
                   const char *program);
void hand_link_done(struct hand_link *link); /* also of zeroed memory */

/* -EBUSY: too many that were given up are stuck in the kernel. */
int hand_link_open(struct hand_link *link, struct allot_error *err);
/* Give the hand up: it ends when it can. */
void hand_link_close(struct hand_link *link);
