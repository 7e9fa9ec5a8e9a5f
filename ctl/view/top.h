/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Top: the page of the full-screen view, without the screen.
 *
 * Pure except for its output and its histories: the loop around it reads the box and the keys.
 * Owned by that loop.
 */
#include "ctl/view/history.h"
#include "ctl/view/term.h"
#include "ctl/view/view.h"

enum top_sort { TOP_MEMORY, TOP_USER, TOP_DEVICE, TOP_AGE, TOP_NUMBER, TOP_SORTS };

struct top {
    struct history devices, leases;
    enum top_sort sort;
    bool reversed;
    char filter[64]; /* searches user, name, command and container; "": shows all */
};

const char *top_sort_name(enum top_sort sort);

void top_done(struct top *top);

/* Add the current state of the box to the histories. */
void top_update(struct top *top, const struct wire_box *box);

/* Print the page; -ENOMEM. */
int top_print(struct top *top, const struct view *view, const struct term *term);
