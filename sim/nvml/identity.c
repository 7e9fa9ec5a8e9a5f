/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Identity: a GPU's name, UUID, serial and part numbers.
 */
#include "sim/nvml/core.h"

#include <stdio.h>
#include <string.h>

#include "sim/box/mig.h"

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length) {
    ENTER(t, device, ON_ANY);
    char text[NVML_DEVICE_NAME_V2_BUFFER_SIZE], mig[32];

    if (!t.gi)
        return core_give_text(name, length, t.model->name);
    mig_device_name(t.model, t.gi, t.ci, mig, sizeof(mig));
    snprintf(text, sizeof(text), "%s MIG %s", t.model->name, mig);
    return core_give_text(name, length, text);
}

nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, nvmlBrandType_t *type) {
    ENTER(t, device, ON_ANY);
    REQUIRE(type);
    *type = (nvmlBrandType_t)t.model->nvml_brand;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, nvmlDeviceArchitecture_t *arch) {
    ENTER(t, device, ON_ANY);
    REQUIRE(arch);
    *arch = t.model->nvml_architecture;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    ENTER(t, device, ON_ANY);
    REQUIRE(major && minor);
    *major = (int)t.model->cc_major;
    *minor = (int)t.model->cc_minor;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
    ENTER(t, device, ON_ANY);
    return core_give_text(uuid, length, t.ci ? t.ci->uuid : t.gpu->uuid);
}

nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned int length) {
    ENTER(t, device, ON_ANY);

    if (is_consumer(&t))
        return NVML_ERROR_NOT_SUPPORTED; /* consumer cards have no InfoROM to keep one in */
    return core_give_text(serial, length, t.gpu->serial);
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minorNumber) {
    ENTER(t, device, ON_ANY);
    REQUIRE(minorNumber);
    *minorNumber = t.gpu->minor;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetBoardId(nvmlDevice_t device, unsigned int *boardId) {
    ENTER(t, device, ON_ANY);
    REQUIRE(boardId);
    *boardId = t.gpu->pci_domain << 16 | t.gpu->pci_bus << 8 | t.gpu->pci_device << 3;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMultiGpuBoard(nvmlDevice_t device, unsigned int *multiGpuBool) {
    ENTER(t, device, ON_ANY);
    REQUIRE(multiGpuBool);
    *multiGpuBool = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetBoardPartNumber(nvmlDevice_t device, char *partNumber,
                                          unsigned int length) {
    ENTER(t, device, ON_ANY);
    return core_give_text(partNumber, length, t.model->part_number);
}

nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *version, unsigned int length) {
    ENTER(t, device, ON_ANY);
    return core_give_text(version, length, t.model->vbios);
}

nvmlReturn_t nvmlDeviceGetModuleId(nvmlDevice_t device, unsigned int *moduleId) {
    ENTER(t, device, ON_GPU);
    REQUIRE(moduleId);
    *moduleId = t.part.gpu + 1;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNumGpuCores(nvmlDevice_t device, unsigned int *numCores) {
    ENTER(t, device, ON_ANY);
    REQUIRE(numCores);
    *numCores = t.model->cores_per_multiprocessor *
                (t.ci ? t.ci->multiprocessors : t.model->multiprocessors);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetInforomVersion(nvmlDevice_t device, nvmlInforomObject_t object,
                                         char *version, unsigned int length) {
    ENTER(t, device, ON_ANY);
    bool ampere = t.model->nvml_architecture >= NVML_DEVICE_ARCH_AMPERE;

    switch (object) {
    case NVML_INFOROM_OEM:
        return core_give_text(version, length, ampere ? "2.0" : "1.1");
    case NVML_INFOROM_ECC:
        if (is_consumer(&t))
            return NVML_ERROR_NOT_SUPPORTED;
        return core_give_text(version, length, ampere ? "6.16" : "5.0");
    case NVML_INFOROM_POWER:
    case NVML_INFOROM_DEN:
        return NVML_ERROR_NOT_SUPPORTED;
    default:
        return NVML_ERROR_INVALID_ARGUMENT;
    }
}

nvmlReturn_t nvmlDeviceGetInforomImageVersion(nvmlDevice_t device, char *version,
                                              unsigned int length) {
    ENTER(t, device, ON_ANY);
    char text[NVML_DEVICE_INFOROM_VERSION_BUFFER_SIZE];

    if (is_consumer(&t))
        return NVML_ERROR_NOT_SUPPORTED;
    /* as printed on such boards: G<board>.<variant>, and the board is in the subsystem id */
    snprintf(text, sizeof(text), "G%03u.0200.00.05", (t.model->pci_subsystem_id >> 16) % 1000);
    return core_give_text(version, length, text);
}

nvmlReturn_t nvmlDeviceGetInforomConfigurationChecksum(nvmlDevice_t device,
                                                       unsigned int *checksum) {
    ENTER(t, device, ON_ANY);
    unsigned sum = 5381;

    REQUIRE(checksum);
    if (is_consumer(&t))
        return NVML_ERROR_NOT_SUPPORTED;
    for (const char *p = t.model->part_number; *p; p++)
        sum = sum * 33 + (unsigned char)*p;
    *checksum = sum;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceValidateInforom(nvmlDevice_t device) {
    ENTER(t, device, ON_ANY);
    return is_consumer(&t) ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t device, char *version) {
    ENTER(t, device, ON_ANY);
    return core_give_text(version, NVML_GSP_FIRMWARE_VERSION_BUF_SIZE, t.box->file->driver_version);
}

nvmlReturn_t nvmlDeviceGetGspFirmwareMode(nvmlDevice_t device, unsigned int *isEnabled,
                                          unsigned int *defaultMode) {
    ENTER(t, device, ON_ANY);
    REQUIRE(isEnabled && defaultMode);
    *isEnabled = 1;
    *defaultMode = 1;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetIrqNum(nvmlDevice_t device, unsigned int *irqNum) {
    ENTER(t, device, ON_GPU);
    REQUIRE(irqNum);
    *irqNum = 128 + t.gpu->minor;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPdi(nvmlDevice_t device, nvmlPdi_t *pdi) {
    ENTER(t, device, ON_GPU);
    uint64_t sum = UINT64_C(14695981039346656037);

    REQUIRE_VERSION(pdi, nvmlPdi_v1);
    for (const char *p = t.gpu->uuid; *p; p++)
        sum = (sum ^ (unsigned char)*p) * UINT64_C(1099511628211);
    pdi->value = sum;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t device1, nvmlDevice_t device2, int *onSameBoard) {
    ENTER(t, device1, ON_GPU);
    struct handle_location other;

    REQUIRE(onSameBoard && handle_locate_device(device2, &other) && other.gpu < t.box->n_gpus);
    *onSameBoard = other.gpu == t.part.gpu;
    return NVML_SUCCESS;
}
