/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Block: its warps, shared memory and barriers. Runs on one host thread. */
#include "sim/ptx/exec/exec.h"

enum ptx_block_end { PTX_BLOCK_DONE, PTX_BLOCK_WAITS, PTX_BLOCK_STOPPED };

struct ptx_block *ptx_block_new(struct ptx_worker *worker); /* NULL: no memory */
void ptx_block_free(struct ptx_block *block);
/* Set it to the block of that number, at its beginning. */
void ptx_block_start(struct ptx_block *block, uint64_t number);
/* Run until it ends; WAITS: all its warps seem to wait for another block. */
enum ptx_block_end ptx_block_run(struct ptx_block *block);

/* One launch in progress, shared by its workers. */
enum { PTX_RESERVED_BYTES = 1024 };
/* Blocks that stand for others on a run that computes only some of them. */
enum { PTX_MAX_SAMPLES = 4 };
#define PTX_SAMPLES_ALIKE 0.01
struct ptx_samples {
    uint64_t n;
    uint64_t number[PTX_MAX_SAMPLES], weight[PTX_MAX_SAMPLES]; /* weights add up to the grid */
    double cost[PTX_MAX_SAMPLES];                              /* thread instructions of each */
    /* Instead of those: any number of samples, one from each of `n` equal stretches of the grid. */
    uint64_t n_all;
    double *costs;  /* NULL: the few above */
    uint64_t limit; /* instructions of warps that they may take together; 0: any */
};
void ptx_sample(struct ptx_samples *samples, const uint32_t grid[3], unsigned n);
/* The i-th; and which one a block is, and for how many it stands. */
uint64_t ptx_sample_number(const struct ptx_samples *samples, uint64_t i);
uint64_t ptx_sample_find(const struct ptx_samples *samples, uint64_t number, uint64_t *ret_weight);
/* Whether the few that ran are so different that others may be too. */
bool ptx_sample_differ(const struct ptx_samples *samples);
/* A place in the i-th of n stretches of n_all. */
uint64_t ptx_sample_pick(uint64_t n_all, uint64_t n, uint64_t i);
/* Three standard deviations of the sum, as a fraction of it. Neighbouring stretches of the grid are
 * taken to be alike, so their differences show how much blocks inside a stretch vary. */
double ptx_sample_uncertainty(const double *costs, uint64_t n);

struct ptx_run {
    const struct ptx_launch *launch;
    const struct ptx_program *program;
    _Atomic uint64_t next; /* block to start */
    uint64_t n_blocks, n_wanted, stride;
    struct ptx_samples samples; /* n = 0: all blocks run */
    _Atomic uint64_t n_spent;   /* instructions of warps, of samples */
    _Atomic bool over;          /* more than the samples' limit */
    _Atomic int polls; /* whether its threads wait for others: 0 not asked yet, 1 no, 2 yes */
    _Atomic bool stop;
    _Atomic int error;
    _Atomic unsigned n_workers,
        n_idle;           /* that run; of these, the ones that have only blocks that poll */
    pthread_mutex_t lock; /* fault, stats */
    struct ptx_result *result;
    uint32_t dynamic_at, shared_bytes;
    uint32_t reserved_at; /* shared memory after the program's own, where a module wants it */
    uint32_t workspace[16] __attribute__((aligned(16))); /* at PTX_GRID_BASE, if cooperative */
};

/* All blocks of the worker only poll, or no longer. */
void ptx_launch_idle(struct ptx_worker *worker, bool idle);

/* Run fn(arg, index) on the calling thread and up to n - 1 others at once; returns when all have.
 */
void ptx_pool_run(unsigned n, void (*fn)(void *arg, unsigned index), void *arg);
unsigned ptx_pool_width(void); /* how many that is at most */
