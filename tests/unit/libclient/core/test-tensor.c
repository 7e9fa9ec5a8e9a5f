/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "libclient/core/tensor.h"
#include "tests/support/base/comma_locale.h"
#include "tests/support/suite.h"

static struct allot_tensor *counting(int rank, const int64_t *dims) {
    struct allot_tensor *tensor;
    float *data;

    ck_assert_int_eq(allot_tensor_new(&tensor, ALLOT_F32, rank, dims, NULL), 0);
    data = allot_tensor_data(tensor);
    for (int64_t i = 0; i < allot_tensor_count(tensor); i++)
        data[i] = (float)i;
    return tensor;
}

START_TEST(every_half_survives_the_way_through_float) {
    for (uint32_t half = 0; half < 0x10000; half++) {
        float wide = dtype_from_f16((uint16_t)half), brain = dtype_from_bf16((uint16_t)half);

        if (isnan(wide))
            ck_assert_msg((dtype_to_f16(wide) & 0x7c00) == 0x7c00 && (dtype_to_f16(wide) & 0x3ff),
                          "%x", half);
        else
            ck_assert_uint_eq(dtype_to_f16(wide), half);
        if (isnan(brain))
            ck_assert(isnan(dtype_from_bf16(dtype_to_bf16(brain))));
        else
            ck_assert_uint_eq(dtype_to_bf16(brain), half);
    }
}
END_TEST

START_TEST(halves_round_to_nearest_and_ties_to_even) {
    static const struct {
        float value;
        uint16_t half;
    } cases[] = {
        { 1.0f, 0x3c00 },           { 65504.0f, 0x7bff },      { 65519.0f, 0x7bff },
        { 65520.0f, 0x7c00 },       { 1e9f, 0x7c00 },          { -1e9f, 0xfc00 },
        { 0x1p-24f, 0x0001 },       { 0x1p-25f, 0x0000 },      { 0x1.8p-25f, 0x0001 },
        { 1.00048828125f, 0x3c00 }, { 1.0009765625f, 0x3c01 }, { 1.00146484375f, 0x3c02 },
        { -0.0f, 0x8000 },          { 0x1.ff8p-15f, 0x03ff },  { 0x1.ffcp-15f, 0x0400 },
    };

    for (size_t i = 0; i < ELEMENTSOF(cases); i++)
        ck_assert_msg(dtype_to_f16(cases[i].value) == cases[i].half, "%a: %x instead of %x",
                      cases[i].value, dtype_to_f16(cases[i].value), cases[i].half);
}
END_TEST

START_TEST(shapes_stretch_as_numpy_says) {
    static const struct {
        int ranks[3];
        int64_t a[4], b[4], c[4]; /* ranks[2] -2: refused */
    } cases[] = {
        { { 2, 2, 2 }, { 2, 3 }, { 2, 3 }, { 2, 3 } },
        { { 2, 1, 2 }, { 2, 3 }, { 3 }, { 2, 3 } },
        { { 2, 2, 2 }, { 2, 1 }, { 1, 3 }, { 2, 3 } },
        { { 0, 2, 2 }, { 0 }, { 4, 5 }, { 4, 5 } },
        { { 2, 2, -2 }, { 2, 3 }, { 2, 4 }, { 0 } },
        { { 2, 2, 2 }, { -1, 3 }, { 2, 1 }, { 2, 3 } },
        { { 1, 1, 1 }, { -1 }, { 1 }, { -1 } },
        { { 1, 1, 1 }, { 0 }, { 1 }, { 0 } },
        { { -1, 2, -1 }, { 0 }, { 2, 3 }, { 0 } },
        { { 4, 3, 4 }, { 8, 1, 6, 1 }, { 7, 1, 5 }, { 8, 7, 6, 5 } },
    };

    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        struct shape a, b, c, got, other;
        int r;

        ck_assert_int_eq(shape_make(&a, cases[i].ranks[0], cases[i].a), 0);
        ck_assert_int_eq(shape_make(&b, cases[i].ranks[1], cases[i].b), 0);
        r = shape_broadcast(&got, &a, &b);
        ck_assert_int_eq(shape_broadcast(&other, &b, &a), r);
        if (cases[i].ranks[2] == -2) {
            ck_assert_int_eq(r, -EINVAL);
            continue;
        }
        ck_assert_int_eq(shape_make(&c, cases[i].ranks[2], cases[i].c), 0);
        ck_assert_msg(shape_equal(&got, &c) && shape_equal(&other, &c), "case %zu", i);
    }
}
END_TEST

START_TEST(counts_do_not_overflow) {
    struct shape shape;

    ck_assert_int_eq(shape_make(&shape, 3, (int64_t[]){ INT64_MAX, INT64_MAX, 0 }), 0);
    ck_assert_int_eq(shape_count(&shape), 0);
    ck_assert_int_eq(shape_make(&shape, 2, (int64_t[]){ INT64_MAX, 2 }), 0);
    ck_assert_int_eq(shape_count(&shape), SHAPE_TOO_LARGE);
    ck_assert_int_eq(shape_make(&shape, 2, (int64_t[]){ 3, -1 }), 0);
    ck_assert_int_eq(shape_count(&shape), SHAPE_UNKNOWN);
    ck_assert_int_eq(shape_make(&shape, 9, NULL), -EINVAL);
    ck_assert_int_eq(shape_make(&shape, 1, (int64_t[]){ -2 }), -EINVAL);
}
END_TEST

START_TEST(what_cannot_be_a_tensor_is_refused_in_words) {
    struct allot_tensor *tensor = NULL;
    struct allot_error err;
    static char bytes[9];

    ck_assert_int_eq(allot_tensor_new(&tensor, 0, 0, NULL, &err), -EINVAL);
    ck_assert_int_eq(allot_tensor_new(&tensor, 99, 0, NULL, &err), -EINVAL);
    ck_assert_int_eq(allot_tensor_new(&tensor, ALLOT_F32, 9, NULL, &err), -EINVAL);
    ck_assert_int_eq(allot_tensor_new(&tensor, ALLOT_F32, 1, (int64_t[]){ -1 }, &err), -EINVAL);
    ck_assert_int_eq(allot_tensor_new(&tensor, ALLOT_F64, 2, (int64_t[]){ INT64_MAX, 4 }, &err),
                     -EOVERFLOW);
    ck_assert_int_eq(
        allot_tensor_over(&tensor, ALLOT_F64, 1, (int64_t[]){ 1 }, bytes + 1, NULL, NULL, &err),
        -EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "not aligned"));
    ck_assert_ptr_null(tensor);
}
END_TEST

static int n_released;

static void release(void *data, void *userdata) {
    ck_assert_ptr_eq(data, userdata);
    n_released++;
}

START_TEST(views_keep_the_numbers_alive) {
    static float numbers[] = { 1, 2, 3, 4, 5, 6 };
    struct allot_tensor *tensor, *flat, *rows, *part;
    struct allot_error err;

    ck_assert_int_eq(allot_tensor_over(&tensor, ALLOT_F32, 2, (int64_t[]){ 3, 2 }, numbers, release,
                                       numbers, NULL),
                     0);
    ck_assert_int_eq(allot_tensor_reshape(&flat, tensor, 1, (int64_t[]){ -1 }, NULL), 0);
    ck_assert_int_eq(allot_tensor_dim(flat, 0), 6);
    ck_assert_int_eq(allot_tensor_slice(&rows, tensor, 1, 2, NULL), 0);
    ck_assert_int_eq(allot_tensor_slice(&part, rows, 1, 1, NULL), 0);
    ck_assert_ptr_eq(allot_tensor_data(part), numbers + 4);
    ck_assert_uint_eq(allot_tensor_bytes(part), 8);
    ck_assert_int_eq(allot_tensor_slice(&part, rows, 1, 2, &err), -ERANGE);
    ck_assert_int_eq(allot_tensor_slice(&part, rows, -1, 1, &err), -ERANGE);
    ck_assert_int_eq(allot_tensor_slice(&part, rows, INT64_MAX, INT64_MAX, &err), -ERANGE);
    ck_assert_int_eq(allot_tensor_reshape(&flat, tensor, 2, (int64_t[]){ 4, -1 }, &err), -EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "[3, 2] cannot be reshaped to [4, ?]"));
    allot_tensor_unref(tensor);
    allot_tensor_unref(flat);
    allot_tensor_unref(rows);
    ck_assert_int_eq(n_released, 0);
    allot_tensor_unref(part);
    ck_assert_int_eq(n_released, 1);
}
END_TEST

START_TEST(numbers_are_shown_as_people_write_them) {
    struct allot_tensor *tensor;
    char text[200];

    ck_assert_int_eq(allot_tensor_copy_of(&tensor, ALLOT_F32, 2, (int64_t[]){ 2, 2 },
                                          (float[]){ 22, 28, 49, 64 }, NULL),
                     0);
    ck_assert_str_eq(allot_tensor_format(tensor, text, sizeof(text)), "[[22 28] [49 64]]");
    ck_assert_str_eq(allot_tensor_format(tensor, text, 8), "[[22 28");
    allot_tensor_unref(tensor);
    ck_assert_int_eq(allot_tensor_copy_of(&tensor, ALLOT_F32, 1, (int64_t[]){ 3 },
                                          (float[]){ 0.1f, -2.5f, 1e20f }, NULL),
                     0);
    ck_assert_str_eq(allot_tensor_format(tensor, text, sizeof(text)), "[0.1 -2.5 1e+20]");
    allot_tensor_unref(tensor);
    ck_assert_int_eq(allot_tensor_copy_of(&tensor, ALLOT_F32, 1, (int64_t[]){ 4 },
                                          (float[]){ NAN, -NAN, INFINITY, -INFINITY }, NULL),
                     0);
    ck_assert_str_eq(allot_tensor_format(tensor, text, sizeof(text)), "[nan nan inf -inf]");
    allot_tensor_unref(tensor);
    tensor = counting(1, (int64_t[]){ 1000 });
    ck_assert_str_eq(allot_tensor_format(tensor, text, sizeof(text)), "[0 1 2 ... 997 998 999]");
    allot_tensor_unref(tensor);
    tensor = counting(2, (int64_t[]){ 2, 0 });
    ck_assert_str_eq(allot_tensor_format(tensor, text, sizeof(text)), "[[] []]");
    allot_tensor_unref(tensor);
    ck_assert_int_eq(allot_tensor_copy_of(&tensor, ALLOT_BOOL, 0, NULL, (uint8_t[]){ 1 }, NULL), 0);
    ck_assert_str_eq(allot_tensor_format(tensor, text, sizeof(text)), "True");
    allot_tensor_unref(tensor);
}
END_TEST

START_TEST(so_they_are_in_every_locale) {
    struct allot_tensor *tensor;
    char text[200];

    if (!comma_locale_set())
        return;
    ck_assert_int_eq(allot_tensor_copy_of(&tensor, ALLOT_F64, 1, (int64_t[]){ 3 },
                                          (double[]){ 1.5, 0.1, 7 }, NULL),
                     0);
    ck_assert_str_eq(allot_tensor_format(tensor, text, sizeof(text)), "[1.5 0.1 7]");
    allot_tensor_unref(tensor);
}
END_TEST

START_TEST(a_tensor_goes_out_by_dlpack_and_comes_back) {
    for (int dtype = ALLOT_F16; dtype <= ALLOT_BOOL; dtype++) {
        struct allot_tensor *tensor, *again;
        void *managed, *data;

        ck_assert_int_eq(allot_tensor_new(&tensor, dtype, 3, (int64_t[]){ 2, 1, 5 }, NULL), 0);
        data = allot_tensor_data(tensor);
        ck_assert_int_eq(allot_tensor_to_dlpack(tensor, &managed, NULL), 0);
        allot_tensor_unref(tensor);
        ck_assert_int_eq(allot_tensor_from_dlpack(&again, managed, NULL), 0);
        ck_assert_ptr_eq(allot_tensor_data(again), data);
        ck_assert_int_eq(allot_tensor_dtype(again), dtype);
        ck_assert_int_eq(allot_tensor_dim(again, 2), 5);
        allot_tensor_unref(again); /* ASan sees what stays */
    }
}
END_TEST

START_TEST(tensors_without_elements_go_by_dlpack_whatever_their_strides) {
    static const int64_t shapes[][3] = { { 0, 3, 2 }, { 4, 0, 2 }, { INT64_MAX, INT64_MAX, 0 } };

    for (size_t i = 0; i < ELEMENTSOF(shapes); i++) {
        struct allot_tensor *tensor, *again;
        struct {
            void *data;
            int32_t device[2], ndim;
            uint8_t dtype[4];
            int64_t *shape, *strides;
        } * theirs;
        void *managed;

        ck_assert_int_eq(allot_tensor_new(&tensor, ALLOT_F64, 3, shapes[i], NULL), 0);
        ck_assert_int_eq(allot_tensor_to_dlpack(tensor, &managed, NULL), 0);
        allot_tensor_unref(tensor);
        theirs = managed;
        for (int k = 0; k < 3; k++) /* as NumPy has it */
            theirs->strides[k] = 0;
        ck_assert_int_eq(allot_tensor_from_dlpack(&again, managed, NULL), 0);
        ck_assert_int_eq(allot_tensor_dim(again, 0), shapes[i][0]);
        allot_tensor_unref(again);
    }
}
END_TEST

START_TEST(what_is_not_given_is_said) {
    static const int64_t dims[] = { 2, 3 };
    struct allot_tensor *tensor = NULL;
    struct allot_error err = { 0 };

    ck_assert_int_eq(allot_tensor_copy_of(&tensor, ALLOT_F32, 2, dims, NULL, &err), -EINVAL);
    ck_assert_msg(strstr(err.text, "24 bytes has nothing to copy") != NULL, "%s", err.text);
    ck_assert_int_eq(allot_tensor_new(&tensor, ALLOT_F32, 2, NULL, &err), -EINVAL);
    ck_assert_msg(strstr(err.text, "2 dimensions whose lengths are not given") != NULL, "%s",
                  err.text);
    ck_assert_int_eq(allot_tensor_from_dlpack(&tensor, NULL, &err), -EINVAL);
    ck_assert_ptr_null(tensor);
    ck_assert_int_eq(allot_tensor_copy_of(&tensor, ALLOT_F32, 1, &(int64_t){ 0 }, NULL, &err), 0);
    allot_tensor_unref(tensor);
}
END_TEST

SUITE("tensor", every_half_survives_the_way_through_float, halves_round_to_nearest_and_ties_to_even,
      shapes_stretch_as_numpy_says, counts_do_not_overflow,
      what_cannot_be_a_tensor_is_refused_in_words, views_keep_the_numbers_alive,
      numbers_are_shown_as_people_write_them, so_they_are_in_every_locale,
      a_tensor_goes_out_by_dlpack_and_comes_back,
      tensors_without_elements_go_by_dlpack_whatever_their_strides, what_is_not_given_is_said)
