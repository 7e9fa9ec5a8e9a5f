/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Utilization: how much of the wall time a GPU worked, and the readings that follow from it.
 *
 * Each process notes its own busy time in ticks of 1/16 s, the last two seconds of them, in its
 * slot: no lock, only its own threads write there. Utilization is the busy part of the last
 * second. Temperature, power and clocks follow utilization, unless `gpusim set` fixed them.
 */
#include <stdint.h>

struct box;
struct box_usage;

enum utilization_kind {
    UTILIZATION_COMPUTE,
    UTILIZATION_MEMORY,
};

/* Note that `slot` kept `gpu` busy from `start_ns` to `end_ns` (CLOCK_MONOTONIC). No lock. */
void utilization_note(struct box *box, uint32_t slot, unsigned gpu, enum utilization_kind kind,
                      uint64_t start_ns, uint64_t end_ns);

/* Percent of the last second that process `slot` kept `gpu` busy. */
unsigned utilization_of_process(const struct box *box, uint32_t slot, unsigned gpu,
                                enum utilization_kind kind);

/* A finished tick: what the driver's sample buffer keeps. */
struct utilization_sample {
    uint64_t at_us; /* since the epoch, when the tick ended */
    unsigned utilization, memory_utilization;
};
/* The last ticks of `gpu`, oldest first: how many, fewer than `BOX_BUSY_TICKS`. */
unsigned utilization_samples(const struct box *box, unsigned gpu, struct utilization_sample *ret);

struct utilization_readings {
    unsigned utilization, memory_utilization; /* percent */
    unsigned temperature_c, memory_temperature_c;
    unsigned power_mw;
    unsigned sm_clock_mhz, memory_clock_mhz, video_clock_mhz;
    unsigned fan_percent;
    unsigned performance_state; /* P-state */
    uint64_t energy_mj;         /* since the box was made */
};
/* All readings of `gpu` now. Needs the lock. */
void utilization_read(struct box *box, unsigned gpu, struct utilization_readings *ret);
