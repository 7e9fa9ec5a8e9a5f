/* SPDX-License-Identifier: Apache-2.0 */
/* Runs on GPUs of a simulated box: copies between devices, order between streams, memory. */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/core/tensor.h"
#include "libclient/device/device.h"
#include "tests/support/libclient/exec/gpu_fixture.h"
#include "tests/support/suite.h"

static const char *placed(const struct bench *bench, struct edge edge) {
    return bench->engine->devices[bench->engine->placement.devices[edge.node]]->name;
}

START_TEST(ops_go_to_the_first_gpu) {
    struct bench bench;
    struct allot_tensor *fed = numbers(1000);
    struct edge x, y;

    bench_open(&bench, SIM_LIB_DIR);
    session_open(&bench, 1);
    x = source(&bench, "Placeholder", NULL, 1000);
    y = next(&bench, NULL, x);
    check_run(&bench, x, fed, y, 1);
    ck_assert_str_eq(placed(&bench, y), "/job:localhost/replica:0/task:0/device:GPU:0");
    allot_tensor_unref(fed);
    session_close(&bench);
    bench_close(&bench);
}
END_TEST

START_TEST(values_follow_their_users_over_devices) {
    static const char *const devices[] = { "/gpu:0", "/gpu:1", "/cpu:0", NULL };
    struct bench bench;
    struct allot_tensor *fed = numbers(3000);

    bench_open(&bench, SIM_LIB_DIR);
    for (unsigned threads = 1; threads <= 3; threads++) {
        struct edge x, y;

        session_open(&bench, threads);
        x = y = source(&bench, "Placeholder", NULL, 3000);
        for (int i = 0; i < 40; i++)
            y = next(&bench, devices[(i * 7 / 3) % 4], y);
        for (int round = 0; round < 5; round++)
            check_run(&bench, x, fed, y, 40);
        session_close(&bench);
    }
    allot_tensor_unref(fed);
    bench_close(&bench);
}
END_TEST

/* Branches on both cards and the host that meet again: everybody waits for the right event. */
START_TEST(branches_on_all_devices_meet) {
    static const char *const devices[] = { "/gpu:0", "/gpu:1", "/cpu:0" };
    struct bench bench;
    struct allot_tensor *fed = numbers(5000), *tensor;

    bench_open(&bench, SIM_LIB_DIR);
    for (unsigned threads = 1; threads <= 3; threads++) {
        struct edge x, ends[9], sum;
        struct engine_run run = { 0 };

        session_open(&bench, threads);
        x = source(&bench, "Placeholder", NULL, 5000);
        for (int b = 0; b < 9; b++) {
            ends[b] = x;
            for (int i = 0; i < 10; i++)
                ends[b] = next(&bench, devices[(b + i / 3) % 3], ends[b]);
        }
        sum = (struct edge){ add(&bench, "AddN", "/cpu:0", ends, 9, NULL, 0), 0 };
        for (int round = 0; round < 5; round++) {
            struct engine_call call = { &x, 1, &sum, 1, NULL, 0 };
            int r = engine_run(bench.engine, &call, &run, &fed, &tensor, &bench.err);

            ck_assert_msg(r == 0, "%s", bench.err.text);
            check_numbers(tensor, 9, 10);
            allot_tensor_unref(tensor);
        }
        session_close(&bench);
    }
    allot_tensor_unref(fed);
    bench_close(&bench);
}
END_TEST

START_TEST(variables_live_on_their_device) {
    struct bench bench;
    struct allot_tensor *fed = numbers(2000);

    bench_open(&bench, SIM_LIB_DIR);
    for (unsigned threads = 1; threads <= 2; threads++) {
        struct edge x, v, read, y;
        uint32_t put, step;
        struct engine_run run = { 0 };

        session_open(&bench, threads);
        x = source(&bench, "Placeholder", NULL, 2000);
        v = source(&bench, "Variable", "/gpu:1", 2000);
        put = add(&bench, "Put", NULL, (struct edge[]){ v, x }, 2, NULL, 0);
        ck_assert_int_eq(build_read(bench.graph, v, true, &read, &bench.err), 0);
        y = next(&bench, NULL, read);
        step = add(&bench, "Put", NULL, (struct edge[]){ v, y }, 2, NULL, 0);
        ck_assert_int_eq(engine_run(bench.engine, &(struct engine_call){ &x, 1, NULL, 0, &put, 1 },
                                    &run, &fed, NULL, &bench.err),
                         0);
        for (int i = 1; i <= 20; i++) {
            int r = engine_run(bench.engine, &(struct engine_call){ NULL, 0, NULL, 0, &step, 1 },
                               &run, NULL, NULL, &bench.err);

            ck_assert_msg(r == 0, "%s", bench.err.text);
            check_run(&bench, x, NULL, v, (float)i);
        }
        ck_assert_str_eq(placed(&bench, v), "/job:localhost/replica:0/task:0/device:GPU:1");
        session_close(&bench);
    }
    allot_tensor_unref(fed);
    bench_close(&bench);
}
END_TEST

/* Everything that a session took of the cards is given back with it. */
START_TEST(memory_goes_back) {
    struct bench bench;
    struct allot_tensor *fed = numbers(1 << 20);
    struct edge x, y;

    bench_open(&bench, SIM_LIB_DIR);
    session_open(&bench, 1);
    x = y = source(&bench, "Placeholder", NULL, 1 << 20);
    for (int i = 0; i < 6; i++)
        y = next(&bench, i % 2 ? "/gpu:1" : "/gpu:0", y);
    check_run(&bench, x, fed, y, 6);
    ck_assert_uint_gt(sim_box_used(&bench.box, 0), 4 << 20);
    session_close(&bench);
    ck_assert_uint_eq(sim_box_used(&bench.box, 0), 0);
    ck_assert_uint_eq(sim_box_used(&bench.box, 1), 0);
    allot_tensor_unref(fed);
    bench_close(&bench);
}
END_TEST

/* More items of the host than threads wait for a GPU, which waits for the last item of the host:
 * who blocked a thread for one of them would never come to it. Fetches, from pageable memory, too.
 */
START_TEST(nobody_waits_while_there_is_work) {
    struct bench bench;
    struct allot_tensor *fed = numbers(1000);

    bench_open(&bench, SIM_LIB_DIR);
    for (unsigned threads = 1; threads <= 3; threads++) {
        struct edge x, held, slow[5], freed, fetches[6];
        struct allot_tensor *tensors[6];

        session_open(&bench, threads);
        x = source(&bench, "Placeholder", NULL, 1000);
        held = one_op(&bench, "Hold", "/gpu:0", x);
        for (int i = 0; i < 5; i++)
            slow[i] = fetches[i] = i < 4 ? next(&bench, "/cpu:0", held) : held;
        freed = x;
        for (int i = 0; i < 20; i++)
            freed = next(&bench, threads > 1 && i % 3 == 0 ? "/gpu:1" : "/cpu:0", freed);
        fetches[5] = one_op(&bench, "LetGo", "/cpu:0", freed);
        for (int round = 0; round < 10; round++) {
            struct engine_call call = { &x, 1, fetches, 6, NULL, 0 };
            struct engine_run run = { 0 };
            int r = engine_run(bench.engine, &call, &run, &fed, tensors, &bench.err);

            ck_assert_msg(r == 0, "%s", bench.err.text);
            for (int i = 0; i < 6; i++) {
                float plus = i < 4 ? 2 : i < 5 ? 1 : 21;

                for (int k = 0; k < 1000; k++)
                    ck_assert_float_eq(((float *)tensor_data(tensors[i]))[k], (float)k + plus);
                allot_tensor_unref(tensors[i]);
            }
        }
        ck_assert_str_eq(placed(&bench, slow[0]), "/job:localhost/replica:0/task:0/device:CPU:0");
        session_close(&bench);
    }
    allot_tensor_unref(fed);
    bench_close(&bench);
}
END_TEST

/* CheckNumerics is done by the host wherever it is placed: not before the bytes are there. */
START_TEST(ops_that_read_on_the_host_have_the_bytes) {
    struct bench bench;

    bench_open(&bench, SIM_LIB_DIR);
    for (unsigned threads = 1; threads <= 2; threads++) {
        struct edge x, y;
        uint32_t free_it;

        session_open(&bench, threads);
        x = source(&bench, "Placeholder", NULL, 100);
        y = one_op(&bench, "CheckNumerics", "/gpu:0", one_op(&bench, "Hold", "/gpu:0", x));
        y = next(&bench, "/gpu:0", y);
        free_it = one_op(&bench, "LetGo", "/cpu:0", x).node;
        for (int round = 0; round < 10; round++) {
            struct allot_tensor *fed = numbers(100), *tensor;
            struct engine_call call = { &x, 1, &y, 1, &free_it, 1 };
            struct engine_run run = { 0 };
            int r;

            ((float *)tensor_data(fed))[7] = (float)round;
            r = engine_run(bench.engine, &call, &run, &fed, &tensor, &bench.err);
            ck_assert_msg(r == 0, "%s", bench.err.text);
            ck_assert_float_eq(((float *)tensor_data(tensor))[7], (float)round + 2);
            allot_tensor_unref(tensor);
            allot_tensor_unref(fed);
        }
        session_close(&bench);
    }
    bench_close(&bench);
}
END_TEST

/* A kernel that faults: items of the host that wait for it do not wait for ever, and are not run.
 */
START_TEST(faults_reach_those_who_wait) {
    struct bench bench;
    struct allot_tensor *fed = numbers(1000);

    bench_open(&bench, SIM_LIB_DIR);
    for (unsigned threads = 1; threads <= 3; threads++) {
        struct edge x, y;
        struct engine_call call = { &x, 1, &y, 1, NULL, 0 };
        struct engine_run run = { 0 };
        struct allot_tensor *tensor;

        session_open(&bench, threads);
        x = source(&bench, "Placeholder", NULL, 1000);
        y = next(&bench, "/gpu:1", next(&bench, "/cpu:0", one_op(&bench, "Crash", "/gpu:0", x)));
        ck_assert_int_eq(engine_run(bench.engine, &call, &run, &fed, &tensor, &bench.err), -EFAULT);
        ck_assert_msg(strstr(bench.err.text, "CUDA_ERROR_ILLEGAL_ADDRESS"), "%s", bench.err.text);
        session_close(&bench);
    }
    allot_tensor_unref(fed);
    bench_close(&bench);
}
END_TEST

/* With one thread everything is queued in the same order, and waited for at the same points. */
START_TEST(modelled_time_is_the_same_in_every_run) {
    static const char *const devices[] = { "/gpu:0", "/cpu:0", "/gpu:1", "/gpu:0", "/cpu:0" };
    unsigned long long (*clock)(void), first = 0;
    struct bench bench;
    struct allot_tensor *fed = numbers(30000);
    struct edge x, ends[6], sum;
    void *library;

    bench_open(&bench, SIM_LIB_DIR);
    session_open(&bench, 1);
    library = dlopen(SIM_LIB_DIR "/libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    ck_assert_ptr_nonnull(library);
    clock = (unsigned long long (*)(void))dlsym(library, "gpusimHostClock");
    x = source(&bench, "Placeholder", NULL, 30000);
    for (int b = 0; b < 6; b++) {
        ends[b] = x;
        for (int i = 0; i < 9; i++)
            ends[b] = next(&bench, devices[(b + i) % 5], ends[b]);
    }
    sum = (struct edge){ add(&bench, "AddN", "/cpu:0", ends, 6, NULL, 0), 0 };
    for (int round = 0; round < 12; round++) {
        struct engine_call call = { &x, 1, &sum, 1, NULL, 0 };
        struct engine_run run = { 0 };
        struct allot_tensor *tensor;
        unsigned long long before = clock(), took;
        int r = engine_run(bench.engine, &call, &run, &fed, &tensor, &bench.err);

        ck_assert_msg(r == 0, "%s", bench.err.text);
        allot_tensor_unref(tensor);
        took = clock() - before;
        if (round == 1) /* the first made the plan, too */
            first = took;
        ck_assert(round < 2 || took == first);
    }
    ck_assert_uint_gt(first, 0);
    dlclose(library);
    allot_tensor_unref(fed);
    session_close(&bench);
    bench_close(&bench);
}
END_TEST

/* Of all sizes, in one block: what goes by itself, what is gathered, and what is more than is
 * gathered at once. */
START_TEST(constants_are_there_whatever_their_size) {
    enum { N = 40 };
    static const int64_t sizes[] = { 1, 3000, 1, 1 << 21, 65, 64, 7, 100000 };
    struct allot_tensor *tensors[N];
    struct edge fetches[N];
    struct bench bench;

    bench_open(&bench, SIM_LIB_DIR);
    session_open(&bench, 2);
    for (int i = 0; i < N; i++) {
        struct allot_tensor *tensor = numbers(sizes[i % (int)ELEMENTSOF(sizes)] + i / 8);
        struct build_attr attrs[] = { { "T", attr_dtype(DTYPE_F32) },
                                      { "value", attr_tensor(tensor) } };
        struct edge constant = { add(&bench, "Const", NULL, NULL, 0, attrs, 2), 0 };

        fetches[i] = next(&bench, i % 3 ? "/gpu:0" : "/gpu:1", constant);
        allot_tensor_unref(tensor);
    }
    for (int round = 0; round < 2; round++) {
        struct engine_call call = { NULL, 0, fetches, N, NULL, 0 };
        struct engine_run run = { 0 };
        int r = engine_run(bench.engine, &call, &run, NULL, tensors, &bench.err);

        ck_assert_msg(r == 0, "%s", bench.err.text);
        for (int i = 0; i < N; i++) {
            ck_assert_int_eq(allot_tensor_count(tensors[i]),
                             sizes[i % (int)ELEMENTSOF(sizes)] + i / 8);
            check_numbers(tensors[i], 1, 1);
            allot_tensor_unref(tensors[i]);
        }
    }
    session_close(&bench);
    bench_close(&bench);
}
END_TEST

SUITE_TIMEOUT("exec-gpu", 120, nobody_waits_while_there_is_work,
              ops_that_read_on_the_host_have_the_bytes, faults_reach_those_who_wait,
              modelled_time_is_the_same_in_every_run, ops_go_to_the_first_gpu,
              values_follow_their_users_over_devices, branches_on_all_devices_meet,
              variables_live_on_their_device, memory_goes_back,
              constants_are_there_whatever_their_size)
