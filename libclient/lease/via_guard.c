/* SPDX-License-Identifier: Apache-2.0 */
/* A lease whose bytes the guard in this process charges. */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/lease/lease.h"

enum { TIER_GUARD = 3 };

const struct allot_charger *via_guard_charger(const struct allot_lease *lease) {
    const struct allot_charger *charger;

    /* The guard itself uses liballot for its lease. */
    if (lease->options.tier == TIER_GUARD)
        return NULL;
    charger = dlsym(RTLD_DEFAULT, ALLOT_CHARGER_SYMBOL);
    return charger && charger->version == ALLOT_CHARGER_VERSION ? charger : NULL;
}

int via_guard_hold(struct allot_lease *lease, const struct allot_charger *charger,
                   struct allot_error *err) {
    struct allot_lease_share *shares;
    size_t n;
    int r;

    r = charger->join(&lease->registration, lease->options.notice, lease->options.userdata, err);
    if (r < 0)
        return r;
    n = charger->shares(NULL, 0);
    shares = calloc(n + 1, sizeof(*shares));
    if (!shares) {
        charger->leave(lease->registration);
        return error_set(err, -ENOMEM, "no host memory for the shares of a lease");
    }
    pthread_mutex_lock(&lease->lock);
    free(lease->shares);
    lease->shares = shares;
    lease->n_shares = MIN(n, charger->shares(shares, n));
    lease_set_state(lease, LEASE_ATTACHED);
    lease->charger = charger;
    pthread_mutex_unlock(&lease->lock);
    return 0;
}

void via_guard_let_go(struct allot_lease *lease) {
    for (size_t i = 0; i < lease->n_shares; i++)
        lease->charger->unreserve(lease->shares[i].device, lease->shares[i].held_bytes);
    lease->charger->leave(lease->registration);
    lease->charger = NULL;
}

int via_guard_call(struct allot_lease *lease, enum wire_method method, const void *parameters,
                   const struct wait *wait, union wire_reply *ret, struct allot_error *err) {
    const struct wire_shrink *shrink = parameters;
    const struct wire_grow *grow = parameters;
    struct allot_lease_patience patience = ALLOT_LEASE_PATIENCE_INIT;
    uint64_t left = wait_left_usec(wait->answer_nsec);

    if (method == WIRE_METHOD_SHRINK) {
        lease->charger->unreserve(shrink->device, shrink->bytes);
        return 0;
    }
    if (grow->wait.has && grow->wait.value)
        patience.timeout_usec =
            grow->timeout_usec.has ? (uint64_t)grow->timeout_usec.value : UINT64_MAX;
    if (left != UINT64_MAX)
        patience.hangs_usec = MAX(left - MIN(left, patience.timeout_usec), UINT64_C(1));
    patience.reconnect_usec = MAX(wait_left_usec(wait->away_nsec), UINT64_C(1));
    patience.progress = wait->progress;
    patience.userdata = wait->userdata;
    patience.cancel_fd = wait->fd;
    patience.go_on = wait->go_on;
    if (grow->bytes == 0) /* only asks how much is held */
        return lease->charger->held(grow->device, &ret->grow.held_bytes, err);
    return lease->charger->reserve(grow->device, grow->bytes, &patience, err);
}
