/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * PTX scalar interpreter: a second interpreter of PTX, for comparison only. It shares the parser
 * with the real one and nothing else: one thread of the grid at a time, one instruction at a time,
 * a switch over operations, every value in 64 bits. As simple as possible, so that it can be
 * believed.
 *
 * Threads run one after the other until they end or come to a barrier or to an instruction in which
 * a warp's lanes see one another; that is done when all of them are there.
 */
#include <stdint.h>

struct ptx_launch;

/* Run a launch. -EOPNOTSUPP names on stderr the instruction that it lacks; -EFAULT: a bad access.
 */
int ptx_scalar_run(const struct ptx_launch *launch, uint64_t *ret_n_instructions);
