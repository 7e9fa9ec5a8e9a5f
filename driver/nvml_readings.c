/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/nvml_readings.h"

#include "driver/nvml_calls.h"

_Static_assert(NVML_READING_COUNT <= 64, "one bit of `has` each");

const struct nvml_reading_info nvml_reading_info[NVML_READING_COUNT] = {
#define X(group, field, unit) { #field, unit, offsetof(struct nvml_readings, field) },
    NVML_READINGS(X)
#undef X
};

/* One device being read: the first sign that it is gone ends it all. */
struct reader {
    const struct nvml *nvml;
    const struct nvml_device *device;
    nvmlDevice_t handle;
    struct nvml_readings *into;
    struct allot_error *err;
    int gone; /* -errno */
};

/* Make a call, unless the device is gone: true if it answered. */
#define ASK(r, call, ...)                                                                          \
    (!(r)->gone &&                                                                                 \
     answered(r, nvml_try_##call((r)->nvml, (r)->device, (r)->err, (r)->handle, __VA_ARGS__)))

static bool answered(struct reader *r, int result) {
    if (driver_is_gone(result))
        r->gone = result;
    return result == 0;
}

#define PUT(r, field_, value)                                                                      \
    ((r)->into->field_ = (uint64_t)(value), (r)->into->has |= NVML_READ(field_))

/* NVML's own word for a value that is not there, where the call itself succeeds. */
static bool is_value(unsigned value) {
    return value != (unsigned)NVML_VALUE_NOT_AVAILABLE;
}

/*
 * Version 2 tells `reserved` apart. Whether its `used` has the reserved bytes in it depends on the
 * driver (and the vendor's texts disagree), so the sum decides; `free` means the same everywhere.
 */
static bool read_memory_v2(struct reader *r) {
    nvmlMemory_v2_t memory = { .version = nvmlMemory_v2 };
    uint64_t used;

    if (!ASK(r, memory_info_v2, &memory))
        return false;
    if (memory.reserved > memory.total || memory.free > memory.total)
        return false; /* nonsense: better the plain answer of version 1 */
    used = memory.used;
    if (memory.used + memory.free + memory.reserved != memory.total &&
        memory.used + memory.free == memory.total && memory.used >= memory.reserved)
        used = memory.used - memory.reserved;
    PUT(r, memory_total, memory.total);
    PUT(r, memory_reserved, memory.reserved);
    PUT(r, memory_free, memory.free);
    PUT(r, memory_used, used);
    return true;
}

static void read_memory(struct reader *r) {
    nvmlMemory_t memory;
    nvmlBAR1Memory_t bar1;

    if (!read_memory_v2(r) && ASK(r, memory_info, &memory)) {
        PUT(r, memory_total, memory.total);
        PUT(r, memory_free, memory.free);
        PUT(r, memory_used, memory.used);
    }
    if (ASK(r, bar1_info, &bar1)) {
        PUT(r, bar1_total, bar1.bar1Total);
        PUT(r, bar1_used, bar1.bar1Used);
    }
}

static void read_use(struct reader *r) {
    nvmlUtilization_t use;
    unsigned percent, period;

    if (ASK(r, utilization, &use)) {
        if (is_value(use.gpu))
            PUT(r, gpu_busy, use.gpu);
        if (is_value(use.memory))
            PUT(r, memory_busy, use.memory);
    }
    if (ASK(r, encoder_utilization, &percent, &period))
        PUT(r, encoder_busy, percent);
    if (ASK(r, decoder_utilization, &percent, &period))
        PUT(r, decoder_busy, percent);
}

static bool ask_temperature(struct reader *r, unsigned *ret) {
    nvmlTemperature_t now = { .version = nvmlTemperature_v1, .sensorType = NVML_TEMPERATURE_GPU };

    if (ASK(r, temperature_v, &now) && now.temperature >= 0) {
        *ret = (unsigned)now.temperature;
        return true;
    }
    return ASK(r, temperature, NVML_TEMPERATURE_GPU, ret);
}

static void read_heat(struct reader *r) {
    unsigned long long energy;
    unsigned value;

    if (ask_temperature(r, &value))
        PUT(r, temperature, value);
    if (ASK(r, temperature_threshold, NVML_TEMPERATURE_THRESHOLD_SLOWDOWN, &value))
        PUT(r, temperature_slowdown, value);
    if (ASK(r, temperature_threshold, NVML_TEMPERATURE_THRESHOLD_SHUTDOWN, &value))
        PUT(r, temperature_shutdown, value);
    if (ASK(r, fan_speed, &value))
        PUT(r, fan, value);
    if (ASK(r, power_usage, &value))
        PUT(r, power, value);
    if (ASK(r, power_limit, &value))
        PUT(r, power_limit, value);
    if (ASK(r, energy, &energy))
        PUT(r, energy, energy);
}

static void read_clock(struct reader *r) {
    unsigned long long reasons;
    nvmlPstates_t state;
    unsigned mhz;

    if (ASK(r, performance_state, &state) && state != NVML_PSTATE_UNKNOWN)
        PUT(r, performance_state, state);
    if (ASK(r, clock_event_reasons, &reasons) || ASK(r, clock_reasons, &reasons))
        PUT(r, clock_reasons, reasons);
    if (ASK(r, clock, NVML_CLOCK_GRAPHICS, &mhz))
        PUT(r, graphics_clock, mhz);
    if (ASK(r, clock, NVML_CLOCK_SM, &mhz))
        PUT(r, sm_clock, mhz);
    if (ASK(r, clock, NVML_CLOCK_MEM, &mhz))
        PUT(r, memory_clock, mhz);
    if (ASK(r, max_clock, NVML_CLOCK_GRAPHICS, &mhz))
        PUT(r, graphics_clock_max, mhz);
    if (ASK(r, max_clock, NVML_CLOCK_SM, &mhz))
        PUT(r, sm_clock_max, mhz);
    if (ASK(r, max_clock, NVML_CLOCK_MEM, &mhz))
        PUT(r, memory_clock_max, mhz);
}

static void read_mode(struct reader *r) {
    nvmlEnableState_t on, pending;
    nvmlComputeMode_t mode;
    unsigned mig, mig_pending;

    if (ASK(r, persistence_mode, &on))
        PUT(r, persistence, on);
    if (ASK(r, compute_mode, &mode))
        PUT(r, compute_mode, mode);
    if (ASK(r, display_active, &on))
        PUT(r, display_active, on);
    if (ASK(r, ecc_mode, &on, &pending)) {
        PUT(r, ecc_enabled, on);
        PUT(r, ecc_pending, pending);
    }
    if (ASK(r, mig_mode, &mig, &mig_pending)) {
        PUT(r, mig_enabled, mig);
        PUT(r, mig_pending, mig_pending);
    }
    if (ASK(r, accounting_mode, &on))
        PUT(r, accounting, on);
}

static void read_ecc(struct reader *r) {
    unsigned corrected, uncorrected, pending, failed;
    unsigned long long count;
    nvmlEnableState_t on;

    if (ASK(r, ecc_errors, NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_VOLATILE_ECC, &count))
        PUT(r, corrected_volatile, count);
    if (ASK(r, ecc_errors, NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC, &count))
        PUT(r, uncorrected_volatile, count);
    if (ASK(r, ecc_errors, NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_AGGREGATE_ECC, &count))
        PUT(r, corrected_aggregate, count);
    if (ASK(r, ecc_errors, NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_AGGREGATE_ECC, &count))
        PUT(r, uncorrected_aggregate, count);
    if (ASK(r, retired_pages_pending, &on))
        PUT(r, pages_pending, on);
    if (ASK(r, remapped_rows, &corrected, &uncorrected, &pending, &failed)) {
        PUT(r, rows_corrected, corrected);
        PUT(r, rows_uncorrected, uncorrected);
        PUT(r, rows_pending, pending);
        PUT(r, rows_failed, failed);
    }
}

static void read_pcie(struct reader *r) {
    unsigned value;

    if (ASK(r, pcie_generation, &value))
        PUT(r, pcie_generation, value);
    if (ASK(r, pcie_max_generation, &value))
        PUT(r, pcie_generation_max, value);
    if (ASK(r, pcie_width, &value))
        PUT(r, pcie_width, value);
    if (ASK(r, pcie_max_width, &value))
        PUT(r, pcie_width_max, value);
    if (ASK(r, pcie_replays, &value))
        PUT(r, pcie_replays, value);
}

static void read_traffic(struct reader *r) {
    unsigned value;

    if (ASK(r, pcie_throughput, NVML_PCIE_UTIL_TX_BYTES, &value))
        PUT(r, pcie_sent, value);
    if (ASK(r, pcie_throughput, NVML_PCIE_UTIL_RX_BYTES, &value))
        PUT(r, pcie_received, value);
}

int nvml_readings_take(const struct nvml *nvml, const struct nvml_device *device, unsigned groups,
                       struct nvml_readings *ret, struct allot_error *err) {
    static const struct {
        enum nvml_group group;
        void (*read)(struct reader *r);
    } readers[] = {
        { NVML_MEMORY, read_memory }, { NVML_USE, read_use },         { NVML_HEAT, read_heat },
        { NVML_CLOCK, read_clock },   { NVML_MODE, read_mode },       { NVML_ECC, read_ecc },
        { NVML_PCIE, read_pcie },     { NVML_TRAFFIC, read_traffic },
    };
    struct nvml_readings readings = { 0 };
    struct allot_error ignored;
    struct reader r = { nvml, device, device->handle, &readings, err ? err : &ignored, 0 };

    for (size_t i = 0; i < ELEMENTSOF(readers) && !r.gone; i++)
        if (groups & readers[i].group)
            readers[i].read(&r);
    if (r.gone)
        return r.gone;
    if (err)
        *err = (struct allot_error){ 0 }; /* what is absent is no error */
    *ret = readings;
    return 0;
}
