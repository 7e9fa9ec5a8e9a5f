/* SPDX-License-Identifier: Apache-2.0 */
/* Modules: what is said about bad text, how inputs are linked, what the host may ask. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "tests/support/sim/ptx/ptx_fixture.h"
#include "tests/support/suite.h"

#define HEAD ".version 8.0\n.target sm_90\n.address_size 64\n"
#define KERNEL(body)                                                                               \
    HEAD ".visible .entry k(.param .u64 out)\n{\n.reg .b32 %r<9>;\n.reg .b64 %d<9>;\n"             \
         ".reg .pred %p<9>;\n.reg .f32 %f<9>;\n.reg .b16 %h<9>;\n.reg .f64 %g<9>;\n" body "\n}\n"

static int load(const char *text, struct allot_error *err) {
    struct ptx_module *module;
    int r;

    ck_assert_int_eq(ptx_module_new(&module), 0);
    r = ptx_module_add(module, "t.ptx", text, strlen(text), err);
    if (!r)
        r = ptx_module_link(module, err);
    ptx_module_free(module);
    return r;
}

START_TEST(bad_text_is_refused_with_line_and_reason) {
    static const struct {
        const char *text;
        int code;
        const char *says;
    } cases[] = {
        { "", -EINVAL, "begins with .version" },
        { "hello", -EINVAL, "line 1: PTX begins with .version, at 'hello'" },
        { HEAD "rubbish", -EINVAL, "line 4: declaration expected, at 'rubbish'" },
        { ".version 8.0\n.target sm_80\n.address_size 32\n", -EINVAL, "64-bit" },
        { HEAD ".visible .entry k() { ret;", -EINVAL, "no end" },
        { KERNEL("frob.u32 %r1, %r2;"), -EINVAL, "line 12: unknown instruction 'frob.u32'" },
        { KERNEL("add.u32 %r1, %r2;"), -EINVAL, "line 12: wrong number of operands for 'add.u32'" },
        { KERNEL("add.u32 %r1, %r2, %d1;"), -EINVAL, "wrong kind or width, operand 3" },
        { KERNEL("add.u32 %r1, %r2, %q1;"), -EINVAL, "unknown register or name '%q1'" },
        { KERNEL("add.u32 %r9, %r2, 1;"), -EINVAL, "'%r9'" },
        { KERNEL("add.frob.u32 %r1, %r2, 1;"), -EOPNOTSUPP, "'.frob' of instruction" },
        { KERNEL("bra NOWHERE;"), -EINVAL, "line 12: unknown label 'NOWHERE'" },
        { KERNEL("L: ret;\nL: ret;"), -EINVAL, "line 13: label 'L' is defined twice" },
        { KERNEL("ld.global.u32 %r1, [%h1];"), -EINVAL, "32 or 64 bits" },
        { KERNEL("ld.global.u64 %r1, [%d1];"), -EINVAL, "wrong kind or width" },
        { KERNEL("@%r1 bra L;\nL: ret;"), -EINVAL, "predicate expected" },
        { KERNEL("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1},{%r1},{%r2},{%f2};"),
          -EOPNOTSUPP, "line 12: instruction 'mma.sync.aligned.m16n8k8" },
        { KERNEL("tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%d1, {%f5,%f6}];"), -EOPNOTSUPP,
          "instruction 'tex.2d.v4.f32.f32' is not implemented" },
        { KERNEL("wmma.load.a.sync.aligned.row.m16n16k16.f16 {%r1}, [%d1];"), -EOPNOTSUPP,
          "not implemented" },
        { HEAD ".global .texref t;", -EOPNOTSUPP, "texture" },
        { HEAD ".global .b32 x[2] = {1, 2, 3};", -EINVAL, "more initialisers" },
        { HEAD ".global .b32 x; .global .b32 x;", -EINVAL, "defined twice" },
        { HEAD ".extern .global .b32 x; .visible .entry k() { .reg .b32 %r<2>;"
               " ld.global.u32 %r1, [x]; ret; }",
          -ENOENT, "unresolved extern variable 'x'" },
        { HEAD ".extern .func f(); .visible .entry k() { call f; ret; }", -ENOENT,
          "unresolved extern function 'f'" },
        { KERNEL(".shared .b8 x[300000];"), -EINVAL, "shared memory" },
        { KERNEL("mov.f32 %f1, 0f3F8;"), -EINVAL, "line 12: " },
        { KERNEL("mov.f32 %f1, 0f3F8000000;"), -EINVAL, "line 12: " },
        { KERNEL("mov.f32 %f1, 0f;"), -EINVAL, "line 12: " },
        { KERNEL("mov.f32 %f1, 0f3F80000G;"), -EINVAL, "line 12: " },
        { KERNEL("mov.f64 %g1, 0d3FF00000;"), -EINVAL, "line 12: " },
        { KERNEL("mov.f64 %g1, 0d3FF00000000000000;"), -EINVAL, "line 12: " },
        { HEAD ".global .f32 x = 0f3F8;", -EINVAL, "line 4: " },
        { KERNEL(".local .b8 x[600000];"), -EINVAL, "local memory" },
    };

    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        struct allot_error err = { 0 };
        int r = load(cases[i].text, &err);

        ck_assert_msg(r == cases[i].code, "case %zu: %d, %s", i, r, err.text);
        ck_assert_msg(strstr(err.text, cases[i].says) != NULL, "case %zu: %s", i, err.text);
    }
}
END_TEST

/* What an assembler refuses and an interpreter could run all the same. */
START_TEST(what_breaks_the_rules_of_the_manual_is_refused) {
    static const struct {
        const char *text, *says;
    } cases[] = {
        { KERNEL("add.u32 %f1, %f2, %f3;"), "line 12: wrong type, operand 1 of 'add.u32'" },
        { KERNEL("{ .reg .u32 u; add.f32 %f1, u, %f3; }"), "wrong type, operand 2" },
        { KERNEL("setp.lt.f32 %p1, %f1, 1;"), "wrong type, operand 3" },
        { KERNEL("add.s32 %r1, %r2, 1.5;"), "wrong type, operand 3" },
        { KERNEL("{ .reg .u32 u; ld.global.f32 u, [%d1]; }"), "wrong type" },
        { KERNEL("add.rn.s32 %r1, %r2, %r3;"), "illegal rounding modifier, in 'add.rn.s32'" },
        { KERNEL("ld.global.rn.f32 %f1, [%d1];"), "illegal rounding modifier" },
        { KERNEL("add.rn.rz.f32 %f1, %f2, %f3;"), "more than one rounding modifier" },
        { KERNEL("fma.f32 %f1, %f2, %f3, %f4;"), "rounding modifier required" },
        { KERNEL("div.f32 %f1, %f2, %f3;"), "rounding modifier or '.approx' required" },
        { KERNEL("cvt.s32.f32 %r1, %f1;"), "rounding modifier required" },
        { KERNEL("cvt.f32.s32 %f1, %r1;"), "rounding modifier required" },
        { KERNEL("cvt.rn.s32.f32 %r1, %f1;"), "illegal rounding modifier" },
        { KERNEL("add.global.s32 %r1, %r2, %r3;"), "no state space expected" },
        { KERNEL("ld.global.shared.u32 %r1, [%d1];"), "more than one state space" },
        { KERNEL("atom.local.add.u32 %r1, [%d1], 1;"), "no such state space" },
        { KERNEL("setp.lo.f32 %p1, %f1, %f2;"), "comparison and type" },
        { KERNEL("setp.hi.s32 %p1, %r1, %r2;"), "comparison and type" },
        { KERNEL("add.ftz.s32 %r1, %r1, %r2;"), "illegal modifier '.ftz'" },
        { KERNEL("add.cc.f32 %f1, %f1, %f2;"), "illegal modifier '.cc'" },
        { KERNEL("atom.global.inc.u64 %d1, [%d1], 1;"), "no such operation on this type" },
        { KERNEL("min.NaN.u32 %r1, %r1, %r2;"), "floating-point minima" },
        { KERNEL("min.NaN.f64 %g1, %g1, %g2;"), "floating-point minima" },
        { ".version 8.0\n.target sm_80\n.visible .entry k() { .reg .b32 %r<2>;\n"
          "max.s16x2 %r1, %r1, %r1; ret; }",
          "line 4: 'max.s16x2' requires .target sm_90" },
        { ".version 8.0\n.target sm_80\n.visible .entry k() { .reg .b16 %h; .reg .f32 %f;\n"
          "cvt.rn.satfinite.e4m3x2.f32 %h, %f, %f; ret; }",
          "requires .target sm_89" },
        { KERNEL("cvt.rn.e4m3x2.f32 %h1, %f1, %f2;"), "'.satfinite' required" },
        { KERNEL("ld.global.e4m3x2 %h1, [%d1];"), "for conversions alone" },
        { KERNEL(".shared .b32 s; ld.global.u32 %r1, [s];"), "another state space" },
        { KERNEL("bar.sync 16;"), "barriers are 0 to 15" },
        { KERNEL("bar.sync 0, 33;"), "a multiple of 32" },
        { KERNEL("membar.gl %r1;"), "wrong number of operands" },
        { KERNEL(".reg .b32 %r<3>;"), "'%r' is defined twice" },
        { ".version 8.0\n.visible .entry k() { ret; }", ".target expected" },
        { ".version 8.0\n.target sm_80a\n.visible .entry k() { ret; }", "unknown target" },
        { ".version 8.0\n.target sm_75\n.visible .entry k() { .reg .b32 %r<2>;\n"
          "redux.sync.add.u32 %r1, %r1, -1; ret; }",
          "line 4: 'redux.sync.add.u32' requires .target sm_80" },
        { HEAD ".visible .entry k() .maxntid 0, 1, 1 { ret; }", "at least one thread" },
        { HEAD ".entry g() { ret; } .entry k() { call g; ret; }", "a kernel cannot be called" },
        { HEAD ".func f(.param .b32 a) { ret; } .entry k() { .param .b32 x, y;"
               " call f, (x, y); ret; }",
          "other arguments" },
        { HEAD ".func f(.param .b32 a) { ret; } .entry k() { .param .b64 x; call f, (x); ret; }",
          "another size" },
        { HEAD ".entry k(.param .b32 a) { st.param.b32 [a], 1; ret; }", "input parameter" },
    };

    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        struct allot_error err = { 0 };
        int r = load(cases[i].text, &err);

        ck_assert_msg(r == -EINVAL, "case %zu: %d, %s", i, r, err.text);
        ck_assert_msg(strstr(err.text, cases[i].says) != NULL, "case %zu: %s", i, err.text);
    }
}
END_TEST

START_TEST(good_text_of_every_kind_is_taken) {
    static const char *const texts[] = {
        KERNEL("ret;"),
        KERNEL(
            "{ .reg .b32 %x; mov.u32 %x, 5; { .reg .b64 %x; mov.u64 %x, 6; } add.u32 %r1,%x,1; }"),
        KERNEL("{ bra L; L: }\n{ bra L; L: ret; }"),
        KERNEL("ld.global.L1::no_allocate.L2::128B.v4.u32 {%r1,_,%r3,%r4}, [%d1+16];"),
        KERNEL("mov.b64 {%r1,_}, %d1; shfl.sync.down.b32 _|%p1, %r1, 1, 31, -1;"),
        KERNEL("cp.async.ca.shared.global [%r1], [%d1], 16; cp.async.commit_group;"
               "cp.async.wait_group 0; cp.async.wait_all;"),
        KERNEL("atom.global.gpu.relaxed.add.u32 %r1,[%d1],1; red.relaxed.sys.global.add.f32 "
               "[%d1],%f1;"),
        HEAD ".const .align 8 .b8 c[16] = {1,2,3}; .global .u64 p[2] = {c, generic(c)+8};"
             ".global .b8 u[] = {1,2,3}; .global .f32 f = 0f3F800000; .global .f64 g[2] = {1.5, "
             "-2e3}; .visible .global .u8 z;",
        HEAD ".file 1 \"a.cu\"\n.section .debug_str { .b8 1,2 \n L: .b64 x }\n",
        HEAD ".weak .func (.param .b32 r) f(.param .b32 a) { ret; }\n"
             ".visible .entry k() .maxntid 128, 1, 1 .minnctapersm 2 { ret; }",
    };

    for (size_t i = 0; i < ELEMENTSOF(texts); i++) {
        struct allot_error err = { 0 };
        int r = load(texts[i], &err);

        ck_assert_msg(r == 0, "text %zu: %s", i, err.text);
    }
}
END_TEST

/* Machine code is linked by name: what two inputs say of a function need not agree in everything.
 */
START_TEST(declarations_of_other_inputs_are_taken_as_far_as_they_go) {
    static const char *const user =
        HEAD ".extern .func (.param .b64 r) give(.param .b64 p);\n"
             ".visible .entry k(.param .u64 out) { .reg .b64 %d<3>; .param .b64 a; .param .b64 b;\n"
             " ld.param.u64 %d1, [out]; st.param.b64 [a], %d1; call (b), give, (a); ret; }\n";
    static const char *const library =
        HEAD ".visible .func give(.param .b64 p) { .reg .b64 %d<3>;\n"
             " ld.param.u64 %d1, [p]; st.u32 [%d1], 42; ret; }\n";
    static const char *const other = HEAD ".visible .func give() { ret; }\n";
    struct allot_error err = { 0 };
    struct ptx_module *module;

    for (int i = 0; i < 2; i++) {
        const char *second = i ? other : library;

        ck_assert_int_eq(ptx_module_new(&module), 0);
        ck_assert_int_eq(ptx_module_add(module, "user", user, strlen(user), &err), 0);
        ck_assert_int_eq(ptx_module_add(module, "library", second, strlen(second), &err), 0);
        ck_assert_int_eq(ptx_module_link(module, &err), i ? -EINVAL : 0);
        if (i)
            ck_assert_str_eq(err.text, "user: 'give' takes other arguments in library");
        else
            ck_assert_int_eq(ptx_function_attributes(ptx_fixture_find(module, "k"),
                                                     &(struct ptx_attributes){ 0 }, &err),
                             0);
        ptx_module_free(module);
    }
}
END_TEST

START_TEST(inputs_are_linked_together) {
    static const char *const user = HEAD
        ".extern .global .u32 shared_value;\n.extern .func (.param .b32 r) twice(.param .b32 a);\n"
        ".visible .entry k(.param .u64 out) { .reg .b32 %r<4>; .reg .b64 %d<2>;\n"
        "ld.param.u64 %d1,[out]; ld.global.u32 %r1,[shared_value];\n"
        "{ .param .b32 a; st.param.b32 [a],%r1; .param .b32 b; call (b),twice,(a);"
        "ld.param.b32 %r2,[b]; }\nst.global.u32 [%d1],%r2; ret; }\n";
    static const char *const library =
        HEAD ".visible .global .u32 shared_value = 21;\n"
             ".visible .func (.param .b32 r) twice(.param .b32 a) { .reg .b32 %r<3>;\n"
             "ld.param.b32 %r1,[a]; add.u32 %r2,%r1,%r1; st.param.b32 [r],%r2; ret; }\n";
    struct ptx_module *module;
    struct ptx_table table;
    struct allot_error err = { 0 };
    struct ptx_result result;
    uint32_t value = 0, out = 0;
    uint64_t param = 0x2000;

    ck_assert_int_eq(ptx_module_new(&module), 0);
    ck_assert_int_eq(ptx_table_init(&table), 0);
    ck_assert_int_eq(ptx_module_add(module, "user", user, strlen(user), &err), 0);
    ck_assert_int_eq(ptx_module_add(module, "library", library, strlen(library), &err), 0);
    ck_assert_msg(ptx_module_link(module, &err) == 0, "%s", err.text);
    ck_assert_uint_eq(ptx_module_n_variables(module), 1);
    ptx_module_place(module, 0, 0x1000);
    ck_assert_int_eq(ptx_module_image(module, 0, &value, 4, &err), 0);
    ck_assert_uint_eq(value, 21);
    ptx_table_add(&table, &(struct ptx_extent){ 0x1000, 4, (unsigned char *)&value, 0 });
    ptx_table_add(&table, &(struct ptx_extent){ 0x2000, 4, (unsigned char *)&out, 0 });
    ck_assert_int_eq(ptx_launch(&(struct ptx_launch){ .kernel = ptx_fixture_find(module, "k"),
                                                      .grid = { 1, 1, 1 },
                                                      .block = { 1, 1, 1 },
                                                      .params = &param,
                                                      .param_bytes = 8,
                                                      .memory = table.memory },
                                &result, &err),
                     0);
    ck_assert_int_eq(result.fault.kind, PTX_FAULT_NONE);
    ck_assert_uint_eq(out, 42);
    ptx_module_free(module);
    ptx_table_done(&table);
}
END_TEST

START_TEST(attributes_tell_what_a_kernel_needs) {
    struct ptx_fixture fixture;
    struct ptx_attributes a;
    struct ptx_param param;
    struct ptx_function *k;

    ptx_fixture_init_text(
        &fixture, "t",
        HEAD ".const .b8 c[100];\n.visible .entry k(.param .u8 a, .param .align 16 .b8 b[20], "
             ".param .f64 c)"
             " .reqntid 64, 2, 1 { .shared .align 8 .b8 s[24]; .local .b8 l[40]; .reg .b32 %r<3>;"
             " mov.u32 %r1, s; ret; }");
    k = ptx_fixture_find(fixture.module, "k");
    ck_assert_int_eq(ptx_function_attributes(k, &a, NULL), 0);
    ck_assert_uint_eq(a.shared_bytes, 24);
    ck_assert_uint_eq(a.local_bytes, 48);
    ck_assert_uint_eq(a.const_bytes, 100);
    ck_assert_uint_eq(a.max_threads, 128);
    ck_assert_uint_eq(a.required_block[1], 2);
    ck_assert_uint_eq(a.ptx_version, 80);
    ck_assert_uint_eq(a.target, 90);
    ck_assert_uint_ge(a.n_regs, 16);
    ptx_function_param(k, 1, &param);
    ck_assert_uint_eq(param.offset, 16);
    ck_assert_uint_eq(param.bytes, 20);
    ptx_function_param(k, 2, &param);
    ck_assert_uint_eq(param.offset, 40);
    ck_assert_uint_eq(a.param_bytes, 48);
    ck_assert_ptr_null(ptx_fixture_find(fixture.module, "none"));
    ptx_fixture_done(&fixture);
}
END_TEST

START_TEST(impossible_launches_are_refused) {
    struct ptx_fixture fixture;
    struct ptx_result result;
    struct allot_error err;
    uint64_t param = 0;
    struct ptx_launch good = { .grid = { 1, 1, 1 },
                               .block = { 32, 1, 1 },
                               .params = &param,
                               .param_bytes = 8 },
                      launch;

    ptx_fixture_init_text(&fixture, "t", KERNEL("ret;"));
    good.kernel = ptx_fixture_find(fixture.module, "k");
    good.memory = fixture.table.memory;
    ck_assert_int_eq(ptx_launch(&good, &result, &err), 0);
#define REFUSED(change)                                                                            \
    launch = good;                                                                                 \
    launch.change;                                                                                 \
    ck_assert_int_eq(ptx_launch(&launch, &result, &err), -EINVAL)
    REFUSED(grid[1] = 0);
    REFUSED(block[0] = 0);
    REFUSED(block[0] = 1025);
    REFUSED(block[2] = 65);
    REFUSED(grid[2] = 65536);
    REFUSED(block[1] = 33);
    REFUSED(param_bytes = 4);
    REFUSED(dynamic_shared_bytes = 1 << 20);
    ptx_fixture_done(&fixture);
}
END_TEST

/* One thread runs `body` and stores what is in %r1, %d1, %f1 or %g1. */
static uint64_t evaluate(const char *body, const char *store) {
    struct ptx_fixture fixture;
    static const char start[] = KERNEL("ld.param.u64 %d8,[out];");
    char text[2048];
    uint64_t out, bits = 0;

    snprintf(text, sizeof(text), "%.*s%s\n%s;\nret;\n}\n", (int)sizeof(start) - 4, start, body,
             store);
    ptx_fixture_init_text(&fixture, "t", text);
    out = ptx_fixture_alloc(&fixture, 8);
    ptx_fixture_run(&fixture, "k", 1, 1, 0, PTX_PARAMS(&out));
    memcpy(&bits, ptx_fixture_host(&fixture, out), 8);
    ptx_fixture_done(&fixture);
    return bits;
}

static double real(const char *body) {
    uint64_t bits = evaluate(body, "st.global.f32 [%d8],%f1");
    float f;

    memcpy(&f, &bits, 4);
    return f;
}

START_TEST(approximations_are_within_their_bounds) {
    static const float points[] = { -87.3f, -10.1f, -1.0f, -0.3f, 1e-3f,
                                    0.5f,   1.0f,   2.7f,  3.1f,  30.0f };

    for (size_t i = 0; i < ELEMENTSOF(points); i++) {
        char body[200];
        double x = points[i];

#define APPROX(op) (snprintf(body, sizeof(body), op " %%f1, %.9e;", x), real(body))
        ck_assert_double_le(fabs(APPROX("ex2.approx.ftz.f32") / exp2(x) - 1), 0x1p-21);
        ck_assert_double_le(fabs(APPROX("sin.approx.f32") - sin(x)), 0x1p-20);
        ck_assert_double_le(fabs(APPROX("cos.approx.f32") - cos(x)), 0x1p-20);
        ck_assert_double_le(fabs(APPROX("tanh.approx.f32") - tanh(x)), 0x1p-11 * fabs(tanh(x)));
        ck_assert_double_le(fabs(APPROX("rcp.approx.f32") * x - 1), 0x1p-22);
        if (x > 0) {
            ck_assert_double_le(fabs(APPROX("lg2.approx.f32") - log2(x)),
                                0x1p-21 * (1 + fabs(log2(x))));
            ck_assert_double_le(fabs(APPROX("rsqrt.approx.f32") * sqrt(x) - 1), 0x1p-22);
            ck_assert_double_le(fabs(APPROX("sqrt.approx.ftz.f32") / sqrt(x) - 1), 0x1p-22);
        }
    }
    ck_assert(isinf(real("lg2.approx.f32 %f1, 0f00000000;")));
    ck_assert(isnan(real("lg2.approx.f32 %f1, 0fBF800000;")));
    ck_assert(isinf(real("ex2.approx.f32 %f1, 0f43800000;")));
    ck_assert(real("ex2.approx.f32 %f1, 0fFF800000;") == 0);
    ck_assert(isnan(real("sin.approx.f32 %f1, 0f7F800000;")));
}
END_TEST

START_TEST(single_instructions_do_what_the_manual_says) {
    static const struct {
        const char *body;
        uint64_t want;
    } cases[] = {
        { "mov.u32 %r1, 12; mov.u32 %r2, 0x80000001; fns.b32 %r1, %r2, 0, 2;", 31 },
        { "bmsk.clamp.b32 %r1, 4, 8;", 0xff0 },
        { "szext.wrap.s32 %r1, 0x1ff, 9;", 0xffffffff },
        { "mov.u32 %r2, 0x12345678; mov.u32 %r3, 0x9abcdef0; prmt.b32.f4e %r1, %r2, %r3, 1;",
          0xf0123456 },
        { "mov.u32 %r2, 0x12345678; mov.u32 %r3, 0x9abcdef0; prmt.b32.rc8 %r1, %r2, %r3, 2;",
          0x34343434 },
        { "mov.u32 %r2, 0x12345678; mov.u32 %r3, 0x9abcdef0; prmt.b32.ecl %r1, %r2, %r3, 2;",
          0x12343434 },
        { "mul24.lo.s32 %r1, 0xffffff, 3;", 0xfffffffd },
        { "dp2a.lo.s32.u32 %r1, 0x0002ffff, 0x0403, 10;", 15 },
        { "testp.subnormal.f32 %p1, 0f00000001; selp.b32 %r1, 7, 9, %p1;", 7 },
        { "testp.infinite.f64 %p1, 0dFFF0000000000000; selp.b32 %r1, 7, 9, %p1;", 7 },
        { "copysign.f32 %f1, 0f80000000, 0f40000000; mov.b32 %r1, %f1;", 0xc0000000 },
        { "cvt.rna.tf32.f32 %r1, 0f3F801000;", 0x3f802000 },
        { "cvt.rn.f16x2.f32 %r1, 0f3F800000, 0fC0000000;", 0x3c00c000 },
        { "cvt.rz.f16.f32 %h1, 0f477FFFFF; cvt.u32.u16 %r1, %h1;", 0x7bff },
        { "cvt.rn.relu.bf16x2.f32 %r1, 0fBF800000, 0f3F800000;", 0x3f80 },
        { "mov.b32 %r2, 0x3c004000; mov.b32 %r3, 0x3c003c00; set.gt.f16x2.f16x2 %r1,%r2,%r3;",
          0x00003c00 },
        { "mov.b32 %r2, 0x3c004000; mov.b32 %r3, 0x3c003c00; setp.eq.f16x2 %p1|%p2,%r2,%r3;"
          "selp.b32 %r4,1,0,%p1; selp.b32 %r1,2,%r4,%p2;",
          2 },
        { "cvt.rzi.s32.f32 %r1, 0f7FC00000;", 0 },
        { "cvt.rzi.u32.f64 %r1, 0d7FF8000000000000;", 0x80000000 },
        { "cvt.rni.s64.f32 %d1, 0f7FC00000; shr.u64 %d1, %d1, 63; cvt.u32.u64 %r1, %d1;", 1 },
        { "sqrt.rn.f32 %f1, 0fBF800000; mov.b32 %r1, %f1;", 0x7fffffff },
        { "mov.f32 %f2, 0f7F800000; fma.rn.f32 %f1, %f2, 0f00000000, 0f3F800000; mov.b32 %r1, %f1;",
          0x7fffffff },
        { "sub.cc.u32 %r2, 5, 3; addc.u32 %r1, 0, 0;", 1 },
        { "sub.cc.u32 %r2, 3, 5; addc.u32 %r1, 0, 0;", 0 },
        { "sub.cc.u32 %r2, 3, 5; subc.u32 %r1, 9, 1;", 7 },
        { "vabsdiff4.u32.u32.u32.add %r1, 0x01020304, 0x04030201, 100;", 108 },
        { "stacksave.u64 %d1; alloca.u64 %d2, 24, 16; alloca.u64 %d3, 8; st.local.u32 [%d3+4], 9;"
          "st.local.u32 [%d2+20], 1; stackrestore.u64 %d1; alloca.u64 %d4, 8, 16; sub.u64 %d4, "
          "%d4, "
          "%d2;"
          "ld.local.u32 %r2, [%d3+4]; cvt.u32.u64 %r1, %d4; add.u32 %r1, %r1, %r2;",
          9 },
        { "activemask.b32 %r1;", 1 },
        { "elect.sync %r2|%p1, -1; selp.b32 %r1, 5, 6, %p1;", 5 },
        { "redux.sync.add.s32 %r1, 17, -1;", 17 },
        { "match.all.sync.b32 %r1|%p1, 3, -1;", 1 },
        { "isspacep.shared %p1, %d8; selp.b32 %r1, 1, 2, %p1;", 2 },
        { ".shared .b32 s; mov.u64 %d1, s; cvta.shared.u64 %d2, %d1; st.u32 [%d2], 77;"
          "isspacep.shared %p1, %d2; @%p1 ld.shared.u32 %r1, [s];",
          77 },
        { ".local .b32 s; cvta.local.u64 %d2, s; st.u32 [%d2], 78; ld.local.u32 %r1, [s];", 78 },
        { "{ .reg .v2 .u32 %v; mov.u32 %v.x, 3; mov.u32 %v.y, 4; st.global.v2.u32 [%d8], %v;"
          "ld.global.u32 %r1, [%d8+4]; }",
          4 },
        { "st.global.u32 [%d8], 5; atom.global.add.u32 %r2, [%d8], 4; atom.global.exch.b32 %r3, "
          "[%d8], 1;"
          "mad.lo.u32 %r1, %r2, 100, %r3;",
          509 },
        { "st.global.u32 [%d8], 5; atom.global.cas.b32 %r2, [%d8], 5, 8; ld.global.u32 %r1, [%d8];",
          8 },
        { "mov.u32 %r1, WARP_SZ;", 32 },
        { "mov.u32 %r1, %ntid.x;", 1 },
        { "mov.u32 %r1, %nctaid.z;", 1 },
        { "mov.u32 %r1, %cluster_nctarank;", 1 },
        { "mov.b32 %r2, 0x0005fff0; mov.b32 %r3, 0x0003000a; max.s16x2.relu %r1, %r2, %r3;",
          0x0005000a },
        { "mov.b32 %r2, 0x0005fff0; mov.b32 %r3, 0x0003000a; min.s16x2.relu %r1, %r2, %r3;",
          0x00030000 },
        { "max.s32.relu %r1, -7, -9;", 0 },
        { ".shared .b32 s; mov.u64 %d1, s; cvta.shared.u64 %d2, %d1; mapa.u64 %d3, %d2, 0;"
          "st.u32 [%d3], 9; getctarank.u64 %r2, %d3; ld.shared::cluster.u32 %r1, [s];"
          "add.u32 %r1, %r1, %r2;",
          9 },
        { "barrier.cluster.arrive.release; barrier.cluster.wait.acquire; mov.u32 %r1, 6;", 6 },
        { "mov.u32 %r1, 3; { .reg .u32 %r1; mov.u32 %r1, 5; { .reg .u32 %r<4>; mov.u32 %r1, 7; } }",
          3 },
    };

    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        uint64_t got = evaluate(cases[i].body, "st.global.u32 [%d8],%r1");

        ck_assert_msg((uint32_t)got == cases[i].want, "%s: %#llx, not %#llx", cases[i].body,
                      (unsigned long long)(uint32_t)got, (unsigned long long)cases[i].want);
    }
}
END_TEST

/* Of two numbers: NaN loses unless .NaN is asked for, two NaN give the canonical one (a double
 * keeps its payload, made quiet), and -0 is below +0. */
START_TEST(minima_and_maxima_with_nans) {
    static const struct {
        const char *op, *type, *a, *b;
        uint64_t want;
    } cases[] = {
        { "min", "f32", "0f7FC00001", "0f40000000", 0x40000000 },
        { "max", "f32", "0f40000000", "0f7F800001", 0x40000000 }, /* signalling */
        { "min", "f32", "0f7F800001", "0fFFC00000", 0x7fffffff },
        { "min.NaN", "f32", "0f7F800001", "0f40000000", 0x7fffffff },
        { "max.NaN", "f32", "0f40000000", "0fFFC12345", 0x7fffffff },
        { "max.NaN", "f32", "0f40000000", "0f3F800000", 0x40000000 },
        { "min", "f32", "0f00000000", "0f80000000", 0x80000000 },
        { "min", "f32", "0f80000000", "0f00000000", 0x80000000 },
        { "max", "f32", "0f00000000", "0f80000000", 0 },
        { "max", "f32", "0f80000000", "0f00000000", 0 },
        { "max", "f32", "0f80000000", "0f80000000", 0x80000000 },
        { "min.ftz", "f32", "0f80000001", "0f00000000", 0x80000000 },
        { "max.ftz", "f32", "0f00000001", "0f80000000", 0 },
        { "min.xorsign.abs", "f32", "0fC0000000", "0f40400000", 0xc0000000 },
        { "max.NaN.xorsign.abs", "f32", "0fC0000000", "0fFF800001", 0x7fffffff },
        { "min", "f64", "0d7FF8000000000000", "0d4000000000000000", 0x4000000000000000 },
        { "max", "f64", "0d4000000000000000", "0d7FF0000000000001", 0x4000000000000000 },
        { "max", "f64", "0d7FF0000000000001", "0d7FF8000000000000", 0x7ff8000000000001 },
        { "min", "f64", "0d0000000000000000", "0d8000000000000000", 0x8000000000000000 },
        { "max", "f64", "0d8000000000000000", "0d0000000000000000", 0 },
        { "min", "f16", "0x7e00", "0x4000", 0x4000 },
        { "max", "f16", "0x4000", "0x7c01", 0x4000 },
        { "max", "f16", "0xfe00", "0x7c01", 0x7fff },
        { "min.NaN", "f16", "0x7c01", "0x4000", 0x7fff },
        { "max.NaN", "f16", "0x4000", "0xffff", 0x7fff },
        { "min", "f16", "0x0000", "0x8000", 0x8000 },
        { "max", "f16", "0x8000", "0x0000", 0 },
        { "max", "bf16", "0x7fc0", "0x4000", 0x4000 },
        { "min", "bf16", "0x7f81", "0xff81", 0x7fff },
        { "min.NaN", "bf16", "0x4000", "0x7f81", 0x7fff },
        { "min", "bf16", "0x8000", "0x0000", 0x8000 },
        { "max", "bf16", "0x0000", "0x8000", 0 },
        { "max", "f16x2", "0x7e008000", "0x3c000000", 0x3c000000 },
        { "min.NaN", "bf16x2", "0x3f807f81", "0x40004000", 0x3f807fff },
    };

    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        const char *type = cases[i].type;
        const bool half = !strcmp(type, "f16") || !strcmp(type, "bf16");
        const char *reg = half                   ? "h"
                          : !strcmp(type, "f64") ? "g"
                          : !strcmp(type, "f32") ? "f"
                                                 : "r";
        const char *bits = half ? "b16" : *reg == 'g' ? "f64" : *reg == 'f' ? "f32" : "b32";
        char body[256], store[64];
        uint64_t got;

        snprintf(body, sizeof(body),
                 "mov.%s %%%s2, %s; mov.%s %%%s3, %s; %s.%s %%%s1, %%%s2, %%%s3;", bits, reg,
                 cases[i].a, bits, reg, cases[i].b, cases[i].op, type, reg, reg, reg);
        snprintf(store, sizeof(store), "st.global.%s [%%d8],%%%s1", bits, reg);
        got = evaluate(body, store);
        ck_assert_msg(got == cases[i].want, "%s: %#llx, not %#llx", body, (unsigned long long)got,
                      (unsigned long long)cases[i].want);
    }
}
END_TEST

SUITE("ptx", bad_text_is_refused_with_line_and_reason,
      what_breaks_the_rules_of_the_manual_is_refused, good_text_of_every_kind_is_taken,
      inputs_are_linked_together, declarations_of_other_inputs_are_taken_as_far_as_they_go,
      attributes_tell_what_a_kernel_needs, impossible_launches_are_refused,
      approximations_are_within_their_bounds, single_instructions_do_what_the_manual_says,
      minima_and_maxima_with_nans)
