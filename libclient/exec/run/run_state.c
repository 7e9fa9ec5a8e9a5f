/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Most items are kernels that are called with addresses laid out before; a few work on the run
 * state itself. Those have the same type of function, and find their run state through the step.
 */
#include "libclient/exec/run/run_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/core/buffer.h"
#include "libclient/core/tensor.h"
#include "libclient/device/gpu.h"
#include "libclient/core/wait.h"
#include "libclient/exec/run/workers.h"
#include "libclient/exec/run/queue.h"
#include "libclient/exec/memory/alloc.h"

struct run_state *run_state_of(const struct kernel_run *run) {
    return ((struct run_state_step *)((char *)run->step - offsetof(struct run_state_step, step)))
        ->state;
}

uint32_t run_state_item_of(const struct run_state *state, const struct kernel_run *run) {
    const struct run_state_item *item =
        (const struct run_state_item *)((const char *)run - offsetof(struct run_state_item, run));

    return (uint32_t)(item - state->items);
}

static const struct program_item *item_of(const struct run_state *state,
                                          const struct kernel_run *run) {
    return &state->program->items[run_state_item_of(state, run)];
}

/* A value of this run lies in `buffer`; its reference is handed over. */
static void pin(struct run_state *state, uint32_t value, struct buffer *buffer) {
    const struct program *program = state->program;

    buffer_unref(state->pins[value]);
    state->pins[value] = buffer;
    for (uint32_t p = program->first_place[value]; p < program->first_place[value + 1]; p++)
        state->args[program->places[p]] = buffer->data;
}

static int fail_uninitialised(const struct variable *variable) {
    return kernel_fail(-ENODATA,
                       "the variable '%s' is not initialised: run its initializer, or restore it",
                       variable->node->name);
}

int run_state_read(const struct kernel_run *run, bool *ret_settled) {
    struct run_state *state = run_state_of(run);
    const struct program *program = state->program;
    const uint32_t *args = &program->args[item_of(state, run)->first_arg];
    struct variable *variable = state->variables[program->values[args[0]].index];
    struct buffer *buffer;

    if (variable_read(variable, &buffer, ret_settled) < 0)
        return fail_uninitialised(variable);
    pin(state, args[1], buffer);
    return 0;
}

/*
 * Whether the value is settled does not matter: its readers are queued behind the write, or the
 * host has written it.
 */
static int run_read(const struct kernel_run *run) {
    bool ignored;

    return run_state_read(run, &ignored);
}

/* Variables that an item writes, each once, in the order in which every run locks them. */
static uint32_t written(const struct run_state *state, const struct program_item *item,
                        struct variable *ret[static 32], uint32_t ret_args[static 32]) {
    const struct program *program = state->program;
    uint32_t n = 0;

    for (uint32_t writes = item->kernel->writes; writes; writes &= writes - 1) {
        uint32_t arg = (uint32_t)__builtin_ctz(writes), at;
        uint32_t index = program->values[program->args[item->first_arg + arg]].index;

        for (at = n; at > 0 && ret[at - 1] > state->variables[index]; at--) {
            ret[at] = ret[at - 1];
            ret_args[at] = ret_args[at - 1];
        }
        ret[at] = state->variables[index];
        ret_args[at] = arg;
        n++;
    }
    return n;
}

/* References to the variable's bytes that this run took and no longer needs. */
static uint32_t own_pins(const struct run_state *state, const struct program_item *item,
                         const struct variable *variable) {
    uint32_t n = 0;

    for (uint32_t p = item->first_pin; p < item->first_pin + item->n_pins; p++)
        n += variable->buffer && state->pins[state->program->pins[p]] == variable->buffer;
    return n;
}

static struct wait wait_of(struct run_state *state) {
    struct wait wait = wait_begin(state->until_nsec, &state->cancelled);

    wait.user = &state->user;
    return wait;
}

/* With the locks held: the first variable that lacks bytes to write to and has no fresh ones; `n`:
 * none. */
static uint32_t lacking(const struct run_state *state, const struct program_item *item,
                        struct variable *const *variables, uint32_t n,
                        struct buffer *const *fresh) {
    bool keep = !(item->kernel->flags & KERNEL_INITIALISES);
    uint32_t i = 0;

    while (i < n && (fresh[i] || (i > 0 && variables[i] == variables[i - 1]) ||
                     (keep && !variables[i]->buffer) ||
                     !variable_lacks(variables[i], own_pins(state, item, variables[i]))))
        i++;
    return i;
}

static int prepare_variables(struct run_state *state, const struct program_item *item,
                             struct variable *const *variables, const uint32_t *args, uint32_t n,
                             struct buffer **fresh) {
    bool keep = !(item->kernel->flags & KERNEL_INITIALISES);

    for (uint32_t i = 0; i < n; i++) {
        struct allot_error err = { 0 };
        int r = variable_prepare(variables[i], own_pins(state, item, variables[i]), keep, &fresh[i],
                                 &err);

        if (r == -ENODATA)
            return fail_uninitialised(variables[i]);
        if (r < 0)
            return kernel_fail(r, "%s", err.text);
        state->args[item->first_arg + args[i]] = variables[i]->buffer->data;
    }
    return 0;
}

static void lock_variables(struct variable *const *variables, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (i == 0 || variables[i] != variables[i - 1])
            pthread_mutex_lock(&variables[i]->lock);
}

static void unlock_variables(struct variable *const *variables, uint32_t n) {
    for (uint32_t i = n; i-- > 0;)
        if (i == 0 || variables[i] != variables[i - 1])
            pthread_mutex_unlock(&variables[i]->lock);
}

/* A variable for which the run waits for fresh bytes. */
struct variable_wait {
    const struct run_state *state;
    const struct program_item *item;
    struct variable *const *variables;
    struct buffer *const *fresh;
    uint32_t n, which;
};

/* Its readers may have ended: then it can be written in place. */
static bool no_longer_lacks(void *userdata) {
    const struct variable_wait *lack = userdata;
    bool lacks;

    lock_variables(lack->variables, lack->n);
    lacks = lacking(lack->state, lack->item, lack->variables, lack->n, lack->fresh) == lack->which;
    unlock_variables(lack->variables, lack->n);
    return !lacks;
}

static int fresh_bytes(struct variable_wait *lack, struct run_state *state, struct buffer **ret,
                       struct allot_error *err) {
    struct wait wait = wait_of(state);
    int r;

    wait.is_moot = no_longer_lacks;
    wait.moot_userdata = lack;
    r = variable_fresh(lack->variables[lack->which], &wait, ret, err);
    wait_end(&wait);
    return r;
}

/* Lock the variables to be written, with fresh bytes ready for those that need some. Getting fresh
 * bytes may mean waiting, which must not happen with a lock held. */
static int lock_with_fresh(struct run_state *state, const struct program_item *item,
                           struct variable *const *variables, uint32_t n, struct buffer **fresh) {
    struct variable_wait lack = { state, item, variables, fresh, n, n };
    struct allot_error err = { 0 };
    int r = 0;

    for (;;) {
        uint32_t before = lack.which;

        lock_variables(variables, n);
        lack.which = lacking(state, item, variables, n, fresh);
        if (lack.which == n)
            return 0;
        unlock_variables(variables, n);
        /* The memory that was refused may no longer be needed, or be needed again. */
        if (r < 0 && r != -EALREADY && (lack.which == before || r == -ECANCELED))
            return kernel_fail(r, "%s", err.text);
        r = fresh_bytes(&lack, state, &fresh[lack.which], &err);
    }
}

/* With the locks held: count the writes as unsettled, because until the run is over only the
 * compute stream is ordered behind them. */
static void note_written(struct run_state *state, const struct program_item *item,
                         struct variable *const *variables, const uint32_t *args, uint32_t n) {
    const struct program *program = state->program;

    for (uint32_t i = 0; i < n; i++) {
        bool *has =
            &state->has_written[program->values[program->args[item->first_arg + args[i]]].index];

        if (!variables[i]->device->gpu || *has)
            continue;
        *has = true;
        atomic_fetch_add(&variables[i]->n_unsettled, 1);
    }
}

/* Variables that were not written keep their value. */
static void put_back(struct variable *variable, struct buffer *old, struct buffer **fresh) {
    if (variable->buffer == old)
        return;
    *fresh = variable->buffer;
    variable->buffer = old;
}

static int run_write(const struct kernel_run *run) {
    struct run_state *state = run_state_of(run);
    const struct program_item *item = item_of(state, run);
    const uint32_t *outputs = &state->program->args[item->first_arg + item->n_inputs];
    struct buffer *fresh[32] = { 0 }, *old[32];
    struct variable *variables[32];
    uint32_t args[32], n = written(state, item, variables, args);
    int r = lock_with_fresh(state, item, variables, n, fresh);

    if (r == 0) {
        for (uint32_t i = 0; i < n; i++)
            old[i] = variables[i]->buffer;
        note_written(state, item, variables, args, n);
        r = prepare_variables(state, item, variables, args, n, fresh);
        if (r == 0)
            r = item->run(run);
        for (uint32_t i = 0; r < 0 && i < n; i++)
            put_back(variables[i], old[i], &fresh[i]);
        for (uint32_t o = 0; r == 0 && o < item->n_outputs; o++) {
            uint32_t first = (uint32_t)__builtin_ctz(item->kernel->writes);
            uint32_t handle = state->program->args[item->first_arg + first];

            pin(state, outputs[o],
                buffer_ref(state->variables[state->program->values[handle].index]->buffer));
        }
        unlock_variables(variables, n);
    }
    for (uint32_t i = 0; i < n; i++)
        buffer_unref(fresh[i]);
    return r;
}

static int run_copy(const struct kernel_run *run) {
    struct run_state *state = run_state_of(run);
    const struct program_item *item = item_of(state, run);

    memcpy(run->outputs[0], run->inputs[0],
           state->program->values[state->program->args[item->first_arg]].bytes);
    return 0;
}

static int run_nothing(const struct kernel_run *run) {
    return 0;
}

kernel_run_fn run_state_plain_function(const struct program_item *item) {
    switch (item->kind) {
    case ITEM_KERNEL:
        return item->run;
    case ITEM_READ:
        return run_read;
    case ITEM_WRITE:
        return run_write;
    case ITEM_COPY:
        return run_copy;
    case ITEM_NOTHING:
        break;
    }
    return run_nothing;
}

static void *address_of(const struct run_state *state, uint32_t value) {
    const struct program_value *v;

    if (value == PROGRAM_NONE)
        return NULL;
    v = &state->program->values[value];
    return v->where == VALUE_SLAB       ? (char *)state->slabs[v->space].data + v->offset
           : v->where == VALUE_CONSTANT ? v->address
                                        : NULL;
}

/* Any GPU will do: memory is pinned for all of them. */
static struct gpu *first_gpu(const struct program *program) {
    for (uint32_t d = 0; d < program->n_devices; d++)
        if (program->devices[d]->gpu)
            return program->devices[d]->gpu;
    return NULL;
}

/* The node with the largest value in a slab; NULL: none has a name. */
static const struct node *largest(const struct program *program, uint32_t device) {
    const struct program_value *found = NULL;

    for (uint32_t i = 0; i < program->n_values; i++) {
        const struct program_value *value = &program->values[i];

        if (value->where == VALUE_SLAB && value->space == device && value->node &&
            (!found || value->bytes > found->bytes))
            found = value;
    }
    return found ? found->node : NULL;
}

int run_state_no_slab(const struct program *program, uint32_t device, int r,
                      struct allot_error *err) {
    const struct node *node = largest(program, device);
    struct allot_error why;

    if (!err || !node)
        return r;
    why = *err;
    return error_set(err, r, "'%s' (%s) and others: %s", node->name, node->op->name, why.text);
}

/* The host's slab comes last. Values that move between host and devices must be pinned, so that
 * copies run beside other work. */
static int take_slabs(struct run_state *state, const struct device_block *slabs,
                      struct allot_error *err) {
    const struct program *program = state->program;
    uint64_t bytes = program->slab_bytes[0];
    int r = bytes == 0         ? 0
            : program->has_gpu ? alloc_pinned(program->devices[0], first_gpu(program), bytes,
                                              &state->slabs[0].data, err)
                               : alloc_block(program->devices[0], bytes, "step memory", NULL,
                                             &state->slabs[0], err);

    if (r < 0)
        return run_state_no_slab(program, 0, r, err);
    for (uint32_t d = 1; slabs && d < program->n_devices; d++)
        state->slabs[d] = slabs[d];
    return 0;
}

static int find_variables(struct run_state *state, struct variable_table *variables,
                          const uint32_t *space_of) {
    const struct program *program = state->program;

    for (uint32_t i = 0; i < program->n_variables; i++) {
        int r = variable_table_get(variables, graph_node(program->graph, program->variables[i]),
                                   program->devices[space_of[i]], &state->variables[i]);

        if (r < 0)
            return r;
    }
    return 0;
}

/* An output whose shape is known only now. */
static int output_new(const struct kernel_run *run, uint32_t i, const struct shape *shape,
                      void **ret) {
    struct run_state *state = run_state_of(run);
    const struct program *program = state->program;
    const struct program_item *item = item_of(state, run);
    uint32_t value = program->args[item->first_arg + item->n_inputs + i];
    int64_t count = shape_count(shape);
    struct wait wait = wait_of(state);
    struct allot_error err = { 0 };
    struct buffer *buffer;
    int r;

    if (count < 0)
        return kernel_fail(-EOVERFLOW, "an output that is too large");
    r = alloc_buffer(program->devices[item->device],
                     (uint64_t)count * dtype_bytes(program->values[value].dtype), item->node->name,
                     &wait, &buffer, &err);
    wait_end(&wait);
    if (r < 0)
        return kernel_fail(r, "%s", err.text);
    pin(state, value, buffer);
    state->open_shapes[value] = *shape;
    *ret = buffer->data;
    return 0;
}

static int fill(struct run_state *state, struct variable_table *variables,
                const struct device_block *slabs, struct allot_error *err) {
    const struct program *program = state->program;
    uint32_t *space_of = calloc(program->n_variables + 1, sizeof(*space_of));
    int r;

    if (!space_of)
        return -ENOMEM;
    for (uint32_t v = 0; v < program->n_values; v++)
        if (program->values[v].where == VALUE_HANDLE)
            space_of[program->values[v].index] = program->values[v].space;
    r = find_variables(state, variables, space_of);
    free(space_of);
    if (r == 0)
        r = take_slabs(state, slabs, err);
    if (r < 0)
        return r;
    for (uint32_t d = 0; d < program->n_devices; d++)
        state->steps[d] = (struct run_state_step){
            .step = { .cancelled = &state->cancelled,
                      .deterministic = program->deterministic,
                      .output_new = output_new },
            .state = state,
        };
    for (uint32_t a = 0; a < program->n_args; a++)
        state->args[a] = address_of(state, program->args[a]);
    for (uint32_t i = 0; i < program->n_items; i++) {
        const struct program_item *item = &program->items[i];

        state->items[i] = (struct run_state_item){
            .run = { .state = item->state,
                     .inputs = &state->args[item->first_arg],
                     .outputs = &state->args[item->first_arg + item->n_inputs],
                     .scratch = address_of(state, item->scratch),
                     .pool = program->devices[item->device]->intra,
                     .step = &state->steps[item->device].step },
            .fn = run_state_plain_function(item),
        };
    }
    return 0;
}

int run_state_new(struct run_state **ret, const struct program *program,
                  struct variable_table *variables, const struct device_block *slabs,
                  struct allot_error *err) {
    struct run_state *state = calloc(1, sizeof(*state));
    int r = -ENOMEM;

    if (!state)
        return error_set(err, -ENOMEM, "no host memory for a run");
    state->program = program;
    pthread_mutex_init(&state->lock, NULL);
    pthread_cond_init(&state->news, NULL);
    state->args = calloc(program->n_args + 1, sizeof(*state->args));
    state->items = calloc(program->n_items + 1, sizeof(*state->items));
    state->steps = calloc(program->n_devices + 1, sizeof(*state->steps));
    state->slabs = calloc(program->n_devices + 1, sizeof(*state->slabs));
    state->variables = calloc(program->n_variables + 1, sizeof(struct variable *));
    state->has_written = calloc(program->n_variables + 1, sizeof(*state->has_written));
    state->pins = calloc(program->n_values + 1, sizeof(struct buffer *));
    state->feeds = program->has_gpu ? calloc(program->n_feeds + 1, sizeof(*state->feeds)) : NULL;
    state->open_shapes =
        program->has_open ? calloc(program->n_values + 1, sizeof(struct shape)) : NULL;
    if (state->args && state->items && state->steps && state->slabs && state->variables &&
        state->has_written && state->pins && (state->open_shapes || !program->has_open) &&
        (state->feeds || !program->has_gpu)) {
        struct allot_error own = { 0 };

        r = fill(state, variables, slabs, &own);
        if (r < 0 && own.code)
            error_set(err, r, "%s", own.text);
        else if (r < 0)
            error_set(err, r, "no host memory for a run");
    } else
        error_set(err, r, "no host memory for a run");
    if (r < 0) {
        run_state_free(state);
        return r;
    }
    *ret = state;
    return 0;
}

struct run_state *run_state_free(struct run_state *state) {
    if (!state)
        return NULL;
    /* The waiter that reported the last event has left once the lock can be taken. */
    pthread_mutex_lock(&state->lock);
    pthread_mutex_unlock(&state->lock);
    queue_done(state);
    for (uint32_t d = 0; state->slabs && d < state->program->n_devices; d++)
        if (state->slabs[d].data && d == 0 && state->program->has_gpu)
            gpu_host_free(first_gpu(state->program), state->slabs[d].data);
        else if (state->slabs[d].data)
            device_dealloc(state->program->devices[d], &state->slabs[d]);
    memory_user_end(&state->user);
    workers_free(state->workers);
    free(state->args);
    free(state->items);
    free(state->steps);
    free(state->slabs);
    free(state->variables);
    free(state->has_written);
    free(state->pins);
    free(state->open_shapes);
    free(state->feeds);
    pthread_cond_destroy(&state->news);
    pthread_mutex_destroy(&state->lock);
    free(state);
    return NULL;
}

void run_state_retire(struct run_state *state) {
    state->is_out = false;
    for (uint32_t i = 0; state->feeds && i < state->program->n_feeds; i++)
        state->feeds[i] = allot_tensor_unref(state->feeds[i]);
    for (uint32_t l = 0; l < state->program->n_late; l++) {
        struct buffer **at = &state->pins[state->program->late[l]];

        *at = buffer_unref(*at);
    }
    for (uint32_t i = 0; i < state->program->n_variables; i++) {
        if (!state->has_written[i])
            continue;
        state->has_written[i] = false;
        atomic_fetch_sub(&state->variables[i]->n_unsettled, 1);
    }
}

bool run_state_await(struct run_state *state, const atomic_bool *stopped) {
    bool is_over;

    if (atomic_load(&state->n_awaited) == 0)
        return true;
    pthread_mutex_lock(&state->lock);
    while (atomic_load(&state->n_awaited) > 0 && !(stopped && atomic_load(stopped)))
        pthread_cond_wait(&state->news, &state->lock);
    is_over = atomic_load(&state->n_awaited) == 0;
    pthread_mutex_unlock(&state->lock);
    return is_over;
}

int run_state_begin(struct run_state *state, struct allot_tensor *const *feeds,
                    uint64_t step_number, struct allot_error *err) {
    const struct program *program = state->program;
    int r = 0;

    atomic_store(&state->cancelled, false);
    state->has_ended = false;
    atomic_store(&state->failed_item, PROGRAM_NONE);
    state->failure = (struct allot_error){ 0 };
    for (uint32_t d = 0; d < program->n_devices; d++)
        state->steps[d].step.number = step_number;
    for (uint32_t l = 0; l < program->n_late; l++) {
        uint32_t v = program->late[l];
        const struct program_value *value = &program->values[v];
        struct buffer *buffer;

        if (value->where == VALUE_FEED) {
            for (uint32_t p = program->first_place[v]; p < program->first_place[v + 1]; p++)
                state->args[program->places[p]] = tensor_data(feeds[value->index]);
        } else if (value->where == VALUE_FETCH) {
            r = alloc_buffer(program->devices[0], value->bytes, "fetch", NULL, &buffer, err);
            if (r < 0) {
                if (value->node)
                    r = error_wrap(err, r, "'%s' (%s)", value->node->name, value->node->op->name);
                break;
            }
            pin(state, v, buffer);
        }
    }
    if (r == 0)
        r = queue_begin(state, err);
    for (uint32_t i = 0; r == 0 && state->feeds && i < program->n_feeds; i++)
        state->feeds[i] = allot_tensor_ref(feeds[i]);
    if (r < 0)
        run_state_retire(state);
    return r;
}

int run_state_end(struct run_state *state, struct allot_tensor **ret_fetches,
                  struct allot_error *err) {
    const struct program *program = state->program;
    int r = state->failure.code;
    uint32_t i;

    if (r < 0)
        error_set(err, r, "%s", state->failure.text);
    for (i = 0; r == 0 && i < program->n_fetches; i++) {
        const struct program_fetch *fetch = &program->fetches[i];
        struct buffer *buffer = buffer_ref(state->pins[fetch->value]);

        r = tensor_of_buffer(&ret_fetches[i], fetch->dtype,
                             program->values[fetch->value].where == VALUE_OPEN
                                 ? &state->open_shapes[fetch->value]
                                 : &fetch->shape,
                             buffer, 0);
        if (r < 0) {
            buffer_unref(buffer);
            while (i-- > 0)
                ret_fetches[i] = allot_tensor_unref(ret_fetches[i]);
            error_set(err, r, "no host memory for the fetches");
            break;
        }
    }
    if (!state->is_out)
        run_state_retire(state);
    return r;
}

void run_state_fail(struct run_state *state, uint32_t item, int code) {
    const struct program_item *failed = &state->program->items[item];
    uint32_t none = PROGRAM_NONE;

    if (atomic_compare_exchange_strong(&state->failed_item, &none, item))
        error_set(&state->failure, code, "'%s' (%s) on %s: %s",
                  failed->node ? failed->node->name : "copy",
                  failed->node ? failed->node->op->name : "Copy",
                  state->program->devices[failed->device]->name, kernel_failure()->text);
    atomic_store(&state->cancelled, true);
    wait_stop(&state->cancelled);
}
