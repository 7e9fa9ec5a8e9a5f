/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/broker/sample.h"

#include <stdlib.h>

#include "base/cleanup.h"

const char *sample_path_name(enum sample_path path) {
    static const char *const names[] = {
        [SAMPLE_PATH_NVLINK] = "nvlink", [SAMPLE_PATH_BOARD] = "board",
        [SAMPLE_PATH_SWITCH] = "switch", [SAMPLE_PATH_SWITCHES] = "switches",
        [SAMPLE_PATH_BRIDGE] = "bridge", [SAMPLE_PATH_NODE] = "node",
        [SAMPLE_PATH_SYSTEM] = "system",
    };

    return (size_t)path < ELEMENTSOF(names) ? names[path] : "unknown";
}

struct sample *sample_free(struct sample *sample) {
    if (!sample)
        return NULL;
    free(sample->devices);
    free(sample->processes);
    free(sample);
    return NULL;
}

const struct sample_device *sample_find_device(const struct sample *sample,
                                               const struct gpuid *id) {
    for (size_t i = 0; i < sample->n_devices; i++)
        if (gpuid_equal(&sample->devices[i].id, id))
            return &sample->devices[i];
    return NULL;
}

/* Room for one more in an array that doubles. */
static void *grow(void *array, size_t n, size_t *room, size_t size, size_t most) {
    size_t more = *room ? 2 * *room : 8;
    void *bigger;

    if (n < *room)
        return array;
    if (n >= most)
        return NULL;
    bigger = realloc(array, more * size);
    if (bigger)
        *room = more;
    return bigger;
}

void sample_add_device(struct sample *sample, size_t *room, const struct sample_device *device) {
    struct sample_device *devices;

    if (!sample)
        return;
    devices = grow(sample->devices, sample->n_devices, room, sizeof(*devices), SAMPLE_DEVICES_MAX);
    if (!devices) {
        sample->cut = true;
        return;
    }
    sample->devices = devices;
    sample->devices[sample->n_devices++] = *device;
}

void sample_add_process(struct sample *sample, size_t *room, const struct sample_process *process) {
    struct sample_process *processes;

    if (!sample)
        return;
    processes = grow(sample->processes, sample->n_processes, room, sizeof(*processes),
                     SAMPLE_PROCESSES_MAX);
    if (!processes) {
        sample->cut = true;
        return;
    }
    sample->processes = processes;
    sample->processes[sample->n_processes++] = *process;
}
