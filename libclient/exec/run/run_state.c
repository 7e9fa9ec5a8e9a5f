/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frame: most items are kernels that are called with what was laid out before; a few do something
 * with the frame itself. Those have the same type of function, and find their frame through the
 * step.
 */
#include "libclient/exec/run/run_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/core/buffer.h"
#include "libclient/core/tensor.h"
#include "libclient/device/gpu.h"
#include "libclient/device/wakeup.h"
#include "libclient/exec/run/workers.h"
#include "libclient/exec/run/queue.h"
#include "libclient/exec/memory/alloc.h"

struct frame *frame_of(const struct kernel_run *run) {
    return ((struct frame_step *)((char *)run->step - offsetof(struct frame_step, step)))->frame;
}

uint32_t frame_item_of(const struct frame *frame, const struct kernel_run *run) {
    const struct frame_item *item =
        (const struct frame_item *)((const char *)run - offsetof(struct frame_item, run));

    return (uint32_t)(item - frame->items);
}

static const struct program_item *item_of(const struct frame *frame, const struct kernel_run *run) {
    return &frame->program->items[frame_item_of(frame, run)];
}

/* A value of this run lies in `buffer`, whose reference is handed over. */
static void pin(struct frame *frame, uint32_t value, struct buffer *buffer) {
    const struct program *program = frame->program;

    buffer_unref(frame->pins[value]);
    frame->pins[value] = buffer;
    for (uint32_t p = program->first_place[value]; p < program->first_place[value + 1]; p++)
        frame->args[program->places[p]] = buffer->data;
}

static int fail_uninitialised(const struct variable *variable) {
    return kernel_fail(-ENODATA,
                       "the variable '%s' is not initialised: run its initializer, or restore it",
                       variable->node->name);
}

int frame_read(const struct kernel_run *run, bool *ret_settled) {
    struct frame *frame = frame_of(run);
    const struct program *program = frame->program;
    const uint32_t *args = &program->args[item_of(frame, run)->first_arg];
    struct variable *variable = frame->variables[program->values[args[0]].index];
    struct buffer *buffer;

    if (variable_read(variable, &buffer, ret_settled) < 0)
        return fail_uninitialised(variable);
    pin(frame, args[1], buffer);
    return 0;
}

/* Whatever reads it comes behind what was queued before, or the host has done it. */
static int run_read(const struct kernel_run *run) {
    bool ignored;

    return frame_read(run, &ignored);
}

/* Variables that an item writes, each once, in the order in which everybody locks them. */
static uint32_t written(const struct frame *frame, const struct program_item *item,
                        struct variable *ret[static 32], uint32_t ret_args[static 32]) {
    const struct program *program = frame->program;
    uint32_t n = 0;

    for (uint32_t writes = item->kernel->writes; writes; writes &= writes - 1) {
        uint32_t arg = (uint32_t)__builtin_ctz(writes), at;
        uint32_t index = program->values[program->args[item->first_arg + arg]].index;

        for (at = n; at > 0 && ret[at - 1] > frame->variables[index]; at--) {
            ret[at] = ret[at - 1];
            ret_args[at] = ret_args[at - 1];
        }
        ret[at] = frame->variables[index];
        ret_args[at] = arg;
        n++;
    }
    return n;
}

/* References to the variable's bytes that this run took and no longer needs. */
static uint32_t own_pins(const struct frame *frame, const struct program_item *item,
                         const struct variable *variable) {
    uint32_t n = 0;

    for (uint32_t p = item->first_pin; p < item->first_pin + item->n_pins; p++)
        n += variable->buffer && frame->pins[frame->program->pins[p]] == variable->buffer;
    return n;
}

static struct alloc_wait wait_of(struct frame *frame) {
    return (struct alloc_wait){ .until_nsec = frame->until_nsec,
                                .stopped = &frame->cancelled,
                                .user = &frame->user };
}

/* With the locks held: the first that lacks bytes to be written and has no fresh ones; `n`: none.
 */
static uint32_t lacking(const struct frame *frame, const struct program_item *item,
                        struct variable *const *variables, uint32_t n,
                        struct buffer *const *fresh) {
    bool keep = !(item->kernel->flags & KERNEL_INITIALISES);
    uint32_t i = 0;

    while (i < n && (fresh[i] || (i > 0 && variables[i] == variables[i - 1]) ||
                     (keep && !variables[i]->buffer) ||
                     !variable_lacks(variables[i], own_pins(frame, item, variables[i]))))
        i++;
    return i;
}

static int prepare_variables(struct frame *frame, const struct program_item *item,
                             struct variable *const *variables, const uint32_t *args, uint32_t n,
                             struct buffer **fresh) {
    bool keep = !(item->kernel->flags & KERNEL_INITIALISES);

    for (uint32_t i = 0; i < n; i++) {
        struct allot_error err = { 0 };
        int r = variable_prepare(variables[i], own_pins(frame, item, variables[i]), keep, &fresh[i],
                                 &err);

        if (r == -ENODATA)
            return fail_uninitialised(variables[i]);
        if (r < 0)
            return kernel_fail(r, "%s", err.text);
        frame->args[item->first_arg + args[i]] = variables[i]->buffer->data;
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

/* A variable that fresh bytes are waited for. */
struct lack {
    const struct frame *frame;
    const struct program_item *item;
    struct variable *const *variables;
    struct buffer *const *fresh;
    uint32_t n, which;
};

/* Who has read it may have ended: then it can be written where it is. */
static bool no_longer_lacks(void *userdata) {
    const struct lack *lack = userdata;
    bool lacks;

    lock_variables(lack->variables, lack->n);
    lacks = lacking(lack->frame, lack->item, lack->variables, lack->n, lack->fresh) == lack->which;
    unlock_variables(lack->variables, lack->n);
    return !lacks;
}

/* Lock what is to be written, with fresh bytes at hand for those that need some: these may have to
 * be waited for, which nobody does with a lock. */
static int lock_with_fresh(struct frame *frame, const struct program_item *item,
                           struct variable *const *variables, uint32_t n, struct buffer **fresh) {
    struct lack lack = { frame, item, variables, fresh, n, n };
    struct alloc_wait wait = wait_of(frame);
    struct allot_error err = { 0 };
    int r = 0;

    wait.is_moot = no_longer_lacks;
    wait.userdata = &lack;
    for (;;) {
        uint32_t before = lack.which;

        lock_variables(variables, n);
        lack.which = lacking(frame, item, variables, n, fresh);
        if (lack.which == n)
            return 0;
        unlock_variables(variables, n);
        /* What could not be had may be needed no more; or was not, and is again. */
        if (r < 0 && r != -EALREADY && (lack.which == before || r == -ECANCELED))
            return kernel_fail(r, "%s", err.text);
        r = variable_fresh(variables[lack.which], &wait, &fresh[lack.which], &err);
    }
}

/* With the locks held: until the run is over only the compute stream is behind what it queues. */
static void note_written(struct frame *frame, const struct program_item *item,
                         struct variable *const *variables, const uint32_t *args, uint32_t n) {
    const struct program *program = frame->program;

    for (uint32_t i = 0; i < n; i++) {
        bool *has =
            &frame->has_written[program->values[program->args[item->first_arg + args[i]]].index];

        if (!variables[i]->device->gpu || *has)
            continue;
        *has = true;
        atomic_fetch_add(&variables[i]->n_unsettled, 1);
    }
}

/* What was not written is what it was. */
static void put_back(struct variable *variable, struct buffer *old, struct buffer **fresh) {
    if (variable->buffer == old)
        return;
    *fresh = variable->buffer;
    variable->buffer = old;
}

static int run_write(const struct kernel_run *run) {
    struct frame *frame = frame_of(run);
    const struct program_item *item = item_of(frame, run);
    const uint32_t *outputs = &frame->program->args[item->first_arg + item->n_inputs];
    struct buffer *fresh[32] = { 0 }, *old[32];
    struct variable *variables[32];
    uint32_t args[32], n = written(frame, item, variables, args);
    int r = lock_with_fresh(frame, item, variables, n, fresh);

    if (r == 0) {
        for (uint32_t i = 0; i < n; i++)
            old[i] = variables[i]->buffer;
        note_written(frame, item, variables, args, n);
        r = prepare_variables(frame, item, variables, args, n, fresh);
        if (r == 0)
            r = item->run(run);
        for (uint32_t i = 0; r < 0 && i < n; i++)
            put_back(variables[i], old[i], &fresh[i]);
        for (uint32_t o = 0; r == 0 && o < item->n_outputs; o++) {
            uint32_t first = (uint32_t)__builtin_ctz(item->kernel->writes);
            uint32_t handle = frame->program->args[item->first_arg + first];

            pin(frame, outputs[o],
                buffer_ref(frame->variables[frame->program->values[handle].index]->buffer));
        }
        unlock_variables(variables, n);
    }
    for (uint32_t i = 0; i < n; i++)
        buffer_unref(fresh[i]);
    return r;
}

static int run_copy(const struct kernel_run *run) {
    struct frame *frame = frame_of(run);
    const struct program_item *item = item_of(frame, run);

    memcpy(run->outputs[0], run->inputs[0],
           frame->program->values[frame->program->args[item->first_arg]].bytes);
    return 0;
}

static int run_nothing(const struct kernel_run *run) {
    return 0;
}

kernel_run_fn frame_plain_function(const struct program_item *item) {
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

static kernel_run_fn function_of(const struct program *program, const struct program_item *item) {
    kernel_run_fn queued = program->has_gpu ? queue_function(program, item) : NULL;

    return queued ? queued : frame_plain_function(item);
}

static void *address_of(const struct frame *frame, uint32_t value) {
    const struct program_value *v;

    if (value == PROGRAM_NONE)
        return NULL;
    v = &frame->program->values[value];
    return v->where == VALUE_SLAB       ? (char *)frame->slabs[v->space].data + v->offset
           : v->where == VALUE_CONSTANT ? v->address
                                        : NULL;
}

/* Any will do: pinned memory is pinned for all. */
static struct gpu *first_gpu(const struct program *program) {
    for (uint32_t d = 0; d < program->n_devices; d++)
        if (program->devices[d]->gpu)
            return program->devices[d]->gpu;
    return NULL;
}

/* The node whose value is the largest of a slab; NULL: none has a name. */
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

int frame_no_slab(const struct program *program, uint32_t device, int r, struct allot_error *err) {
    const struct node *node = largest(program, device);
    struct allot_error why;

    if (!err || !node)
        return r;
    why = *err;
    return error_set(err, r, "'%s' (%s) and others: %s", node->name, node->op->name, why.text);
}

/* The host's comes last. What flows between it and devices must be pinned, so that copies run
 * beside other work. */
static int take_slabs(struct frame *frame, const struct device_block *slabs,
                      struct allot_error *err) {
    const struct program *program = frame->program;
    uint64_t bytes = program->slab_bytes[0];
    int r = bytes == 0         ? 0
            : program->has_gpu ? alloc_pinned(program->devices[0], first_gpu(program), bytes,
                                              &frame->slabs[0].data, err)
                               : alloc_block(program->devices[0], bytes, "step memory", NULL,
                                             &frame->slabs[0], err);

    if (r < 0)
        return frame_no_slab(program, 0, r, err);
    for (uint32_t d = 1; slabs && d < program->n_devices; d++)
        frame->slabs[d] = slabs[d];
    return 0;
}

static int find_variables(struct frame *frame, struct variables *variables,
                          const uint32_t *space_of) {
    const struct program *program = frame->program;

    for (uint32_t i = 0; i < program->n_variables; i++) {
        int r = variables_get(variables, graph_node(program->graph, program->variables[i]),
                              program->devices[space_of[i]], &frame->variables[i]);

        if (r < 0)
            return r;
    }
    return 0;
}

/* An output whose shape is known only now. */
static int output_new(const struct kernel_run *run, uint32_t i, const struct shape *shape,
                      void **ret) {
    struct frame *frame = frame_of(run);
    const struct program *program = frame->program;
    const struct program_item *item = item_of(frame, run);
    uint32_t value = program->args[item->first_arg + item->n_inputs + i];
    int64_t count = shape_count(shape);
    const struct alloc_wait wait = wait_of(frame);
    struct allot_error err = { 0 };
    struct buffer *buffer;
    int r;

    if (count < 0)
        return kernel_fail(-EOVERFLOW, "an output that is too large");
    r = alloc_buffer(program->devices[item->device],
                     (uint64_t)count * dtype_bytes(program->values[value].dtype), item->node->name,
                     &wait, &buffer, &err);
    if (r < 0)
        return kernel_fail(r, "%s", err.text);
    pin(frame, value, buffer);
    frame->open_shapes[value] = *shape;
    *ret = buffer->data;
    return 0;
}

static int fill(struct frame *frame, struct variables *variables, const struct device_block *slabs,
                struct allot_error *err) {
    const struct program *program = frame->program;
    uint32_t *space_of = calloc(program->n_variables + 1, sizeof(*space_of));
    int r;

    if (!space_of)
        return -ENOMEM;
    for (uint32_t v = 0; v < program->n_values; v++)
        if (program->values[v].where == VALUE_HANDLE)
            space_of[program->values[v].index] = program->values[v].space;
    r = find_variables(frame, variables, space_of);
    free(space_of);
    if (r == 0)
        r = take_slabs(frame, slabs, err);
    if (r < 0)
        return r;
    for (uint32_t d = 0; d < program->n_devices; d++)
        frame->steps[d] = (struct frame_step){
            .step = { .cancelled = &frame->cancelled,
                      .deterministic = program->deterministic,
                      .output_new = output_new },
            .frame = frame,
        };
    for (uint32_t a = 0; a < program->n_args; a++)
        frame->args[a] = address_of(frame, program->args[a]);
    for (uint32_t i = 0; i < program->n_items; i++) {
        const struct program_item *item = &program->items[i];

        frame->items[i] = (struct frame_item){
            .run = { .state = item->state,
                     .inputs = &frame->args[item->first_arg],
                     .outputs = &frame->args[item->first_arg + item->n_inputs],
                     .scratch = address_of(frame, item->scratch),
                     .pool = program->devices[item->device]->intra,
                     .step = &frame->steps[item->device].step },
            .fn = function_of(program, item),
        };
    }
    return 0;
}

int frame_new(struct frame **ret, const struct program *program, struct variables *variables,
              const struct device_block *slabs, struct allot_error *err) {
    struct frame *frame = calloc(1, sizeof(*frame));
    int r = -ENOMEM;

    if (!frame)
        return error_set(err, -ENOMEM, "no host memory for a run");
    frame->program = program;
    pthread_mutex_init(&frame->lock, NULL);
    pthread_cond_init(&frame->news, NULL);
    frame->args = calloc(program->n_args + 1, sizeof(*frame->args));
    frame->items = calloc(program->n_items + 1, sizeof(*frame->items));
    frame->steps = calloc(program->n_devices + 1, sizeof(*frame->steps));
    frame->slabs = calloc(program->n_devices + 1, sizeof(*frame->slabs));
    frame->variables = calloc(program->n_variables + 1, sizeof(struct variable *));
    frame->has_written = calloc(program->n_variables + 1, sizeof(*frame->has_written));
    frame->pins = calloc(program->n_values + 1, sizeof(struct buffer *));
    frame->feeds = program->has_gpu ? calloc(program->n_feeds + 1, sizeof(*frame->feeds)) : NULL;
    frame->open_shapes =
        program->has_open ? calloc(program->n_values + 1, sizeof(struct shape)) : NULL;
    if (frame->args && frame->items && frame->steps && frame->slabs && frame->variables &&
        frame->has_written && frame->pins && (frame->open_shapes || !program->has_open) &&
        (frame->feeds || !program->has_gpu)) {
        struct allot_error own = { 0 };

        r = fill(frame, variables, slabs, &own);
        if (r < 0 && own.code)
            error_set(err, r, "%s", own.text);
        else if (r < 0)
            error_set(err, r, "no host memory for a run");
    } else
        error_set(err, r, "no host memory for a run");
    if (r < 0) {
        frame_free(frame);
        return r;
    }
    *ret = frame;
    return 0;
}

struct frame *frame_free(struct frame *frame) {
    if (!frame)
        return NULL;
    /* Whoever told of the last mark has left when the lock can be had. */
    pthread_mutex_lock(&frame->lock);
    pthread_mutex_unlock(&frame->lock);
    queue_done(frame);
    for (uint32_t d = 0; frame->slabs && d < frame->program->n_devices; d++)
        if (frame->slabs[d].data && d == 0 && frame->program->has_gpu)
            gpu_host_free(first_gpu(frame->program), frame->slabs[d].data);
        else if (frame->slabs[d].data)
            device_dealloc(frame->program->devices[d], &frame->slabs[d]);
    memory_user_end(&frame->user);
    crew_free(frame->crew);
    free(frame->args);
    free(frame->items);
    free(frame->steps);
    free(frame->slabs);
    free(frame->variables);
    free(frame->has_written);
    free(frame->pins);
    free(frame->open_shapes);
    free(frame->feeds);
    pthread_cond_destroy(&frame->news);
    pthread_mutex_destroy(&frame->lock);
    free(frame);
    return NULL;
}

void frame_retire(struct frame *frame) {
    frame->is_out = false;
    for (uint32_t i = 0; frame->feeds && i < frame->program->n_feeds; i++)
        frame->feeds[i] = allot_tensor_unref(frame->feeds[i]);
    for (uint32_t l = 0; l < frame->program->n_late; l++) {
        struct buffer **at = &frame->pins[frame->program->late[l]];

        *at = buffer_unref(*at);
    }
    for (uint32_t i = 0; i < frame->program->n_variables; i++) {
        if (!frame->has_written[i])
            continue;
        frame->has_written[i] = false;
        atomic_fetch_sub(&frame->variables[i]->n_unsettled, 1);
    }
}

bool frame_await(struct frame *frame, const atomic_bool *stopped) {
    bool is_over;

    if (atomic_load(&frame->n_awaited) == 0)
        return true;
    pthread_mutex_lock(&frame->lock);
    while (atomic_load(&frame->n_awaited) > 0 && !(stopped && atomic_load(stopped)))
        pthread_cond_wait(&frame->news, &frame->lock);
    is_over = atomic_load(&frame->n_awaited) == 0;
    pthread_mutex_unlock(&frame->lock);
    return is_over;
}

int frame_begin(struct frame *frame, struct allot_tensor *const *feeds, uint64_t step_number,
                struct allot_error *err) {
    const struct program *program = frame->program;
    int r = 0;

    atomic_store(&frame->cancelled, false);
    frame->has_ended = false;
    atomic_store(&frame->failed_item, PROGRAM_NONE);
    frame->failure = (struct allot_error){ 0 };
    for (uint32_t d = 0; d < program->n_devices; d++)
        frame->steps[d].step.number = step_number;
    for (uint32_t l = 0; l < program->n_late; l++) {
        uint32_t v = program->late[l];
        const struct program_value *value = &program->values[v];
        struct buffer *buffer;

        if (value->where == VALUE_FEED) {
            for (uint32_t p = program->first_place[v]; p < program->first_place[v + 1]; p++)
                frame->args[program->places[p]] = tensor_data(feeds[value->index]);
        } else if (value->where == VALUE_FETCH) {
            r = alloc_buffer(program->devices[0], value->bytes, "fetch", NULL, &buffer, err);
            if (r < 0) {
                if (value->node)
                    r = error_wrap(err, r, "'%s' (%s)", value->node->name, value->node->op->name);
                break;
            }
            pin(frame, v, buffer);
        }
    }
    if (r == 0)
        r = queue_begin(frame, err);
    for (uint32_t i = 0; r == 0 && frame->feeds && i < program->n_feeds; i++)
        frame->feeds[i] = allot_tensor_ref(feeds[i]);
    if (r < 0)
        frame_retire(frame);
    return r;
}

int frame_end(struct frame *frame, struct allot_tensor **ret_fetches, struct allot_error *err) {
    const struct program *program = frame->program;
    int r = frame->failure.code;
    uint32_t i;

    if (r < 0)
        error_set(err, r, "%s", frame->failure.text);
    for (i = 0; r == 0 && i < program->n_fetches; i++) {
        const struct program_fetch *fetch = &program->fetches[i];
        struct buffer *buffer = buffer_ref(frame->pins[fetch->value]);

        r = tensor_of_buffer(&ret_fetches[i], fetch->dtype,
                             program->values[fetch->value].where == VALUE_OPEN
                                 ? &frame->open_shapes[fetch->value]
                                 : &fetch->shape,
                             buffer, 0);
        if (r < 0) {
            buffer_unref(buffer);
            while (i-- > 0)
                ret_fetches[i] = allot_tensor_unref(ret_fetches[i]);
            error_set(err, r, "no host memory for what was fetched");
            break;
        }
    }
    if (!frame->is_out)
        frame_retire(frame);
    return r;
}

void frame_fail(struct frame *frame, uint32_t item, int code) {
    const struct program_item *failed = &frame->program->items[item];
    uint32_t none = PROGRAM_NONE;

    if (atomic_compare_exchange_strong(&frame->failed_item, &none, item))
        error_set(&frame->failure, code, "'%s' (%s) on %s: %s",
                  failed->node ? failed->node->name : "copy",
                  failed->node ? failed->node->op->name : "Copy",
                  frame->program->devices[failed->device]->name, kernel_failure()->text);
    atomic_store(&frame->cancelled, true);
    want_stop(&frame->cancelled);
}
