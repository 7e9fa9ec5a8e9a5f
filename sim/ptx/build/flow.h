/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Flow: where each virtual register of a function lives in its frame.
 *
 * PTX names a new register for almost every result. 32 lanes of one take 128 bytes, so a few
 * hundred of them would not stay in the first-level cache; registers whose lifetimes do not overlap
 * share storage. The most that are alive at once is also the register count that is reported.
 */
#include "sim/ptx/ir.h"

struct ptx_flow_layout {
    int32_t *offsets;     /* per register: byte offset in the frame */
    uint32_t frame_bytes; /* predicates, then registers by width */
    uint32_t n_live_regs; /* in 32-bit units */
};

#define PTX_CARRY_OFFSET 4 /* of the carry flags' word; word 0 is always 0 */

int ptx_flow_layout_make(const struct ptx_function *function, struct ptx_flow_layout *ret);
void ptx_flow_layout_done(struct ptx_flow_layout *layout);

/* Which operands an instruction writes: a bit per operand (list elements count as their list). */
uint32_t ptx_flow_writes(const struct ptx_inst *inst, const struct ptx_operand *operands);
/* Control never goes on to the next instruction. */
bool ptx_flow_ends(const struct ptx_inst *inst);
