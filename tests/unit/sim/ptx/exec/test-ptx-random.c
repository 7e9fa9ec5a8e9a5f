/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random PTX programs, run by the executor and by the scalar interpreter of tests/support: every
 * register of every thread and every byte of memory must agree in the end. The seed is printed when
 * they do not; PTX_SEED=… repeats one program, PTX_ROUNDS=… runs more of them.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "tests/support/sim/ptx/ptx_generator.h"
#include "tests/support/sim/ptx/exec/ptx_scalar.h"
#include "tests/support/sim/ptx/ptx_fixture.h"
#include "tests/support/suite.h"

#define ROUNDS 400

static uint64_t interesting(void) {
    static const uint64_t some[] = { 0,
                                     1,
                                     ~UINT64_C(0),
                                     0x80000000,
                                     0x7fffffff,
                                     INT64_MAX,
                                     UINT64_C(1) << 63,
                                     0x3f8000003f800000,
                                     0x7f8000007f800001,
                                     0x7ff0000000000000,
                                     0x0000000100000001,
                                     0x3ff0000000000000,
                                     0x4330000000000001,
                                     0x3c003c003c003c00,
                                     0x7bff7bff03ff0001 };

    if (ptx_generator_pick(3) == 0)
        return some[ptx_generator_pick(ELEMENTSOF(some))];
    if (ptx_generator_pick(3) == 0) {
        double x = ((double)ptx_generator_pick(2000000) - 1e6) / (1 + ptx_generator_pick(1000));
        float f[2] = { (float)x, (float)(x * 3) };
        uint64_t bits;

        memcpy(&bits, ptx_generator_pick(2) ? (void *)&x : (void *)f, 8);
        return bits;
    }
    return (uint64_t)ptx_generator_pick(1U << 31) << 33 | ptx_generator_pick(1U << 31);
}

/* A float may differ in the payload of a NaN only. */
static bool same(char kind, const unsigned char *a, const unsigned char *b, unsigned bytes) {
    float f, g;
    double x, y;

    if (!memcmp(a, b, bytes))
        return true;
    if (kind == 'f') {
        memcpy(&f, a, 4);
        memcpy(&g, b, 4);
        return isnan(f) && isnan(g);
    }
    if (kind == 'g') {
        memcpy(&x, a, 8);
        memcpy(&y, b, 8);
        return isnan(x) && isnan(y);
    }
    return false;
}

static void compare(uint64_t seed, const unsigned char *a, const unsigned char *b, uint32_t n) {
    for (uint32_t t = 0; t < n; t++, a += PTX_GENERATOR_IO_BYTES, b += PTX_GENERATOR_IO_BYTES) {
        for (size_t k = 0; k < PTX_GENERATOR_N_KINDS; k++)
            for (unsigned i = 0; i < PTX_GENERATOR_N_EACH; i++) {
                size_t at = (k * PTX_GENERATOR_N_EACH + i) * 8;
                uint64_t x, y;

                memcpy(&x, a + at, 8);
                memcpy(&y, b + at, 8);
                if (!same(ptx_generator_kinds[k].kind, a + at, b + at,
                          ptx_generator_kinds[k].bytes))
                    ck_abort_msg("PTX_SEED=%llu: thread %u: %%%c%u is %#llx, should be %#llx",
                                 (unsigned long long)seed, t, ptx_generator_kinds[k].kind, i,
                                 (unsigned long long)x, (unsigned long long)y);
            }
        if (memcmp(a + PTX_GENERATOR_IO_BYTES - 8, b + PTX_GENERATOR_IO_BYTES - 8, 8))
            ck_abort_msg("PTX_SEED=%llu: thread %u: predicates differ", (unsigned long long)seed,
                         t);
    }
}

static void run_one(uint64_t seed) {
    static struct ptx_generator_text text;
    struct ptx_fixture fixture;
    uint32_t block, grid = 2, n;
    uint64_t io, table, sums, params[3];
    unsigned char *host, *before, *table_host;
    uint32_t *sums_host, sums_got[16];
    struct ptx_launch launch = { 0 };

    ptx_generator_seed(seed);
    block = ptx_generator_pick(3) ? 64 : 1 + ptx_generator_pick(100);
    n = grid * block;
    ptx_generator_make(&text, seed % 2, block % 32 == 0);
    if (getenv("PTX_SEED"))
        fputs(text.bytes, stdout);
    ptx_fixture_init_text(&fixture, "random", text.bytes);
    io = ptx_fixture_alloc(&fixture, n * PTX_GENERATOR_IO_BYTES);
    table = ptx_fixture_alloc(&fixture, 272);
    sums = ptx_fixture_alloc(&fixture, 64);
    host = ptx_fixture_host(&fixture, io);
    table_host = ptx_fixture_host(&fixture, table);
    sums_host = ptx_fixture_host(&fixture, sums);
    before = malloc(n * PTX_GENERATOR_IO_BYTES);
    for (size_t i = 0; i < n * PTX_GENERATOR_IO_BYTES; i += 8) {
        uint64_t value = interesting();

        memcpy(host + i, &value, 8);
    }
    for (int i = 0; i < 272; i++)
        table_host[i] = (unsigned char)ptx_generator_pick(256);
    memcpy(before, host, n * PTX_GENERATOR_IO_BYTES);

    ptx_fixture_run(&fixture, "k", grid, block, 0, PTX_PARAMS(&io, &table, &sums));
    memcpy(sums_got, sums_host, sizeof(sums_got));
    memset(sums_host, 0, 64);
    params[0] = io;
    params[1] = table;
    params[2] = sums;
    launch.kernel = ptx_fixture_find(fixture.module, "k");
    launch.memory = fixture.table.memory;
    launch.params = params;
    launch.param_bytes = sizeof(params);
    for (int i = 0; i < 3; i++)
        launch.grid[i] = launch.block[i] = 1;
    launch.grid[0] = grid;
    launch.block[0] = block;
    {
        unsigned char *got = malloc(n * PTX_GENERATOR_IO_BYTES);

        memcpy(got, host, n * PTX_GENERATOR_IO_BYTES);
        memcpy(host, before, n * PTX_GENERATOR_IO_BYTES);
        ck_assert_int_eq(ptx_scalar_run(&launch, NULL), 0);
        compare(seed, got, host, n);
        free(got);
    }
    ck_assert_msg(!memcmp(sums_got, sums_host, 64), "PTX_SEED=%llu: atomics differ",
                  (unsigned long long)seed);
    free(before);
    ptx_fixture_done(&fixture);
}

START_TEST(random_programs_agree_with_the_scalar_interpreter) {
    const char *seed = getenv("PTX_SEED"), *rounds = getenv("PTX_ROUNDS");
    unsigned n = rounds ? (unsigned)atoi(rounds) : ROUNDS;

    if (seed) {
        run_one(strtoull(seed, NULL, 10));
        return;
    }
    for (unsigned i = 1; i < n; i += 2)
        run_one(i);
    for (unsigned i = 0; i < n; i += 2)
        run_one(i);
}
END_TEST

SUITE_TIMEOUT("ptx-random", 110, random_programs_agree_with_the_scalar_interpreter)
