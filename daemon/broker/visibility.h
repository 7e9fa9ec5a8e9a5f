/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Visibility: the devices that a request may have: what it asks for ∩ what policy lets this user
 * see ∩ what is healthy.
 *
 * Pure; no allocation. Texts come from strangers.
 */
#include <stdbool.h>
#include <stddef.h>

#include "base/gpuid.h"
#include "daemon/broker/books.h"
#include "daemon/broker/policy.h"
#include "daemon/broker/verdict.h"

struct visibility_request {
    const char *const *devices; /* names, as a person gives them; n_devices 0: none */
    size_t n_devices;
    const char *cuda_visible_devices, *cuda_device_order; /* NULL: not set */
};

struct visibility {
    struct slots candidates;         /* that the request may have, whole GPUs and instances */
    uint32_t n_named;                /* devices asked for by name: all of them are meant */
    uint8_t named[BOOKS_SHARES_MAX]; /* their slots, in the order of the request */
    uint16_t order[BOOKS_MAX];       /* slots of the candidates in the order that CUDA counts */
    uint32_t n_order;
    uint32_t n_unhealthy; /* that are left out only because they are not ready */
    char note[256];       /* what CUDA_VISIBLE_DEVICES left out, and why; "" */
};

/*
 * 0, or -ENODEV with a verdict (DENY: NO_DEVICE, DENIED or DRAINING, with the device and a reason)
 * if a device that was named does not exist, is ambiguous, is not for this user or not healthy, or
 * if nothing is left at all.
 */
int visibility_decide(struct visibility *ret, struct verdict *ret_verdict,
                      struct book *const *books, size_t n_books, const struct policy_rules *rules,
                      const struct visibility_request *request);

/* The policy's view of a device. Borrows from `book`. */
struct policy_identity visibility_identity(const struct book *book);
