/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Variables: reads and writes of one variable happen in the order of the graph. Nodes are numbered
 * in the order of creation and only refer back, so edges that go forward in that order never close
 * a cycle, and the same graph always gives the same numbers, however many threads run it.
 *
 * A read makes no copy: it says where the value is. So a write comes after all users of an earlier
 * read, if the order allows it; then it can change the value in place. A read with later users
 * keeps its bytes, and the write goes elsewhere (exec/run/variable.h).
 */
#include <errno.h>

#include "base/cleanup.h"
#include "libclient/exec/plan/compile.h"

/* What was last done to a variable. Reads since the last write are a list through `next`. */
struct last {
    uint32_t write;
    uint32_t first_read; /* value */
};

static int pin_new(struct compile *compile, uint32_t value) {
    struct program *program = compile->program;
    int r =
        compile_room(&program->pins, &compile->n_pins_max, compile->n_pins, sizeof(*program->pins));

    if (r == 0)
        program->pins[compile->n_pins++] = value;
    return r;
}

/* Edges from all users of `value` to `writer`. Returns whether those are all users. */
static int order_users(struct compile *compile, uint32_t value, uint32_t writer, bool *ret_all) {
    *ret_all = true;
    for (uint32_t u = compile->first_use[value]; u < compile->first_use[value + 1]; u++) {
        uint32_t user = compile->uses[u];
        int r;

        if (user > writer) {
            *ret_all = false;
            continue;
        }
        r = compile_edge(compile, user, writer);
        if (r < 0)
            return r;
    }
    return 0;
}

static int order_write(struct compile *compile, struct last *last, const uint32_t *next,
                       uint32_t writer) {
    int r = compile_edge(compile, last->write, writer);

    for (uint32_t value = last->first_read; r == 0 && value != PROGRAM_NONE; value = next[value]) {
        bool all;

        r = compile_edge(compile, compile->program->values[value].producer, writer);
        if (r == 0)
            r = order_users(compile, value, writer, &all);
        if (r == 0 && all)
            r = pin_new(compile, value);
    }
    last->write = writer;
    last->first_read = PROGRAM_NONE;
    return r;
}

static int order_item(struct compile *compile, struct last *lasts, uint32_t *next, uint32_t i) {
    struct program *program = compile->program;
    struct program_item *item = &program->items[i];
    const uint32_t *args = &program->args[item->first_arg];
    int r = 0;

    item->first_pin = compile->n_pins;
    for (uint32_t a = 0; r == 0 && a < item->n_inputs; a++) {
        const struct program_value *value =
            args[a] == PROGRAM_NONE ? NULL : &program->values[args[a]];

        if (!value || value->where != VALUE_HANDLE)
            continue;
        if (item->kind == ITEM_WRITE)
            r = order_write(compile, &lasts[value->index], next, i);
        else
            r = compile_edge(compile, lasts[value->index].write, i);
    }
    item->n_pins = compile->n_pins - item->first_pin;
    for (uint32_t a = item->n_inputs; a < item->n_inputs + item->n_outputs; a++) {
        const struct program_value *value = &program->values[args[a]];

        if (value->where != VALUE_READ)
            continue;
        next[args[a]] = lasts[value->index].first_read;
        lasts[value->index].first_read = args[a];
    }
    return r;
}

int compile_variables(struct compile *compile) {
    struct program *program = compile->program;
    cleanup(freep) struct last *lasts = calloc(program->n_variables + 1, sizeof(*lasts));
    cleanup(freep) uint32_t *next = calloc(program->n_values + 1, sizeof(*next));

    if (!lasts || !next)
        return -ENOMEM;
    if (program->n_variables == 0)
        return 0;
    for (uint32_t i = 0; i < program->n_variables; i++)
        lasts[i] = (struct last){ PROGRAM_NONE, PROGRAM_NONE };
    for (uint32_t i = 0; i < program->n_items; i++) {
        int r = order_item(compile, lasts, next, i);

        if (r < 0)
            return r;
    }
    return 0;
}
