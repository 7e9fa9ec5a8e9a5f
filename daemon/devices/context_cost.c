/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/devices/context_cost.h"

#include "base/cleanup.h"
#include "daemon/devices/inventory.h"
#include "daemon/manager.h"

#define MIB(n) ((uint64_t)(n) << 20)

/*
 * No driver tells it, so it is believed until it is seen: what drivers of 2024 take on devices of
 * this compute capability, and then what processes were seen to use when they began, because a
 * process that uses a device has a context on it. What kind of device it is does not change while
 * it is drained or lost and nothing of it is read.
 */
static uint64_t usual_bytes(const struct sample_device *device) {
    if (!(device->has & SAMPLE_HAS(capability)) || device->capability == 0)
        return 0;
    if (device->capability >= 900)
        return MIB(520);
    return device->capability >= 800 ? MIB(414) : MIB(128);
}

uint64_t context_cost_bytes(struct device_record *known, const struct sample_device *device) {
    uint64_t usual = usual_bytes(device);

    if (known && usual)
        known->usual_context = usual;
    else if (known)
        usual = known->usual_context;
    if (known && known->record.context_bytes)
        return known->record.context_bytes;
    return books_round_up(usual ? usual : MIB(300));
}

/* Less than this is a process in the middle of making its context, or of leaving; more than that is
 * no context. */
#define CONTEXT_LEAST MIB(32)
#define CONTEXT_MOST  MIB(4096)

/* The row of the sample before; NULL: there was none. */
static const struct sample_process *row_before(const struct manager *manager,
                                               const struct sample_process *process) {
    for (size_t i = 0; manager->sampling.sample && i < manager->sampling.sample->n_processes; i++) {
        const struct sample_process *row = &manager->sampling.sample->processes[i];

        if (row->pid == process->pid && row->start == process->start &&
            gpuid_equal(&row->device, &process->device))
            return row;
    }
    return NULL;
}

/*
 * What a context must cost, by what a process uses; 0: that does not tell.
 *
 * At first sight, a process that uses less than a context is believed to take has a smaller one. A
 * process that declares all that it takes (by guard or arenas), its context first, and uses more
 * than that, has a context that is larger by so much than what it was told to declare, whatever is
 * believed by now. One that goes on using less than it declares has a smaller context, or has
 * declared ahead: that can take back what was measured too high, not what is usual.
 */
static uint64_t measure(struct manager *manager, const struct device_record *known,
                        const struct sample_process *process, uint64_t believed) {
    const struct sample_process *before = row_before(manager, process);
    uint64_t used = books_round_up(process->used_bytes), declared, told, cost;

    if (!before && used < believed)
        return used;
    if (!broker_declared(manager->broker, &(struct process_id){ process->pid, process->start },
                         &process->device, &declared, &told) ||
        told == 0 || declared < told || used == declared || used + told < declared)
        return 0;
    cost = used + told - declared;
    if (used > declared)
        return !before && cost <= CONTEXT_MOST && cost != believed ? cost : 0;
    cost = MAX(cost, books_round_up(known->usual_context));
    return before && before->used_bytes == process->used_bytes && known->usual_context &&
                   cost < believed
               ? cost
               : 0;
}

void context_cost_measure(struct manager *manager, const struct sample *sample, struct moment now) {
    for (size_t i = 0; i < sample->n_processes; i++) {
        const struct sample_process *process = &sample->processes[i];
        const struct device *device;
        struct device_record *known;
        uint64_t bytes;

        if (!process->has_used || process->kinds != SAMPLE_COMPUTE ||
            process->used_bytes < CONTEXT_LEAST)
            continue;
        device = inventory_find(manager->inventory, &process->device);
        known = device ? device_record_find(manager, &process->device) : NULL;
        bytes =
            known ? measure(manager, known, process, context_cost_bytes(known, &device->seen)) : 0;
        if (bytes == 0)
            continue;
        known->record.context_bytes = bytes;
        device_record_keep(manager, known);
        broker_device_set(manager->broker, device, bytes, now);
    }
}

/* The driver may say what kind of device it is only after it was entered in the books. */
void context_cost_settle(struct manager *manager, struct device_record *known,
                         const struct device *device, struct moment now) {
    const struct book *book = broker_book(manager->broker, &device->seen.id);
    uint64_t bytes = context_cost_bytes(known, &device->seen);

    if (book && book->context_bytes != bytes)
        broker_device_set(manager->broker, device, bytes, now);
}
