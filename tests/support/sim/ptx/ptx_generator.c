/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/sim/ptx/ptx_generator.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"

/* Letters are operands: the first is written. h 16, r 32, d 64 bits; f f32, g f64; e f16, b bf16
 * (in 16-bit registers of their own), x f16x2, y bf16x2 (in 32-bit ones); p predicate; n small
 * number. */
static const char *const templates[] = {
    "add.u16 h,h,h",
    "sub.s16 h,h,h",
    "mul.lo.u16 h,h,h",
    "mul.hi.s16 h,h,h",
    "mul.hi.u16 h,h,h",
    "add.u32 r,r,r",
    "add.s32 r,r,r",
    "sub.u32 r,r,r",
    "mul.lo.s32 r,r,r",
    "mul.hi.u32 r,r,r",
    "mul.hi.s32 r,r,r",
    "mul.wide.u32 d,r,r",
    "mul.wide.s32 d,r,r",
    "mul.wide.u16 r,h,h",
    "mul.wide.s16 r,h,h",
    "mad.lo.s32 r,r,r,r",
    "mad.hi.u32 r,r,r,r",
    "mad.hi.s32 r,r,r,r",
    "mad.wide.u32 d,r,r,d",
    "mad.wide.s32 d,r,r,d",
    "mad.lo.u64 d,d,d,d",
    "add.u64 d,d,d",
    "sub.s64 d,d,d",
    "mul.lo.s64 d,d,d",
    "mul.hi.u64 d,d,d",
    "mul.hi.s64 d,d,d",
    "add.sat.s32 r,r,r",
    "sub.sat.s32 r,r,r",
    "div.u32 r,r,r",
    "div.s32 r,r,r",
    "rem.u32 r,r,r",
    "rem.s32 r,r,r",
    "div.s64 d,d,d",
    "rem.u64 d,d,d",
    "div.u16 h,h,h",
    "rem.s16 h,h,h",
    "min.s32 r,r,r",
    "max.u32 r,r,r",
    "min.u64 d,d,d",
    "max.s64 d,d,d",
    "min.s16 h,h,h",
    "max.u16 h,h,h",
    "abs.s32 r,r",
    "abs.s64 d,d",
    "neg.s32 r,r",
    "neg.s16 h,h",
    "abs.s16 h,h",
    "and.b32 r,r,r",
    "or.b64 d,d,d",
    "xor.b16 h,h,h",
    "not.b32 r,r",
    "not.b64 d,d",
    "cnot.b32 r,r",
    "shl.b32 r,r,n",
    "shl.b32 r,r,r",
    "shr.u32 r,r,n",
    "shr.s32 r,r,r",
    "shl.b64 d,d,r",
    "shr.s64 d,d,n",
    "shr.u64 d,d,r",
    "shl.b16 h,h,n",
    "shr.s16 h,h,r",
    "shr.u16 h,h,n",
    "sad.u32 r,r,r,r",
    "sad.s32 r,r,r,r",
    "sad.s16 h,h,h,h",
    "popc.b32 r,r",
    "popc.b64 r,d",
    "clz.b32 r,r",
    "clz.b64 r,d",
    "bfind.u32 r,r",
    "bfind.s32 r,r",
    "bfind.s64 r,d",
    "bfind.shiftamt.u32 r,r",
    "brev.b32 r,r",
    "brev.b64 d,d",
    "bfe.u32 r,r,n,n",
    "bfe.s32 r,r,r,n",
    "bfe.s64 d,d,n,r",
    "bfe.u64 d,d,r,n",
    "bfi.b32 r,r,r,n,n",
    "bfi.b64 d,d,d,r,n",
    "lop3.b32 r,r,r,r,0x96",
    "lop3.b32 r,r,r,r,0xe8",
    "lop3.b32 r,r,r,r,0x1b",
    "shf.l.wrap.b32 r,r,r,r",
    "shf.r.wrap.b32 r,r,r,n",
    "shf.l.clamp.b32 r,r,r,r",
    "shf.r.clamp.b32 r,r,r,n",
    "prmt.b32 r,r,r,r",
    "prmt.b32 r,r,r,0x9d42",
    "dp4a.u32.u32 r,r,r,r",
    "dp4a.s32.s32 r,r,r,r",
    "dp4a.u32.s32 r,r,r,r",
    "slct.s32.s32 r,r,r,r",
    "slct.u64.f32 d,d,d,f",
    "add.cc.u32 r,r,r",
    "addc.u32 r,r,r",
    "addc.cc.u32 r,r,r",
    "sub.cc.u32 r,r,r",
    "subc.cc.u32 r,r,r",
    "mad.lo.cc.u32 r,r,r,r",
    "madc.hi.u32 r,r,r,r",
    "madc.lo.cc.u32 r,r,r,r",
    "add.cc.u64 d,d,d",
    "addc.u64 d,d,d",
    "add.f32 f,f,f",
    "sub.f32 f,f,f",
    "mul.f32 f,f,f",
    "fma.rn.f32 f,f,f,f",
    "div.rn.f32 f,f,f",
    "sqrt.rn.f32 f,f",
    "rcp.rn.f32 f,f",
    "add.rz.f32 f,f,f",
    "sub.rm.f32 f,f,f",
    "mul.rp.f32 f,f,f",
    "fma.rz.f32 f,f,f,f",
    "fma.rm.f32 f,f,f,f",
    "div.rz.f32 f,f,f",
    "sqrt.rp.f32 f,f",
    "add.ftz.f32 f,f,f",
    "mul.ftz.f32 f,f,f",
    "fma.rn.ftz.f32 f,f,f,f",
    "add.sat.f32 f,f,f",
    "mul.ftz.sat.f32 f,f,f",
    "fma.rn.sat.f32 f,f,f,f",
    "min.f32 f,f,f",
    "max.f32 f,f,f",
    "min.ftz.f32 f,f,f",
    "max.NaN.f32 f,f,f",
    "abs.f32 f,f",
    "neg.f32 f,f",
    "abs.ftz.f32 f,f",
    "div.rn.ftz.f32 f,f,f",
    "sqrt.rn.ftz.f32 f,f",
    "add.f64 g,g,g",
    "sub.rn.f64 g,g,g",
    "mul.rz.f64 g,g,g",
    "fma.rn.f64 g,g,g,g",
    "fma.rp.f64 g,g,g,g",
    "div.rn.f64 g,g,g",
    "div.rm.f64 g,g,g",
    "sqrt.rn.f64 g,g",
    "rcp.rn.f64 g,g",
    "min.f64 g,g,g",
    "max.f64 g,g,g",
    "abs.f64 g,g",
    "neg.f64 g,g",
    "add.f16 e,e,e",
    "sub.f16 e,e,e",
    "mul.f16 e,e,e",
    "fma.rn.f16 e,e,e,e",
    "min.f16 e,e,e",
    "max.f16 e,e,e",
    "neg.f16 e,e",
    "abs.f16 e,e",
    "add.sat.f16 e,e,e",
    "fma.rn.relu.f16 e,e,e,e",
    "mul.ftz.f16 e,e,e",
    "add.f16x2 x,x,x",
    "mul.f16x2 x,x,x",
    "fma.rn.f16x2 x,x,x,x",
    "fma.rn.bf16 b,b,b,b",
    "min.bf16 b,b,b",
    "fma.rn.bf16x2 y,y,y,y",
    "max.bf16x2 y,y,y",
    "cvt.u32.u16 r,h",
    "cvt.s32.s16 r,h",
    "cvt.u16.u32 h,r",
    "cvt.u64.u32 d,r",
    "cvt.s64.s32 d,r",
    "cvt.u32.u64 r,d",
    "cvt.s32.s8 r,r",
    "cvt.u32.u8 r,h",
    "cvt.u16.u8 h,r",
    "cvt.s64.s8 d,d",
    "cvt.sat.u8.s32 r,r",
    "cvt.sat.s16.s32 h,r",
    "cvt.sat.u32.s64 r,d",
    "cvt.sat.s32.u64 r,d",
    "cvt.sat.s8.u32 h,r",
    "cvt.rn.f32.s32 f,r",
    "cvt.rn.f32.u32 f,r",
    "cvt.rz.f32.u32 f,r",
    "cvt.rp.f32.s32 f,r",
    "cvt.rn.f32.u64 f,d",
    "cvt.rm.f32.s64 f,d",
    "cvt.rn.f64.s32 g,r",
    "cvt.rn.f64.u64 g,d",
    "cvt.rz.f64.s64 g,d",
    "cvt.rni.s32.f32 r,f",
    "cvt.rzi.s32.f32 r,f",
    "cvt.rmi.s32.f32 r,f",
    "cvt.rpi.u32.f32 r,f",
    "cvt.rzi.u32.f32 r,f",
    "cvt.rni.u32.f32 r,f",
    "cvt.rzi.s64.f32 d,f",
    "cvt.rzi.u64.f64 d,g",
    "cvt.rni.s64.f64 d,g",
    "cvt.rzi.s16.f32 h,f",
    "cvt.rzi.u8.f32 r,f",
    "cvt.rni.ftz.s32.f32 r,f",
    "cvt.f64.f32 g,f",
    "cvt.rn.f32.f64 f,g",
    "cvt.rz.f32.f64 f,g",
    "cvt.rp.f32.f64 f,g",
    "cvt.rni.f32.f32 f,f",
    "cvt.rzi.f32.f32 f,f",
    "cvt.rmi.f64.f64 g,g",
    "cvt.rpi.f32.f32 f,f",
    "cvt.sat.f32.f32 f,f",
    "cvt.ftz.f32.f32 f,f",
    "cvt.rn.f16.f32 e,f",
    "cvt.f32.f16 f,e",
    "cvt.rn.bf16.f32 b,f",
    "cvt.f32.bf16 f,b",
    "cvt.rn.f16.s32 e,r",
    "cvt.rzi.s32.f16 r,e",
    "cvt.rn.f16.f64 e,g",
    "cvt.f64.f16 g,e",
    "setp.eq.u32 p,r,r",
    "setp.ne.s32 p,r,r",
    "setp.lt.s32 p,r,r",
    "setp.lo.u32 p,r,r",
    "setp.hs.u32 p,r,r",
    "setp.gt.s64 p,d,d",
    "setp.le.u64 p,d,d",
    "setp.ge.s16 p,h,h",
    "setp.lt.f32 p,f,f",
    "setp.neu.f32 p,f,f",
    "setp.geu.f32 p,f,f",
    "setp.nan.f32 p,f,f",
    "setp.gt.ftz.f32 p,f,f",
    "setp.le.f64 p,g,g",
    "setp.num.f64 p,g,g",
    "setp.eq.f16 p,e,e",
    "setp.lt.and.s32 p,r,r,p",
    "setp.gt.or.f32 p,f,f,p",
    "setp.ne.xor.u32 p,r,r,!p",
    "setp.lt.s32 p|p,r,r",
    "setp.ge.and.u32 p|p,r,r,p",
    "set.lt.u32.s32 r,r,r",
    "set.gt.f32.f32 f,f,f",
    "set.eq.s32.f64 r,g,g",
    "selp.b32 r,r,r,p",
    "selp.f32 f,f,f,p",
    "selp.b64 d,d,d,!p",
    "selp.b16 h,h,h,p",
    "and.pred p,p,p",
    "or.pred p,p,!p",
    "xor.pred p,p,p",
    "not.pred p,p",
    "mov.pred p,p",
    "mov.b32 r,r",
    "mov.b64 d,{r,r}",
    "mov.b64 {r,r},d",
    "mov.b32 r,{h,h}",
    "mov.b32 {h,h},r",
    "mov.b64 d,{h,h,h,h}",
    "mov.b64 {h,h,h,h},d",
    "mov.u32 r,%laneid",
    "mov.u32 r,%tid.x",
    "mov.u32 r,%lanemask_lt",
    "mov.u32 r,%ctaid.x",
};

static uint64_t state;

void ptx_generator_seed(uint64_t seed) {
    state = seed * 7919 + 17;
}

uint32_t ptx_generator_pick(uint32_t n) {
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(state >> 33) % n;
}

__attribute__((format(printf, 2, 3))) static void put(struct ptx_generator_text *text,
                                                      const char *format, ...) {
    va_list args;

    va_start(args, format);
    text->n +=
        (size_t)vsnprintf(text->bytes + text->n, sizeof(text->bytes) - text->n, format, args);
    va_end(args);
}

static void put_number(struct ptx_generator_text *text, char kind) {
    static const uint32_t floats[] = { 0x3f800000, 0xbf000000, 0x00000001, 0x7f800000, 0x80000000,
                                       0x4b7fffff, 0x7f7fffff, 0x007fffff, 0x33800000 };

    switch (kind) {
    case 'f':
        put(text, "0f%08X", floats[ptx_generator_pick(9)]);
        break;
    case 'g':
        put(text, "0d%08X%08X", ptx_generator_pick(2) ? 0x3ff00000 : 0xc0350000,
            ptx_generator_pick(1 << 30));
        break;
    case 'h':
        put(text, "%d", (int)ptx_generator_pick(65536) - 32768);
        break;
    default:
        put(text, "%d",
            ptx_generator_pick(2) ? (int)ptx_generator_pick(100) - 50
                                  : (int)(ptx_generator_pick(1U << 31) * 2));
    }
}

static void put_instruction(struct ptx_generator_text *text) {
    const char *t = templates[ptx_generator_pick(ELEMENTSOF(templates))],
               *operands = strchr(t, ' ');
    bool first = true, list = false;

    if (ptx_generator_pick(4) == 0)
        put(text, "@%s%%p%u ", ptx_generator_pick(2) ? "!" : "",
            ptx_generator_pick(PTX_GENERATOR_N_EACH));
    put(text, "%.*s ", (int)(operands - t), t);
    for (const char *c = operands + 1; *c; c++) {
        bool alone = !(c[1] && strchr("abcdefghijklmnopqrstuvwxyz_0123456789.", c[1]));

        if (*c == '%' || (*c >= '0' && *c <= '9')) { /* as it stands, to the end of the word */
            while (*c && *c != ',')
                put(text, "%c", *c++);
            c--;
        } else if (*c == 'n' && alone) {
            put(text, "%u", ptx_generator_pick(70));
        } else if (strchr("hrdfgebxyp", *c) && alone) {
            list |= c > operands + 1 && c[-1] == '{';
            if (!first && !list && strchr("hrdfg", *c) && ptx_generator_pick(6) == 0)
                put_number(text, *c);
            else
                put(text, "%%%c%u", *c, ptx_generator_pick(PTX_GENERATOR_N_EACH));
            first = false;
        } else {
            put(text, "%c", *c);
            if (*c == '{')
                list = true;
            if (*c == '}')
                list = false;
        }
    }
    put(text, ";\n");
}

static unsigned n_labels;
static bool brief, full_warps;

static void put_body(struct ptx_generator_text *text, unsigned depth, bool together) {
    unsigned n = brief ? 1 + ptx_generator_pick(3) : 3 + ptx_generator_pick(8), label;

    for (unsigned i = 0; i < n && text->n < sizeof(text->bytes) - 8192; i++) {
        switch (ptx_generator_pick(depth < 3 ? 22 : 16)) {
        default:
            put_instruction(text);
            break;
        case 0: /* a slot of its own in shared memory */
            put(text, "and.b32 %%a,%%r%u,12;\nadd.u32 %%a,%%a,%%mine;\n",
                ptx_generator_pick(PTX_GENERATOR_N_EACH));
            put(text,
                ptx_generator_pick(2) ? "st.shared.u32 [%%a],%%r%u;\n"
                                      : "ld.shared.u32 %%r%u,[%%a];\n",
                ptx_generator_pick(PTX_GENERATOR_N_EACH));
            break;
        case 1: /* and in local memory, any width */
            put(text, "and.b32 %%a,%%r%u,24;\ncvt.u64.u32 %%l,%%a;\nadd.u64 %%l,%%l,%%stack;\n",
                ptx_generator_pick(PTX_GENERATOR_N_EACH));
            switch (ptx_generator_pick(6)) {
            case 0:
                put(text, "st.local.u64 [%%l],%%d%u;\n", ptx_generator_pick(PTX_GENERATOR_N_EACH));
                break;
            case 1:
                put(text, "ld.local.f64 %%g%u,[%%l];\n", ptx_generator_pick(PTX_GENERATOR_N_EACH));
                break;
            case 2:
                put(text, "st.local.u8 [%%l+%u],%%r%u;\n", ptx_generator_pick(8),
                    ptx_generator_pick(PTX_GENERATOR_N_EACH));
                break;
            case 3:
                put(text, "ld.local.s8 %%r%u,[%%l+%u];\n", ptx_generator_pick(PTX_GENERATOR_N_EACH),
                    ptx_generator_pick(8));
                break;
            case 4:
                put(text, "st.local.v2.u32 [%%l],{%%r%u,%%r%u};\n",
                    ptx_generator_pick(PTX_GENERATOR_N_EACH),
                    ptx_generator_pick(PTX_GENERATOR_N_EACH));
                break;
            case 5:
                put(text, "ld.local.s16 %%d%u,[%%l+%u];\n",
                    ptx_generator_pick(PTX_GENERATOR_N_EACH), 2 * ptx_generator_pick(4));
                break;
            }
            break;
        case 2: /* global memory: what all add to, in any order */
            put(text, "and.b32 %%a,%%r%u,28;\ncvt.u64.u32 %%l,%%a;\nadd.u64 %%l,%%l,%%sums;\n",
                ptx_generator_pick(PTX_GENERATOR_N_EACH));
            put(text, "red.global.%s [%%l],%%r%u;\n", ptx_generator_pick(2) ? "add.u32" : "add.s32",
                ptx_generator_pick(PTX_GENERATOR_N_EACH));
            break;
        case 3: /* an element of the table, wherever its address leads */
            put(text, "and.b32 %%a,%%r%u,252;\ncvt.u64.u32 %%l,%%a;\nadd.u64 %%l,%%l,%%table;\n",
                ptx_generator_pick(PTX_GENERATOR_N_EACH));
            switch (ptx_generator_pick(4)) {
            case 0:
                put(text, "ld.global.u32 %%r%u,[%%l];\n", ptx_generator_pick(PTX_GENERATOR_N_EACH));
                break;
            case 1:
                put(text, "ld.global.nc.f32 %%f%u,[%%l+4];\n",
                    ptx_generator_pick(PTX_GENERATOR_N_EACH));
                break;
            case 2:
                put(text, "ld.u8 %%h%u,[%%l+3];\n", ptx_generator_pick(PTX_GENERATOR_N_EACH));
                break;
            case 3:
                put(text, "and.b64 %%l,%%l,-16;\nld.global.v4.u32 {%%r0,%%r1,%%r2,%%r3},[%%l];\n");
                break;
            }
            break;
        case 4: /* lanes see one another, only where all of them are */
            if (!together || !full_warps)
                break;
            switch (ptx_generator_pick(5)) {
            case 0:
                put(text, "shfl.sync.bfly.b32 %%r%u|%%p%u,%%r%u,%u,31,-1;\n",
                    ptx_generator_pick(PTX_GENERATOR_N_EACH),
                    ptx_generator_pick(PTX_GENERATOR_N_EACH),
                    ptx_generator_pick(PTX_GENERATOR_N_EACH), ptx_generator_pick(32));
                break;
            case 1:
                put(text, "shfl.sync.idx.b32 %%r%u,%%r%u,%%r%u,31,-1;\n",
                    ptx_generator_pick(PTX_GENERATOR_N_EACH),
                    ptx_generator_pick(PTX_GENERATOR_N_EACH),
                    ptx_generator_pick(PTX_GENERATOR_N_EACH));
                break;
            case 2:
                put(text, "shfl.sync.down.b32 %%f%u|%%p%u,%%f%u,%u,0x181f,-1;\n",
                    ptx_generator_pick(PTX_GENERATOR_N_EACH),
                    ptx_generator_pick(PTX_GENERATOR_N_EACH),
                    ptx_generator_pick(PTX_GENERATOR_N_EACH), ptx_generator_pick(9));
                break;
            case 3:
                put(text, "vote.sync.ballot.b32 %%r%u,%%p%u,-1;\n",
                    ptx_generator_pick(PTX_GENERATOR_N_EACH),
                    ptx_generator_pick(PTX_GENERATOR_N_EACH));
                break;
            case 4:
                put(text, "vote.sync.any.pred %%p%u,%%p%u,-1;\n",
                    ptx_generator_pick(PTX_GENERATOR_N_EACH),
                    ptx_generator_pick(PTX_GENERATOR_N_EACH));
                break;
            }
            break;
        case 5: /* a neighbour's slot, between barriers */
            if (together)
                put(text,
                    "st.shared.u32 [%%mine],%%r%u;\nbar.sync 0;\nld.shared.u32 %%r%u,[%%other];\n"
                    "bar.sync 0;\n",
                    ptx_generator_pick(PTX_GENERATOR_N_EACH),
                    ptx_generator_pick(PTX_GENERATOR_N_EACH));
            break;
        case 16:
        case 17: /* if, else */
            label = n_labels++;
            put(text, "@%s%%p%u bra ELSE%u;\n", ptx_generator_pick(2) ? "!" : "",
                ptx_generator_pick(PTX_GENERATOR_N_EACH), label);
            put_body(text, depth + 1, false);
            put(text, "bra FI%u;\nELSE%u:\n", label, label);
            put_body(text, depth + 1, false);
            put(text, "FI%u:\n", label);
            break;
        case 18:
        case 19: /* a loop, with its own length in every lane, and a way out of it */
            label = n_labels++;
            put(text,
                "and.b32 %%c%u,%%r%u,7;\nLOOP%u:\nsetp.eq.u32 %%q,%%c%u,0;\n@%%q bra END%u;\n",
                depth, ptx_generator_pick(PTX_GENERATOR_N_EACH), label, depth, label);
            put_body(text, depth + 1, false);
            put(text, "sub.u32 %%c%u,%%c%u,1;\n@%%p%u bra END%u;\nbra LOOP%u;\nEND%u:\n", depth,
                depth, ptx_generator_pick(PTX_GENERATOR_N_EACH), label, label, label);
            break;
        case 20: /* a switch */
            label = n_labels++;
            put(text,
                "and.b32 %%a,%%r%u,3;\nT%u: .branchtargets A%u,B%u,C%u,B%u;\n"
                "brx.idx %%a,T%u;\nA%u:\n",
                ptx_generator_pick(PTX_GENERATOR_N_EACH), label, label, label, label, label, label,
                label);
            put_body(text, depth + 1, false);
            put(text, "B%u:\n", label);
            put_body(text, depth + 1, false);
            put(text, "C%u:\n", label);
            break;
        case 21: /* some threads leave */
            if (!together && !full_warps && ptx_generator_pick(4) == 0)
                put(text, "setp.eq.u32 %%q,%%r%u,%u;\n@%%q bra OUT;\n",
                    ptx_generator_pick(PTX_GENERATOR_N_EACH), ptx_generator_pick(9));
        }
    }
}

const struct ptx_generator_kind ptx_generator_kinds[PTX_GENERATOR_N_KINDS] = {
    { 'h', "b16", 2 }, { 'r', "b32", 4 }, { 'd', "b64", 8 }, { 'f', "f32", 4 }, { 'g', "f64", 8 },
    { 'e', "b16", 2 }, { 'b', "b16", 2 }, { 'x', "b32", 4 }, { 'y', "b32", 4 }
};

/* Values come from memory, and go back there when all is done. */
static void put_registers(struct ptx_generator_text *text, bool store) {
    unsigned at = 0;

    for (size_t k = 0; k < PTX_GENERATOR_N_KINDS; k++)
        for (unsigned i = 0; i < PTX_GENERATOR_N_EACH; i++, at += 8)
            put(text,
                store ? "st.global.%s [%%io+%u],%%%c%u;\n" : "ld.global.%s %%%c%u,[%%io+%u];\n",
                ptx_generator_kinds[k].type, store ? at : (unsigned)ptx_generator_kinds[k].kind,
                store ? (unsigned)ptx_generator_kinds[k].kind : i, store ? i : at);
}

void ptx_generator_make(struct ptx_generator_text *text, bool is_brief, bool has_full_warps) {
    brief = is_brief;
    full_warps = has_full_warps;
    text->n = 0;
    n_labels = 0;
    put(text,
        ".version 8.0\n.target sm_80\n.address_size 64\n"
        ".visible .entry k(.param .u64 io,.param .u64 table,.param .u64 sums)\n{\n"
        ".reg .pred %%p<%u>,%%q;\n.reg .b32 %%c<4>,%%a,%%mine,%%other,%%t;\n"
        ".reg .b64 %%io,%%table,%%sums,%%l,%%stack,%%w;\n.shared .b32 slots[4096];\n"
        ".local .align 16 .b8 depot[64];\n",
        PTX_GENERATOR_N_EACH);
    for (size_t k = 0; k < PTX_GENERATOR_N_KINDS; k++)
        put(text, ".reg .%s %%%c<%u>;\n", ptx_generator_kinds[k].type, ptx_generator_kinds[k].kind,
            PTX_GENERATOR_N_EACH);
    put(text,
        "ld.param.u64 %%io,[io];\nld.param.u64 %%table,[table];\nld.param.u64 %%sums,[sums];\n"
        "mov.u32 %%a,%%ctaid.x;\nmov.u32 %%c0,%%ntid.x;\nmov.u32 %%t,%%tid.x;\n"
        "mad.lo.u32 %%c1,%%a,%%c0,%%t;\nmul.wide.u32 %%w,%%c1,%zu;\nadd.u64 %%io,%%io,%%w;\n"
        "mov.u64 %%stack,depot;\nmov.u32 %%a,slots;\nshl.b32 %%mine,%%t,4;\n"
        "add.u32 %%mine,%%mine,%%a;\nadd.u32 %%other,%%t,1;\n"
        "rem.u32 %%other,%%other,%%c0;\nshl.b32 %%other,%%other,4;\n"
        "add.u32 %%other,%%other,%%a;\n",
        (size_t)PTX_GENERATOR_IO_BYTES);
    for (unsigned i = 0; i < 8; i++) /* local and shared memory begin as zeros everywhere */
        put(text, "st.local.u64 [%%stack+%u],0;\n", 8 * i);
    for (unsigned i = 0; i < 4; i++)
        put(text, "st.shared.u32 [%%mine+%u],0;\n", 4 * i);
    put_registers(text, false);
    for (unsigned i = 0; i < PTX_GENERATOR_N_EACH; i++)
        put(text, "setp.gt.s32 %%p%u,%%r%u,0;\n", i, i);
    for (unsigned i = 0; i < (brief ? 1 : 3); i++)
        put_body(text, brief ? 1 : 0, true);
    put(text, "OUT:\n");
    put_registers(text, true);
    put(text, "mov.u32 %%a,0;\n");
    for (unsigned i = 0; i < PTX_GENERATOR_N_EACH; i++)
        put(text, "selp.b32 %%t,1,0,%%p%u;\nshl.b32 %%a,%%a,1;\nor.b32 %%a,%%a,%%t;\n", i);
    put(text, "st.global.u32 [%%io+%zu],%%a;\nret;\n}\n", (size_t)PTX_GENERATOR_IO_BYTES - 8);
}
