/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fraction: 0.4 of each card's memory for this program, whatever it computes. The devices of the
 * session are printed with their limits; it ends with its standard input, so that one can look:
 *
 *     gpuctl leases
 */
#include <inttypes.h>

#include "guide.h"

int main(void) {
    struct allot_session_options options = ALLOT_SESSION_OPTIONS_INIT;
    struct allot_graph *graph = graph_new();
    struct allot_output a = one_to_six(graph, "a", 2);
    struct allot_output b = one_to_six(graph, "b", 3);
    struct allot_output c = allot_matmul(a, b);
    struct allot_device devices[8];
    struct allot_session *session;
    size_t n;

    options.memory_fraction = 0.4;
    session = session_new(graph, &options);
    n = allot_session_devices(session, devices, 8);
    for (size_t i = 0; i < n && i < 8; i++)
        if (devices[i].type[0] == 'G')
            printf("%s: at most %" PRIu64 " MiB, %s\n", devices[i].name,
                   devices[i].memory_limit >> 20, devices[i].description);
    print_tensor("", value_of(session, c));
    while (getchar() != EOF)
        ;

    allot_session_free(session);
    allot_graph_unref(graph);
    return EXIT_SUCCESS;
}
