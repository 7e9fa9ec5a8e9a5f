/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/sample.h"

#include <stdlib.h>

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
