/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Outline: the cost of a kernel, found without its data.
 *
 * Modelled time is made of sums over threads: instructions, and bytes of accesses. Where the
 * control flow of every thread follows from parameters and from the numbers of threads and blocks,
 * these sums need no computing: outline.c reduces the kernel, intervals.c and threads.c are the two
 * ways to add up.
 */
#include "sim/ptx/exec/block.h"

/* What the control flow of a thread depends on: a bit for each number. */
enum {
    PTX_BY_TID_X = 1,
    PTX_BY_TID_Y = 2,
    PTX_BY_TID_Z = 4,
    PTX_BY_TIDS = 7,
    PTX_BY_CTAID_X = 8,
    PTX_BY_CTAID_Y = 16,
    PTX_BY_CTAID_Z = 32,
    PTX_BY_CTAIDS = 56,
};

/*
 * A counting loop: its body has no other branch, and all that controls it is
 *
 *     add  x, x, step      for one or several x
 *     setp p, x, bound     for one of them, before or after its add
 *     @p bra body
 *
 * with steps and bounds that do not change. The number of its rounds can be computed.
 */
enum { PTX_MAX_COUNTERS = 8 };
struct ptx_loop {
    struct ptx_counter {
        int32_t reg, ref;
        struct ptx_operand step;
        int32_t step_ref;
        bool subtracted;
        uint8_t bytes;
    } counters[PTX_MAX_COUNTERS];
    uint32_t n_counters;
    uint32_t compared;   /* which of the counters */
    bool compared_after; /* after its step */
    bool is_signed;      /* the comparison */
    enum ptx_mod going;  /* lt, le, gt, ge, eq, ne: the loop goes on while this holds */
    struct ptx_operand bound;
    int32_t bound_ref;
    struct ptx_stats each; /* of one thread, once round */
};

/* A function that the kernel reaches; the first is the kernel. */
struct ptx_part {
    struct ptx_function *function;
    const struct ptx_program *whole;
    struct ptx_program *program; /* reduced; owned */
    uint32_t *code_of;           /* instruction → code of either */
    uint8_t *needed;             /* per register: a branch depends on it */
    uint8_t *deciding;           /* per instruction: it is executed, others are counted */
    struct ptx_symbol **base;    /* per register: the local variable whose address it always is */
    struct ptx_loop **loops;     /* per instruction: the loop that it branches back in, or NULL */
    bool carry;                  /* a deciding one reads the carry */
};

struct ptx_threads_memo; /* what launches cost, by all that it depends on */
struct ptx_outline {
    struct ptx_part *parts;
    uint32_t n_parts, cap_parts;
    uint8_t depends;  /* PTX_BY_… */
    bool whole_warps; /* lanes look at one another: they must be those of a warp */
    bool by_lane;     /* by the number of a lane or a warp, or by where a block runs */
    uint8_t
        *param_mask; /* per byte of the kernel's parameters: 0xff where a branch depends on it */
    pthread_mutex_t lock; /* of the memo */
    struct ptx_threads_memo *memo;
};

/* NULL: control flow depends on data, or there is no memory. Lives with the module. */
struct ptx_outline *ptx_outline_get(struct ptx_function *kernel);
void ptx_outline_free(struct ptx_outline *outline);

/* Find what the control flow of all parts depends on; false: it depends on data. The caller holds
 * the lock of all outlines. */
bool ptx_control_slice_find(struct ptx_outline *outline);
/* The callee of a call; NULL: it is in a register. */
struct ptx_function *ptx_outline_callee(const struct ptx_function *f, const struct ptx_inst *inst);
struct ptx_part *ptx_outline_part(const struct ptx_outline *outline, const struct ptx_function *f);

/*
 * What the launch of `run` costs, over all of its blocks. -EOPNOTSUPP: it cannot be found this way
 * (a thread that never ends, say); -ECANCELED; -ENOMEM. The result is the same in every run, on any
 * machine.
 */
int ptx_outline_cost(struct ptx_outline *outline, const struct ptx_run *run, struct ptx_stats *ret);

/* Find the counting loops, and let the reduced program skip them. -ENOMEM. */
int ptx_loops_find(struct ptx_part *part);
/* How many more rounds a loop makes when its counter is `x` at its branch and the branch is taken;
 * 0: unknown. Numbers have the counter's width, and are signed if the comparison is. */
uint64_t ptx_loops_rounds(const struct ptx_loop *loop, int64_t x, int64_t step, int64_t bound);

/* The two ways. By intervals of blocks and threads with the same control flow: -E2BIG if there are
 * too many of these, -EOPNOTSUPP if it cannot be found. */
int ptx_intervals_cost(const struct ptx_outline *outline, const struct ptx_launch *launch,
                       struct ptx_stats *ret);
/* By following every thread, or beyond a limit some of them. */
int ptx_threads_cost(const struct ptx_outline *outline, const struct ptx_run *run,
                     struct ptx_stats *ret);
void ptx_threads_memo_free(struct ptx_threads_memo *memo);
