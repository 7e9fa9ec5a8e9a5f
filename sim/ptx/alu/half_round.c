/* SPDX-License-Identifier: Apache-2.0 */
/* One value to f16 or bf16 in any rounding mode, from the double that holds it exactly. */
#include <math.h>

#include "sim/ptx/exec/exec.h"

int ptx_half_round(double value, bool bf16, uint8_t flags) {
    int mantissa = bf16 ? 7 : 10, lowest = bf16 ? -126 : -14, highest = bf16 ? 127 : 15;
    int inf = bf16 ? 0x7f80 : 0x7c00, sign = signbit(value) ? 0x8000 : 0, exponent, bits;
    double magnitude = fabs(value), unit, scaled, whole;
    bool up;

    if (value != value)
        return 0x7fff;
    if (isinf(value))
        return sign | inf;
    if (magnitude == 0)
        return sign;
    frexp(magnitude, &exponent);
    exponent = exponent - 1 < lowest ? lowest : exponent - 1;
    unit = ldexp(1, exponent - mantissa);
    scaled = magnitude / unit; /* exact: a power of two, and nothing here is denormal in double */
    whole = floor(scaled);
    if (flags & PTX_RZ)
        up = false;
    else if (flags & PTX_RM)
        up = sign && scaled > whole;
    else if (flags & PTX_RP)
        up = !sign && scaled > whole;
    else
        up = scaled - whole > 0.5 || (scaled - whole == 0.5 && fmod(whole, 2) != 0);
    whole += up;
    if (whole >= ldexp(1, mantissa + 1)) {
        whole /= 2;
        exponent++;
    }
    if (exponent > highest) {
        bool away = (flags & PTX_RM && sign) || (flags & PTX_RP && !sign) ||
                    !(flags & (PTX_RZ | PTX_RM | PTX_RP));

        return sign | (away ? inf : inf - 1);
    }
    bits = (int)whole; /* with the hidden bit, unless denormal */
    if (bits >> mantissa)
        bits += (exponent - lowest) << mantissa;
    return sign | bits;
}
