/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/hand/exec/device_nodes.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"

DEFINE_FREEP(DIR, closedirp, closedir)

static bool is_node(const char *path) {
    struct stat st;

    return stat(path, &st) == 0 && S_ISCHR(st.st_mode);
}

static bool has(const struct device_nodes *nodes, const char *path) {
    for (size_t i = 0; i < nodes->n; i++)
        if (strcmp(nodes->paths[i], path) == 0)
            return true;
    return false;
}

static void allow(struct device_nodes *nodes, const char *path) {
    if (nodes->n < ELEMENTSOF(nodes->paths) && is_node(path) && !has(nodes, path))
        snprintf(nodes->paths[nodes->n++], BUS_PATH_SIZE, "%s", path);
}

/* The node that stands for an instance, from what the driver says: "DeviceFileMinor: 12". */
static void allow_capability(struct device_nodes *nodes, const char *file) {
    cleanup(fclosep) FILE *f = fopen(file, "re");
    char line[128], path[BUS_PATH_SIZE];
    unsigned minor;

    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "DeviceFileMinor: %u", &minor) == 1) {
            snprintf(path, sizeof(path), "/dev/nvidia-caps/nvidia-cap%u", minor);
            allow(nodes, path);
        }
}

static void allow_instance(struct device_nodes *nodes, const struct hand_node *node) {
    char file[160];

    snprintf(file, sizeof(file), "/proc/driver/nvidia/capabilities/gpu%u/mig/gi%u/access",
             node->minor, node->gpu_instance);
    allow_capability(nodes, file);
    snprintf(file, sizeof(file), "/proc/driver/nvidia/capabilities/gpu%u/mig/gi%u/ci%u/access",
             node->minor, node->gpu_instance, node->compute_instance);
    allow_capability(nodes, file);
}

int device_nodes_find(struct device_nodes *ret, const struct hand_confine_question *question,
                      struct allot_error *err) {
    static const char *const common[] = { "/dev/nvidiactl", "/dev/nvidia-uvm",
                                          "/dev/nvidia-uvm-tools" };
    char text[GPUID_TEXT_SIZE], path[BUS_PATH_SIZE];

    ret->n = 0;
    for (uint32_t i = 0; i < question->confine.n_devices; i++) {
        const struct hand_node *node = &question->nodes[i];

        snprintf(path, sizeof(path), "/dev/nvidia%u", node->minor);
        if (!node->has_minor || !is_node(path))
            return error_set(err, -ENOENT, "%s has no device node here",
                             gpuid_format(&question->confine.devices[i].id, text));
        allow(ret, path);
        if (node->is_mig)
            allow_instance(ret, node);
    }
    for (size_t i = 0; i < ELEMENTSOF(common); i++)
        allow(ret, common[i]);
    return 0;
}

int device_nodes_other_gpu(const struct device_nodes *nodes, char ret[static BUS_PATH_SIZE]) {
    cleanup(closedirp) DIR *dir = opendir("/dev");
    unsigned minor, lowest = UINT_MAX;
    const struct dirent *entry;
    char path[BUS_PATH_SIZE];
    int end;

    while (dir && (entry = readdir(dir))) {
        end = 0;
        if (sscanf(entry->d_name, "nvidia%u%n", &minor, &end) != 1 || entry->d_name[end] ||
            minor >= lowest)
            continue;
        snprintf(path, sizeof(path), "/dev/nvidia%u", minor);
        if (is_node(path) && !(nodes && has(nodes, path)))
            lowest = minor;
    }
    if (lowest == UINT_MAX)
        return -ENOENT;
    snprintf(ret, BUS_PATH_SIZE, "/dev/nvidia%u", lowest);
    return 0;
}

int device_nodes_forbidden(const struct device_nodes *nodes, char ret[static BUS_PATH_SIZE]) {
    static const char *const others[] = { "/dev/kmsg", "/dev/fuse", "/dev/loop-control",
                                          "/dev/mem" };

    if (device_nodes_other_gpu(nodes, ret) == 0)
        return 0;
    for (size_t i = 0; i < ELEMENTSOF(others); i++)
        if (is_node(others[i])) {
            snprintf(ret, BUS_PATH_SIZE, "%s", others[i]);
            return 0;
        }
    return -ENOENT;
}
