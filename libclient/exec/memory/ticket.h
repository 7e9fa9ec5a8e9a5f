/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Ticket: of the runs of this process that found no memory, one at a time tries again; the others
 * wait in order of arrival and hold nothing. There is one queue for each GPU, and one for runs that
 * need several GPUs: two of those at once could each take, again and again, what the other lacks.
 */
#include <stdbool.h>

#include "base/list.h"

struct gpu;
struct wait;

struct ticket {
    struct list link;
    const struct gpu *gpu; /* whose queue; NULL: the queue for several GPUs */
    struct wait *wait;
};

/* Wait for this ticket's turn. 0; -ECANCELED: the wait was stopped; -ENOMEM: its deadline passed.
 * `wait` belongs to the ticket until that is released. */
int ticket_take(struct ticket *ticket, const struct gpu *gpu, struct wait *wait);
/* After ticket_take() returned 0. */
void ticket_release(struct ticket *ticket);

/* Whether any run is in the queue of this GPU. Costs next to nothing where all queues are empty. */
bool ticket_is_any(const struct gpu *gpu);
