/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions with the dynamic placer on simulated boxes: what runs where and in which order, that
 * numbers are those of the simple placer, and what people are told.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/allot/log.h"
#include "libclient/allot/session.h"
#include "libclient/allot/train.h"
#include "libclient/api/session.h"
#include "libclient/exec/engine/engine.h"
#include "tests/support/sim/box/sim_box.h"
#include "tests/support/suite.h"

enum { WIDE = 2048, BRANCHES = 4, DEEP = 3 };

struct world {
    struct sim_box box;
    struct allot_graph *graph;
    struct allot_session *session;
    struct allot_session_options options;
    struct allot_error err;
};

static void open_world(struct world *world, const struct box_spec *spec) {
    *world = (struct world){ .options = ALLOT_SESSION_OPTIONS_INIT };
    sim_box_init_driver(&world->box, spec, SIM_LIB_DIR);
    ck_assert_int_eq(allot_graph_new(&world->graph, &world->err), 0);
    world->options.placer = ALLOT_PLACER_DYNAMIC;
    world->options.placer_budget = 20000;
    world->options.inter_op_threads = world->options.intra_op_threads = 2;
}

static void open_session(struct world *world) {
    int r = allot_graph_error(world->graph, &world->err);

    if (r == 0)
        r = allot_session_new(&world->session, world->graph, &world->options, &world->err);
    ck_assert_msg(r == 0, "%s", world->err.text);
}

static void close_world(struct world *world) {
    allot_session_free(world->session);
    allot_graph_unref(world->graph);
    sim_box_done(&world->box);
}

static const struct box_spec four = { .n_gpus = 4, .models = "a100-40g", .timing_only = true };

static struct allot_output random_matrix(struct world *world, int64_t rows, int64_t columns) {
    return allot_random_uniform(world->graph, ALLOT_F32, 2, (int64_t[]){ rows, columns }, 0, 1, 7);
}

/* BRANCHES chains of large products, which meet at the end. */
static struct allot_output branches(struct world *world) {
    struct allot_output ends[BRANCHES];

    for (int b = 0; b < BRANCHES; b++) {
        ends[b] = random_matrix(world, WIDE, WIDE);
        for (int i = 0; i < DEEP; i++)
            ends[b] = allot_matmul(ends[b], ends[b]);
        ends[b] = allot_sum(ends[b]);
    }
    return allot_add_n(ends, BRANCHES);
}

static const struct dynamic_placement_plan *last_plan(const struct world *world) {
    return &world->session->engine->dynamic->last;
}

static void run(struct world *world, struct allot_output fetch) {
    struct allot_tensor *value;
    int r =
        allot_session_run(world->session, NULL, NULL, 0, &fetch, 1, NULL, 0, &value, &world->err);

    ck_assert_msg(r == 0, "%s", world->err.text);
    allot_tensor_unref(value);
}

/* Devices that matrix products run on, as a mask. */
static uint64_t product_devices(const struct world *world) {
    const struct dynamic_placement_plan *plan = last_plan(world);
    uint64_t mask = 0;

    for (uint32_t t = 0; t < plan->build.graph.n_tasks; t++)
        if (strcmp(graph_node(world->graph, plan->build.node[t])->op->name, "MatMul") == 0)
            mask |= UINT64_C(1) << plan->result.plan.device[t];
    return mask;
}

START_TEST(branches_spread_over_the_gpus) {
    struct allot_output end;
    struct world world;

    open_world(&world, &four);
    end = branches(&world);
    open_session(&world);
    run(&world, end);
    ck_assert_uint_eq(product_devices(&world), 0x1e);
    close_world(&world);
}
END_TEST

START_TEST(pins_and_colocation_are_kept) {
    struct allot_output a, b, c;
    struct world world;

    open_world(&world, &four);
    allot_with_device(world.graph, "/gpu:2") {
        a = random_matrix(&world, WIDE, WIDE);
    }
    allot_colocate_push(world.graph, a.node);
    b = allot_matmul(a, a);
    allot_colocate_pop(world.graph);
    allot_with_device(world.graph, "/cpu:0") {
        c = allot_sum(b);
    }
    open_session(&world);
    run(&world, c);
    ck_assert_uint_eq(product_devices(&world), 1 << 3);
    close_world(&world);
}
END_TEST

/* The items of each stream, in the order in which the host queues them, are those of the plan. */
START_TEST(the_executor_keeps_the_order_of_the_plan) {
    const struct dynamic_placement_plan *plan;
    const struct cache_entry *entry;
    struct allot_output end;
    struct world world;

    open_world(&world, &four);
    end = branches(&world);
    open_session(&world);
    run(&world, end);
    plan = last_plan(&world);
    entry = (const struct cache_entry *)world.session->engine->cache.entries.next;
    for (uint32_t d = 1; d < plan->build.graph.n_devices; d++) {
        uint32_t at = plan->result.plan.first[d];

        for (uint32_t i = 0; i < entry->program->n_items; i++) {
            const struct program_item *item = &entry->program->items[i];

            if (item->device != d || item->kind != ITEM_KERNEL)
                continue;
            ck_assert_uint_lt(at, plan->result.plan.first[d + 1]);
            ck_assert_uint_eq(plan->build.node[plan->result.plan.sequence[at]], item->node->id);
            at++;
        }
        ck_assert_uint_eq(at, plan->result.plan.first[d + 1]);
    }
    close_world(&world);
}
END_TEST

START_TEST(the_same_graph_is_always_planned_the_same_way) {
    uint32_t first[256], n = 0;

    for (int round = 0; round < 2; round++) {
        const struct dynamic_placement_plan *plan;
        struct allot_output end;
        struct world world;

        open_world(&world, &four);
        end = branches(&world);
        open_session(&world);
        run(&world, end);
        plan = last_plan(&world);
        if (round == 0) {
            n = plan->build.graph.n_tasks;
            ck_assert_uint_le(n, 256);
            memcpy(first, plan->result.plan.sequence, n * sizeof(*first));
        }
        ck_assert_uint_eq(n, plan->build.graph.n_tasks);
        ck_assert_int_eq(memcmp(first, plan->result.plan.sequence, n * sizeof(*first)), 0);
        close_world(&world);
    }
}
END_TEST

/* The device of the op that was named so; CPU is 0. */
static uint32_t device_of(const struct world *world, const char *name) {
    const struct dynamic_placement_plan *plan = last_plan(world);

    for (uint32_t t = 0; t < plan->build.graph.n_tasks; t++)
        if (strcmp(graph_node(world->graph, plan->build.node[t])->name, name) == 0)
            return plan->result.plan.device[t];
    ck_abort_msg("no task '%s'", name);
}

START_TEST(hints_of_cost_preference_and_company_count) {
    struct allot_hint prefer = ALLOT_HINT_INIT, together = ALLOT_HINT_INIT, cost = ALLOT_HINT_INIT;
    struct allot_output ends[3], end;
    struct world world;

    open_world(&world, &four);
    prefer.prefer = "/gpu:3";
    together.keep_together = true;
    cost.cost_usec = 123456;
    allot_with_hint(world.graph, &prefer) {
        ends[0] = allot_sum(random_matrix(&world, 256, 256));
    }
    allot_with_hint(world.graph, &together) {
        for (int i = 1; i < 3; i++) {
            ends[i] = random_matrix(&world, WIDE, WIDE);
            ends[i] = allot_sum(allot_matmul(ends[i], ends[i]));
        }
    }
    allot_with_hint(world.graph, &cost) {
        end = allot_add_n(ends, 3);
    }
    open_session(&world);
    run(&world, end);
    ck_assert_uint_eq(device_of(&world, "RandomUniform"), 4);
    ck_assert_uint_eq(device_of(&world, "MatMul"), device_of(&world, "MatMul_1"));
    ck_assert_double_gt(last_plan(&world)->result.plan.makespan_usec, 123456);
    close_world(&world);
}
END_TEST

START_TEST(hints_that_are_none_are_refused) {
    struct allot_hint hint = ALLOT_HINT_INIT;
    struct world world;

    open_world(&world, &four);
    ck_assert_int_eq(allot_hint_push(world.graph, NULL), -EINVAL);
    hint.prefer = "rubbish";
    ck_assert_int_eq(allot_hint_push(world.graph, &hint), -EINVAL);
    hint.prefer = NULL;
    hint.cost_usec = -1;
    ck_assert_int_eq(allot_hint_push(world.graph, &hint), -EINVAL);
    hint.cost_usec = NAN;
    ck_assert_int_eq(allot_hint_push(world.graph, &hint), -EINVAL);
    hint.cost_usec = 0;
    hint.size = sizeof(hint) + 1;
    ck_assert_int_eq(allot_hint_push(world.graph, &hint), -EINVAL);
    for (int i = 0; i < 5; i++) /* each has to be popped all the same */
        allot_hint_pop(world.graph);
    ck_assert_int_eq(allot_graph_error(world.graph, &world.err), -EINVAL);
    allot_graph_clear_error(world.graph);
    allot_hint_pop(world.graph);
    ck_assert_int_eq(allot_graph_error(world.graph, &world.err), -EINVAL);
    close_world(&world);
}
END_TEST

static bool stop_at_once(void *data) {
    (*(int *)data)++;
    return true;
}

START_TEST(a_stop_callback_ends_the_search_and_the_text_says_so) {
    struct allot_output end;
    struct world world;
    int n_asked = 0;
    char *text;

    open_world(&world, &four);
    world.options.placer_stop = stop_at_once;
    world.options.placer_userdata = &n_asked;
    end = branches(&world);
    open_session(&world);
    run(&world, end);
    ck_assert_int_gt(n_asked, 0);
    ck_assert_int_eq(allot_session_explain(world.session, &text, &world.err), 0);
    ck_assert_msg(strstr(text, "stopped early") != NULL, "%s", text);
    free(text);
    close_world(&world);
}
END_TEST

START_TEST(the_explanation_names_devices_and_reasons) {
    struct allot_output end, pinned;
    struct world world;
    char *text = NULL;

    open_world(&world, &four);
    end = branches(&world);
    allot_with_device(world.graph, "/gpu:1") {
        pinned = allot_mul(end, end);
    }
    open_session(&world);
    ck_assert_int_eq(allot_session_explain(world.session, &text, &world.err), -ENODATA);
    run(&world, pinned);
    ck_assert_int_eq(allot_session_explain(world.session, &text, &world.err), 0);
    ck_assert_msg(strstr(text, "MatMul: (MatMul): /job:localhost/replica:0/task:0/device:GPU:") !=
                      NULL,
                  "%s", text);
    ck_assert_msg(strstr(text, "(pinned: '/device:GPU:1')") != NULL, "%s", text);
    ck_assert_msg(strstr(text, "us longer") != NULL, "%s", text);
    ck_assert_msg(strstr(text, "us is expected, with") != NULL, "%s", text);
    ck_assert_msg(strstr(text, "peak CPU:0") != NULL, "%s", text);
    free(text);
    close_world(&world);
}
END_TEST

/* Every element that begins also ends, in order; `meta` and what ends itself do not nest. */
static void check_nesting(const char *page) {
    char open[32][16];
    unsigned n = 0;

    for (const char *at = strchr(page, '<'); at; at = strchr(at + 1, '<')) {
        const char *end = strchr(at, '>');
        size_t length = strcspn(at + 1, " />");
        char name[16] = "";

        ck_assert_ptr_nonnull(end);
        if (at[1] == '!' || end[-1] == '/' || strncmp(at, "<meta", 5) == 0)
            continue;
        if (at[1] == '/') {
            ck_assert_uint_gt(n, 0);
            n--;
            ck_assert_msg(strncmp(at + 2, open[n], strlen(open[n])) == 0, "%.40s ends %s", at,
                          open[n]);
            continue;
        }
        ck_assert_uint_lt(length, sizeof(name));
        memcpy(name, at + 1, length);
        ck_assert_uint_lt(n, 32);
        memcpy(open[n++], name, sizeof(name));
    }
    ck_assert_uint_eq(n, 0);
}

static unsigned count(const char *text, const char *what) {
    unsigned n = 0;

    for (const char *at = strstr(text, what); at; at = strstr(at + 1, what))
        n++;
    return n;
}

START_TEST(the_page_shows_every_op_and_needs_nothing_else) {
    struct allot_output end;
    struct world world;
    char *page = NULL;
    unsigned n_ops = 0;

    open_world(&world, &four);
    allot_name_next(world.graph, "a>b"); /* as far as names may go */
    end = allot_add(branches(&world), random_matrix(&world, 2, 2));
    open_session(&world);
    ck_assert_int_eq(allot_session_explain_page(world.session, &page, &world.err), -ENODATA);
    run(&world, end);
    ck_assert_int_eq(allot_session_explain_page(world.session, &page, &world.err), 0);
    check_nesting(page);
    for (uint32_t t = 0; t < last_plan(&world)->build.graph.n_tasks; t++)
        n_ops += !last_plan(&world)->build.is_fetch[t];
    ck_assert_uint_eq(count(page, "<tr><td>"), n_ops);
    ck_assert_uint_eq(count(page, "<path class=\"memory\""), 5);
    ck_assert_uint_ge(count(page, "<rect class=\"c"), BRANCHES * DEEP);
    ck_assert_uint_eq(count(page, "a&gt;b"), 2); /* its bar and its row */
    ck_assert_uint_eq(count(page, "://"), 1);    /* the name of SVG */
    ck_assert_msg(strstr(page, "us is expected, with") != NULL, "%s", page);
    free(page);
    close_world(&world);
}
END_TEST

START_TEST(the_simple_placer_explains_nothing) {
    struct world world;
    char *text;

    open_world(&world, &four);
    world.options.placer = ALLOT_PLACER_SIMPLE;
    open_session(&world);
    ck_assert_int_eq(allot_session_explain(world.session, &text, &world.err), -EOPNOTSUPP);
    ck_assert_int_eq(allot_session_explain_page(world.session, &text, &world.err), -EOPNOTSUPP);
    close_world(&world);
}
END_TEST

/* Each chain needs 2 matrices of 16 MiB at least, each GPU has less. */
START_TEST(what_does_not_fit_is_refused_with_the_missing_bytes) {
    struct allot_tensor *value;
    struct allot_output end;
    struct world world;

    open_world(&world, &four);
    allot_device_push(world.graph, "/gpu:0");
    end = branches(&world);
    allot_device_pop(world.graph);
    world.options.memory_limit = 24 << 20;
    open_session(&world);
    ck_assert_int_eq(
        allot_session_run(world.session, NULL, NULL, 0, &end, 1, NULL, 0, &value, &world.err),
        -ENOMEM);
    ck_assert_msg(strstr(world.err.text, "GPU:0 lacks 8") != NULL, "%s", world.err.text);
    ck_assert_msg(strstr(world.err.text, "would do") != NULL, "%s", world.err.text);
    close_world(&world);
}
END_TEST

/* ---- Training -------------------------------------------------------------------------------- */

enum { BATCH = 8, STEPS = 6, LAYERS = 3 };
static const int64_t widths[LAYERS + 1] = { 6, 10, 8, 3 };

static struct allot_output numbers(struct allot_graph *graph, int64_t rows, int64_t columns,
                                   double seed) {
    float values[BATCH * 16];

    for (int64_t i = 0; i < rows * columns; i++)
        values[i] = (float)(sin(1.3 * (double)i + seed) * 0.6);
    return allot_constant_f32(graph, NULL, 2, (int64_t[]){ rows, columns }, values);
}

static void train(enum allot_placer placer, double losses[STEPS]) {
    struct allot_optimizer *optimizer = allot_momentum(0.1, 0.9, true);
    struct allot_output h, labels, loss;
    struct allot_node *step, *init;
    struct world world;
    int64_t classes[BATCH];

    open_world(&world, NULL);
    world.options.placer = placer;
    for (int i = 0; i < BATCH; i++)
        classes[i] = i * i % widths[LAYERS];
    labels = allot_constant(world.graph, NULL, ALLOT_I64, 1, (int64_t[]){ BATCH }, classes);
    h = numbers(world.graph, BATCH, widths[0], 0.5);
    for (int i = 0; i < LAYERS; i++) {
        struct allot_output w, b;

        /* Something has to move: layers are on different GPUs. */
        allot_with_device(world.graph, i % 2 ? "/gpu:1" : "/gpu:0") {
            w = allot_variable(world.graph, "w",
                               numbers(world.graph, widths[i], widths[i + 1], i + 1));
        }
        b = allot_variable(world.graph, "b",
                           allot_filled(world.graph, ALLOT_F32, 1, &widths[i + 1], 0));
        h = allot_bias_add(allot_matmul(h, w), b);
        h = i < LAYERS - 1 ? allot_tanh(h) : h;
    }
    loss = allot_mean(allot_sparse_softmax_cross_entropy(h, labels));
    step = allot_minimize(optimizer, loss);
    init = allot_initializer(world.graph);
    open_session(&world);
    ck_assert_msg(
        allot_session_run(world.session, NULL, NULL, 0, NULL, 0, &init, 1, NULL, &world.err) == 0,
        "%s", world.err.text);
    for (int i = 0; i < STEPS; i++) {
        struct allot_tensor *value;

        ck_assert_msg(allot_session_run(world.session, NULL, NULL, 0, &loss, 1, &step, 1, &value,
                                        &world.err) == 0,
                      "%s", world.err.text);
        losses[i] = (double)*(float *)allot_tensor_data(value);
        allot_tensor_unref(value);
    }
    close_world(&world);
    allot_optimizer_free(optimizer);
}

START_TEST(training_gives_the_losses_of_the_simple_placer) {
    double expected[STEPS], losses[STEPS];

    train(ALLOT_PLACER_SIMPLE, expected);
    train(ALLOT_PLACER_DYNAMIC, losses);
    ck_assert_double_lt(expected[STEPS - 1], expected[0]);
    for (int i = 0; i < STEPS; i++)
        ck_assert_msg(fabs(losses[i] - expected[i]) <= 1e-5 * expected[i],
                      "step %d: %.9g instead of %.9g", i, losses[i], expected[i]);
}
END_TEST

SUITE_TIMEOUT("dynamic-gpu", 240, branches_spread_over_the_gpus, pins_and_colocation_are_kept,
              the_executor_keeps_the_order_of_the_plan,
              the_same_graph_is_always_planned_the_same_way,
              hints_of_cost_preference_and_company_count, hints_that_are_none_are_refused,
              a_stop_callback_ends_the_search_and_the_text_says_so,
              the_explanation_names_devices_and_reasons,
              the_page_shows_every_op_and_needs_nothing_else, the_simple_placer_explains_nothing,
              what_does_not_fit_is_refused_with_the_missing_bytes,
              training_gives_the_losses_of_the_simple_placer)
