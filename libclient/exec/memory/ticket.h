/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Ticket: of the runs of the process that found memory lacking, one at a time tries to have it; the
 * others wait, with nothing, in the order in which they came. There is a line for each GPU, and one
 * for those who need several GPUs: two at once might each have, for a moment, what the other lacks,
 * and so again and again.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "libclient/device/wakeup.h"

struct gpu;

struct ticket {
    struct list link;
    const struct gpu *gpu; /* whose line; NULL: that for several */
    struct wakeup wakeup;
};

/* Wait for it. 0; -ECANCELED: `stopped` was set; -ENOMEM: not until `until_nsec`, of
 * CLOCK_MONOTONIC (UINT64_MAX: no limit). */
int ticket_take(struct ticket *ticket, const struct gpu *gpu, const atomic_bool *stopped,
                uint64_t until_nsec);
/* After it was had. */
void ticket_release(struct ticket *ticket);

/* Whether anybody is in the line of this GPU. Costs next to nothing where nobody is in any. */
bool ticket_is_any(const struct gpu *gpu);
