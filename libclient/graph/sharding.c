/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/graph/sharding.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int sharding_new(struct allot_graph *graph, const char *name, bool is_in_turn,
                 const uint64_t *begins, uint32_t n, const struct graph_sharding **ret) {
    struct graph_sharding *sharding =
        calloc(1, sizeof(*sharding) + ((size_t)n + 1) * sizeof(sharding->begins[0]));

    if (sharding)
        sharding->name = strdup(name);
    if (!sharding || !sharding->name) {
        free(sharding);
        return -ENOMEM;
    }
    sharding->is_in_turn = is_in_turn;
    sharding->n = n;
    memcpy(sharding->begins, begins, ((size_t)n + 1) * sizeof(begins[0]));
    sharding->next = graph->shardings;
    graph->shardings = sharding;
    *ret = sharding;
    return 0;
}

void sharding_free_all(struct allot_graph *graph) {
    while (graph->shardings) {
        struct graph_sharding *sharding = graph->shardings;

        graph->shardings = sharding->next;
        free(sharding->name);
        free(sharding);
    }
}

char *sharding_whole_name(const struct allot_graph *graph, uint32_t variable) {
    const struct graph_variable *own = graph_variable(graph, variable);
    const char *name = graph_node(graph, variable)->name, *rest;
    char *whole = NULL;

    if (!own || !own->sharding)
        return strdup(name);
    /* "words/shard_3/Adam": behind the number of the shard. */
    rest = name + strlen(own->sharding->name) + strlen("/shard_");
    rest += strspn(rest, "0123456789");
    return asprintf(&whole, "%s%s", own->sharding->name, rest) < 0 ? NULL : whole;
}
