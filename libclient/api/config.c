/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/api/config.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/number.h"
#include "libclient/allot/config.h"
#include "libclient/device/device.h"
#include "libclient/device/gpus.h"

static struct {
    pthread_mutex_t lock;
    atomic_bool soft, log;
    unsigned inter, intra;
    bool no_growth;
    uint64_t limit_bytes;
    double fraction;
    char *visible; /* NULL: as the environment says */
} config = { .lock = PTHREAD_MUTEX_INITIALIZER };

#define SET(field, value)                                                                          \
    do {                                                                                           \
        pthread_mutex_lock(&config.lock);                                                          \
        config.field = value;                                                                      \
        pthread_mutex_unlock(&config.lock);                                                        \
    } while (0)

void allot_set_soft_placement(bool allow) {
    atomic_store(&config.soft, allow);
}

void allot_set_log_device_placement(bool log) {
    atomic_store(&config.log, log);
}

void allot_set_inter_op_threads(unsigned n) {
    SET(inter, n);
}

void allot_set_intra_op_threads(unsigned n) {
    SET(intra, n);
}

void allot_set_memory_growth(bool grow) {
    SET(no_growth, !grow);
}

void allot_set_memory_limit(uint64_t bytes) {
    SET(limit_bytes, bytes);
}

int config_check_fraction(double fraction, struct allot_error *err) {
    char text[NUMBER_SIZE];

    return fraction >= 0 && fraction <= 1
               ? 0
               : error_set(err, -EINVAL, "a memory fraction of %s: it must be from 0 to 1",
                           number_format(text, fraction, 6));
}

int allot_set_memory_fraction(double fraction, struct allot_error *err) {
    int r = config_check_fraction(fraction, err);

    if (r == 0)
        SET(fraction, fraction);
    return r;
}

int allot_set_visible_devices(const char *devices, struct allot_error *err) {
    char *copy = devices ? strdup(devices) : NULL;

    if (devices && !copy)
        return error_set(err, -ENOMEM, "no host memory for a list of devices");
    pthread_mutex_lock(&config.lock);
    free(config.visible);
    config.visible = copy;
    pthread_mutex_unlock(&config.lock);
    return 0;
}

bool config_logs(void) {
    return atomic_load_explicit(&config.log, memory_order_relaxed);
}

bool config_is_soft(void) {
    return atomic_load_explicit(&config.soft, memory_order_relaxed);
}

int config_fill(struct allot_session_options *options, char **ret_text, struct allot_error *err) {
    char *text = NULL;
    int r = 0;

    options->allow_soft_placement |= config_is_soft();
    options->log_device_placement |= config_logs();
    pthread_mutex_lock(&config.lock);
    if (options->inter_op_threads == 0)
        options->inter_op_threads = config.inter;
    if (options->intra_op_threads == 0)
        options->intra_op_threads = config.intra;
    if (options->memory_limit == 0)
        options->memory_limit = config.limit_bytes;
    if (options->memory_fraction == 0)
        options->memory_fraction = config.fraction;
    options->no_growth |= config.no_growth;
    if (!options->visible_devices && config.visible) {
        options->visible_devices = text = strdup(config.visible);
        if (!text)
            r = error_set(err, -ENOMEM, "no host memory for a session");
    }
    pthread_mutex_unlock(&config.lock);
    if (r == 0)
        *ret_text = text;
    return r;
}

bool allot_gpu_available(void) {
    return allot_devices(NULL, 0) > 1;
}

size_t allot_devices(struct allot_device *ret, size_t n) {
    struct allot_session_options options = ALLOT_SESSION_OPTIONS_INIT;
    struct gpus_seen *seen = NULL;
    size_t n_gpus = 0;
    char *text = NULL;
    struct device *cpu;

    if (config_fill(&options, &text, NULL) < 0)
        return 0;
    if (!ret)
        n = 0;
    if (n > 0 && device_cpu_new(&cpu, NULL, NULL) == 0) {
        ret[0] = (struct allot_device){ .memory_limit = cpu->memory_limit_bytes };
        memcpy(ret[0].name, cpu->name, sizeof(ret[0].name));
        memcpy(ret[0].description, cpu->description, sizeof(ret[0].description));
        strcpy(ret[0].type, DEVICE_CPU_TYPE);
        device_unref(cpu);
    }
    gpus_look(&seen, &n_gpus, options.visible_devices);
    for (size_t i = 0; i < n_gpus && i + 1 < n; i++) {
        struct allot_device *device = &ret[i + 1];

        *device = (struct allot_device){ .memory_limit = seen[i].memory_bytes };
        snprintf(device->name, sizeof(device->name),
                 "/job:localhost/replica:0/task:0/device:GPU:%zu", i);
        snprintf(device->description, sizeof(device->description),
                 "device: %d, name: %s, pci bus id: %s", seen[i].number, seen[i].name,
                 seen[i].bus_id);
        strcpy(device->type, DEVICE_GPU_TYPE);
    }
    free(seen);
    free(text);
    return n_gpus + 1;
}
