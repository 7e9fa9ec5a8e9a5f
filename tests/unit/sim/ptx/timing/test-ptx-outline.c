/* SPDX-License-Identifier: Apache-2.0 */
/* What launches cost without computing them, against what they cost when they are computed. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "tests/support/sim/ptx/ptx_fixture.h"
#include "tests/support/suite.h"

static const char *const ways[] = { PTX_DIR "/ways.O0.ptx", PTX_DIR "/ways.O3.ptx" };

static const struct way {
    const char *kernel;
    uint32_t grid[3], block[3];
    int n;
} exact[] = {
    { "rare", { 20011, 1, 1 }, { 32, 1, 1 }, 300000 },
    { "rare", { 12, 1, 1 }, { 64, 1, 1 }, 100 },
    { "hashed", { 3001, 1, 1 }, { 64, 1, 1 }, 400 },
    { "triangle", { 60, 60, 1 }, { 32, 2, 1 }, 100 },
    { "triangle", { 7, 61, 3 }, { 33, 1, 1 }, 50 },
    { "square", { 2003, 1, 1 }, { 32, 1, 1 }, 511 },
    { "bounds", { 4000, 1, 1 }, { 128, 1, 1 }, 3999 * 128 - 77 },
    { "bounds", { 1, 1, 1 }, { 1, 1, 1 }, 0 },
    { "strides", { 108, 1, 1 }, { 100, 1, 1 }, 500000 },
    { "per_thread", { 97, 1, 1 }, { 100, 1, 1 }, 300 },
    { "volume", { 5, 9, 3 }, { 8, 4, 4 }, 35 },
    { "halving", { 300, 1, 1 }, { 256, 1, 1 }, 200 },
    { "halving", { 300, 1, 1 }, { 160, 1, 1 }, 1000 },
    { "by_warp", { 101, 1, 1 }, { 160, 1, 1 }, 30 },
    { "chosen", { 1009, 1, 1 }, { 32, 1, 1 }, 60 },
    { "nested", { 103, 1, 1 }, { 64, 1, 1 }, 90 },
    { "calling", { 1001, 1, 1 }, { 96, 1, 1 }, 3000 },
    { "recursive", { 100, 1, 1 }, { 32, 1, 1 }, 12 },
    { "printing", { 999, 1, 1 }, { 40, 1, 1 }, 500 },
};

static void expect_same(const struct way *way, const struct ptx_stats *a,
                        const struct ptx_stats *b) {
    ck_assert_msg(
        a->n_thread_instructions == b->n_thread_instructions &&
            a->global_read_bytes == b->global_read_bytes &&
            a->global_write_bytes == b->global_write_bytes &&
            a->shared_read_bytes == b->shared_read_bytes &&
            a->shared_write_bytes == b->shared_write_bytes && a->n_atomics == b->n_atomics,
        "%s: %llu instructions, told %llu; global %llu %llu, told %llu %llu; shared %llu "
        "%llu, told %llu %llu",
        way->kernel, (unsigned long long)a->n_thread_instructions,
        (unsigned long long)b->n_thread_instructions, (unsigned long long)a->global_read_bytes,
        (unsigned long long)a->global_write_bytes, (unsigned long long)b->global_read_bytes,
        (unsigned long long)b->global_write_bytes, (unsigned long long)a->shared_read_bytes,
        (unsigned long long)a->shared_write_bytes, (unsigned long long)b->shared_read_bytes,
        (unsigned long long)b->shared_write_bytes);
}

START_TEST(costs_that_follow_from_numbers_are_exact) {
    for (size_t build = 0; build < ELEMENTSOF(ways); build++) {
        struct ptx_fixture fixture;
        uint64_t out;

        ptx_fixture_init_file(&fixture, ways[build]);
        out = ptx_fixture_alloc(&fixture, 32 * 4);
        for (size_t i = 0; i < ELEMENTSOF(exact); i++) {
            const struct way *way = &exact[i];
            struct ptx_result computed, told;
            int n = way->n;

            fixture.defaults.n_sample_blocks = 0;
            ptx_fixture_launch(&fixture, way->kernel, way->grid, way->block, 0,
                               PTX_PARAMS(&out, &n), &computed);
            ck_assert_int_eq(computed.fault.kind, PTX_FAULT_NONE);
            for (int again = 0; again < 2; again++) { /* the second time from memory */
                fixture.defaults.n_sample_blocks = 4;
                ptx_fixture_launch(&fixture, way->kernel, way->grid, way->block, 0,
                                   PTX_PARAMS(&out, &n), &told);
                ck_assert_int_eq(told.fault.kind, PTX_FAULT_NONE);
                ck_assert_msg(told.stats.n_blocks == 0, "%s was sampled", way->kernel);
                expect_same(way, &computed.stats, &told.stats);
            }
        }
        ptx_fixture_done(&fixture);
    }
}
END_TEST

/* Where all blocks would be too many to follow, some are, and always the same. */
START_TEST(what_is_too_long_to_follow_is_estimated) {
    static const struct way long_ways[] = {
        { "calling", { 20000, 1, 1 }, { 96, 1, 1 }, 30 },
        { "per_thread", { 30000, 1, 1 }, { 64, 1, 1 }, 20 },
        { "recursive", { 20000, 1, 1 }, { 32, 1, 1 }, 9 },
        { "chosen", { 200000, 1, 1 }, { 32, 1, 1 }, 20 },
    };
    struct ptx_fixture fixture;
    uint64_t out;

    ptx_fixture_init_file(&fixture, ways[1]);
    out = ptx_fixture_alloc(&fixture, 32 * 4);
    for (size_t i = 0; i < ELEMENTSOF(long_ways); i++) {
        const struct way *way = &long_ways[i];
        struct ptx_result computed, told[2];
        int n = way->n;

        fixture.defaults.n_sample_blocks = 0;
        ptx_fixture_launch(&fixture, way->kernel, way->grid, way->block, 0, PTX_PARAMS(&out, &n),
                           &computed);
        fixture.defaults.n_sample_blocks = 4;
        fixture.defaults.follow_limit = 1 << 20;
        for (int again = 0; again < 2; again++) {
            struct ptx_fixture fresh;

            ptx_fixture_init_file(&fresh, ways[1]);
            fresh.defaults = fixture.defaults;
            fresh.n_threads = again ? 1 : 4;
            out = ptx_fixture_alloc(&fresh, 32 * 4);
            ptx_fixture_launch(&fresh, way->kernel, way->grid, way->block, 0, PTX_PARAMS(&out, &n),
                               &told[again]);
            ptx_fixture_done(&fresh);
        }
        printf("%s: %llu, estimated %llu\n", way->kernel,
               (unsigned long long)computed.stats.n_thread_instructions,
               (unsigned long long)told[0].stats.n_thread_instructions);
        ck_assert_uint_eq(told[0].stats.n_blocks, 0);
        ck_assert_mem_eq(&told[0].stats, &told[1].stats, sizeof(told[0].stats));
        ck_assert_double_eq_tol((double)told[0].stats.n_thread_instructions /
                                    (double)computed.stats.n_thread_instructions,
                                1, 0.02);
        ck_assert_double_eq_tol((double)told[0].stats.global_write_bytes /
                                    (double)computed.stats.global_write_bytes,
                                1, 0.02);
    }
    ptx_fixture_done(&fixture);
}
END_TEST

/* Control flow depends on data, or a thread never ends: some blocks are computed, up to a limit. */
START_TEST(ways_by_data_are_sampled) {
    static const char text[] =
        ".version 7.0\n.target sm_75\n.address_size 64\n"
        ".visible .entry by_data(.param .u64 p)\n{\n .reg .b64 %rd<3>;\n .reg .b32 %r<3>;\n"
        " .reg .pred %p;\n ld.param.u64 %rd1, [p];\n ld.global.u32 %r1, [%rd1];\n"
        "again: add.u32 %r1, %r1, 1;\n setp.lt.u32 %p, %r1, 100;\n @%p bra again;\n ret;\n}\n"
        ".visible .entry endless(.param .u64 p)\n{\n again: bra again;\n}\n"
        ".visible .entry by_shuffle(.param .u64 p)\n{\n .reg .b64 %rd<3>;\n .reg .b32 %r<5>;\n"
        " .reg .pred %p;\n ld.param.u64 %rd1, [p];\n ld.global.u32 %r1, [%rd1];\n"
        " shfl.sync.idx.b32 %r2, %r1, 0, 31, -1;\n setp.eq.u32 %p, %r2, 0;\n @%p ret;\n"
        " st.global.u32 [%rd1], %r2;\n ret;\n}\n";
    static const char *const kernels[] = { "by_data", "endless", "by_shuffle" };
    const uint32_t grid[3] = { 1000, 1, 1 }, block[3] = { 32, 1, 1 };
    struct ptx_fixture fixture;
    uint64_t out;

    ptx_fixture_init_text(&fixture, "data", text);
    out = ptx_fixture_alloc(&fixture, 128);
    fixture.defaults.n_sample_blocks = 4;
    fixture.defaults.sample_limit = 10000;
    fixture.defaults.follow_limit = 10000;
    for (size_t i = 0; i < ELEMENTSOF(kernels); i++) {
        struct ptx_result result;

        ptx_fixture_launch(&fixture, kernels[i], grid, block, 0, PTX_PARAMS(&out), &result);
        ck_assert_int_eq(result.fault.kind, PTX_FAULT_NONE);
        ck_assert_msg(result.stats.n_blocks == 4, "%s", kernels[i]);
    }
    ptx_fixture_done(&fixture);
}
END_TEST

/*
 * If samples differ they are not enough: then all blocks are computed, or as many as are
 * affordable.
 */
START_TEST(samples_that_differ_are_not_all) {
    static const struct way differing[] = {
        { "from_constants", { 200, 1, 1 }, { 64, 1, 1 }, 3 },
        { "from_locals", { 200, 1, 1 }, { 64, 1, 1 }, 20 },
        { "from_shared", { 200, 1, 1 }, { 128, 1, 1 }, 30 },
    };

    for (size_t build = 0; build < ELEMENTSOF(ways); build++)
        for (size_t i = 0; i < ELEMENTSOF(differing); i++) {
            const struct way *way = &differing[i];
            struct ptx_result computed, told[2], bounded;
            struct ptx_fixture fixture;
            uint64_t out;
            int n = way->n;

            ptx_fixture_init_file(&fixture, ways[build]);
            out = ptx_fixture_alloc(&fixture, 32 * 4);
            ptx_fixture_launch(&fixture, way->kernel, way->grid, way->block, 0,
                               PTX_PARAMS(&out, &n), &computed);
            fixture.defaults.n_sample_blocks = 4;
            for (int again = 0; again < 2; again++) {
                fixture.n_threads = again ? 1 : 4;
                ptx_fixture_launch(&fixture, way->kernel, way->grid, way->block, 0,
                                   PTX_PARAMS(&out, &n), &told[again]);
                ck_assert_int_eq(told[again].fault.kind, PTX_FAULT_NONE);
                ck_assert_uint_eq(told[again].stats.n_blocks, 200);
                expect_same(way, &computed.stats, &told[again].stats);
            }
            if (i < 2) { /* rare blocks that take most of the time: no estimate is good */
                ptx_fixture_done(&fixture);
                continue;
            }
            fixture.defaults.sample_limit = computed.stats.n_warp_instructions / 4;
            ptx_fixture_launch(&fixture, way->kernel, way->grid, way->block, 0,
                               PTX_PARAMS(&out, &n), &bounded);
            ck_assert_uint_gt(bounded.stats.n_blocks, 4);
            ck_assert_uint_lt(bounded.stats.n_blocks, 200);
            ck_assert_double_eq_tol((double)bounded.stats.n_thread_instructions /
                                        (double)computed.stats.n_thread_instructions,
                                    1, 0.1);
            ptx_fixture_done(&fixture);
        }
}
END_TEST

/* ---- random ways -------------------------------------------------------------------------------
 */

static uint64_t state;

static unsigned pick(unsigned n) {
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (unsigned)(state >> 33) % n;
}

static char program[1 << 16];
static size_t n_program;

__attribute__((format(printf, 1, 2))) static void line(const char *format, ...) {
    va_list args;

    va_start(args, format);
    n_program += (size_t)vsnprintf(program + n_program, sizeof(program) - n_program, format, args);
    va_end(args);
}

/* Something with numbers, in registers 1 to 8; now and then with data, in 11 to 14. */
static void put_work(void) {
    static const char *const ops[] = { "add.s32", "sub.s32", "mul.lo.u32", "and.b32", "or.b32",
                                       "xor.b32", "min.s32", "max.u32",    "min.u32", "max.s32",
                                       "add.u32", "sub.u32", "mul.lo.s32" };
    static const char *const by[] = { "div.u32", "rem.u32", "div.s32", "rem.s32",
                                      "shr.u32", "shr.s32", "shl.b32" };
    static const char *const narrow[] = { "u16.u32", "s16.s32", "s8.s32", "u8.u32", "s32.s8" };
    const unsigned d = 1 + pick(8), a = 1 + pick(8), b = 1 + pick(8);

    switch (pick(9)) {
    case 0:
    case 1:
        line(" %s %%r%u, %%r%u, %%r%u;\n", ops[pick(13)], d, a, b);
        break;
    case 2:
        line(" %s %%r%u, %%r%u, %d;\n", ops[pick(13)], d, a,
             pick(2) ? (int)pick(300) - 100 : 1 << pick(31));
        break;
    case 3:
        line(" %s %%r%u, %%r%u, %u;\n", by[pick(7)], d, a, 1 + pick(pick(4) ? 31 : 1000));
        break;
    case 4:
        line(" mad.lo.s32 %%r%u, %%r%u, %u, %%r%u;\n", d, a, pick(50), b);
        break;
    case 5:
        line(" cvt.%s %%r%u, %%r%u;\n", narrow[pick(5)], d, a);
        break;
    case 6:
        line(" setp.lt.s32 %%p2, %%r%u, %u;\n selp.b32 %%r%u, %%r%u, %%r%u, %%p2;\n", a, pick(99),
             d, a, b);
        break;
    case 7:
        line(" mul.wide.s32 %%rd3, %%r%u, %%r%u;\n shr.s64 %%rd3, %%rd3, %u;\n"
             " cvt.u32.u64 %%r%u, %%rd3;\n",
             a, b, pick(40), d);
        break;
    default:
        line(" ld.global.u32 %%r%u, [%%rd1+%u];\n add.u32 %%r%u, %%r%u, %%r%u;\n", 11 + pick(4),
             4 * pick(8), 11 + pick(4), 11 + pick(4), a);
    }
}

static void put_way(unsigned depth) {
    static const char *const relations[] = { "lt", "le", "gt", "ge", "eq", "ne" };
    static unsigned label;

    for (unsigned n = 1 + pick(4); n; n--) {
        const unsigned me = ++label, a = 1 + pick(8), b = 1 + pick(8);
        const char type = pick(2) ? 's' : 'u';

        put_work();
        switch (depth ? pick(6) : 5) {
        case 0: /* if, else */
        case 1:
            line(" setp.%s.%c32 %%p1, %%r%u, %d;\n @%s%%p1 bra else%u;\n", relations[pick(6)], type,
                 a, (int)pick(200) - 40, pick(2) ? "!" : "", me);
            put_way(depth - 1);
            line(" bra.uni end%u;\nelse%u:\n", me, me);
            put_way(depth - 1);
            line("end%u:\n", me);
            break;
        case 2: { /* a loop that counts up or down, in a register of its depth */
            const bool down = pick(2), wide = pick(3) == 0;
            const unsigned step = 1 + pick(4), x = 20 + depth, bound = 30 + depth;
            const char *relation = down ? (pick(2) ? "gt" : "ge") : (pick(2) ? "lt" : "le");
            const char *const bits = wide ? "64" : "32", *const r = wide ? "d" : "";

            line(" and.b32 %%r40, %%r%u, 31;\n and.b32 %%r41, %%r%u, 63;\n"
                 " add.u32 %%r42, %%r40, %%r41;\n add.u32 %%r40, %%r40, 8;\n",
                 a, b);
            line(wide ? " cvt.u64.u32 %%rd%u, %%r%u;\n cvt.u64.u32 %%rd%u, %%r%u;\n"
                      : " mov.u32 %%r%u, %%r%u;\n mov.u32 %%r%u, %%r%u;\n",
                 x, down ? 42 : 40, bound, down ? 40 : 42);
            line("loop%u:\n", me);
            if (pick(2))
                line(" ld.global.u32 %%r11, [%%rd1];\n st.global.u32 [%%rd1], %%r11;\n");
            else
                put_way(depth - 1);
            line(" add.s%s %%r%s%u, %%r%s%u, %d;\n", bits, r, x, r, x,
                 down ? -(int)step : (int)step);
            line(" setp.%s.s%s %%p3, %%r%s%u, %%r%s%u;\n @%%p3 bra loop%u;\n", relation, bits, r, x,
                 r, bound, me);
            break;
        }
        case 3:
            line(" setp.%s.%c32 %%p4, %%r%u, %%r%u;\n @%%p4 add.u32 %%r%u, %%r%u, 3;\n"
                 " @!%%p4 st.global.u32 [%%rd1], %%r%u;\n",
                 relations[pick(6)], type, a, b, a, a, 11 + pick(4));
            break;
        case 4:
            line(" popc.b32 %%r%u, %%r%u;\n", a, b);
            break;
        default:
            put_work();
        }
    }
}

static void run_random(unsigned seed) {
    const uint32_t grid[3] = { 1 + seed % 70, 1 + seed % 3, 1 }, block[3] = { 1 + seed % 90, 1, 1 };
    struct ptx_result computed, told;
    struct ptx_fixture fixture;
    uint64_t out;
    int n = (int)(seed * 37 % 1000);
    struct way way = { .kernel = "k" };

    state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    n_program = 0;
    line(".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 p, .param "
         ".u32 n)\n{\n .reg .b64 %%rd<50>;\n .reg .b32 %%r<50>;\n .reg .pred %%p<5>;\n"
         " ld.param.u64 %%rd1, [p];\n ld.param.u32 %%r1, [n];\n mov.u32 %%r2, %%ctaid.x;\n"
         " mov.u32 %%r3, %%tid.x;\n mov.u32 %%r4, %%ctaid.y;\n mov.u32 %%r5, %%ntid.x;\n"
         " mad.lo.u32 %%r6, %%r2, %%r5, %%r3;\n mov.u32 %%r7, 7;\n mov.u32 %%r8, %%nctaid.x;\n"
         " mov.u32 %%r11, 0;\n mov.u32 %%r12, 0;\n mov.u32 %%r13, 0;\n mov.u32 %%r14, 0;\n");
    put_way(3);
    line(" st.global.u32 [%%rd1+4], %%r11;\n ret;\n}\n");
    ck_assert_uint_lt(n_program, sizeof(program));
    ptx_fixture_init_text(&fixture, "random", program);
    out = ptx_fixture_alloc(&fixture, 128);
    ptx_fixture_launch(&fixture, "k", grid, block, 0, PTX_PARAMS(&out, &n), &computed);
    fixture.defaults.n_sample_blocks = 4;
    ptx_fixture_launch(&fixture, "k", grid, block, 0, PTX_PARAMS(&out, &n), &told);
    if (told.stats.n_blocks ||
        computed.stats.n_thread_instructions != told.stats.n_thread_instructions)
        printf("seed %u:\n%s", seed, program);
    ck_assert_msg(told.stats.n_blocks == 0, "seed %u was sampled", seed);
    expect_same(&way, &computed.stats, &told.stats);
    ptx_fixture_done(&fixture);
}

START_TEST(costs_of_random_control_flow_are_exact) {
    const char *rounds = getenv("PTX_ROUNDS");
#ifdef __SANITIZE_THREAD__
    const unsigned usual = 20; /* it is the numbers that are random here, not the threads */
#else
    const unsigned usual = 200;
#endif

    for (unsigned seed = 1; seed <= (rounds ? (unsigned)atoi(rounds) : usual); seed++)
        run_random(seed);
}
END_TEST

SUITE_TIMEOUT("ptx-outline", 400, costs_that_follow_from_numbers_are_exact,
              what_is_too_long_to_follow_is_estimated, ways_by_data_are_sampled,
              samples_that_differ_are_not_all, costs_of_random_control_flow_are_exact)
