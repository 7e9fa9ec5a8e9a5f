/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A block's warps take turns on one thread: each runs until it waits at a barrier, ends, or has
 * used up its branches. So shared memory needs no locks, and a barrier is a count.
 */
#include "sim/ptx/exec/block.h"

#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"

#define FUEL          4096
#define SPIN_ROUNDS   4 /* turns in which every warp only polled, until the block is put aside */
#define SAMPLE_LIMIT  (UINT64_C(1) << 24)
#define STACK_BYTES   (64U << 10)
#define RESERVED_1_AT 128 /* of the reserved shared memory: cooperative groups' part */
#define MAX_LOCAL     (512U << 10)

static void *get_lanes(size_t bytes) {
    void *p = aligned_alloc(64, (bytes + 63) & ~(size_t)63);

    if (p)
        memset(p, 0, (bytes + 63) & ~(size_t)63);
    return p;
}

struct ptx_frame *ptx_block_frame_new(struct ptx_warp *w, const struct ptx_program *program) {
    struct ptx_frame *frame = NULL;

    for (struct ptx_frame **p = &w->free_frames; *p; p = &(*p)->next_free)
        if ((*p)->room >= program->frame_bytes) {
            frame = *p;
            *p = frame->next_free;
            memset(frame->regs, 0, 64); /* the word that is 0, and the carry */
            break;
        }
    if (!frame) {
        frame = calloc(1, sizeof(*frame));
        if (!frame)
            return NULL;
        frame->room = program->frame_bytes;
        frame->regs = get_lanes(frame->room);
        if (!frame->regs) {
            free(frame);
            return NULL;
        }
    }
    frame->program = program;
    frame->parent = NULL;
    frame->call = NULL;
    frame->next_free = NULL;
    frame->local = frame->depth = frame->lanes = 0;
    memset(frame->grown, 0, sizeof(frame->grown));
    return frame;
}

void ptx_block_frame_release(struct ptx_warp *w, struct ptx_frame *frame) {
    frame->next_free = w->free_frames;
    w->free_frames = frame;
}

int ptx_block_local_reserve(struct ptx_warp *w, uint32_t bytes) {
    const struct ptx_launch *launch = w->worker->launch;
    uint32_t limit =
        w->worker->program->local_bytes + (launch->stack_bytes ? launch->stack_bytes : STACK_BYTES);
    uint32_t stride;
    char *grown;

    if (bytes <= w->local_stride)
        return 0;
    if (bytes > MIN(limit, MAX_LOCAL))
        return -ENOSPC;
    stride = MAX(bytes, w->local_stride * 2);
    stride = (MIN(stride, MAX_LOCAL) + 15) & ~15U;
    grown = get_lanes((size_t)stride * PTX_LANES);
    if (!grown)
        return -ENOMEM;
    for (size_t i = 0; w->local && i < PTX_LANES; i++)
        memcpy(grown + i * stride, w->local + i * w->local_stride, w->local_stride);
    free(w->local);
    w->local = grown;
    w->local_stride = stride;
    return 0;
}

static void warp_free(struct ptx_warp *w) {
    if (!w)
        return;
    if (w->kernel_frame)
        ptx_block_frame_release(w, w->kernel_frame);
    for (uint32_t i = 0; i < w->n_splits; i++) /* a launch that was cut short */
        for (struct ptx_frame *f = w->splits[i].frame; f && f != w->kernel_frame;) {
            struct ptx_frame *parent = f->parent;
            bool shared = false;

            for (uint32_t k = i + 1; k < w->n_splits; k++)
                for (struct ptx_frame *g = w->splits[k].frame; g; g = g->parent)
                    shared |= g == f;
            if (!shared)
                ptx_block_frame_release(w, f);
            f = parent;
        }
    while (w->free_frames) {
        struct ptx_frame *frame = w->free_frames;

        w->free_frames = frame->next_free;
        free(frame->regs);
        free(frame);
    }
    free(w->local);
    free(w->specials);
    free(w);
}

static struct ptx_warp *warp_new(struct ptx_block *block, uint32_t index) {
    const struct ptx_launch *launch = block->worker->launch;
    uint32_t n_threads = launch->block[0] * launch->block[1] * launch->block[2];
    struct ptx_warp *w = get_lanes(sizeof(*w));
    uint32_t *lanes;

    if (!w)
        return NULL;
    w->block = block;
    w->worker = block->worker;
    w->index = index;
    w->fuel = FUEL;
    w->specials = get_lanes(4 * 4 * PTX_LANES);
    w->kernel_frame = ptx_block_frame_new(w, block->worker->program);
    if (!w->specials || !w->kernel_frame ||
        ptx_block_local_reserve(w, MAX(block->worker->program->local_bytes, 16U)) < 0) {
        warp_free(w);
        return NULL;
    }
    lanes = (uint32_t *)w->specials;
    for (uint32_t i = 0; i < PTX_LANES; i++) {
        uint32_t thread = index * PTX_LANES + i;

        if (thread < n_threads)
            w->exists |= 1U << i;
        lanes[i] = thread % launch->block[0];
        lanes[32 + i] = thread / launch->block[0] % launch->block[1];
        lanes[64 + i] = thread / launch->block[0] / launch->block[1];
        lanes[96 + i] = index;
    }
    w->base[PTX_REF_WARP] = w->specials;
    w->base[PTX_REF_BLOCK] = block->specials;
    return w;
}

void ptx_block_free(struct ptx_block *block) {
    if (!block)
        return;
    for (uint32_t i = 0; block->warps && i < block->n_warps; i++)
        warp_free(block->warps[i]);
    free(block->warps);
    free(block->shared);
    free(block->specials);
    free(block);
}

static void fill(struct ptx_block *block, int sreg, uint32_t value) {
    uint32_t *lanes = (uint32_t *)block->specials + sreg * PTX_LANES;

    for (int i = 0; i < PTX_LANES; i++)
        lanes[i] = value;
}

static void fill_specials(struct ptx_block *block) {
    const struct ptx_launch *launch = block->worker->launch;
    const uint32_t reserved_at = block->worker->run->reserved_at;
    uint32_t *lanes = (uint32_t *)block->specials;

    for (int i = 0; i < 3; i++) {
        fill(block, PTX_SREG_ntid_x + i, launch->block[i]);
        fill(block, PTX_SREG_nctaid_x + i, launch->grid[i]);
    }
    fill(block, PTX_SREG_nwarpid, block->n_warps);
    fill(block, PTX_SREG_nsmid, MAX(launch->n_sms, 1U));
    fill(block, PTX_SREG_dynamic_smem_size, launch->dynamic_shared_bytes);
    fill(block, PTX_SREG_total_smem_size, block->worker->run->shared_bytes);
    fill(block, PTX_SREG_reserved_begin, reserved_at);
    fill(block, PTX_SREG_reserved_1, reserved_at + RESERVED_1_AT);
    fill(block, PTX_SREG_reserved_end, reserved_at + PTX_RESERVED_BYTES);
    fill(block, PTX_SREG_reserved_cap, PTX_RESERVED_BYTES);
    fill(block, PTX_SREG_one, 1);
    fill(block, PTX_SREG_envreg1, launch->cooperative ? (uint32_t)(PTX_GRID_BASE >> 32) : 0);
    fill(block, PTX_SREG_envreg2, launch->cooperative ? (uint32_t)PTX_GRID_BASE : 0);
    fill(block, PTX_N_LANE_SREGS, block->worker->run->dynamic_at);
    for (uint32_t i = 0; i < PTX_LANES; i++) {
        lanes[PTX_SREG_laneid * PTX_LANES + i] = i;
        lanes[PTX_SREG_lanemask_eq * PTX_LANES + i] = 1U << i;
        lanes[PTX_SREG_lanemask_lt * PTX_LANES + i] = (1U << i) - 1;
        lanes[PTX_SREG_lanemask_le * PTX_LANES + i] = (2U << i) - 1;
        lanes[PTX_SREG_lanemask_gt * PTX_LANES + i] = ~((2U << i) - 1);
        lanes[PTX_SREG_lanemask_ge * PTX_LANES + i] = ~((1U << i) - 1);
    }
}

struct ptx_block *ptx_block_new(struct ptx_worker *worker) {
    const struct ptx_launch *launch = worker->launch;
    uint32_t n_threads = launch->block[0] * launch->block[1] * launch->block[2];
    struct ptx_block *block = calloc(1, sizeof(*block));

    if (!block)
        return NULL;
    block->worker = worker;
    block->n_warps = (n_threads + PTX_LANES - 1) / PTX_LANES;
    block->shared_bytes = worker->run->reserved_at ? worker->run->reserved_at + PTX_RESERVED_BYTES
                                                   : worker->run->shared_bytes;
    block->shared = get_lanes(MAX(block->shared_bytes, 1U));
    block->specials = get_lanes((PTX_N_LANE_SREGS + 1) * 4 * PTX_LANES);
    block->warps = calloc(block->n_warps, sizeof(*block->warps));
    if (!block->shared || !block->specials || !block->warps)
        goto fail;
    fill_specials(block);
    for (uint32_t i = 0; i < block->n_warps; i++) {
        block->warps[i] = warp_new(block, i);
        if (!block->warps[i])
            goto fail;
    }
    return block;
fail:
    ptx_block_free(block);
    return NULL;
}

void ptx_block_start(struct ptx_block *block, uint64_t number) {
    const struct ptx_launch *launch = block->worker->launch;
    const struct ptx_program *program = block->worker->program;

    block->id[0] = (uint32_t)(number % launch->grid[0]);
    block->id[1] = (uint32_t)(number / launch->grid[0] % launch->grid[1]);
    block->id[2] = (uint32_t)(number / launch->grid[0] / launch->grid[1]);
    for (int i = 0; i < 3; i++)
        fill(block, PTX_SREG_ctaid_x + i, block->id[i]);
    fill(block, PTX_SREG_smid, (uint32_t)(number % MAX(launch->n_sms, 1U)));
    memset(block->barriers, 0, sizeof(block->barriers));
    block->cluster_phase = 0;
    block->n_done = 0;
    block->n_live = launch->block[0] * launch->block[1] * launch->block[2];
    block->n_budget = !launch->n_sample_blocks ? 0
                      : launch->sample_limit   ? launch->sample_limit
                                               : SAMPLE_LIMIT;
    for (uint32_t i = 0; i < block->n_warps; i++) {
        struct ptx_warp *w = block->warps[i];

        w->live = w->exists;
        w->kernel_frame->lanes = w->exists;
        memset(w->kernel_frame->regs, 0, 64); /* the carry */
        memset(w->kernel_frame->grown, 0, sizeof(w->kernel_frame->grown));
        w->n_splits = 1;
        w->current = w->resume = w->n_stale = w->spins = 0;
        w->fuel = FUEL;
        w->cluster_arrived = 0;
        w->poll.in = NULL;
        w->splits[0] =
            (struct ptx_split){ .pc = program->code, .frame = w->kernel_frame, .mask = w->exists };
    }
}

/* Write the result of bar.red for one split that waited. */
static void give_reduction(struct ptx_split *s, const struct ptx_barrier *barrier) {
    const struct ptx_code *in = s->pc - 1;
    uint32_t *word = (uint32_t *)(s->frame->regs + (in->d & ~3));

    if (in->op == 2) {
        for (uint32_t rest = s->mask; rest; rest &= rest - 1)
            word[__builtin_ctz(rest)] = barrier->count;
    } else if (in->op > 2) {
        bool yes = in->op == 3 ? barrier->all : barrier->any;

        *word = yes ? *word | s->mask : *word & ~s->mask;
    }
}

static void release(struct ptx_block *block, unsigned id) {
    struct ptx_barrier *barrier = &block->barriers[id];

    for (uint32_t i = 0; i < block->n_warps; i++) {
        struct ptx_warp *w = block->warps[i];

        for (uint32_t k = 0; k < w->n_splits; k++) {
            struct ptx_split *s = &w->splits[k];

            if (s->state == PTX_AT_BARRIER && s->barrier == id) {
                s->state = PTX_READY;
                give_reduction(s, barrier);
            }
        }
    }
    *barrier = (struct ptx_barrier){ 0 };
    if (id == PTX_N_BARRIERS)
        block->cluster_phase = ~block->cluster_phase;
}

void ptx_block_arrive(struct ptx_block *block, unsigned id, uint32_t expected, uint32_t n_threads) {
    struct ptx_barrier *barrier = &block->barriers[id];

    barrier->arrived += n_threads;
    barrier->expected = expected;
    if (barrier->arrived >= (expected ? expected : block->n_live))
        release(block, id);
}

void ptx_block_exit(struct ptx_warp *w, uint32_t mask) {
    struct ptx_block *block = w->block;

    block->n_live -= (uint32_t)__builtin_popcount(mask);
    if (!w->live)
        block->n_done++;
    for (unsigned id = 0; id <= PTX_N_BARRIERS; id++) {
        const struct ptx_barrier *barrier = &block->barriers[id];

        if (barrier->arrived && !barrier->expected && barrier->arrived >= block->n_live)
            release(block, id);
    }
}

static bool can_run(const struct ptx_warp *w) {
    for (uint32_t i = 0; i < w->n_splits; i++)
        if (w->splits[i].state != PTX_AT_BARRIER)
            return true;
    return false;
}

enum ptx_block_end ptx_block_run(struct ptx_block *block) {
    struct ptx_worker *worker = block->worker;
    void (*run)(struct ptx_warp *) = ptx_isa_get()->warp_run;
    unsigned n_spins = 0;

    while (block->n_done < block->n_warps) {
        bool ran = false, all_spin = true;
        uint64_t used = 0;

        for (uint32_t i = 0; i < block->n_warps; i++) {
            struct ptx_warp *w = block->warps[i];

            if (!can_run(w))
                continue;
            w->yielded = w->spinning = false;
            w->n_thread_instructions = w->n_warp_instructions = 0;
            run(w);
            worker->stats.n_thread_instructions += w->n_thread_instructions;
            worker->stats.n_warp_instructions += w->n_warp_instructions;
            used += w->n_warp_instructions;
            if (worker->stop)
                return PTX_BLOCK_STOPPED;
            ran = true;
            all_spin &= w->yielded && w->spinning;
        }
        if (!ran) {
            struct ptx_warp *w = block->warps[0];

            for (uint32_t i = 0; i < block->n_warps && !w->n_splits; i++)
                w = block->warps[i];
            ptx_fault(w, NULL, PTX_FAULT_DEADLOCK,
                      w->n_splits ? (unsigned)__builtin_ctz(w->splits[0].mask) : 0, 0,
                      "all %u threads wait at barriers that others cannot reach", block->n_live);
            return PTX_BLOCK_STOPPED;
        }
        if (block->n_budget) {
            if (used >= block->n_budget)
                return PTX_BLOCK_DONE; /* a sample: long enough to tell the rate */
            block->n_budget -= used;
        }
        n_spins = all_spin ? n_spins + 1 : 0;
        if (!all_spin && worker->idle)
            ptx_launch_idle(worker, false);
        if (n_spins >= SPIN_ROUNDS)
            return PTX_BLOCK_WAITS;
    }
    return PTX_BLOCK_DONE;
}
