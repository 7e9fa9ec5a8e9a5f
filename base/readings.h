/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Readings: what the driver says of one device at one moment.
 *
 * One list for all layers: the driver's reader fills it in (driver/nvml_readings.c), the reader
 * sends it to the daemon as it is, and the members of the interface and the columns of gpuctl's
 * JSON and CSV are made of it. Plain values, without pointers. A reading that the driver does not
 * give is absent (a bit in `has`), never 0.
 */
#include <stdbool.h>
#include <stdint.h>

/*
 * X(group, kind, field): members of Device, in the order of the interface file. A group is read at
 * once; `kind` is how wire/ has it: INT where it may be negative, else UINT.
 */
/* clang-format off */
#define READINGS(X)                                                                                \
    X(USE,   UINT, utilization_percent)                                                            \
    X(USE,   UINT, memory_utilization_percent)                                                     \
    X(HEAT,  INT,  temperature_celsius)                                                            \
    X(HEAT,  UINT, power_milliwatts)                                                               \
    X(HEAT,  UINT, power_limit_milliwatts)                                                         \
    X(CLOCK, UINT, sm_clock_mhz)                                                                   \
    X(CLOCK, UINT, memory_clock_mhz)                                                               \
    X(ECC,   UINT, ecc_corrected)            /* since the driver was loaded */                     \
    X(ECC,   UINT, ecc_uncorrected)

/* Those that the interface has elsewhere, or not at all. */
#define READINGS_APART(X)                                                                          \
    X(IDENTITY, UINT, minor)                 /* of /dev/nvidiaN; of an instance: its GPU's */      \
    X(IDENTITY, UINT, numa)                  /* nearest memory of the host */                      \
    X(IDENTITY, UINT, capability)            /* compute capability: 100 × major + minor */         \
    X(MEMORY,   UINT, total_bytes)                                                                 \
    X(MEMORY,   UINT, reserved_bytes)        /* by driver and firmware */                          \
    X(MEMORY,   UINT, used_bytes)            /* allocated; on drivers before 510 with the reserved */ \
    X(MODE,     UINT, mig_enabled)           /* boolean */                                         \
    X(ECC,      UINT, rows_failed)           /* boolean: memory rows that could not be remapped */
/* clang-format on */

enum readings_group {
    READINGS_IDENTITY = 1 << 0,
    READINGS_MEMORY = 1 << 1,
    READINGS_USE = 1 << 2,
    READINGS_HEAT = 1 << 3,
    READINGS_CLOCK = 1 << 4,
    READINGS_MODE = 1 << 5,
    READINGS_ECC = 1 << 6,
    READINGS_ALL = (1 << 7) - 1 - READINGS_IDENTITY, /* that change */
};

enum readings_index {
#define X(group, kind, field) READING_##field,
    READINGS(X) READINGS_APART(X)
#undef X
        READING_COUNT,
};
_Static_assert(READING_COUNT <= 64, "one bit of `has` each");

struct readings {
    uint64_t has; /* READINGS_BIT() */
    union {
        uint64_t values[READING_COUNT]; /* by enum readings_index */
        struct {
#define X(group, kind, field) uint64_t field;
            READINGS(X) READINGS_APART(X)
#undef X
        };
    };
};

#define READINGS_BIT(field)       (UINT64_C(1) << READING_##field)
#define READINGS_HAVE(r, field)   (((r)->has & READINGS_BIT(field)) != 0)
#define READINGS_PUT(r, field, v) readings_put(r, READING_##field, v)

static inline void readings_put(struct readings *readings, enum readings_index which,
                                uint64_t value) {
    readings->has |= UINT64_C(1) << which;
    readings->values[which] = value;
}

/* The bits of all that is in `groups`. */
static inline uint64_t readings_bits(unsigned groups) {
    uint64_t bits = 0;

#define X(group, kind, field) bits |= groups & READINGS_##group ? READINGS_BIT(field) : 0;
    READINGS(X)
    READINGS_APART(X)
#undef X
    return bits;
}
