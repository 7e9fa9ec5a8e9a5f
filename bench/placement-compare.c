/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/placement-compare.h"

#include <allot/config.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/placement-graphs.h"

struct rule {
    const char *name;
    const char *(*device)(const char *op, const char *name, const char *device, void *data);
    enum placement_split split;
    int n_gpus, n_seen, n_layers;
    char text[32];
};

static const char *gpu(struct rule *rule, int number) {
    snprintf(rule->text, sizeof(rule->text), "/gpu:%d", number % rule->n_gpus);
    return rule->text;
}

/* The number behind `what` in a name; -1: there is none. */
static int number_of(const char *name, const char *what) {
    const char *at = strstr(name, what);

    return at ? atoi(at + strlen(what)) : -1;
}

static const char *one_gpu(const char *op, const char *name, const char *device, void *data) {
    return gpu(data, 0);
}

static const char *round_robin(const char *op, const char *name, const char *device, void *data) {
    struct rule *rule = data;

    return gpu(rule, rule->n_seen++);
}

static const char *by_layer(const char *op, const char *name, const char *device, void *data) {
    struct rule *rule = data;
    int layer = number_of(name, "layer_");

    return layer < 0 ? NULL : gpu(rule, layer * rule->n_gpus / rule->n_layers);
}

static const char *by_branch(const char *op, const char *name, const char *device, void *data) {
    int branch = number_of(name, "branch_");

    return branch < 0 ? NULL : gpu(data, branch);
}

static const char *weights_on_cpu(const char *op, const char *name, const char *device,
                                  void *data) {
    return strcmp(op, "Variable") == 0 ? "/cpu:0" : NULL;
}

static struct rule rules[] = {
    { .name = "one GPU", .device = one_gpu },
    { .name = "simple" },
    { .name = "round robin", .device = round_robin },
    { .name = "by layer", .device = by_layer },
    { .name = "by branch", .device = by_branch },
    { .name = "weights on CPU", .device = weights_on_cpu },
    { .name = "data parallel", .split = PLACEMENT_PARTS },
};
_Static_assert(sizeof(rules) / sizeof(*rules) == PLACEMENT_RULES, "a rule for each column");

const char *placement_rule_name(unsigned k) {
    return rules[k].name;
}

static int push_rule(struct allot_graph *graph, void *data) {
    struct rule *rule = data;

    return rule && rule->device ? allot_device_push_fn(graph, rule->device, rule) : 0;
}

/* What the placer expects of the last plan; 0: it did not say. */
static double expected_of(struct allot_session *session) {
    struct allot_error err;
    double usec = 0;
    char *text;

    if (allot_session_explain(session, &text, &err) == 0) {
        const char *at = strstr(text, "a step of ");

        usec = at ? strtod(at + strlen("a step of "), NULL) : 0;
        free(text);
    }
    return usec;
}

/* `rule` NULL: the dynamic placer. */
static int measure(unsigned i, enum placement_split split, struct rule *rule,
                   const struct placement_box *box, double *ret_usec, double *ret_expected,
                   struct allot_error *err) {
    struct allot_session_options options = ALLOT_SESSION_OPTIONS_INIT;
    struct allot_session *session = NULL;
    struct placement_graph graph;
    int r;

    *ret_usec = NAN;
    if (!placement_graph_splits(i, split))
        return 0;
    if (rule) {
        rule->n_gpus = box->n_gpus;
        rule->n_layers = placement_graph_layers(i);
        rule->n_seen = 0;
    }
    options.placer = rule ? ALLOT_PLACER_SIMPLE : ALLOT_PLACER_DYNAMIC;
    options.placer_budget = box->budget;
    options.allow_soft_placement = true; /* rules of thumb know nothing of kernels */
    options.inter_op_threads = options.intra_op_threads = 1;
    r = placement_graph_new(&graph, i, split, (unsigned)box->n_gpus, push_rule, rule, err);
    if (r == 0)
        r = allot_session_new(&session, graph.graph, &options, err);
    if (r == 0)
        r = placement_graph_time(&graph, session, ret_usec, err);
    if (r == -ENOMEM || r == -ENOSPC) {
        *ret_usec = INFINITY;
        r = 0;
    } else if (r == 0 && ret_expected)
        *ret_expected = expected_of(session);
    allot_session_free(session);
    placement_graph_done(&graph);
    return r;
}

int placement_compare(struct placement_comparison *ret, unsigned i, const struct placement_box *box,
                      struct allot_error *err) {
    double usec, expected = 0;
    int r;

    *ret = (struct placement_comparison){ .best_usec = INFINITY };
    r = measure(i, PLACEMENT_WHOLE, NULL, box, &ret->usec, &ret->expected_usec, err);
    if (r == 0)
        r = measure(i, PLACEMENT_PARTS, NULL, box, &usec, &expected, err);
    if (r < 0)
        return r;
    if (isfinite(usec) && (isinf(ret->usec) || expected < ret->expected_usec)) {
        ret->usec = usec;
        ret->expected_usec = expected;
        ret->is_split = true;
    }
    for (unsigned k = 0; r == 0 && k < PLACEMENT_RULES; k++) {
        ret->rule_usec[k] = NAN;
        if (rules[k].device != by_layer || placement_graph_layers(i) > 0)
            r = measure(i, rules[k].split, &rules[k], box, &ret->rule_usec[k], NULL, err);
        ret->best_usec = fmin(ret->best_usec, ret->rule_usec[k]);
    }
    return r;
}
