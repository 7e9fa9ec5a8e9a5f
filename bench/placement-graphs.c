/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/placement-graphs.h"

#include <allot/strategy.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COPIES_MAX = 16 };

const char *placement_graph_name(unsigned i) {
    return placement_families[i].name;
}

int placement_graph_layers(unsigned i) {
    return placement_families[i].n_layers;
}

bool placement_graph_splits(unsigned i, enum placement_split split) {
    return split == PLACEMENT_WHOLE || placement_families[i].rows > 0;
}

/* A copy for each GPU, with its own weights. */
static struct allot_node *copies_new(struct allot_graph *graph,
                                     const struct placement_family *family, unsigned n) {
    struct allot_node *ends[COPIES_MAX];

    for (unsigned k = 0; k < n; k++) {
        char device[32], name[32];

        snprintf(device, sizeof(device), "/gpu:%u", k);
        snprintf(name, sizeof(name), "copy_%u", k);
        allot_device_push(graph, device);
        allot_name_push(graph, name);
        ends[k] = family->make(graph, family->rows / n).node;
        allot_name_pop(graph);
        allot_device_pop(graph);
    }
    return allot_group(graph, "all", ends, n);
}

static void mirror(struct placement_graph *to, const struct placement_family *family, unsigned n) {
    const char *devices[COPIES_MAX];
    char names[COPIES_MAX][32];
    struct allot_output loss = { 0 };

    for (unsigned k = 0; k < n; k++) {
        snprintf(names[k], sizeof(names[k]), "/gpu:%u", k);
        devices[k] = names[k];
    }
    to->strategy = allot_mirrored(to->graph, devices, n);
    allot_with_strategy(to->strategy) {
        loss = family->make(to->graph, family->rows / n);
    }
    to->step = allot_strategy_minimize(to->strategy, to->optimizer, loss);
}

int placement_graph_new(struct placement_graph *ret, unsigned i, enum placement_split split,
                        unsigned n_gpus, int (*scopes)(struct allot_graph *graph, void *data),
                        void *data, struct allot_error *err) {
    const struct placement_family *family = &placement_families[i];
    int r;

    *ret = (struct placement_graph){ .name = family->name };
    r = allot_graph_new(&ret->graph, err);
    if (r < 0)
        return r;
    if (scopes)
        scopes(ret->graph, data);
    if (family->is_trained)
        ret->optimizer = allot_sgd(0.1);
    if (split != PLACEMENT_WHOLE && family->is_trained)
        mirror(ret, family, n_gpus);
    else if (split != PLACEMENT_WHOLE)
        ret->step = copies_new(ret->graph, family, n_gpus);
    else {
        struct allot_output end = family->make(ret->graph, family->rows);

        ret->step = family->is_trained ? allot_minimize(ret->optimizer, end) : end.node;
    }
    ret->init = allot_initializer(ret->graph);
    return allot_graph_error(ret->graph, err);
}

void placement_graph_done(struct placement_graph *graph) {
    allot_strategy_free(graph->strategy);
    allot_graph_unref(graph->graph);
    allot_optimizer_free(graph->optimizer);
}

static int host_clock(unsigned long long *ret) {
    const char *dir = getenv("ALLOT_SIM_DIR");
    unsigned long long (*clock)(void) = NULL;
    char path[4096];
    void *library;

    snprintf(path, sizeof(path), "%s/libcuda.so.1", dir ? dir : "");
    library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (!library)
        return -ENOENT;
    *(void **)&clock = dlsym(library, "gpusimHostClock");
    if (clock)
        *ret = clock();
    dlclose(library);
    return clock ? 0 : -ENOENT;
}

static int run(struct allot_session *session, struct allot_node *target, struct allot_error *err) {
    return allot_session_run(session, NULL, NULL, 0, NULL, 0, &target, 1, NULL, err);
}

int placement_graph_time(const struct placement_graph *graph, struct allot_session *session,
                         double *ret_usec, struct allot_error *err) {
    struct allot_run_options options = ALLOT_RUN_OPTIONS_INIT;
    struct allot_node *step = graph->step;
    unsigned long long begin, end;
    int r = graph->init ? run(session, graph->init, err) : 0;

    if (r == 0)
        r = run(session, graph->step, err);
    if (r == 0)
        r = host_clock(&begin);
    if (r == 0)
        r = run(session, graph->step, err);
    if (r == 0)
        r = host_clock(&end);
    if (r == 0)
        *ret_usec = (double)(end - begin) / 1e3;
    if (r == 0 && getenv("PLACEMENT_TRACE")) {
        struct allot_callable *callable = NULL;

        options.trace_file = getenv("PLACEMENT_TRACE");
        r = allot_callable_new(&callable, session, NULL, 0, NULL, 0, &step, 1, err);
        if (r == 0)
            r = allot_callable_run(callable, &options, NULL, NULL, err);
        allot_callable_free(callable);
    }
    return r;
}
