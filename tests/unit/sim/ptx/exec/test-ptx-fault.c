/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that go wrong are stopped and reported, and the process lives; the table of memory. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "tests/support/sim/ptx/ptx_fixture.h"
#include "tests/support/suite.h"

#define HEAD ".version 8.0\n.target sm_80\n.address_size 64\n"

static void run(struct ptx_fixture *fixture, const char *kernel, uint32_t block, void **params,
                struct ptx_result *ret) {
    ptx_fixture_launch(fixture, kernel, (uint32_t[]){ 2, 1, 1 }, (uint32_t[]){ block, 1, 1 }, 0,
                       params, ret);
}

#define EACH_BUILD                                                                                 \
    static const char *const paths[] = { PTX_DIR "/wrong.O0.ptx", PTX_DIR "/wrong.O3.ptx" };       \
    struct ptx_fixture fixture;                                                                    \
    struct ptx_result result;                                                                      \
    for (size_t build = 0; build < ELEMENTSOF(paths); build++)                                     \
        for (int once = (ptx_fixture_init_file(&fixture, paths[build]), 1); once;                  \
             once = (ptx_fixture_done(&fixture), 0))

START_TEST(accesses_out_of_bounds_are_named) {
    EACH_BUILD {
        uint64_t p = ptx_fixture_alloc(&fixture, 400), freed = ptx_fixture_alloc(&fixture, 400),
                 null = 0;
        long long inside = 99, past = 100, before = -1, far = 1LL << 40, zero = 0;

        run(&fixture, "write_at", 32, PTX_PARAMS(&p, &inside), &result);
        ck_assert_int_eq(result.fault.kind, PTX_FAULT_NONE);
        for (int i = 0; i < 3; i++) {
            long long *index = i == 0 ? &past : i == 1 ? &before : &far;

            run(&fixture, "write_at", 32, PTX_PARAMS(&p, index), &result);
            ck_assert_int_eq(result.fault.kind, PTX_FAULT_ADDRESS);
            ck_assert_uint_eq(result.fault.address, p + (uint64_t)*index * 4);
            ck_assert_uint_eq(result.fault.thread[0], 7);
            ck_assert_uint_lt(result.fault.block[0], 2);
            ck_assert_uint_eq(result.fault.bytes, 4);
            ck_assert(result.fault.store);
            ck_assert_str_eq(result.fault.kernel, "write_at");
            ck_assert_uint_gt(result.fault.line, 0);
        }
        run(&fixture, "write_at", 32, PTX_PARAMS(&null, &zero), &result);
        ck_assert_int_eq(result.fault.kind, PTX_FAULT_ADDRESS);
        ck_assert_uint_eq(result.fault.address, 0);
        ptx_fixture_free(&fixture, freed);
        run(&fixture, "write_at", 32, PTX_PARAMS(&freed, &zero), &result);
        ck_assert_int_eq(result.fault.kind, PTX_FAULT_ADDRESS);
    }
}
END_TEST

START_TEST(misaligned_accesses_are_named) {
    EACH_BUILD {
        uint64_t p = ptx_fixture_alloc(&fixture, 400), out = ptx_fixture_alloc(&fixture, 400);
        long long offset = 2;

        run(&fixture, "read_at", 32, PTX_PARAMS(&p, &offset, &out), &result);
        ck_assert_int_eq(result.fault.kind, PTX_FAULT_MISALIGNED);
        ck_assert_uint_eq(result.fault.address, p + 2);
        ck_assert(!result.fault.store);
    }
}
END_TEST

START_TEST(shared_memory_has_bounds_too) {
    EACH_BUILD {
        uint64_t out = ptx_fixture_alloc(&fixture, 400);
        int inside = 31, past = 32;

        run(&fixture, "shared_at", 32, PTX_PARAMS(&inside, &out), &result);
        ck_assert_int_eq(result.fault.kind, PTX_FAULT_NONE);
        run(&fixture, "shared_at", 32, PTX_PARAMS(&past, &out), &result);
        ck_assert_int_eq(result.fault.kind, PTX_FAULT_ADDRESS);
    }
}
END_TEST

START_TEST(traps_and_wild_calls_end_the_kernel) {
    EACH_BUILD {
        uint64_t nowhere = 0x1234, out = ptx_fixture_alloc(&fixture, 400);

        run(&fixture, "trap", 32, NULL, &result);
        ck_assert_int_eq(result.fault.kind, PTX_FAULT_TRAP);
        ck_assert_uint_eq(result.fault.thread[0], 3);
        run(&fixture, "wild_call", 32, PTX_PARAMS(&nowhere), &result);
        ck_assert_int_eq(result.fault.kind, PTX_FAULT_INSTRUCTION);
        run(&fixture, "stack", 32, PTX_PARAMS(&out), &result);
        ck_assert_int_eq(result.fault.kind, PTX_FAULT_STACK);
        run(&fixture, "lost_barrier", 96, PTX_PARAMS(&out), &result);
        ck_assert_int_eq(result.fault.kind, PTX_FAULT_DEADLOCK);
    }
}
END_TEST

static _Atomic bool cancel;

static void *cancel_soon(void *arg) {
    usleep(30000);
    atomic_store(&cancel, true);
    return arg;
}

START_TEST(a_kernel_that_runs_away_can_be_ended) {
    EACH_BUILD {
        uint64_t p = ptx_fixture_alloc(&fixture, 4);
        static const char *const kernels[] = { "for_ever", "busy_for_ever" };

        fixture.cancel = &cancel;
        for (int i = 0; i < 2; i++) {
            pthread_t thread;

            atomic_store(&cancel, false);
            ck_assert_int_eq(pthread_create(&thread, NULL, cancel_soon, NULL), 0);
            run(&fixture, kernels[i], 64, PTX_PARAMS(&p), &result);
            pthread_join(thread, NULL);
            ck_assert_int_eq(result.fault.kind, PTX_FAULT_CANCELLED);
        }
    }
}
END_TEST

static void *free_soon(void *arg) {
    struct ptx_fixture *fixture = arg;

    usleep(30000);
    ptx_fixture_free(fixture, fixture->addresses[fixture->n_blocks - 1]);
    return NULL;
}

/* The bytes are given back to malloc() at once: ASan would see a single access after that. */
START_TEST(memory_freed_under_a_running_kernel_is_not_touched_again) {
    EACH_BUILD {
        uint64_t p = ptx_fixture_alloc(&fixture, 4);
        pthread_t thread;

        ck_assert_int_eq(pthread_create(&thread, NULL, free_soon, &fixture), 0);
        run(&fixture, "for_ever", 64, PTX_PARAMS(&p), &result);
        pthread_join(thread, NULL);
        ck_assert_int_eq(result.fault.kind, PTX_FAULT_ADDRESS);
        ck_assert_uint_eq(result.fault.address, p);
    }
}
END_TEST

#define COPY                                                                                       \
    HEAD                                                                                           \
        ".visible .entry copy(.param .u64 to,.param .u64 from){.reg .b64 %d<6>;.reg .b32 %r<6>;\n" \
        "ld.param.u64 %d1,[to];ld.param.u64 %d2,[from];mov.u32 %r1,%tid.x;mov.u32 %r2,%ctaid.x;\n" \
        "mov.u32 %r4,%ntid.x;mad.lo.u32 %r1,%r2,%r4,%r1;mul.wide.u32 %d3,%r1,4;\n"                 \
        "add.u64 %d1,%d1,%d3;add.u64 %d2,%d2,%d3;ld.global.u32 %r3,[%d2];st.global.u32 "           \
        "[%d1],%r3;\n"                                                                             \
        "ret;}\n"

START_TEST(read_only_memory_is_read_only) {
    struct ptx_fixture fixture;
    struct ptx_result result;
    uint32_t bytes[64] = { 1 };
    uint64_t constant = 0x9000, out;

    ptx_fixture_init_text(&fixture, "t", COPY);
    out = ptx_fixture_alloc(&fixture, 256);
    ptx_table_add(&fixture.table,
                  &(struct ptx_extent){ constant, sizeof(bytes), (unsigned char *)bytes,
                                        PTX_EXTENT_READ_ONLY });
    run(&fixture, "copy", 32, PTX_PARAMS(&out, &constant), &result);
    ck_assert_int_eq(result.fault.kind, PTX_FAULT_NONE);
    ck_assert_uint_eq(*(uint32_t *)ptx_fixture_host(&fixture, out), 1);
    run(&fixture, "copy", 32, PTX_PARAMS(&constant, &out), &result);
    ck_assert_int_eq(result.fault.kind, PTX_FAULT_ADDRESS);
    ptx_fixture_done(&fixture);
}
END_TEST

struct launcher {
    struct ptx_fixture *fixture;
    uint64_t from, to;
    int bad;
};

static void *launch_often(void *arg) {
    struct launcher *me = arg;
    uint32_t *from = ptx_fixture_host(me->fixture, me->from),
             *to = ptx_fixture_host(me->fixture, me->to);

    for (uint32_t round = 1; round <= 50; round++) {
        struct ptx_result result;

        for (uint32_t i = 0; i < 2 * 64; i++)
            from[i] = round * 1000 + i;
        run(me->fixture, "copy", 64, PTX_PARAMS(&me->to, &me->from), &result);
        me->bad += result.fault.kind != PTX_FAULT_NONE || memcmp(from, to, 512);
    }
    return NULL;
}

static void *allocate_often(void *arg) {
    struct ptx_fixture *fixture = arg;
    unsigned char bytes[64];

    for (int i = 0; i < 300; i++) {
        ptx_table_add(&fixture->table, &(struct ptx_extent){ 0x1000, 64, bytes, 0 });
        ptx_table_remove(&fixture->table, 0x1000);
    }
    return NULL;
}

/* One module, one table of memory, several streams; others allocate and free meanwhile. */
START_TEST(launches_from_many_threads_do_not_disturb_each_other) {
    struct ptx_fixture fixture;
    struct launcher launchers[4];
    pthread_t threads[4], allocator;

    ptx_fixture_init_text(&fixture, "t", COPY);
    for (int i = 0; i < 4; i++)
        launchers[i] = (struct launcher){ &fixture, ptx_fixture_alloc(&fixture, 512),
                                          ptx_fixture_alloc(&fixture, 512), 0 };
    ck_assert_int_eq(pthread_create(&allocator, NULL, allocate_often, &fixture), 0);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, launch_often, &launchers[i]), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        ck_assert_int_eq(launchers[i].bad, 0);
    }
    pthread_join(allocator, NULL);
    ptx_fixture_done(&fixture);
}
END_TEST

START_TEST(samples_cost_what_their_blocks_cost) {
    struct ptx_fixture fixture;
    struct ptx_result all, some;
    uint64_t a = UINT64_C(1) << 40, b = UINT64_C(1) << 41;
    const uint32_t grid[3] = { 100000, 1, 1 }, block[3] = { 128, 1, 1 }, small[3] = { 10, 1, 1 };

    /* 50 MB that no host memory stands behind */
    ptx_fixture_init_text(&fixture, "t", COPY);
    ptx_table_add(&fixture.table, &(struct ptx_extent){ a, 51200000, NULL, 0 });
    ptx_table_add(&fixture.table, &(struct ptx_extent){ b, 51200000, NULL, 0 });
    fixture.defaults.n_sample_blocks = 4;
    ptx_fixture_launch(&fixture, "copy", grid, block, 0, PTX_PARAMS(&a, &b), &some);
    ck_assert_int_eq(some.fault.kind, PTX_FAULT_NONE);
    ck_assert_uint_eq(some.stats.n_blocks, 0); /* the way is known without any */
    fixture.defaults.n_sample_blocks = 0;
    ptx_fixture_launch(&fixture, "copy", small, block, 0, PTX_PARAMS(&a, &b), &all);
    ck_assert_uint_eq(all.stats.n_blocks, 10);
    ck_assert_uint_eq(all.stats.n_thread_instructions * 10000, some.stats.n_thread_instructions);
    ck_assert_uint_eq(all.stats.global_read_bytes, 10 * 128 * 4);
    ck_assert_uint_eq(all.stats.global_write_bytes, 10 * 128 * 4);
    ck_assert_uint_eq(all.stats.n_thread_instructions, 10 * 128 * 12);
    ptx_fixture_done(&fixture);
}
END_TEST

SUITE_TIMEOUT("ptx-fault", 60, accesses_out_of_bounds_are_named, misaligned_accesses_are_named,
              shared_memory_has_bounds_too, traps_and_wild_calls_end_the_kernel,
              a_kernel_that_runs_away_can_be_ended,
              memory_freed_under_a_running_kernel_is_not_touched_again,
              launches_from_many_threads_do_not_disturb_each_other, read_only_memory_is_read_only,
              samples_cost_what_their_blocks_cost)
