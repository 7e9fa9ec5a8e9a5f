/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVLink: the links of a GPU and where they lead.
 *
 * The box knows how many links connect two GPUs. If that adds up to more than a GPU has, the
 * links go to switches, and all GPUs are equally near; otherwise they are cables, numbered by peer:
 *
 *     GPU 0   links 0–3 → GPU 1   links 4–7 → GPU 2   links 8–11 → GPU 3
 */
#include "sim/nvml/core.h"

#include <stdio.h>
#include <string.h>

#include "base/gpuid.h"

enum {
    SWITCHES = 6, /* of a baseboard; a GPU's links are dealt out to them in turn */
    SWITCH_FIRST_BUS = 0xc4,
};

static unsigned links_to(const struct box *box, unsigned gpu, unsigned peer) {
    return peer == gpu ? 0
                       : MIN(box->file->gpu[gpu].nvlinks[peer], box_model(box, gpu)->nvlink_links);
}

static bool is_switched(const struct box *box, unsigned gpu) {
    unsigned sum = 0;

    for (unsigned peer = 0; peer < box->n_gpus; peer++)
        sum += links_to(box, gpu, peer);
    return sum > box_model(box, gpu)->nvlink_links;
}

/* The first link of `gpu` that leads to `peer`. */
static unsigned first_link(const struct box *box, unsigned gpu, unsigned peer) {
    unsigned link = 0;

    for (unsigned other = 0; other < peer; other++)
        link += links_to(box, gpu, other);
    return link;
}

bool nvlink_end(const struct box *box, unsigned gpu, unsigned link, struct nvlink_end *ret) {
    *ret = (struct nvlink_end){ 0 };
    if (link >= box_model(box, gpu)->nvlink_links)
        return false;
    if (is_switched(box, gpu)) {
        ret->active = ret->to_switch = true;
        ret->peer_link = gpu;
        return true;
    }
    for (unsigned peer = 0; peer < box->n_gpus; peer++) {
        unsigned first = first_link(box, gpu, peer);

        if (link < first || link >= first + links_to(box, gpu, peer))
            continue;
        ret->active = true;
        ret->peer = peer;
        ret->peer_link = first_link(box, peer, gpu) + link - first;
        break;
    }
    return true;
}

/* Clients ask for all links that any GPU could have: asking for a missing one is no mistake. */
static nvmlReturn_t find(const struct target *t, unsigned link, struct nvlink_end *ret) {
    REQUIRE(link < NVML_NVLINK_MAX_LINKS);
    return nvlink_end(t->box, t->part.gpu, link, ret) ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link,
                                      nvmlEnableState_t *isActive) {
    ENTER(t, device, ON_GPU);
    struct nvlink_end end;
    nvmlReturn_t r = find(&t, link, &end);

    REQUIRE(isActive);
    if (r == NVML_SUCCESS)
        *isActive = end.active ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    return r;
}

nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned int link,
                                        unsigned int *version) {
    static const unsigned versions[] = {
        NVML_NVLINK_VERSION_INVALID, NVML_NVLINK_VERSION_1_0, NVML_NVLINK_VERSION_2_0,
        NVML_NVLINK_VERSION_3_0,     NVML_NVLINK_VERSION_4_0, NVML_NVLINK_VERSION_5_0,
    };
    ENTER(t, device, ON_GPU);
    struct nvlink_end end;
    nvmlReturn_t r = find(&t, link, &end);

    REQUIRE(version);
    if (r == NVML_SUCCESS)
        *version = t.model->nvlink_version < ELEMENTSOF(versions)
                       ? versions[t.model->nvlink_version]
                       : NVML_NVLINK_VERSION_INVALID;
    return r;
}

nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned int link,
                                           nvmlNvLinkCapability_t capability,
                                           unsigned int *capResult) {
    ENTER(t, device, ON_GPU);
    struct nvlink_end end;
    nvmlReturn_t r = find(&t, link, &end);

    REQUIRE(capResult && (unsigned)capability < NVML_NVLINK_CAP_COUNT);
    if (r == NVML_SUCCESS)
        *capResult = end.active && capability != NVML_NVLINK_CAP_SLI_BRIDGE;
    return r;
}

static nvmlReturn_t remote(const char *call, nvmlDevice_t device, unsigned link, size_t size,
                           nvmlPciInfo_t *ret) {
    ENTER_(t, core_enter(&t, call, device, ON_GPU));
    char text[PCI_ID_TEXT_SIZE];
    nvmlPciInfo_t pci = { 0 };
    struct nvlink_end end;
    struct pci_id id;
    nvmlReturn_t r = find(&t, link, &end);

    REQUIRE(ret);
    if (r != NVML_SUCCESS)
        return r;
    if (!end.active)
        return NVML_ERROR_NOT_SUPPORTED;
    if (end.to_switch) {
        id = (struct pci_id){ .bus = (uint8_t)(SWITCH_FIRST_BUS + link % SWITCHES) };
        pci.pciDeviceId = 0x1af110de;
    } else {
        const struct box_gpu *peer = &t.box->file->gpu[end.peer];

        id = (struct pci_id){ peer->pci_domain, (uint8_t)peer->pci_bus, (uint8_t)peer->pci_device,
                              0 };
        pci.pciDeviceId = box_model(t.box, end.peer)->pci_device_id;
        pci.pciSubSystemId = box_model(t.box, end.peer)->pci_subsystem_id;
    }
    pci.domain = id.domain;
    pci.bus = id.bus;
    pci.device = id.device;
    snprintf(pci.busIdLegacy, sizeof(pci.busIdLegacy), "%.15s",
             pci_id_format(&id, PCI_ID_NVML_LEGACY, text));
    snprintf(pci.busId, sizeof(pci.busId), "%s", pci_id_format(&id, PCI_ID_NVML, text));
    memcpy(ret, &pci, size);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo(nvmlDevice_t device, unsigned int link,
                                              nvmlPciInfo_t *pci) {
    return remote(__func__, device, link, offsetof(nvmlPciInfo_t, busId), pci);
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link,
                                                 nvmlPciInfo_t *pci) {
    return remote(__func__, device, link, sizeof(*pci), pci);
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link,
                                                 nvmlIntNvLinkDeviceType_t *type) {
    ENTER(t, device, ON_GPU);
    struct nvlink_end end;
    nvmlReturn_t r = find(&t, link, &end);

    REQUIRE(type);
    if (r == NVML_SUCCESS)
        *type = !end.active     ? NVML_NVLINK_DEVICE_TYPE_UNKNOWN
                : end.to_switch ? NVML_NVLINK_DEVICE_TYPE_SWITCH
                                : NVML_NVLINK_DEVICE_TYPE_GPU;
    return r;
}

nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned int link,
                                             nvmlNvLinkErrorCounter_t counter,
                                             unsigned long long *counterValue) {
    ENTER(t, device, ON_GPU);
    struct nvlink_end end;
    nvmlReturn_t r = find(&t, link, &end);

    REQUIRE(counterValue && (unsigned)counter < NVML_NVLINK_ERROR_COUNT);
    if (r == NVML_SUCCESS)
        *counterValue = 0;
    return r;
}

nvmlReturn_t nvmlDeviceResetNvLinkErrorCounters(nvmlDevice_t device, unsigned int link) {
    ENTER(t, device, ON_GPU);
    struct nvlink_end end;

    return find(&t, link, &end);
}
