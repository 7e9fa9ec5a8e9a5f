/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ECC: memory errors, corrected and uncorrected, and the pages or rows retired because of them.
 *
 * The box counts errors of the device memory only. Up to Turing a bad page is retired, from Ampere
 * on a spare row takes the place of a bad one.
 */
#include "sim/nvml/core.h"

static bool remaps_rows(const struct target *t) {
    return t->model->nvml_architecture >= NVML_DEVICE_ARCH_AMPERE;
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t *now,
                                  nvmlEnableState_t *pending) {
    ENTER(t, device, ON_ANY);
    REQUIRE(now && pending);
    *now = t.gpu->ecc_enabled ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    *pending = t.gpu->ecc_pending ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetDefaultEccMode(nvmlDevice_t device, nvmlEnableState_t *defaultMode) {
    ENTER(t, device, ON_ANY);
    REQUIRE(defaultMode);
    *defaultMode = t.model->ecc ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    return NVML_SUCCESS;
}

/* As on a real card this is pending until the next reset. */
nvmlReturn_t nvmlDeviceSetEccMode(nvmlDevice_t device, nvmlEnableState_t ecc) {
    ENTER(t, device, ON_GPU | BY_ROOT);
    REQUIRE(ecc == NVML_FEATURE_ENABLED || ecc == NVML_FEATURE_DISABLED);
    t.gpu->ecc_pending = ecc;
    return NVML_SUCCESS;
}

static nvmlReturn_t count(const struct target *t, nvmlMemoryErrorType_t type,
                          nvmlEccCounterType_t counter, unsigned long long *ret) {
    const struct box_ecc *ecc = &t->gpu->ecc;
    bool uncorrected = type == NVML_MEMORY_ERROR_TYPE_UNCORRECTED;

    REQUIRE(ret && (unsigned)type < NVML_MEMORY_ERROR_TYPE_COUNT &&
            (unsigned)counter < NVML_ECC_COUNTER_TYPE_COUNT);
    if (!t->gpu->ecc_enabled)
        return NVML_ERROR_NOT_SUPPORTED;
    if (counter == NVML_VOLATILE_ECC)
        *ret = uncorrected ? ecc->uncorrected_volatile : ecc->corrected_volatile;
    else
        *ret = uncorrected ? ecc->uncorrected_aggregate : ecc->corrected_aggregate;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t errorType,
                                         nvmlEccCounterType_t counterType,
                                         unsigned long long *eccCounts) {
    ENTER(t, device, ON_ANY);
    return count(&t, errorType, counterType, eccCounts);
}

nvmlReturn_t nvmlDeviceGetDetailedEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t errorType,
                                            nvmlEccCounterType_t counterType,
                                            nvmlEccErrorCounts_t *eccCounts) {
    ENTER(t, device, ON_ANY);
    unsigned long long n;
    nvmlReturn_t r;

    REQUIRE(eccCounts);
    r = count(&t, errorType, counterType, &n);
    if (r == NVML_SUCCESS)
        *eccCounts = (nvmlEccErrorCounts_t){ .deviceMemory = n };
    return r;
}

nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, nvmlMemoryErrorType_t errorType,
                                             nvmlEccCounterType_t counterType,
                                             nvmlMemoryLocation_t locationType,
                                             unsigned long long *value) {
    ENTER(t, device, ON_ANY);
    unsigned long long n;
    nvmlReturn_t r;

    REQUIRE(value && (unsigned)locationType < NVML_MEMORY_LOCATION_COUNT);
    r = count(&t, errorType, counterType, &n);
    if (r != NVML_SUCCESS)
        return r;
    switch (locationType) {
    case NVML_MEMORY_LOCATION_DEVICE_MEMORY:
        *value = n;
        return NVML_SUCCESS;
    case NVML_MEMORY_LOCATION_TEXTURE_SHM:
        return NVML_ERROR_NOT_SUPPORTED;
    case NVML_MEMORY_LOCATION_SRAM:
        if (!remaps_rows(&t))
            return NVML_ERROR_NOT_SUPPORTED;
        *value = 0;
        return NVML_SUCCESS;
    default:
        if (remaps_rows(&t))
            return NVML_ERROR_NOT_SUPPORTED; /* lumped together as SRAM since Ampere */
        *value = 0;
        return NVML_SUCCESS;
    }
}

nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device,
                                             nvmlEccSramErrorStatus_t *status) {
    ENTER(t, device, ON_GPU);

    REQUIRE_VERSION(status, nvmlEccSramErrorStatus_v1);
    if (!remaps_rows(&t) || !t.gpu->ecc_enabled)
        return NVML_ERROR_NOT_SUPPORTED;
    *status = (nvmlEccSramErrorStatus_t){ .version = status->version };
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceClearEccErrorCounts(nvmlDevice_t device, nvmlEccCounterType_t counterType) {
    ENTER(t, device, ON_GPU | BY_ROOT);

    REQUIRE((unsigned)counterType < NVML_ECC_COUNTER_TYPE_COUNT);
    if (!t.gpu->ecc_enabled)
        return NVML_ERROR_NOT_SUPPORTED;
    if (counterType == NVML_VOLATILE_ECC) {
        t.gpu->ecc.corrected_volatile = 0;
        t.gpu->ecc.uncorrected_volatile = 0;
    } else {
        t.gpu->ecc.corrected_aggregate = 0;
        t.gpu->ecc.uncorrected_aggregate = 0;
    }
    return NVML_SUCCESS;
}

/* Retired pages are in the upper half of memory, a row apart: any addresses would do. */
static nvmlReturn_t retired_pages(struct target *t, nvmlPageRetirementCause_t cause,
                                  unsigned *page_count, unsigned long long *addresses,
                                  unsigned long long *timestamps) {
    unsigned n;
    nvmlReturn_t r;

    REQUIRE(page_count && (unsigned)cause < NVML_PAGE_RETIREMENT_CAUSE_COUNT);
    if (remaps_rows(t) || !t->model->ecc)
        return NVML_ERROR_NOT_SUPPORTED;
    n = cause == NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR ? t->gpu->ecc.remapped_uncorrected
                                                                 : t->gpu->ecc.remapped_corrected;
    r = core_give_list(page_count, addresses, n);
    for (unsigned i = 0; r == NVML_SUCCESS && i < n; i++) {
        addresses[i] = t->gpu->total_bytes / 2 + ((uint64_t)i << 16);
        if (timestamps)
            timestamps[i] = t->box->file->made_at_us;
    }
    return r;
}

nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, nvmlPageRetirementCause_t cause,
                                       unsigned int *pageCount, unsigned long long *addresses) {
    ENTER(t, device, ON_GPU);
    return retired_pages(&t, cause, pageCount, addresses, NULL);
}

nvmlReturn_t nvmlDeviceGetRetiredPages_v2(nvmlDevice_t device, nvmlPageRetirementCause_t cause,
                                          unsigned int *pageCount, unsigned long long *addresses,
                                          unsigned long long *timestamps) {
    ENTER(t, device, ON_GPU);
    return retired_pages(&t, cause, pageCount, addresses, timestamps);
}

nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device,
                                                    nvmlEnableState_t *isPending) {
    ENTER(t, device, ON_GPU);

    REQUIRE(isPending);
    if (remaps_rows(&t) || !t.model->ecc)
        return NVML_ERROR_NOT_SUPPORTED;
    *isPending = t.gpu->ecc.remap_pending ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corrRows,
                                       unsigned int *uncRows, unsigned int *isPending,
                                       unsigned int *failureOccurred) {
    ENTER(t, device, ON_GPU);

    REQUIRE(corrRows && uncRows && isPending && failureOccurred);
    if (!remaps_rows(&t) || !t.model->ecc)
        return NVML_ERROR_NOT_SUPPORTED;
    *corrRows = t.gpu->ecc.remapped_corrected;
    *uncRows = t.gpu->ecc.remapped_uncorrected;
    *isPending = t.gpu->ecc.remap_pending != 0;
    *failureOccurred = t.gpu->ecc.remap_failed != 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRemappedRows_v2(nvmlDevice_t device, nvmlRemappedRowsInfo_v2_t *info) {
    ENTER(t, device, ON_GPU);

    REQUIRE(info);
    if (!remaps_rows(&t) || !t.model->ecc)
        return NVML_ERROR_NOT_SUPPORTED;
    *info = (nvmlRemappedRowsInfo_v2_t){
        .corrActiveRemaps = t.gpu->ecc.remapped_corrected,
        .uncActiveRemaps = t.gpu->ecc.remapped_uncorrected,
        .bPending = t.gpu->ecc.remap_pending != 0,
        .bFailureOccurred = t.gpu->ecc.remap_failed != 0,
    };
    return NVML_SUCCESS;
}

/* Memory is in banks of 64 MiB with eight spare rows each; the box spreads remaps over banks. */
nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t device,
                                               nvmlRowRemapperHistogramValues_t *values) {
    ENTER(t, device, ON_GPU);
    unsigned banks, used;

    REQUIRE(values);
    if (!remaps_rows(&t) || !t.model->ecc)
        return NVML_ERROR_NOT_SUPPORTED;
    banks = (unsigned)(t.model->total_bytes >> 26);
    used = MIN(t.gpu->ecc.remapped_corrected + t.gpu->ecc.remapped_uncorrected, banks);
    *values = (nvmlRowRemapperHistogramValues_t){ .max = banks - used, .high = used };
    return NVML_SUCCESS;
}
