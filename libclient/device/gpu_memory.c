/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPU memory: an *allocation* is what one thread does between the arena and the lease.
 *
 * The arena asks its source for pages while it holds a lock that others need, so the source must
 * not call the daemon: it takes what the allocation has credit for, or what was given back and not
 * reported yet; else it notes how much is missing, and the arena gives up (-EAGAIN). The allocation
 * then asks the lease for that much and has the arena try again. What the lease refuses, the source
 * refuses, with everything larger: so the arena tries its other ways to memory, and finds the least
 * that it needs, which is what the allocation waits for when all of them have failed.
 *
 *            ┌──────────▶ try ────────────▶ done
 *            │             │ no memory
 *            │          reclaim what is idle here ──┐ something was
 *            │             │ nothing                └──▶ try
 *            └── grown ── wait in the daemon's queue
 *                          │  ▲ memory has become free or idle here: try with what there is;
 *                          └──┘ what is not enough is given back, and the place is kept
 *
 * The wait ends with the lease's answer, with enough memory of our own, or when the run is stopped.
 * That holds with a daemon that hangs, too: a stop also cuts short the call that gives back.
 *
 * An allocation may be for several blocks, its parts. It gets all of them or none: parts that it
 * has while another is missing are given back before any other thread looks, so that no allocation
 * waits with a part that another one waits for. It queues for what all of them lack together.
 */
#include "libclient/device/gpu_memory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/units.h"
#include "libclient/device/gpu.h"
#include "libclient/device/gpu_source.h"
#include "libclient/lease/lease.h"
#include "libclient/lease/others.h"

/* A stopped run waits no longer than this for the daemon to take back what it gives. */
#define STOPPED_USEC UINT64_C(200000)

struct gpu_allocation {
    struct gpu_memory *memory;
    struct gpu_memory_part *parts, *part; /* `part`: the one that the arena is asked for now */
    uint32_t n_parts, failed;             /* `failed`: the first that was missing at the last try */
    struct wait *wait;                    /* NULL: do not wait */
    bool (*reclaim)(void *userdata);
    void *userdata;

    uint64_t credit_bytes;      /* leased for it, and not mapped */
    uint64_t need_bytes;        /* bytes that all parts asked of the source beyond its credit */
    uint64_t took_bytes;        /* taken of its credit since it last queued */
    bool is_refused;            /* the lease has refused some of that */
    struct allot_error refused; /* its error */
    bool may_ask;               /* the source says what is missing; else it just refuses */
    bool is_first;              /* the arena is being made: its source has nothing yet */

    bool is_heard;         /* the lease was asked: `wait` is woken by what happens meanwhile */
    bool has_heard;        /* it was woken where it could not try: it has to try later */
    uint64_t tried_usec;   /* when it last began to try without waiting */
    uint64_t waited_bytes; /* for which it waits in the daemon's queue */
    bool is_done;          /* the parts are there: there is nothing to wait for any more */
    bool is_stopped, is_moot;
    bool is_late; /* it waited until its time limit */
};

/* The allocation of this thread: the arena's callbacks have no other way to it. */
static _Thread_local struct gpu_allocation *allocation;

struct allot_error *gpu_memory_refused(void) {
    return allocation ? &allocation->refused : NULL;
}

/* ---- What the source is given ---------------------------------------------------------------- */

static uint64_t take_owed(struct gpu_memory *memory, uint64_t bytes) {
    uint64_t owed = atomic_load(&memory->owed_bytes);

    while (owed >= bytes)
        if (atomic_compare_exchange_weak(&memory->owed_bytes, &owed, owed - bytes))
            return bytes;
    return 0;
}

static int take_first(struct gpu_memory *memory, uint64_t bytes);

int gpu_memory_take(struct gpu_memory *memory, uint64_t bytes) {
    uint64_t missing;

    if (!memory->options.lease)
        return 0;
    if (!allocation)
        return -ENOSPC;
    if (allocation->is_first)
        return take_first(memory, bytes);
    missing = bytes - MIN(bytes, allocation->credit_bytes);
    if (missing == 0 || take_owed(memory, missing)) {
        allocation->credit_bytes -= bytes - missing;
        allocation->took_bytes += bytes;
        return 0;
    }
    if (bytes < allocation->part->need_bytes || allocation->part->need_bytes == 0)
        allocation->part->need_bytes = bytes;
    if (!allocation->may_ask || bytes >= allocation->part->refused_bytes)
        return -ENOSPC;
    allocation->part->need_bytes = bytes;
    return -EAGAIN;
}

void gpu_memory_give(struct gpu_memory *memory, uint64_t bytes) {
    if (memory->options.lease)
        atomic_fetch_add(&memory->owed_bytes, bytes);
}

/* Something happened. Whether to go on: the run was not stopped, and the memory is still needed. */
static bool hear(void *userdata) {
    const struct wait *wait = allocation->wait;

    wait_lower(wait);
    allocation->is_stopped = wait->stopped && atomic_load(wait->stopped);
    allocation->is_moot = wait->is_moot && wait->is_moot(wait->moot_userdata);
    return !allocation->is_stopped && !allocation->is_moot;
}

/* The same where the allocation cannot try now: it tries later. */
static bool hear_aside(void *userdata) {
    allocation->has_heard = true;
    return hear(userdata);
}

/* Have the next wait return at once if something happened meanwhile. */
static void look_later(void) {
    if (allocation && allocation->has_heard) {
        allocation->has_heard = false;
        wait_raise(allocation->wait);
    }
}

/* Report to the lease what was given back. Not inside the arena. */
static void settle(struct gpu_memory *memory) {
    uint64_t bytes = atomic_exchange(&memory->owed_bytes, 0);
    struct wait wait; /* a separate one: that of the allocation may be in use by a call */

    if (bytes == 0)
        return;
    wait = wait_begin(UINT64_MAX, NULL);
    wait.limits.hangs_usec = memory->options.limits.hangs_usec;
    if (allocation && allocation->is_stopped) {
        wait.limits.hangs_usec = STOPPED_USEC;
    } else if (allocation && allocation->is_heard) {
        wait.fd = allocation->wait->fd;
        wait.go_on = hear_aside;
    }
    /* A daemon that does not answer learns of it when the process attaches again with the bytes it
     * then holds. If this process could not send the report, it sends it the next time. */
    if (lease_shrink(memory->options.lease, memory->gpu->uuid, bytes, &wait, NULL) < 0)
        gpu_memory_give(memory, bytes);
    look_later();
}

int gpu_memory_describe(void *userdata, char *text, size_t size) {
    const struct gpu_memory *memory = userdata;
    const struct allot_error *refused = gpu_memory_refused();
    char others[256] = "";

    if (!refused || !refused->code)
        return snprintf(text, size, "%s", "");
    if (refused->code != -ENOTCONN && memory->options.lease)
        lease_others(memory->options.lease, memory->gpu->uuid, others, sizeof(others));
    return snprintf(text, size, "%s%s%s", others, *others ? "; " : "", refused->text);
}

/* ---- Asking the lease ------------------------------------------------------------------------ */

bool gpu_memory_limit(const struct gpu *gpu, struct wait *wait) {
    uint64_t usec = gpu->memory->options.limits.memory_usec;

    if (usec)
        wait->until_nsec = MIN(wait->until_nsec, wait_deadline(usec));
    return usec > 0;
}

/* How long to wait, by the options of this GPU. */
static struct wait_limits limits_now(const struct gpu_memory *memory) {
    struct wait_limits limits = memory->options.limits;

    /* A daemon that did not answer when it was tried has had that time already. */
    if (allocation->refused.code == -ENOTCONN && limits.away_usec > 0)
        limits.away_usec -=
            MIN(clock_usec(CLOCK_MONOTONIC) - allocation->tried_usec, limits.away_usec - 1);
    return limits;
}

/* Have the allocation's wait woken by news of this GPU from now on. */
static void listen(const struct gpu_memory *memory) {
    if (!allocation->wait || allocation->is_first || allocation->is_heard)
        return;
    wait_listen(allocation->wait, memory->gpu);
    allocation->is_heard = true;
}

/* Ask the lease. With a wait, the call can be stopped: even a daemon that hangs blocks no run. */
static int grow(const struct gpu_memory *memory, uint64_t bytes, bool may_wait,
                bool (*go_on)(void *userdata)) {
    struct wait none = wait_begin(UINT64_MAX, NULL),
                *wait = allocation->wait ? allocation->wait : &none;

    listen(memory);
    wait->limits = may_wait ? limits_now(memory)
                            : (struct wait_limits){ 0, 1, memory->options.limits.hangs_usec };
    wait->progress = may_wait ? wait_say : NULL;
    wait->go_on = go_on;
    wait->userdata = wait;
    allocation->refused = (struct allot_error){ 0 };
    return lease_grow(memory->options.lease, memory->gpu->uuid, bytes, wait, &allocation->refused);
}

static int take_first(struct gpu_memory *memory, uint64_t bytes) {
    return grow(memory, bytes, true, NULL);
}

/* Give back credit that was not used. */
static void drop_credit(void) {
    gpu_memory_give(allocation->memory, allocation->credit_bytes);
    allocation->credit_bytes = 0;
}

/* Under the lock: allocate all parts; else an error, or -EAGAIN if one more try is all that is
 * needed. Parts behind a missing one are tried too, to know what is missing in all. */
static int alloc_parts(struct allot_error *err) {
    struct arena *arena = allocation->memory->gpu->arena;
    int r = 0;

    allocation->need_bytes = 0;
    for (uint32_t i = 0; i < allocation->n_parts; i++) {
        struct gpu_memory_part *part = &allocation->parts[i];
        const struct arena_request request = { .bytes = part->bytes,
                                               .stream = allocation->memory->stream,
                                               .tag = part->tag_number };
        bool is_spoken_of;
        int one;

        allocation->part = part;
        part->need_bytes = 0;
        /* The error names the largest of the missing parts, or the first of these. */
        is_spoken_of = r == 0 || part->bytes > allocation->parts[allocation->failed].bytes;
        one = arena_alloc(arena, &request, &part->block, is_spoken_of ? err : NULL);
        part->is_there = one == 0;
        if (one == 0)
            continue;
        allocation->need_bytes += part->need_bytes;
        if (is_spoken_of)
            allocation->failed = i;
        if (r == 0 || one == -EAGAIN)
            r = one;
    }
    for (uint32_t i = 0; r < 0 && i < allocation->n_parts; i++)
        if (allocation->parts[i].is_there)
            arena_dealloc(arena, allocation->parts[i].block.handle, &allocation->memory->stream, 1);
    return r;
}

/* One try of the arena, without asking the lease. Other threads never see memory that a part got
 * and that goes back because another part is missing. */
static int alloc_with(bool may_ask, struct allot_error *err) {
    pthread_rwlock_t *lock = &allocation->memory->gathering;
    int r;

    allocation->may_ask = may_ask;
    if (allocation->n_parts > 1)
        pthread_rwlock_wrlock(lock);
    else
        pthread_rwlock_rdlock(lock);
    r = alloc_parts(err);
    pthread_rwlock_unlock(lock);
    return r;
}

/* The lease has refused what the parts need together: each is to try with less. */
static void refuse_parts(void) {
    allocation->is_refused = true;
    for (uint32_t i = 0; i < allocation->n_parts; i++) {
        struct gpu_memory_part *part = &allocation->parts[i];

        if (!part->is_there && part->need_bytes)
            part->refused_bytes = MIN(part->refused_bytes, part->need_bytes);
    }
}

/* Without waiting: -ENOMEM, and the least that is missing; -ECANCELED. */
static int try(void) {
    struct gpu_memory *memory = allocation->memory;
    int r;

    for (uint32_t i = 0; i < allocation->n_parts; i++)
        allocation->parts[i].refused_bytes = UINT64_MAX;
    allocation->is_refused = false;
    allocation->refused = (struct allot_error){ 0 };
    while ((r = alloc_with(true, NULL)) == -EAGAIN) {
        uint64_t missing = allocation->need_bytes - allocation->credit_bytes;

        listen(memory);
        settle(memory);
        if (grow(memory, missing, false, hear_aside) == 0)
            allocation->credit_bytes += missing;
        else if (allocation->is_stopped || allocation->is_moot)
            return allocation->is_stopped ? -ECANCELED : -EALREADY;
        else
            refuse_parts();
    }
    return r;
}

static int try_and_reclaim(void) {
    int r;

    allocation->tried_usec = clock_usec(CLOCK_MONOTONIC);
    do
        r = try();
    while (r == -ENOMEM && allocation->reclaim && allocation->reclaim(allocation->userdata));
    return r;
}

/* ---- Waiting --------------------------------------------------------------------------------- */

bool gpu_memory_is_on_its_way(struct gpu *gpu) {
    struct arena_stats stats;

    arena_get_stats(gpu->arena, &stats);
    return stats.pending_bytes > 0 && stream_progress_mark(&gpu->progress);
}

/* Not enough: give back the memory that has become free since, so that the daemon can grant it to
 * the next in its queue once the caller has reported it. Keep everything else: the wait is only for
 * the bytes that are missing. */
static void give_back(struct gpu_memory *memory) {
    uint64_t more =
                 allocation->waited_bytes - MIN(allocation->need_bytes, allocation->waited_bytes),
             gone = 0;
    struct arena_stats stats;

    if (allocation->need_bytes == 0 || more == 0)
        return;
    arena_get_stats(memory->gpu->arena, &stats);
    arena_trim(memory->gpu->arena, stats.reserved_bytes - MIN(more, stats.reserved_bytes), &gone);
    if (gone < more)
        gpu_memory_is_on_its_way(memory->gpu);
}

/* Something happened: true if that does not end the wait. */
static bool look(void *userdata) {
    if (!hear(userdata))
        return false;
    do
        allocation->is_done = alloc_with(false, NULL) == 0;
    while (!allocation->is_done && allocation->reclaim &&
           allocation->reclaim(allocation->userdata));
    if (!allocation->is_done) {
        give_back(allocation->memory);
        settle(allocation->memory); /* also what this try made idle: other jobs may wait for it */
    }
    return !allocation->is_done;
}

/* The bytes that a grant must have for all parts to fit: the missing bytes, and those that the
 * allocation took for some parts, because these go back to the arena at once and from there to the
 * lease; but not more than the parts need when nothing is allocated. */
static uint64_t bytes_in_line(void) {
    uint64_t page = allocation->memory->page_bytes, whole = 0;

    for (uint32_t i = 0; i < allocation->n_parts; i++)
        whole += (allocation->parts[i].bytes + page - 1) / page * page;
    whole = MIN(whole, allocation->need_bytes + allocation->took_bytes);
    return MAX(whole, allocation->need_bytes);
}

/* Wait in the daemon's queue. 0: there is more credit, or `is_done`; -ECANCELED: stopped; else the
 * lease's answer. */
static int stand_in_line(void) {
    struct gpu_memory *memory = allocation->memory;
    int r;

    /* An allocation that held a part while it waits for the rest could keep another from ending its
     * wait. */
    drop_credit();
    settle(memory);
    if (allocation->wait->fd < 0)
        return error_set(&allocation->refused, -EMFILE,
                         "it cannot wait without a file descriptor: raise the limit "
                         "(ulimit -n)");
    allocation->waited_bytes = bytes_in_line();
    allocation->took_bytes = 0;
    wait_raise(allocation->wait); /* what happened since the try is not missed */
    r = grow(memory, allocation->waited_bytes, true, look);
    if (r == 0)
        allocation->credit_bytes += allocation->waited_bytes;
    allocation->is_late =
        allocation->refused.code == -ETIMEDOUT || allocation->refused.code == -ENOTCONN;
    return allocation->is_done      ? 0
           : allocation->is_stopped ? -ECANCELED
           : allocation->is_moot    ? -EALREADY
                                    : r;
}

/* Whether a wait can help: the lease refused, not the driver or the cap, and other leases may give
 * the bytes back. */
static bool can_wait(void) {
    const struct wait_limits *limits = &allocation->memory->options.limits;

    return allocation->wait && !allocation->wait->is_hasty && allocation->is_refused &&
           allocation->need_bytes && (limits->memory_usec || allocation->refused.code == -ENOTCONN);
}

static int stopped(struct allot_error *err) {
    const struct gpu_memory_part *part = &allocation->parts[allocation->failed];
    char asked[UNITS_TEXT_SIZE];

    return error_set(err, -ECANCELED, "stopped while waiting for memory of %s, %s for %s%s%s",
                     allocation->memory->gpu->name, units_format_bytes(part->bytes, asked),
                     part->tag, *allocation->wait->reason ? ": " : "", allocation->wait->reason);
}

static int run_allocation(struct allot_error *err) {
    int r = try_and_reclaim();

    while (r == -ENOMEM && can_wait()) {
        r = stand_in_line();
        if (r < 0 || allocation->is_done)
            break;
        r = try_and_reclaim();
    }
    if (r == -ECANCELED)
        return stopped(err);
    if (r == 0 || r == -EALREADY)
        return r;
    /* Try a last time, for the arena's error text. */
    r = alloc_with(false, err);
    return r == -ENOMEM && allocation->is_late ? -ETIMEDOUT : r;
}

int gpu_memory_alloc_all(struct gpu *gpu, struct gpu_memory_part *parts, uint32_t n,
                         struct wait *wait, bool (*reclaim)(void *userdata), void *userdata,
                         uint32_t *ret_failed, struct allot_error *err) {
    struct gpu_allocation *outer = allocation; /* reclaiming may run callbacks that allocate */
    struct gpu_allocation own = { .memory = gpu->memory,
                                  .parts = parts,
                                  .n_parts = n,
                                  .wait = wait,
                                  .reclaim = reclaim,
                                  .userdata = userdata };
    int r;

    for (uint32_t i = 0; i < n; i++)
        parts[i].tag_number = arena_tag(gpu->arena, parts[i].tag);
    allocation = &own;
    r = run_allocation(err);
    drop_credit();
    settle(gpu->memory);
    look_later();
    allocation = outer;
    if (r < 0)
        *ret_failed = own.failed;
    return r;
}

void gpu_memory_dealloc(struct gpu *gpu, uint64_t handle) {
    arena_dealloc(gpu->arena, handle, &gpu->memory->stream, 1);
    wait_news(gpu);
}

void gpu_memory_trim(struct gpu *gpu) {
    uint64_t gone;

    if (gpu_enter(gpu, NULL) < 0 || arena_trim(gpu->arena, 0, &gone) < 0)
        return;
    settle(gpu->memory);
}

/* ---- Life ------------------------------------------------------------------------------------ */

int gpu_memory_new(struct gpu *gpu, const struct gpu_memory_options *options,
                   struct allot_error *err) {
    struct wait wait = wait_begin(UINT64_MAX, NULL);
    struct gpu_allocation first = { .wait = &wait, .is_first = true };
    size_t total_bytes;
    int r = cuda_device_total_mem(gpu->cuda, err, &total_bytes, gpu->device);

    if (r < 0)
        return r;
    gpu->memory = calloc(1, sizeof(*gpu->memory));
    if (!gpu->memory)
        return error_set(err, -ENOMEM, "no host memory for the arena of %s", gpu->name);
    pthread_rwlock_init(&gpu->memory->gathering, NULL);
    gpu->memory->gpu = gpu;
    gpu->memory->options = *options;
    allocation = &first;
    r = gpu_source_reserve(gpu->memory, total_bytes);
    if (r < 0)
        error_set(err, r, "no host memory for the arena of %s", gpu->name);
    if (r == 0)
        r = gpu_source_open(gpu->memory, total_bytes, err);
    allocation = NULL;
    settle(gpu->memory);
    if (r < 0)
        gpu_memory_free(gpu);
    return r;
}

void gpu_memory_free(struct gpu *gpu) {
    struct gpu_memory *memory = gpu->memory;

    if (!memory)
        return;
    gpu_enter(gpu, NULL);
    gpu->arena = arena_free(gpu->arena);
    settle(memory);
    if (memory->span_bytes)
        cuda_mem_address_free(gpu->cuda, NULL, memory->base, memory->span_bytes);
    free(memory->pages);
    pthread_rwlock_destroy(&memory->gathering);
    free(memory);
    gpu->memory = NULL;
}
