/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/core/shape.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"

#define COUNT_MAX (INT64_C(1) << 62)

int shape_make(struct shape *ret, int rank, const int64_t *dims) {
    struct shape shape = { .rank = rank };

    if (rank < SHAPE_UNKNOWN || rank > SHAPE_RANK_MAX || (rank > 0 && !dims))
        return -EINVAL;
    for (int i = 0; i < rank; i++) {
        if (dims[i] < SHAPE_UNKNOWN)
            return -EINVAL;
        shape.dims[i] = dims[i];
    }
    *ret = shape;
    return 0;
}

int shape_take(struct shape *ret, int rank, const int64_t *dims, struct allot_error *err) {
    int i = 0;

    if (shape_make(ret, rank, dims) == 0)
        return 0;
    if (rank < SHAPE_UNKNOWN || rank > SHAPE_RANK_MAX)
        return error_set(err, -EINVAL,
                         "it has %d dimensions: the number must be 0 to %d, or -1 for any", rank,
                         SHAPE_RANK_MAX);
    if (!dims)
        return error_set(err, -EINVAL, "it has %d dimensions whose lengths are not given: NULL",
                         rank);
    while (dims[i] >= SHAPE_UNKNOWN)
        i++;
    return error_set(err, -EINVAL,
                     "dimension %d is %lld long: a length is 0 or more, -1 where it is open", i,
                     (long long)dims[i]);
}

bool shape_is_whole(const struct shape *shape) {
    if (shape->rank < 0)
        return false;
    for (int i = 0; i < shape->rank; i++)
        if (shape->dims[i] < 0)
            return false;
    return true;
}

bool shape_equal(const struct shape *a, const struct shape *b) {
    return a->rank == b->rank &&
           (a->rank < 0 || memcmp(a->dims, b->dims, (size_t)a->rank * sizeof(a->dims[0])) == 0);
}

int64_t shape_count(const struct shape *shape) {
    int64_t count = 1;
    bool too_large = false;

    if (!shape_is_whole(shape))
        return SHAPE_UNKNOWN;
    for (int i = 0; i < shape->rank; i++) {
        if (shape->dims[i] == 0)
            return 0;
        if (__builtin_mul_overflow(count, shape->dims[i], &count) || count > COUNT_MAX) {
            too_large = true; /* unless a later dimension is 0 */
            count = 1;
        }
    }
    return too_large ? SHAPE_TOO_LARGE : count;
}

int shape_merge(struct shape *ret, const struct shape *a, const struct shape *b) {
    struct shape merged = *a;

    if (a->rank < 0 || b->rank < 0) {
        *ret = a->rank < 0 ? *b : *a;
        return 0;
    }
    if (a->rank != b->rank)
        return -EINVAL;
    for (int i = 0; i < a->rank; i++) {
        if (a->dims[i] >= 0 && b->dims[i] >= 0 && a->dims[i] != b->dims[i])
            return -EINVAL;
        merged.dims[i] = MAX(a->dims[i], b->dims[i]);
    }
    *ret = merged;
    return 0;
}

bool shape_compatible(const struct shape *a, const struct shape *b) {
    struct shape merged;

    return shape_merge(&merged, a, b) == 0;
}

int shape_broadcast(struct shape *ret, const struct shape *a, const struct shape *b) {
    struct shape result = { .rank = MAX(a->rank, b->rank) };

    if (a->rank < 0 || b->rank < 0) {
        *ret = shape_unknown();
        return 0;
    }
    for (int i = 0; i < result.rank; i++) {
        int at_a = i - (result.rank - a->rank), at_b = i - (result.rank - b->rank);
        int64_t x = at_a < 0 ? 1 : a->dims[at_a], y = at_b < 0 ? 1 : b->dims[at_b];

        if (x == 1 || y == 1)
            result.dims[i] = x == 1 ? y : x;
        else if (x >= 0 && y >= 0 && x != y)
            return -EINVAL;
        else /* one is known and not 1: the other must be that, or 1 */
            result.dims[i] = MAX(x, y);
    }
    *ret = result;
    return 0;
}

const char *shape_format(const struct shape *shape, char text[static SHAPE_TEXT_SIZE]) {
    size_t n = 0;

    if (shape->rank < 0) {
        snprintf(text, SHAPE_TEXT_SIZE, "<unknown>");
        return text;
    }
    n += (size_t)snprintf(text, SHAPE_TEXT_SIZE, "[");
    for (int i = 0; i < shape->rank; i++) {
        const char *comma = i ? ", " : "";

        if (shape->dims[i] < 0)
            n += (size_t)snprintf(text + n, SHAPE_TEXT_SIZE - n, "%s?", comma);
        else
            n += (size_t)snprintf(text + n, SHAPE_TEXT_SIZE - n, "%s%" PRId64, comma,
                                  shape->dims[i]);
    }
    snprintf(text + n, SHAPE_TEXT_SIZE - n, "]");
    return text;
}
