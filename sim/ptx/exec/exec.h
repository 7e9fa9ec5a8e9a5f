/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Executor: code, warps, blocks.
 *
 * Registers are arrays of 32 lanes (a warp). Code refers to them by `ref`: a byte offset whose low
 * two bits say from which base, so that registers, constants and special registers are all just
 * pointers to 32 values:
 *
 *     warp->base[ref & 3] + (ref & ~3)
 *
 * The files that run code are compiled once per level of the CPU's vector unit, with PTX_ISA set;
 * each build exports one struct ptx_isa, and ptx_isa_get() picks the best that the CPU has.
 */
#include <string.h>

#include "sim/ptx/ir.h"

enum { PTX_REF_FRAME, PTX_REF_CONST, PTX_REF_WARP, PTX_REF_BLOCK };

/* Flags of an instruction that its function looks at. */
enum {
    PTX_FTZ = 1,
    PTX_SAT = 2,
    PTX_RZ = 4,
    PTX_RM = 8,
    PTX_RP = 16,
    PTX_RELU = 32,
    PTX_NAN = 64,
    PTX_XORSIGN = 128,
};
uint8_t ptx_opcode_flags(const struct ptx_opcode *opcode);

struct ptx_warp;
/* Runs one instruction for the lanes in `mask` (never 0); the next one, or NULL: stop the warp. */
typedef const struct ptx_code *(*ptx_run_fn)(struct ptx_warp *w, const struct ptx_code *in,
                                             uint32_t mask);

struct ptx_code {
    ptx_alu_fn alu; /* arithmetic: d = alu(a, b, c); NULL: run does it all */
    ptx_run_fn run;
    int32_t d, a, b, c;  /* refs */
    int32_t guard;       /* offset of the predicate's word in the frame; word 0 is always 0 */
    uint32_t guard_flip; /* ~0: not negated is "word ^ 0"; an instruction without guard: word 0 */
    int64_t imm;
    const void *aux; /* branch target; refs of a vector; struct ptx_call … */
    uint8_t d_bytes; /* of one lane of d; 0: no register */
    uint8_t flags;
    uint8_t bytes; /* of one element of an access */
    uint8_t n;     /* elements of an access */
    uint16_t op;   /* what run should do, where it serves several */
    uint16_t slot; /* into the worker's cache of extents */
    uint32_t line;
    int32_t e; /* one more ref */
};

/* What is done to an mbarrier object. */
enum ptx_mbarrier_op {
    PTX_MBARRIER_INIT,
    PTX_MBARRIER_INVAL,
    PTX_MBARRIER_ARRIVE,
    PTX_MBARRIER_ARRIVE_DROP,
    PTX_MBARRIER_ARRIVE_EXPECT_TX,
    PTX_MBARRIER_EXPECT_TX,
    PTX_MBARRIER_COMPLETE_TX,
    PTX_MBARRIER_TEST,        /* by a state */
    PTX_MBARRIER_TEST_PARITY, /* by the parity of a phase */
    PTX_MBARRIER_PENDING,     /* how many a state still waited for */
    PTX_MBARRIER_AFTER_COPIES /* cp.async.mbarrier.arrive without .noinc: nothing is left to wait */
};

/* What an access needs beside ptx_code. */
struct ptx_access {
    int32_t refs[8];
    uint8_t reg_bytes[8]; /* width of each register; 0: sink */
    uint8_t sign;         /* extend with the sign */
    uint8_t space;
    uint8_t address_bytes; /* of the address register: 4 or 8 */
    uint8_t type;          /* enum ptx_type, atomics */
    uint8_t op;            /* enum ptx_mod, atomics */
    uint8_t counts_as;     /* space, for the statistics: .const is looked up as global */
};

struct ptx_call {
    struct ptx_function *callee;       /* NULL: through the register in code->a */
    const struct ptx_program *program; /* runs in place of the callee's own; NULL: its own */
    enum ptx_builtin builtin;
    uint32_t n_args, n_rets;
    /* What is copied at the call and at the return. */
    struct ptx_call_copy {
        bool reg;
        uint8_t bytes_log2; /* of a register */
        int32_t ref;        /* register; else the offset in the caller's local frame */
        uint32_t bytes;
        bool pred;
    } * args, *rets;
};

struct ptx_program {
    struct ptx_function *function;
    struct ptx_code *code;
    uint32_t n_code;
    uint32_t frame_bytes; /* predicates and registers of one call */
    uint32_t n_live_regs; /* the most 32-bit registers alive at once */
    uint32_t local_bytes;
    char *consts; /* 32-lane arrays of immediates */
    uint32_t const_bytes;
    /* Formals, for calls: in the callee's frame. */
    struct ptx_call_copy *params, *rets;
    uint32_t n_params, n_rets;
    struct ptx_ir_arena arena;
};
/* Translate a function, or wait for the thread that does. */
int ptx_program_get(struct ptx_function *function, const struct ptx_program **ret,
                    struct allot_error *err);
void ptx_program_free(struct ptx_program *program);

/* One call in progress. Lanes of one warp that called together share it. */
struct ptx_frame {
    struct ptx_frame *parent;
    const struct ptx_program *program;
    const struct ptx_call *call;      /* how it was called; NULL: kernel */
    const struct ptx_code *return_to; /* in the parent */
    char *regs;
    uint32_t lanes; /* still in it or in something it called */
    uint32_t depth;
    uint32_t local;            /* offset of its local memory */
    uint32_t grown[PTX_LANES]; /* what each lane's alloca took after it */
    struct ptx_frame *next_free;
    size_t room; /* bytes at regs */
};

enum ptx_split_state { PTX_READY, PTX_AT_BARRIER, PTX_AT_SYNC, PTX_AT_SYNC_RELEASED };

/* Lanes that run together. A warp that has not diverged has one. */
struct ptx_split {
    const struct ptx_code *pc;
    struct ptx_frame *frame;
    uint32_t mask;
    uint8_t state;
    uint8_t barrier;
};

struct ptx_warp {
    char *base[4];
    uint32_t active; /* lanes of the running split */
    uint32_t live;   /* lanes that have not exited */
    uint32_t fuel;   /* branches until the next poll */
    uint32_t spins;  /* suspicious loads and atomics until the next yield */
    struct ptx_frame *frame;
    struct ptx_block *block;
    struct ptx_worker *worker;
    uint64_t n_thread_instructions, n_warp_instructions;
    uint64_t
        n_now; /* of the first, since the warp was given its turn: for what is not arithmetic */
    struct {
        const struct ptx_code *in;
        uint32_t mask; /* lanes that have done nothing since */
        uint64_t address;
        uint64_t n, left_at; /* as n_now: at the load; when other lanes were given their turn */
        bool away;           /* they still have it */
    } poll;                  /* the last load that may wait for others */

    uint32_t n_splits, current;
    struct ptx_split splits[PTX_LANES];
    bool yielded;  /* stopped to let others run */
    bool spinning; /* and seemed to wait for them */
    uint32_t n_stale;
    uint32_t resume; /* split to go on with, plus 1; 0: the earliest */
    uint32_t index;
    uint32_t exists; /* lanes that are threads of the block */
    uint32_t cluster_arrived,
        cluster_phase; /* lanes that arrived and did not wait; when they did */

    char *local; /* lane i at i × local_stride */
    uint32_t local_stride;
    struct ptx_frame *kernel_frame, *free_frames;
    char *specials;
    char scratch[16 * PTX_LANES] __attribute__((aligned(64)));
};

struct ptx_barrier {
    uint32_t arrived, expected; /* threads; expected 0: all that live */
    uint32_t n_waiting;         /* splits */
    uint32_t count, all, any;   /* bar.red */
};

#define PTX_N_BARRIERS 16
struct ptx_block {
    struct ptx_worker *worker;
    struct ptx_block *next;
    unsigned char *shared;
    uint32_t shared_bytes;
    uint32_t n_warps, n_done;
    uint32_t n_live; /* threads */
    uint32_t id[3];
    uint64_t n_budget; /* sample mode: warp instructions left */
    char *specials;
    struct ptx_barrier barriers[PTX_N_BARRIERS + 1]; /* the last one is the cluster's */
    uint32_t cluster_phase;                          /* 0 or ~0: changes when all have arrived */
    struct ptx_warp **warps;
};

/* Memory table, for the worker. */
struct ptx_reader {
    _Atomic uint64_t seen;
    struct ptx_reader *next;
};

#define PTX_N_CACHED 128
struct ptx_run; /* one launch in progress */
struct ptx_worker {
    struct ptx_run *run;
    const struct ptx_launch *launch;
    const struct ptx_program *program;
    struct ptx_extent cache[PTX_N_CACHED];
    struct ptx_stats stats;
    uint64_t seen; /* generation of the memory table that the cache is of */
    struct ptx_reader reader;
    bool stop; /* a fault, or cancelled */
    bool cancelled;
    bool idle;          /* see ptx_launch_idle() */
    unsigned n_in_vain; /* blocks in a row that only polled */
    uint64_t n_calls;
    unsigned index;
};

/* A handler per kind of instruction that is not plain arithmetic. */
/* clang-format off */
#define PTX_RUNS(X)                                                                               \
    X(alu) X(setp) X(set) X(selp) X(pred_logic) X(cvt) X(carry) X(pack) X(unpack) X(ld) X(st)     \
    X(ld_param) X(ld_shared) X(st_shared) X(atom) X(cp_async) X(address) X(isspacep) X(sreg)      \
    X(setp_pair) X(join) X(bra) X(brx) X(call) X(ret) X(exit) X(trap) X(nop) X(fence)             \
    X(nanosleep) X(bar) X(warp_sync) X(vote) X(shfl) X(match) X(redux) X(elect) X(activemask) \
    X(mbarrier) X(alloca) X(stack) X(cluster)
/* clang-format on */

enum ptx_run_kind {
#define X(name) PTX_RUN_##name,
    PTX_RUNS(X)
#undef X
        PTX_N_RUNS
};

struct ptx_isa {
    const char *name;
    const ptx_run_fn *runs;
    const struct ptx_alu *const *tables; /* each ends with a NULL key; the list with NULL */
    void (*warp_run)(struct ptx_warp *w);
};
const struct ptx_isa *ptx_isa_get(void);
const struct ptx_alu *ptx_isa_find(const struct ptx_isa *isa, const char *key);

/* An access of the lanes in `mask`, for the statistics. */
static inline void ptx_count_access(struct ptx_warp *w, const struct ptx_code *in,
                                    const struct ptx_access *access, uint32_t mask, bool store) {
    struct ptx_stats *stats = &w->worker->stats;
    uint64_t bytes = (uint64_t)in->bytes * in->n * (uint64_t)__builtin_popcount(mask);

    switch (access->counts_as) {
    case PTX_IN_SHARED:
        *(store ? &stats->shared_write_bytes : &stats->shared_read_bytes) += bytes;
        break;
    case PTX_IN_LOCAL:
        *(store ? &stats->local_write_bytes : &stats->local_read_bytes) += bytes;
        break;
    case PTX_IN_PARAM:
    case PTX_IN_CONST:
        stats->const_read_bytes += bytes;
        break;
    default:
        *(store ? &stats->global_write_bytes : &stats->global_read_bytes) += bytes;
    }
}

/* ---- services of the files that are compiled once ------------------------------------------- */

/* Record a fault of `lane` (the first of a launch wins) and end the launch. */
__attribute__((format(printf, 6, 7))) void ptx_fault(struct ptx_warp *w, const struct ptx_code *in,
                                                     enum ptx_fault_kind kind, unsigned lane,
                                                     uint64_t address, const char *format, ...);
/* Lanes load what others may write. Rounds of waiting do not count as cost, because their number is
 * up to the host: of loads of one address with nothing done in between only the last counts. */
void ptx_control_polls(struct ptx_warp *w, const struct ptx_code *in,
                       const struct ptx_access *access, uint32_t mask);
/* Cancel flag, memory generation. True: the warp must stop. */
bool ptx_memory_poll(struct ptx_warp *w);
void ptx_launch_refresh(struct ptx_worker *worker); /* between blocks */
/* The extent of an access, into the cache slot. -EFAULT: none; -EACCES: may not be written. */
int ptx_memory_lookup(struct ptx_worker *worker, struct ptx_extent *slot, uint64_t address,
                      uint32_t bytes, bool store);
/* Host address of any generic address of one lane, NULL if there is none. */
unsigned char *ptx_memory_resolve(struct ptx_warp *w, unsigned lane, uint64_t address,
                                  uint32_t bytes, bool store, bool *ret_unbacked);
int ptx_block_local_reserve(struct ptx_warp *w, uint32_t bytes);
struct ptx_frame *ptx_block_frame_new(struct ptx_warp *w, const struct ptx_program *program);
void ptx_block_frame_release(struct ptx_warp *w, struct ptx_frame *frame);
/* Function behind a pointer value; NULL: none. */
struct ptx_function *ptx_link_function_at(const struct ptx_module *module, uint64_t pointer);
int ptx_builtin_vprintf(struct ptx_warp *w, unsigned lane, uint64_t format, uint64_t args);

/* Arrive at a barrier; both in block.c. */
void ptx_block_arrive(struct ptx_block *block, unsigned id, uint32_t expected, uint32_t n_threads);
void ptx_block_exit(struct ptx_warp *w, uint32_t mask);

uint64_t ptx_memory_enter(struct ptx_memory *memory, struct ptx_reader *reader);
void ptx_memory_leave(struct ptx_memory *memory, struct ptx_reader *reader);
uint64_t ptx_memory_generation(struct ptx_memory *memory);
int ptx_half_round(double value, bool bf16, uint8_t flags);

/* What the general conversion needs. */
enum { PTX_ROUND_N, PTX_ROUND_Z, PTX_ROUND_M, PTX_ROUND_P, PTX_ROUND_A };
struct ptx_convert {
    uint8_t to, from;             /* enum ptx_type */
    uint8_t to_bytes, from_bytes; /* of the registers */
    uint8_t round;
    bool integral; /* .rni and so on: to a whole number */
    bool sat, ftz, relu;
};
