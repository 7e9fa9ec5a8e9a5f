/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mbarrier: a barrier that is an object in shared memory. Its 64 bits are opaque to programs, so
 * their layout is ours:
 *
 *     63     62       61 … 41                  40 … 21                 20 … 1            0
 *     phase  a state  bytes still to come,     arrivals that a phase   arrivals still    there is
 *            of it    2^20 more than they are  takes                   to come           a barrier
 *
 * A phase ends when nothing is still to come; the next begins with as many arrivals as this one
 * had. An arrival returns the object as it was; a thread waits for a state by comparing
 * phases. Copies are done when they are issued, so nothing that a thread started is under way when
 * it arrives. A block runs on one thread: nothing here is atomic.
 */
#include "sim/ptx/exec/control.h"

#define COUNT_BITS 20
#define COUNT_MASK ((UINT64_C(1) << COUNT_BITS) - 1)
#define TX_MASK    ((UINT64_C(1) << (COUNT_BITS + 1)) - 1)
#define TX_ZERO    (UINT64_C(1) << COUNT_BITS)
#define IS_BARRIER UINT64_C(1)
#define PHASE      (UINT64_C(1) << 63)

struct mbarrier_fields {
    uint64_t phase, tx, expected, pending;
};

static struct mbarrier_fields take_apart(uint64_t value) {
    return (struct mbarrier_fields){ .phase = value & PHASE,
                                     .tx = value >> 41 & TX_MASK,
                                     .expected = value >> 21 & COUNT_MASK,
                                     .pending = value >> 1 & COUNT_MASK };
}

static uint64_t put_together(struct mbarrier_fields parts) {
    if (!parts.pending && parts.tx == TX_ZERO) {
        parts.phase ^= PHASE;
        parts.pending = parts.expected;
    }
    return parts.phase | (parts.tx & TX_MASK) << 41 | parts.expected << 21 | parts.pending << 1 |
           IS_BARRIER;
}

/* One operation of one lane. False: the object is not as the operation needs it. */
static bool operate(enum ptx_mbarrier_op op, uint64_t *object, uint64_t argument, uint64_t *ret) {
    struct mbarrier_fields parts = take_apart(*object);

    *ret = *object;
    if (op == PTX_MBARRIER_INIT) {
        if (!argument || argument > COUNT_MASK)
            return false;
        *object = put_together(
            (struct mbarrier_fields){ .tx = TX_ZERO, .expected = argument, .pending = argument });
        return true;
    }
    if (!(*object & IS_BARRIER))
        return false;
    switch (op) {
    case PTX_MBARRIER_INVAL:
        *object = 0;
        return true;
    case PTX_MBARRIER_ARRIVE_DROP:
        if (argument > parts.expected)
            return false;
        parts.expected -= argument;
        __attribute__((fallthrough));
    case PTX_MBARRIER_ARRIVE:
        if (argument > parts.pending)
            return false;
        parts.pending -= argument;
        break;
    case PTX_MBARRIER_ARRIVE_EXPECT_TX:
        if (!parts.pending)
            return false;
        parts.tx += argument;
        parts.pending--;
        break;
    case PTX_MBARRIER_EXPECT_TX:
        parts.tx += argument;
        break;
    case PTX_MBARRIER_COMPLETE_TX:
        parts.tx -= argument;
        break;
    case PTX_MBARRIER_TEST:
        *ret = (argument & PHASE) != parts.phase;
        return true;
    case PTX_MBARRIER_TEST_PARITY:
        *ret = (argument & 1) != (parts.phase != 0);
        return true;
    default:
        return true;
    }
    *object = put_together(parts);
    return true;
}

static uint64_t argument_of(const struct ptx_warp *w, const struct ptx_code *in, unsigned lane,
                            bool wide) {
    const char *b = w->base[in->b & 3] + (in->b & ~3);

    return wide ? ((const uint64_t *)b)[lane] : ((const uint32_t *)b)[lane];
}

PTX_HANDLER(mbarrier) {
    const struct ptx_access *access = in->aux;
    const enum ptx_mbarrier_op op = access->op;
    const bool waits = op == PTX_MBARRIER_TEST || op == PTX_MBARRIER_TEST_PARITY;
    char *d = in->d >= 0 ? w->base[in->d & 3] + (in->d & ~3) : NULL;
    uint32_t yes = 0;

    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        unsigned lane = (unsigned)__builtin_ctz(rest);
        uint64_t argument =
            in->b < 0
                ? 1
                : argument_of(w, in, lane, op == PTX_MBARRIER_TEST || op == PTX_MBARRIER_PENDING);
        uint64_t address, object, result;
        unsigned char *p;
        bool unbacked;

        if (op == PTX_MBARRIER_PENDING) {
            ((uint32_t *)d)[lane] = (uint32_t)take_apart(argument).pending;
            continue;
        }
        address = ptx_control_address(w, access, in->a, in->imm, lane);
        if (address & 7) {
            ptx_fault(w, in, PTX_FAULT_MISALIGNED, lane, address, "access of 8 bytes");
            return NULL;
        }
        p = address - PTX_SHARED_BASE < PTX_WINDOW
                ? ptx_memory_resolve(w, lane, address, 8, true, &unbacked)
                : NULL;
        if (!p) {
            ptx_fault(w, in, PTX_FAULT_ADDRESS, lane, address, "access of 8 bytes");
            return NULL;
        }
        memcpy(&object, p, 8);
        if (!operate(op, &object, argument, &result)) {
            ptx_fault(w, in, PTX_FAULT_INSTRUCTION, lane, address,
                      op == PTX_MBARRIER_INIT ? "mbarrier.init of 0, or of too many"
                      : object & IS_BARRIER   ? "more arrivals at an mbarrier than it waits for"
                                              : "no mbarrier at this address");
            return NULL;
        }
        memcpy(p, &object, 8);
        if (waits)
            yes |= (uint32_t)result << lane;
        else if (d)
            ((uint64_t *)d)[lane] = result;
    }
    if (waits) {
        uint32_t *word = (uint32_t *)d;

        *word = (*word & ~mask) | yes;
        if (yes != mask) /* a loop around it polls for others */
            ptx_control_spin(w);
    }
    return in + 1;
}
