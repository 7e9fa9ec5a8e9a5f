/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Show: a tensor as people read it. Long dimensions show their first and last three entries, as
 * NumPy does; numbers are written as short as they can be without losing anything.
 */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "libclient/core/tensor.h"

enum { EDGE = 3, SHOWN_WHOLE = 8 };

struct show_page {
    char *text;
    size_t size, n;
};

__attribute__((format(printf, 2, 3))) static void put(struct show_page *page, const char *format,
                                                      ...) {
    va_list args;

    va_start(args, format);
    if (page->n + 1 < page->size)
        page->n += (size_t)vsnprintf(page->text + page->n, page->size - page->n, format, args);
    if (page->n + 1 > page->size)
        page->n = page->size - 1;
    va_end(args);
}

static void put_float(struct show_page *page, double value, int digits_max, bool is_float) {
    char text[NUMBER_SIZE];

    if (value == floor(value) && fabs(value) < 1e15)
        put(page, "%.0f", value);
    else
        put(page, "%s", number_shortest(text, value, digits_max, is_float));
}

static void put_element(struct show_page *page, enum dtype dtype, const char *at) {
#define READ(type)                                                                                 \
    ({                                                                                             \
        type value_;                                                                               \
        memcpy(&value_, at, sizeof(value_));                                                       \
        value_;                                                                                    \
    })
    switch (dtype) {
    case DTYPE_F16:
        put_float(page, (double)dtype_from_f16(READ(uint16_t)), 5, true);
        break;
    case DTYPE_BF16:
        put_float(page, (double)dtype_from_bf16(READ(uint16_t)), 4, true);
        break;
    case DTYPE_F32:
        put_float(page, (double)READ(float), 9, true);
        break;
    case DTYPE_F64:
        put_float(page, READ(double), 17, false);
        break;
    case DTYPE_I8:
        put(page, "%d", READ(int8_t));
        break;
    case DTYPE_I16:
        put(page, "%d", READ(int16_t));
        break;
    case DTYPE_I32:
        put(page, "%" PRId32, READ(int32_t));
        break;
    case DTYPE_I64:
        put(page, "%" PRId64, READ(int64_t));
        break;
    case DTYPE_U8:
        put(page, "%u", READ(uint8_t));
        break;
    case DTYPE_U16:
        put(page, "%u", READ(uint16_t));
        break;
    case DTYPE_U32:
        put(page, "%" PRIu32, READ(uint32_t));
        break;
    case DTYPE_U64:
        put(page, "%" PRIu64, READ(uint64_t));
        break;
    case DTYPE_BOOL:
        put(page, "%s", READ(uint8_t) ? "True" : "False");
        break;
    case DTYPE_NONE:
    case N_DTYPES:
        break;
    }
#undef READ
}

static void put_part(struct show_page *page, const struct allot_tensor *tensor, int dim,
                     const char *at, size_t bytes) {
    int64_t n;
    size_t step;

    if (dim == tensor->shape.rank) {
        put_element(page, tensor->dtype, at);
        return;
    }
    n = tensor->shape.dims[dim];
    step = n ? bytes / (size_t)n : 0;
    put(page, "[");
    for (int64_t i = 0; i < n; i++) {
        if (n > SHOWN_WHOLE && i == EDGE) {
            put(page, " ...");
            i = n - EDGE;
        }
        put(page, "%s", i ? " " : "");
        put_part(page, tensor, dim + 1, at + (size_t)i * step, step);
    }
    put(page, "]");
}

const char *allot_tensor_format(const struct allot_tensor *tensor, char *text, size_t size) {
    struct show_page page = { text, size, 0 };

    if (size == 0 || !text)
        return text;
    text[0] = 0;
    if (tensor)
        put_part(&page, tensor, 0, tensor_data(tensor), tensor->bytes);
    return text;
}
