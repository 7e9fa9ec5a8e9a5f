/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/libclient/kernels/kernel_fixture.h"

#include <check.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "libclient/ops/ops.h"

void kernel_fixture_init(struct kernel_fixture *fixture, const char *op) {
    *fixture = (struct kernel_fixture){ .seed = 1 };
    ck_assert_int_eq(kernel_register_all(&fixture->error), 0);
    ck_assert_int_eq(ops_register_all(&fixture->error), 0);
    fixture->node.op = opdef_find(op);
    ck_assert_msg(fixture->node.op, "no op %s", op);
    fixture->node.attrs = fixture->attrs;
    for (size_t i = 0; i < fixture->node.op->n_attrs; i++)
        fixture->attrs[i] = fixture->node.op->attrs[i].value;
}

void kernel_fixture_done(struct kernel_fixture *fixture) {
    for (uint32_t i = 0; i < fixture->n_in; i++)
        free(fixture->in_data[i]);
    for (uint32_t i = 0; i < fixture->n_out; i++)
        if (fixture->owned[i])
            free(fixture->out_data[i]);
}

void kernel_fixture_attr(struct kernel_fixture *fixture, const char *name, struct attr value) {
    const int i = opdef_attr_index(fixture->node.op, name);

    ck_assert_msg(i >= 0, "%s has no attribute %s", fixture->node.op->name, name);
    ck_assert_int_eq(fixture->node.op->attrs[i].kind, value.kind);
    fixture->attrs[i] = value;
}

static void *block(enum dtype dtype, const struct shape *shape) {
    size_t bytes = (size_t)shape_count(shape) * dtype_bytes(dtype);
    void *data;

    /* One byte for empty ones: an address of their own. */
    ck_assert_int_eq(posix_memalign(&data, 64, bytes ? bytes : 1), 0);
    memset(data, 0, bytes);
    return data;
}

void *kernel_fixture_input(struct kernel_fixture *fixture, enum dtype dtype,
                           const struct shape *shape) {
    ck_assert_uint_lt(fixture->n_in, KERNEL_FIXTURE_VALUES);
    fixture->in[fixture->n_in] = (struct kernel_value){ .dtype = dtype, .shape = *shape };
    return fixture->in_data[fixture->n_in++] = block(dtype, shape);
}

static int outputs(struct kernel_fixture *fixture, int in_place) {
    const struct opdef *op = fixture->node.op;
    const struct allot_tensor *values[KERNEL_FIXTURE_VALUES] = { NULL };
    struct shape in[KERNEL_FIXTURE_VALUES], out[KERNEL_FIXTURE_VALUES];
    struct opdef_shapes shapes = { .node = &fixture->node,
                                   .inputs = in,
                                   .n_inputs = fixture->n_in,
                                   .values = values,
                                   .outputs = out };
    int r;

    for (size_t i = 0; i < op->n_outputs; i++) {
        const struct opdef_arg *arg = &op->outputs[i];
        const int64_t n = arg->length_attr < 0 ? 1 : fixture->attrs[arg->length_attr].i;

        for (int64_t k = 0; k < n; k++, shapes.n_outputs++) {
            ck_assert_uint_lt(shapes.n_outputs, KERNEL_FIXTURE_VALUES);
            fixture->out[shapes.n_outputs].dtype =
                arg->type_attr < 0 ? arg->dtype : fixture->attrs[arg->type_attr].dtype;
            out[shapes.n_outputs] = shape_unknown();
        }
    }
    for (uint32_t i = 0; i < fixture->n_in; i++) {
        in[i] = fixture->in[i].shape;
        values[i] = fixture->in[i].known;
    }
    r = op->shape(&shapes, &fixture->error);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < shapes.n_outputs; i++) {
        fixture->out[i].shape = out[i];
        if (!shape_is_whole(&out[i]))
            continue; /* the kernel will ask for it */
        fixture->owned[i] = i > 0 || in_place < 0;
        fixture->out_data[i] =
            fixture->owned[i] ? block(fixture->out[i].dtype, &out[i]) : fixture->in_data[in_place];
    }
    fixture->n_out = (uint32_t)shapes.n_outputs;
    return 0;
}

int kernel_fixture_outputs(struct kernel_fixture *fixture) {
    return outputs(fixture, -1);
}

int kernel_fixture_outputs_in_place(struct kernel_fixture *fixture, uint32_t i) {
    return outputs(fixture, (int)i);
}

/* Memory for an output that the kernel found the size of. */
static int output_new(const struct kernel_run *run, uint32_t i, const struct shape *shape,
                      void **ret) {
    struct kernel_fixture *fixture =
        (struct kernel_fixture *)((char *)run->inputs - offsetof(struct kernel_fixture, in_data));

    fixture->out[i].shape = *shape;
    fixture->owned[i] = true;
    *ret = fixture->out_data[i] = block(fixture->out[i].dtype, shape);
    return 0;
}

bool kernel_fixture_takes(const struct kernel_fixture *fixture, enum dtype dtype) {
    const struct opdef_arg *arg = &fixture->node.op->inputs[0];

    return arg->type_attr < 0 ? arg->dtype == dtype
                              : fixture->node.op->attrs[arg->type_attr].dtypes >> dtype & 1;
}

bool kernel_fixture_has_kernel(const struct kernel_fixture *fixture) {
    return kernel_find(&fixture->node, KERNEL_CPU) != NULL;
}

int kernel_fixture_run(struct kernel_fixture *fixture, struct thread_pool *pool) {
    cleanup(pool_freep) struct thread_pool *own = NULL;
    atomic_bool cancelled = false;
    struct kernel_plan plan = {
        .node = &fixture->node,
        .kernel = kernel_find(&fixture->node, KERNEL_CPU),
        .inputs = fixture->in,
        .outputs = fixture->out,
        .n_inputs = fixture->n_in,
        .n_outputs = fixture->n_out,
        .random_seed = fixture->seed,
    };
    struct kernel_step step = { .number = fixture->step,
                                .cancelled = &cancelled,
                                .deterministic = true,
                                .output_new = output_new };
    int r;

    ck_assert_msg(plan.kernel, "%s has no kernel", fixture->node.op->name);
    if (!pool)
        ck_assert_int_eq(pool_new(&own, 0, "test"), 0);
    r = plan.kernel->prepare(&plan, &fixture->error);
    if (r == 0) {
        void *scratch = NULL;
        struct kernel_run run;

        ck_assert(plan.run);
        ck_assert(!plan.scratch_bytes || posix_memalign(&scratch, 64, plan.scratch_bytes) == 0);
        run = (struct kernel_run){ .state = plan.state,
                                   .inputs = fixture->in_data,
                                   .outputs = fixture->out_data,
                                   .scratch = scratch,
                                   .pool = pool ? pool : own,
                                   .step = &step };
        r = plan.run(&run);
        if (r < 0)
            fixture->error = *kernel_failure();
        free(scratch);
    }
    if (plan.state_free)
        plan.state_free(plan.state);
    else
        free(plan.state);
    return r;
}

struct shape kernel_fixture_shape(int rank, ...) {
    struct shape shape = { .rank = rank };
    va_list dims;

    va_start(dims, rank);
    for (int i = 0; i < rank; i++)
        shape.dims[i] = va_arg(dims, int);
    va_end(dims);
    return shape;
}

/* ---- Elements ----------------------------------------------------------------------------------
 */

long double kernel_fixture_get(enum dtype dtype, const void *data, int64_t i) {
    switch (dtype) {
    case DTYPE_F16:
        return dtype_from_f16(((const uint16_t *)data)[i]);
    case DTYPE_BF16:
        return dtype_from_bf16(((const uint16_t *)data)[i]);
    case DTYPE_F32:
        return ((const float *)data)[i];
    case DTYPE_F64:
        return ((const double *)data)[i];
    case DTYPE_I8:
        return ((const int8_t *)data)[i];
    case DTYPE_I16:
        return ((const int16_t *)data)[i];
    case DTYPE_I32:
        return ((const int32_t *)data)[i];
    case DTYPE_I64:
        return ((const int64_t *)data)[i];
    case DTYPE_U16:
        return ((const uint16_t *)data)[i];
    case DTYPE_U32:
        return ((const uint32_t *)data)[i];
    case DTYPE_U64:
        return ((const uint64_t *)data)[i];
    default:
        return ((const uint8_t *)data)[i];
    }
}

__int128 kernel_fixture_wrap(enum dtype dtype, __int128 value) {
    switch (dtype) {
    case DTYPE_I8:
        return (int8_t)value;
    case DTYPE_I16:
        return (int16_t)value;
    case DTYPE_I32:
        return (int32_t)value;
    case DTYPE_I64:
        return (int64_t)value;
    case DTYPE_U16:
        return (uint16_t)value;
    case DTYPE_U32:
        return (uint32_t)value;
    case DTYPE_U64:
        return (uint64_t)value;
    case DTYPE_BOOL:
        return value != 0;
    default:
        return (uint8_t)value;
    }
}

void kernel_fixture_set(enum dtype dtype, void *data, int64_t i, long double value) {
    uint64_t whole;

    switch (dtype) {
    case DTYPE_F16:
        ((uint16_t *)data)[i] = dtype_to_f16((float)value);
        return;
    case DTYPE_BF16:
        ((uint16_t *)data)[i] = dtype_to_bf16((float)value);
        return;
    case DTYPE_F32:
        ((float *)data)[i] = (float)value;
        return;
    case DTYPE_F64:
        ((double *)data)[i] = (double)value;
        return;
    default:
        whole = (uint64_t)kernel_fixture_wrap(dtype, (__int128)value);
        memcpy((char *)data + (size_t)i * dtype_bytes(dtype), &whole, dtype_bytes(dtype));
    }
}

void kernel_fixture_fill(enum dtype dtype, void *data, int64_t n, uint64_t *seed, double range,
                         bool special) {
    static const double specials[] = { 0, -0.0, 1, -1, INFINITY, -INFINITY, NAN, 1e-40, 3e38 };

    for (int64_t i = 0; i < n; i++) {
        uint64_t bits = random_next(seed);
        double unit = (double)(bits >> 11) * 0x1p-53;

        if (dtype_kind(dtype) == DTYPE_KIND_FLOAT)
            kernel_fixture_set(dtype, data, i,
                               special && bits % 16 == 0
                                   ? specials[bits / 16 % ELEMENTSOF(specials)]
                                   : (2 * unit - 1) * range);
        else if (dtype == DTYPE_BOOL)
            kernel_fixture_set(dtype, data, i, bits & 1);
        else
            kernel_fixture_set(dtype, data, i,
                               special && bits % 4 == 0 ? (long double)(int64_t)random_next(seed)
                                                        : truncl((2 * unit - 1) * range));
    }
}

double kernel_fixture_ulps(enum dtype dtype, long double got, long double expected) {
    static const struct {
        int digits, least;
        long double most;
    } formats[N_DTYPES] = { [DTYPE_F16] = { 11, -24, 65504 },
                            [DTYPE_BF16] = { 8, -133, 0x1.fep127L },
                            [DTYPE_F32] = { 24, -149, 0x1.fffffep127L },
                            [DTYPE_F64] = { 53, -1074, 0x1.fffffffffffffp1023L } };
    int exponent, unit;

    if (isnan(got) || isnan(expected))
        return isnan(got) && isnan(expected) ? 0 : INFINITY;
    if (got == expected)
        return 0;
    if (!formats[dtype].digits)
        return INFINITY;
    if (isinf(got) || isinf(expected)) {
        long double finite = isinf(got) ? expected : got, infinite = isinf(got) ? got : expected;

        if (isinf(finite) || signbit(finite) != signbit(infinite))
            return INFINITY;
        /* Beyond the largest number there is infinity. */
        return fabsl(finite) > formats[dtype].most ? 0 : 1;
    }
    frexpl(expected, &exponent);
    unit = exponent - formats[dtype].digits;
    if (unit < formats[dtype].least)
        unit = formats[dtype].least;
    return (double)ldexpl(fabsl(got - expected), -unit);
}

int64_t kernel_fixture_stretch(const struct shape *input, const struct shape *output, int64_t i) {
    int64_t index = 0, step = 1;

    for (int k = output->rank; k-- > 0; i /= output->dims[k]) {
        int own = k - (output->rank - input->rank);

        if (own < 0)
            continue;
        if (input->dims[own] != 1)
            index += i % output->dims[k] * step;
        step *= input->dims[own];
    }
    return index;
}
