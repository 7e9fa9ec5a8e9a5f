/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/engine/measure.h"

#include <stdatomic.h>

#include "libclient/device/device.h"
#include "libclient/exec/engine/engine.h"
#include "libclient/exec/run/trace.h"

bool measure_begins(const struct engine *engine, struct cache_entry *entry) {
    const uint32_t n = engine->options.dynamic.n_measured;
    uint32_t at;

    if (n == 0 || !entry->program->cost_keys || atomic_load(&entry->n_begun) > n)
        return false;
    at = atomic_fetch_add(&entry->n_begun, 1);
    return at > 0 && at <= n;
}

/* The time of an item in microseconds; below 0: it has none. On a GPU this includes the gap between
 * the op before it on its stream and itself: its first event is reached when that op has ended. */
static double time_of(const struct program *program, uint32_t i, const struct trace_event *event) {
    if (event->code < 0 || event->end_nsec == 0)
        return -1;
    if (!program->devices[program->items[i].device]->gpu)
        return (double)(event->end_nsec - event->begin_nsec) / 1e3;
    return event->gpu_end_nsec > 0 ? (double)(event->gpu_end_nsec - event->gpu_begin_nsec) / 1e3
                                   : -1;
}

void measure_take(struct engine *engine, struct cache_entry *entry, const struct trace *trace) {
    const struct program *program = entry->program;
    struct dynamic_placement *dynamic = engine->dynamic;
    struct cost_store *costs = &dynamic->costs;

    for (uint32_t i = 0; i < program->n_items; i++) {
        const struct program_item *item = &program->items[i];
        double usec = program->cost_keys[i] ? time_of(program, i, &trace->events[i]) : -1;

        if (usec >= 0 && cost_store_add(costs, dynamic->kinds[item->device], program->cost_keys[i],
                                        item->node->op->name, usec) < 0)
            break; /* no host memory: the model goes on */
    }
    if (atomic_fetch_add(&entry->n_measured, 1) + 1 != engine->options.dynamic.n_measured)
        return;
    cost_store_save(costs);
    if (engine->options.dynamic.replace_above > 0)
        atomic_store(&entry->wants_review, true);
}
