/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "libclient/graph/scope.h"
#include "libclient/graph/topo.h"
#include "tests/support/libclient/graph/graph_fixture.h"
#include "tests/support/suite.h"

static const char *name_of(struct allot_graph *graph, const char *name) {
    struct build_node request = { .op = "NoOp", .name = name };
    struct allot_error err = { 0 };
    uint32_t id;

    ck_assert_msg(build_add(graph, &request, &id, &err) == 0, "%s", err.text);
    return graph_node(graph, id)->name;
}

static const struct node *node_of(struct allot_graph *graph, struct edge edge) {
    return graph_node(graph, edge.node);
}

START_TEST(names_are_made_unique_as_tensorflow_does) {
    cleanup(graph_unrefp) struct allot_graph *graph = graph_fixture_new();

    ck_assert_str_eq(name_of(graph, NULL), "NoOp");
    ck_assert_str_eq(name_of(graph, NULL), "NoOp_1");
    ck_assert_str_eq(name_of(graph, "add"), "add");
    ck_assert_str_eq(name_of(graph, "add_1"), "add_1");
    ck_assert_str_eq(name_of(graph, "add"), "add_2");
    ck_assert_str_eq(name_of(graph, "add_1"), "add_1_1");
    ck_assert_str_eq(name_of(graph, "add"), "add_3");

    ck_assert_int_eq(scope_push_name(graph, "hidden", NULL), 0);
    ck_assert_str_eq(name_of(graph, "add"), "hidden/add");
    ck_assert_int_eq(scope_push_name(graph, "deep", NULL), 0);
    ck_assert_str_eq(name_of(graph, "add"), "hidden/deep/add");
    scope_pop(graph);
    scope_pop(graph);
    ck_assert_int_eq(scope_push_name(graph, "hidden", NULL), 0);
    ck_assert_str_eq(name_of(graph, "add"), "hidden_1/add");
    ck_assert_int_eq(scope_push_name(graph, "hidden/", NULL), 0);
    ck_assert_str_eq(name_of(graph, "add"), "hidden/add_1");
    scope_pop(graph);
    scope_pop(graph);
    ck_assert_str_eq(name_of(graph, "add"), "add_4");
    ck_assert_ptr_eq(graph_find(graph, "hidden/deep/add"), graph_node(graph, 8));
    ck_assert_ptr_null(graph_find(graph, "hidden"));
}
END_TEST

START_TEST(names_that_cannot_be_are_refused) {
    cleanup(graph_unrefp) struct allot_graph *graph = graph_fixture_new();
    static const char *const bad[] = { "", "_x", "a b", "a:0", "/a", "\xc3\xa4", "a\n" };

    for (size_t i = 0; i < ELEMENTSOF(bad); i++) {
        struct build_node request = { .op = "NoOp", .name = bad[i] };
        struct allot_error err = { 0 };
        uint32_t id;

        ck_assert_msg(build_add(graph, &request, &id, &err) == -EINVAL, "%s", bad[i]);
        ck_assert_ptr_nonnull(strstr(err.text, "cannot be the name of a node"));
    }
    ck_assert_uint_eq(graph_n_nodes(graph), 0);
}
END_TEST

START_TEST(ten_thousand_nodes_of_one_name_and_more_than_a_block) {
    cleanup(graph_unrefp) struct allot_graph *graph = graph_fixture_new();

    for (int i = 0; i < 10000; i++)
        name_of(graph, NULL);
    ck_assert_uint_eq(graph_n_nodes(graph), 10000);
    ck_assert_uint_eq(graph_find(graph, "NoOp_9999")->id, 9999);
}
END_TEST

START_TEST(outputs_are_found_by_name_and_number) {
    cleanup(graph_unrefp) struct allot_graph *graph = graph_fixture_new();
    struct allot_error err = { 0 };
    struct edge edge;

    graph_fixture_node(graph, "cut", "Split", "f32[4]", "N=2");
    ck_assert_int_eq(graph_find_output(graph, "cut:1", &edge, NULL), 0);
    ck_assert_uint_eq(edge.output, 1);
    ck_assert_int_eq(graph_find_output(graph, "cut", &edge, NULL), 0);
    ck_assert_uint_eq(edge.output, 0);
    ck_assert_int_eq(graph_find_output(graph, "cut:2", &edge, &err), -ENOENT);
    ck_assert_str_eq(err.text, "node 'cut' (op Split) has 2 outputs: there is no 'cut:2'");
    ck_assert_int_eq(graph_find_output(graph, "cup:0", &edge, &err), -ENOENT);
    ck_assert_str_eq(err.text, "the graph has no node 'cup'");
    ck_assert_int_eq(graph_find_output(graph, "cut:", &edge, &err), -ENOENT);
    ck_assert_int_eq(graph_find_output(graph, "cut:1x", &edge, &err), -ENOENT);
    ck_assert_int_eq(graph_find_output(graph, "cut:-1", &edge, &err), -ENOENT);
    ck_assert_int_eq(graph_find_output(graph, "cut:99999999999999999999", &edge, &err), -ENOENT);
    ck_assert_int_eq(graph_find_output(graph, "", &edge, &err), -ENOENT);
}
END_TEST

START_TEST(types_and_lengths_follow_from_the_inputs) {
    cleanup(graph_unrefp) struct allot_graph *graph = graph_fixture_new();
    struct edge sum = graph_fixture_node(graph, NULL, "AddN", "f64[2] f64[2] f64[2]", "");

    ck_assert_int_eq(node_int(node_of(graph, sum), "N"), 3);
    ck_assert_int_eq(graph_node_attr(node_of(graph, sum), "T")->dtype, DTYPE_F64);
    ck_assert_int_eq(graph_output(graph, sum)->dtype, DTYPE_F64);
    ck_assert_int_eq(
        graph_node_attr(node_of(graph, graph_fixture_node(graph, NULL, "Assert", "bool[]", "")),
                        "T")
            ->dtype,
        DTYPE_F32);
}
END_TEST

START_TEST(what_does_not_fit_an_op_is_refused_in_words) {
    static const struct {
        const char *op, *inputs, *attrs, *says;
    } cases[] = {
        { "Nope", "", "", "there is no op 'Nope'" },
        { "Neg", "", "", "node 'Neg' (op Neg): 0 inputs are given, but the op takes 1" },
        { "Neg", "f32[2] f32[2]", "", "2 inputs are given, but the op takes 1" },
        { "Neg", "bool[2]", "", "is of type bool, which input x cannot be: it is one of {f16," },
        { "Add", "f32[2] f64[2]", "",
          "node 'Add' (op Add): input y is of type f32, as T is, but 'Placeholder_1:0' is of type "
          "f64" },
        { "Add", "f32[2] f32[2]", "T=f64", "input x is of type f64, as T is" },
        { "LogicalNot", "f32[2]", "",
          "input x is of type bool, but 'Placeholder:0' is of type f32" },
        { "Neg", "f32[2]", "what=1", "the op has no attribute 'what'" },
        { "Assign", "f32[2] f32[2]", "",
          "input variable is a variable, but 'Placeholder:0' (op Placeholder) is a value" },
        { "Split", "f32[2]", "", "attribute 'N' (int) must be given" },
        { "Split", "f32[2]", "N=-1", "attribute 'N' is -1, but a list has 0 to 65536 entries" },
        { "Split", "f32[2]", "N=4611686018427387904", "but a list has 0 to 65536 entries" },
        { "AddN", "f32[2] f32[2]", "N=3", "2 inputs are given, but the op takes 3" },
        { "AddN", "f32[2]", "N=-5", "attribute 'N' is -5" },
        { "Cast", "f32[2]", "U=nonsense", "none is not one of the types" },
        { "Placeholder", "", "", "attribute 'T' (type) must be given" },
    };

    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        cleanup(graph_unrefp) struct allot_graph *graph = graph_fixture_new();
        struct allot_error err = { 0 };
        uint32_t id;

        ck_assert_msg(
            graph_fixture_add(graph, cases[i].op, cases[i].inputs, cases[i].attrs, &id, &err) < 0,
            "%s", cases[i].says);
        ck_assert_msg(strstr(err.text, cases[i].says), "%s instead of %s", err.text, cases[i].says);
        ck_assert_ptr_null(graph_find(graph, cases[i].op[0] == 'P' ? "x" : cases[i].op));
    }
}
END_TEST

START_TEST(edges_and_controls_of_no_node_are_refused) {
    cleanup(graph_unrefp) struct allot_graph *graph = graph_fixture_new();
    struct edge x = graph_fixture_node(graph, "x", "Placeholder", "", "T=f32 shape=[2]");
    uint32_t id, far = 7;

    ck_assert_int_eq(build_add(graph,
                               &(struct build_node){
                                   .op = "Neg", .inputs = &(struct edge){ 1, 0 }, .n_inputs = 1 },
                               &id, NULL),
                     -EINVAL);
    ck_assert_int_eq(build_add(graph,
                               &(struct build_node){ .op = "Neg",
                                                     .inputs = &(struct edge){ x.node, 1 },
                                                     .n_inputs = 1 },
                               &id, NULL),
                     -EINVAL);
    ck_assert_int_eq(
        build_add(graph, &(struct build_node){ .op = "NoOp", .controls = &far, .n_controls = 1 },
                  &id, NULL),
        -EINVAL);
    ck_assert_int_eq(
        build_add(graph, &(struct build_node){ .op = "NoOp", .colocate = &far, .n_colocate = 1 },
                  &id, NULL),
        -EINVAL);
    ck_assert_uint_eq(graph_n_nodes(graph), 1);
}
END_TEST

/* ---- Scopes ---------------------------------------------------------------------------------- */

static const char *device_of(struct allot_graph *graph, const char *own) {
    struct build_node request = { .op = "NoOp", .device = own };
    struct allot_error err = { 0 };
    uint32_t id;

    ck_assert_msg(build_add(graph, &request, &id, &err) == 0, "%s", err.text);
    return graph_node(graph, id)->device;
}

START_TEST(device_scopes_nest_and_fill_in_what_is_open) {
    cleanup(graph_unrefp) struct allot_graph *graph = graph_fixture_new();
    struct allot_error err = { 0 };

    ck_assert_str_eq(device_of(graph, NULL), "");
    ck_assert_int_eq(scope_push_device(graph, "/job:worker", NULL), 0);
    ck_assert_int_eq(scope_push_device(graph, "/gpu:1", NULL), 0);
    ck_assert_str_eq(device_of(graph, NULL), "/job:worker/device:GPU:1");
    ck_assert_str_eq(device_of(graph, "/cpu:0"), "/job:worker/device:CPU:0");
    ck_assert_int_eq(scope_push_device(graph, NULL, NULL), 0);
    ck_assert_str_eq(device_of(graph, NULL), "");
    ck_assert_str_eq(device_of(graph, "/gpu:3"), "/device:GPU:3");
    scope_pop(graph);
    ck_assert_int_eq(scope_push_device(graph, "/job:ps/cpu:0", NULL), 0);
    ck_assert_str_eq(device_of(graph, NULL), "/job:ps/device:CPU:0");
    scope_pop(graph);
    scope_pop(graph);
    scope_pop(graph);
    scope_pop(graph); /* one too many does nothing */
    ck_assert_str_eq(device_of(graph, NULL), "");
    ck_assert_int_eq(scope_push_device(graph, "/gpu:x", &err), -EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "'/gpu:x' is not a device name"));
    ck_assert_ptr_null(graph->scope);
}
END_TEST

struct robin {
    int next;
    char text[32];
};

static const char *round_robin(const char *op, const char *name, const char *device,
                               void *userdata) {
    struct robin *robin = userdata;

    if (strcmp(op, "NoOp") == 0)
        return NULL;
    ck_assert_str_eq(device, strcmp(name, "inner") == 0 ? "/device:CPU:0" : "");
    snprintf(robin->text, sizeof(robin->text), "/gpu:%d", robin->next++ % 2);
    return robin->text;
}

static const char *nonsense(const char *op, const char *name, const char *device, void *userdata) {
    return "/over:there";
}

START_TEST(device_functions_are_asked_for_each_node) {
    cleanup(graph_unrefp) struct allot_graph *graph = graph_fixture_new();
    struct allot_error err = { 0 };
    struct robin robin = { 0 };
    uint32_t id;

    ck_assert_int_eq(scope_push_function(graph, round_robin, &robin, NULL), 0);
    ck_assert_str_eq(
        node_of(graph, graph_fixture_node(graph, "a", "Placeholder", "", "T=f32"))->device,
        "/device:GPU:0");
    ck_assert_str_eq(
        node_of(graph, graph_fixture_node(graph, "b", "Placeholder", "", "T=f32"))->device,
        "/device:GPU:1");
    ck_assert_str_eq(device_of(graph, NULL), "");
    ck_assert_int_eq(scope_push_device(graph, "/cpu:0", NULL), 0);
    /* Further in is asked first, and the function has the last word. */
    ck_assert_str_eq(
        node_of(graph, graph_fixture_node(graph, "inner", "Placeholder", "", "T=f32"))->device,
        "/device:GPU:0");
    ck_assert_str_eq(device_of(graph, NULL), "/device:CPU:0");
    ck_assert_int_eq(scope_push_function(graph, nonsense, NULL, NULL), 0);
    ck_assert_int_eq(graph_fixture_add(graph, "NoOp", "", "", &id, &err), -EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "the device function, asked about 'NoOp_2' (op NoOp)"));
}
END_TEST

START_TEST(control_scopes_add_up_and_can_be_ended) {
    cleanup(graph_unrefp) struct allot_graph *graph = graph_fixture_new();
    uint32_t a = graph_fixture_node(graph, "a", "NoOp", "", "").node,
             b = graph_fixture_node(graph, "b", "NoOp", "", "").node;
    const struct node *node;

    ck_assert_int_eq(scope_push_controls(graph, &a, 1, NULL), 0);
    ck_assert_int_eq(scope_push_controls(graph, (uint32_t[]){ b, a }, 2, NULL), 0);
    node = node_of(graph, graph_fixture_node(graph, "c", "NoOp", "", ""));
    ck_assert_uint_eq(node->n_controls, 2);
    ck_assert(node->controls[0] == b && node->controls[1] == a);
    ck_assert_int_eq(scope_push_controls(graph, NULL, 0, NULL), 0);
    ck_assert_uint_eq(node_of(graph, graph_fixture_node(graph, "d", "NoOp", "", ""))->n_controls,
                      0);
    ck_assert_int_eq(scope_push_controls(graph, &b, 1, NULL), 0);
    ck_assert_uint_eq(node_of(graph, graph_fixture_node(graph, "e", "NoOp", "", ""))->n_controls,
                      1);
}
END_TEST

START_TEST(colocated_nodes_take_the_device_of_their_partner) {
    cleanup(graph_unrefp) struct allot_graph *graph = graph_fixture_new();
    uint32_t partner;
    const struct node *node;

    ck_assert_int_eq(scope_push_device(graph, "/gpu:1", NULL), 0);
    partner = graph_fixture_node(graph, "p", "NoOp", "", "").node;
    scope_pop(graph);
    ck_assert_int_eq(scope_push_device(graph, "/cpu:0", NULL), 0);
    ck_assert_int_eq(scope_push_colocate(graph, partner, NULL), 0);
    node = node_of(graph, graph_fixture_node(graph, "q", "NoOp", "", ""));
    ck_assert_str_eq(node->device, "/device:GPU:1");
    ck_assert_uint_eq(node->n_colocate, 1);
    ck_assert_uint_eq(node->colocate[0], partner);
}
END_TEST

/* ---- Variables ------------------------------------------------------------------------------- */

START_TEST(a_handle_is_read_once_for_all_ops_that_need_its_value) {
    cleanup(graph_unrefp) struct allot_graph *graph = graph_fixture_new();
    const struct node *one, *two, *read;
    struct edge v;

    ck_assert_int_eq(scope_push_device(graph, "/cpu:0", NULL), 0);
    v = graph_fixture_node(graph, "v", "Variable", "", "T=f32 shape=[2]");
    scope_pop(graph);
    ck_assert_int_eq(scope_push_device(graph, "/gpu:0", NULL), 0);
    ck_assert_int_eq(scope_push_name(graph, "layer", NULL), 0);
    one = node_of(graph, graph_fixture_node(graph, NULL, "Neg", "@v", ""));
    two = node_of(graph, graph_fixture_node(graph, NULL, "Exp", "@v", ""));
    read = graph_node(graph, one->inputs[0].node);
    ck_assert_str_eq(read->op->name, "ReadVariable");
    ck_assert_str_eq(read->name, "v/read");
    ck_assert_str_eq(read->device, "/device:CPU:0");
    ck_assert_uint_eq(read->inputs[0].node, v.node);
    ck_assert_uint_eq(two->inputs[0].node, read->id);
    ck_assert_uint_eq(graph_variable(graph, v.node)->read, read->id);
    ck_assert_int_eq(graph_output(graph, (struct edge){ one->id, 0 })->shape.dims[0], 2);
}
END_TEST

START_TEST(under_a_control_scope_a_variable_is_read_anew) {
    cleanup(graph_unrefp) struct allot_graph *graph = graph_fixture_new();
    const struct node *read, *later;
    uint32_t write;

    graph_fixture_node(graph, "v", "Variable", "", "T=f32 shape=[2]");
    read = graph_node(
        graph, node_of(graph, graph_fixture_node(graph, NULL, "Neg", "@v", ""))->inputs[0].node);
    write = graph_fixture_node(graph, NULL, "Assign", "@v f32[2]", "").node;
    ck_assert_int_eq(scope_push_controls(graph, &write, 1, NULL), 0);
    later = graph_node(
        graph, node_of(graph, graph_fixture_node(graph, NULL, "Neg", "@v", ""))->inputs[0].node);
    ck_assert_ptr_ne(read, later);
    ck_assert_uint_eq(later->n_controls, 1);
    ck_assert_uint_eq(later->controls[0], write);
    ck_assert_str_eq(later->name, "v/read_1");
    ck_assert_uint_eq(read->n_controls, 0);
}
END_TEST

START_TEST(only_what_is_asked_for_runs_and_in_order) {
    cleanup(graph_unrefp) struct allot_graph *graph = graph_fixture_new();
    struct edge a = graph_fixture_node(graph, "a", "Placeholder", "", "T=f32 shape=[4]");
    struct edge cut = graph_fixture_node(graph, "cut", "Split", "@a", "N=2");
    struct edge b = graph_fixture_node(graph, "b", "Neg", "@cut:0", "");
    struct edge c = graph_fixture_node(graph, "c", "Add", "@b @cut:1", "");
    uint32_t note = graph_fixture_node(graph, "note", "NoOp", "", "").node;
    uint32_t *ids, id;
    size_t n;

    ck_assert_int_eq(scope_push_controls(graph, &note, 1, NULL), 0);
    id = graph_fixture_node(graph, "d", "Exp", "@c", "").node;
    scope_pop(graph);
    graph_fixture_node(graph, "unused", "Exp", "@c", "");

    ck_assert_int_eq(
        topo_prune(graph,
                   &(struct topo_request){ .fetches = &(struct edge){ id, 0 }, .n_fetches = 1 },
                   &ids, &n, NULL),
        0);
    ck_assert_uint_eq(n, 6);
    for (size_t i = 0; i < n; i++)
        ck_assert_uint_eq(ids[i], ((uint32_t[]){ a.node, cut.node, b.node, c.node, note, id })[i]);
    free(ids);

    /* A feed cuts off what it stands for, and a fed fetch needs nothing. */
    ck_assert_int_eq(topo_prune(graph,
                                &(struct topo_request){ .fetches = (struct edge[]){ c, b },
                                                        .n_fetches = 2,
                                                        .feeds = (struct edge[]){ b },
                                                        .n_feeds = 1 },
                                &ids, &n, NULL),
                     0);
    ck_assert_uint_eq(n, 3);
    ck_assert(ids[0] == a.node && ids[1] == cut.node && ids[2] == c.node);
    free(ids);
    ck_assert_int_eq(
        topo_prune(graph,
                   &(struct topo_request){ .fetches = &c,
                                           .n_fetches = 1,
                                           .feeds = (struct edge[]){ b, { cut.node, 1 } },
                                           .n_feeds = 2 },
                   &ids, &n, NULL),
        0);
    ck_assert_uint_eq(n, 1);
    free(ids);
    ck_assert_int_eq(topo_prune(graph, &(struct topo_request){ .targets = &note, .n_targets = 1 },
                                &ids, &n, NULL),
                     0);
    ck_assert_uint_eq(n, 1);
    free(ids);
    id = 1000;
    ck_assert_int_eq(
        topo_prune(graph, &(struct topo_request){ .targets = &id, .n_targets = 1 }, &ids, &n, NULL),
        -EINVAL);
    ck_assert_int_eq(
        topo_prune(graph,
                   &(struct topo_request){ .feeds = &(struct edge){ b.node, 3 }, .n_feeds = 1 },
                   &ids, &n, NULL),
        -EINVAL);
}
END_TEST

/* Looks at what there is, again and again, until all of it is there. */
static void *reader(void *userdata) {
    struct allot_graph *graph = userdata;
    uint32_t n_nodes;

    do {
        uint32_t *ids, last;
        size_t n;

        n_nodes = graph_n_nodes(graph);
        if (n_nodes == 0)
            continue;
        last = n_nodes - 1;
        ck_assert_int_eq(topo_prune(graph,
                                    &(struct topo_request){ .targets = &last, .n_targets = 1 },
                                    &ids, &n, NULL),
                         0);
        ck_assert_uint_eq(n, n_nodes); /* each takes the one before */
        free(ids);
        ck_assert_ptr_eq(graph_unref(graph_ref(graph)), NULL);
    } while (n_nodes < 3000);
    return NULL;
}

START_TEST(others_read_a_graph_while_one_builds_it) {
    cleanup(graph_unrefp) struct allot_graph *graph = graph_fixture_new();
    struct edge last = graph_fixture_node(graph, "x", "Placeholder", "", "T=f32 shape=[2]");
    pthread_t threads[2];

    for (size_t i = 0; i < ELEMENTSOF(threads); i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, reader, graph), 0);
    while (graph_n_nodes(graph) < 3000) {
        struct build build = { graph, NULL, 0 };

        last = build_1(&build, "Neg", last);
        ck_assert_int_eq(build.r, 0);
    }
    for (size_t i = 0; i < ELEMENTSOF(threads); i++)
        pthread_join(threads[i], NULL);
}
END_TEST

START_TEST(a_long_list_of_controls_has_each_node_once_in_order) {
    enum { N = 300 };
    cleanup(graph_unrefp) struct allot_graph *graph = graph_fixture_new();
    struct build_node all = { .op = "NoOp", .n_controls = 2 * N };
    uint32_t controls[2 * N], id;
    const struct node *node;

    /* From the last to the first, and all of them once more. */
    for (uint32_t i = 0; i < N; i++) {
        ck_assert_int_eq(build_add(graph, &(struct build_node){ .op = "NoOp" }, &id, NULL), 0);
        controls[N - 1 - i] = controls[N + i] = id;
    }
    all.controls = controls;
    ck_assert_int_eq(build_add(graph, &all, &id, NULL), 0);
    node = graph_node(graph, id);
    ck_assert_uint_eq(node->n_controls, N);
    for (uint32_t i = 0; i < N; i++)
        ck_assert_uint_eq(node->controls[i], controls[i]);
}
END_TEST

SUITE("graph", names_are_made_unique_as_tensorflow_does, names_that_cannot_be_are_refused,
      ten_thousand_nodes_of_one_name_and_more_than_a_block, outputs_are_found_by_name_and_number,
      types_and_lengths_follow_from_the_inputs, what_does_not_fit_an_op_is_refused_in_words,
      edges_and_controls_of_no_node_are_refused, device_scopes_nest_and_fill_in_what_is_open,
      device_functions_are_asked_for_each_node, control_scopes_add_up_and_can_be_ended,
      a_long_list_of_controls_has_each_node_once_in_order,
      colocated_nodes_take_the_device_of_their_partner,
      a_handle_is_read_once_for_all_ops_that_need_its_value,
      under_a_control_scope_a_variable_is_read_anew, only_what_is_asked_for_runs_and_in_order,
      others_read_a_graph_while_one_builds_it)
