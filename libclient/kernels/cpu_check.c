/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ops with a message: Print, Assert and CheckNumerics. They show the first elements of a tensor.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/number.h"
#include "libclient/core/log.h"
#include "libclient/graph/graph.h"
#include "libclient/kernels/cpu_each.h"
#include "libclient/kernels/family.h"

struct shown_tensor {
    enum dtype dtype;
    struct shape shape;
};

struct cpu_check {
    char *message;
    int64_t summarize; /* elements to show; below 0: all that fit */
    size_t bytes;      /* of input 0 */
    uint32_t n;
    struct shown_tensor inputs[];
};

/* Text that is cut off where the room ends. */
struct line {
    char text[480];
    size_t used;
};

static __attribute__((format(printf, 2, 3))) void say(struct line *line, const char *format, ...) {
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(line->text + line->used, sizeof(line->text) - line->used, format, args);
    va_end(args);
    line->used = MIN(line->used + (size_t)MAX(n, 0), sizeof(line->text) - 1);
}

static void say_element(struct line *line, enum dtype dtype, const void *data, int64_t i) {
    char text[NUMBER_SIZE];

    switch (dtype_kind(dtype)) {
    case DTYPE_KIND_FLOAT:
        say(line, "%s",
            number_format(text, cpu_each_value(dtype, data, i), dtype == DTYPE_F64 ? 15 : 7));
        break;
    case DTYPE_KIND_TRUTH:
        say(line, "%s", ((const uint8_t *)data)[i] ? "true" : "false");
        break;
    default: {
        int64_t value;

        loops_get()->cast[dtype][DTYPE_I64](
            &value, (const char *)data + (size_t)i * dtype_bytes(dtype), NULL, NULL, 1, NULL);
        if (dtype == DTYPE_U64)
            say(line, "%" PRIu64, (uint64_t)value);
        else
            say(line, "%" PRId64, value);
    }
    }
}

static void say_tensor(struct line *line, const struct shown_tensor *shown, const void *data,
                       int64_t summarize) {
    const int64_t count = shape_count(&shown->shape);
    const int64_t n = summarize < 0 ? count : MIN(count, summarize);

    say(line, "[");
    for (int64_t i = 0; i < n && line->used + 1 < sizeof(line->text); i++) {
        say(line, "%s", i ? " " : "");
        say_element(line, shown->dtype, data, i);
    }
    say(line, "%s]", n < count ? "..." : "");
}

/* ---- Run ------------------------------------------------------------------------------------- */

static void pass_on(const struct cpu_check *check, const struct kernel_run *run) {
    if (run->outputs[0] != run->inputs[0])
        memcpy(run->outputs[0], run->inputs[0], check->bytes);
}

/* Through the log, which by default is the standard error, as TensorFlow's: a line in one piece. */
static int run_print(const struct kernel_run *run) {
    const struct cpu_check *check = run->state;
    struct line line = { .used = 0 };

    say(&line, "%s", check->message);
    say_tensor(&line, &check->inputs[0], run->inputs[0], check->summarize);
    log_say(ALLOT_LOG_INFO, "%s", line.text);
    pass_on(check, run);
    return 0;
}

static int run_assert(const struct kernel_run *run) {
    const struct cpu_check *check = run->state;
    struct line line = { .used = 0 };

    if (*(const uint8_t *)run->inputs[0])
        return 0;
    say(&line, "assertion failed: %s", check->message);
    for (uint32_t i = 1; i < check->n; i++) {
        say(&line, " ");
        say_tensor(&line, &check->inputs[i], run->inputs[i], check->summarize);
    }
    return kernel_fail(-EINVAL, "%s", line.text);
}

static int fail_numerics(const struct cpu_check *check, int64_t i, double value) {
    const struct shape *shape = &check->inputs[0].shape;
    struct line line = { .used = 0 };
    int64_t at[SHAPE_RANK_MAX];

    for (int k = shape->rank; k-- > 0; i /= shape->dims[k])
        at[k] = i % shape->dims[k];
    say(&line, "%s%selement [", check->message, check->message[0] ? ": " : "");
    for (int k = 0; k < shape->rank; k++)
        say(&line, "%s%" PRId64, k ? ", " : "", at[k]);
    say(&line, "] is %s", isnan(value) ? "NaN" : value < 0 ? "-Inf" : "Inf");
    return kernel_fail(-EDOM, "%s", line.text);
}

static int run_numerics(const struct kernel_run *run) {
    const struct cpu_check *check = run->state;
    const enum dtype dtype = check->inputs[0].dtype;
    const int64_t count = shape_count(&check->inputs[0].shape);

    for (int64_t i = 0; i < count; i++) {
        const double value = dtype == DTYPE_F32 ? (double)((const float *)run->inputs[0])[i]
                                                : cpu_each_value(dtype, run->inputs[0], i);

        if (!isfinite(value))
            return fail_numerics(check, i, value);
    }
    pass_on(check, run);
    return 0;
}

/* ---- Plan ------------------------------------------------------------------------------------ */

enum { PRINT, ASSERT, NUMERICS };

static void check_free(void *state) {
    struct cpu_check *check = state;

    if (check)
        free(check->message);
    free(check);
}

static int prepare(struct kernel_plan *plan, struct allot_error *err) {
    static const kernel_run_fn runs[] = { run_print, run_assert, run_numerics };
    struct cpu_check *check = calloc(1, sizeof(*check) + plan->n_inputs * sizeof(check->inputs[0]));
    const char *message = graph_node_attr(plan->node, "message")->string;

    plan->state = check;
    plan->state_free = check_free;
    if (check)
        check->message = strdup(message ? message : "");
    if (!check || !check->message)
        return error_set(err, -ENOMEM, "no host memory for the plan of an op");
    check->summarize = plan->kernel->which == NUMERICS ? 0 : node_int(plan->node, "summarize");
    check->n = plan->n_inputs;
    for (uint32_t i = 0; i < plan->n_inputs; i++)
        check->inputs[i] = (struct shown_tensor){ plan->inputs[i].dtype, plan->inputs[i].shape };
    check->bytes = (size_t)shape_count(&plan->inputs[0].shape) * dtype_bytes(plan->inputs[0].dtype);
    plan->run = runs[plan->kernel->which];
    plan->cost = check->bytes / 4;
    return 0;
}

static const struct kernel rows[] = {
    { .op = "Print", .which = PRINT, .flags = KERNEL_IN_PLACE, .prepare = prepare },
    { .op = "Assert", .which = ASSERT, .prepare = prepare },
    { .op = "CheckNumerics",
      .which = NUMERICS,
      .dtypes = DTYPES_FLOAT,
      .flags = KERNEL_IN_PLACE,
      .prepare = prepare },
};

const struct kernel_family kernel_family_cpu_check = { rows, ELEMENTSOF(rows), NULL };
