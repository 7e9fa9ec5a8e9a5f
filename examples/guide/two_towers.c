/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two towers by hand: a product on each of two cards, and the CPU adds up. The session leases as
 * many cards as the graph names.
 *
 *     [[44 56] [98 128]]
 */
#include "guide.h"

int main(void) {
    static const char *const cards[] = { "/device:GPU:2", "/device:GPU:3" };
    struct allot_graph *graph = graph_new();
    struct allot_output towers[2], sum = { 0 };
    struct allot_session *session;

    for (int i = 0; i < 2; i++) {
        allot_with_device(graph, cards[i]) {
            struct allot_output a = one_to_six(graph, "a", 2);
            struct allot_output b = one_to_six(graph, "b", 3);

            towers[i] = allot_matmul(a, b);
        }
    }
    allot_with_device(graph, "/cpu:0") {
        sum = allot_add_n(towers, 2);
    }

    allot_log_set(print_line, NULL);
    session = session_new(graph, NULL);
    print_tensor("", value_of(session, sum));

    allot_session_free(session);
    allot_graph_unref(graph);
    return EXIT_SUCCESS;
}
