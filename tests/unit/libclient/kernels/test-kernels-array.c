/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that put elements elsewhere, against the same by indices, one element at a time. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/core/tensor.h"
#include "tests/support/suite.h"
#include "tests/support/libclient/kernels/kernel_fixture.h"

/* Types of each size; a number per element tells them apart. */
static const enum dtype types[] = { DTYPE_U8, DTYPE_BF16, DTYPE_F32, DTYPE_I64 };

static void start(struct kernel_fixture *fixture, const char *op, enum dtype dtype) {
    kernel_fixture_init(fixture, op);
    kernel_fixture_attr(fixture, "T", attr_dtype(dtype));
}

static void *count_up(struct kernel_fixture *fixture, enum dtype dtype, const struct shape *shape) {
    void *data = kernel_fixture_input(fixture, dtype, shape);

    for (int64_t i = 0; i < shape_count(shape); i++)
        kernel_fixture_set(dtype, data, i, i % 127 + 1);
    return data;
}

static void finish(struct kernel_fixture *fixture, struct thread_pool *pool) {
    int r = kernel_fixture_outputs(fixture);

    ck_assert_msg(r == 0, "%s", fixture->error.text);
    r = kernel_fixture_run(fixture, pool);
    ck_assert_msg(r == 0, "%s", fixture->error.text);
}

/* The coordinates of element `i`. */
static void place(const struct shape *shape, int64_t i, int64_t at[SHAPE_RANK_MAX]) {
    for (int k = shape->rank; k-- > 0; i /= shape->dims[k])
        at[k] = i % shape->dims[k];
}

static int64_t number(const struct shape *shape, const int64_t *at) {
    int64_t i = 0;

    for (int k = 0; k < shape->rank; k++)
        i = i * shape->dims[k] + at[k];
    return i;
}

static void same(const struct kernel_fixture *fixture, uint32_t output, int64_t i, uint32_t input,
                 int64_t j) {
    const enum dtype dtype = fixture->out[output].dtype;
    long double got = kernel_fixture_get(dtype, fixture->out_data[output], i),
                expected = kernel_fixture_get(dtype, fixture->in_data[input], j);

    if (got != expected)
        ck_abort_msg("%s of %s: element %lld of output %u is %Lg, not %Lg", fixture->node.op->name,
                     dtype_name(dtype), (long long)i, output, got, expected);
}

START_TEST(transpose_turns_any_dimensions) {
    static const int64_t perms[][4] = { { 0, 1, 2, 3 }, { 3, 2, 1, 0 }, { 0, 2, 1, 3 },
                                        { 1, 0, 3, 2 }, { 2, 3, 0, 1 }, { 0, 3, 1, 2 },
                                        { 3, 0, 1, 2 } };
    const struct shape shapes[] = { kernel_fixture_shape(4, 3, 5, 7, 2),
                                    kernel_fixture_shape(4, 1, 40, 1, 70),
                                    kernel_fixture_shape(4, 2, 3, 0, 4) };

    for (size_t t = 0; t < ELEMENTSOF(types); t++)
        for (size_t s = 0; s < ELEMENTSOF(shapes); s++)
            for (size_t p = 0; p < ELEMENTSOF(perms); p++) {
                cleanup(kernel_fixture_done) struct kernel_fixture fixture;

                start(&fixture, "Transpose", types[t]);
                kernel_fixture_attr(&fixture, "perm", attr_ints(perms[p], 4));
                count_up(&fixture, types[t], &shapes[s]);
                finish(&fixture, NULL);
                for (int64_t i = 0; i < shape_count(&fixture.out[0].shape); i++) {
                    int64_t at[8], from[8];

                    place(&fixture.out[0].shape, i, at);
                    for (int k = 0; k < 4; k++)
                        from[perms[p][k]] = at[k];
                    same(&fixture, 0, i, 0, number(&shapes[s], from));
                }
            }
}
END_TEST

START_TEST(transpose_is_the_same_on_any_number_of_threads) {
    const struct shape shape = kernel_fixture_shape(3, 2, 300, 411);

    for (unsigned threads = 0; threads <= 8; threads += 4) {
        cleanup(pool_freep) struct thread_pool *pool = NULL;
        cleanup(kernel_fixture_done) struct kernel_fixture fixture;

        ck_assert_int_eq(pool_new(&pool, threads, "test"), 0);
        start(&fixture, "Transpose", DTYPE_F32);
        kernel_fixture_attr(&fixture, "perm", attr_ints((const int64_t[]){ 2, 0, 1 }, 3));
        count_up(&fixture, DTYPE_F32, &shape);
        finish(&fixture, pool);
        for (int64_t i = 0; i < 2 * 300 * 411; i++)
            same(&fixture, 0, i, 0, i % 600 * 411 + i / 600);
    }
}
END_TEST

START_TEST(joining_and_cutting_are_each_others_inverse) {
    for (size_t t = 0; t < ELEMENTSOF(types); t++)
        for (int axis = -3; axis < 3; axis++) {
            cleanup(kernel_fixture_done) struct kernel_fixture join, pack, split, unpack;
            struct shape parts[3] = { kernel_fixture_shape(3, 4, 3, 5),
                                      kernel_fixture_shape(3, 4, 3, 5),
                                      kernel_fixture_shape(3, 4, 3, 5) };
            const int own = axis < 0 ? axis + 3 : axis;

            for (int k = 0; k < 3; k++)
                parts[k].dims[own] = k + (own > 0);
            start(&join, "Concat", types[t]);
            kernel_fixture_attr(&join, "N", attr_int(3));
            kernel_fixture_attr(&join, "axis", attr_int(axis));
            for (int k = 0; k < 3; k++)
                count_up(&join, types[t], &parts[k]);
            finish(&join, NULL);
            for (int64_t i = 0; i < shape_count(&join.out[0].shape); i++) {
                int64_t at[8];
                uint32_t part = 0;

                place(&join.out[0].shape, i, at);
                for (; at[own] >= parts[part].dims[own]; part++)
                    at[own] -= parts[part].dims[own];
                same(&join, 0, i, part, number(&parts[part], at));
            }

            start(&split, "SplitLike", types[t]);
            kernel_fixture_attr(&split, "N", attr_int(3));
            kernel_fixture_attr(&split, "U", attr_dtype(DTYPE_F32));
            kernel_fixture_attr(&split, "axis", attr_int(axis));
            memcpy(kernel_fixture_input(&split, types[t], &join.out[0].shape), join.out_data[0],
                   (size_t)shape_count(&join.out[0].shape) * dtype_bytes(types[t]));
            for (int k = 0; k < 3; k++)
                kernel_fixture_input(&split, DTYPE_F32, &parts[k]);
            finish(&split, NULL);
            for (uint32_t k = 0; k < 3; k++)
                ck_assert_mem_eq(split.out_data[k], join.in_data[k],
                                 (size_t)shape_count(&parts[k]) * dtype_bytes(types[t]));

            start(&pack, "Pack", types[t]);
            kernel_fixture_attr(&pack, "N", attr_int(2));
            kernel_fixture_attr(&pack, "axis", attr_int(axis));
            for (int k = 0; k < 2; k++)
                kernel_fixture_set(types[t], count_up(&pack, types[t], &parts[1]), 0, 100 + k);
            finish(&pack, NULL);
            ck_assert_int_eq(pack.out[0].shape.rank, 4);
            start(&unpack, "Unpack", types[t]);
            kernel_fixture_attr(&unpack, "N", attr_int(2));
            kernel_fixture_attr(&unpack, "axis", attr_int(axis));
            memcpy(kernel_fixture_input(&unpack, types[t], &pack.out[0].shape), pack.out_data[0],
                   (size_t)shape_count(&pack.out[0].shape) * dtype_bytes(types[t]));
            finish(&unpack, NULL);
            for (int64_t i = 0; i < shape_count(&parts[1]); i++) {
                int64_t at[8], wide[8] = { 0 };

                place(&parts[1], i, at);
                for (int64_t k = 0; k < 2; k++) {
                    const int axis4 = axis < 0 ? axis + 4 : axis;

                    for (int d = 0, from = 0; d < 4; d++)
                        wide[d] = d == axis4 ? k : at[from++];
                    same(&pack, 0, number(&pack.out[0].shape, wide), (uint32_t)k, i);
                }
            }
            for (uint32_t k = 0; k < 2; k++)
                ck_assert_mem_eq(unpack.out_data[k], pack.in_data[k],
                                 (size_t)shape_count(&parts[1]) * dtype_bytes(types[t]));
        }
}
END_TEST

START_TEST(split_cuts_evenly) {
    const struct shape shape = kernel_fixture_shape(2, 4, 6);
    cleanup(kernel_fixture_done) struct kernel_fixture fixture;

    start(&fixture, "Split", DTYPE_F32);
    kernel_fixture_attr(&fixture, "N", attr_int(3));
    kernel_fixture_attr(&fixture, "axis", attr_int(1));
    count_up(&fixture, DTYPE_F32, &shape);
    finish(&fixture, NULL);
    for (uint32_t k = 0; k < 3; k++)
        for (int64_t i = 0; i < 8; i++)
            same(&fixture, k, i, 0, i / 2 * 6 + k * 2 + i % 2);
}
END_TEST

/* ---- Pieces ------------------------------------------------------------------------------------
 */

START_TEST(slices_and_their_gradients) {
    static const int64_t begin[] = { 1, 0, 2 }, size[] = { 2, -1, 3 };
    const struct shape shape = kernel_fixture_shape(3, 4, 3, 6);

    for (size_t t = 0; t < ELEMENTSOF(types); t++) {
        cleanup(kernel_fixture_done) struct kernel_fixture slice, back, pad;
        struct shape part;

        start(&slice, "Slice", types[t]);
        kernel_fixture_attr(&slice, "begin", attr_ints(begin, 3));
        kernel_fixture_attr(&slice, "size", attr_ints(size, 3));
        count_up(&slice, types[t], &shape);
        finish(&slice, NULL);
        part = slice.out[0].shape;
        ck_assert_int_eq(shape_count(&part), 18);
        for (int64_t i = 0; i < 18; i++) {
            int64_t at[8];

            place(&part, i, at);
            for (int k = 0; k < 3; k++)
                at[k] += begin[k];
            same(&slice, 0, i, 0, number(&shape, at));
        }
        start(&back, "SliceGrad", types[t]);
        kernel_fixture_attr(&back, "U", attr_dtype(DTYPE_I64));
        kernel_fixture_attr(&back, "begin", attr_ints(begin, 3));
        count_up(&back, types[t], &part);
        kernel_fixture_input(&back, DTYPE_I64, &shape);
        finish(&back, NULL);
        for (int64_t i = 0; i < shape_count(&shape); i++) {
            int64_t at[8];
            bool inside = true;

            place(&shape, i, at);
            for (int k = 0; k < 3; k++) {
                at[k] -= begin[k];
                inside &= at[k] >= 0 && at[k] < part.dims[k];
            }
            if (inside)
                same(&back, 0, i, 0, number(&part, at));
            else
                ck_assert(kernel_fixture_get(types[t], back.out_data[0], i) == 0);
        }
        start(&pad, "Pad", types[t]);
        kernel_fixture_attr(&pad, "before", attr_ints((const int64_t[]){ 1, 0, 2 }, 3));
        kernel_fixture_attr(&pad, "after", attr_ints((const int64_t[]){ 0, 3, 1 }, 3));
        kernel_fixture_attr(&pad, "value", attr_float(9));
        count_up(&pad, types[t], &shape);
        finish(&pad, NULL);
        for (int64_t i = 0; i < shape_count(&pad.out[0].shape); i++) {
            int64_t at[8];

            place(&pad.out[0].shape, i, at);
            if (at[0] >= 1 && at[1] < 3 && at[2] >= 2 && at[2] < 8) {
                at[0]--;
                at[2] -= 2;
                same(&pad, 0, i, 0, number(&shape, at));
            } else
                ck_assert(kernel_fixture_get(types[t], pad.out_data[0], i) == 9);
        }
    }
}
END_TEST

/* Python's rule, once more. */
static int64_t pick(int64_t begin, int64_t end, int64_t step, int64_t n, int64_t *ret) {
    int64_t count = 0;

    begin = begin < 0 ? begin + n : begin;
    end = end < 0 ? end + n : end;
    if (step > 0)
        for (int64_t i = begin < 0 ? 0 : begin; i < end && i < n; i += step)
            ret[count++] = i;
    else
        for (int64_t i = begin >= n ? n - 1 : begin; i > end && i >= 0; i += step)
            ret[count++] = i;
    return count;
}

START_TEST(strided_slices_are_pythons) {
    static const int64_t cases[][3] = { { 0, 7, 1 }, { 1, 7, 2 },    { -3, -1, 1 }, { 6, 1, -2 },
                                        { 5, 2, 1 }, { 9, -20, -1 }, { 0, 99, 3 },  { -1, 0, -1 } };
    const struct shape shape = kernel_fixture_shape(2, 7, 3);

    for (size_t c = 0; c < ELEMENTSOF(cases); c++) {
        cleanup(kernel_fixture_done) struct kernel_fixture slice, back;
        struct kernel_fixture *trials[] = { &slice, &back };
        int64_t rows[8], n = pick(cases[c][0], cases[c][1], cases[c][2], 7, rows);
        const struct shape part = kernel_fixture_shape(2, (int)n, 3);

        start(&slice, "StridedSlice", DTYPE_F32);
        start(&back, "StridedSliceGrad", DTYPE_F32);
        for (int k = 0; k < 2; k++) {
            kernel_fixture_attr(trials[k], "begin", attr_ints(&cases[c][0], 1));
            kernel_fixture_attr(trials[k], "end", attr_ints(&cases[c][1], 1));
            kernel_fixture_attr(trials[k], "strides", attr_ints(&cases[c][2], 1));
        }
        count_up(&slice, DTYPE_F32, &shape);
        finish(&slice, NULL);
        ck_assert_msg(shape_equal(&slice.out[0].shape, &part), "case %zu", c);
        for (int64_t i = 0; i < n * 3; i++)
            same(&slice, 0, i, 0, rows[i / 3] * 3 + i % 3);
        count_up(&back, DTYPE_F32, &part);
        kernel_fixture_input(&back, DTYPE_F32, &shape);
        finish(&back, NULL);
        for (int64_t row = 0; row < 7; row++) {
            int64_t from = -1;

            for (int64_t k = 0; k < n; k++)
                if (rows[k] == row)
                    from = k;
            for (int64_t j = 0; j < 3; j++)
                if (from >= 0)
                    same(&back, 0, row * 3 + j, 0, from * 3 + j);
                else
                    ck_assert(((float *)back.out_data[0])[row * 3 + j] == 0);
        }
    }
}
END_TEST

/* A row alone: the number of `begin`, whatever is open, as TensorFlow has it. */
START_TEST(a_single_entry_is_the_one_at_begin) {
    const struct shape shape = kernel_fixture_shape(2, 7, 3), row = kernel_fixture_shape(1, 3);
    const int64_t begin = -3, end = 2, strides[] = { 1, 2 };

    for (int masks = 0; masks < 8; masks++) {
        cleanup(kernel_fixture_done) struct kernel_fixture slice, back;
        struct kernel_fixture *trials[] = { &slice, &back };

        start(&slice, "StridedSlice", DTYPE_F32);
        start(&back, "StridedSliceGrad", DTYPE_F32);
        for (int k = 0; k < 2; k++) {
            kernel_fixture_attr(trials[k], "begin", attr_ints(&begin, 1));
            kernel_fixture_attr(trials[k], "end", attr_ints(&end, 1));
            kernel_fixture_attr(trials[k], "strides", attr_ints(&strides[masks >> 2], 1));
            kernel_fixture_attr(trials[k], "begin_mask", attr_int(masks & 1));
            kernel_fixture_attr(trials[k], "end_mask", attr_int(masks >> 1 & 1));
            kernel_fixture_attr(trials[k], "shrink_axis_mask", attr_int(1));
        }
        count_up(&slice, DTYPE_F32, &shape);
        finish(&slice, NULL);
        ck_assert(shape_equal(&slice.out[0].shape, &row));
        for (int64_t i = 0; i < 3; i++)
            same(&slice, 0, i, 0, 4 * 3 + i);
        count_up(&back, DTYPE_F32, &row);
        kernel_fixture_input(&back, DTYPE_F32, &shape);
        finish(&back, NULL);
        for (int64_t i = 0; i < 3; i++)
            same(&back, 0, 4 * 3 + i, 0, i);
    }
}
END_TEST

/* ---- Stretches ---------------------------------------------------------------------------------
 */

START_TEST(stretches_and_tiles) {
    for (size_t t = 0; t < ELEMENTSOF(types); t++) {
        const struct shape row = kernel_fixture_shape(2, 3, 1),
                           big = kernel_fixture_shape(3, 2, 3, 5),
                           two = kernel_fixture_shape(2, 2, 3),
                           three = kernel_fixture_shape(2, 2, 5);
        cleanup(kernel_fixture_done) struct kernel_fixture like, put_in, tile;

        start(&like, "BroadcastLike", types[t]);
        kernel_fixture_attr(&like, "U", attr_dtype(DTYPE_F32));
        count_up(&like, types[t], &row);
        kernel_fixture_input(&like, DTYPE_F32, &big);
        finish(&like, NULL);
        for (int64_t i = 0; i < 30; i++)
            same(&like, 0, i, 0, i / 5 % 3);

        start(&put_in, "BroadcastLike", types[t]);
        kernel_fixture_attr(&put_in, "U", attr_dtype(DTYPE_F32));
        kernel_fixture_attr(&put_in, "axes", attr_ints((const int64_t[]){ -2 }, 1));
        count_up(&put_in, types[t], &three);
        kernel_fixture_input(&put_in, DTYPE_F32, &big);
        finish(&put_in, NULL);
        for (int64_t i = 0; i < 30; i++)
            same(&put_in, 0, i, 0, i / 15 * 5 + i % 5);

        start(&tile, "Tile", types[t]);
        kernel_fixture_attr(&tile, "multiples", attr_ints((const int64_t[]){ 2, 3 }, 2));
        count_up(&tile, types[t], &two);
        finish(&tile, NULL);
        for (int64_t i = 0; i < 36; i++)
            same(&tile, 0, i, 0, i / 9 % 2 * 3 + i % 9 % 3);
    }
}
END_TEST

START_TEST(the_same_elements_under_another_shape) {
    static const char *const ops[] = { "Identity", "StopGradient", "ExpandDims", "Squeeze" };
    const struct shape shape = kernel_fixture_shape(2, 7, 3);

    for (size_t i = 0; i < ELEMENTSOF(ops); i++)
        for (int in_place = 0; in_place < 2; in_place++) {
            cleanup(kernel_fixture_done) struct kernel_fixture fixture;

            start(&fixture, ops[i], DTYPE_F16);
            count_up(&fixture, DTYPE_F16, &shape);
            ck_assert_int_eq(in_place ? kernel_fixture_outputs_in_place(&fixture, 0)
                                      : kernel_fixture_outputs(&fixture),
                             0);
            ck_assert_int_eq(kernel_fixture_run(&fixture, NULL), 0);
            for (int64_t k = 0; k < 21; k++) {
                same(&fixture, 0, k, 0, k);
                ck_assert(kernel_fixture_get(DTYPE_F16, fixture.out_data[0], k) == (float)(k + 1));
            }
        }
}
END_TEST

START_TEST(a_slice_like_another_begins_where_it_is_told) {
    static const int64_t begin[] = { 1, 0, 2 };
    const struct shape shape = kernel_fixture_shape(3, 4, 3, 6),
                       part = kernel_fixture_shape(3, 2, 3, 3);

    for (size_t t = 0; t < ELEMENTSOF(types); t++) {
        cleanup(kernel_fixture_done) struct kernel_fixture fixture;

        start(&fixture, "SliceLike", types[t]);
        kernel_fixture_attr(&fixture, "U", attr_dtype(DTYPE_I32));
        kernel_fixture_attr(&fixture, "begin", attr_ints(begin, 3));
        count_up(&fixture, types[t], &shape);
        kernel_fixture_input(&fixture, DTYPE_I32, &part);
        finish(&fixture, NULL);
        ck_assert(shape_equal(&fixture.out[0].shape, &part));
        for (int64_t i = 0; i < shape_count(&part); i++) {
            int64_t at[8];

            place(&part, i, at);
            for (int k = 0; k < 3; k++)
                at[k] += begin[k];
            same(&fixture, 0, i, 0, number(&shape, at));
        }
    }
}
END_TEST

START_TEST(zeros_ones_and_shapes) {
    const struct shape shape = kernel_fixture_shape(2, 7, 3);

    for (int dtype = 1; dtype < N_DTYPES; dtype++)
        for (int one = 0; one < 2; one++) {
            cleanup(kernel_fixture_done) struct kernel_fixture fixture;

            start(&fixture, one ? "OnesLike" : "ZerosLike", (enum dtype)dtype);
            count_up(&fixture, (enum dtype)dtype, &shape);
            finish(&fixture, NULL);
            for (int64_t i = 0; i < 21; i++)
                ck_assert(kernel_fixture_get((enum dtype)dtype, fixture.out_data[0], i) == one);
        }
    for (int what = 0; what < 3; what++) {
        static const char *const ops[] = { "Shape", "Size", "Rank" };
        cleanup(kernel_fixture_done) struct kernel_fixture fixture;
        int64_t *got;

        start(&fixture, ops[what], DTYPE_F32);
        kernel_fixture_input(&fixture, DTYPE_F32, &shape);
        finish(&fixture, NULL);
        got = fixture.out_data[0];
        ck_assert_int_eq(got[0], what == 0 ? 7 : what == 1 ? 21 : 2);
        ck_assert(what != 0 || got[1] == 3);
    }
}
END_TEST

/* A value that the shape is read from, as a plan knows it. */
static void know(struct kernel_fixture *fixture, uint32_t i, struct allot_tensor **ret) {
    struct allot_error err;

    ck_assert_int_eq(allot_tensor_copy_of(ret, (enum allot_dtype)fixture->in[i].dtype,
                                          fixture->in[i].shape.rank, fixture->in[i].shape.dims,
                                          fixture->in_data[i], &err),
                     0);
    fixture->in[i].known = *ret;
}

START_TEST(fill_and_broadcast_to_and_range) {
    const struct shape two = kernel_fixture_shape(1, 2), single = kernel_fixture_shape(0),
                       row = kernel_fixture_shape(1, 5);
    cleanup(kernel_fixture_done) struct kernel_fixture fill, to, range;
    struct allot_tensor *shape[5];

    start(&fill, "Fill", DTYPE_I16);
    memcpy(kernel_fixture_input(&fill, DTYPE_I64, &two), (const int64_t[]){ 4, 5 }, 16);
    kernel_fixture_set(DTYPE_I16, kernel_fixture_input(&fill, DTYPE_I16, &single), 0, -7);
    know(&fill, 0, &shape[0]);
    finish(&fill, NULL);
    for (int64_t i = 0; i < 20; i++)
        ck_assert_int_eq(((int16_t *)fill.out_data[0])[i], -7);

    start(&to, "BroadcastTo", DTYPE_I16);
    count_up(&to, DTYPE_I16, &row);
    memcpy(kernel_fixture_input(&to, DTYPE_I64, &two), (const int64_t[]){ 4, 5 }, 16);
    know(&to, 1, &shape[1]);
    finish(&to, NULL);
    for (int64_t i = 0; i < 20; i++)
        same(&to, 0, i, 0, i % 5);

    start(&range, "Range", DTYPE_F32);
    for (int k = 0; k < 3; k++) {
        *(float *)kernel_fixture_input(&range, DTYPE_F32, &single) =
            (const float[]){ 10, -2, -2.5f }[k];
        know(&range, (uint32_t)k, &shape[2 + k]);
    }
    finish(&range, NULL);
    ck_assert_int_eq(shape_count(&range.out[0].shape), 5);
    for (int64_t i = 0; i < 5; i++)
        ck_assert(((float *)range.out_data[0])[i] == 10 - 2.5f * (float)i);
    for (int k = 0; k < 5; k++)
        allot_tensor_unref(shape[k]);
}
END_TEST

/* ---- By index ----------------------------------------------------------------------------------
 */

/* The second input says the shape: by its numbers, or by being an example. */
START_TEST(the_same_elements_in_a_shape_that_is_given) {
    const struct shape shape = kernel_fixture_shape(2, 7, 3), given = kernel_fixture_shape(2, 3, 7),
                       two = kernel_fixture_shape(1, 2);

    for (int by_example = 0; by_example < 2; by_example++) {
        cleanup(kernel_fixture_done) struct kernel_fixture fixture;
        struct allot_tensor *known = NULL;

        start(&fixture, by_example ? "ReshapeLike" : "Reshape", DTYPE_F16);
        count_up(&fixture, DTYPE_F16, &shape);
        if (by_example) {
            kernel_fixture_attr(&fixture, "U", attr_dtype(DTYPE_U8));
            kernel_fixture_input(&fixture, DTYPE_U8, &given);
        } else {
            memcpy(kernel_fixture_input(&fixture, DTYPE_I64, &two), given.dims,
                   2 * sizeof(int64_t));
            know(&fixture, 1, &known);
        }
        finish(&fixture, NULL);
        ck_assert(shape_equal(&fixture.out[0].shape, &given));
        for (int64_t k = 0; k < 21; k++)
            same(&fixture, 0, k, 0, k);
        allot_tensor_unref(known);
    }
}
END_TEST

START_TEST(gather_and_its_gradient) {
    static const int32_t indices[] = { 4, 0, 4, 2 };
    const struct shape shape = kernel_fixture_shape(3, 3, 5, 2),
                       index_shape = kernel_fixture_shape(2, 2, 2);

    for (size_t t = 0; t < ELEMENTSOF(types); t++) {
        cleanup(kernel_fixture_done) struct kernel_fixture gather, back;
        struct kernel_fixture *both[] = { &gather, &back };

        start(&gather, "Gather", types[t]);
        start(&back, "GatherGrad", types[t]);
        for (int k = 0; k < 2; k++) {
            kernel_fixture_attr(both[k], "I", attr_dtype(DTYPE_I32));
            kernel_fixture_attr(both[k], "axis", attr_int(1));
        }
        count_up(&gather, types[t], &shape);
        memcpy(kernel_fixture_input(&gather, DTYPE_I32, &index_shape), indices, sizeof(indices));
        finish(&gather, NULL);
        ck_assert_int_eq(shape_count(&gather.out[0].shape), 24);
        for (int64_t i = 0; i < 24; i++)
            same(&gather, 0, i, 0, (i / 8 * 5 + indices[i / 2 % 4]) * 2 + i % 2);

        count_up(&back, types[t], &gather.out[0].shape);
        memcpy(kernel_fixture_input(&back, DTYPE_I32, &index_shape), indices, sizeof(indices));
        kernel_fixture_input(&back, types[t], &shape);
        finish(&back, NULL);
        for (int64_t i = 0; i < 30; i++) {
            long double sum = 0;

            for (int64_t k = 0; k < 4; k++)
                if (indices[k] == i / 2 % 5)
                    sum +=
                        kernel_fixture_get(types[t], back.in_data[0], (i / 10 * 4 + k) * 2 + i % 2);
            ck_assert(kernel_fixture_get(types[t], back.out_data[0], i) == sum);
        }
        ((int32_t *)gather.in_data[1])[2] = 5;
        ck_assert_int_eq(kernel_fixture_run(&gather, NULL), -ERANGE);
        ck_assert_str_eq(gather.error.text, "index 5, element 2 of the indices, is not in [0, 5)");
        ((int32_t *)gather.in_data[1])[2] = -1;
        ck_assert_int_eq(kernel_fixture_run(&gather, NULL), -ERANGE);
    }
}
END_TEST

START_TEST(one_hot_and_where) {
    static const uint8_t indices[] = { 2, 0, 3, 1 };
    const struct shape shape = kernel_fixture_shape(2, 2, 2), single = kernel_fixture_shape(0);

    for (int axis = -1; axis < 3; axis++) {
        cleanup(kernel_fixture_done) struct kernel_fixture fixture;
        const int own = axis < 0 ? 2 : axis;

        start(&fixture, "OneHot", DTYPE_F32);
        kernel_fixture_attr(&fixture, "I", attr_dtype(DTYPE_U8));
        kernel_fixture_attr(&fixture, "depth", attr_int(3));
        kernel_fixture_attr(&fixture, "axis", attr_int(axis));
        memcpy(kernel_fixture_input(&fixture, DTYPE_U8, &shape), indices, sizeof(indices));
        *(float *)kernel_fixture_input(&fixture, DTYPE_F32, &single) = 5;
        *(float *)kernel_fixture_input(&fixture, DTYPE_F32, &single) = -1;
        finish(&fixture, NULL);
        for (int64_t i = 0; i < 12; i++) {
            int64_t at[8], from[2];

            place(&fixture.out[0].shape, i, at);
            for (int k = 0, n = 0; k < 3; k++)
                if (k != own)
                    from[n++] = at[k];
            ck_assert(((float *)fixture.out_data[0])[i] ==
                      (indices[from[0] * 2 + from[1]] == at[own] ? 5 : -1));
        }
    }
    {
        cleanup(kernel_fixture_done) struct kernel_fixture fixture;
        static const int64_t expected[] = { 0, 1, 1, 0, 1, 1 };

        kernel_fixture_init(&fixture, "Where");
        memcpy(kernel_fixture_input(&fixture, DTYPE_BOOL, &shape), (const uint8_t[]){ 0, 1, 1, 1 },
               4);
        finish(&fixture, NULL);
        ck_assert_int_eq(fixture.out[0].shape.dims[0], 3);
        ck_assert_int_eq(fixture.out[0].shape.dims[1], 2);
        ck_assert_mem_eq(fixture.out_data[0], expected, sizeof(expected));
    }
}
END_TEST

SUITE_TIMEOUT("kernels-array", 120, transpose_turns_any_dimensions,
              transpose_is_the_same_on_any_number_of_threads,
              joining_and_cutting_are_each_others_inverse, split_cuts_evenly,
              slices_and_their_gradients, strided_slices_are_pythons,
              a_single_entry_is_the_one_at_begin, stretches_and_tiles,
              the_same_elements_under_another_shape, the_same_elements_in_a_shape_that_is_given,
              a_slice_like_another_begins_where_it_is_told, zeros_ones_and_shapes,
              fill_and_broadcast_to_and_range, gather_and_its_gradient, one_hot_and_where)
