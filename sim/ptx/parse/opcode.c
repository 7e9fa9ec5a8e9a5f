/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opcode: "fma.rn.ftz.f32" taken apart, and the arithmetic function that does it.
 *
 * A module has some hundred different spellings and tens of thousands of instructions, so each
 * spelling is examined once and found by its text afterwards. The function is found by a key made
 * of what matters: operation, what selects it, types. Rounding, .ftz and .sat do not make a key
 * each: a key with ".x" names the function that looks at the instruction's flags.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "sim/ptx/exec/exec.h"

static const char *const op_names[] = { "none",
#define X(name) #name,
                                        PTX_OPS(X)
#undef X
};

static const char *const mod_names[] = {
#define X(name) #name,
    PTX_MODS(X)
#undef X
};

/* In the PTX manual, but not implemented: the message should say so. */
static const char *const not_implemented[] = {
    "mma",
    "wmma",
    "wgmma",
    "ldmatrix",
    "stmatrix",
    "movmatrix",
    "tex",
    "tld4",
    "txq",
    "suld",
    "sust",
    "sured",
    "suq",
    "istypep",
    "tcgen05",
    "multimem",
    "tensormap",
    "setmaxnreg",
    "clusterlaunchcontrol",
    "vadd",
    "vsub",
    "vabsdiff",
    "vmin",
    "vmax",
    "vshl",
    "vshr",
    "vmad",
    "vset",
    "vadd2",
    "vsub2",
    "vavrg2",
    "vmin2",
    "vmax2",
    "vset2",
    "vadd4",
    "vsub4",
    "vavrg4",
    "vmin4",
    "vmax4",
    "vset4",
    "st_async",
    "red_async",
};

static int find(const char *const *names, size_t n_names, const char *text, size_t n) {
    for (size_t i = 0; i < n_names; i++)
        if (!strncmp(names[i], text, n) && !names[i][n])
            return (int)i;
    return -1;
}

static bool starts(const char *text, size_t n, const char *prefix) {
    return n >= strlen(prefix) && !memcmp(text, prefix, strlen(prefix));
}

static void set_mod(struct ptx_mods *mods, int mod) {
    mods->bits[mod / 64] |= UINT64_C(1) << (mod % 64);
}

static int take_piece(struct ptx_opcode *opcode, const char *piece, size_t n,
                      struct allot_error *err) {
    char name[40];
    size_t used = 0;
    int mod;
    enum ptx_type type = ptx_ir_type_find(piece, n);

    if (type) {
        if (opcode->n_types == ELEMENTSOF(opcode->types))
            return error_set(err, -EINVAL, "too many types in '%.*s'", (int)opcode->text_bytes,
                             opcode->text);
        opcode->types[opcode->n_types++] = (uint8_t)type;
        return 0;
    }
    if (starts(piece, n, "L2::cache_hint")) {
        set_mod(&opcode->mods, PTX_MOD_hint);
        return 0;
    }
    if (starts(piece, n, "L1::") || starts(piece, n, "L2::") || starts(piece, n, "level::"))
        return 0; /* where to cache it: ignored */
    for (size_t i = 0; i < n && used < sizeof(name) - 1; i++)
        if (piece[i] != ':')
            name[used++] = piece[i];
        else if (i && piece[i - 1] != ':')
            name[used++] = '_';
    name[used] = 0;
    mod = find(mod_names, ELEMENTSOF(mod_names), name, used);
    if (mod < 0 || n >= sizeof(name))
        return error_set(err, -EOPNOTSUPP, "'.%.*s' of instruction '%.*s' is not implemented",
                         (int)MIN(n, (size_t)40), piece, (int)MIN(opcode->text_bytes, 80),
                         opcode->text);
    set_mod(&opcode->mods, mod);
    return 0;
}

uint8_t ptx_opcode_flags(const struct ptx_opcode *opcode) {
    const struct ptx_mods *m = &opcode->mods;
    uint8_t flags = 0;

    if (PTX_HAS(m, ftz))
        flags |= PTX_FTZ;
    if (PTX_HAS(m, sat))
        flags |= PTX_SAT;
    if (PTX_HAS(m, rz) || PTX_HAS(m, rzi))
        flags |= PTX_RZ;
    if (PTX_HAS(m, rm) || PTX_HAS(m, rmi))
        flags |= PTX_RM;
    if (PTX_HAS(m, rp) || PTX_HAS(m, rpi))
        flags |= PTX_RP;
    if (PTX_HAS(m, relu))
        flags |= PTX_RELU;
    if (PTX_HAS(m, NaN))
        flags |= PTX_NAN;
    if (PTX_HAS(m, xorsign))
        flags |= PTX_XORSIGN;
    return flags;
}

/* Modifiers that choose another function, in the order in which they stand in a key. */
static const uint8_t key_mods[] = {
    PTX_MOD_lo,     PTX_MOD_hi,        PTX_MOD_wide,     PTX_MOD_approx, PTX_MOD_full,
    PTX_MOD_l,      PTX_MOD_r,         PTX_MOD_wrap,     PTX_MOD_clamp,  PTX_MOD_shiftamt,
    PTX_MOD_f4e,    PTX_MOD_b4e,       PTX_MOD_rc8,      PTX_MOD_ecl,    PTX_MOD_ecr,
    PTX_MOD_rc16,   PTX_MOD_finite,    PTX_MOD_infinite, PTX_MOD_number, PTX_MOD_notanumber,
    PTX_MOD_normal, PTX_MOD_subnormal, PTX_MOD_abs,      PTX_MOD_add,
};

static bool has_mod(const struct ptx_mods *mods, unsigned mod) {
    return mods->bits[mod / 64] >> (mod % 64) & 1;
}

/* Comparison names to the six that exist, unordered float ones apart. */
static const struct {
    uint8_t mod;
    const char *name;
} compares[] = {
    { PTX_MOD_eq, "eq" },   { PTX_MOD_ne, "ne" },   { PTX_MOD_lt, "lt" },   { PTX_MOD_le, "le" },
    { PTX_MOD_gt, "gt" },   { PTX_MOD_ge, "ge" },   { PTX_MOD_lo, "lt" },   { PTX_MOD_ls, "le" },
    { PTX_MOD_hi, "gt" },   { PTX_MOD_hs, "ge" },   { PTX_MOD_equ, "equ" }, { PTX_MOD_neu, "neu" },
    { PTX_MOD_ltu, "ltu" }, { PTX_MOD_leu, "leu" }, { PTX_MOD_gtu, "gtu" }, { PTX_MOD_geu, "geu" },
    { PTX_MOD_num, "num" }, { PTX_MOD_nan, "nan" },
};

static int compare_key(const struct ptx_opcode *opcode, char *key, size_t n, enum ptx_type type) {
    for (size_t i = 0; i < ELEMENTSOF(compares); i++)
        if (has_mod(&opcode->mods, compares[i].mod)) {
            bool x = PTX_HAS(&opcode->mods, ftz);

            bool pair = type == PTX_f16x2 || type == PTX_bf16x2;

            snprintf(key, n, "%s.%s%s.%s", pair ? "pair" : "setp", compares[i].name,
                     x && !pair ? ".x" : "", ptx_ir_type_name(type));
            return 0;
        }
    return -EINVAL;
}

static void arithmetic_key(const struct ptx_opcode *opcode, char *key, size_t n) {
    size_t used = (size_t)snprintf(key, n, "%s", op_names[opcode->op]);
    char class = opcode->n_types ? ptx_ir_type_class(opcode->types[0]) : 'b';
    bool real = class == 'f' || class == 'h';

    for (size_t i = 0; i < ELEMENTSOF(key_mods); i++)
        if (has_mod(&opcode->mods, key_mods[i]))
            used += (size_t)snprintf(key + used, n - used, ".%s", mod_names[key_mods[i]]);
    if (real && ptx_opcode_flags(opcode))
        used += (size_t)snprintf(key + used, n - used, ".x");
    else if (!real && PTX_HAS(&opcode->mods, sat))
        used += (size_t)snprintf(key + used, n - used, ".sat");
    else if (!real && PTX_HAS(&opcode->mods, relu))
        used += (size_t)snprintf(key + used, n - used, ".relu");
    for (size_t i = 0; i < opcode->n_types; i++)
        used += (size_t)snprintf(key + used, n - used, ".%s", ptx_ir_type_name(opcode->types[i]));
}

/* cvt.rni.s32.f32 has a function of its own; other conversions use the general one. */
static void convert_key(const struct ptx_opcode *opcode, char *key, size_t n) {
    const struct ptx_mods *m = &opcode->mods;
    const char *round = PTX_HAS(m, rni) ? ".rni" : PTX_HAS(m, rzi) ? ".rzi" : "";

    if ((ptx_ir_type_bytes(opcode->types[0]) == 4 && ptx_ir_type_class(opcode->types[0]) == 'h') ||
        opcode->types[0] == PTX_e4m3x2 || opcode->types[0] == PTX_e5m2x2)
        round = ""; /* a pair: its function looks at the flags */
    else if ((ptx_opcode_flags(opcode) & ~PTX_RZ) || PTX_HAS(m, rna) ||
             (PTX_HAS(m, rz) || PTX_HAS(m, satfinite)))
        round = ".none";
    snprintf(key, n, "cvt%s.%s.%s", round, ptx_ir_type_name(opcode->types[0]),
             ptx_ir_type_name(opcode->types[1]));
}

static int bad(const struct ptx_opcode *opcode, struct allot_error *err, const char *why) {
    return error_set(err, -EOPNOTSUPP, "instruction '%.*s' is not implemented%s",
                     (int)MIN(opcode->text_bytes, 100), opcode->text, why);
}

static bool uses_carry(const struct ptx_opcode *opcode) {
    return opcode->op == PTX_OP_addc || opcode->op == PTX_OP_subc || opcode->op == PTX_OP_madc ||
           PTX_HAS(&opcode->mods, cc);
}

/* Whether the general conversion does it. */
static bool conversion_known(const struct ptx_opcode *opcode) {
    const struct ptx_mods *m = &opcode->mods;

    if (opcode->n_types != 2 || PTX_HAS(m, satfinite))
        return false;
    for (int i = 0; i < 2; i++) {
        enum ptx_type type = opcode->types[i];
        uint32_t bytes = ptx_ir_type_bytes(type);
        char class = ptx_ir_type_class(type);

        if (type == PTX_tf32 && !i)
            continue;
        if (type == PTX_e4m3x2 || type == PTX_e5m2x2 || type == PTX_u16x2 || type == PTX_s16x2 ||
            class == 'p' || class == 'b' || bytes > 8 || (class == 'h' && bytes != 2))
            return false;
    }
    return true;
}

static int find_arithmetic(struct ptx_opcode *opcode, struct allot_error *err) {
    const struct ptx_isa *isa = ptx_isa_get();
    char key[96];

    switch (opcode->op) {
    case PTX_OP_setp:
    case PTX_OP_set:
        if (opcode->n_types != (opcode->op == PTX_OP_set ? 2 : 1) ||
            compare_key(opcode, key, sizeof(key), opcode->types[opcode->n_types - 1]) < 0)
            return bad(opcode, err, "");
        break;
    case PTX_OP_cvt:
        if (opcode->n_types == 3)
            arithmetic_key(opcode, key, sizeof(key));
        else if (opcode->n_types == 2)
            convert_key(opcode, key, sizeof(key));
        else
            return bad(opcode, err, "");
        opcode->alu = ptx_isa_find(isa, key);
        if (!opcode->alu && !conversion_known(opcode))
            return bad(opcode, err, "");
        return 0;
    case PTX_OP_mov:
    case PTX_OP_selp:
        if (opcode->n_types != 1 || ptx_ir_type_bytes(opcode->types[0]) == 1)
            return bad(opcode, err, "");
        snprintf(key, sizeof(key), "mov.b%u", ptx_ir_type_bytes(opcode->types[0]) * 8);
        opcode->alu = ptx_isa_find(isa, key); /* none for .pred */
        return 0;
    default:
        if (uses_carry(opcode)) {
            if (opcode->n_types != 1 || (ptx_ir_type_bytes(opcode->types[0]) != 4 &&
                                         ptx_ir_type_bytes(opcode->types[0]) != 8))
                return bad(opcode, err, "");
            return 0;
        }
        arithmetic_key(opcode, key, sizeof(key));
        break;
    }
    opcode->alu = ptx_isa_find(isa, key);
    return opcode->alu ? 0 : bad(opcode, err, "");
}

static bool is_arithmetic(enum ptx_op op) {
    switch (op) {
    case PTX_OP_activemask:
    case PTX_OP_alloca:
    case PTX_OP_applypriority:
    case PTX_OP_atom:
    case PTX_OP_bar:
    case PTX_OP_barrier:
    case PTX_OP_bra:
    case PTX_OP_brkpt:
    case PTX_OP_brx:
    case PTX_OP_call:
    case PTX_OP_cp:
    case PTX_OP_createpolicy:
    case PTX_OP_cvta:
    case PTX_OP_discard:
    case PTX_OP_elect:
    case PTX_OP_exit:
    case PTX_OP_fence:
    case PTX_OP_griddepcontrol:
    case PTX_OP_isspacep:
    case PTX_OP_ld:
    case PTX_OP_ldu:
    case PTX_OP_match:
    case PTX_OP_mbarrier:
    case PTX_OP_membar:
    case PTX_OP_nanosleep:
    case PTX_OP_pmevent:
    case PTX_OP_prefetch:
    case PTX_OP_prefetchu:
    case PTX_OP_red:
    case PTX_OP_redux:
    case PTX_OP_ret:
    case PTX_OP_shfl:
    case PTX_OP_st:
    case PTX_OP_stackrestore:
    case PTX_OP_stacksave:
    case PTX_OP_trap:
    case PTX_OP_vote:
        return false;
    default:
        return true;
    }
}

static int examine(struct ptx_opcode *opcode, struct allot_error *err) {
    const char *p = opcode->text, *end = p + opcode->text_bytes;
    const char *dot = memchr(p, '.', opcode->text_bytes);
    size_t n = (size_t)((dot ? dot : end) - p);
    int op = find(op_names, ELEMENTSOF(op_names), p, n), r;

    if (op <= 0) {
        if (find(not_implemented, ELEMENTSOF(not_implemented), p, n) >= 0)
            return bad(opcode, err, "");
        return error_set(err, -EINVAL, "unknown instruction '%.*s'",
                         (int)MIN(opcode->text_bytes, 100), p);
    }
    opcode->op = (uint8_t)op;
    for (p = dot; p && p < end; p = dot) {
        p++;
        dot = memchr(p, '.', (size_t)(end - p));
        r = take_piece(opcode, p, (size_t)((dot ? dot : end) - p), err);
        if (r < 0)
            return r;
    }

    opcode->vec = PTX_HAS(&opcode->mods, v8)   ? 8
                  : PTX_HAS(&opcode->mods, v4) ? 4
                  : PTX_HAS(&opcode->mods, v2) ? 2
                                               : 1;
    opcode->space = PTX_IN_GENERIC;
    if (PTX_HAS(&opcode->mods, global))
        opcode->space = PTX_IN_GLOBAL;
    else if (PTX_HAS(&opcode->mods, shared) || PTX_HAS(&opcode->mods, shared_cta) ||
             PTX_HAS(&opcode->mods, shared_cluster))
        opcode->space = PTX_IN_SHARED;
    else if (PTX_HAS(&opcode->mods, local))
        opcode->space = PTX_IN_LOCAL;
    else if (PTX_HAS(&opcode->mods, const))
        opcode->space = PTX_IN_CONST;
    else if (PTX_HAS(&opcode->mods, param) || PTX_HAS(&opcode->mods, param_entry) ||
             PTX_HAS(&opcode->mods, param_func))
        opcode->space = PTX_IN_PARAM;
    r = ptx_rules_check(opcode, err);
    if (!r && is_arithmetic((enum ptx_op)op))
        r = find_arithmetic(opcode, err);
    return r;
}

static int grow_table(struct ptx_module *module) {
    size_t n = module->n_opcode_buckets ? module->n_opcode_buckets * 2 : 256;
    struct ptx_opcode **table = calloc(n, sizeof(*table));

    if (!table)
        return -ENOMEM;
    for (size_t i = 0; i < module->n_opcode_buckets; i++) {
        struct ptx_opcode *opcode = module->opcodes[i];

        if (opcode) {
            size_t at = ptx_ir_hash(opcode->text, opcode->text_bytes) & (n - 1);

            while (table[at])
                at = (at + 1) & (n - 1);
            table[at] = opcode;
        }
    }
    free(module->opcodes);
    module->opcodes = table;
    module->n_opcode_buckets = n;
    return 0;
}

int ptx_opcode_get(struct ptx_module *module, const char *text, size_t n,
                   const struct ptx_opcode **ret, struct allot_error *err) {
    struct ptx_opcode *opcode;
    size_t at;
    int r;

    if (n > 200)
        return error_set(err, -EINVAL, "unknown instruction '%.40s…'", text);
    if (module->n_opcodes * 2 >= module->n_opcode_buckets) {
        r = grow_table(module);
        if (r < 0)
            return r;
    }
    at = ptx_ir_hash(text, n) & (module->n_opcode_buckets - 1);
    for (; module->opcodes[at]; at = (at + 1) & (module->n_opcode_buckets - 1)) {
        opcode = module->opcodes[at];
        if (opcode->text_bytes == n && !memcmp(opcode->text, text, n)) {
            *ret = opcode;
            return 0;
        }
    }
    opcode = ptx_ir_arena_get(&module->arena, sizeof(*opcode));
    if (!opcode)
        return -ENOMEM;
    opcode->text = text;
    opcode->text_bytes = (uint16_t)n;
    r = examine(opcode, err);
    if (r < 0)
        return r;
    module->opcodes[at] = opcode;
    module->n_opcodes++;
    *ret = opcode;
    return 0;
}
