/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Ops: the definitions of liballot's own ops, in tables by family (docs/ops.md lists them).
 * Signatures, shapes and gradients; the arithmetic is in kernels/.
 */
#include <stddef.h>

#include "libclient/graph/opdef.h"

struct allot_error;

/* Register all ops; done once per process, by the first caller. Any thread. -ENOMEM. */
int ops_register_all(struct allot_error *err);

/* The tables. */
struct ops_table {
    const struct opdef_row *rows;
    size_t n;
};
extern const struct ops_table ops_flow, ops_variable, ops_source, ops_unary, ops_binary, ops_matrix,
    ops_reduce, ops_softmax, ops_array, ops_piece, ops_like, ops_replica;
#define OPS_TABLE(rows)                                                                            \
    { rows, sizeof(rows) / sizeof((rows)[0]) }

/* Sets of types, as parts of signatures. */
#define FLOATS  "{f16, bf16, f32, f64}"
#define SIGNED  "{f16, bf16, f32, f64, i8, i16, i32, i64}"
#define NUMBERS "{f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64}"
