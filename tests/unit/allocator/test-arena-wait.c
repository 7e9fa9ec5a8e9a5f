/* SPDX-License-Identifier: Apache-2.0 */
/* A source that would have to wait says so, and no other thread is blocked by it. */
#include <errno.h>
#include <pthread.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "tests/support/allocator/arena_fixture.h"

/* Gives what it was paid for, and notes what is missing. */
struct payer {
    uint64_t paid_bytes, asked_bytes;
    unsigned n_asked;
    bool refuses; /* instead of waiting */
};

static int pay(struct payer *payer, uint64_t bytes) {
    payer->n_asked++;
    if (bytes <= payer->paid_bytes) {
        payer->paid_bytes -= bytes;
        return 0;
    }
    payer->asked_bytes = bytes;
    return payer->refuses ? -ENOSPC : -EAGAIN;
}

static int pay_grow(void *userdata, uint64_t offset, uint64_t bytes, uint64_t *ret_bytes) {
    return pay(userdata, bytes);
}

static int pay_region(void *userdata, uint64_t bytes, uint64_t *ret_address) {
    static uint64_t next = (uint64_t)1 << 41;
    int r = pay(userdata, bytes);

    if (r == 0) {
        *ret_address = next;
        next += bytes;
    }
    return r;
}

static int give_up(void *userdata, uint64_t address, uint64_t bytes) {
    return 0;
}

static struct arena *payer_open(struct payer *payer, bool has_span) {
    struct mem_source source = { .userdata = payer, .page_bytes = PAGE };
    struct arena *made;

    if (has_span) {
        source.base = (uint64_t)1 << 40;
        source.span_bytes = MIB(256);
        source.grow = pay_grow;
        source.trim = give_up;
    } else {
        source.region_new = pay_region;
        source.region_free = give_up;
    }
    *payer = (struct payer){ 0 };
    ck_assert_int_eq(arena_new(&made, &source,
                               &(struct arena_options){ .cap_bytes = MIB(64), .max_shards = 1 },
                               NULL),
                     0);
    return made;
}

START_TEST(what_has_to_be_waited_for_is_asked_for_once_and_not_a_failure) {
    for (int has_span = 0; has_span < 2; has_span++) {
        struct payer payer;
        struct arena *a = payer_open(&payer, has_span);
        struct arena_stats now;
        struct allot_error err = { 0 };
        struct arena_block block;

        ck_assert_int_eq(arena_alloc(a, &(struct arena_request){ .bytes = MIB(6) }, &block, &err),
                         -EAGAIN);
        ck_assert_msg(strstr(err.text, "wait for"), "%s", err.text);
        /* No smaller piece, no other way. */
        ck_assert_uint_eq(payer.n_asked, 1);
        ck_assert_uint_ge(payer.asked_bytes, MIB(6));
        arena_get_stats(a, &now);
        ck_assert_uint_eq(now.failures, 0);
        ck_assert_uint_eq(now.refusals, 0);
        ck_assert_uint_eq(now.reserved_bytes, 0);
        ck_assert_int_eq(arena_check(a, &err), 0);

        payer.paid_bytes = payer.asked_bytes;
        ck_assert_int_eq(arena_alloc(a, &(struct arena_request){ .bytes = MIB(6) }, &block, &err),
                         0);
        ck_assert_uint_eq(payer.paid_bytes, 0);
        ck_assert_int_eq(arena_dealloc(a, block.handle, NULL, 0), 0);
        ck_assert_int_eq(arena_check(a, &err), 0);
        arena_free(a);
    }
}
END_TEST

/* Beyond what is refused, what can be had is found, and only the rest is to be waited for. */
START_TEST(after_a_refusal_the_rest_is_what_is_waited_for) {
    struct payer payer;
    struct arena *a = payer_open(&payer, true);
    struct arena_block blocks[3];

    payer.paid_bytes = MIB(24);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(
            arena_alloc(a, &(struct arena_request){ .bytes = MIB(8) }, &blocks[i], NULL), 0);
    payer.paid_bytes = 0;
    payer.refuses = true;
    arena_dealloc(a, blocks[0].handle, NULL, 0);
    ck_assert_int_eq(arena_alloc(a, &(struct arena_request){ .bytes = MIB(12) }, blocks, NULL),
                     -ENOMEM);
    /* 8 MiB are free, though elsewhere. */
    ck_assert_uint_eq(payer.asked_bytes, MIB(4));
    arena_free(a);
}
END_TEST

static pthread_barrier_t meet;

static void *alloc_beside(void *userdata) {
    struct arena_block block;

    ck_assert_int_eq(
        arena_alloc(userdata, &(struct arena_request){ .bytes = MIB(40) }, &block, NULL), -EAGAIN);
    /* This thread would wait now. */
    pthread_barrier_wait(&meet);
    pthread_barrier_wait(&meet);
    return NULL;
}

START_TEST(a_caller_that_waits_outside_blocks_no_other) {
    struct payer payer;
    struct arena *a = payer_open(&payer, true);
    struct arena_block block;
    pthread_t thread;

    pthread_barrier_init(&meet, NULL, 2);
    ck_assert_int_eq(pthread_create(&thread, NULL, alloc_beside, a), 0);
    pthread_barrier_wait(&meet);
    payer.paid_bytes = MIB(4);
    ck_assert_int_eq(arena_alloc(a, &(struct arena_request){ .bytes = MIB(4) }, &block, NULL), 0);
    ck_assert_int_eq(arena_trim(a, 0, NULL), 0);
    pthread_barrier_wait(&meet);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&meet);
    arena_free(a);
}
END_TEST

SUITE("arena-wait", what_has_to_be_waited_for_is_asked_for_once_and_not_a_failure,
      after_a_refusal_the_rest_is_what_is_waited_for, a_caller_that_waits_outside_blocks_no_other)
