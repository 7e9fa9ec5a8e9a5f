/* SPDX-License-Identifier: Apache-2.0 */
/* Variables and scopes: what is made within a control or colocate scope, and what runs then. */
#include <errno.h>
#include <string.h>

#include "libclient/allot/session.h"
#include "libclient/allot/train.h"
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
static struct allot_session *session;

static void begin(void) {
    must(allot_graph_new(&graph, &err));
}

/* The initializer has run. */
static void start(void) {
    struct allot_session_options options = ALLOT_SESSION_OPTIONS_INIT;
    struct allot_node *init = allot_initializer(graph);

    options.cpu_only = true;
    must(allot_graph_error(graph, &err));
    must(allot_session_new(&session, graph, &options, &err));
    must(allot_session_run(session, NULL, NULL, 0, NULL, 0, &init, 1, NULL, &err));
}

static void end(void) {
    allot_session_free(session);
    allot_graph_unref(graph);
}

static float value_of(struct allot_output output) {
    struct allot_tensor *tensor;
    float value;

    must(allot_session_run(session, NULL, NULL, 0, &output, 1, NULL, 0, &tensor, &err));
    value = *(float *)allot_tensor_data(tensor);
    allot_tensor_unref(tensor);
    return value;
}

static struct allot_output number(double value) {
    return allot_scalar(graph, ALLOT_F32, value);
}

START_TEST(a_variable_does_not_wait_for_what_it_was_made_after) {
    struct allot_output count, more, two, v, bare, later;

    begin();
    count = allot_variable(graph, "count", number(0));
    more = allot_assign_add(count, number(1));
    two = number(2);
    allot_with_control(graph, more.node) {
        v = allot_variable(graph, "v", two);
        bare = allot_variable_of(graph, "bare", ALLOT_F32, 0, NULL);
    }
    allot_with_control(graph, more.node) {
        later = allot_add(v, two);
    }
    ck_assert_uint_eq(handle_node(bare.node)->n_controls, 0);
    start();
    ck_assert(value_of(count) == 0);
    ck_assert(value_of(v) == 2);
    ck_assert(value_of(allot_add(v, two)) == 4);
    ck_assert(value_of(count) == 0);
    /* A read within the scope does. */
    ck_assert(value_of(later) == 4);
    ck_assert(value_of(count) == 1);
    end();
}
END_TEST

START_TEST(nor_does_the_state_of_an_optimizer) {
    for (int method = 0; method < 3; method++) {
        struct allot_optimizer *optimizer = method == 0   ? allot_sgd(0.25)
                                            : method == 1 ? allot_momentum(0.25, 0.5, false)
                                                          : allot_adam(0.25, ALLOT_ADAM_DEFAULTS);
        struct allot_output x, w, loss;
        struct allot_node *check, *step;
        struct allot_tensor *fed;

        begin();
        x = allot_placeholder(graph, "x", ALLOT_F32, 0, NULL);
        w = allot_variable(graph, "w", number(3));
        loss = allot_mul(w, x);
        check = allot_assert(allot_greater(x, number(0)), &x, 1, "x must be positive");
        allot_with_control(graph, check) {
            step = allot_minimize(optimizer, loss);
        }
        start();
        for (int negative = 1; negative >= 0; negative--) {
            must(allot_tensor_copy_of(&fed, ALLOT_F32, 0, NULL, (float[]){ negative ? -1 : 1 },
                                      &err));
            ck_assert_int_eq(allot_session_run(session, &x, &fed, 1, NULL, 0, &step, 1, NULL, &err),
                             negative ? -EINVAL : 0);
            ck_assert_msg(negative ? value_of(w) == 3 : value_of(w) < 2.8f, "method %d: %g", method,
                          (double)value_of(w));
            allot_tensor_unref(fed);
        }
        allot_optimizer_free(optimizer);
        end();
    }
}
END_TEST

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

SUITE("scopes", a_variable_does_not_wait_for_what_it_was_made_after,
      nor_does_the_state_of_an_optimizer, what_reads_or_writes_a_variable_is_where_that_is)
