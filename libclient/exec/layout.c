/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layout: where in the slab each value lies.
 *
 * First, outputs take over the place of an input that nobody else needs any more, where the kernel
 * can work in place: a chain of elementwise ops runs in one block. What then shares a place is one
 * *storage*, alive from the item that first writes it to the last that reads it. Storages are
 * packed by allocator/plan.h.
 *
 * With one thread the order of the items is the order in time. With several, a storage may only be
 * written when everybody has done with what lay there before; where the edges do not say so
 * already, more are added. They all go forward in the order of the items, so they close no circle;
 * and lives are stretched a little, so that neighbours in the order need not wait for each other.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/plan.h"
#include "base/cleanup.h"
#include "libclient/exec/compile.h"

/* By how many items lives are stretched where several threads run them. */
enum { STRETCH = 16 };

struct storage {
    uint32_t space;
    uint32_t first_value; /* of a list through layout.next, newest first */
    uint32_t start, end;  /* items: from the first that writes to the last that touches */
    uint64_t bytes, offset;
};

struct layout {
    struct compile *compile;
    struct storage *storages;
    uint32_t n_storages;
    uint32_t *storage; /* by value; PROGRAM_NONE */
    uint32_t *next;    /* by value: the one before in its storage */
};

static uint64_t round_up(uint64_t bytes) {
    return bytes == 0 ? PROGRAM_ALIGNMENT
                      : (bytes + PROGRAM_ALIGNMENT - 1) / PROGRAM_ALIGNMENT * PROGRAM_ALIGNMENT;
}

static uint32_t last_use(const struct compile *compile, uint32_t value) {
    uint32_t n = compile->first_use[value + 1] - compile->first_use[value];

    return n ? compile->uses[compile->first_use[value + 1] - 1]
             : compile->program->values[value].producer;
}

/* Whether `item` is the only one that reads `value`. */
static bool is_only_user(const struct compile *compile, uint32_t value, uint32_t item) {
    for (uint32_t u = compile->first_use[value]; u < compile->first_use[value + 1]; u++)
        if (compile->uses[u] != item)
            return false;
    return true;
}

/* Whether `output` may lie where `input` does, which `item` reads. */
static bool can_take_over(const struct layout *layout, uint32_t i, uint32_t input,
                          uint32_t output) {
    const struct compile *compile = layout->compile;
    const struct program_value *values = compile->program->values;

    return input != PROGRAM_NONE && values[input].where == VALUE_SLAB &&
           layout->storage[input] != PROGRAM_NONE && values[input].space == values[output].space &&
           values[input].bytes == values[output].bytes && is_only_user(compile, input, i) &&
           /* … and has not given its place to another output of this item already. */
           layout->storages[layout->storage[input]].first_value == input;
}

static void storage_add(struct layout *layout, uint32_t storage, uint32_t value) {
    struct storage *s = &layout->storages[storage];

    layout->next[value] = s->first_value;
    layout->storage[value] = storage;
    s->first_value = value;
    s->end = MAX(s->end, last_use(layout->compile, value));
}

static void storage_new(struct layout *layout, uint32_t value) {
    const struct program_value *v = &layout->compile->program->values[value];

    layout->storages[layout->n_storages] = (struct storage){
        .space = v->space,
        .first_value = PROGRAM_NONE,
        .start = v->producer,
        .end = v->producer,
        .bytes = round_up(v->bytes),
    };
    storage_add(layout, layout->n_storages++, value);
}

static uint32_t input_to_take(const struct layout *layout, uint32_t i, uint32_t output) {
    const struct program_item *item = &layout->compile->program->items[i];
    const uint32_t *args = &layout->compile->program->args[item->first_arg];
    uint32_t flags = item->kernel->flags;
    uint32_t n = flags & KERNEL_IN_PLACE_ANY ? item->n_inputs : flags & KERNEL_IN_PLACE ? 1 : 0;

    for (uint32_t other = 1; flags & KERNEL_IN_PLACE && other < item->n_inputs; other++)
        if (args[other] == args[0])
            return PROGRAM_NONE;
    for (uint32_t a = 0; a < n && a < item->n_inputs; a++)
        if (can_take_over(layout, i, args[a], output))
            return args[a];
    return PROGRAM_NONE;
}

static void place_item(struct layout *layout, uint32_t i) {
    const struct program *program = layout->compile->program;
    const struct program_item *item = &program->items[i];
    const uint32_t *args = &program->args[item->first_arg];

    for (uint32_t o = 0; o < item->n_outputs; o++) {
        uint32_t output = args[item->n_inputs + o];
        uint32_t input = PROGRAM_NONE;

        if (program->values[output].where != VALUE_SLAB)
            continue;
        if (o == 0 && item->kind == ITEM_KERNEL)
            input = input_to_take(layout, i, output);
        if (input != PROGRAM_NONE)
            storage_add(layout, layout->storage[input], output);
        else
            storage_new(layout, output);
    }
    if (item->scratch != PROGRAM_NONE)
        storage_new(layout, item->scratch);
}

static int pack_space(struct layout *layout, uint32_t space, struct plan_buffer *buffers) {
    struct program *program = layout->compile->program;
    /* What the host does beside GPUs is not in step with them, on one thread either. */
    bool is_sequential = layout->compile->request->sequential && (space != 0 || !program->has_gpu);
    size_t n = 0;
    int r;

    for (uint32_t s = 0; s < layout->n_storages; s++) {
        const struct storage *storage = &layout->storages[s];

        if (storage->space == space)
            buffers[n++] = (struct plan_buffer){
                .start = storage->start,
                .end = (uint64_t)storage->end + 1 + (is_sequential ? 0 : STRETCH),
                .bytes = storage->bytes,
            };
    }
    r = plan_fast(buffers, n, &program->slab_bytes[space]);
    if (r < 0)
        return r;
    n = 0;
    for (uint32_t s = 0; s < layout->n_storages; s++)
        if (layout->storages[s].space == space)
            layout->storages[s].offset = buffers[n++].offset;
    return 0;
}

/* Everybody who touches the storage before `then`. */
static int order_after(struct layout *layout, const struct storage *storage, uint32_t then) {
    struct compile *compile = layout->compile;

    for (uint32_t v = storage->first_value; v != PROGRAM_NONE; v = layout->next[v]) {
        int r = compile_edge(compile, compile->program->values[v].producer, then);

        for (uint32_t u = compile->first_use[v]; r == 0 && u < compile->first_use[v + 1]; u++)
            r = compile_edge(compile, compile->uses[u], then);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Who was the last to have each part of a slab: parts in order of their offset. */
struct part {
    uint64_t begin, end;
    uint32_t storage;
};

struct parts {
    struct part *parts;
    uint32_t n, n_max;
};

/* The first part that ends behind `offset`. */
static uint32_t part_at(const struct parts *parts, uint64_t offset) {
    uint32_t low = 0, high = parts->n;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (parts->parts[middle].end > offset)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* `storage` has [begin, end) now: parts `first` to `last` - 1 give way. */
static int parts_take(struct parts *parts, uint32_t first, uint32_t last, struct part mine) {
    struct part in[3];
    uint32_t n_in = 0;
    int r = compile_room(&parts->parts, &parts->n_max, parts->n + 2, sizeof(*parts->parts));

    if (r < 0)
        return r;
    if (first < last && parts->parts[first].begin < mine.begin) {
        in[n_in] = parts->parts[first];
        in[n_in++].end = mine.begin;
    }
    in[n_in++] = mine;
    if (first < last && parts->parts[last - 1].end > mine.end) {
        in[n_in] = parts->parts[last - 1];
        in[n_in++].begin = mine.end;
    }
    memmove(&parts->parts[first + n_in], &parts->parts[last],
            (parts->n - last) * sizeof(*parts->parts));
    memcpy(&parts->parts[first], in, n_in * sizeof(*in));
    parts->n = parts->n - (last - first) + n_in;
    return 0;
}

/* Storages are numbered as they begin. */
static int order_space(struct layout *layout, uint32_t space) {
    struct parts parts = { 0 };
    int r = 0;

    for (uint32_t s = 0; r == 0 && s < layout->n_storages; s++) {
        const struct storage *storage = &layout->storages[s];
        struct part mine = { storage->offset, storage->offset + storage->bytes, s };
        uint32_t first, last;

        if (storage->space != space)
            continue;
        first = last = part_at(&parts, mine.begin);
        for (; r == 0 && last < parts.n && parts.parts[last].begin < mine.end; last++)
            r = order_after(layout, &layout->storages[parts.parts[last].storage], storage->start);
        if (r == 0)
            r = parts_take(&parts, first, last, mine);
    }
    free(parts.parts);
    return r;
}

static int layout_all(struct layout *layout) {
    struct program *program = layout->compile->program;
    cleanup(freep) struct plan_buffer *buffers =
        malloc((layout->n_storages + 1) * sizeof(*buffers));

    if (!buffers)
        return -ENOMEM;
    for (uint32_t space = 0; space < program->n_devices; space++) {
        int r = pack_space(layout, space, buffers);

        if (r == 0 && (!layout->compile->request->sequential || program->has_gpu))
            r = order_space(layout, space);
        if (r < 0)
            return r;
    }
    for (uint32_t v = 0; v < program->n_values; v++)
        if (layout->storage[v] != PROGRAM_NONE)
            program->values[v].offset = layout->storages[layout->storage[v]].offset;
    return 0;
}

int compile_layout(struct compile *compile) {
    struct program *program = compile->program;
    struct layout layout = { .compile = compile };
    int r = 0;

    program->slab_bytes = calloc(program->n_devices + 1, sizeof(*program->slab_bytes));
    layout.storages = malloc((program->n_values + 1) * sizeof(*layout.storages));
    layout.storage = malloc((program->n_values + 1) * sizeof(*layout.storage));
    layout.next = malloc((program->n_values + 1) * sizeof(*layout.next));
    if (!program->slab_bytes || !layout.storages || !layout.storage || !layout.next)
        r = -ENOMEM;
    for (uint32_t v = 0; r == 0 && v < program->n_values; v++)
        layout.storage[v] = PROGRAM_NONE;
    for (uint32_t i = 0; r == 0 && i < program->n_items; i++)
        place_item(&layout, i);
    if (r == 0)
        r = layout_all(&layout);
    free(layout.storages);
    free(layout.storage);
    free(layout.next);
    return r;
}
