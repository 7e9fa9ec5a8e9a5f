/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System: versions, and calls about hardware that a box does not have.
 */
#include "sim/nvml/core.h"

#include <stdio.h>
#include <stdlib.h>

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    ENTER_BOX(t);
    return core_give_text(version, length, t.box->file->driver_version);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length) {
    ENTER_BOX(t);
    return core_give_text(version, length, t.box->file->nvml_version);
}

nvmlReturn_t nvmlSystemGetDriverBranch(nvmlSystemDriverBranchInfo_t *branchInfo,
                                       unsigned int length) {
    ENTER_BOX(t);
    char text[NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE];

    REQUIRE_VERSION(branchInfo, nvmlSystemDriverBranchInfo_v1);
    snprintf(text, sizeof(text), "r%lu_00", strtoul(t.box->file->driver_version, NULL, 10));
    return core_give_text(branchInfo->branch, MIN(length, (unsigned)sizeof(branchInfo->branch)),
                          text);
}

static nvmlReturn_t cuda_version(const char *call, int *ret) {
    ENTER_(t, core_enter_box(&t, call, 0));
    REQUIRE(ret);
    *ret = (int)t.box->file->cuda_driver_version;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *cudaDriverVersion) {
    return cuda_version(__func__, cudaDriverVersion);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *cudaDriverVersion) {
    return cuda_version(__func__, cudaDriverVersion);
}

nvmlReturn_t nvmlSystemGetHicVersion(unsigned int *hwbcCount, nvmlHwbcEntry_t *hwbcEntries) {
    ENTER_BOX(t);
    return core_give_list(hwbcCount, hwbcEntries, 0);
}

nvmlReturn_t nvmlUnitGetCount(unsigned int *unitCount) {
    ENTER_BOX(t);
    return unitCount ? core_give_list(unitCount, NULL, 0) : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlUnitGetHandleByIndex(unsigned int index, nvmlUnit_t *unit) {
    ENTER_BOX(t);
    return NVML_ERROR_INVALID_ARGUMENT;
}

static nvmlReturn_t none(const char *call, unsigned *count) {
    ENTER_(t, core_enter_box(&t, call, 0));
    REQUIRE(count);
    *count = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned int *deviceCount) {
    return none(__func__, deviceCount);
}

nvmlReturn_t nvmlGetExcludedDeviceInfoByIndex(unsigned int index, nvmlExcludedDeviceInfo_t *info) {
    ENTER_BOX(t);
    return NVML_ERROR_INVALID_ARGUMENT;
}

/* The older names of these two calls, which nvml.h no longer declares. */
#pragma GCC visibility push(default)
nvmlReturn_t nvmlGetBlacklistDeviceCount(unsigned int *deviceCount);
nvmlReturn_t nvmlGetBlacklistDeviceInfoByIndex(unsigned int index, nvmlExcludedDeviceInfo_t *info);
#pragma GCC visibility pop

nvmlReturn_t nvmlGetBlacklistDeviceCount(unsigned int *deviceCount) {
    return none(__func__, deviceCount);
}

nvmlReturn_t nvmlGetBlacklistDeviceInfoByIndex(unsigned int index, nvmlExcludedDeviceInfo_t *info) {
    ENTER_BOX(t);
    return NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *gpmSupport) {
    ENTER(t, device, ON_ANY);
    REQUIRE(gpmSupport);
    if (gpmSupport->version != NVML_GPM_SUPPORT_VERSION)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    gpmSupport->isSupportedDevice = 0;
    return NVML_SUCCESS;
}
