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

/* How often to wait for memory that was freed on the GPU's stream, where no run is under way. The
 * stream is idle then, so that one wait is enough unless something else wakes us first. */
enum { PASSES_MAX = 3 };

/* A run that is about to take memory has it, or fails, within this time; unless it waits in the
 * daemon's queue. */
#define MOMENT_NSEC UINT64_C(20000000)

struct waiting {
    struct gpu *gpu;
    struct alloc_wait wait; /* always with a deadline */
    struct wakeup wakeup;
    unsigned n_passes;
    struct wait_limits_logged log;
};

/* Sleep until something has changed. False: nothing will. */
static bool comes(struct waiting *waiting) {
    uint64_t now = clock_nsec(CLOCK_MONOTONIC), until = waiting->wait.until_nsec;
    enum memory_user_release release;

    if (waiting->wakeup.fd < 0 || halt_is_set(waiting->wait.stopped) || now >= until)
        return false;
    release = memory_user_wait(waiting->wait.user, waiting->gpu);
    if (release != MEMORY_USER_RELEASES_NONE) {
        waiting->n_passes = 0;
        if (release == MEMORY_USER_RELEASES_AT_END)
            wait_limits_log(&waiting->log, 0, "other runs of this process hold it until they end");
        wakeup_sleep(&waiting->wakeup, release == MEMORY_USER_RELEASES_AT_END
                                           ? until
                                           : MIN(until, now + MOMENT_NSEC));
        memory_user_resume(waiting->wait.user);
        return true;
    }
    /* The last memory user may have ended since the try. */
    if (wakeup_is_raised(&waiting->wakeup))
        return true;
    if (waiting->n_passes++ >= PASSES_MAX || !gpu_memory_is_on_its_way(waiting->gpu))
        return false;
    wakeup_sleep(&waiting->wakeup, until);
    return true;
}

static int try_until(struct waiting *waiting, alloc_wait_fn try, void *userdata,
                     struct allot_error *err) {
    struct allot_error last = { 0 };
    const char *more = "";
    int r;

    wakeup_begin(&waiting->wakeup, waiting->gpu, waiting->wait.stopped);
    do {
        wakeup_lower(&waiting->wakeup);
        r = try(userdata, &waiting->wait, &last);
        if (r == -ENOMEM && waiting->wait.is_moot && waiting->wait.is_moot(waiting->wait.userdata))
            r = -EALREADY;
    } while (r == -ENOMEM && comes(waiting));
    if (waiting->wakeup.fd < 0)
        more = "; it cannot wait for other runs without a file descriptor: raise the limit "
               "(ulimit -n)";
    wakeup_end(&waiting->wakeup);
    if (r == -ENOMEM && halt_is_set(waiting->wait.stopped))
        return error_set(err, -ECANCELED, "stopped while other runs hold it: %s", last.text);
    return r < 0 ? error_set(err, r, "%s%s", last.text, r == -ENOMEM ? more : "") : 0;
}

/* A run in the queue holds no memory, so that no run waits for it. */
static int stand(struct waiting *waiting, struct ticket *ticket) {
    int r;

    memory_user_queue(waiting->wait.user);
    r = ticket_take(ticket, waiting->gpu, waiting->wait.stopped, waiting->wait.until_nsec);
    memory_user_resume(waiting->wait.user);
    return r;
}

static int in_line(struct waiting *waiting, alloc_wait_fn try, void *userdata,
                   struct allot_error *err) {
    struct ticket ticket;
    int r = stand(waiting, &ticket);

    if (r == -ECANCELED)
        return error_set(err, r, "stopped while other runs are first in the queue for memory of %s",
                         waiting->gpu->name);
    if (r < 0)
        return try(userdata, &waiting->wait, err); /* too late to wait; for the error text */
    r = try_until(waiting, try, userdata, err);
    ticket_release(&ticket);
    return r;
}

int alloc_wait_for(struct gpu *gpu, const struct alloc_wait *wait, alloc_wait_fn try,
                   void *userdata, struct allot_error *err) {
    struct waiting waiting = { .gpu = gpu };
    bool may_wait = wait && wait->user, has_memory = may_wait && wait->user->has_memory;
    int r = -ENOMEM;

    if (may_wait) {
        waiting.wait = *wait;
        waiting.wait.until_nsec = gpu_memory_wait_until(gpu, wait->until_nsec);
        may_wait = waiting.wait.until_nsec > 0;
    }
    if (!may_wait || has_memory || !ticket_is_any(gpu))
        r = try(userdata, wait, err);
    if (r == -ENOMEM && may_wait)
        r = has_memory ? try_until(&waiting, try, userdata, err)
                       : in_line(&waiting, try, userdata, err);
    /* It waited in the daemon's queue in vain: the same to the caller. */
    return r == -ETIMEDOUT ? -ENOMEM : r;
}
