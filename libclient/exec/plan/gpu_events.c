/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPU events: which items on GPUs need an event at their end, and which items and streams wait for
 * it; decided when the program is built. An item that neither the host nor a device runs (a read of
 * a variable, a join of control edges) passes what it waits for on to its successors.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "libclient/device/device.h"
#include "libclient/device/gpu.h"
#include "libclient/exec/plan/compile.h"

/* The driver has read copies from pageable memory up to this size when it returns. Larger ones, and
 * all copies to pageable memory, block the caller until they are done. */
enum { READ_AT_ONCE_BYTES = 64 << 10 };

/* Whether everything that a kernel touches lies on the host, wherever its node was placed. */
static bool is_all_on_host(const struct program *program, const struct program_item *item) {
    const uint32_t *args = &program->args[item->first_arg];
    uint32_t n = 0;

    for (uint32_t a = 0; a < item->n_inputs + item->n_outputs; a++) {
        if (args[a] == PROGRAM_NONE)
            continue;
        if (program->values[args[a]].space != 0)
            return false;
        n++;
    }
    return n > 0 && item->scratch == PROGRAM_NONE;
}

/* Feeds and fetches are in pageable memory: the driver returns from such a copy only when it is
 * done. So the copy has a stream on which nothing else is queued, and begins only when everything
 * that it waits for has ended. */
static bool keeps_the_caller(const struct program *program, const struct program_item *item) {
    const struct program_value *from, *to;

    if (item->kind != ITEM_COPY)
        return false;
    from = &program->values[program->args[item->first_arg]];
    to = &program->values[program->args[item->first_arg + 1]];
    return to->where == VALUE_FETCH ||
           (from->where == VALUE_FEED && from->bytes > READ_AT_ONCE_BYTES);
}

static uint32_t queue_of(const struct program *program, const struct program_item *item) {
    const struct program_value *to;
    uint32_t first = QUEUE_FIRST + item->device * N_GPU_STREAMS;

    if (item->kind == ITEM_READ || item->kind == ITEM_NOTHING)
        return QUEUE_NONE;
    if (!program->devices[item->device]->is_gpu ||
        (item->kind == ITEM_KERNEL && is_all_on_host(program, item)))
        return QUEUE_HOST;
    if (item->kind != ITEM_COPY)
        return first + item->stream;
    to = &program->values[program->args[item->first_arg + 1]];
    if (keeps_the_caller(program, item))
        return first + (to->space == 0 ? GPU_PAGEABLE_TO_HOST : GPU_PAGEABLE_TO_DEVICE);
    return first + (to->space == 0 ? GPU_TO_HOST : GPU_TO_DEVICE);
}

uint32_t compile_queue(const struct program *program, const struct program_item *item) {
    uint32_t queue = queue_of(program, item);

    return queue < QUEUE_FIRST ? 0 : queue - QUEUE_FIRST + 1;
}

uint32_t compile_n_queues(const struct program *program) {
    return program->has_gpu ? program->n_devices * N_GPU_STREAMS + 1 : 1;
}

/* Lists of items to wait for, as they are found. */
struct waits {
    struct compile *compile;
    uint32_t *mark; /* by item: the last item that lists it, + 1 */
    uint32_t n_max, n;
};

static int wait_for(struct waits *waits, uint32_t item, uint32_t before) {
    struct program *program = waits->compile->program;
    uint32_t mine = program->items[item].queue, theirs = program->items[before].queue;
    int r;

    if (theirs == QUEUE_HOST || (mine == theirs && mine != QUEUE_NONE) ||
        waits->mark[before] == item + 1)
        return 0;
    waits->mark[before] = item + 1;
    r = compile_room(&program->waits, &waits->n_max, waits->n, sizeof(*program->waits));
    if (r == 0)
        program->waits[waits->n++] = before;
    return r;
}

static int list_waits(struct waits *waits, const struct compile_edges *edges, uint32_t i) {
    struct program *program = waits->compile->program;
    struct program_item *item = &program->items[i];
    int r = 0;

    item->first_wait = waits->n;
    for (uint32_t e = edges->first_before[i]; r == 0 && e < edges->first_before[i + 1]; e++) {
        const struct program_item *before = &program->items[edges->before[e]];

        if (before->queue != QUEUE_NONE) {
            r = wait_for(waits, i, edges->before[e]);
            continue;
        }
        for (uint32_t w = 0; r == 0 && w < before->n_waits; w++)
            r = wait_for(waits, i, program->waits[before->first_wait + w]);
    }
    item->n_waits = waits->n - item->first_wait;
    item->waits_on_host = item->n_waits > 0 && item->queue != QUEUE_NONE &&
                          (item->queue == QUEUE_HOST || keeps_the_caller(program, item));
    return r;
}

static int number_events(struct program *program) {
    program->event_items = malloc((program->n_items + 1) * sizeof(*program->event_items));
    if (!program->event_items)
        return -ENOMEM;
    for (uint32_t i = 0; i < program->n_items; i++) {
        const struct program_item *item = &program->items[i];

        for (uint32_t w = 0; item->queue != QUEUE_NONE && w < item->n_waits; w++) {
            uint32_t before = program->waits[item->first_wait + w];

            if (program->items[before].event != PROGRAM_NONE)
                continue;
            program->items[before].event = program->n_events;
            program->event_items[program->n_events++] = before;
        }
    }
    return 0;
}

/* List, by event, the items for which the host waits for it. */
static int list_told(struct program *program, uint32_t n_waits) {
    uint32_t *first = calloc(program->n_events + 2, sizeof(*first));
    uint32_t n = 0;

    program->first_told = first;
    program->told = malloc((n_waits + 1) * sizeof(*program->told));
    if (!first || !program->told)
        return -ENOMEM;
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < program->n_items; i++) {
            const struct program_item *item = &program->items[i];

            for (uint32_t w = 0; item->waits_on_host && w < item->n_waits; w++) {
                uint32_t event = program->items[program->waits[item->first_wait + w]].event;

                if (round == 0)
                    first[event + 2]++;
                else
                    program->told[first[event + 1]++] = i;
            }
        }
        for (uint32_t e = 0; round == 0 && e < program->n_events; e++)
            first[e + 2] = n += first[e + 2];
    }
    program->n_told = n;
    return 0;
}

/*
 * A read of a variable is no work. But another run's write may still be queued on the compute
 * stream, and only that stream is ordered behind it. If another stream or the host reads the value,
 * such as a copy to the host, the read gets a place on the compute stream, and its event is waited
 * for.
 */
static void queue_reads(struct program *program) {
    for (uint32_t i = 0; i < program->n_items; i++) {
        const struct program_item *item = &program->items[i];

        for (uint32_t a = 0; a < item->n_inputs; a++) {
            uint32_t value = program->args[item->first_arg + a], queue;
            struct program_item *read;

            if (value == PROGRAM_NONE || program->values[value].where != VALUE_READ)
                continue;
            read = &program->items[program->values[value].producer];
            queue = QUEUE_FIRST + read->device * N_GPU_STREAMS + GPU_COMPUTE;
            if (read->kind == ITEM_READ && program->devices[read->device]->is_gpu &&
                item->queue != queue)
                read->queue = queue;
        }
    }
}

int compile_gpu_events(struct compile *compile, const struct compile_edges *edges) {
    struct program *program = compile->program;
    cleanup(freep) uint32_t *mark = calloc(program->n_items + 1, sizeof(*mark));
    struct waits waits = { compile, mark, 0, 0 };
    int r = 0;

    if (!mark)
        return -ENOMEM;
    for (uint32_t i = 0; i < program->n_items; i++)
        program->items[i].event = PROGRAM_NONE;
    if (!program->has_gpu)
        return 0;
    for (uint32_t i = 0; i < program->n_items; i++)
        program->items[i].queue = queue_of(program, &program->items[i]);
    queue_reads(program);
    for (uint32_t i = 0; r == 0 && i < program->n_items; i++) {
        r = compile_check(compile);
        if (r == 0)
            r = list_waits(&waits, edges, i);
    }
    if (r == 0)
        r = number_events(program);
    return r < 0 ? r : list_told(program, waits.n);
}
