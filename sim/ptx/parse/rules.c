/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules: the modifiers that an instruction may and must have, by the PTX manual. They depend on the
 * spelling alone, so each spelling is checked once, however often it occurs. The executor could run
 * many wrong spellings; NVIDIA's assembler refuses them, so we do too.
 */
#include <errno.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "sim/ptx/ir.h"

static bool has(const struct ptx_opcode *opcode, unsigned mod) {
    return opcode->mods.bits[mod / 64] >> (mod % 64) & 1;
}

static unsigned count(const struct ptx_opcode *opcode, const uint8_t *mods, size_t n) {
    unsigned found = 0;

    for (size_t i = 0; i < n; i++)
        found += has(opcode, mods[i]);
    return found;
}

static int wrong(const struct ptx_opcode *opcode, struct allot_error *err, const char *why) {
    return error_set(err, -EINVAL, "%s, in '%.*s'", why, (int)MIN(opcode->text_bytes, 100),
                     opcode->text);
}

static bool is_float(enum ptx_type type) {
    return ptx_ir_type_class(type) == 'f' || ptx_ir_type_class(type) == 'h';
}

static const uint8_t to_float[] = { PTX_MOD_rn, PTX_MOD_rz, PTX_MOD_rm, PTX_MOD_rp, PTX_MOD_rna };
static const uint8_t to_whole[] = { PTX_MOD_rni, PTX_MOD_rzi, PTX_MOD_rmi, PTX_MOD_rpi };
static const uint8_t spaces[] = {
    PTX_MOD_global,      PTX_MOD_shared, PTX_MOD_shared_cta,
    PTX_MOD_local,       PTX_MOD_const,  PTX_MOD_shared_cluster,
    PTX_MOD_param_entry, PTX_MOD_param,  PTX_MOD_param_func,
};

/* Whether every value of one float type is one of the other. */
static bool widens(enum ptx_type from, enum ptx_type to) {
    if (from == to)
        return true;
    switch (from) {
    case PTX_f16:
    case PTX_bf16:
    case PTX_tf32:
        return to == PTX_f32 || to == PTX_f64;
    case PTX_f32:
        return to == PTX_f64;
    default:
        return false;
    }
}

static int check_convert(const struct ptx_opcode *opcode, unsigned n_float, unsigned n_whole,
                         struct allot_error *err) {
    const enum ptx_type to = opcode->types[0];
    const enum ptx_type from = opcode->types[opcode->n_types > 1 ? 1 : 0];

    if (opcode->n_types < 2)
        return 0; /* not implemented; the message says so later */
    if (is_float(from) && !is_float(to)) {
        if (n_float)
            return wrong(opcode, err, "illegal rounding modifier");
        return n_whole ? 0 : wrong(opcode, err, "rounding modifier required");
    }
    if (!is_float(to))
        return n_float + n_whole ? wrong(opcode, err, "illegal rounding modifier") : 0;
    if (!is_float(from) || !widens(from, to)) {
        if (n_whole)
            return wrong(opcode, err, "illegal rounding modifier");
        return n_float ? 0 : wrong(opcode, err, "rounding modifier required");
    }
    if (from == PTX_bf16 && to == PTX_f32 && n_float)
        return 0; /* accepted, without effect */
    return n_float || (n_whole && from != to) ? wrong(opcode, err, "illegal rounding modifier") : 0;
}

static int check_rounding(const struct ptx_opcode *opcode, struct allot_error *err) {
    const unsigned n_float = count(opcode, to_float, ELEMENTSOF(to_float));
    const unsigned n_whole = count(opcode, to_whole, ELEMENTSOF(to_whole));
    const enum ptx_type type = opcode->n_types ? opcode->types[0] : PTX_TYPE_NONE;
    const bool approximate = has(opcode, PTX_MOD_approx) || has(opcode, PTX_MOD_full);

    if (n_float + n_whole > 1)
        return wrong(opcode, err, "more than one rounding modifier");
    switch (opcode->op) {
    case PTX_OP_cvt:
        return check_convert(opcode, n_float, n_whole, err);
    case PTX_OP_fma:
        if (!n_float)
            return wrong(opcode, err, "rounding modifier required");
        break;
    case PTX_OP_mad:
        if (!n_float && is_float(type))
            return wrong(opcode, err, "rounding modifier required");
        break;
    case PTX_OP_div:
    case PTX_OP_rcp:
    case PTX_OP_sqrt:
        if (!n_float && !approximate && is_float(type))
            return wrong(opcode, err, "rounding modifier or '.approx' required");
        if (n_float && approximate)
            return wrong(opcode, err, "illegal rounding modifier");
        break;
    case PTX_OP_add:
    case PTX_OP_sub:
    case PTX_OP_mul:
        break;
    default:
        return n_float + n_whole ? wrong(opcode, err, "illegal rounding modifier") : 0;
    }
    if (n_whole || (n_float && !is_float(type)) ||
        (n_float && (type == PTX_f16 || type == PTX_f16x2) && !has(opcode, PTX_MOD_rn)))
        return wrong(opcode, err, "illegal rounding modifier");
    return 0;
}

static int check_spaces(const struct ptx_opcode *opcode, struct allot_error *err) {
    const unsigned n = count(opcode, spaces, ELEMENTSOF(spaces));

    switch (opcode->op) {
    case PTX_OP_cp:
    case PTX_OP_fence:
    case PTX_OP_createpolicy:
        return 0;
    case PTX_OP_atom:
    case PTX_OP_red:
        if (opcode->space != PTX_IN_GENERIC && opcode->space != PTX_IN_GLOBAL &&
            opcode->space != PTX_IN_SHARED)
            return wrong(opcode, err, "no such state space for this instruction");
        break;
    case PTX_OP_ld:
    case PTX_OP_ldu:
    case PTX_OP_st:
    case PTX_OP_cvta:
    case PTX_OP_getctarank:
    case PTX_OP_isspacep:
    case PTX_OP_mapa:
    case PTX_OP_prefetch:
    case PTX_OP_prefetchu:
    case PTX_OP_discard:
    case PTX_OP_applypriority:
    case PTX_OP_mbarrier:
        break;
    default:
        return n ? wrong(opcode, err, "no state space expected") : 0;
    }
    return n > 1 ? wrong(opcode, err, "more than one state space") : 0;
}

static int check_compare(const struct ptx_opcode *opcode, struct allot_error *err) {
    static const uint8_t unsigned_only[] = { PTX_MOD_lo, PTX_MOD_ls, PTX_MOD_hi, PTX_MOD_hs };
    static const uint8_t float_only[] = { PTX_MOD_equ, PTX_MOD_neu, PTX_MOD_ltu, PTX_MOD_leu,
                                          PTX_MOD_gtu, PTX_MOD_geu, PTX_MOD_num, PTX_MOD_nan };
    static const uint8_t ordered[] = { PTX_MOD_lt, PTX_MOD_le, PTX_MOD_gt, PTX_MOD_ge };
    const enum ptx_type type = opcode->n_types ? opcode->types[opcode->n_types - 1] : 0;
    const char class = ptx_ir_type_class(type);

    if ((opcode->op != PTX_OP_setp && opcode->op != PTX_OP_set) || !type)
        return 0;
    if ((class != 'u' && count(opcode, unsigned_only, ELEMENTSOF(unsigned_only))) ||
        (!is_float(type) && count(opcode, float_only, ELEMENTSOF(float_only))) ||
        (class == 'b' && count(opcode, ordered, ELEMENTSOF(ordered))))
        return wrong(opcode, err, "comparison and type do not agree");
    return 0;
}

static bool is_bf16(enum ptx_type type) {
    return type == PTX_bf16 || type == PTX_bf16x2;
}

static bool is_fp8(enum ptx_type type) {
    return type == PTX_e4m3x2 || type == PTX_e5m2x2;
}

static bool is_pair(enum ptx_type type) {
    return type == PTX_u16x2 || type == PTX_s16x2;
}

static bool takes_flush(const struct ptx_opcode *opcode) {
    if (opcode->op == PTX_OP_rcp || opcode->op == PTX_OP_rsqrt)
        return true; /* also of doubles: their .approx.ftz is a coarse first guess */
    for (unsigned i = 0; i < opcode->n_types; i++)
        if (opcode->types[i] == PTX_f32 || opcode->types[i] == PTX_f16 ||
            opcode->types[i] == PTX_f16x2 ||
            (is_bf16(opcode->types[i]) && (opcode->op == PTX_OP_ex2 || opcode->op == PTX_OP_cvt ||
                                           opcode->op == PTX_OP_setp || opcode->op == PTX_OP_set)))
            return true;
    return false;
}

/* What changes the result, and the types that have such a variant. */
static int check_variants(const struct ptx_opcode *opcode, struct allot_error *err) {
    const enum ptx_type type = opcode->n_types ? opcode->types[0] : PTX_TYPE_NONE;
    const char class = ptx_ir_type_class(type);

    if (has(opcode, PTX_MOD_ftz) && !takes_flush(opcode))
        return wrong(opcode, err, "illegal modifier '.ftz'");
    if (has(opcode, PTX_MOD_noftz) && class != 'h')
        return wrong(opcode, err, "illegal modifier '.noftz'");
    if (has(opcode, PTX_MOD_cc) && class != 'u' && class != 's')
        return wrong(opcode, err, "illegal modifier '.cc'");
    if ((has(opcode, PTX_MOD_NaN) || has(opcode, PTX_MOD_xorsign)) &&
        (!is_float(type) || type == PTX_f64))
        return wrong(opcode, err, "a modifier of floating-point minima and maxima");
    for (unsigned i = 0; i < opcode->n_types; i++)
        if (is_fp8(opcode->types[i]) && opcode->op != PTX_OP_cvt)
            return wrong(opcode, err, "a type for conversions alone");
    if (opcode->op == PTX_OP_cvt && opcode->n_types == 2 && is_fp8(type) &&
        !has(opcode, PTX_MOD_satfinite))
        return wrong(opcode, err, "'.satfinite' required");
    if (opcode->op == PTX_OP_cvt)
        return 0;
    if (has(opcode, PTX_MOD_sat) && (type == PTX_f64 || is_bf16(type)))
        return wrong(opcode, err, "illegal modifier '.sat'");
    if (has(opcode, PTX_MOD_relu) && class == 'f')
        return wrong(opcode, err, "illegal modifier '.relu'");
    return 0;
}

static int check_atomic(const struct ptx_opcode *opcode, struct allot_error *err) {
    const enum ptx_type type = opcode->n_types ? opcode->types[0] : PTX_TYPE_NONE;

    if (opcode->op != PTX_OP_atom && opcode->op != PTX_OP_red)
        return 0;
    if ((opcode->op == PTX_OP_red && has(opcode, PTX_MOD_exch)) ||
        ((has(opcode, PTX_MOD_inc) || has(opcode, PTX_MOD_dec)) && type != PTX_u32) ||
        (has(opcode, PTX_MOD_add) && type == PTX_s64))
        return wrong(opcode, err, "no such operation on this type");
    return 0;
}

/* The first generation that has an instruction. */
static uint16_t first_target(const struct ptx_opcode *opcode) {
    const enum ptx_type type = opcode->n_types ? opcode->types[0] : PTX_TYPE_NONE;

    switch (opcode->op) {
    case PTX_OP_elect:
    case PTX_OP_getctarank:
    case PTX_OP_griddepcontrol:
    case PTX_OP_mapa:
        return 90;
    case PTX_OP_barrier:
        return has(opcode, PTX_MOD_cluster) ? 90 : 0;
    case PTX_OP_redux:
    case PTX_OP_cp:
    case PTX_OP_mbarrier:
    case PTX_OP_createpolicy:
    case PTX_OP_discard:
    case PTX_OP_applypriority:
        return 80;
    case PTX_OP_tanh:
        return is_bf16(type) ? 90 : 75;
    case PTX_OP_ex2:
        return is_bf16(type) ? 90 : type == PTX_f16 || type == PTX_f16x2 ? 75 : 0;
    case PTX_OP_setp:
    case PTX_OP_set:
        return is_bf16(opcode->types[opcode->n_types ? opcode->n_types - 1 : 0]) ? 90 : 0;
    case PTX_OP_match:
    case PTX_OP_nanosleep:
        return 70;
    case PTX_OP_fma:
    case PTX_OP_abs:
    case PTX_OP_neg:
        return is_bf16(type) ? 80 : 0;
    case PTX_OP_min:
    case PTX_OP_max:
        return is_pair(type) || (has(opcode, PTX_MOD_relu) && type == PTX_s32) ? 90
               : has(opcode, PTX_MOD_xorsign)                                  ? 86
               : is_float(type) && type != PTX_f32 && type != PTX_f64          ? 80
                                                                               : 0;
    case PTX_OP_cvt:
        return is_fp8(type) || (opcode->n_types > 1 && is_fp8(opcode->types[1])) ? 89 : 0;
    case PTX_OP_add:
    case PTX_OP_sub:
    case PTX_OP_mul:
        return is_bf16(type) || is_pair(type) ? 90 : type == PTX_f16 || type == PTX_f16x2 ? 53 : 0;
    default:
        return 0;
    }
}

int ptx_rules_check(struct ptx_opcode *opcode, struct allot_error *err) {
    int r = check_rounding(opcode, err);

    if (!r)
        r = check_spaces(opcode, err);
    if (!r)
        r = check_compare(opcode, err);
    if (!r)
        r = check_variants(opcode, err);
    if (!r)
        r = check_atomic(opcode, err);
    opcode->first_target = first_target(opcode);
    return r;
}
