/* SPDX-License-Identifier: Apache-2.0 */
/* CPU fallback: the devices that there are, and the product on a GPU if there is one. */
#include <allot/config.h>

#include "guide.h"

int main(void) {
    const char *device = allot_gpu_available() ? "/gpu:0" : "/cpu:0";
    struct allot_graph *graph = graph_new();
    struct allot_device devices[8];
    struct allot_session *session;
    struct allot_output c = { 0 };
    size_t n = allot_devices(devices, 8);

    for (size_t i = 0; i < n && i < 8; i++)
        printf("%s: %s\n", devices[i].name, devices[i].description);
    printf("the product is for %s\n", device);
    allot_with_device(graph, device) {
        struct allot_output a = one_to_six(graph, "a", 2);
        struct allot_output b = one_to_six(graph, "b", 3);

        c = allot_matmul(a, b);
    }
    session = session_new(graph, NULL);
    print_tensor("", value_of(session, c));

    allot_session_free(session);
    allot_graph_unref(graph);
    return EXIT_SUCCESS;
}
