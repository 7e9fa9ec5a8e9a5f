/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collective: one thread makes the calls for all GPUs, as a group, under a lock: NCCL wants the
 * sums of all devices in the same order. For the executor the whole is one item on the stream of
 * the first GPU; events tie the other streams to it before and after.
 */
#include "libclient/device/collective.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "driver/nccl.h"
#include "libclient/core/log.h"
#include "libclient/device/gpu.h"

struct collective {
    struct collective *next;
    unsigned refs;
    struct nccl *nccl;
    pthread_mutex_t lock; /* of the calls */
    bool is_dead;         /* a sum failed, or was aborted */
    uint32_t n;
    struct gpu **gpus;
    ncclComm_t *comms; /* by GPU */
    CUevent *events;   /* likewise */
};

static struct {
    pthread_mutex_t lock;
    struct collective *first;
    bool has_said, has_failed; /* that it is used; that it is not, and is not tried again */
} all = { .lock = PTHREAD_MUTEX_INITIALIZER };

bool collective_has(enum dtype dtype) {
    return dtype == DTYPE_F16 || dtype == DTYPE_BF16 || dtype == DTYPE_F32 || dtype == DTYPE_F64;
}

static ncclDataType_t type_of(enum dtype dtype) {
    return dtype == DTYPE_F16    ? ncclFloat16
           : dtype == DTYPE_BF16 ? ncclBfloat16
           : dtype == DTYPE_F32  ? ncclFloat32
                                 : ncclFloat64;
}

/* ---- Making one ------------------------------------------------------------------------------ */

static void collective_free(struct collective *collective) {
    for (uint32_t i = 0; i < collective->n; i++) {
        struct gpu *gpu = collective->gpus[i];

        if (collective->comms[i])
            nccl_comm_destroy(collective->nccl, NULL, collective->comms[i]);
        if (collective->events[i] && gpu_enter(gpu, NULL) == 0)
            cuda_event_destroy(gpu->cuda, NULL, collective->events[i]);
    }
    nccl_close(collective->nccl);
    pthread_mutex_destroy(&collective->lock);
    free(collective->gpus);
    free(collective->comms);
    free(collective->events);
    free(collective);
}

static int start(struct collective *collective, const struct driver_options *options,
                 struct allot_error *err) {
    cleanup(freep) int *numbers = calloc(collective->n, sizeof(*numbers));
    int r = numbers ? nccl_open(&collective->nccl, options, err) : -ENOMEM;

    for (uint32_t i = 0; r == 0 && i < collective->n; i++) {
        struct gpu *gpu = collective->gpus[i];

        numbers[i] = gpu->number;
        if (strncmp(gpu->uuid, "MIG-", 4) == 0)
            return error_set(err, -EOPNOTSUPP,
                             "%s is a MIG device, between which NCCL does not sum", gpu->uuid);
        r = gpu_enter(gpu, err);
        if (r == 0)
            r = cuda_event_create(gpu->cuda, err, &collective->events[i], CU_EVENT_DISABLE_TIMING);
    }
    return r < 0 ? r
                 : nccl_comm_init_all(collective->nccl, err, collective->comms, (int)collective->n,
                                      numbers);
}

static int make(struct collective **ret, struct gpu *const *gpus, uint32_t n,
                const struct driver_options *options, struct allot_error *err) {
    struct collective *collective = calloc(1, sizeof(*collective));
    int r;

    if (!collective)
        return error_set(err, -ENOMEM, "no host memory for NCCL");
    pthread_mutex_init(&collective->lock, NULL);
    collective->refs = 1;
    collective->gpus = calloc(n, sizeof(struct gpu *));
    collective->comms = calloc(n, sizeof(ncclComm_t));
    collective->events = calloc(n, sizeof(CUevent));
    if (collective->gpus && collective->comms && collective->events) {
        collective->n = n;
        memcpy(collective->gpus, gpus, n * sizeof(struct gpu *));
        r = start(collective, options, err);
    } else
        r = error_set(err, -ENOMEM, "no host memory for NCCL");
    if (r < 0) {
        collective_free(collective);
        return r;
    }
    *ret = collective;
    return 0;
}

/* Whether NCCL is to be looked for at all. */
static bool is_wanted(struct driver_options *options) {
    const char *setting = getenv("ALLOT_NCCL");

    if (setting && strcmp(setting, "no") == 0)
        return false;
    if (setting && *setting)
        options->sim_dir = options->nvidia_dir = setting;
    return (setting && *setting) || driver_resolve(options) != DRIVER_SIM;
}

static struct collective *find(struct gpu *const *gpus, uint32_t n) {
    struct collective *found = all.first;

    while (found && (found->is_dead || found->n != n ||
                     memcmp(found->gpus, gpus, n * sizeof(struct gpu *)) != 0))
        found = found->next;
    return found;
}

struct collective *collective_get(struct gpu *const *gpus, uint32_t n) {
    struct driver_options options = driver_options_read(DRIVER_AUTO);
    struct collective *collective = NULL;
    struct allot_error err = { 0 };

    if (!is_wanted(&options))
        return NULL;
    pthread_mutex_lock(&all.lock);
    collective = find(gpus, n);
    if (collective)
        collective->refs++;
    else if (!all.has_failed && make(&collective, gpus, n, &options, &err) == 0) {
        collective->next = all.first;
        all.first = collective;
        if (!all.has_said)
            log_say(ALLOT_LOG_INFO, "sums over replicas: by NCCL %d.%d.%d (%s)",
                    collective->nccl->version / 10000, collective->nccl->version / 100 % 100,
                    collective->nccl->version % 100, collective->nccl->object.path);
        all.has_said = true;
    } else if (!all.has_failed) {
        all.has_failed = true;
        log_say(ALLOT_LOG_NOTICE,
                "%s: sums over replicas go by our own copies between the GPUs; ALLOT_NCCL=no "
                "does not look for NCCL",
                err.text);
    }
    pthread_mutex_unlock(&all.lock);
    return collective;
}

struct collective *collective_ref(struct collective *collective) {
    pthread_mutex_lock(&all.lock);
    collective->refs++;
    pthread_mutex_unlock(&all.lock);
    return collective;
}

void collective_put(struct collective *collective) {
    struct collective **link = &all.first;
    bool is_last;

    if (!collective)
        return;
    pthread_mutex_lock(&all.lock);
    is_last = --collective->refs == 0;
    if (is_last) {
        while (*link != collective)
            link = &(*link)->next;
        *link = collective->next;
    }
    pthread_mutex_unlock(&all.lock);
    if (is_last)
        collective_free(collective);
}

/* ---- Summing --------------------------------------------------------------------------------- */

static CUstream stream_of(const struct gpu *gpu, uint32_t channel) {
    return gpu->streams[GPU_COLLECTIVE + channel];
}

/* The stream of GPU `to` waits for what that of GPU `from` has now. */
static int tie(const struct collective *collective, uint32_t from, uint32_t to, uint32_t channel,
               struct allot_error *err) {
    struct gpu *first = collective->gpus[from], *second = collective->gpus[to];
    int r = gpu_enter(first, err);

    if (r == 0)
        r = cuda_event_record(first->cuda, err, collective->events[from],
                              stream_of(first, channel));
    if (r == 0)
        r = gpu_enter(second, err);
    return r < 0 ? r
                 : cuda_stream_wait_event(second->cuda, err, stream_of(second, channel),
                                          collective->events[from], 0);
}

static int call_all(const struct collective *collective, void *const *data, const uint64_t *counts,
                    uint32_t n_tensors, enum dtype dtype, uint32_t channel,
                    struct allot_error *err) {
    struct allot_error end = { 0 };
    int r = nccl_group_start(collective->nccl, err), ended;

    if (r < 0)
        return r;
    for (uint32_t t = 0; r == 0 && t < n_tensors; t++)
        for (uint32_t i = 0; r == 0 && counts[t] > 0 && i < collective->n; i++) {
            void *own = data[(size_t)i * n_tensors + t];

            r = nccl_all_reduce(collective->nccl, err, own, own, counts[t], type_of(dtype), ncclSum,
                                collective->comms[i], stream_of(collective->gpus[i], channel));
        }
    ended = nccl_group_end(collective->nccl, &end);
    return r < 0 ? r : ended < 0 ? error_set(err, ended, "%s", end.text) : 0;
}

/* End the communicators, whatever they still do: none of them can be used again. Under its lock. */
static void give_up(struct collective *collective) {
    for (uint32_t i = 0; i < collective->n; i++) {
        if (collective->comms[i])
            nccl_comm_abort(collective->nccl, NULL, collective->comms[i]);
        collective->comms[i] = NULL;
    }
    collective->is_dead = true;
}

int collective_sum(struct collective *collective, void *const *data, const uint64_t *counts,
                   uint32_t n_tensors, enum dtype dtype, uint32_t channel,
                   struct allot_error *err) {
    int r = 0;

    pthread_mutex_lock(&collective->lock);
    if (collective->is_dead)
        r = error_set(err, -ENOTRECOVERABLE,
                      "a sum over replicas by NCCL failed before: make a new session, or set "
                      "ALLOT_NCCL=no to sum without it");
    for (uint32_t i = 1; r == 0 && i < collective->n; i++)
        r = tie(collective, 0, i, channel, err);
    if (r == 0) {
        r = call_all(collective, data, counts, n_tensors, dtype, channel, err);
        if (r < 0)
            give_up(collective);
    }
    for (uint32_t i = 1; r == 0 && i < collective->n; i++)
        r = tie(collective, i, 0, channel, err);
    pthread_mutex_unlock(&collective->lock);
    return r;
}

void collective_abort(const struct gpu *lost) {
    pthread_mutex_lock(&all.lock);
    for (struct collective *own = all.first; own; own = own->next) {
        bool is_in = false;

        for (uint32_t i = 0; i < own->n; i++)
            is_in |= own->gpus[i] == lost;
        pthread_mutex_lock(&own->lock);
        if (is_in)
            give_up(own);
        pthread_mutex_unlock(&own->lock);
    }
    pthread_mutex_unlock(&all.lock);
}
