/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads: every thread of a launch goes along the kernel's outline, 32 at a time.
 *
 * The cost of a thread is a function of the numbers that its control flow depends on. Where these
 * are block numbers alone, one thread of each block is followed, and the 32 lanes are 32 blocks:
 *
 *     by blockIdx.x          lanes = blocks x, x+1 … x+31         counts × threads × other blocks
 *     by threadIdx too       lanes = threads of one block         counts × other blocks
 *
 * The sum is exact. Only if that takes more than FOLLOWED steps do some blocks stand for the rest:
 * one of each of n equal stretches of the grid, at a scattered offset in each, with n as large as
 * affordable; and again with more if the stretches differ so much that three standard deviations of
 * the sum are more than TOLERATED of it.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "sim/ptx/timing/outline.h"

#define CALL_STEPS   64                  /* what a call takes */
#define FOLLOWED     (UINT64_C(1) << 27) /* steps of warps: about half a second on one core */
#define TOLERATED    0.01
#define FIRST_PICKED UINT64_C(4096)
#define N_MEMOS      64
#define WARPS_ENOUGH 512 /* for a second thread to be worth waking */

/* Which threads of a launch are followed. */
struct thread_plan {
    const struct ptx_outline *outline;
    const struct ptx_launch *launch;
    bool by_block;     /* lanes are blocks */
    uint8_t depends;   /* on which numbers of blocks: bit 0 is x */
    uint64_t n_kinds;  /* of blocks */
    uint64_t n_each;   /* how many threads a thread that is followed stands for */
    uint64_t n_picked; /* of the kinds */
    uint64_t n_units;  /* what is followed at once: a block, or 32 */
    uint64_t limit;    /* steps that this may take */
};

struct thread_walk {
    const struct thread_plan *plan;
    struct ptx_run run;
    uint64_t limit;
    _Atomic uint64_t next, used;
    _Atomic bool over;
    double *costs; /* of units; NULL: not asked for */
    struct ptx_stats stats;
};

static uint64_t picked_kind(const struct thread_plan *plan, uint64_t i) {
    return ptx_sample_pick(plan->n_kinds, plan->n_picked, i);
}

/* The numbers of the first block of a kind. */
static void kind_block(const struct thread_plan *plan, uint64_t kind, uint32_t ret[3]) {
    for (int i = 0; i < 3; i++) {
        const uint32_t n = plan->depends >> i & 1 ? plan->launch->grid[i] : 1;

        ret[i] = (uint32_t)(kind % n);
        kind /= n;
    }
}

static uint64_t block_number(const struct ptx_launch *launch, const uint32_t id[3]) {
    return id[0] + (uint64_t)launch->grid[0] * (id[1] + (uint64_t)launch->grid[1] * id[2]);
}

static void set_lane(struct ptx_block *block, int sreg, uint32_t lane, uint32_t value) {
    ((uint32_t *)block->specials)[sreg * PTX_LANES + (int)lane] = value;
}

/* A block of one warp whose lanes are threads of up to 32 blocks. */
static void start_blocks(const struct thread_plan *plan, struct ptx_block *block, uint64_t unit) {
    const struct ptx_launch *launch = plan->launch;
    const uint64_t first = unit * PTX_LANES;
    const uint32_t n = (uint32_t)MIN(plan->n_picked - first, (uint64_t)PTX_LANES);
    const uint32_t n_threads = launch->block[0] * launch->block[1] * launch->block[2];
    struct ptx_warp *w = block->warps[0];

    w->exists = n == PTX_LANES ? ~0U : (1U << n) - 1;
    ptx_block_start(block, 0);
    for (uint32_t lane = 0; lane < PTX_LANES; lane++) {
        uint32_t id[3];

        kind_block(plan, picked_kind(plan, first + MIN(lane, n - 1)), id);
        for (int i = 0; i < 3; i++) {
            set_lane(block, PTX_SREG_ctaid_x + i, lane, id[i]);
            set_lane(block, PTX_SREG_ntid_x + i, lane, launch->block[i]);
        }
        set_lane(block, PTX_SREG_nwarpid, lane, (n_threads + PTX_LANES - 1) / PTX_LANES);
        set_lane(block, PTX_SREG_smid, lane,
                 (uint32_t)(block_number(launch, id) % MAX(launch->n_sms, 1U)));
    }
}

/* All warps of a block to their ends, one by one: they do not wait for each other. */
static void run_block(struct thread_walk *walk, struct ptx_block *block) {
    struct ptx_worker *worker = block->worker;
    void (*run)(struct ptx_warp *) = ptx_isa_get()->warp_run;

    for (uint32_t i = 0; i < block->n_warps && !worker->stop; i++) {
        struct ptx_warp *w = block->warps[i];

        while (w->live && !worker->stop) {
            const uint64_t n_calls = worker->n_calls;
            uint64_t used;

            w->n_thread_instructions = w->n_warp_instructions = 0;
            run(w);
            used = w->n_warp_instructions + CALL_STEPS * (worker->n_calls - n_calls);
            worker->stats.n_thread_instructions += w->n_thread_instructions;
            worker->stats.n_warp_instructions += w->n_warp_instructions;
            if (atomic_fetch_add(&walk->used, used) + used > walk->limit) {
                atomic_store(&walk->over, true);
                worker->stop = true;
            }
        }
    }
}

static void follow(void *arg, unsigned index) {
    struct thread_walk *walk = arg;
    const struct thread_plan *plan = walk->plan;
    struct ptx_launch launch = *plan->launch;
    struct ptx_worker *worker = aligned_alloc(64, (sizeof(*worker) + 63) & ~(size_t)63);
    struct ptx_block *block = NULL;
    uint64_t unit;

    if (worker) {
        memset(worker, 0, sizeof(*worker));
        if (plan->by_block) {
            launch.block[0] = PTX_LANES;
            launch.block[1] = launch.block[2] = 1;
        }
        worker->run = &walk->run;
        worker->launch = &launch;
        worker->program = walk->run.program;
        worker->index = index;
        block = ptx_block_new(worker);
    }
    if (!block)
        atomic_store(&walk->run.error, -ENOMEM);
    while (block && !worker->stop && (unit = atomic_fetch_add(&walk->next, 1)) < plan->n_units) {
        const uint64_t before = worker->stats.n_thread_instructions;

        if (plan->by_block) {
            start_blocks(plan, block, unit);
        } else {
            uint32_t id[3];

            kind_block(plan, picked_kind(plan, unit), id);
            ptx_block_start(block, block_number(plan->launch, id));
        }
        run_block(walk, block);
        if (walk->costs)
            walk->costs[unit] = (double)(worker->stats.n_thread_instructions - before);
        ptx_launch_refresh(worker);
        worker->stop |= atomic_load(&walk->over) || atomic_load(&walk->run.error);
    }
    pthread_mutex_lock(&walk->run.lock);
    for (size_t i = 0; worker && i < sizeof(walk->stats) / sizeof(uint64_t); i++)
        ((uint64_t *)&walk->stats)[i] += ((uint64_t *)&worker->stats)[i];
    if (worker && worker->cancelled)
        atomic_store(&walk->run.error, -ECANCELED);
    pthread_mutex_unlock(&walk->run.lock);
    ptx_block_free(block);
    free(worker);
}

static void weigh(struct ptx_stats *stats, const struct thread_plan *plan) {
    uint64_t *values = (uint64_t *)stats;

    for (size_t i = 0; i < sizeof(*stats) / sizeof(*values); i++)
        values[i] = (uint64_t)((unsigned __int128)values[i] * plan->n_each * plan->n_kinds /
                               plan->n_picked);
}

/* Follow the planned threads. -E2BIG if that takes more than `limit` steps. Optionally returns the
 * number of steps and how uncertain the sum is. */
static int walk_plan(const struct thread_plan *plan, const struct ptx_run *like, uint64_t limit,
                     struct ptx_stats *ret, uint64_t *ret_used, double *ret_uncertainty) {
    struct ptx_result result = { 0 };
    struct thread_walk walk = { .plan = plan, .limit = limit };
    cleanup(freep) double *costs = NULL;
    const uint64_t n_warps =
        plan->by_block ? plan->n_units : plan->n_units * (plan->n_each / PTX_LANES + 1);
    unsigned n_threads = (unsigned)MIN(1 + n_warps / WARPS_ENOUGH, (uint64_t)ptx_pool_width());
    int r;

    if (ret_uncertainty) {
        costs = calloc(plan->n_units, sizeof(*costs));
        if (!costs)
            return -ENOMEM;
        walk.costs = costs;
    }
    walk.run = (struct ptx_run){ .launch = plan->launch,
                                 .program = plan->outline->parts[0].program,
                                 .result = &result,
                                 .dynamic_at = like->dynamic_at,
                                 .shared_bytes = like->shared_bytes,
                                 .reserved_at = like->reserved_at };
    if (plan->launch->n_threads)
        n_threads = MIN(n_threads, plan->launch->n_threads);
    pthread_mutex_init(&walk.run.lock, NULL);
    ptx_pool_run(n_threads, follow, &walk);
    pthread_mutex_destroy(&walk.run.lock);
    r = atomic_load(&walk.run.error);
    if (!r && result.fault.kind != PTX_FAULT_NONE)
        r = -EOPNOTSUPP; /* calls too deep: computing has to show what happens then */
    if (!r && atomic_load(&walk.over))
        r = -E2BIG;
    if (r < 0)
        return r;
    if (ret_used)
        *ret_used = atomic_load(&walk.used);
    if (ret_uncertainty)
        *ret_uncertainty = ptx_sample_uncertainty(costs, plan->n_units);
    *ret = walk.stats;
    weigh(ret, plan);
    ret->n_barriers = (ret->n_barriers + PTX_LANES - 1) / PTX_LANES;
    return 0;
}

static void pick(struct thread_plan *plan, uint64_t n) {
    plan->n_picked = MIN(n, plan->n_kinds);
    plan->n_units = plan->by_block ? (plan->n_picked + PTX_LANES - 1) / PTX_LANES : plan->n_picked;
}

/* Estimate from some kinds of blocks, as many as affordable. Each step depends only on those before
 * it, and on nothing that differs from run to run. */
static int estimate(struct thread_plan *plan, const struct ptx_run *run, struct ptx_stats *ret) {
    const uint64_t all = plan->n_kinds, limit = plan->limit;
    uint64_t n = MIN(all, FIRST_PICKED), used = 0;
    double off = 1;
    int r = -E2BIG;

    for (; r == -E2BIG && n; n /= 16) {
        pick(plan, n);
        r = walk_plan(plan, run, limit, ret, &used, &off);
    }
    for (unsigned more = 1; !r && more <= 4; more *= 4) {
        struct ptx_stats better;

        if (more > 1 && off <= TOLERATED)
            break;
        n = (uint64_t)((double)plan->n_picked * (double)limit / 2 * more / (double)(used + 1));
        if (n <= plan->n_picked || plan->n_picked == all)
            break;
        pick(plan, n);
        r = walk_plan(plan, run, limit * 2 * more, &better, &used, &off);
        if (r == -E2BIG)
            return 0; /* the first ones were good enough */
        if (!r)
            *ret = better;
    }
    return r == -E2BIG ? -EOPNOTSUPP : r;
}

int ptx_threads_cost(const struct ptx_outline *outline, const struct ptx_run *run,
                     struct ptx_stats *ret) {
    const struct ptx_launch *launch = run->launch;
    struct thread_plan plan = { .outline = outline, .launch = launch, .n_kinds = 1, .n_each = 1 };
    int r;

    plan.limit = launch->follow_limit ? launch->follow_limit : FOLLOWED;
    plan.by_block = !(outline->depends & PTX_BY_TIDS);
    plan.depends = outline->depends / PTX_BY_CTAID_X;
    for (int i = 0; i < 3; i++) {
        *(plan.depends >> i & 1 ? &plan.n_kinds : &plan.n_each) *= launch->grid[i];
        if (plan.by_block)
            plan.n_each *= launch->block[i];
    }
    pick(&plan, plan.n_kinds);
    r = walk_plan(&plan, run, plan.limit, ret, NULL, NULL);
    return r == -E2BIG ? estimate(&plan, run, ret) : r;
}

/* ---- what was found before --------------------------------------------------------------------
 */

/* All that the cost of a launch depends on, then its parameters. */
struct launch_key {
    uint32_t grid[3], block[3];
    uint32_t dynamic_shared_bytes, n_sms, cooperative, unused;
};

struct ptx_threads_memo {
    unsigned n, oldest;
    struct ptx_stats stats[N_MEMOS];
    unsigned char keys[]; /* all as long as the kernel's parameters make them */
};

void ptx_threads_memo_free(struct ptx_threads_memo *memo) {
    free(memo);
}

static void make_key(const struct ptx_outline *outline, const struct ptx_launch *launch,
                     unsigned char *ret) {
    struct launch_key key = { .dynamic_shared_bytes = launch->dynamic_shared_bytes,
                              .n_sms = launch->n_sms,
                              .cooperative = launch->cooperative };

    memcpy(key.grid, launch->grid, sizeof(key.grid));
    memcpy(key.block, launch->block, sizeof(key.block));
    memcpy(ret, &key, sizeof(key));
    for (uint32_t i = 0; i < launch->kernel->param_bytes; i++)
        ret[sizeof(key) + i] = ((const unsigned char *)launch->params)[i] & outline->param_mask[i];
}

int ptx_outline_cost(struct ptx_outline *outline, const struct ptx_run *run,
                     struct ptx_stats *ret) {
    const struct ptx_launch *launch = run->launch;
    const size_t bytes = sizeof(struct launch_key) + launch->kernel->param_bytes;
    cleanup(freep) unsigned char *key = calloc(1, bytes);
    bool found = false;
    int r;

    if (!key)
        return -ENOMEM;
    make_key(outline, launch, key);
    pthread_mutex_lock(&outline->lock);
    for (unsigned i = 0; outline->memo && !found && i < outline->memo->n; i++)
        if (!memcmp(outline->memo->keys + i * bytes, key, bytes)) {
            *ret = outline->memo->stats[i];
            found = true;
        }
    pthread_mutex_unlock(&outline->lock);
    if (found)
        return 0;
    r = ptx_intervals_cost(outline, launch, ret);
    if (r == -E2BIG || r == -EOPNOTSUPP)
        r = ptx_threads_cost(outline, run, ret);
    if (r < 0)
        return r;
    pthread_mutex_lock(&outline->lock);
    if (!outline->memo)
        outline->memo = calloc(1, sizeof(*outline->memo) + N_MEMOS * bytes);
    if (outline->memo) {
        struct ptx_threads_memo *memo = outline->memo;
        const unsigned at = memo->n < N_MEMOS ? memo->n++ : memo->oldest++ % N_MEMOS;

        memcpy(memo->keys + at * bytes, key, bytes);
        memo->stats[at] = *ret;
    }
    pthread_mutex_unlock(&outline->lock);
    return 0;
}
