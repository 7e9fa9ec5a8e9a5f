/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/hand/reader/device_reader.h"

#include <errno.h>
#include <string.h>

#include "base/safe_text.h"
#include "driver/nvml_readings.h"
#include "driver/nvml_topology.h"

void device_reader_lose(struct device_reader *device, int r, const struct allot_error *err) {
    device->seen.readings.has = 0;
    device->seen.health = r == -ENXIO || r == -ENOTRECOVERABLE || r == -ENODEV || r == -ENOENT
                              ? SAMPLE_LOST
                              : SAMPLE_FAILED;
    safe_text_clean(device->seen.trouble, sizeof(device->seen.trouble), err->text,
                    strlen(err->text));
}

int device_reader_read(struct device_reader *device, const struct nvml *nvml, bool slow,
                       struct allot_error *err) {
    struct sample_device *seen = &device->seen;
    int r;

    r = nvml_readings_take(nvml, &device->handle,
                           slow ? READINGS_ALL : READINGS_ALL & ~(READINGS_MODE | READINGS_ECC),
                           &seen->readings, err);
    if (r < 0)
        return r;
    if (READINGS_HAVE(&seen->readings, total_bytes))
        seen->total_bytes = seen->readings.total_bytes;
    seen->reserved_bytes =
        READINGS_HAVE(&seen->readings, reserved_bytes) ? seen->readings.reserved_bytes : 0;
    if (slow)
        seen->mig_enabled =
            READINGS_HAVE(&seen->readings, mig_enabled) && seen->readings.mig_enabled;
    return 0;
}

void device_reader_identify(struct device_reader *device, const struct nvml_identity *identity,
                            const struct device_reader *gpu) {
    static const enum readings_index of_gpu[] = { READING_minor, READING_numa };
    struct sample_device *seen = &device->seen;

    seen->pci = gpu ? gpu->seen.pci : identity->pci;
    safe_text_clean(seen->name, sizeof(seen->name), identity->name, strlen(identity->name));
    nvml_readings_identify(&seen->readings, identity);
    for (size_t i = 0; gpu && i < ELEMENTSOF(of_gpu); i++) {
        seen->readings.has &= ~(UINT64_C(1) << of_gpu[i]);
        if (gpu->seen.readings.has >> of_gpu[i] & 1)
            readings_put(&seen->readings, of_gpu[i], gpu->seen.readings.values[of_gpu[i]]);
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
