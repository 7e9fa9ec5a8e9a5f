/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA's own device libraries, as nvcc compiles them for sm_80. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "tests/support/sim/ptx/ptx_fixture.h"
#include "tests/support/suite.h"

static struct ptx_fixture fixture;

static void start(void) {
    ptx_fixture_init_file(&fixture, PTX_DIR "/library.O3.ptx");
}

START_TEST(groups_of_threads_know_each_other) {
    uint64_t out;
    int *got;

    start();
    out = ptx_fixture_alloc(&fixture, 3 * 64 * 4);
    got = ptx_fixture_host(&fixture, out);
    ptx_fixture_run(&fixture, "groups", 1, 64, 0, PTX_PARAMS(&out));
    for (int i = 0; i < 64; i++) {
        int warp = i / 32 * 32, before = 0, all = 0;

        for (int k = warp; k < warp + 32; k++) {
            all += k % 3 == 0;
            before += k % 3 == 0 && k < i;
        }
        ck_assert_int_eq(got[i], i / 16 * 256 + 120);
        ck_assert_int_eq(got[64 + i], i % 3 ? 0 : all * 100 + before);
        ck_assert_int_eq(got[128 + i], 8);
    }
    ptx_fixture_done(&fixture);
}
END_TEST

START_TEST(a_grid_keeps_in_step) {
    enum { BLOCKS = 9, THREADS = 64, N = BLOCKS * THREADS };
    int want[N], next[N], rounds = 6, *got;
    uint64_t data;

    start();
    data = ptx_fixture_alloc(&fixture, N * 4);
    got = ptx_fixture_host(&fixture, data);
    for (int i = 0; i < N; i++)
        want[i] = got[i] = i % 17;
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < N; i++)
            next[i] = want[i] + want[(i + THREADS) % N];
        memcpy(want, next, sizeof(want));
    }
    fixture.defaults.cooperative = true;
    ptx_fixture_run(&fixture, "grid_sync", BLOCKS, THREADS, 0, PTX_PARAMS(&data, &rounds));
    ck_assert_mem_eq(got, want, sizeof(want));
    ptx_fixture_done(&fixture);
}
END_TEST

/* How often a thread looks whether the others have come is up to the host, and costs nothing. */
START_TEST(waiting_for_a_grid_costs_the_same_in_every_run) {
    struct ptx_result first, result;

    start();
    fixture.defaults.cooperative = true;
    for (int run = 0; run < 6; run++) {
        uint64_t data = ptx_fixture_alloc(&fixture, 8 * 64 * 4);
        int rounds = 3; /* waiting is slow where threads are watched */

        fixture.n_threads = 1 + (unsigned)run % 4;
        fixture.defaults.n_sample_blocks = run == 5 ? 4 : 0; /* for timing alone too */
        ptx_fixture_launch(&fixture, "grid_sync", (uint32_t[]){ 8, 1, 1 }, (uint32_t[]){ 64, 1, 1 },
                           0, PTX_PARAMS(&data, &rounds), &result);
        ck_assert_int_eq(result.fault.kind, PTX_FAULT_NONE);
        if (!run)
            first = result;
        ck_assert_uint_eq(result.stats.n_thread_instructions, first.stats.n_thread_instructions);
        ck_assert_uint_eq(result.stats.global_read_bytes, first.stats.global_read_bytes);
        ck_assert_uint_eq(result.stats.global_write_bytes, first.stats.global_write_bytes);
        ptx_fixture_free(&fixture, data);
    }
    ptx_fixture_done(&fixture);
}
END_TEST

START_TEST(a_grid_barrier_without_a_cooperative_launch_traps) {
    struct ptx_result result;
    uint64_t data;
    int rounds = 1;

    start();
    data = ptx_fixture_alloc(&fixture, 256 * 4);
    ptx_fixture_launch(&fixture, "grid_sync", (uint32_t[]){ 2, 1, 1 }, (uint32_t[]){ 64, 1, 1 }, 0,
                       PTX_PARAMS(&data, &rounds), &result);
    ck_assert_int_ne(result.fault.kind, PTX_FAULT_NONE);
    ptx_fixture_done(&fixture);
}
END_TEST

START_TEST(asynchronous_copies_arrive) {
    uint64_t in, out;
    float *from, *to;

    start();
    in = ptx_fixture_alloc(&fixture, 2048);
    out = ptx_fixture_alloc(&fixture, 2048);
    from = ptx_fixture_host(&fixture, in);
    to = ptx_fixture_host(&fixture, out);
    for (int i = 0; i < 512; i++)
        from[i] = (float)i;
    ptx_fixture_run(&fixture, "copy_async", 1, 128, 0, PTX_PARAMS(&in, &out));
    for (int i = 0; i < 512; i++)
        ck_assert(to[i] == (float)((127 - i / 4) * 4 + i % 4));
    ptx_fixture_done(&fixture);
}
END_TEST

static int by_value(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;

    return x < y ? -1 : x > y;
}

START_TEST(blocks_sort_and_scan) {
    int want[512], *got, sum = 0;
    uint64_t data;

    start();
    data = ptx_fixture_alloc(&fixture, 2048);
    got = ptx_fixture_host(&fixture, data);
    for (int i = 0; i < 512; i++)
        want[i] = got[i] = (int)((unsigned)i * 2654435761U) % 10007 * (i % 2 ? 1 : -1);
    qsort(want, 512, sizeof(int), by_value);
    ptx_fixture_run(&fixture, "block_sort", 1, 128, 0, PTX_PARAMS(&data));
    ck_assert_mem_eq(got, want, sizeof(want));
    ptx_fixture_run(&fixture, "block_scan", 1, 128, 0, PTX_PARAMS(&data));
    for (int i = 0; i < 128; i++)
        ck_assert_int_eq(got[i], sum += want[i]);
    ptx_fixture_done(&fixture);
}
END_TEST

static const char *const barriers[] = { PTX_DIR "/barrier.O0.ptx", PTX_DIR "/barrier.O3.ptx" };

START_TEST(barriers_in_shared_memory_keep_stages_apart) {
    enum { BLOCKS = 3, THREADS = 128, ROUNDS = 7 };

    for (size_t k = 0; k < ELEMENTSOF(barriers); k++) {
        int rounds = ROUNDS, *from, *to;
        uint64_t in, out;

        ptx_fixture_init_file(&fixture, barriers[k]);
        in = ptx_fixture_alloc(&fixture, BLOCKS * ROUNDS * 32 * 4);
        out = ptx_fixture_alloc(&fixture, BLOCKS * (THREADS - 32) * 4);
        from = ptx_fixture_host(&fixture, in);
        to = ptx_fixture_host(&fixture, out);
        for (int i = 0; i < BLOCKS * ROUNDS * 32; i++)
            from[i] = i * i % 1009;
        ptx_fixture_run(&fixture, "stages", BLOCKS, THREADS, 0, PTX_PARAMS(&in, &out, &rounds));
        for (int i = 0; i < BLOCKS * (THREADS - 32); i++) {
            int block = i / (THREADS - 32), lane = i % 32, want = 0;

            for (int r = 0; r < ROUNDS; r++)
                want += from[(block * ROUNDS + r) * 32 + 31 - lane] * (r + 1);
            ck_assert_int_eq(to[i], want);
        }
        ptx_fixture_done(&fixture);
    }
}
END_TEST

START_TEST(threads_that_drop_out_of_a_barrier_are_not_waited_for) {
    enum { THREADS = 100, ROUNDS = 5 };

    for (size_t k = 0; k < ELEMENTSOF(barriers); k++) {
        int rounds = ROUNDS, *got;
        uint64_t out;

        ptx_fixture_init_file(&fixture, barriers[k]);
        out = ptx_fixture_alloc(&fixture, THREADS * 4);
        got = ptx_fixture_host(&fixture, out);
        ptx_fixture_run(&fixture, "leavers", 1, THREADS, 0, PTX_PARAMS(&out, &rounds));
        for (int t = 0; t < THREADS; t++) {
            int want = 0;

            for (int round = 0; round < t % ROUNDS; round++)
                for (int other = 0; other < THREADS; other++)
                    want += other % ROUNDS > round;
            ck_assert_int_eq(got[t], want);
        }
        ptx_fixture_done(&fixture);
    }
}
END_TEST

START_TEST(a_pipeline_of_copies_is_waited_for) {
    enum { ROUNDS = 5 };

    for (size_t k = 0; k < ELEMENTSOF(barriers); k++) {
        int rounds = ROUNDS, *from, *to;
        uint64_t in, out;

        ptx_fixture_init_file(&fixture, barriers[k]);
        in = ptx_fixture_alloc(&fixture, ROUNDS * 128 * 4);
        out = ptx_fixture_alloc(&fixture, 128 * 4);
        from = ptx_fixture_host(&fixture, in);
        to = ptx_fixture_host(&fixture, out);
        for (int i = 0; i < ROUNDS * 128; i++)
            from[i] = i * 7 % 101;
        ptx_fixture_run(&fixture, "pipelined", 1, 128, 0, PTX_PARAMS(&in, &out, &rounds));
        for (int t = 0; t < 128; t++) {
            int want = 0;

            for (int r = 0; r < ROUNDS; r++)
                want += from[r * 128 + 127 - t];
            ck_assert_int_eq(to[t], want);
        }
        ptx_fixture_done(&fixture);
    }
}
END_TEST

#define HEAD ".version 8.0\n.target sm_90\n.address_size 64\n"

/* A phase ends when all have arrived and all announced bytes have come. */
static const char phases[] =
    HEAD ".visible .entry phases(.param .u64 out) {\n"
         " .reg .b64 %rd<8>; .reg .b32 %r<16>; .reg .pred %p<4>;\n"
         " .shared .align 8 .b64 m;\n"
         " ld.param.u64 %rd1, [out];\n"
         " mbarrier.init.shared::cta.b64 [m], 3;\n"
         " mbarrier.try_wait.parity.shared::cta.b64 %p1, [m], 1;\n" /* the phase before */
         " selp.u32 %r1, 1, 0, %p1;  st.global.u32 [%rd1], %r1;\n"
         " mbarrier.arrive.shared::cta.b64 %rd2, [m], 2;\n"
         " mbarrier.pending_count.b64 %r2, %rd2;  st.global.u32 [%rd1+4], %r2;\n"
         " mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 %rd3, [m], 64;\n"
         " mbarrier.test_wait.shared::cta.b64 %p1, [m], %rd2;\n"
         " selp.u32 %r1, 1, 0, %p1;  st.global.u32 [%rd1+8], %r1;\n"
         " mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [m], 60;\n"
         " mbarrier.test_wait.shared::cta.b64 %p1, [m], %rd3;\n"
         " selp.u32 %r1, 1, 0, %p1;  st.global.u32 [%rd1+12], %r1;\n"
         " mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [m], 4;\n"
         " mbarrier.test_wait.acquire.cta.shared::cta.b64 %p1, [m], %rd3;\n"
         " selp.u32 %r1, 1, 0, %p1;  st.global.u32 [%rd1+16], %r1;\n"
         " mbarrier.test_wait.parity.shared.b64 %p2, [m], 1;\n"
         " selp.u32 %r1, 1, 0, %p2;  st.global.u32 [%rd1+20], %r1;\n"
         " mov.u64 %rd4, m;  cvta.shared.u64 %rd4, %rd4;\n" /* a generic address */
         " mbarrier.arrive_drop.b64 _, [%rd4];\n"
         " mbarrier.arrive.noComplete.b64 %rd5, [%rd4], 1;\n"
         " mbarrier.pending_count.b64 %r2, %rd5;  st.global.u32 [%rd1+24], %r2;\n"
         " mbarrier.arrive.b64 %rd5, [%rd4];\n"
         " mbarrier.arrive.b64 %rd6, [%rd4];\n" /* the next phase, with one less */
         " mbarrier.pending_count.b64 %r2, %rd6;  st.global.u32 [%rd1+28], %r2;\n"
         " mbarrier.inval.shared.b64 [m];\n"
         " ret;\n}\n";

START_TEST(phases_of_a_barrier_count_arrivals_and_bytes) {
    static const int want[] = { 1, 3, 0, 0, 1, 0, 2, 2 };
    uint64_t out;
    int *got;

    ptx_fixture_init_text(&fixture, "phases", phases);
    out = ptx_fixture_alloc(&fixture, sizeof(want));
    got = ptx_fixture_host(&fixture, out);
    ptx_fixture_run(&fixture, "phases", 1, 1, 0, PTX_PARAMS(&out));
    for (size_t i = 0; i < ELEMENTSOF(want); i++)
        ck_assert_msg(got[i] == want[i], "%zu: %d instead of %d", i, got[i], want[i]);
    ptx_fixture_done(&fixture);
}
END_TEST

START_TEST(what_is_no_barrier_faults) {
    static const struct {
        const char *code;
        enum ptx_fault_kind kind;
    } cases[] = {
        { "mbarrier.arrive.shared.b64 %rd1, [m];", PTX_FAULT_INSTRUCTION },
        { "mbarrier.init.shared.b64 [m], 0;", PTX_FAULT_INSTRUCTION },
        { "mbarrier.init.shared.b64 [m], 1; mbarrier.arrive.shared.b64 %rd1, [m], 2;",
          PTX_FAULT_INSTRUCTION },
        { "mbarrier.init.shared.b64 [m], 1; mbarrier.inval.shared.b64 [m];"
          "mbarrier.test_wait.parity.shared.b64 %p1, [m], 0;",
          PTX_FAULT_INSTRUCTION },
        { "mbarrier.init.shared.b64 [m+4], 1;", PTX_FAULT_MISALIGNED },
        { "mbarrier.init.shared.b64 [m+8], 1;", PTX_FAULT_ADDRESS },
        { "ld.param.u64 %rd1, [out]; mbarrier.init.b64 [%rd1], 1;", PTX_FAULT_ADDRESS },
    };

    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        struct ptx_result result;
        char text[1024];
        uint64_t out;

        snprintf(text, sizeof(text),
                 HEAD
                 ".visible .entry k(.param .u64 out) {\n .reg .b64 %%rd<3>; .reg .pred %%p<2>;\n"
                 " .shared .align 8 .b64 m;\n %s\n ret;\n}\n",
                 cases[i].code);
        ptx_fixture_init_text(&fixture, "no barrier", text);
        out = ptx_fixture_alloc(&fixture, 64);
        ptx_fixture_launch(&fixture, "k", (uint32_t[]){ 1, 1, 1 }, (uint32_t[]){ 1, 1, 1 }, 0,
                           PTX_PARAMS(&out), &result);
        ck_assert_msg(result.fault.kind == cases[i].kind, "%s: %d, %s", cases[i].code,
                      result.fault.kind, result.fault.text);
        ptx_fixture_done(&fixture);
    }
}
END_TEST

/* As numba calls it: by the functions of the device runtime. */
static const char runtime[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".extern .func (.param .b64 r) cudaCGGetIntrinsicHandle(.param .b32 a);\n"
    ".extern .func (.param .b32 r) cudaCGSynchronize(.param .b64 a, .param .b32 b);\n"
    ".visible .entry step(.param .u64 data, .param .u32 rounds) {\n"
    " .reg .b64 %rd<8>; .reg .b32 %r<16>; .reg .pred %p<4>;\n"
    " .param .b32 a0; .param .b64 r0; .param .b64 a1; .param .b32 a2; .param .b32 r1;\n"
    " ld.param.u64 %rd1, [data]; ld.param.u32 %r1, [rounds];\n"
    " mov.u32 %r2, %ctaid.x; mov.u32 %r3, %nctaid.x;\n"
    " add.u32 %r4, %r2, 1; rem.u32 %r4, %r4, %r3;\n"
    " mad.wide.u32 %rd2, %r2, 4, %rd1; mad.wide.u32 %rd3, %r4, 4, %rd1;\n"
    " mov.u32 %r5, 1; st.param.b32 [a0], %r5;\n"
    " call.uni (r0), cudaCGGetIntrinsicHandle, (a0); ld.param.b64 %rd4, [r0];\n"
    "again:\n"
    " ld.global.u32 %r6, [%rd3];\n"
    " st.param.b64 [a1], %rd4; st.param.b32 [a2], 0;\n"
    " call.uni (r1), cudaCGSynchronize, (a1, a2); ld.param.b32 %r7, [r1];\n"
    " setp.ne.u32 %p1, %r7, 0; @%p1 trap;\n"
    " mov.u32 %r8, %tid.x; setp.eq.u32 %p2, %r8, 0;\n"
    " @%p2 ld.global.u32 %r9, [%rd2]; @%p2 add.u32 %r9, %r9, %r6;\n"
    " @%p2 st.global.u32 [%rd2], %r9;\n"
    " st.param.b64 [a1], %rd4; st.param.b32 [a2], 0;\n"
    " call.uni (r1), cudaCGSynchronize, (a1, a2);\n"
    " sub.u32 %r1, %r1, 1; setp.ne.u32 %p3, %r1, 0; @%p3 bra again;\n"
    " ret;\n}\n";

START_TEST(the_device_runtime_keeps_a_grid_in_step) {
    enum { BLOCKS = 7, ROUNDS = 20 };
    unsigned want[BLOCKS], next[BLOCKS], rounds = ROUNDS, *got;
    struct ptx_result result;
    uint64_t data;

    ptx_fixture_init_text(&fixture, "runtime", runtime);
    data = ptx_fixture_alloc(&fixture, sizeof(want));
    got = ptx_fixture_host(&fixture, data);
    for (unsigned i = 0; i < BLOCKS; i++)
        want[i] = got[i] = i + 1;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < BLOCKS; i++)
            next[i] = want[i] + want[(i + 1) % BLOCKS];
        memcpy(want, next, sizeof(want));
    }
    /* Without a cooperative launch there is no grid to wait for. */
    ptx_fixture_launch(&fixture, "step", (uint32_t[]){ BLOCKS, 1, 1 }, (uint32_t[]){ 70, 1, 1 }, 0,
                       PTX_PARAMS(&data, &rounds), &result);
    ck_assert_int_eq(result.fault.kind, PTX_FAULT_TRAP);
    for (unsigned i = 0; i < BLOCKS; i++)
        got[i] = i + 1;
    fixture.defaults.cooperative = true;
    ptx_fixture_run(&fixture, "step", BLOCKS, 70, 0, PTX_PARAMS(&data, &rounds));
    ck_assert_mem_eq(got, want, sizeof(want));
    ptx_fixture_done(&fixture);
}
END_TEST

START_TEST(a_block_is_a_cluster_of_its_own) {
    struct ptx_fixture own;
    uint64_t out;
    const int *got;

    ptx_fixture_init_file(&own, PTX_DIR "/small.newer.ptx");
    out = ptx_fixture_alloc(&own, 128 * 4);
    got = ptx_fixture_host(&own, out);
    ptx_fixture_run(&own, "cluster", 1, 64, 0, PTX_PARAMS(&out));
    for (int i = 0; i < 64; i++) {
        ck_assert_int_eq(got[i], 4711 + 0 + 0 + 1 + i);
        ck_assert_int_eq(got[64 + i], 1);
    }
    ptx_fixture_done(&own);
}
END_TEST

/* What is one instruction since sm_89 or sm_90 against the many that older cards need for it. */
START_TEST(small_floats_and_extremes_agree_with_older_cards) {
    static const char *const builds[] = { PTX_DIR "/small.older.ptx", PTX_DIR "/small.newer.ptx" };
    enum { N = 3000 };
    static unsigned char small[2][N * 16], halves[2][256 * 16], extremes[2][N * 160];

    for (int build = 0; build < 2; build++) {
        struct ptx_fixture own;
        uint64_t in, out, wide, words;
        uint64_t state = 1;
        uint32_t *host;
        int n = N;

        ptx_fixture_init_file(&own, builds[build]);
        in = ptx_fixture_alloc(&own, N * 4);
        out = ptx_fixture_alloc(&own, N * 16);
        wide = ptx_fixture_alloc(&own, 256 * 16);
        words = ptx_fixture_alloc(&own, N * 160);
        host = ptx_fixture_host(&own, in);
        for (int i = 0; i < N; i++) { /* exponents about those of the small floats, then any */
            state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
            host[i] = (uint32_t)(state >> 32);
            if (i % 4)
                host[i] = (host[i] & 0x807fffff) | (uint32_t)(105 + i / 4 % 42) << 23;
            if (i % 8 == 1) /* halfway between two */
                host[i] &= 0xfff80000;
            if (i % 8 == 3)
                host[i] &= 0xfff00000;
        }
        host[0] = 0x7f800000;
        host[1] = 0xff800000;
        host[2] = 0x7f800001;
        host[3] = 0xffc00000;
        host[4] = 0x80000000;
        host[5] = 0;
        host[6] = 0x43e80000; /* 464: where 448 ends */
        host[7] = 0x47700000; /* 61440 */
        ptx_fixture_run(&own, "to_small", N / 128 + 1, 128, 0, PTX_PARAMS(&in, &out, &n));
        ptx_fixture_run(&own, "from_small", 1, 256, 0, PTX_PARAMS(&wide));
        ptx_fixture_run(&own, "extremes", N / 128 + 1, 128, 0, PTX_PARAMS(&in, &words, &n));
        memcpy(small[build], ptx_fixture_host(&own, out), sizeof(small[build]));
        memcpy(halves[build], ptx_fixture_host(&own, wide), sizeof(halves[build]));
        memcpy(extremes[build], ptx_fixture_host(&own, words), sizeof(extremes[build]));
        ptx_fixture_done(&own);
    }
    for (int i = 0; i < N * 8; i++)
        ck_assert_msg(!memcmp(small[0] + 2 * i, small[1] + 2 * i, 2),
                      "to_small: %d, kind %d: %02x%02x, not %02x%02x", i / 8, i % 8,
                      small[1][2 * i + 1], small[1][2 * i], small[0][2 * i + 1], small[0][2 * i]);
    ck_assert_mem_eq(halves[0], halves[1], sizeof(halves[0]));
    ck_assert_mem_eq(extremes[0], extremes[1], sizeof(extremes[0]));
    ck_assert_int_ne(extremes[0][0] | extremes[0][1] | extremes[0][2] | extremes[0][3], 0);
}
END_TEST

SUITE_TIMEOUT("ptx-library", 100, groups_of_threads_know_each_other, a_grid_keeps_in_step,
              a_grid_barrier_without_a_cooperative_launch_traps, asynchronous_copies_arrive,
              blocks_sort_and_scan, barriers_in_shared_memory_keep_stages_apart,
              threads_that_drop_out_of_a_barrier_are_not_waited_for,
              a_pipeline_of_copies_is_waited_for, phases_of_a_barrier_count_arrivals_and_bytes,
              what_is_no_barrier_faults, the_device_runtime_keeps_a_grid_in_step,
              small_floats_and_extremes_agree_with_older_cards, a_block_is_a_cluster_of_its_own,
              waiting_for_a_grid_costs_the_same_in_every_run)
