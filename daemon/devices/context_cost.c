/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/devices/context_cost.h"

#include "base/cleanup.h"
#include "daemon/devices/inventory.h"
#include "daemon/manager.h"

#define MIB(n) ((uint64_t)(n) << 20)

/*
 * No driver reports it, so there is an estimate: first what drivers of 2024 take on devices of this
 * compute capability, then what processes of several users were seen to use when they began,
 * because a process that uses a device has a context on it. Requests are judged by the first alone.
 * The kind of a device does not change while it is drained or lost and cannot be read.
 */
static uint64_t usual_bytes(const struct sample_device *device) {
    if (!READINGS_HAVE(&device->readings, capability) || device->readings.capability == 0)
        return 0;
    if (device->readings.capability >= 900)
        return MIB(520);
    return device->readings.capability >= 800 ? MIB(414) : MIB(128);
}

static uint64_t usual_of(struct device_record *known, const struct sample_device *device) {
    uint64_t usual = usual_bytes(device);

    if (known && usual)
        known->usual_context = usual;
    else if (known)
        usual = known->usual_context;
    return books_round_up(usual ? usual : MIB(300));
}

int context_cost_enter(struct manager *manager, struct device_record *known,
                       const struct device_facts *device, struct moment now) {
    uint64_t usual = usual_of(known, &device->seen);
    int r = broker_device_set(manager->broker, device, usual, now);

    if (r >= 0 && known && known->record.context_bytes)
        broker_context_set(manager->broker, &device->seen.id,
                           context_seen_clamp(known->record.context_bytes, usual));
    return r;
}

/* Less than this is a process that is just making its context, or leaving; more is not just a
 * context. */
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
 * What a context must cost, judged by what a process uses; 0: that does not tell.
 *
 * At first sight, a process that uses no more than usual has no larger context. A process that
 * declares everything that it takes (by guard or arenas), its context first, and uses more than
 * that, has a context that is larger by the difference than it was told to declare, whatever the
 * estimate is by now. A process that goes on using less than it declares has a smaller context, or
 * has declared ahead: that can correct an earlier figure of its user, but not the usual value.
 */
static uint64_t measure(const struct manager *manager, const struct device_record *known,
                        const struct sample_process *process,
                        const struct broker_declared *declared, uint64_t usual) {
    const struct sample_process *before = row_before(manager, process);
    uint64_t used = books_round_up(process->used_bytes), told = declared->context_bytes, cost;

    if (!before && used <= usual)
        return used;
    if (!declared->is_all || told == 0 || declared->bytes < told || used + told < declared->bytes)
        return 0;
    cost = used + told - declared->bytes;
    if (used >= declared->bytes)
        return !before && cost <= CONTEXT_MOST ? cost : 0;
    cost = MAX(cost, usual);
    return before && before->used_bytes == process->used_bytes &&
                   cost < context_seen_of(&known->contexts, declared->uid)
               ? cost
               : 0;
}

void context_cost_measure(struct manager *manager, const struct sample *sample) {
    for (size_t i = 0; i < sample->n_processes; i++) {
        const struct sample_process *process = &sample->processes[i];
        const struct device_facts *device = inventory_find(manager->inventory, &process->device);
        struct device_record *known = device ? device_record_find(manager, &process->device) : NULL;
        struct broker_declared declared;
        uint64_t usual, bytes;

        if (!known || !process->has_used || process->kinds != SAMPLE_COMPUTE ||
            process->used_bytes < CONTEXT_LEAST ||
            !broker_declared(manager->broker, &(struct process_id){ process->pid, process->start },
                             &process->device, &declared))
            continue;
        usual = usual_of(known, &device->seen);
        bytes = measure(manager, known, process, &declared, usual);
        if (bytes == 0)
            continue;
        context_seen_note(&known->contexts, declared.uid, bytes);
        bytes = context_seen_median(&known->contexts, usual);
        if (bytes == 0 || bytes == known->record.context_bytes)
            continue;
        known->record.context_bytes = bytes;
        device_record_keep(manager, known);
        broker_context_set(manager->broker, &process->device, bytes);
    }
}

void context_cost_settle(struct manager *manager, struct device_record *known,
                         const struct device_facts *device, struct moment now) {
    const struct book *book = broker_book(manager->broker, &device->seen.id);

    if (book && book->context_bytes != usual_of(known, &device->seen))
        context_cost_enter(manager, known, device, now);
}
