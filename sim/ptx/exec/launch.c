/* SPDX-License-Identifier: Apache-2.0 */
/* Launch: blocks distributed over host threads, and their results added up. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "sim/ptx/timing/outline.h"

#define MAX_SHARED_BYTES (228U << 10)
#define WARPS_PER_HELPER 128
#define IN_VAIN          256 /* turns of blocks that only polled, until the worker counts as idle */
#define MORE_SPENT       (UINT64_C(1) << 24) /* instructions of warps, where samples differ */
#define MORE_FIRST       UINT64_C(64)
#define MAX_RESIDENT     64 /* blocks put aside by one thread, unless the launch is cooperative */

void ptx_launch_refresh(struct ptx_worker *worker) {
    const struct ptx_launch *launch = worker->launch;
    uint64_t generation;

    if (atomic_load_explicit(&worker->run->stop, memory_order_relaxed))
        worker->stop = true;
    if (launch->cancel && atomic_load_explicit(launch->cancel, memory_order_relaxed))
        worker->cancelled = worker->stop = true;
    generation = ptx_memory_generation(launch->memory);
    if (generation != worker->seen) {
        memset(worker->cache, 0, sizeof(worker->cache));
        worker->seen = generation;
        atomic_store(&worker->reader.seen, generation);
    }
}

static void add_stats(struct ptx_stats *to, const struct ptx_stats *from) {
    uint64_t *a = (uint64_t *)to;
    const uint64_t *b = (const uint64_t *)from;

    for (size_t i = 0; i < sizeof(*to) / sizeof(*a); i++)
        a[i] += b[i];
}

/* Blocks of a worker: one that runs, and those put aside because they wait for others. */
struct resident {
    struct ptx_block *waiting, **last; /* oldest first */
    struct ptx_block *spare;
    unsigned n_waiting;
};

static bool next_number(struct ptx_run *run, uint64_t *ret) {
    uint64_t i = atomic_fetch_add(&run->next, 1);

    if (i >= run->n_wanted)
        return false;
    *ret = run->samples.n ? ptx_sample_number(&run->samples, i) : i;
    return true;
}

/* What a sampled block did since `before` counts for all that it stands for. */
static void weigh(struct ptx_worker *worker, const struct ptx_block *block,
                  const struct ptx_stats *before) {
    struct ptx_samples *samples = &worker->run->samples;
    const uint32_t *grid = worker->launch->grid;
    const uint64_t number =
        block->id[0] + (uint64_t)grid[0] * (block->id[1] + (uint64_t)grid[1] * block->id[2]);
    uint64_t *now = (uint64_t *)&worker->stats;
    const uint64_t *then = (const uint64_t *)before;
    uint64_t weight, spent = worker->stats.n_warp_instructions - before->n_warp_instructions;
    const uint64_t i = ptx_sample_find(samples, number, &weight);

    (samples->costs ? samples->costs : samples->cost)[i] +=
        (double)(worker->stats.n_thread_instructions - before->n_thread_instructions);
    for (size_t k = 0; k < sizeof(*before) / sizeof(*now); k++)
        now[k] += (now[k] - then[k]) * (weight - 1);
    spent += atomic_fetch_add(&worker->run->n_spent, spent);
    if (samples->limit && spent > samples->limit) {
        atomic_store(&worker->run->over, true);
        atomic_store(&worker->run->stop, true);
    }
}

/* A block to run: a new one while there are any and room, else the oldest that waits. */
static struct ptx_block *pick(struct ptx_worker *worker, struct resident *resident) {
    struct ptx_block *block;
    uint64_t number;

    if ((worker->launch->cooperative || resident->n_waiting < MAX_RESIDENT) &&
        next_number(worker->run, &number)) {
        block = resident->spare ? TAKE(resident->spare) : ptx_block_new(worker);
        if (!block) {
            atomic_store(&worker->run->error, -ENOMEM);
            atomic_store(&worker->run->stop, true);
            return NULL;
        }
        ptx_block_start(block, number);
        return block;
    }
    block = resident->waiting;
    if (block) {
        resident->waiting = block->next;
        if (!resident->waiting)
            resident->last = &resident->waiting;
        resident->n_waiting--;
    }
    return block;
}

void ptx_launch_idle(struct ptx_worker *worker, bool idle) {
    struct ptx_run *run = worker->run;

    worker->n_in_vain = 0;
    if (worker->idle == idle)
        return;
    worker->idle = idle;
    if (idle)
        atomic_fetch_add(&run->n_idle, 1);
    else
        atomic_fetch_sub(&run->n_idle, 1);
    if (run->launch->waiting)
        atomic_store(run->launch->waiting,
                     atomic_load(&run->n_idle) == atomic_load(&run->n_workers));
}

static void work(void *arg, unsigned index) {
    struct ptx_run *run = arg;
    struct ptx_worker *worker = aligned_alloc(64, (sizeof(*worker) + 63) & ~(size_t)63);
    struct resident resident = { .last = &resident.waiting };
    struct ptx_block *block;

    if (!worker) {
        atomic_store(&run->error, -ENOMEM);
        return;
    }
    memset(worker, 0, sizeof(*worker));
    worker->run = run;
    worker->launch = run->launch;
    worker->program = run->program;
    worker->index = index;
    atomic_fetch_add(&run->n_workers, 1);
    worker->seen = ptx_memory_enter(run->launch->memory, &worker->reader);
    ptx_launch_refresh(worker);
    while (!worker->stop && (block = pick(worker, &resident))) {
        const struct ptx_stats before = worker->stats;
        enum ptx_block_end end = ptx_block_run(block);

        if (run->samples.n)
            weigh(worker, block, &before);
        if (end != PTX_BLOCK_WAITS)
            ptx_launch_idle(worker, false);
        else if (++worker->n_in_vain >= IN_VAIN)
            ptx_launch_idle(worker, true);
        if (end == PTX_BLOCK_WAITS) {
            block->next = NULL;
            *resident.last = block;
            resident.last = &block->next;
            resident.n_waiting++;
            if (resident.n_waiting == 1 && atomic_load(&run->next) >= run->n_wanted)
                sched_yield(); /* what it waits for runs on another thread */
        } else {
            worker->stats.n_blocks += end == PTX_BLOCK_DONE;
            if (worker->cancelled)
                ptx_fault(block->warps[0], NULL, PTX_FAULT_CANCELLED, 0, 0, "cancelled");
            if (resident.spare)
                ptx_block_free(block);
            else
                resident.spare = block;
        }
        ptx_launch_refresh(worker);
    }
    ptx_launch_idle(worker, false);
    atomic_fetch_sub(&run->n_workers, 1);
    ptx_memory_leave(run->launch->memory, &worker->reader);
    pthread_mutex_lock(&run->lock);
    add_stats(&run->result->stats, &worker->stats);
    if (worker->cancelled && run->result->fault.kind == PTX_FAULT_NONE)
        run->result->fault = (struct ptx_fault){ .kind = PTX_FAULT_CANCELLED,
                                                 .kernel = run->program->function->name,
                                                 .text = "cancelled" };
    pthread_mutex_unlock(&run->lock);
    ptx_block_free(resident.spare);
    while (resident.waiting) {
        block = resident.waiting;
        resident.waiting = block->next;
        ptx_block_free(block);
    }
    free(worker);
}

static int check(const struct ptx_launch *launch, struct allot_error *err) {
    const struct ptx_function *f = launch->kernel;
    uint64_t n_threads = (uint64_t)launch->block[0] * launch->block[1] * launch->block[2];

    if (!f->entry)
        return error_set(err, -EINVAL, "'%s' is no kernel", f->name);
    for (int i = 0; i < 3; i++) {
        if (!launch->grid[i] || !launch->block[i])
            return error_set(err, -EINVAL, "'%s': a dimension is 0", f->name);
        if (launch->grid[i] > (i ? 65535U : INT32_MAX) || launch->block[i] > (i < 2 ? 1024U : 64U))
            return error_set(err, -EINVAL, "'%s': a dimension is too large", f->name);
        if (f->required_block[0] && f->required_block[i] != launch->block[i])
            return error_set(err, -EINVAL, "'%s' requires blocks of %u x %u x %u", f->name,
                             f->required_block[0], f->required_block[1], f->required_block[2]);
    }
    if (n_threads > f->max_threads)
        return error_set(err, -EINVAL, "'%s': %llu threads in a block, at most %u", f->name,
                         (unsigned long long)n_threads, f->max_threads);
    if (launch->param_bytes < f->param_bytes)
        return error_set(err, -EINVAL, "'%s' takes %u bytes of parameters, not %zu", f->name,
                         f->param_bytes, launch->param_bytes);
    return 0;
}

/* The cost of a launch without computing it; false: it depends on data. */
static bool outlined(const struct ptx_run *run, struct ptx_result *ret, int *ret_error) {
    struct ptx_outline *outline = ptx_outline_get(run->launch->kernel);
    struct ptx_stats stats = { 0 };
    int r = outline ? ptx_outline_cost(outline, run, &stats) : -EOPNOTSUPP;

    if (r == -EOPNOTSUPP)
        return false;
    stats.n_blocks = 0;
    ret->stats = stats;
    if (r == -ECANCELED)
        ret->fault = (struct ptx_fault){ .kind = PTX_FAULT_CANCELLED,
                                         .kernel = run->launch->kernel->name,
                                         .text = "cancelled" };
    *ret_error = r == -ECANCELED ? 0 : r;
    return true;
}

static int run_blocks(struct ptx_run *run) {
    const struct ptx_launch *launch = run->launch;
    uint64_t n_threads = launch->n_threads;

    run->n_wanted = run->samples.n ? run->samples.n : run->n_blocks;
    pthread_mutex_init(&run->lock, NULL);
    if (!n_threads) { /* waking a helper costs as much as running some warps */
        n_threads = (uint64_t)launch->block[0] * launch->block[1] * launch->block[2];
        n_threads = 1 + n_threads * run->n_wanted / (PTX_LANES * WARPS_PER_HELPER);
        n_threads = MIN(n_threads, (uint64_t)ptx_pool_width());
    }
    ptx_pool_run((unsigned)MIN(n_threads, run->n_wanted), work, run);
    pthread_mutex_destroy(&run->lock);
    return atomic_load(&run->error);
}

/*
 * If the few samples differ, run as many blocks as affordable: first some, which show the cost of a
 * block, then more if these differ so much that their sum is uncertain. Each step depends only on
 * those before it. If a step takes too long or faults, the earlier result stands: memory has no
 * meaningful contents here, so a fault tells nothing.
 */
static int sample_more(struct ptx_run *first) {
    const struct ptx_launch *launch = first->launch;
    const uint64_t all = first->n_blocks;
    const uint32_t *grid = launch->grid;
    const bool one_way = all == grid[0] || all == grid[1] || all == grid[2];
    const uint64_t limit = launch->sample_limit ? launch->sample_limit : MORE_SPENT;
    uint64_t spent = atomic_load(&first->n_spent), n_before = first->samples.n;

    if (first->result->fault.kind != PTX_FAULT_NONE || !ptx_sample_differ(&first->samples))
        return 0;
    for (int step = 0; step < 2; step++) {
        const double affordable = (double)n_before * (double)limit / (double)(spent + 1);
        const uint64_t wanted = step ? all : MIN(all, MORE_FIRST);
        const double stretched = step ? 2 * affordable : affordable; /* if that gets all */
        const uint64_t n = stretched < (double)wanted ? (uint64_t)affordable : wanted;
        cleanup(freep) double *costs = NULL;
        struct ptx_result result = { 0 };
        struct ptx_run run = { .launch = launch,
                               .program = first->program,
                               .result = &result,
                               .n_blocks = all,
                               .dynamic_at = first->dynamic_at,
                               .shared_bytes = first->shared_bytes,
                               .reserved_at = first->reserved_at };
        int r;

        if (n <= n_before)
            return 0;
        costs = calloc(n, sizeof(*costs));
        if (!costs)
            return -ENOMEM;
        run.samples =
            (struct ptx_samples){ .n = n, .n_all = all, .costs = costs, .limit = 4 * limit };
        r = run_blocks(&run);
        if (r < 0)
            return r;
        if (result.fault.kind == PTX_FAULT_CANCELLED)
            first->result->fault = result.fault;
        if (result.fault.kind != PTX_FAULT_NONE || atomic_load(&run.over))
            return 0;
        /*
         * The few samples told the ends of a multi-dimensional grid apart; these do so only if all
         * blocks ran.
         */
        if (one_way || n == all)
            first->result->stats = result.stats;
        if (n == all || ptx_sample_uncertainty(costs, n) <= PTX_SAMPLES_ALIKE)
            return 0;
        n_before = n;
        spent = atomic_load(&run.n_spent);
    }
    return 0;
}

int ptx_launch(const struct ptx_launch *launch, struct ptx_result *ret, struct allot_error *err) {
    struct ptx_run run = { .launch = launch, .result = ret };
    const struct ptx_function *f = launch->kernel;
    uint32_t align = MAX(f->module->dynamic_align, 16U);
    int r = check(launch, err);

    if (r < 0)
        return r;
    r = ptx_program_get(launch->kernel, &run.program, err);
    if (r < 0)
        return r == -ENOMEM ? r : -EBADMSG;
    run.dynamic_at = (f->shared_bytes + align - 1) & ~(align - 1);
    run.shared_bytes = launch->dynamic_shared_bytes ? run.dynamic_at + launch->dynamic_shared_bytes
                                                    : f->shared_bytes;
    if (launch->dynamic_shared_bytes > MAX_SHARED_BYTES || run.shared_bytes > MAX_SHARED_BYTES)
        return error_set(err, -EINVAL, "'%s': %u bytes of shared memory, at most %u", f->name,
                         run.shared_bytes, MAX_SHARED_BYTES);
    if (f->module->reserves_shared) /* not at 0, where it is on hardware: there is our own */
        run.reserved_at = MAX((run.shared_bytes + 127) & ~127U, 128U);

    *ret = (struct ptx_result){ 0 };
    run.n_blocks = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
    if (launch->n_sample_blocks && !launch->by_samples && outlined(&run, ret, &r))
        return r < 0 ? error_set(err, r, "'%s': out of memory", f->name) : 0;
    if (launch->n_sample_blocks && !launch->cooperative) /* these wait for all the others */
        ptx_sample(&run.samples, launch->grid, launch->n_sample_blocks);
    r = run_blocks(&run);
    if (!r && run.samples.n && run.samples.n < run.n_blocks)
        r = sample_more(&run);
    return r < 0 ? error_set(err, r, "'%s': out of memory", f->name) : 0;
}
