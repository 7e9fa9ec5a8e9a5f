/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kernel and the functions it calls, reduced to the control flow of threads: instructions that
 * no branch and no guard depends on are skipped, and accesses are only counted.
 *
 *     mov.u32 %r1, %ctaid.x;                kept
 *     mad.lo.u32 %r2, %r1, 256, %r3;        kept: %p1 needs %r2
 *     setp.ge.u32 %p1, %r2, %r4;            kept: a branch needs %p1
 *     @%p1 bra done;
 *     ld.global.f32 %f1, [%rd1];            ┐ counted, as one
 *     fma.rn.f32 %f2, %f1, %f1, %f1;        ┘
 */
#include "sim/ptx/timing/outline.h"

#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "sim/ptx/build/build.h"
#include "sim/ptx/exec/control.h"

#define MAX_PARTS 4096

/* Of the marks on symbols, and of every function's outline. */
static pthread_mutex_t outlining = PTHREAD_MUTEX_INITIALIZER;

/* ---- what is left of an instruction ---------------------------------------------------------- */

static const struct ptx_code *pass_over(struct ptx_warp *w, const struct ptx_code *in,
                                        uint32_t mask) {
    (void)w, (void)mask;
    return in + 1;
}

static const struct ptx_code *count_load(struct ptx_warp *w, const struct ptx_code *in,
                                         uint32_t mask) {
    ptx_count_access(w, in, in->aux, mask, false);
    return in + 1;
}

static const struct ptx_code *count_store(struct ptx_warp *w, const struct ptx_code *in,
                                          uint32_t mask) {
    ptx_count_access(w, in, in->aux, mask, true);
    return in + 1;
}

static const struct ptx_code *count_atomic(struct ptx_warp *w, const struct ptx_code *in,
                                           uint32_t mask) {
    w->worker->stats.n_atomics += (uint64_t)__builtin_popcount(mask);
    return in + 1;
}

static const struct ptx_code *count_copy(struct ptx_warp *w, const struct ptx_code *in,
                                         uint32_t mask) {
    const uint64_t bytes = (uint64_t)in->bytes * (uint64_t)__builtin_popcount(mask);

    w->worker->stats.global_read_bytes += bytes;
    w->worker->stats.shared_write_bytes += bytes;
    return in + 1;
}

/* Several of these in a row, none guarded. */
struct bundle {
    uint32_t n;
    struct ptx_stats each; /* of one thread */
};

static const struct ptx_code *count_bundle(struct ptx_warp *w, const struct ptx_code *in,
                                           uint32_t mask) {
    const struct bundle *bundle = in->aux;
    const uint64_t n = (uint64_t)__builtin_popcount(mask);
    const uint64_t *each = (const uint64_t *)&bundle->each;
    uint64_t *stats = (uint64_t *)&w->worker->stats;

    for (size_t i = 0; i < sizeof(bundle->each) / sizeof(*each); i++)
        stats[i] += each[i] * n;
    return in + bundle->n;
}

/* ---- parts: the kernel and what it calls --------------------------------------------------------
 */

struct ptx_function *ptx_outline_callee(const struct ptx_function *f, const struct ptx_inst *inst) {
    const struct ptx_operand *o = f->operands + inst->operands;

    o += o[0].kind == PTX_OPERAND_LIST;
    return o->kind == PTX_OPERAND_SYM ? ptx_link_resolve(o->sym)->function : NULL;
}

struct ptx_part *ptx_outline_part(const struct ptx_outline *outline, const struct ptx_function *f) {
    for (uint32_t i = 0; i < outline->n_parts; i++)
        if (outline->parts[i].function == f)
            return &outline->parts[i];
    return NULL;
}

/* ---- the reduced programs ---------------------------------------------------------------------
 */

static void reduce(struct ptx_code *code, const struct ptx_inst *inst) {
    const bool has_access = code->aux != NULL;

    code->alu = NULL;
    switch (inst->opcode->op) {
    case PTX_OP_ld:
    case PTX_OP_ldu:
        code->run = count_load;
        break;
    case PTX_OP_st:
        code->run = count_store;
        break;
    case PTX_OP_atom:
    case PTX_OP_red:
        code->run = count_atomic;
        break;
    case PTX_OP_cp:
        code->run = has_access && !PTX_HAS(&inst->opcode->mods, mbarrier) ? count_copy : pass_over;
        break;
    default:
        code->run = pass_over;
    }
}

/* Branches and calls of the copy go to copies. */
static int redirect(const struct ptx_outline *outline, const struct ptx_part *part,
                    struct ptx_code *code, const struct ptx_inst *inst) {
    struct ptx_program *copy = part->program;

    if (inst->opcode->op == PTX_OP_bra) {
        code->aux = copy->code + ((const struct ptx_code *)code->aux - part->whole->code);
    } else if (inst->opcode->op == PTX_OP_brx) {
        const struct ptx_code *const *from = code->aux;
        const struct ptx_code **to =
            ptx_ir_arena_get(&copy->arena, (size_t)code->imm * sizeof(*to));

        if (!to)
            return -ENOMEM;
        for (int64_t i = 0; i < code->imm; i++)
            to[i] = copy->code + (from[i] - part->whole->code);
        code->aux = to;
    } else if (inst->opcode->op == PTX_OP_call) {
        struct ptx_call *call = ptx_ir_arena_get(&copy->arena, sizeof(*call));

        if (!call)
            return -ENOMEM;
        *call = *(const struct ptx_call *)code->aux;
        call->program = ptx_outline_part(outline, call->callee)->program;
        code->aux = call;
    } else if (inst->opcode->op == PTX_OP_trap || inst->opcode->op == PTX_OP_brkpt) {
        code->run = ptx_isa_get()->runs[PTX_RUN_exit];
    }
    return 0;
}

static bool is_counted(const struct ptx_code *code) {
    return code->guard == 0 &&
           (code->run == pass_over || code->run == count_load || code->run == count_store ||
            code->run == count_atomic || code->run == count_copy);
}

/* Merge counted instructions that follow each other. No branch leads to a place between them: a
 * branch target begins with a join, or follows an instruction that never falls through. */
static int bundle(struct ptx_program *program) {
    for (uint32_t i = 0; i < program->n_code; i++) {
        struct ptx_worker worker = { 0 };
        struct ptx_warp w = { .worker = &worker };
        struct bundle *bundle;
        uint32_t n = 0;

        while (i + n < program->n_code && is_counted(&program->code[i + n])) {
            program->code[i + n].run(&w, &program->code[i + n], 1);
            n++;
        }
        if (n < 2)
            continue;
        bundle = ptx_ir_arena_get(&program->arena, sizeof(*bundle));
        if (!bundle)
            return -ENOMEM;
        *bundle = (struct bundle){ .n = n, .each = worker.stats };
        bundle->each.n_thread_instructions = n - 1; /* and the one that the warp counts */
        program->code[i].run = count_bundle;
        program->code[i].aux = bundle;
        i += n - 1;
    }
    return 0;
}

static int reduce_part(const struct ptx_outline *outline, struct ptx_part *part) {
    const struct ptx_function *f = part->function;
    int r = 0;

    for (uint32_t i = 0; i < f->n_insts; i++) {
        struct ptx_code *code = &part->program->code[part->code_of[i]];

        if (part->deciding[i])
            r = redirect(outline, part, code, &f->insts[i]);
        else
            reduce(code, &f->insts[i]);
        if (r < 0)
            return r;
    }
    r = ptx_loops_find(part);
    return r < 0 ? r : bundle(part->program);
}

/* ---- parts -------------------------------------------------------------------------------------
 */

static int add_part(struct ptx_outline *outline, struct ptx_function *f) {
    struct ptx_part *part;
    int r;

    if (outline->n_parts == MAX_PARTS)
        return -EOPNOTSUPP;
    r = ptx_ir_grow(&outline->parts, &outline->cap_parts, outline->n_parts, sizeof(*part));
    if (r < 0)
        return r;
    part = &outline->parts[outline->n_parts++];
    *part = (struct ptx_part){ .function = f };
    r = ptx_program_get(f, &part->whole, NULL);
    if (r < 0)
        return r;
    part->needed = calloc(f->n_regs + 1, 1);
    part->deciding = calloc(f->n_insts + 1, 1);
    part->loops = calloc(f->n_insts + 1, sizeof(struct ptx_loop *));
    part->base = calloc(f->n_regs + 1, sizeof(*part->base));
    part->code_of = calloc(f->n_insts + 1, sizeof(*part->code_of));
    part->program = calloc(1, sizeof(*part->program));
    if (!part->needed || !part->deciding || !part->base || !part->loops || !part->code_of ||
        !part->program || ptx_build_code_map(f, part->code_of) < 0)
        return -ENOMEM;
    *part->program = *part->whole; /* constants and all */
    part->program->arena = (struct ptx_ir_arena){ 0 };
    part->program->code = malloc(part->whole->n_code * sizeof(*part->program->code));
    if (!part->program->code)
        return -ENOMEM;
    memcpy(part->program->code, part->whole->code,
           part->whole->n_code * sizeof(*part->program->code));
    return 0;
}

/* The kernel and all that it can call; -EOPNOTSUPP if that depends on a pointer. */
static int find_parts(struct ptx_outline *outline, struct ptx_function *kernel) {
    int r = add_part(outline, kernel);

    for (uint32_t p = 0; !r && p < outline->n_parts; p++) {
        const struct ptx_function *f = outline->parts[p].function;

        for (uint32_t i = 0; !r && i < f->n_insts; i++) {
            struct ptx_function *callee;

            if (f->insts[i].opcode->op != PTX_OP_call)
                continue;
            callee = ptx_outline_callee(f, &f->insts[i]);
            if (!callee)
                return -EOPNOTSUPP;
            if (callee->defined && !ptx_outline_part(outline, callee))
                r = add_part(outline, callee);
        }
    }
    return r;
}

void ptx_outline_free(struct ptx_outline *outline) {
    if (!outline)
        return;
    for (uint32_t i = 0; i < outline->n_parts; i++) {
        struct ptx_part *part = &outline->parts[i];

        if (part->program) {
            free(part->program->code);
            ptx_ir_arena_done(&part->program->arena);
        }
        free(part->program);
        free(part->needed);
        free(part->deciding);
        free(part->code_of);
        free(part->base);
        free(part->loops);
    }
    free(outline->parts);
    free(outline->param_mask);
    ptx_threads_memo_free(outline->memo);
    pthread_mutex_destroy(&outline->lock);
    free(outline);
}

static int build(struct ptx_function *kernel, struct ptx_outline **ret) {
    struct ptx_outline *outline = calloc(1, sizeof(*outline));
    int r;

    if (!outline)
        return -ENOMEM;
    pthread_mutex_init(&outline->lock, NULL);
    outline->param_mask = calloc(1, kernel->param_bytes + 1);
    r = outline->param_mask ? find_parts(outline, kernel) : -ENOMEM;
    if (!r && !ptx_control_slice_find(outline))
        r = -EOPNOTSUPP;
    for (uint32_t i = 0; !r && i < outline->n_parts; i++)
        r = reduce_part(outline, &outline->parts[i]);
    if (r < 0)
        ptx_outline_free(outline);
    else
        *ret = outline;
    return r;
}

struct ptx_outline *ptx_outline_get(struct ptx_function *kernel) {
    struct ptx_outline *outline;

    pthread_mutex_lock(&outlining);
    if (!kernel->outlined)
        kernel->outlined = build(kernel, &kernel->outline) != -ENOMEM;
    outline = kernel->outline;
    pthread_mutex_unlock(&outlining);
    return outline;
}
