/* SPDX-License-Identifier: Apache-2.0 */
/* Variables and scopes: what is made within a control or colocate scope, and what runs then. */
#include <errno.h>
#include <string.h>

#include "libclient/allot/ops.h"
#include "libclient/api/handle.h"
#include "tests/support/suite.h"

static struct allot_error err;

#define must(call)                                                                                 \
    do {                                                                                           \
        int must_r_ = call;                                                                        \
                                                                                                   \
        ck_assert_msg(must_r_ == 0, "%s", err.text);                                               \
    } while (0)

static struct allot_graph *graph;

static void begin(void) {
    must(allot_graph_new(&graph, &err));
}

static struct allot_output number(double value) {
    return allot_scalar(graph, ALLOT_F32, value);
}

/* Scopes of colocation are for what is written in them: a read that an op needs, and a write, go
 * where the variable is. */
START_TEST(what_reads_or_writes_a_variable_is_where_that_is) {
    struct allot_output w, a, sum[2], read, write;
    struct allot_node *before;

    begin();
    allot_with_device(graph, "/cpu:0") {
        w = allot_variable(graph, "w", number(3));
    }
    allot_with_device(graph, "/gpu:0") {
        a = allot_neg(number(1));
    }
    before = allot_group(graph, "before", NULL, 0);
    for (int controlled = 0; controlled < 2; controlled++) {
        allot_control_push(graph, &before, controlled ? 1 : 0);
        allot_colocate_push(graph, a.node);
        sum[controlled] = allot_add(w, a);
        read = allot_read(w);
        write = allot_assign(w, a);
        allot_colocate_pop(graph);
        allot_control_pop(graph);
        must(allot_graph_error(graph, &err));
        for (int i = 0; i < 4; i++) {
            const struct node *node =
                i == 0   ? handle_node(allot_node_input(sum[controlled].node, 0).node)
                : i == 1 ? handle_node(read.node)
                : i == 2 ? handle_node(write.node)
                         : graph_node(graph, handle_node(write.node)->controls[0]);

            ck_assert_str_eq(node->device, "/device:CPU:0");
            ck_assert_msg(node->n_colocate == 0, "%s", node->name);
        }
        ck_assert_uint_eq(handle_node(sum[controlled].node)->n_colocate, 1);
        ck_assert_uint_eq(handle_node(read.node)->n_controls, (unsigned)controlled);
    }
    allot_graph_unref(graph);
}
END_TEST

SUITE("scopes", what_reads_or_writes_a_variable_is_where_that_is)
