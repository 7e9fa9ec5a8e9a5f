/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/engine/run_memory.h"

#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "libclient/core/buffer.h"
#include "libclient/core/wait.h"
#include "libclient/device/gpu.h"
#include "libclient/exec/engine/cache.h"
#include "libclient/exec/memory/constants.h"
#include "libclient/exec/run/run_state.h"
#include "libclient/exec/memory/alloc.h"

/* On all GPUs, by device. */
struct run_memory {
    struct program *program;
    struct alloc_part *parts;
    uint32_t n;
    struct constants_need *needs;
    uint32_t *constants;        /* the part that is their block; UINT32_MAX: none */
    struct device_block *slabs; /* zero: none */
};

static void done(struct run_memory *memory) {
    free(memory->parts);
    free(memory->needs);
    free(memory->constants);
    free(memory->slabs);
}

static void add(struct run_memory *memory, uint32_t device, uint64_t bytes, const char *tag) {
    memory->parts[memory->n++] = (struct alloc_part){ .device = memory->program->devices[device],
                                                      .bytes = bytes,
                                                      .tag = tag };
}

static int begin(struct run_memory *memory, struct program *program, bool has_constants,
                 struct allot_error *err) {
    *memory = (struct run_memory){
        .program = program,
        .parts = calloc(2 * (size_t)program->n_devices + 1, sizeof(*memory->parts)),
        .needs = calloc(program->n_devices + 1, sizeof(*memory->needs)),
        .constants = calloc(program->n_devices + 1, sizeof(*memory->constants)),
        .slabs = calloc(program->n_devices + 1, sizeof(*memory->slabs)),
    };
    if (!memory->parts || !memory->needs || !memory->constants || !memory->slabs)
        return error_set(err, -ENOMEM, "no host memory for a run");
    for (uint32_t d = 0; d < program->n_devices; d++) {
        memory->constants[d] = UINT32_MAX;
        if (!program->devices[d]->gpu)
            continue;
        if (has_constants)
            memory->needs[d] = constants_need(program, d);
        if (memory->needs[d].n) {
            memory->constants[d] = memory->n;
            add(memory, d, memory->needs[d].bytes,
                memory->needs[d].n == 1 ? "constant" : "constants");
        }
        if (program->slab_bytes[d])
            add(memory, d, program->slab_bytes[d], "step memory");
    }
    return 0;
}

/* Name the part that cannot be allocated. */
static int name(const struct run_memory *memory, uint32_t part, int r, struct allot_error *err) {
    uint32_t d = 0;

    while (memory->program->devices[d] != memory->parts[part].device)
        d++;
    return memory->constants[d] == part ? constants_name(&memory->needs[d], r, err)
                                        : run_state_no_slab(memory->program, d, r, err);
}

/* The memory may have been freed on the compute stream by a run whose queued work there still uses
 * it. Kernels are ordered behind that work by the stream; copies, on their own streams, are not. */
static int await_former_users(const struct run_memory *memory, const atomic_bool *stopped,
                              struct allot_error *err) {
    int r = 0;

    for (uint32_t p = 0; r == 0 && p < memory->n; p++)
        if (p == 0 || memory->parts[p].device != memory->parts[p - 1].device)
            r = device_await(memory->parts[p].device, stopped, err);
    return r;
}

/* Make slabs of the parts, and blocks of constants, and copy the constants there. */
static int hand_out(struct run_memory *memory, const atomic_bool *stopped,
                    struct allot_error *err) {
    int r = await_former_users(memory, stopped, err);

    for (uint32_t d = 0, p = 0; d < memory->program->n_devices; d++) {
        struct device *device = memory->program->devices[d];

        if (memory->constants[d] == p) {
            const struct alloc_part *part = &memory->parts[p++];
            struct buffer *block;

            if (r < 0) {
                device_dealloc(device, &part->block);
            } else {
                r = device_buffer_of(device, &part->block, part->bytes, part->tag, &block, err);
                if (r == 0) {
                    r = constants_copy(memory->program, d, block, stopped, err);
                    buffer_unref(block);
                }
            }
        }
        if (device->gpu && memory->program->slab_bytes[d])
            memory->slabs[d] = memory->parts[p++].block;
    }
    return r;
}

static void give_slabs(const struct run_memory *memory) {
    for (uint32_t d = 0; d < memory->program->n_devices; d++)
        if (memory->slabs[d].data)
            device_dealloc(memory->program->devices[d], &memory->slabs[d]);
}

/* -EAGAIN: the constants are gone. */
static int take(struct run_state **ret, struct cache *cache, struct cache_entry *entry,
                bool is_mine, struct variable_table *variables, struct wait *wait,
                struct allot_error *err) {
    struct memory_user user; /* until the run state is a memory user */
    struct run_memory memory;
    uint32_t failed;
    int r = begin(&memory, entry->program, is_mine, err);

    memory_user_begin(&user, entry->program, false);
    wait->user = &user;
    if (r == 0)
        r = alloc_all(memory.parts, memory.n, wait, &failed, err);
    if (r < 0 && memory.n)
        r = name(&memory, failed, r, err);
    if (r == 0)
        r = hand_out(&memory, wait->stopped, err);
    if (!cache_end_constants(cache, entry, is_mine, r == 0) && r == 0)
        r = -EAGAIN;
    if (r == 0)
        r = run_state_new(ret, entry->program, variables, memory.slabs, err);
    if (r == 0)
        memory_user_begin(&(*ret)->user, entry->program, true);
    else if (memory.slabs)
        give_slabs(&memory);
    wait->user = NULL;
    memory_user_end(&user);
    done(&memory);
    return r;
}

int run_memory_new(struct run_state **ret, struct cache *cache, struct cache_entry *entry,
                   struct variable_table *variables, struct wait *wait, struct allot_error *err) {
    bool is_mine;
    int r;

    do {
        r = cache_begin_constants(cache, entry, wait, &is_mine, err);
        if (r == 0)
            r = take(ret, cache, entry, is_mine, variables, wait, err);
    } while (r == -EAGAIN);
    return r;
}
