/* SPDX-License-Identifier: Apache-2.0 */
/* Threads on one arena: no overlap, no leak, numbers exact; under the thread sanitizer no race. */
#include <pthread.h>
#include <stdatomic.h>

#include "allocator/allocator.h"
#include "base/error.h"
#include "base/random.h"
#include "tests/support/shadow.h"
#include "tests/support/suite.h"

#define THREADS 4
#define SHARED  64

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define STEPS 4000
#else
#define STEPS 30000
#endif

struct block {
    uint64_t address, handle, bytes; /* handle 0: of the pointer API */
};

static struct shadow *shadow;
static struct arena *arena;
static _Atomic(struct block *) shared[SHARED]; /* blocks that change hands */
static _Atomic uint64_t live_bytes, n_allocs, n_frees;

static struct block *take(uint64_t *random) {
    struct arena_request request = { .bytes = random_next(random) % 9000,
                                     .flags = random_next(random) % 64 ? 0 : ARENA_PLAIN };
    struct block *block = calloc(1, sizeof(*block));
    struct arena_block got;
    int r;

    ck_assert_ptr_nonnull(block);
    if (random_next(random) % 16 == 0)
        request.bytes = random_next(random) % 300000;
    if (random_next(random) % 4 == 0)
        r = arena_alloc_pointer(arena, &request, &block->address, NULL);
    else {
        r = arena_alloc(arena, &request, &got, NULL);
        block->address = got.address;
        block->handle = got.handle;
    }
    if (r < 0) {
        free(block);
        return NULL;
    }
    block->bytes = request.bytes;
    shadow_take(shadow, block->address, block->bytes, 0, 0);
    atomic_fetch_add(&live_bytes, block->bytes);
    atomic_fetch_add(&n_allocs, 1);
    return block;
}

static void give(struct block *block) {
    shadow_give(shadow, block->address, block->bytes, NULL, 0);
    atomic_fetch_sub(&live_bytes, block->bytes);
    atomic_fetch_add(&n_frees, 1);
    ck_assert_int_eq(block->handle ? arena_dealloc(arena, block->handle)
                                   : arena_dealloc_pointer(arena, block->address),
                     0);
    free(block);
}

static void *work(void *userdata) {
    uint64_t random = (uintptr_t)userdata;
    struct block *own[32] = { 0 };

    for (unsigned n = 0; n < STEPS; n++) {
        struct block **at = &own[random_next(&random) % ELEMENTSOF(own)];

        if (*at)
            give(*at);
        *at = take(&random);
        if (n % 16 == 0) /* hand it to whoever comes by, and free what lay there */
            *at = atomic_exchange(&shared[random_next(&random) % SHARED], *at);
        if (n % 512 == 0) {
            struct arena_stats stats;

            arena_get_stats(arena, &stats);
            ck_assert_uint_le(stats.live_bytes, stats.peak_live_bytes);
            ck_assert_uint_eq(stats.used_bytes + stats.free_bytes <= stats.reserved_bytes, true);
        }
        if (n % 2048 == 0)
            arena_trim(arena, 0, NULL);
    }
    for (unsigned n = 0; n < ELEMENTSOF(own); n++)
        if (own[n])
            give(own[n]);
    return NULL;
}

static void right(void) {
    struct allot_error err = { 0 };
    struct arena_stats stats;

    ck_assert_msg(arena_check(arena, &err) == 0, "%s", err.text);
    ck_assert_msg(!shadow_mistake(shadow), "%s", shadow_mistake(shadow));
    arena_get_stats(arena, &stats);
    ck_assert_uint_eq(stats.live_bytes, atomic_load(&live_bytes));
    ck_assert_uint_eq(stats.allocs, atomic_load(&n_allocs));
    ck_assert_uint_eq(stats.frees, atomic_load(&n_frees));
    ck_assert_uint_eq(stats.reserved_bytes, shadow_mapped_bytes(shadow));
}

static void run_threads(void *(*function)(void *userdata), unsigned seed) {
    pthread_t threads[THREADS];

    for (uintptr_t n = 0; n < THREADS; n++)
        ck_assert_int_eq(pthread_create(&threads[n], NULL, function, (void *)(n + seed)), 0);
    for (unsigned n = 0; n < THREADS; n++)
        pthread_join(threads[n], NULL);
}

START_TEST(threads_that_share_blocks_never_get_the_same_bytes) {
    static const struct shadow_options kinds[] = {
        { .span_bytes = 256u << 20, .page_bytes = 64 << 10, .regions = true },
        { .span_bytes = 256u << 20, .page_bytes = 64 << 10, .device_bytes = 2 << 20 },
        { .page_bytes = 64 << 10 },
    };

    for (unsigned kind = 0; kind < ELEMENTSOF(kinds); kind++) {
        struct arena_stats stats;

        live_bytes = n_allocs = n_frees = 0;
        ck_assert_int_eq(shadow_new(&shadow, &kinds[kind]), 0);
        ck_assert_int_eq(arena_new(&arena, shadow_source(shadow),
                                   &(struct arena_options){ .cap_bytes = 16 << 20,
                                                            .max_shards = 3,
                                                            .history = kind ? 0 : 32 },
                                   NULL),
                         0);
        run_threads(work, kind * 100 + 1);
        right();
        for (unsigned n = 0; n < SHARED; n++) {
            struct block *block = atomic_exchange(&shared[n], NULL);

            if (block)
                give(block);
        }
        right();
        arena_get_stats(arena, &stats);
        ck_assert_uint_eq(stats.live_bytes, 0);
        arena_trim(arena, 0, NULL);
        ck_assert_uint_eq(shadow_mapped_bytes(shadow), 0);
        arena = arena_free(arena);
        ck_assert_msg(!shadow_mistake(shadow), "%s", shadow_mistake(shadow));
        shadow = shadow_free(shadow);
    }
}
END_TEST

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static uint64_t model_live, model_peak;
static _Atomic bool serial;

/* First at the same time, so that the threads spread over shards; then one at a time, so that the
 * true peak is known. */
static void *climb(void *userdata) {
    uint64_t random = (uintptr_t)userdata;
    struct arena_block blocks[64] = { 0 };
    uint64_t sizes[64];

    for (unsigned n = 0; n < STEPS; n++) {
        unsigned at = random_next(&random) % 64;
        struct arena_request request = { .bytes = random_next(&random) % 5000 + 1 };

        if (atomic_load(&serial))
            pthread_mutex_lock(&turn);
        if (blocks[at].handle) {
            ck_assert_int_eq(arena_dealloc(arena, blocks[at].handle), 0);
            blocks[at].handle = 0;
            if (atomic_load(&serial))
                model_live -= sizes[at];
        } else {
            request.bytes *= atomic_load(&serial) ? 4 : 1;
            ck_assert_int_eq(arena_alloc(arena, &request, &blocks[at], NULL), 0);
            sizes[at] = request.bytes;
            if (atomic_load(&serial)) {
                struct arena_stats stats;

                model_live += request.bytes;
                model_peak = MAX(model_peak, model_live);
                if (n % 64 == 0) {
                    arena_get_stats(arena, &stats);
                    ck_assert_uint_eq(stats.live_bytes, model_live);
                    ck_assert_uint_eq(stats.peak_live_bytes, MAX(model_peak, stats.live_bytes));
                }
            }
        }
        if (atomic_load(&serial))
            pthread_mutex_unlock(&turn);
    }
    for (unsigned n = 0; n < 64; n++)
        if (blocks[n].handle) {
            if (atomic_load(&serial))
                pthread_mutex_lock(&turn);
            ck_assert_int_eq(arena_dealloc(arena, blocks[n].handle), 0);
            if (atomic_load(&serial)) {
                model_live -= sizes[n];
                pthread_mutex_unlock(&turn);
            }
        }
    return NULL;
}

START_TEST(the_peak_over_all_shards_is_exact) {
    struct arena_stats stats;
    struct allot_error err = { 0 };

    ck_assert_int_eq(shadow_new(&shadow, &(struct shadow_options){ .span_bytes = 256u << 20,
                                                                   .page_bytes = 64 << 10 }),
                     0);
    ck_assert_int_eq(arena_new(&arena, shadow_source(shadow),
                               &(struct arena_options){ .cap_bytes = 16 << 20, .max_shards = 4 },
                               NULL),
                     0);
    run_threads(climb, 1);
    arena_get_stats(arena, &stats);
    ck_assert_uint_eq(stats.live_bytes, 0);
    model_peak = stats.peak_live_bytes;
    atomic_store(&serial, true);
    run_threads(climb, 50);
    arena_get_stats(arena, &stats);
    ck_assert_uint_eq(stats.peak_live_bytes, model_peak);
    ck_assert_msg(arena_check(arena, &err) == 0, "%s", err.text);
    arena = arena_free(arena);
    shadow = shadow_free(shadow);
}
END_TEST

SUITE_TIMEOUT("arena-threads", 120, threads_that_share_blocks_never_get_the_same_bytes,
              the_peak_over_all_shards_is_exact)
