/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/memory/alloc_wait.h"

#include <errno.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/halt.h"
#include "libclient/device/gpu.h"
#include "libclient/device/gpu_memory.h"
#include "libclient/device/wait_limits.h"
#include "libclient/device/wakeup.h"
#include "libclient/exec/memory/ticket.h"
#include "libclient/exec/memory/memory_user.h"

/* So often what was freed on the GPU's stream is waited for, where no run is under way: the stream
 * has nothing to do then, so that once is enough, if nothing else wakes us first. */
enum { PASSES_MAX = 3 };

/* Who is about to take memory has it, or not, so soon; unless it stands in the daemon's line. */
#define MOMENT_NSEC UINT64_C(20000000)

struct relay {
    struct gpu *gpu;
    struct spare_wait wait; /* with its end in any case */
    struct want want;
    unsigned n_passes;
    struct patience_log log;
};

/* Sleep until something has changed. False: nothing will. */
static bool comes(struct relay *relay) {
    uint64_t now = clock_nsec(CLOCK_MONOTONIC), until = relay->wait.until_nsec;
    enum tenant_hope hope;

    if (relay->want.fd < 0 || halt_is_set(relay->wait.stopped) || now >= until)
        return false;
    hope = tenant_waits(relay->wait.tenant, relay->gpu);
    if (hope != TENANT_NO_HOPE) {
        relay->n_passes = 0;
        if (hope == TENANT_END)
            patience_say(&relay->log, 0, "other runs of this process have it, until they end");
        want_sleep(&relay->want, hope == TENANT_END ? until : MIN(until, now + MOMENT_NSEC));
        tenant_goes_on(relay->wait.tenant);
        return true;
    }
    /* The last of them may have ended since it was tried. */
    if (want_is_raised(&relay->want))
        return true;
    if (relay->n_passes++ >= PASSES_MAX || !gpu_memory_is_on_its_way(relay->gpu))
        return false;
    want_sleep(&relay->want, until);
    return true;
}

static int try_until(struct relay *relay, relay_fn try, void *userdata, struct allot_error *err) {
    struct allot_error last = { 0 };
    const char *more = "";
    int r;

    want_begin(&relay->want, relay->gpu, relay->wait.stopped);
    do {
        want_lower(&relay->want);
        r = try(userdata, &relay->wait, &last);
        if (r == -ENOMEM && relay->wait.is_moot && relay->wait.is_moot(relay->wait.userdata))
            r = -EALREADY;
    } while (r == -ENOMEM && comes(relay));
    if (relay->want.fd < 0)
        more = "; other runs cannot be waited for without a descriptor: raise their number "
               "(ulimit -n)";
    want_end(&relay->want);
    if (r == -ENOMEM && halt_is_set(relay->wait.stopped))
        return error_set(err, -ECANCELED, "stopped while other runs have it: %s", last.text);
    return r < 0 ? error_set(err, r, "%s%s", last.text, r == -ENOMEM ? more : "") : 0;
}

/* Who is in line has no memory, and nobody waits for it. */
static int stand(struct relay *relay, struct claim *claim) {
    int r;

    tenant_stands(relay->wait.tenant);
    r = claim_take(claim, relay->gpu, relay->wait.stopped, relay->wait.until_nsec);
    tenant_goes_on(relay->wait.tenant);
    return r;
}

static int in_line(struct relay *relay, relay_fn try, void *userdata, struct allot_error *err) {
    struct claim claim;
    int r = stand(relay, &claim);

    if (r == -ECANCELED)
        return error_set(err, r, "stopped while other runs are first in line for memory of %s",
                         relay->gpu->name);
    if (r < 0)
        return try(userdata, &relay->wait, err); /* too late to wait, for its words */
    r = try_until(relay, try, userdata, err);
    claim_pass(&claim);
    return r;
}

int relay_take(struct gpu *gpu, const struct spare_wait *wait, relay_fn try, void *userdata,
               struct allot_error *err) {
    struct relay relay = { .gpu = gpu };
    bool may_wait = wait && wait->tenant, has_memory = may_wait && wait->tenant->has_memory;
    int r = -ENOMEM;

    if (may_wait) {
        relay.wait = *wait;
        relay.wait.until_nsec = gpu_memory_patience(gpu, wait->until_nsec);
        may_wait = relay.wait.until_nsec > 0;
    }
    if (!may_wait || has_memory || !claim_is_any(gpu))
        r = try(userdata, wait, err);
    if (r == -ENOMEM && may_wait)
        r = has_memory ? try_until(&relay, try, userdata, err)
                       : in_line(&relay, try, userdata, err);
    /* In the daemon's line, in vain: for the caller that is the same. */
    return r == -ETIMEDOUT ? -ENOMEM : r;
}
