/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Control: handlers that work on the lanes of a warp rather than on vectors, and so are compiled
 * only once.
 */
#include "sim/ptx/exec/exec.h"

#define PTX_HANDLER(name)                                                                          \
    const struct ptx_code *ptx_run_##name(struct ptx_warp *w, const struct ptx_code *in,           \
                                          uint32_t mask)
PTX_HANDLER(join);
PTX_HANDLER(bra);
PTX_HANDLER(brx);
PTX_HANDLER(call);
PTX_HANDLER(ret);
PTX_HANDLER(exit);
PTX_HANDLER(trap);
PTX_HANDLER(fence);
PTX_HANDLER(nanosleep);
PTX_HANDLER(bar);
PTX_HANDLER(warp_sync);
PTX_HANDLER(vote);
PTX_HANDLER(shfl);
PTX_HANDLER(match);
PTX_HANDLER(redux);
PTX_HANDLER(elect);
PTX_HANDLER(activemask);
PTX_HANDLER(atom);
PTX_HANDLER(cp_async);
PTX_HANDLER(mbarrier);
PTX_HANDLER(alloca);
PTX_HANDLER(stack);
PTX_HANDLER(cluster);

/* The generic address of one lane's access. */
uint64_t ptx_control_address(const struct ptx_warp *w, const struct ptx_access *access, int32_t ref,
                             int64_t offset, unsigned lane);
/* The running lanes poll: let others run soon. */
void ptx_control_spin(struct ptx_warp *w);

/* Pick up the split that should run, merging those that met; NULL: none can. */
const struct ptx_code *ptx_control_next(struct ptx_warp *w);
/* The running split is at `pc`: perhaps others wait there, or should go first. */
const struct ptx_code *ptx_control_meet(struct ptx_warp *w, const struct ptx_code *pc);
/* Put the running split down at `pc` in `state`. */
void ptx_control_park(struct ptx_warp *w, const struct ptx_code *pc, enum ptx_split_state state);
/* A call of a function that the executor provides; false: it faulted. */
bool ptx_builtin_run(struct ptx_warp *w, const struct ptx_code *in, uint32_t mask);
