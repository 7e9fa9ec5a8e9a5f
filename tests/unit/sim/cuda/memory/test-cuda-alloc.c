/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sim/box/cgroup.h"
#include "sim/box/charge.h"
#include "sim/box/fault.h"
#include "tests/support/sim/cuda/cuda_library.h"
#include "tests/support/suite.h"

static uint64_t base_cost(struct sim_box *s) {
    return box_model(s->box, 0)->context_bytes;
}

START_TEST(small_allocations_share_a_granule_and_large_ones_take_whole_ones) {
    CUdeviceptr a, b, c;
    uint64_t empty;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    empty = sim_box_used(&s, 0);
    ck_assert_uint_eq(empty, base_cost(&s));
    a = cuda_library_alloc(1);
    b = cuda_library_alloc(513);
    ck_assert_uint_eq(a % 512, 0);
    ck_assert_uint_eq(b % 512, 0);
    ck_assert_uint_eq(sim_box_used(&s, 0), empty + 2 * MIB);
    c = cuda_library_alloc(2 * MIB + 1);
    ck_assert_uint_eq(sim_box_used(&s, 0), empty + 6 * MIB);
    ck_assert_cuda_ok(CU(cuMemFree_v2)(a));
    ck_assert_uint_eq(sim_box_used(&s, 0), empty + 6 * MIB);
    ck_assert_cuda_ok(CU(cuMemFree_v2)(b)); /* the block is empty */
    ck_assert_uint_eq(sim_box_used(&s, 0), empty + 4 * MIB);
    ck_assert_cuda_ok(CU(cuMemFree_v2)(c));
    ck_assert_uint_eq(sim_box_used(&s, 0), empty);
    sim_box_done(&s);
}
END_TEST

START_TEST(a_block_is_filled_before_another_is_taken) {
    CUdeviceptr p[4096];
    struct sim_box s;

    cuda_library_start(&s, NULL);
    for (unsigned i = 0; i < 4096; i++)
        p[i] = cuda_library_alloc(512);
    ck_assert_uint_eq(sim_box_used(&s, 0), base_cost(&s) + 2 * MIB);
    cuda_library_alloc(1);
    ck_assert_uint_eq(sim_box_used(&s, 0), base_cost(&s) + 4 * MIB);
    /* Every other one freed leaves room for small ones only. */
    for (unsigned i = 0; i < 4096; i += 2)
        ck_assert_cuda_ok(CU(cuMemFree_v2)(p[i]));
    for (unsigned i = 0; i < 2048; i++)
        cuda_library_alloc(300);
    cuda_library_alloc(MIB);
    ck_assert_uint_eq(sim_box_used(&s, 0), base_cost(&s) + 4 * MIB);
    sim_box_done(&s);
}
END_TEST

START_TEST(memory_is_out_exactly_at_capacity) {
    uint64_t capacity, room;
    CUdeviceptr p, q;
    struct sim_box s;
    size_t free_bytes, total;

    cuda_library_start(&s, NULL);
    capacity = box_capacity(s.box, (struct box_part){ 0, 0 });
    ck_assert_cuda_ok(CU(cuMemGetInfo_v2)(&free_bytes, &total));
    ck_assert_uint_eq(total, capacity);
    ck_assert_uint_eq(free_bytes, capacity - base_cost(&s));
    room = free_bytes / (2 * MIB) * (2 * MIB);
    ck_assert_cuda(CU(cuMemAlloc_v2)(&p, room + 1), CUDA_ERROR_OUT_OF_MEMORY);
    p = cuda_library_alloc(room);
    ck_assert_cuda(CU(cuMemAlloc_v2)(&q, 1), CUDA_ERROR_OUT_OF_MEMORY);
    ck_assert_uint_eq(cuda_library_free_bytes(), free_bytes - room);
    ck_assert_cuda_ok(CU(cuMemFree_v2)(p));
    p = cuda_library_alloc(room - 2 * MIB);
    q = cuda_library_alloc(1);
    ck_assert_cuda(CU(cuMemAlloc_v2)(&p, 2 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    ck_assert_cuda(CU(cuMemAlloc_v2)(&p, SIZE_MAX), CUDA_ERROR_OUT_OF_MEMORY);
    ck_assert_cuda(CU(cuMemAlloc_v2)(&p, SIZE_MAX - 3 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    sim_box_done(&s);
}
END_TEST

START_TEST(memory_is_out_at_the_limit_of_the_cgroup) {
    char cgroup[512];
    uint64_t hard;
    CUdeviceptr p;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    cgroup_self(cgroup, sizeof(cgroup));
    hard = base_cost(&s) + 10 * MIB;
    box_lock(s.box);
    ck_assert_int_eq(charge_limit_set(s.box, 0, cgroup, 0, hard), 0);
    box_unlock(s.box);
    ck_assert_uint_eq(cuda_library_free_bytes(), 10 * MIB);
    ck_assert_cuda(CU(cuMemAlloc_v2)(&p, 10 * MIB + 1), CUDA_ERROR_OUT_OF_MEMORY);
    p = cuda_library_alloc(10 * MIB);
    ck_assert_cuda(CU(cuMemAlloc_v2)(&p, 1), CUDA_ERROR_OUT_OF_MEMORY);
    /* Managed memory is not counted by the driver. */
    ck_assert_cuda_ok(CU(cuMemAllocManaged)(&p, 4 * MIB, CU_MEM_ATTACH_GLOBAL));
    ck_assert_cuda_ok(CU(cuMemPrefetchAsync)(p, 4 * MIB, 0, NULL));
    ck_assert_cuda_ok(CU(cuStreamSynchronize)(NULL));
    ck_assert_uint_eq(sim_box_used(&s, 0), hard + 4 * MIB);
    sim_box_done(&s);
}
END_TEST

START_TEST(an_injected_allocation_failure_is_out_of_memory) {
    struct box_fault fault = { .kind = FAULT_ALLOC_AFTER, .gpu = -1, .argument = 4 * MIB };
    CUdeviceptr p;
    struct sim_box s;
    uint32_t id;

    cuda_library_start(&s, NULL);
    box_lock(s.box);
    fault_add(s.box, &fault, &id);
    box_unlock(s.box);
    cuda_library_alloc(4 * MIB);
    ck_assert_cuda(CU(cuMemAlloc_v2)(&p, 2 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    box_lock(s.box);
    fault_clear(s.box, id);
    box_unlock(s.box);
    cuda_library_alloc(2 * MIB);
    sim_box_done(&s);
}
END_TEST

START_TEST(wrong_frees_are_refused) {
    CUdeviceptr small, large, p;
    char host[16];
    struct sim_box s;

    cuda_library_start(&s, NULL);
    small = cuda_library_alloc(1000);
    large = cuda_library_alloc(5 * MIB);
    ck_assert_cuda(CU(cuMemAlloc_v2)(&p, 0), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuMemAlloc_v2)(NULL, 1), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuMemFree_v2)(small + 512), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuMemFree_v2)(small + 1), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuMemFree_v2)(large + 2 * MIB), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuMemFree_v2)((uintptr_t)host), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuMemFree_v2)(0x1234), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuMemFree_v2)(UINT64_MAX), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda_ok(CU(cuMemFree_v2)(small));
    ck_assert_cuda(CU(cuMemFree_v2)(small), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda_ok(CU(cuMemFree_v2)(large));
    ck_assert_cuda(CU(cuMemFree_v2)(large), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuMemcpyHtoD_v2)(large, host, 1), CUDA_ERROR_INVALID_VALUE);
    sim_box_done(&s);
}
END_TEST

START_TEST(a_range_is_found_from_any_address_in_it) {
    CUdeviceptr small, large, base;
    size_t bytes;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    small = cuda_library_alloc(1000);
    large = cuda_library_alloc(5 * MIB + 7);
    ck_assert_cuda_ok(CU(cuMemGetAddressRange_v2)(&base, &bytes, small + 999));
    ck_assert_uint_eq(base, small);
    ck_assert_uint_eq(bytes, 1000);
    ck_assert_cuda_ok(CU(cuMemGetAddressRange_v2)(&base, NULL, large + 5 * MIB));
    ck_assert_uint_eq(base, large);
    ck_assert_cuda_ok(CU(cuMemGetAddressRange_v2)(NULL, &bytes, large));
    ck_assert_uint_eq(bytes, 5 * MIB + 7);
    ck_assert_cuda(CU(cuMemGetAddressRange_v2)(&base, &bytes, large + 5 * MIB + 7),
                   CUDA_ERROR_NOT_FOUND);
    ck_assert_cuda(CU(cuMemGetAddressRange_v2)(&base, &bytes, small + 1024), CUDA_ERROR_NOT_FOUND);
    sim_box_done(&s);
}
END_TEST

START_TEST(a_pitch_suits_every_row) {
    CUdeviceptr p;
    size_t pitch, bytes;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    ck_assert_cuda_ok(CU(cuMemAllocPitch_v2)(&p, &pitch, 1000, 7, 4));
    ck_assert_uint_eq(pitch, 1024);
    ck_assert_cuda_ok(CU(cuMemGetAddressRange_v2)(NULL, &bytes, p));
    ck_assert_uint_eq(bytes, 7 * 1024);
    ck_assert_cuda(CU(cuMemAllocPitch_v2)(&p, &pitch, 1000, 7, 3), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuMemAllocPitch_v2)(&p, &pitch, 0, 7, 4), CUDA_ERROR_INVALID_VALUE);
    ck_assert_cuda(CU(cuMemAllocPitch_v2)(&p, &pitch, 1000, SIZE_MAX / 3, 4),
                   CUDA_ERROR_OUT_OF_MEMORY);
    sim_box_done(&s);
}
END_TEST

/* Whether touching `p` ends a process with SIGSEGV. */
static bool faults(CUdeviceptr p, bool write_it) {
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL);
        if (write_it)
            *(volatile char *)(uintptr_t)p = 1;
        else
            (void)*(volatile char *)(uintptr_t)p;
        _exit(0);
    }
    waitpid(pid, &status, 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

static volatile sig_atomic_t caught;
static void *volatile landing;
static sigjmp_buf back;
static void on_fault(int number) {
    caught = number;
    siglongjmp(back, 1);
}

START_TEST(the_host_cannot_touch_device_memory) {
    struct sigaction action = { .sa_handler = on_fault }, before;
    CUdeviceptr p;
    struct sim_box s;

    cuda_library_start(&s, NULL);
    p = cuda_library_alloc(1000);
    /* In this process, not only in a child, which never has the addresses. */
    sigaction(SIGSEGV, &action, &before);
    if (!sigsetjmp(back, 1)) {
        landing = (void *)(uintptr_t)p;
        *(volatile char *)landing = 1;
    }
    ck_assert_int_eq(caught, SIGSEGV);
    caught = 0;
    if (!sigsetjmp(back, 1))
        (void)*(volatile char *)landing;
    ck_assert_int_eq(caught, SIGSEGV);
    sigaction(SIGSEGV, &before, NULL);
    ck_assert(faults(p, true));
    ck_assert(faults(p, false));
    sim_box_done(&s);
}
END_TEST

static uint64_t resident_bytes(void) {
    FILE *f = fopen("/proc/self/status", "r");
    unsigned long long kib = 0;
    char line[256];

    while (fgets(line, sizeof(line), f))
        sscanf(line, "RssShmem: %llu", &kib);
    fclose(f);
    return kib << 10;
}

START_TEST(memory_costs_the_host_only_what_was_written) {
    CUdeviceptr p[3];
    struct sim_box s;

    cuda_library_start(&s, &(struct box_spec){ .n_gpus = 1, .models = "a100-80g" });
    for (int i = 0; i < 3; i++)
        p[i] = cuda_library_alloc(20 * GIB);
    ck_assert_uint_lt(resident_bytes(), 64 * MIB);
    ck_assert_cuda_ok(CU(cuMemsetD8_v2)(p[1] + 7 * GIB, 1, 128 * MIB));
    ck_assert_cuda_ok(CU(cuCtxSynchronize)());
    ck_assert_uint_ge(resident_bytes(), 128 * MIB);
    ck_assert_cuda_ok(CU(cuMemFree_v2)(p[1]));
    ck_assert_uint_lt(resident_bytes(), 64 * MIB);
    sim_box_done(&s);
}
END_TEST

static int hold_until_killed(struct sim_box *s, void *argument) {
    struct cuda_library_pair *pair = argument;
    char byte = 0;

    cuda_library_use(0);
    cuda_library_alloc(100 * MIB);
    cuda_library_alloc(1);
    cuda_library_send(pair->to_parent[1], &byte, 1);
    pause();
    return 1;
}

START_TEST(what_a_killed_process_held_is_free_again) {
    struct cuda_library_pair pair;
    uint64_t before;
    struct sim_box s;
    char byte;
    pid_t pid;

    sim_box_init(&s, NULL);
    cuda_library_pair_init(&pair);
    pid = sim_box_fork(hold_until_killed, &s, &pair);
    cuda_library_receive(pair.to_parent[0], &byte, 1);
    cuda_library_use(0);
    before = cuda_library_free_bytes();
    ck_assert_uint_eq(sim_box_used(&s, 0), 2 * base_cost(&s) + 102 * MIB);
    sim_box_kill(pid);
    ck_assert_uint_eq(cuda_library_free_bytes(), before + base_cost(&s) + 102 * MIB);
    sim_box_done(&s);
}
END_TEST

/* A model of what every byte should hold. */
struct shadow {
    CUdeviceptr at;
    uint64_t bytes;
    unsigned char *content;
};

static uint64_t random_next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static uint64_t random_size(uint64_t *state) {
    switch (random_next(state) % 4) {
    case 0:
        return 1 + random_next(state) % 600;
    case 1:
        return 1 + random_next(state) % 100000;
    case 2:
        return 1 + random_next(state) % (2 * MIB);
    default:
        return 2 * MIB + random_next(state) % (3 * MIB);
    }
}

START_TEST(a_random_walk_agrees_with_its_shadow) {
    enum { N = 60 };
    uint64_t seed = (uint64_t)time(NULL) * 2654435761u | 1, state = seed;
    struct shadow live[N] = { 0 };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    unsigned steps = 200;
#else
    unsigned steps = 1500;
#endif
    struct sim_box s;

    if (getenv("ALLOT_SEED"))
        state = seed = strtoull(getenv("ALLOT_SEED"), NULL, 0);
    fprintf(stderr, "seed %#llx\n", (unsigned long long)seed);
    cuda_library_start(&s, NULL);
    for (unsigned step = 0; step < steps; step++) {
        struct shadow *a = &live[random_next(&state) % N], *b = &live[random_next(&state) % N];
        uint64_t n, from, to;

        if (!a->bytes) {
            a->bytes = random_size(&state);
            a->at = cuda_library_alloc(a->bytes);
            a->content = malloc(a->bytes);
            for (unsigned i = 0; i < N; i++)
                if (&live[i] != a && live[i].bytes)
                    ck_assert(a->at + a->bytes <= live[i].at ||
                              live[i].at + live[i].bytes <= a->at);
            memset(a->content, (int)step, a->bytes);
            ck_assert_cuda_ok(CU(cuMemsetD8_v2)(a->at, (unsigned char)step, a->bytes));
            continue;
        }
        from = random_next(&state) % a->bytes;
        switch (random_next(&state) % 5) {
        case 0: { /* free, after a last look */
            unsigned char *seen = malloc(a->bytes);

            ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(seen, a->at, a->bytes));
            ck_assert_int_eq(memcmp(seen, a->content, a->bytes), 0);
            free(seen);
            free(a->content);
            ck_assert_cuda_ok(CU(cuMemFree_v2)(a->at));
            *a = (struct shadow){ 0 };
            break;
        }
        case 1: /* host to device */
            n = 1 + random_next(&state) % (a->bytes - from);
            for (uint64_t i = 0; i < n; i += 1 + random_next(&state) % 4096)
                a->content[from + i] = (unsigned char)random_next(&state);
            ck_assert_cuda_ok(CU(cuMemcpyHtoD_v2)(a->at + from, a->content + from, n));
            break;
        case 2: /* between two */
            if (!b->bytes || a == b)
                break;
            to = random_next(&state) % b->bytes;
            n = a->bytes - from < b->bytes - to ? a->bytes - from : b->bytes - to;
            memcpy(b->content + to, a->content + from, n);
            ck_assert_cuda_ok(CU(cuMemcpyDtoD_v2)(b->at + to, a->at + from, n));
            break;
        case 3: /* past the end */
            ck_assert_cuda(CU(cuMemsetD8_v2)(a->at + from, 0, a->bytes - from + 1),
                           CUDA_ERROR_INVALID_VALUE);
            break;
        case 4:
            n = 1 + random_next(&state) % (a->bytes - from);
            memset(a->content + from, (int)step, n);
            ck_assert_cuda_ok(CU(cuMemsetD8_v2)(a->at + from, (unsigned char)step, n));
            break;
        }
        if (step % 64 == 0) {
            /* The charge: what large ones take, and blocks enough for the small ones. */
            uint64_t large = 0, small = 0, used = sim_box_used(&s, 0) - base_cost(&s);

            for (unsigned i = 0; i < N; i++)
                if (live[i].bytes >= 2 * MIB)
                    large += (live[i].bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
                else
                    small += (live[i].bytes + 511) / 512 * 512;
            ck_assert_uint_ge(used, large + small);
            ck_assert_uint_eq((used - large) % (2 * MIB), 0);
        }
    }
    for (unsigned i = 0; i < N; i++)
        if (live[i].bytes) {
            ck_assert_cuda_ok(CU(cuMemFree_v2)(live[i].at));
            free(live[i].content);
        }
    ck_assert_uint_eq(sim_box_used(&s, 0), base_cost(&s));
    sim_box_done(&s);
}
END_TEST

struct worker {
    CUcontext context;
    unsigned number;
};

static void *work(void *argument) {
    const struct worker *worker = argument;
    uint64_t state = 77 + worker->number;

    ck_assert_cuda_ok(CU(cuCtxSetCurrent)(worker->context));
    for (unsigned i = 0; i < 80; i++) {
        uint64_t bytes = random_size(&state), at = random_next(&state) % bytes;
        unsigned char value = (unsigned char)(worker->number * 50 + i), seen;
        CUdeviceptr p = cuda_library_alloc(bytes);

        ck_assert_cuda_ok(CU(cuMemsetD8_v2)(p, value, bytes));
        ck_assert_cuda_ok(CU(cuMemcpyDtoH_v2)(&seen, p + at, 1));
        ck_assert_uint_eq(seen, value);
        ck_assert_cuda_ok(CU(cuMemFree_v2)(p));
    }
    return NULL;
}

START_TEST(threads_do_not_disturb_each_other) {
    struct worker workers[4];
    pthread_t threads[4];
    struct sim_box s;

    cuda_library_start(&s, NULL);
    for (unsigned i = 0; i < 4; i++) {
        ck_assert_cuda_ok(CU(cuCtxGetCurrent)(&workers[i].context));
        workers[i].number = i;
        pthread_create(&threads[i], NULL, work, &workers[i]);
    }
    for (unsigned i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    ck_assert_uint_eq(sim_box_used(&s, 0), base_cost(&s));
    sim_box_done(&s);
}
END_TEST

SUITE("cuda-alloc", small_allocations_share_a_granule_and_large_ones_take_whole_ones,
      a_block_is_filled_before_another_is_taken, memory_is_out_exactly_at_capacity,
      memory_is_out_at_the_limit_of_the_cgroup, an_injected_allocation_failure_is_out_of_memory,
      wrong_frees_are_refused, a_range_is_found_from_any_address_in_it, a_pitch_suits_every_row,
      the_host_cannot_touch_device_memory, memory_costs_the_host_only_what_was_written,
      what_a_killed_process_held_is_free_again, a_random_walk_agrees_with_its_shadow,
      threads_do_not_disturb_each_other)
