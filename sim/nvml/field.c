/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Field: the readings of the other calls, by field number and many in one call, for exporters.
 */
#include "sim/nvml/core.h"

/* A value for a field: type and content in one. */
static nvmlReturn_t put_uint(nvmlFieldValue_t *field, unsigned value) {
    field->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
    field->value.uiVal = value;
    return NVML_SUCCESS;
}

static nvmlReturn_t put_int(nvmlFieldValue_t *field, int value) {
    field->valueType = NVML_VALUE_TYPE_SIGNED_INT;
    field->value.siVal = value;
    return NVML_SUCCESS;
}

static nvmlReturn_t put_ull(nvmlFieldValue_t *field, unsigned long long value) {
    field->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
    field->value.ullVal = value;
    return NVML_SUCCESS;
}

/* ECC counters by number: single and double bit, volatile and aggregate, in total or by place. */
static nvmlReturn_t ecc(const struct target *t, nvmlFieldValue_t *field) {
    const struct box_ecc *e = &t->gpu->ecc;

    if (!t->gpu->ecc_enabled)
        return NVML_ERROR_NOT_SUPPORTED;
    switch (field->fieldId) {
    case NVML_FI_DEV_ECC_SBE_VOL_TOTAL:
    case NVML_FI_DEV_ECC_SBE_VOL_DEV:
        return put_ull(field, e->corrected_volatile);
    case NVML_FI_DEV_ECC_DBE_VOL_TOTAL:
    case NVML_FI_DEV_ECC_DBE_VOL_DEV:
        return put_ull(field, e->uncorrected_volatile);
    case NVML_FI_DEV_ECC_SBE_AGG_TOTAL:
    case NVML_FI_DEV_ECC_SBE_AGG_DEV:
        return put_ull(field, e->corrected_aggregate);
    case NVML_FI_DEV_ECC_DBE_AGG_TOTAL:
    case NVML_FI_DEV_ECC_DBE_AGG_DEV:
        return put_ull(field, e->uncorrected_aggregate);
    default:
        return put_ull(field, 0);
    }
}

static nvmlReturn_t retirement(const struct target *t, nvmlFieldValue_t *field) {
    const struct box_ecc *e = &t->gpu->ecc;
    bool rows = t->model->nvml_architecture >= NVML_DEVICE_ARCH_AMPERE;
    bool asks_rows = field->fieldId >= NVML_FI_DEV_REMAPPED_COR &&
                     field->fieldId <= NVML_FI_DEV_REMAPPED_FAILURE;

    if (!t->model->ecc || rows != asks_rows)
        return NVML_ERROR_NOT_SUPPORTED;
    switch (field->fieldId) {
    case NVML_FI_DEV_RETIRED_SBE:
    case NVML_FI_DEV_REMAPPED_COR:
        return put_uint(field, e->remapped_corrected);
    case NVML_FI_DEV_RETIRED_DBE:
    case NVML_FI_DEV_REMAPPED_UNC:
        return put_uint(field, e->remapped_uncorrected);
    case NVML_FI_DEV_REMAPPED_FAILURE:
        return put_uint(field, e->remap_failed != 0);
    default:
        return put_uint(field, e->remap_pending != 0);
    }
}

/* As drivers round it: the signalling rate is a little above the 25 GB/s of the data sheet. */
static unsigned link_speed_mbps(const struct target *t) {
    uint64_t mb = t->model->nvlink_bytes_per_second / 1000000;

    return (unsigned)(t->model->nvlink_version >= 4 ? mb * 10625 / 10000 : mb * 103125 / 100000);
}

static nvmlReturn_t link_speed(const struct target *t, unsigned link, nvmlFieldValue_t *field) {
    struct nvlink_end end;

    if (!nvlink_end(t->box, t->part.gpu, link, &end))
        return NVML_ERROR_NOT_SUPPORTED;
    return put_uint(field, end.active ? link_speed_mbps(t) : 0);
}

static nvmlReturn_t nvlink(const struct target *t, nvmlFieldValue_t *field) {
    unsigned id = field->fieldId, links = t->model->nvlink_links;
    struct nvlink_end end = { 0 };

    if (links == 0 && id != NVML_FI_DEV_NVLINK_LINK_COUNT &&
        id != NVML_FI_DEV_NVSWITCH_CONNECTED_LINK_COUNT)
        return NVML_ERROR_NOT_SUPPORTED;
    if (id >= NVML_FI_DEV_NVLINK_SPEED_MBPS_L0 && id <= NVML_FI_DEV_NVLINK_SPEED_MBPS_L5)
        return link_speed(t, id - NVML_FI_DEV_NVLINK_SPEED_MBPS_L0, field);
    if (id >= NVML_FI_DEV_NVLINK_SPEED_MBPS_L6 && id <= NVML_FI_DEV_NVLINK_SPEED_MBPS_L11)
        return link_speed(t, 6 + id - NVML_FI_DEV_NVLINK_SPEED_MBPS_L6, field);

    switch (id) {
    case NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON:
        return put_uint(field, link_speed_mbps(t));
    case NVML_FI_DEV_NVLINK_LINK_COUNT:
        return put_uint(field, links);
    case NVML_FI_DEV_NVLINK_GET_SPEED:
        return link_speed(t, field->scopeId, field);
    case NVML_FI_DEV_NVLINK_GET_STATE:
        if (!nvlink_end(t->box, t->part.gpu, field->scopeId, &end))
            return NVML_ERROR_INVALID_ARGUMENT;
        return put_uint(field, end.active);
    case NVML_FI_DEV_NVLINK_REMOTE_NVLINK_ID:
        if (!nvlink_end(t->box, t->part.gpu, field->scopeId, &end))
            return NVML_ERROR_INVALID_ARGUMENT;
        return end.active ? put_uint(field, end.peer_link) : NVML_ERROR_NOT_SUPPORTED;
    case NVML_FI_DEV_NVSWITCH_CONNECTED_LINK_COUNT:
        nvlink_end(t->box, t->part.gpu, 0, &end);
        return put_uint(field, end.to_switch ? links : 0);
    default: /* counters of errors and of traffic, which is not counted */
        return put_ull(field, 0);
    }
}

static nvmlReturn_t power(struct target *t, nvmlFieldValue_t *field) {
    struct utilization_readings now;

    if (field->scopeId != NVML_POWER_SCOPE_GPU && field->fieldId >= NVML_FI_DEV_POWER_AVERAGE)
        return NVML_ERROR_NOT_SUPPORTED; /* there are no separate sensors for module and memory */
    utilization_read(t->box, t->part.gpu, &now);
    switch (field->fieldId) {
    case NVML_FI_DEV_POWER_AVERAGE:
    case NVML_FI_DEV_POWER_INSTANT:
        return put_uint(field, now.power_mw);
    case NVML_FI_DEV_POWER_MIN_LIMIT:
        return put_uint(field, t->model->power_min_mw);
    case NVML_FI_DEV_POWER_MAX_LIMIT:
        return put_uint(field, t->model->power_max_mw);
    case NVML_FI_DEV_POWER_DEFAULT_LIMIT:
        return put_uint(field, t->model->power_limit_mw);
    case NVML_FI_DEV_POWER_CURRENT_LIMIT:
    case NVML_FI_DEV_POWER_REQUESTED_LIMIT:
        return put_uint(field, power_limit_mw(t));
    default:
        return put_ull(field, now.energy_mj);
    }
}

static nvmlReturn_t read_field(struct target *t, nvmlFieldValue_t *field) {
    struct utilization_readings now;

    switch (field->fieldId) {
    case NVML_FI_DEV_ECC_CURRENT:
        return put_uint(field, t->gpu->ecc_enabled);
    case NVML_FI_DEV_ECC_PENDING:
        return put_uint(field, t->gpu->ecc_pending);
    case NVML_FI_DEV_ECC_SBE_VOL_TOTAL ... NVML_FI_DEV_ECC_DBE_AGG_CBU:
        return ecc(t, field);
    case NVML_FI_DEV_RETIRED_SBE ... NVML_FI_DEV_RETIRED_PENDING:
    case NVML_FI_DEV_RETIRED_PENDING_SBE:
    case NVML_FI_DEV_RETIRED_PENDING_DBE:
    case NVML_FI_DEV_REMAPPED_COR ... NVML_FI_DEV_REMAPPED_FAILURE:
        return retirement(t, field);
    case NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_L0 ... NVML_FI_DEV_NVLINK_BANDWIDTH_C1_TOTAL:
    case NVML_FI_DEV_NVLINK_SPEED_MBPS_L0 ... NVML_FI_DEV_NVLINK_LINK_COUNT:
    case NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_L6 ... NVML_FI_DEV_NVLINK_THROUGHPUT_RAW_RX:
    case NVML_FI_DEV_NVLINK_REMOTE_NVLINK_ID ... NVML_FI_DEV_NVLINK_GET_STATE:
        return nvlink(t, field);
    case NVML_FI_DEV_PERF_POLICY_POWER ... NVML_FI_DEV_PERF_POLICY_TOTAL_BASE_CLOCKS:
    case NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN ... NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN:
        return put_ull(field, 0);
    case NVML_FI_DEV_MEMORY_TEMP:
        if (t->model->memory_bus_bits < 1024)
            return NVML_ERROR_NOT_SUPPORTED;
        utilization_read(t->box, t->part.gpu, &now);
        return put_uint(field, now.memory_temperature_c);
    case NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION:
    case NVML_FI_DEV_POWER_AVERAGE ... NVML_FI_DEV_POWER_REQUESTED_LIMIT:
        return power(t, field);
    case NVML_FI_DEV_PCIE_REPLAY_COUNTER:
    case NVML_FI_DEV_PCIE_REPLAY_ROLLOVER_COUNTER:
    case NVML_FI_DEV_PCIE_L0_TO_RECOVERY_COUNTER:
    case NVML_FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS ... NVML_FI_DEV_PCIE_COUNT_LANE_ERROR:
        return put_uint(field, 0);
    case NVML_FI_DEV_C2C_LINK_COUNT:
        return put_uint(field, 0);
    case NVML_FI_DEV_IS_RESETLESS_MIG_SUPPORTED:
        return put_uint(field, t->model->nvml_architecture >= NVML_DEVICE_ARCH_HOPPER);
    case NVML_FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT:
    case NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT:
    case NVML_FI_DEV_TEMPERATURE_MEM_MAX_TLIMIT:
    case NVML_FI_DEV_TEMPERATURE_GPU_MAX_TLIMIT:
        if (t->model->nvml_architecture < NVML_DEVICE_ARCH_ADA)
            return NVML_ERROR_NOT_SUPPORTED;
        /* distances from where the driver slows down: negative is beyond it */
        return put_int(field, field->fieldId == NVML_FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT   ? -8
                              : field->fieldId == NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT ? -2
                                                                                          : 0);
    default:
        return NVML_ERROR_NOT_SUPPORTED;
    }
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int valuesCount,
                                      nvmlFieldValue_t *values) {
    ENTER(t, device, ON_GPU);

    REQUIRE(values && valuesCount > 0);
    for (int i = 0; i < valuesCount; i++) {
        uint64_t start_us = box_now_us();

        values[i].value.ullVal = 0; /* some callers read it without checking nvmlReturn */
        values[i].nvmlReturn = values[i].fieldId == 0 || values[i].fieldId >= NVML_FI_MAX
                                   ? NVML_ERROR_INVALID_ARGUMENT
                                   : read_field(&t, &values[i]);
        values[i].timestamp = (long long)start_us;
        values[i].latencyUsec = (long long)(box_now_us() - start_us);
    }
    return NVML_SUCCESS;
}
