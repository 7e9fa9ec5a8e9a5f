/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans of large graphs: how long they take, and that a time limit or a cancellation ends them.
 * Times are of the thread's own CPU: what others do on the machine is not in them.
 */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "libclient/allot/custom.h"
#include "libclient/allot/session.h"
#include "libclient/allot/train.h"
#include "tests/support/suite.h"

#if SUITE_IS_SANITIZED
enum { N_OPS = 15000, LATE_USEC = 500000 };
#else
enum { N_OPS = 60000, LATE_USEC = 50000 };
#endif

static struct allot_error err;

static void must(int r) {
    ck_assert_msg(r == 0, "%s", err.text);
}

/* A graph of `n` adds in some form, of one number that is fed; what comes out of it. */
struct world {
    struct allot_graph *graph;
    struct allot_output x, y;
    float expected; /* for an x of 1 */
};

/* Each adds its own constant to what the one before made. */
static void make_constants(struct world *world, int n) {
    world->y = world->x;
    for (int i = 0; i < n; i++)
        world->y = allot_add(world->y, allot_scalar(world->graph, ALLOT_F32, i % 2 ? -1 : 1));
    world->expected = n % 2 ? 2 : 1;
}

/* All read the same two. */
static void make_readers(struct world *world, int n) {
    struct allot_output *sums = calloc((size_t)n, sizeof(*sums));
    struct allot_output one = allot_neg(allot_neg(world->x));

    ck_assert_ptr_nonnull(sums);
    for (int i = 0; i < n; i++)
        sums[i] = allot_add(world->x, one);
    while (n > 1) {
        int n_groups = (n + 99) / 100;

        for (int g = 0; g < n_groups; g++)
            sums[g] = allot_add_n(&sums[g * 100], (size_t)(n - g * 100 < 100 ? n - g * 100 : 100));
        n = n_groups;
    }
    world->y = allot_sign(sums[0]);
    world->expected = 1;
    free(sums);
}

/* Pairs of pairs. */
static void make_tree(struct world *world, int n) {
    struct allot_output *sums = calloc((size_t)n, sizeof(*sums));

    ck_assert_ptr_nonnull(sums);
    for (int i = 0; i < n / 2; i++)
        sums[i] = allot_neg(world->x);
    for (int left = n / 2; left > 1; left /= 2)
        for (int i = 0; i < left / 2; i++)
            sums[i] = allot_add(sums[2 * i], sums[2 * i + 1]);
    world->y = allot_sign(sums[0]);
    world->expected = -1;
    free(sums);
}

static void (*const forms[])(struct world *world, int n) = { make_constants, make_readers,
                                                             make_tree };

static void world_open(struct world *world, size_t form, int n) {
    must(allot_graph_new(&world->graph, &err));
    world->x = allot_placeholder(world->graph, "x", ALLOT_F32, 0, NULL);
    forms[form](world, n);
    must(allot_graph_error(world->graph, &err));
}

static void world_close(struct world *world) {
    allot_graph_unref(world->graph);
}

struct bench {
    struct allot_session *session;
    struct allot_callable *callable;
};

static void bench_open(struct bench *bench, const struct world *world, unsigned threads) {
    struct allot_session_options options = ALLOT_SESSION_OPTIONS_INIT;

    options.cpu_only = true;
    options.inter_op_threads = threads;
    options.intra_op_threads = 1;
    must(allot_session_new(&bench->session, world->graph, &options, &err));
    must(allot_callable_new(&bench->callable, bench->session, &world->x, 1, &world->y, 1, NULL, 0,
                            &err));
}

static void bench_close(struct bench *bench) {
    allot_callable_free(bench->callable);
    allot_session_free(bench->session);
}

/* One run with an x of 1; what it took of this thread. */
static int run(const struct bench *bench, const struct world *world, uint64_t limit_usec,
               struct allot_cancel *cancel, bool *ret_planned, uint64_t *ret_usec) {
    struct allot_run_metadata metadata = { .size = sizeof(metadata) };
    struct allot_run_options options = ALLOT_RUN_OPTIONS_INIT;
    const float one = 1;
    struct allot_tensor *fed, *value = NULL;
    int r;

    options.timeout_usec = limit_usec;
    options.cancel = cancel;
    options.metadata = &metadata;
    must(allot_tensor_copy_of(&fed, ALLOT_F32, 0, NULL, &one, &err));
    *ret_usec = clock_usec(CLOCK_THREAD_CPUTIME_ID);
    r = allot_callable_run(bench->callable, &options, &fed, &value, &err);
    *ret_usec = clock_usec(CLOCK_THREAD_CPUTIME_ID) - *ret_usec;
    *ret_planned = metadata.was_planned;
    if (r == 0)
        ck_assert_float_eq(*(float *)allot_tensor_data(value), world->expected);
    allot_tensor_unref(value);
    allot_tensor_unref(fed);
    return r;
}

static void check_limits(const struct world *world, unsigned threads) {
    uint64_t usec, whole_usec;
    struct bench bench;
    bool planned;

    bench_open(&bench, world, threads);
    must(run(&bench, world, 0, NULL, &planned, &whole_usec));
    ck_assert(planned);
    bench_close(&bench);
    /* In all steps of the plan; the first limit is over before the first of them is. */
    for (uint64_t part = 0; part < 7; part++) {
        uint64_t limit_usec = part ? whole_usec * part / 7 : 100;
        int r;

        bench_open(&bench, world, threads);
        r = run(&bench, world, limit_usec, NULL, &planned, &usec);
        ck_assert_msg(usec <= limit_usec + LATE_USEC, "%llu us, with a limit of %llu us",
                      (unsigned long long)usec, (unsigned long long)limit_usec);
        ck_assert(r == 0 || r == -ETIMEDOUT);
        if (part == 0)
            ck_assert(r == -ETIMEDOUT && !planned);
        if (!planned && part % 3 == 0) {
            must(run(&bench, world, 0, NULL, &planned, &usec));
            ck_assert(planned);
        }
        bench_close(&bench);
    }
}

START_TEST(a_time_limit_ends_a_plan_and_the_next_run_makes_it) {
    for (size_t form = 0; form < ELEMENTSOF(forms); form++) {
        struct world world;

        world_open(&world, form, N_OPS);
        for (unsigned threads = 1; threads <= 2; threads++)
            check_limits(&world, threads);
        world_close(&world);
    }
}
END_TEST

START_TEST(a_cancellation_ends_a_plan) {
    struct allot_cancel *cancel;
    struct world world;
    struct bench bench;
    uint64_t usec;
    bool planned;

    world_open(&world, 0, N_OPS);
    bench_open(&bench, &world, 2);
    must(allot_cancel_new(&cancel, &err));
    allot_cancel_now(cancel);
    ck_assert_int_eq(run(&bench, &world, 0, cancel, &planned, &usec), -ECANCELED);
    ck_assert_str_eq(err.text, "the run was cancelled");
    ck_assert(!planned && usec < LATE_USEC);
    must(run(&bench, &world, 0, NULL, &planned, &usec));
    ck_assert(planned);
    allot_cancel_free(cancel);
    bench_close(&bench);
    world_close(&world);
}
END_TEST

/* The least of a few, for `n` adds. */
static uint64_t plan_usec(size_t form, int n) {
    uint64_t least_usec = UINT64_MAX;
    struct world world;

    world_open(&world, form, n);
    for (int round = 0; round < 3; round++) {
        struct bench bench;
        uint64_t usec;
        bool planned;

        bench_open(&bench, &world, 2);
        must(run(&bench, &world, 0, NULL, &planned, &usec));
        ck_assert(planned);
        least_usec = usec < least_usec ? usec : least_usec;
        bench_close(&bench);
    }
    world_close(&world);
    return least_usec;
}

START_TEST(a_plan_takes_time_in_proportion_to_its_graph) {
    for (size_t form = 0; form < ELEMENTSOF(forms); form++) {
        uint64_t few = plan_usec(form, N_OPS / 5), many = plan_usec(form, N_OPS / 5 * 4);

        /* Four times as many: 4, with caches that are too small 6; squared it would be 16. */
        ck_assert_msg(many < 10 * few, "form %zu: %llu us, then %llu us", form,
                      (unsigned long long)few, (unsigned long long)many);
    }
}
END_TEST

/* An op whose shapes can be made to wait for leave: then a plan is under way. */
static atomic_bool waits;
static sem_t begun, leave;

static int wait_shape(struct allot_shapes *shapes, void *userdata) {
    if (atomic_load(&waits)) {
        sem_post(&begun);
        while (sem_wait(&leave) < 0)
            ;
    }
    return allot_shapes_as_input(shapes, userdata);
}

static int copy_compute(const struct allot_call *call, void *userdata) {
    *(float *)call->outputs[0].data = *(const float *)call->inputs[0].data;
    return 0;
}

struct other_run {
    struct bench bench;
    const struct world *world;
    int r;
};

static void *plan(void *userdata) {
    struct other_run *other_run = userdata;
    uint64_t usec;
    bool planned;

    other_run->r = run(&other_run->bench, other_run->world, 0, NULL, &planned, &usec);
    return NULL;
}

START_TEST(others_run_or_are_stopped_while_a_plan_is_made) {
    struct allot_op_options options = { .size = sizeof(options),
                                        .name = "Wait",
                                        .signature = "(x: f32) -> (y: f32)",
                                        .shape = wait_shape,
                                        .compute = copy_compute };
    struct world slow, ready, other;
    struct other_run other_run = { .world = &slow };
    struct bench bench, another;
    struct allot_cancel *cancel;
    struct allot_node *node;
    struct allot_op *op;
    pthread_t thread;
    uint64_t usec;
    bool planned;

    ck_assert(sem_init(&begun, 0, 0) == 0 && sem_init(&leave, 0, 0) == 0);
    must(allot_op_register(&options, &err));
    world_open(&slow, 0, 2);
    ready = other = slow;
    op = allot_op_begin(slow.graph, "Wait", NULL);
    allot_op_input(op, slow.x);
    must(allot_op_finish(op, &node, &err));
    slow.y = (struct allot_output){ node, 0 };
    other.y = allot_neg(slow.x);
    other.expected = -1;

    bench_open(&bench, &ready, 2);
    must(run(&bench, &ready, 0, NULL, &planned, &usec));
    other_run.bench.session = another.session = bench.session;
    must(allot_callable_new(&other_run.bench.callable, bench.session, &slow.x, 1, &slow.y, 1, NULL,
                            0, &err));
    must(allot_callable_new(&another.callable, bench.session, &other.x, 1, &other.y, 1, NULL, 0,
                            &err));
    atomic_store(&waits, true);
    ck_assert_int_eq(pthread_create(&thread, NULL, plan, &other_run), 0);
    while (sem_wait(&begun) < 0)
        ;

    /* What has its plan runs; what has none waits for its turn, until it is stopped. */
    must(run(&bench, &ready, 0, NULL, &planned, &usec));
    ck_assert(!planned);
    ck_assert_int_eq(run(&another, &other, 1000, NULL, &planned, &usec), -ETIMEDOUT);
    must(allot_cancel_new(&cancel, &err));
    allot_cancel_now(cancel);
    ck_assert_int_eq(run(&another, &other, 0, cancel, &planned, &usec), -ECANCELED);
    ck_assert(!planned);

    atomic_store(&waits, false);
    sem_post(&leave);
    pthread_join(thread, NULL);
    must(other_run.r);
    must(run(&another, &other, 60000000, NULL, &planned, &usec));
    ck_assert(planned);
    allot_cancel_free(cancel);
    allot_callable_free(other_run.bench.callable);
    allot_callable_free(another.callable);
    bench_close(&bench);
    world_close(&slow);
}
END_TEST

SUITE_TIMEOUT("plan-build", 240, a_time_limit_ends_a_plan_and_the_next_run_makes_it,
              a_cancellation_ends_a_plan, a_plan_takes_time_in_proportion_to_its_graph,
              others_run_or_are_stopped_while_a_plan_is_made)
