/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/memory/alloc.h"

#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "libclient/device/device.h"
#include "libclient/device/gpu.h"
#include "libclient/device/gpu_memory.h"
#include "libclient/exec/engine/cache.h"
#include "libclient/exec/memory/ticket.h"
#include "libclient/exec/memory/alloc_wait.h"
#include "libclient/exec/memory/memory_user.h"

/* Repeat the expression `call` while -ENOMEM may pass, unless it asks for more than the device has
 * in all. */
#define ALLOC_ON_HOST(host, bytes, call)                                                           \
    ({                                                                                             \
        int r_;                                                                                    \
                                                                                                   \
        do                                                                                         \
            r_ = (call);                                                                           \
        while (r_ == -ENOMEM && (bytes) <= (host)->memory_limit_bytes && cache_reclaim(host));     \
        r_;                                                                                        \
    })

static bool reclaim(void *device) {
    return cache_reclaim(device);
}

int alloc_block(struct device *device, uint64_t bytes, const char *tag,
                const struct alloc_wait *wait, struct device_block *ret, struct allot_error *err) {
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

int alloc_buffer(struct device *device, uint64_t bytes, const char *tag,
                 const struct alloc_wait *wait, struct buffer **ret, struct allot_error *err) {
    struct device_block block;
    int r = alloc_block(device, bytes, tag, wait, &block, err);

    return r < 0 ? r : device_buffer_of(device, &block, bytes, tag, ret, err);
}

/* ---- Several --------------------------------------------------------------------------------- */

/* Parts of one device that are side by side. */
struct group {
    struct alloc_part *parts;
    uint32_t n;
};

static struct group group_of(struct alloc_part *parts, uint32_t n, uint32_t at) {
    uint32_t first = at, end = at;

    while (first > 0 && parts[first - 1].device == parts[at].device)
        first--;
    while (end < n && parts[end].device == parts[at].device)
        end++;
    return (struct group){ &parts[first], end - first };
}

static uint64_t group_bytes(const struct group *group) {
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < group->n; i++)
        bytes += group->parts[i].bytes;
    return bytes;
}

static void give_group(const struct group *group) {
    for (uint32_t i = 0; i < group->n; i++)
        device_dealloc(group->parts[i].device, &group->parts[i].block);
}

/* One attempt, with what is idle in the process; unless it is hasty, it also waits in the daemon's
 * queue. */
static int try_group(const struct group *group, const struct alloc_wait *wait, bool is_hasty,
                     uint32_t *ret_failed, struct allot_error *err) {
    struct device *device = group->parts[0].device;
    struct gpu_memory_part *parts = calloc(group->n, sizeof(*parts));
    struct gpu_memory_terms terms = {
        .until_nsec = wait ? wait->until_nsec : 0,
        .stopped = wait ? wait->stopped : NULL,
        .is_moot = wait ? wait->is_moot : NULL,
        .moot_userdata = wait ? wait->userdata : NULL,
        .is_hasty = is_hasty,
        .userdata = device,
    };
    int r;

    *ret_failed = 0;
    if (!parts)
        return error_set(err, -ENOMEM, "no host memory for a run"), -ENOBUFS;
    for (uint32_t i = 0; i < group->n; i++)
        parts[i] =
            (struct gpu_memory_part){ .bytes = group->parts[i].bytes, .tag = group->parts[i].tag };
    if (group_bytes(group) <= device->memory_limit_bytes)
        terms.reclaim = reclaim;
    r = gpu_memory_alloc_all(device->gpu, parts, group->n, &terms, ret_failed, err);
    for (uint32_t i = 0; r == 0 && i < group->n; i++)
        group->parts[i].block = (struct device_block){ (void *)(uintptr_t)parts[i].block.address,
                                                       parts[i].block.handle };
    free(parts);
    return r;
}

struct attempt {
    const struct group *group;
    uint32_t *ret_failed;
};

static int try_again(void *userdata, const struct alloc_wait *wait, struct allot_error *err) {
    const struct attempt *attempt = userdata;

    return try_group(attempt->group, wait, false, attempt->ret_failed, err);
}

static int take_group(const struct group *group, const struct alloc_wait *wait, bool is_hasty,
                      uint32_t *ret_failed, struct allot_error *err) {
    struct device *device = group->parts[0].device;
    struct attempt attempt = { group, ret_failed };

    *ret_failed = 0; /* it may be stopped before the first try */
    /* No run can give back more than the device has in all. */
    if (is_hasty || group_bytes(group) > device->memory_limit_bytes)
        return try_group(group, wait, is_hasty, ret_failed, err);
    return alloc_wait_for(device->gpu, wait, try_again, &attempt, err);
}

/* Wait for the group of parts[first], unless it is hasty; do not wait for the others. */
static int take_all(struct alloc_part *parts, uint32_t n, uint32_t first,
                    const struct alloc_wait *wait, bool is_hasty, uint32_t *ret_failed,
                    struct allot_error *err) {
    struct group waited = group_of(parts, n, first), group;
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
static int take_in_turn(struct alloc_part *parts, uint32_t n, const struct alloc_wait *wait,
                        uint32_t *ret_failed, struct allot_error *err) {
    uint64_t until_nsec = gpu_memory_wait_until(parts[0].device->gpu, wait ? wait->until_nsec : 0);
    struct alloc_wait own = wait ? *wait : (struct alloc_wait){ 0 };
    struct ticket ticket;
    uint32_t first;
    int r;

    own.until_nsec = until_nsec;
    if (until_nsec == 0)
        return take_all(parts, n, *ret_failed, wait, false, ret_failed, err);
    if (own.user)
        memory_user_queue(own.user);
    r = ticket_take(&ticket, NULL, own.stopped, until_nsec);
    if (own.user)
        memory_user_resume(own.user);
    /* Not before its deadline: the first refusal has said why. */
    if (r < 0)
        return r == -ECANCELED
                   ? error_set(err, r, "stopped while other runs wait for memory of several GPUs")
                   : r;
    do {
        first = *ret_failed;
        r = take_all(parts, n, first, &own, false, ret_failed, err);
    } while (r == -ENOMEM && parts[*ret_failed].device != parts[first].device);
    ticket_release(&ticket);
    return r;
}

int alloc_all(struct alloc_part *parts, uint32_t n, const struct alloc_wait *wait,
              uint32_t *ret_failed, struct allot_error *err) {
    bool are_several = n > 0 && parts[0].device != parts[n - 1].device;
    int r = n > 0 ? take_all(parts, n, 0, wait, are_several, ret_failed, err) : 0;

    if (r == -ENOMEM && are_several)
        r = take_in_turn(parts, n, wait, ret_failed, err);
    /* Host memory is not waited for; or the wait in the daemon's queue was in vain. */
    return r == -ENOBUFS || r == -ETIMEDOUT ? -ENOMEM : r;
}

int alloc_pinned(const struct device *host, struct gpu *gpu, uint64_t bytes, void **ret,
                 struct allot_error *err) {
    return ALLOC_ON_HOST(host, bytes, gpu_host_alloc(gpu, bytes, ret, err));
}
