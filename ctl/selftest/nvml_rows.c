/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/selftest/nvml_rows.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/units.h"
#include "ctl/selftest/row.h"
#include "driver/nvml_process.h"
#include "driver/nvml_readings.h"

#define TIMES 20 /* that a call is measured */

static const char remedy[] =
    "nvidia-smi must work first; journalctl -k -g NVRM shows what the driver reported";

static int call_count(const struct nvml *nvml, const struct nvml_device *device,
                      struct allot_error *err) {
    unsigned n;

    (void)device;
    return nvml_device_count(nvml, &n, err);
}

static int call_find(const struct nvml *nvml, const struct nvml_device *device,
                     struct allot_error *err) {
    struct nvml_device found;

    (void)device;
    return nvml_device_at(nvml, &found, 0, err);
}

static int call_identity(const struct nvml *nvml, const struct nvml_device *device,
                         struct allot_error *err) {
    struct nvml_identity identity;

    return nvml_identity_read(nvml, device, &identity, err);
}

static int call_processes(const struct nvml *nvml, const struct nvml_device *device,
                          struct allot_error *err) {
    cleanup(freep) struct nvml_process *processes = NULL;
    size_t n;

    return nvml_process_list(nvml, device, &processes, &n, err);
}

static int call_memory(const struct nvml *nvml, const struct nvml_device *device,
                       struct allot_error *err) {
    struct readings readings = { 0 };

    return nvml_readings_take(nvml, device, READINGS_MEMORY, &readings, err);
}

static int call_all(const struct nvml *nvml, const struct nvml_device *device,
                    struct allot_error *err) {
    struct readings readings = { 0 };

    return nvml_readings_take(nvml, device, READINGS_ALL, &readings, err);
}

static const struct {
    const char *name;
    int (*call)(const struct nvml *nvml, const struct nvml_device *device, struct allot_error *err);
} calls[] = {
    { "NVML cost: count of devices", call_count }, { "NVML cost: handle by index", call_find },
    { "NVML cost: identity", call_identity },      { "NVML cost: memory", call_memory },
    { "NVML cost: processes", call_processes },    { "NVML cost: all readings", call_all },
};

static void try_device(const struct nvml *nvml, const struct nvml_device *device, unsigned index) {
    struct readings readings = { 0 };
    struct nvml_identity identity;
    struct allot_error err = { 0 };
    char total[UNITS_TEXT_SIZE];

    if (nvml_identity_read(nvml, device, &identity, &err) < 0 ||
        nvml_readings_take(nvml, device, READINGS_ALL, &readings, &err) < 0) {
        row_print(ROW_FAILED, "device", remedy, "GPU %u: %s", index, err.text);
        return;
    }
    row_print(
        ROW_PASSED, "device", NULL, "GPU %u: %s, %s, capability %u.%u, %s, %d readings of %d",
        index, identity.name, identity.uuid, identity.capability_major, identity.capability_minor,
        READINGS_HAVE(&readings, total_bytes) ? units_format_bytes(readings.total_bytes, total)
                                              : "memory unknown",
        __builtin_popcountll(readings.has), __builtin_popcountll(readings_bits(READINGS_ALL)));
}

static void try_costs(const struct nvml *nvml, const struct nvml_device *device) {
    for (size_t i = 0; i < ELEMENTSOF(calls); i++) {
        char middle[ROW_TIME_SIZE], slowest[ROW_TIME_SIZE];
        struct allot_error err = { 0 };
        uint64_t took[TIMES];
        int r = 0;

        for (size_t n = 0; n < TIMES && r == 0; n++) {
            const uint64_t from = clock_nsec(CLOCK_MONOTONIC);

            r = calls[i].call(nvml, device, &err);
            took[n] = clock_nsec(CLOCK_MONOTONIC) - from;
        }
        if (r == -EOPNOTSUPP)
            row_print(ROW_SKIPPED, calls[i].name, NULL, "%s", err.text);
        else if (r < 0)
            row_print(ROW_FAILED, calls[i].name, remedy, "%s", err.text);
        else {
            row_time(row_median(took, TIMES), middle);
            row_print(ROW_PASSED, calls[i].name, NULL, "%s, at most %s of %d", middle,
                      row_time(took[TIMES - 1], slowest), TIMES);
        }
    }
}

void nvml_rows_try(enum driver_choice choice) {
    const struct driver_options options = driver_options_read(choice);
    cleanup(nvml_closep) struct nvml *nvml = NULL;
    struct nvml_device first = { 0 };
    struct nvml_system system;
    struct allot_error err = { 0 };
    char took[ROW_TIME_SIZE];
    uint64_t from = clock_nsec(CLOCK_MONOTONIC);
    bool has_first = false;
    unsigned n = 0;

    if (nvml_open(&nvml, &options, &err) < 0 || nvml_system_read(nvml, &system, &err) < 0 ||
        nvml_device_count(nvml, &n, &err) < 0) {
        row_print(ROW_FAILED, "NVML", remedy, "%s", err.text);
        return;
    }
    row_print(n ? ROW_PASSED : ROW_FAILED, "NVML", n ? NULL : remedy,
              "driver %s%s, NVML %s, CUDA %u.%u, %u device%s; opened in %s", system.driver,
              nvml_is_simulated(nvml) ? " (simulated)" : "", system.library, system.cuda / 1000,
              system.cuda % 1000 / 10, n, n == 1 ? "" : "s",
              row_time(clock_nsec(CLOCK_MONOTONIC) - from, took));
    for (unsigned i = 0; i < n; i++) {
        struct nvml_device device;

        if (nvml_device_at(nvml, &device, i, &err) < 0) {
            row_print(ROW_FAILED, "device", remedy, "GPU %u: %s", i, err.text);
            continue;
        }
        try_device(nvml, &device, i);
        if (!has_first)
            first = device;
        has_first = true;
    }
    if (has_first)
        try_costs(nvml, &first);
}
