/* SPDX-License-Identifier: Apache-2.0 */
/* Runs on GPUs of a simulated box: copies between devices, order between streams, memory. */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/core/tensor.h"
#include "libclient/device/device.h"
#include "sim/box/fault.h"
#include "tests/support/libclient/exec/engine/gpu_fixture.h"
#include "tests/support/suite.h"

static const char *placed(const struct gpu_fixture *fixture, struct edge edge) {
    return fixture->engine->devices[fixture->engine->placement.devices[edge.node]]->name;
}

START_TEST(ops_go_to_the_first_gpu) {
    struct gpu_fixture fixture;
    struct allot_tensor *fed = numbers(1000);
    struct edge x, y;

    gpu_fixture_open(&fixture, SIM_LIB_DIR);
    gpu_fixture_session_open(&fixture, 1);
    x = source(&fixture, "Placeholder", NULL, 1000);
    y = next(&fixture, NULL, x);
    check_run(&fixture, x, fed, y, 1);
    ck_assert_str_eq(placed(&fixture, y), "/job:localhost/replica:0/task:0/device:GPU:0");
    allot_tensor_unref(fed);
    gpu_fixture_session_close(&fixture);
    gpu_fixture_close(&fixture);
}
END_TEST

START_TEST(values_follow_their_users_over_devices) {
    static const char *const devices[] = { "/gpu:0", "/gpu:1", "/cpu:0", NULL };
    struct gpu_fixture fixture;
    struct allot_tensor *fed = numbers(3000);

    gpu_fixture_open(&fixture, SIM_LIB_DIR);
    for (unsigned threads = 1; threads <= 3; threads++) {
        struct edge x, y;

        gpu_fixture_session_open(&fixture, threads);
        x = y = source(&fixture, "Placeholder", NULL, 3000);
        for (int i = 0; i < 40; i++)
            y = next(&fixture, devices[(i * 7 / 3) % 4], y);
        for (int round = 0; round < 5; round++)
            check_run(&fixture, x, fed, y, 40);
        gpu_fixture_session_close(&fixture);
    }
    allot_tensor_unref(fed);
    gpu_fixture_close(&fixture);
}
END_TEST

/* Branches on both cards and the host that meet again: all wait for the right event. */
START_TEST(branches_on_all_devices_meet) {
    static const char *const devices[] = { "/gpu:0", "/gpu:1", "/cpu:0" };
    struct gpu_fixture fixture;
    struct allot_tensor *fed = numbers(5000), *tensor;

    gpu_fixture_open(&fixture, SIM_LIB_DIR);
    for (unsigned threads = 1; threads <= 3; threads++) {
        struct edge x, ends[9], sum;
        struct engine_run run = { 0 };

        gpu_fixture_session_open(&fixture, threads);
        x = source(&fixture, "Placeholder", NULL, 5000);
        for (int b = 0; b < 9; b++) {
            ends[b] = x;
            for (int i = 0; i < 10; i++)
                ends[b] = next(&fixture, devices[(b + i / 3) % 3], ends[b]);
        }
        sum = (struct edge){ add(&fixture, "AddN", "/cpu:0", ends, 9, NULL, 0), 0 };
        for (int round = 0; round < 5; round++) {
            struct engine_call call = { &x, 1, &sum, 1, NULL, 0 };
            int r = engine_run(fixture.engine, &call, &run, &fed, &tensor, &fixture.err);

            ck_assert_msg(r == 0, "%s", fixture.err.text);
            check_numbers(tensor, 9, 10);
            allot_tensor_unref(tensor);
        }
        gpu_fixture_session_close(&fixture);
    }
    allot_tensor_unref(fed);
    gpu_fixture_close(&fixture);
}
END_TEST

START_TEST(variables_live_on_their_device) {
    struct gpu_fixture fixture;
    struct allot_tensor *fed = numbers(2000);

    gpu_fixture_open(&fixture, SIM_LIB_DIR);
    for (unsigned threads = 1; threads <= 2; threads++) {
        struct edge x, v, read, y;
        uint32_t put, step;
        struct engine_run run = { 0 };

        gpu_fixture_session_open(&fixture, threads);
        x = source(&fixture, "Placeholder", NULL, 2000);
        v = source(&fixture, "Variable", "/gpu:1", 2000);
        put = add(&fixture, "Put", NULL, (struct edge[]){ v, x }, 2, NULL, 0);
        ck_assert_int_eq(build_read(fixture.graph, v, true, &read, &fixture.err), 0);
        y = next(&fixture, NULL, read);
        step = add(&fixture, "Put", NULL, (struct edge[]){ v, y }, 2, NULL, 0);
        ck_assert_int_eq(engine_run(fixture.engine,
                                    &(struct engine_call){ &x, 1, NULL, 0, &put, 1 }, &run, &fed,
                                    NULL, &fixture.err),
                         0);
        for (int i = 1; i <= 20; i++) {
            int r = engine_run(fixture.engine, &(struct engine_call){ NULL, 0, NULL, 0, &step, 1 },
                               &run, NULL, NULL, &fixture.err);

            ck_assert_msg(r == 0, "%s", fixture.err.text);
            check_run(&fixture, x, NULL, v, (float)i);
        }
        ck_assert_str_eq(placed(&fixture, v), "/job:localhost/replica:0/task:0/device:GPU:1");
        gpu_fixture_session_close(&fixture);
    }
    allot_tensor_unref(fed);
    gpu_fixture_close(&fixture);
}
END_TEST

/* Everything that a session took of the cards is given back with it. */
START_TEST(memory_goes_back) {
    struct gpu_fixture fixture;
    struct allot_tensor *fed = numbers(1 << 20);
    struct edge x, y;

    gpu_fixture_open(&fixture, SIM_LIB_DIR);
    gpu_fixture_session_open(&fixture, 1);
    x = y = source(&fixture, "Placeholder", NULL, 1 << 20);
    for (int i = 0; i < 6; i++)
        y = next(&fixture, i % 2 ? "/gpu:1" : "/gpu:0", y);
    check_run(&fixture, x, fed, y, 6);
    ck_assert_uint_gt(sim_box_used(&fixture.box, 0), 4 << 20);
    gpu_fixture_session_close(&fixture);
    ck_assert_uint_eq(sim_box_used(&fixture.box, 0), 0);
    ck_assert_uint_eq(sim_box_used(&fixture.box, 1), 0);
    allot_tensor_unref(fed);
    gpu_fixture_close(&fixture);
}
END_TEST

/*
 * More items of the host than threads wait for a GPU, which waits for the last item of the host: if
 * items blocked threads, that one would never run. The same for fetches, from pageable memory.
 */
START_TEST(no_thread_waits_while_there_is_work) {
    struct gpu_fixture fixture;
    struct allot_tensor *fed = numbers(1000);

    gpu_fixture_open(&fixture, SIM_LIB_DIR);
    for (unsigned threads = 1; threads <= 3; threads++) {
        struct edge x, held, slow[5], freed, fetches[6];
        struct allot_tensor *tensors[6];

        gpu_fixture_session_open(&fixture, threads);
        x = source(&fixture, "Placeholder", NULL, 1000);
        held = one_op(&fixture, "Hold", "/gpu:0", x);
        for (int i = 0; i < 5; i++)
            slow[i] = fetches[i] = i < 4 ? next(&fixture, "/cpu:0", held) : held;
        freed = x;
        for (int i = 0; i < 20; i++)
            freed = next(&fixture, threads > 1 && i % 3 == 0 ? "/gpu:1" : "/cpu:0", freed);
        fetches[5] = one_op(&fixture, "LetGo", "/cpu:0", freed);
        for (int round = 0; round < 10; round++) {
            struct engine_call call = { &x, 1, fetches, 6, NULL, 0 };
            struct engine_run run = { 0 };
            int r = engine_run(fixture.engine, &call, &run, &fed, tensors, &fixture.err);

            ck_assert_msg(r == 0, "%s", fixture.err.text);
            for (int i = 0; i < 6; i++) {
                float plus = i < 4 ? 2 : i < 5 ? 1 : 21;

                for (int k = 0; k < 1000; k++)
                    ck_assert_float_eq(((float *)tensor_data(tensors[i]))[k], (float)k + plus);
                allot_tensor_unref(tensors[i]);
            }
        }
        ck_assert_str_eq(placed(&fixture, slow[0]), "/job:localhost/replica:0/task:0/device:CPU:0");
        gpu_fixture_session_close(&fixture);
    }
    allot_tensor_unref(fed);
    gpu_fixture_close(&fixture);
}
END_TEST

/* CheckNumerics is done by the host wherever it is placed: not before the bytes are there. */
START_TEST(ops_that_read_on_the_host_have_the_bytes) {
    struct gpu_fixture fixture;

    gpu_fixture_open(&fixture, SIM_LIB_DIR);
    for (unsigned threads = 1; threads <= 2; threads++) {
        struct edge x, y;
        uint32_t free_it;

        gpu_fixture_session_open(&fixture, threads);
        x = source(&fixture, "Placeholder", NULL, 100);
        y = one_op(&fixture, "CheckNumerics", "/gpu:0", one_op(&fixture, "Hold", "/gpu:0", x));
        y = next(&fixture, "/gpu:0", y);
        free_it = one_op(&fixture, "LetGo", "/cpu:0", x).node;
        for (int round = 0; round < 10; round++) {
            struct allot_tensor *fed = numbers(100), *tensor;
            struct engine_call call = { &x, 1, &y, 1, &free_it, 1 };
            struct engine_run run = { 0 };
            int r;

            ((float *)tensor_data(fed))[7] = (float)round;
            r = engine_run(fixture.engine, &call, &run, &fed, &tensor, &fixture.err);
            ck_assert_msg(r == 0, "%s", fixture.err.text);
            ck_assert_float_eq(((float *)tensor_data(tensor))[7], (float)round + 2);
            allot_tensor_unref(tensor);
            allot_tensor_unref(fed);
        }
        gpu_fixture_session_close(&fixture);
    }
    gpu_fixture_close(&fixture);
}
END_TEST

/* A kernel that faults: items of the host that wait for it do not wait for ever, and are not run.
 */
START_TEST(faults_reach_items_that_wait) {
    struct gpu_fixture fixture;
    struct allot_tensor *fed = numbers(1000);

    gpu_fixture_open(&fixture, SIM_LIB_DIR);
    for (unsigned threads = 1; threads <= 3; threads++) {
        struct edge x, y;
        struct engine_call call = { &x, 1, &y, 1, NULL, 0 };
        struct engine_run run = { 0 };
        struct allot_tensor *tensor;

        gpu_fixture_session_open(&fixture, threads);
        x = source(&fixture, "Placeholder", NULL, 1000);
        y = next(&fixture, "/gpu:1",
                 next(&fixture, "/cpu:0", one_op(&fixture, "Crash", "/gpu:0", x)));
        ck_assert_int_eq(engine_run(fixture.engine, &call, &run, &fed, &tensor, &fixture.err),
                         -EFAULT);
        ck_assert_msg(strstr(fixture.err.text, "CUDA_ERROR_ILLEGAL_ADDRESS"), "%s",
                      fixture.err.text);
        gpu_fixture_session_close(&fixture);
    }
    allot_tensor_unref(fed);
    gpu_fixture_close(&fixture);
}
END_TEST

/* A run that could not make its events fails; the next one makes all of them, and runs. */
START_TEST(events_that_could_not_be_made_are_made_by_the_next_run) {
    const struct box_fault fault = { .kind = FAULT_CALL_FAIL,
                                     .gpu = -1,
                                     .code = 2, /* CUDA_ERROR_OUT_OF_MEMORY */
                                     .call = "cuEventCreate",
                                     .remaining = 1 };
    struct gpu_fixture fixture;
    struct allot_tensor *fed = numbers(1000), *tensor;
    struct engine_run run = { 0 };
    struct edge x, y;
    struct engine_call call = { &x, 1, &y, 1, NULL, 0 };
    uint32_t id;

    gpu_fixture_open(&fixture, SIM_LIB_DIR);
    gpu_fixture_session_open(&fixture, 1);
    /* The first session of a process has events of its own to make. */
    x = source(&fixture, "Placeholder", NULL, 1000);
    check_run(&fixture, x, fed, next(&fixture, "/gpu:0", x), 1);
    y = next(&fixture, "/cpu:0", next(&fixture, "/gpu:1", next(&fixture, "/gpu:0", x)));
    ck_assert_int_eq(box_lock(fixture.box.box), 0);
    ck_assert_int_eq(fault_add(fixture.box.box, &fault, &id), 0);
    box_unlock(fixture.box.box);
    ck_assert_int_eq(engine_run(fixture.engine, &call, &run, &fed, &tensor, &fixture.err), -ENOMEM);
    for (int round = 0; round < 2; round++)
        check_run(&fixture, x, fed, y, 3);
    allot_tensor_unref(fed);
    gpu_fixture_session_close(&fixture);
    gpu_fixture_close(&fixture);
}
END_TEST

/* With one thread everything is queued in the same order, and waited for at the same points. */
START_TEST(modelled_time_is_the_same_in_every_run) {
    static const char *const devices[] = { "/gpu:0", "/cpu:0", "/gpu:1", "/gpu:0", "/cpu:0" };
    unsigned long long (*clock)(void), first = 0;
    struct gpu_fixture fixture;
    struct allot_tensor *fed = numbers(30000);
    struct edge x, ends[6], sum;
    void *library;

    gpu_fixture_open(&fixture, SIM_LIB_DIR);
    gpu_fixture_session_open(&fixture, 1);
    library = dlopen(SIM_LIB_DIR "/libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    ck_assert_ptr_nonnull(library);
    clock = (unsigned long long (*)(void))dlsym(library, "gpusimHostClock");
    x = source(&fixture, "Placeholder", NULL, 30000);
    for (int b = 0; b < 6; b++) {
        ends[b] = x;
        for (int i = 0; i < 9; i++)
            ends[b] = next(&fixture, devices[(b + i) % 5], ends[b]);
    }
    sum = (struct edge){ add(&fixture, "AddN", "/cpu:0", ends, 6, NULL, 0), 0 };
    for (int round = 0; round < 12; round++) {
        struct engine_call call = { &x, 1, &sum, 1, NULL, 0 };
        struct engine_run run = { 0 };
        struct allot_tensor *tensor;
        unsigned long long before = clock(), took;
        int r = engine_run(fixture.engine, &call, &run, &fed, &tensor, &fixture.err);

        ck_assert_msg(r == 0, "%s", fixture.err.text);
        allot_tensor_unref(tensor);
        took = clock() - before;
        if (round == 1) /* the first made the plan, too */
            first = took;
        ck_assert(round < 2 || took == first);
    }
    ck_assert_uint_gt(first, 0);
    dlclose(library);
    allot_tensor_unref(fed);
    gpu_fixture_session_close(&fixture);
    gpu_fixture_close(&fixture);
}
END_TEST

/* Of all sizes, in one block: what goes by itself, what is gathered, and what is more than is
 * gathered at once. */
START_TEST(constants_are_there_whatever_their_size) {
    enum { N = 40 };
    static const int64_t sizes[] = { 1, 3000, 1, 1 << 21, 65, 64, 7, 100000 };
    struct allot_tensor *tensors[N];
    struct edge fetches[N];
    struct gpu_fixture fixture;

    gpu_fixture_open(&fixture, SIM_LIB_DIR);
    gpu_fixture_session_open(&fixture, 2);
    for (int i = 0; i < N; i++) {
        struct allot_tensor *tensor = numbers(sizes[i % (int)ELEMENTSOF(sizes)] + i / 8);
        struct build_attr attrs[] = { { "T", attr_dtype(DTYPE_F32) },
                                      { "value", attr_tensor(tensor) } };
        struct edge constant = { add(&fixture, "Const", NULL, NULL, 0, attrs, 2), 0 };

        fetches[i] = next(&fixture, i % 3 ? "/gpu:0" : "/gpu:1", constant);
        allot_tensor_unref(tensor);
    }
    for (int round = 0; round < 2; round++) {
        struct engine_call call = { NULL, 0, fetches, N, NULL, 0 };
        struct engine_run run = { 0 };
        int r = engine_run(fixture.engine, &call, &run, NULL, tensors, &fixture.err);

        ck_assert_msg(r == 0, "%s", fixture.err.text);
        for (int i = 0; i < N; i++) {
            ck_assert_int_eq(allot_tensor_count(tensors[i]),
                             sizes[i % (int)ELEMENTSOF(sizes)] + i / 8);
            check_numbers(tensors[i], 1, 1);
            allot_tensor_unref(tensors[i]);
        }
    }
    gpu_fixture_session_close(&fixture);
    gpu_fixture_close(&fixture);
}
END_TEST

SUITE_TIMEOUT("exec-gpu", 120, no_thread_waits_while_there_is_work,
              ops_that_read_on_the_host_have_the_bytes, faults_reach_items_that_wait,
              events_that_could_not_be_made_are_made_by_the_next_run,
              modelled_time_is_the_same_in_every_run, ops_go_to_the_first_gpu,
              values_follow_their_users_over_devices, branches_on_all_devices_meet,
              variables_live_on_their_device, memory_goes_back,
              constants_are_there_whatever_their_size)
