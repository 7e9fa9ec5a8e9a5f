/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/sim/ptx/alu/ptx_arithmetic.h"

#include <errno.h>
#include <fenv.h>
#include <math.h>
#include <string.h>

#include "base/cleanup.h"

#define HAS(name) PTX_HAS(&opcode->mods, name)

uint64_t ptx_arithmetic_extend(uint64_t bits, enum ptx_type type) {
    unsigned n = ptx_ir_type_bytes(type) * 8;

    if (n == 0 || n >= 64)
        return bits;
    bits &= (UINT64_C(1) << n) - 1;
    if (ptx_ir_type_class(type) == 's' && bits >> (n - 1))
        bits |= ~UINT64_C(0) << n;
    return bits;
}

static double half_real(unsigned bits, int n_mantissa, int bias) {
    int top = n_mantissa == 10 ? 31 : 255;
    int exponent = (int)(bits >> n_mantissa) & top;
    double m = bits & ((1U << n_mantissa) - 1), r;

    if (exponent == top)
        r = m != 0 ? (double)NAN : (double)INFINITY;
    else if (exponent == 0)
        r = ldexp(m, 1 - bias - n_mantissa);
    else
        r = ldexp(m + (1 << n_mantissa), exponent - bias - n_mantissa);
    return bits & 0x8000 ? -r : r;
}

double ptx_arithmetic_real(uint64_t bits, enum ptx_type type) {
    float f;
    double d;
    uint32_t low = (uint32_t)bits;

    switch (type) {
    case PTX_f16:
        return half_real(low & 0xffff, 10, 15);
    case PTX_bf16:
        return half_real(low & 0xffff, 7, 127);
    case PTX_f32:
        memcpy(&f, &low, 4);
        return f;
    default:
        memcpy(&d, &bits, 8);
        return d;
    }
}

static double flush(double x, enum ptx_type type) {
    double least = type == PTX_f16 ? 0x1p-14 : 0x1p-126;

    return fabs(x) < least && x != 0 ? copysign(0.0, x) : x;
}

/* The half kinds by looking for the neighbours: exact x, to nearest even. `lost` breaks ties. */
static uint64_t real_to_half(double x, enum ptx_type type, double lost) {
    int n = type == PTX_f16 ? 10 : 7, bias = type == PTX_f16 ? 15 : 127;
    unsigned inf = type == PTX_f16 ? 0x7c00 : 0x7f80, low = 0, high = inf;
    unsigned sign = signbit(x) ? 0x8000 : 0;
    double magnitude = fabs(x), below, above;

    if (isnan(x))
        return 0x7fff;
    if (isinf(x))
        return sign | inf;
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;

        if (half_real(middle, n, bias) <= magnitude)
            low = middle;
        else
            high = middle;
    }
    below = half_real(low, n, bias);
    above = high == inf ? ldexp(1, type == PTX_f16 ? 16 : 128) : half_real(high, n, bias);
    lost = sign ? -lost : lost;
    if (magnitude - below > above - magnitude ||
        (magnitude - below == above - magnitude && (lost > 0 || (lost == 0 && low & 1))))
        low = high;
    return sign | low;
}

static uint64_t real_bits(double x, enum ptx_type type) {
    float f = (float)x;
    uint32_t low;
    uint64_t bits;

    switch (type) {
    case PTX_f16:
    case PTX_bf16:
        return real_to_half(x, type, 0);
    case PTX_f32:
        memcpy(&low, &f, 4);
        return low;
    default:
        memcpy(&bits, &x, 8);
        return bits;
    }
}

static void enter_rounding(const struct ptx_opcode *opcode) {
    fesetround(HAS(rz)   ? FE_TOWARDZERO
               : HAS(rm) ? FE_DOWNWARD
               : HAS(rp) ? FE_UPWARD
                         : FE_TONEAREST);
}

/* volatile: computed here and now, in the mode that was set */
static int float_32(const struct ptx_opcode *opcode, const double in[3], double *ret) {
    volatile float a = (float)in[0], b = (float)in[1], c = (float)in[2], r;

    switch (opcode->op) {
    case PTX_OP_add:
        r = a + b;
        break;
    case PTX_OP_sub:
        r = a - b;
        break;
    case PTX_OP_mul:
        r = a * b;
        break;
    case PTX_OP_div:
        r = a / b;
        break;
    case PTX_OP_fma:
    case PTX_OP_mad:
        r = fmaf(a, b, c);
        break;
    case PTX_OP_sqrt:
        r = sqrtf(a);
        break;
    case PTX_OP_rcp:
        r = 1 / a;
        break;
    case PTX_OP_rsqrt:
        r = 1 / sqrtf(a);
        break;
    case PTX_OP_ex2:
        r = exp2f(a);
        break;
    case PTX_OP_lg2:
        r = log2f(a);
        break;
    case PTX_OP_sin:
        r = sinf(a);
        break;
    case PTX_OP_cos:
        r = cosf(a);
        break;
    case PTX_OP_tanh:
        r = tanhf(a);
        break;
    default:
        return -EOPNOTSUPP;
    }
    *ret = r;
    return 0;
}

static int float_64(const struct ptx_opcode *opcode, const double in[3], double *ret) {
    volatile double a = in[0], b = in[1], c = in[2], r;

    switch (opcode->op) {
    case PTX_OP_add:
        r = a + b;
        break;
    case PTX_OP_sub:
        r = a - b;
        break;
    case PTX_OP_mul:
        r = a * b;
        break;
    case PTX_OP_div:
        r = a / b;
        break;
    case PTX_OP_fma:
    case PTX_OP_mad:
        r = fma(a, b, c);
        break;
    case PTX_OP_sqrt:
        r = sqrt(a);
        break;
    case PTX_OP_rcp:
        r = 1 / a;
        break;
    case PTX_OP_rsqrt:
        r = 1 / sqrt(a);
        break;
    default:
        return -EOPNOTSUPP;
    }
    *ret = r;
    return 0;
}

/* Halves: exact in long double (64 bits of mantissa), what that loses is kept beside. */
static int float_16(const struct ptx_opcode *opcode, const double in[3], enum ptx_type type,
                    uint64_t *ret) {
    long double exact, a = in[0], b = in[1], c = in[2], product = a * b, back, beyond = 0;
    double r;

    switch (opcode->op) {
    case PTX_OP_add:
        exact = a + b;
        break;
    case PTX_OP_sub:
        exact = a - b;
        break;
    case PTX_OP_mul:
        exact = product;
        break;
    case PTX_OP_fma: /* bf16 reaches further than 64 bits: what the sum loses, exactly */
        exact = product + c;
        back = exact - product;
        beyond = (product - (exact - back)) + (c - back);
        break;
    default:
        return -EOPNOTSUPP;
    }
    r = (double)exact;
    *ret = real_to_half(r, type, isfinite(r) ? (double)(exact - r + beyond) : 0);
    return 0;
}

static double least(double a, double b) {
    if (isnan(a) || isnan(b))
        return isnan(a) ? b : a;
    if (a == b)
        return signbit(a) ? a : b;
    return a < b ? a : b;
}

static int float_op(const struct ptx_opcode *opcode, const uint64_t in[4], enum ptx_type type,
                    uint64_t *ret) {
    double x[3], r;
    unsigned n = ptx_ir_type_bytes(type) * 8;
    uint64_t sign = UINT64_C(1) << (n - 1);
    int error = 0;

    for (int i = 0; i < 3; i++) {
        x[i] = ptx_arithmetic_real(in[i], type);
        if (HAS(ftz) && type != PTX_f64)
            x[i] = flush(x[i], type);
    }
    switch (opcode->op) {
    case PTX_OP_neg:
    case PTX_OP_abs:
        *ret = real_bits(x[0], type);
        if (isnan(x[0]))
            *ret = in[0];
        *ret = opcode->op == PTX_OP_neg ? *ret ^ sign : *ret & ~sign;
        return 0;
    case PTX_OP_copysign:
        *ret = (in[0] & sign) | (in[1] & ~sign);
        return 0;
    case PTX_OP_min:
    case PTX_OP_max:
        r = opcode->op == PTX_OP_min ? least(x[0], x[1]) : -least(-x[0], -x[1]);
        if (HAS(NaN) && (isnan(x[0]) || isnan(x[1])))
            r = NAN;
        *ret = real_bits(r, type);
        return 0;
    default:
        break;
    }
    if (type == PTX_f16 || type == PTX_bf16) {
        error = float_16(opcode, x, type, ret);
        r = ptx_arithmetic_real(*ret, type);
    } else {
        enter_rounding(opcode);
        error = type == PTX_f32 ? float_32(opcode, x, &r) : float_64(opcode, x, &r);
        fesetround(FE_TONEAREST);
    }
    if (error < 0)
        return error;
    if (HAS(ftz) && type != PTX_f64)
        r = flush(r, type);
    if (HAS(sat))
        r = r > 0 ? (r < 1 ? r : 1) : 0;
    if (HAS(relu) && r <= 0) /* -0 too */
        r = 0;
    *ret = real_bits(r, type);
    return 0;
}

static int convert(const struct ptx_opcode *opcode, uint64_t in, uint64_t *ret) {
    enum ptx_type to = opcode->types[0], from = opcode->types[1];
    char to_class = ptx_ir_type_class(to), from_class = ptx_ir_type_class(from);
    bool to_real = to_class == 'f' || to_class == 'h';
    unsigned n = ptx_ir_type_bytes(to) * 8;
    double x;

    in = ptx_arithmetic_extend(in, from);
    if (from_class != 'f' && from_class != 'h') {
        bool negative = from_class == 's' && (int64_t)in < 0;

        if (!to_real) {
            if (HAS(sat)) {
                uint64_t top = to_class == 's' ? (UINT64_C(1) << (n - 1)) - 1
                               : n == 64       ? ~UINT64_C(0)
                                               : (UINT64_C(1) << n) - 1;

                if (negative && to_class != 's')
                    in = 0;
                else if (negative && (int64_t)in < -(int64_t)top - 1)
                    in = (uint64_t)(-(int64_t)top - 1);
                else if (!negative && in > top)
                    in = top;
            }
            *ret = in;
            return 0;
        }
        enter_rounding(opcode);
        if (to == PTX_f32) {
            volatile float f = from_class == 's' ? (float)(int64_t)in : (float)in;

            x = f;
        } else {
            volatile double d = from_class == 's' ? (double)(int64_t)in : (double)in;

            x = d;
        }
        fesetround(FE_TONEAREST);
        *ret = real_bits(x, to);
        return 0;
    }
    x = ptx_arithmetic_real(in, from);
    if (HAS(ftz) && from == PTX_f32)
        x = flush(x, PTX_f32);
    if (HAS(rni) || HAS(rzi) || HAS(rmi) || HAS(rpi) || !to_real)
        x = HAS(rzi) ? trunc(x) : HAS(rmi) ? floor(x) : HAS(rpi) ? ceil(x) : rint(x);
    if (!to_real) {
        long double top = ldexpl(1, (int)(to_class == 's' ? n - 1 : n));
        long double bottom = to_class == 's' ? -top : 0, y = x;

        if (isnan(x))
            *ret = from != PTX_f64 && n < 64 ? 0 : UINT64_C(1) << (n - 1);
        else if (y >= top)
            *ret = to_class == 's' ? (UINT64_C(1) << (n - 1)) - 1 : ~UINT64_C(0);
        else if (y <= bottom)
            *ret = to_class == 's' ? UINT64_C(1) << (n - 1) : 0;
        else
            *ret = y < 0 ? (uint64_t)(int64_t)y : (uint64_t)y;
        return 0;
    }
    if (HAS(sat))
        x = x > 0 ? (x < 1 ? x : 1) : 0;
    enter_rounding(opcode);
    if (to == PTX_f32) {
        volatile double d = x;
        volatile float f = (float)d;

        x = f;
    }
    fesetround(FE_TONEAREST);
    if (HAS(ftz) && to == PTX_f32)
        x = flush(x, PTX_f32);
    *ret = real_bits(x, to);
    return 0;
}

enum ptx_type ptx_arithmetic_result(const struct ptx_opcode *opcode) {
    enum ptx_type type = opcode->types[0];
    bool sign = ptx_ir_type_class(type) == 's';

    switch (opcode->op) {
    case PTX_OP_mul:
    case PTX_OP_mad:
        if (HAS(wide))
            return ptx_ir_type_bytes(type) == 2 ? (sign ? PTX_s32 : PTX_u32)
                                                : (sign ? PTX_s64 : PTX_u64);
        return type;
    case PTX_OP_popc:
    case PTX_OP_clz:
    case PTX_OP_bfind:
        return PTX_u32;
    default:
        return type;
    }
}

static uint64_t bit_field(uint64_t a, unsigned pos, unsigned len, unsigned n, bool sign) {
    uint64_t r = 0;
    unsigned top = pos + len - 1 < n - 1 ? pos + len - 1 : n - 1;
    bool fill = sign && len && (a >> top & 1);

    for (unsigned i = 0; i < n; i++) {
        bool bit = i < len && pos + i < n ? a >> (pos + i) & 1 : fill;

        r |= (uint64_t)bit << i;
    }
    return r;
}

static int integer_op(const struct ptx_opcode *opcode, const uint64_t in[4], uint64_t *ret) {
    enum ptx_type type = opcode->types[0];
    unsigned n = ptx_ir_type_bytes(type) * 8;
    bool sign = ptx_ir_type_class(type) == 's';
    uint64_t a = ptx_arithmetic_extend(in[0], type), b = ptx_arithmetic_extend(in[1], type);
    uint64_t c = ptx_arithmetic_extend(in[2], type), r = 0;
    int64_t sa = (int64_t)a, sb = (int64_t)b;
    __int128 product = sign ? (__int128)sa * sb : (__int128)((unsigned __int128)a * b);

    switch (opcode->op) {
    case PTX_OP_add:
        r = a + b;
        if (HAS(sat))
            r = (uint64_t)MAX(MIN((int64_t)r, (int64_t)INT32_MAX), (int64_t)INT32_MIN);
        break;
    case PTX_OP_sub:
        r = a - b;
        if (HAS(sat))
            r = (uint64_t)MAX(MIN((int64_t)r, (int64_t)INT32_MAX), (int64_t)INT32_MIN);
        break;
    case PTX_OP_mul:
    case PTX_OP_mad:
        r = HAS(hi) ? (uint64_t)(product >> n) : (uint64_t)product;
        if (opcode->op == PTX_OP_mad)
            r += HAS(wide) ? in[2] : c;
        break;
    case PTX_OP_div:
        r = !b ? ~UINT64_C(0) : sign ? (sb == -1 ? 0 - a : (uint64_t)(sa / sb)) : a / b;
        break;
    case PTX_OP_rem:
        r = !b ? a : sign ? (sb == -1 ? 0 : (uint64_t)(sa % sb)) : a % b;
        break;
    case PTX_OP_min:
        r = sign ? (sa < sb ? a : b) : a < b ? a : b;
        break;
    case PTX_OP_max:
        r = sign ? (sa > sb ? a : b) : a > b ? a : b;
        break;
    case PTX_OP_abs:
        r = sa < 0 ? 0 - a : a;
        break;
    case PTX_OP_neg:
        r = 0 - a;
        break;
    case PTX_OP_and:
        r = a & b;
        break;
    case PTX_OP_or:
        r = a | b;
        break;
    case PTX_OP_xor:
        r = a ^ b;
        break;
    case PTX_OP_not:
        r = ~a;
        break;
    case PTX_OP_cnot:
        r = !a;
        break;
    case PTX_OP_shl:
        r = (uint32_t)in[1] >= n ? 0 : a << (uint32_t)in[1];
        break;
    case PTX_OP_shr:
        r = sign                   ? (uint64_t)(sa >> MIN((uint32_t)in[1], n - 1))
            : (uint32_t)in[1] >= n ? 0
                                   : a >> (uint32_t)in[1];
        break;
    case PTX_OP_sad:
        r = c + (sign ? (sa < sb ? b - a : a - b) : a < b ? b - a : a - b);
        break;
    case PTX_OP_popc:
        for (unsigned i = 0; i < n; i++)
            r += a >> i & 1;
        break;
    case PTX_OP_clz:
        while (r < n && !(a >> (n - 1 - r) & 1))
            r++;
        break;
    case PTX_OP_bfind: {
        uint64_t x = sign && sa < 0 ? ~a : a;

        x &= n == 64 ? ~UINT64_C(0) : (UINT64_C(1) << n) - 1;
        r = ~UINT64_C(0);
        for (unsigned i = 0; i < n; i++)
            if (x >> i & 1)
                r = HAS(shiftamt) ? n - 1 - i : i;
        break;
    }
    case PTX_OP_brev:
        for (unsigned i = 0; i < n; i++)
            r |= (a >> i & 1) << (n - 1 - i);
        break;
    case PTX_OP_bfe:
        r = bit_field(a, in[1] & 255, in[2] & 255, n, sign);
        break;
    case PTX_OP_bfi:
        r = b;
        for (unsigned i = 0; i < (in[3] & 255) && i + (in[2] & 255) < n; i++) {
            unsigned at = i + (unsigned)(in[2] & 255);

            r = (r & ~(UINT64_C(1) << at)) | (i < n ? (a >> i & 1) << at : 0);
        }
        break;
    case PTX_OP_lop3:
        for (unsigned i = 0; i < 32; i++)
            r |= (in[3] >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1)) & 1) << i;
        break;
    case PTX_OP_shf: {
        uint64_t both = b << 32 | a;
        unsigned s = HAS(clamp) ? MIN((uint32_t)c, 32U) : (unsigned)(c & 31);

        r = HAS(l) ? (s == 32 ? a : both << s >> 32) : both >> s;
        break;
    }
    case PTX_OP_prmt:
        for (unsigned k = 0; k < 4; k++) {
            unsigned s = c >> 4 * k & 15;
            uint64_t byte = (b << 32 | a) >> 8 * (s & 7) & 255;

            r |= (s & 8 ? (byte & 128 ? 255 : 0) : byte) << 8 * k;
        }
        break;
    case PTX_OP_dp4a:
        r = in[2];
        for (unsigned k = 0; k < 4; k++) {
            int64_t x =
                opcode->types[0] == PTX_s32 ? (int8_t)(in[0] >> 8 * k) : (uint8_t)(in[0] >> 8 * k);
            int64_t y =
                opcode->types[1] == PTX_s32 ? (int8_t)(in[1] >> 8 * k) : (uint8_t)(in[1] >> 8 * k);

            r += (uint64_t)(x * y);
        }
        break;
    case PTX_OP_slct:
        r = opcode->types[1] == PTX_f32 ? (ptx_arithmetic_real(in[2], PTX_f32) >= 0 ? a : b)
            : (int32_t)in[2] >= 0       ? a
                                        : b;
        break;
    default:
        return -EOPNOTSUPP;
    }
    *ret = r;
    return 0;
}

int ptx_arithmetic(const struct ptx_opcode *opcode, const uint64_t in[4], uint64_t *ret) {
    enum ptx_type type = opcode->types[0];
    char class = ptx_ir_type_class(type);

    if (opcode->op == PTX_OP_cvt)
        return convert(opcode, in[0], ret);
    if (class == 'p') {
        *ret = opcode->op == PTX_OP_and   ? in[0] & in[1]
               : opcode->op == PTX_OP_or  ? in[0] | in[1]
               : opcode->op == PTX_OP_xor ? in[0] ^ in[1]
                                          : !in[0];
        return 0;
    }
    if (type == PTX_f16x2 || type == PTX_bf16x2) {
        enum ptx_type half = type == PTX_f16x2 ? PTX_f16 : PTX_bf16;
        uint64_t low[4], high[4], a, b;

        for (int i = 0; i < 4; i++) {
            low[i] = in[i] & 0xffff;
            high[i] = in[i] >> 16 & 0xffff;
        }
        if (float_op(opcode, low, half, &a) < 0 || float_op(opcode, high, half, &b) < 0)
            return -EOPNOTSUPP;
        *ret = b << 16 | a;
        return 0;
    }
    if ((class == 'f' || class == 'h') && opcode->op != PTX_OP_slct)
        return float_op(opcode, in, type, ret);
    return integer_op(opcode, in, ret);
}

bool ptx_arithmetic_compare(const struct ptx_opcode *opcode, enum ptx_type type, uint64_t a,
                            uint64_t b) {
    char class = ptx_ir_type_class(type);

    if (class == 'f' || class == 'h') {
        double x = ptx_arithmetic_real(a, type), y = ptx_arithmetic_real(b, type);
        bool nan;

        if (HAS(ftz)) {
            x = flush(x, type);
            y = flush(y, type);
        }
        nan = isnan(x) || isnan(y);
        return HAS(eq)    ? x == y
               : HAS(ne)  ? !nan && x != y
               : HAS(lt)  ? x < y
               : HAS(le)  ? x <= y
               : HAS(gt)  ? x > y
               : HAS(ge)  ? x >= y
               : HAS(equ) ? nan || x == y
               : HAS(neu) ? nan || x != y
               : HAS(ltu) ? nan || x < y
               : HAS(leu) ? nan || x <= y
               : HAS(gtu) ? nan || x > y
               : HAS(geu) ? nan || x >= y
               : HAS(num) ? !nan
                          : nan;
    }
    a = ptx_arithmetic_extend(a, type);
    b = ptx_arithmetic_extend(b, type);
    if (class == 's') {
        a ^= UINT64_C(1) << 63; /* order of signed numbers as unsigned ones */
        b ^= UINT64_C(1) << 63;
    }
    return HAS(eq)              ? a == b
           : HAS(ne)            ? a != b
           : HAS(lt) || HAS(lo) ? a < b
           : HAS(le) || HAS(ls) ? a <= b
           : HAS(gt) || HAS(hi) ? a > b
                                : a >= b;
}
