/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Placement: modelled steps by the dynamic placer on the simulated box that GPUSIM_BOX names,
 * against what people do by hand. Times are modelled, not measured on GPUs.
 *
 *     one GPU         everything on /gpu:0
 *     simple          the simple placer without any hint
 *     round robin     each op on the next GPU
 *     by layer        as many layers in a row on each GPU
 *     by branch       a branch on each GPU
 *     weights on CPU  variables on /cpu:0, the rest on /gpu:0
 */
#include <allot/config.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/placement-graphs.h"

enum { BUDGET = 1000000, LAYERS_MAX = 4 };

struct rule {
    const char *name;
    const char *(*device)(const char *op, const char *name, const char *device, void *data);
    int n_gpus, n_seen;
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

    return layer < 0 ? NULL : gpu(rule, layer * rule->n_gpus / LAYERS_MAX);
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
};
enum { N_RULES = sizeof(rules) / sizeof(*rules) };

static int push_rule(struct allot_graph *graph, void *data) {
    struct rule *rule = data;

    return rule->device ? allot_device_push_fn(graph, rule->device, rule) : 0;
}

/* The step of graph `i`, NAN if the rule cannot be kept; `rule` NULL: the dynamic placer. */
static double measure(unsigned i, struct rule *rule, int n_gpus, double *ret_expected) {
    struct allot_session_options options = ALLOT_SESSION_OPTIONS_INIT;
    struct allot_session *session = NULL;
    struct placement_graph graph;
    struct allot_error err = { 0 };
    double usec = 0;
    char *text;
    int r;

    if (rule) {
        rule->n_gpus = n_gpus;
        rule->n_seen = 0;
    }
    options.placer = rule ? ALLOT_PLACER_SIMPLE : ALLOT_PLACER_DYNAMIC;
    options.placer_budget = BUDGET;
    options.allow_soft_placement = true; /* rules of thumb know nothing of kernels */
    options.inter_op_threads = options.intra_op_threads = 1;
    r = placement_graph_new(&graph, i, rule ? push_rule : NULL, rule, &err);
    if (r == 0)
        r = allot_session_new(&session, graph.graph, &options, &err);
    if (r == 0)
        r = placement_graph_time(&graph, session, &usec, &err);
    if (r < 0) {
        fprintf(stderr, "%s, %s: %s\n", graph.name, rule ? rule->name : "dynamic", err.text);
        exit(1);
    }
    if (!rule && allot_session_explain(session, &text, &err) == 0) {
        const char *at = strstr(text, "a step of ");

        *ret_expected = at ? strtod(at + strlen("a step of "), NULL) : 0;
        free(text);
    }
    allot_session_free(session);
    placement_graph_done(&graph);
    return usec;
}

int main(void) {
    size_t n_gpus = allot_devices(NULL, 0) - 1;
    double sum = 0;

    if (n_gpus == 0) {
        fprintf(stderr, "placement: there is no GPU; ./run bench placement makes boxes\n");
        return 1;
    }
    printf("%-12s %10s %10s %6s", "modelled us", "dynamic", "expected", "off");
    for (size_t k = 0; k < N_RULES; k++)
        printf(" %14s", rules[k].name);
    printf(" %10s\n", "best rule");
    for (unsigned i = 0; i < PLACEMENT_GRAPHS; i++) {
        double expected = 0, best = 0, usec = measure(i, NULL, (int)n_gpus, &expected);
        struct placement_graph named;

        placement_graph_new(&named, i, NULL, NULL, NULL);
        printf("%-12s %10.1f %10.1f %+5.1f%%", named.name, usec, expected,
               100 * (usec - expected) / expected);
        placement_graph_done(&named);
        for (size_t k = 0; k < N_RULES; k++) {
            double other = measure(i, &rules[k], (int)n_gpus, NULL);

            best = best == 0 || other < best ? other : best;
            printf(" %14.1f", other);
        }
        printf(" %9.2fx\n", best / usec);
        sum += best / usec;
        fflush(stdout);
    }
    printf("the best rule takes %.2f times as long on average\n", sum / PLACEMENT_GRAPHS);
    return 0;
}
