/* SPDX-License-Identifier: Apache-2.0 */
/* Every kernel of the GPU against that of the CPU, on a simulated box. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/core/tensor.h"
#include "libclient/device/gpu.h"
#include "libclient/ops/ops.h"
#include "tests/support/sim/box/sim_box.h"
#include "tests/support/suite.h"
#include "tests/support/libclient/kernels/kernel_fixture.h"
#include "tests/support/libclient/kernels/kernel_fixture_gpu.h"

static struct sim_box sim_box;
static struct gpu *gpu;
static struct allot_error err;

#define OK(call) ck_assert_msg((call) == 0, "%s", err.text)

static const enum dtype types[] = {
#define X(type, ...) DTYPE_##type,
    DTYPES(X)
#undef X
};
static const enum dtype floats[] = { DTYPE_F32, DTYPE_F64, DTYPE_F16, DTYPE_BF16 };

static void open_gpu(void) {
    sim_box_init(&sim_box, NULL);
    OK(gpu_open(&gpu, 0, &err));
    OK(gpu_enter(gpu, &err));
}

static void close_gpu(void) {
    gpu_close(gpu);
    sim_box_done(&sim_box);
}

static void same(const struct kernel_fixture *cpu, const struct kernel_fixture *device,
                 const char *what, uint32_t i, const struct kernel_value *value, const void *a,
                 const void *b, double ulps) {
    for (int64_t k = 0; k < shape_count(&value->shape); k++) {
        long double x = kernel_fixture_get(value->dtype, a, k),
                    y = kernel_fixture_get(value->dtype, b, k);
        /* Sums differ by their parts, not by what is left of them. */
        double off = kernel_fixture_ulps(value->dtype, y, x);

        if (ulps >= 16 && isfinite(x) && isfinite(y) && fabsl(x) < 1)
            off = kernel_fixture_ulps(value->dtype, y - x + 1, 1);
        if (!(off <= ulps))
            ck_abort_msg("%s of %s: %s %u, element %lld is %.20Lg, not %.20Lg: %g units, not %g",
                         cpu->node.op->name, dtype_name(cpu->in[0].dtype), what, i, (long long)k, y,
                         x, off, ulps);
    }
    (void)device;
}

/* Fills in a fixture: attributes and inputs. False: not for this type. */
typedef bool (*build_fn)(struct kernel_fixture *fixture, enum dtype dtype, int variant,
                         uint64_t *seed);

static void compare(const char *op, enum dtype dtype, build_fn build, int variant, double ulps) {
    cleanup(kernel_fixture_done) struct kernel_fixture cpu = { .n_in = 0 }, device = { .n_in = 0 };
    struct kernel_fixture *both[] = { &cpu, &device };
    const struct kernel *kernel;

    for (int i = 0; i < 2; i++) {
        uint64_t seed = (uint64_t)variant + 1;

        kernel_fixture_init(both[i], op);
        if (opdef_attr_index(both[i]->node.op, "T") >= 0)
            kernel_fixture_attr(both[i], "T", attr_dtype(dtype));
        if (!build(both[i], dtype, variant, &seed))
            return;
        ck_assert_msg(kernel_fixture_outputs(both[i]) == 0, "%s", both[i]->error.text);
    }
    ck_assert_int_eq(kernel_fixture_run(&cpu, NULL), 0);
    kernel_fixture_run_on_gpu(&device, gpu);
    kernel = kernel_find(&cpu.node, KERNEL_GPU);
    for (uint32_t i = 0; i < cpu.n_out; i++)
        same(&cpu, &device, "output", i, &cpu.out[i], cpu.out_data[i], device.out_data[i], ulps);
    for (uint32_t i = 0; i < cpu.n_in; i++)
        if (kernel->writes >> i & 1)
            same(&cpu, &device, "variable", i, &cpu.in[i], cpu.in_data[i], device.in_data[i], ulps);
}

static void *add_input(struct kernel_fixture *fixture, enum dtype dtype, const struct shape *shape,
                       uint64_t *seed, double range, bool special) {
    void *data = kernel_fixture_input(fixture, dtype, shape);

    kernel_fixture_fill(dtype, data, shape_count(shape), seed, range, special);
    return data;
}

/* ---- Elementwise -------------------------------------------------------------------------------
 */

static bool one(struct kernel_fixture *fixture, enum dtype dtype, int variant, uint64_t *seed) {
    const struct shape shapes[] = { kernel_fixture_shape(2, 7, 41), kernel_fixture_shape(0),
                                    kernel_fixture_shape(1, 0) };

    if (!kernel_fixture_takes(fixture, dtype) || !kernel_find(&fixture->node, KERNEL_GPU))
        return false;
    add_input(fixture, dtype, &shapes[variant], seed, 6, true);
    return true;
}

static bool two(struct kernel_fixture *fixture, enum dtype dtype, int variant, uint64_t *seed) {
    const struct shape left[] = { kernel_fixture_shape(1, 300), kernel_fixture_shape(3, 4, 1, 9),
                                  kernel_fixture_shape(0) },
                       right[] = { kernel_fixture_shape(1, 300), kernel_fixture_shape(2, 5, 1),
                                   kernel_fixture_shape(2, 3, 2) };
    const bool same_shape = strstr(fixture->node.op->name, "Grad") != NULL;

    if (!kernel_fixture_takes(fixture, dtype) || !kernel_find(&fixture->node, KERNEL_GPU) ||
        (same_shape && variant))
        return false;
    add_input(fixture, dtype, &left[variant], seed, 6, true);
    add_input(fixture, dtype, &right[variant], seed, 6, true);
    if (dtype_kind(dtype) != DTYPE_KIND_FLOAT) /* no division by 0, and no root */
        for (int64_t i = 0; i < shape_count(&right[variant]); i++) {
            long double x = kernel_fixture_get(dtype, fixture->in_data[1], i);

            if (strstr(fixture->node.op->name, "Div") || strstr(fixture->node.op->name, "Mod"))
                kernel_fixture_set(dtype, fixture->in_data[1], i, x == 0 ? 3 : x);
            if (strcmp(fixture->node.op->name, "Pow") == 0)
                kernel_fixture_set(dtype, fixture->in_data[1], i, fabsl(fmodl(x, 9)));
        }
    return true;
}

/* Where both call a library for what we have no code of, they may differ a little. */
static double elementwise_ulps(const char *op, enum dtype dtype) {
    static const char *const library[] = { "Sin",      "Cos", "Erf",     "Gelu",
                                           "GeluGrad", "Pow", "FloorMod" };
    static const char *const doubles[] = { "Exp",      "Expm1",    "Log",         "Log1p",
                                           "Tanh",     "Sigmoid",  "Elu",         "Silu",
                                           "Softplus", "SiluGrad", "SoftplusGrad" };

    for (size_t i = 0; i < ELEMENTSOF(library); i++)
        if (strcmp(op, library[i]) == 0)
            return strncmp(op, "Gelu", 4) == 0 ? 64 : 4;
    for (size_t i = 0; dtype == DTYPE_F64 && i < ELEMENTSOF(doubles); i++)
        if (strcmp(op, doubles[i]) == 0)
            return 8;
    return 0;
}

START_TEST(elementwise_ops_are_those_of_the_cpu) {
    const struct opdef *op;
    size_t n_ops = 0;

    open_gpu();
    OK(kernel_register_all(&err));
    OK(ops_register_all(&err));
    for (size_t table = 0; table < 2; table++) {
        const struct ops_table *rows = table ? &ops_binary : &ops_unary;

        for (size_t i = 0; i < rows->n; i++) {
            op = opdef_find(rows->rows[i].name);
            if (op->n_inputs > 2 || op->inputs[0].length_attr >= 0 ||
                strcmp(op->name, "BiasAdd") == 0)
                continue;
            n_ops++;
            for (size_t t = 0; t < ELEMENTSOF(types); t++)
                for (int variant = 0; variant < 3; variant++)
                    compare(op->name, types[t], op->n_inputs == 1 ? one : two, variant,
                            elementwise_ulps(op->name, types[t]));
        }
    }
    ck_assert_uint_gt(n_ops, 40);
    close_gpu();
}
END_TEST

static bool cast_input(struct kernel_fixture *fixture, enum dtype dtype, int variant,
                       uint64_t *seed) {
    const struct shape shape = kernel_fixture_shape(1, 500);

    kernel_fixture_attr(fixture, "U", attr_dtype((enum dtype)variant));
    add_input(fixture, dtype, &shape, seed, 1e5, true);
    return true;
}

static bool bias(struct kernel_fixture *fixture, enum dtype dtype, int variant, uint64_t *seed) {
    const struct shape value = kernel_fixture_shape(2, 9, 5), row = kernel_fixture_shape(1, 5);

    add_input(fixture, dtype, &value, seed, 6, false);
    add_input(fixture, dtype, &row, seed, 6, false);
    return true;
}

static bool many(struct kernel_fixture *fixture, enum dtype dtype, int variant, uint64_t *seed) {
    const struct shape shape = kernel_fixture_shape(1, 333);

    kernel_fixture_attr(fixture, "N", attr_int(variant));
    for (int i = 0; i < variant; i++)
        add_input(fixture, dtype, &shape, seed, 6, false);
    return true;
}

static bool choice(struct kernel_fixture *fixture, enum dtype dtype, int variant, uint64_t *seed) {
    const struct shape shapes[] = { kernel_fixture_shape(0), kernel_fixture_shape(2, 5, 1),
                                    kernel_fixture_shape(2, 5, 7) };

    add_input(fixture, DTYPE_BOOL, &shapes[variant % 3], seed, 1, false);
    add_input(fixture, dtype, &shapes[variant / 3 % 3], seed, 50, false);
    add_input(fixture, dtype, &shapes[variant / 9], seed, 50, false);
    return true;
}

START_TEST(casts_sums_and_choices_too) {
    open_gpu();
    for (size_t t = 0; t < ELEMENTSOF(types); t++) {
        for (int to = 1; to < N_DTYPES; to++)
            compare("Cast", types[t], cast_input, to, 0);
        for (int variant = 0; variant < 27; variant++)
            compare("Select", types[t], choice, variant, 0);
        if (types[t] == DTYPE_BOOL)
            continue;
        compare("BiasAdd", types[t], bias, 0, 0);
        for (int n = 1; n <= 5; n += 2)
            compare("AddN", types[t], many, n, 0);
    }
    close_gpu();
}
END_TEST

/* ---- Arrays ------------------------------------------------------------------------------------
 */

static const int64_t numbers_210[] = { 2, 0, 1 }, numbers_121[] = { 1, 2, 1 },
                     numbers_101[] = { 1, 0, 1 };

static bool array(struct kernel_fixture *fixture, enum dtype dtype, int variant, uint64_t *seed) {
    const struct shape shape = kernel_fixture_shape(3, 4, 3, 5),
                       one_row = kernel_fixture_shape(3, 1, 3, 1),
                       piece = kernel_fixture_shape(3, 2, 3, 2),
                       half = kernel_fixture_shape(3, 2, 3, 5);
    const char *op = fixture->node.op->name;
    const bool is_like = strstr(op, "Like") != NULL, is_grad = strstr(op, "Grad") != NULL;

    if (!kernel_find(&fixture->node, KERNEL_GPU) || !kernel_fixture_takes(fixture, dtype))
        return false;
    if (strcmp(op, "Transpose") == 0)
        kernel_fixture_attr(fixture, "perm", attr_ints(numbers_210, 3));
    if (strcmp(op, "Tile") == 0)
        kernel_fixture_attr(fixture, "multiples", attr_ints(numbers_121, 3));
    if (strncmp(op, "Slice", 5) == 0)
        kernel_fixture_attr(fixture, "begin", attr_ints(numbers_101, 3));
    if (strcmp(op, "Slice") == 0)
        kernel_fixture_attr(fixture, "size", attr_ints(numbers_121, 3));
    if (strcmp(op, "Pad") == 0) {
        kernel_fixture_attr(fixture, "before", attr_ints(numbers_101, 3));
        kernel_fixture_attr(fixture, "after", attr_ints(numbers_210, 3));
        kernel_fixture_attr(fixture, "value", attr_float(1));
    }
    if (strncmp(op, "Strided", 7) == 0) {
        static const int64_t begin[] = { 3, 0 }, end[] = { 0, 3 }, strides[] = { -2, 2 };

        kernel_fixture_attr(fixture, "begin", attr_ints(begin, 2));
        kernel_fixture_attr(fixture, "end", attr_ints(end, 2));
        kernel_fixture_attr(fixture, "strides", attr_ints(strides, 2));
    }
    if (opdef_attr_index(fixture->node.op, "U") >= 0)
        kernel_fixture_attr(fixture, "U", attr_dtype(DTYPE_F32));
    if (opdef_attr_index(fixture->node.op, "N") >= 0) {
        const bool joins = fixture->node.op->inputs[0].length_attr >= 0;

        kernel_fixture_attr(fixture, "N", attr_int(strcmp(op, "Unpack") == 0 ? 4 : 2));
        for (int i = 0; joins && i < 2; i++)
            add_input(fixture, dtype, &shape, seed, 50, false);
        if (joins)
            return true;
        add_input(fixture, dtype, &shape, seed, 50, false);
        for (int i = 0; is_like && i < 2; i++)
            kernel_fixture_input(fixture, DTYPE_F32, &half);
        return true;
    }
    if (strcmp(op, "StridedSliceGrad") == 0) {
        const struct shape part = kernel_fixture_shape(3, 2, 2, 5);

        add_input(fixture, dtype, &part, seed, 50, false);
        kernel_fixture_input(fixture, dtype, &shape);
        return true;
    }
    add_input(fixture, dtype,
              strcmp(op, "BroadcastLike") == 0 ? &one_row
              : is_grad                        ? &piece
                                               : &shape,
              seed, 50, false);
    if (strcmp(op, "SliceLike") == 0)
        kernel_fixture_input(fixture, DTYPE_F32, &piece);
    else if (fixture->node.op->n_inputs > 1)
        kernel_fixture_input(fixture, DTYPE_F32, &shape);
    return true;
}

/* Ops that are told a shape. */
static bool shaped(struct kernel_fixture *fixture, enum dtype dtype, int variant, uint64_t *seed) {
    const int64_t numbers[] = { 4, 6, 5 };
    const struct shape three = kernel_fixture_shape(1, 3), from = kernel_fixture_shape(2, 6, 20),
                       row = kernel_fixture_shape(2, 6, 1), single = kernel_fixture_shape(0);
    const char *op = fixture->node.op->name;
    const bool fills = strcmp(op, "Fill") == 0;
    static struct allot_tensor *known;

    if (!known)
        OK(allot_tensor_copy_of(&known, ALLOT_I64, 1, three.dims, numbers, &err));
    if (!fills)
        add_input(fixture, dtype, strcmp(op, "Reshape") == 0 ? &from : &row, seed, 50, false);
    memcpy(kernel_fixture_input(fixture, DTYPE_I64, &three), numbers, sizeof(numbers));
    fixture->in[fixture->n_in - 1].known = known;
    if (fills)
        add_input(fixture, dtype, &single, seed, 50, false);
    return true;
}

START_TEST(arrays_go_where_the_cpu_puts_them) {
    static const char *const ops[] = {
        "Identity",  "StopGradient",  "ExpandDims",
        "Squeeze",   "ReshapeLike",   "ZerosLike",
        "OnesLike",  "BroadcastLike", "Tile",
        "Transpose", "Concat",        "Pack",
        "Split",     "SplitLike",     "Unpack",
        "Slice",     "SliceLike",     "SliceGrad",
        "Pad",       "StridedSlice",  "StridedSliceGrad",
        "Shape",     "Size",          "Rank",
    };
    static const char *const by_shape[] = { "Reshape", "BroadcastTo", "Fill" };

    open_gpu();
    for (size_t i = 0; i < ELEMENTSOF(ops); i++)
        for (size_t t = 0; t < ELEMENTSOF(types); t++)
            compare(ops[i], types[t], array, 0, 0);
    for (size_t i = 0; i < ELEMENTSOF(by_shape); i++)
        for (size_t t = 0; t < ELEMENTSOF(types); t++)
            compare(by_shape[i], types[t], shaped, 0, 0);
    close_gpu();
}
END_TEST

static bool by_index(struct kernel_fixture *fixture, enum dtype dtype, int variant,
                     uint64_t *seed) {
    const struct shape params = kernel_fixture_shape(3, 3, 5, 2),
                       indices = kernel_fixture_shape(1, 4),
                       gathered = kernel_fixture_shape(3, 3, 4, 2),
                       single = kernel_fixture_shape(0);
    const enum dtype type = variant ? DTYPE_I64 : DTYPE_I32;
    const bool back = strcmp(fixture->node.op->name, "GatherGrad") == 0,
               hot = strcmp(fixture->node.op->name, "OneHot") == 0;
    void *data;

    kernel_fixture_attr(fixture, "I", attr_dtype(type));
    kernel_fixture_attr(fixture, "axis", attr_int(hot ? 0 : 1));
    if (hot)
        kernel_fixture_attr(fixture, "depth", attr_int(5));
    else
        add_input(fixture, dtype, back ? &gathered : &params, seed, 9, false);
    data = kernel_fixture_input(fixture, type, &indices);
    for (int i = 0; i < 4; i++)
        kernel_fixture_set(type, data, i, (i * 3) % 5 / (i == 2 ? 2 : 1));
    for (int i = 0; hot && i < 2; i++)
        add_input(fixture, dtype, &single, seed, 9, false);
    if (back)
        kernel_fixture_input(fixture, dtype, &params);
    return true;
}

START_TEST(indices_find_the_same) {
    open_gpu();
    for (size_t t = 0; t < ELEMENTSOF(types); t++)
        for (int wide = 0; wide < 2; wide++) {
            compare("Gather", types[t], by_index, wide, 0);
            if (types[t] != DTYPE_BOOL)
                compare("GatherGrad", types[t], by_index, wide, 0);
            compare("OneHot", types[t], by_index, wide, 0);
        }
    close_gpu();
}
END_TEST

/* ---- Reductions, softmax, products --------------------------------------------------------------
 */

static bool reduction(struct kernel_fixture *fixture, enum dtype dtype, int variant,
                      uint64_t *seed) {
    static const int64_t axes[][3] = { { 0 }, { 1 }, { 2 }, { 0, 2 }, { 0, 1, 2 }, { 1, 2 } };
    static const size_t n_axes[] = { 1, 1, 1, 2, 3, 2 };
    const struct shape shape = kernel_fixture_shape(3, 3, 40, 11);

    if (!kernel_fixture_takes(fixture, dtype))
        return false;
    kernel_fixture_attr(fixture, "axes", attr_ints(axes[variant], n_axes[variant]));
    add_input(fixture, dtype, &shape, seed, strcmp(fixture->node.op->name, "Prod") == 0 ? 1.5 : 20,
              false);
    return true;
}

static bool place(struct kernel_fixture *fixture, enum dtype dtype, int variant, uint64_t *seed) {
    const struct shape shape = kernel_fixture_shape(3, 3, 40, 11);

    kernel_fixture_attr(fixture, "axis", attr_int(variant));
    add_input(fixture, dtype, &shape, seed, 20, false);
    return true;
}

static bool undo(struct kernel_fixture *fixture, enum dtype dtype, int variant, uint64_t *seed) {
    const struct shape shape = kernel_fixture_shape(3, 2, 6, 4),
                       like = kernel_fixture_shape(2, 6, 1),
                       tile = kernel_fixture_shape(3, 1, 3, 4);
    static const int64_t multiples[] = { 2, 2, 1 }; /* the node points to them */
    const char *op = fixture->node.op->name;

    add_input(fixture, dtype, &shape, seed, 20, false);
    if (strcmp(op, "SumLike") == 0) {
        kernel_fixture_attr(fixture, "U", attr_dtype(DTYPE_F32));
        kernel_fixture_input(fixture, DTYPE_F32, &like);
    } else if (strcmp(op, "TileGrad") == 0) {
        kernel_fixture_attr(fixture, "multiples", attr_ints(multiples, 3));
        kernel_fixture_input(fixture, dtype, &tile);
    }
    return true;
}

START_TEST(reductions_take_in_the_same) {
    static const char *const ops[] = { "Sum", "Mean", "Max", "Min", "Prod", "All", "Any" };
    static const char *const undos[] = { "SumLike", "BiasAddGrad", "TileGrad" };

    open_gpu();
    for (size_t t = 0; t < ELEMENTSOF(types); t++) {
        for (size_t i = 0; i < ELEMENTSOF(ops); i++)
            for (int variant = 0; variant < 6; variant++)
                compare(ops[i], types[t], reduction, variant,
                        types[t] == DTYPE_F64   ? 1024
                        : types[t] == DTYPE_F32 ? 1
                                                : 0);
        if (types[t] == DTYPE_BOOL)
            continue;
        for (size_t i = 0; i < ELEMENTSOF(undos); i++)
            compare(undos[i], types[t], undo, 0, types[t] == DTYPE_F64 ? 64 : 1);
        for (int axis = 0; axis < 3; axis++) {
            compare("ArgMax", types[t], place, axis, 0);
            compare("ArgMin", types[t], place, axis, 0);
        }
    }
    close_gpu();
}
END_TEST

static bool rows(struct kernel_fixture *fixture, enum dtype dtype, int variant, uint64_t *seed) {
    const struct shape shape = kernel_fixture_shape(2, 6, 300), labels = kernel_fixture_shape(1, 6);
    const char *op = fixture->node.op->name;
    void *data;

    add_input(fixture, dtype, &shape, seed, 8, false);
    if (strcmp(op, "SoftmaxCrossEntropy") == 0) {
        data = kernel_fixture_input(fixture, dtype, &shape);
        for (int64_t i = 0; i < 1800; i++)
            kernel_fixture_set(dtype, data, i, i % 300 < 256 ? 0x1p-8 : 0);
    } else if (strcmp(op, "SparseSoftmaxCrossEntropy") == 0) {
        kernel_fixture_attr(fixture, "L", attr_dtype(DTYPE_I64));
        data = kernel_fixture_input(fixture, DTYPE_I64, &labels);
        for (int64_t i = 0; i < 6; i++)
            ((int64_t *)data)[i] = i * 47;
    }
    return true;
}

static bool product(struct kernel_fixture *fixture, enum dtype dtype, int variant, uint64_t *seed) {
    const bool batch = strcmp(fixture->node.op->name, "BatchMatMul") == 0, ta = variant & 1,
               tb = variant & 2;
    const struct shape a = ta ? kernel_fixture_shape(3, 2, 21, 35)
                              : kernel_fixture_shape(3, 2, 35, 21),
                       b = tb ? kernel_fixture_shape(3, 1, 18, 21)
                              : kernel_fixture_shape(3, 1, 21, 18);
    const struct shape a2 = kernel_fixture_shape(2, (int)a.dims[1], (int)a.dims[2]),
                       b2 = kernel_fixture_shape(2, (int)b.dims[1], (int)b.dims[2]);

    kernel_fixture_attr(fixture, batch ? "adj_x" : "transpose_a", attr_bool(ta));
    kernel_fixture_attr(fixture, batch ? "adj_y" : "transpose_b", attr_bool(tb));
    add_input(fixture, dtype, batch ? &a : &a2, seed, 2, false);
    add_input(fixture, dtype, batch ? &b : &b2, seed, 2, false);
    return true;
}

START_TEST(softmax_and_products_are_near) {
    static const char *const ops[] = { "Softmax", "LogSoftmax", "SoftmaxCrossEntropy",
                                       "SparseSoftmaxCrossEntropy" };
    static const enum dtype products[] = { DTYPE_F32,  DTYPE_F64, DTYPE_F16,
                                           DTYPE_BF16, DTYPE_I32, DTYPE_I64 };

    open_gpu();
    for (size_t t = 0; t < ELEMENTSOF(floats); t++)
        for (size_t i = 0; i < ELEMENTSOF(ops); i++)
            compare(ops[i], floats[t], rows, 0, 16);
    for (int by_cublas = 1; by_cublas >= 0; by_cublas--) {
        struct cublas *kept = gpu->cublas;

        if (!by_cublas)
            gpu->cublas = NULL; /* as where there is none */
        for (size_t t = 0; t < ELEMENTSOF(products); t++)
            for (int variant = 0; variant < 4; variant++) {
                const bool is_float = dtype_kind(products[t]) == DTYPE_KIND_FLOAT;

                compare("MatMul", products[t], product, variant, is_float ? 256 : 0);
                compare("BatchMatMul", products[t], product, variant, is_float ? 256 : 0);
            }
        gpu->cublas = kept;
    }
    close_gpu();
}
END_TEST

/* ---- Variables, random --------------------------------------------------------------------------
 */

static bool step(struct kernel_fixture *fixture, enum dtype dtype, int variant, uint64_t *seed) {
    const struct shape shape = kernel_fixture_shape(2, 17, 31), single = kernel_fixture_shape(0);
    const char *op = fixture->node.op->name;
    const bool adam = strcmp(op, "ApplyAdam") == 0, momentum = strcmp(op, "ApplyMomentum") == 0,
               descent = strcmp(op, "ApplyGradientDescent") == 0;
    const int n = adam ? 10 : momentum ? 5 : descent ? 3 : 2;
    static const double numbers[] = { 0.81, 0.9, 0.125, 0.9, 0.95, 0.001 };

    /* Of 16 bits what is remembered, and the numbers, may be f32. */
    const enum dtype kept = (adam || momentum) && variant & 2 ? DTYPE_F32 : dtype;

    if (kept != dtype && dtype_bytes(dtype) != 2)
        return false;
    if (adam || momentum) {
        kernel_fixture_attr(fixture, "use_nesterov", attr_bool(variant & 1));
        kernel_fixture_attr(fixture, "S", attr_dtype(kept));
    }
    for (int i = 0; i < n; i++) {
        const bool large = i < (adam       ? 3
                                : momentum ? 2
                                           : 1) ||
                           i == (adam       ? 9
                                 : momentum ? 3
                                            : n - 1);
        const enum dtype own = i == 0 || i == (adam ? 9 : momentum ? 3 : n - 1) ? dtype : kept;
        void *data = add_input(fixture, own, large ? &shape : &single, seed, 1, false);

        for (int64_t k = 0; adam && i == 2 && k < 17 * 31; k++)
            kernel_fixture_set(own, data, k, fabsl(kernel_fixture_get(own, data, k)));
        if (!large)
            kernel_fixture_set(own, data, 0, adam ? numbers[i - 3] : i == 4 ? 0.9 : 0.125);
    }
    return true;
}

static bool dice(struct kernel_fixture *fixture, enum dtype dtype, int variant, uint64_t *seed) {
    const struct shape one_dim = kernel_fixture_shape(1, 1);
    static struct allot_tensor *known[4];
    const int64_t n = 1003;

    *(int64_t *)kernel_fixture_input(fixture, DTYPE_I64, &one_dim) = n;
    if (!known[variant])
        OK(allot_tensor_copy_of(&known[variant], ALLOT_I64, 1, (const int64_t[]){ 1 }, &n, &err));
    fixture->in[0].known = known[variant];
    fixture->seed = 0x123456789abcdefull + (uint64_t)variant;
    fixture->step = (uint64_t)variant << 33;
    return true;
}

START_TEST(variables_change_and_dice_fall_to_the_same_bit) {
    static const char *const steps[] = { "ApplyGradientDescent", "ApplyMomentum", "ApplyAdam" };
    static const char *const random[] = { "RandomUniform", "RandomNormal", "TruncatedNormal" };

    open_gpu();
    for (size_t t = 0; t < ELEMENTSOF(floats); t++)
        for (size_t i = 0; i < 3; i++) {
            for (int variant = 0; variant < 4; variant++)
                compare(steps[i], floats[t], step, variant, 0);
            for (int variant = 0; variant < 4; variant++)
                compare(random[i], floats[t], dice, variant, 0);
        }
    for (size_t t = 0; t < ELEMENTSOF(types); t++) {
        struct kernel_fixture fixture;

        kernel_fixture_init(&fixture, "Variable");
        kernel_fixture_attr(&fixture, "T", attr_dtype(types[t]));
        ck_assert_int_eq(kernel_find(&fixture.node, KERNEL_GPU) != NULL, types[t] != DTYPE_I32);
        if (types[t] == DTYPE_I32)
            continue;
        compare("Assign", types[t], step, 0, 0);
        if (types[t] == DTYPE_BOOL)
            continue;
        compare("AssignAdd", types[t], step, 0, 0);
        compare("AssignSub", types[t], step, 0, 0);
    }
    close_gpu();
}
END_TEST

static bool shown(struct kernel_fixture *fixture, enum dtype dtype, int variant, uint64_t *seed) {
    const struct shape shapes[] = { kernel_fixture_shape(2, 3, 11), kernel_fixture_shape(0),
                                    kernel_fixture_shape(1, 0) };

    if (!kernel_find(&fixture->node, KERNEL_GPU))
        return false;
    kernel_fixture_attr(fixture, "message", attr_string("shown: "));
    add_input(fixture, dtype, &shapes[variant], seed, 6, false);
    return true;
}

static bool held_true(struct kernel_fixture *fixture, enum dtype dtype, int variant,
                      uint64_t *seed) {
    const struct shape single = kernel_fixture_shape(0), shape = kernel_fixture_shape(1, 9);

    kernel_fixture_attr(fixture, "message", attr_string("it holds"));
    kernel_fixture_attr(fixture, "N", attr_int(1));
    *(uint8_t *)kernel_fixture_input(fixture, DTYPE_BOOL, &single) = 1;
    add_input(fixture, dtype, &shape, seed, 6, false);
    return true;
}

static bool range(struct kernel_fixture *fixture, enum dtype dtype, int variant, uint64_t *seed) {
    static struct allot_tensor *known[N_DTYPES][3];
    const long double numbers[] = { 3, 40, 2 };
    const struct shape single = kernel_fixture_shape(0);

    if (!kernel_find(&fixture->node, KERNEL_GPU))
        return false;
    for (int i = 0; i < 3; i++) {
        void *data = kernel_fixture_input(fixture, dtype, &single);

        kernel_fixture_set(dtype, data, 0, numbers[i]);
        if (!known[dtype][i])
            OK(allot_tensor_copy_of(&known[dtype][i], (enum allot_dtype)dtype, 0, NULL, data,
                                    &err));
        fixture->in[i].known = known[dtype][i];
    }
    return true;
}

START_TEST(what_the_host_does_for_the_gpu_is_the_same) {
    open_gpu();
    for (size_t t = 0; t < ELEMENTSOF(types); t++) {
        for (int variant = 0; variant < 3; variant++)
            compare("Print", types[t], shown, variant, 0);
        for (int variant = 0; t < ELEMENTSOF(floats) && variant < 3; variant++)
            compare("CheckNumerics", floats[t], shown, variant, 0);
        compare("Range", types[t], range, 0, 0);
        compare("Assert", types[t], held_true, 0, 0);
    }
    close_gpu();
}
END_TEST

SUITE_TIMEOUT("kernels-gpu", 300, what_the_host_does_for_the_gpu_is_the_same,
              elementwise_ops_are_those_of_the_cpu, casts_sums_and_choices_too,
              arrays_go_where_the_cpu_puts_them, indices_find_the_same, reductions_take_in_the_same,
              softmax_and_products_are_near, variables_change_and_dice_fall_to_the_same_bit)
