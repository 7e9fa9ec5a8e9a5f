/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/graph/piece.h"

#include <errno.h>
#include <inttypes.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "libclient/graph/graph.h"

static int64_t clamp(int64_t value, int64_t low, int64_t high) {
    return value < low ? low : value > high ? high : value;
}

/* NumPy's rule for one dimension of `length`. */
static int one(struct piece *piece, int d, int64_t length, int64_t begin, int64_t end,
               int64_t stride, struct allot_error *err) {
    bool down = stride < 0;
    int64_t low = down ? -1 : 0, high = down ? length - 1 : length, span;

    if (piece->dropped[d]) {
        if (begin < -length || begin >= length)
            return error_set(err, -EINVAL,
                             "entry %" PRId64 " is not within the %" PRId64 " of dimension %d",
                             begin, length, d);
        piece->begin[d] = begin < 0 ? begin + length : begin;
        piece->count[d] = piece->stride[d] = 1;
        return 0;
    }
    begin = clamp(begin < 0 ? begin + length : begin, low, high);
    end = clamp(end < 0 ? end + length : end, low, high);
    span = down ? begin - end : end - begin;
    piece->begin[d] = begin;
    piece->stride[d] = stride;
    piece->count[d] = span <= 0 ? 0 : (span - 1) / (down ? -stride : stride) + 1;
    return 0;
}

int piece_of(struct piece *ret, const struct node *node, const struct shape *x,
             struct allot_error *err) {
    const struct attr *begin = graph_node_attr(node, "begin"), *end = graph_node_attr(node, "end"),
                      *strides = graph_node_attr(node, "strides");
    int64_t open_begin = node_int(node, "begin_mask"), open_end = node_int(node, "end_mask"),
            shrink = node_int(node, "shrink_axis_mask");
    struct piece piece = { .rank = x->rank };
    size_t n = begin->ints.n;
    int r = 0;

    if (end->ints.n != n || strides->ints.n != n || n > (size_t)x->rank)
        return error_set(err, -EINVAL,
                         "begin, end and strides have %zu, %zu and %zu entries: they must have "
                         "the same number, and no more than the %d dimensions",
                         n, end->ints.n, strides->ints.n, x->rank);
    for (int d = 0; d < x->rank && r == 0; d++) {
        int64_t length = x->dims[d], stride = (size_t)d < n ? strides->ints.values[d] : 1;
        bool drop = (size_t)d < n && shrink >> d & 1;
        /* A single entry is `begin`, whatever the other masks say, as in TensorFlow. */
        bool from_start = (size_t)d >= n || (!drop && open_begin >> d & 1);
        bool to_end = (size_t)d >= n || open_end >> d & 1;

        if (stride == 0 || stride == INT64_MIN)
            return error_set(err, -EINVAL, "the stride of dimension %d is %s", d,
                             stride ? "too large" : "0");
        if (drop && stride < 0)
            return error_set(err, -EINVAL,
                             "a single entry of dimension %d is taken with a stride of 1, not "
                             "%" PRId64,
                             d, stride);
        piece.dropped[d] = drop;
        if (from_start || to_end) {
            /* Where begin or end was left out, NumPy means the whole length: from the first entry
             * to past the last, or backwards from the last to before the first. */
            int64_t first = stride > 0 ? 0 : length - 1;
            int64_t last = stride > 0 ? length : -length - 1;

            r = one(&piece, d, length, from_start ? first : begin->ints.values[d],
                    to_end ? last : end->ints.values[d], stride, err);
        } else
            r = one(&piece, d, length, begin->ints.values[d], end->ints.values[d], stride, err);
    }
    if (r == 0)
        *ret = piece;
    return r;
}

void piece_shard(const struct node *node, int64_t n_rows, int64_t *ret_begin, int64_t *ret_count) {
    const int64_t i = node_int(node, "index"), n = node_int(node, "count");
    const int64_t whole = n_rows / n, rest = n_rows % n;

    *ret_begin = i * whole + i * rest / n;
    *ret_count = (i + 1) * whole + (i + 1) * rest / n - *ret_begin;
}
