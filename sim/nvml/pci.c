/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PCI: a GPU's place on the bus and the width of its link.
 *
 * nvmlPciInfo_t grew over the years; callers of the older functions have the smaller struct, so
 * those must not write beyond it.
 */
#include "sim/nvml/core.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/gpuid.h"

static void fill(const struct box_gpu *gpu, const struct sim_model *model, nvmlPciInfo_t *ret) {
    const struct pci_id id = { gpu->pci_domain, (uint8_t)gpu->pci_bus, (uint8_t)gpu->pci_device,
                               0 };
    char text[PCI_ID_TEXT_SIZE];

    *ret = (nvmlPciInfo_t){
        .domain = gpu->pci_domain,
        .bus = gpu->pci_bus,
        .device = gpu->pci_device,
        .pciDeviceId = model->pci_device_id,
        .pciSubSystemId = model->pci_subsystem_id,
    };
    snprintf(ret->busIdLegacy, sizeof(ret->busIdLegacy), "%.15s",
             pci_id_format(&id, PCI_ID_NVML_LEGACY, text));
    snprintf(ret->busId, sizeof(ret->busId), "%s", pci_id_format(&id, PCI_ID_NVML, text));
}

static nvmlReturn_t info(const char *call, nvmlDevice_t device, nvmlPciInfo_t *ret, size_t size) {
    ENTER_(t, core_enter(&t, call, device, ON_ANY));
    nvmlPciInfo_t pci;

    REQUIRE(ret);
    fill(t.gpu, t.model, &pci);
    memcpy(ret, &pci, size);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    return info(__func__, device, pci, offsetof(nvmlPciInfo_t, pciSubSystemId));
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    return info(__func__, device, pci, offsetof(nvmlPciInfo_t, busId));
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    return info(__func__, device, pci, sizeof(*pci));
}

nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_t *pci) {
    ENTER(t, device, ON_ANY);
    nvmlPciInfo_t plain;

    REQUIRE_VERSION(pci, nvmlPciInfoExt_v1);
    fill(t.gpu, t.model, &plain);
    pci->domain = plain.domain;
    pci->bus = plain.bus;
    pci->device = plain.device;
    pci->pciDeviceId = plain.pciDeviceId;
    pci->pciSubSystemId = plain.pciSubSystemId;
    pci->baseClass = 0x03; /* display controller: 3D, or VGA where something can be plugged in */
    pci->subClass = is_consumer(&t) ? 0x00 : 0x02;
    memcpy(pci->busId, plain.busId, sizeof(pci->busId));
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetBusType(nvmlDevice_t device, nvmlBusType_t *type) {
    ENTER(t, device, ON_GPU);
    REQUIRE(type);
    *type = NVML_BUS_TYPE_PCIE;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned int *maxLinkGen) {
    ENTER(t, device, ON_ANY);
    REQUIRE(maxLinkGen);
    *maxLinkGen = t.model->pcie_generation;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuMaxPcieLinkGeneration(nvmlDevice_t device,
                                                   unsigned int *maxLinkGenDevice) {
    ENTER(t, device, ON_ANY);
    REQUIRE(maxLinkGenDevice);
    *maxLinkGenDevice = t.model->pcie_generation;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned int *maxLinkWidth) {
    ENTER(t, device, ON_ANY);
    REQUIRE(maxLinkWidth);
    *maxLinkWidth = t.model->pcie_width;
    return NVML_SUCCESS;
}

/* Cards that have an idle P-state let the link fall back to generation 1 there. */
static unsigned current_generation(struct target *t) {
    struct utilization_readings now;

    utilization_read(t->box, t->part.gpu, &now);
    return now.performance_state >= 8 ? 1 : t->model->pcie_generation;
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned int *currLinkGen) {
    ENTER(t, device, ON_ANY);
    REQUIRE(currLinkGen);
    *currLinkGen = current_generation(&t);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned int *currLinkWidth) {
    ENTER(t, device, ON_ANY);
    REQUIRE(currLinkWidth);
    *currLinkWidth = t.model->pcie_width;
    return NVML_SUCCESS;
}

/* Per lane; each generation doubles the rate of the one before. */
static unsigned megatransfers(unsigned generation) {
    static const unsigned speed[] = { 0, 2500, 5000, 8000, 16000, 32000, 64000 };

    return generation < ELEMENTSOF(speed) ? speed[generation] : 0;
}

nvmlReturn_t nvmlDeviceGetPcieSpeed(nvmlDevice_t device, unsigned int *pcieSpeed) {
    ENTER(t, device, ON_GPU);
    REQUIRE(pcieSpeed);
    *pcieSpeed = megatransfers(current_generation(&t));
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPcieLinkMaxSpeed(nvmlDevice_t device, unsigned int *maxSpeed) {
    ENTER(t, device, ON_GPU);
    REQUIRE(maxSpeed);
    *maxSpeed = t.model->pcie_generation; /* NVML_PCIE_LINK_MAX_SPEED_… counts generations */
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, nvmlPcieUtilCounter_t counter,
                                         unsigned int *value) {
    ENTER(t, device, ON_GPU);
    struct utilization_readings now;
    uint64_t kib_per_second;

    REQUIRE(value && counter < NVML_PCIE_UTIL_COUNT);
    /* The copy engines' busy share of what the link carries (128b/130b), spread over both ways. */
    utilization_read(t.box, t.part.gpu, &now);
    kib_per_second = (uint64_t)megatransfers(t.model->pcie_generation) * t.model->pcie_width *
                     1000000 / 8 / 1024 * 128 / 130;
    *value = (unsigned)(kib_per_second * now.memory_utilization / 100 / 2);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPcieReplayCounter(nvmlDevice_t device, unsigned int *value) {
    ENTER(t, device, ON_GPU);
    REQUIRE(value);
    *value = 0;
    return NVML_SUCCESS;
}
