/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Name: a counter for each base name says how often it was requested, so that ten thousand nodes of
 * one name need not try ten thousand numbers each.
 */
#include "libclient/graph/name.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "libclient/graph/graph.h"
#include "libclient/graph/scope.h"

struct counter {
    uint32_t next; /* number to try; 0: the bare name is free */
    char name[];
};

bool name_is_valid(const char *name) {
    if (!isalnum((unsigned char)name[0]) && name[0] != '.')
        return false;
    for (const char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("_.-/>", *c))
            return false;
    return true;
}

static struct counter *counter_of(struct allot_graph *graph, const char *name) {
    struct counter *counter = map_find_text(&graph->counters, name);
    size_t size = strlen(name) + 1;

    if (counter)
        return counter;
    counter = calloc(1, sizeof(*counter) + size);
    if (!counter)
        return NULL;
    memcpy(counter->name, name, size);
    if (map_put_text(&graph->counters, counter->name, counter) < 0) {
        free(counter);
        return NULL;
    }
    return counter;
}

int name_new(struct allot_graph *graph, const char *name, char **ret, struct allot_error *err) {
    const char *prefix = scope_prefix(graph);
    size_t length = strlen(name), size;
    bool is_whole = length > 1 && name[length - 1] == '/';
    cleanup(freep) char *base = NULL, *made = NULL;
    struct counter *counter;
    uint32_t n;

    if (!name_is_valid(name))
        return error_set(err, -EINVAL,
                         "'%.128s' cannot be the name of a node: use letters, digits and _.-/>, "
                         "with a letter, digit or '.' first",
                         name);
    if (is_whole)
        prefix = "";
    size = strlen(prefix) + length + 1;
    base = malloc(size);
    made = malloc(size + 11);
    if (!base || !made)
        goto no_memory;
    snprintf(base, size, "%s%.*s", prefix, (int)(is_whole ? length - 1 : length), name);

    counter = counter_of(graph, base);
    if (!counter)
        goto no_memory;
    n = counter->next;
    counter->next = 1;
    if (n == 0)
        strcpy(made, base);
    else {
        do
            snprintf(made, size + 11, "%s_%u", base, n++);
        while (map_find_text(&graph->counters, made));
        counter->next = n;
        /* Make sure that a later node of this name finds it taken. */
        counter = counter_of(graph, made);
        if (!counter)
            goto no_memory;
        counter->next = 1;
    }
    *ret = TAKE(made);
    return 0;

no_memory:
    return error_set(err, -ENOMEM, "no host memory for the name of a node");
}

void name_done(struct allot_graph *graph) {
    struct counter *counter;

    for (size_t pos = 0; (counter = map_next(&graph->counters, &pos));)
        free(counter);
    map_done(&graph->counters);
}
