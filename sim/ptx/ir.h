/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * IR: PTX as parsed. Names are resolved, operand sizes are checked, nothing is translated yet.
 *
 * Everything hangs off one module, in its arena, and is freed with it.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sim/ptx/ptx.h"

#define PTX_LANES 32

/* name, bytes of one value, class: u, s, b(its), f(loat), h(alf kinds), p(redicate) */
/* clang-format off */
#define PTX_TYPES(X)                                                                              \
    X(u8, 1, 'u') X(u16, 2, 'u') X(u32, 4, 'u') X(u64, 8, 'u') X(s8, 1, 's') X(s16, 2, 's')       \
    X(s32, 4, 's') X(s64, 8, 's') X(b8, 1, 'b') X(b16, 2, 'b') X(b32, 4, 'b') X(b64, 8, 'b')      \
    X(b128, 16, 'b') X(f16, 2, 'h') X(f16x2, 4, 'h') X(bf16, 2, 'h') X(bf16x2, 4, 'h')            \
    X(tf32, 4, 'h') X(e4m3x2, 2, 'h') X(e5m2x2, 2, 'h') X(u16x2, 4, 'u') X(s16x2, 4, 's') X(f32, 4, 'f') X(f64, 8, 'f')               \
    X(pred, 0, 'p')
/* clang-format on */

enum ptx_type {
    PTX_TYPE_NONE,
#define X(name, bytes, class) PTX_##name,
    PTX_TYPES(X)
#undef X
};

/* clang-format off */
#define PTX_OPS(X)                                                                                \
    X(abs) X(activemask) X(add) X(addc) X(alloca) X(stackrestore) X(stacksave) X(and) X(applypriority) X(atom) X(bar) X(barrier) X(bfe)  \
    X(bfi) X(bfind) X(bmsk) X(bra) X(brev) X(brkpt) X(brx) X(call) X(clz) X(cnot) X(copysign)     \
    X(cos) X(cp) X(createpolicy) X(cvt) X(cvta) X(discard) X(div) X(dp2a) X(dp4a) X(elect)        \
    X(ex2) X(exit) X(fence) X(fma) X(fns) X(getctarank) X(griddepcontrol) X(isspacep) X(ld) X(ldu) X(lg2)       \
    X(lop3) X(mad) X(mad24) X(madc) X(mapa) X(match) X(max) X(mbarrier) X(membar) X(min) X(mov) X(mul) X(mul24)       \
    X(nanosleep) X(neg) X(not) X(or) X(pmevent) X(popc) X(prefetch) X(prefetchu) X(prmt) X(rcp)   \
    X(red) X(redux) X(rem) X(ret) X(rsqrt) X(sad) X(selp) X(set) X(setp) X(shf) X(shfl) X(shl)    \
    X(shr) X(sin) X(slct) X(sqrt) X(st) X(sub) X(subc) X(szext) X(tanh) X(testp) X(trap)           \
    X(vabsdiff2) X(vabsdiff4) X(vote) X(xor)
/* clang-format on */

enum ptx_op {
    PTX_OP_NONE,
#define X(name) PTX_OP_##name,
    PTX_OPS(X)
#undef X
        PTX_N_OPS
};

/* Everything but types that may follow a dot in an opcode. "::" is written as one underscore. */
/* clang-format off */
#define PTX_MODS(X)                                                                               \
    X(rn) X(rz) X(rm) X(rp) X(rna) X(rni) X(rzi) X(rmi) X(rpi) X(ftz) X(sat) X(satfinite)         \
    X(relu) X(approx) X(full) X(cc) X(lo) X(hi) X(wide) X(noftz) X(oob) X(xorsign) X(abs) X(eq)   \
    X(ne) X(lt) X(le) X(gt) X(ge) X(ls) X(hs) X(equ) X(neu) X(ltu) X(leu) X(gtu) X(geu) X(num)    \
    X(nan) X(NaN) X(and) X(or) X(xor) X(not) X(global) X(shared) X(local) X(const) X(param)       \
    X(to) X(gen) X(shared_cta) X(shared_cluster) X(param_entry) X(param_func) X(ca) X(cg) X(cs)   \
    X(lu) X(cv) X(wb) X(wt) X(nc) X(volatile) X(relaxed) X(acquire) X(release) X(acq_rel) X(sc)   \
    X(weak) X(mmio) X(cta) X(gpu) X(gl) X(sys) X(cluster) X(proxy) X(alias) X(v2) X(v4) X(v8)     \
    X(uni) X(sync) X(aligned) X(warp) X(arrive) X(red) X(all) X(any) X(ballot) X(up) X(down)      \
    X(bfly) X(idx) X(l) X(r) X(wrap) X(clamp) X(b) X(shiftamt) X(f4e) X(b4e) X(rc8) X(ecl)        \
    X(ecr) X(rc16) X(add) X(inc) X(dec) X(min) X(max) X(cas) X(exch) X(popc) X(finite)            \
    X(infinite) X(number) X(notanumber) X(normal) X(subnormal) X(async) X(commit_group)           \
    X(wait_group) X(wait_all) X(L1) X(L2) X(launch_dependents) X(wait) X(level_L1) X(level_L2)    \
    X(hint) X(async_bulk) X(fractional) X(evict_last) X(evict_normal) X(tensormap)                \
    X(mbarrier_init) X(async_global) X(async_shared_cta) X(init) X(inval) X(arrive_drop)           \
    X(test_wait) X(try_wait) X(pending_count) X(expect_tx) X(complete_tx) X(noComplete)           \
    X(parity) X(noinc) X(mbarrier)
/* clang-format on */

enum ptx_mod {
#define X(name) PTX_MOD_##name,
    PTX_MODS(X)
#undef X
        PTX_N_MODS
};

struct ptx_mods {
    uint64_t bits[(PTX_N_MODS + 63) / 64];
};

#define PTX_HAS(mods, name) ((mods)->bits[PTX_MOD_##name / 64] >> (PTX_MOD_##name % 64) & 1)

/* One arithmetic function of the executor: how it is found, and the width of d, a, b, c:
 * h 16, w 32, q 64 bits, x 128, p predicate. */
struct ptx_code;
typedef void (*ptx_alu_fn)(void *d, const void *a, const void *b, const void *c,
                           const struct ptx_code *in);
typedef uint32_t (*ptx_cmp_fn)(const void *a, const void *b, const struct ptx_code *in);
struct ptx_alu {
    const char *key; /* "add.s32": operation, what selects it, type */
    const char *sig;
    ptx_alu_fn fn;
    ptx_cmp_fn cmp; /* instead of fn: gives one bit per lane */
};

/* "mad.lo.s32", met once and shared by every instruction that is spelled so. */
struct ptx_opcode {
    const char *text;
    uint16_t text_bytes;
    uint8_t op; /* enum ptx_op */
    uint8_t n_types;
    uint8_t types[5];      /* enum ptx_type, in order */
    uint8_t vec;           /* 1, 2, 4 or 8 */
    uint8_t space;         /* of an access: enum ptx_ir_space */
    uint16_t first_target; /* sm_… that has it; 0: all */
    struct ptx_mods mods;
    const struct ptx_alu *alu; /* NULL: not arithmetic */
};

enum ptx_ir_space {
    PTX_IN_GENERIC,
    PTX_IN_GLOBAL,
    PTX_IN_SHARED,
    PTX_IN_LOCAL,
    PTX_IN_CONST,
    PTX_IN_PARAM,
    PTX_IN_REG,
};

/* Special registers; those before the gap are one 32-lane array per warp. */
/* clang-format off */
#define PTX_SREGS(X)                                                                              \
    X(tid_x) X(tid_y) X(tid_z) X(ntid_x) X(ntid_y) X(ntid_z) X(ctaid_x) X(ctaid_y) X(ctaid_z)     \
    X(nctaid_x) X(nctaid_y) X(nctaid_z) X(laneid) X(warpid) X(nwarpid) X(smid) X(nsmid)           \
    X(lanemask_eq) X(lanemask_lt) X(lanemask_le) X(lanemask_gt) X(lanemask_ge) X(gridid)          \
    X(dynamic_smem_size) X(total_smem_size) X(zero) X(one) X(envreg1) X(envreg2)                  \
    X(reserved_begin) X(reserved_1) X(reserved_end) X(reserved_cap)
/* clang-format on */

enum ptx_sreg {
#define X(name) PTX_SREG_##name,
    PTX_SREGS(X)
#undef X
        PTX_N_LANE_SREGS,
    PTX_SREG_clock = PTX_N_LANE_SREGS,
    PTX_SREG_clock_hi,
    PTX_SREG_clock64,
    PTX_SREG_globaltimer,
    PTX_SREG_globaltimer_lo,
    PTX_SREG_globaltimer_hi,
    PTX_SREG_dynamic_smem_base, /* u32: where extern .shared begins; also of extern arrays */
};

enum ptx_operand_kind {
    PTX_OPERAND_NONE,
    PTX_OPERAND_REG,     /* reg */
    PTX_OPERAND_IMM,     /* imm; is_float: as the bits of a double */
    PTX_OPERAND_SREG,    /* reg: enum ptx_sreg */
    PTX_OPERAND_VEC,     /* count operands from fn->elems[reg] */
    PTX_OPERAND_SYM,     /* a variable's address, plus imm; or a function */
    PTX_OPERAND_LABEL,   /* reg: label */
    PTX_OPERAND_SINK,    /* _ */
    PTX_OPERAND_LIST,    /* arguments of a call: as VEC */
    PTX_OPERAND_TARGETS, /* .branchtargets: reg indexes fn->targets */
};

struct ptx_operand {
    uint8_t kind;
    uint8_t count;  /* VEC, LIST */
    bool address;   /* in brackets: kind is the base (REG, SYM, IMM), imm the offset */
    bool negate;    /* !p */
    bool is_float;  /* IMM */
    bool is_single; /* IMM: written 0f…, exact bits in the low word of imm */
    bool second;    /* the q of p|q */
    int32_t reg;
    int64_t imm;
    struct ptx_symbol *sym;
};

struct ptx_inst {
    const struct ptx_opcode *opcode;
    int32_t guard; /* predicate register; -1: none */
    bool guard_negate;
    uint8_t n_operands;
    uint32_t operands; /* index of the first in fn->operands */
    uint32_t line;
};

enum ptx_symbol_kind { PTX_SYM_VARIABLE, PTX_SYM_FUNCTION };
enum ptx_linkage { PTX_LINK_STATIC, PTX_LINK_VISIBLE, PTX_LINK_EXTERN, PTX_LINK_WEAK };

/* An address inside an initialiser. */
struct ptx_reloc {
    uint32_t offset, bytes; /* of the field */
    uint8_t shift;          /* mask(): 8 × which byte of the address */
    struct ptx_symbol *sym;
    int64_t addend;
    bool generic;
};

struct ptx_symbol {
    const char *name;
    enum ptx_symbol_kind kind;
    enum ptx_linkage linkage;
    enum ptx_ir_space space;
    uint8_t type;
    bool managed;
    bool dynamic; /* extern .shared x[]: where the launch's dynamic shared memory begins */
    bool formal;  /* a .param of the function's own signature */
    bool rest;    /* and of those the last, name[]: as long as what a call brings */
    uint32_t align;
    uint64_t bytes;      /* of a variable */
    unsigned char *init; /* NULL: zeros */
    size_t n_init;
    struct ptx_reloc *relocs;
    size_t n_relocs;
    uint64_t address; /* global, const: by place(); shared, local, param: offset */
    bool placed;
    struct ptx_function *function;
    struct ptx_symbol *target; /* what an extern or alias stands for, after link */
    const char *alias;
    size_t alias_bytes;
    uint32_t line;
    uint64_t mark;  /* of the outline that looked at it last */
    uint64_t words; /* that this needs: a bit for each of the first 63, and one for the rest */
};

struct ptx_ir_arena_block;
struct ptx_ir_arena {
    struct ptx_ir_arena_block *blocks;
    char *at;
    size_t left;
};
void *ptx_ir_arena_get(struct ptx_ir_arena *arena, size_t bytes); /* zeroed; NULL: no memory */
void ptx_ir_arena_done(struct ptx_ir_arena *arena);

/* Name → thing, for one scope chain. Later entries hide earlier ones. */
struct ptx_name {
    const char *text;
    uint32_t bytes, hash;
    int32_t depth; /* of the scope */
    uint8_t kind;  /* the parser's own */
    uint8_t type;
    int32_t value, count;
    struct ptx_symbol *sym;
    struct ptx_name *next; /* same bucket */
    struct ptx_name *prev; /* added before it */
};
struct ptx_names {
    struct ptx_name **buckets;
    size_t n_buckets, n;
    struct ptx_name *latest;
};
uint32_t ptx_ir_hash(const char *text, size_t n);
struct ptx_name *ptx_names_find(const struct ptx_names *names, const char *text, size_t n);
struct ptx_name *ptx_names_add(struct ptx_names *names, struct ptx_ir_arena *arena,
                               const char *text, size_t n); /* NULL: no memory */
void ptx_names_drop(struct ptx_names *names, int depth);    /* those deeper than `depth` */
void ptx_names_done(struct ptx_names *names);

/* A growing array inside a function; freed with it. */
struct ptx_program;
struct ptx_outline;

struct ptx_function {
    const char *name;
    struct ptx_module *module;
    struct ptx_input *input;
    struct ptx_symbol *sym;
    bool entry, defined, no_return;
    uint32_t index; /* in the module; names it in function pointers */
    uint32_t line;

    struct ptx_symbol **params, **rets; /* formals; of space PARAM or REG */
    int32_t *param_regs, *ret_regs;     /* of formals in REG */
    uint32_t n_params, n_rets;
    uint32_t param_bytes; /* entry: of the parameter buffer */
    uint32_t max_threads, required_block[3], min_blocks_per_sm;

    const char *body; /* after the brace */
    uint32_t body_line;

    uint8_t *reg_types;
    uint32_t n_regs, cap_regs;
    struct ptx_inst *insts;
    uint32_t n_insts, cap_insts;
    struct ptx_operand *operands;
    uint32_t n_operands, cap_operands;
    struct ptx_operand *elems;
    uint32_t n_elems, cap_elems;
    uint32_t *labels; /* instruction each stands before */
    uint32_t n_labels, cap_labels;
    int32_t *targets; /* lists of labels for brx.idx: count, then labels */
    uint32_t n_targets, cap_targets;

    uint32_t local_bytes;  /* .local variables and .param ones, of one call */
    uint32_t shared_bytes; /* entry: its own .shared variables */
    uint32_t shared_align;
    struct ptx_symbol **shared_vars;
    uint32_t n_shared_vars, cap_shared_vars;

    uint8_t shares; /* link: reaches module-level shared memory: 0 unknown, 1 no, 2 yes, 3 busy */
    struct ptx_program *_Atomic program;
    struct ptx_outline *outline; /* see sim/ptx/timing/outline.h, for its lock too */
    bool outlined;               /* it was tried */
};

struct ptx_input {
    const char *name;
    char *text;
    size_t n_text;
    uint32_t version, target;
    struct ptx_names names; /* all module-level names of this input */
};

struct ptx_module {
    struct ptx_ir_arena arena;
    struct ptx_input **inputs;
    size_t n_inputs;
    struct ptx_symbol **symbols; /* in order of appearance, all inputs */
    size_t n_symbols, cap_symbols;
    struct ptx_symbol **variables; /* global and const, defined: after link */
    size_t n_variables;
    struct ptx_function **functions;
    size_t n_functions, cap_functions;
    struct ptx_function **kernels;
    size_t n_kernels;
    struct ptx_opcode **opcodes; /* hash by text */
    size_t n_opcode_buckets, n_opcodes;
    uint32_t shared_bytes; /* module-level, and of device functions */
    uint32_t const_bytes;
    uint32_t dynamic_align; /* of extern .shared arrays */
    bool reserves_shared;   /* uses the shared memory that the system keeps for itself */
    bool uses_clusters;     /* asks for its cluster, or waits for it */
    bool linked;
    pthread_mutex_t lock; /* translation */
};

/* Grow `*array` to hold one more than `n`; -ENOMEM, or -E2BIG beyond 2^26 elements. */
int ptx_ir_grow(void *array, uint32_t *cap, uint32_t n, size_t element_bytes);

uint32_t ptx_ir_type_bytes(enum ptx_type type);
/* Whether the function takes more arguments than it names. */
bool ptx_link_variadic(const struct ptx_function *f);
/* Whether the function can be called with so many arguments: a variadic one may lack the rest. */
bool ptx_link_takes(const struct ptx_function *f, uint32_t n_args);
char ptx_ir_type_class(enum ptx_type type);
const char *ptx_ir_type_name(enum ptx_type type);
/* 0 if `text` is no type (without its dot). */
enum ptx_type ptx_ir_type_find(const char *text, size_t n);

/* The opcode spelled so, from the module's table. -EINVAL, -EOPNOTSUPP with the reason in err. */
int ptx_opcode_get(struct ptx_module *module, const char *text, size_t n,
                   const struct ptx_opcode **ret, struct allot_error *err);

/* The opcode's modifiers against the manual's rules. -EINVAL with the reason in err. */
int ptx_rules_check(struct ptx_opcode *opcode, struct allot_error *err);

/* Follow externs and aliases. */
struct ptx_symbol *ptx_link_resolve(struct ptx_symbol *sym);
/* Add the functions of CUDA's device runtime that the module calls, as far as we provide them. */
int ptx_runtime_add(struct ptx_module *module, struct allot_error *err);
/* Functions that the executor provides: vprintf, malloc, free, __assertfail. 0: none. */
enum ptx_builtin { PTX_NOT_BUILTIN, PTX_VPRINTF, PTX_MALLOC, PTX_FREE, PTX_ASSERTFAIL };
enum ptx_builtin ptx_ir_builtin_find(const char *name);
