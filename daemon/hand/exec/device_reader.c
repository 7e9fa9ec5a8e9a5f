/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/hand/exec/device_reader.h"

#include <errno.h>
#include <string.h>

#include "daemon/hand/exec/proc.h"
#include "driver/nvml_readings.h"
#include "driver/nvml_topology.h"

void device_reader_lose(struct device_reader *device, int r, const struct allot_error *err) {
    device->seen.has = 0;
    device->seen.health = r == -ENXIO || r == -ENOTRECOVERABLE || r == -ENODEV || r == -ENOENT
                              ? SAMPLE_LOST
                              : SAMPLE_FAILED;
    hand_proc_clean(device->seen.trouble, sizeof(device->seen.trouble), err->text,
                    strlen(err->text));
}

static void set(struct sample_device *seen, uint64_t has, uint64_t bit, uint64_t *field,
                uint64_t value) {
    if (!has) {
        seen->has &= ~bit;
        return;
    }
    seen->has |= bit;
    *field = value;
}

#define SET(seen, readings, field, theirs)                                                         \
    set(seen, (readings)->has &NVML_READ(theirs), SAMPLE_HAS(field), &(seen)->field,               \
        (readings)->theirs)

int device_reader_read(struct device_reader *device, const struct nvml *nvml, bool slow,
                       struct allot_error *err) {
    struct sample_device *seen = &device->seen;
    struct nvml_readings readings;
    int r;

    r = nvml_readings_take(nvml, &device->handle,
                           NVML_MEMORY | NVML_USE | NVML_HEAT | NVML_CLOCK |
                               (slow ? NVML_MODE | NVML_ECC : 0),
                           &readings, err);
    if (r < 0)
        return r;
    if (readings.has & NVML_READ(memory_total))
        seen->total_bytes = readings.memory_total;
    seen->reserved_bytes = readings.has & NVML_READ(memory_reserved) ? readings.memory_reserved : 0;
    SET(seen, &readings, used_bytes, memory_used);
    SET(seen, &readings, utilization, gpu_busy);
    SET(seen, &readings, memory_utilization, memory_busy);
    SET(seen, &readings, temperature, temperature);
    SET(seen, &readings, power, power);
    SET(seen, &readings, power_limit, power_limit);
    SET(seen, &readings, sm_clock, sm_clock);
    SET(seen, &readings, memory_clock, memory_clock);
    if (slow) {
        SET(seen, &readings, ecc_corrected, corrected_volatile);
        SET(seen, &readings, ecc_uncorrected, uncorrected_volatile);
        SET(seen, &readings, rows_failed, rows_failed);
        SET(seen, &readings, display, display_active);
        seen->mig_enabled = readings.has & NVML_READ(mig_enabled) && readings.mig_enabled;
    }
    return 0;
}

void device_reader_identify(struct device_reader *device, const struct nvml_identity *identity,
                            const struct device_reader *gpu) {
    struct sample_device *seen = &device->seen;

    seen->pci = gpu ? gpu->seen.pci : identity->pci;
    hand_proc_clean(seen->name, sizeof(seen->name), identity->name, strlen(identity->name));
    set(seen, identity->has & NVML_HAS_MINOR, SAMPLE_HAS(minor), &seen->minor, identity->minor);
    set(seen, identity->has & NVML_HAS_NUMA_NODE, SAMPLE_HAS(numa), &seen->numa,
        identity->numa_node);
    set(seen, identity->has & NVML_HAS_CAPABILITY, SAMPLE_HAS(capability), &seen->capability,
        100 * (uint64_t)identity->capability_major + identity->capability_minor);
    if (gpu) {
        set(seen, gpu->seen.has & SAMPLE_HAS(minor), SAMPLE_HAS(minor), &seen->minor,
            gpu->seen.minor);
        set(seen, gpu->seen.has & SAMPLE_HAS(numa), SAMPLE_HAS(numa), &seen->numa, gpu->seen.numa);
    }
}

static enum sample_path path_of(enum nvml_path path) {
    switch (path) {
    case NVML_PATH_BOARD:
        return SAMPLE_PATH_BOARD;
    case NVML_PATH_SWITCH:
        return SAMPLE_PATH_SWITCH;
    case NVML_PATH_SWITCHES:
        return SAMPLE_PATH_SWITCHES;
    case NVML_PATH_BRIDGE:
        return SAMPLE_PATH_BRIDGE;
    case NVML_PATH_NODE:
        return SAMPLE_PATH_NODE;
    case NVML_PATH_SYSTEM:
        break;
    }
    return SAMPLE_PATH_SYSTEM;
}

static bool keep_link(const struct sample_device *before, const struct gpuid *remote,
                      struct sample_link *ret) {
    for (uint32_t i = 0; i < before->n_links; i++)
        if (gpuid_equal(&before->links[i].remote, remote)) {
            *ret = before->links[i];
            return true;
        }
    return false;
}

void device_reader_read_links(struct device_reader *device, const struct nvml *nvml,
                              const struct device_reader *all, size_t n) {
    struct nvml_link links[NVML_LINKS_MAX];
    struct sample_device *seen = &device->seen;
    const struct sample_device before = *seen;
    size_t n_links = 0, n_switched = 0;

    if (nvml_topology_list_links(nvml, &device->handle, links, &n_links, NULL) < 0)
        n_links = 0;
    for (size_t i = 0; i < n_links; i++)
        n_switched += links[i].end == NVML_END_SWITCH;
    memset(seen->links, 0, sizeof(seen->links));
    seen->n_links = 0;
    for (size_t i = 0; i < n && seen->n_links < SAMPLE_LINKS_MAX; i++) {
        const struct device_reader *other = &all[i];
        struct sample_link *link = &seen->links[seen->n_links];
        enum nvml_path path;
        uint32_t lanes = 0, p2p = 0;

        if (other == device || other->seen.is_mig)
            continue;
        if (!other->handle.handle) { /* closed or lost: whether it moved is not known */
            seen->n_links += keep_link(&before, &other->seen.id, link);
            continue;
        }
        for (size_t j = 0; j < n_links; j++)
            lanes += links[j].end != NVML_END_SWITCH && links[j].has_remote &&
                     pci_id_compare(&links[j].remote, &other->seen.pci) == 0;
        /* Through a switch all links lead to each GPU that has NVLink to this one. */
        if (!lanes && n_switched &&
            nvml_topology_p2p(nvml, &device->handle, &other->handle, &p2p, NULL) == 0 &&
            p2p & NVML_P2P_NVLINK)
            lanes = (uint32_t)n_switched;
        if (lanes)
            *link = (struct sample_link){ other->seen.id, SAMPLE_PATH_NVLINK, lanes };
        else if (nvml_topology_path(nvml, &device->handle, &other->handle, &path, NULL) == 0)
            *link = (struct sample_link){ other->seen.id, path_of(path), 0 };
        else
            continue;
        seen->n_links++;
    }
}
