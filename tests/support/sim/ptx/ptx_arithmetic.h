/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Ptxarith: what each arithmetic instruction of PTX gives for one thread. See ptxscalar.h. */
#include "sim/ptx/ir.h"

/* d = op(in…); -EOPNOTSUPP if it is not known here. Bits beyond the result's type are junk. */
int ptxarith(const struct ptx_opcode *opcode, const uint64_t in[4], uint64_t *ret);
enum ptx_type ptxarith_result(const struct ptx_opcode *opcode); /* type of d */
bool ptxarith_compare(const struct ptx_opcode *opcode, enum ptx_type type, uint64_t a, uint64_t b);
/* To 64 bits, by the type's sign. */
uint64_t ptxarith_extend(uint64_t bits, enum ptx_type type);
double ptxarith_real(uint64_t bits, enum ptx_type type); /* a float of any width */
