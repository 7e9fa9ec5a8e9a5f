/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "libclient/place/kept_plan.h"
#include "tests/support/libclient/place/task_fixture.h"
#include "tests/support/suite.h"

static const struct dynamic_options options = { .seed = 1, .budget = 2000 };

struct world {
    struct task_graph graph;
    struct dynamic_result result;
    char key[KEPT_PLAN_KEY_SIZE];
    char *text;
    size_t n;
};

static void open_world(struct world *world, uint64_t seed, bool is_capped) {
    const struct task_fixture_shape shape = {
        .n_tasks = 30, .n_devices = 3, .is_capped = is_capped, .has_groups = true
    };

    *world = (struct world){ 0 };
    do { /* one that has a plan */
        task_graph_done(&world->graph);
        assignment_done(&world->result.plan);
        world->graph = (struct task_graph){ 0 };
        task_fixture_random(&world->graph, &seed, &shape);
    } while (dynamic_plan(&world->graph, &options, &world->result) < 0);
    kept_plan_key(&world->graph, &options, "v1", world->key);
    ck_assert_int_eq(
        kept_plan_print(&world->graph, &world->result, world->key, &world->text, &world->n), 0);
}

static void close_world(struct world *world) {
    free(world->text);
    assignment_done(&world->result.plan);
    task_graph_done(&world->graph);
}

static int parse(const struct world *world, const char *text, size_t n, const char **why) {
    struct dynamic_result result;
    int r = kept_plan_parse(&world->graph, world->key, text, n, &result, why);

    if (r == 0)
        assignment_done(&result.plan);
    return r;
}

START_TEST(a_plan_reads_back_as_it_was) {
    for (uint64_t seed = 1; seed < 30; seed++) {
        struct dynamic_result again;
        struct world world;
        const char *why;

        open_world(&world, seed, seed % 2);
        ck_assert_int_eq(
            kept_plan_parse(&world.graph, world.key, world.text, world.n, &again, &why), 0);
        ck_assert_str_eq(again.way, world.result.way);
        ck_assert_double_eq(again.begun_usec, world.result.begun_usec);
        ck_assert_double_eq(again.plan.makespan_usec, world.result.plan.makespan_usec);
        ck_assert_int_eq(memcmp(again.plan.sequence, world.result.plan.sequence,
                                world.graph.n_tasks * sizeof(uint32_t)),
                         0);
        ck_assert_int_eq(memcmp(again.plan.device, world.result.plan.device,
                                world.graph.n_tasks * sizeof(uint32_t)),
                         0);
        assignment_done(&again.plan);
        close_world(&world);
    }
}
END_TEST

/* Whatever the search depends on makes another key. */
START_TEST(another_problem_has_another_key) {
    struct dynamic_options other = options;
    char key[KEPT_PLAN_KEY_SIZE];
    struct world world;
    struct task_graph *g = &world.graph;

    open_world(&world, 3, true);
#define EXPECT_OTHER(change, back)                                                                 \
    do {                                                                                           \
        change;                                                                                    \
        kept_plan_key(g, &other, "v1", key);                                                       \
        ck_assert_str_ne(key, world.key);                                                          \
        back;                                                                                      \
        kept_plan_key(g, &other, "v1", key);                                                       \
        ck_assert_str_eq(key, world.key);                                                          \
    } while (0)
    EXPECT_OTHER(other.budget++, other.budget--);
    EXPECT_OTHER(other.seed++, other.seed--);
    EXPECT_OTHER(g->memory_bytes[1]++, g->memory_bytes[1]--);
    EXPECT_OTHER(g->links[1].latency_usec *= 2, g->links[1].latency_usec /= 2);
    EXPECT_OTHER(g->links[1].channel++, g->links[1].channel--);
    EXPECT_OTHER(g->links[1].media ^= 2, g->links[1].media ^= 2);
    EXPECT_OTHER(g->cost_usec[4] *= 2, g->cost_usec[4] /= 2);
    EXPECT_OTHER(g->output_bytes[9]++, g->output_bytes[9]--);
    EXPECT_OTHER(g->resident_bytes[9]++, g->resident_bytes[9]--);
    EXPECT_OTHER(g->pin[9]++, g->pin[9]--);
    EXPECT_OTHER(g->group[9]++, g->group[9]--);
    EXPECT_OTHER(((uint32_t *)g->inputs.items)[0]++, ((uint32_t *)g->inputs.items)[0]--);
#undef EXPECT_OTHER
    kept_plan_key(g, &options, "v2", key);
    ck_assert_str_ne(key, world.key);
    close_world(&world);
}
END_TEST

START_TEST(no_part_of_a_text_and_no_damage_passes) {
    struct world world;
    const char *why;

    open_world(&world, 5, false);
    for (size_t i = 0; i < world.n; i++) {
        char was = world.text[i];

        ck_assert_int_eq(parse(&world, world.text, i, &why), -EBADMSG);
        for (int bit = 0; bit < 8; bit++) {
            world.text[i] = (char)(was ^ 1 << bit);
            ck_assert_int_eq(parse(&world, world.text, world.n, &why), -EBADMSG);
        }
        world.text[i] = was;
    }
    close_world(&world);
}
END_TEST

/* Change the text behind its head, and give it a right checksum. */
static int parse_changed(const struct world *world, const char *what, const char *by,
                         const char **why) {
    char text[4096], *at;
    int n;

    ck_assert_uint_lt(world->n + strlen(by), sizeof(text));
    memcpy(text, world->text, world->n);
    text[world->n] = '\0';
    at = strstr(strchr(text, '\n'), what);
    ck_assert_ptr_nonnull(at);
    memmove(at + strlen(by), at + strlen(what), strlen(at + strlen(what)) + 1);
    memcpy(at, by, strlen(by));
    *strstr(text, "end ") = '\0';
    n = (int)strlen(text);
    n += snprintf(text + n, sizeof(text) - (size_t)n, "end %08" PRIx32 "\n",
                  crc32c(0, text, (size_t)n));
    return parse(world, text, (size_t)n, why);
}

START_TEST(a_plan_that_lies_is_refused) {
    struct dynamic_options other = options;
    char step[64], task[16], stranger[16];
    struct world world;
    const char *why;
    uint32_t last;

    open_world(&world, 7, false);
    last = world.result.plan.sequence[world.graph.n_tasks - 1];
    /* Its step is another. */
    snprintf(step, sizeof(step), " %s\n", world.result.way);
    ck_assert_int_eq(parse_changed(&world, step, "e1 a way\n", &why), -EBADMSG);
    ck_assert_ptr_nonnull(strstr(why, "another time"));
    /* It leaves out a task, or has one that is not there. */
    snprintf(task, sizeof(task), " %u\n", last);
    ck_assert_int_eq(parse_changed(&world, task, "\n", &why), -EBADMSG);
    ck_assert_ptr_nonnull(strstr(why, "leaves out"));
    snprintf(stranger, sizeof(stranger), " %u\n", world.graph.n_tasks);
    ck_assert_int_eq(parse_changed(&world, task, stranger, &why), -EBADMSG);
    /* A task twice. */
    snprintf(stranger, sizeof(stranger), " %u %u\n", last, last);
    ck_assert_int_eq(parse_changed(&world, task, stranger, &why), -EBADMSG);
    ck_assert_int_eq(parse_changed(&world, "30 3 ", "30 2 ", &why), -EBADMSG);
    ck_assert_int_eq(parse_changed(&world, "30 3 ", "31 3 ", &why), -EBADMSG);
    /* Of another search. */
    other.budget++;
    kept_plan_key(&world.graph, &other, "v1", world.key);
    ck_assert_int_eq(parse(&world, world.text, world.n, &why), -EBADMSG);
    ck_assert_ptr_nonnull(strstr(why, "something else"));
    close_world(&world);
}
END_TEST

/* The same tasks, but a device has less memory by now: the simulator sees it. */
START_TEST(a_plan_that_does_not_fit_is_refused) {
    struct world world;
    const char *why;

    open_world(&world, 9, true);
    for (uint32_t d = 0; d < world.graph.n_devices; d++)
        world.graph.memory_bytes[d] = 1;
    ck_assert_int_eq(parse(&world, world.text, world.n, &why), -EBADMSG);
    ck_assert_ptr_nonnull(strstr(why, "does not fit"));
    close_world(&world);
}
END_TEST

SUITE("kept-plan", a_plan_reads_back_as_it_was, another_problem_has_another_key,
      no_part_of_a_text_and_no_damage_passes, a_plan_that_lies_is_refused,
      a_plan_that_does_not_fit_is_refused)
