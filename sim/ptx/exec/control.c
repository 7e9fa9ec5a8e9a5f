/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control flow of a warp: lanes diverge at branches and converge again.
 *
 * Lanes that run together are a split: program counter, frame, mask. The split that is deepest in
 * calls and, of those, earliest in the code runs; others wait. Code is laid out so that the point
 * where two paths meet comes after both. So the split that is behind always catches up, and splits
 * at the same instruction of the same frame merge:
 *
 *          if (p)               {0..31} ──┬─▶ {0..15} then ──┐
 *              then                       │                  ├─▶ {0..31}
 *          join                           └─▶ {16..31} waits ┘
 *
 * This order only serves merging; any other would be correct too. Lanes of one warp may wait for
 * one another (a lock taken by a neighbour), so a split that loops for long, or keeps polling
 * memory, goes behind the others from time to time.
 */
#include "sim/ptx/exec/control.h"

#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "sim/ptx/timing/outline.h"

#define FUEL        4096 /* branches between polls */
#define STALE_POLLS 16   /* polls of one split, while others wait, until it goes behind them */
#define MAX_DEPTH   1024 /* calls */
#define N_SPINS     256

static void load_split(struct ptx_warp *w, uint32_t i) {
    const struct ptx_split *s = &w->splits[i];
    const bool away = !(s->mask & w->poll.mask);

    if (away != w->poll.away) { /* work of other lanes is not a round of waiting */
        if (away)
            w->poll.left_at = w->n_now;
        else
            w->poll.n += w->n_now - w->poll.left_at;
        w->poll.away = away;
    }
    w->current = i;
    w->active = s->mask;
    w->frame = s->frame;
    w->base[PTX_REF_FRAME] = s->frame->regs;
    w->base[PTX_REF_CONST] = s->frame->program->consts;
}

void ptx_control_park(struct ptx_warp *w, const struct ptx_code *pc, enum ptx_split_state state) {
    struct ptx_split *s = &w->splits[w->current];

    s->pc = pc;
    s->mask = w->active;
    s->frame = w->frame;
    s->state = (uint8_t)state;
}

static void remove_split(struct ptx_warp *w, uint32_t i) {
    w->splits[i] = w->splits[--w->n_splits];
}

static bool may_merge(const struct ptx_split *a, const struct ptx_split *b) {
    return a->pc == b->pc && a->frame == b->frame && a->state != PTX_AT_BARRIER &&
           b->state != PTX_AT_BARRIER;
}

static bool before(const struct ptx_split *a, const struct ptx_split *b) {
    if (a->frame->depth != b->frame->depth)
        return a->frame->depth > b->frame->depth;
    return (uintptr_t)a->pc < (uintptr_t)b->pc;
}

/* Splits that wait for lanes of the warp run when nothing else can: either all those lanes wait
 * too, or they will never arrive. */
static bool release_sync(struct ptx_warp *w) {
    int best = -1;

    for (uint32_t i = 0; i < w->n_splits; i++)
        if (w->splits[i].state == PTX_AT_SYNC &&
            (best < 0 || before(&w->splits[i], &w->splits[best])))
            best = (int)i;
    if (best < 0)
        return false;
    w->splits[best].state = PTX_AT_SYNC_RELEASED;
    load_split(w, (uint32_t)best);
    return true;
}

const struct ptx_code *ptx_control_next(struct ptx_warp *w) {
    int best = -1;

    if (w->resume) {
        uint32_t i = w->resume - 1;

        w->resume = 0;
        load_split(w, i);
        return w->splits[i].pc;
    }
    for (uint32_t i = 0; i + 1 < w->n_splits; i++)
        for (uint32_t k = i + 1; k < w->n_splits;)
            if (may_merge(&w->splits[i], &w->splits[k])) {
                w->splits[i].mask |= w->splits[k].mask;
                w->splits[i].state = PTX_READY;
                remove_split(w, k);
            } else {
                k++;
            }
    for (uint32_t i = 0; i < w->n_splits; i++)
        if ((w->splits[i].state == PTX_READY || w->splits[i].state == PTX_AT_SYNC_RELEASED) &&
            (best < 0 || before(&w->splits[i], &w->splits[best])))
            best = (int)i;
    if (best < 0)
        return release_sync(w) ? w->splits[w->current].pc : NULL;
    load_split(w, (uint32_t)best);
    return w->splits[best].pc;
}

const struct ptx_code *ptx_control_meet(struct ptx_warp *w, const struct ptx_code *pc) {
    if (w->n_splits == 1)
        return pc;
    ptx_control_park(w, pc, PTX_READY);
    return ptx_control_next(w);
}

/* The fuel is used up, and the running split is parked: let the rest of the block run. When the
 * warp runs again, another of its splits goes first if this one seems to wait for it. */
static const struct ptx_code *take_breath(struct ptx_warp *w) {
    w->fuel = FUEL;
    w->yielded = true;
    w->spinning = w->spins >= N_SPINS;
    w->spins = 0;
    if (ptx_memory_poll(w))
        return NULL;
    if (w->n_splits > 1 && (w->spinning || ++w->n_stale >= STALE_POLLS)) {
        w->n_stale = 0;
        for (uint32_t i = 1; i < w->n_splits; i++) {
            uint32_t next = (w->current + i) % w->n_splits;

            if (w->splits[next].state == PTX_READY) {
                w->resume = next + 1;
                break;
            }
        }
    }
    return NULL;
}

/* The active lanes not in `mask` go on at `rest_pc`, apart from those that are now current. */
static bool split_off(struct ptx_warp *w, uint32_t mask, const struct ptx_code *rest_pc) {
    uint32_t rest = w->active & ~mask;

    if (!rest)
        return false;
    w->splits[w->n_splits++] = (struct ptx_split){ .pc = rest_pc, .frame = w->frame, .mask = rest };
    w->active = mask;
    return true;
}

PTX_HANDLER(join) {
    w->n_thread_instructions -=
        (uint64_t)__builtin_popcount(mask); /* a join is no instruction of the program */
    w->n_warp_instructions--;
    if (!w->poll.away)
        w->poll.n += (uint64_t)__builtin_popcount(mask);
    return ptx_control_meet(w, in + 1);
}

PTX_HANDLER(bra) {
    const struct ptx_code *target = in->aux;

    split_off(w, mask, in + 1);

    if (!--w->fuel) {
        ptx_control_park(w, target, PTX_READY);
        return take_breath(w);
    }
    if (w->n_splits == 1)
        return target;
    ptx_control_park(w, target, PTX_READY);
    return ptx_control_next(w);
}

PTX_HANDLER(brx) {
    const struct ptx_code *const *targets = in->aux;
    const uint32_t *index = (const uint32_t *)(w->base[in->a & 3] + (in->a & ~3));
    uint32_t rest = mask;

    split_off(w, mask, in + 1);
    while (rest) {
        unsigned lane = (unsigned)__builtin_ctz(rest);
        uint32_t same = 0;

        if (index[lane] >= (uint64_t)in->imm) {
            ptx_fault(w, in, PTX_FAULT_INSTRUCTION, lane, 0, "brx.idx %u of %lld targets",
                      index[lane], (long long)in->imm);
            return NULL;
        }
        for (uint32_t more = rest; more; more &= more - 1)
            if (index[__builtin_ctz(more)] == index[lane])
                same |= more & -more;
        rest &= ~same;
        if (rest) {
            w->splits[w->n_splits++] =
                (struct ptx_split){ .pc = targets[index[lane]], .frame = w->frame, .mask = same };
        } else {
            w->active = same;
            ptx_control_park(w, targets[index[lane]], PTX_READY);
        }
    }
    if (!--w->fuel)
        return take_breath(w);
    return ptx_control_next(w);
}

static char *place_of(const struct ptx_warp *w, const struct ptx_frame *frame,
                      const struct ptx_call_copy *copy, unsigned lane) {
    if (!copy->reg)
        return w->local + (size_t)lane * w->local_stride + frame->local + (uint32_t)copy->ref;
    return ((copy->ref & 3) == PTX_REF_CONST ? frame->program->consts : frame->regs) +
           (copy->ref & ~3) + (size_t)lane * copy->bytes;
}

static void copy_values(struct ptx_warp *w, const struct ptx_frame *to_frame,
                        const struct ptx_call_copy *to, const struct ptx_frame *from_frame,
                        const struct ptx_call_copy *from, uint32_t n, uint32_t mask) {
    for (uint32_t k = 0; k < n; k++)
        for (uint32_t rest = mask; rest; rest &= rest - 1) {
            unsigned lane = (unsigned)__builtin_ctz(rest);

            memcpy(place_of(w, to_frame, &to[k], lane), place_of(w, from_frame, &from[k], lane),
                   MIN(to[k].bytes, from[k].bytes));
        }
}

/* A call through a pointer handles one target function at a time: lanes with another target run the
 * call instruction again. */
static struct ptx_function *callee_of(struct ptx_warp *w, const struct ptx_code *in,
                                      uint32_t *mask) {
    const struct ptx_call *call = in->aux;
    const uint64_t *pointers = (const uint64_t *)(w->base[in->a & 3] + (in->a & ~3));
    unsigned first = (unsigned)__builtin_ctz(*mask);
    struct ptx_function *f;
    uint32_t same = 0;

    if (call->callee)
        return call->callee;
    f = ptx_link_function_at(w->worker->program->function->module, pointers[first]);
    if (f)
        f = ptx_link_resolve(f->sym)->function;
    if (!f || !f->defined || f->entry || !ptx_link_takes(f, call->n_args) ||
        f->n_rets < call->n_rets) {
        ptx_fault(w, in, PTX_FAULT_INSTRUCTION, first, pointers[first],
                  "call through a pointer to no such function");
        return NULL;
    }
    for (uint32_t rest = *mask; rest; rest &= rest - 1)
        if (pointers[__builtin_ctz(rest)] == pointers[first])
            same |= rest & -rest;
    *mask = same;
    return f;
}

/* Frames of calls begin after the largest alloca of any lane: at the same offset for all. */
static uint32_t most_grown(const struct ptx_frame *frame) {
    uint32_t most = 0;

    for (int i = 0; i < PTX_LANES; i++)
        most = MAX(most, frame->grown[i]);
    return (most + 15) & ~15U;
}

/* Memory that goes with the frame, or when the stack is set back. */
PTX_HANDLER(alloca) {
    const uint64_t *bytes = (const uint64_t *)(w->base[in->a & 3] + (in->a & ~3));
    uint64_t *d = (uint64_t *)(w->base[in->d & 3] + (in->d & ~3)), align = (uint64_t)in->imm;
    const uint64_t base = w->frame->local + w->frame->program->local_bytes;

    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        unsigned lane = (unsigned)__builtin_ctz(rest);
        uint64_t at = (base + w->frame->grown[lane] + align - 1) & ~(align - 1);

        if (bytes[lane] > UINT32_MAX / 2 || at > UINT32_MAX / 2 ||
            ptx_block_local_reserve(w, (uint32_t)(at + bytes[lane])) < 0) {
            ptx_fault(w, in, PTX_FAULT_STACK, lane, 0, "stack overflow, alloca of %llu bytes",
                      (unsigned long long)bytes[lane]);
            return NULL;
        }
        w->frame->grown[lane] = (uint32_t)(at + bytes[lane] - base);
        d[lane] = at;
    }
    return in + 1;
}

/* Where each lane's stack ends, told (op 0) or set back (op 1). */
PTX_HANDLER(stack) {
    uint64_t *d = (uint64_t *)(w->base[in->d & 3] + (in->d & ~3));

    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        unsigned lane = (unsigned)__builtin_ctz(rest);

        if (in->op == 0)
            d[lane] = w->frame->grown[lane];
        else if (d[lane] <= w->frame->grown[lane])
            w->frame->grown[lane] = (uint32_t)d[lane];
    }
    return in + 1;
}

/* Bytes that a call brings beyond the parameters that have names: they lie behind the frame. */
static uint32_t rest_bytes(const struct ptx_function *f, const struct ptx_call *call) {
    if (!ptx_link_variadic(f) || call->n_args < f->n_params)
        return 0;
    return (call->args[f->n_params - 1].bytes + 15) & ~15U;
}

PTX_HANDLER(call) {
    const struct ptx_call *call = in->aux;
    struct ptx_frame *caller = w->frame, *frame;
    const struct ptx_program *program;
    struct allot_error err = { 0 };
    struct ptx_function *f;
    uint32_t callers = mask, rest;

    if (call->builtin) {
        split_off(w, mask, in + 1);
        if (!ptx_builtin_run(w, in, mask))
            return NULL;
        return ptx_control_meet(w, in + 1);
    }
    f = callee_of(w, in, &callers);
    if (!f)
        return NULL;
    program = call->program;
    if (!program && ptx_program_get(f, &program, &err) < 0) {
        ptx_fault(w, in, PTX_FAULT_INSTRUCTION, (unsigned)__builtin_ctz(mask), 0, "call: %s",
                  err.text);
        return NULL;
    }
    w->worker->n_calls++;
    w->poll.mask &= ~mask;
    split_off(w, mask, in + 1);
    split_off(w, callers, in);
    rest = rest_bytes(f, call);
    frame = caller->depth < MAX_DEPTH ? ptx_block_frame_new(w, program) : NULL;
    if (frame) {
        frame->local = caller->local + caller->program->local_bytes + most_grown(caller);
        for (int i = 0; rest && i < PTX_LANES; i++)
            frame->grown[i] = rest;
        if (ptx_block_local_reserve(w, frame->local + program->local_bytes + rest) < 0) {
            ptx_block_frame_release(w, frame);
            frame = NULL;
        }
    }
    if (!frame) {
        ptx_fault(w, in, PTX_FAULT_STACK, (unsigned)__builtin_ctz(mask), 0,
                  "stack overflow, %u calls deep", caller->depth);
        return NULL;
    }
    frame->parent = caller;
    frame->call = call;
    frame->return_to = in + 1;
    frame->depth = caller->depth + 1;
    frame->lanes = callers;
    copy_values(w, frame, program->params, caller, call->args, call->n_args, callers);
    w->frame = frame;
    ptx_control_park(w, program->code, PTX_READY);
    if (!--w->fuel)
        return take_breath(w);
    return ptx_control_next(w);
}

static const struct ptx_code *leave_kernel(struct ptx_warp *w, const struct ptx_code *in,
                                           uint32_t mask) {
    struct ptx_frame *frame = w->frame;

    w->live &= ~mask;
    while (frame) {
        struct ptx_frame *parent = frame->parent;

        frame->lanes &= ~mask;
        if (parent && !frame->lanes)
            ptx_block_frame_release(w, frame);
        frame = parent;
    }
    w->active &= ~mask;
    if (w->active)
        ptx_control_park(w, in + 1, PTX_READY);
    else
        remove_split(w, w->current);
    ptx_block_exit(w, mask);
    return w->n_splits ? ptx_control_next(w) : NULL;
}

PTX_HANDLER(ret) {
    struct ptx_frame *frame = w->frame;
    const struct ptx_call *call = frame->call;

    if (!frame->parent)
        return leave_kernel(w, in, mask);
    split_off(w, mask, in + 1);
    /* Another input may have declared a result that the function does not return. */
    copy_values(w, frame->parent, call->rets, frame, frame->program->rets,
                MIN(call->n_rets, frame->program->n_rets), mask);
    w->frame = frame->parent;
    ptx_control_park(w, frame->return_to, PTX_READY);
    frame->lanes &= ~mask;
    if (!frame->lanes)
        ptx_block_frame_release(w, frame);
    return ptx_control_next(w);
}

PTX_HANDLER(exit) {
    return leave_kernel(w, in, mask);
}

PTX_HANDLER(trap) {
    ptx_fault(w, in, PTX_FAULT_TRAP, (unsigned)__builtin_ctz(mask), 0, "trap");
    return NULL;
}

PTX_HANDLER(fence) {
    _Atomic int here = 0;

    atomic_exchange(&here, 1); /* a full barrier, and one that ThreadSanitizer knows */
    return in + 1;
}

void ptx_control_polls(struct ptx_warp *w, const struct ptx_code *in,
                       const struct ptx_access *access, uint32_t mask) {
    const uint64_t address =
        ptx_control_address(w, access, in->a, in->imm, (unsigned)__builtin_ctz(mask));
    struct ptx_run *run = w->worker->run;

    if (access->counts_as == PTX_IN_SHARED || access->counts_as == PTX_IN_LOCAL)
        return; /* within a block the order is fixed */
    if (w->poll.in == in && w->poll.mask == mask && w->poll.address == address) {
        if (!run->polls) /* where control flow does not depend on data, no thread waits */
            run->polls = ptx_outline_get(run->launch->kernel) ? 1 : 2;
        if (run->polls == 2) {
            w->n_thread_instructions -= w->n_now - w->poll.n;
            w->worker->stats.global_read_bytes -=
                (uint64_t)in->bytes * in->n * (uint64_t)__builtin_popcount(mask);
        }
    }
    w->poll.in = in;
    w->poll.mask = mask;
    w->poll.address = address;
    w->poll.n = w->n_now;
    w->poll.away = false;
}

PTX_HANDLER(nanosleep) {
    split_off(w, mask, in + 1);
    ptx_control_park(w, in + 1, PTX_READY);
    w->spins = N_SPINS;
    return take_breath(w);
}
