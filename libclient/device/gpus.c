/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPUs: the lease comes first, because it says which devices are ours; then those devices of the
 * driver that the lease names. A process that was started under a lease (gpuctl run) attaches to
 * it.
 */
#include "libclient/device/gpus.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/arena.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/gpuid.h"
#include "libclient/allot/lease.h"
#include "libclient/core/log.h"
#include "libclient/core/wait.h"
#include "libclient/device/visible.h"
#include "libclient/device/gpu.h"
#include "libclient/device/gpu_memory.h"
#include "libclient/device/lease_news.h"
#include "libclient/lease/lease.h"

enum { SHARES_MAX = 64, TIER_ARENAS = 4 };

static struct {
    pthread_mutex_t lock;
    unsigned n_users;
    struct gpus set;
    struct allot_lease *lease; /* NULL: unmanaged */
    bool is_own;               /* the lease was made here, and no other process uses it */
    pid_t pid;                 /* whose it is */
    bool has_warned;           /* that the driver does not work */
} process = { .lock = PTHREAD_MUTEX_INITIALIZER };

static struct allot_lease_amount amount_of(const struct gpus_options *options) {
    struct allot_lease_amount amount = { 0 };

    if (!options->no_growth && (options->limit_bytes || options->fraction_permyriad)) {
        amount.mode = ALLOT_LEASE_GROW;
        amount.max_bytes = options->limit_bytes;
        amount.permyriad = options->fraction_permyriad;
    } else if (options->limit_bytes) {
        amount.mode = ALLOT_LEASE_FIXED;
        amount.bytes = options->limit_bytes;
    } else if (options->fraction_permyriad) {
        amount.mode = ALLOT_LEASE_FRACTION;
        amount.permyriad = options->fraction_permyriad;
    } else if (!options->no_growth)
        amount.mode = ALLOT_LEASE_GROW;
    return amount;
}

/* The request for exactly what is needed. */
struct exact_request {
    struct allot_lease_amount amounts[SHARES_MAX];
    const char *devices[SHARES_MAX];
};

static void ask_exactly(struct allot_lease_options *lease, const struct gpus_options *options,
                        struct exact_request *exact) {
    size_t n = MIN(options->n_needs, (size_t)SHARES_MAX);

    for (size_t i = 0; i < n; i++) {
        exact->devices[i] = options->needs[i].device;
        exact->amounts[i] = (struct allot_lease_amount){ .mode = ALLOT_LEASE_FIXED,
                                                         .bytes = options->needs[i].lease_bytes };
    }
    lease->devices = exact->devices;
    lease->amounts = exact->amounts;
    lease->n_devices = lease->n_amounts = n;
}

/* Returns 0 with a lease, or 0 without one: the GPUs are then unmanaged. Only a box without a
 * daemon allows that: if a daemon exists but does not answer, other jobs may have leases on the
 * same memory. */
static int lease_get(const struct gpus_options *options, const struct device_visible *chosen,
                     struct allot_error *err) {
    const struct wait_limits limits = wait_limits_of(options->no_wait, options->wait_usec);
    struct allot_lease_options lease = ALLOT_LEASE_OPTIONS_INIT;
    struct wait said = wait_begin(UINT64_MAX, NULL);
    struct allot_error refused = { 0 };
    struct exact_request exact;
    int r;

    lease.tier = TIER_ARENAS;
    lease.reconnect_usec = limits.away_usec;
    lease.progress = wait_say;
    lease.userdata = &said;
    lease.notice = lease_news_note;
    lease_news_forget();
    r = allot_lease_attach(&process.lease, 0, NULL, &lease, &refused);
    if (r == -ENOENT && !getenv("ALLOT_LEASE")) {
        if (options->n_needs)
            ask_exactly(&lease, options, &exact);
        else {
            lease.amount = amount_of(options);
            lease.gpus = options->n_gpus ? options->n_gpus : 1;
        }
        lease.visible_devices = chosen->uuids;
        lease.no_wait = options->no_wait;
        lease.timeout_usec = options->wait_usec;
        r = allot_lease_acquire(&process.lease, &lease, &refused);
        process.is_own = r == 0;
    }
    if (r == 0)
        return 0;
    if (r != -ENOTCONN || options->must_be_managed || lease_daemon_is_there(lease.socket))
        return error_set(err, r, "%s", refused.text);
    log_say(ALLOT_LOG_NOTICE, "%s: GPU memory is not managed by a lease", refused.text);
    return 0;
}

/* The lease's name for this device, and its limit; false: the device is not leased. */
static bool find_share(const struct gpu *gpu, struct allot_lease_share *ret) {
    struct allot_lease_share shares[SHARES_MAX];
    size_t n = allot_lease_shares(process.lease, shares, SHARES_MAX);
    struct gpuid mine, theirs;

    if (gpuid_parse(&mine, gpu->uuid) < 0)
        return false;
    for (size_t i = 0; i < n && i < SHARES_MAX; i++)
        if (gpuid_parse(&theirs, shares[i].device) == 0 &&
            memcmp(theirs.uuid, mine.uuid, sizeof(mine.uuid)) == 0) {
            *ret = shares[i];
            return true;
        }
    return false;
}

static uint64_t cap_of(const struct gpu *gpu, const struct gpus_options *options) {
    size_t total = 0;
    uint64_t cap;

    for (size_t i = 0; i < options->n_needs; i++)
        if (strcmp(options->needs[i].device, gpu->uuid) == 0)
            return options->needs[i].tensor_bytes;
    cuda_device_total_mem(gpu->cuda, NULL, &total, gpu->device);
    cap = options->fraction_permyriad
              ? (uint64_t)((unsigned __int128)total * options->fraction_permyriad / 10000)
              : total;
    return options->limit_bytes && options->limit_bytes < cap ? options->limit_bytes : cap;
}

static int start_memory(struct gpu *gpu, const struct gpus_options *options,
                        const struct allot_lease_share *share, struct allot_error *err) {
    struct gpu_memory_options memory = {
        .lease = process.lease,
        .cap_bytes = cap_of(gpu, options),
        .take_all = options->no_growth,
        .limits = wait_limits_of(options->no_wait, options->wait_usec),
    };

    if (share) {
        snprintf(gpu->uuid, sizeof(gpu->uuid), "%s", share->device);
        /* The context's bytes are part of the share. */
        memory.cap_bytes = share->limit_bytes > share->context_bytes
                               ? share->limit_bytes - share->context_bytes
                               : 0;
        if (memory.cap_bytes == 0)
            return error_set(err, -ENOSPC, "the lease of %s is smaller than a context", gpu->uuid);
    }
    return gpu_memory_new(gpu, &memory, err);
}

/* A context costs memory too, and is charged before it is made. */
static int charge_context(const struct allot_lease_share *share, struct allot_error *err) {
    return share->context_bytes == 0
               ? 0
               : allot_lease_grow(process.lease, share->device, share->context_bytes, 0, err);
}

static int add_gpu(const struct cuda *cuda, int number, const struct gpus_options *options,
                   struct allot_error *err) {
    struct gpu **grown = realloc(process.set.gpus, (process.set.n + 1) * sizeof(*grown));
    struct allot_lease_share share;
    struct gpu *gpu;
    int r;

    if (!grown)
        return error_set(err, -ENOMEM, "no host memory for a GPU");
    process.set.gpus = grown;
    if (process.lease) {
        /* Look without a context: that would cost memory of a device that may not be ours. */
        struct gpu probe = { .cuda = (struct cuda *)cuda, .number = number };

        r = gpu_identify(&probe, err);
        if (r < 0)
            return r;
        if (!find_share(&probe, &share))
            return 0;
        r = charge_context(&share, err);
        if (r < 0)
            return r;
    }
    r = gpu_open(&gpu, number, err);
    if (r < 0)
        return r;
    r = start_memory(gpu, options, process.lease ? &share : NULL, err);
    if (r < 0) {
        gpu_close(gpu);
        return r;
    }
    process.set.gpus[process.set.n] = gpu;
    log_say(ALLOT_LOG_INFO, "Creating device (/gpu:%u) -> (device: %d, name: %s, pci bus id: %s)",
            process.set.n, gpu->number, gpu->name, gpu->bus_id);
    process.set.n++;
    return 0;
}

static void let_go(void) {
    for (uint32_t i = process.set.n; i-- > 0;)
        gpu_close(process.set.gpus[i]);
    free(process.set.gpus);
    process.set = (struct gpus){ 0 };
    lease_news_leave();
    /* A daemon that misses this call sees the end of the process. */
    if (process.is_own)
        lease_release_at_once(process.lease, NULL);
    process.is_own = false;
    process.lease = allot_lease_free(process.lease);
    lease_news_forget();
}

/* A missing driver is normal on a host without a GPU, unless GPUs were asked for; a driver that
 * does not work is not. */
static void say_without(int code, const struct gpus_options *options, const char *why) {
    bool is_broken = code != -ENODEV && code != -ELIBACC;

    if (process.has_warned || !(is_broken || options->n_gpus))
        return;
    process.has_warned = true;
    log_say(is_broken ? ALLOT_LOG_WARNING : ALLOT_LOG_NOTICE, "%s: no GPU is used", why);
}

/* The error: fewer GPUs than were asked for, and which there are. */
static int too_few(const struct gpus_options *options, const struct cuda *cuda, size_t n,
                   const char *where, struct allot_error *err) {
    const char *environment = getenv("CUDA_VISIBLE_DEVICES");

    return error_set(
        err, -ENODEV,
        "%u GPUs were requested, but %s %zu: the driver shows this process %d%s%.64s%s%.64s%s%s",
        options->n_gpus, where, n, cuda->n_devices, environment ? ", by CUDA_VISIBLE_DEVICES=" : "",
        environment ? environment : "",
        options->visible_devices ? ", of which visible_devices leaves those of \"" : "",
        options->visible_devices ? options->visible_devices : "",
        options->visible_devices ? "\"" : "", "; ask for fewer, or show more");
}

static int fill_set(struct cuda *cuda, const struct device_visible *chosen,
                    const struct gpus_options *options, struct allot_error *err) {
    int r = lease_get(options, chosen, err);

    for (size_t i = 0; r == 0 && i < chosen->n; i++)
        r = add_gpu(cuda, chosen->numbers[i], options, err);
    if (r == 0 && process.set.n == 0)
        r = error_set(err, -ENODEV,
                      "the lease names no device that this process can see: CUDA_VISIBLE_DEVICES "
                      "was changed after the driver had read it, or another list was given");
    if (r == 0 && process.set.n < options->n_gpus)
        r = too_few(options, cuda, process.set.n, "the lease has", err);
    process.set.is_managed = process.lease != NULL;
    if (r < 0)
        let_go();
    return r;
}

/* Where there is no GPU, the set stays empty. */
static int make_set(const struct gpus_options *options, struct allot_error *err) {
    struct driver_options driver = driver_options_read(DRIVER_AUTO);
    cleanup(cuda_closep) struct cuda *cuda = NULL;
    cleanup(device_visible_done) struct device_visible chosen = { 0 };
    struct gpu_visit visit;
    int r = cuda_open(&cuda, &driver, err);

    if (r < 0) {
        say_without(r, options, err->text);
        return 0;
    }
    r = device_visible_make(&chosen, cuda, options->visible_devices, err);
    if (r < 0)
        return r;
    if (chosen.n == 0) {
        say_without(-ENODEV, options, "visible_devices is empty");
        return 0;
    }
    if (chosen.n < options->n_gpus)
        return too_few(options, cuda, chosen.n, "there are", err);
    visit = gpu_visit_begin(cuda);
    r = fill_set(cuda, &chosen, options, err);
    gpu_visit_end(&visit);
    return r;
}

/* The set exists already, with the options of another session. */
static int check_set(const struct gpus_options *options, struct allot_error *err) {
    if (process.pid != getpid())
        return error_set(err, -ECHILD, "the driver cannot be used in the child of a fork");
    if (options->n_gpus > process.set.n)
        return error_set(err, -ENODEV,
                         "%u GPUs were requested, but the sessions of this process share the %u "
                         "that the first session leased: let the first session request as many",
                         options->n_gpus, process.set.n);
    return 0;
}

/* The lease reports a full card as -ENOSPC, or -ETIMEDOUT after a wait; sessions report it as
 * -ENOMEM, as a run without memory does. */
static int code_of(int r) {
    return r == -ENOSPC || r == -ETIMEDOUT ? -ENOMEM : r;
}

int gpus_get(const struct gpus **ret, const struct gpus_options *options, struct allot_error *err) {
    struct allot_error own = { 0 };
    int r;

    pthread_mutex_lock(&process.lock);
    r = process.n_users > 0 ? check_set(options, &own) : make_set(options, &own);
    if (r == 0 && process.set.n == 0) {
        *ret = NULL;
    } else if (r == 0) {
        process.pid = getpid();
        process.n_users++;
        *ret = &process.set;
    }
    pthread_mutex_unlock(&process.lock);
    return r < 0 ? error_set(err, code_of(r), "%s", own.text) : 0;
}

void gpus_put(const struct gpus *gpus) {
    if (!gpus)
        return;
    pthread_mutex_lock(&process.lock);
    if (--process.n_users == 0 && process.pid == getpid())
        let_go();
    pthread_mutex_unlock(&process.lock);
}

struct gpu *gpus_find_lost(const struct gpus *gpus, uint32_t *ret_number) {
    for (uint32_t i = 0; gpus && i < gpus->n; i++)
        if (gpu_is_lost(gpus->gpus[i])) {
            *ret_number = i;
            return gpus->gpus[i];
        }
    return NULL;
}

static void see(struct gpus_seen *ret, const struct gpu *gpu, uint64_t memory_bytes) {
    *ret = (struct gpus_seen){ .number = gpu->number, .memory_bytes = memory_bytes };
    memcpy(ret->name, gpu->name, sizeof(ret->name));
    memcpy(ret->bus_id, gpu->bus_id, sizeof(ret->bus_id));
}

/* With the lock held. */
static void look_at_set(struct gpus_seen **ret, size_t *ret_n) {
    struct arena_stats stats;

    *ret = calloc(process.set.n + 1, sizeof(**ret));
    for (uint32_t i = 0; *ret && i < process.set.n; i++) {
        arena_get_stats(process.set.gpus[i]->arena, &stats);
        see(&(*ret)[(*ret_n)++], process.set.gpus[i], stats.cap_bytes);
    }
}

static void look_at_driver(struct gpus_seen **ret, size_t *ret_n, const char *visible) {
    struct driver_options driver = driver_options_read(DRIVER_AUTO);
    cleanup(cuda_closep) struct cuda *cuda = NULL;
    cleanup(device_visible_done) struct device_visible chosen = { 0 };

    if (cuda_open(&cuda, &driver, NULL) < 0 ||
        device_visible_make(&chosen, cuda, visible, NULL) < 0)
        return;
    *ret = calloc(chosen.n + 1, sizeof(**ret));
    for (size_t i = 0; *ret && i < chosen.n; i++) {
        struct gpu gpu = { .cuda = cuda, .number = chosen.numbers[i] };
        size_t total = 0;

        if (gpu_identify(&gpu, NULL) < 0 ||
            cuda_device_total_mem(cuda, NULL, &total, gpu.device) < 0)
            continue;
        see(&(*ret)[(*ret_n)++], &gpu, total);
    }
}

void gpus_look(struct gpus_seen **ret, size_t *ret_n, const char *visible_devices) {
    *ret = NULL;
    *ret_n = 0;
    pthread_mutex_lock(&process.lock);
    if (process.n_users > 0 && process.pid == getpid())
        look_at_set(ret, ret_n);
    else
        look_at_driver(ret, ret_n, visible_devices);
    pthread_mutex_unlock(&process.lock);
}
