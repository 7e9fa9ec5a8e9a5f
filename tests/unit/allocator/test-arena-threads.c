/* SPDX-License-Identifier: Apache-2.0 */
/* Threads on one arena: no overlap, no leak, numbers exact; under the thread sanitizer no race. */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "allocator/thread_shard.h"
#include "base/error.h"
#include "base/random.h"
#include "tests/support/allocator/device_oracle.h"
#include "tests/support/suite.h"

#define THREADS 4
#define SHARED  64

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define STEPS 4000
#else
#define STEPS 30000
#endif

struct block {
    uint64_t address, handle, bytes;
    uint8_t stream;
};

static struct device_oracle *oracle;
static struct arena *arena;
static _Atomic(struct block *) shared[SHARED]; /* blocks that change hands */
static _Atomic uint64_t live_bytes, n_allocs, n_frees;
static unsigned n_streams;

static struct block *take(uint64_t *random) {
    struct arena_request request = { .bytes = random_next(random) % 9000,
                                     .flags = random_next(random) % 64 ? 0 : ARENA_PLAIN };
    struct block *block = calloc(1, sizeof(*block));
    struct arena_block got;
    int r;

    ck_assert_ptr_nonnull(block);
    if (n_streams)
        request.stream = block->stream = (uint8_t)(random_next(random) % (n_streams + 1));
    if (random_next(random) % 16 == 0)
        request.bytes = random_next(random) % 300000;
    r = arena_alloc(arena, &request, &got, NULL);
    if (r < 0) {
        free(block);
        return NULL;
    }
    block->address = got.address;
    block->handle = got.handle;
    block->bytes = request.bytes;
    device_oracle_take(oracle, block->address, block->bytes, 0, block->stream);
    atomic_fetch_add(&live_bytes, block->bytes);
    atomic_fetch_add(&n_allocs, 1);
    return block;
}

/*
 * Free on the block's own stream and sometimes on another too, so that some blocks wait for two; or
 * only on another, or plainly, although the stream may still work on what the memory was before.
 */
static void give(struct block *block, uint64_t *random) {
    uint8_t streams[2] = { block->stream, 0 };
    unsigned n = block->stream != 0;

    if (n) {
        uint8_t other = (uint8_t)(block->stream % n_streams + 1);

        switch (random_next(random) % 8) {
        case 0:
            streams[n++] = other;
            break;
        case 1:
            streams[0] = other;
            break;
        case 2:
            n = 0;
            break;
        }
    }
    device_oracle_give(oracle, block->address, block->bytes, streams, n);
    atomic_fetch_sub(&live_bytes, block->bytes);
    atomic_fetch_add(&n_frees, 1);
    ck_assert_int_eq(arena_dealloc(arena, block->handle, streams, n), 0);
    free(block);
}

static void *work(void *userdata) {
    uint64_t random = (uintptr_t)userdata;
    struct block *own[32] = { 0 };

    for (unsigned n = 0; n < STEPS; n++) {
        struct block **at = &own[random_next(&random) % ELEMENTSOF(own)];

        if (*at)
            give(*at, &random);
        *at = take(&random);
        if (n % 16 == 0) /* hand it to another thread, and free the block that was there */
            *at = atomic_exchange(&shared[random_next(&random) % SHARED], *at);
        if (n % 32 == 0) {
            struct arena_stats stats;

            arena_get_stats(arena, &stats);
            ck_assert_uint_le(stats.live_bytes, stats.peak_live_bytes);
            ck_assert_uint_eq(stats.used_bytes + stats.free_bytes, stats.reserved_bytes);
        }
        if (n % 1024 == 0)
            arena_trim(arena, 0, NULL);
        if (n_streams && n % 4 == 0)
            device_oracle_run(oracle, 1 + (unsigned)(random_next(&random) % n_streams));
        if (n_streams && n % 64 == 0)
            stream_poll(arena);
    }
    for (unsigned n = 0; n < ELEMENTSOF(own); n++)
        if (own[n])
            give(own[n], &random);
    return NULL;
}

static void right(void) {
    struct allot_error err = { 0 };
    struct arena_stats stats;

    ck_assert_msg(arena_check(arena, &err) == 0, "%s", err.text);
    ck_assert_msg(!device_oracle_mistake(oracle), "%s", device_oracle_mistake(oracle));
    arena_get_stats(arena, &stats);
    ck_assert_uint_eq(stats.live_bytes, atomic_load(&live_bytes));
    ck_assert_uint_eq(stats.allocs, atomic_load(&n_allocs));
    ck_assert_uint_eq(stats.frees, atomic_load(&n_frees));
    ck_assert_uint_eq(stats.reserved_bytes, device_oracle_mapped_bytes(oracle));
}

static void run_threads(void *(*function)(void *userdata), unsigned seed) {
    pthread_t threads[THREADS];

    for (uintptr_t n = 0; n < THREADS; n++)
        ck_assert_int_eq(pthread_create(&threads[n], NULL, function, (void *)(n + seed)), 0);
    for (unsigned n = 0; n < THREADS; n++)
        pthread_join(threads[n], NULL);
}

START_TEST(threads_that_share_blocks_never_get_the_same_bytes) {
    static const struct device_oracle_options kinds[] = {
        { .span_bytes = 256u << 20, .page_bytes = 64 << 10, .regions = true },
        { .span_bytes = 256u << 20, .page_bytes = 64 << 10, .device_bytes = 2 << 20 },
        { .page_bytes = 64 << 10 },
        /* the same with streams, which wait on the device, on the host, or not at all */
        { .span_bytes = 256u << 20, .page_bytes = 64 << 10, .regions = true },
        { .span_bytes = 256u << 20, .page_bytes = 64 << 10, .no_order = true },
        { .page_bytes = 64 << 10, .no_order = true, .no_wait = true },
    };
    uint64_t random = 7;

    for (unsigned kind = 0; kind < ELEMENTSOF(kinds); kind++) {
        struct arena_stats stats;

        live_bytes = n_allocs = n_frees = 0;
        ck_assert_int_eq(device_oracle_new(&oracle, &kinds[kind]), 0);
        ck_assert_int_eq(
            arena_new(&arena, device_oracle_source(oracle),
                      &(struct arena_options){ .cap_bytes = 16 << 20,
                                               .max_shards = 3,
                                               .stream_ops = device_oracle_stream_ops(),
                                               .stream_userdata = oracle },
                      NULL),
            0);
        n_streams = kind < 3 ? 0 : DEVICE_ORACLE_STREAMS;
        for (uint8_t s = 1, number; s <= n_streams; s++)
            ck_assert_int_eq(arena_stream_new(arena, s, &number), 0);
        run_threads(work, kind * 100 + 1);
        right();
        for (unsigned n = 0; n < SHARED; n++) {
            struct block *block = atomic_exchange(&shared[n], NULL);

            if (block)
                give(block, &random);
        }
        right();
        arena_get_stats(arena, &stats);
        ck_assert_uint_eq(stats.live_bytes, 0);
        /* Records and queries of the fake fail now and then. */
        for (unsigned n = 0; stats.pending_bytes && n < 1000; n++) {
            for (unsigned k = 0; k < 400000 / 1000; k++)
                for (unsigned s = 1; s <= n_streams; s++)
                    device_oracle_run(oracle, s);
            stream_poll(arena);
            arena_get_stats(arena, &stats);
        }
        arena_trim(arena, 0, NULL);
        ck_assert_uint_eq(device_oracle_mapped_bytes(oracle), 0);
        arena = arena_free(arena);
        ck_assert_msg(!device_oracle_mistake(oracle), "%s", device_oracle_mistake(oracle));
        oracle = device_oracle_free(oracle);
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
            ck_assert_int_eq(arena_dealloc(arena, blocks[at].handle, NULL, 0), 0);
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
            ck_assert_int_eq(arena_dealloc(arena, blocks[n].handle, NULL, 0), 0);
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

    ck_assert_int_eq(
        device_oracle_new(&oracle, &(struct device_oracle_options){ .span_bytes = 256u << 20,
                                                                    .page_bytes = 64 << 10 }),
        0);
    ck_assert_int_eq(arena_new(&arena, device_oracle_source(oracle),
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
    oracle = device_oracle_free(oracle);
}
END_TEST

#define ARENAS 6
static struct arena *arenas[ARENAS];
static pthread_barrier_t barrier;
static bool moved;

/* Does this thread come to the second shard to allocate, wherever it then finds memory? */
static bool is_in_second(struct arena *of) {
    struct arena_block block;

    if (of->shards[1])
        of->shards[1]->allocates = NULL;
    ck_assert_int_eq(arena_alloc(of, &(struct arena_request){ .bytes = 1 }, &block, NULL), 0);
    ck_assert_int_eq(arena_dealloc(of, block.handle, NULL, 0), 0);
    return of->shards[1] && of->shards[1]->allocates;
}

/* In each arena this thread meets another until it moves on; then it must still know where to. */
static void *move_on_in_all(void *userdata) {
    for (unsigned k = 0; k < ARENAS; k++)
        do {
            pthread_barrier_wait(&barrier);
            moved = is_in_second(arenas[k]);
            pthread_barrier_wait(&barrier);
        } while (!moved);
    for (unsigned k = 0; k < ARENAS; k++)
        ck_assert(is_in_second(arenas[k]));
    return NULL;
}

/* A thread that allocates once and stays until it is told to leave. */
struct visitor {
    struct arena *arena;
    pthread_t thread;
    sem_t arrived, leave;
    bool second; /* it came to the second shard */
};

static void *visit(void *userdata) {
    struct visitor *visitor = userdata;

    visitor->second = is_in_second(visitor->arena);
    sem_post(&visitor->arrived);
    sem_wait(&visitor->leave);
    return NULL;
}

static void visitor_begins(struct visitor *visitor, struct arena *in) {
    visitor->arena = in;
    sem_init(&visitor->arrived, 0, 0);
    sem_init(&visitor->leave, 0, 0);
    ck_assert_int_eq(pthread_create(&visitor->thread, NULL, visit, visitor), 0);
}

static void visitor_leaves(struct visitor *visitor) {
    sem_post(&visitor->leave);
    pthread_join(visitor->thread, NULL);
    sem_destroy(&visitor->arrived);
    sem_destroy(&visitor->leave);
}

/* Of threads that come to an arena of two shards each begins where the fewest are, and they leave
 * it as they found it. */
static void find_homes(struct arena *in) {
    for (unsigned round = 0; round < 3; round++) {
        struct visitor visitors[2];

        for (unsigned n = 0; n < 2; n++) {
            ck_assert_uint_eq(in->shards[n]->residents, 0);
            visitor_begins(&visitors[n], in);
            sem_wait(&visitors[n].arrived);
            ck_assert_int_eq(visitors[n].second, n);
            ck_assert_uint_eq(in->shards[n]->residents, 1);
        }
        visitor_leaves(&visitors[0]);
        ck_assert_uint_eq(in->shards[0]->residents, 0);
        visitor_leaves(&visitors[1]);
    }
}

START_TEST(a_thread_keeps_its_shard_in_each_of_many_arenas) {
    pthread_t thread;

    pthread_barrier_init(&barrier, NULL, 2);
    ck_assert_int_eq(
        device_oracle_new(&oracle, &(struct device_oracle_options){ .page_bytes = 64 << 10 }), 0);
    for (unsigned k = 0; k < ARENAS; k++)
        ck_assert_int_eq(arena_new(&arenas[k], device_oracle_source(oracle),
                                   &(struct arena_options){ .max_shards = 2 }, NULL),
                         0);
    ck_assert_int_eq(pthread_create(&thread, NULL, move_on_in_all, NULL), 0);
    for (unsigned k = 0; k < ARENAS; k++)
        do {
            struct shard *shard = arenas[k]->shards[0];

            /* As a thread does that allocates here just when the other one wants to. */
            lock_take(&shard->lock);
            shard->allocates = &oracle;
            pthread_barrier_wait(&barrier);
            nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
            lock_drop(&shard->lock);
            pthread_barrier_wait(&barrier);
        } while (!moved);
    pthread_join(thread, NULL);
    for (unsigned k = 0; k < ARENAS; k++) {
        find_homes(arenas[k]);
        arenas[k] = arena_free(arenas[k]);
    }
    oracle = device_oracle_free(oracle);
    pthread_barrier_destroy(&barrier);
}
END_TEST

START_TEST(an_arena_too_many_for_homes_has_one_shard) {
    static struct arena *many[THREAD_SHARD_ARENAS + 1];

    ck_assert_int_eq(
        device_oracle_new(&oracle, &(struct device_oracle_options){ .page_bytes = 64 << 10 }), 0);
    for (unsigned k = 0; k < ELEMENTSOF(many); k++) {
        ck_assert_int_eq(arena_new(&many[k], device_oracle_source(oracle),
                                   &(struct arena_options){ .max_shards = 2 }, NULL),
                         0);
        ck_assert_uint_eq(many[k]->max_shards, k < THREAD_SHARD_ARENAS ? 2 : 1);
    }
    /* The others do not notice it. */
    for (unsigned k = 0; k < 8; k++) {
        struct shard *shard = many[THREAD_SHARD_ARENAS]->shards[0];
        struct visitor visitor;

        lock_take(&shard->lock);
        shard->allocates = &oracle;
        visitor_begins(&visitor, many[THREAD_SHARD_ARENAS]);
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
        lock_drop(&shard->lock);
        sem_wait(&visitor.arrived);
        ck_assert(!visitor.second);
        visitor_leaves(&visitor);
    }
    ck_assert_uint_eq(many[THREAD_SHARD_ARENAS]->n_shards, 1);
    ck_assert_uint_eq(many[0]->shards[0]->residents, 0);

    /* A slot that an arena gives up goes to another arena. */
    many[3] = arena_free(many[3]);
    ck_assert_int_eq(arena_new(&many[3], device_oracle_source(oracle),
                               &(struct arena_options){ .max_shards = 2 }, NULL),
                     0);
    ck_assert_uint_eq(many[3]->max_shards, 2);
    for (unsigned k = 0; k < ELEMENTSOF(many); k++)
        many[k] = arena_free(many[k]);
    oracle = device_oracle_free(oracle);
}
END_TEST

SUITE_TIMEOUT("arena-threads", 240, threads_that_share_blocks_never_get_the_same_bytes,
              the_peak_over_all_shards_is_exact, a_thread_keeps_its_shard_in_each_of_many_arenas,
              an_arena_too_many_for_homes_has_one_shard)
