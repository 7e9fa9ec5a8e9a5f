/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/libclient/exec/engine/stage_fixture.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "libclient/core/tensor.h"
#include "libclient/graph/scope.h"

#define WORDS_MAX 16

void stage_fixture_open(struct stage_fixture *ret, unsigned threads, bool gpu) {
    struct engine_options options = {
        .inter_threads = threads, .intra_threads = 1, .no_gpu = !gpu, .seed = 5
    };
    int r;

    *ret = (struct stage_fixture){ .graph = graph_fixture_new() };
    r = engine_new(&ret->engine, ret->graph, &options, &ret->err);
    ck_assert_msg(r == 0, "%s", ret->err.text);
    ck_assert(!gpu || ret->engine->n_devices > 1);
}

void stage_fixture_close(struct stage_fixture *fixture) {
    engine_free(fixture->engine);
    graph_unref(fixture->graph);
}

struct edge stage_fixture_node(struct stage_fixture *fixture, const char *name, const char *op,
                               const char *inputs, const char *attrs) {
    return graph_fixture_node(fixture->graph, name, op, inputs, attrs);
}

struct edge stage_fixture_node_after(struct stage_fixture *fixture, const char *name,
                                     const char *op, const char *inputs, const char *attrs,
                                     const char *control) {
    uint32_t id = graph_find(fixture->graph, control)->id;
    struct edge edge;

    ck_assert_int_eq(scope_push_controls(fixture->graph, &id, 1, NULL), 0);
    edge = graph_fixture_node(fixture->graph, name, op, inputs, attrs);
    scope_pop(fixture->graph);
    return edge;
}

static struct edge edge_of(struct stage_fixture *fixture, const char *name) {
    struct edge edge;
    int r = graph_find_output(fixture->graph, name, &edge, &fixture->err);

    ck_assert_msg(r == 0, "%s", fixture->err.text);
    return edge;
}

/* The words of a text, one after the other; NULL: there are no more. */
static char *next_word(char **text) {
    char *word;

    do
        word = strsep(text, " ");
    while (word && !*word);
    return word;
}

static void show(struct stage_fixture *fixture, struct allot_tensor *const *tensors, uint32_t n) {
    size_t at = 0;

    fixture->text[0] = '\0';
    for (uint32_t i = 0; i < n; i++) {
        char one[256];

        at += (size_t)snprintf(fixture->text + at, sizeof(fixture->text) - at, "%s%s",
                               i ? " | " : "", allot_tensor_format(tensors[i], one, sizeof(one)));
        ck_assert_uint_lt(at, sizeof(fixture->text));
    }
}

const char *stage_fixture_run(struct stage_fixture *fixture, const char *feeds, const char *fetches,
                              const char *targets) {
    char text[512], *at, *word;
    struct edge feed_edges[WORDS_MAX], fetch_edges[WORDS_MAX];
    uint32_t target_nodes[WORDS_MAX];
    struct allot_tensor *fed[WORDS_MAX], *fetched[WORDS_MAX];
    struct engine_call call = { .feeds = feed_edges,
                                .fetches = fetch_edges,
                                .targets = target_nodes };

    ck_assert_uint_lt(strlen(feeds), sizeof(text));
    for (at = strcpy(text, feeds); (word = next_word(&at));) {
        char *type = strchr(word, ':');

        ck_assert_ptr_nonnull(type);
        *type = '\0';
        ck_assert_uint_lt(call.n_feeds, WORDS_MAX);
        feed_edges[call.n_feeds] = edge_of(fixture, word);
        fed[call.n_feeds++] = graph_fixture_tensor(type + 1);
    }
    for (at = strcpy(text, fetches); (word = next_word(&at));)
        fetch_edges[call.n_fetches++] = edge_of(fixture, word);
    for (at = strcpy(text, targets); (word = next_word(&at));)
        target_nodes[call.n_targets++] = graph_find(fixture->graph, word)->id;
    ck_assert(call.n_fetches <= WORDS_MAX && call.n_targets <= WORDS_MAX);

    fixture->run.was_planned = false;
    fixture->run.n_kernels = 0;
    fixture->code = engine_run(fixture->engine, &call, &fixture->run, fed, fetched, &fixture->err);
    for (uint32_t i = 0; i < call.n_feeds; i++)
        allot_tensor_unref(fed[i]);
    if (fixture->code < 0) {
        snprintf(fixture->text, sizeof(fixture->text), "!%s", fixture->err.text);
        return fixture->text;
    }
    show(fixture, fetched, call.n_fetches);
    for (uint32_t i = 0; i < call.n_fetches; i++)
        allot_tensor_unref(fetched[i]);
    return fixture->text;
}
