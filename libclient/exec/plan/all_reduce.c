/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All-reduce: the items of a sum over replicas, whose tensors are its inputs and outputs, those of
 * replica 0 first.
 *
 * If each replica is on a GPU of its own, the sum is made in place: each output lies where its
 * input did, if nothing else needs that, and the GPUs pass parts of it on to each other and add
 * them. The tensors of a replica count as one row of elements, cut into chunks without regard to
 * where a tensor ends.
 *
 *     direct each GPU gets its chunk from all others, adds them up, and sends the sum to all. A GPU
 *            sends and receives 2 (n - 1) / n of the bytes, as in a ring, but adds only once: a
 *            kernel that has to wait for others, as those of the backward pass, holds the sum up
 *            once and not n - 1 times. Large rows go in two parts, so that one is copied while the
 *            other is added.
 *     tree   pairs of GPUs, pairs of pairs and so on add up everything, and send it back the same
 *            way: fewer steps, for few bytes.
 *     NCCL   where it is installed (device/collective.h): the whole sum is one item.
 *
 * Either way each element is added up once and then only copied, so all replicas get the same bits.
 * Sums run beside the ops, several at once, each on streams of its own (device/gpu.h). How long one
 * takes depends on what the GPUs do meanwhile, so no plan is right about it: what it reads and
 * writes has memory of its own for the whole run, and no op waits for a sum because it is to use
 * the same bytes. Each GPU runs its ops in the order of the graph, in which the sums stand, too.
 *
 * Otherwise, as for a CPU and GPUs, AddN runs on the node's own device, and all replicas share its
 * result.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "libclient/device/device.h"
#include "libclient/device/gpu.h"
#include "libclient/exec/plan/compile.h"
#include "libclient/exec/plan/reduce_collective.h"
#include "libclient/exec/plan/reduce_transfer.h"

/* What a step between two GPUs takes besides the bytes, and bytes per nanosecond: a guess between
 * PCIe and NVLink, as a plan does not know the links. */
enum { STEP_NSEC = 8000, LINK_BYTES = 25 };
/* Additions: bytes of a chunk per nanosecond, and what a launch takes. */
enum { ADD_BYTES = 50, ADD_NSEC = 3000 };
/* Chunks of twice this size are worth going in two parts. */
enum { PART_BYTES = 8 << 20, PARTS_MAX = 2 };

/* The node while it is lowered. Counts and offsets are of elements. */
struct reduce_row {
    struct compile *compile;
    const struct node *node;
    struct allot_error *err;
    enum dtype dtype;
    uint32_t n_replicas, n_tensors;
    uint32_t *spaces;  /* by replica: its device */
    uint32_t *values;  /* by replica and tensor: the output */
    uint32_t *ready;   /* likewise: the item after which it has the replica's own numbers */
    uint64_t *offsets; /* by tensor: where it begins in the row; n_tensors + 1 */
    uint32_t *held;    /* by replica and chunk: the item that changed it last; PROGRAM_NONE */
    uint32_t n_chunks, n_parts;
    /* What the replica at hand has received: values, and the items that wrote them. */
    uint32_t *inbox, *inbox_items;
    uint32_t n_inbox;
    uint32_t channel; /* device/gpu.h */
    const struct kernel *add;
};

static const struct kernel begins = { .op = "AllReduce",
                                      .device = KERNEL_GPU,
                                      .flags = KERNEL_IN_PLACE };
static const struct kernel steps = { .op = "AllReduce", .device = KERNEL_GPU };

/* ---- Items ----------------------------------------------------------------------------------- */

static uint32_t levels_of(uint32_t n) {
    return 32 - (uint32_t)__builtin_clz(n - 1);
}

static uint32_t *nones(uint32_t n) {
    uint32_t *array = malloc(n * sizeof(*array));

    return array ? memset(array, 0xff, n * sizeof(*array)) : NULL;
}

static struct gpu *gpu_of(const struct reduce_row *row, uint32_t replica) {
    return row->compile->request->devices[row->spaces[replica]]->gpu;
}

static int transfer_new(struct reduce_transfer **ret, const struct reduce_row *row, uint32_t from,
                        uint32_t to, uint32_t n_segments) {
    struct reduce_transfer *transfer =
        calloc(1, sizeof(*transfer) + n_segments * sizeof(transfer->segments[0]));

    if (!transfer)
        return -ENOMEM;
    transfer->from = gpu_of(row, from);
    transfer->to = gpu_of(row, to);
    transfer->channel = row->channel;
    *ret = transfer;
    return 0;
}

/* An item on the GPU of a replica; it owns `state` from now on. */
static int step_new(struct reduce_row *row, uint32_t replica, const struct kernel *kernel,
                    kernel_run_fn run, uint32_t stream, struct reduce_transfer *state,
                    uint32_t *ret) {
    struct program_item *item;
    int r = compile_item(row->compile, ITEM_KERNEL, row->node, row->spaces[replica], ret);

    if (r < 0) {
        reduce_transfer_free(state);
        return r;
    }
    item = &row->compile->program->items[*ret];
    item->kernel = kernel;
    item->run = run;
    item->stream = (uint8_t)stream;
    item->state = state;
    item->state_free = reduce_transfer_free;
    row->compile->program->n_kernels++;
    return 0;
}

static uint64_t bytes_of(const struct reduce_row *row, uint64_t n) {
    return n * dtype_bytes(row->dtype);
}

/* The output of one tensor, which is the input's value for now. */
static int begin_tensor(struct reduce_row *row, uint32_t replica, uint32_t tensor) {
    const uint32_t i = replica * row->n_tensors + tensor;
    const struct port *port = compile_port(row->compile, row->node->inputs[i]);
    struct program_value value = {
        .where = VALUE_SLAB,
        .dtype = row->dtype,
        .space = row->spaces[replica],
        .index = PROGRAM_NONE,
        .bytes = bytes_of(row, row->offsets[tensor + 1] - row->offsets[tensor]),
        .is_apart = true,
        .node = row->node,
    };
    uint32_t args[2], after, item;
    struct reduce_transfer *state = NULL;
    int r = compile_value_in(row->compile, port->value, port->after, value.space, &args[0], &after,
                             row->err);

    if (r == 0)
        r = transfer_new(&state, row, replica, replica, 1);
    if (r < 0)
        return r;
    state->n_segments = 1;
    state->segments[0].bytes = value.bytes;
    r = step_new(row, replica, &begins, reduce_transfer_begin, GPU_ADDEND, state, &item);
    value.producer = item;
    if (r == 0)
        r = compile_value(row->compile, &value, &args[1]);
    if (r == 0)
        r = compile_args(row->compile, args, 1, 1);
    if (r == 0)
        r = compile_edge(row->compile, after, item);
    if (r == 0)
        r = compile_controls(row->compile, row->node, item);
    row->values[i] = args[1];
    row->ready[i] = item;
    return r;
}

/* A range of the row: chunk number and elements. */
struct reduce_chunk {
    uint32_t number;
    uint64_t begin, end;
};

static uint32_t first_tensor(const struct reduce_row *row, const struct reduce_chunk *chunk) {
    uint32_t t = 0;

    while (t + 1 < row->n_tensors && row->offsets[t + 1] <= chunk->begin)
        t++;
    return t;
}

static uint32_t n_tensors_of(const struct reduce_row *row, const struct reduce_chunk *chunk) {
    uint32_t first = first_tensor(row, chunk), t = first;

    while (t < row->n_tensors && row->offsets[t] < chunk->end)
        t++;
    return t - first;
}

/* The item waits until the replica has the chunk: its own numbers, and what was added. */
static int after_chunk(struct reduce_row *row, uint32_t replica, const struct reduce_chunk *chunk,
                       uint32_t item) {
    const uint32_t first = first_tensor(row, chunk), n = n_tensors_of(row, chunk);
    const uint32_t held = row->held[replica * row->n_chunks + chunk->number];
    int r = compile_edge(row->compile, held, item);

    for (uint32_t t = first; r == 0 && held == PROGRAM_NONE && t < first + n; t++)
        r = compile_edge(row->compile, row->ready[replica * row->n_tensors + t], item);
    return r;
}

/* The two streams that a sum has on each GPU. */
enum channel_stream { CHANNEL_COPIES, CHANNEL_ADDITIONS, N_CHANNEL_STREAMS };

/* The newest item there, of this sum or another on its channel; PROGRAM_NONE. */
static uint32_t *last_on(const struct reduce_row *row, uint32_t replica,
                         enum channel_stream stream) {
    const uint32_t n_devices = row->compile->request->n_devices;

    return &row->compile->channel_ends[(row->channel * n_devices + row->spaces[replica]) *
                                           N_CHANNEL_STREAMS +
                                       stream];
}

/* Items on one stream stay in the order in which they are made here: one that waits for a late
 * gradient must not stand before those of an earlier sum. */
static int behind(struct reduce_row *row, uint32_t *last, uint32_t item) {
    int r = compile_edge(row->compile, *last, item);

    *last = item;
    return r;
}

/* Segment `s` of the chunk: which tensor, and where in the tensor and in the chunk it begins. */
static struct reduce_segment segment_of(const struct reduce_row *row,
                                        const struct reduce_chunk *chunk, uint32_t s) {
    const uint32_t tensor = first_tensor(row, chunk) + s;
    const uint64_t begin = MAX(chunk->begin, row->offsets[tensor]);
    const uint64_t end = MIN(chunk->end, row->offsets[tensor + 1]);

    return (struct reduce_segment){ .from_offset = bytes_of(row, begin - row->offsets[tensor]),
                                    .to_offset = bytes_of(row, begin - chunk->begin),
                                    .bytes = bytes_of(row, end - begin) };
}

/* The tensors of the chunk, as arguments. */
static void list_tensors(const struct reduce_row *row, uint32_t replica,
                         const struct reduce_chunk *chunk, uint32_t *ret) {
    const uint32_t first = first_tensor(row, chunk), n = n_tensors_of(row, chunk);

    memcpy(ret, &row->values[replica * row->n_tensors + first], n * sizeof(*ret));
}

/* The replica's memory for a chunk that it is to add, which the newest item writes. */
static int inbox_new(struct reduce_row *row, uint32_t replica, const struct reduce_chunk *chunk,
                     uint32_t item, uint32_t *ret) {
    struct program_value value = {
        .where = VALUE_SLAB,
        .dtype = row->dtype,
        .space = row->spaces[replica],
        .index = PROGRAM_NONE,
        .producer = item,
        .bytes = bytes_of(row, chunk->end - chunk->begin),
        .is_apart = true,
        .node = row->node,
    };

    return compile_value(row->compile, &value, ret);
}

/* Copy a chunk to another replica: over its own, or to memory beside it, to be added. */
static int copy_chunk(struct reduce_row *row, uint32_t from, uint32_t to,
                      const struct reduce_chunk *chunk, bool is_added) {
    const uint32_t n = n_tensors_of(row, chunk);
    cleanup(freep) uint32_t *args = malloc((2 * (size_t)n + 1) * sizeof(*args));
    struct reduce_transfer *state = NULL;
    uint32_t item;
    int r = args ? transfer_new(&state, row, from, to, n) : -ENOMEM;

    if (r < 0)
        return r;
    state->n_inputs = is_added ? n : 2 * n;
    state->n_segments = n;
    for (uint32_t s = 0; s < n; s++) {
        state->segments[s] = segment_of(row, chunk, s);
        state->segments[s].from = s;
        state->segments[s].to = is_added ? n : n + s;
        if (!is_added)
            state->segments[s].to_offset = state->segments[s].from_offset;
    }
    r = step_new(row, to, &steps, reduce_transfer_copy, GPU_PEER + row->channel, state, &item);
    if (r < 0)
        return r;
    row->compile->program->items[item].cost =
        STEP_NSEC + bytes_of(row, chunk->end - chunk->begin) / LINK_BYTES;
    list_tensors(row, from, chunk, args);
    if (is_added)
        r = inbox_new(row, to, chunk, item, &args[n]);
    else
        list_tensors(row, to, chunk, args + n);
    if (r == 0)
        r = compile_args(row->compile, args, state->n_inputs, is_added ? 1 : 0);
    if (r == 0)
        r = after_chunk(row, from, chunk, item);
    if (is_added) {
        row->inbox[row->n_inbox] = args[n];
        row->inbox_items[row->n_inbox++] = item;
    } else if (r == 0) {
        r = after_chunk(row, to, chunk, item);
        row->held[to * row->n_chunks + chunk->number] = item;
    }
    return r < 0 ? r : behind(row, last_on(row, to, CHANNEL_COPIES), item);
}

static int addition_of(struct reduce_row *row, uint32_t replica, struct reduce_segment *segment) {
    const int64_t n = (int64_t)(segment->bytes / dtype_bytes(row->dtype));
    const struct kernel_value number = { .dtype = row->dtype, .shape = { 1, { n } } };
    cleanup(freep) struct kernel_value *inputs = calloc(row->n_inbox + 1, sizeof(*inputs));
    struct kernel_plan plan = {
        .node = row->node,
        .kernel = row->add,
        .inputs = inputs,
        .outputs = &number,
        .n_inputs = row->n_inbox + 1,
        .n_outputs = 1,
        .gpu = gpu_of(row, replica),
    };
    int r;

    if (!inputs)
        return -ENOMEM;
    for (uint32_t i = 0; i <= row->n_inbox; i++)
        inputs[i] = number;
    r = row->add->prepare(&plan, row->err);
    segment->add = plan.run;
    segment->add_state = plan.state;
    segment->add_state_free = plan.state_free;
    return r;
}

/* Add all that was received to the replica's own chunk. */
static int add_chunk(struct reduce_row *row, uint32_t replica, const struct reduce_chunk *chunk) {
    const uint32_t n = n_tensors_of(row, chunk), n_inbox = row->n_inbox;
    cleanup(freep) uint32_t *args = malloc((n + n_inbox) * sizeof(*args));
    struct reduce_transfer *state = NULL;
    uint32_t item;
    int r = args ? transfer_new(&state, row, replica, replica, n) : -ENOMEM;

    if (r < 0)
        return r;
    state->n_inputs = n + n_inbox;
    state->n_addends = n_inbox;
    state->n_segments = n;
    for (uint32_t s = 0; r == 0 && s < n; s++) {
        struct reduce_segment own = segment_of(row, chunk, s);

        state->segments[s] = own;
        state->segments[s].from_offset = own.to_offset;
        state->segments[s].to_offset = own.from_offset;
        state->segments[s].to = n_inbox + s;
        r = addition_of(row, replica, &state->segments[s]);
    }
    if (r < 0) {
        reduce_transfer_free(state);
        return r;
    }
    r = step_new(row, replica, &steps, reduce_transfer_add, GPU_COLLECTIVE + row->channel, state,
                 &item);
    if (r < 0)
        return r;
    row->compile->program->items[item].cost =
        ADD_NSEC + n_inbox * bytes_of(row, chunk->end - chunk->begin) / ADD_BYTES;
    memcpy(args, row->inbox, n_inbox * sizeof(*args));
    list_tensors(row, replica, chunk, args + n_inbox);
    r = compile_args(row->compile, args, n + n_inbox, 0);
    for (uint32_t i = 0; r == 0 && i < n_inbox; i++)
        r = compile_edge(row->compile, row->inbox_items[i], item);
    if (r == 0)
        r = after_chunk(row, replica, chunk, item);
    row->held[replica * row->n_chunks + chunk->number] = item;
    row->n_inbox = 0;
    return r < 0 ? r : behind(row, last_on(row, replica, CHANNEL_ADDITIONS), item);
}

/* ---- Direct and tree ------------------------------------------------------------------------- */

static struct reduce_chunk chunk_of(const struct reduce_row *row, uint32_t number) {
    const uint64_t n = row->offsets[row->n_tensors], whole = n / row->n_chunks,
                   rest = n % row->n_chunks;

    return (struct reduce_chunk){ number, number * whole + number * rest / row->n_chunks,
                                  (number + 1) * whole + (number + 1) * rest / row->n_chunks };
}

/* The replica's chunk of a part, from all others: at each moment every GPU sends to another one. */
static int gather_chunk(struct reduce_row *row, uint32_t part, uint32_t to) {
    const uint32_t n = row->n_replicas;
    const struct reduce_chunk chunk = chunk_of(row, part * n + to);
    int r = compile_check(row->compile);

    if (chunk.begin == chunk.end)
        return r;
    for (uint32_t k = 1; r == 0 && k < n; k++)
        r = copy_chunk(row, (to + k) % n, to, &chunk, true);
    return r < 0 ? r : add_chunk(row, to, &chunk);
}

static int spread_chunks(struct reduce_row *row, uint32_t part, uint32_t to) {
    const uint32_t n = row->n_replicas;
    int r = compile_check(row->compile);

    for (uint32_t k = 1; r == 0 && k < n; k++) {
        const uint32_t from = (to + k) % n;
        const struct reduce_chunk chunk = chunk_of(row, part * n + from);

        if (chunk.begin < chunk.end)
            r = copy_chunk(row, from, to, &chunk, false);
    }
    return r;
}

static int direct(struct reduce_row *row) {
    int r = 0;

    for (uint32_t part = 0; part < row->n_parts; part++)
        for (uint32_t to = 0; r == 0 && to < row->n_replicas; to++)
            r = gather_chunk(row, part, to);
    for (uint32_t part = 0; part < row->n_parts; part++)
        for (uint32_t to = 0; r == 0 && to < row->n_replicas; to++)
            r = spread_chunks(row, part, to);
    return r;
}

static int tree(struct reduce_row *row) {
    const struct reduce_chunk all = chunk_of(row, 0);
    uint32_t width = 1;
    int r = 0;

    for (; width < row->n_replicas; width *= 2)
        for (uint32_t to = 0; r == 0 && to + width < row->n_replicas; to += 2 * width) {
            r = copy_chunk(row, to + width, to, &all, true);
            if (r == 0)
                r = add_chunk(row, to, &all);
        }
    while ((width /= 2) > 0)
        for (uint32_t from = 0; r == 0 && from + width < row->n_replicas; from += 2 * width)
            r = copy_chunk(row, from, from + width, &all, false);
    return r;
}

/* NCCL's own stream order ties all replicas to the first: one item stands for the whole. */
static int all_at_once(struct reduce_row *row, struct collective *collective) {
    struct reduce_collective *state;
    struct program_item *item;
    uint32_t at;
    int r = compile_item(row->compile, ITEM_KERNEL, row->node, row->spaces[0], &at);

    if (r == 0)
        r = reduce_collective_new(&state, collective, row->dtype, row->channel, row->offsets,
                                  row->n_tensors);
    if (r < 0)
        return r;
    item = &row->compile->program->items[at];
    item->kernel = &steps;
    item->run = reduce_collective_sum;
    item->stream = (uint8_t)(GPU_COLLECTIVE + row->channel);
    item->state = state;
    item->state_free = reduce_collective_free;
    item->cost = STEP_NSEC + 2 * bytes_of(row, row->offsets[row->n_tensors]) / LINK_BYTES;
    row->compile->program->n_kernels++;
    r = compile_args(row->compile, row->values, row->node->n_inputs, 0);
    for (uint32_t i = 0; r == 0 && i < row->node->n_inputs; i++)
        r = compile_edge(row->compile, row->ready[i], at);
    for (uint32_t i = 0; r == 0 && i < row->n_replicas; i++)
        r = behind(row, last_on(row, i, CHANNEL_ADDITIONS), at);
    return r;
}

/* How many chunks: 1 for the tree, or one or two for each replica. */
static uint32_t choose(uint64_t bytes, uint64_t n) {
    const uint64_t direct_nsec = 2 * (n - 1) * (STEP_NSEC + bytes / n / LINK_BYTES);
    const uint64_t tree_nsec = 2 * levels_of((uint32_t)n) * (STEP_NSEC + bytes / LINK_BYTES);

    if (tree_nsec < direct_nsec || bytes == 0)
        return 1;
    return (uint32_t)(bytes / n >= PARTS_MAX * PART_BYTES ? PARTS_MAX * n : n);
}

uint32_t compile_all_reduce_steps(uint64_t bytes, uint32_t n_replicas) {
    const uint32_t n_chunks = choose(bytes, n_replicas);

    if (n_chunks == 1)
        return 2 * levels_of(n_replicas);
    return 2 * (n_replicas - 1) * (n_chunks / n_replicas);
}

/* After all that was done for a replica, its outputs are there. */
static int end_replica(struct reduce_row *row, uint32_t replica, struct port *ports, uint32_t end) {
    uint32_t item;
    int r = compile_item(row->compile, ITEM_NOTHING, row->node, row->spaces[replica], &item);

    if (r == 0)
        r = compile_edge(row->compile, *last_on(row, replica, CHANNEL_COPIES), item);
    if (r == 0)
        r = compile_edge(row->compile, *last_on(row, replica, CHANNEL_ADDITIONS), item);
    for (uint32_t t = 0; r == 0 && t < row->n_tensors; t++) {
        const uint32_t i = replica * row->n_tensors + t;

        r = compile_edge(row->compile, row->ready[i], item);
        if (ports[i].feed != PROGRAM_NONE)
            continue;
        ports[i].value = row->values[i];
        ports[i].after = item;
    }
    return r < 0 ? r : compile_edge(row->compile, item, end);
}

static int between_gpus(struct reduce_row *row, uint32_t local, struct port *ports) {
    struct collective *collective = reduce_collective_find(
        row->compile->request->devices, row->spaces, row->n_replicas, row->dtype);
    uint32_t end;
    int r = 0;

    row->n_chunks = choose(bytes_of(row, row->offsets[row->n_tensors]), row->n_replicas);
    row->n_parts = MAX(1u, row->n_chunks / row->n_replicas);
    row->held = nones(row->n_replicas * row->n_chunks);
    row->inbox = nones(row->n_replicas);
    row->inbox_items = nones(row->n_replicas);
    if (!row->held || !row->inbox || !row->inbox_items)
        r = -ENOMEM;
    for (uint32_t i = 0; r == 0 && i < row->node->n_inputs; i++)
        r = begin_tensor(row, i / row->n_tensors, i % row->n_tensors);
    if (r == 0)
        r = collective           ? all_at_once(row, collective)
            : row->n_chunks == 1 ? tree(row)
                                 : direct(row);
    collective_put(collective);
    if (r == 0)
        r = compile_item(row->compile, ITEM_NOTHING, row->node,
                         row->compile->placement[row->node->id], &end);
    for (uint32_t replica = 0; r == 0 && replica < row->n_replicas; replica++)
        r = end_replica(row, replica, ports, end);
    if (r == 0)
        row->compile->node_item[local] = end;
    return r;
}

/* ---- On one device --------------------------------------------------------------------------- */

static int sum_tensor(struct reduce_row *row, uint32_t tensor, uint32_t device, uint32_t *args,
                      struct kernel_value *values, uint32_t *ret_item) {
    struct compile *compile = row->compile;
    const uint32_t n = row->n_replicas;
    struct kernel_plan plan = { .node = row->node,
                                .kernel = row->add,
                                .inputs = values,
                                .outputs = &values[n],
                                .n_inputs = n,
                                .n_outputs = 1,
                                .gpu = compile->request->devices[device]->gpu };
    struct program_value sum = {
        .where = VALUE_SLAB,
        .dtype = row->dtype,
        .space = device,
        .index = PROGRAM_NONE,
        .bytes = bytes_of(row, row->offsets[tensor + 1] - row->offsets[tensor]),
        .node = row->node,
    };
    struct program_item *item;
    int r = 0;

    for (uint32_t i = 0; i <= n; i++)
        values[i] = (struct kernel_value){
            row->dtype, { 1, { (int64_t)(sum.bytes / dtype_bytes(row->dtype)) } }, NULL
        };
    for (uint32_t i = 0; r == 0 && i < n; i++) {
        const struct port *port =
            compile_port(compile, row->node->inputs[i * row->n_tensors + tensor]);

        r = compile_value_in(compile, port->value, port->after, device, &args[i], &args[n + 1 + i],
                             row->err);
    }
    if (r == 0)
        r = compile_item(compile, ITEM_KERNEL, row->node, device, ret_item);
    sum.producer = *ret_item;
    if (r == 0)
        r = compile_value(compile, &sum, &args[n]);
    if (r == 0)
        r = compile_args(compile, args, n, 1);
    if (r < 0)
        return r;
    r = row->add->prepare(&plan, row->err);
    item = &compile->program->items[*ret_item];
    item->kernel = row->add;
    item->state = plan.state;
    item->state_free = plan.state_free;
    item->run = plan.run;
    item->cost = plan.cost;
    item->pooled = plan.pooled;
    compile->program->n_kernels++;
    for (uint32_t i = 0; r == 0 && i < n; i++)
        r = compile_edge(compile, args[n + 1 + i], *ret_item);
    return r < 0 ? r : compile_controls(compile, row->node, *ret_item);
}

static int on_one_device(struct reduce_row *row, uint32_t local, struct port *ports) {
    struct compile *compile = row->compile;
    const uint32_t device = compile->placement[row->node->id], n = row->n_replicas;
    cleanup(freep) uint32_t *args = calloc(2 * (size_t)n + 1, sizeof(*args));
    cleanup(freep) struct kernel_value *values = calloc(n + 1, sizeof(*values));
    uint32_t end, item = PROGRAM_NONE;
    int r = args && values ? 0 : -ENOMEM;

    for (uint32_t t = 0; r == 0 && t < row->n_tensors; t++) {
        r = sum_tensor(row, t, device, args, values, &item);
        row->ready[t] = item;
        for (uint32_t i = t; r == 0 && i < row->node->n_inputs; i += row->n_tensors)
            if (ports[i].feed == PROGRAM_NONE) {
                ports[i].value = args[n];
                ports[i].after = item;
            }
    }
    if (r == 0)
        r = compile_item(compile, ITEM_NOTHING, row->node, device, &end);
    for (uint32_t t = 0; r == 0 && t < row->n_tensors; t++)
        r = compile_edge(compile, row->ready[t], end);
    if (r == 0)
        compile->node_item[local] = end;
    return r;
}

/* ---- The node -------------------------------------------------------------------------------- */

/* Whether each replica is on a GPU of its own. */
static bool is_between_gpus(const struct reduce_row *row) {
    for (uint32_t i = 0; i < row->n_replicas; i++) {
        if (!gpu_of(row, i))
            return false;
        for (uint32_t k = 0; k < i; k++)
            if (row->spaces[k] == row->spaces[i])
                return false;
    }
    return row->n_replicas > 1;
}

static void row_done(struct reduce_row *row) {
    free(row->spaces);
    free(row->values);
    free(row->ready);
    free(row->offsets);
    free(row->held);
    free(row->inbox);
    free(row->inbox_items);
}

static int row_init(struct reduce_row *row) {
    const uint32_t n = row->n_replicas, n_inputs = row->node->n_inputs;

    row->spaces = malloc(n * sizeof(*row->spaces));
    row->values = malloc(n_inputs * sizeof(*row->values));
    row->ready = malloc(n_inputs * sizeof(*row->ready));
    row->offsets = calloc(row->n_tensors + 1, sizeof(*row->offsets));
    if (!row->compile->channel_ends)
        row->compile->channel_ends =
            nones(GPU_CHANNELS * row->compile->request->n_devices * N_CHANNEL_STREAMS);
    if (!row->spaces || !row->values || !row->ready || !row->offsets || !row->compile->channel_ends)
        return -ENOMEM;
    for (uint32_t t = 0; t < row->n_tensors; t++)
        row->offsets[t + 1] =
            row->offsets[t] +
            (uint64_t)shape_count(&compile_port(row->compile, row->node->inputs[t])->shape);
    for (uint32_t i = 0; i < n; i++) {
        const struct port *first =
            compile_port(row->compile, row->node->inputs[i * row->n_tensors]);

        row->spaces[i] = row->compile->program->values[first->value].space;
    }
    return 0;
}

int compile_all_reduce(struct compile *compile, uint32_t local, const struct node *node,
                       struct port *ports, struct allot_error *err) {
    const uint32_t n_replicas = (uint32_t)node_int(node, "replicas");
    struct reduce_row row = {
        .compile = compile,
        .node = node,
        .err = err,
        .dtype = ports[0].dtype,
        .n_replicas = n_replicas,
        .n_tensors = node->n_inputs / n_replicas,
        .channel = compile->n_all_reduces++ % GPU_CHANNELS,
    };
    bool on_gpus;
    int r = row_init(&row);

    if (r == 0) {
        const struct device *device = compile->request->devices[compile->placement[node->id]];

        on_gpus = is_between_gpus(&row);
        row.add =
            kernel_find_op("AddN", row.dtype, on_gpus || device->is_gpu ? KERNEL_GPU : KERNEL_CPU);
        r = !row.add  ? error_set(err, -ENOTSUP,
                                  "'%s': its device has no kernel that adds up tensors of type %s",
                                  node->name, dtype_name(row.dtype))
            : on_gpus ? between_gpus(&row, local, ports)
                      : on_one_device(&row, local, ports);
    }
    row_done(&row);
    return r;
}
