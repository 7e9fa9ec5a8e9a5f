/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/memory/alloc.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/halt.h"
#include "libclient/core/wait.h"
#include "libclient/device/device.h"
#include "libclient/device/gpu.h"
#include "libclient/device/gpu_memory.h"
#include "libclient/exec/memory/ticket.h"
#include "libclient/exec/memory/memory_user.h"

/* How often to wait for memory that was freed on the GPU's stream, where no run is under way. The
 * stream is idle then, so that one wait is enough unless something else wakes us first. */
enum { PASSES_MAX = 3 };

/* A run that is about to take memory has it, or fails, within this time; unless it waits in the
 * daemon's queue. */
#define MOMENT_NSEC UINT64_C(20000000)

/* Repeat the expression `call` while -ENOMEM may pass, unless it asks for more than the device has
 * in all. */
#define ALLOC_ON_HOST(host, bytes, call)                                                           \
    ({                                                                                             \
        int r_;                                                                                    \
                                                                                                   \
        do                                                                                         \
            r_ = (call);                                                                           \
        while (r_ == -ENOMEM && (bytes) <= (host)->memory_limit_bytes && reclaim_idle(host));      \
        r_;                                                                                        \
    })

static _Atomic(alloc_reclaim_fn) reclaim_by;

void alloc_reclaim_by(alloc_reclaim_fn fn) {
    atomic_store(&reclaim_by, fn);
}

static bool reclaim_idle(const struct device *device) {
    alloc_reclaim_fn fn = atomic_load(&reclaim_by);

    return fn && fn(device);
}

static bool reclaim(void *device) {
    return reclaim_idle(device);
}

int alloc_block(struct device *device, uint64_t bytes, const char *tag, struct wait *wait,
                struct device_block *ret, struct allot_error *err) {
    struct alloc_part part = { .device = device, .bytes = bytes, .tag = tag };
    uint32_t failed;
    int r;

    if (!device->gpu)
        return ALLOC_ON_HOST(device, bytes, device_host_alloc(bytes, tag, ret, err));
    r = alloc_all(&part, 1, wait, &failed, err);
    if (r == 0)
        *ret = part.block;
    return r;
}

int alloc_buffer(struct device *device, uint64_t bytes, const char *tag, struct wait *wait,
                 struct buffer **ret, struct allot_error *err) {
    struct device_block block;
    int r = alloc_block(device, bytes, tag, wait, &block, err);

    return r < 0 ? r : device_buffer_of(device, &block, bytes, tag, ret, err);
}

/* ---- Several --------------------------------------------------------------------------------- */

/* Parts of one device that are side by side. */
struct alloc_group {
    struct alloc_part *parts;
    uint32_t n;
};

static struct alloc_group group_of(struct alloc_part *parts, uint32_t n, uint32_t at) {
    uint32_t first = at, end = at;

    while (first > 0 && parts[first - 1].device == parts[at].device)
        first--;
    while (end < n && parts[end].device == parts[at].device)
        end++;
    return (struct alloc_group){ &parts[first], end - first };
}

static uint64_t group_bytes(const struct alloc_group *group) {
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < group->n; i++)
        bytes += group->parts[i].bytes;
    return bytes;
}

static void give_group(const struct alloc_group *group) {
    for (uint32_t i = 0; i < group->n; i++)
        device_dealloc(group->parts[i].device, &group->parts[i].block);
}

/* One attempt, with what is idle in the process; unless it is hasty, it also waits in the daemon's
 * queue. */
static int try_group(const struct alloc_group *group, struct wait *wait, uint32_t *ret_failed,
                     struct allot_error *err) {
    struct device *device = group->parts[0].device;
    struct gpu_memory_part *parts = calloc(group->n, sizeof(*parts));
    bool may_reclaim = group_bytes(group) <= device->memory_limit_bytes;
    int r;

    *ret_failed = 0;
    if (!parts)
        return error_set(err, -ENOMEM, "no host memory for a run"), -ENOBUFS;
    for (uint32_t i = 0; i < group->n; i++)
        parts[i] =
            (struct gpu_memory_part){ .bytes = group->parts[i].bytes, .tag = group->parts[i].tag };
    r = gpu_memory_alloc_all(device->gpu, parts, group->n, wait, may_reclaim ? reclaim : NULL,
                             device, ret_failed, err);
    for (uint32_t i = 0; r == 0 && i < group->n; i++)
        group->parts[i].block = (struct device_block){ (void *)(uintptr_t)parts[i].block.address,
                                                       parts[i].block.handle };
    free(parts);
    return r;
}

/* Sleep until something has changed. False: nothing will. */
static bool comes(struct gpu *gpu, struct wait *wait, unsigned *n_passes) {
    uint64_t now = clock_nsec(CLOCK_MONOTONIC);
    enum memory_user_release release;

    if (wait->fd < 0 || halt_is_set(wait->stopped) || now >= wait->until_nsec)
        return false;
    release = memory_user_wait(wait->user, gpu);
    if (release != MEMORY_USER_RELEASES_NONE) {
        *n_passes = 0;
        if (release == MEMORY_USER_RELEASES_AT_END)
            wait_say(wait, 0, "other runs of this process hold it until they end");
        wait_sleep(wait, release == MEMORY_USER_RELEASES_AT_END
                             ? wait->until_nsec
                             : MIN(wait->until_nsec, now + MOMENT_NSEC));
        memory_user_resume(wait->user);
        return true;
    }
    /* The last memory user may have ended since the try. */
    if (wait_is_raised(wait))
        return true;
    if ((*n_passes)++ >= PASSES_MAX || !gpu_memory_is_on_its_way(gpu))
        return false;
    wait_sleep(wait, wait->until_nsec);
    return true;
}

/* Try again until it succeeds, or no other run will give back memory of the GPU. */
static int try_until(const struct alloc_group *group, struct wait *wait, uint32_t *ret_failed,
                     struct allot_error *err) {
    struct gpu *gpu = group->parts[0].device->gpu;
    struct allot_error last = { 0 };
    const char *more = "";
    unsigned n_passes = 0;
    int r;

    wait_listen(wait, gpu);
    do {
        wait_lower(wait);
        r = try_group(group, wait, ret_failed, &last);
        if (r == -ENOMEM && wait->is_moot && wait->is_moot(wait->moot_userdata))
            r = -EALREADY;
    } while (r == -ENOMEM && comes(gpu, wait, &n_passes));
    if (wait->fd < 0)
        more = "; it cannot wait for other runs without a file descriptor: raise the limit "
               "(ulimit -n)";
    if (r == -ENOMEM && halt_is_set(wait->stopped))
        return error_set(err, -ECANCELED, "stopped while other runs hold it: %s", last.text);
    return r < 0 ? error_set(err, r, "%s%s", last.text, r == -ENOMEM ? more : "") : 0;
}

/* Wait in the queue. The run holds no memory meanwhile, so no other run waits for it. */
static int stand(struct ticket *ticket, const struct gpu *gpu, struct wait *wait) {
    int r;

    if (wait->user)
        memory_user_queue(wait->user);
    r = ticket_take(ticket, gpu, wait);
    if (wait->user)
        memory_user_resume(wait->user);
    return r;
}

static int try_in_turn(const struct alloc_group *group, struct wait *wait, uint32_t *ret_failed,
                       struct allot_error *err) {
    const struct gpu *gpu = group->parts[0].device->gpu;
    struct ticket ticket;
    int r = stand(&ticket, gpu, wait);

    if (r == -ECANCELED)
        return error_set(err, r, "stopped while other runs are first in the queue for memory of %s",
                         gpu->name);
    if (r < 0)
        return try_group(group, wait, ret_failed, err); /* too late to wait; for the error text */
    r = try_until(group, wait, ret_failed, err);
    ticket_release(&ticket);
    return r;
}

static int take_group(const struct alloc_group *group, struct wait *wait, bool is_hasty,
                      uint32_t *ret_failed, struct allot_error *err) {
    struct device *device = group->parts[0].device;
    /* No run can give back more than the device has in all. */
    bool can_help = !is_hasty && group_bytes(group) <= device->memory_limit_bytes;
    bool may_wait = can_help && wait->user && gpu_memory_limit(device->gpu, wait);
    bool has_memory = may_wait && wait->user->has_memory;
    int r = -ENOMEM;

    *ret_failed = 0; /* it may be stopped before the first try */
    wait->is_hasty = is_hasty;
    if (!may_wait || has_memory || !ticket_is_any(device->gpu))
        r = try_group(group, wait, ret_failed, err);
    if (r == -ENOMEM && may_wait)
        r = has_memory ? try_until(group, wait, ret_failed, err)
                       : try_in_turn(group, wait, ret_failed, err);
    /* To the caller, a wait in the daemon's queue that timed out is a lack of memory. */
    return can_help && r == -ETIMEDOUT ? -ENOMEM : r;
}

/* Wait for the group of parts[first], unless it is hasty; do not wait for the others. */
static int take_all(struct alloc_part *parts, uint32_t n, uint32_t first, struct wait *wait,
                    bool is_hasty, uint32_t *ret_failed, struct allot_error *err) {
    struct alloc_group waited = group_of(parts, n, first), group;
    int r = take_group(&waited, wait, is_hasty, ret_failed, err);
    uint32_t at, end = 0;

    if (r < 0) {
        *ret_failed += (uint32_t)(waited.parts - parts);
        return r;
    }
    for (at = 0; at < n; at = end) {
        group = group_of(parts, n, at);
        end = at + group.n;
        if (group.parts == waited.parts)
            continue;
        r = take_group(&group, wait, true, ret_failed, err);
        if (r < 0)
            break;
    }
    if (r == 0)
        return 0;
    *ret_failed += at;
    give_group(&waited);
    for (end = at, at = 0; at < end; at += group.n) {
        group = group_of(parts, n, at);
        if (group.parts != waited.parts)
            give_group(&group);
    }
    return r;
}

/* Wait for one group after the other, holding nothing meanwhile, until all are there at once. */
static int take_in_turn(struct alloc_part *parts, uint32_t n, struct wait *wait,
                        uint32_t *ret_failed, struct allot_error *err) {
    struct ticket ticket;
    uint32_t first;
    int r;

    if (!gpu_memory_limit(parts[0].device->gpu, wait))
        return take_all(parts, n, *ret_failed, wait, false, ret_failed, err);
    r = stand(&ticket, NULL, wait);
    /* Its turn did not come before its deadline: keep the error of the first refusal. */
    if (r < 0)
        return r == -ECANCELED
                   ? error_set(err, r, "stopped while other runs wait for memory of several GPUs")
                   : r;
    do {
        first = *ret_failed;
        r = take_all(parts, n, first, wait, false, ret_failed, err);
    } while (r == -ENOMEM && parts[*ret_failed].device != parts[first].device);
    ticket_release(&ticket);
    return r;
}

int alloc_all(struct alloc_part *parts, uint32_t n, struct wait *wait, uint32_t *ret_failed,
              struct allot_error *err) {
    bool are_several = n > 0 && parts[0].device != parts[n - 1].device;
    uint64_t until_nsec = wait->until_nsec;
    int r = n > 0 ? take_all(parts, n, 0, wait, are_several, ret_failed, err) : 0;

    if (r == -ENOMEM && are_several)
        r = take_in_turn(parts, n, wait, ret_failed, err);
    wait->until_nsec = until_nsec; /* it was narrowed to the limits of the GPUs */
    /* -ENOBUFS: of the host, whose memory is not waited for; -ETIMEDOUT: of the daemon's queue. */
    return r == -ENOBUFS || r == -ETIMEDOUT ? -ENOMEM : r;
}

int alloc_pinned(const struct device *host, struct gpu *gpu, uint64_t bytes, void **ret,
                 struct allot_error *err) {
    return ALLOC_ON_HOST(host, bytes, gpu_host_alloc(gpu, bytes, ret, err));
}
