/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "sim/time/timeline.h"
#include "tests/support/suite.h"

/* Only a test has a second timeline. */
static void forget(struct timeline *timeline) {
    free(timeline->heap);
    free(timeline->scratch);
}

static void resolve_all(struct timeline *timeline) {
    struct timeline_item *item;

    while ((item = timeline_next(timeline, NULL)))
        timeline_resolve(timeline, item);
    ck_assert_uint_eq(timeline->n_unresolved, 0);
}

START_TEST(a_stream_is_a_chain_with_launch_latency_between_its_links) {
    struct timeline timeline = { 0 };
    struct timeline_item a = { .engine = TIMELINE_COMPUTE,
                               .stream = 1,
                               .sequence = 1,
                               .latency_ns = 5,
                               .cost_known = true,
                               .cost_ns = 100 };
    struct timeline_item b = { .engine = TIMELINE_COMPUTE,
                               .stream = 1,
                               .sequence = 2,
                               .latency_ns = 5,
                               .cost_known = true,
                               .cost_ns = 50 };

    timeline_add(&timeline, &a, NULL, NULL, 0);
    timeline_add(&timeline, &b, &a, NULL, 0);
    resolve_all(&timeline);
    ck_assert_uint_eq(a.start_ns, 0);
    ck_assert_uint_eq(a.end_ns, 100);
    ck_assert_uint_eq(b.start_ns, 105);
    ck_assert_uint_eq(b.end_ns, 155);
    timeline_item_done(&a);
    forget(&timeline);
}
END_TEST

START_TEST(contention_goes_by_stream_not_by_arrival) {
    for (int swapped = 0; swapped < 2; swapped++) {
        struct timeline timeline = { 0 };
        struct timeline_item a = { .engine = TIMELINE_COMPUTE,
                                   .stream = 1,
                                   .sequence = 1,
                                   .cost_known = true,
                                   .cost_ns = 10 };
        struct timeline_item b = { .engine = TIMELINE_COMPUTE,
                                   .stream = 2,
                                   .sequence = 1,
                                   .cost_known = true,
                                   .cost_ns = 20 };

        timeline_add(&timeline, swapped ? &b : &a, NULL, NULL, 0);
        timeline_add(&timeline, swapped ? &a : &b, NULL, NULL, 0);
        resolve_all(&timeline);
        ck_assert_uint_eq(a.end_ns, 10);
        ck_assert_uint_eq(b.start_ns, 10);
        ck_assert_uint_eq(b.end_ns, 30);
        forget(&timeline);
    }
}
END_TEST

START_TEST(devices_and_the_directions_of_a_link_work_side_by_side) {
    struct timeline timeline = { 0 };
    struct timeline_item item[5] = {
        { .engine = TIMELINE_COMPUTE,
          .device = 0,
          .stream = 1,
          .sequence = 1,
          .cost_known = true,
          .cost_ns = 10 },
        { .engine = TIMELINE_COMPUTE,
          .device = 1,
          .stream = 2,
          .sequence = 1,
          .cost_known = true,
          .cost_ns = 10 },
        { .engine = TIMELINE_UPLOAD,
          .device = 0,
          .stream = 3,
          .sequence = 1,
          .cost_known = true,
          .cost_ns = 10 },
        { .engine = TIMELINE_DOWNLOAD,
          .device = 0,
          .stream = 4,
          .sequence = 1,
          .cost_known = true,
          .cost_ns = 10 },
        { .engine = TIMELINE_PEER,
          .device = 0,
          .peer = 1,
          .stream = 5,
          .sequence = 1,
          .cost_known = true,
          .cost_ns = 10 },
    };

    for (size_t i = 0; i < ELEMENTSOF(item); i++)
        timeline_add(&timeline, &item[i], NULL, NULL, 0);
    resolve_all(&timeline);
    for (size_t i = 0; i < ELEMENTSOF(item); i++)
        ck_assert_uint_eq(item[i].end_ns, 10);
    forget(&timeline);
}
END_TEST

START_TEST(the_host_clock_goes_on_by_waiting_and_by_its_own_work) {
    struct timeline timeline = { 0 };
    struct timeline_item a = {
        .engine = TIMELINE_COMPUTE, .stream = 1, .sequence = 1, .cost_known = true, .cost_ns = 70
    };
    struct timeline_item b = {
        .engine = TIMELINE_COMPUTE, .stream = 2, .sequence = 1, .cost_known = true, .cost_ns = 1
    };

    timeline_add(&timeline, &a, NULL, NULL, 0);
    resolve_all(&timeline);
    ck_assert_uint_eq(timeline.host_ns, 0);
    timeline_wait(&timeline, &a);
    timeline_host_work(&timeline, 30);
    timeline_add(&timeline, &b, NULL, NULL, 0);
    resolve_all(&timeline);
    ck_assert_uint_eq(b.start_ns, 100);
    forget(&timeline);
}
END_TEST

START_TEST(higher_priority_goes_first_among_equals) {
    struct timeline timeline = { 0 };
    struct timeline_item a = {
        .engine = TIMELINE_COMPUTE, .stream = 1, .sequence = 1, .cost_known = true, .cost_ns = 10
    };
    struct timeline_item b = { .engine = TIMELINE_COMPUTE,
                               .stream = 2,
                               .sequence = 1,
                               .cost_known = true,
                               .cost_ns = 10,
                               .priority = -5 };

    timeline_add(&timeline, &a, NULL, NULL, 0);
    timeline_add(&timeline, &b, NULL, NULL, 0);
    resolve_all(&timeline);
    ck_assert_uint_eq(b.start_ns, 0);
    ck_assert_uint_eq(a.start_ns, 10);
    forget(&timeline);
}
END_TEST

START_TEST(work_that_shares_nothing_with_a_running_kernel_need_not_wait) {
    struct timeline timeline = { 0 };
    struct timeline_item kernel = { .engine = TIMELINE_COMPUTE, .stream = 1, .sequence = 1 };
    struct timeline_item copy = {
        .engine = TIMELINE_UPLOAD, .stream = 2, .sequence = 1, .cost_known = true, .cost_ns = 10
    };
    struct timeline_item second = {
        .engine = TIMELINE_COMPUTE, .stream = 3, .sequence = 1, .cost_known = true, .cost_ns = 10
    };
    struct timeline_item upload_after = {
        .engine = TIMELINE_UPLOAD, .stream = 1, .sequence = 2, .cost_known = true, .cost_ns = 10
    };

    timeline_add(&timeline, &kernel, NULL, NULL, 0);
    timeline_add(&timeline, &copy, NULL, NULL, 0);
    timeline_add(&timeline, &second, NULL, NULL, 0);
    ck_assert_ptr_eq(timeline_next(&timeline, NULL), &copy);
    /* Something behind the kernel may want the link first: then the copy has to wait. */
    timeline_add(&timeline, &upload_after, &kernel, NULL, 0);
    ck_assert_ptr_null(timeline_next(&timeline, NULL));
    kernel.cost_known = true;
    kernel.cost_ns = 100;
    resolve_all(&timeline);
    ck_assert_uint_eq(copy.end_ns, 10);
    ck_assert_uint_eq(second.end_ns, 110);
    ck_assert_uint_eq(upload_after.end_ns, 110);
    timeline_item_done(&kernel);
    forget(&timeline);
}
END_TEST

enum {
    WALK = 60,
};

struct graph {
    struct timeline_item item[WALK];
    int before[WALK], after[WALK][3]; /* -1: none */
    uint64_t host_ns[WALK];
};

static void random_graph(struct graph *graph, uint64_t *random) {
    int last[6] = { -1, -1, -1, -1, -1, -1 };
    uint64_t host_ns = 0;

    memset(graph, 0, sizeof(*graph));
    for (int i = 0; i < WALK; i++) {
        const unsigned stream = random_next(random) % 6;
        struct timeline_item *item = &graph->item[i];

        item->stream = stream;
        item->device = stream / 2;
        item->peer = random_next(random) % 3;
        item->engine = random_next(random) % 5;
        item->cost_known = true;
        item->cost_ns = item->engine ? random_next(random) % 40 : 0;
        item->latency_ns = random_next(random) % 3;
        item->priority = -(int)(random_next(random) % 2);
        graph->before[i] = last[stream];
        item->sequence = last[stream] < 0 ? 1 : graph->item[last[stream]].sequence + 1;
        last[stream] = i;
        for (int k = 0; k < 3; k++)
            graph->after[i][k] =
                i && random_next(random) % 3 == 0 ? (int)(random_next(random) % i) : -1;
        host_ns += random_next(random) % 4 == 0 ? random_next(random) % 30 : 0;
        graph->host_ns[i] = host_ns;
    }
}

static void add(struct timeline *timeline, struct graph *graph, int i) {
    struct timeline_item *after[3];
    size_t n = 0;

    for (int k = 0; k < 3; k++)
        if (graph->after[i][k] >= 0)
            after[n++] = &graph->item[graph->after[i][k]];
    timeline->host_ns = graph->host_ns[i];
    ck_assert_int_eq(timeline_add(timeline, &graph->item[i],
                                  graph->before[i] < 0 ? NULL : &graph->item[graph->before[i]],
                                  after, n),
                     0);
}

struct moment {
    uint64_t ready, end;
    unsigned hops;
};

static struct moment readiness(const struct graph *graph, const struct moment *moments, int i) {
    struct moment now = { .ready = graph->host_ns[i] };

    for (int k = -1; k < 3; k++) {
        const int p = k < 0 ? graph->before[i] : graph->after[i][k];
        uint64_t at;
        unsigned hops;

        if (p < 0)
            continue;
        at = moments[p].end + (p == graph->before[i] ? graph->item[i].latency_ns : 0);
        hops = at == moments[p].ready ? moments[p].hops + 1 : 0;
        if (at > now.ready || (at == now.ready && hops > now.hops))
            now = (struct moment){ .ready = at, .hops = hops };
    }
    return now;
}

static int compare_u64(uint64_t a, uint64_t b) {
    return (a > b) - (a < b);
}

/* Whether item `i`, ready at `x`, is served before item `j`, ready at `y`. */
static bool goes_first(const struct graph *graph, int i, struct moment x, int j, struct moment y) {
    const struct timeline_item *a = &graph->item[i], *b = &graph->item[j];
    const int order[] = {
        compare_u64(x.ready, y.ready),     compare_u64(x.hops, y.hops),
        a->priority - b->priority,         compare_u64(a->device, b->device),
        compare_u64(a->stream, b->stream), compare_u64(a->sequence, b->sequence),
    };

    for (size_t k = 0; k < ELEMENTSOF(order); k++)
        if (order[k])
            return order[k] < 0;
    return false;
}

/* The rule as it is written, over all items again and again. */
static void reference(const struct graph *graph, struct moment moments[WALK]) {
    uint64_t free_at[3][4][3] = { 0 }; /* device, engine, peer */
    bool done[WALK] = { 0 };

    for (int round = 0; round < WALK; round++) {
        struct moment best_moment = { 0 };
        int best = -1;

        for (int i = 0; i < WALK; i++) {
            bool known = !done[i] && (graph->before[i] < 0 || done[graph->before[i]]);
            struct moment moment;

            for (int k = 0; k < 3; k++)
                known = known && (graph->after[i][k] < 0 || done[graph->after[i][k]]);
            if (!known)
                continue;
            moment = readiness(graph, moments, i);
            if (best < 0 || goes_first(graph, i, moment, best, best_moment)) {
                best = i;
                best_moment = moment;
            }
        }
        ck_assert_int_ge(best, 0);
        best_moment.end = best_moment.ready;
        if (graph->item[best].engine) {
            const struct timeline_item *x = &graph->item[best];
            uint64_t *free_ns =
                &free_at[x->device][x->engine - 1][x->engine == TIMELINE_PEER ? x->peer : 0];

            best_moment.end = MAX(best_moment.ready, *free_ns) + x->cost_ns;
            *free_ns = best_moment.end;
        }
        moments[best] = best_moment;
        done[best] = true;
    }
}

/* Costs become known in whatever order things happen to end; it must not matter. */
static void learn_in_random_order(struct timeline *timeline, struct graph *graph,
                                  uint64_t *random) {
    struct timeline_item *item;

    while (timeline->n_unresolved) {
        const int i = random_next(random) % WALK;

        if (graph->before[i] < 0 || graph->item[graph->before[i]].cost_known)
            graph->item[i].cost_known = true;
        while ((item = timeline_next(timeline, NULL)))
            timeline_resolve(timeline, item);
    }
}

START_TEST(random_graphs_get_the_times_of_the_rule_as_written) {
    struct moment expected[WALK] = { 0 };
    uint64_t random = 99;
    static struct graph graph;

    for (int round = 0; round < 500; round++) {
        struct timeline timeline = { 0 };

        random_graph(&graph, &random);
        reference(&graph, expected);
        for (int i = 0; i < WALK; i++) {
            graph.item[i].cost_known = !graph.item[i].engine;
            add(&timeline, &graph, i);
        }
        learn_in_random_order(&timeline, &graph, &random);
        for (int i = 0; i < WALK; i++) {
            ck_assert_uint_eq(graph.item[i].end_ns, expected[i].end);
            timeline_item_done(&graph.item[i]);
        }
        forget(&timeline);
    }
}
END_TEST

static struct timeline_item copy_of(enum timeline_engine engine, unsigned device, unsigned peer) {
    static uint32_t stream;

    return (struct timeline_item){ .engine = engine,
                                   .device = device,
                                   .peer = peer,
                                   .stream = ++stream,
                                   .sequence = 1,
                                   .cost_known = true,
                                   .cost_ns = 10 };
}

START_TEST(copies_over_pcie_share_lanes_and_uplinks) {
    struct timeline_item item[] = {
        copy_of(TIMELINE_UPLOAD, 0, 0),
        copy_of(TIMELINE_UPLOAD, 1, 0),
        copy_of(TIMELINE_DOWNLOAD, 0, 0),
        copy_of(TIMELINE_PEER_PCIE, 2, 3),   /* below their switch */
        copy_of(TIMELINE_PEER_PCIE, 2, 4),   /* by the same lanes */
        copy_of(TIMELINE_PEER_PCIE, 5, 6),   /* down the uplink of the first two */
        copy_of(TIMELINE_PEER_FABRIC, 7, 8), /* over all of its links … */
        copy_of(TIMELINE_PEER_FABRIC, 7, 9),
        copy_of(TIMELINE_PEER, 9, 8), /* … and over those of two alone */
    };
    const uint64_t ends[] = { 10, 20, 10, 10, 20, 30, 10, 20, 10 };
    struct timeline timeline = { 0 };

    item[0].uplink = item[1].uplink = item[2].uplink = 1;
    item[5].uplink = 2;
    item[5].peer_uplink = 1;
    for (size_t i = 0; i < ELEMENTSOF(item); i++)
        timeline_add(&timeline, &item[i], NULL, NULL, 0);
    resolve_all(&timeline);
    for (size_t i = 0; i < ELEMENTSOF(item); i++)
        ck_assert_msg(item[i].end_ns == ends[i], "copy %zu ends at %u", i,
                      (unsigned)item[i].end_ns);
    forget(&timeline);
}
END_TEST

SUITE("timeline", a_stream_is_a_chain_with_launch_latency_between_its_links,
      contention_goes_by_stream_not_by_arrival,
      devices_and_the_directions_of_a_link_work_side_by_side,
      copies_over_pcie_share_lanes_and_uplinks,
      the_host_clock_goes_on_by_waiting_and_by_its_own_work,
      higher_priority_goes_first_among_equals,
      work_that_shares_nothing_with_a_running_kernel_need_not_wait,
      random_graphs_get_the_times_of_the_rule_as_written)
