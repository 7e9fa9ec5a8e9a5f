/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Readings: what NVML measures on one device, at one moment. See driver/nvml.h.
 *
 * One line per reading, X(group, field, unit); all are uint64_t, and NVML_READ_field is the bit of
 * `has`. Memory: `used` is what is allocated, without what is `reserved` for driver and firmware,
 * where that is known (driver 510 and later); on older drivers `used` includes it.
 */
#include "driver/nvml.h"

/* clang-format off */
#define NVML_READINGS(X)                                                                           \
    X(MEMORY, memory_total, "bytes")                                                               \
    X(MEMORY, memory_reserved, "bytes")                                                            \
    X(MEMORY, memory_used, "bytes")                                                                \
    X(MEMORY, memory_free, "bytes")                                                                \
    X(MEMORY, bar1_total, "bytes")                                                                 \
    X(MEMORY, bar1_used, "bytes")                                                                  \
    X(USE, gpu_busy, "percent")                                                                    \
    X(USE, memory_busy, "percent")                                                                 \
    X(USE, encoder_busy, "percent")                                                                \
    X(USE, decoder_busy, "percent")                                                                \
    X(HEAT, temperature, "degrees Celsius")                                                        \
    X(HEAT, temperature_slowdown, "degrees Celsius")                                               \
    X(HEAT, temperature_shutdown, "degrees Celsius")                                               \
    X(HEAT, fan, "percent")                                                                        \
    X(HEAT, power, "milliwatts")                                                                   \
    X(HEAT, power_limit, "milliwatts")                                                             \
    X(HEAT, energy, "millijoules")                                                                 \
    X(CLOCK, performance_state, "")                                                                \
    X(CLOCK, clock_reasons, "bits")                                                                \
    X(CLOCK, graphics_clock, "MHz")                                                                \
    X(CLOCK, sm_clock, "MHz")                                                                      \
    X(CLOCK, memory_clock, "MHz")                                                                  \
    X(CLOCK, graphics_clock_max, "MHz")                                                            \
    X(CLOCK, sm_clock_max, "MHz")                                                                  \
    X(CLOCK, memory_clock_max, "MHz")                                                              \
    X(MODE, persistence, "boolean")                                                                \
    X(MODE, compute_mode, "")                                                                      \
    X(MODE, display_active, "boolean")                                                             \
    X(MODE, ecc_enabled, "boolean")                                                                \
    X(MODE, ecc_pending, "boolean")                                                                \
    X(MODE, mig_enabled, "boolean")                                                                \
    X(MODE, mig_pending, "boolean")                                                                \
    X(MODE, accounting, "boolean")                                                                 \
    X(ECC, corrected_volatile, "errors")                                                           \
    X(ECC, uncorrected_volatile, "errors")                                                         \
    X(ECC, corrected_aggregate, "errors")                                                          \
    X(ECC, uncorrected_aggregate, "errors")                                                        \
    X(ECC, pages_pending, "boolean")                                                               \
    X(ECC, rows_corrected, "rows")                                                                 \
    X(ECC, rows_uncorrected, "rows")                                                               \
    X(ECC, rows_pending, "boolean")                                                                \
    X(ECC, rows_failed, "boolean")                                                                 \
    X(PCIE, pcie_generation, "")                                                                   \
    X(PCIE, pcie_generation_max, "")                                                               \
    X(PCIE, pcie_width, "lanes")                                                                   \
    X(PCIE, pcie_width_max, "lanes")                                                               \
    X(PCIE, pcie_replays, "")                                                                      \
    X(TRAFFIC, pcie_sent, "KB/s")                                                                  \
    X(TRAFFIC, pcie_received, "KB/s")
/* clang-format on */

/* Which readings to take: each group is a handful of calls. */
enum nvml_group {
    NVML_MEMORY = 1 << 0,
    NVML_USE = 1 << 1,
    NVML_HEAT = 1 << 2,
    NVML_CLOCK = 1 << 3,
    NVML_MODE = 1 << 4,
    NVML_ECC = 1 << 5,
    NVML_PCIE = 1 << 6,
    NVML_TRAFFIC = 1 << 7,   /* the driver measures for 20 ms for each of the two */
    NVML_ALL = (1 << 7) - 1, /* without the traffic */
};

enum nvml_reading {
#define X(group, field, unit) NVML_READING_##field,
    NVML_READINGS(X)
#undef X
        NVML_READING_COUNT,
};

#define NVML_READ(field) (UINT64_C(1) << NVML_READING_##field)

struct nvml_readings {
    uint64_t has; /* NVML_READ() bits */
#define X(group, field, unit) uint64_t field;
    NVML_READINGS(X)
#undef X
};

/* For columns and JSON, in the order of the list. */
struct nvml_reading_info {
    const char *name;
    const char *unit;
    size_t offset; /* in struct nvml_readings */
};
extern const struct nvml_reading_info nvml_reading_info[NVML_READING_COUNT];

/*
 * Take the readings of `groups`; readings that the driver does not give are not in ret->has. Fails
 * only when driver_is_gone().
 */
int nvml_readings_take(const struct nvml *nvml, const struct nvml_device *device, unsigned groups,
                       struct nvml_readings *ret, struct allot_error *err);
