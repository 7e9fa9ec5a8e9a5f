/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layout: where in the slab each value lies.
 *
 * First, an output takes over the place of an input that no other item needs any more, if the
 * kernel can work in place: a chain of elementwise ops runs in one block. Values that then share a
 * place are one *storage*, alive from the item that first writes it to the last that reads it.
 * allocator/plan.h packs storages.
 *
 * With one thread the order of the items is the order in time. With several threads, or with GPUs,
 * an item counts as over when the first item begins that, by the plan (place/simulate.h), begins
 * after its end. A storage may be written only when all items are done with what lay there before;
 * if the edges do not imply that already, more are added. They all go forward in the order of the
 * items, so they close no cycle; and the planned times respect them all, so that waiting for them
 * costs nothing as long as the plan is kept.
 *
 * No run keeps to the plan to the microsecond. So, for small values, items are assumed to end later
 * than planned: an item should not have to wait just to save a few bytes.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/plan.h"
#include "base/cleanup.h"
#include "libclient/exec/plan/compile.h"

/* How much later than planned items are assumed to end, in nanoseconds, and for values of up to how
 * many bytes. */
enum { LATE_NSEC = 1000, LATE_BYTES = 4096 };

struct storage {
    uint32_t space;
    uint32_t first_value; /* of a list through layout.next, newest first */
    uint32_t start, end;  /* items: from the first that writes to the first that begins when all
                             that touch it are over */
    uint64_t bytes, offset;
};

/* Of the items that read a value, the two that are over last: when, and which is the last. */
struct users {
    uint32_t last, over, other_over; /* 0: none */
};

struct layout {
    struct compile *compile;
    uint32_t *over; /* by item: the first that begins when it is over */
    uint32_t *late; /* … if it ends later than by the plan */
    struct storage *storages;
    uint32_t n_storages;
    uint32_t *storage;   /* by value; PROGRAM_NONE */
    uint32_t *next;      /* by value: the value that was put into its storage before it */
    struct users *users; /* by value */
};

static uint64_t round_up(uint64_t bytes) {
    return bytes == 0 ? PROGRAM_ALIGNMENT
                      : (bytes + PROGRAM_ALIGNMENT - 1) / PROGRAM_ALIGNMENT * PROGRAM_ALIGNMENT;
}

/* When items are over, from the view of items that wait for a value of this many bytes. */
static const uint32_t *over_for(const struct layout *layout, uint64_t bytes) {
    return bytes <= LATE_BYTES ? layout->late : layout->over;
}

/* Once for all values, because some have as many readers as there are items. */
static void find_users(struct layout *layout) {
    const struct compile *compile = layout->compile;

    for (uint32_t v = 0; v < compile->program->n_values; v++) {
        const uint32_t *over = over_for(layout, compile->program->values[v].bytes);
        struct users users = { .last = PROGRAM_NONE };

        for (uint32_t u = compile->first_use[v]; u < compile->first_use[v + 1]; u++) {
            uint32_t user = compile->uses[u];

            if (user == users.last)
                continue;
            if (over[user] >= users.over)
                users = (struct users){ user, over[user], users.over };
            else
                users.other_over = MAX(users.other_over, over[user]);
        }
        layout->users[v] = users;
    }
}

/* Whether all other readers of `value` are over when `item` begins. */
static bool is_last_user(const struct layout *layout, uint32_t value, uint32_t item) {
    const struct users *users = &layout->users[value];

    return (users->last == item ? users->other_over : users->over) <= item;
}

/* The host would wait for a copy to a GPU before it writes the next value to the same bytes, and
 * queue nothing meanwhile. So what is small has bytes of its own, and so have the parts of a batch,
 * which are as large as the batch together. */
enum { SMALL_BYTES = 4096 };

static bool is_for_gpus(const struct compile *compile, uint32_t value) {
    const struct program *program = compile->program;
    const struct program_value *v = &program->values[value];

    if (v->space != 0 || !program->has_gpu || !v->node ||
        (v->bytes > SMALL_BYTES && strcmp(v->node->op->name, "Shard") != 0))
        return false;
    for (uint32_t u = compile->first_use[value]; u < compile->first_use[value + 1]; u++)
        if (program->items[compile->uses[u]].kind == ITEM_COPY)
            return true;
    return false;
}

static void storage_add(struct layout *layout, uint32_t storage, uint32_t value) {
    const struct compile *compile = layout->compile;
    struct storage *s = &layout->storages[storage];
    const uint32_t *over = over_for(layout, s->bytes);

    layout->next[value] = s->first_value;
    layout->storage[value] = storage;
    s->first_value = value;
    s->end = MAX(s->end, over[compile->program->values[value].producer]);
    for (uint32_t u = compile->first_use[value]; u < compile->first_use[value + 1]; u++)
        s->end = MAX(s->end, over[compile->uses[u]]);
    if (compile->program->values[value].is_apart || is_for_gpus(compile, value)) {
        s->start = 0;
        s->end = compile->program->n_items;
    }
}

static void storage_new(struct layout *layout, uint32_t value) {
    const struct program_value *v = &layout->compile->program->values[value];

    layout->storages[layout->n_storages] = (struct storage){
        .space = v->space,
        .first_value = PROGRAM_NONE,
        .start = v->producer,
        .bytes = round_up(v->bytes),
    };
    storage_add(layout, layout->n_storages++, value);
}

/* The input where the first output may lie; PROGRAM_NONE. */
static uint32_t input_to_take(const struct layout *layout, uint32_t i) {
    const struct program *program = layout->compile->program;
    const struct program_item *item = &program->items[i];
    const uint32_t *args = &program->args[item->first_arg];

    for (uint32_t a = 0; a < item->n_inputs; a++)
        if (program_may_lie_over(program, item, a) && is_last_user(layout, args[a], i))
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
        if (o == 0)
            input = input_to_take(layout, i);
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
    size_t n = 0;
    int r;

    for (uint32_t s = 0; s < layout->n_storages; s++) {
        const struct storage *storage = &layout->storages[s];

        if (storage->space == space)
            buffers[n++] = (struct plan_buffer){
                .start = storage->start,
                .end = storage->end,
                .bytes = storage->bytes,
            };
    }
    r = plan_fast(buffers, n, layout->compile->request->halt, &program->slab_bytes[space]);
    if (r < 0)
        return r;
    n = 0;
    for (uint32_t s = 0; s < layout->n_storages; s++)
        if (layout->storages[s].space == space)
            layout->storages[s].offset = buffers[n++].offset;
    return 0;
}

/* Edges from all readers of `value` to `then`; without readers, from its producer. */
static int order_users(struct compile *compile, uint32_t value, uint32_t then) {
    uint32_t first = compile->first_use[value], end = compile->first_use[value + 1];
    int r =
        first == end ? compile_edge(compile, compile->program->values[value].producer, then) : 0;

    for (uint32_t u = first; r == 0 && u < end; u++)
        r = compile_edge(compile, compile->uses[u], then);
    return r;
}

/* Within a storage: readers of the old value come before the write of the next. */
static int order_storage(struct layout *layout, const struct storage *storage) {
    struct compile *compile = layout->compile;
    int r = 0;

    for (uint32_t v = storage->first_value; r == 0 && layout->next[v] != PROGRAM_NONE;
         v = layout->next[v])
        r = order_users(compile, layout->next[v], compile->program->values[v].producer);
    return r;
}

/* The last storage in each part of a slab: parts in order of their offset. */
struct slab_part {
    uint64_t begin, end;
    uint32_t storage;
};

struct slab_parts {
    struct slab_part *parts;
    uint32_t n, n_max;
};

/* The first part that ends behind `offset`. */
static uint32_t part_at(const struct slab_parts *parts, uint64_t offset) {
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

/* `storage` now has [begin, end): parts `first` to `last` - 1 are replaced. */
static int parts_take(struct slab_parts *parts, uint32_t first, uint32_t last,
                      struct slab_part mine) {
    struct slab_part in[3];
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
    struct slab_parts parts = { 0 };
    int r = 0;

    for (uint32_t s = 0; r == 0 && s < layout->n_storages; s++) {
        const struct storage *storage = &layout->storages[s];
        struct slab_part mine = { storage->offset, storage->offset + storage->bytes, s };
        uint32_t first, last;

        if (storage->space != space)
            continue;
        r = compile_check(layout->compile);
        if (r == 0)
            r = order_storage(layout, storage);
        first = last = part_at(&parts, mine.begin);
        for (; r == 0 && last < parts.n && parts.parts[last].begin < mine.end; last++)
            /* The newest of its values is the last that any item reads. */
            r = order_users(layout->compile,
                            layout->storages[parts.parts[last].storage].first_value,
                            storage->start);
        if (r == 0)
            r = parts_take(&parts, first, last, mine);
    }
    free(parts.parts);
    return r;
}

/* For each item, the first that begins after its end, if it ends `late_nsec` later than planned. */
static void settle_ends(const struct compile *compile, uint64_t late_nsec, uint32_t *ret) {
    uint32_t n = compile->program->n_items;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t low = i + 1, high = compile->begin ? n : i + 1;

        while (low < high) {
            uint32_t middle = low + (high - low) / 2;

            if (compile->begin[middle] >= compile->end[i] + late_nsec)
                high = middle;
            else
                low = middle + 1;
        }
        ret[i] = low;
    }
}

static int place_all(struct layout *layout, uint64_t late_nsec, struct plan_buffer *buffers,
                     uint64_t *ret_bytes) {
    struct program *program = layout->compile->program;
    uint64_t bytes = 0;
    int r = 0;

    settle_ends(layout->compile, 0, layout->over);
    settle_ends(layout->compile, late_nsec, layout->late);
    find_users(layout);
    layout->n_storages = 0;
    for (uint32_t v = 0; v < program->n_values; v++)
        layout->storage[v] = PROGRAM_NONE;
    for (uint32_t i = 0; r == 0 && i < program->n_items; i++) {
        r = compile_check(layout->compile);
        place_item(layout, i);
    }
    for (uint32_t space = 0; r == 0 && space < program->n_devices; space++) {
        r = pack_space(layout, space, buffers);
        bytes += program->slab_bytes[space];
    }
    *ret_bytes = bytes;
    return r;
}

static int layout_all(struct layout *layout) {
    struct compile *compile = layout->compile;
    struct program *program = compile->program;
    cleanup(freep) struct plan_buffer *buffers = malloc((program->n_values + 1) * sizeof(*buffers));
    uint64_t bytes;
    int r = buffers ? place_all(layout, LATE_NSEC, buffers, &bytes) : -ENOMEM;

    if (r == 0 && program->ready_order_bytes && compile->begin &&
        bytes > program->ready_order_bytes)
        r = place_all(layout, 0, buffers, &bytes);
    for (uint32_t space = 0; r == 0 && space < program->n_devices; space++)
        if (compile->begin)
            r = order_space(layout, space);
    for (uint32_t v = 0; r == 0 && v < program->n_values; v++)
        if (layout->storage[v] != PROGRAM_NONE)
            program->values[v].offset = layout->storages[layout->storage[v]].offset;
    return r;
}

int compile_layout(struct compile *compile) {
    struct program *program = compile->program;
    struct layout layout = { .compile = compile };
    int r;

    program->slab_bytes = calloc(program->n_devices + 1, sizeof(*program->slab_bytes));
    layout.storages = malloc((program->n_values + 1) * sizeof(*layout.storages));
    layout.storage = malloc((program->n_values + 1) * sizeof(*layout.storage));
    layout.next = malloc((program->n_values + 1) * sizeof(*layout.next));
    layout.users = malloc((program->n_values + 1) * sizeof(*layout.users));
    layout.over = malloc((program->n_items + 1) * sizeof(*layout.over));
    layout.late = malloc((program->n_items + 1) * sizeof(*layout.late));
    r = program->slab_bytes && layout.storages && layout.storage && layout.next && layout.users &&
                layout.over && layout.late
            ? layout_all(&layout)
            : -ENOMEM;
    free(layout.storages);
    free(layout.storage);
    free(layout.next);
    free(layout.users);
    free(layout.over);
    free(layout.late);
    return r;
}
