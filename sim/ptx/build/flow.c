/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Liveness over basic blocks, then one interval per register and a linear scan:
 *
 *      instruction   0 1 2 3 4 5 6 7 8
 *      %r1             ├─────┤             place 0
 *      %r2               ├───────┤         place 1
 *      %r3                   ├───────┤     place 0 again: %r1 was last read where %r3 is written
 *
 * Lanes that diverged are at different instructions at the same time, and still may share places:
 * each lane has its own 1/32 of a register, and follows the intervals on its own path.
 */
#include "sim/ptx/build/flow.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

#define MAX_SET_BYTES                                                                              \
    (UINT64_C(32) << 20) /* of all bit sets; beyond it every register is alone                     \
                          */

struct basic_block {
    uint32_t first, end; /* instructions */
    uint64_t *use, *def, *in, *out;
};

struct flow {
    const struct ptx_function *f;
    struct basic_block *blocks;
    uint32_t n_blocks;
    uint32_t *block_of; /* per instruction; n_insts + 1 */
    uint64_t *sets;
    uint32_t n_words;
    uint32_t *start, *end; /* per register, in half instructions; end 0: never seen */
};

uint32_t ptx_flow_writes(const struct ptx_inst *inst, const struct ptx_operand *operands) {
    switch (inst->opcode->op) {
    case PTX_OP_st:
    case PTX_OP_red:
    case PTX_OP_bra:
    case PTX_OP_brx:
    case PTX_OP_nanosleep:
    case PTX_OP_membar:
    case PTX_OP_fence:
    case PTX_OP_prefetch:
    case PTX_OP_prefetchu:
    case PTX_OP_cp:
    case PTX_OP_discard:
    case PTX_OP_applypriority:
    case PTX_OP_pmevent:
    case PTX_OP_stackrestore:
        return 0;
    case PTX_OP_bar:
    case PTX_OP_barrier:
        return PTX_HAS(&inst->opcode->mods, red) ? 1 : 0;
    case PTX_OP_mbarrier:
        return inst->n_operands && !operands[0].address;
    case PTX_OP_call:
        return inst->n_operands && operands[0].kind == PTX_OPERAND_LIST ? 1 : 0;
    default:
        return inst->n_operands > 1 && operands[1].second ? 3 : 1;
    }
}

bool ptx_flow_ends(const struct ptx_inst *inst) {
    if (inst->guard >= 0)
        return false;
    switch (inst->opcode->op) {
    case PTX_OP_bra:
    case PTX_OP_brx:
    case PTX_OP_ret:
    case PTX_OP_exit:
    case PTX_OP_trap:
        return true;
    default:
        return false;
    }
}

static bool splits(const struct ptx_inst *inst) {
    enum ptx_op op = inst->opcode->op;

    return op == PTX_OP_bra || op == PTX_OP_brx || op == PTX_OP_ret || op == PTX_OP_exit ||
           op == PTX_OP_trap;
}

/* Arithmetic reads and writes lane by lane, so its result may reuse the storage of an operand that
 * ends there. Instructions that move values between lanes or write several registers may not. */
static bool lane_by_lane(const struct ptx_inst *inst) {
    return inst->opcode->alu && inst->opcode->op != PTX_OP_mov && inst->opcode->op != PTX_OP_set &&
           inst->opcode->op != PTX_OP_bfi;
}

typedef void (*visit_fn)(struct flow *flow, void *ctx, int32_t reg, bool write, uint32_t at);

static void visit_inst(struct flow *flow, uint32_t i, visit_fn visit, void *ctx) {
    const struct ptx_function *f = flow->f;
    const struct ptx_inst *inst = &f->insts[i];
    const struct ptx_operand *o = f->operands + inst->operands;
    uint32_t writes = ptx_flow_writes(inst, o);
    uint32_t at = 2 * i + 2, written_at = lane_by_lane(inst) ? at + 1 : at;

    if (inst->guard >= 0)
        visit(flow, ctx, inst->guard, false, at);
    for (int pass = 0; pass < 2; pass++) /* reads, then writes */
        for (uint32_t k = 0; k < inst->n_operands; k++) {
            bool write = k < 2 && writes >> k & 1 && !o[k].address;
            bool list = o[k].kind == PTX_OPERAND_VEC || o[k].kind == PTX_OPERAND_LIST;
            const struct ptx_operand *e = list ? &f->elems[o[k].reg] : &o[k];

            if (write != pass)
                continue;
            for (uint32_t n = list ? o[k].count : 1; n; n--, e++) {
                if (e->kind != PTX_OPERAND_REG)
                    continue;
                if (write && inst->guard >= 0) /* the old value may stay */
                    visit(flow, ctx, e->reg, false, at);
                visit(flow, ctx, e->reg, write, write ? written_at : at);
            }
        }
}

static bool has(const uint64_t *set, int32_t bit) {
    return set[bit / 64] >> (bit % 64) & 1;
}

static void put(uint64_t *set, int32_t bit) {
    set[bit / 64] |= UINT64_C(1) << (bit % 64);
}

static void visit_use_def(struct flow *flow, void *ctx, int32_t reg, bool write, uint32_t at) {
    struct basic_block *block = ctx;

    if (write)
        put(block->def, reg);
    else if (!has(block->def, reg))
        put(block->use, reg);
}

static void widen(struct flow *flow, int32_t reg, uint32_t at) {
    if (!flow->end[reg] || at < flow->start[reg])
        flow->start[reg] = at;
    flow->end[reg] = MAX(flow->end[reg], at);
}

static void visit_interval(struct flow *flow, void *ctx, int32_t reg, bool write, uint32_t at) {
    widen(flow, reg, at);
}

static int find_blocks(struct flow *flow) {
    const struct ptx_function *f = flow->f;
    cleanup(freep) uint8_t *leader = calloc(f->n_insts + 1, 1);
    uint32_t n = 0;

    flow->block_of = calloc(f->n_insts + 1, sizeof(uint32_t));
    if (!leader || !flow->block_of)
        return -ENOMEM;
    leader[0] = 1;
    for (uint32_t i = 0; i < f->n_labels; i++)
        leader[f->labels[i]] = 1;
    for (uint32_t i = 0; i < f->n_insts; i++)
        if (splits(&f->insts[i]))
            leader[i + 1] = 1;
    for (uint32_t i = 0; i < f->n_insts; i++)
        n += leader[i];
    flow->blocks = calloc(n + 1, sizeof(*flow->blocks));
    if (!flow->blocks)
        return -ENOMEM;
    for (uint32_t i = 0; i < f->n_insts; i++) {
        if (leader[i]) {
            if (flow->n_blocks)
                flow->blocks[flow->n_blocks - 1].end = i;
            flow->blocks[flow->n_blocks++].first = i;
        }
        flow->block_of[i] = flow->n_blocks - 1;
    }
    if (flow->n_blocks)
        flow->blocks[flow->n_blocks - 1].end = f->n_insts;
    flow->block_of[f->n_insts] = flow->n_blocks; /* beyond the end: returns */
    return 0;
}

static bool join(uint64_t *to, const uint64_t *from, uint32_t n) {
    uint64_t changed = 0;

    for (uint32_t i = 0; i < n; i++) {
        changed |= from[i] & ~to[i];
        to[i] |= from[i];
    }
    return changed;
}

static void join_label(struct flow *flow, struct basic_block *block, int32_t label) {
    uint32_t to = flow->block_of[flow->f->labels[label]];

    if (to < flow->n_blocks)
        join(block->out, flow->blocks[to].in, flow->n_words);
}

static bool update(struct flow *flow, uint32_t b) {
    const struct ptx_function *f = flow->f;
    struct basic_block *block = &flow->blocks[b];
    const struct ptx_inst *last = &f->insts[block->end - 1];
    const struct ptx_operand *o = f->operands + last->operands;
    uint64_t changed = 0;

    if (last->opcode->op == PTX_OP_bra) {
        join_label(flow, block, o[0].reg);
    } else if (last->opcode->op == PTX_OP_brx) {
        const int32_t *list = f->targets + o[1].reg;

        for (int32_t i = 1; i <= list[0]; i++)
            join_label(flow, block, list[i]);
    }
    if (!ptx_flow_ends(last) && b + 1 < flow->n_blocks)
        join(block->out, flow->blocks[b + 1].in, flow->n_words);
    for (uint32_t i = 0; i < flow->n_words; i++) {
        uint64_t in = block->use[i] | (block->out[i] & ~block->def[i]);

        changed |= in ^ block->in[i];
        block->in[i] = in;
    }
    return changed;
}

/* -E2BIG: too much work; then every register gets storage of its own. */
static int find_intervals(struct flow *flow) {
    const struct ptx_function *f = flow->f;
    uint64_t bytes;
    bool changed = true;
    int r = find_blocks(flow);

    if (r < 0)
        return r;
    flow->n_words = (f->n_regs + 63) / 64;
    bytes = (uint64_t)flow->n_words * 8 * 4 * flow->n_blocks;
    if (bytes > MAX_SET_BYTES)
        return -E2BIG;
    flow->sets = calloc(1, bytes + 8);
    if (!flow->sets)
        return -ENOMEM;
    for (uint32_t b = 0; b < flow->n_blocks; b++) {
        struct basic_block *block = &flow->blocks[b];

        block->use = flow->sets + (size_t)flow->n_words * 4 * b;
        block->def = block->use + flow->n_words;
        block->in = block->def + flow->n_words;
        block->out = block->in + flow->n_words;
        for (uint32_t i = block->first; i < block->end; i++)
            visit_inst(flow, i, visit_use_def, block);
    }
    for (unsigned round = 0; changed; round++) {
        if (round > 200)
            return -E2BIG;
        changed = false;
        for (uint32_t b = flow->n_blocks; b-- > 0;)
            changed |= update(flow, b);
    }
    for (uint32_t b = 0; b < flow->n_blocks; b++) {
        const struct basic_block *block = &flow->blocks[b];

        for (uint32_t i = 0; i < flow->n_words; i++) {
            for (uint64_t set = block->in[i]; set; set &= set - 1)
                widen(flow, (int32_t)(i * 64) + __builtin_ctzll(set), 2 * block->first + 1);
            for (uint64_t set = block->out[i]; set; set &= set - 1)
                widen(flow, (int32_t)(i * 64) + __builtin_ctzll(set), 2 * block->end + 1);
        }
        for (uint32_t i = block->first; i < block->end; i++)
            visit_inst(flow, i, visit_interval, NULL);
    }
    return 0;
}

/* A formal in a register is written by the call, before the first instruction; a result is read
 * by the return, after the last. */
static void pin_formals(struct flow *flow) {
    const struct ptx_function *f = flow->f;

    for (uint32_t i = 0; i < f->n_params; i++)
        if (f->params[i]->space == PTX_IN_REG)
            widen(flow, f->param_regs[i], 1);
    for (uint32_t i = 0; i < f->n_rets; i++)
        if (f->rets[i]->space == PTX_IN_REG) {
            widen(flow, f->ret_regs[i], 1);
            widen(flow, f->ret_regs[i], 2 * f->n_insts + 3);
        }
}

static int width_class(enum ptx_type type) {
    switch (ptx_ir_type_bytes(type)) {
    case 0:
        return -1;
    case 1:
    case 2:
        return 0;
    case 4:
        return 1;
    case 8:
        return 2;
    default:
        return 3;
    }
}

static _Thread_local const struct flow *sorted_flow; /* qsort has no context */

static int by_start(const void *a, const void *b) {
    uint32_t x = sorted_flow->start[*(const uint32_t *)a];
    uint32_t y = sorted_flow->start[*(const uint32_t *)b];

    return x < y ? -1 : x > y ? 1 : *(const uint32_t *)a < *(const uint32_t *)b ? -1 : 1;
}

/* A binary heap of registers by the end of their interval, per width. */
struct register_heap {
    uint32_t *regs;
    uint32_t n;
};

static void heap_push(struct register_heap *heap, const uint32_t *end, uint32_t reg) {
    uint32_t at = heap->n++;

    while (at && end[heap->regs[(at - 1) / 2]] > end[reg]) {
        heap->regs[at] = heap->regs[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap->regs[at] = reg;
}

static uint32_t heap_pop(struct register_heap *heap, const uint32_t *end) {
    uint32_t top = heap->regs[0], last = heap->regs[--heap->n], at = 0;

    for (;;) {
        uint32_t child = 2 * at + 1;

        if (child >= heap->n)
            break;
        if (child + 1 < heap->n && end[heap->regs[child + 1]] < end[heap->regs[child]])
            child++;
        if (end[heap->regs[child]] >= end[last])
            break;
        heap->regs[at] = heap->regs[child];
        at = child;
    }
    heap->regs[at] = last;
    return top;
}

int ptx_flow_layout_make(const struct ptx_function *f, struct ptx_flow_layout *ret) {
    static const uint32_t units[4] = { 1, 1, 2, 4 }; /* 32-bit registers */
    struct flow flow = { .f = f };
    struct register_heap heaps[4] = { 0 };
    uint32_t *order = NULL, *free_slots[4] = { 0 }, n_free[4] = { 0 }, n_slots[4] = { 0 };
    uint32_t n_seen = 0, alive = 0, n_preds = 2, at;
    int32_t *slots = NULL;
    int r = -ENOMEM;

    *ret = (struct ptx_flow_layout){ .offsets = calloc(f->n_regs + 1, sizeof(int32_t)) };
    flow.start = calloc(f->n_regs + 1, sizeof(uint32_t));
    flow.end = calloc(f->n_regs + 1, sizeof(uint32_t));
    order = calloc(f->n_regs + 1, sizeof(*order));
    slots = calloc(f->n_regs + 1, sizeof(*slots));
    for (int c = 0; c < 4; c++) {
        heaps[c].regs = calloc(f->n_regs + 1, sizeof(uint32_t));
        free_slots[c] = calloc(f->n_regs + 1, sizeof(uint32_t));
        if (!heaps[c].regs || !free_slots[c])
            goto done;
    }
    if (!ret->offsets || !flow.start || !flow.end || !order || !slots)
        goto done;
    r = find_intervals(&flow);
    if (r == -ENOMEM)
        goto done;
    if (r == -E2BIG)
        for (uint32_t i = 0; i < f->n_regs; i++) {
            flow.start[i] = 1;
            flow.end[i] = UINT32_MAX;
        }
    r = 0;
    pin_formals(&flow);

    for (uint32_t i = 0; i < f->n_regs; i++)
        if (flow.end[i])
            order[n_seen++] = i;
    sorted_flow = &flow;
    qsort(order, n_seen, sizeof(*order), by_start);
    for (uint32_t k = 0; k < n_seen; k++) {
        uint32_t reg = order[k];
        int class = width_class(f->reg_types[reg]);

        if (class < 0) {
            slots[reg] = (int32_t)n_preds++; /* four bytes each: not worth sharing */
            continue;
        }
        for (int c = 0; c < 4; c++)
            while (heaps[c].n && flow.end[heaps[c].regs[0]] < flow.start[reg]) {
                uint32_t ended = heap_pop(&heaps[c], flow.end);

                free_slots[c][n_free[c]++] = (uint32_t)slots[ended];
                alive -= units[c];
            }
        slots[reg] =
            (int32_t)(n_free[class] ? free_slots[class][--n_free[class]] : n_slots[class]++);
        heap_push(&heaps[class], flow.end, reg);
        alive += units[class];
        ret->n_live_regs = MAX(ret->n_live_regs, alive);
    }

    at = (n_preds * 4 + 63) & ~63U;
    for (int c = 3; c >= 0; c--) {
        uint32_t bytes = 64U << c;

        for (uint32_t k = 0; k < n_seen; k++)
            if (width_class(f->reg_types[order[k]]) == c)
                ret->offsets[order[k]] = (int32_t)(at + (uint32_t)slots[order[k]] * bytes);
        at += n_slots[c] * bytes;
    }
    for (uint32_t k = 0; k < n_seen; k++)
        if (f->reg_types[order[k]] == PTX_pred)
            ret->offsets[order[k]] = slots[order[k]] * 4;
    ret->frame_bytes = at;
done:
    free(flow.start);
    free(flow.end);
    free(flow.blocks);
    free(flow.block_of);
    free(flow.sets);
    free(order);
    free(slots);
    for (int c = 0; c < 4; c++) {
        free(heaps[c].regs);
        free(free_slots[c]);
    }
    if (r < 0)
        ptx_flow_layout_done(ret);
    return r;
}

void ptx_flow_layout_done(struct ptx_flow_layout *layout) {
    free(layout->offsets);
    *layout = (struct ptx_flow_layout){ 0 };
}
