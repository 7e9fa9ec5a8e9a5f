/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/memory/run_memory.h"

#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "libclient/core/buffer.h"
#include "libclient/device/gpu.h"
#include "libclient/exec/plan/cache.h"
#include "libclient/exec/memory/constants.h"
#include "libclient/exec/run/run_state.h"
#include "libclient/exec/memory/alloc.h"

/* On all GPUs, by device. */
struct outfit {
    struct program *program;
    struct spare_part *parts;
    uint32_t n;
    struct constants_need *needs;
    uint32_t *constants;        /* the part that is their block; UINT32_MAX: none */
    struct device_block *slabs; /* zero: none */
};

static void done(struct outfit *outfit) {
    free(outfit->parts);
    free(outfit->needs);
    free(outfit->constants);
    free(outfit->slabs);
}

static void add(struct outfit *outfit, uint32_t device, uint64_t bytes, const char *tag) {
    outfit->parts[outfit->n++] = (struct spare_part){ .device = outfit->program->devices[device],
                                                      .bytes = bytes,
                                                      .tag = tag };
}

static int begin(struct outfit *outfit, struct program *program, bool has_constants,
                 struct allot_error *err) {
    *outfit = (struct outfit){
        .program = program,
        .parts = calloc(2 * (size_t)program->n_devices + 1, sizeof(*outfit->parts)),
        .needs = calloc(program->n_devices + 1, sizeof(*outfit->needs)),
        .constants = calloc(program->n_devices + 1, sizeof(*outfit->constants)),
        .slabs = calloc(program->n_devices + 1, sizeof(*outfit->slabs)),
    };
    if (!outfit->parts || !outfit->needs || !outfit->constants || !outfit->slabs)
        return error_set(err, -ENOMEM, "no host memory for a run");
    for (uint32_t d = 0; d < program->n_devices; d++) {
        outfit->constants[d] = UINT32_MAX;
        if (!program->devices[d]->gpu)
            continue;
        if (has_constants)
            outfit->needs[d] = constants_need(program, d);
        if (outfit->needs[d].n) {
            outfit->constants[d] = outfit->n;
            add(outfit, d, outfit->needs[d].bytes,
                outfit->needs[d].n == 1 ? "constant" : "constants");
        }
        if (program->slab_bytes[d])
            add(outfit, d, program->slab_bytes[d], "step memory");
    }
    return 0;
}

/* Whose part it is that cannot be had. */
static int name(const struct outfit *outfit, uint32_t part, int r, struct allot_error *err) {
    uint32_t d = 0;

    while (outfit->program->devices[d] != outfit->parts[part].device)
        d++;
    return outfit->constants[d] == part ? constants_name(&outfit->needs[d], r, err)
                                        : frame_no_slab(outfit->program, d, r, err);
}

/* What was had may have been given back on the compute stream, by who has work queued there that
 * still uses it. Kernels come behind that by themselves, but not copies, on streams of their own.
 */
static int await_former_users(const struct outfit *outfit, const atomic_bool *stopped,
                              struct allot_error *err) {
    int r = 0;

    for (uint32_t p = 0; r == 0 && p < outfit->n; p++)
        if (p == 0 || outfit->parts[p].device != outfit->parts[p - 1].device)
            r = device_await(outfit->parts[p].device, stopped, err);
    return r;
}

/* Parts become slabs, and blocks of constants, which are copied there. */
static int hand_out(struct outfit *outfit, const atomic_bool *stopped, struct allot_error *err) {
    int r = await_former_users(outfit, stopped, err);

    for (uint32_t d = 0, p = 0; d < outfit->program->n_devices; d++) {
        struct device *device = outfit->program->devices[d];

        if (outfit->constants[d] == p) {
            const struct spare_part *part = &outfit->parts[p++];
            struct buffer *block;

            if (r < 0) {
                device_dealloc(device, &part->block);
            } else {
                r = device_buffer_of(device, &part->block, part->bytes, part->tag, &block, err);
                if (r == 0) {
                    r = constants_copy(outfit->program, d, block, stopped, err);
                    buffer_unref(block);
                }
            }
        }
        if (device->gpu && outfit->program->slab_bytes[d])
            outfit->slabs[d] = outfit->parts[p++].block;
    }
    return r;
}

static void give_slabs(const struct outfit *outfit) {
    for (uint32_t d = 0; d < outfit->program->n_devices; d++)
        if (outfit->slabs[d].data)
            device_dealloc(outfit->program->devices[d], &outfit->slabs[d]);
}

/* -EAGAIN: the constants are gone. */
static int take(struct frame **ret, struct cache *cache, struct cache_entry *entry, bool is_mine,
                struct variables *variables, const struct spare_wait *given,
                struct allot_error *err) {
    struct tenant tenant; /* until the frame is one */
    const struct spare_wait wait = { .until_nsec = given->until_nsec,
                                     .stopped = given->stopped,
                                     .tenant = &tenant };
    struct outfit outfit;
    uint32_t failed;
    int r = begin(&outfit, entry->program, is_mine, err);

    tenant_begin(&tenant, entry->program, false);
    if (r == 0)
        r = spare_alloc_all(outfit.parts, outfit.n, &wait, &failed, err);
    if (r < 0 && outfit.n)
        r = name(&outfit, failed, r, err);
    if (r == 0)
        r = hand_out(&outfit, wait.stopped, err);
    if (!constants_end(cache, entry, is_mine, r == 0) && r == 0)
        r = -EAGAIN;
    if (r == 0)
        r = frame_new(ret, entry->program, variables, outfit.slabs, err);
    if (r == 0)
        tenant_begin(&(*ret)->tenant, entry->program, true);
    else if (outfit.slabs)
        give_slabs(&outfit);
    tenant_end(&tenant);
    done(&outfit);
    return r;
}

int outfit_new(struct frame **ret, struct cache *cache, struct cache_entry *entry,
               struct variables *variables, const struct spare_wait *wait,
               struct allot_error *err) {
    bool is_mine;
    int r;

    do {
        r = constants_begin(cache, entry, wait, &is_mine, err);
        if (r == 0)
            r = take(ret, cache, entry, is_mine, variables, wait, err);
    } while (r == -EAGAIN);
    return r;
}
