/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA's own device libraries, as nvcc compiles them for sm_80. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "tests/support/ptxworld.h"
#include "tests/support/suite.h"

static struct ptxworld world;

static void start(void) {
    ptxworld_init_file(&world, PTX_DIR "/library.O3.ptx");
}

START_TEST(groups_of_threads_know_each_other) {
    uint64_t out;
    int *got;

    start();
    out = ptxworld_alloc(&world, 3 * 64 * 4);
    got = ptxworld_host(&world, out);
    ptxworld_run(&world, "groups", 1, 64, 0, PTX_PARAMS(&out));
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
    ptxworld_done(&world);
}
END_TEST

START_TEST(a_grid_keeps_in_step) {
    enum { BLOCKS = 9, THREADS = 64, N = BLOCKS * THREADS };
    int want[N], next[N], rounds = 6, *got;
    uint64_t data;

    start();
    data = ptxworld_alloc(&world, N * 4);
    got = ptxworld_host(&world, data);
    for (int i = 0; i < N; i++)
        want[i] = got[i] = i % 17;
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < N; i++)
            next[i] = want[i] + want[(i + THREADS) % N];
        memcpy(want, next, sizeof(want));
    }
    world.defaults.cooperative = true;
    ptxworld_run(&world, "grid_sync", BLOCKS, THREADS, 0, PTX_PARAMS(&data, &rounds));
    ck_assert_mem_eq(got, want, sizeof(want));
    ptxworld_done(&world);
}
END_TEST

START_TEST(a_grid_barrier_without_a_cooperative_launch_traps) {
    struct ptx_result result;
    uint64_t data;
    int rounds = 1;

    start();
    data = ptxworld_alloc(&world, 256 * 4);
    ptxworld_launch(&world, "grid_sync", (uint32_t[]){ 2, 1, 1 }, (uint32_t[]){ 64, 1, 1 }, 0,
                    PTX_PARAMS(&data, &rounds), &result);
    ck_assert_int_ne(result.fault.kind, PTX_FAULT_NONE);
    ptxworld_done(&world);
}
END_TEST

START_TEST(asynchronous_copies_arrive) {
    uint64_t in, out;
    float *from, *to;

    start();
    in = ptxworld_alloc(&world, 2048);
    out = ptxworld_alloc(&world, 2048);
    from = ptxworld_host(&world, in);
    to = ptxworld_host(&world, out);
    for (int i = 0; i < 512; i++)
        from[i] = (float)i;
    ptxworld_run(&world, "copy_async", 1, 128, 0, PTX_PARAMS(&in, &out));
    for (int i = 0; i < 512; i++)
        ck_assert(to[i] == (float)((127 - i / 4) * 4 + i % 4));
    ptxworld_done(&world);
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
    data = ptxworld_alloc(&world, 2048);
    got = ptxworld_host(&world, data);
    for (int i = 0; i < 512; i++)
        want[i] = got[i] = (int)((unsigned)i * 2654435761U) % 10007 * (i % 2 ? 1 : -1);
    qsort(want, 512, sizeof(int), by_value);
    ptxworld_run(&world, "block_sort", 1, 128, 0, PTX_PARAMS(&data));
    ck_assert_mem_eq(got, want, sizeof(want));
    ptxworld_run(&world, "block_scan", 1, 128, 0, PTX_PARAMS(&data));
    for (int i = 0; i < 128; i++)
        ck_assert_int_eq(got[i], sum += want[i]);
    ptxworld_done(&world);
}
END_TEST

SUITE("ptx-library", groups_of_threads_know_each_other, a_grid_keeps_in_step,
      a_grid_barrier_without_a_cooperative_launch_traps, asynchronous_copies_arrive,
      blocks_sort_and_scan)
