/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/core/dtype.h"

#include <string.h>
#include <strings.h>

static const struct {
    const char *name, *safetensors;
    uint8_t bytes, kind;
} dtypes[N_DTYPES] = { [DTYPE_NONE] = { "none", "", 0, DTYPE_KIND_NONE },
#define X(name, number, bytes, kind, safetensors)                                                  \
    [DTYPE_##name] = { #name, safetensors, bytes, DTYPE_KIND_##kind },
                       DTYPES(X)
#undef X
};

static const char *const lower[N_DTYPES] = { "none", "f16", "bf16", "f32", "f64", "i8",  "i16",
                                             "i32",  "i64", "u8",   "u16", "u32", "u64", "bool" };

bool dtype_is_valid(int dtype) {
    return dtype > DTYPE_NONE && dtype < N_DTYPES;
}

size_t dtype_bytes(enum dtype dtype) {
    return dtype_is_valid((int)dtype) ? dtypes[dtype].bytes : 0;
}

enum dtype_kind dtype_kind(enum dtype dtype) {
    return dtype_is_valid((int)dtype) ? dtypes[dtype].kind : DTYPE_KIND_NONE;
}

const char *dtype_name(enum dtype dtype) {
    return lower[dtype_is_valid((int)dtype) ? dtype : DTYPE_NONE];
}

enum dtype dtype_by_name(const char *name) {
    for (int i = DTYPE_NONE + 1; i < N_DTYPES; i++)
        if (strcmp(lower[i], name) == 0 || strcmp(dtypes[i].safetensors, name) == 0)
            return (enum dtype)i;
    return DTYPE_NONE;
}

static uint32_t bits_of(float value) {
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static float float_of(uint32_t bits) {
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

float dtype_from_f16(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31,
             mantissa = half & 1023;

    if (exponent == 31) /* infinity and NaN, which keeps its payload and is quiet */
        return float_of(sign | 0x7f800000 | mantissa << 13 | (mantissa ? 0x400000 : 0));
    if (exponent)
        return float_of(sign | (exponent + 112) << 23 | mantissa << 13);
    /* A subnormal half is a normal float: its mantissa counts 2^-24. */
    return float_of(sign | bits_of((float)mantissa * 0x1p-24f));
}

uint16_t dtype_to_f16(float value) {
    uint32_t bits = bits_of(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;

    if (magnitude > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= 0x47800000) /* 65536 and more */
        return (uint16_t)(sign | 0x7c00);
    if (magnitude < 0x38800000) {
        /* Below 2^-14: adding 0.5 puts the unit of a float at that of a subnormal half, 2^-24, and
         * the addition rounds. */
        return (uint16_t)(sign | (bits_of(float_of(magnitude) + 0.5f) - 0x3f000000));
    }
    /* The kept bit decides ties; a carry out of the mantissa goes to the exponent, as it should. */
    magnitude += 0xfff + (magnitude >> 13 & 1);
    return (uint16_t)(sign | (magnitude - 0x38000000) >> 13);
}

float dtype_from_bf16(uint16_t half) {
    return float_of((uint32_t)half << 16);
}

uint16_t dtype_to_bf16(float value) {
    uint32_t bits = bits_of(value);

    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
