/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps as the dynamic placer expects them, as the executor takes them, and as they are by rules of
 * thumb, in the modelled time of timing-only boxes: a sample of ./run bench placement.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/placement-compare.h"
#include "bench/placement-graphs.h"
#include "tests/support/sim/box/sim_box.h"
#include "tests/support/suite.h"

enum { BUDGET = 200000 };

/* The part of the expected step by which the executed one may differ, at worst; and steps that are
 * within so much of each other take as long. */
#define WORST 0.10
#define SAME  1.01

static struct allot_error err;

static unsigned graph_of(const char *name) {
    for (unsigned i = 0; i < PLACEMENT_GRAPHS; i++)
        if (strcmp(placement_graph_name(i), name) == 0)
            return i;
    ck_abort_msg("there is no graph '%s'", name);
}

/* `names` end with NULL. */
static void compare_on(const struct box_spec *spec, const char *const *names) {
    const struct placement_box tried = { (int)spec->n_gpus, BUDGET };
    struct sim_box box;
    size_t n = 0;

    while (names[n])
        n++;
/* Sanitizers find nothing in the second graph that they do not find in the first, in minutes. */
#if SUITE_IS_SANITIZED
    n = 1;
#endif
    sim_box_init_driver(&box, spec, SIM_LIB_DIR);
    for (size_t i = 0; i < n; i++) {
        struct placement_comparison made;
        double off;

        ck_assert_msg(placement_compare(&made, graph_of(names[i]), &tried, &err) == 0, "%s: %s",
                      names[i], err.text);
        off = (made.usec - made.expected_usec) / made.expected_usec;
        fprintf(stderr, "%s: expected %.1f us, took %.1f us (%+.1f %%), the best rule %.1f us\n",
                names[i], made.expected_usec, made.usec, 100 * off, made.best_usec);
        ck_assert_msg(fabs(off) <= WORST, "%s: the expected step is off by %.1f %%", names[i],
                      100 * off);
        for (unsigned k = 0; k < PLACEMENT_RULES; k++)
            ck_assert_msg(!(made.usec > made.rule_usec[k] * SAME), "%s: %f us, by the rule '%s' %f",
                          names[i], made.usec, placement_rule_name(k), made.rule_usec[k]);
    }
    sim_box_done(&box);
}

START_TEST(no_rule_is_better_with_nvlink) {
    const struct box_spec spec = { .n_gpus = 2, .models = "a100-40g", .timing_only = true };

    compare_on(&spec, (const char *const[]){ "train mlp", "diamonds", "constrained", NULL });
}
END_TEST

START_TEST(no_rule_is_better_behind_one_uplink) {
    const struct box_spec spec = { .n_gpus = 4,
                                   .models = "a100-40g",
                                   .nvlink = "none",
                                   .uplink = "one",
                                   .no_p2p = true,
                                   .timing_only = true };

    compare_on(&spec, (const char *const[]){ "branches", "diamonds", NULL });
}
END_TEST

START_TEST(no_rule_is_better_with_unequal_gpus) {
    const struct box_spec spec = { .n_gpus = 2, .models = "a100-40g,t4-16g", .timing_only = true };

    compare_on(&spec, (const char *const[]){ "diamonds", "branches", NULL });
}
END_TEST

SUITE_TIMEOUT("placement-graphs-gpu", 500, no_rule_is_better_with_nvlink,
              no_rule_is_better_behind_one_uplink, no_rule_is_better_with_unequal_gpus)
