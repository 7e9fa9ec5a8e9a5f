/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/nvml_readings.h"

#include "driver/nvml_calls.h"

/* A device that is being read: the first sign that it is gone ends the reading. */
struct readings_reader {
    const struct nvml *nvml;
    const struct nvml_device *device;
    nvmlDevice_t handle;
    struct readings *into;
    struct allot_error *err;
    int gone; /* -errno */
};

/* Make a call, unless the device is gone: true if it answered. */
#define ASK(r, call, ...)                                                                          \
    (!(r)->gone &&                                                                                 \
     answered(r, nvml_try_##call((r)->nvml, (r)->device, (r)->err, (r)->handle, __VA_ARGS__)))

static bool answered(struct readings_reader *r, int result) {
    if (driver_is_gone(result))
        r->gone = result;
    return result == 0;
}

#define PUT(r, field, value) READINGS_PUT((r)->into, field, (uint64_t)(value))

/* NVML's mark for a value that does not exist although the call succeeded. */
static bool is_value(unsigned value) {
    return value != (unsigned)NVML_VALUE_NOT_AVAILABLE;
}

/*
 * Version 2 has `reserved` separately. Whether its `used` includes the reserved bytes depends on
 * the driver (and the vendor's documents disagree), so the sum decides; `free` means the same
 * everywhere.
 */
static bool read_memory_v2(struct readings_reader *r) {
    nvmlMemory_v2_t memory = { .version = nvmlMemory_v2 };
    uint64_t used;

    if (!ASK(r, memory_info_v2, &memory))
        return false;
    if (memory.reserved > memory.total || memory.free > memory.total)
        return false; /* nonsense: the plain answer of version 1 is better */
    used = memory.used;
    if (memory.used + memory.free + memory.reserved != memory.total &&
        memory.used + memory.free == memory.total && memory.used >= memory.reserved)
        used = memory.used - memory.reserved;
    PUT(r, total_bytes, memory.total);
    PUT(r, reserved_bytes, memory.reserved);
    PUT(r, used_bytes, used);
    return true;
}

static void read_memory(struct readings_reader *r) {
    nvmlMemory_t memory;

    if (!read_memory_v2(r) && ASK(r, memory_info, &memory)) {
        PUT(r, total_bytes, memory.total);
        PUT(r, used_bytes, memory.used);
    }
}

static void read_use(struct readings_reader *r) {
    nvmlUtilization_t use;

    if (!ASK(r, utilization, &use))
        return;
    if (is_value(use.gpu))
        PUT(r, utilization_percent, use.gpu);
    if (is_value(use.memory))
        PUT(r, memory_utilization_percent, use.memory);
}

static bool ask_temperature(struct readings_reader *r, unsigned *ret) {
    nvmlTemperature_t now = { .version = nvmlTemperature_v1, .sensorType = NVML_TEMPERATURE_GPU };

    if (ASK(r, temperature_v, &now) && now.temperature >= 0) {
        *ret = (unsigned)now.temperature;
        return true;
    }
    return ASK(r, temperature, NVML_TEMPERATURE_GPU, ret);
}

static void read_heat(struct readings_reader *r) {
    unsigned value;

    if (ask_temperature(r, &value))
        PUT(r, temperature_celsius, value);
    if (ASK(r, power_usage, &value))
        PUT(r, power_milliwatts, value);
    if (ASK(r, power_limit, &value))
        PUT(r, power_limit_milliwatts, value);
}

static void read_clock(struct readings_reader *r) {
    unsigned mhz;

    if (ASK(r, clock, NVML_CLOCK_SM, &mhz))
        PUT(r, sm_clock_mhz, mhz);
    if (ASK(r, clock, NVML_CLOCK_MEM, &mhz))
        PUT(r, memory_clock_mhz, mhz);
}

static void read_mode(struct readings_reader *r) {
    unsigned mig, pending;

    if (ASK(r, mig_mode, &mig, &pending))
        PUT(r, mig_enabled, mig);
}

static void read_ecc(struct readings_reader *r) {
    unsigned corrected, uncorrected, pending, failed;
    unsigned long long count;

    if (ASK(r, ecc_errors, NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_VOLATILE_ECC, &count))
        PUT(r, ecc_corrected, count);
    if (ASK(r, ecc_errors, NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC, &count))
        PUT(r, ecc_uncorrected, count);
    if (ASK(r, remapped_rows, &corrected, &uncorrected, &pending, &failed))
        PUT(r, rows_failed, failed);
}

void nvml_readings_identify(struct readings *ret, const struct nvml_identity *identity) {
    ret->has &= ~readings_bits(READINGS_IDENTITY);
    if (identity->has & NVML_HAS_MINOR)
        READINGS_PUT(ret, minor, identity->minor);
    if (identity->has & NVML_HAS_NUMA_NODE)
        READINGS_PUT(ret, numa, identity->numa_node);
    if (identity->has & NVML_HAS_CAPABILITY)
        READINGS_PUT(ret, capability,
                     100 * (uint64_t)identity->capability_major + identity->capability_minor);
}

int nvml_readings_take(const struct nvml *nvml, const struct nvml_device *device, unsigned groups,
                       struct readings *ret, struct allot_error *err) {
    static const struct {
        enum readings_group group;
        void (*read)(struct readings_reader *r);
    } readers[] = {
        { READINGS_MEMORY, read_memory }, { READINGS_USE, read_use },
        { READINGS_HEAT, read_heat },     { READINGS_CLOCK, read_clock },
        { READINGS_MODE, read_mode },     { READINGS_ECC, read_ecc },
    };
    struct readings readings = *ret;
    struct allot_error ignored;
    struct readings_reader r = { nvml, device, device->handle, &readings, err ? err : &ignored, 0 };

    readings.has &= ~readings_bits(groups);
    for (size_t i = 0; i < ELEMENTSOF(readers) && !r.gone; i++)
        if (groups & readers[i].group)
            readers[i].read(&r);
    if (r.gone)
        return r.gone;
    if (err)
        *err = (struct allot_error){ 0 }; /* an absent reading is no error */
    *ret = readings;
    return 0;
}
