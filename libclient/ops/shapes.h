/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Shapes: shape functions that several families of ops share, and their error texts.
 */
#include "libclient/graph/opdef.h"

struct allot_error;

/* "Add: [2, 3] and [4]: <what>"; -EINVAL. */
int shapes_refuse(const struct opdef_shapes *shapes, struct allot_error *err, const struct shape *a,
                  const struct shape *b, const char *what);
/* "Sum: [2, 3]: <format>" */
int shapes_refuse_one(const struct opdef_shapes *shapes, struct allot_error *err,
                      const struct shape *a, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The place of dimension `axis` of `shape`, whose rank is known. -EINVAL: outside. */
int shapes_axis(const struct opdef_shapes *shapes, const struct shape *shape, int64_t axis,
                int *ret, struct allot_error *err);
/* A bit per axis of the attribute `axes`; each once. */
int shapes_axes(const struct opdef_shapes *shapes, const struct shape *shape, uint32_t *ret,
                struct allot_error *err);

/* The shape that the numbers of input `i` describe, as far as they are known; -1 is open. */
int shapes_input(const struct opdef_shapes *shapes, size_t i, struct shape *ret,
                 struct allot_error *err);
/* Inputs `from` … merged into one shape. */
int shapes_merge(const struct opdef_shapes *shapes, size_t from, size_t to, struct shape *ret,
                 struct allot_error *err);
/* -EINVAL unless input `i` can be of that rank. */
int shapes_rank(const struct opdef_shapes *shapes, size_t i, int rank, struct allot_error *err);

/* Whole shape functions: output 0 has … */
int shapes_none(struct opdef_shapes *shapes, struct allot_error *err);   /* there are none */
int shapes_same(struct opdef_shapes *shapes, struct allot_error *err);   /* … that of input 0 */
int shapes_merged(struct opdef_shapes *shapes, struct allot_error *err); /* … that of all */
int shapes_like(struct opdef_shapes *shapes, struct allot_error *err);   /* … that of input 1 */
int shapes_single(struct opdef_shapes *shapes, struct allot_error *err); /* one number */
int shapes_stretched(struct opdef_shapes *shapes, struct allot_error *err); /* NumPy's, of all */
int shapes_attr(struct opdef_shapes *shapes, struct allot_error *err);      /* attribute `shape` */
int shapes_value(struct opdef_shapes *shapes, struct allot_error *err);     /* what input 0 says */
