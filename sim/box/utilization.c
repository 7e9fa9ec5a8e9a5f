/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/box/utilization.h"

#include "base/cleanup.h"
#include "sim/box/box.h"

#define TICKS_PER_SECOND 16
#define TICK_NS          (UINT64_C(1000000000) / TICKS_PER_SECOND)
#define TICK_US          (TICK_NS / 1000)

/* How far above idle a fully busy GPU settles, and what part of its power limit it draws. */
#define BUSY_WARMTH_C      38
#define BUSY_POWER_PERCENT 92

static void note_tick(struct box_usage *usage, enum utilization_kind kind, uint64_t tick,
                      uint32_t us) {
    struct box_busy_tick *entry = &usage->busy[tick % BOX_BUSY_TICKS];
    uint32_t was = __atomic_load_n(&entry->tick, __ATOMIC_RELAXED);

    /* The first writer of a round clears the last round's value. Another thread's microsecond may
     * get lost meanwhile, which is too little to change a percentage. */
    if (was != (uint32_t)tick &&
        __atomic_compare_exchange_n(&entry->tick, &was, (uint32_t)tick, false, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED)) {
        __atomic_store_n(&entry->compute_us, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&entry->memory_us, 0, __ATOMIC_RELAXED);
    }
    __atomic_add_fetch(kind == UTILIZATION_COMPUTE ? &entry->compute_us : &entry->memory_us, us,
                       __ATOMIC_RELAXED);
}

void utilization_note(struct box *box, uint32_t slot, unsigned gpu, enum utilization_kind kind,
                      uint64_t start_ns, uint64_t end_ns) {
    struct box_usage *usage;

    if (slot >= BOX_MAX_PROCS || gpu >= box->n_gpus || end_ns <= start_ns)
        return;
    usage = &box->file->proc[slot].usage[gpu];
    __atomic_add_fetch(&usage->busy_total_us, (end_ns - start_ns) / 1000, __ATOMIC_RELAXED);
    /* What lies before the history is not kept. */
    if (end_ns - start_ns > BOX_BUSY_TICKS * TICK_NS)
        start_ns = end_ns - BOX_BUSY_TICKS * TICK_NS;
    while (start_ns < end_ns) {
        const uint64_t tick = start_ns / TICK_NS;
        const uint64_t until = MIN(end_ns, (tick + 1) * TICK_NS);

        note_tick(usage, kind, tick, (until - start_ns + 999) / 1000);
        start_ns = until;
    }
}

/* Microseconds in finished tick `tick`. */
static uint32_t tick_us(const struct box_usage *usage, enum utilization_kind kind, uint64_t tick) {
    const struct box_busy_tick *entry = &usage->busy[tick % BOX_BUSY_TICKS];
    uint32_t us;

    if (__atomic_load_n(&entry->tick, __ATOMIC_RELAXED) != (uint32_t)tick)
        return 0;
    us = __atomic_load_n(kind == UTILIZATION_COMPUTE ? &entry->compute_us : &entry->memory_us,
                         __ATOMIC_RELAXED);
    return MIN(us, (uint32_t)TICK_US); /* parallel streams count once */
}

/* Microseconds that `slot` was busy in the second before `now_tick`, which is not over. */
static uint64_t busy_us(const struct box *box, uint32_t slot, unsigned gpu,
                        enum utilization_kind kind, uint64_t now_tick) {
    const struct box_usage *usage = &box->file->proc[slot].usage[gpu];
    uint64_t us = 0;

    for (uint64_t tick = now_tick - TICKS_PER_SECOND; tick < now_tick; tick++)
        us += tick_us(usage, kind, tick);
    return us;
}

static unsigned percent(uint64_t us) {
    return MIN(us / (1000000 / 100), (uint64_t)100);
}

unsigned utilization_of_process(const struct box *box, uint32_t slot, unsigned gpu,
                                enum utilization_kind kind) {
    return percent(busy_us(box, slot, gpu, kind, box_now_ns() / TICK_NS));
}

static unsigned setting(const struct box_setting *setting, unsigned derived) {
    return setting->fixed ? (unsigned)setting->value : derived;
}

unsigned utilization_samples(const struct box *box, unsigned gpu, struct utilization_sample *ret) {
    const uint64_t now_ns = box_now_ns(), now_us = box_now_us(), now_tick = now_ns / TICK_NS;
    const uint32_t high = MIN(box->file->proc_high, (uint32_t)BOX_MAX_PROCS);
    const struct box_gpu *g = &box->file->gpu[gpu];
    unsigned n = 0;

    for (uint64_t tick = now_tick - MIN(now_tick, (uint64_t)BOX_BUSY_TICKS - 1); tick < now_tick;
         tick++) {
        uint64_t compute_us = 0, memory_us = 0;

        for (uint32_t i = 0; i < high; i++) {
            if (box->file->proc[i].state != PROC_LIVE)
                continue;
            compute_us += tick_us(&box->file->proc[i].usage[gpu], UTILIZATION_COMPUTE, tick);
            memory_us += tick_us(&box->file->proc[i].usage[gpu], UTILIZATION_MEMORY, tick);
        }
        ret[n++] = (struct utilization_sample){
            .at_us = now_us - (now_ns - (tick + 1) * TICK_NS) / 1000,
            .utilization = setting(&g->utilization,
                                   MIN((compute_us + memory_us) * 100 / TICK_US, UINT64_C(100))),
            .memory_utilization =
                setting(&g->memory_utilization, MIN(memory_us * 100 / TICK_US, UINT64_C(100))),
        };
    }
    return n;
}

void utilization_read(struct box *box, unsigned gpu, struct utilization_readings *ret) {
    const struct sim_model *model = box_model(box, gpu);
    const uint64_t now_ns = box_now_ns(), now_tick = now_ns / TICK_NS;
    const uint32_t high = MIN(box->file->proc_high, (uint32_t)BOX_MAX_PROCS);
    struct box_gpu *g = &box->file->gpu[gpu];
    /* Cards with stacked memory run it at one speed and stay in P0; others slow down. */
    const bool stacked = model->memory_bus_bits > 1024;
    uint64_t compute_us = 0, memory_us = 0;
    unsigned load, power_limit;
    bool contexts = false;

    for (uint32_t i = 0; i < high; i++) {
        if (box->file->proc[i].state != PROC_LIVE)
            continue;
        compute_us += busy_us(box, i, gpu, UTILIZATION_COMPUTE, now_tick);
        memory_us += busy_us(box, i, gpu, UTILIZATION_MEMORY, now_tick);
        contexts |= box->file->proc[i].usage[gpu].contexts > 0;
    }
    ret->utilization = setting(&g->utilization, percent(compute_us + memory_us));
    ret->memory_utilization = setting(&g->memory_utilization, percent(memory_us));
    load = MIN(ret->utilization, 100u);
    power_limit = g->power_limit_mw ? g->power_limit_mw : model->power_limit_mw;

    ret->temperature_c =
        setting(&g->temperature, model->temperature_idle_c + BUSY_WARMTH_C * load / 100);
    ret->memory_temperature_c = ret->temperature_c + 2;
    ret->power_mw = setting(&g->power_mw,
                            model->power_idle_mw + (uint64_t)(power_limit - model->power_idle_mw) *
                                                       load * BUSY_POWER_PERCENT / 10000);
    ret->fan_percent = setting(&g->fan, model->fans ? 30 + load / 2 : 0);
    ret->performance_state = stacked || contexts || load ? 0 : 8;
    ret->sm_clock_mhz = setting(&g->sm_clock_mhz, contexts || load ? model->sm_clock_max_mhz
                                                                   : model->sm_clock_idle_mhz);
    ret->memory_clock_mhz =
        setting(&g->memory_clock_mhz, ret->performance_state ? 405 : model->memory_clock_mhz);
    ret->video_clock_mhz = ret->sm_clock_mhz * 9 / 10;

    if (g->energy_at_ns && now_ns > g->energy_at_ns)
        g->energy_mj += (now_ns - g->energy_at_ns) / 1000000 * ret->power_mw / 1000;
    g->energy_at_ns = now_ns;
    ret->energy_mj = g->energy_mj;
}
