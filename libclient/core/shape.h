/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Shape: how many dimensions a tensor has and how long each is, as far as that is known.
 *
 * A plain value, any thread. -1 is a dimension that is not known yet, a rank of -1 a shape of which
 * nothing is known. A shape is *whole* when everything is known; tensors have whole shapes, outputs
 * of graph nodes any.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct allot_error;

#define SHAPE_RANK_MAX 8
#define SHAPE_UNKNOWN  (-1)
/* "[1024, 1024, ?, …]" */
#define SHAPE_TEXT_SIZE 192

struct shape {
    int rank;                     /* 0–8, or SHAPE_UNKNOWN */
    int64_t dims[SHAPE_RANK_MAX]; /* ≥ 0, or SHAPE_UNKNOWN; those behind `rank` are 0 */
};

static inline struct shape shape_unknown(void) {
    return (struct shape){ .rank = SHAPE_UNKNOWN };
}

/* -EINVAL: more than SHAPE_RANK_MAX dimensions, or one below -1. `rank` SHAPE_UNKNOWN: no `dims`.
 */
int shape_make(struct shape *ret, int rank, const int64_t *dims);
/* The same, with a phrase that says what is wrong: "it has 9 dimensions, …". */
int shape_take(struct shape *ret, int rank, const int64_t *dims, struct allot_error *err);
bool shape_is_whole(const struct shape *shape);
bool shape_equal(const struct shape *a, const struct shape *b);

/* The number of elements; -1: not known; -2: more than 2^62. */
int64_t shape_count(const struct shape *shape);
#define SHAPE_TOO_LARGE (-2)

/* The product of two lengths, or of a length and a step; 0 if it exceeds 2^63, which happens only
 * in a tensor without elements. */
static inline int64_t shape_times(int64_t a, int64_t b) {
    int64_t product;

    return __builtin_mul_overflow(a, b, &product) ? 0 : product;
}

/* Whether some whole shape is both. */
bool shape_compatible(const struct shape *a, const struct shape *b);
/* A shape with everything that either of two shapes knows. -EINVAL if they contradict each other.
 */
int shape_merge(struct shape *ret, const struct shape *a, const struct shape *b);
/* NumPy's rule: aligned at the end, 1 stretches. -EINVAL if they do not fit each other. */
int shape_broadcast(struct shape *ret, const struct shape *a, const struct shape *b);

/* "[2, 3]", "[?, 3]", "[]", "<unknown>". Returns `text`. */
const char *shape_format(const struct shape *shape, char text[static SHAPE_TEXT_SIZE]);
