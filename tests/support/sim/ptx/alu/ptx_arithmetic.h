/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* PTX arithmetic: what each arithmetic instruction of PTX gives for one thread. See ptx_scalar.h.
 */
#include "sim/ptx/ir.h"

/* d = op(in…); -EOPNOTSUPP if it is not known here. Bits beyond the result's type are junk. */
int ptx_arithmetic(const struct ptx_opcode *opcode, const uint64_t in[4], uint64_t *ret);
enum ptx_type ptx_arithmetic_result(const struct ptx_opcode *opcode); /* type of d */
bool ptx_arithmetic_compare(const struct ptx_opcode *opcode, enum ptx_type type, uint64_t a,
                            uint64_t b);
/* To 64 bits, by the type's sign. */
uint64_t ptx_arithmetic_extend(uint64_t bits, enum ptx_type type);
double ptx_arithmetic_real(uint64_t bits, enum ptx_type type); /* a float of any width */
